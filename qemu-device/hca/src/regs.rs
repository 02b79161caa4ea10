// SPDX-License-Identifier: GPL-2.0-or-later
//! The registers of BAR 0.

use ochre_hw::regs::{
    FatalReason, CLOCK, CMDQ_BASE, CMDQ_DOORBELL, CMDQ_LOG_SLOTS, CMDQ_MAX_LOG_SLOTS, CONTROL,
    CONTROL_ENABLE, CONTROL_RESET, FATAL_REASON, FIRMWARE_VERSION, INTERFACE_MAJOR,
    INTERFACE_MINOR, INTERFACE_VERSION, MAGIC, MAGIC_VALUE, NUM_DOORBELL_PAGES, NUM_PORTS,
    NUM_VECTORS, STATUS, STATUS_FATAL, STATUS_READY,
};
use ochre_link::Cable;

use crate::cmd::CommandQueue;
use crate::device::Device;
use crate::seams::Dma;

/// Version of the firmware: major in bits 47:32, minor in 31:16, patch in 15:0.
pub(crate) const VERSION: u64 = 1 << 32;

/// Alignment of the command queue, bytes.
const CMDQ_ALIGN: u64 = 64;

/// What software has written to registers.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    cmdq_base: u64,
    cmdq_log_slots: u32,
}

impl Registers {
    /// A read of `size` bytes; other accesses than the registers allow give zero.
    pub(crate) fn read<D: Dma, C: Cable>(
        &self,
        device: &Device<D, C>,
        offset: u64,
        size: u32,
    ) -> u64 {
        match size {
            4 if offset % 4 == 0 => {
                let whole = self.value(device, offset & !7);
                match self.value32(device, offset) {
                    Some(value) => u64::from(value),
                    None if offset % 8 == 0 => u64::from(whole.unwrap_or(0) as u32),
                    None => whole.unwrap_or(0) >> 32,
                }
            }
            8 if offset % 8 == 0 => self.value(device, offset).unwrap_or(0),
            _ => 0,
        }
    }

    /// The 64-bit registers.
    fn value<D: Dma, C: Cable>(&self, device: &Device<D, C>, offset: u64) -> Option<u64> {
        Some(match offset {
            FIRMWARE_VERSION => VERSION,
            CMDQ_BASE => self.cmdq_base,
            CLOCK => device.ctx.now.as_nanos(),
            _ => return None,
        })
    }

    /// The 32-bit registers.
    fn value32<D: Dma, C: Cable>(&self, device: &Device<D, C>, offset: u64) -> Option<u32> {
        let enabled = device.commands.is_some();
        let fatal = device.ctx.fatal;
        Some(match offset {
            MAGIC => MAGIC_VALUE,
            INTERFACE_VERSION => u32::from(INTERFACE_MAJOR) << 16 | u32::from(INTERFACE_MINOR),
            NUM_VECTORS => u32::from(device.config.vectors),
            NUM_DOORBELL_PAGES => device.config.doorbell_pages,
            NUM_PORTS => device.links.len() as u32,
            CONTROL if enabled => CONTROL_ENABLE,
            CONTROL => 0,
            STATUS => match (fatal, enabled) {
                (Some(_), _) => STATUS_FATAL,
                (None, true) => STATUS_READY,
                (None, false) => 0,
            },
            FATAL_REASON => fatal.map_or(0, FatalReason::raw),
            CMDQ_LOG_SLOTS => self.cmdq_log_slots,
            _ => return None,
        })
    }

    /// A write of `size` bytes; what the registers do not allow is ignored.
    pub(crate) fn write<D: Dma, C: Cable>(
        &mut self,
        device: &mut Device<D, C>,
        offset: u64,
        size: u32,
        value: u64,
    ) {
        let enabled = device.commands.is_some();
        match (offset, size) {
            (CONTROL, 4) => self.control(device, value as u32),
            (CMDQ_BASE, 8) if !enabled => self.cmdq_base = value,
            (CMDQ_BASE, 4) if !enabled => {
                self.cmdq_base = self.cmdq_base & !0xffff_ffff | value & 0xffff_ffff;
            }
            (o, 4) if o == CMDQ_BASE + 4 && !enabled => {
                self.cmdq_base = self.cmdq_base & 0xffff_ffff | value << 32;
            }
            (CMDQ_LOG_SLOTS, 4) if !enabled => self.cmdq_log_slots = value as u32,
            (CMDQ_DOORBELL, 4) => device.run_commands(),
            _ => {}
        }
    }

    fn control<D: Dma, C: Cable>(&mut self, device: &mut Device<D, C>, value: u32) {
        if value & CONTROL_RESET != 0 {
            *self = Registers::default();
            device.reset();
            return;
        }
        let enabled = device.commands.is_some();
        match (enabled, value & CONTROL_ENABLE != 0) {
            (true, false) => device.reset(),
            (false, true) if device.ctx.fatal.is_none() => self.enable(device),
            _ => {}
        }
    }

    fn enable<D: Dma, C: Cable>(&self, device: &mut Device<D, C>) {
        let log = self.cmdq_log_slots;
        let bytes = CommandQueue::bytes(log.min(CMDQ_MAX_LOG_SLOTS));
        let fits = self.cmdq_base != 0
            && self.cmdq_base % CMDQ_ALIGN == 0
            && log <= CMDQ_MAX_LOG_SLOTS
            && self.cmdq_base.checked_add(bytes).is_some();
        if fits {
            device.commands = Some(CommandQueue::new(self.cmdq_base, log));
        } else {
            device.ctx.stop(FatalReason::BadCommandQueue);
        }
    }
}
