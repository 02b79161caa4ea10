// SPDX-License-Identifier: GPL-2.0-or-later

//! Counters that the device keeps.

use super::bindings;
use kernel::str::{
    as_char_ptr_in_const_context,
    CStr, //
};

/// Name of a counter, as it is shown under `hw_counters`.
#[repr(transparent)]
pub(crate) struct CounterDesc(bindings::rdma_stat_desc);

// SAFETY: The structure points to constants only.
unsafe impl Sync for CounterDesc {}

impl CounterDesc {
    /// Describes a counter.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: as_char_ptr_in_const_context(name),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }

    /// Allocates the structure that holds the values of `descs`.
    pub(super) fn alloc(descs: &'static [Self]) -> *mut bindings::rdma_hw_stats {
        // SAFETY: The descriptions are constants, and the type is transparent.
        unsafe {
            bindings::rdma_alloc_hw_stats_struct(
                descs.as_ptr().cast(),
                descs.len() as i32,
                bindings::RDMA_HW_STATS_DEFAULT_LIFESPAN as usize,
            )
        }
    }
}
