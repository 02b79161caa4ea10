// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Memory that is shared with the device: queue buffers and the doorbell page.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::ffi;

/// Zeroed, page-aligned memory that is not copied to forked children.
pub(crate) struct Buffer {
    base: *mut u8,
    len: usize,
}

// SAFETY: the memory is accessed only through the atomic and volatile accesses below; who may write
// which part is the queues' business, which hold locks for it.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Maps `len` bytes, a multiple of 4096. The error is an errno.
    pub(crate) fn new(len: usize) -> Result<Self, i32> {
        // SAFETY: a fresh anonymous mapping; nothing else knows its address.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(libc::ENOMEM);
        }
        // SAFETY: the range was mapped just now.
        let err = unsafe { ffi::ibv_dontfork_range(base, len) };
        if err != 0 {
            // SAFETY: as above; no pointer to it has left this function.
            unsafe { libc::munmap(base, len) };
            return Err(err);
        }
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// Address, for the kernel.
    pub(crate) fn addr(&self) -> u64 {
        self.base as u64
    }

    /// Length, bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "access outside of a queue's buffer"
        );
        // SAFETY: inside the mapping, by the check.
        unsafe { self.base.add(offset) }
    }

    /// The 32-bit word at `offset`, which the device reads or writes too.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset % 4 == 0);
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned; every access of
        // this process to such a word is atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Writes `bytes` at `offset`; the device looks at them only after a later release of an index.
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: inside the mapping; the slot belongs to the caller, who holds the queue's lock.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies `len` bytes of the program's memory at `from` to `offset`: inline data.
    ///
    /// # Safety
    /// `from` must be readable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn write_from(&self, offset: usize, from: *const u8, len: usize) {
        let to = self.at(offset, len);
        // SAFETY: the target is inside the mapping, the source is the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(from, to, len) }
    }

    /// Reads `N` bytes at `offset`, each once.
    #[inline]
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let from = self.at(offset, N);
        // SAFETY: inside the mapping; the device does not write the entry before software has given
        // it back, and a byte array has no invalid value.
        unsafe { core::ptr::read_volatile(from.cast::<[u8; N]>()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; the kernel has unpinned it, and no reference is left.
        unsafe {
            ffi::ibv_dofork_range(self.base.cast(), self.len);
            libc::munmap(self.base.cast(), self.len);
        }
    }
}

/// The context's doorbell page.
pub(crate) struct Doorbells {
    base: *mut u8,
    len: usize,
}

// SAFETY: the page takes single 32-bit stores from any thread.
unsafe impl Send for Doorbells {}
// SAFETY: as above.
unsafe impl Sync for Doorbells {}

impl Doorbells {
    /// Maps the page at `offset` of the device file `fd`. The error is an errno.
    pub(crate) fn new(fd: i32, offset: u64, len: usize) -> Result<Self, i32> {
        if (len as u64) < ochre_hw::doorbell::PAGE_SIZE {
            return Err(libc::EPROTO);
        }
        // SAFETY: a fresh shared mapping of the device file.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                offset as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            // SAFETY: errno is the calling thread's own.
            return Err(unsafe { *libc::__errno_location() });
        }
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// Tells the device to look at the send queue of a QP.
    #[inline]
    pub(crate) fn send(&self, qpn: u32) {
        self.ring(ochre_hw::doorbell::SEND, qpn);
    }

    /// Tells the device to look at the receive queue of a QP.
    #[inline]
    pub(crate) fn recv(&self, qpn: u32) {
        self.ring(ochre_hw::doorbell::RECV, qpn);
    }

    /// Tells the device that the program polls, or no longer.
    #[inline]
    pub(crate) fn busy_poll(&self, on: bool) {
        use ochre_hw::doorbell::{BUSY_POLL, BUSY_POLL_OFF, BUSY_POLL_ON};
        self.ring(BUSY_POLL, if on { BUSY_POLL_ON } else { BUSY_POLL_OFF });
    }

    #[inline]
    fn ring(&self, offset: u64, value: u32) {
        // SAFETY: an aligned word inside the page, whose size was checked when it was mapped.
        unsafe {
            core::ptr::write_volatile(self.base.add(offset as usize).cast::<u32>(), value.to_le())
        }
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, no longer used by anyone.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Publishes an index that software owns: everything written before is visible to a device that
/// sees it.
#[inline]
pub(crate) fn publish(word: &AtomicU32, index: u32) {
    word.store(index.to_le(), Ordering::Release);
}
