// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! BAR 0: the registers.
//!
//! 32-bit registers are read and written by aligned 32-bit accesses; 64-bit registers by one aligned
//! 64-bit access or by two 32-bit ones, low half first. Other accesses read as zero and are ignored
//! on write. Registers that are not named here read as zero.

/// RO, 32 bits: `MAGIC_VALUE`.
pub const MAGIC: u64 = 0x00;
/// What `MAGIC` reads as: the letters "OCHR".
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"OCHR");
/// RO, 32 bits: interface version, major in bits 31:16, minor in 15:0. Software refuses a device
/// with another major version; a higher minor version only adds.
pub const INTERFACE_VERSION: u64 = 0x04;
/// The interface version that these files describe: major.
pub const INTERFACE_MAJOR: u16 = 1;
/// The interface version that these files describe: minor.
pub const INTERFACE_MINOR: u16 = 0;
/// RO, 64 bits: firmware version, major in bits 47:32, minor in 31:16, patch in 15:0 (the layout
/// that `ibv_devinfo` prints).
pub const FIRMWARE_VERSION: u64 = 0x08;
/// RO, 32 bits: number of MSI-X vectors.
pub const NUM_VECTORS: u64 = 0x10;
/// RO, 32 bits: number of doorbell pages in BAR 2.
pub const NUM_DOORBELL_PAGES: u64 = 0x14;
/// RO, 32 bits: number of ports, 1 or 2.
pub const NUM_PORTS: u64 = 0x18;

/// RW, 32 bits: `CONTROL_*`.
pub const CONTROL: u64 = 0x20;
/// Set to start the command queue. The device checks `CMDQ_*` and answers in `STATUS`. Cleared by
/// software or by a reset: every object is gone, nothing is read from or written to memory any more.
pub const CONTROL_ENABLE: u32 = 1 << 0;
/// Set to reset the device, as FLR does. Clears itself; the reset is complete when the write is.
pub const CONTROL_RESET: u32 = 1 << 1;

/// RO, 32 bits: `STATUS_*`.
pub const STATUS: u64 = 0x24;
/// The device runs commands.
pub const STATUS_READY: u32 = 1 << 0;
/// The device has stopped because of `FATAL_REASON`; only a reset helps.
pub const STATUS_FATAL: u32 = 1 << 1;

/// RO, 32 bits: a [`FatalReason`], or 0.
pub const FATAL_REASON: u64 = 0x28;

hw_enum! {
    /// Why the device has stopped.
    pub enum FatalReason: u32 {
        /// `CMDQ_BASE` is zero or not on 64 bytes, or `CMDQ_LOG_SLOTS` is out of range.
        BadCommandQueue = 1,
        /// The command queue's memory cannot be read or written.
        CommandQueueDma = 2,
        /// The producer index of the command queue is more than the queue's size ahead.
        CommandQueueOverrun = 3,
        /// An event queue's memory cannot be written.
        EventQueueDma = 4,
        /// An event queue is full: software does not consume events.
        EventQueueOverrun = 5,
    }
}

/// RW, 64 bits: guest-physical (DMA) address of the command queue, on 64 bytes. Written while the
/// device is not enabled.
pub const CMDQ_BASE: u64 = 0x30;
/// RW, 32 bits: log2 of the number of slots in the command queue, 0 to `CMDQ_MAX_LOG_SLOTS`.
pub const CMDQ_LOG_SLOTS: u64 = 0x38;
/// Largest value of `CMDQ_LOG_SLOTS`.
pub const CMDQ_MAX_LOG_SLOTS: u32 = 8;
/// WO, 32 bits: any write makes the device look at the command queue's producer index.
pub const CMDQ_DOORBELL: u64 = 0x3c;

/// RO, 64 bits: the device's clock, nanoseconds; completions carry times of this clock.
pub const CLOCK: u64 = 0x40;
