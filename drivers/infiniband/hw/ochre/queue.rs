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

/// One of the two queues of a queue pair.
#[pin_data]
pub(crate) struct WorkQueue {
    side: Side,
    /// Byte offset of the first slot in the buffer.
    offset: usize,
    log_slots: u8,
    log_stride: u8,
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
                side: Side::Send,
                offset: layout.sq_offset as usize,
                log_slots: layout.log_sq_slots,
                log_stride: layout.log_sq_stride,
                indices <- new_spinlock_irq!(Indices::default()),
            }),
            recv <- pin_init!(WorkQueue {
                side: Side::Recv,
                offset: layout.rq_offset as usize,
                log_slots: layout.log_rq_slots,
                log_stride: layout.log_rq_stride,
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
            queue,
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
        let mut indices = self.queue(side).indices.lock();
        let done = index.wrapping_sub(indices.tail);
        // An index that is not in the queue is a fault of the device, and changes nothing.
        if done <= indices.producer.wrapping_sub(indices.tail) {
            indices.tail = index;
        }
    }

    /// Takes the oldest request of a queue back that a dead device will not complete: gives its
    /// `wr_id`.
    pub(crate) fn flush_one(&self, side: Side) -> Option<u64> {
        let queue = self.queue(side);
        let mut indices = queue.indices.lock();
        if indices.tail == indices.producer {
            return None;
        }
        let offset = queue.slot(indices.tail)
            + match side {
                Side::Send => offset_of!(SendWqe, wr_id),
                Side::Recv => offset_of!(RecvWqe, wr_id),
            };
        indices.tail = indices.tail.wrapping_add(1);
        self.mem.load64(offset).ok()
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

impl WorkQueue {
    /// Byte offset of the slot of an index.
    fn slot(&self, index: u32) -> usize {
        let slot = index & ((1 << self.log_slots) - 1);
        self.offset + ((slot as usize) << self.log_stride)
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
    queue: &'a WorkQueue,
    indices: &'a mut Indices,
}

impl<'a> Batch<'a> {
    /// The next free slot; [`ENOMEM`] where the queue is full.
    pub(crate) fn slot(&self) -> Result<Slot<'a>> {
        let used = self.indices.producer.wrapping_sub(self.indices.tail);
        if used >= 1 << self.queue.log_slots {
            return Err(ENOMEM);
        }
        let start = self.queue.slot(self.indices.producer);
        Ok(Slot {
            mem: self.mem,
            start,
            at: start,
            end: start + (1 << self.queue.log_stride),
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
