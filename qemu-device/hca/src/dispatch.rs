// SPDX-License-Identifier: GPL-2.0-or-later
//! The way of a received packet to the QP that it is for.

use ochre_hw::cmd::port::Counter;
use ochre_hw::verbs::{QpState, QpType, AV_GRH};
use ochre_wire::mad::Mad;
use ochre_wire::{Gid, Lid, PKey, Packet, QKey, Qpn, Transport};

use crate::ctx::{BadKey, Ctx, Violation};
use crate::mgmt::{Address, KeyViolation};
use crate::port::PortContext;
use crate::qp::{self, Qp};
use crate::seams::Dma;
use crate::table::Table;
use crate::ud;

/// The driver's special QPs of a port, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpecialQps {
    pub(crate) smi: Option<u32>,
    pub(crate) gsi: Option<u32>,
}

/// What is left to do after [`dispatch`].
pub(crate) enum Outcome {
    /// Nothing.
    Done,
    /// The agents see this MAD first; if they do not take it, [`deliver_mad`] does.
    Mad(Box<(Address, Mad)>),
}

/// Checks a packet that `port` (from 1) received and hands it on. `bytes` are LRH to VCRC; the link
/// layer has checked its part.
pub(crate) fn dispatch<D: Dma>(
    qps: &mut Table<Qp>,
    ctx: &mut Ctx<D>,
    port: u8,
    bytes: &[u8],
    icrc_ok: bool,
) -> Outcome {
    let Ok(packet) = Packet::parse(bytes) else {
        return Outcome::Done;
    };
    if !icrc_ok {
        ctx.count(port, Counter::IcrcErrors);
        return Outcome::Done;
    }
    let Some(context) = ctx.port(port) else {
        return Outcome::Done;
    };
    let lrh = packet.lrh();
    let dest = packet.bth().dest_qp;
    // The management lane and QP0 belong together.
    if lrh.vl.is_management() != (dest == Qpn::SMI) {
        return Outcome::Done;
    }
    if dest == Qpn::SMI || dest == Qpn::GSI {
        return special(ctx, port, &packet);
    }
    if !addressed(context, &packet) {
        return Outcome::Done;
    }
    if lrh.dlid.is_multicast() {
        multicast(qps, ctx, port, &packet);
        return Outcome::Done;
    }
    let Some(qp) = qps.get_mut(dest.get()) else {
        ctx.count(port, Counter::NoQp);
        return Outcome::Done;
    };
    match (qp.kind, packet.bth().opcode.transport) {
        (QpType::Ud, Transport::Ud) => datagram(qp, ctx, port, &packet),
        (QpType::Rc, Transport::Rc) | (QpType::Uc, Transport::Uc) => {
            connected(qp, ctx, port, &packet);
        }
        _ => ctx.count(port, Counter::NoQp),
    }
    Outcome::Done
}

/// Whether the packet is addressed to this port, or to a multicast group.
fn addressed(port: &PortContext, packet: &Packet<'_>) -> bool {
    let dlid = packet.lrh().dlid;
    let multicast = packet.bth().dest_qp == Qpn::MULTICAST;
    if dlid.is_multicast() {
        // Multicast goes by the MGID, so it needs a GRH.
        return multicast && packet.grh().is_some_and(|grh| grh.dgid.is_multicast());
    }
    !multicast && port.owns_lid(dlid) && packet.grh().is_none_or(|grh| port.owns_gid(grh.dgid))
}

/// Whether the QP takes packets in its state.
fn receives(state: QpState) -> bool {
    matches!(
        state,
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
    )
}

/// Notes that a packet is refused for `key`.
fn refuse<D: Dma>(ctx: &mut Ctx<D>, packet: &Packet<'_>, bad: BadKey, key: u32) {
    let lrh = packet.lrh();
    ctx.violation = Some(Violation {
        bad,
        packet: KeyViolation {
            slid: lrh.slid,
            dlid: lrh.dlid,
            key,
            sl: lrh.sl,
            src_qp: packet.deth().map_or(Qpn::new(0), |deth| deth.src_qp),
            dest_qp: packet.bth().dest_qp,
            gids: packet.grh().map(|grh| (grh.sgid, grh.dgid)),
        },
    });
}

/// Whether the P_Key of the packet is that of the QP; counts where not.
fn pkey_fits<D: Dma>(ctx: &mut Ctx<D>, port: u8, index: u16, packet: &Packet<'_>) -> bool {
    let key = packet.bth().pkey;
    let fits = ctx
        .port(port)
        .and_then(|p| p.pkey(index))
        .is_some_and(|own| own.matches(key));
    if !fits {
        refuse(ctx, packet, BadKey::Pkey, key.0.into());
    }
    fits
}

/// Whether the Q_Key of the packet is `own`; counts where not.
fn qkey_fits<D: Dma>(ctx: &mut Ctx<D>, own: QKey, packet: &Packet<'_>) -> bool {
    let Some(deth) = packet.deth() else {
        return false;
    };
    if deth.qkey != own {
        refuse(ctx, packet, BadKey::Qkey, deth.qkey.0);
        return false;
    }
    true
}

/// A packet for a UD QP.
fn datagram<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, port: u8, packet: &Packet<'_>) {
    if !receives(qp.state) || qp.port != port {
        return;
    }
    let index = qp.attr.pkey_index;
    if pkey_fits(ctx, port, index, packet) && qkey_fits(ctx, QKey(qp.attr.qkey), packet) {
        ud::receive(qp, ctx, packet, index);
    }
}

/// A packet for a connected QP: it has to come from the peer, along the path that the QP knows.
fn connected<D: Dma>(qp: &mut Qp, ctx: &mut Ctx<D>, port: u8, packet: &Packet<'_>) {
    if !receives(qp.state) || qp.port != port {
        return;
    }
    if !pkey_fits(ctx, port, qp.attr.pkey_index, packet) {
        return;
    }
    let av = &qp.attr.av;
    if packet.lrh().slid != Lid(av.dlid) {
        return;
    }
    let path = match (av.flags & AV_GRH != 0, packet.grh()) {
        (false, None) => true,
        (true, Some(grh)) => {
            let own = ctx.port(port).and_then(|p| p.gid(av.sgid_index));
            grh.sgid == Gid(av.dgid) && Some(grh.dgid) == own
        }
        _ => false,
    };
    if path {
        qp::receive(qp, ctx, packet);
    }
}

/// A multicast packet: a copy for each QP of the group.
fn multicast<D: Dma>(qps: &mut Table<Qp>, ctx: &mut Ctx<D>, port: u8, packet: &Packet<'_>) {
    let Some(grh) = packet.grh() else {
        return;
    };
    let mlid = packet.lrh().dlid;
    let mut n = 0;
    while let Some(&member) = ctx.groups.members(grh.dgid, mlid).get(n) {
        n += 1;
        if let Some(qp) = qps.get_mut(member) {
            datagram(qp, ctx, port, packet);
        }
    }
}

/// A packet for QP0 or QP1.
fn special<D: Dma>(ctx: &mut Ctx<D>, port: u8, packet: &Packet<'_>) -> Outcome {
    let Some(context) = ctx.port(port) else {
        return Outcome::Done;
    };
    let lrh = packet.lrh();
    let bth = packet.bth();
    let smi = bth.dest_qp == Qpn::SMI;
    let to_us = (smi && lrh.dlid == Lid::PERMISSIVE) || addressed(context, packet);
    let Some(deth) = packet.deth().filter(|_| to_us) else {
        return Outcome::Done;
    };
    if !smi {
        if context.find_pkey(bth.pkey).is_none() {
            refuse(ctx, packet, BadKey::Pkey, bth.pkey.0.into());
            return Outcome::Done;
        }
        if !qkey_fits(ctx, QKey::GSI, packet) {
            return Outcome::Done;
        }
    }
    let Ok(mad) = packet.payload().try_into() else {
        return Outcome::Done;
    };
    let address = Address {
        slid: lrh.slid,
        dlid: lrh.dlid,
        sl: lrh.sl,
        pkey: bth.pkey,
        src_qp: deth.src_qp,
        dest_qp: bth.dest_qp,
        grh: packet.grh(),
    };
    Outcome::Mad(Box::new((address, Mad(mad))))
}

/// A MAD that the agents did not take: to the driver's special QP.
pub(crate) fn deliver_mad<D: Dma>(
    qps: &mut Table<Qp>,
    ctx: &mut Ctx<D>,
    special: SpecialQps,
    port: u8,
    bytes: &[u8],
) {
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    let smi = packet.bth().dest_qp == Qpn::SMI;
    let number = if smi { special.smi } else { special.gsi };
    let Some(qp) = number.and_then(|n| qps.get_mut(n)) else {
        ctx.count(port, Counter::NoQp);
        return;
    };
    if !receives(qp.state) {
        return;
    }
    let index = ctx
        .port(port)
        .and_then(|p| p.find_pkey(pkey_of(&packet, smi)))
        .unwrap_or(0);
    ud::receive(qp, ctx, &packet, index);
}

fn pkey_of(packet: &Packet<'_>, smi: bool) -> PKey {
    if smi {
        PKey::DEFAULT
    } else {
        packet.bth().pkey
    }
}
