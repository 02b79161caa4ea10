// SPDX-License-Identifier: GPL-2.0-or-later
//! Fuzz targets: one function of bytes for each parser, and a driver that mutates inputs.
//!
//! A [`Target`]'s function takes any bytes and panics where a promise is broken. The driver in
//! [`driver`] follows what targets [`note()`], and the edges that the code under test runs through, where
//! the compiler was told to count them: an input that leads to an outcome or an edge not seen before is
//! kept and mutated further.
//!
//! - [`targets`]: the functions and the inputs they start from.
//! - [`mutate`]: how an input becomes another. [`shrink`]: how a failure becomes small.
//! - [`coverage`]: what the compiler counts. [`corpus`]: inputs that are kept for the next time.
//! - [`bytes`]: how targets split their input.

#![deny(unsafe_code)]

pub mod bytes;
pub mod corpus;
pub mod coverage;
pub mod driver;
pub mod mutate;
pub mod note;
pub mod shrink;
pub mod targets;

/// The test bed of the firmware: hosts with devices in this process.
#[allow(dead_code, unreachable_pub, missing_docs)] // shared with tests that use more of it
#[path = "../../../qemu-device/hca/tests/common"]
mod common {
    pub mod guest;
    pub mod host;
    pub mod pair;
    pub mod rng;

    pub use ochre_hca::memory::Memory;
    pub use ochre_hca::Dma;
}

pub use note::note;

/// Something to fuzz.
pub struct Target {
    /// What it is called.
    pub name: &'static str,
    /// What it does with its input, for people.
    pub what: &'static str,
    /// Runs one input; panics where a promise is broken.
    pub run: fn(&[u8]),
    /// Valid inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}
