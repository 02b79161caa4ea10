// SPDX-License-Identifier: GPL-2.0-or-later
//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::control::Open;
use crate::device::Kind;
use crate::lab::{Lab, Options, NAMES};
use crate::output::say;
use crate::proto::Command as GuestCommand;
use crate::{bench, cleanup, client, control, demo, paths, patience, probe, shell, suite};

/// Boot virtual machines joined by Ochre HCAs and run commands in them.
#[derive(Debug, Parser)]
#[command(name = "ochre-lab", version)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Device {
    /// The Ochre HCA.
    Ochre,
    /// Linux's software RoCE over the side Ethernet, to compare with.
    Rxe,
    /// No RDMA device.
    None,
}

/// What to boot.
#[derive(Debug, Args)]
struct Boot {
    /// QEMU with the device [default: the one that set-up built]
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,
    /// Kernel image, or 'debug' [default: $KERNEL, or the stock kernel of the root file system]
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// Kernel module [default: build/module/ochre.ko, or build/module-debug/ochre.ko]
    #[arg(long, value_name = "PATH")]
    module: Option<PathBuf>,
    /// libibverbs provider [default: build/provider/libochre-rdmav34.so]
    #[arg(long, value_name = "PATH")]
    provider: Option<PathBuf>,
    /// RDMA device of the guests
    #[arg(long, value_enum, default_value = "ochre")]
    device: Device,
    /// Ports of each HCA
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    ports: u8,
    /// Memory of each guest, in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..=65536))]
    memory: u32,
    /// Processors of each guest
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    cpus: u8,
    /// Capture the packets of the first VM's HCA into this file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Folder for the logs of the guests [default: build/lab, build/demo, build/test or build/bench]
    #[arg(long, value_name = "FOLDER", env = "OCHRE_LAB_LOGS")]
    logs: Option<PathBuf>,
    /// Further property of each HCA, as NAME=VALUE
    #[arg(long = "hca", value_name = "PROPERTY")]
    properties: Vec<String>,
    /// Further argument for the kernels
    #[arg(long = "append", value_name = "ARGUMENT")]
    kernel_arguments: Vec<String>,
    /// Further argument for QEMU
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    qemu_arguments: Vec<String>,
}

impl Boot {
    fn options(self, vms: usize, logs: &str) -> Result<Options> {
        let logs = match self.logs {
            Some(logs) => std::path::absolute(logs)?,
            None => paths::build(logs)?,
        };
        let qemu = paths::qemu(self.qemu.as_deref())?;
        let kernel = paths::kernel(self.kernel.as_deref())?;
        patience::choose(kernel.debug)?;
        let device = match self.device {
            Device::Ochre => Kind::ochre(
                self.module.as_deref(),
                kernel.debug,
                self.provider.as_deref(),
            )?,
            Device::Rxe => Kind::Rxe,
            Device::None => Kind::None,
        };
        if device == Kind::Rxe && vms < 2 {
            bail!("software RoCE needs the Ethernet between two VMs");
        }
        let accel = probe::choose(&qemu, &kernel.image, false)?.accel;
        Ok(Options {
            qemu,
            kernel,
            accel,
            memory: self.memory,
            cpus: [self.cpus; NAMES.len()],
            device,
            vms,
            ports: usize::from(self.ports),
            capture: self.capture,
            properties: self.properties,
            kernel_arguments: self.kernel_arguments,
            qemu_arguments: self.qemu_arguments,
            logs,
        })
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Boot, run a command in every VM, and return the worst exit code
    Run {
        #[command(flatten)]
        boot: Boot,
        /// Number of VMs
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
        vms: u8,
        /// The command
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Boot one VM and give a shell in it
    Vm {
        #[command(flatten)]
        boot: Boot,
    },
    /// Boot two VMs and give a shell in each, in tmux
    Pair {
        #[command(flatten)]
        boot: Boot,
        /// Do not start OpenSM in VM a
        #[arg(long)]
        no_subnet: bool,
    },
    /// Run the demonstration and write build/demo/report.json
    Demo {
        #[command(flatten)]
        boot: Boot,
    },
    /// Measure Ochre beside software RoCE and write build/bench/report.json
    Bench {
        #[command(flatten)]
        boot: Boot,
        /// In five minutes: only what targets speak of, in fewer rounds
        #[arg(long)]
        quick: bool,
        /// Keep the figures in tests/bench as the record of this kind of machine
        #[arg(long, conflicts_with = "only")]
        record: bool,
        /// Only what has one of these in its command line, or 'engine', 'idle', 'objects', 'loopback'
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
    },
    /// Count the engine's instructions and hold them to the record in tests/bench
    Count {
        /// Keep the counts as the new record
        #[arg(long)]
        record: bool,
    },
    /// Run the tests of tests/vm and print KTAP
    Test {
        #[command(flatten)]
        boot: Boot,
        /// How often tests of the life cycle do what they do [default: a few times]
        #[arg(long, value_name = "N", env = "OCHRE_ROUNDS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        rounds: Option<u32>,
        /// Only tests whose name contains one of these
        names: Vec<String>,
    },
    /// Say whether the guests run under KVM or TCG, and why
    Probe {
        /// QEMU to try [default: the one that set-up built]
        #[arg(long, value_name = "PATH")]
        qemu: Option<PathBuf>,
        /// Kernel image to try [default: as for the other commands]
        #[arg(long, value_name = "PATH")]
        kernel: Option<PathBuf>,
    },
    /// Talk to a lab that runs
    #[command(flatten)]
    Client(client::Action),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = cleanup::install().and_then(|()| run(cli.action));
    cleanup::all();
    match result {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("ochre-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> Result<i32> {
    match action {
        Action::Run { boot, vms, command } => {
            let options = boot.options(usize::from(vms), "lab")?;
            run_command(options, command)
        }
        Action::Vm { boot } => {
            let options = boot.options(1, "lab")?;
            // Other terminals can use the VM too, by the control socket.
            let open = Open::new(boot_aloud(options)?)?;
            let program = open
                .read()
                .vm("a")?
                .start_program(shell::command(), false)?;
            shell::local(program)
        }
        Action::Pair { boot, no_subnet } => {
            let options = boot.options(2, "lab")?;
            let subnet = !no_subnet && boot_has_subnet(&options);
            let lab = boot_aloud(options)?;
            control::pair(lab, subnet)
        }
        Action::Demo { boot } => {
            let options = boot.options(2, "demo")?;
            demo::run(options)
        }
        Action::Bench {
            boot,
            quick,
            record,
            only,
        } => {
            let options = boot.options(2, "bench")?;
            let wish = bench::Wish {
                quick,
                record,
                only,
            };
            bench::run(options, &wish)
        }
        Action::Count { record } => bench::count::run(record),
        Action::Test {
            boot,
            rounds,
            names,
        } => {
            let options = boot.options(2, "test")?;
            suite::run(options, &names, rounds)
        }
        Action::Probe { qemu, kernel } => {
            let qemu = paths::qemu(qemu.as_deref())?;
            let kernel = paths::kernel(kernel.as_deref())?;
            let outcome = probe::choose(&qemu, &kernel.image, true)?;
            say(format!("{}: {}", outcome.accel, outcome.reason));
            Ok(0)
        }
        Action::Client(action) => client::run(action),
    }
}

/// Whether the guests' device is one that a subnet manager brings up.
fn boot_has_subnet(options: &Options) -> bool {
    matches!(options.device, Kind::Ochre { .. })
}

/// Boots a lab and says how long it took.
fn boot_aloud(options: Options) -> Result<Lab> {
    let what = match options.vms {
        1 => "one VM".to_owned(),
        n => format!("{n} VMs"),
    };
    say(format!("booting {what} under {}", options.accel));
    let start = Instant::now();
    let lab = Lab::boot(options)?;
    say(format!(
        "up after {:.1} s; logs in {}",
        start.elapsed().as_secs_f64(),
        lab.options.logs.display()
    ));
    Ok(lab)
}

fn run_command(options: Options, argv: Vec<String>) -> Result<i32> {
    let lab = boot_aloud(options)?;
    let codes: Vec<Result<i32>> = thread::scope(|scope| {
        let threads: Vec<_> = lab
            .vms
            .iter()
            .map(|vm| {
                let command = GuestCommand {
                    argv: argv.clone(),
                    ..GuestCommand::default()
                };
                scope.spawn(move || {
                    let program = vm.start_program(command, true)?;
                    let finished = program.wait(Duration::from_secs(24 * 3600))?;
                    Ok(finished.exit.code())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| bail!("running the command failed"))
            })
            .collect()
    });
    let mut worst = 0;
    for code in codes {
        worst = worst.max(code?);
    }
    Ok(worst)
}
