// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Completion queue entries.

use super::layout::Field;

hw_enum! {
    /// What has completed.
    pub enum CqeOpcode: u8 {
        /// A SEND, with or without immediate or invalidate.
        Send = 0,
        /// An RDMA WRITE, with or without immediate.
        Write = 1,
        /// An RDMA READ.
        Read = 2,
        /// A compare-and-swap.
        CompareSwap = 3,
        /// A fetch-and-add.
        FetchAdd = 4,
        /// A receive filled by a SEND.
        Recv = 0x80,
        /// A receive consumed by an RDMA WRITE with immediate.
        RecvWriteImm = 0x81,
    }
}

hw_enum! {
    /// Outcome of a work request; the numbers are those of `enum ib_wc_status`.
    pub enum CqeStatus: u8 {
        /// Done.
        Success = 0,
        /// A receive is too small for the message, or a length is beyond the limits.
        LocalLength = 1,
        /// A malformed work queue entry.
        LocalQpOperation = 2,
        /// A local key, address, length or right is wrong.
        LocalProtection = 4,
        /// Flushed: the QP is in the error state.
        WorkRequestFlushed = 5,
        /// The response is not what the request asked for.
        BadResponse = 7,
        /// A responder's own memory failed under a remote access.
        LocalAccess = 8,
        /// The responder refused the request as invalid.
        RemoteInvalidRequest = 9,
        /// The responder refused key, address, length or right.
        RemoteAccess = 10,
        /// The responder could not complete the operation.
        RemoteOperation = 11,
        /// Transport retries exhausted.
        RetryExceeded = 12,
        /// RNR retries exhausted.
        RnrRetryExceeded = 13,
        /// Anything else; the QP is broken.
        General = 21,
    }
}

/// [`Cqe::flags`]: `imm` holds immediate data.
pub const CQE_IMM: u8 = 1 << 0;
/// [`Cqe::flags`]: the first 40 bytes of the receive hold a GRH.
pub const CQE_GRH: u8 = 1 << 1;
/// [`Cqe::flags`]: `imm` holds the key that was invalidated.
pub const CQE_INVALIDATED: u8 = 1 << 2;
/// [`Cqe::flags`]: the solicited-event bit was set.
pub const CQE_SOLICITED: u8 = 1 << 3;

/// [`Cqe::owner`]: the phase bit. It is 1 in the first pass over the queue, 0 in the second, and so
/// on; the queue is zeroed before it is created. An entry is valid when its phase is that of the
/// consumer's pass.
pub const CQE_PHASE: u8 = 1 << 0;

hw_struct! {
    /// Completion queue entry. The device writes the last 4 bytes last, after a release barrier;
    /// software reads `owner`, then an acquire barrier, then the rest.
    pub struct Cqe, size 64 {
        /// From the work request.
        0x00 => wr_id: u64,
        /// Device clock when the entry was written, ns.
        0x08 => timestamp: u64,
        /// Bytes received, or bytes of a READ or atomic; UD receives count the 40 bytes of the GRH.
        0x10 => byte_len: u32,
        /// Immediate data, the four bytes in wire order; or the key that was invalidated.
        0x14 => imm: u32,
        /// Own QP number (0 and 1 for the special QPs).
        0x18 => qpn: u32,
        /// UD and special QPs: QP number of the sender.
        0x1c => src_qpn: u32,
        /// Index of the slot after the completed one: all slots before it are free again.
        0x20 => wqe_index: u32,
        /// UD and special QPs: LID of the sender.
        0x24 => slid: u16,
        /// UD and special QPs: index of the P_Key of the packet.
        0x26 => pkey_index: u16,
        /// A [`CqeOpcode`].
        0x28 => opcode: u8,
        /// A [`CqeStatus`].
        0x29 => status: u8,
        /// UD and special QPs: service level of the packet.
        0x2a => sl: u8,
        /// UD and special QPs: path bits of the destination LID.
        0x2b => dlid_path_bits: u8,
        /// `CQE_*`.
        0x2c => flags: u8,
        /// A failed request: the device's own detail. For a NAK, its AETH syndrome; else 0.
        0x2d => syndrome: u8,
        /// Port of the packet, for receives of special QPs; else 0.
        0x2e => port: u8,
        /// Zero.
        0x2f => reserved: [u8; 16],
        /// `CQE_PHASE`.
        0x3f => owner: u8,
    }
}

impl CqeOpcode {
    /// The entry belongs to the receive queue.
    #[inline]
    pub const fn is_recv(self) -> bool {
        self.raw() & 0x80 != 0
    }
}
