// SPDX-License-Identifier: GPL-2.0-or-later
//! The firmware of the Ochre HCA.
//!
//! An engine without threads, clock or I/O: the embedder passes in time, register accesses and
//! doorbells, and reaches memory, interrupts and the link through the traits of [`seams`].
//!
//! - [`Hca`]: the whole device.
//! - [`cmd`]: the command queue and its commands.
//! - [`ctx`]: what engines share. [`mem`], [`cq`], [`eq`], [`wq`], [`table`], [`sched`]: its parts.
//! - [`qp`], [`requester`], [`responder`]: QPs, and the engines of RC and UC. [`ud`]: that of UD and
//!   the special QPs.
//! - [`mgmt`]: the firmware's own management agents.
//! - [`memory`]: memory for tests and simulations.

#![forbid(unsafe_code)]

pub mod ah;
#[cfg(test)]
mod bed;
pub mod cmd;
pub mod config;
pub mod cq;
pub mod ctx;
mod device;
mod dispatch;
pub mod eq;
mod hca;
mod link;
pub mod mcast;
pub mod mem;
pub mod memory;
pub mod mgmt;
pub mod port;
pub mod qp;
mod regs;
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
