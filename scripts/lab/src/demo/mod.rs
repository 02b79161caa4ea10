// SPDX-License-Identifier: GPL-2.0-or-later
//! The demonstration: two VMs form a subnet and run unmodified RDMA programs over it.

pub mod figures;
pub mod flow;
pub mod programs;
pub mod report;
pub mod subnet;
pub mod table;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::device::Kind;
use crate::dmesg;
use crate::lab::{Lab, Options};
use crate::launch::HCA_ID;
use crate::output::{line, say};
use crate::vm::Vm;
use report::{Program, Report};

/// Prints each step with the time since the start.
pub(crate) struct Steps(Instant);

impl Steps {
    /// Now is the start.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn say(&self, text: &str) {
        say(format!("[{:5.1} s] {text}", self.0.elapsed().as_secs_f64()));
    }
}

/// Runs the demonstration; the report is written in any case. Returns the exit code: zero only when
/// everything in it is well.
///
/// # Errors
/// When it cannot begin, or the report cannot be written.
pub fn run(mut options: Options) -> Result<i32> {
    let steps = Steps::start();
    let folder = options.logs.clone();
    let path = folder.join("report.json");
    let capture = options
        .capture
        .get_or_insert_with(|| folder.join("capture.erf"))
        .clone();
    for old in [&path, &capture] {
        if old.exists() {
            fs::remove_file(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    let mut report = Report {
        accel: options.accel.to_string(),
        qemu: qemu_version(&options.qemu)?,
        capture: capture.display().to_string(),
        ..Report::default()
    };
    let mut faults = Vec::new();
    if let Err(error) = show(options, &steps, &mut report, &mut faults) {
        faults.push(format!("{error:#}"));
    }
    report.wall_s = (steps.0.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    report.write(&path)?;

    say("");
    for text in table::lines(&report) {
        say(text);
    }
    say("");
    let flow = &report.flow_control;
    say(format!(
        "flow control: the sender waited {} ticks for credits (PortXmitWait), {} packets were dropped, \
         the data arrived {}",
        flow.xmit_wait,
        flow.packets_dropped,
        if flow.data_ok { "as it was sent" } else { "NOT as it was sent" }
    ));
    say(format!("packets:      {}", report.capture));
    say(format!(
        "              scripts/enter.sh tshark -r {} --disable-protocol rpcordma | less",
        report.capture
    ));
    say(format!(
        "              or open it with wireshark; report: {}",
        path.display()
    ));

    for fault in report.faults() {
        if !faults.iter().any(|known| known.contains(&fault)) {
            faults.push(fault);
        }
    }
    say("");
    if faults.is_empty() {
        steps.say("the demonstration is complete and all of it is well");
        return Ok(0);
    }
    steps.say("the demonstration is NOT well:");
    for fault in faults {
        say(format!("  - {fault}"));
    }
    Ok(1)
}

fn show(
    options: Options,
    steps: &Steps,
    report: &mut Report,
    faults: &mut Vec<String>,
) -> Result<()> {
    let ochre = matches!(options.device, Kind::Ochre { .. });
    let kind = options.device.clone();
    let device = kind.device();
    steps.say(&format!("booting two VMs under {}", options.accel));
    let lab = Lab::boot(options)?;
    let (a, b) = (lab.vm("a")?, lab.vm("b")?);
    report.kernel = a.wait_ready(1, Duration::ZERO)?.0;
    steps.say(&format!(
        "both are up with {device}, kernel {}",
        report.kernel
    ));

    if ochre {
        steps.say("OpenSM starts in VM a");
        subnet::start(a)?;
        subnet::wait_active(&lab)?;
        steps.say("the subnet is up: both ports are ACTIVE");
        for (vm, words, needle) in [
            (a, "ibv_devinfo", "PORT_ACTIVE"),
            (b, "ibv_devinfo", "PORT_ACTIVE"),
            (a, "ibnetdiscover", "Ca\t"),
            (a, "iblinkinfo", "Active"),
            (a, "sminfo", "SMINFO_MASTER"),
        ] {
            single(steps, report, faults, vm, words, needle);
        }
    }
    for words in ["rdma link", "rdma resource"] {
        single(steps, report, faults, a, words, device);
    }

    for (index, pair) in programs::pairs(&kind).iter().enumerate() {
        let first_measured = pair.style == programs::Style::Perftest
            && (index == 0 || programs::pairs(&kind)[index - 1].style != programs::Style::Perftest);
        if ochre && first_measured {
            // Gigabytes of payload follow, which tell a reader of the capture nothing new.
            a.qmp().set(HCA_ID, "capturing", false)?;
        }
        let result = programs::pair(b, a, pair);
        keep(steps, report, faults, &pair.argv, result);
    }

    if ochre {
        steps.say(&format!(
            "flow control: VM b's port drains its buffers at {} MB/s",
            flow::RATE / 1_000_000
        ));
        let (flow, runs) = flow::show(&lab)?;
        for run in runs {
            keep(steps, report, faults, &["ibv_rc_pingpong".to_owned()], run);
        }
        report.flow_control = flow;
    }
    report.ports = subnet::all(&lab)?;
    for vm in &lab.vms {
        for splat in dmesg::splats(&vm.records(0)) {
            faults.push(format!("VM {}'s kernel said: {}", vm.name(), splat.text));
        }
    }
    Ok(())
}

/// Runs a program that needs no partner and prints what it says.
fn single(
    steps: &Steps,
    report: &mut Report,
    faults: &mut Vec<String>,
    vm: &Vm,
    words: &str,
    needle: &str,
) {
    steps.say(&format!("VM {}: {words}", vm.name()));
    match programs::single(vm, words, needle) {
        Ok((program, finished)) => {
            for text in finished.out.lines().chain(finished.err.lines()) {
                line(vm.name(), text);
            }
            if !program.ok {
                faults.push(format!(
                    "{words} in VM {}: {}, and '{}' is expected in its output",
                    vm.name(),
                    finished.exit,
                    needle.trim()
                ));
            }
            report.programs.push(program);
        }
        Err(error) => {
            say(format!("          {error:#}"));
            faults.push(format!("{words} failed: {error:#}"));
            let argv: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            report.programs.push(failed(&argv));
        }
    }
}

/// The report's entry for a program without a result.
fn failed(argv: &[String]) -> Program {
    Program {
        name: argv.first().cloned().unwrap_or_default(),
        argv: argv.to_vec(),
        ..Program::default()
    }
}

/// Notes how a pair of programs did.
fn keep(
    steps: &Steps,
    report: &mut Report,
    faults: &mut Vec<String>,
    argv: &[String],
    result: Result<Program>,
) {
    match result {
        Ok(program) => {
            steps.say(&format!(
                "{:<52} {}",
                program.argv.join(" "),
                table::figures(&program)
            ));
            report.programs.push(program);
        }
        Err(error) => {
            steps.say(&format!("{:<52} FAILED", argv.join(" ")));
            say(format!("          {error:#}"));
            faults.push(format!("{} failed: {error:#}", argv.join(" ")));
            report.programs.push(failed(argv));
        }
    }
}

fn qemu_version(qemu: &Path) -> Result<String> {
    let output = Command::new(qemu)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot start {}", qemu.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().next().unwrap_or_default();
    Ok(first
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or(first)
        .to_owned())
}
