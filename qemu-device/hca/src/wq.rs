// SPDX-License-Identifier: GPL-2.0-or-later
//! Send and receive queues in the guest's memory: how far the guest has come, and what stands in a
//! slot. What a work request means is the engines' business.

use ochre_hw::queue::{MAX_INLINE, MAX_SGE};
use ochre_hw::wqe::{AtomicSegment, RecvWqe, SendOpcode, SendWqe, Sge, SEND_FLAGS, SEND_INLINE};

use crate::mem::{QueueMem, SgData};
use crate::seams::{Dma, DmaError};

/// Why a queue cannot go on: the QP goes to the error state with `QpFatal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The producer index is further ahead than the queue has slots.
    #[error("producer index is {ahead} slots ahead of a queue of {slots}")]
    Overrun {
        /// How far ahead.
        ahead: u32,
        /// Slots of the queue.
        slots: u32,
    },
    /// The queue's memory cannot be reached.
    #[error(transparent)]
    Dma(#[from] DmaError),
}

/// Offsets of the words of a queue in the QP's record.
#[derive(Clone, Copy, Debug)]
struct Words {
    producer: u64,
    need_wake: u64,
}

const SEND_WORDS: Words = Words {
    producer: 0x00,
    need_wake: 0x40,
};
const RECV_WORDS: Words = Words {
    producer: 0x04,
    need_wake: 0x44,
};

/// A queue of work requests.
#[derive(Debug)]
pub struct WorkQueue {
    offset: u32,
    log_slots: u8,
    log_stride: u8,
    /// What `need_wake` in the record says now.
    asleep: bool,
    words: Words,
    /// Index that the guest fills next, as last read.
    pub producer: u32,
    /// Index of the next slot that the engine takes up.
    pub head: u32,
    /// Index of the oldest slot that is not completed: all before it are free.
    pub tail: u32,
}

impl WorkQueue {
    /// A send queue at byte `offset` of the QP's buffer.
    pub fn send(offset: u32, log_slots: u8, log_stride: u8) -> Self {
        Self::new(offset, log_slots, log_stride, SEND_WORDS)
    }

    /// A receive queue at byte `offset` of the QP's buffer.
    pub fn recv(offset: u32, log_slots: u8, log_stride: u8) -> Self {
        Self::new(offset, log_slots, log_stride, RECV_WORDS)
    }

    fn new(offset: u32, log_slots: u8, log_stride: u8, words: Words) -> Self {
        WorkQueue {
            offset,
            log_slots,
            log_stride,
            asleep: false,
            words,
            producer: 0,
            head: 0,
            tail: 0,
        }
    }

    /// Makes all indices start at `index`: time does not suffice to count so far.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u32) {
        self.producer = index;
        self.head = index;
        self.tail = index;
    }

    /// Slots of the queue.
    #[inline]
    pub fn slots(&self) -> u32 {
        1 << self.log_slots
    }

    /// Bytes of a slot.
    #[inline]
    pub fn stride(&self) -> usize {
        1 << self.log_stride
    }

    /// Slots filled that the engine has not taken up, as last read by [`WorkQueue::look`].
    #[inline]
    pub fn pending(&self) -> u32 {
        self.producer.wrapping_sub(self.head)
    }

    /// Reads the producer index and gives the number of slots not taken up.
    #[inline]
    pub fn look<D: Dma>(&mut self, dma: &D, mem: &QueueMem) -> Result<u32, QueueError> {
        let producer = mem.load_u32(dma, self.words.producer)?;
        let ahead = producer.wrapping_sub(self.tail);
        // An index behind `head` is far ahead too: the differences are modulo 2^32.
        if ahead > self.slots() || ahead < self.head.wrapping_sub(self.tail) {
            return Err(QueueError::Overrun {
                ahead,
                slots: self.slots(),
            });
        }
        self.producer = producer;
        Ok(self.pending())
    }

    /// Tells the guest to ring for new requests, then looks once more. Where the result is not 0,
    /// something came meanwhile and the queue counts as awake again.
    pub fn sleep<D: Dma>(&mut self, dma: &D, mem: &QueueMem) -> Result<u32, QueueError> {
        if !self.asleep {
            mem.store_u32(dma, self.words.need_wake, 1)?;
            self.asleep = true;
        }
        dma.fence();
        let pending = self.look(dma, mem)?;
        if pending != 0 {
            self.wake(dma, mem)?;
        }
        Ok(pending)
    }

    /// Tells the guest that doorbells are not needed for now: the engine will look by itself.
    #[inline]
    pub fn wake<D: Dma>(&mut self, dma: &D, mem: &QueueMem) -> Result<(), QueueError> {
        if self.asleep {
            mem.store_u32(dma, self.words.need_wake, 0)?;
            self.asleep = false;
        }
        Ok(())
    }

    /// Whether the guest was told that the engine looks by itself.
    #[inline]
    pub fn is_awake(&self) -> bool {
        !self.asleep
    }

    /// Goes back to an empty queue, as after RESET: indices start at 0.
    pub fn reset<D: Dma>(&mut self, dma: &D, mem: &QueueMem) -> Result<(), QueueError> {
        self.producer = 0;
        self.head = 0;
        self.tail = 0;
        self.asleep = false;
        Ok(mem.store_u32(dma, self.words.need_wake, 0)?)
    }

    /// Copies the bytes of a slot from `from` on; the caller has seen that they are in the slot.
    #[inline]
    fn read_slot<D: Dma>(
        &self,
        dma: &D,
        mem: &QueueMem,
        index: u32,
        from: usize,
        bytes: &mut [u8],
    ) -> Result<(), DmaError> {
        let slot = index & (self.slots() - 1);
        let offset = u64::from(self.offset) + (u64::from(slot) << self.log_stride);
        mem.read(dma, offset + from as u64, bytes)
    }

    /// Copies the send request in slot `index` out of the guest's memory, as far as it reaches, and
    /// checks its form. Its data stay in `slot`.
    #[inline(always)] // Its result is large: better written where it is used.
    pub fn read_send<'a, D: Dma>(
        &self,
        dma: &D,
        mem: &QueueMem,
        index: u32,
        slot: &'a mut SendSlot,
    ) -> Result<SendRequest<'a>, DmaError> {
        let stride = self.stride().min(slot.0.len());
        let have = stride.min(FIRST);
        self.read_slot(dma, mem, index, 0, &mut slot.0[..have])?;
        let form = SendForm::new(&slot.0, stride);
        let end = form.data_at + form.data_len;
        if end > have {
            self.read_slot(dma, mem, index, have, &mut slot.0[have..end])?;
        }
        Ok(SendRequest {
            index,
            opcode: form.opcode,
            wqe: form.wqe,
            atomic: form.atomic,
            data: &slot.0[form.data_at..end],
        })
    }

    /// Copies the receive request in slot `index` out of the guest's memory, as far as it reaches,
    /// and checks its form.
    #[inline]
    pub fn read_recv<D: Dma>(
        &self,
        dma: &D,
        mem: &QueueMem,
        index: u32,
        request: &mut RecvRequest,
    ) -> Result<(), DmaError> {
        let stride = self.stride().min(request.slot.len());
        let have = stride.min(FIRST);
        self.read_slot(dma, mem, index, 0, &mut request.slot[..have])?;
        let end = request.form(index, stride);
        if end > have {
            self.read_slot(dma, mem, index, have, &mut request.slot[have..end])?;
        }
        Ok(())
    }
}

/// Bytes of a slot that are read at once: the head and a few elements. What comes behind is read
/// where the head says that it is there.
const FIRST: usize = 64;
/// Most bytes of a send slot that have a meaning.
const SLOT: usize = 1024;
/// Most bytes of a receive slot that have a meaning.
const RECV_SLOT: usize = RecvWqe::SIZE + MAX_SGE as usize * Sge::SIZE;

/// Room for the bytes of a send slot.
#[derive(Clone, Debug)]
pub struct SendSlot([u8; SLOT]);

impl Default for SendSlot {
    fn default() -> Self {
        SendSlot([0; SLOT])
    }
}

/// What the head of a send slot says.
struct SendForm {
    opcode: Option<SendOpcode>,
    wqe: SendWqe,
    atomic: AtomicSegment,
    data_at: usize,
    data_len: usize,
}

impl SendForm {
    /// Of a slot of `stride` bytes, of which the first [`FIRST`] are there.
    #[inline]
    fn new(slot: &[u8; SLOT], stride: usize) -> Self {
        let mut head = [0; SendWqe::SIZE];
        head.copy_from_slice(&slot[..SendWqe::SIZE]);
        let wqe = SendWqe::from_bytes(&head);
        let mut form = SendForm {
            opcode: None,
            wqe,
            atomic: AtomicSegment::default(),
            data_at: SendWqe::SIZE,
            data_len: 0,
        };
        let Some(opcode) = SendOpcode::from_raw(wqe.opcode) else {
            return form;
        };
        if wqe.flags & !SEND_FLAGS != 0 || wqe.reserved != 0 {
            return form;
        }
        let atomic = matches!(opcode, SendOpcode::CompareSwap | SendOpcode::FetchAdd);
        let data_at = if atomic {
            let mut segment = [0; AtomicSegment::SIZE];
            segment.copy_from_slice(&slot[SendWqe::SIZE..][..AtomicSegment::SIZE]);
            form.atomic = AtomicSegment::from_bytes(&segment);
            SendWqe::SIZE + AtomicSegment::SIZE
        } else {
            SendWqe::SIZE
        };
        let data_len = if wqe.flags & SEND_INLINE != 0 {
            let with_inline = !atomic && opcode != SendOpcode::Read;
            if !with_inline || wqe.num_sge != 0 || u32::from(wqe.inline_len) > MAX_INLINE {
                return form;
            }
            usize::from(wqe.inline_len)
        } else {
            if u32::from(wqe.num_sge) > MAX_SGE || wqe.inline_len != 0 {
                return form;
            }
            usize::from(wqe.num_sge) * Sge::SIZE
        };
        if data_at + data_len > stride {
            return form;
        }
        form.data_at = data_at;
        form.data_len = data_len;
        form.opcode = Some(opcode);
        form
    }
}

/// A send request, copied out of its slot.
///
/// Its form has been checked: reserved bits, number of elements and inline length fit the slot.
/// A request whose form is wrong has `opcode` `None`; it completes with `LocalQpOperation`.
#[derive(Clone, Debug)]
pub struct SendRequest<'a> {
    /// Index of its slot.
    pub index: u32,
    /// What to do, or `None` for a malformed request.
    pub opcode: Option<SendOpcode>,
    /// The head of the slot.
    pub wqe: SendWqe,
    /// Operands, of an atomic.
    pub atomic: AtomicSegment,
    data: &'a [u8],
}

impl<'a> SendRequest<'a> {
    /// Whether all of `flags` are set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.wqe.flags & flags == flags
    }

    /// Its data.
    #[inline]
    pub fn data(&self) -> SgData<'a> {
        if self.has(SEND_INLINE) {
            SgData::Inline(self.data)
        } else {
            SgData::Elements(self.data)
        }
    }
}

/// A receive request, copied out of its slot.
///
/// Where its form is wrong, `valid` is false; it completes with `LocalQpOperation`.
#[derive(Clone, Debug)]
pub struct RecvRequest {
    /// Index of its slot.
    pub index: u32,
    /// Returned in the completion.
    pub wr_id: u64,
    /// Reserved bits are zero and the elements fit the slot.
    pub valid: bool,
    elements: u8,
    slot: [u8; RECV_SLOT],
}

impl Default for RecvRequest {
    fn default() -> Self {
        RecvRequest {
            index: 0,
            wr_id: 0,
            valid: false,
            elements: 0,
            slot: [0; RECV_SLOT],
        }
    }
}

impl RecvRequest {
    /// Takes in the head of a slot of `stride` bytes and gives where its elements end.
    fn form(&mut self, index: u32, stride: usize) -> usize {
        let mut head = [0; RecvWqe::SIZE];
        head.copy_from_slice(&self.slot[..RecvWqe::SIZE]);
        let wqe = RecvWqe::from_bytes(&head);
        let elements = |count: usize| RecvWqe::SIZE + count * Sge::SIZE;
        self.index = index;
        self.wr_id = wqe.wr_id;
        self.valid =
            wqe.reserved == 0 && wqe.num_sge <= MAX_SGE && elements(wqe.num_sge as usize) <= stride;
        self.elements = if self.valid { wqe.num_sge as u8 } else { 0 };
        elements(self.elements.into())
    }

    /// Its room for data.
    #[inline]
    pub fn data(&self) -> SgData<'_> {
        let len = usize::from(self.elements) * Sge::SIZE;
        SgData::Elements(&self.slot[RecvWqe::SIZE..RecvWqe::SIZE + len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{PageBudget, PageList};
    use crate::memory::Memory;
    use ochre_hw::queue::MemDesc;
    use proptest::prelude::*;

    proptest! {
        /// A producer index is taken exactly where it lies between what was taken up and what there
        /// is room for, wherever in 32 bits the queue stands.
        #[test]
        fn indices_count_modulo_2_to_the_32(
            tail in prop_oneof![any::<u32>(), u32::MAX - 40..=u32::MAX],
            taken in 0..=16u32,
            step in prop_oneof![0..40u64, (1u64 << 32) - 40..1 << 32, 0..1u64 << 32],
        ) {
            let mem = Memory::new(4096);
            let desc = MemDesc { addr: 0, num_pages: 1, page_shift: 12, ..MemDesc::default() };
            let pages = PageList::load(&mem, &desc, 0, &PageBudget::new(1)).unwrap();
            let queue = QueueMem::new(pages);
            let mut wq = WorkQueue::send(128, 4, 6);
            wq.start_at(tail);
            wq.head = tail.wrapping_add(taken);
            let producer = (u64::from(tail) + step) as u32;
            mem.store_u32(0, producer).unwrap();
            let found = wq.look(&mem, &queue);
            if (u64::from(taken)..=16).contains(&step) {
                prop_assert_eq!(found, Ok((step - u64::from(taken)) as u32));
                prop_assert_eq!(wq.producer, producer);
            } else {
                prop_assert!(found.is_err(), "{step} slots ahead, {taken} taken up");
            }
        }
    }
}
