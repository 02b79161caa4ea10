// SPDX-License-Identifier: GPL-2.0-or-later
//! The driver's KUnit suites: which ones its sources have, and how each did when the module was loaded.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::ktap::Outcome;
use crate::paths;
use crate::proto::Record;

/// What a suite begins with in the sources, up to its name.
const MARK: &str = "#[kunit_tests(";

/// Names of the suites in the driver's sources, in order.
///
/// # Errors
/// When the sources cannot be read.
pub fn suites() -> Result<Vec<String>> {
    let mut names = Vec::new();
    collect(
        &paths::top()?.join("drivers/infiniband/hw/ochre"),
        &mut names,
    )?;
    names.sort();
    Ok(names)
}

fn collect(folder: &Path, names: &mut Vec<String>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot list {}", folder.display()))?
            .path();
        if path.is_dir() {
            collect(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            names.extend(named(&text));
        }
    }
    Ok(())
}

fn named(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines()
        .filter_map(|line| Some(line.strip_prefix(MARK)?.split_once(')')?.0.to_owned()))
}

/// What the kernel's log says of a suite: its lines, and how it ended.
pub fn result(records: &[Record], suite: &str) -> (Vec<String>, Outcome) {
    let heading = format!("# Subtest: {suite}");
    let mut lines = Vec::new();
    let (mut plan, mut good, mut bad) = (None, 0, 0);
    let own = records
        .iter()
        .map(|record| record.text.trim())
        .skip_while(|text| *text != heading);
    for text in own {
        let outcome = Line::parse(text);
        if let Line::Result { ok, name, skip } = outcome {
            if name == suite {
                let outcome = match (ok, skip) {
                    (true, Some(why)) => Outcome::Skipped(why.to_owned()),
                    (true, None) if bad == 0 && good > 0 && plan == Some(good) => Outcome::Passed,
                    _ => Outcome::Failed(format!(
                        "{good} cases passed and {bad} failed, of {}",
                        plan.unwrap_or(0)
                    )),
                };
                return (lines, outcome);
            }
            if ok {
                good += 1;
            } else {
                bad += 1;
            }
        } else if let Line::Plan(cases) = outcome {
            plan = Some(cases);
        } else if !text.starts_with('#') {
            // Others write to the log too.
            continue;
        }
        lines.push(text.to_owned());
    }
    let why = if lines.is_empty() {
        "the kernel did not run it: its log has nothing of it"
    } else {
        "it did not come to its end"
    };
    (lines, Outcome::Failed(why.to_owned()))
}

/// A line of KTAP.
enum Line<'a> {
    /// How many results come.
    Plan(usize),
    /// A result.
    Result {
        ok: bool,
        name: &'a str,
        skip: Option<&'a str>,
    },
    /// Anything else.
    Other,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Self {
        if let Some(plan) = text.strip_prefix("1..") {
            return plan.parse().map_or(Self::Other, Self::Plan);
        }
        let (ok, rest) = match (text.strip_prefix("ok "), text.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Self::Other,
        };
        let Some((number, rest)) = rest.split_once(' ') else {
            return Self::Other;
        };
        if number.parse::<usize>().is_err() {
            return Self::Other;
        }
        let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
        Self::Result {
            ok,
            name: name.trim(),
            skip: directive.strip_prefix("SKIP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> Vec<Record> {
        text.lines()
            .map(|line| Record {
                level: 6,
                usec: 0,
                text: line.to_owned(),
            })
            .collect()
    }

    const GOOD: &str = "KTAP version 1
1..2
    KTAP version 1
    # Subtest: one
    # module: ochre
    1..2
    ok 1 first
ochre 0000:01:00.0: firmware 1.0.0
    ok 2 second
# one: pass:2 fail:0 skip:0 total:2
ok 1 one
    KTAP version 1
    # Subtest: two
    1..1
    # third: ASSERTION FAILED at x.rs:1
    not ok 1 third
not ok 2 two";

    #[test]
    fn suites_pass_and_fail_by_themselves() {
        let records = log(GOOD);
        let (lines, outcome) = result(&records, "one");
        assert_eq!(outcome, Outcome::Passed);
        assert!(lines.contains(&"ok 2 second".to_owned()));
        assert!(!lines.iter().any(|line| line.contains("firmware")));
        let (lines, outcome) = result(&records, "two");
        assert_eq!(
            outcome,
            Outcome::Failed("0 cases passed and 1 failed, of 1".into())
        );
        assert!(lines.iter().any(|line| line.contains("ASSERTION FAILED")));
    }

    #[test]
    fn what_is_missing_is_a_failure() {
        let failed = |text: &str, suite: &str| {
            assert!(
                matches!(result(&log(text), suite).1, Outcome::Failed(_)),
                "{text}"
            );
        };
        failed(GOOD, "three");
        // It stopped half way, it lost a case, it has none.
        failed("    # Subtest: one\n    1..2\n    ok 1 first", "one");
        failed(
            "    # Subtest: one\n    1..2\n    ok 1 first\nok 1 one",
            "one",
        );
        failed("    # Subtest: one\n    1..0\nok 1 one", "one");
    }

    #[test]
    fn names_are_found_where_suites_stand() {
        let text = "mod x;\n#[kunit_tests(ochre_one)]\nmod tests {}\n// #[kunit_tests(no)]\n";
        assert_eq!(named(text).collect::<Vec<_>>(), ["ochre_one"]);
    }
}
