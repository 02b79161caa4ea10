// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's side of queues: what a driver or provider does, as plainly as it can be written.

use core::cell::Cell;
use core::mem::offset_of;
use std::rc::Rc;

use ochre_hw::cqe::{Cqe, CQE_PHASE};
use ochre_hw::eqe::{Eqe, EQE_PHASE};
use ochre_hw::queue::{CqRecord, EqRecord, QpLayout, QpSizes};
use ochre_hw::wqe::{RecvWqe, SendWqe, Sge};

use super::{Dma, Memory};

/// Hands out pieces of memory, never takes them back.
pub struct Heap {
    next: u64,
    end: u64,
}

impl Heap {
    pub fn new(start: u64, end: u64) -> Self {
        Heap { next: start, end }
    }

    /// `len` bytes on a page.
    pub fn take(&mut self, len: u64) -> u64 {
        let at = self.next;
        self.next = (at + len + 4095) & !4095;
        assert!(self.next <= self.end, "simulated memory is used up");
        at
    }
}

/// A QP's buffer and indices.
pub struct GuestQp {
    mem: Memory,
    pub base: u64,
    pub layout: QpLayout,
    pub sq_producer: u32,
    pub rq_producer: u32,
    /// Slots before these are completed.
    pub sq_consumer: u32,
    pub rq_consumer: u32,
}

impl GuestQp {
    pub fn new(mem: &Memory, heap: &mut Heap, sizes: &QpSizes) -> Self {
        let layout = QpLayout::new(sizes).expect("sizes are in range");
        GuestQp {
            mem: mem.clone(),
            base: heap.take(layout.bytes.into()),
            layout,
            sq_producer: 0,
            rq_producer: 0,
            sq_consumer: 0,
            rq_consumer: 0,
        }
    }

    /// What software does when the QP is in RESET: all indices begin anew.
    pub fn reset(&mut self) {
        self.start_at(0);
    }

    /// Makes all indices start at `index`.
    pub fn start_at(&mut self, index: u32) {
        self.sq_producer = index;
        self.rq_producer = index;
        self.sq_consumer = index;
        self.rq_consumer = index;
        self.mem.store_u32(self.base, index).unwrap();
        self.mem.store_u32(self.base + 4, index).unwrap();
    }

    /// Memory of the QP's host.
    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        self.mem.read(at, bytes).unwrap();
    }

    pub fn sq_room(&self) -> u32 {
        (1 << self.layout.log_sq_slots) - self.sq_producer.wrapping_sub(self.sq_consumer)
    }

    pub fn rq_room(&self) -> u32 {
        (1 << self.layout.log_rq_slots) - self.rq_producer.wrapping_sub(self.rq_consumer)
    }

    pub fn send_slot(&self, index: u32) -> u64 {
        let slot = u64::from(index & ((1 << self.layout.log_sq_slots) - 1));
        self.base + u64::from(self.layout.sq_offset) + (slot << self.layout.log_sq_stride)
    }

    /// Fills the next send slot with an entry and what follows it.
    pub fn write_send(&mut self, wqe: &SendWqe, data: &[u8]) {
        let at = self.send_slot(self.sq_producer);
        self.mem.write(at, &wqe.to_bytes()).unwrap();
        self.mem.write(at + SendWqe::SIZE as u64, data).unwrap();
        self.sq_producer = self.sq_producer.wrapping_add(1);
    }

    /// Makes all filled send slots known; the doorbell is the caller's.
    pub fn publish_sends(&self) {
        self.mem.store_u32(self.base, self.sq_producer).unwrap();
        self.mem.fence();
    }

    /// Whether the device wants a doorbell for sends.
    pub fn wants_send_doorbell(&self) -> bool {
        self.mem.load_u32(self.base + 0x40).unwrap() != 0
    }

    pub fn post_send(&mut self, wqe: &SendWqe, data: &[u8]) {
        self.write_send(wqe, data);
        self.publish_sends();
    }

    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        let slot = u64::from(self.rq_producer & ((1 << self.layout.log_rq_slots) - 1));
        let at = self.base + u64::from(self.layout.rq_offset) + (slot << self.layout.log_rq_stride);
        let wqe = RecvWqe {
            wr_id,
            num_sge: sges.len() as u32,
            reserved: 0,
        };
        self.mem.write(at, &wqe.to_bytes()).unwrap();
        self.mem
            .write(at + RecvWqe::SIZE as u64, &elements(sges))
            .unwrap();
        self.rq_producer = self.rq_producer.wrapping_add(1);
        self.mem.store_u32(self.base + 4, self.rq_producer).unwrap();
    }
}

/// Elements as they stand in a slot.
pub fn elements(sges: &[Sge]) -> Vec<u8> {
    sges.iter().flat_map(|s| s.to_bytes()).collect()
}

/// A CQ's buffer and index; a clone is the same CQ.
#[derive(Clone)]
pub struct GuestCq {
    mem: Memory,
    pub base: u64,
    pub log_entries: u8,
    consumer: Rc<Cell<u32>>,
}

impl GuestCq {
    /// Whether the device asks for busy polling.
    pub fn asks_for_polling(&self) -> bool {
        let at = offset_of!(CqRecord, busy_poll) as u64;
        self.mem.load_u32(self.base + at).unwrap() != 0
    }

    pub fn new(mem: &Memory, heap: &mut Heap, log_entries: u8) -> Self {
        let bytes = CqRecord::SIZE as u64 + ((Cqe::SIZE as u64) << log_entries);
        GuestCq {
            mem: mem.clone(),
            base: heap.take(bytes),
            log_entries,
            consumer: Rc::default(),
        }
    }

    /// Makes the index start at `index`: all entries have the phase of the pass before.
    pub fn start_at(&mut self, index: u32) {
        self.consumer.set(index);
        for behind in 1..=1u32 << self.log_entries {
            let old = index.wrapping_sub(behind);
            let slot = u64::from(old & ((1 << self.log_entries) - 1));
            let at = self.base + CqRecord::SIZE as u64 + slot * Cqe::SIZE as u64;
            let phase = 1 ^ (old >> self.log_entries & 1) as u8;
            let entry = Cqe {
                owner: phase * CQE_PHASE,
                ..Cqe::default()
            };
            self.mem.write(at, &entry.to_bytes()).unwrap();
        }
        self.mem.store_u32(self.base, index).unwrap();
    }

    /// The next completion, if there is one.
    pub fn poll(&mut self) -> Option<Cqe> {
        let consumer = self.consumer.get();
        let slot = u64::from(consumer & ((1 << self.log_entries) - 1));
        let at = self.base + CqRecord::SIZE as u64 + slot * Cqe::SIZE as u64;
        let cqe = Cqe::from_bytes(&self.mem.bytes(at).unwrap());
        let phase = if consumer >> self.log_entries & 1 == 0 {
            CQE_PHASE
        } else {
            0
        };
        if cqe.owner & CQE_PHASE != phase {
            return None;
        }
        let next = consumer.wrapping_add(1);
        self.consumer.set(next);
        self.mem.store_u32(self.base, next).unwrap();
        Some(cqe)
    }
}

/// An event queue.
pub struct GuestEq {
    mem: Memory,
    pub base: u64,
    log_entries: u8,
    consumer: u32,
}

impl GuestEq {
    pub fn new(mem: &Memory, heap: &mut Heap, log_entries: u8) -> Self {
        let bytes = EqRecord::SIZE as u64 + ((Eqe::SIZE as u64) << log_entries);
        GuestEq {
            mem: mem.clone(),
            base: heap.take(bytes),
            log_entries,
            consumer: 0,
        }
    }

    /// The next event, if there is one.
    pub fn poll(&mut self) -> Option<Eqe> {
        let slot = u64::from(self.consumer & ((1 << self.log_entries) - 1));
        let at = self.base + EqRecord::SIZE as u64 + slot * Eqe::SIZE as u64;
        let eqe = Eqe::from_bytes(&self.mem.bytes(at).unwrap());
        let phase = if self.consumer >> self.log_entries & 1 == 0 {
            EQE_PHASE
        } else {
            0
        };
        if eqe.owner & EQE_PHASE != phase {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        self.mem.store_u32(self.base, self.consumer).unwrap();
        Some(eqe)
    }

    pub fn arm(&self, value: u32) {
        self.mem.store_u32(self.base + 4, value).unwrap();
    }
}
