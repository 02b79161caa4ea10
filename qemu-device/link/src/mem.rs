// SPDX-License-Identifier: GPL-2.0-or-later
//! A cable inside one process, deterministic, with latency and seeded faults.

use core::time::Duration;

use crate::cable::{Cable, CableError, Frame, Presence};
use crate::time::Time;

/// Faults of one direction. Rates are in frames of a million; the draw is seeded, so that the same
/// traffic meets the same faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Frames lost.
    pub drop_ppm: u32,
    /// Frames delivered twice.
    pub duplicate_ppm: u32,
    /// Frames with one bit wrong.
    pub corrupt_ppm: u32,
    /// Frames delayed by [`Faults::delay`], so that later ones overtake them.
    pub delay_ppm: u32,
    /// The delay.
    pub delay: Duration,
    /// Training sequences and link packets are spared.
    pub data_only: bool,
}

/// How a pair of ends is made.
#[derive(Clone, Debug)]
pub struct MemConfig {
    /// Bytes in flight and unread, each direction; each frame takes its length and 64 more.
    pub capacity: usize,
    /// Time from flush to arrival.
    pub latency: Duration,
    /// Faults from the first end to the second and back.
    pub faults: [Faults; 2],
    /// Seed of the faults.
    pub seed: u64,
}

impl Default for MemConfig {
    fn default() -> Self {
        MemConfig {
            capacity: 1 << 20,
            latency: Duration::ZERO,
            faults: [Faults::default(); 2],
            seed: 1,
        }
    }
}

/// One end of a cable inside this process.
pub struct MemCable {}

impl MemCable {
    /// Two connected ends.
    pub fn pair(config: MemConfig) -> (MemCable, MemCable) {
        let _ = config;
        unimplemented!()
    }

    /// Pulls the cable out (frames in flight are lost) or plugs it in again.
    pub fn plug(&mut self, plugged: bool) {
        let _ = plugged;
        unimplemented!()
    }

    /// Other faults for what this end sends from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        let _ = faults;
        unimplemented!()
    }
}

impl Cable for MemCable {
    fn poll(&mut self, _now: Time) {
        unimplemented!()
    }
    fn next_deadline(&self) -> Option<Time> {
        unimplemented!()
    }
    fn presence(&self) -> Presence {
        unimplemented!()
    }
    fn tx_reserve(&mut self, _frame: Frame, _bytes: usize) -> Result<&mut [u8], CableError> {
        unimplemented!()
    }
    fn tx_slot(&mut self) -> &mut [u8] {
        unimplemented!()
    }
    fn tx_commit(&mut self) {
        unimplemented!()
    }
    fn tx_mark_bad(&mut self) {
        unimplemented!()
    }
    fn rx_next(&mut self) -> Option<(Frame, usize)> {
        unimplemented!()
    }
    fn rx_bytes(&self) -> &[u8] {
        unimplemented!()
    }
    fn rx_release(&mut self) {
        unimplemented!()
    }
    fn flush(&mut self) {
        unimplemented!()
    }
    fn arm(&mut self) -> bool {
        unimplemented!()
    }
}
