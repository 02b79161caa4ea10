// SPDX-License-Identifier: GPL-2.0-or-later
//! InfiniBand packet and management datagram formats.
//!
//! Pure functions of bytes: no allocation, no I/O, no clock. Parsers accept any bytes and return an
//! error for what is malformed; builders write into the caller's slice.
//!
//! - [`packet`]: data packets from LRH to VCRC, parsed into a view.
//! - [`build`]: data packets built in place, and both CRCs folded into a copy.
//! - [`headers`]: the single headers and link packets.
//! - [`crc`]: ICRC, VCRC and LPCRC, incremental.
//! - [`mad`]: management datagrams and their attributes.
//! - [`types`]: LIDs, QPNs, PSNs, keys, lanes and identifiers.

#![no_std]
#![forbid(unsafe_code)]

pub mod aeth;
pub mod build;
mod bytes;
pub mod crc;
#[cfg(feature = "std")]
mod fold;
pub mod headers;
pub mod mad;
pub mod opcode;
pub mod packet;
pub mod seal;
pub mod types;

pub use aeth::{
    ack_timeout_ns, code_from_credits, credits_from_code, rnr_timer_ns, NakCode, Syndrome,
};
pub use build::{pad_len, trailer_len, Build, BuildError, Ext};
pub use crc::{Icrc, Vcrc};
pub use headers::{Aeth, AtomicEth, Bth, Deth, FlowControl, Grh, Lnh, Lrh, Reth};
pub use mad::Mad;
pub use opcode::{Opcode, Operation, Transport};
pub use packet::{
    set_vl, vcrc_ok, Headers, Packet, ParseError, MAX_HEADERS, MAX_PACKET, MAX_TRAILER, MIN_PACKET,
};
pub use seal::{check_crcs, write_trailer, CrcCheck};
pub use types::{Gid, Guid, Lid, Mtu, PKey, Psn, QKey, Qpn, Sl, Vl};
