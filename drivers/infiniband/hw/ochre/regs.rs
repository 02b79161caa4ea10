// SPDX-License-Identifier: GPL-2.0-or-later

//! The device's registers.

use crate::hw::{
    pci as hw_pci,
    regs, //
};
use kernel::{
    device::Bound,
    io::Io,
    pci::{
        self,
        DevresBar, //
    },
    prelude::*, //
};

/// Size of the register BAR, bytes.
const SIZE: usize = hw_pci::BAR_REGS_SIZE as usize;

/// The register BAR. Once the device is unbound, reads give ones and writes do nothing, as where a
/// device is no longer on the bus.
pub(crate) struct Regs {
    bar: DevresBar<SIZE>,
}

/// What the device says of itself in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// Minor version of the interface.
    pub(crate) interface_minor: u16,
    /// Doorbell pages.
    pub(crate) doorbell_pages: u32,
}

impl Regs {
    /// Maps the registers.
    pub(crate) fn new(pdev: &pci::Device<Bound>) -> Result<Self> {
        let bar = pdev.iomap_region_sized::<SIZE>(hw_pci::BAR_REGS.into(), c"ochre registers")?;

        Ok(Self {
            bar: bar.into_devres()?,
        })
    }

    fn read(&self, register: u64) -> u32 {
        self.bar
            .try_access()
            .and_then(|bar| bar.try_read32(register as usize).ok())
            .unwrap_or(u32::MAX)
    }

    fn write(&self, register: u64, value: u32) {
        if let Some(bar) = self.bar.try_access() {
            // Every register lies in the BAR.
            let _ = bar.try_write32(value, register as usize);
        }
    }

    /// Makes sure that the device is one that this driver knows; says so where it is not.
    pub(crate) fn identify(&self, pdev: &pci::Device<Bound>) -> Result<Identity> {
        let magic = self.read(regs::MAGIC);
        if magic != regs::MAGIC_VALUE {
            dev_err!(
                pdev,
                "not an Ochre HCA: its magic register reads {magic:#010x}, not {:#010x}\n",
                regs::MAGIC_VALUE
            );
            return Err(ENODEV);
        }

        let version = self.read(regs::INTERFACE_VERSION);
        let (major, minor) = ((version >> 16) as u16, version as u16);
        if major != regs::INTERFACE_MAJOR {
            dev_err!(
                pdev,
                "the device speaks interface {major}.{minor}, this driver {}.{}: {} is too old\n",
                regs::INTERFACE_MAJOR,
                regs::INTERFACE_MINOR,
                if major > regs::INTERFACE_MAJOR {
                    "the driver"
                } else {
                    "the device"
                }
            );
            return Err(ENODEV);
        }

        Ok(Identity {
            interface_minor: minor,
            doorbell_pages: self.read(regs::NUM_DOORBELL_PAGES),
        })
    }

    /// Resets the device: every object is gone, and it touches no memory any more.
    pub(crate) fn reset(&self) {
        self.write(regs::CONTROL, regs::CONTROL_RESET);
    }

    /// Starts the command queue at a DMA address.
    pub(crate) fn enable(&self, queue: u64, log_slots: u32) {
        self.write(regs::CMDQ_BASE, queue as u32);
        self.write(regs::CMDQ_BASE + 4, (queue >> 32) as u32);
        self.write(regs::CMDQ_LOG_SLOTS, log_slots);
        self.write(regs::CONTROL, regs::CONTROL_ENABLE);
    }

    /// Whether the device takes commands. A device that has stopped, was reset behind the driver's
    /// back or is no longer there does not.
    pub(crate) fn is_ready(&self) -> bool {
        self.read(regs::STATUS) & (regs::STATUS_READY | regs::STATUS_FATAL) == regs::STATUS_READY
    }

    /// Why a device that is not ready is not.
    pub(crate) fn stop_reason(&self) -> StopReason {
        let status = self.read(regs::STATUS);

        if status == u32::MAX {
            StopReason::Gone
        } else if status & regs::STATUS_FATAL != 0 {
            let reason = self.read(regs::FATAL_REASON);
            match regs::FatalReason::from_raw(reason) {
                Some(reason) => StopReason::Fatal(reason),
                None => StopReason::Unknown(reason),
            }
        } else if status & regs::STATUS_READY == 0 {
            StopReason::Reset
        } else {
            StopReason::NoAnswer
        }
    }

    /// Makes the device look at the command queue.
    pub(crate) fn ring_commands(&self) {
        self.write(regs::CMDQ_DOORBELL, 1);
    }
}

/// Why a device counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// It is not on the bus any more.
    Gone,
    /// It has stopped itself.
    Fatal(regs::FatalReason),
    /// It has stopped itself, for a reason that this driver does not know.
    Unknown(u32),
    /// Somebody has reset it.
    Reset,
    /// It runs, but did not answer a command, or refused one that cannot be refused.
    NoAnswer,
}

impl kernel::fmt::Display for StopReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Gone => f.write_str("it is no longer on the bus"),
            Self::Fatal(reason) => write!(f, "it has stopped itself ({reason:?})"),
            Self::Unknown(reason) => write!(f, "it has stopped itself (reason {reason})"),
            Self::Reset => f.write_str("it was reset"),
            Self::NoAnswer => f.write_str("it does not do what it is told"),
        }
    }
}
