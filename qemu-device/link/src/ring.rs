// SPDX-License-Identifier: GPL-2.0-or-later
//! A ring of frames in own memory: packets that turn around, and packets held back.

use crate::cable::Frame;
use crate::record::{self, Place, Record};

/// A ring that allocates its memory on first use.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    capacity: usize,
    bytes: Vec<u8>,
    head: u64,
    tail: u64,
    open: Option<(Place, usize, u8)>,
}

impl Ring {
    /// A ring for at least `capacity` bytes of records.
    pub(crate) fn new(capacity: usize) -> Self {
        Ring {
            capacity: capacity.next_power_of_two().max(16 << 10),
            ..Ring::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.head = self.tail;
        self.open = None;
    }

    /// Reserves a slot of `len` bytes (at most [`crate::cable::MAX_FRAME`]) with a mark of 8 bits to
    /// go with the frame.
    pub(crate) fn reserve(&mut self, len: usize, frame: Frame) -> Option<&mut [u8]> {
        self.open = None;
        let place = record::place(self.capacity, self.head, self.tail, len)?;
        if self.bytes.is_empty() {
            self.bytes = vec![0; self.capacity];
        }
        self.open = Some((place, len, frame as u8));
        Some(self.slot())
    }

    /// The slot reserved, else empty.
    pub(crate) fn slot(&mut self) -> &mut [u8] {
        let Some((place, len, _)) = self.open else {
            return &mut [];
        };
        let at = place.at + record::HEADER;
        self.bytes.get_mut(at..at + len).unwrap_or_default()
    }

    fn put(&mut self, at: usize, header: u64) {
        if let Some(b) = self.bytes.get_mut(at..at + record::HEADER) {
            b.copy_from_slice(&header.to_le_bytes());
        }
    }

    /// Queues the slot reserved.
    pub(crate) fn commit(&mut self) {
        let Some((place, len, kind)) = self.open.take() else {
            return;
        };
        if place.skip != 0 {
            let at = self.tail as usize & (self.capacity - 1);
            self.put(at, record::header(0, record::SKIP));
        }
        self.put(place.at, record::header(len, kind));
        self.tail = place.end;
    }

    /// Gives the slot up.
    pub(crate) fn abort(&mut self) {
        self.open = None;
    }

    /// Queues a copy of `frame`; `false` if there is no space.
    pub(crate) fn push(&mut self, frame: &[u8]) -> bool {
        match self.reserve(frame.len(), Frame::Data) {
            Some(slot) => {
                slot.copy_from_slice(frame);
                self.commit();
                true
            }
            None => false,
        }
    }

    fn header_at(&self, position: u64) -> Option<Record> {
        let at = position as usize & (self.capacity - 1);
        let h = self.bytes.get(at..at + record::HEADER)?;
        let mut b = [0; record::HEADER];
        b.copy_from_slice(h);
        record::read(self.capacity, position, self.tail, u64::from_le_bytes(b))
    }

    /// The oldest frame: offset, length and the position behind it.
    fn front_record(&self) -> Option<(usize, usize, u64)> {
        let mut at = self.head;
        while at != self.tail {
            match self.header_at(at)? {
                Record::Skip { end } => at = end,
                Record::Frame { len, end, .. } => {
                    let offset = (at as usize & (self.capacity - 1)) + record::HEADER;
                    return Some((offset, len, end));
                }
            }
        }
        None
    }

    /// The oldest frame.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        let (at, len, _) = self.front_record()?;
        self.bytes.get(at..at + len)
    }

    /// Removes the oldest frame.
    pub(crate) fn pop(&mut self) {
        if let Some((.., end)) = self.front_record() {
            self.head = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut r = Ring::new(0);
        assert!(r.front().is_none());
        r.pop();
        r.commit();
        assert!(r.slot().is_empty());
        assert!(r.push(b"one"));
        r.reserve(3, Frame::Data).unwrap().copy_from_slice(b"two");
        r.abort();
        r.commit();
        assert!(r.push(b"three"));
        assert_eq!(r.front(), Some(&b"one"[..]));
        r.pop();
        assert_eq!(r.front(), Some(&b"three"[..]));
        r.clear();
        assert!(r.is_empty());
    }

    proptest! {
        #[test]
        fn like_a_queue(ops in proptest::collection::vec((any::<bool>(), 1usize..5000, any::<u8>()), 1..500)) {
            let mut r = Ring::new(16 << 10);
            let mut q = VecDeque::new();
            for (push, len, fill) in ops {
                let len = len.min(crate::cable::MAX_FRAME);
                if push {
                    let f = vec![fill; len];
                    if r.push(&f) {
                        q.push_back(f);
                    } else {
                        prop_assert!(!q.is_empty());
                    }
                } else {
                    r.pop();
                    q.pop_front();
                }
                prop_assert_eq!(r.front(), q.front().map(Vec::as_slice));
                prop_assert_eq!(r.is_empty(), q.is_empty());
            }
        }
    }
}
