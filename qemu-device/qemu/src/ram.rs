// SPDX-License-Identifier: GPL-2.0-or-later

//! Guest memory, as the device's DMA reaches it.
//!
//! QEMU's memory listener keeps a table of the ranges of RAM and where each is mapped in this process,
//! so that an access is a look-up in a few entries and a copy. Every write is reported to QEMU, which
//! drops translated code that it made stale. Addresses outside of the table take QEMU's own, slower way.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use ochre_hca::{Dma, DmaError};

use crate::abi::{Host, Ram};

struct Table {
    /// Sorted by base. Written by [`GuestMemory::replace`] only.
    ranges: UnsafeCell<Vec<Ram>>,
    host: Host,
}

// SAFETY: the pointers in the table are for the whole process, and the cell is written only under the
// device's lock, under which all readers run (see `GuestMemory::replace`).
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// The device's way to guest memory. Clones share one table.
#[derive(Clone)]
pub struct GuestMemory(Arc<Table>);

impl std::fmt::Debug for GuestMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestMemory").finish_non_exhaustive()
    }
}

/// Hands a closure through C.
///
/// # Safety
/// `context` points to the `&mut dyn FnMut` that `slow` made.
unsafe extern "C" fn trampoline(context: *mut c_void, host: *mut u8, size: u64) {
    // SAFETY: `slow` passes this pointer, and its closure outlives the call.
    let access = unsafe { &mut *context.cast::<&mut dyn FnMut(*mut u8, usize)>() };
    access(host, size as usize);
}

impl GuestMemory {
    /// Memory of which nothing can be reached yet.
    pub fn new(host: Host) -> Self {
        GuestMemory(Arc::new(Table {
            ranges: UnsafeCell::new(Vec::new()),
            host,
        }))
    }

    /// Replaces the table.
    ///
    /// # Safety
    /// The caller holds the lock under which every access to this memory is made. The ranges are sorted,
    /// apart from each other, and mapped for reading and writing until they are replaced.
    pub unsafe fn replace(&self, ranges: Vec<Ram>) {
        // SAFETY: the lock that the caller holds keeps all others away from the cell.
        unsafe { *self.0.ranges.get() = ranges };
    }

    /// Calls `access` with the pieces of `len` bytes of memory at `addr`, in order.
    ///
    /// The pointers are good for that many bytes during the call. The guest changes the memory at any
    /// time: `access` must copy or use atomics, and make no reference.
    #[inline]
    fn access(
        &self,
        addr: u64,
        len: usize,
        write: bool,
        mut access: impl FnMut(*mut u8, usize),
    ) -> Result<(), DmaError> {
        // SAFETY: accesses are made under the device's lock, and so is every change of the table.
        let ranges = unsafe { &*self.0.ranges.get() };
        for range in ranges {
            // Ranges start at or after 0 and end within the address space, so this is the offset, or more
            // than any size for an address below the base.
            let offset = addr.wrapping_sub(range.base);
            if offset < range.size && range.size - offset >= len as u64 {
                // SAFETY: the range has `size` bytes, and the offset is below that.
                let host = unsafe { range.host.add(offset as usize) };
                access(host, len);
                if write {
                    // SAFETY: the handle is the range's, and the bytes are within it.
                    unsafe { (self.0.host.ram_dirty)(range.cache, offset, len as u64) };
                }
                return Ok(());
            }
        }
        self.slow(addr, len, write, &mut access)
    }

    #[cold]
    fn slow(
        &self,
        addr: u64,
        len: usize,
        write: bool,
        mut access: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<(), DmaError> {
        let error = DmaError { addr, len };
        if len == 0 {
            return Ok(());
        }
        addr.checked_add(len as u64 - 1).ok_or(error)?;
        let context: *mut &mut dyn FnMut(*mut u8, usize) = &mut access;
        let host = &self.0.host;
        // SAFETY: the callback uses `context` during this call only, as the trampoline expects it.
        let result = unsafe {
            (host.with_memory)(
                host.opaque,
                addr,
                len as u64,
                write,
                trampoline,
                context.cast(),
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(error),
        }
    }

    /// Calls `access` with a pointer to an aligned word.
    #[inline]
    fn word<R>(
        &self,
        addr: u64,
        size: usize,
        write: bool,
        access: impl Fn(*mut u8) -> R,
    ) -> Result<R, DmaError> {
        let error = DmaError { addr, len: size };
        if addr % size as u64 != 0 {
            return Err(error);
        }
        let mut result = None;
        self.access(addr, size, write, |host, len| {
            // An aligned word is in one page, so in one piece, and the host's page is aligned as the guest's.
            if len == size && (host as usize) % size == 0 {
                result = Some(access(host));
            }
        })?;
        result.ok_or(error)
    }
}

impl Dma for GuestMemory {
    #[inline]
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let mut done = 0;
        let target = buf.as_mut_ptr();
        self.access(addr, buf.len(), false, |host, len| {
            // SAFETY: the pieces add up to the length of `buf`; guest memory and `buf` are apart.
            unsafe { ptr::copy_nonoverlapping(host, target.add(done), len) };
            done += len;
        })
    }

    #[inline]
    fn write(&self, addr: u64, buf: &[u8]) -> Result<(), DmaError> {
        let mut done = 0;
        let source = buf.as_ptr();
        self.access(addr, buf.len(), true, |host, len| {
            // SAFETY: the pieces add up to the length of `buf`; guest memory and `buf` are apart.
            unsafe { ptr::copy_nonoverlapping(source.add(done), host, len) };
            done += len;
        })
    }

    #[inline]
    fn load_u32(&self, addr: u64) -> Result<u32, DmaError> {
        self.word(addr, 4, false, |host| {
            // SAFETY: 4 aligned bytes of guest memory, which is shared with the guest by atomics.
            let value = unsafe { AtomicU32::from_ptr(host.cast()) }.load(Ordering::Acquire);
            u32::from_le(value)
        })
    }

    #[inline]
    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaError> {
        self.word(addr, 4, true, |host| {
            // SAFETY: as in load_u32; the memory is writable.
            unsafe { AtomicU32::from_ptr(host.cast()) }.store(value.to_le(), Ordering::Release);
        })
    }

    #[inline]
    fn publish(&self, addr: u64, entry: &[u8]) -> Result<(), DmaError> {
        let error = DmaError {
            addr,
            len: entry.len(),
        };
        let (body, last) = entry.split_last_chunk::<8>().ok_or(error)?;
        self.write(addr, body)?;
        let value = u64::from_ne_bytes(*last);
        let last_addr = addr.checked_add(body.len() as u64).ok_or(error)?;
        self.word(last_addr, 8, true, |host| {
            // SAFETY: 8 aligned bytes of writable guest memory.
            unsafe { AtomicU64::from_ptr(host.cast()) }.store(value, Ordering::Release);
        })
    }

    fn compare_swap_u64(&self, addr: u64, compare: u64, swap: u64) -> Result<u64, DmaError> {
        self.word(addr, 8, true, |host| {
            // SAFETY: 8 aligned bytes of writable guest memory.
            let word = unsafe { AtomicU64::from_ptr(host.cast()) };
            let result = word.compare_exchange(
                compare.to_le(),
                swap.to_le(),
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            match result {
                Ok(old) | Err(old) => u64::from_le(old),
            }
        })
    }

    fn fetch_add_u64(&self, addr: u64, add: u64) -> Result<u64, DmaError> {
        self.word(addr, 8, true, |host| {
            // SAFETY: 8 aligned bytes of writable guest memory.
            let word = unsafe { AtomicU64::from_ptr(host.cast()) };
            // The device is little-endian, and so are the hosts that it runs on.
            word.fetch_add(add, Ordering::SeqCst)
        })
    }
}
