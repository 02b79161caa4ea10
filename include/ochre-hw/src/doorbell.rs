// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! BAR 2: the doorbell pages.
//!
//! A page of 4 KiB is mapped to each user context; page 0 is the kernel's. A doorbell carries no
//! state: it says "look at the producer index in the record of this queue", so that doorbells may be
//! joined, repeated or skipped. A queue answers only to the page that it was created with. Each
//! doorbell is an aligned 32-bit write; reads give zero.
//!
//! Software writes the record's producer index, then a full memory barrier, then reads the queue's
//! `need_wake` word, and writes the doorbell only where that is not zero.

/// Size of a doorbell page, bytes.
pub const PAGE_SIZE: u64 = 4096;
/// Doorbell page of the kernel driver.
pub const KERNEL_PAGE: u32 = 0;
/// Offset in the page: a write of a QP number makes the device look at that QP's send queue.
pub const SEND: u64 = 0x00;
/// Offset in the page: a write of a QP number makes the device look at that QP's receive queue.
/// Needed only in the error state, where posted receives are flushed.
pub const RECV: u64 = 0x04;
/// Offset in the page: a write of [`BUSY_POLL_ON`] by a program that finds nothing in its completion
/// queues and will look again at once, where the device asks for it in [`CqRecord::busy_poll`]. The device
/// may do its work in the time of the processor that writes, and may count on being told again soon.
///
/// [`CqRecord::busy_poll`]: super::queue::CqRecord::busy_poll
pub const BUSY_POLL: u64 = 0x08;
/// Value for [`BUSY_POLL`]: the program goes on polling.
pub const BUSY_POLL_ON: u32 = 1;
/// Value for [`BUSY_POLL`]: the program that wrote `BUSY_POLL_ON` before has armed its completion queue
/// and may sleep.
pub const BUSY_POLL_OFF: u32 = 0;
