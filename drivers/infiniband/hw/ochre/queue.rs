// SPDX-License-Identifier: GPL-2.0-or-later

//! The work queues of a queue pair of the kernel.

use crate::{
    block::Block,
    hw::{
        queue::{
            QpLayout,
            QpRecord, //
        },
        wqe::{
            AtomicSegment,
            RecvWqe,
            SendWqe,
            Sge, //
        },
    }, //
};
use core::mem::offset_of;
use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_spinlock_irq,
    prelude::*,
    sync::{
        barrier::{
            dma_mb,
            mb,
            Full,
            Write, //
        },
        SpinLockIrq, //
    }, //
};

/// Which of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

/// Indices of a queue. They run freely.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Indices {
    /// The next slot to be filled.
    producer: u32,
    /// The first slot that is not known to be free again.
    tail: u32,
}

impl Indices {
    /// How many requests the queue has.
    fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.tail)
    }

    /// Takes slots back: those before `index`. An index that is not in the queue is a fault of the
    /// device, and changes nothing.
    fn complete(&mut self, index: u32) {
        if index.wrapping_sub(self.tail) <= self.used() {
            self.tail = index;
        }
    }

    /// Takes the oldest request's slot back: gives its index.
    fn take_oldest(&mut self) -> Option<u32> {
        if self.used() == 0 {
            return None;
        }
        let oldest = self.tail;
        self.tail = oldest.wrapping_add(1);
        Some(oldest)
    }
}

/// Where the slots of a queue lie in the buffer.
#[derive(Clone, Copy, Debug)]
struct Slots {
    /// Byte offset of the first one.
    offset: usize,
    log_num: u8,
    log_stride: u8,
}

impl Slots {
    /// How many there are.
    fn num(self) -> u32 {
        1 << self.log_num
    }

    /// Bytes of one.
    fn stride(self) -> usize {
        1 << self.log_stride
    }

    /// Byte offset of the slot of an index.
    fn at(self, index: u32) -> usize {
        let slot = index & (self.num() - 1);
        self.offset + ((slot as usize) << self.log_stride)
    }
}

/// One of the two queues of a queue pair.
#[pin_data]
pub(crate) struct WorkQueue {
    slots: Slots,
    #[pin]
    indices: SpinLockIrq<Indices>,
}

/// The buffer of a queue pair of the kernel, with both queues.
#[pin_data]
pub(crate) struct Queues {
    mem: Block,
    #[pin]
    send: WorkQueue,
    #[pin]
    recv: WorkQueue,
}

impl Queues {
    /// Allocates the buffer.
    pub(crate) fn new<'a>(
        dev: &'a Device<Bound>,
        layout: &'a QpLayout,
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            mem: Block::new(dev, layout.bytes as usize)?,
            send <- pin_init!(WorkQueue {
                slots: Slots {
                    offset: layout.sq_offset as usize,
                    log_num: layout.log_sq_slots,
                    log_stride: layout.log_sq_stride,
                },
                indices <- new_spinlock_irq!(Indices::default()),
            }),
            recv <- pin_init!(WorkQueue {
                slots: Slots {
                    offset: layout.rq_offset as usize,
                    log_num: layout.log_rq_slots,
                    log_stride: layout.log_rq_stride,
                },
                indices <- new_spinlock_irq!(Indices::default()),
            }),
        })
    }

    /// The buffer.
    pub(crate) fn mem(&self) -> &Block {
        &self.mem
    }

    fn queue(&self, side: Side) -> &WorkQueue {
        match side {
            Side::Send => &self.send,
            Side::Recv => &self.recv,
        }
    }

    /// Runs `fill` with a batch of new requests, and then shows the device those that it has
    /// added, also where it failed.
    pub(crate) fn post(&self, side: Side, fill: impl FnOnce(&mut Batch<'_>) -> Result) -> Posted {
        let queue = self.queue(side);
        let mut indices = queue.indices.lock();
        let before = indices.producer;
        let result = fill(&mut Batch {
            mem: &self.mem,
            slots: queue.slots,
            indices: &mut indices,
        });
        let mut wake = false;
        if indices.producer != before {
            wake = self.publish(side, indices.producer);
        }
        Posted { result, wake }
    }

    /// Shows the device the producer index of a queue; tells whether a doorbell is needed.
    fn publish(&self, side: Side, producer: u32) -> bool {
        let (record, need_wake) = match side {
            Side::Send => (
                offset_of!(QpRecord, sq_producer),
                offset_of!(QpRecord, sq_need_wake),
            ),
            Side::Recv => (
                offset_of!(QpRecord, rq_producer),
                offset_of!(QpRecord, rq_need_wake),
            ),
        };
        // The slots are written before the index.
        dma_mb(Write);
        if self.mem.store32(record, producer).is_err() {
            return false;
        }
        // The index is written before the device is asked whether it is awake.
        mb(Full);
        !matches!(self.mem.load32(need_wake), Ok(0))
    }

    /// Takes slots back: those before `index`, which a completion says are free.
    pub(crate) fn complete(&self, side: Side, index: u32) {
        self.queue(side).indices.lock().complete(index);
    }

    /// Takes the oldest request of a queue back that a dead device will not complete: gives its
    /// `wr_id`.
    pub(crate) fn flush_one(&self, side: Side) -> Option<u64> {
        let queue = self.queue(side);
        let mut indices = queue.indices.lock();
        let oldest = indices.take_oldest()?;
        let wr_id = match side {
            Side::Send => offset_of!(SendWqe, wr_id),
            Side::Recv => offset_of!(RecvWqe, wr_id),
        };
        self.mem.load64(queue.slots.at(oldest) + wr_id).ok()
    }

    /// Forgets all requests: the queue pair was reset.
    pub(crate) fn reset(&self) {
        for side in [Side::Send, Side::Recv] {
            *self.queue(side).indices.lock() = Indices::default();
        }
        // The record is always in the memory.
        let _ = self.mem.store32(offset_of!(QpRecord, sq_producer), 0);
        let _ = self.mem.store32(offset_of!(QpRecord, rq_producer), 0);
    }
}

/// What came of a batch.
#[must_use]
pub(crate) struct Posted {
    /// Why not all requests were added.
    pub(crate) result: Result,
    /// The device must be woken by a doorbell.
    pub(crate) wake: bool,
}

/// New requests of a queue, while its lock is held.
pub(crate) struct Batch<'a> {
    mem: &'a Block,
    slots: Slots,
    indices: &'a mut Indices,
}

impl<'a> Batch<'a> {
    /// The next free slot; [`ENOMEM`] where the queue is full.
    pub(crate) fn slot(&self) -> Result<Slot<'a>> {
        if self.indices.used() >= self.slots.num() {
            return Err(ENOMEM);
        }
        let start = self.slots.at(self.indices.producer);
        Ok(Slot {
            mem: self.mem,
            start,
            at: start,
            end: start + self.slots.stride(),
        })
    }

    /// The slot that [`Batch::slot`] gave last is complete.
    pub(crate) fn push(&mut self) {
        self.indices.producer = self.indices.producer.wrapping_add(1);
    }
}

/// A slot that is being filled from its start.
pub(crate) struct Slot<'a> {
    mem: &'a Block,
    start: usize,
    at: usize,
    end: usize,
}

impl Slot<'_> {
    /// Leaves room for a header, which comes when the rest is known.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    fn append(&mut self, bytes: &[u8]) -> Result {
        if bytes.len() > self.end.saturating_sub(self.at) {
            return Err(EINVAL);
        }
        self.mem.write(self.at, bytes)?;
        self.at += bytes.len();
        Ok(())
    }

    /// Appends the operands of an atomic.
    pub(crate) fn atomic(&mut self, segment: &AtomicSegment) -> Result {
        self.append(&segment.to_bytes())
    }

    /// Appends a scatter/gather element; [`EINVAL`] where the slot is full.
    pub(crate) fn sge(&mut self, sge: &Sge) -> Result {
        self.append(&sge.to_bytes())
    }

    /// Appends inline data; [`EINVAL`] where the slot is full.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result {
        self.append(bytes)
    }

    /// Writes the header of a send.
    pub(crate) fn send_header(&self, header: &SendWqe) -> Result {
        self.mem.write(self.start, &header.to_bytes())
    }

    /// Writes the header of a receive.
    pub(crate) fn recv_header(&self, header: &RecvWqe) -> Result {
        self.mem.write(self.start, &header.to_bytes())
    }
}

#[kunit_tests(ochre_queue)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_one_behind_the_other_and_come_again() {
        let slots = Slots {
            offset: 128,
            log_num: 2,
            log_stride: 6,
        };
        assert_eq!(slots.num(), 4);
        assert_eq!(slots.stride(), 64);
        assert_eq!(slots.at(0), 128);
        assert_eq!(slots.at(3), 128 + 3 * 64);
        assert_eq!(slots.at(4), 128);
        assert_eq!(slots.at(u32::MAX), 128 + 3 * 64);
    }

    #[test]
    fn a_queue_of_one_slot_has_that_slot_always() {
        let slots = Slots {
            offset: 0,
            log_num: 0,
            log_stride: 10,
        };
        assert_eq!(slots.at(0), 0);
        assert_eq!(slots.at(u32::MAX), 0);
    }

    #[test]
    fn indices_count_around_the_end_of_32_bits() {
        let mut indices = Indices {
            producer: 2,
            tail: u32::MAX - 1,
        };
        assert_eq!(indices.used(), 4);
        indices.complete(u32::MAX);
        assert_eq!(indices.used(), 3);
        indices.complete(1);
        assert_eq!(indices.used(), 1);
        assert_eq!(indices.take_oldest(), Some(1));
        assert_eq!(indices.take_oldest(), None);
        assert_eq!(indices.used(), 0);
    }

    #[test]
    fn completions_of_what_was_not_posted_change_nothing() {
        let mut indices = Indices {
            producer: 10,
            tail: 6,
        };
        for index in [5, 11, 0, u32::MAX] {
            indices.complete(index);
            assert_eq!(indices.tail, 6);
        }
        indices.complete(6);
        assert_eq!(indices.used(), 4);
        indices.complete(10);
        assert_eq!(indices.used(), 0);
    }
}
