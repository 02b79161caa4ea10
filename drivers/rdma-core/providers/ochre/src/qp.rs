// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Queue pairs: making, modifying, destroying, and finding them by number.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use ochre_abi::{AllocUcontextResp, CreateQpReq, CreateQpResp};
use ochre_hw::cqe::{Cqe, CqeOpcode};
use ochre_hw::queue::{QpLayout, QpRecord, QpSizes};
use parking_lot::{Mutex, MutexGuard};

use crate::context::Context;
use crate::cq::Cq;
use crate::ffi::{self, fail, Cmd};
use crate::memory::{publish, Buffer};
use crate::post_ex::{self, Batch};

/// A queue pair. libibverbs knows the first field.
#[repr(C)]
pub(crate) struct Qp {
    qp: ffi::verbs_qp,
    /// Record, send slots and receive slots.
    pub(crate) buffer: Buffer,
    /// Every send asks for a completion.
    pub(crate) signal_all: bool,
    sq: Queue,
    rq: Queue,
}

/// A send or receive queue.
struct Queue {
    producer: Mutex<Producer>,
    /// Index of the oldest slot that is not known to be completed.
    head: AtomicU32,
}

/// The side of a queue that fills slots; its holder may write the slots that are free.
pub(crate) struct Producer {
    offset: usize,
    log_slots: u8,
    log_stride: u8,
    /// Index of the next slot to be filled.
    pub(crate) index: u32,
    /// What a program posts field by field.
    pub(crate) batch: Batch,
}

impl Producer {
    /// Bytes of a slot.
    pub(crate) fn stride(&self) -> usize {
        1 << self.log_stride
    }

    /// Offset in the QP's buffer of the next slot.
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.offset + (((self.index & ((1 << self.log_slots) - 1)) as usize) << self.log_stride)
    }

    /// All slots are taken, where the oldest is `head`.
    #[inline]
    pub(crate) fn is_full(&self, head: u32) -> bool {
        self.index.wrapping_sub(head) >= 1 << self.log_slots
    }
}

impl Queue {
    fn new(offset: u32, log_slots: u8, log_stride: u8) -> Self {
        Self {
            producer: Mutex::new(Producer {
                offset: offset as usize,
                log_slots,
                log_stride,
                index: 0,
                batch: Batch::default(),
            }),
            head: AtomicU32::new(0),
        }
    }

    /// Begins anew, as a QP in the RESET state does.
    fn reset(&self, record: &AtomicU32) {
        let mut producer = self.producer.lock();
        producer.index = 0;
        self.head.store(0, Ordering::Release);
        publish(record, 0);
    }
}

impl Qp {
    /// The QP behind libibverbs' pointer.
    ///
    /// # Safety
    /// `qp` must be a QP that [`create_qp`] made and that is not destroyed during `'a`.
    pub(crate) unsafe fn from_ptr<'a>(qp: *mut ffi::ibv_qp) -> &'a Self {
        const { assert!(offset_of!(Qp, qp) == 0) };
        // SAFETY: by the caller's promise; libibverbs' own field is read only through raw pointers.
        unsafe { &*qp.cast::<Self>() }
    }

    /// The send queue, and the index of its oldest slot in use.
    pub(crate) fn send_queue(&self) -> (MutexGuard<'_, Producer>, u32) {
        (
            self.sq.producer.lock(),
            self.sq.head.load(Ordering::Acquire),
        )
    }

    /// The mutex of the send queue, for a lock that is held between calls.
    pub(crate) fn send_mutex(&self) -> &Mutex<Producer> {
        &self.sq.producer
    }

    /// Index of the oldest send slot in use.
    pub(crate) fn send_head(&self) -> u32 {
        self.sq.head.load(Ordering::Acquire)
    }

    /// The receive queue, and the index of its oldest slot in use.
    pub(crate) fn recv_queue(&self) -> (MutexGuard<'_, Producer>, u32) {
        (
            self.rq.producer.lock(),
            self.rq.head.load(Ordering::Acquire),
        )
    }

    /// A completion says which slots are free again.
    #[inline]
    fn complete(&self, cqe: &Cqe) {
        let is_recv = CqeOpcode::from_raw(cqe.opcode).is_some_and(CqeOpcode::is_recv);
        let queue = if is_recv { &self.rq } else { &self.sq };
        queue.head.store(cqe.wqe_index, Ordering::Release);
    }
}

const LEAF_BITS: u32 = 12;
const LEAF: usize = 1 << LEAF_BITS;

type Leaf = [AtomicPtr<Qp>; LEAF];

/// A context's QPs by their 24-bit numbers: a table of tables, read without a lock.
pub(crate) struct QpTable {
    leaves: Box<[AtomicPtr<Leaf>]>,
}

impl QpTable {
    pub(crate) fn new() -> Self {
        Self {
            leaves: (0..LEAF).map(|_| AtomicPtr::default()).collect(),
        }
    }

    fn entry(&self, qpn: u32) -> Option<&AtomicPtr<Qp>> {
        let leaf = self
            .leaves
            .get((qpn >> LEAF_BITS) as usize)?
            .load(Ordering::Acquire);
        // SAFETY: null, or a leaf that `insert` made; leaves live as long as the table.
        let leaf = unsafe { leaf.as_ref() }?;
        leaf.get(qpn as usize % LEAF)
    }

    fn insert(&self, qpn: u32, qp: *mut Qp) {
        let Some(place) = self.leaves.get((qpn >> LEAF_BITS) as usize) else {
            return;
        };
        if place.load(Ordering::Acquire).is_null() {
            let fresh: Box<Leaf> = Box::new([const { AtomicPtr::new(ptr::null_mut()) }; LEAF]);
            let fresh = Box::into_raw(fresh);
            let lost =
                place.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
            if lost.is_err() {
                // SAFETY: another thread was faster; this leaf was published to nobody.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        if let Some(entry) = self.entry(qpn) {
            entry.store(qp, Ordering::Release);
        }
    }

    /// Accounts for a completion. The caller holds the lock of the CQ that it came from, which keeps
    /// the QP from being destroyed.
    #[inline]
    pub(crate) fn complete(&self, cqe: &Cqe) {
        let Some(entry) = self.entry(cqe.qpn) else {
            return;
        };
        // SAFETY: null, or a QP that cannot go away while the lock of one of its CQs is held: see
        // `forget`.
        if let Some(qp) = unsafe { entry.load(Ordering::Acquire).as_ref() } {
            qp.complete(cqe);
        }
    }
}

impl Drop for QpTable {
    fn drop(&mut self) {
        for leaf in &self.leaves {
            let leaf = leaf.load(Ordering::Relaxed);
            if !leaf.is_null() {
                // SAFETY: made by `insert` from a box; nobody else uses the table any more.
                drop(unsafe { Box::from_raw(leaf) });
            }
        }
    }
}

/// Removes a QP's completions from its CQs; `then` runs while both are locked.
///
/// # Safety
/// `qp` must be a live QP of ours.
unsafe fn forget(qp: *mut ffi::ibv_qp, then: impl FnOnce()) {
    // SAFETY: the caller's promise; the CQs live as long as the QP.
    let (send, recv, qpn) = unsafe { ((*qp).send_cq, (*qp).recv_cq, (*qp).qp_num) };
    // Two locks are taken in the order of their addresses.
    let (first, second) = if send <= recv {
        (send, recv)
    } else {
        (recv, send)
    };
    // SAFETY: as above.
    let mut first_ring = unsafe { Cq::from_ptr(first) }.lock();
    // SAFETY: as above.
    let mut second_ring = (first != second).then(|| unsafe { Cq::from_ptr(second) }.lock());
    first_ring.remove(qpn);
    if let Some(ring) = &mut second_ring {
        ring.remove(qpn);
    }
    then();
}

/// Checks what a program asks of a QP, and lays its buffer out. The error is an errno.
fn layout(attr: &ffi::ibv_qp_init_attr_ex, limits: &AllocUcontextResp) -> Result<QpLayout, i32> {
    if !attr.srq.is_null() {
        return Err(libc::EOPNOTSUPP);
    }
    if ![ffi::IBV_QPT_RC, ffi::IBV_QPT_UC, ffi::IBV_QPT_UD].contains(&attr.qp_type) {
        return Err(libc::EOPNOTSUPP);
    }
    let cap = &attr.cap;
    if attr.send_cq.is_null()
        || attr.recv_cq.is_null()
        || cap.max_send_wr > limits.max_send_wr
        || cap.max_recv_wr > limits.max_recv_wr
        || cap.max_send_sge > limits.max_sge
        || cap.max_recv_sge > limits.max_sge
        || cap.max_inline_data > limits.max_inline
    {
        return Err(libc::EINVAL);
    }
    QpLayout::new(&QpSizes {
        send_wr: cap.max_send_wr,
        send_sge: cap.max_send_sge,
        inline_data: cap.max_inline_data,
        recv_wr: cap.max_recv_wr,
        recv_sge: cap.max_recv_sge,
    })
    .ok_or(libc::EINVAL)
}

/// Makes a QP; its program posts field by field where `attr` names the operations.
///
/// # Safety
/// `pd` must be a PD of ours in an open context of ours.
unsafe fn create(
    pd: *mut ffi::ibv_pd,
    attr: &mut ffi::ibv_qp_init_attr_ex,
) -> Result<*mut Qp, i32> {
    // SAFETY: by the caller's promise.
    let (ctx, state) = unsafe { ((*pd).context, Context::state((*pd).context)) };
    let layout = layout(attr, &state.limits)?;
    let buffer = Buffer::new(layout.bytes as usize)?;
    let mut cmd = Cmd::<ffi::ibv_create_qp, _>::new(CreateQpReq {
        buf_addr: buffer.addr(),
        buf_len: buffer.len() as u64,
        sq_offset: layout.sq_offset,
        rq_offset: layout.rq_offset,
        log_sq_slots: layout.log_sq_slots,
        log_sq_stride: layout.log_sq_stride,
        log_rq_slots: layout.log_rq_slots,
        log_rq_stride: layout.log_rq_stride,
        reserved: 0,
    });
    let mut resp = Cmd::<ffi::ib_uverbs_create_qp_resp, _>::new(CreateQpResp::default());
    let mut qp = Box::new(Qp {
        qp: ffi::verbs_qp::default(),
        buffer,
        signal_all: attr.sq_sig_all != 0,
        sq: Queue::new(layout.sq_offset, layout.log_sq_slots, layout.log_sq_stride),
        rq: Queue::new(layout.rq_offset, layout.log_rq_slots, layout.log_rq_stride),
    });
    let by_field = attr.comp_mask & ffi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    if by_field {
        // SAFETY: both variants of the union are plain C structures, of which the second extends the
        // first; all is zero so far.
        let extended = unsafe { &mut qp.qp.__bindgen_anon_1.qp_ex };
        post_ex::set_ops(extended, attr.qp_type, attr.send_ops_flags)?;
    }
    // SAFETY: command and response are as long as is said; the other pointers are the program's.
    let err = unsafe {
        ffi::ibv_cmd_create_qp_ex(
            ctx,
            &mut qp.qp,
            attr,
            &mut cmd.core,
            size_of_val(&cmd),
            &mut resp.core,
            size_of_val(&resp),
        )
    };
    if err != 0 {
        return Err(err);
    }
    if by_field {
        // libibverbs clears the mask while it makes the QP.
        qp.qp.comp_mask |= ffi::VERBS_QP_EX;
    }
    let sizes = layout.sizes();
    attr.cap.max_send_wr = sizes.send_wr;
    attr.cap.max_recv_wr = sizes.recv_wr;
    attr.cap.max_send_sge = sizes.send_sge;
    attr.cap.max_recv_sge = sizes.recv_sge;
    attr.cap.max_inline_data = sizes.inline_data;
    let qp = Box::into_raw(qp);
    state.qps.insert(resp.driver.qpn, qp);
    Ok(qp)
}

pub(crate) unsafe extern "C" fn create_qp(
    pd: *mut ffi::ibv_pd,
    attr: *mut ffi::ibv_qp_init_attr,
) -> *mut ffi::ibv_qp {
    // SAFETY: the attributes are the program's.
    let attr = unsafe { &mut *attr };
    let mut extended = ffi::ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: ffi::IBV_QP_INIT_ATTR_PD,
        pd,
        ..Default::default()
    };
    // SAFETY: a PD of ours in an open context of ours.
    match unsafe { create(pd, &mut extended) } {
        Ok(qp) => {
            attr.cap = extended.cap;
            qp.cast()
        }
        Err(errno) => fail(errno),
    }
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    _: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_qp_init_attr_ex,
) -> *mut ffi::ibv_qp {
    // SAFETY: the attributes are the program's.
    let attr = unsafe { &mut *attr };
    let known = ffi::IBV_QP_INIT_ATTR_PD | ffi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if attr.comp_mask & !known != 0 {
        return fail(libc::EOPNOTSUPP);
    }
    if attr.comp_mask & ffi::IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: a PD of ours in an open context of ours.
    match unsafe { create(attr.pd, attr) } {
        Ok(qp) => qp.cast(),
        Err(errno) => fail(errno),
    }
}

pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut ffi::ibv_qp,
    attr: *mut ffi::ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let mut cmd = Cmd::<ffi::ibv_modify_qp, _>::new(());
    // SAFETY: the command is as long as is said; the pointers are the program's.
    let err = unsafe { ffi::ibv_cmd_modify_qp(qp, attr, mask, &mut cmd.core, size_of_val(&cmd)) };
    // SAFETY: as above.
    let state = unsafe { (*attr).qp_state };
    let to_reset = mask as u32 & ffi::IBV_QP_STATE != 0 && state == ffi::IBV_QPS_RESET;
    if err == 0 && to_reset {
        // SAFETY: a live QP of ours.
        let ours = unsafe { Qp::from_ptr(qp) };
        // SAFETY: as above.
        unsafe {
            forget(qp, || {
                ours.sq
                    .reset(ours.buffer.word(offset_of!(QpRecord, sq_producer)));
                ours.rq
                    .reset(ours.buffer.word(offset_of!(QpRecord, rq_producer)));
            });
        }
    }
    err
}

pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ffi::ibv_qp,
    attr: *mut ffi::ibv_qp_attr,
    mask: c_int,
    init: *mut ffi::ibv_qp_init_attr,
) -> c_int {
    let mut cmd = Cmd::<ffi::ibv_query_qp, _>::new(());
    // SAFETY: the command is as long as is said; the pointers are the program's.
    unsafe { ffi::ibv_cmd_query_qp(qp, attr, mask, init, &mut cmd.core, size_of_val(&cmd)) }
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ffi::ibv_qp) -> c_int {
    // SAFETY: a live QP of ours.
    let (err, state, qpn) = unsafe {
        (
            ffi::ibv_cmd_destroy_qp(qp),
            Context::state((*qp).context),
            (*qp).qp_num,
        )
    };
    if err != 0 {
        return err;
    }
    // SAFETY: the program no longer posts to the QP, and once it is out of the table no poller finds
    // it; pollers that found it held a lock that `forget` takes.
    unsafe {
        forget(qp, || state.qps.insert(qpn, ptr::null_mut()));
        drop(Box::from_raw(qp.cast::<Qp>()));
    }
    0
}
