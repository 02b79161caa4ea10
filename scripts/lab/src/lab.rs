// SPDX-License-Identifier: GPL-2.0-or-later
//! Virtual machines that belong together: booted at once, their HCAs joined by a link.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};

use serde_json::json;

use crate::debug;
use crate::device::{self, Kind};
use crate::exec::{Finished, Program};
use crate::launch::{Accel, Config, Hca, Side, HCA_ID, ROOT_PORT};
use crate::paths::{self, Kernel};
use crate::patience;
use crate::proto::Command;
use crate::vm::Vm;

/// How long a guest may take to come up on a busy machine.
pub const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// How long a guest may take to let go of a device; Linux waits 5 s after the button first.
const UNPLUG_LIMIT: Duration = Duration::from_secs(30);

/// What to boot.
#[derive(Debug, Clone)]
pub struct Options {
    /// QEMU to run.
    pub qemu: PathBuf,
    /// Kernel to boot.
    pub kernel: Kernel,
    /// What executes the guests.
    pub accel: Accel,
    /// Memory of each guest, in MiB.
    pub memory: u32,
    /// Processors of each guest.
    pub cpus: [u8; NAMES.len()],
    /// The RDMA device of each guest.
    pub device: Kind,
    /// Number of VMs, one or two.
    pub vms: usize,
    /// Ports of each HCA, one or two.
    pub ports: usize,
    /// Capture file of the first VM's HCA.
    pub capture: Option<PathBuf>,
    /// Further properties of each HCA.
    pub properties: Vec<String>,
    /// Further arguments for the kernel.
    pub kernel_arguments: Vec<String>,
    /// Further arguments for QEMU.
    pub qemu_arguments: Vec<String>,
    /// Folder for logs.
    pub logs: PathBuf,
}

/// The VMs of one lab, and the folder of their sockets.
#[derive(Debug)]
pub struct Lab {
    /// The VMs by number.
    pub vms: Vec<Vm>,
    /// What was asked for.
    pub options: Options,
    run: PathBuf,
}

/// Names of the VMs.
pub const NAMES: [&str; 2] = ["a", "b"];

impl Lab {
    /// Boots the VMs side by side and makes their devices usable.
    ///
    /// # Errors
    /// When a VM does not come up, with the end of its console.
    pub fn boot(options: Options) -> Result<Self> {
        if options.vms == 0 || options.vms > NAMES.len() {
            bail!(
                "{} VMs asked for; a lab has 1 or {}",
                options.vms,
                NAMES.len()
            );
        }
        fs::create_dir_all(&options.logs)
            .with_context(|| format!("cannot make {}", options.logs.display()))?;
        let run = paths::run_folder()?;
        let lab = Self {
            vms: Vec::new(),
            options,
            run,
        };
        let vms: Vec<Result<Vm>> = thread::scope(|scope| {
            let lab = &lab;
            let threads: Vec<_> = (0..lab.options.vms)
                .map(|index| scope.spawn(move || lab.boot_one(index)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(anyhow!("a boot failed")))
                })
                .collect()
        });
        let mut lab = lab;
        for vm in vms {
            lab.vms.push(vm?);
        }
        Ok(lab)
    }

    fn boot_one(&self, index: usize) -> Result<Vm> {
        let config = self.config(index);
        let run = self.run.join(NAMES[index]);
        let vm = Vm::start(config, &run, &self.options.logs)?;
        vm.wait_ready(1, BOOT_LIMIT)?;
        device::prepare(&vm, &self.options.device, number(index))?;
        Ok(vm)
    }

    fn config(&self, index: usize) -> Config {
        let options = &self.options;
        let pair = options.vms > 1;
        let hca = matches!(options.device, Kind::Ochre { .. }).then(|| Hca {
            links: if pair {
                (0..options.ports)
                    .map(|port| self.run.join(format!("link{port}")))
                    .collect()
            } else {
                Vec::new()
            },
            guid: 0x0c0c_0e00_0000_0000 + ((u64::from(number(index))) << 8),
            capture: options.capture.clone().filter(|_| index == 0),
            properties: options.properties.clone(),
        });
        let mut kernel_arguments: Vec<String> = Vec::new();
        if options.kernel.debug {
            kernel_arguments.extend(debug::ARGUMENTS.iter().map(|&argument| argument.to_owned()));
        }
        kernel_arguments.extend_from_slice(&options.kernel_arguments);
        Config {
            name: NAMES[index].to_owned(),
            qemu: options.qemu.clone(),
            kernel: options.kernel.image.clone(),
            accel: options.accel,
            memory: options.memory,
            cpus: options.cpus[index],
            hca,
            side: Some(Side {
                socket: self.run.join("side"),
                server: index == 0,
                number: number(index),
            }),
            kernel_arguments,
            qemu_arguments: options.qemu_arguments.clone(),
        }
    }

    /// The VM of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn vm(&self, name: &str) -> Result<&Vm> {
        self.vms.iter().find(|vm| vm.name() == name).ok_or_else(|| {
            let names: Vec<_> = self.vms.iter().map(Vm::name).collect();
            anyhow!(
                "there is no VM '{name}'; this lab has {}",
                names.join(" and ")
            )
        })
    }

    fn index(&self, name: &str) -> Result<usize> {
        self.vm(name)?;
        self.vms
            .iter()
            .position(|vm| vm.name() == name)
            .ok_or_else(|| anyhow!("there is no VM '{name}'"))
    }

    /// Cuts the power of a VM.
    ///
    /// # Errors
    /// When there is no such VM.
    pub fn power_cut(&mut self, name: &str) -> Result<()> {
        let index = self.index(name)?;
        self.vms[index].power_cut();
        Ok(())
    }

    /// Boots a VM anew that lost its power, died, or should start afresh.
    ///
    /// # Errors
    /// When there is no such VM, or it does not come up.
    pub fn restart(&mut self, name: &str) -> Result<()> {
        let index = self.index(name)?;
        self.vms[index].power_cut();
        self.vms[index] = self.boot_one(index)?;
        Ok(())
    }

    /// Takes the HCA of a VM out of its slot, as a person at the machine would, and waits until the
    /// guest has let go of it.
    ///
    /// # Errors
    /// When QEMU refuses, or the guest keeps it.
    pub fn unplug(&self, name: &str) -> Result<()> {
        let vm = self.vm(name)?;
        let since = vm.events();
        vm.qmp().command("device_del", json!({"id": HCA_ID}))?;
        vm.wait_event(since, "DEVICE_DELETED", UNPLUG_LIMIT, |data| {
            data["device"] == HCA_ID
        })
    }

    /// Puts the HCA of a VM into its slot again.
    ///
    /// # Errors
    /// When QEMU refuses.
    pub fn plug(&self, name: &str) -> Result<()> {
        let vm = self.vm(name)?;
        let Some(hca) = &vm.config.hca else {
            bail!("VM {name} has no HCA to plug in");
        };
        let mut arguments = json!({"driver": "ochre-hca", "id": HCA_ID, "bus": ROOT_PORT});
        for (property, value) in hca.properties() {
            arguments[property] = value.into();
        }
        vm.qmp().command("device_add", arguments).map(drop)
    }

    /// Makes the device of a guest usable again after the guest was restarted.
    ///
    /// # Errors
    /// When the device does not come up.
    pub fn prepare(&self, name: &str) -> Result<()> {
        let index = self.index(name)?;
        device::prepare(&self.vms[index], &self.options.device, number(index))
    }
}

/// Number of the VM at an index, the last byte of its addresses.
pub fn number(index: usize) -> u8 {
    u8::try_from(index + 1).unwrap_or(u8::MAX)
}

/// Starts a shell script in a VM.
///
/// # Errors
/// When the VM is not up.
pub fn shell(vm: &Vm, script: &str, print: bool) -> Result<Program> {
    let argv = ["sh", "-c", script];
    start(vm, &argv, print)
}

/// Starts a program in a VM.
///
/// # Errors
/// When the VM is not up.
pub fn start(vm: &Vm, argv: &[&str], print: bool) -> Result<Program> {
    let command = Command {
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        ..Command::default()
    };
    vm.start_program(command, print)
}

/// Runs a program in a VM to its end.
///
/// # Errors
/// When it cannot be run or takes longer than `limit`; a failure of its own is in its result.
pub fn run(vm: &Vm, argv: &[&str], limit: Duration) -> Result<Finished> {
    start(vm, argv, false)?.wait(limit)
}

/// Repeats a question every 100 ms until it is answered.
///
/// # Errors
/// The last error, or that nothing came, after `limit`.
pub fn eventually<T>(
    what: &str,
    limit: Duration,
    mut question: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let limit = patience::of(limit);
    let end = Instant::now() + limit;
    loop {
        let answer = question();
        if let Ok(Some(answer)) = answer {
            return Ok(answer);
        }
        if Instant::now() >= end {
            return match answer {
                Err(error) => {
                    Err(error.context(format!("{what}: not within {} s", limit.as_secs())))
                }
                Ok(_) => Err(anyhow!("{what}: not within {} s", limit.as_secs())),
            };
        }
        thread::sleep(Duration::from_millis(100));
    }
}
