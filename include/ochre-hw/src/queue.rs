// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Queues in memory: where they lie, and the records at their start.
//!
//! Every queue begins with its record, which software and device share; the entries follow. Indices
//! run freely over 32 bits; the entry of index `i` is `i mod size`, and every size is a power of 2.

use super::layout::Field;
use super::wqe::{RecvWqe, SendWqe, Sge};

/// Sizes of pages that a [`MemDesc`] may have, as a bit mask of bytes: 4 KiB to 2 GiB.
pub const PAGE_SIZES: u64 = 0xffff_f000;

hw_struct! {
    /// A piece of memory as the device sees it: one block, or a list of pages.
    pub struct MemDesc, size 16 {
        /// Direct: DMA address of the block. Indirect: DMA address, on 8 bytes, of an array of
        /// `num_pages` DMA addresses, each on the page size. The array is read by the command.
        0x00 => addr: u64,
        /// Number of pages.
        0x08 => num_pages: u32,
        /// log2 of the page size in bytes, 12 to 31.
        0x0c => page_shift: u8,
        /// `MEM_INDIRECT`, or 0.
        0x0d => flags: u8,
        /// MBZ.
        0x0e => reserved: [u8; 2],
    }
}

/// [`MemDesc::addr`] is the address of a list of pages.
pub const MEM_INDIRECT: u8 = 1 << 0;
/// Most pages that one [`MemDesc`] may name.
pub const MEM_MAX_PAGES: u32 = 1 << 20;

hw_struct! {
    /// Record at the start of the command queue; slots follow at `SIZE`.
    pub struct CmdRecord, size 64 {
        /// Written by software: index of the next slot to be filled.
        0x00 => producer: u32,
        /// MBZ.
        0x04 => reserved: [u8; 60],
    }
}

hw_struct! {
    /// Record at the start of an event queue; entries follow at `SIZE`.
    pub struct EqRecord, size 64 {
        /// Written by software: index of the next event to be consumed.
        0x00 => consumer: u32,
        /// Written by software: the queue is armed by writing another value than the last one. The
        /// device raises the interrupt once for each value that it sees here after it has written
        /// an event. After arming, software looks at the queue once more.
        0x04 => arm: u32,
        /// MBZ.
        0x08 => reserved: [u8; 56],
    }
}

hw_struct! {
    /// Record at the start of a completion queue; entries follow at `SIZE`.
    pub struct CqRecord, size 64 {
        /// Written by software: index of the next completion to be consumed.
        0x00 => consumer: u32,
        /// Written by software: `CQ_ARM_*` in bits 1:0, a sequence number in bits 31:2 that
        /// changes with each arming. The device writes one event for each value that it sees here
        /// after it has written a completion that matches. After arming, software polls once more.
        0x04 => arm: u32,
        /// Written by the device; not zero where busy polling ([`BUSY_POLL`](super::doorbell::BUSY_POLL))
        /// brings completions of this queue sooner. Zero at first.
        0x08 => busy_poll: u32,
        /// MBZ.
        0x0c => reserved: [u8; 52],
    }
}

/// [`CqRecord::arm`]: no event.
pub const CQ_ARM_NONE: u32 = 0;
/// [`CqRecord::arm`]: an event for the next solicited or failed completion.
pub const CQ_ARM_SOLICITED: u32 = 1;
/// [`CqRecord::arm`]: an event for the next completion of any kind.
pub const CQ_ARM_NEXT: u32 = 2;
/// [`CqRecord::arm`]: mask of the kind.
pub const CQ_ARM_KIND: u32 = 3;
/// [`CqRecord::arm`]: one step of the sequence number.
pub const CQ_ARM_STEP: u32 = 4;

hw_struct! {
    /// Record at the start of a QP's buffer. Software writes the first 64 bytes, the device the
    /// second; they lie in different cache lines.
    pub struct QpRecord, size 128 {
        /// Written by software: index of the next send slot to be filled.
        0x00 => sq_producer: u32,
        /// Written by software: index of the next receive slot to be filled.
        0x04 => rq_producer: u32,
        /// MBZ.
        0x08 => reserved0: [u8; 56],
        /// Written by the device: not zero where it sees new sends only after a doorbell.
        0x40 => sq_need_wake: u32,
        /// Written by the device: not zero where it sees new receives only after a doorbell.
        0x44 => rq_need_wake: u32,
        /// Zero.
        0x48 => reserved1: [u8; 56],
    }
}

/// What a QP's buffer must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpSizes {
    /// Send work requests outstanding at once.
    pub send_wr: u32,
    /// Most scatter/gather elements of a send.
    pub send_sge: u32,
    /// Most bytes of inline data of a send.
    pub inline_data: u32,
    /// Receive work requests outstanding at once.
    pub recv_wr: u32,
    /// Most scatter/gather elements of a receive.
    pub recv_sge: u32,
}

/// How a QP's buffer is laid out: record, send slots, receive slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpLayout {
    /// Byte offset of the send queue.
    pub sq_offset: u32,
    /// log2 of the number of send slots.
    pub log_sq_slots: u8,
    /// log2 of the bytes of a send slot.
    pub log_sq_stride: u8,
    /// Byte offset of the receive queue.
    pub rq_offset: u32,
    /// log2 of the number of receive slots.
    pub log_rq_slots: u8,
    /// log2 of the bytes of a receive slot.
    pub log_rq_stride: u8,
    /// Size of the whole buffer, a multiple of 4096 bytes.
    pub bytes: u32,
}

/// log2 of the smallest slot of a send queue, bytes.
pub const MIN_LOG_SQ_STRIDE: u8 = 6;
/// log2 of the largest slot of a send queue, bytes.
pub const MAX_LOG_SQ_STRIDE: u8 = 10;
/// log2 of the smallest slot of a receive queue, bytes.
pub const MIN_LOG_RQ_STRIDE: u8 = 5;
/// log2 of the largest slot of a receive queue, bytes.
pub const MAX_LOG_RQ_STRIDE: u8 = 10;
/// log2 of the most slots of a send or receive queue.
pub const MAX_LOG_WR: u8 = 15;
/// Most scatter/gather elements of a send or receive.
pub const MAX_SGE: u32 = 30;
/// Most bytes of inline data of a send.
pub const MAX_INLINE: u32 = 928;

const fn log2_up(n: u32) -> u8 {
    if n <= 1 {
        0
    } else {
        (32 - (n - 1).leading_zeros()) as u8
    }
}

const fn max(a: u32, b: u32) -> u32 {
    if a > b {
        a
    } else {
        b
    }
}

impl QpLayout {
    /// Lays out a QP's buffer, or gives `None` where a size is beyond the device's limits
    /// (`MAX_LOG_WR`, `MAX_SGE`, `MAX_INLINE`).
    ///
    /// The slots may hold more than was asked for: see [`QpLayout::sizes`].
    pub const fn new(sizes: &QpSizes) -> Option<Self> {
        if sizes.send_wr > 1 << MAX_LOG_WR
            || sizes.recv_wr > 1 << MAX_LOG_WR
            || sizes.send_sge > MAX_SGE
            || sizes.recv_sge > MAX_SGE
            || sizes.inline_data > MAX_INLINE
        {
            return None;
        }
        // An atomic needs its operands beside one element.
        let data = max(sizes.send_sge * Sge::SIZE as u32, sizes.inline_data);
        let data = max(
            data,
            super::wqe::AtomicSegment::SIZE as u32 + Sge::SIZE as u32,
        );
        let send = log2_up(SendWqe::SIZE as u32 + data);
        let recv = log2_up(RecvWqe::SIZE as u32 + sizes.recv_sge * Sge::SIZE as u32);
        let mut l = Self {
            sq_offset: QpRecord::SIZE as u32,
            log_sq_slots: log2_up(sizes.send_wr),
            log_sq_stride: if send < MIN_LOG_SQ_STRIDE {
                MIN_LOG_SQ_STRIDE
            } else {
                send
            },
            rq_offset: 0,
            log_rq_slots: log2_up(sizes.recv_wr),
            log_rq_stride: if recv < MIN_LOG_RQ_STRIDE {
                MIN_LOG_RQ_STRIDE
            } else {
                recv
            },
            bytes: 0,
        };
        l.rq_offset = l.sq_offset + (1 << (l.log_sq_slots + l.log_sq_stride));
        let end = l.rq_offset + (1 << (l.log_rq_slots + l.log_rq_stride));
        l.bytes = (end + 4095) & !4095;
        Some(l)
    }

    /// What the layout has room for.
    pub const fn sizes(&self) -> QpSizes {
        let send = (1u32 << self.log_sq_stride) - SendWqe::SIZE as u32;
        let recv = (1u32 << self.log_rq_stride) - RecvWqe::SIZE as u32;
        QpSizes {
            send_wr: 1 << self.log_sq_slots,
            send_sge: min(send / Sge::SIZE as u32, MAX_SGE),
            inline_data: min(send, MAX_INLINE),
            recv_wr: 1 << self.log_rq_slots,
            recv_sge: min(recv / Sge::SIZE as u32, MAX_SGE),
        }
    }
}

const fn min(a: u32, b: u32) -> u32 {
    if a < b {
        a
    } else {
        b
    }
}
