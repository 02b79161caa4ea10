// SPDX-License-Identifier: GPL-2.0-or-later

//! Memory of processes, pinned for the device.

use super::{
    bindings,
    Device,
    Operations, //
};
use core::marker::PhantomData;
use kernel::{
    device,
    error::from_err_ptr,
    prelude::*,
    sync::aref::ARef,
    types::Opaque, //
};

/// Pinned memory of the calling process, mapped for DMA.
///
/// It belongs into the private data of a verbs object: the device must still be bound when it is
/// released.
///
/// # Invariants
///
/// `raw` is pinned memory that is released once; the RDMA device that it was pinned for is alive.
pub(crate) struct Umem {
    raw: *mut bindings::ib_umem,
    _dev: ARef<device::Device>,
}

// SAFETY: Pinned memory belongs to a process, not to a thread.
unsafe impl Send for Umem {}

// SAFETY: All methods that take a shared reference only read.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins `size` bytes at the address `addr` of the calling process. The device may write there
    /// if `access` holds one of the rights to write, `access::LOCAL_WRITE` among them.
    pub(crate) fn get<T: Operations>(
        dev: &Device<T>,
        addr: u64,
        size: usize,
        access: u32,
    ) -> Result<Self> {
        // SAFETY: The device is valid; everything else is checked by the core.
        let raw = from_err_ptr(unsafe {
            bindings::ochre_umem_get_va(dev.as_raw(), addr as usize, size, access as i32)
        })?;

        // INVARIANT: The memory was pinned just now.
        let dev: &device::Device = dev.as_ref();
        Ok(Self {
            raw,
            _dev: dev.into(),
        })
    }

    /// The largest page size of the bit mask `sizes` in which the memory can be described when its
    /// start is known as `virt_addr`; [`EINVAL`] if there is none.
    pub(crate) fn best_page_size(&self, sizes: u64, virt_addr: u64) -> Result<usize> {
        // SAFETY: `raw` is valid by the type invariant.
        match unsafe { bindings::ib_umem_find_best_pgsz(self.raw, sizes as usize, virt_addr) } {
            0 => Err(EINVAL),
            size => Ok(size),
        }
    }

    /// How many blocks [`Umem::blocks`] gives.
    pub(crate) fn num_blocks(&self, page_size: usize) -> usize {
        if !page_size.is_power_of_two() {
            return 0;
        }
        // SAFETY: `raw` is valid by the type invariant.
        unsafe { bindings::ochre_umem_num_dma_blocks(self.raw, page_size) }
    }

    /// The DMA addresses of the memory's blocks of `page_size` bytes, which is the size of a page
    /// of the processor or came from [`Umem::best_page_size`]. The first block is the one that
    /// holds the first byte.
    pub(crate) fn blocks(&self, page_size: usize) -> Blocks<'_> {
        let iter = Opaque::zeroed();
        let left = self.num_blocks(page_size);

        if left > 0 {
            // SAFETY: `raw` is valid by the type invariant; the size is a power of two.
            unsafe { bindings::ochre_umem_block_iter_start(iter.get(), self.raw, page_size) };
        }

        Blocks {
            iter,
            left,
            _umem: PhantomData,
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ib_umem_release(self.raw) };
    }
}

/// DMA addresses of the blocks of a [`Umem`].
pub(crate) struct Blocks<'a> {
    iter: Opaque<bindings::ib_block_iter>,
    left: usize,
    _umem: PhantomData<&'a Umem>,
}

impl Iterator for Blocks<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // SAFETY: The iterator was started where `left` is not zero; the memory is still pinned.
        if self.left == 0 || !unsafe { bindings::ochre_umem_block_iter_next(self.iter.get()) } {
            return None;
        }
        self.left -= 1;

        // SAFETY: The iterator stands at a block.
        Some(unsafe { bindings::ochre_block_iter_dma_address(self.iter.get()) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
