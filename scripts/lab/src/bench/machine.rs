// SPDX-License-Identifier: GPL-2.0-or-later
//! What machine this is, and the record of its kind in the repository.

use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::report::{self, Row};
use crate::paths;

/// A kind of machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of its processors.
    pub processor: String,
    /// Their number.
    pub processors: usize,
    /// What executes the guests: `kvm` or `tcg`.
    pub accel: String,
}

impl Machine {
    /// This one.
    pub fn this(accel: &str) -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            processor: processor(&info).unwrap_or("unknown processor").to_owned(),
            processors: thread::available_parallelism().map_or(1, usize::from),
            accel: accel.to_owned(),
        }
    }

    /// Its name in file names.
    fn slug(&self) -> String {
        let text = format!("{}-{}cpu-{}", self.processor, self.processors, self.accel);
        let mut slug = String::new();
        for c in text.to_lowercase().chars() {
            if c.is_ascii_alphanumeric() {
                slug.push(c);
            } else if !slug.ends_with('-') {
                slug.push('-');
            }
        }
        slug.trim_matches('-').to_owned()
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} x {}, {}",
            self.processors, self.processor, self.accel
        )
    }
}

fn processor(info: &str) -> Option<&str> {
    info.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim())
    })
}

/// The record of a kind of machine.
#[derive(Debug, Serialize)]
struct Record<'a> {
    machine: &'a Machine,
    kernel: &'a str,
    rounds: usize,
    rows: &'a [Row],
}

/// Writes the record of this kind of machine; returns its path.
///
/// # Errors
/// When it cannot be written.
pub fn record(machine: &Machine, kernel: &str, rounds: usize, rows: &[Row]) -> Result<PathBuf> {
    let path = paths::top()?
        .join("tests/bench")
        .join(format!("{}.json", machine.slug()));
    let record = Record {
        machine,
        kernel,
        rounds,
        rows,
    };
    report::write(&path, &record)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_makes_a_file_name() {
        let machine = Machine {
            processor: "AMD EPYC (Milan) @ 2.0GHz".into(),
            processors: 2,
            accel: "tcg".into(),
        };
        assert_eq!(machine.slug(), "amd-epyc-milan-2-0ghz-2cpu-tcg");
    }

    #[test]
    fn the_model_is_found() {
        let info = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n";
        assert_eq!(processor(info), Some("AMD EPYC"));
        assert_eq!(processor(""), None);
    }
}
