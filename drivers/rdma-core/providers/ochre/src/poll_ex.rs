// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Polling field by field (`ibv_cq_ex`): `start_poll` takes the CQ's lock and the first completion,
//! `next_poll` the next ones, `end_poll` gives all back.

use core::ffi::c_int;

use crate::context::Context;
use crate::cq::{Cq, Ring};
use crate::ffi;
use crate::poll::{opcode, status, wc_flags};

/// What a program may ask to read.
pub(crate) const WC_FLAGS: u32 = ffi::IBV_WC_EX_WITH_BYTE_LEN
    | ffi::IBV_WC_EX_WITH_IMM
    | ffi::IBV_WC_EX_WITH_QP_NUM
    | ffi::IBV_WC_EX_WITH_SRC_QP
    | ffi::IBV_WC_EX_WITH_SLID
    | ffi::IBV_WC_EX_WITH_SL
    | ffi::IBV_WC_EX_WITH_DLID_PATH_BITS
    | ffi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;

/// Fills in the functions of a CQ, those that `flags` ask for among them.
pub(crate) fn set_ops(cq: &mut ffi::ibv_cq_ex, flags: u64) {
    let asked = |flag: u32| flags & u64::from(flag) != 0;
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_byte_len = asked(ffi::IBV_WC_EX_WITH_BYTE_LEN).then_some(read_byte_len);
    cq.read_imm_data = asked(ffi::IBV_WC_EX_WITH_IMM).then_some(read_imm_data);
    cq.read_qp_num = asked(ffi::IBV_WC_EX_WITH_QP_NUM).then_some(read_qp_num);
    cq.read_src_qp = asked(ffi::IBV_WC_EX_WITH_SRC_QP).then_some(read_src_qp);
    cq.read_slid = asked(ffi::IBV_WC_EX_WITH_SLID).then_some(read_slid);
    cq.read_sl = asked(ffi::IBV_WC_EX_WITH_SL).then_some(read_sl);
    cq.read_dlid_path_bits =
        asked(ffi::IBV_WC_EX_WITH_DLID_PATH_BITS).then_some(read_dlid_path_bits);
    cq.read_completion_ts =
        asked(ffi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP).then_some(read_completion_ts);
}

/// Takes the next completion into `current`; 0, or `ENOENT` where there is none.
///
/// # Safety
/// `cq` must be a live CQ of ours, and the caller must hold its lock.
unsafe fn take(cq: *mut ffi::ibv_cq_ex, ring: &mut Ring) -> c_int {
    let Some(cqe) = ring.next() else {
        return libc::ENOENT;
    };
    // SAFETY: by the caller's promise; status and work request are the program's to read.
    unsafe {
        Context::state((*cq).context).qps.complete(&cqe);
        (*cq).status = status(&cqe);
        (*cq).wr_id = cqe.wr_id;
    }
    ring.current = cqe;
    0
}

unsafe extern "C" fn start_poll(
    cq: *mut ffi::ibv_cq_ex,
    attr: *mut ffi::ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: a live CQ of ours, and the program's attributes.
    let (ours, comp_mask) = unsafe { (Cq::from_ptr(cq.cast()), (*attr).comp_mask) };
    if comp_mask != 0 {
        return libc::EINVAL;
    }
    let mut ring = ours.lock();
    // SAFETY: as above; the lock is held.
    let err = unsafe { take(cq, &mut ring) };
    if err == 0 {
        // The lock stays until `end_poll`.
        core::mem::forget(ring);
    } else if ring.found_nothing() {
        drop(ring);
        // SAFETY: as above, in an open context of ours.
        unsafe { Context::state((*cq).context) }
            .doorbells
            .busy_poll(true);
    }
    err
}

unsafe extern "C" fn next_poll(cq: *mut ffi::ibv_cq_ex) -> c_int {
    // SAFETY: a live CQ of ours, whose lock this thread holds since `start_poll`.
    unsafe { take(cq, &mut *Cq::from_ptr(cq.cast()).mutex().data_ptr()) }
}

unsafe extern "C" fn end_poll(cq: *mut ffi::ibv_cq_ex) {
    // SAFETY: a live CQ of ours, whose lock this thread holds since `start_poll`.
    unsafe {
        let mutex = Cq::from_ptr(cq.cast()).mutex();
        (*mutex.data_ptr()).release();
        mutex.force_unlock();
    }
}

macro_rules! readers {
    ($($name:ident($cqe:ident) -> $t:ty { $value:expr })*) => {$(
        unsafe extern "C" fn $name(cq: *mut ffi::ibv_cq_ex) -> $t {
            // SAFETY: a live CQ of ours, whose lock this thread holds since `start_poll`.
            let $cqe = unsafe { &(*Cq::from_ptr(cq.cast()).mutex().data_ptr()).current };
            $value
        }
    )*};
}

readers! {
    read_opcode(cqe) -> ffi::ibv_wc_opcode { opcode(cqe) }
    read_vendor_err(cqe) -> u32 { cqe.syndrome.into() }
    read_wc_flags(cqe) -> u32 { wc_flags(cqe) }
    read_byte_len(cqe) -> u32 { cqe.byte_len }
    read_imm_data(cqe) -> u32 { cqe.imm }
    read_qp_num(cqe) -> u32 { cqe.qpn }
    read_src_qp(cqe) -> u32 { cqe.src_qpn }
    read_slid(cqe) -> u32 { cqe.slid.into() }
    read_sl(cqe) -> u8 { cqe.sl }
    read_dlid_path_bits(cqe) -> u8 { cqe.dlid_path_bits }
    read_completion_ts(cqe) -> u64 { cqe.timestamp }
}
