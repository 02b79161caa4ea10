// SPDX-License-Identifier: GPL-2.0-or-later
//! What the device's threads take from the host while nothing happens.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::report::{round, Bound, Row};
use crate::lab::Lab;
use crate::launch::HCA_ID;

/// Most of one processor that idle threads may take, in percent.
const CPU: f64 = 1.0;

/// One thread's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Used {
    nanos: u64,
    wakes: u64,
}

/// Watches the device's threads for `time`; rows of the busiest.
///
/// # Errors
/// When a thread is not found.
pub fn rows(lab: &Lab, time: Duration) -> Result<Vec<Row>> {
    let tasks = lab
        .vms
        .iter()
        .map(|vm| {
            service(vm.group()).with_context(|| format!("VM {}: the device's thread", vm.name()))
        })
        .collect::<Result<Vec<_>>>()?;
    let read = || -> Result<Vec<Used>> { tasks.iter().map(|task| used(task)).collect() };
    let (start, before) = (Instant::now(), read()?);
    thread::sleep(time);
    let (time, after) = (start.elapsed(), read()?);
    let most = |of: fn(&Used) -> u64| {
        let rise = before.iter().zip(&after).map(|(b, a)| of(a) - of(b));
        rise.max().unwrap_or(0) as f64 / time.as_secs_f64()
    };
    let row = |mode: &str, figure: f64, unit: &str, bounds| Row {
        test: "idle_device_thread".into(),
        mode: mode.into(),
        ochre: Some(round(figure)),
        unit: unit.into(),
        bounds,
        ..Row::default()
    };
    Ok(vec![
        row(
            "processor",
            most(|used| used.nanos) / 1e9 * 100.0,
            "%",
            vec![Bound::AtMost(CPU)],
        ),
        row("wake-ups", most(|used| used.wakes), "1/s", Vec::new()),
    ])
}

/// The folder in /proc of the device's service thread in a process group.
fn service(group: i32) -> Result<PathBuf> {
    let name = format!("ochre/{HCA_ID}");
    for entry in fs::read_dir("/proc")
        .context("cannot list /proc")?
        .flatten()
    {
        let process = entry.path();
        let Ok(stat) = fs::read_to_string(process.join("stat")) else {
            continue;
        };
        if group_of(&stat) != Some(group) {
            continue;
        }
        for task in fs::read_dir(process.join("task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let task = task.path();
            let comm = fs::read_to_string(task.join("comm")).unwrap_or_default();
            if comm.trim() == name {
                return Ok(task);
            }
        }
    }
    bail!("no thread '{name}' in process group {group}")
}

/// The process group in the text of `/proc/N/stat`: the third word behind the name in parentheses.
fn group_of(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(2)?.parse().ok()
}

fn used(task: &Path) -> Result<Used> {
    let read = |name: &str| {
        let path = task.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (schedstat, status) = (read("schedstat")?, read("status")?);
    parse(&schedstat, &status).with_context(|| format!("{}: no counters", task.display()))
}

fn parse(schedstat: &str, status: &str) -> Option<Used> {
    Some(Used {
        nanos: schedstat.split(' ').next()?.parse().ok()?,
        wakes: status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?
            .trim()
            .parse()
            .ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_the_kernel_prints_them() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(
            parse("1234567 89 10\n", status),
            Some(Used {
                nanos: 1_234_567,
                wakes: 42
            })
        );
        assert_eq!(parse("", status), None);
        assert_eq!(parse("1 2 3", "Name:\tx\n"), None);
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        assert_eq!(group_of("12 (a) b) S 1 99 12 0"), Some(99));
        assert_eq!(group_of("nonsense"), None);
    }
}
