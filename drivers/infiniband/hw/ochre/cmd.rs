// SPDX-License-Identifier: GPL-2.0-or-later

//! Commands: how the driver asks the device to make, change and destroy objects.
//!
//! A command is a type with its opcode, input and output ([`Command`]). [`CommandQueue`] carries
//! several at once; the caller sleeps until the device's event, or polls where it must not sleep.

use crate::{
    hw::{
        cmd,
        cmd::{
            device,
            mem,
            port,
            qp,
            queue, //
        },
        Field,
    },
    regs::Regs, //
};
use core::mem::size_of;
use kernel::prelude::*;

mod ring;

pub(crate) use self::ring::CommandQueue;

/// A command of the device.
pub(crate) trait Command {
    /// What the device knows it by.
    const OPCODE: cmd::Opcode;
    /// What the device reads; `()` where there is nothing.
    type Input: Field;
    /// What the device writes; `()` where there is nothing.
    type Output: Field;
}

impl Field for () {
    fn get(_bytes: &[u8]) -> Self {}

    fn put(self, _bytes: &mut [u8]) {}
}

macro_rules! commands {
    ($( $(#[$meta:meta])* $name:ident: $input:ty => $output:ty; )*) => {$(
        $(#[$meta])*
        pub(crate) struct $name;

        impl Command for $name {
            const OPCODE: cmd::Opcode = cmd::Opcode::$name;
            type Input = $input;
            type Output = $output;
        }
    )*};
}

commands! {
    /// Identity and limits of the device.
    QueryDevice: () => device::QueryDeviceOut;
    /// How many objects the device holds.
    QueryObjects: () => device::QueryObjectsOut;
    /// Sets the node description.
    SetNodeDescription: device::SetNodeDescription => ();
    /// Attributes of a port.
    QueryPort: port::PortIn => port::QueryPortOut;
    /// Changes a port.
    ModifyPort: port::ModifyPort => ();
    /// Entry of a port's GID table.
    QueryGid: port::TableIn => port::QueryGidOut;
    /// Entry of a port's P_Key table.
    QueryPkey: port::TableIn => port::QueryPkeyOut;
    /// A MAD for the firmware's agents.
    ProcessMad: port::MadIn => port::MadOut;
    /// Counters of a port.
    QueryCounters: port::PortIn => port::QueryCountersOut;
    /// Makes an event queue.
    CreateEq: queue::CreateEq => cmd::NumberOut;
    /// Makes a completion queue.
    CreateCq: queue::CreateCq => cmd::NumberOut;
    /// Sets the moderation of a completion queue.
    ModifyCq: queue::ModifyCq => ();
    /// Destroys a completion queue.
    DestroyCq: cmd::NumberIn => ();
    /// Makes a protection domain.
    AllocPd: () => cmd::NumberOut;
    /// Destroys a protection domain.
    DeallocPd: cmd::NumberIn => ();
    /// Makes a memory region.
    CreateMr: mem::CreateMr => cmd::NumberOut;
    /// Destroys a memory region.
    DestroyMr: cmd::NumberIn => ();
    /// Makes a queue pair.
    CreateQp: qp::CreateQp => cmd::NumberOut;
    /// Changes a queue pair.
    ModifyQp: qp::ModifyQp => ();
    /// Attributes of a queue pair.
    QueryQp: cmd::NumberIn => qp::QueryQpOut;
    /// Destroys a queue pair.
    DestroyQp: cmd::NumberIn => ();
    /// Makes an address handle.
    CreateAh: qp::CreateAh => cmd::NumberOut;
    /// Destroys an address handle.
    DestroyAh: cmd::NumberIn => ();
    /// Attaches a queue pair to a multicast group.
    AttachMulticast: qp::Multicast => ();
    /// Detaches a queue pair from a multicast group.
    DetachMulticast: qp::Multicast => ();
}

/// Whether the caller of a command may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Process context.
    Sleep,
    /// Any context: the processor polls.
    Poll,
}

/// Why a command has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The device has refused it.
    Refused {
        /// The answer, [`cmd::Status`] where it is one that the contract knows.
        status: u8,
        /// Offset in the input of the field that was refused, 255 for any beyond.
        bad_field: u8,
    },
    /// The device does not answer any more.
    Dead,
    /// The device did not answer in time; the caller has to declare it dead.
    TimedOut,
    /// The answer is not as long as it should be.
    ShortOutput {
        /// Bytes of the answer.
        written: u32,
    },
    /// There is no room for one more command, and the caller must not sleep.
    Busy,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { status, .. } => match cmd::Status::from_raw(status) {
                Some(cmd::Status::BadOpcode) => EOPNOTSUPP,
                Some(cmd::Status::BadParameter) => EINVAL,
                Some(cmd::Status::NoSuchObject) => EINVAL,
                Some(cmd::Status::Busy) => EBUSY,
                Some(cmd::Status::NoResources) => ENOMEM,
                Some(cmd::Status::BadState) => EINVAL,
                Some(cmd::Status::DmaError) => EFAULT,
                _ => EIO,
            },
            Failure::Dead | Failure::TimedOut | Failure::ShortOutput { .. } => EIO,
            Failure::Busy => EBUSY,
        }
    }
}

impl CommandQueue {
    /// Runs a command and gives its output.
    pub(crate) fn execute<C: Command>(
        &self,
        regs: &Regs,
        input: C::Input,
        wait: Wait,
    ) -> Result<C::Output, Failure> {
        const {
            assert!(size_of::<C::Input>() <= ring::INPUT_BYTES);
            assert!(size_of::<C::Output>() <= ring::OUTPUT_BYTES);
        }

        let mut bytes = [0; ring::INPUT_BYTES];
        input.put(&mut bytes);
        let mut output = [0; ring::OUTPUT_BYTES];
        self.run(
            regs,
            C::OPCODE,
            &bytes[..size_of::<C::Input>()],
            &mut output[..size_of::<C::Output>()],
            wait,
        )?;
        Ok(C::Output::get(&output))
    }
}

/// Input of the commands that name one object.
pub(crate) fn number(number: u32) -> cmd::NumberIn {
    cmd::NumberIn {
        number,
        reserved: [0; 4],
    }
}
