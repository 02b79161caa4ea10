// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands on event queues and completion queues.

use std::time::Duration;

use ochre_hw::cmd::queue::{CreateCq, CreateEq, ModifyCq, ASYNC_EQ, MAX_LOG_CQE, MAX_LOG_EQE};
use ochre_hw::queue::MemDesc;
use ochre_link::Cable;

use super::{must_be_zero, CmdError};
use crate::cq::Cq;
use crate::device::Device;
use crate::eq::Eq;
use crate::mem::{PageList, QueueMem};
use crate::seams::Dma;

impl<D: Dma, C: Cable> Device<D, C> {
    /// The memory of a queue that takes `bytes`; the descriptor is at byte 0 of the input.
    fn queue_mem(&self, desc: &MemDesc, bytes: u64) -> Result<QueueMem, CmdError> {
        let mem = QueueMem::new(PageList::load(&self.ctx.dma, desc, 0x00, &self.ctx.pages)?);
        if mem.len() < bytes {
            return Err(CmdError::parameter(0x08));
        }
        Ok(mem)
    }

    pub(super) fn create_eq(&mut self, input: &CreateEq) -> Result<u32, CmdError> {
        if input.vector >= self.config.vectors {
            return Err(CmdError::parameter(0x10));
        }
        if input.log_entries > MAX_LOG_EQE {
            return Err(CmdError::parameter(0x12));
        }
        must_be_zero(&input.reserved, 0x13)?;
        // The async queue is the first of all.
        if self.ctx.eqs.get(ASYNC_EQ).is_none() && !self.ctx.eqs.is_empty() {
            return Err(CmdError::no_resources());
        }
        let mem = self.queue_mem(&input.mem, Eq::bytes(input.log_entries))?;
        let eq = Eq::new(mem, input.log_entries, input.vector);
        let number = self
            .ctx
            .eqs
            .insert(eq)
            .map_err(|_| CmdError::no_resources())?;
        Ok(number)
    }

    pub(super) fn destroy_eq(&mut self, number: u32) -> Result<(), CmdError> {
        let eq = self.ctx.eqs.get(number).ok_or(CmdError::no_object(0))?;
        if eq.cqs > 0 || (number == ASYNC_EQ && self.ctx.eqs.len() > 1) {
            return Err(CmdError::busy(0));
        }
        self.ctx.eqs.remove(number);
        if self.ctx.eqs.is_empty() {
            // The next to be created is the async queue again.
            self.ctx.restart_eqs();
        }
        Ok(())
    }

    pub(super) fn create_cq(&mut self, input: &CreateCq) -> Result<u32, CmdError> {
        if self.ctx.eqs.get(input.eq).is_none() {
            return Err(CmdError::no_object(0x10));
        }
        if input.log_entries > MAX_LOG_CQE {
            return Err(CmdError::parameter(0x14));
        }
        must_be_zero(&input.reserved, 0x15)?;
        let mem = self.queue_mem(&input.mem, Cq::bytes(input.log_entries))?;
        let cq = Cq::new(mem, input.log_entries, input.eq);
        let number = self
            .ctx
            .cqs
            .insert(cq)
            .map_err(|_| CmdError::no_resources())?;
        if let Some(eq) = self.ctx.eqs.get_mut(input.eq) {
            eq.cqs += 1;
        }
        Ok(number)
    }

    pub(super) fn modify_cq(&mut self, input: &ModifyCq) -> Result<(), CmdError> {
        must_be_zero(&input.reserved, 0x08)?;
        let cq = self
            .ctx
            .cqs
            .get_mut(input.cq)
            .ok_or(CmdError::no_object(0x00))?;
        cq.set_moderation(input.count, Duration::from_micros(input.period.into()));
        self.ctx.look_at_cq(input.cq);
        Ok(())
    }

    pub(super) fn destroy_cq(&mut self, number: u32) -> Result<(), CmdError> {
        let cq = self.ctx.cqs.get(number).ok_or(CmdError::no_object(0))?;
        if !cq.qps.is_empty() {
            return Err(CmdError::busy(0));
        }
        let eq = cq.eq;
        self.ctx.forget_cq(number);
        if let Some(eq) = self.ctx.eqs.get_mut(eq) {
            eq.cqs -= 1;
        }
        Ok(())
    }
}
