// SPDX-License-Identifier: GPL-2.0-or-later
//! Address handles.

use ochre_hw::verbs::AddressVector;

/// An address handle: a checked path, usable by QPs of its protection domain.
#[derive(Clone, Copy, Debug)]
pub struct Ah {
    /// Protection domain.
    pub pd: u32,
    /// The path.
    pub av: AddressVector,
}
