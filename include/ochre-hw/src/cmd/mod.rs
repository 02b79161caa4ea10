// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! The command queue: how the driver makes, changes and destroys objects.
//!
//! The queue is a [`CmdRecord`](super::queue::CmdRecord) and 2^n slots. The driver fills a free slot, sets its
//! owner to `OWNER_DEVICE`, advances the producer index and rings
//! [`CMDQ_DOORBELL`](super::regs::CMDQ_DOORBELL). The device takes slots in order, several may be under way, and
//! hands each back by writing its last 8 bytes; with `SLOT_EVENT` it then writes an event too. The
//! driver waits for the owner, either by polling or by sleeping until the event.

use super::layout::Field;

pub mod device;
pub mod mem;
pub mod port;
pub mod qp;
pub mod queue;

hw_enum! {
    /// What a command does. Each has an input and an output structure of its name.
    pub enum Opcode: u16 {
        /// [`device::QueryDeviceOut`].
        QueryDevice = 0x01,
        /// [`device::QueryObjectsOut`].
        QueryObjects = 0x02,
        /// [`device::SetNodeDescription`].
        SetNodeDescription = 0x03,
        /// [`port::PortIn`] gives [`port::QueryPortOut`].
        QueryPort = 0x10,
        /// [`port::ModifyPort`].
        ModifyPort = 0x11,
        /// [`port::TableIn`] gives [`port::QueryGidOut`].
        QueryGid = 0x12,
        /// [`port::TableIn`] gives [`port::QueryPkeyOut`].
        QueryPkey = 0x13,
        /// [`port::MadIn`] gives [`port::MadOut`].
        ProcessMad = 0x14,
        /// [`port::PortIn`] gives [`port::QueryCountersOut`].
        QueryCounters = 0x15,
        /// [`queue::CreateEq`] gives [`NumberOut`].
        CreateEq = 0x20,
        /// [`NumberIn`].
        DestroyEq = 0x21,
        /// [`queue::CreateCq`] gives [`NumberOut`].
        CreateCq = 0x22,
        /// [`queue::ModifyCq`].
        ModifyCq = 0x23,
        /// [`NumberIn`].
        DestroyCq = 0x24,
        /// No input; gives [`NumberOut`].
        AllocPd = 0x30,
        /// [`NumberIn`].
        DeallocPd = 0x31,
        /// [`mem::CreateMr`] gives [`NumberOut`]: the key.
        CreateMr = 0x32,
        /// [`NumberIn`]: the key.
        DestroyMr = 0x33,
        /// [`qp::CreateQp`] gives [`NumberOut`].
        CreateQp = 0x40,
        /// [`qp::ModifyQp`].
        ModifyQp = 0x41,
        /// [`NumberIn`] gives [`qp::QueryQpOut`].
        QueryQp = 0x42,
        /// [`NumberIn`].
        DestroyQp = 0x43,
        /// [`qp::CreateAh`] gives [`NumberOut`].
        CreateAh = 0x44,
        /// [`NumberIn`].
        DestroyAh = 0x45,
        /// [`qp::Multicast`].
        AttachMulticast = 0x46,
        /// [`qp::Multicast`].
        DetachMulticast = 0x47,
    }
}

hw_enum! {
    /// Outcome of a command.
    pub enum Status: u8 {
        /// Done.
        Ok = 0,
        /// No such opcode.
        BadOpcode = 1,
        /// Input or output is not as long as the structure.
        BadLength = 2,
        /// A field has a value that is not allowed; [`CmdSlot::bad_field`] tells which.
        BadParameter = 3,
        /// No such object; [`CmdSlot::bad_field`] tells which field names it.
        NoSuchObject = 4,
        /// The object is still used by others.
        Busy = 5,
        /// The device has no room for one more.
        NoResources = 6,
        /// Not allowed in the object's state.
        BadState = 7,
        /// Memory that the command names cannot be read or written.
        DmaError = 8,
    }
}

/// [`CmdSlot::owner`]: the slot is the driver's.
pub const OWNER_DRIVER: u8 = 0;
/// [`CmdSlot::owner`]: the slot is the device's.
pub const OWNER_DEVICE: u8 = 1;
/// [`CmdSlot::flags`]: write an event to event queue 0 when done.
pub const SLOT_EVENT: u16 = 1 << 0;

hw_struct! {
    /// A slot of the command queue.
    pub struct CmdSlot, size 64 {
        /// An [`Opcode`].
        0x00 => opcode: u16,
        /// `SLOT_EVENT`, or 0.
        0x02 => flags: u16,
        /// Returned in the event.
        0x04 => token: u32,
        /// DMA address of the input structure; 0 where there is none.
        0x08 => in_addr: u64,
        /// DMA address for the output structure; 0 where there is none.
        0x10 => out_addr: u64,
        /// Bytes of input: exactly the structure's size.
        0x18 => in_len: u32,
        /// Bytes of room for output: at least the structure's size.
        0x1c => out_len: u32,
        /// MBZ.
        0x20 => reserved0: [u8; 24],
        /// Written by the device: bytes of output.
        0x38 => out_written: u32,
        /// Written by the device: a [`Status`].
        0x3c => status: u8,
        /// MBZ.
        0x3d => reserved1: u8,
        /// Written by the device: byte offset, in the input, of the first field that it refused
        /// (255 for any beyond).
        0x3e => bad_field: u8,
        /// `OWNER_*`; written last.
        0x3f => owner: u8,
    }
}

hw_struct! {
    /// Input of commands that name one object (queue number, key, ...).
    pub struct NumberIn, size 8 {
        /// The object's number or key.
        0x00 => number: u32,
        /// MBZ.
        0x04 => reserved: [u8; 4],
    }
}

hw_struct! {
    /// Output of commands that make one object.
    pub struct NumberOut, size 8 {
        /// The object's number or key.
        0x00 => number: u32,
        /// Zero.
        0x04 => reserved: [u8; 4],
    }
}
