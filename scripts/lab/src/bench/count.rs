// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts the instructions that the engine spends on a message, under callgrind, and holds them to
//! the record: a slower engine is seen without a clock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use super::engine;
use super::report;
use crate::output::say;
use crate::paths;

/// Messages of the shorter and of the longer run; what is between them counts.
const MESSAGES: (u64, u64) = (2000, 6000);

/// What a message may cost more than its record, in percent, where the record says nothing.
const MARGIN: f64 = 10.0;

/// The kinds of messages that the program `counted` knows.
const KINDS: [&str; 6] = [
    "write-4096",
    "write-4096-no-crc",
    "write-64",
    "send-64",
    "write-64-qps-10",
    "write-64-qps-10000",
];

/// The record in the repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Record {
    /// The compiler that it was made with.
    rustc: String,
    /// What a message may cost more, in percent.
    margin_percent: f64,
    /// Instructions of a message by its kind.
    instructions: BTreeMap<String, f64>,
}

/// How a count stands to its record.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// Within the margin.
    Holds,
    /// So much below that a new record is due.
    Better,
    /// Above the margin.
    Worse,
}

impl Record {
    fn limit(&self, kind: &str) -> Option<f64> {
        let recorded = self.instructions.get(kind)?;
        Some(recorded * (1.0 + self.margin_percent / 100.0))
    }

    fn verdict(&self, kind: &str, count: f64) -> Option<Verdict> {
        let recorded = self.instructions.get(kind)?;
        Some(if count > self.limit(kind)? {
            Verdict::Worse
        } else if count < recorded * (1.0 - self.margin_percent / 100.0) {
            Verdict::Better
        } else {
            Verdict::Holds
        })
    }
}

fn record_path() -> Result<PathBuf> {
    Ok(paths::top()?.join("tests/bench/instructions.json"))
}

/// Counts, and compares with the record or writes a new one. Returns the exit code.
///
/// # Errors
/// When the program does not build, callgrind does not run, or there is no record.
pub fn run(new_record: bool) -> Result<i32> {
    let path = record_path()?;
    let program = engine::example("counted")?;
    let logs = paths::build("test")?;
    let old = if new_record && !path.exists() {
        None
    } else {
        Some(read(&path)?)
    };
    let mut record = Record {
        rustc: engine::run(version())?.trim().to_owned(),
        margin_percent: old.as_ref().map_or(MARGIN, |old| old.margin_percent),
        instructions: BTreeMap::new(),
    };
    let (mut passed, mut failed) = (0, 0);
    for kind in KINDS {
        let count = message(&program, kind, &logs)?;
        record.instructions.insert(kind.to_owned(), count);
        if new_record {
            say(format!(
                "{kind}: {count:.0} instructions a message, recorded"
            ));
            continue;
        }
        let Some(old) = &old else { continue };
        let (Some(verdict), Some(limit)) = (old.verdict(kind, count), old.limit(kind)) else {
            failed += 1;
            say(format!(
                "not ok - {kind}: {count:.0} instructions a message, and {} has no record of it; \
                 {HOW}",
                path.display()
            ));
            continue;
        };
        let figures = format!(
            "{kind}: {count:.0} instructions a message, at most {limit:.0} ({:.0} recorded + {} %)",
            limit / (1.0 + old.margin_percent / 100.0),
            old.margin_percent
        );
        if verdict == Verdict::Worse {
            failed += 1;
            say(format!("not ok - {figures}"));
            say(format!(
                "  what costs it: scripts/enter.sh callgrind_annotate {}",
                profile(&logs, kind, MESSAGES.1).display()
            ));
            say(format!("  if that is meant to be: {HOW}"));
            if record.rustc != old.rustc {
                say(format!(
                    "  the record is of {}, this is {}",
                    old.rustc, record.rustc
                ));
            }
        } else {
            passed += 1;
            say(format!("ok - {figures}"));
            if verdict == Verdict::Better {
                say(format!("  it became better: {HOW}"));
            }
        }
    }
    if new_record {
        report::write(&path, &record)?;
        say(format!("written to {}", path.display()));
        return Ok(0);
    }
    say(format!("{passed} passed, {failed} failed"));
    Ok(i32::from(failed > 0))
}

/// How to make a new record.
const HOW: &str = "'make count RECORD=1' records it, commit the record with its reason";

fn read(path: &Path) -> Result<Record> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read {}; {HOW}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))
}

fn version() -> Command {
    let mut command = Command::new("rustc");
    command.arg("--version");
    command
}

fn profile(logs: &Path, kind: &str, messages: u64) -> PathBuf {
    logs.join(format!("callgrind.{kind}.{messages}"))
}

/// Instructions of one message.
fn message(program: &Path, kind: &str, logs: &Path) -> Result<f64> {
    let (few, many) = MESSAGES;
    let (less, more) = (
        instructions(program, kind, few, logs)?,
        instructions(program, kind, many, logs)?,
    );
    let Some(between) = more.checked_sub(less).filter(|between| *between > 0) else {
        bail!("{kind}: {many} messages took {more} instructions, {few} took {less}");
    };
    Ok((between as f64 / (many - few) as f64 * 10.0).round() / 10.0)
}

/// Instructions of a whole run.
fn instructions(program: &Path, kind: &str, messages: u64, logs: &Path) -> Result<u64> {
    let out = profile(logs, kind, messages);
    let mut command = Command::new("valgrind");
    command
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args([kind, &messages.to_string()]);
    engine::run(command).context(
        "callgrind counts the engine's instructions; valgrind is in the root that 'make setup' makes",
    )?;
    let text =
        fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
    total(&text).with_context(|| format!("{} has no total", out.display()))
}

/// The total in a profile of callgrind.
fn total(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| {
            line.strip_prefix("totals:")
                .or_else(|| line.strip_prefix("summary:"))
        })?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            rustc: "rustc 1".into(),
            margin_percent: 10.0,
            instructions: [("write-64".to_owned(), 1000.0)].into(),
        }
    }

    #[test]
    fn a_margin_has_two_sides() {
        let verdict = |count| record().verdict("write-64", count);
        assert_eq!(verdict(1099.0), Some(Verdict::Holds));
        assert_eq!(verdict(1101.0), Some(Verdict::Worse));
        assert_eq!(verdict(899.0), Some(Verdict::Better));
        assert_eq!(record().verdict("read-1", 1.0), None);
    }

    #[test]
    fn the_total_is_found() {
        let text = "version: 1\nevents: Ir\nsummary: 12345\n\nfn=(1)\n1 2\ntotals: 12345\n";
        assert_eq!(total(text), Some(12_345));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn the_repositorys_record_names_every_kind() {
        let Ok(path) = record_path() else { return };
        let record = read(&path).unwrap();
        for kind in KINDS {
            assert!(
                record.limit(kind).is_some_and(|limit| limit > 0.0),
                "{kind}"
            );
        }
    }
}
