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

/// Bench, test, bytes and mode of the report's row, kind of figure, what it is held to.
type Message = (
    &'static str,
    &'static str,
    u64,
    &'static str,
    Kind,
    Option<f64>,
);

const MESSAGES: &[Message] = &[
    (
        "write_4096",
        "engine_write",
        4096,
        "both CRCs",
        Kind::Bandwidth,
        Some(4.0),
    ),
    (
        "write_4096_no_crc",
        "engine_write",
        4096,
        "no CRC",
        Kind::Bandwidth,
        Some(10.0),
    ),
    (
        "read_4096",
        "engine_read",
        4096,
        "both CRCs",
        Kind::Bandwidth,
        None,
    ),
    (
        "send_4096",
        "engine_send",
        4096,
        "both CRCs",
        Kind::Bandwidth,
        None,
    ),
    (
        "write_64",
        "engine_write",
        64,
        "both CRCs",
        Kind::Rate,
        Some(3.0),
    ),
    (
        "write_64_inline",
        "engine_write",
        64,
        "both CRCs, inline",
        Kind::Rate,
        None,
    ),
    (
        "send_64",
        "engine_send",
        64,
        "both CRCs",
        Kind::Rate,
        Some(3.0),
    ),
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
    for (name, test, size, mode, kind, least) in MESSAGES {
        let nanos = nanos(&folder, "engine", name)?;
        let (figure, unit) = match kind {
            Kind::Bandwidth => (*size as f64 / nanos, "GB/s"),
            Kind::Rate => (1e3 / nanos, "M/s"),
        };
        rows.push(Row {
            test: (*test).to_owned(),
            size: *size,
            qps: 1,
            mode: (*mode).to_owned(),
            ochre: Some(round(figure)),
            unit: unit.to_owned(),
            bounds: least.map(Bound::AtLeast).into_iter().collect(),
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
