// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Attributes of verbs objects that commands carry.

use super::layout::Field;

hw_enum! {
    /// Type of a QP.
    pub enum QpType: u8 {
        /// Reliable connection.
        Rc = 1,
        /// Unreliable connection.
        Uc = 2,
        /// Unreliable datagram.
        Ud = 3,
        /// QP0 of a port: subnet management.
        Smi = 4,
        /// QP1 of a port: general services.
        Gsi = 5,
    }
}

hw_enum! {
    /// State of a QP; the numbers are those of `enum ib_qp_state`.
    pub enum QpState: u8 {
        /// Nothing happens.
        Reset = 0,
        /// Receives may be posted.
        Init = 1,
        /// Ready to receive.
        Rtr = 2,
        /// Ready to send.
        Rts = 3,
        /// Send queue drained.
        Sqd = 4,
        /// Send queue error (UC, UD and special QPs).
        Sqe = 5,
        /// Error: everything is flushed.
        Error = 6,
    }
}

/// Rights of a region or of a QP; the bits are those of `enum ib_access_flags`.
pub mod access {
    /// The device may write on behalf of the owner (receives, READ and atomic results).
    pub const LOCAL_WRITE: u32 = 1 << 0;
    /// A peer may write. A region with this right has `LOCAL_WRITE` too.
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// A peer may read.
    pub const REMOTE_READ: u32 = 1 << 2;
    /// A peer may do atomics. A region with this right has `LOCAL_WRITE` too.
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
    /// All rights of a region.
    pub const REGION: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    /// All rights of a QP.
    pub const QP: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
}

/// Which attributes of a [`QpAttr`] are given; the bits are those of `enum ib_qp_attr_mask`.
pub mod qp_attr {
    /// `state`.
    pub const STATE: u32 = 1 << 0;
    /// `cur_state`: fail where the QP is in another state.
    pub const CUR_STATE: u32 = 1 << 1;
    /// `sqd_event`.
    pub const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    /// `access`.
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    /// `pkey_index`.
    pub const PKEY_INDEX: u32 = 1 << 4;
    /// `port`.
    pub const PORT: u32 = 1 << 5;
    /// `qkey`.
    pub const QKEY: u32 = 1 << 6;
    /// `av`.
    pub const AV: u32 = 1 << 7;
    /// `path_mtu`.
    pub const PATH_MTU: u32 = 1 << 8;
    /// `timeout`.
    pub const TIMEOUT: u32 = 1 << 9;
    /// `retry_count`.
    pub const RETRY_CNT: u32 = 1 << 10;
    /// `rnr_retry`.
    pub const RNR_RETRY: u32 = 1 << 11;
    /// `rq_psn`.
    pub const RQ_PSN: u32 = 1 << 12;
    /// `max_rd_atomic`.
    pub const MAX_RD_ATOMIC: u32 = 1 << 13;
    /// `min_rnr_timer`.
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    /// `sq_psn`.
    pub const SQ_PSN: u32 = 1 << 16;
    /// `max_dest_rd_atomic`.
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    /// `dest_qpn`.
    pub const DEST_QPN: u32 = 1 << 20;
    /// All that the device knows.
    pub const ALL: u32 = 0x1f
        | PORT
        | QKEY
        | AV
        | PATH_MTU
        | TIMEOUT
        | RETRY_CNT
        | RNR_RETRY
        | RQ_PSN
        | MAX_RD_ATOMIC
        | MIN_RNR_TIMER
        | SQ_PSN
        | MAX_DEST_RD_ATOMIC
        | DEST_QPN;
}

hw_struct! {
    /// Address vector: the path to a destination.
    pub struct AddressVector, size 32 {
        /// Destination GID in wire order, with `AV_GRH`.
        0x00 => dgid: [u8; 16],
        /// Flow label, 20 bits, with `AV_GRH`.
        0x10 => flow_label: u32,
        /// Destination LID.
        0x14 => dlid: u16,
        /// Service level, 0 to 15.
        0x16 => sl: u8,
        /// Low bits of the own LID, where the port has an LMC.
        0x17 => src_path_bits: u8,
        /// Port, from 1.
        0x18 => port: u8,
        /// Static rate; 0 is the port's own. The numbers are those of `enum ib_rate`.
        0x19 => static_rate: u8,
        /// Index of the source GID, with `AV_GRH`.
        0x1a => sgid_index: u8,
        /// Hop limit, with `AV_GRH`.
        0x1b => hop_limit: u8,
        /// Traffic class, with `AV_GRH`.
        0x1c => traffic_class: u8,
        /// `AV_GRH`, or 0.
        0x1d => flags: u8,
        /// MBZ.
        0x1e => reserved: [u8; 2],
    }
}

/// [`AddressVector::flags`]: packets carry a GRH.
pub const AV_GRH: u8 = 1 << 0;

hw_struct! {
    /// Attributes of a QP.
    pub struct QpAttr, size 128 {
        /// A [`QpState`].
        0x00 => state: u8,
        /// A [`QpState`].
        0x01 => cur_state: u8,
        /// 1: 256 bytes, 2: 512, 3: 1024, 4: 2048, 5: 4096.
        0x02 => path_mtu: u8,
        /// Not zero: write [`EventType::QpSqDrained`](super::eqe::EventType::QpSqDrained) once drained.
        0x03 => sqd_event: u8,
        /// Q_Key (UD and special QPs).
        0x04 => qkey: u32,
        /// First PSN expected, 24 bits.
        0x08 => rq_psn: u32,
        /// First PSN sent, 24 bits.
        0x0c => sq_psn: u32,
        /// The peer's QP number, 24 bits.
        0x10 => dest_qpn: u32,
        /// Rights that the peer has: `access::QP` bits.
        0x14 => access: u32,
        /// Index in the port's P_Key table.
        0x18 => pkey_index: u16,
        /// Port, from 1.
        0x1a => port: u8,
        /// Local ACK time-out, 5 bits: 4.096 us * 2^n; 0 means none.
        0x1b => timeout: u8,
        /// Retries after a time-out or a sequence error, 0 to 7.
        0x1c => retry_count: u8,
        /// Retries after an RNR NAK, 0 to 6; 7 means without limit.
        0x1d => rnr_retry: u8,
        /// RNR NAK timer code that the responder sends, 5 bits.
        0x1e => min_rnr_timer: u8,
        /// READs and atomics that this QP may have outstanding.
        0x1f => max_rd_atomic: u8,
        /// READs and atomics that the peer may have outstanding.
        0x20 => max_dest_rd_atomic: u8,
        /// Read only: the send queue is draining.
        0x21 => sq_draining: u8,
        /// MBZ.
        0x22 => reserved0: [u8; 14],
        /// Path to the peer (RC and UC).
        0x30 => av: AddressVector,
        /// MBZ.
        0x50 => reserved1: [u8; 24],
        /// MBZ.
        0x68 => reserved2: [u8; 24],
    }
}
