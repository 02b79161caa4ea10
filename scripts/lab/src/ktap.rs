// SPDX-License-Identifier: GPL-2.0-or-later
//! Results of tests in the kernel's test anything protocol (KTAP).

use std::io::{self, Write};

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// Not as it should, and why.
    Failed(String),
    /// It could not be tried, and why.
    Skipped(String),
}

/// Writes results and counts them.
#[derive(Debug)]
pub struct Ktap<W> {
    out: W,
    number: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl<W: Write> Ktap<W> {
    /// Begins a report of `plan` tests.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, plan: usize) -> io::Result<Self> {
        writeln!(out, "KTAP version 1")?;
        writeln!(out, "1..{plan}")?;
        out.flush()?;
        Ok(Self {
            out,
            number: 0,
            passed: 0,
            failed: 0,
            skipped: 0,
        })
    }

    /// Writes a line of the test that runs: nested results are indented, all else is a comment.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        let text = text.trim_end();
        if is_ktap(text.trim_start()) {
            writeln!(self.out, "  {text}")?;
        } else {
            writeln!(self.out, "  # {text}")?;
        }
        self.out.flush()
    }

    /// Writes a comment between tests.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn comment(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "# {}", text.trim_end())?;
        self.out.flush()
    }

    /// Writes the result of a test that took `seconds`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn result(&mut self, name: &str, outcome: &Outcome, seconds: f64) -> io::Result<()> {
        self.number += 1;
        let number = self.number;
        match outcome {
            Outcome::Passed => {
                self.passed += 1;
                writeln!(self.out, "ok {number} {name} # {seconds:.1} s")?;
            }
            Outcome::Failed(reason) => {
                self.failed += 1;
                for line in reason.lines() {
                    writeln!(self.out, "# {line}")?;
                }
                writeln!(self.out, "not ok {number} {name} # {seconds:.1} s")?;
            }
            Outcome::Skipped(reason) => {
                self.skipped += 1;
                writeln!(self.out, "ok {number} {name} # SKIP {reason}")?;
            }
        }
        self.out.flush()
    }

    /// Writes the totals; returns whether all is well, which nothing run is not.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<bool> {
        writeln!(
            self.out,
            "# Totals: pass:{} fail:{} xfail:0 xpass:0 skip:{} error:0",
            self.passed, self.failed, self.skipped
        )?;
        write!(
            self.out,
            "vm: {} passed, {} failed",
            self.passed, self.failed
        )?;
        if self.skipped > 0 {
            write!(self.out, ", {} skipped", self.skipped)?;
        }
        writeln!(self.out)?;
        self.out.flush()?;
        Ok(self.failed == 0 && self.passed > 0)
    }
}

fn is_ktap(text: &str) -> bool {
    ["KTAP version", "1..", "ok ", "not ok ", "#"]
        .iter()
        .any(|start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[(&str, Outcome)]) -> (String, bool) {
        let mut out = Vec::new();
        let mut ktap = Ktap::new(&mut out, outcomes.len()).unwrap();
        for (name, outcome) in outcomes {
            ktap.line("ok 1 - nested").unwrap();
            ktap.line("something said").unwrap();
            ktap.result(name, outcome, 1.25).unwrap();
        }
        let good = ktap.finish().unwrap();
        (String::from_utf8(out).unwrap(), good)
    }

    #[test]
    fn a_failure_is_counted_and_told() {
        let (text, good) = report(&[
            ("one", Outcome::Passed),
            ("two", Outcome::Failed("why\nso".into())),
            ("three", Outcome::Skipped("no device".into())),
        ]);
        assert!(!good);
        assert!(text.starts_with("KTAP version 1\n1..3\n"));
        assert!(text.contains("  ok 1 - nested\n  # something said\nok 1 one # 1.2 s\n"));
        assert!(text.contains("# why\n# so\nnot ok 2 two # 1.2 s\n"));
        assert!(text.contains("ok 3 three # SKIP no device\n"));
        assert!(text.ends_with("vm: 1 passed, 1 failed, 1 skipped\n"));
    }

    #[test]
    fn nothing_run_is_not_well() {
        let (text, good) = report(&[("one", Outcome::Skipped("x".into()))]);
        assert!(!good);
        assert!(text.ends_with("vm: 0 passed, 0 failed, 1 skipped\n"));
        assert!(report(&[("one", Outcome::Passed)]).1);
    }
}
