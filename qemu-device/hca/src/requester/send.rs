// SPDX-License-Identifier: GPL-2.0-or-later
//! From the send queue to packets.

use ochre_hw::cqe::CqeStatus;
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{access, QpState, QpType};
use ochre_hw::wqe::SendOpcode;
use ochre_wire::{
    AtomicEth, Bth, Build, Ext, Opcode, Operation, PKey, Psn, Qpn, Reth, Transport, Vl,
};

use super::work::{accept, Work};
use super::{complete, fail_oldest, timeout};
use crate::ctx::Ctx;
use crate::mem::SgData;
use crate::qp::{fail, Progress, Qp};
use crate::seams::{Dma, SendError, Transmit};
use crate::wq::QueueError;

/// Most packets of SENDs and WRITEs that are not acknowledged. An acknowledge is asked for often
/// enough that a window never fills while the peer keeps up.
const WINDOW: u32 = 512;
/// Most PSNs that are not acknowledged, those of READ responses included: the peer tells new
/// requests from repeated ones by halves of the number space.
const MAX_OUTSTANDING: u32 = 1 << 23;
/// An acknowledge is asked for at least once in this many packets.
const ASK_EVERY: u32 = 32;

/// What one step of sending has done.
enum Step {
    /// A packet was sent, or a request was dealt with.
    Done,
    /// Nothing can be sent; the queue is empty, or an acknowledge has to come first.
    Blocked,
    /// The next packet waits for credits.
    NoCredit(Vl),
}

/// Sends requests, at most `budget` packets.
pub(crate) fn run<D: Dma, T: Transmit>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    tx: &mut T,
    budget: &mut u32,
) -> Progress {
    if !matches!(qp.state, QpState::Rts | QpState::Sqd) {
        return Progress::Idle;
    }
    let progress = loop {
        if *budget == 0 {
            break Progress::More;
        }
        match step(qp, ctx, tx) {
            Step::Done => *budget -= 1,
            Step::Blocked => break Progress::Idle,
            Step::NoCredit(vl) => break Progress::NoCredit(vl),
        }
    };
    drain(qp, ctx);
    if let Err(error) = rest(qp, ctx, progress) {
        queue_failed(qp, ctx, error);
    }
    progress
}

/// Before the turn ends: while requests wait, the engine comes back by itself and needs no doorbell;
/// once all are taken up, it does.
fn rest<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, progress: Progress) -> Result<(), QueueError> {
    if qp.state == QpState::Rts && (progress != Progress::Idle || qp.sq.pending() > 0) {
        qp.sq.wake(&ctx.dma, &qp.mem)?;
    }
    Ok(())
}

fn queue_failed<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, _error: QueueError) {
    fail(qp, ctx, Some(EventType::QpFatal));
}

/// In SQD: notes when nothing is under way any more, and writes the event that was asked for.
fn drain<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    let r = &mut qp.requester;
    if qp.state != QpState::Sqd || r.drained || r.una != r.end {
        return;
    }
    // The oldest request may have been cut off in the middle.
    if r.flight.get(0).is_some_and(|w| w.started) {
        return;
    }
    r.drained = true;
    if core::mem::take(&mut r.wants_drained_event) {
        ctx.event(EventType::QpSqDrained, 0, qp.number);
    }
}

fn step<D: Dma, T: Transmit>(qp: &mut Qp, ctx: &mut Ctx<D>, tx: &mut T) -> Step {
    if qp.requester.wait_until.is_some() {
        return Step::Blocked;
    }
    if qp.requester.cursor >= qp.requester.flight.len() {
        match take_up(qp, ctx) {
            Ok(true) => {}
            Ok(false) => return Step::Blocked,
            Err(error) => {
                queue_failed(qp, ctx, error);
                return Step::Blocked;
            }
        }
    }
    let position = qp.requester.cursor;
    let Some(work) = qp.requester.flight.get(position) else {
        return Step::Blocked;
    };
    if let Some(status) = work.failed {
        if position != 0 {
            return Step::Blocked;
        }
        fail_oldest(qp, ctx, status, 0);
        return Step::Done;
    }
    let asks = work.wants_response();
    if !work.started {
        match start(qp) {
            Start::Started => {}
            Start::Failed => return Step::Done,
            Start::Waits => return Step::Blocked,
        }
    }
    if asks {
        ask(qp, ctx, tx)
    } else {
        push(qp, ctx, tx)
    }
}

/// Takes up the next slot of the send queue, if there is one: whether there was.
fn take_up<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) -> Result<bool, QueueError> {
    let r = &mut qp.requester;
    if qp.state != QpState::Rts || r.flight.is_full() {
        return Ok(false);
    }
    if qp.sq.pending() == 0
        && qp.sq.look(&ctx.dma, &qp.mem)? == 0
        && qp.sq.sleep(&ctx.dma, &qp.mem)? == 0
    {
        return Ok(false);
    }
    let request = qp
        .sq
        .read_send(&ctx.dma, &qp.mem, qp.sq.head, &mut ctx.slot)?;
    qp.sq.head = qp.sq.head.wrapping_add(1);
    let mut work = accept(qp.kind, &request);
    let data = request.data();
    if work.failed.is_none() {
        let need = if work.wants_response() {
            access::LOCAL_WRITE
        } else {
            0
        };
        let refused = data.elements().any(|e| {
            let len = u64::from(e.length);
            len != 0 && ctx.mrs.check(e.lkey, qp.pd, e.addr, len, need).is_err()
        });
        if refused {
            work.failed = Some(CqeStatus::LocalProtection);
        }
    }
    let bytes = match data {
        SgData::Inline(bytes) | SgData::Elements(bytes) => bytes,
    };
    r.flight
        .push(work, if work.failed.is_none() { bytes } else { &[] });
    Ok(true)
}

/// What [`start`] has done.
enum Start {
    /// The request has its PSNs.
    Started,
    /// It can never be started.
    Failed,
    /// It has to wait.
    Waits,
}

/// Gives the request at the cursor its PSNs.
#[inline]
fn start(qp: &mut Qp) -> Start {
    let mtu = qp.mtu();
    let r = &mut qp.requester;
    let Some(work) = r.flight.get_mut(r.cursor) else {
        return Start::Waits;
    };
    // In SQD nothing is begun.
    if qp.state != QpState::Rts || (work.is_fenced() && r.reads > 0) {
        return Start::Waits;
    }
    let asks = work.wants_response();
    if asks {
        let most = u32::from(qp.attr.max_rd_atomic);
        if most == 0 {
            work.failed = Some(CqeStatus::LocalQpOperation);
            return Start::Failed;
        }
        if r.reads >= most {
            return Start::Waits;
        }
    }
    let packets = if work.is_atomic() {
        1
    } else {
        mtu.packets(work.len)
    };
    let outstanding = r.end.since(r.una);
    if outstanding > 0 && outstanding + packets > MAX_OUTSTANDING {
        return Start::Waits;
    }
    work.started = true;
    work.first = r.end;
    work.packets = packets;
    if asks {
        r.reads += 1;
        r.read_psns += packets;
    }
    Start::Started
}

/// Headers of a packet to the peer, or `None` where the path leads nowhere. Inline, because they are
/// more than a hundred bytes that are better written where they are used.
#[inline(always)]
fn header<D: Dma>(qp: &Qp, ctx: &Ctx<D>, bth: Bth, ext: Ext) -> Option<Build> {
    let port = ctx.port(qp.port)?;
    let pkey = port.pkey(qp.attr.pkey_index)?;
    let build = port.build(&qp.attr.av, Bth { pkey, ..bth }, ext).ok()?;
    (!build.vl.is_management()).then_some(build)
}

fn bth(qp: &Qp, op: Operation, psn: Psn) -> Bth {
    let transport = match qp.kind {
        QpType::Uc => Transport::Uc,
        _ => Transport::Rc,
    };
    let opcode = Opcode::new(transport, op);
    Bth::new(opcode, PKey::DEFAULT, Qpn::new(qp.attr.dest_qpn), psn)
}

/// Sends the request packet of a READ or atomic.
fn ask<D: Dma, T: Transmit>(qp: &mut Qp, ctx: &mut Ctx<D>, tx: &mut T) -> Step {
    let r = &qp.requester;
    let Some(work) = r.flight.get(r.cursor) else {
        return Step::Blocked;
    };
    let end = work.end();
    let psn = r.next;
    let done = psn.since(work.first);
    let mut ext = Ext::default();
    let op = match work.opcode {
        SendOpcode::CompareSwap | SendOpcode::FetchAdd => {
            ext.atomic = AtomicEth {
                va: work.remote,
                rkey: work.key,
                swap_add: work.swap_or_add,
                compare: work.compare,
            };
            if work.opcode == SendOpcode::FetchAdd {
                Operation::FetchAdd
            } else {
                Operation::CmpSwap
            }
        }
        _ => {
            // What has come of the response is not asked for again.
            let have = done << qp.mtu().shift();
            ext.reth = Reth {
                va: work.remote.wrapping_add(u64::from(have)),
                rkey: work.key,
                len: work.len.saturating_sub(have),
            };
            Operation::ReadRequest
        }
    };
    if let Some(build) = header(qp, ctx, bth(qp, op, psn), ext) {
        match tx.send(&build, 0, |_| Ok::<(), ()>(())) {
            Err(SendError::NoCredit) => return Step::NoCredit(build.vl),
            Ok(()) | Err(SendError::Fill(())) => {}
        }
    }
    let r = &mut qp.requester;
    if let Some(kept) = r.flight.get_mut(r.cursor) {
        kept.resumed_at = done;
    }
    r.unasked = 0;
    r.cursor += 1;
    advance(qp, ctx, end);
    Step::Done
}

/// Sends the next packet of a SEND or WRITE.
fn push<D: Dma, T: Transmit>(qp: &mut Qp, ctx: &mut Ctx<D>, tx: &mut T) -> Step {
    let reliable = qp.kind == QpType::Rc;
    let mtu = qp.mtu();
    let r = &qp.requester;
    let Some(work) = r.flight.get(r.cursor) else {
        return Step::Blocked;
    };
    let psn = r.next;
    let is_new = psn == r.end;
    if reliable && is_new && r.end.since(r.una) >= WINDOW + r.read_psns {
        return Step::Blocked;
    }
    let index = psn.since(work.first);
    let is_first = index == 0;
    let is_last = index + 1 == work.packets;
    let offset = index << mtu.shift();
    let payload = (work.len.saturating_sub(offset) as usize).min(mtu.bytes());

    let mut header_bth = bth(qp, operation(work, is_first, is_last), psn);
    let is_end_of_queue =
        is_last && (r.cursor + 1 == r.flight.len() && qp.sq.pending() == 0 || psn.next() == r.end);
    header_bth.ack_req = reliable && (is_end_of_queue || r.unasked + 1 >= ASK_EVERY);
    header_bth.solicited = is_last && work.is_solicited() && work.opcode != SendOpcode::Write;
    let ext = Ext {
        reth: Reth {
            va: work.remote,
            rkey: work.key,
            len: work.len,
        },
        imm: work.imm,
        invalidate_rkey: work.imm,
        ..Ext::default()
    };
    if let Some(build) = header(qp, ctx, header_bth, ext) {
        let (cursor, pd) = (r.cursor, qp.pd);
        let fill = |out: &mut [u8]| ctx.gather(pd, r.flight.data(cursor), offset.into(), out);
        match tx.send(&build, payload, fill) {
            Ok(()) => {}
            Err(SendError::NoCredit) => return Step::NoCredit(build.vl),
            Err(SendError::Fill(_)) => {
                if let Some(kept) = qp.requester.flight.get_mut(cursor) {
                    kept.failed = Some(CqeStatus::LocalProtection);
                }
                return Step::Done;
            }
        }
    }
    let r = &mut qp.requester;
    r.unasked = if header_bth.ack_req { 0 } else { r.unasked + 1 };
    if is_last {
        r.cursor += 1;
    }
    advance(qp, ctx, psn.next());
    if !reliable {
        let r = &mut qp.requester;
        r.una = r.end;
        if is_last {
            complete(qp, ctx, CqeStatus::Success, 0);
        }
    }
    Step::Done
}

/// What was sent reaches up to `sent`: moves on, and watches over its acknowledge.
fn advance<D: Dma>(qp: &mut Qp, ctx: &Ctx<D>, sent: Psn) {
    let r = &mut qp.requester;
    if sent.since(r.una) > r.end.since(r.una) {
        r.end = sent;
    }
    r.next = sent;
    if qp.kind == QpType::Rc && r.timeout_at.is_none() {
        r.timeout_at = timeout(&qp.attr, ctx.now);
    }
}

/// Operation of one packet of a SEND or WRITE.
fn operation(work: &Work, is_first: bool, is_last: bool) -> Operation {
    use Operation::{
        SendFirst, SendLast, SendLastImm, SendLastInv, SendMiddle, SendOnly, SendOnlyImm,
        SendOnlyInv, WriteFirst, WriteLast, WriteLastImm, WriteMiddle, WriteOnly, WriteOnlyImm,
    };
    match (is_first, is_last) {
        (true, false) if work.is_write() => WriteFirst,
        (false, false) if work.is_write() => WriteMiddle,
        (true, false) => SendFirst,
        (false, false) => SendMiddle,
        (true, true) => match work.opcode {
            SendOpcode::SendImm => SendOnlyImm,
            SendOpcode::SendInvalidate => SendOnlyInv,
            SendOpcode::Write => WriteOnly,
            SendOpcode::WriteImm => WriteOnlyImm,
            _ => SendOnly,
        },
        (false, true) => match work.opcode {
            SendOpcode::SendImm => SendLastImm,
            SendOpcode::SendInvalidate => SendLastInv,
            SendOpcode::Write => WriteLast,
            SendOpcode::WriteImm => WriteLastImm,
            _ => SendLast,
        },
    }
}
