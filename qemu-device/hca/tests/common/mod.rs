// SPDX-License-Identifier: GPL-2.0-or-later
//! What the tests of the firmware share.
#![allow(dead_code, unreachable_pub)] // each test uses a part

pub mod datagram;
pub mod end;
pub mod guest;
pub mod host;
pub mod pair;
pub mod peers;
pub mod place;
pub mod pump;
pub mod rng;

pub use ochre_hca::memory::Memory;
pub use ochre_hca::Dma;
