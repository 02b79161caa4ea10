// SPDX-License-Identifier: GPL-2.0-or-later

//! The send work requests under way, in order, with their scatter/gather elements.
//!
//! A request enters when its slot is read and leaves when it completes; what a retry needs is kept
//! here, so that no slot is read twice. Places are reused; memory is taken only while more requests
//! than ever before are under way.

use ochre_hw::wqe::Sge;

use super::work::Work;
use crate::mem::SgData;

/// Most requests under way on one QP.
pub(crate) const MAX_FLIGHT: usize = 1024;

/// An element as it stands in a slot.
type RawSge = [u8; Sge::SIZE];

/// Requests under way: a queue with access by position.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// A power of 2 of places, or none.
    works: Vec<Option<Work>>,
    /// `per_work` elements for each place.
    elements: Vec<RawSge>,
    per_work: usize,
    /// Number of the first request; its place is this modulo the places.
    head: usize,
    len: usize,
}

impl Flight {
    /// An empty queue for requests with at most `per_work` elements each.
    pub(crate) fn new(per_work: usize) -> Self {
        Flight {
            per_work,
            ..Flight::default()
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= MAX_FLIGHT
    }

    #[inline]
    fn place(&self, position: usize) -> usize {
        self.head.wrapping_add(position) & self.works.len().wrapping_sub(1)
    }

    /// The request at `position` from the front.
    #[inline]
    pub(crate) fn get(&self, position: usize) -> Option<&Work> {
        if position >= self.len {
            return None;
        }
        self.works.get(self.place(position))?.as_ref()
    }

    /// The request at `position` from the front, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, position: usize) -> Option<&mut Work> {
        if position >= self.len {
            return None;
        }
        let place = self.place(position);
        self.works.get_mut(place)?.as_mut()
    }

    /// The elements of the request at `position`, empty ones left out.
    #[inline]
    pub(crate) fn elements(&self, position: usize) -> SgData<'_> {
        let count = self.get(position).map_or(0, |w| usize::from(w.num_sge));
        let from = self.place(position) * self.per_work;
        let elements = self.elements.get(from..from + count).unwrap_or(&[]);
        SgData::Elements(elements.as_flattened())
    }

    /// Adds a request at the end with its elements as they stood in its slot, `num_sge` of them. The
    /// caller has seen that the queue is not full.
    pub(crate) fn push(&mut self, work: Work, elements: &[u8]) {
        if self.len == self.works.len() {
            self.grow();
        }
        let place = self.place(self.len);
        let from = place * self.per_work;
        let rooms = self.elements.iter_mut().skip(from).take(self.per_work);
        for (room, element) in rooms.zip(elements.chunks_exact(Sge::SIZE)) {
            room.copy_from_slice(element);
        }
        if let Some(slot) = self.works.get_mut(place) {
            *slot = Some(work);
            self.len += 1;
        }
    }

    /// Takes the first request out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Work> {
        if self.len == 0 {
            return None;
        }
        let place = self.place(0);
        let work = self.works.get_mut(place)?.take();
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        work
    }

    fn grow(&mut self) {
        let places = (self.works.len() * 2).max(4);
        let mut works = vec![None; places];
        let mut elements = vec![[0; Sge::SIZE]; places * self.per_work];
        for position in 0..self.len {
            let (from, to) = (self.place(position), self.head.wrapping_add(position) & (places - 1));
            works[to] = self.works[from];
            let (from, to) = (from * self.per_work, to * self.per_work);
            elements[to..to + self.per_work]
                .copy_from_slice(&self.elements[from..from + self.per_work]);
        }
        self.works = works;
        self.elements = elements;
    }
}

#[cfg(test)]
mod tests {
    use ochre_hw::wqe::SendOpcode;
    use ochre_wire::Psn;

    use super::*;

    fn work(wr_id: u64, num_sge: u8) -> Work {
        Work {
            opcode: SendOpcode::Send,
            flags: 0,
            num_sge,
            started: false,
            failed: None,
            len: 0,
            key: 0,
            imm: 0,
            first: Psn::default(),
            packets: 0,
            resumed_at: 0,
            wr_id,
            remote: 0,
            swap_or_add: 0,
            compare: 0,
        }
    }

    #[test]
    fn requests_keep_their_elements_while_the_queue_grows_and_wraps() {
        let mut flight = Flight::new(3);
        let mut next = 0u64;
        let mut first = 0u64;
        for round in 0..200usize {
            for _ in 0..round % 7 {
                let element = [next as u8; Sge::SIZE];
                let elements = [element; 3];
                let count = (next % 4) as usize;
                flight.push(work(next, count as u8), elements[..count].as_flattened());
                next += 1;
            }
            for position in 0..flight.len() {
                let id = first + position as u64;
                assert_eq!(flight.get(position).unwrap().wr_id, id);
                let SgData::Elements(bytes) = flight.elements(position) else {
                    panic!("elements are elements");
                };
                assert_eq!(bytes, vec![id as u8; (id % 4) as usize * Sge::SIZE]);
            }
            for _ in 0..round % 6 {
                if let Some(w) = flight.pop() {
                    assert_eq!(w.wr_id, first);
                    first += 1;
                }
            }
        }
        assert!(flight.get(flight.len()).is_none());
        assert!(next > 500);
    }
}
