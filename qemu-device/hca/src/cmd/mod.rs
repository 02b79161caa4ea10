// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands: the queue that they come in, their checks and what they do.
//!
//! A command changes nothing unless it succeeds.

mod device;
mod mem;
mod port;
mod qp;
mod queues;
mod ring;

use ochre_hw::cmd::{self as hw, Opcode, Status};
use ochre_hw::Field;
use ochre_link::Cable;

use crate::device::Device;
use crate::seams::Dma;

pub(crate) use ring::CommandQueue;

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("command refused: {status:?}, input byte {field}")]
pub struct CmdError {
    /// The status of the answer.
    pub status: Status,
    /// Byte of the input that was refused, at most 255.
    pub field: u8,
}

impl CmdError {
    /// `status`, for the field at byte `at` of the input.
    pub fn new(status: Status, at: usize) -> Self {
        CmdError {
            status,
            field: u8::try_from(at).unwrap_or(u8::MAX),
        }
    }

    /// A value that is not allowed, at byte `at` of the input.
    pub fn parameter(at: usize) -> Self {
        Self::new(Status::BadParameter, at)
    }

    /// No object with the number at byte `at` of the input.
    pub fn no_object(at: usize) -> Self {
        Self::new(Status::NoSuchObject, at)
    }

    /// The device has no room for one more.
    pub fn no_resources() -> Self {
        Self::new(Status::NoResources, 0)
    }

    /// The object named at byte `at` of the input is in use.
    pub fn busy(at: usize) -> Self {
        Self::new(Status::Busy, at)
    }
}

/// Most bytes of input or output of any command.
const MAX_LEN: usize = 272;

/// The bytes of a command's input or output.
pub(crate) type Bytes = [u8; MAX_LEN];

/// Refuses bytes that must be zero and are not; `at` is where they begin in the input.
fn must_be_zero(bytes: &[u8], at: usize) -> Result<(), CmdError> {
    match bytes.iter().position(|&b| b != 0) {
        Some(i) => Err(CmdError::parameter(at + i)),
        None => Ok(()),
    }
}

/// Bytes of input and output of each command.
const fn sizes(opcode: Opcode) -> (usize, usize) {
    use hw::{device, mem, port, qp, queue};
    const NUMBER: usize = hw::NumberIn::SIZE;
    match opcode {
        Opcode::QueryDevice => (0, device::QueryDeviceOut::SIZE),
        Opcode::QueryObjects => (0, device::QueryObjectsOut::SIZE),
        Opcode::SetNodeDescription => (device::SetNodeDescription::SIZE, 0),
        Opcode::QueryPort => (port::PortIn::SIZE, port::QueryPortOut::SIZE),
        Opcode::ModifyPort => (port::ModifyPort::SIZE, 0),
        Opcode::QueryGid => (port::TableIn::SIZE, port::QueryGidOut::SIZE),
        Opcode::QueryPkey => (port::TableIn::SIZE, port::QueryPkeyOut::SIZE),
        Opcode::ProcessMad => (port::MadIn::SIZE, port::MadOut::SIZE),
        Opcode::QueryCounters => (port::PortIn::SIZE, port::QueryCountersOut::SIZE),
        Opcode::CreateEq => (queue::CreateEq::SIZE, NUMBER),
        Opcode::CreateCq => (queue::CreateCq::SIZE, NUMBER),
        Opcode::ModifyCq => (queue::ModifyCq::SIZE, 0),
        Opcode::AllocPd => (0, NUMBER),
        Opcode::CreateMr => (mem::CreateMr::SIZE, NUMBER),
        Opcode::CreateQp => (qp::CreateQp::SIZE, NUMBER),
        Opcode::ModifyQp => (qp::ModifyQp::SIZE, 0),
        Opcode::QueryQp => (NUMBER, qp::QueryQpOut::SIZE),
        Opcode::CreateAh => (qp::CreateAh::SIZE, NUMBER),
        Opcode::AttachMulticast | Opcode::DetachMulticast => (qp::Multicast::SIZE, 0),
        Opcode::DestroyEq
        | Opcode::DestroyCq
        | Opcode::DeallocPd
        | Opcode::DestroyMr
        | Opcode::DestroyQp
        | Opcode::DestroyAh => (NUMBER, 0),
    }
}

/// The input structure at the start of `bytes`.
fn input<T: Field>(bytes: &Bytes) -> T {
    T::get(bytes)
}

/// A number of an object as the whole input.
fn number(bytes: &Bytes) -> Result<u32, CmdError> {
    let input: hw::NumberIn = input(bytes);
    must_be_zero(&input.reserved, 0x04)?;
    Ok(input.number)
}

/// A number of an object as the whole output.
fn number_out(number: u32, out: &mut Bytes) {
    hw::NumberOut {
        number,
        ..Default::default()
    }
    .put(out);
}

impl<D: Dma, C: Cable> Device<D, C> {
    /// Does one command: `bytes` are its input, `out` takes its output.
    fn execute(&mut self, opcode: Opcode, bytes: &Bytes, out: &mut Bytes) -> Result<(), CmdError> {
        match opcode {
            Opcode::QueryDevice => self.query_device().put(out),
            Opcode::QueryObjects => self.query_objects().put(out),
            Opcode::SetNodeDescription => self.set_node_description(&input(bytes)),
            Opcode::QueryPort => self.query_port(&input(bytes))?.put(out),
            Opcode::ModifyPort => self.modify_port(&input(bytes))?,
            Opcode::QueryGid => self.query_gid(&input(bytes))?.put(out),
            Opcode::QueryPkey => self.query_pkey(&input(bytes))?.put(out),
            Opcode::ProcessMad => self.process_mad(&input(bytes))?.put(out),
            Opcode::QueryCounters => self.query_counters(&input(bytes))?.put(out),
            Opcode::CreateEq => number_out(self.create_eq(&input(bytes))?, out),
            Opcode::DestroyEq => self.destroy_eq(number(bytes)?)?,
            Opcode::CreateCq => number_out(self.create_cq(&input(bytes))?, out),
            Opcode::ModifyCq => self.modify_cq(&input(bytes))?,
            Opcode::DestroyCq => self.destroy_cq(number(bytes)?)?,
            Opcode::AllocPd => number_out(self.alloc_pd()?, out),
            Opcode::DeallocPd => self.dealloc_pd(number(bytes)?)?,
            Opcode::CreateMr => number_out(self.create_mr(&input(bytes))?, out),
            Opcode::DestroyMr => self.destroy_mr(number(bytes)?)?,
            Opcode::CreateQp => number_out(self.create_qp(&input(bytes))?, out),
            Opcode::ModifyQp => self.modify_qp(&input(bytes))?,
            Opcode::QueryQp => self.query_qp(number(bytes)?)?.put(out),
            Opcode::DestroyQp => self.destroy_qp(number(bytes)?)?,
            Opcode::CreateAh => number_out(self.create_ah(&input(bytes))?, out),
            Opcode::DestroyAh => self.destroy_ah(number(bytes)?)?,
            Opcode::AttachMulticast => self.attach_multicast(&input(bytes))?,
            Opcode::DetachMulticast => self.detach_multicast(&input(bytes))?,
        }
        Ok(())
    }
}
