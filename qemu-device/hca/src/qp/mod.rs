// SPDX-License-Identifier: GPL-2.0-or-later
//! Queue pairs: the object, its states, and the way into the engines.

mod attr;
mod flush;
mod transition;

use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{qp_attr, QpAttr, QpState, QpType};
use ochre_wire::{Mtu, Packet, Psn, Qpn, Vl};

use crate::cmd::CmdError;
use crate::ctx::Ctx;
use crate::mem::QueueMem;
use crate::requester::{self, Requester};
use crate::responder::{self, Responder};
use crate::sched::SchedEntry;
use crate::seams::{Dma, Transmit};
use crate::wq::WorkQueue;
use crate::Time;

use attr::AttrLimits;
pub use flush::flush;

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    /// Number in commands, doorbells and events.
    pub number: u32,
    /// Number on the wire and in completions: `number`, or 0 and 1 for the special QPs.
    pub qpn: Qpn,
    /// Its type.
    pub kind: QpType,
    /// Port, from 1; 0 before it is set.
    pub port: u8,
    /// Protection domain.
    pub pd: u32,
    /// Completion queue of sends.
    pub send_cq: u32,
    /// Completion queue of receives.
    pub recv_cq: u32,
    /// Doorbell page that it answers to.
    pub doorbell_page: u32,
    /// Its state.
    pub state: QpState,
    /// Attributes as last set. `state` and `port` are above; PSNs are the engine's.
    pub attr: QpAttr,
    /// Its buffer.
    pub mem: QueueMem,
    /// Send queue.
    pub sq: WorkQueue,
    /// Receive queue.
    pub rq: WorkQueue,
    /// The scheduler's.
    pub sched: SchedEntry,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}

/// What is needed to make a QP; the command has checked it.
#[derive(Debug)]
pub struct NewQp {
    /// Number on the wire where it is a special QP, else its number.
    pub qpn: Qpn,
    /// Its type.
    pub kind: QpType,
    /// Port of a special QP, else 0.
    pub port: u8,
    /// Protection domain.
    pub pd: u32,
    /// Completion queue of sends.
    pub send_cq: u32,
    /// Completion queue of receives.
    pub recv_cq: u32,
    /// Doorbell page that it answers to.
    pub doorbell_page: u32,
    /// Its buffer.
    pub mem: QueueMem,
    /// Send queue.
    pub sq: WorkQueue,
    /// Receive queue.
    pub rq: WorkQueue,
}

impl Qp {
    /// A QP in RESET.
    pub fn new(number: u32, new: NewQp) -> Self {
        Qp {
            number,
            qpn: new.qpn,
            kind: new.kind,
            port: new.port,
            pd: new.pd,
            send_cq: new.send_cq,
            recv_cq: new.recv_cq,
            doorbell_page: new.doorbell_page,
            state: QpState::Reset,
            attr: QpAttr::default(),
            requester: Requester::new(new.sq.stride()),
            responder: Responder::default(),
            mem: new.mem,
            sq: new.sq,
            rq: new.rq,
            sched: SchedEntry::default(),
        }
    }

    /// Largest payload of its packets.
    #[inline]
    pub(crate) fn mtu(&self) -> Mtu {
        Mtu::from_code(self.attr.path_mtu).unwrap_or(Mtu::Mtu256)
    }

    fn is_special(&self) -> bool {
        matches!(self.kind, QpType::Smi | QpType::Gsi)
    }

    fn is_connected(&self) -> bool {
        matches!(self.kind, QpType::Rc | QpType::Uc)
    }
}

/// What is left after a turn of [`run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing to do before a doorbell, a packet or a deadline.
    Idle,
    /// The budget is used up; the QP wants another turn.
    More,
    /// The next packet waits for credits of this lane of the QP's port.
    NoCredit(Vl),
}

/// MODIFY_QP: checks the attributes in `mask` against the QP's state and type, takes them over and
/// makes the transition.
///
/// Errors name the byte of the command's input that is wrong (the attributes start at byte 0x10).
/// Nothing is changed where there is an error.
pub fn modify<D: Dma>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    attr: &QpAttr,
    mask: u32,
) -> Result<(), CmdError> {
    let first = ctx.ports.first();
    let limits = AttrLimits {
        ports: ctx.ports.len() as u8,
        pkeys: first.map_or(0, |p| p.pkeys.len()),
        gids: first.map_or(0, |p| p.guids.len()),
        max_rd_atomic: ctx.limits.rd_atomic,
        max_dest_rd_atomic: ctx.limits.dest_rd_atomic,
    };
    let next = attr::check(qp.kind, qp.state, mask, attr, &limits)?;
    attr::take(&mut qp.attr, mask, attr);
    if mask & qp_attr::PORT != 0 {
        qp.port = attr.port;
    }
    enter(qp, ctx, next);
    Ok(())
}

/// Makes the transition to `next`, which may be the state the QP is in.
fn enter<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, next: QpState) {
    let from = qp.state;
    match next {
        QpState::Reset => return reset(qp, ctx),
        QpState::Error => {
            // Software ends the connection: what has not been answered is not answered any more.
            qp.responder.stop();
            return fail(qp, ctx, None);
        }
        _ => qp.state = next,
    }
    match (from, next) {
        (QpState::Init, QpState::Rtr) => {
            qp.responder.start(Psn::new(qp.attr.rq_psn));
        }
        (QpState::Rtr, QpState::Rts) => {
            let psn = Psn::new(qp.attr.sq_psn);
            qp.requester.start(psn, &qp.attr);
            qp.responder.established = true;
        }
        (QpState::Rts, QpState::Sqd) => {
            qp.requester.drained = false;
            qp.requester.wants_drained_event = qp.attr.sqd_event != 0;
        }
        _ => {}
    }
    if matches!(next, QpState::Rts | QpState::Sqd) {
        ctx.sched.schedule(qp.number, &mut qp.sched);
    }
}

fn reset<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    qp.state = QpState::Reset;
    // Where the buffer cannot be reached, the need-wake words stay as they are: software that took
    // the buffer away has no use for them.
    let _ = qp.sq.reset(&ctx.dma, &qp.mem);
    let _ = qp.rq.reset(&ctx.dma, &qp.mem);
    qp.requester.reset();
    qp.responder.reset();
    qp.attr = QpAttr::default();
    if !qp.is_special() {
        qp.port = 0;
    }
    ctx.sched.set_deadline(qp.number, &mut qp.sched, None);
}

/// QUERY_QP: the attributes as they are now.
pub fn query<D: Dma>(qp: &Qp, ctx: &Ctx<D>) -> QpAttr {
    let _ = ctx;
    let mut attr = QpAttr {
        state: qp.state.raw(),
        cur_state: qp.state.raw(),
        port: qp.port,
        sq_draining: u8::from(
            qp.state == QpState::Sqd && qp.is_connected() && !qp.requester.drained,
        ),
        ..qp.attr
    };
    if qp.is_connected() {
        if !matches!(qp.state, QpState::Reset | QpState::Init) {
            attr.rq_psn = qp.responder.expected().get();
        }
        if matches!(qp.state, QpState::Rts | QpState::Sqd | QpState::Sqe) {
            attr.sq_psn = qp.requester.next_new_psn().get();
        }
    }
    attr
}

/// A packet for an RC or UC QP. The caller has checked ICRC, addresses and P_Key, and that the
/// packet is of the QP's service. Nothing is sent from here: what has to be sent is noted and the QP
/// scheduled.
pub fn receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) {
    if packet.bth().opcode.op.is_response() {
        requester::receive(qp, ctx, packet);
    } else {
        responder::receive(qp, ctx, packet);
    }
    note_deadline(qp, ctx);
}

/// A turn of the scheduler: sends responses, then requests, at most `budget` packets; in the error
/// state, flushes at most `budget` requests. What is used is taken off `budget`.
pub fn run<D: Dma, T: Transmit>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    tx: &mut T,
    budget: &mut u32,
) -> Progress {
    if !qp.is_connected() {
        return match qp.state {
            QpState::Error | QpState::Sqe => flush(qp, ctx, budget),
            _ => crate::ud::run(qp, ctx, tx, budget),
        };
    }
    let progress = run_connected(qp, ctx, tx, budget);
    note_deadline(qp, ctx);
    progress
}

fn run_connected<D: Dma, T: Transmit>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    tx: &mut T,
    budget: &mut u32,
) -> Progress {
    if qp.state == QpState::Reset {
        return Progress::Idle;
    }
    // A long READ response leaves half of the turn to the QP's own requests.
    let mut part = (*budget).div_ceil(2);
    let given = part;
    let replies = responder::run(qp, ctx, tx, &mut part);
    *budget -= given - part;
    if let Progress::NoCredit(_) = replies {
        return replies;
    }
    let requests = match qp.state {
        QpState::Error | QpState::Sqe => flush(qp, ctx, budget),
        _ => requester::run(qp, ctx, tx, budget),
    };
    match requests {
        // The state may have changed on the way: the flush is for the next turn.
        Progress::Idle if replies == Progress::More => Progress::More,
        Progress::Idle if matches!(qp.state, QpState::Error | QpState::Sqe) && *budget > 0 => {
            flush(qp, ctx, budget)
        }
        other => other,
    }
}

/// The deadline that the QP set with the scheduler has come.
pub fn on_timer<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    if qp.is_connected() {
        requester::on_timer(qp, ctx);
        responder::on_timer(qp, ctx);
        note_deadline(qp, ctx);
    }
}

/// Tells the scheduler when the QP is to be called next.
fn note_deadline<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    let deadline = match qp.state {
        QpState::Reset | QpState::Init | QpState::Error => None,
        _ => Time::earliest(qp.requester.deadline(), qp.responder.deadline()),
    };
    if deadline != qp.sched.deadline() {
        ctx.sched.set_deadline(qp.number, &mut qp.sched, deadline);
    }
}

/// Moves the QP to the error state with an event (`QpFatal` and the like), or without; its requests
/// are flushed in later turns. Does nothing in RESET and where it is in the error state already.
pub fn fail<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, event: Option<EventType>) {
    if matches!(qp.state, QpState::Reset | QpState::Error) {
        return;
    }
    qp.state = QpState::Error;
    if let Some(event) = event {
        ctx.event(event, 0, qp.number);
    }
    ctx.sched.schedule(qp.number, &mut qp.sched);
}

/// A send has completed in error: RC goes to the error state, the others only stop sending. The
/// requests behind it are flushed in later turns.
pub fn fail_sends<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    match qp.kind {
        QpType::Rc => fail(qp, ctx, None),
        _ if qp.state == QpState::Rts => {
            qp.state = QpState::Sqe;
            ctx.sched.schedule(qp.number, &mut qp.sched);
        }
        // While draining, as in any other state, there is no going on either.
        _ => fail(qp, ctx, None),
    }
}
