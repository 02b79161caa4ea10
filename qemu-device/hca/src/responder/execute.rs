// SPDX-License-Identifier: GPL-2.0-or-later
//! Executing the packets of SENDs and RDMA WRITEs, which RC and UC have in common.

use ochre_hw::cqe::{CqeOpcode, CqeStatus};
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::access;
use ochre_wire::{NakCode, Packet};

use super::{complete_receive, Message, Received};
use crate::ctx::Ctx;
use crate::mem::MemError;
use crate::qp::Qp;
use crate::seams::Dma;

/// Longest message, bytes.
pub(super) const MAX_MESSAGE: u32 = 1 << 31;

/// Why a request packet was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// There is no receive.
    NotReady,
    /// The request is wrong. The event is that of the responder.
    Refused(NakCode, EventType),
    /// The receive failed: it completes with this status.
    Receive(CqeStatus, NakCode),
    /// The receive queue cannot be used.
    Queue,
}

/// A request that is malformed or not allowed here.
pub(super) const INVALID: Fault =
    Fault::Refused(NakCode::InvalidRequest, EventType::QpRequestError);
/// A request for memory that it may not touch.
pub(super) const NO_ACCESS: Fault = Fault::Refused(NakCode::RemoteAccess, EventType::QpAccessError);

/// A region refused an access, or its memory failed.
pub(super) fn refused(error: MemError) -> Fault {
    match error {
        MemError::Dma(_) => Fault::Refused(NakCode::RemoteOperational, EventType::QpAccessError),
        _ => NO_ACCESS,
    }
}

/// Whether the lengths of a packet of a SEND or WRITE are right: all but the last are full.
fn has_right_length(qp: &Qp, packet: &Packet<'_>) -> bool {
    let op = packet.bth().opcode.op;
    let mtu = qp.mtu().bytes();
    let len = packet.payload_len();
    if op.ends_message() {
        len <= mtu && (len > 0 || op.starts_message())
    } else {
        len == mtu
    }
}

/// Takes up the next receive, where none is taken up yet.
fn take_receive<D: Dma>(qp: &mut Qp, ctx: &Ctx<D>) -> Result<(), Fault> {
    let r = &mut qp.responder;
    if r.taken {
        return Ok(());
    }
    if qp.rq.pending() == 0 && qp.rq.look(&ctx.dma, &qp.mem).map_err(|_| Fault::Queue)? == 0 {
        return Err(Fault::NotReady);
    }
    let request = r.recv.get_or_insert_default();
    qp.rq
        .read_recv(&ctx.dma, &qp.mem, qp.rq.head, request)
        .map_err(|_| Fault::Queue)?;
    qp.rq.head = qp.rq.head.wrapping_add(1);
    r.room = request.data().len();
    r.taken = true;
    Ok(())
}

/// Executes one packet of a SEND or WRITE: `Ok(true)` where the message is complete with it.
///
/// Where there is no receive, nothing has happened, and the same packet may come again. After another
/// fault the message is no longer there.
pub(super) fn message<D: Dma>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    packet: &Packet<'_>,
) -> Result<bool, Fault> {
    let op = packet.bth().opcode.op;
    let fits = match qp.responder.message {
        Message::None => op.starts_message(),
        Message::Send { .. } => op.is_send() && !op.starts_message(),
        Message::Write { .. } => op.is_write() && !op.starts_message(),
    };
    let result = if !fits || !has_right_length(qp, packet) {
        Err(INVALID)
    } else if op.is_send() {
        send(qp, ctx, packet)
    } else {
        write(qp, ctx, packet)
    };
    match result {
        Ok(false) | Err(Fault::NotReady) => {}
        _ => qp.responder.message = Message::None,
    }
    result
}

fn send<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) -> Result<bool, Fault> {
    let bth = packet.bth();
    let op = bth.opcode.op;
    take_receive(qp, ctx)?;
    let r = &qp.responder;
    let Some(request) = &r.recv else {
        return Err(Fault::Queue);
    };
    if !request.valid {
        let status = CqeStatus::LocalQpOperation;
        return Err(Fault::Receive(status, NakCode::RemoteOperational));
    }
    if op.has_ieth() {
        // No key here may be invalidated from afar.
        return Err(NO_ACCESS);
    }
    let got = match r.message {
        Message::Send { got } => got,
        _ => 0,
    };
    let payload = packet.payload();
    let after = u64::from(got) + payload.len() as u64;
    if after > r.room || after > u64::from(MAX_MESSAGE) {
        let status = CqeStatus::LocalLength;
        return Err(Fault::Receive(status, NakCode::InvalidRequest));
    }
    if ctx
        .scatter(qp.pd, request.data(), got.into(), payload)
        .is_err()
    {
        let status = CqeStatus::LocalProtection;
        return Err(Fault::Receive(status, NakCode::RemoteOperational));
    }
    let len = after as u32;
    if !op.ends_message() {
        qp.responder.message = Message::Send { got: len };
        return Ok(false);
    }
    let received = Received {
        opcode: CqeOpcode::Recv,
        len,
        imm: packet.imm(),
        solicited: bth.solicited,
    };
    complete_receive(qp, ctx, CqeStatus::Success, received);
    Ok(true)
}

fn write<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>) -> Result<bool, Fault> {
    let bth = packet.bth();
    let op = bth.opcode.op;
    let need = access::REMOTE_WRITE;
    let mut region = None;
    let (va, key, len, got) = match (packet.reth(), qp.responder.message) {
        (Some(reth), _) => {
            if qp.attr.access & need == 0 || reth.len > MAX_MESSAGE {
                return Err(INVALID);
            }
            let (va, key, len) = (reth.va, reth.rkey, reth.len);
            if len > 0 {
                // The whole range is checked before the first byte is written.
                let whole = ctx.mrs.check(key, qp.pd, va, len.into(), need);
                region = Some(whole.map_err(refused)?);
            }
            (va, key, len, 0)
        }
        (None, Message::Write { va, key, len, got }) => (va, key, len, got),
        (None, _) => return Err(INVALID),
    };
    let payload = packet.payload();
    let after = u64::from(got) + payload.len() as u64;
    let fits = if op.ends_message() {
        after == u64::from(len)
    } else {
        after < u64::from(len)
    };
    if !fits {
        return Err(INVALID);
    }
    if op.has_imm() {
        take_receive(qp, ctx)?;
        if qp.responder.recv.as_ref().is_some_and(|r| !r.valid) {
            let status = CqeStatus::LocalQpOperation;
            return Err(Fault::Receive(status, NakCode::RemoteOperational));
        }
    }
    if !payload.is_empty() {
        let at = va.wrapping_add(got.into());
        let region = match region {
            Some(region) => region,
            // It may have gone since the first packet.
            None => {
                let bytes = payload.len() as u64;
                let part = ctx.mrs.check(key, qp.pd, at, bytes, need);
                part.map_err(refused)?
            }
        };
        region
            .write(&ctx.dma, at, payload)
            .map_err(|e| refused(e.into()))?;
    }
    if !op.ends_message() {
        let got = after as u32;
        qp.responder.message = Message::Write { va, key, len, got };
        return Ok(false);
    }
    if op.has_imm() {
        let received = Received {
            opcode: CqeOpcode::RecvWriteImm,
            len,
            imm: packet.imm(),
            solicited: bth.solicited,
        };
        complete_receive(qp, ctx, CqeStatus::Success, received);
    }
    Ok(true)
}
