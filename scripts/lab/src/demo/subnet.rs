// SPDX-License-Identifier: GPL-2.0-or-later
//! The subnet: its manager, its ports and their counters.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{anyhow, bail, Context, Result};

use super::figures;
use super::report::Port;
use crate::device::Kind;
use crate::lab::{eventually, run, shell, Lab};
use crate::proto::Command;
use crate::vm::Vm;

/// How long OpenSM may take to bring the subnet up.
const LIMIT: Duration = Duration::from_secs(40);

/// Starts OpenSM in a VM, where it runs until the VM ends: one for each port, as each has a subnet of
/// its own. It looks at the subnet every two seconds, so that a port that comes back is soon active.
///
/// # Errors
/// When the VM is not up or has no HCA.
pub fn start(vm: &Vm) -> Result<()> {
    let hca = vm
        .config
        .hca
        .as_ref()
        .ok_or_else(|| anyhow!("VM {} has no HCA for a subnet", vm.name()))?;
    for number in 1..=hca.links.len() as u64 {
        // A port's GUID is its node's plus its number.
        let guid = format!("{:#x}", hca.guid + number);
        let log = format!("/tmp/opensm{number}.log");
        let argv = ["opensm", "-g", &guid, "--sweep", "2", "-f", &log];
        let command = Command {
            argv: argv.map(str::to_owned).to_vec(),
            // Two managers must not share what they remember.
            env: [("OSM_CACHE_DIR".into(), format!("/tmp/opensm{number}"))].into(),
            ..Command::default()
        };
        // The program runs on when nobody listens to it.
        drop(vm.start_program(command, false)?);
    }
    Ok(())
}

/// Waits until every port of the lab is active.
///
/// # Errors
/// When one is not in time, with its state and the end of OpenSM's log.
pub fn wait_active(lab: &Lab) -> Result<()> {
    let device = lab.options.device.device();
    for vm in &lab.vms {
        for number in 1..=ports(lab) {
            let active = eventually("the port becomes active", LIMIT, || {
                let port = port(vm, device, number)?;
                if port.state == "ACTIVE" {
                    Ok(Some(()))
                } else {
                    bail!("it is {}", port.state)
                }
            });
            active.with_context(|| {
                let log = lab
                    .vm("a")
                    .and_then(|vm| {
                        run(
                            vm,
                            &["tail", "-n", "8", &format!("/tmp/opensm{number}.log")],
                            LIMIT,
                        )
                    })
                    .map(|finished| finished.out)
                    .unwrap_or_default();
                format!(
                    "port {number} of {device} in VM {}; OpenSM's log ends with:\n{log}",
                    vm.name()
                )
            })?;
        }
    }
    Ok(())
}

fn ports(lab: &Lab) -> u8 {
    match lab.options.device {
        Kind::Ochre { .. } => u8::try_from(lab.options.ports).unwrap_or(1),
        Kind::Rxe | Kind::None => 1,
    }
}

/// State of one port as the guest's kernel sees it, without counters.
///
/// # Errors
/// When the device is not there.
pub fn port(vm: &Vm, device: &str, number: u8) -> Result<Port> {
    let script =
        format!("cd /sys/class/infiniband/{device}/ports/{number} && cat state lid link_layer");
    let finished = shell(vm, &script, false)?
        .wait(LIMIT)?
        .success("reading the port's state")?;
    let mut lines = finished.out.lines();
    let mut line = || {
        lines
            .next()
            .map(str::trim)
            .ok_or_else(|| anyhow!("the kernel tells too little of the port: {}", finished.out))
    };
    let state = line()?;
    let lid = line()?;
    let link_layer = line()?.to_owned();
    Ok(Port {
        vm: vm.name().to_owned(),
        device: device.to_owned(),
        port: number,
        lid: u16::from_str_radix(lid.trim_start_matches("0x"), 16)
            .with_context(|| format!("LID '{lid}'"))?,
        state: state
            .split_once(": ")
            .map_or(state, |(_, name)| name)
            .to_owned(),
        link_layer,
        counters: BTreeMap::new(),
    })
}

/// Counters of one port, by the names of the performance management class, read with a MAD.
///
/// # Errors
/// When the port does not answer.
pub fn counters(vm: &Vm, device: &str, number: u8) -> Result<BTreeMap<String, u64>> {
    let script =
        format!("perfquery -C {device} -P {number} && perfquery -x -C {device} -P {number}");
    let finished = shell(vm, &script, false)?
        .wait(LIMIT)?
        .success("perfquery")?;
    let counters = figures::perfquery(&finished.out);
    if counters.is_empty() {
        bail!(
            "perfquery in VM {} told no counter: {}",
            vm.name(),
            finished.out
        );
    }
    Ok(counters)
}

/// All ports of the lab with their counters; a counter that cannot be read is left out.
///
/// # Errors
/// When a device is not there.
pub fn all(lab: &Lab) -> Result<Vec<Port>> {
    let device = lab.options.device.device();
    let mut all = Vec::new();
    for vm in &lab.vms {
        for number in 1..=ports(lab) {
            let mut port = port(vm, device, number)?;
            if lab.options.device != Kind::Rxe {
                port.counters = counters(vm, device, number)?;
            }
            all.push(port);
        }
    }
    Ok(all)
}
