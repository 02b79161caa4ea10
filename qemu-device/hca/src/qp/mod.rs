// SPDX-License-Identifier: GPL-2.0-or-later
//! Queue pairs: the object, its states, and the way into the engines.

use ochre_hw::cmd::Status;
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{QpAttr, QpState, QpType};
use ochre_wire::{Packet, Qpn, Vl};

use crate::cmd::CmdError;
use crate::ctx::Ctx;
use crate::mem::QueueMem;
use crate::sched::SchedEntry;
use crate::seams::{Dma, Transmit};
use crate::wq::WorkQueue;

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
            mem: new.mem,
            sq: new.sq,
            rq: new.rq,
            sched: SchedEntry::default(),
        }
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
    let _ = (qp, ctx, attr, mask);
    Err(CmdError::new(Status::BadState, 0))
}

/// QUERY_QP: the attributes as they are now.
pub fn query<D: Dma>(qp: &Qp, ctx: &Ctx<D>) -> QpAttr {
    let _ = ctx;
    QpAttr {
        state: qp.state.raw(),
        port: qp.port,
        ..qp.attr
    }
}

/// A packet for an RC or UC QP. The caller has checked ICRC, addresses and P_Key, and that the
/// packet is of the QP's service. Nothing is sent from here: what has to be sent is noted and the QP
/// scheduled.
pub fn receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) {
    let _ = (qp, ctx, packet);
}

/// A turn of the scheduler: sends responses, then requests, at most `budget` packets; in the error
/// state, flushes at most `budget` requests. What is used is taken off `budget`.
pub fn run<D: Dma, T: Transmit>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    tx: &mut T,
    budget: &mut u32,
) -> Progress {
    match qp.kind {
        QpType::Rc | QpType::Uc => Progress::Idle,
        QpType::Ud | QpType::Smi | QpType::Gsi => crate::ud::run(qp, ctx, tx, budget),
    }
}

/// The deadline that the QP set with the scheduler has come.
pub fn on_timer<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>) {
    let _ = (qp, ctx);
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

/// Completes up to `budget` requests of both queues with `WorkRequestFlushed`.
pub fn flush<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, budget: &mut u32) -> Progress {
    let _ = (qp, ctx, budget);
    Progress::Idle
}
