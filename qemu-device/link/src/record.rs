// SPDX-License-Identifier: GPL-2.0-or-later
//! How frames lie in a byte ring: records of whole cache lines, never split at the end of the ring.
//!
//! Positions count bytes since the ring was made and only grow; the offset is the position modulo the
//! capacity, a power of two. A record is a header of 8 bytes, little-endian (length 32 bits, kind 8
//! bits, zero), then the frame, then padding to the next multiple of 64. Where a record does not fit
//! before the end of the ring, a header of kind [`SKIP`] says that the rest is unused.

use crate::cable::{Frame, MAX_FRAME};

/// Bytes of a record header.
pub(crate) const HEADER: usize = 8;
/// Kind of the header before an unused rest.
pub(crate) const SKIP: u8 = 0xff;
const ALIGN: usize = 64;

/// Bytes that a record with a frame of `len` bytes takes.
#[inline]
pub(crate) const fn stride(len: usize) -> usize {
    (HEADER + len + ALIGN - 1) & !(ALIGN - 1)
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Unused bytes to mark before it; 0 for none.
    pub(crate) skip: usize,
    /// Offset of its header.
    pub(crate) at: usize,
    /// Position behind it.
    pub(crate) end: u64,
}

/// Places a record for `len` bytes at position `tail` of a ring of `capacity` bytes of which those
/// from `head` on are in use. `None` if there is no space.
#[inline]
pub(crate) fn place(capacity: usize, head: u64, tail: u64, len: usize) -> Option<Place> {
    let used = tail.wrapping_sub(head);
    let free = (capacity as u64).checked_sub(used)?;
    let need = stride(len);
    let at = tail as usize & (capacity - 1);
    let rest = capacity - at;
    let (skip, at) = if need <= rest { (0, at) } else { (rest, 0) };
    ((skip + need) as u64 <= free).then(|| Place {
        skip,
        at,
        end: tail.wrapping_add((skip + need) as u64),
    })
}

/// A header as a number.
#[inline]
pub(crate) const fn header(len: usize, kind: u8) -> u64 {
    len as u64 & 0xffff_ffff | (kind as u64) << 32
}

/// What stands at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A frame of `len` bytes; the next record is at position `end`.
    Frame { kind: Frame, len: usize, end: u64 },
    /// Nothing up to position `end`, the start of the ring.
    Skip { end: u64 },
}

/// Reads a header found at position `head`, `tail` being the end of what is there. `None` if no
/// honest writer wrote it.
#[inline]
pub(crate) fn read(capacity: usize, head: u64, tail: u64, header: u64) -> Option<Record> {
    let there = tail.wrapping_sub(head);
    let rest = capacity - (head as usize & (capacity - 1));
    let kind = (header >> 32) as u8;
    if header >> 40 != 0 {
        return None;
    }
    let len = header as u32 as usize;
    if kind == SKIP {
        return (len == 0 && rest as u64 <= there).then(|| Record::Skip {
            end: head.wrapping_add(rest as u64),
        });
    }
    let kind = Frame::from_code(kind)?;
    if len == 0 || len > MAX_FRAME {
        return None;
    }
    let need = stride(len);
    (need <= rest && need as u64 <= there).then(|| Record::Frame {
        kind,
        len,
        end: head.wrapping_add(need as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strides() {
        assert_eq!(stride(1), 64);
        assert_eq!(stride(56), 64);
        assert_eq!(stride(57), 128);
    }

    #[test]
    fn skips_the_rest() {
        let p = place(256, 128, 192, 100).unwrap();
        assert_eq!((p.skip, p.at, p.end), (64, 0, 384));
        assert_eq!(place(256, 64, 192, 100), None);
        assert_eq!(place(256, 0, 256, 1), None);
    }

    #[test]
    fn refuses_what_nobody_honest_writes() {
        assert_eq!(read(256, 0, 64, header(57, 1)), None);
        assert_eq!(read(256, 0, 64, header(0, 1)), None);
        assert_eq!(read(256, 0, 64, header(10, 9)), None);
        assert_eq!(read(256, 0, 256, header(MAX_FRAME + 1, 1)), None);
        assert_eq!(read(256, 192, 256, header(100, 1)), None);
        assert_eq!(read(256, 192, 320, header(100, 1)), None);
        assert_eq!(read(256, 128, 192, header(0, SKIP)), None);
        assert_eq!(read(256, 0, 64, 1 << 40 | header(10, 1)), None);
        assert_eq!(
            read(256, 192, 256, header(0, SKIP)),
            Some(Record::Skip { end: 256 })
        );
    }

    proptest! {
        /// Whatever is placed is read back, and records in use never overlap.
        #[test]
        fn placed_is_read(start in (u64::MAX - 5000)..=u64::MAX,
                          lens in proptest::collection::vec(1usize..=MAX_FRAME, 1..100)) {
            let cap = 16384;
            let start = start & !63;
            let (mut head, mut tail) = (start, start);
            let mut queue = std::collections::VecDeque::new();
            for len in lens {
                loop {
                    if let Some(p) = place(cap, head, tail, len) {
                        if p.skip != 0 {
                            queue.push_back(header(0, SKIP));
                        }
                        queue.push_back(header(len, 1));
                        prop_assert!(p.at + stride(len) <= cap);
                        tail = p.end;
                        prop_assert!(tail.wrapping_sub(head) <= cap as u64);
                        break;
                    }
                    let h = queue.pop_front();
                    prop_assert!(h.is_some(), "a frame always fits an empty ring of this size");
                    match read(cap, head, tail, h.unwrap()) {
                        Some(Record::Frame { end, .. } | Record::Skip { end }) => head = end,
                        None => prop_assert!(false),
                    }
                }
            }
        }

        /// No header makes a reader go beyond what is there.
        #[test]
        fn any_header(head in any::<u64>(), there in 0u64..=4096, h in any::<u64>()) {
            let head = head & !63;
            let there = there & !63;
            match read(4096, head, head.wrapping_add(there), h) {
                Some(Record::Frame { len, end, .. }) => {
                    prop_assert!(end.wrapping_sub(head) <= there);
                    prop_assert!((head as usize & 4095) + HEADER + len <= 4096);
                }
                Some(Record::Skip { end }) => prop_assert!(end.wrapping_sub(head) <= there),
                None => {}
            }
        }
    }
}
