// SPDX-License-Identifier: GPL-2.0-or-later

//! The QEMU device of the Ochre HCA: what is between QEMU and the firmware.
//!
//! QEMU's side is C (`overlay/hw/ochre`): a PCI Express endpoint, its properties, and a listener that
//! knows where guest memory is mapped. This crate is linked into QEMU as a static library. It owns the
//! firmware, its lock and its service thread, and gives it memory, interrupts, cables and time.

pub mod abi;
mod busy;
pub mod cable;
pub mod config;
pub mod device;
pub mod ram;
pub mod wake;
