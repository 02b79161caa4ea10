// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Completion queues: making, arming, destroying.

use core::ffi::c_int;
use core::mem::offset_of;
use core::sync::atomic::{fence, Ordering};

use ochre_abi::{AllocUcontextResp, CreateCqReq, CreateCqResp};
use ochre_hw::cqe::{Cqe, CQE_PHASE};
use ochre_hw::queue::{CqRecord, CQ_ARM_KIND, CQ_ARM_NEXT, CQ_ARM_SOLICITED, CQ_ARM_STEP};
use parking_lot::{Mutex, MutexGuard};

use crate::busy::BusyPoll;
use crate::context::Context;
use crate::ffi::{self, fail, Cmd};
use crate::memory::{publish, Buffer};
use crate::poll_ex;

/// A completion queue. libibverbs knows the first field.
#[repr(C)]
pub(crate) struct Cq {
    cq: ffi::verbs_cq,
    ring: Mutex<Ring>,
}

/// The entries and how far they are consumed.
pub(crate) struct Ring {
    buffer: Buffer,
    log_entries: u8,
    consumer: u32,
    /// The completion that a program reads field by field.
    pub(crate) current: Cqe,
    busy: BusyPoll,
}

impl Cq {
    /// The queue behind libibverbs' pointer.
    ///
    /// # Safety
    /// `cq` must be a CQ that [`create_cq`] made and that is not destroyed during `'a`.
    pub(crate) unsafe fn from_ptr<'a>(cq: *mut ffi::ibv_cq) -> &'a Self {
        const { assert!(offset_of!(Cq, cq) == 0) };
        // SAFETY: by the caller's promise; libibverbs' own field is accessed only by libibverbs.
        unsafe { &*cq.cast::<Self>() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }

    /// The mutex itself, for a lock that is held between calls.
    pub(crate) fn mutex(&self) -> &Mutex<Ring> {
        &self.ring
    }
}

impl Ring {
    fn offset(&self, index: u32) -> usize {
        let slot = index & ((1 << self.log_entries) - 1);
        CqRecord::SIZE + slot as usize * Cqe::SIZE
    }

    /// The entry of an index has been written by the device.
    #[inline]
    fn is_valid(&self, index: u32) -> bool {
        // The phase is in the last byte of the entry, the top byte of its last word.
        let last = u32::from_le(
            self.buffer
                .word(self.offset(index) + Cqe::SIZE - 4)
                .load(Ordering::Acquire),
        );
        let pass = (index >> self.log_entries) & 1;
        ((last >> 24) as u8 & CQE_PHASE) == CQE_PHASE ^ pass as u8
    }

    /// Takes the next completion, if there is one.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Cqe> {
        if !self.is_valid(self.consumer) {
            return None;
        }
        let cqe = Cqe::from_bytes(&self.buffer.read(self.offset(self.consumer)));
        self.consumer = self.consumer.wrapping_add(1);
        self.busy.found();
        Some(cqe)
    }

    /// Nothing was found; whether the device is to be told that the program polls.
    #[inline]
    pub(crate) fn found_nothing(&mut self) -> bool {
        let asked = self.buffer.word(offset_of!(CqRecord, busy_poll));
        self.busy
            .found_nothing(|| asked.load(Ordering::Relaxed) != 0)
    }

    /// Gives the consumed entries back to the device.
    #[inline]
    pub(crate) fn release(&self) {
        publish(
            self.buffer.word(offset_of!(CqRecord, consumer)),
            self.consumer,
        );
    }

    /// Removes the completions of a QP that goes away or starts anew; the others keep their order.
    pub(crate) fn remove(&mut self, qpn: u32) {
        let mut end = self.consumer;
        while end.wrapping_sub(self.consumer) < 1 << self.log_entries && self.is_valid(end) {
            end = end.wrapping_add(1);
        }
        // From the newest to the oldest, entries that stay move up over those that go.
        let mut removed = 0;
        let mut index = end;
        while index != self.consumer {
            index = index.wrapping_sub(1);
            let entry: [u8; Cqe::SIZE] = self.buffer.read(self.offset(index));
            if Cqe::from_bytes(&entry).qpn == qpn {
                removed += 1;
            } else if removed > 0 {
                // The phase is that of the place, so all but the last byte moves.
                self.buffer.write(
                    self.offset(index.wrapping_add(removed)),
                    &entry[..Cqe::SIZE - 1],
                );
            }
        }
        if removed > 0 {
            self.consumer = self.consumer.wrapping_add(removed);
            self.release();
        }
    }

    /// Arms the queue; whether the device is to be told that polling ends.
    fn arm(&mut self, kind: u32) -> bool {
        let word = self.buffer.word(offset_of!(CqRecord, arm));
        let sequence = u32::from_le(word.load(Ordering::Relaxed)) & !CQ_ARM_KIND;
        word.store(
            (sequence.wrapping_add(CQ_ARM_STEP) | kind).to_le(),
            Ordering::Release,
        );
        // The program now polls once more: the device must see the word before that poll reads.
        fence(Ordering::SeqCst);
        self.busy.arm()
    }
}

/// A CQ with room for at least `wanted` entries that the kernel does not know yet, and what to tell
/// it. The error is an errno.
fn prepare(limits: &AllocUcontextResp, wanted: u32) -> Result<(Box<Cq>, CreateCqReq), i32> {
    if wanted == 0 || wanted > limits.max_cqe {
        return Err(libc::EINVAL);
    }
    let log_entries = wanted.next_power_of_two().trailing_zeros() as u8;
    let bytes = CqRecord::SIZE + (Cqe::SIZE << log_entries);
    let buffer = Buffer::new(bytes.next_multiple_of(4096))?;
    let req = CreateCqReq {
        buf_addr: buffer.addr(),
        buf_len: buffer.len() as u64,
        log_entries: log_entries.into(),
        reserved: 0,
    };
    let ring = Ring {
        buffer,
        log_entries,
        consumer: 0,
        current: Cqe::default(),
        busy: BusyPoll::default(),
    };
    Ok((
        Box::new(Cq {
            cq: ffi::verbs_cq::default(),
            ring: Mutex::new(ring),
        }),
        req,
    ))
}

pub(crate) unsafe extern "C" fn create_cq(
    ctx: *mut ffi::ibv_context,
    cqe: c_int,
    channel: *mut ffi::ibv_comp_channel,
    vector: c_int,
) -> *mut ffi::ibv_cq {
    // SAFETY: an open context of ours.
    let limits = &unsafe { Context::state(ctx) }.limits;
    let made = u32::try_from(cqe)
        .map_err(|_| libc::EINVAL)
        .and_then(|n| prepare(limits, n));
    let (mut cq, req) = match made {
        Ok(made) => made,
        Err(errno) => return fail(errno),
    };
    let entries = 1 << req.log_entries;
    let mut cmd = Cmd::<ffi::ibv_create_cq, _>::new(req);
    let mut resp = Cmd::<ffi::ib_uverbs_create_cq_resp, _>::new(CreateCqResp::default());
    // SAFETY: command and response are as long as is said; the other pointers are the program's.
    let err = unsafe {
        ffi::ibv_cmd_create_cq(
            ctx,
            entries,
            channel,
            vector,
            &mut cq.cq.__bindgen_anon_1.cq,
            &mut cmd.core,
            size_of_val(&cmd),
            &mut resp.core,
            size_of_val(&resp),
        )
    };
    if err != 0 {
        return fail(err);
    }
    Box::into_raw(cq).cast()
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    ctx: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_cq_init_attr_ex,
) -> *mut ffi::ibv_cq_ex {
    // SAFETY: an open context of ours; the attributes are the program's.
    let (limits, attr) = unsafe { (&Context::state(ctx).limits, &*attr) };
    // Flags: a lock that is not needed may be taken, and an overrun is an error all the same.
    let flags = ffi::IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    if attr.comp_mask & !ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS != 0
        || (attr.comp_mask & ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && attr.flags & !flags != 0)
        || attr.wc_flags & !u64::from(poll_ex::WC_FLAGS) != 0
    {
        return fail(libc::EOPNOTSUPP);
    }
    let (mut cq, req) = match prepare(limits, attr.cqe) {
        Ok(made) => made,
        Err(errno) => return fail(errno),
    };
    // The kernel has no use for the flags.
    let core = ffi::ibv_cq_init_attr_ex {
        cqe: 1 << req.log_entries,
        comp_mask: 0,
        flags: 0,
        ..*attr
    };
    let mut cmd = Cmd::<ffi::ibv_create_cq_ex, _>::new(req);
    let mut resp = Cmd::<ffi::ib_uverbs_ex_create_cq_resp, _>::new(CreateCqResp::default());
    // SAFETY: command and response are as long as is said; the other pointers are the program's.
    let err = unsafe {
        ffi::ibv_cmd_create_cq_ex(
            ctx,
            &core,
            &mut cq.cq,
            &mut cmd.core,
            size_of_val(&cmd),
            &mut resp.core,
            size_of_val(&resp),
            0,
        )
    };
    if err != 0 {
        return fail(err);
    }
    // SAFETY: both variants of the union are plain C structures, of which the second extends the
    // first; the command filled in the first.
    poll_ex::set_ops(unsafe { &mut cq.cq.__bindgen_anon_1.cq_ex }, attr.wc_flags);
    Box::into_raw(cq).cast()
}

pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ffi::ibv_cq) -> c_int {
    // SAFETY: a CQ of ours that no QP uses any more; freed once the kernel agrees.
    unsafe {
        let err = ffi::ibv_cmd_destroy_cq(cq);
        if err == 0 {
            drop(Box::from_raw(cq.cast::<Cq>()));
        }
        err
    }
}

pub(crate) unsafe extern "C" fn req_notify_cq(
    cq: *mut ffi::ibv_cq,
    solicited_only: c_int,
) -> c_int {
    // SAFETY: a CQ of ours, in a context of ours.
    let (state, mut ring) = unsafe { (Context::state((*cq).context), Cq::from_ptr(cq).lock()) };
    let kind = if solicited_only != 0 {
        CQ_ARM_SOLICITED
    } else {
        CQ_ARM_NEXT
    };
    if ring.arm(kind) {
        state.doorbells.busy_poll(false);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;

    fn ring(log_entries: u8) -> Ring {
        Ring {
            buffer: Buffer::new(4096).unwrap(),
            log_entries,
            consumer: 0,
            current: Cqe::default(),
            busy: BusyPoll::default(),
        }
    }

    /// Writes an entry as the device does.
    fn put(ring: &Ring, index: u32, qpn: u32, wr_id: u64) {
        let pass = (index >> ring.log_entries) & 1;
        let cqe = Cqe {
            qpn,
            wr_id,
            owner: CQE_PHASE ^ pass as u8,
            ..Cqe::default()
        };
        ring.buffer.write(ring.offset(index), &cqe.to_bytes());
    }

    #[test]
    fn entries_of_earlier_passes_are_not_taken_again() {
        let mut ring = ring(2);
        for pass in 0..4 {
            for i in 0..4 {
                assert_eq!(ring.next(), None);
                put(&ring, pass * 4 + i, 7, u64::from(pass * 4 + i));
                assert_eq!(ring.next().unwrap().wr_id, u64::from(pass * 4 + i));
            }
        }
    }

    #[test]
    fn removing_a_qp_keeps_the_order_of_the_others() {
        let mut ring = ring(3);
        // Start in the middle, so that the entries wrap around.
        for i in 0..5 {
            put(&ring, i, 1, 0);
            ring.next().unwrap();
        }
        for (i, qpn) in [1, 2, 1, 1, 2, 2].into_iter().enumerate() {
            put(&ring, 5 + i as u32, qpn, i as u64);
        }
        ring.remove(1);
        let left: Vec<_> = std::iter::from_fn(|| ring.next())
            .map(|c| (c.qpn, c.wr_id))
            .collect();
        assert_eq!(left, [(2, 1), (2, 4), (2, 5)]);
        assert_eq!(ring.consumer, 11);
    }

    /// splitmix64
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whatever a device writes, entries come once and in order, also where indices pass 2^32, and each
    /// becomes a completion with a status and an opcode of the verbs.
    #[test]
    fn entries_of_any_bytes_are_taken_once_and_in_order() {
        for seed in 0..200 {
            let mut rng = seed;
            let mut ring = ring(3);
            ring.consumer = u32::MAX - 20;
            let mut producer = ring.consumer;
            // All entries have the phase of the pass before.
            for index in 1..=8 {
                let old = producer.wrapping_sub(index);
                put(&ring, old, 0, 0);
            }
            let mut waiting = std::collections::VecDeque::new();
            for _ in 0..500 {
                match random(&mut rng) % 8 {
                    0..4 if waiting.len() < 8 => {
                        let mut entry = [0; Cqe::SIZE];
                        for word in entry.chunks_exact_mut(8) {
                            word.copy_from_slice(&random(&mut rng).to_le_bytes());
                        }
                        // Few numbers, so that QPs share the queue.
                        let qpn = entry[0x18] % 3;
                        entry[0x18..0x1c].copy_from_slice(&[qpn, 0, 0, 0]);
                        let pass = (producer >> ring.log_entries & 1) as u8;
                        let owner = &mut entry[Cqe::SIZE - 1];
                        *owner = *owner & !CQE_PHASE | (CQE_PHASE ^ pass);
                        ring.buffer.write(ring.offset(producer), &entry);
                        producer = producer.wrapping_add(1);
                        let cqe = Cqe::from_bytes(&entry);
                        waiting.push_back(Cqe { owner: 0, ..cqe });
                    }
                    4 => {
                        let qpn = (random(&mut rng) % 4) as u32;
                        ring.remove(qpn);
                        waiting.retain(|cqe| cqe.qpn != qpn);
                    }
                    _ => {
                        let found = ring.next();
                        let cqe = found.map(|cqe| Cqe { owner: 0, ..cqe });
                        assert_eq!(cqe, waiting.pop_front(), "seed {seed}");
                        if let Some(cqe) = cqe {
                            assert!(poll::status(&cqe) <= ffi::IBV_WC_GENERAL_ERR);
                            assert!(poll::opcode(&cqe) <= ffi::IBV_WC_RECV_RDMA_WITH_IMM);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn each_arming_is_a_new_value() {
        let mut ring = ring(2);
        let word = |ring: &Ring| {
            ring.buffer
                .word(offset_of!(CqRecord, arm))
                .load(Ordering::Relaxed)
        };
        ring.arm(CQ_ARM_SOLICITED);
        let first = word(&ring);
        ring.arm(CQ_ARM_SOLICITED);
        assert_ne!(word(&ring), first);
        assert_eq!(word(&ring) & CQ_ARM_KIND, CQ_ARM_SOLICITED);
        ring.arm(CQ_ARM_NEXT);
        assert_eq!(word(&ring) & CQ_ARM_KIND, CQ_ARM_NEXT);
    }
}
