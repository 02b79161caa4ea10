// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests of RC: in order, once, and each answered.

use core::time::Duration;

use ochre_hw::cmd::port::Counter;
use ochre_hw::cqe::CqeOpcode;
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::access;
use ochre_wire::{NakCode, Operation, Packet, Psn, Reth, Syndrome};

use super::execute::{message, refused, Fault, INVALID, MAX_MESSAGE};
use super::reply::ReadReply;
use super::{complete_receive, Received};
use crate::ctx::Ctx;
use crate::qp::{fail, Qp};
use crate::seams::Dma;

/// Where the receive queue has no shared one behind it, a responder may count its receives in
/// acknowledges; this one gives no such credits, and an RNR NAK says when there is none.
pub(super) const ACK: Syndrome = Syndrome::ACK_NO_CREDITS;

/// An acknowledge goes out at the latest after this many packets.
const ACK_EVERY: u32 = 64;
/// And at the latest after this time. Requesters ask for an acknowledge where they wait for one, so this is for a
/// peer that never asks: long enough that a stream does not set a timer off now and then.
const ACK_DELAY: Duration = Duration::from_millis(1);

/// A request packet.
pub(super) fn receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) {
    let r = &mut qp.responder;
    let psn = packet.bth().psn;
    if r.replies.is_full() {
        // Dropped, as if it were lost: the peer sends faster than it takes answers.
        return;
    }
    if psn == r.expected {
        r.refused = false;
        if let Err(fault) = request(qp, ctx, packet) {
            refuse(qp, ctx, psn, fault);
        }
    } else if psn.is_before(r.expected) {
        ctx.count(qp.port, Counter::DuplicateRequests);
        repeat(qp, ctx, packet);
    } else if !r.refused {
        ctx.count(qp.port, Counter::OutOfSequence);
        let missing = r.expected;
        r.refused = true;
        nak(qp, ctx, missing, Syndrome::Nak(NakCode::PsnSequence));
    }
    if !qp.responder.replies.is_empty() {
        ctx.sched.schedule(qp.number, &mut qp.sched);
    }
}

/// The request with the expected PSN.
fn request<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) -> Result<(), Fault> {
    let bth = packet.bth();
    let psn = bth.psn;
    match bth.opcode.op {
        Operation::ReadRequest => return read(qp, ctx, packet, psn),
        Operation::CmpSwap | Operation::FetchAdd => return atomic(qp, ctx, packet, psn),
        _ => {}
    }
    let complete = message(qp, ctx, packet)?;
    let r = &mut qp.responder;
    r.expected = psn.next();
    if complete {
        r.count_message();
    }
    r.unacknowledged += 1;
    if bth.ack_req || r.unacknowledged >= ACK_EVERY {
        acknowledge(qp);
    } else if r.ack_at.is_none() {
        r.ack_at = Some(ctx.now + ACK_DELAY);
    }
    Ok(())
}

/// Acknowledges everything received so far.
fn acknowledge(qp: &mut Qp) {
    let r = &mut qp.responder;
    r.unacknowledged = 0;
    r.ack_at = None;
    r.replies.ack(r.expected.prev(), ACK, r.msn);
}

/// An acknowledge that nobody asked for is due.
pub(crate) fn on_timer<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    if qp.responder.ack_at.is_some_and(|t| t <= ctx.now) {
        acknowledge(qp);
        ctx.sched.schedule(qp.number, &mut qp.sched);
    }
}

fn nak<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, psn: Psn, syndrome: Syndrome) {
    let r = &mut qp.responder;
    r.unacknowledged = 0;
    r.ack_at = None;
    r.replies.ack(psn, syndrome, r.msn);
    ctx.sched.schedule(qp.number, &mut qp.sched);
}

/// Answers a request that was not executed.
fn refuse<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, psn: Psn, fault: Fault) {
    match fault {
        Fault::NotReady => {
            ctx.count(qp.port, Counter::RnrNakSent);
            qp.responder.refused = true;
            let timer = qp.attr.min_rnr_timer;
            nak(qp, ctx, psn, Syndrome::RnrNak { timer });
        }
        Fault::Refused(code, event) => {
            let counter = match code {
                NakCode::InvalidRequest => Counter::RemoteInvalidRequests,
                _ => Counter::RemoteAccessErrors,
            };
            ctx.count(qp.port, counter);
            nak(qp, ctx, psn, Syndrome::Nak(code));
            fail(qp, ctx, Some(event));
        }
        Fault::Receive(status, code) => {
            let failed = Received {
                opcode: CqeOpcode::Recv,
                len: 0,
                imm: None,
                solicited: false,
            };
            complete_receive(qp, ctx, status, failed);
            nak(qp, ctx, psn, Syndrome::Nak(code));
            fail(qp, ctx, None);
        }
        Fault::Queue => {
            nak(qp, ctx, psn, Syndrome::Nak(NakCode::RemoteOperational));
            fail(qp, ctx, Some(EventType::QpFatal));
        }
    }
}

/// Checks that a READ or atomic may come here now: between messages, with the right, and with no
/// more under way than was agreed.
fn may_ask(qp: &Qp, right: u32) -> Result<(), Fault> {
    let r = &qp.responder;
    let is_allowed = r.message == super::Message::None
        && qp.attr.access & right != 0
        && r.replies.resources() < usize::from(qp.attr.max_dest_rd_atomic);
    is_allowed.then_some(()).ok_or(INVALID)
}

/// Checks that a READ may have what it asks for.
fn check_read<D: Dma>(qp: &Qp, ctx: &Ctx<D>, reth: &Reth) -> Result<(), Fault> {
    if reth.len > MAX_MESSAGE {
        return Err(INVALID);
    }
    if reth.len > 0 {
        let len = reth.len.into();
        ctx.mrs
            .check(reth.rkey, qp.pd, reth.va, len, access::REMOTE_READ)
            .map_err(refused)?;
    }
    Ok(())
}

fn read<D: Dma>(qp: &mut Qp, ctx: &Ctx<D>, packet: &Packet<'_>, psn: Psn) -> Result<(), Fault> {
    may_ask(qp, access::REMOTE_READ)?;
    let reth = packet.reth().ok_or(INVALID)?;
    check_read(qp, ctx, &reth)?;
    let packets = qp.mtu().packets(reth.len);
    let r = &mut qp.responder;
    r.expected = psn.add(packets);
    r.count_message();
    r.unacknowledged = 0;
    r.ack_at = None;
    let reply = read_reply(psn, packets, &reth, r.msn);
    r.replies.read(reply);
    Ok(())
}

fn read_reply(psn: Psn, packets: u32, reth: &Reth, msn: u32) -> ReadReply {
    ReadReply {
        first: psn,
        packets,
        sent: 0,
        begun_at: 0,
        va: reth.va,
        key: reth.rkey,
        len: reth.len,
        msn,
        repeated: false,
    }
}

fn atomic<D: Dma>(qp: &mut Qp, ctx: &Ctx<D>, packet: &Packet<'_>, psn: Psn) -> Result<(), Fault> {
    may_ask(qp, access::REMOTE_ATOMIC)?;
    let eth = packet.atomic().ok_or(INVALID)?;
    if eth.va % 8 != 0 {
        return Err(INVALID);
    }
    let region = ctx
        .mrs
        .check(eth.rkey, qp.pd, eth.va, 8, access::REMOTE_ATOMIC)
        .map_err(refused)?;
    let word = region.word(eth.va).map_err(|e| refused(e.into()))?;
    let before = if packet.bth().opcode.op == Operation::CmpSwap {
        ctx.dma.compare_swap_u64(word, eth.compare, eth.swap_add)
    } else {
        ctx.dma.fetch_add_u64(word, eth.swap_add)
    }
    .map_err(|e| refused(e.into()))?;
    let keep = usize::from(qp.attr.max_dest_rd_atomic);
    let r = &mut qp.responder;
    r.expected = psn.next();
    r.count_message();
    r.unacknowledged = 0;
    r.ack_at = None;
    r.replies.atomic(psn, before, r.msn, keep);
    Ok(())
}

/// A request that was executed before: it is answered again, not executed again; but a READ reads
/// anew, and it may ask for a part only.
fn repeat<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) {
    let bth = packet.bth();
    let psn = bth.psn;
    let most = usize::from(qp.attr.max_dest_rd_atomic);
    match bth.opcode.op {
        Operation::ReadRequest => {
            let Some(reth) = packet.reth() else {
                return;
            };
            if qp.attr.access & access::REMOTE_READ == 0 || check_read(qp, ctx, &reth).is_err() {
                return;
            }
            let packets = qp.mtu().packets(reth.len);
            let r = &mut qp.responder;
            let is_known = psn.add(packets).diff(r.expected) <= 0;
            if !is_known || r.replies.rewind_read(psn) || r.replies.repetitions() >= most {
                return;
            }
            let reply = read_reply(psn, packets, &reth, r.msn);
            r.replies.read(ReadReply {
                repeated: true,
                ..reply
            });
        }
        Operation::CmpSwap | Operation::FetchAdd => {
            qp.responder.replies.repeat_atomic(psn, most);
        }
        op => {
            if bth.ack_req || op.ends_message() {
                acknowledge(qp);
            } else if qp.responder.ack_at.is_none() {
                qp.responder.ack_at = Some(ctx.now + ACK_DELAY);
            }
        }
    }
}
