// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs the scripts of `tests/vm` against a lab and reports in KTAP.
//!
//! A test is a shell script. A line `# lab: pair` in it asks for the lab of two VMs that form a subnet,
//! which all such tests share; `# lab: none` says that the test needs none, or boots its own. A line
//! `# limit: N` changes the time limit, in seconds. A line `# rounds: N of S s` says that the test does
//! something in rounds: so many where nobody asks for another number, each of which may add so many
//! seconds to the limit; the script finds the number in `OCHRE_ROUNDS`. Exit code 0 is a pass, 4 a skip, with the reason in
//! the last line of output. After each test the kernels' logs are searched for faults, and a VM
//! that died or showed one is replaced by a fresh lab, so that one test cannot spoil the next. On the debug
//! kernel, the results of the driver's own KUnit suites come first, and after each test the kernels are asked
//! for lost memory.

use std::fs;
use std::io::{self, BufRead, BufReader, Stdout};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cleanup;
use crate::control::{Open, VARIABLE};
use crate::debug;
use crate::demo::subnet;
use crate::device::Kind;
use crate::dmesg;
use crate::ktap::{Ktap, Outcome};
use crate::kunit;
use crate::lab::{Lab, Options};
use crate::paths;
use crate::patience;

/// Time limit of a test that names none.
const LIMIT: Duration = Duration::from_secs(120);

/// What kselftest calls a skip.
const SKIP: i32 = 4;

/// One test script.
#[derive(Debug, PartialEq, Eq)]
struct Test {
    path: PathBuf,
    name: String,
    pair: bool,
    limit: Duration,
    rounds: Option<Rounds>,
}

/// What a test does again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rounds {
    /// How often, unless another number is asked for.
    count: u32,
    /// Time limit of each.
    limit: Duration,
}

impl Rounds {
    fn parse(name: &str, text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let [count, "of", seconds, "s"] = words[..] {
            if let (Ok(count @ 1..), Ok(seconds)) = (count.parse(), seconds.parse()) {
                return Ok(Self {
                    count,
                    limit: Duration::from_secs(seconds),
                });
            }
        }
        bail!("{name}: '# rounds: {text}' is not understood; it can be '3 of 20 s'")
    }
}

impl Test {
    fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(path, &name, &text)
    }

    fn parse(path: &Path, name: &str, text: &str) -> Result<Self> {
        let value = |key: &str| {
            text.lines()
                .find_map(|line| {
                    line.strip_prefix("# ")?
                        .strip_prefix(key)?
                        .strip_prefix(": ")
                })
                .map(str::trim)
        };
        let pair = match value("lab") {
            Some("pair") => true,
            Some("none") => false,
            Some(other) => {
                bail!("{name}: '# lab: {other}' is not known; it can be 'pair' or 'none'")
            }
            None => bail!("{name}: a line '# lab: pair' or '# lab: none' is missing"),
        };
        let limit = match value("limit") {
            Some(seconds) => Duration::from_secs(seconds.parse().with_context(|| {
                format!("{name}: '# limit: {seconds}' is no number of seconds")
            })?),
            None => LIMIT,
        };
        let rounds = value("rounds")
            .map(|text| Rounds::parse(name, text))
            .transpose()?;
        Ok(Self {
            path: path.to_owned(),
            name: name.to_owned(),
            pair,
            limit,
            rounds,
        })
    }

    /// Sets how many rounds are done, if it does any.
    fn set_rounds(&mut self, count: u32) {
        if let Some(rounds) = &mut self.rounds {
            rounds.count = count;
        }
    }

    /// Its time limit, with that of its rounds.
    fn whole_limit(&self) -> Duration {
        let rounds = self.rounds.map(|rounds| rounds.limit * rounds.count);
        self.limit + rounds.unwrap_or_default()
    }
}

/// Whether a test is among those asked for, by part of its name; nothing asked for is all.
fn asked(names: &[String], test: &str) -> bool {
    names.is_empty() || names.iter().any(|name| test.contains(name))
}

fn tests(names: &[String]) -> Result<Vec<Test>> {
    let folder = paths::top()?.join("tests/vm");
    let mut scripts: Vec<PathBuf> = fs::read_dir(&folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".sh") && !name.starts_with("lib")
        })
        .collect();
    scripts.sort();
    let mut tests = Vec::new();
    for script in scripts {
        let test = Test::read(&script)?;
        if asked(names, &test.name) {
            tests.push(test);
        }
    }
    // Those that share the lab come first, while it runs.
    tests.sort_by_key(|test| !test.pair);
    Ok(tests)
}

/// Runs the tests whose names contain one of `names`, or all, in `rounds` rounds where they do rounds.
/// Returns the exit code.
///
/// # Errors
/// When there are no tests, or the results cannot be written.
pub fn run(options: Options, names: &[String], rounds: Option<u32>) -> Result<i32> {
    let mut tests = tests(names)?;
    if let Some(rounds) = rounds {
        tests.iter_mut().for_each(|test| test.set_rounds(rounds));
    }
    let mut suites = Vec::new();
    if options.kernel.debug && matches!(options.device, Kind::Ochre { .. }) {
        suites = kunit::suites()?;
        suites.retain(|suite| asked(names, suite));
    }
    if tests.is_empty() && suites.is_empty() {
        bail!("no test has such a name");
    }
    let mut ktap = Ktap::new(io::stdout(), suites.len() + tests.len())?;
    let mut lab: Option<Open> = None;
    if !suites.is_empty() {
        own_suites(&suites, &options, &mut lab, &mut ktap)?;
    }
    for test in &tests {
        let start = Instant::now();
        if !test.pair {
            // It boots its own: two pairs at once would only be slow.
            lab = None;
        }
        let outcome = match one(test, &options, &mut lab, &mut ktap) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        if let Outcome::Failed(_) = outcome {
            keep_logs(&options.logs, &test.name);
            lab = None;
        }
        ktap.result(&test.name, &outcome, start.elapsed().as_secs_f64())?;
    }
    drop(lab);
    Ok(i32::from(!ktap.finish()?))
}

/// Saves the logs of a lab whose test failed: the next lab writes its own.
fn keep_logs(logs: &Path, test: &str) {
    let folder = logs.join(test);
    let _ = fs::create_dir_all(&folder);
    for vm in crate::lab::NAMES {
        for kind in ["console", "dmesg"] {
            let name = format!("{vm}.{kind}.log");
            let _ = fs::copy(logs.join(&name), folder.join(&name));
        }
    }
}

/// Reports what the driver's own suites said when the module was loaded.
fn own_suites(
    suites: &[String],
    options: &Options,
    lab: &mut Option<Open>,
    ktap: &mut Ktap<Stdout>,
) -> Result<()> {
    let records = shared(options, lab, ktap).and_then(|open| Ok(open.read().vm("a")?.records(0)));
    for suite in suites {
        let outcome = match &records {
            Ok(records) => {
                let (lines, outcome) = kunit::result(records, suite);
                for line in lines {
                    ktap.line(&line)?;
                }
                outcome
            }
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        ktap.result(suite, &outcome, 0.0)?;
    }
    Ok(())
}

/// The lab that tests share; booted if there is none.
fn shared<'a>(
    options: &Options,
    lab: &'a mut Option<Open>,
    ktap: &mut Ktap<Stdout>,
) -> Result<&'a Open> {
    if lab.is_none() {
        let start = Instant::now();
        *lab = Some(open(options)?);
        ktap.comment(&format!(
            "a lab of two VMs with a subnet is up after {:.1} s",
            start.elapsed().as_secs_f64()
        ))?;
    }
    lab.as_ref().context("the lab is gone")
}

/// Boots the lab that tests share.
fn open(options: &Options) -> Result<Open> {
    let lab = Lab::boot(options.clone()).context("booting the lab")?;
    if matches!(options.device, Kind::Ochre { .. }) {
        subnet::start(lab.vm("a")?)?;
        subnet::wait_active(&lab)?;
    }
    // What tests find in the logs is their own: a fault of the boot must not hide behind them.
    for vm in &lab.vms {
        if let Some(splat) = dmesg::splats(&vm.records(0)).first() {
            bail!(
                "VM {}'s kernel said as it booted: {}",
                vm.name(),
                splat.text
            );
        }
    }
    Open::new(lab)
}

fn one(
    test: &Test,
    options: &Options,
    lab: &mut Option<Open>,
    ktap: &mut Ktap<Stdout>,
) -> Result<Outcome> {
    let open_lab = if test.pair {
        Some(shared(options, lab, ktap)?)
    } else {
        None
    };
    let marks: Vec<usize> = open_lab.map_or_else(Vec::new, |open| {
        open.read()
            .vms
            .iter()
            .map(|vm| vm.records(0).len())
            .collect()
    });
    let outcome = script(test, options, open_lab, ktap)?;
    if let (Some(open), Outcome::Passed | Outcome::Skipped(_)) = (open_lab, &outcome) {
        let lab = open.read();
        for (vm, &mark) in lab.vms.iter().zip(&marks) {
            if !vm.alive() {
                return Ok(Outcome::Failed(format!(
                    "VM {} did not survive; its console is in {}",
                    vm.name(),
                    vm.console().display()
                )));
            }
            // A VM that was booted anew in the test has a log that begins anew.
            let records = vm.records(0);
            let since = if records.len() < mark { 0 } else { mark };
            if let Some(splat) = dmesg::splats(&records[since..]).first() {
                return Ok(Outcome::Failed(format!(
                    "VM {}'s kernel said: {}",
                    vm.name(),
                    splat.text
                )));
            }
        }
        if options.kernel.debug {
            if let Some(fault) = debug::faults(&lab)? {
                return Ok(Outcome::Failed(fault));
            }
        }
    }
    Ok(outcome)
}

fn script(
    test: &Test,
    options: &Options,
    open: Option<&Open>,
    ktap: &mut Ktap<Stdout>,
) -> Result<Outcome> {
    let mut command = Command::new("bash");
    command
        .arg(&test.path)
        .env("OCHRE_LAB_PROGRAM", std::env::current_exe()?)
        .env("OCHRE_TOP", paths::top()?)
        .env("OCHRE_TEST_LOGS", &options.logs)
        .env("OCHRE_DEVICE", options.device.device())
        .env(patience::VARIABLE, patience::factor().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Kind::Ochre { module, .. } = &options.device {
        command.env("OCHRE_MODULE", module);
    }
    if let Some(rounds) = test.rounds {
        command.env("OCHRE_ROUNDS", rounds.count.to_string());
    }
    if let Some(open) = open {
        command.env(VARIABLE, open.socket());
    }
    let mut child = command.spawn().context("cannot start the test's shell")?;
    let group = i32::try_from(child.id()).context("a process number out of range")?;
    cleanup::add_group(group);

    let (sender, lines) = channel();
    if let Some(out) = child.stdout.take() {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(io::Result::ok) {
                let _ = sender.send(line);
            }
        });
    }
    if let Some(err) = child.stderr.take() {
        thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(io::Result::ok) {
                let _ = sender.send(line);
            }
        });
    }
    let limit = patience::of(test.whole_limit());
    let end = Instant::now() + limit;
    let mut last = String::new();
    let mut bad = None;
    let (mut plan, mut results) = (None, 0);
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                ktap.line(&line)?;
                if let Some(count) = line.strip_prefix("1..") {
                    plan = count.trim().parse::<usize>().ok();
                }
                if line.starts_with("ok ") || line.starts_with("not ok ") {
                    results += 1;
                }
                if line.starts_with("not ok ") && bad.is_none() {
                    bad = Some(line.clone());
                }
                if !line.trim().is_empty() {
                    last = line;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                cleanup::end_group(group);
                let _ = child.wait();
                return Ok(Outcome::Failed(format!(
                    "not finished within {} s; its last line was: {last}",
                    limit.as_secs()
                )));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().context("cannot wait for the test's shell")?;
    cleanup::end_group(group);
    Ok(match (status.code(), bad) {
        (Some(0), None) if plan.is_some_and(|plan| plan != results) => Outcome::Failed(format!(
            "its plan was {} checks, and it did {results}",
            plan.unwrap_or(0)
        )),
        (Some(0), None) => Outcome::Passed,
        (Some(SKIP), None) => Outcome::Skipped(last.trim_start_matches(['#', ' ']).to_owned()),
        (_, Some(line)) => Outcome::Failed(line),
        (Some(code), None) => {
            Outcome::Failed(format!("exit code {code}; its last line was: {last}"))
        }
        (None, None) => Outcome::Failed(format!("ended by a signal; its last line was: {last}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_what_it_needs() {
        let parse = |text: &str| Test::parse("x.sh".as_ref(), "x", text);
        let test = parse("#!/bin/sh\n# lab: pair\n# limit: 30\n").unwrap();
        assert!(test.pair);
        assert_eq!(test.limit, Duration::from_secs(30));
        assert_eq!(parse("# lab: none\n").unwrap().limit, LIMIT);
        assert!(parse("echo\n").unwrap_err().to_string().contains("missing"));
        assert!(parse("# lab: triple\n")
            .unwrap_err()
            .to_string()
            .contains("'pair' or 'none'"));
        assert!(parse("# lab: none\n# limit: soon\n").is_err());
    }

    #[test]
    fn rounds_take_their_time() {
        let parse = |text: &str| Test::parse("x.sh".as_ref(), "x", text);
        let mut test = parse("# lab: pair\n# limit: 30\n# rounds: 3 of 20 s\n").unwrap();
        assert_eq!(test.whole_limit(), Duration::from_secs(90));
        test.set_rounds(100);
        assert_eq!(test.whole_limit(), Duration::from_secs(2030));
        let mut plain = parse("# lab: pair\n# limit: 30\n").unwrap();
        plain.set_rounds(100);
        assert_eq!(plain.whole_limit(), Duration::from_secs(30));
        for bad in ["3", "0 of 20 s", "3 of 20", "many of 20 s"] {
            assert!(parse(&format!("# lab: pair\n# rounds: {bad}\n")).is_err());
        }
    }
}
