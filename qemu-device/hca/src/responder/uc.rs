// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests of UC: nothing is answered; a message with a gap, or one that is wrong, is dropped.

use ochre_hw::cqe::CqeOpcode;
use ochre_wire::Packet;

use super::execute::{message, Fault};
use super::{complete_receive, Message, Received};
use crate::ctx::Ctx;
use crate::qp::{fail, Qp};
use crate::seams::Dma;

/// A request packet.
pub(super) fn receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) {
    let bth = packet.bth();
    let r = &mut qp.responder;
    let in_order = bth.psn == r.expected;
    r.expected = bth.psn.next();
    let starts = bth.opcode.op.starts_message();
    if !in_order || starts {
        // The message under way misses packets. Its receive serves the next one.
        r.message = Message::None;
    }
    if !starts && r.message == Message::None {
        return;
    }
    match message(qp, ctx, packet) {
        Ok(true) => qp.responder.count_message(),
        Ok(false) => {}
        Err(Fault::NotReady | Fault::Refused(..)) => qp.responder.message = Message::None,
        Err(Fault::Receive(status, _)) => {
            let failed = Received {
                opcode: CqeOpcode::Recv,
                len: 0,
                imm: None,
                solicited: false,
            };
            complete_receive(qp, ctx, status, failed);
            fail(qp, ctx, None);
        }
        Err(Fault::Queue) => fail(qp, ctx, Some(ochre_hw::eqe::EventType::QpFatal)),
    }
}
