// SPDX-License-Identifier: GPL-2.0-or-later
//! Event queues.

use core::mem::offset_of;

use ochre_hw::eqe::{Eqe, EQE_PHASE};
use ochre_hw::queue::EqRecord;
use ochre_hw::regs::FatalReason;

use crate::mem::QueueMem;
use crate::seams::Dma;

/// Offsets of the words of an [`EqRecord`].
const CONSUMER: u64 = offset_of!(EqRecord, consumer) as u64;
const ARM: u64 = offset_of!(EqRecord, arm) as u64;

/// An event queue.
#[derive(Debug)]
pub struct Eq {
    mem: QueueMem,
    log_entries: u8,
    producer: u32,
    /// The consumer index as last read.
    consumer: u32,
    /// The value of the arm word that has had its interrupt.
    arm_seen: u32,
    /// MSI-X vector.
    pub vector: u16,
    /// CQs with events in this queue.
    pub cqs: u32,
    /// Noted for [`Eq::check_arm`] at the end of the burst.
    pub noted: bool,
}

impl Eq {
    /// A queue of 2^`log_entries` entries in `mem`.
    pub fn new(mem: QueueMem, log_entries: u8, vector: u16) -> Self {
        Eq {
            mem,
            log_entries,
            producer: 0,
            consumer: 0,
            arm_seen: 0,
            vector,
            cqs: 0,
            noted: false,
        }
    }

    /// Bytes that a queue of this size takes.
    pub fn bytes(log_entries: u8) -> u64 {
        EqRecord::SIZE as u64 + ((Eqe::SIZE as u64) << log_entries)
    }

    /// Writes an event; the phase is filled in.
    pub fn push<D: Dma>(&mut self, dma: &D, mut eqe: Eqe) -> Result<(), FatalReason> {
        let size = 1u32 << self.log_entries;
        if self.producer.wrapping_sub(self.consumer) >= size {
            self.consumer = self.load_consumer(dma)?;
            if self.producer.wrapping_sub(self.consumer) >= size {
                return Err(FatalReason::EventQueueOverrun);
            }
        }
        let pass = self.producer >> self.log_entries;
        eqe.owner = if pass & 1 == 0 { EQE_PHASE } else { 0 };
        let slot = u64::from(self.producer & (size - 1));
        let offset = EqRecord::SIZE as u64 + slot * Eqe::SIZE as u64;
        self.mem
            .publish(dma, offset, &eqe.to_bytes())
            .map_err(|_| FatalReason::EventQueueDma)?;
        self.producer = self.producer.wrapping_add(1);
        Ok(())
    }

    /// Whether there is room for an event that can wait. A quarter of the queue is kept for the others:
    /// those of ports and commands.
    pub fn has_room<D: Dma>(&mut self, dma: &D) -> Result<bool, FatalReason> {
        let most = (1u32 << self.log_entries) - (1u32 << self.log_entries) / 4;
        if self.producer.wrapping_sub(self.consumer) >= most {
            self.consumer = self.load_consumer(dma)?;
        }
        Ok(self.producer.wrapping_sub(self.consumer) < most)
    }

    fn load_consumer<D: Dma>(&self, dma: &D) -> Result<u32, FatalReason> {
        self.mem
            .load_u32(dma, CONSUMER)
            .map_err(|_| FatalReason::EventQueueDma)
    }

    /// Looks whether the queue is armed after an event was written: whether its interrupt is due.
    /// The caller has done a full barrier after the last write.
    pub fn check_arm<D: Dma>(&mut self, dma: &D) -> Result<bool, FatalReason> {
        let arm = self
            .mem
            .load_u32(dma, ARM)
            .map_err(|_| FatalReason::EventQueueDma)?;
        if arm == self.arm_seen {
            return Ok(false);
        }
        self.arm_seen = arm;
        Ok(true)
    }
}
