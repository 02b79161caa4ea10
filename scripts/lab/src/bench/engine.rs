// SPDX-License-Identifier: GPL-2.0-or-later
//! The engine alone, without QEMU: runs the firmware's own benches and reads what they found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde::Deserialize;

use super::report::{round, Bound, Row};
use crate::paths;

/// How a bench's time becomes a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Bytes a second, in 10^9.
    Bandwidth,
    /// Messages a second, in 10^6.
    Rate,
}

/// One bench and its row of the report.
struct Bench {
    name: &'static str,
    test: &'static str,
    size: u64,
    mode: &'static str,
    kind: Kind,
    /// What it is held to.
    least: Option<f64>,
}

impl Bench {
    const fn new(name: &'static str, test: &'static str, size: u64, kind: Kind) -> Self {
        Self {
            name,
            test,
            size,
            mode: "both CRCs",
            kind,
            least: None,
        }
    }

    const fn mode(self, mode: &'static str) -> Self {
        Self { mode, ..self }
    }

    const fn least(self, least: f64) -> Self {
        Self {
            least: Some(least),
            ..self
        }
    }
}

const BENCHES: [Bench; 7] = [
    Bench::new("write_4096", "engine_write", 4096, Kind::Bandwidth).least(4.0),
    Bench::new("write_4096_no_crc", "engine_write", 4096, Kind::Bandwidth)
        .mode("no CRC")
        .least(10.0),
    Bench::new("read_4096", "engine_read", 4096, Kind::Bandwidth),
    Bench::new("send_4096", "engine_send", 4096, Kind::Bandwidth),
    Bench::new("write_64", "engine_write", 64, Kind::Rate).least(3.0),
    Bench::new("write_64_inline", "engine_write", 64, Kind::Rate).mode("both CRCs, inline"),
    Bench::new("send_64", "engine_send", 64, Kind::Rate).least(3.0),
];

/// Numbers of QPs of the curve.
pub const SCALE: [u32; 4] = [10, 100, 1000, 10_000];

/// What the curve may grow by.
const GROWTH: f64 = 0.2;

/// Bytes of an idle QP.
const QP_BYTES: f64 = 2048.0;

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

#[derive(Deserialize)]
struct Footprint {
    qp_bytes: f64,
    mr_bytes: f64,
    qps: u32,
    mrs: u64,
}

/// Folder of cargo's results.
fn target() -> Result<PathBuf> {
    Ok(match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => folder.into(),
        None => paths::top()?.join("target"),
    })
}

/// A cargo command on the firmware's crate.
fn cargo(words: &[&str]) -> Result<Command> {
    let mut command = Command::new("cargo");
    command
        .current_dir(paths::top()?)
        .args(words)
        .args(["--locked", "-p", "ochre-hca"])
        .stdin(Stdio::null());
    Ok(command)
}

/// Builds an example of the firmware; gives its path.
///
/// # Errors
/// When it does not build.
pub fn example(name: &str) -> Result<PathBuf> {
    run(cargo(&[
        "build",
        "--release",
        "--quiet",
        "--example",
        name,
    ])?)?;
    Ok(target()?.join("release/examples").join(name))
}

/// Runs a command to its end; gives its standard output.
///
/// # Errors
/// When it fails, with its last words.
pub fn run(mut command: Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.trim().lines().rev().take(12).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    bail!("{command:?}: {}\n{}", output.status, lines.join("\n"))
}

/// Runs the benches, each for `time`; gives the rows.
///
/// # Errors
/// When they do not build or run.
pub fn rows(time: Duration) -> Result<Vec<Row>> {
    let mut bench = cargo(&["bench", "--bench", "engine"])?;
    bench.args(["--", "--noplot", "--sample-size", "10"]);
    for (name, time) in [("--warm-up-time", time / 4), ("--measurement-time", time)] {
        bench.arg(name).arg(format!("{:.2}", time.as_secs_f64()));
    }
    run(bench)?;
    let folder = target()?.join("criterion");
    let mut rows = Vec::new();
    for bench in BENCHES {
        let nanos = nanos(&folder, "engine", bench.name)?;
        let (figure, unit) = match bench.kind {
            Kind::Bandwidth => (bench.size as f64 / nanos, "GB/s"),
            Kind::Rate => (1e3 / nanos, "M/s"),
        };
        rows.push(Row {
            test: bench.test.to_owned(),
            size: bench.size,
            qps: 1,
            mode: bench.mode.to_owned(),
            ochre: Some(round(figure)),
            unit: unit.to_owned(),
            bounds: bench.least.map(Bound::AtLeast).into_iter().collect(),
            ..Row::default()
        });
    }
    let scale = SCALE
        .iter()
        .map(|qps| nanos_of(&folder, *qps))
        .collect::<Result<Vec<f64>>>()?;
    rows.extend(curve(&scale));
    rows.extend(footprint()?);
    Ok(rows)
}

fn nanos_of(folder: &Path, qps: u32) -> Result<f64> {
    nanos(folder, "scale", &qps.to_string())
}

/// Nanoseconds of one message.
fn nanos(folder: &Path, group: &str, name: &str) -> Result<f64> {
    let path = folder.join(group).join(name).join("new/estimates.json");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let estimates: Estimates =
        serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    let nanos = estimates.median.point_estimate;
    if !(nanos.is_finite() && nanos > 0.0) {
        bail!("{}: {nanos} ns is no time", path.display());
    }
    Ok(nanos)
}

/// Rows of the cost of a message by number of QPs, held to what the first costs.
fn curve(nanos: &[f64]) -> Vec<Row> {
    let first = nanos.first().copied().unwrap_or(0.0);
    SCALE
        .iter()
        .zip(nanos)
        .enumerate()
        .map(|(n, (&qps, &nanos))| Row {
            test: "engine_write".into(),
            size: 64,
            qps,
            mode: "each on the next QP".into(),
            ochre: Some(round(nanos)),
            unit: "ns".into(),
            bounds: if n == 0 {
                Vec::new()
            } else {
                vec![Bound::AtMost(round(first * (1.0 + GROWTH)))]
            },
            ..Row::default()
        })
        .collect()
}

fn footprint() -> Result<Vec<Row>> {
    let text = run(Command::new(example("footprint")?))?;
    let found: Footprint =
        serde_json::from_str(&text).with_context(|| format!("footprint said: {text}"))?;
    let row = |test: &str, mode: String, bytes: f64, bounds| Row {
        test: test.into(),
        qps: found.qps,
        mode,
        ochre: Some(bytes),
        unit: "B".into(),
        bounds,
        ..Row::default()
    };
    Ok(vec![
        row(
            "memory_of_qp",
            "idle, connected".into(),
            found.qp_bytes,
            vec![Bound::AtMost(QP_BYTES)],
        ),
        row(
            "memory_of_mr",
            format!("{} regions", found.mrs),
            found.mr_bytes,
            Vec::new(),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_may_grow_by_a_fifth() {
        let rows = curve(&[100.0, 110.0, 119.0, 121.0]);
        let met: Vec<_> = rows.iter().map(Row::met).collect();
        assert_eq!(met, [None, Some(true), Some(true), Some(false)]);
        assert_eq!(rows[3].qps, 10_000);
    }

    #[test]
    fn an_estimate_that_is_not_there_is_named() {
        let error = nanos(Path::new("/nowhere"), "engine", "x").unwrap_err();
        assert!(error.to_string().contains("/nowhere/engine/x"));
    }
}
