// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! The hardware/software contract of the Ochre HCA.
//!
//! The kernel driver, the libibverbs provider and the device's firmware all compile these files, so
//! that every register, command, queue entry and event is defined once. `include/README.md` is the
//! programmer's manual that goes with them.
//!
//! - Everything in memory and in registers is little-endian, except where a field says that it
//!   holds bytes as they travel on the wire.
//! - Every structure names its reserved bytes. Software writes zero there ("MBZ"); the device
//!   refuses a command whose reserved bytes are not zero, so that they can get a meaning later.
//! - Nothing here allocates, and nothing here is `unsafe`.
// As a module of the kernel driver this file is not the root of a crate.
#![cfg_attr(not(CONFIG_RUST), no_std)]
#![forbid(unsafe_code)]

#[macro_use]
mod layout;

pub mod cmd;
pub mod cqe;
pub mod doorbell;
pub mod eqe;
pub mod pci;
pub mod queue;
pub mod regs;
pub mod verbs;
pub mod wqe;

pub use layout::Field;
