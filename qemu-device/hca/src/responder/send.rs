// SPDX-License-Identifier: GPL-2.0-or-later
//! Sending what the responder has queued.

use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{access, QpState};
use ochre_wire::{Aeth, Bth, Build, Ext, NakCode, Opcode, Operation, PKey, Psn, Qpn, Syndrome, Vl};

use super::rc::ACK;
use super::reply::{ReadReply, Reply};
use crate::ctx::Ctx;
use crate::mem::MemError;
use crate::qp::{fail, Progress, Qp};
use crate::seams::{Dma, SendError, Transmit};

/// Sends replies in order, at most `budget` packets.
pub(crate) fn run<D: Dma, T: Transmit>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    tx: &mut T,
    budget: &mut u32,
) -> Progress {
    loop {
        let Some(&mut reply) = qp.responder.replies.front() else {
            return Progress::Idle;
        };
        if *budget == 0 {
            return Progress::More;
        }
        *budget -= 1;
        let result = match reply {
            Reply::Ack { psn, syndrome, msn } => {
                send(qp, ctx, tx, Operation::Ack, psn, aeth(syndrome, msn))
            }
            Reply::Atomic {
                psn, value, msn, ..
            } => {
                let ext = Ext {
                    atomic_ack: value,
                    ..aeth(ACK, msn)
                };
                send(qp, ctx, tx, Operation::AtomicAck, psn, ext)
            }
            Reply::Read(read) => {
                let result = read_packet(qp, ctx, tx, &read);
                if let (Ok(()), Some(Reply::Read(kept))) = (&result, qp.responder.replies.front()) {
                    kept.sent += 1;
                    if kept.sent < kept.packets {
                        continue;
                    }
                }
                result
            }
        };
        match result {
            Ok(()) => qp.responder.replies.pop(),
            Err((vl, SendError::NoCredit)) => return Progress::NoCredit(vl),
            Err((_, SendError::Fill(error))) => cannot_read(qp, ctx, reply, error),
        }
    }
}

/// What became of a packet, and its lane where it was not sent.
type Sent = Result<(), (Vl, SendError<MemError>)>;

fn aeth(syndrome: Syndrome, msn: u32) -> Ext {
    Ext {
        aeth: Aeth { syndrome, msn },
        ..Ext::default()
    }
}

/// Headers of a response, or `None` where the path leads nowhere.
fn header<D: Dma>(qp: &Qp, ctx: &Ctx<D>, op: Operation, psn: Psn, ext: Ext) -> Option<Build> {
    let port = ctx.port(qp.port)?;
    let pkey: PKey = port.pkey(qp.attr.pkey_index)?;
    let dest = Qpn::new(qp.attr.dest_qpn);
    let bth = Bth::new(Opcode::rc(op), pkey, dest, psn);
    let build = port.build(&qp.attr.av, bth, ext).ok()?;
    (!build.vl.is_management()).then_some(build)
}

/// Sends a response without payload. One without a path counts as sent and lost.
fn send<D: Dma, T: Transmit>(
    qp: &Qp,
    ctx: &Ctx<D>,
    tx: &mut T,
    op: Operation,
    psn: Psn,
    ext: Ext,
) -> Sent {
    match header(qp, ctx, op, psn, ext) {
        Some(build) => tx.send(&build, 0, |_| Ok(())).map_err(|e| (build.vl, e)),
        None => Ok(()),
    }
}

/// Sends the next packet of a READ response.
fn read_packet<D: Dma, T: Transmit>(qp: &Qp, ctx: &Ctx<D>, tx: &mut T, read: &ReadReply) -> Sent {
    let mtu = qp.mtu();
    let is_first = read.sent == read.begun_at;
    let is_last = read.sent + 1 == read.packets;
    let op = match (is_first, is_last) {
        (true, true) => Operation::ReadResponseOnly,
        (true, false) => Operation::ReadResponseFirst,
        (false, true) => Operation::ReadResponseLast,
        (false, false) => Operation::ReadResponseMiddle,
    };
    let psn = read.first.add(read.sent);
    let Some(build) = header(qp, ctx, op, psn, aeth(ACK, read.msn)) else {
        return Ok(());
    };
    let offset = read.sent << mtu.shift();
    let payload = (read.len.saturating_sub(offset) as usize).min(mtu.bytes());
    let va = read.va.wrapping_add(offset.into());
    let fill = |out: &mut [u8]| -> Result<(), MemError> {
        if out.is_empty() {
            return Ok(());
        }
        let len = out.len() as u64;
        let region = ctx
            .mrs
            .check(read.key, qp.pd, va, len, access::REMOTE_READ)?;
        Ok(region.read(&ctx.dma, va, out)?)
    };
    tx.send(&build, payload, fill).map_err(|e| (build.vl, e))
}

/// The memory of a READ has gone since the request was taken: refuses it, and all that came after.
fn cannot_read<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, reply: Reply, error: MemError) {
    let code = match error {
        MemError::Dma(_) => NakCode::RemoteOperational,
        _ => NakCode::RemoteAccess,
    };
    let r = &mut qp.responder;
    r.stop();
    // In the error state already: the peer will find out by itself.
    if let (Reply::Read(read), false) = (reply, qp.state == QpState::Error) {
        let psn = read.first.add(read.sent);
        r.replies.ack(psn, Syndrome::Nak(code), read.msn);
        fail(qp, ctx, Some(EventType::QpAccessError));
    }
}
