// SPDX-License-Identifier: GPL-2.0-or-later
//! InfiniBand ports and the cables between them.
//!
//! A [`Cable`] carries frames between two ports; a [`Port`] on top of it is the link layer: physical
//! and logical states, training, virtual lanes, credits, arbitration, counters and capture. Both are
//! engines without a thread, a clock or a blocking call: time comes in as [`Time`], the embedder polls.
//!
//! - [`port`]: the link layer, from `tx_begin`/`rx` down to the frames of a cable.
//! - [`cable`]: what a port asks of the thing below it.
//! - [`mem`]: a cable inside one process with latency and seeded faults, for simulation.
//! - [`shm`]: a cable between two processes, in shared memory.
//! - [`fault`]: rules that drop, repeat, delay and damage packets on demand.
//! - [`capture`]: the tap that writes packets to a file.
//!
//! # Use
//!
//! One round of the embedder: `port.poll(now)`; handle `port.poll_event()`; for each `port.rx()` work
//! on `port.rx_bytes()` and call `port.rx_done()`; send with `port.tx_begin()` and `port.tx_commit()`;
//! then `port.flush()`. Before it sleeps it calls `port.arm()` and sleeps only on `true`, until
//! `port.next_deadline()` or until a descriptor of the cable is readable.

#![deny(unsafe_code)]

pub mod arbiter;
pub mod cable;
pub mod capture;
pub mod counters;
pub mod credit;
mod drain;
pub mod fault;
pub mod mem;
pub mod port;
pub mod rate;
mod record;
mod ring;
pub mod shm;
pub mod state;
pub mod time;
pub mod training;

pub use arbiter::VlArbitration;
pub use cable::{Cable, CableError, Frame, Presence, Wake};
pub use capture::{Capture, Tap};
pub use counters::Counters;
pub use fault::{ParseError, Report, RuleSet};
pub use mem::{Faults, MemCable, MemConfig};
pub use port::{Port, PortConfig, PortEvent, Role, RxPacket, Seal, TxStall};
pub use rate::{Speeds, Widths};
pub use shm::{ShmCable, ShmConfig, ShmError};
pub use state::{PhysState, PortState, StateError};
pub use time::Time;
