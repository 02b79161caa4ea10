// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory of a host that one end of a connection uses, and how it is divided.

use super::{Dma, Memory};

/// Receives, and results of READs and atomics, that are in use at once.
pub const SLOTS: u64 = 32;
/// Words for atomics.
pub const WORDS: u64 = 8;

/// How many bytes there are of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Constant memory, which is sent and read.
    pub source: u64,
    /// Memory that the peer's WRITEs go to.
    pub target: u64,
    /// One receive, and the result of one READ.
    pub slot: u64,
    /// One long receive, and the result of one long READ.
    pub big: u64,
}

impl Room {
    /// No long receives.
    pub const PLAIN: Room = Room {
        source: 4 << 20,
        target: 4 << 20,
        slot: 64 << 10,
        big: 0,
    };
    /// For messages of several MiB.
    pub const LARGE: Room = Room {
        source: 4 << 20,
        target: 4 << 20,
        slot: 32 << 10,
        big: 3 << 20,
    };
    /// For many connections.
    pub const SMALL: Room = Room {
        source: 64 << 10,
        target: 64 << 10,
        slot: 16 << 10,
        big: 0,
    };

    /// All together.
    pub const fn bytes(&self) -> u64 {
        self.source + self.target + WORDS * 8 + 2 * (SLOTS * self.slot + self.big)
    }
}

/// The pieces, by their addresses, in the order in which they lie.
#[derive(Clone)]
pub struct Place {
    pub mem: Memory,
    pub key: u32,
    pub room: Room,
    /// Constant memory.
    pub source: u64,
    /// What the peer's WRITEs go to.
    pub target: u64,
    /// Words for the peer's atomics.
    pub words: u64,
    /// Receives, `SLOTS` of `room.slot` bytes.
    pub receives: u64,
    pub big_receive: u64,
    /// Results of READs and atomics, `SLOTS` of `room.slot` bytes. From here on the memory is the own
    /// requests', before it the peer's.
    pub results: u64,
    pub big_result: u64,
    pub end: u64,
}

impl Place {
    /// Lays memory out from `at` on, in the region `key`.
    pub fn new(mem: &Memory, key: u32, at: u64, room: Room) -> Self {
        let target = at + room.source;
        let words = target + room.target;
        let receives = words + WORDS * 8;
        let big_receive = receives + SLOTS * room.slot;
        let results = big_receive + room.big;
        let big_result = results + SLOTS * room.slot;
        Place {
            mem: mem.clone(),
            key,
            room,
            source: at,
            target,
            words,
            receives,
            big_receive,
            results,
            big_result,
            end: big_result + room.big,
        }
    }

    pub fn bytes(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.mem.read(at, &mut bytes).unwrap();
        bytes
    }
}
