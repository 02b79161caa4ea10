// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory of this process that others change too: the device, and the kernel.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Size of a page, bytes.
pub const PAGE: usize = 4096;

/// Mapped memory. All accesses are volatile; those outside end the program.
#[derive(Debug)]
pub struct Pages {
    base: *mut u8,
    len: usize,
    mapped: bool,
}

fn mapping(base: *mut libc::c_void) -> io::Result<*mut u8> {
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(base.cast())
}

impl Pages {
    /// Zeroed memory of at least `len` bytes.
    pub fn new(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(PAGE);
        // SAFETY: a new anonymous mapping takes nothing away.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        Ok(Pages {
            base: mapping(base)?,
            len,
            mapped: true,
        })
    }

    /// Maps `len` bytes of a file, as `protection` (`PROT_*`) and `flags` (`MAP_*`) say.
    pub fn of_file(
        file: &impl AsRawFd,
        offset: u64,
        len: usize,
        protection: i32,
        flags: i32,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping takes nothing away.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                protection,
                flags,
                file.as_raw_fd(),
                offset,
            )
        };
        Ok(Pages {
            base: mapping(base)?,
            len,
            mapped: true,
        })
    }

    /// Its address, for the kernel.
    pub fn addr(&self) -> u64 {
        self.base.expose_provenance() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "{len} bytes at {offset} are not in {} bytes of memory",
            self.len
        );
        self.base.wrapping_add(offset)
    }

    /// Writes bytes, where the memory is still there.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        if self.mapped {
            for (i, &byte) in bytes.iter().enumerate() {
                // SAFETY: inside the mapping, by `at`; nobody has a reference to it.
                unsafe { to.add(i).write_volatile(byte) };
            }
        }
    }

    /// Reads bytes, each once; zeroes where the memory is gone.
    pub fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let from = self.at(offset, N);
        if !self.mapped {
            return [0; N];
        }
        // SAFETY: inside the mapping, by `at`; a byte array has no invalid value.
        unsafe { from.cast::<[u8; N]>().read_volatile() }
    }

    /// Stores a word after everything before it.
    pub fn store(&self, offset: usize, value: u32) {
        let word = self.at(offset, 4).cast::<u32>();
        assert!(word.is_aligned(), "a word at {offset} is not aligned");
        if self.mapped {
            // SAFETY: inside the mapping and aligned; others access it by whole words.
            unsafe { AtomicU32::from_ptr(word) }.store(value, Ordering::SeqCst);
        }
    }

    /// Loads a word; zero where the memory is gone.
    pub fn load(&self, offset: usize) -> u32 {
        let word = self.at(offset, 4).cast::<u32>();
        assert!(word.is_aligned(), "a word at {offset} is not aligned");
        if !self.mapped {
            return 0;
        }
        // SAFETY: as in `store`.
        unsafe { AtomicU32::from_ptr(word) }.load(Ordering::SeqCst)
    }

    /// Stores a number of 1, 2, 4 or 8 bytes by one access, on its own size: for doorbells.
    pub fn store_of_width(&self, offset: usize, width: usize, value: u64) {
        let to = self.at(offset & !(width - 1), width);
        if !self.mapped {
            return;
        }
        // SAFETY: inside the mapping, by `at`, and aligned, since the mapping is on a page.
        unsafe {
            match width {
                1 => to.write_volatile(value as u8),
                2 => to.cast::<u16>().write_volatile(value as u16),
                4 => to.cast::<u32>().write_volatile(value as u32),
                _ => to.cast::<u64>().write_volatile(value),
            }
        }
    }

    /// Puts fresh memory in the place of a part, or of all: who has it pinned keeps the old one.
    pub fn replace(&mut self, offset: usize, len: usize) -> io::Result<()> {
        let at = self.at(offset, len);
        // SAFETY: the range is ours, and nobody has a reference into it.
        let base = unsafe {
            libc::mmap(
                at.cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        mapping(base).map(|_| ())
    }

    /// Tells the kernel that the contents are not needed.
    pub fn discard(&mut self) {
        // SAFETY: the range is ours; afterwards it reads as zeroes, or as before.
        unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_DONTNEED) };
    }

    /// Gives the memory back; the object goes on as if it were there.
    pub fn unmap(&mut self) {
        if core::mem::take(&mut self.mapped) {
            // SAFETY: the range is ours, and from now on nothing touches it.
            unsafe { libc::munmap(self.base.cast(), self.len) };
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.unmap();
    }
}
