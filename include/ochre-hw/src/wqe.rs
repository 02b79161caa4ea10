// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Work queue entries: what software asks of a QP.

use super::layout::Field;

hw_enum! {
    /// What a send work request does.
    pub enum SendOpcode: u8 {
        /// SEND.
        Send = 1,
        /// SEND with immediate data.
        SendImm = 2,
        /// SEND with invalidate of a key of the receiver.
        SendInvalidate = 3,
        /// RDMA WRITE.
        Write = 4,
        /// RDMA WRITE with immediate data.
        WriteImm = 5,
        /// RDMA READ.
        Read = 6,
        /// Atomic compare-and-swap of 8 bytes.
        CompareSwap = 7,
        /// Atomic fetch-and-add of 8 bytes.
        FetchAdd = 8,
    }
}

/// [`SendWqe::flags`]: write a completion also where the request succeeds.
pub const SEND_SIGNALED: u8 = 1 << 0;
/// [`SendWqe::flags`]: set the solicited-event bit of the last packet.
pub const SEND_SOLICITED: u8 = 1 << 1;
/// [`SendWqe::flags`]: begin only when all earlier READs and atomics are done.
pub const SEND_FENCE: u8 = 1 << 2;
/// [`SendWqe::flags`]: the data follow the entry itself, `inline_len` bytes.
pub const SEND_INLINE: u8 = 1 << 3;
/// All flags that have a meaning.
pub const SEND_FLAGS: u8 = SEND_SIGNALED | SEND_SOLICITED | SEND_FENCE | SEND_INLINE;

hw_struct! {
    /// Start of a send slot.
    ///
    /// Behind it come, for an atomic, an [`AtomicSegment`]; then `num_sge` [`Sge`], or
    /// `inline_len` bytes of data. An entry that does not fit its slot is an error.
    pub struct SendWqe, size 32 {
        /// A [`SendOpcode`].
        0x00 => opcode: u8,
        /// `SEND_*`.
        0x01 => flags: u8,
        /// Number of scatter/gather elements.
        0x02 => num_sge: u8,
        /// MBZ.
        0x03 => reserved: u8,
        /// Immediate data, the four bytes in wire order; for SEND with invalidate the key, as a
        /// little-endian number.
        0x04 => imm: u32,
        /// Returned in the completion.
        0x08 => wr_id: u64,
        /// RDMA and atomics: virtual address at the responder. UD: address handle number in bits
        /// 31:0, destination QP number in bits 63:32.
        0x10 => remote: u64,
        /// RDMA and atomics: R_Key. UD: Q_Key; where bit 31 is set, the QP's own Q_Key is used.
        0x18 => key: u32,
        /// Bytes of inline data, with `SEND_INLINE`.
        0x1c => inline_len: u16,
        /// Index of the P_Key, for QP1 only; other QPs have it in their attributes.
        0x1e => pkey_index: u16,
    }
}

hw_struct! {
    /// Operands of an atomic.
    pub struct AtomicSegment, size 16 {
        /// Compare-and-swap: the new value. Fetch-and-add: what is added.
        0x00 => swap_or_add: u64,
        /// Compare-and-swap: what must stand there. Fetch-and-add: MBZ.
        0x08 => compare: u64,
    }
}

hw_struct! {
    /// Scatter/gather element.
    pub struct Sge, size 16 {
        /// Virtual address in the region, or DMA address with a key of the whole memory.
        0x00 => addr: u64,
        /// Bytes; 0 means none.
        0x08 => length: u32,
        /// L_Key.
        0x0c => lkey: u32,
    }
}

hw_struct! {
    /// Start of a receive slot; `num_sge` [`Sge`] follow.
    pub struct RecvWqe, size 16 {
        /// Returned in the completion.
        0x00 => wr_id: u64,
        /// Number of scatter/gather elements.
        0x08 => num_sge: u32,
        /// MBZ.
        0x0c => reserved: u32,
    }
}
