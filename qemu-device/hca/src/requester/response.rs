// SPDX-License-Identifier: GPL-2.0-or-later
//! What comes back: acknowledges, NAKs, READ responses and results of atomics.

use core::time::Duration;

use ochre_hw::cmd::port::Counter;
use ochre_hw::cqe::CqeStatus;
use ochre_hw::verbs::{QpState, QpType};
use ochre_wire::{rnr_timer_ns, NakCode, Operation, Packet, Psn, Syndrome};

use super::{complete, fail_oldest, retry, RNR_FOREVER};
use crate::ctx::Ctx;
use crate::qp::Qp;
use crate::seams::Dma;

/// A response packet for the QP.
pub(crate) fn receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) {
    if qp.kind != QpType::Rc || !matches!(qp.state, QpState::Rts | QpState::Sqd) {
        return;
    }
    let r = &qp.requester;
    let psn = packet.bth().psn;
    // Anything outside is a duplicate, or a ghost of an earlier time.
    if psn.since(r.una) >= r.end.since(r.una) {
        return;
    }
    let before = r.una;
    match packet.bth().opcode.op {
        Operation::Ack => acknowledge(qp, ctx, packet, psn),
        Operation::AtomicAck => atomic_result(qp, ctx, packet, psn),
        _ => read_response(qp, ctx, packet, psn),
    }
    let r = &mut qp.requester;
    if r.una == before {
        return;
    }
    if r.next.since(before) < r.una.since(before) {
        // An answer to what was sent before going back: that need not be sent again.
        r.next = r.una;
        r.cursor = 0;
    }
    // An awake queue gets no doorbells: it has to be looked at.
    let waits = r.cursor < r.flight.len() || qp.sq.is_awake() || qp.state == QpState::Sqd;
    if waits && r.wait_until.is_none() {
        ctx.sched.schedule(qp.number, &mut qp.sched);
    }
}

/// Takes everything before `upto` as acknowledged and completes what is done with that.
///
/// `false` where a READ or atomic before `upto` has not had its response, which must have been lost.
fn settle<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, upto: Psn) -> bool {
    loop {
        let r = &mut qp.requester;
        let reach = upto.since(r.una);
        let Some(oldest) = r.flight.get(0).filter(|_| reach > 0) else {
            return true;
        };
        if oldest.wants_response() {
            return false;
        }
        let left = oldest.end().since(r.una);
        if reach < left {
            r.una = upto;
            r.progress(&qp.attr, ctx.now);
            return true;
        }
        r.una = oldest.end();
        r.progress(&qp.attr, ctx.now);
        complete(qp, ctx, CqeStatus::Success, 0);
    }
}

/// A response shows that an earlier one was lost: asks for it again, once.
fn implied_nak<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    if qp.requester.recovering || qp.requester.wait_until.is_some() {
        return;
    }
    ctx.count(qp.port, Counter::ImpliedNakSeqErrors);
    qp.requester.recovering = true;
    retry(qp, ctx);
}

fn acknowledge<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>, psn: Psn) {
    let Some(aeth) = packet.aeth() else {
        return;
    };
    let syndrome = aeth.syndrome.to_u8();
    let upto = match aeth.syndrome {
        Syndrome::Ack { .. } => psn.next(),
        Syndrome::RnrNak { .. } | Syndrome::Nak(_) => psn,
        Syndrome::Reserved(_) => return,
    };
    if !settle(qp, ctx, upto) {
        return implied_nak(qp, ctx);
    }
    let status = match aeth.syndrome {
        Syndrome::Ack { .. } | Syndrome::Reserved(_) => return,
        Syndrome::RnrNak { timer } => return not_ready(qp, ctx, timer, syndrome),
        Syndrome::Nak(NakCode::PsnSequence) => {
            ctx.count(qp.port, Counter::PacketSeqErrors);
            if !qp.requester.recovering {
                qp.requester.recovering = true;
                retry(qp, ctx);
            }
            return;
        }
        Syndrome::Nak(NakCode::RemoteAccess) => CqeStatus::RemoteAccess,
        Syndrome::Nak(NakCode::RemoteOperational) => CqeStatus::RemoteOperation,
        Syndrome::Nak(NakCode::InvalidRequest | NakCode::InvalidRd) => {
            CqeStatus::RemoteInvalidRequest
        }
    };
    fail_oldest(qp, ctx, status, syndrome);
}

/// The responder has no receive for the oldest request: sends it again after a time.
fn not_ready<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, timer: u8, syndrome: u8) {
    ctx.count(qp.port, Counter::RnrNakReceived);
    let r = &mut qp.requester;
    if r.wait_until.is_some() {
        return;
    }
    if qp.attr.rnr_retry != RNR_FOREVER {
        if r.rnr_retries == 0 {
            return fail_oldest(qp, ctx, CqeStatus::RnrRetryExceeded, syndrome);
        }
        r.rnr_retries -= 1;
    }
    r.wait_until = Some(ctx.now + Duration::from_nanos(rnr_timer_ns(timer)));
    // While it waits, nothing is due from the peer.
    r.timeout_at = None;
    r.rewind();
}

/// What a response brings does not fit what was asked for.
fn bad_response<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    fail_oldest(qp, ctx, CqeStatus::BadResponse, 0);
}

fn read_response<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>, psn: Psn) {
    if !settle(qp, ctx, psn) {
        return implied_nak(qp, ctx);
    }
    let mtu = qp.mtu();
    let Some(&work) = qp.requester.flight.get(0).filter(|w| w.is_read()) else {
        return bad_response(qp, ctx);
    };
    let op = packet.bth().opcode.op;
    let index = psn.since(work.first);
    let is_last = index + 1 == work.packets;
    // The first packet may be marked as such wherever the response was asked for; where it was
    // asked for a second time, a packet of the first response may still come.
    let may_start = index == 0 || index == work.resumed_at;
    let must_start = index == 0;
    let starts = op.starts_message();
    let offset = index << mtu.shift();
    let payload = packet.payload();
    let expected = (work.len.saturating_sub(offset) as usize).min(mtu.bytes());
    if (starts && !may_start)
        || (!starts && must_start)
        || op.ends_message() != is_last
        || payload.len() != expected
    {
        return bad_response(qp, ctx);
    }
    let data = qp.requester.flight.data(0);
    if ctx.scatter(qp.pd, data, offset.into(), payload).is_err() {
        return fail_oldest(qp, ctx, CqeStatus::LocalProtection, 0);
    }
    answered(qp, ctx, is_last);
}

fn atomic_result<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>, psn: Psn) {
    if !settle(qp, ctx, psn) {
        return implied_nak(qp, ctx);
    }
    let is_atomic = qp.requester.flight.get(0).is_some_and(|w| w.is_atomic());
    let Some(value) = packet.atomic_ack().filter(|_| is_atomic) else {
        return bad_response(qp, ctx);
    };
    let data = qp.requester.flight.data(0);
    if ctx.scatter(qp.pd, data, 0, &value.to_le_bytes()).is_err() {
        return fail_oldest(qp, ctx, CqeStatus::LocalProtection, 0);
    }
    answered(qp, ctx, true);
}

/// One packet of the response to the oldest request has come, the last one or not.
fn answered<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, is_last: bool) {
    let r = &mut qp.requester;
    r.una = r.una.next();
    r.read_psns = r.read_psns.saturating_sub(1);
    r.progress(&qp.attr, ctx.now);
    if is_last {
        r.reads = r.reads.saturating_sub(1);
        complete(qp, ctx, CqeStatus::Success, 0);
    }
}
