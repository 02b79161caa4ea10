// SPDX-License-Identifier: GPL-2.0-or-later
//! The firmware of the Ochre HCA.
//!
//! An engine without threads, clock or I/O: the embedder passes in time, register accesses and
//! doorbells, and reaches memory, interrupts and the link through the traits of [`seams`].
//!
//! - [`Hca`]: the whole device.
//! - [`cmd`], [`regs`]: the command queue and the registers.
//! - [`ctx`]: what engines share. [`mem`], [`cq`], [`eq`], [`wq`], [`table`], [`sched`]: its parts.
//! - [`qp`], [`requester`], [`responder`]: QPs, and the engines of RC and UC. [`ud`]: that of UD and
//!   the special QPs.
//! - [`mgmt`]: the firmware's own management agents.
//! - [`memory`]: memory for tests and simulations.

#![forbid(unsafe_code)]

pub mod ah;
pub mod cmd;
pub mod config;
pub mod cq;
pub mod ctx;
pub mod eq;
mod hca;
pub mod mcast;
pub mod mem;
pub mod memory;
pub mod mgmt;
pub mod port;
pub mod qp;
pub mod requester;
pub mod responder;
pub mod sched;
pub mod seams;
pub mod table;
pub mod ud;
pub mod wq;

pub use config::{Config, Limits};
pub use ctx::Ctx;
pub use hca::{Budget, Hca};
pub use ochre_link::Time;
pub use seams::{Dma, DmaError, Interrupts, SendError, Transmit};
