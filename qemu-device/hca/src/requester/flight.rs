// SPDX-License-Identifier: GPL-2.0-or-later

//! The send work requests under way, in order, with their scatter/gather elements or inline data.
//!
//! A request enters when its slot is read and leaves when it completes; what a retry needs is kept
//! here, so that no slot is read twice. Places are reused; memory is taken only while more requests
//! than ever before are under way.

use ochre_hw::wqe::Sge;

use super::work::Work;
use crate::mem::SgData;

/// Most requests under way on one QP.
pub(crate) const MAX_FLIGHT: usize = 1024;

/// Requests under way: a queue with access by position.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// A power of 2 of places, or none.
    works: Vec<Option<Work>>,
    /// `per_work` bytes for each place: elements as they stood in the slot, or inline data.
    data: Vec<u8>,
    per_work: usize,
    /// Number of the first request; its place is this modulo the places.
    head: usize,
    len: usize,
}

impl Flight {
    /// An empty queue for requests with at most `per_work` bytes of elements or inline data each.
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

    /// The data of the request at `position`.
    #[inline]
    pub(crate) fn data(&self, position: usize) -> SgData<'_> {
        let (bytes, inline) = self.get(position).map_or((0, false), data_bytes);
        let from = self.place(position) * self.per_work;
        let bytes = self.data.get(from..from + bytes).unwrap_or(&[]);
        if inline {
            SgData::Inline(bytes)
        } else {
            SgData::Elements(bytes)
        }
    }

    /// Adds a request at the end with its elements or inline data as they stood in its slot. The
    /// caller has seen that the queue is not full.
    pub(crate) fn push(&mut self, work: Work, data: &[u8]) {
        if self.len == self.works.len() {
            self.grow();
        }
        let place = self.place(self.len);
        let from = place * self.per_work;
        let room = self.data.get_mut(from..from + data.len());
        if let Some(room) = room {
            room.copy_from_slice(data);
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

    /// Forgets all requests; the places stay.
    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    fn grow(&mut self) {
        let places = (self.works.len() * 2).max(4);
        let mut works = vec![None; places];
        let mut data = vec![0; places * self.per_work];
        for position in 0..self.len {
            let (from, to) = (
                self.place(position),
                self.head.wrapping_add(position) & (places - 1),
            );
            works[to] = self.works[from];
            let (from, to) = (from * self.per_work, to * self.per_work);
            data[to..to + self.per_work].copy_from_slice(&self.data[from..from + self.per_work]);
        }
        self.works = works;
        self.data = data;
    }
}

/// Bytes of the data that a request brought in its slot, and whether they are inline.
#[inline]
fn data_bytes(work: &Work) -> (usize, bool) {
    if work.is_inline() {
        (work.len as usize, true)
    } else {
        (usize::from(work.num_sge) * Sge::SIZE, false)
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
        let mut flight = Flight::new(3 * Sge::SIZE);
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
                let SgData::Elements(bytes) = flight.data(position) else {
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
