// SPDX-License-Identifier: GPL-2.0-or-later
//! Rings of frames in memory shared with another process.
//!
//! The memory holds two directions. Each has a page of control words, every one in its own pair of
//! cache lines, and then the bytes of its ring, with records as in [`crate::record`]:
//!
//! | offset | word      | written by | meaning                                              |
//! |--------|-----------|------------|------------------------------------------------------|
//! | 0      | tail, u64 | sender     | position behind the last frame published             |
//! | 128    | head, u64 | receiver   | position up to which space is free again             |
//! | 256    | wake, u32 | both       | 1: the receiver sleeps and wants packets, 2: any frame |
//! | 384    | space, u32| both       | 1: the sender sleeps and wants space                  |
//!
//! Who goes to sleep sets its flag, then looks at the index once more; who moves an index looks at
//! the flag afterwards, clears it and writes to the sleeper's eventfd. A full fence stands between the
//! two steps on both sides, so that at least one of them sees the other.
//!
//! The other process may write anything anywhere at any time. Indices and record headers are read
//! once, checked and only then used; an impossible one breaks the ring for good. The bytes of a frame
//! belong to one side at a time by these rules; a process that breaks them only spoils values, which
//! readers check as they would bytes from a wire.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::cable::{Frame, Wake};
use crate::record::{self, Place, Record};

/// Bytes of the control words of one direction.
const CONTROL: usize = 4096;
const TAIL: usize = 0;
const HEAD: usize = 128;
const WAKE: usize = 256;
const SPACE: usize = 384;

/// Bytes of the memory for rings of `ring_bytes` bytes.
pub(super) const fn memory_bytes(ring_bytes: usize) -> usize {
    2 * (CONTROL + ring_bytes)
}

/// The other process has left the rules; the text says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

/// The shared memory, mapped.
struct Memory {
    map: MmapRaw,
    ring_bytes: usize,
}

impl Memory {
    /// Word of 64 bits at `at` bytes of direction `dir`.
    #[inline]
    fn word64(&self, dir: usize, at: usize) -> &AtomicU64 {
        let offset = dir * (CONTROL + self.ring_bytes) + at;
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.map.len());
        // SAFETY: `dir` is 0 or 1 and `at` a multiple of 8 less than CONTROL + ring_bytes, both by all
        // callers, so the word lies in the mapping, which starts at a page and lives as long as `self`.
        // All accesses of this process to these words are atomic; the mapping is shared and writable.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// Word of 32 bits.
    #[inline]
    fn word32(&self, dir: usize, at: usize) -> &AtomicU32 {
        let offset = dir * (CONTROL + self.ring_bytes) + at;
        debug_assert!(offset % 4 == 0 && offset + 4 <= self.map.len());
        // SAFETY: as in `word64`.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// The record header at ring offset `at`, a multiple of 64 less than the ring size.
    #[inline]
    fn header(&self, dir: usize, at: usize) -> &AtomicU64 {
        self.word64(dir, CONTROL + at)
    }

    /// Start of `len` bytes at ring offset `at`, if they lie in the ring.
    #[inline]
    fn bytes(&self, dir: usize, at: usize, len: usize) -> Option<*mut u8> {
        if at.checked_add(len)? > self.ring_bytes {
            return None;
        }
        let offset = dir * (CONTROL + self.ring_bytes) + CONTROL + at;
        // SAFETY: `dir` is 0 or 1, so the offset and the `len` bytes behind it lie in the mapping.
        Some(unsafe { self.map.as_mut_ptr().add(offset) })
    }
}

/// Both directions as one end uses them.
pub(super) struct Rings {
    memory: Memory,
    /// Direction of sending; the other one is 1 - tx.
    tx: usize,

    tail: u64,
    tail_published: u64,
    head_seen: u64,
    open: Option<(Place, usize, Frame)>,
    packets_queued: bool,
    wants_space: bool,

    head: u64,
    head_published: u64,
    tail_seen: u64,
    /// Offset, length, the position behind it, kind.
    current: Option<(usize, usize, u64, Frame)>,

    broken: Option<Broken>,
}

impl Rings {
    /// Maps memory of exactly [`memory_bytes`] bytes, which nobody can shrink. The end that made it
    /// is the `first`.
    pub(super) fn map(memory: OwnedFd, ring_bytes: usize, first: bool) -> std::io::Result<Self> {
        let file = File::from(memory);
        let map = MmapOptions::new()
            .len(memory_bytes(ring_bytes))
            .map_raw(&file)?;
        Ok(Rings {
            memory: Memory { map, ring_bytes },
            tx: usize::from(!first),
            tail: 0,
            tail_published: 0,
            head_seen: 0,
            open: None,
            packets_queued: false,
            wants_space: false,
            head: 0,
            head_published: 0,
            tail_seen: 0,
            current: None,
            broken: None,
        })
    }

    #[inline]
    fn rx(&self) -> usize {
        1 - self.tx
    }

    /// What the other process did wrong, if it did.
    #[inline]
    pub(super) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    fn break_with(&mut self, what: &'static str) {
        self.broken.get_or_insert(Broken(what));
        self.open = None;
        self.current = None;
    }

    /// Reads how much the receiver has freed.
    fn look_at_head(&mut self) {
        let head = self.memory.word64(self.tx, HEAD).load(Ordering::Acquire);
        let old = self.head_seen;
        // Between what it was and what was published.
        if head.wrapping_sub(old) > self.tail_published.wrapping_sub(old) || head % 64 != 0 {
            self.break_with("freed space that was never used");
        } else {
            self.head_seen = head;
        }
    }

    #[inline]
    pub(super) fn reserve(&mut self, frame: Frame, len: usize) -> Option<&mut [u8]> {
        self.open = None;
        if self.broken.is_some() {
            return None;
        }
        let size = self.memory.ring_bytes;
        let mut place = record::place(size, self.head_seen, self.tail, len);
        if place.is_none() {
            self.look_at_head();
            place = record::place(size, self.head_seen, self.tail, len);
        }
        let Some(place) = place else {
            self.wants_space = true;
            return None;
        };
        self.wants_space = false;
        self.open = Some((place, len, frame));
        Some(self.slot())
    }

    #[inline]
    pub(super) fn slot(&mut self) -> &mut [u8] {
        let Some((place, len, _)) = self.open else {
            return &mut [];
        };
        match self.memory.bytes(self.tx, place.at + record::HEADER, len) {
            // SAFETY: `bytes` has checked that the slot lies in the mapping, which `self` keeps. The
            // slot is free space of the ring of which this end is the only sender: nothing else of
            // this process refers to it, `&mut self` keeps it so, and the receiver reads it only
            // after it is published. See the module's documentation for a process without manners.
            Some(p) => unsafe { core::slice::from_raw_parts_mut(p, len) },
            None => &mut [],
        }
    }

    #[inline]
    pub(super) fn commit(&mut self) {
        let Some((place, len, frame)) = self.open.take() else {
            return;
        };
        if place.skip != 0 {
            let at = self.tail as usize & (self.memory.ring_bytes - 1);
            let skip = record::header(0, record::SKIP);
            self.memory
                .header(self.tx, at)
                .store(skip, Ordering::Relaxed);
        }
        self.memory
            .header(self.tx, place.at)
            .store(record::header(len, frame as u8), Ordering::Relaxed);
        self.tail = place.end;
        self.packets_queued |= frame != Frame::Link;
    }

    pub(super) fn mark_bad(&mut self) {
        if let Some((.., frame)) = &mut self.open {
            *frame = Frame::BadData;
        }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<(Frame, usize)> {
        let rx = self.rx();
        if let Some((_, len, _, kind)) = self.current {
            return Some((kind, len));
        }
        if self.broken.is_some() {
            return None;
        }
        loop {
            if self.head == self.tail_seen {
                let tail = self.memory.word64(rx, TAIL).load(Ordering::Acquire);
                if tail == self.head {
                    return None;
                }
                if tail.wrapping_sub(self.head) > self.memory.ring_bytes as u64 || tail % 64 != 0 {
                    self.break_with("published more than the ring holds");
                    return None;
                }
                self.tail_seen = tail;
            }
            let size = self.memory.ring_bytes;
            let at = self.head as usize & (size - 1);
            let header = self.memory.header(rx, at).load(Ordering::Relaxed);
            match record::read(size, self.head, self.tail_seen, header) {
                Some(Record::Skip { end }) => self.head = end,
                Some(Record::Frame { kind, len, end }) => {
                    self.current = Some((at, len, end, kind));
                    return Some((kind, len));
                }
                None => {
                    self.break_with("wrote an impossible record header");
                    return None;
                }
            }
        }
    }

    #[inline]
    pub(super) fn current(&self) -> &[u8] {
        let Some((at, len, ..)) = self.current else {
            return &[];
        };
        match self.memory.bytes(self.rx(), at + record::HEADER, len) {
            // SAFETY: `bytes` has checked that the frame lies in the mapping, which `self` keeps. The
            // frame is published and not released, so by the rules of the ring nobody writes to it;
            // this process never does. See the module's documentation for a process without manners.
            Some(p) => unsafe { core::slice::from_raw_parts(p, len) },
            None => &[],
        }
    }

    /// Gives the current frame back. `true`: much space has gathered, [`Rings::flush`] should tell.
    #[inline]
    pub(super) fn release(&mut self) -> bool {
        if let Some((_, _, end, _)) = self.current.take() {
            self.head = end;
        }
        self.head.wrapping_sub(self.head_published) >= self.memory.ring_bytes as u64 / 4
    }

    /// Publishes both indices. Returns whether the other end is to be woken.
    #[inline]
    pub(super) fn flush(&mut self) -> bool {
        let rx = self.rx();
        let sends = self.tail != self.tail_published;
        let frees = self.head != self.head_published;
        if !sends && !frees || self.broken.is_some() {
            return false;
        }
        if sends {
            self.memory
                .word64(self.tx, TAIL)
                .store(self.tail, Ordering::Release);
            self.tail_published = self.tail;
        }
        if frees {
            self.memory
                .word64(rx, HEAD)
                .store(self.head, Ordering::Release);
            self.head_published = self.head;
        }
        fence(Ordering::SeqCst);
        let mut wake = false;
        if sends {
            let flag = self.memory.word32(self.tx, WAKE);
            let packets = core::mem::take(&mut self.packets_queued);
            let wants = flag.load(Ordering::Relaxed);
            if wants >= Wake::All as u32 || wants == Wake::Packets as u32 && packets {
                flag.store(0, Ordering::Relaxed);
                wake = true;
            }
        }
        if frees {
            let flag = self.memory.word32(rx, SPACE);
            if flag.load(Ordering::Relaxed) != 0 {
                flag.store(0, Ordering::Relaxed);
                wake = true;
            }
        }
        wake
    }

    /// Sets the flags for sleeping, after a flush. `false`: there is something to do.
    pub(super) fn arm(&mut self, wake: Wake) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let rx = self.rx();
        self.memory
            .word32(rx, WAKE)
            .store(wake as u32, Ordering::Relaxed);
        if self.wants_space {
            self.memory
                .word32(self.tx, SPACE)
                .store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        if self.current.is_some() || self.next().is_some() || self.broken.is_some() {
            return false;
        }
        if self.wants_space {
            let before = self.head_seen;
            self.look_at_head();
            if self.head_seen != before || self.broken.is_some() {
                return false;
            }
        }
        true
    }

    /// Takes the flags back.
    pub(super) fn disarm(&mut self) {
        let rx = self.rx();
        self.memory.word32(rx, WAKE).store(0, Ordering::Relaxed);
        self.memory
            .word32(self.tx, SPACE)
            .store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Rings {
    /// Queues a record that no honest end sends.
    pub(super) fn queue_nonsense(&mut self) {
        let at = self.tail as usize & (self.memory.ring_bytes - 1);
        self.memory
            .header(self.tx, at)
            .store(u64::MAX, Ordering::Relaxed);
        self.tail += 64;
    }
}

#[cfg(test)]
mod tests;
