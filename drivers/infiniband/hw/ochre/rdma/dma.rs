// SPDX-License-Identifier: GPL-2.0-or-later

//! Memory that the driver and the device share.

use core::sync::atomic::{
    compiler_fence,
    Ordering, //
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::Coherent,
    prelude::*, //
};

/// Coherent memory, zeroed when it is allocated, accessed by byte offset.
///
/// The device may read and write it at any time, so nothing here gives a reference into it: words
/// are loaded and stored once each, longer pieces are copied. Offsets outside give [`EINVAL`].
/// Values are in the byte order of the processor; the contract's structures are little-endian and
/// know their bytes. Order between accesses is the business of [`kernel::sync::barrier`].
pub(crate) struct Buffer {
    mem: Coherent<[u64]>,
    len: usize,
}

impl Buffer {
    /// Allocates at least `len` bytes, on a page.
    pub(crate) fn new(dev: &Device<Bound>, len: usize) -> Result<Self> {
        // A size that is too large is an error, not a mistake to be warned of.
        let mem = Coherent::zeroed_slice(dev, len.div_ceil(8), GFP_KERNEL | __GFP_NOWARN)?;
        Ok(Self {
            len: mem.size(),
            mem,
        })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The device's address of the first byte.
    pub(crate) fn dma_address(&self) -> u64 {
        self.mem.dma_address()
    }

    /// A pointer to `size` bytes at `offset`.
    fn at(&self, offset: usize, size: usize) -> Result<*mut u8> {
        match offset.checked_add(size) {
            Some(end) if end <= self.len => {
                // SAFETY: The bytes are within the allocation.
                Ok(unsafe { self.mem.as_mut_ptr().cast::<u8>().add(offset) })
            }
            _ => Err(EINVAL),
        }
    }

    fn word<W>(&self, offset: usize) -> Result<*mut W> {
        if offset % size_of::<W>() != 0 {
            return Err(EINVAL);
        }
        Ok(self.at(offset, size_of::<W>())?.cast())
    }

    /// Loads an aligned 8-bit word.
    pub(crate) fn load8(&self, offset: usize) -> Result<u8> {
        // SAFETY: The word is valid and aligned.
        Ok(unsafe { self.word::<u8>(offset)?.read_volatile() })
    }

    /// Loads an aligned 32-bit word.
    pub(crate) fn load32(&self, offset: usize) -> Result<u32> {
        // SAFETY: The word is valid and aligned.
        Ok(unsafe { self.word::<u32>(offset)?.read_volatile() })
    }

    /// Loads an aligned 64-bit word.
    pub(crate) fn load64(&self, offset: usize) -> Result<u64> {
        // SAFETY: The word is valid and aligned.
        Ok(unsafe { self.word::<u64>(offset)?.read_volatile() })
    }

    /// Stores an aligned 32-bit word.
    pub(crate) fn store32(&self, offset: usize, value: u32) -> Result {
        // SAFETY: The word is valid and aligned.
        unsafe { self.word::<u32>(offset)?.write_volatile(value) };
        Ok(())
    }

    /// Stores an aligned 64-bit word.
    pub(crate) fn store64(&self, offset: usize, value: u64) -> Result {
        // SAFETY: The word is valid and aligned.
        unsafe { self.word::<u64>(offset)?.write_volatile(value) };
        Ok(())
    }

    /// Copies `N` bytes out of the memory.
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.copy_out(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies bytes out of the memory.
    pub(crate) fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result {
        let from = self.at(offset, bytes.len())?;
        // Keeps the copy between the accesses around it.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: Both sides are valid for the length and do not overlap. The device may write
        // meanwhile, as with every copy from such memory; any bytes are valid.
        unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        compiler_fence(Ordering::SeqCst);
        Ok(())
    }

    /// Copies bytes into the memory.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result {
        let to = self.at(offset, bytes.len())?;
        compiler_fence(Ordering::SeqCst);
        // SAFETY: Both sides are valid for the length and do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        compiler_fence(Ordering::SeqCst);
        Ok(())
    }
}
