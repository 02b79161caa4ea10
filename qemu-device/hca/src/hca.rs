// SPDX-License-Identifier: GPL-2.0-or-later
//! The device as its embedder sees it.

use ochre_hw::cmd::device::QueryObjectsOut;
use ochre_hw::cmd::port::Counter;
use ochre_link::{Cable, Port};

use crate::config::Config;
use crate::device::Device;
use crate::regs::Registers;
use crate::seams::{Dma, Interrupts};
use crate::Time;

/// How much one call may do, in packets: a doorbell must not hold the device's lock for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub u32);

impl Budget {
    /// For a doorbell or a register write, which a virtual CPU waits for.
    pub const DOORBELL: Budget = Budget(64);
    /// For a round of a thread that does nothing else.
    pub const POLL: Budget = Budget(128);
}

/// The device.
///
/// The embedder passes register accesses and doorbells in as they come, calls [`Hca::poll`] when
/// the cable or a deadline wants it, and delivers interrupts after each call.
pub struct Hca<D, I, C: Cable> {
    device: Device<D, C>,
    registers: Registers,
    interrupts: I,
}

impl<D: Dma, I: Interrupts, C: Cable> Hca<D, I, C> {
    /// A device with a port for each of `links` (1 or 2), after power-on.
    pub fn new(config: Config, dma: D, interrupts: I, links: Vec<Port<C>>) -> Self {
        Hca {
            device: Device::new(config, dma, links),
            registers: Registers::default(),
            interrupts,
        }
    }

    /// Reset, as by FLR or `CONTROL_RESET`: every object is gone. The links train anew.
    pub fn reset(&mut self, now: Time) {
        self.device.ctx.now = now;
        self.registers = Registers::default();
        self.device.reset();
    }

    /// A read of `size` bytes (4 or 8) at `offset` of the register BAR.
    pub fn reg_read(&mut self, now: Time, offset: u64, size: u32) -> u64 {
        self.device.ctx.now = now;
        self.registers.read(&self.device, offset, size)
    }

    /// A write to the register BAR. Gives whether there is more to do: [`Hca::poll`] soon.
    pub fn reg_write(&mut self, now: Time, offset: u64, size: u32, value: u64) -> bool {
        self.device.ctx.now = now;
        self.registers.write(&mut self.device, offset, size, value);
        let more = self.device.run(Budget::DOORBELL.0);
        self.raise();
        more
    }

    /// A 32-bit write to the doorbell BAR. Gives whether there is more to do: [`Hca::poll`] soon.
    pub fn doorbell(&mut self, now: Time, offset: u64, value: u32) -> bool {
        self.device.ctx.now = now;
        self.device.doorbell(offset, value);
        let more = self.device.run(Budget::DOORBELL.0);
        self.raise();
        more
    }

    /// Receives and sends, at most `budget`: whether there is more to do at once. Where not, the
    /// embedder may sleep until [`Hca::next_deadline`], after [`Hca::arm`].
    pub fn poll(&mut self, now: Time, budget: Budget) -> bool {
        self.device.ctx.now = now;
        let more = self.device.run(budget.0.max(1));
        self.raise();
        more
    }

    /// When [`Hca::poll`] has to be called even if nothing happens.
    pub fn next_deadline(&self) -> Option<Time> {
        self.device.next_deadline()
    }

    /// Before sleeping: `false` if there is something to do; else the cables will wake this end.
    pub fn arm(&mut self) -> bool {
        let mut sleep = true;
        for link in &mut self.device.links {
            sleep &= link.arm();
        }
        sleep
    }

    /// Takes [`Hca::arm`] back: the embedder calls [`Hca::poll`] again and again, and need not be woken.
    pub fn disarm(&mut self) {
        for link in &mut self.device.links {
            link.disarm();
        }
    }

    /// The machine stands still, or goes on. While it stands still the device leaves its memory alone;
    /// its links stay up, the agents of the firmware answer on lane 15, and all other packets wait in the
    /// receive buffers without returning credits. [`Hca::poll`] when it goes on.
    pub fn set_paused(&mut self, now: Time, paused: bool) {
        self.device.ctx.now = now;
        self.device.set_paused(paused);
    }

    /// How many objects of each kind there are now.
    pub fn objects(&self) -> QueryObjectsOut {
        self.device.query_objects()
    }

    fn raise(&mut self) {
        let mut due = core::mem::take(&mut self.device.ctx.vectors_due);
        while due != 0 {
            self.device.ctx.count(1, Counter::Interrupts);
            self.interrupts.raise(due.trailing_zeros() as u16);
            due &= due - 1;
        }
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.device.links.len()
    }

    /// The link of a port, from 1.
    pub fn link(&self, port: usize) -> Option<&Port<C>> {
        self.device.links.get(port.checked_sub(1)?)
    }

    /// The same to change.
    pub fn link_mut(&mut self, port: usize) -> Option<&mut Port<C>> {
        self.device.links.get_mut(port.checked_sub(1)?)
    }

    /// The interrupts collected.
    pub fn interrupts_mut(&mut self) -> &mut I {
        &mut self.interrupts
    }

    /// Guest memory.
    pub fn dma(&self) -> &D {
        &self.device.ctx.dma
    }

    /// How the device was made.
    pub fn config(&self) -> &Config {
        &self.device.config
    }
}
