// SPDX-License-Identifier: GPL-2.0-or-later
//! The datagram engine: UD and the special QPs.

use ochre_hw::cmd::port::Counter;
use ochre_hw::cqe::{Cqe, CqeOpcode, CqeStatus, CQE_GRH, CQE_IMM, CQE_SOLICITED};
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{QpState, QpType};
use ochre_hw::wqe::{SendOpcode, SEND_SIGNALED, SEND_SOLICITED};
use ochre_wire::{Bth, Build, Deth, Ext, Grh, Lid, Opcode, PKey, Packet, Psn, QKey, Qpn, Vl};

use crate::ctx::Ctx;
use crate::mem::MemError;
use crate::qp::{self, Progress, Qp};
use crate::seams::{Dma, SendError, Transmit};
use crate::wq::{QueueError, RecvRequest, SendRequest, SendSlot};

/// Room at the start of a receive that belongs to the GRH, whether the packet has one or not.
const GRH_ROOM: u64 = Grh::LEN as u64;

/// A packet for a UD or special QP that may receive. The caller has checked ICRC, addresses, P_Key
/// and Q_Key; `pkey_index` is the index of the P_Key that accepted it.
pub fn receive<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, packet: &Packet<'_>, pkey_index: u16) {
    let request = match next_receive(qp, ctx) {
        Ok(Some(request)) => request,
        Ok(None) => {
            ctx.count(qp.port, Counter::UdDropped);
            return;
        }
        Err(_) => {
            qp::fail(qp, ctx, Some(EventType::QpFatal));
            return;
        }
    };
    let payload = packet.payload();
    let length = GRH_ROOM + payload.len() as u64;
    let status = if !request.valid {
        CqeStatus::LocalQpOperation
    } else if length > request.data().len() {
        CqeStatus::LocalLength
    } else {
        match place(qp, ctx, &request, packet, payload) {
            Ok(()) => CqeStatus::Success,
            Err(_) => CqeStatus::LocalProtection,
        }
    };
    let Some(deth) = packet.deth() else {
        return;
    };
    let lrh = packet.lrh();
    let path_bits = if lrh.dlid.is_unicast() {
        ctx.port(qp.port).map_or(0, |port| port.path_bits(lrh.dlid))
    } else {
        0
    };
    let mut flags = 0;
    if packet.has_grh() {
        flags |= CQE_GRH;
    }
    if packet.bth().solicited {
        flags |= CQE_SOLICITED;
    }
    // The four bytes as they travelled.
    let imm = packet.imm().map(|imm| {
        flags |= CQE_IMM;
        imm.swap_bytes()
    });
    qp.rq.head = request.index.wrapping_add(1);
    qp.rq.tail = qp.rq.head;
    let cqe = Cqe {
        wr_id: request.wr_id,
        byte_len: length as u32,
        imm: imm.unwrap_or(0),
        qpn: qp.qpn.get(),
        src_qpn: deth.src_qp.get(),
        wqe_index: qp.rq.tail,
        slid: lrh.slid.0,
        pkey_index,
        opcode: CqeOpcode::Recv.raw(),
        status: status.raw(),
        sl: lrh.sl.get(),
        dlid_path_bits: path_bits,
        flags,
        port: if qp.kind == QpType::Ud { 0 } else { qp.port },
        ..Cqe::default()
    };
    if status == CqeStatus::Success {
        ctx.complete(qp.recv_cq, cqe);
    } else {
        ctx.complete(
            qp.recv_cq,
            Cqe {
                byte_len: 0,
                flags: 0,
                imm: 0,
                ..cqe
            },
        );
        qp::fail(qp, ctx, None);
    }
}

/// Takes the next receive request, if the guest has posted one.
fn next_receive<D: Dma>(qp: &mut Qp, ctx: &Ctx<D>) -> Result<Option<RecvRequest>, QueueError> {
    if qp.rq.pending() == 0 && qp.rq.look(&ctx.dma, &qp.mem)? == 0 {
        return Ok(None);
    }
    let mut request = RecvRequest::default();
    qp.rq
        .read_recv(&ctx.dma, &qp.mem, qp.rq.head, &mut request)?;
    Ok(Some(request))
}

fn place<D: Dma>(
    qp: &Qp,
    ctx: &Ctx<D>,
    request: &RecvRequest,
    packet: &Packet<'_>,
    payload: &[u8],
) -> Result<(), MemError> {
    if let Some(grh) = packet.grh_bytes() {
        ctx.scatter(qp.pd, request.data(), 0, grh)?;
    }
    ctx.scatter(qp.pd, request.data(), GRH_ROOM, payload)
}

/// Why a send request fails.
type Refused = CqeStatus;

/// A turn of the scheduler: sends at most `budget` packets.
pub fn run<D: Dma, T: Transmit>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    tx: &mut T,
    budget: &mut u32,
) -> Progress {
    match qp.state {
        QpState::Rts | QpState::Sqe => {}
        QpState::Error => return qp::flush(qp, ctx, budget),
        QpState::Sqd => {
            // A datagram is done when it is sent, so nothing is under way.
            if core::mem::take(&mut qp.requester.wants_drained_event) {
                ctx.event(EventType::QpSqDrained, 0, qp.number);
            }
            return Progress::Idle;
        }
        _ => return Progress::Idle,
    }
    loop {
        match turn(qp, ctx, tx, budget) {
            Ok(Some(progress)) => return progress,
            Ok(None) => {}
            Err(_) => {
                qp::fail(qp, ctx, Some(EventType::QpFatal));
                return Progress::More;
            }
        }
    }
}

/// One request: `None` to go on.
fn turn<D: Dma, T: Transmit>(
    qp: &mut Qp,
    ctx: &mut Ctx<D>,
    tx: &mut T,
    budget: &mut u32,
) -> Result<Option<Progress>, QueueError> {
    if qp.sq.pending() == 0
        && qp.sq.look(&ctx.dma, &qp.mem)? == 0
        && qp.sq.sleep(&ctx.dma, &qp.mem)? == 0
    {
        return Ok(Some(Progress::Idle));
    }
    if *budget == 0 {
        return Ok(Some(Progress::More));
    }
    let mut slot = SendSlot::default();
    let request = qp.sq.read_send(&ctx.dma, &qp.mem, qp.sq.head, &mut slot)?;
    if qp.state == QpState::Sqe {
        *budget -= 1;
        finish(qp, ctx, &request, CqeStatus::WorkRequestFlushed);
        return Ok(None);
    }
    let status = match send(qp, ctx, tx, &request) {
        Ok(()) => CqeStatus::Success,
        Err(SendError::NoCredit) => {
            let vl = lane(qp, ctx, &request);
            return Ok(Some(Progress::NoCredit(vl)));
        }
        Err(SendError::Fill(status)) => status,
    };
    *budget -= 1;
    if status == CqeStatus::Success {
        qp.attr.sq_psn = Psn::new(qp.attr.sq_psn).next().get();
    } else {
        qp.state = QpState::Sqe;
    }
    finish(qp, ctx, &request, status);
    Ok(None)
}

/// Completes a request.
fn finish<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, request: &SendRequest<'_>, status: CqeStatus) {
    qp.sq.head = request.index.wrapping_add(1);
    qp.sq.tail = qp.sq.head;
    if status == CqeStatus::Success && !request.has(SEND_SIGNALED) {
        return;
    }
    ctx.complete(
        qp.send_cq,
        Cqe {
            wr_id: request.wqe.wr_id,
            qpn: qp.qpn.get(),
            wqe_index: qp.sq.tail,
            opcode: CqeOpcode::Send.raw(),
            status: status.raw(),
            ..Cqe::default()
        },
    );
}

/// The lane that a request waits for.
fn lane<D: Dma>(qp: &Qp, ctx: &Ctx<D>, request: &SendRequest<'_>) -> Vl {
    packet(qp, ctx, request).map_or(Vl::VL0, |build| build.vl)
}

fn send<D: Dma, T: Transmit>(
    qp: &Qp,
    ctx: &Ctx<D>,
    tx: &mut T,
    request: &SendRequest<'_>,
) -> Result<(), SendError<Refused>> {
    let build = packet(qp, ctx, request).map_err(SendError::Fill)?;
    let data = request.data();
    let mtu = ctx.port(qp.port).map_or(0, |port| port.mtu.bytes() as u64);
    let room = match qp.kind {
        QpType::Ud => mtu,
        _ => mtu.min(256),
    };
    let length = data.len();
    if length > room {
        return Err(SendError::Fill(CqeStatus::LocalLength));
    }
    tx.send(&build, length as usize, |out| {
        ctx.gather(qp.pd, data, 0, out)
            .map_err(|_| CqeStatus::LocalProtection)
    })
}

/// The headers of the packet that a request asks for.
fn packet<D: Dma>(qp: &Qp, ctx: &Ctx<D>, request: &SendRequest<'_>) -> Result<Build, Refused> {
    let refused = CqeStatus::LocalQpOperation;
    let opcode = match request.opcode {
        Some(SendOpcode::Send) => Opcode::UD_SEND_ONLY,
        Some(SendOpcode::SendImm) => Opcode::UD_SEND_ONLY_IMM,
        _ => return Err(refused),
    };
    let port = ctx.port(qp.port).ok_or(refused)?;
    let (ahn, dest) = (request.wqe.remote as u32, request.wqe.remote >> 32);
    let ah = ctx.ahs.get(ahn).ok_or(refused)?;
    if ah.pd != qp.pd || ah.av.port != qp.port || dest > 0xff_ffff {
        return Err(refused);
    }
    let pkey = match qp.kind {
        QpType::Smi => PKey::DEFAULT,
        QpType::Gsi => port.pkey(request.wqe.pkey_index).ok_or(refused)?,
        _ => port.pkey(qp.attr.pkey_index).unwrap_or(PKey(0)),
    };
    let qkey = match QKey(request.wqe.key) {
        _ if qp.kind == QpType::Smi => QKey(0),
        key if key.is_controlled() => QKey(qp.attr.qkey),
        key => key,
    };
    let mut bth = Bth::new(
        opcode,
        pkey,
        Qpn::new(dest as u32),
        Psn::new(qp.attr.sq_psn),
    );
    bth.solicited = request.has(SEND_SOLICITED);
    let ext = Ext {
        deth: Deth {
            qkey,
            src_qp: qp.qpn,
        },
        imm: request.wqe.imm.swap_bytes(),
        ..Ext::default()
    };
    let mut build = port.build(&ah.av, bth, ext).map_err(|_| refused)?;
    if qp.kind == QpType::Smi {
        build.vl = Vl::VL15;
        if build.dlid == Lid::PERMISSIVE {
            build.slid = Lid::PERMISSIVE;
        }
    }
    Ok(build)
}
