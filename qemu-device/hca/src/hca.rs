// SPDX-License-Identifier: GPL-2.0-or-later
//! The device as its embedder sees it.

use ochre_link::{Cable, Port};

use crate::config::Config;
use crate::ctx::Ctx;
use crate::port::PortContext;
use crate::qp::Qp;
use crate::seams::{Dma, Interrupts};
use crate::table::Table;
use crate::Time;

/// First QP number of an ordinary QP.
const FIRST_QP: u32 = 0x10;

/// How much one call may do, in packets: a doorbell must not hold the device's lock for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub u32);

/// The device.
pub struct Hca<D, I, C: Cable> {
    config: Config,
    ctx: Ctx<D>,
    qps: Table<Qp>,
    links: Vec<Port<C>>,
    interrupts: I,
}

impl<D: Dma, I: Interrupts, C: Cable> Hca<D, I, C> {
    /// A device with a port for each of `links` (1 or 2), after power-on.
    pub fn new(config: Config, dma: D, interrupts: I, links: Vec<Port<C>>) -> Self {
        let ports = (1..=links.len() as u8)
            .map(|n| {
                PortContext::new(
                    n,
                    config.port_guid(n),
                    config.pkeys.into(),
                    config.gids.into(),
                )
            })
            .collect();
        Hca {
            ctx: Ctx::new(dma, config.limits, ports),
            qps: Table::new(FIRST_QP, config.limits.qps),
            links,
            interrupts,
            config,
        }
    }

    /// Reset, as by FLR or `CONTROL_RESET`: every object is gone. The links train anew.
    pub fn reset(&mut self, now: Time) {
        self.ctx.now = now;
    }

    /// A read of `size` bytes (4 or 8) at `offset` of the register BAR.
    pub fn reg_read(&mut self, now: Time, offset: u64, size: u32) -> u64 {
        let _ = (offset, size);
        self.ctx.now = now;
        0
    }

    /// A write to the register BAR. Gives whether there is more to do: [`Hca::poll`] soon.
    pub fn reg_write(&mut self, now: Time, offset: u64, size: u32, value: u64) -> bool {
        let _ = (offset, size, value);
        self.ctx.now = now;
        false
    }

    /// A 32-bit write to the doorbell BAR. Gives whether there is more to do: [`Hca::poll`] soon.
    pub fn doorbell(&mut self, now: Time, offset: u64, value: u32) -> bool {
        let _ = (offset, value);
        self.ctx.now = now;
        false
    }

    /// Receives and sends, at most `budget`: whether there is more to do at once. Where not, the
    /// embedder may sleep until [`Hca::next_deadline`], after [`Port::arm`] of each port.
    pub fn poll(&mut self, now: Time, budget: Budget) -> bool {
        let _ = budget;
        self.ctx.now = now;
        false
    }

    /// When [`Hca::poll`] has to be called even if nothing happens.
    pub fn next_deadline(&self) -> Option<Time> {
        self.ctx.sched.next_deadline()
    }

    /// Before sleeping: `false` if there is something to do; else the cables will wake this end.
    pub fn arm(&mut self) -> bool {
        self.links.iter_mut().all(Port::arm)
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.links.len()
    }

    /// The link of a port, from 1.
    pub fn link(&self, port: usize) -> Option<&Port<C>> {
        self.links.get(port.checked_sub(1)?)
    }

    /// The same to change.
    pub fn link_mut(&mut self, port: usize) -> Option<&mut Port<C>> {
        self.links.get_mut(port.checked_sub(1)?)
    }

    /// The interrupts collected.
    pub fn interrupts_mut(&mut self) -> &mut I {
        &mut self.interrupts
    }

    /// Guest memory.
    pub fn dma(&self) -> &D {
        &self.ctx.dma
    }

    /// How the device was made.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
