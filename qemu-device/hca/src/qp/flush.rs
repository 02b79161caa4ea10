// SPDX-License-Identifier: GPL-2.0-or-later

//! Completing what will not be done: the requests of a QP in the error state.

use ochre_hw::cqe::{Cqe, CqeOpcode, CqeStatus};
use ochre_hw::verbs::QpState;

use super::{Progress, Qp};
use crate::ctx::Ctx;
use crate::requester;
use crate::seams::Dma;
use crate::wq::{QueueError, RecvRequest};

/// Completes up to `budget` requests with `WorkRequestFlushed`, in order: those of both queues in
/// the error state, those of the send queue in SQE.
pub fn flush<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, budget: &mut u32) -> Progress {
    // A queue that cannot be read has nothing more to be completed; its QP has had its event.
    let sends = flush_sends(qp, ctx, budget).unwrap_or(Progress::Idle);
    if sends != Progress::Idle || qp.state != QpState::Error {
        return sends;
    }
    flush_receives(qp, ctx, budget).unwrap_or(Progress::Idle)
}

fn flushed(qp: &Qp, wr_id: u64, opcode: CqeOpcode, wqe_index: u32) -> Cqe {
    Cqe {
        wr_id,
        qpn: qp.qpn.get(),
        wqe_index,
        opcode: opcode.raw(),
        status: CqeStatus::WorkRequestFlushed.raw(),
        ..Cqe::default()
    }
}

fn flush_sends<D: Dma>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    budget: &mut u32,
) -> Result<Progress, QueueError> {
    loop {
        if *budget == 0 {
            return Ok(Progress::More);
        }
        let (wr_id, opcode) = if let Some(taken) = qp.requester.take_unfinished() {
            taken
        } else if qp.sq.pending() > 0
            || qp.sq.look(&ctx.dma, &qp.mem)? > 0
            || qp.sq.sleep(&ctx.dma, &qp.mem)? > 0
        {
            let index = qp.sq.head;
            let request = qp.sq.read_send(&ctx.dma, &qp.mem, index, &mut ctx.slot)?;
            qp.sq.head = index.wrapping_add(1);
            (request.wqe.wr_id, requester::cqe_opcode(request.opcode))
        } else {
            return Ok(Progress::Idle);
        };
        qp.sq.tail = qp.sq.tail.wrapping_add(1);
        let cqe = flushed(qp, wr_id, opcode, qp.sq.tail);
        ctx.complete(qp.send_cq, cqe);
        *budget -= 1;
    }
}

fn flush_receives<D: Dma>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    budget: &mut u32,
) -> Result<Progress, QueueError> {
    loop {
        if *budget == 0 {
            return Ok(Progress::More);
        }
        let (wr_id, opcode) = if let Some(taken) = qp.responder.take_unfinished() {
            (taken, CqeOpcode::Recv)
        } else if qp.rq.pending() > 0
            || qp.rq.look(&ctx.dma, &qp.mem)? > 0
            || qp.rq.sleep(&ctx.dma, &qp.mem)? > 0
        {
            let mut request = RecvRequest::default();
            qp.rq
                .read_recv(&ctx.dma, &qp.mem, qp.rq.head, &mut request)?;
            qp.rq.head = qp.rq.head.wrapping_add(1);
            (request.wr_id, CqeOpcode::Recv)
        } else {
            return Ok(Progress::Idle);
        };
        qp.rq.tail = qp.rq.tail.wrapping_add(1);
        let cqe = flushed(qp, wr_id, opcode, qp.rq.tail);
        ctx.complete(qp.recv_cq, cqe);
        *budget -= 1;
    }
}
