// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory of the guest: pieces named by commands, regions named by keys, and what work requests
//! move in and out of them.

mod mr;
mod pages;
mod queue;
mod sg;
#[cfg(test)]
mod tests;

pub use mr::{Mr, MrTable, Target};
pub use pages::{PageBudget, PageList};
pub use queue::QueueMem;
pub use sg::{gather, scatter, SgData};

use crate::seams::DmaError;

/// Why an access to a region is refused, in the order in which the rules are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemError {
    /// No region has this key.
    #[error("no region has key {0:#010x}")]
    Key(u32),
    /// The region belongs to another protection domain.
    #[error("region belongs to protection domain {region}, access is from {access}")]
    Pd {
        /// Of the region.
        region: u32,
        /// Of the QP.
        access: u32,
    },
    /// The region lacks a right; the bits that are missing.
    #[error("region lacks the rights {0:#x}")]
    Access(u32),
    /// The access is not inside the region, or inside the scatter/gather list.
    #[error("{len} bytes at {addr:#x} are not inside the region")]
    Range {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// The memory itself cannot be reached.
    #[error(transparent)]
    Dma(#[from] DmaError),
}
