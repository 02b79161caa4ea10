// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Commands on the device as a whole.

use super::Field;

hw_struct! {
    /// Output of QUERY_DEVICE: identity and limits.
    pub struct QueryDeviceOut, size 256 {
        /// As the register `FIRMWARE_VERSION`.
        0x00 => firmware_version: u64,
        /// Node GUID, as a number (its most significant byte is the first on the wire).
        0x08 => node_guid: u64,
        /// System image GUID, likewise.
        0x10 => system_image_guid: u64,
        /// Longest region, bytes.
        0x18 => max_mr_size: u64,
        /// Page sizes of memory, a bit mask of bytes.
        0x20 => page_sizes: u64,
        /// Capability bits; none are defined yet.
        0x28 => capabilities: u64,
        /// Vendor id: the company's OUI, 24 bits.
        0x30 => vendor_id: u32,
        /// Vendor's part number.
        0x34 => part_id: u32,
        /// Hardware revision.
        0x38 => hw_version: u32,
        /// QPs.
        0x3c => max_qp: u32,
        /// Work requests outstanding on a queue.
        0x40 => max_qp_wr: u32,
        /// Scatter/gather elements of a work request.
        0x44 => max_sge: u32,
        /// Bytes of inline data.
        0x48 => max_inline: u32,
        /// CQs.
        0x4c => max_cq: u32,
        /// Entries of a CQ.
        0x50 => max_cqe: u32,
        /// Regions.
        0x54 => max_mr: u32,
        /// Protection domains.
        0x58 => max_pd: u32,
        /// Address handles.
        0x5c => max_ah: u32,
        /// Event queues.
        0x60 => max_eq: u32,
        /// Entries of an event queue.
        0x64 => max_eqe: u32,
        /// Multicast groups.
        0x68 => max_mcast_groups: u32,
        /// QPs attached to one group.
        0x6c => max_mcast_qps: u32,
        /// READs and atomics that a QP's responder accepts.
        0x70 => max_dest_rd_atomic: u32,
        /// READs and atomics that a QP's requester sends.
        0x74 => max_rd_atomic: u32,
        /// Longest message, bytes.
        0x78 => max_message: u32,
        /// Rate of the device clock, kHz.
        0x7c => clock_khz: u32,
        /// P_Keys of a port.
        0x80 => pkeys: u16,
        /// GIDs of a port.
        0x82 => gids: u16,
        /// Ports.
        0x84 => ports: u8,
        /// Local CA ACK delay: 4.096 us * 2^n.
        0x85 => ack_delay: u8,
        /// Zero.
        0x86 => reserved0: [u8; 26],
        /// Zero.
        0xa0 => reserved1: [u8; 96],
    }
}

hw_struct! {
    /// Output of QUERY_OBJECTS: how many of each the device holds now.
    pub struct QueryObjectsOut, size 64 {
        /// Event queues.
        0x00 => eqs: u32,
        /// Completion queues.
        0x04 => cqs: u32,
        /// Protection domains.
        0x08 => pds: u32,
        /// Regions.
        0x0c => mrs: u32,
        /// QPs, the special ones included.
        0x10 => qps: u32,
        /// Address handles.
        0x14 => ahs: u32,
        /// Attachments of QPs to multicast groups.
        0x18 => mcast_attachments: u32,
        /// Zero.
        0x1c => reserved: [u8; 36],
    }
}

hw_struct! {
    /// Input of SET_NODE_DESCRIPTION.
    pub struct SetNodeDescription, size 64 {
        /// UTF-8, filled up with zeros.
        0x00 => description: [u8; 64],
    }
}
