// SPDX-License-Identifier: GPL-2.0-or-later
//! Arbitration between virtual lanes: the weights tables of high and low priority.

use ochre_wire::Vl;

/// An entry of a VLArbitrationTable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Data lane; VL15 or a lane that is not operational is skipped.
    pub vl: Vl,
    /// Units of 64 bytes the lane may send in its turn; 0 skips the entry.
    pub weight: u8,
}

/// Entries of one priority, and the turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlArbitration {
    /// High priority table, up to 64 entries.
    pub high: Vec<Entry>,
    /// Low priority table, up to 64 entries.
    pub low: Vec<Entry>,
    /// VLHighLimit: units of 4096 bytes of high priority that may pass before a low priority packet
    /// gets a chance; 255 is no limit, 0 is one packet.
    pub high_limit: u8,
}
