// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Commands on event queues and completion queues.

use super::super::queue::MemDesc;
use super::Field;

/// Number of the event queue for async events and commands: the first to be created, and the last
/// to be destroyed.
pub const ASYNC_EQ: u32 = 0;
/// log2 of the most entries of an event queue.
pub const MAX_LOG_EQE: u8 = 16;
/// log2 of the most entries of a completion queue.
pub const MAX_LOG_CQE: u8 = 20;

hw_struct! {
    /// Input of CREATE_EQ; the output is its number. The first becomes `ASYNC_EQ`.
    pub struct CreateEq, size 32 {
        /// Memory: an [`EqRecord`](super::super::queue::EqRecord), then the entries, all zero.
        0x00 => mem: MemDesc,
        /// MSI-X vector.
        0x10 => vector: u16,
        /// log2 of the number of entries, up to `MAX_LOG_EQE`.
        0x12 => log_entries: u8,
        /// MBZ.
        0x13 => reserved: [u8; 13],
    }
}

hw_struct! {
    /// Input of CREATE_CQ; the output is its number.
    pub struct CreateCq, size 32 {
        /// Memory: a [`CqRecord`](super::super::queue::CqRecord), then the entries, all zero.
        0x00 => mem: MemDesc,
        /// Event queue for its completion events.
        0x10 => eq: u32,
        /// log2 of the number of entries, up to `MAX_LOG_CQE`.
        0x14 => log_entries: u8,
        /// MBZ.
        0x15 => reserved: [u8; 11],
    }
}

hw_struct! {
    /// Input of MODIFY_CQ: moderation of its events. An armed CQ has its event after
    /// `count` completions or `period` after the first, whichever comes first.
    pub struct ModifyCq, size 16 {
        /// Its number.
        0x00 => cq: u32,
        /// Completions; 0 or 1: no moderation.
        0x04 => count: u16,
        /// Microseconds; 0: no moderation.
        0x06 => period: u16,
        /// MBZ.
        0x08 => reserved: [u8; 8],
    }
}
