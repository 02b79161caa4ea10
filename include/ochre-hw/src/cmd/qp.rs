// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Commands on QPs, address handles and multicast groups.

use super::super::queue::MemDesc;
use super::super::verbs::AddressVector;
use super::super::verbs::QpAttr;
use super::Field;

hw_struct! {
    /// Input of CREATE_QP; the output is its number. For the special QPs, whose numbers on the wire
    /// are 0 and 1, it is a handle for other commands, doorbells and events.
    pub struct CreateQp, size 96 {
        /// The buffer: a [`QpRecord`](super::super::queue::QpRecord) at its start, and both queues.
        0x00 => mem: MemDesc,
        /// Byte offset of the send queue in the buffer, on the size of a slot or on 64 bytes.
        0x10 => sq_offset: u32,
        /// Byte offset of the receive queue in the buffer, likewise.
        0x14 => rq_offset: u32,
        /// log2 of the number of send slots.
        0x18 => log_sq_slots: u8,
        /// log2 of the bytes of a send slot.
        0x19 => log_sq_stride: u8,
        /// log2 of the number of receive slots.
        0x1a => log_rq_slots: u8,
        /// log2 of the bytes of a receive slot.
        0x1b => log_rq_stride: u8,
        /// A [`QpType`](super::super::verbs::QpType).
        0x1c => qp_type: u8,
        /// Port of a special QP; else 0.
        0x1d => port: u8,
        /// MBZ.
        0x1e => reserved0: [u8; 2],
        /// Protection domain.
        0x20 => pd: u32,
        /// Completion queue of sends.
        0x24 => send_cq: u32,
        /// Completion queue of receives.
        0x28 => recv_cq: u32,
        /// Doorbell page that the QP answers to.
        0x2c => doorbell_page: u32,
        /// MBZ.
        0x30 => reserved1: [u8; 24],
        /// MBZ.
        0x48 => reserved2: [u8; 24],
    }
}

hw_struct! {
    /// Input of MODIFY_QP.
    pub struct ModifyQp, size 144 {
        /// Its number.
        0x00 => qp: u32,
        /// Which attributes are given: `verbs::qp_attr` bits.
        0x04 => mask: u32,
        /// MBZ.
        0x08 => reserved: [u8; 8],
        /// The attributes.
        0x10 => attr: QpAttr,
    }
}

hw_struct! {
    /// Output of QUERY_QP.
    pub struct QueryQpOut, size 128 {
        /// The attributes as they are now; PSNs are those of the next packets.
        0x00 => attr: QpAttr,
    }
}

hw_struct! {
    /// Input of CREATE_AH; the output is its number.
    pub struct CreateAh, size 48 {
        /// The path.
        0x00 => av: AddressVector,
        /// Protection domain.
        0x20 => pd: u32,
        /// MBZ.
        0x24 => reserved: [u8; 12],
    }
}

hw_struct! {
    /// Input of ATTACH_MULTICAST and DETACH_MULTICAST.
    pub struct Multicast, size 32 {
        /// Multicast GID in wire order.
        0x00 => mgid: [u8; 16],
        /// A UD QP.
        0x10 => qp: u32,
        /// Multicast LID.
        0x14 => mlid: u16,
        /// MBZ.
        0x16 => reserved: [u8; 10],
    }
}
