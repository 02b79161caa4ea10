// SPDX-License-Identifier: GPL-2.0-or-later
//! The command queue in the guest's memory.

use core::mem::offset_of;

use ochre_hw::cmd::{CmdSlot, Opcode, Status, OWNER_DEVICE, OWNER_DRIVER, SLOT_EVENT};
use ochre_hw::eqe::EventType;
use ochre_hw::queue::CmdRecord;
use ochre_hw::regs::FatalReason;
use ochre_link::Cable;

use super::{sizes, Bytes, CmdError, MAX_LEN};
use crate::device::Device;
use crate::seams::{Dma, DmaError};

/// Where the device writes in a slot: its last 8 bytes.
const ANSWER: u64 = offset_of!(CmdSlot, out_written) as u64;

/// The command queue.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    base: u64,
    log_slots: u32,
    next: u32,
}

impl CommandQueue {
    /// A queue of 2^`log_slots` slots at `base`.
    pub(crate) fn new(base: u64, log_slots: u32) -> Self {
        CommandQueue {
            base,
            log_slots,
            next: 0,
        }
    }

    /// Bytes that a queue of this size takes.
    pub(crate) fn bytes(log_slots: u32) -> u64 {
        CmdRecord::SIZE as u64 + ((CmdSlot::SIZE as u64) << log_slots)
    }

    /// Slots filled and not taken.
    fn pending<D: Dma>(&self, dma: &D) -> Result<u32, FatalReason> {
        let producer = dma
            .load_u32(self.base)
            .map_err(|_| FatalReason::CommandQueueDma)?;
        let pending = producer.wrapping_sub(self.next);
        if pending > 1 << self.log_slots {
            return Err(FatalReason::CommandQueueOverrun);
        }
        Ok(pending)
    }

    /// Address of the next slot, which is taken.
    fn take(&mut self) -> u64 {
        let slot = u64::from(self.next & ((1 << self.log_slots) - 1));
        self.next = self.next.wrapping_add(1);
        self.base + CmdRecord::SIZE as u64 + slot * CmdSlot::SIZE as u64
    }
}

impl<D: Dma, C: Cable> Device<D, C> {
    /// Takes the commands that the driver has put into its queue.
    pub(crate) fn run_commands(&mut self) {
        // As many as the queue holds; the driver rings again for others.
        let mut left = match &self.commands {
            Some(queue) if self.ctx.fatal.is_none() => 1u32 << queue.log_slots,
            _ => return,
        };
        while left > 0 && self.ctx.fatal.is_none() {
            let Some(queue) = &mut self.commands else {
                return;
            };
            let pending = match queue.pending(&self.ctx.dma) {
                Ok(0) => return,
                Ok(pending) => pending.min(left),
                Err(reason) => return self.ctx.stop(reason),
            };
            let slots: Vec<u64> = (0..pending).map(|_| queue.take()).collect();
            for slot in slots {
                if self.command(slot).is_err() {
                    return self.ctx.stop(FatalReason::CommandQueueDma);
                }
            }
            left -= pending;
        }
    }

    /// Does the command in the slot at `addr` and answers there.
    fn command(&mut self, addr: u64) -> Result<(), DmaError> {
        let mut bytes = [0; CmdSlot::SIZE];
        self.ctx.dma.read(addr, &mut bytes)?;
        let slot = CmdSlot::from_bytes(&bytes);
        let (status, field, written) = match self.answer(&slot) {
            Ok(written) => (Status::Ok, 0, written),
            Err(error) => (error.status, error.field, 0),
        };
        let done = CmdSlot {
            out_written: written as u32,
            status: status.raw(),
            bad_field: field,
            owner: OWNER_DRIVER,
            ..slot
        };
        let bytes = done.to_bytes();
        self.ctx
            .dma
            .publish(addr + ANSWER, &bytes[ANSWER as usize..])?;
        if slot.flags & SLOT_EVENT != 0 {
            self.ctx.event(EventType::CommandDone, 0, slot.token);
        }
        Ok(())
    }

    /// Checks the slot, fetches the input, does the command and writes the output; gives its length.
    fn answer(&mut self, slot: &CmdSlot) -> Result<usize, CmdError> {
        // What is wrong with the slot itself is not in the input.
        let bad_slot = CmdError::parameter(MAX_LEN);
        if slot.owner != OWNER_DEVICE
            || slot.flags & !SLOT_EVENT != 0
            || slot.reserved0 != [0; 24]
            || slot.reserved1 != 0
        {
            return Err(bad_slot);
        }
        let opcode = Opcode::from_raw(slot.opcode).ok_or(CmdError::new(Status::BadOpcode, 0))?;
        let (in_len, out_len) = sizes(opcode);
        if slot.in_len as usize != in_len || (slot.out_len as usize) < out_len {
            return Err(CmdError::new(Status::BadLength, 0));
        }
        let dma_error = |_| CmdError::new(Status::DmaError, 0);
        let mut input: Bytes = [0; MAX_LEN];
        let mut output: Bytes = [0; MAX_LEN];
        if in_len > 0 {
            self.ctx
                .dma
                .read(slot.in_addr, &mut input[..in_len])
                .map_err(dma_error)?;
        }
        // Before anything changes, the place of the output has to be known as good.
        if out_len > 0 {
            self.ctx
                .dma
                .write(slot.out_addr, &output[..out_len])
                .map_err(dma_error)?;
        }
        self.execute(opcode, &input, &mut output)?;
        if out_len > 0 {
            self.ctx
                .dma
                .write(slot.out_addr, &output[..out_len])
                .map_err(dma_error)?;
        }
        Ok(out_len)
    }
}
