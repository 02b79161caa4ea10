// SPDX-License-Identifier: GPL-2.0-or-later
//! The answering side of connected QPs.
//!
//! Requests are executed in order when they arrive ([`rc`], [`uc`], [`execute`]); what has to be sent
//! for them is queued ([`reply`]) and goes out when the QP has its turn ([`send`]).

mod execute;
mod rc;
mod reply;
mod send;
#[cfg(test)]
mod tests;
mod uc;

use ochre_hw::cqe::{Cqe, CqeOpcode, CqeStatus, CQE_IMM, CQE_SOLICITED};
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{QpState, QpType};
use ochre_wire::{Packet, Psn};

use crate::ctx::Ctx;
use crate::qp::Qp;
use crate::seams::Dma;
use crate::wq::RecvRequest;
use crate::Time;

pub(crate) use rc::on_timer;
use reply::Replies;
pub(crate) use send::run;

/// The message that is being received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Message {
    /// None: the next packet begins one.
    #[default]
    None,
    /// A SEND of which `got` bytes are there.
    Send { got: u32 },
    /// An RDMA WRITE of which `got` bytes are there.
    Write {
        va: u64,
        key: u32,
        len: u32,
        got: u32,
    },
}

/// State of the answering side.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// PSN of the next request.
    expected: Psn,
    /// Messages completed, 24 bits.
    msn: u32,
    message: Message,
    /// A NAK was sent: what comes before the expected PSN gets no other.
    refused: bool,
    /// The QP has had a packet, or was moved to RTS: no event for the first packet any more.
    pub(crate) established: bool,
    /// The receive taken up for the message, where `taken`.
    recv: Option<Box<RecvRequest>>,
    taken: bool,
    /// Room of the receive taken up, bytes.
    room: u64,
    replies: Replies,
    /// Packets received since the last acknowledge.
    unacknowledged: u32,
    /// When an acknowledge that nobody asked for is due.
    ack_at: Option<Time>,
}

impl Responder {
    /// Begins to expect `psn`.
    pub(crate) fn start(&mut self, psn: Psn) {
        self.expected = psn;
    }

    /// PSN of the next request.
    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    /// Sends nothing any more.
    pub(crate) fn stop(&mut self) {
        self.replies.clear();
        self.ack_at = None;
    }

    /// Forgets everything, as in RESET.
    pub(crate) fn reset(&mut self) {
        *self = Responder {
            recv: self.recv.take(),
            ..Responder::default()
        };
    }

    /// When [`on_timer`] is due.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.ack_at
    }

    /// Takes out the receive that was taken up, for its flush completion.
    pub(crate) fn take_unfinished(&mut self) -> Option<u64> {
        self.message = Message::None;
        if !core::mem::take(&mut self.taken) {
            return None;
        }
        self.recv.as_ref().map(|r| r.wr_id)
    }

    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & 0xff_ffff;
    }
}

/// A request packet for the QP.
pub(crate) fn receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) {
    match qp.state {
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => {}
        QpState::Reset | QpState::Init | QpState::Error => return,
    }
    if !qp.responder.established {
        qp.responder.established = true;
        ctx.event(EventType::QpCommEstablished, 0, qp.number);
    }
    match qp.kind {
        QpType::Uc => uc::receive(qp, ctx, packet),
        _ => rc::receive(qp, ctx, packet),
    }
}

/// What a completed receive says beside its status.
#[derive(Clone, Copy, Debug)]
struct Received {
    opcode: CqeOpcode,
    len: u32,
    imm: Option<u32>,
    solicited: bool,
}

/// Completes the receive that was taken up.
fn complete_receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, status: CqeStatus, received: Received) {
    let r = &mut qp.responder;
    let Some(request) = r.recv.as_ref().filter(|_| r.taken) else {
        return;
    };
    let wr_id = request.wr_id;
    r.taken = false;
    qp.rq.tail = qp.rq.tail.wrapping_add(1);
    let mut flags = 0;
    if received.imm.is_some() {
        flags |= CQE_IMM;
    }
    if received.solicited {
        flags |= CQE_SOLICITED;
    }
    let cqe = Cqe {
        wr_id,
        byte_len: received.len,
        // The field holds the bytes as they travel.
        imm: received.imm.unwrap_or(0).swap_bytes(),
        qpn: qp.qpn.get(),
        wqe_index: qp.rq.tail,
        opcode: received.opcode.raw(),
        status: status.raw(),
        flags,
        ..Cqe::default()
    };
    ctx.complete(qp.recv_cq, cqe);
}
