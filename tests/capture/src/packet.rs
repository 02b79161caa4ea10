// SPDX-License-Identifier: GPL-2.0-or-later
//! What makes one packet well-formed, as far as the packet alone can tell.

use ochre_wire::{vcrc_ok, FlowControl, Lid, Opcode, Packet, ParseError, Transport, Vl};

/// Bytes of a management datagram.
const MAD: usize = 256;
/// Bytes that a link packet takes in a capture: its own, and zeros to fill 8.
const LINK_RECORD: usize = 8;
/// Destination QP of multicast packets.
const MULTICAST_QP: u32 = 0xff_ffff;

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketFault {
    /// The variant CRC does not fit the bytes.
    #[error("VCRC is wrong")]
    Vcrc,
    /// The invariant CRC does not fit the bytes.
    #[error("ICRC is wrong")]
    Icrc,
    /// Headers or lengths are wrong.
    #[error(transparent)]
    Headers(#[from] ParseError),
    /// More payload than the largest MTU.
    #[error("{0} bytes of payload, at most 4096 are allowed")]
    Mtu(usize),
    /// A packet that is not the last of its message must fill an MTU.
    #[error("{0} bytes of payload in a first or middle packet, expected an MTU")]
    NotFull(usize),
    /// QP0 and lane 15 belong to each other.
    #[error("QP {qp:#x} on lane {vl}: QP 0, and nothing else, uses lane 15")]
    ManagementLane {
        /// Destination QP.
        qp: u32,
        /// The lane.
        vl: u8,
    },
    /// Management QPs exchange datagrams of one length.
    #[error("{0} bytes for a management QP, expected a UD packet with {MAD}")]
    Mad(usize),
    /// No port has a multicast LID for its own.
    #[error("source LID {0:#06x} is a multicast LID")]
    Source(u16),
    /// Multicast is for datagrams to QP 0xffffff, and for them only.
    #[error("destination LID {lid:#06x} with QP {qp:#x}: multicast LIDs and UD to QP 0xffffff go together")]
    Multicast {
        /// Destination LID.
        lid: u16,
        /// Destination QP.
        qp: u32,
    },
    /// A record of a link packet has another length.
    #[error("link packet of {0} bytes, expected 6 and 2 zeros")]
    LinkLength(usize),
    /// The CRC of a link packet is wrong.
    #[error("LPCRC is wrong")]
    Lpcrc,
    /// A link packet that is not flow control.
    #[error("link packet with operation {0}, expected 0 or 1")]
    LinkOperation(u8),
    /// Lane 15 has no credits.
    #[error("flow control for lane 15")]
    LinkLane,
}

fn is_multicast(lid: Lid) -> bool {
    (0xc000..=0xfffe).contains(&lid.0)
}

/// Checks a data packet, LRH to VCRC; gives its opcode.
///
/// # Errors
///
/// The first fault. CRCs come first, as the link layer looks at them first.
pub fn check_data(bytes: &[u8]) -> Result<Opcode, PacketFault> {
    if !vcrc_ok(bytes) {
        return Err(PacketFault::Vcrc);
    }
    let packet = Packet::parse(bytes)?;
    if !packet.icrc_ok() {
        return Err(PacketFault::Icrc);
    }
    let (lrh, bth) = (packet.lrh(), packet.bth());
    let opcode = bth.opcode;
    let (qp, payload) = (bth.dest_qp.get(), packet.payload_len());
    if payload > 4096 {
        return Err(PacketFault::Mtu(payload));
    }
    // What is followed by more of its message is full, so that the receiver can count.
    let more = opcode.op.has_payload() && !opcode.op.ends_message();
    if more && !(payload.is_power_of_two() && (256..=4096).contains(&payload)) {
        return Err(PacketFault::NotFull(payload));
    }
    if (lrh.vl == Vl::new(15)) != (qp == 0) {
        let vl = lrh.vl.get();
        return Err(PacketFault::ManagementLane { qp, vl });
    }
    let is_ud = opcode.transport == Transport::Ud;
    if qp <= 1 && !(is_ud && payload == MAD) {
        return Err(PacketFault::Mad(payload));
    }
    if is_multicast(lrh.slid) {
        return Err(PacketFault::Source(lrh.slid.0));
    }
    if is_multicast(lrh.dlid) != (qp == MULTICAST_QP && is_ud) {
        let lid = lrh.dlid.0;
        return Err(PacketFault::Multicast { lid, qp });
    }
    Ok(opcode)
}

/// Checks a link packet as it stands in a capture.
///
/// # Errors
///
/// The first fault.
pub fn check_link(bytes: &[u8]) -> Result<(), PacketFault> {
    let length = PacketFault::LinkLength(bytes.len());
    let (packet, pad) = bytes.split_first_chunk::<6>().ok_or(length)?;
    if bytes.len() != LINK_RECORD || pad != [0; 2] {
        return Err(length);
    }
    let flow = FlowControl::read(packet).ok_or(PacketFault::Lpcrc)?;
    if flow.op > FlowControl::OP_INIT {
        return Err(PacketFault::LinkOperation(flow.op));
    }
    if flow.vl == Vl::new(15) {
        return Err(PacketFault::LinkLane);
    }
    Ok(())
}
