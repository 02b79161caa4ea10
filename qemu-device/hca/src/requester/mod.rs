// SPDX-License-Identifier: GPL-2.0-or-later
//! The sending side of connected QPs.
//!
//! Requests are taken up from the send queue in order and cut into packets ([`send`]); what comes
//! back acknowledges them, brings the data of READs and atomics, or asks to go back ([`response`]).
//! Of the PSNs, `una` is the first that is not acknowledged, `next` the one sent next, `end` the one
//! after the last ever sent; `una <= next <= end`, and `next < end` while sending again.

mod flight;
mod response;
mod send;
#[cfg(test)]
mod tests;
mod work;

use ochre_hw::cmd::port::Counter;
use ochre_hw::cqe::{Cqe, CqeOpcode, CqeStatus};
use ochre_hw::verbs::{QpAttr, QpState};
use ochre_wire::{ack_timeout_ns, Psn};

use core::time::Duration;

use crate::ctx::Ctx;
use crate::qp::{fail_sends, Qp};
use crate::seams::Dma;
use crate::Time;

use flight::Flight;
pub(crate) use response::receive;
pub(crate) use send::run;
pub(crate) use work::cqe_opcode;

/// The local ACK time-out may run out between one and four times its value after the packet that it
/// waits for; late is better than early where the peer has to get a processor first.
const TIMEOUT_FACTOR: u64 = 3;

/// Value of RNR retry that stands for no limit.
const RNR_FOREVER: u8 = 7;

/// State of the sending side.
#[derive(Debug)]
pub(crate) struct Requester {
    flight: Flight,
    una: Psn,
    next: Psn,
    end: Psn,
    /// Position in `flight` of the request that `next` belongs to.
    cursor: usize,
    /// READs and atomics started and not answered.
    reads: u32,
    /// PSNs of their responses that have not come.
    read_psns: u32,
    /// Packets sent since the last that asks for an acknowledge.
    unasked: u32,
    retries: u8,
    rnr_retries: u8,
    /// Went back after a NAK: what still comes of the time before must not cause it again.
    recovering: bool,
    /// Nothing is sent before this time, after an RNR NAK.
    wait_until: Option<Time>,
    /// When the local ACK time-out runs out.
    timeout_at: Option<Time>,
    /// In SQD: everything under way is done.
    pub(crate) drained: bool,
    /// In SQD: an event is due once drained.
    pub(crate) wants_drained_event: bool,
}

impl Requester {
    /// For a send queue with slots of `stride` bytes.
    pub(crate) fn new(stride: usize) -> Self {
        Requester {
            flight: Flight::new(stride),
            una: Psn::default(),
            next: Psn::default(),
            end: Psn::default(),
            cursor: 0,
            reads: 0,
            read_psns: 0,
            unasked: 0,
            retries: 0,
            rnr_retries: 0,
            recovering: false,
            wait_until: None,
            timeout_at: None,
            drained: false,
            wants_drained_event: false,
        }
    }

    /// Begins at `psn`, with the retry counts of `attr`.
    pub(crate) fn start(&mut self, psn: Psn, attr: &QpAttr) {
        self.una = psn;
        self.next = psn;
        self.end = psn;
        self.retries = attr.retry_count;
        self.rnr_retries = attr.rnr_retry;
    }

    /// Forgets everything, as in RESET.
    pub(crate) fn reset(&mut self) {
        *self = Requester {
            flight: core::mem::take(&mut self.flight),
            ..Requester::new(0)
        };
        self.flight.clear();
    }

    /// PSN of the next request that is taken up.
    pub(crate) fn next_new_psn(&self) -> Psn {
        self.end
    }

    /// When [`on_timer`] is due.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        Time::earliest(self.wait_until, self.timeout_at)
    }

    /// Takes out the oldest request that is not completed, for its flush completion.
    pub(crate) fn take_unfinished(&mut self) -> Option<(u64, CqeOpcode)> {
        let work = self.flight.pop()?;
        self.idle();
        let opcode = match work.failed {
            // Malformed: what it was meant to be is not known.
            Some(CqeStatus::LocalQpOperation) => CqeOpcode::Send,
            _ => work.cqe_opcode(),
        };
        Some((work.wr_id, opcode))
    }

    /// Nothing is waited for any more; where sending goes on (from SQE), it does so at `end`.
    fn idle(&mut self) {
        self.una = self.end;
        self.next = self.end;
        self.cursor = 0;
        self.reads = 0;
        self.read_psns = 0;
        self.wait_until = None;
        self.timeout_at = None;
    }

    /// Goes back to the first packet that is not acknowledged.
    fn rewind(&mut self) {
        self.next = self.una;
        self.cursor = 0;
        self.unasked = 0;
    }

    /// Something was acknowledged: the retries begin anew.
    fn progress(&mut self, attr: &QpAttr, now: Time) {
        self.retries = attr.retry_count;
        self.rnr_retries = attr.rnr_retry;
        self.recovering = false;
        self.timeout_at = if self.una == self.end {
            None
        } else {
            timeout(attr, now)
        };
    }
}

/// When a packet sent now is overdue.
fn timeout(attr: &QpAttr, now: Time) -> Option<Time> {
    let ns = ack_timeout_ns(attr.timeout)?;
    Some(now + Duration::from_nanos(ns.saturating_mul(TIMEOUT_FACTOR)))
}

/// Completes the oldest request; a completion is written where it is signaled or has failed.
fn complete<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, status: CqeStatus, syndrome: u8) {
    let r = &mut qp.requester;
    let Some(work) = r.flight.pop() else {
        return;
    };
    r.cursor = r.cursor.saturating_sub(1);
    qp.sq.tail = qp.sq.tail.wrapping_add(1);
    if status == CqeStatus::Success && !work.is_signaled() {
        return;
    }
    let cqe = Cqe {
        wr_id: work.wr_id,
        byte_len: if work.wants_response() { work.len } else { 0 },
        qpn: qp.qpn.get(),
        wqe_index: qp.sq.tail,
        opcode: work.cqe_opcode().raw(),
        status: status.raw(),
        syndrome,
        ..Cqe::default()
    };
    ctx.complete(qp.send_cq, cqe);
}

/// Completes the oldest request in error; the QP stops sending.
fn fail_oldest<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, status: CqeStatus, syndrome: u8) {
    complete(qp, ctx, status, syndrome);
    qp.requester.idle();
    fail_sends(qp, ctx);
}

/// Sends again from the first packet that is not acknowledged, or gives up after too many times.
fn retry<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    let r = &mut qp.requester;
    if r.retries == 0 {
        ctx.count(qp.port, Counter::RetryExceeded);
        return fail_oldest(qp, ctx, CqeStatus::RetryExceeded, 0);
    }
    r.retries -= 1;
    r.rewind();
    r.timeout_at = timeout(&qp.attr, ctx.now);
    ctx.sched.schedule(qp.number, &mut qp.sched);
}

/// The time that [`Requester::deadline`] gave may have come.
pub(crate) fn on_timer<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    if !matches!(qp.state, QpState::Rts | QpState::Sqd) {
        return;
    }
    let r = &mut qp.requester;
    if r.wait_until.is_some_and(|t| t <= ctx.now) {
        r.wait_until = None;
        ctx.sched.schedule(qp.number, &mut qp.sched);
    }
    if r.timeout_at.is_some_and(|t| t <= ctx.now) {
        r.timeout_at = None;
        if r.una != r.end {
            ctx.count(qp.port, Counter::LocalAckTimeouts);
            retry(qp, ctx);
        }
    }
}
