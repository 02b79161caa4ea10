// SPDX-License-Identifier: GPL-2.0-or-later
//! The datagram engine: UD and the special QPs.

use ochre_wire::Packet;

use crate::ctx::Ctx;
use crate::qp::{Progress, Qp};
use crate::seams::{Dma, Transmit};

/// A packet for a UD or special QP; the caller has checked ICRC, addresses and P_Key.
pub fn receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>, pkey_index: u16) {
    let _ = (qp, ctx, packet, pkey_index);
}

/// A turn of the scheduler: sends at most `budget` packets.
pub fn run<D: Dma, T: Transmit>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    tx: &mut T,
    budget: &mut u32,
) -> Progress {
    let _ = (qp, ctx, tx, budget);
    Progress::Idle
}
