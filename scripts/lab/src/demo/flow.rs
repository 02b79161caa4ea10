// SPDX-License-Identifier: GPL-2.0-or-later
//! The flow-control show: a receiver that drains slowly, a sender that waits for its credits.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::programs::{pair, Pair};
use super::report::{FlowControl, Program};
use super::subnet::counters;
use crate::lab::Lab;
use crate::launch::HCA_ID;
use crate::vm::Vm;

/// How fast the receiver drains its buffers in the show, in bytes a second.
pub const RATE: u64 = 20_000_000;

/// Counters of lost packets.
const LOSSES: &[&str] = &[
    "PortXmitDiscards",
    "PortRcvErrors",
    "PortRcvRemotePhysicalErrors",
    "PortRcvConstraintErrors",
    "PortXmitConstraintErrors",
    "ExcessiveBufferOverrunErrors",
    "LocalLinkIntegrityErrors",
    "VL15Dropped",
];

/// Makes the receiver slow, and fast again when this is dropped.
struct Slow<'a>(&'a Vm);

impl<'a> Slow<'a> {
    fn new(vm: &'a Vm) -> Result<Self> {
        vm.qmp()
            .set(HCA_ID, "drain0", RATE)
            .context("cannot make the receiver slow")?;
        Ok(Self(vm))
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        let _ = self.0.qmp().set(HCA_ID, "drain0", 0);
    }
}

/// Sends checked data from VM a to VM b at full speed and to a slow receiver; returns what flow
/// control did, and the two runs.
///
/// # Errors
/// When counters cannot be read or the receiver cannot be made slow; a transfer that fails is in the
/// result.
pub fn show(lab: &Lab) -> Result<(FlowControl, Vec<Result<Program>>)> {
    let (sender, receiver) = (lab.vm("a")?, lab.vm("b")?);
    let device = lab.options.device.device();
    let words = "ibv_rc_pingpong -c -s 1048576 -n 20";
    let transfer = Pair::pingpong(&lab.options.device, words);
    let fast = pair(receiver, sender, &transfer);

    let read =
        || -> Result<_> { Ok((counters(sender, device, 1)?, counters(receiver, device, 1)?)) };
    let before = read()?;
    let slow = Slow::new(receiver)?;
    let mut slowed = pair(receiver, sender, &transfer);
    drop(slow);
    if let Ok(program) = &mut slowed {
        program
            .figures
            .insert("receiver_drains_MBps".into(), RATE as f64 / 1e6);
    }
    let after = read()?;

    let flow = FlowControl {
        xmit_wait: rise(&before.0, &after.0, "PortXmitWait"),
        packets_dropped: LOSSES
            .iter()
            .map(|name| rise(&before.0, &after.0, name) + rise(&before.1, &after.1, name))
            .sum(),
        data_ok: slowed.is_ok(),
    };
    Ok((flow, vec![fast, slowed]))
}

fn rise(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>, name: &str) -> u64 {
    let value = |counters: &BTreeMap<String, u64>| counters.get(name).copied().unwrap_or(0);
    value(after).saturating_sub(value(before))
}
