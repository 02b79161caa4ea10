// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Posting field by field (`ibv_qp_ex`): `wr_start` takes the send queue's lock, each operation opens a
//! slot, the setters fill it in, `wr_complete` publishes all slots or, after an error, none.

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of};

use ochre_hw::wqe::{AtomicSegment, SendOpcode, SendWqe, SEND_INLINE};

use crate::context::Ah;
use crate::ffi;
use crate::post::{flags, opcode_of, ring_send, write_elements};
use crate::qp::{Producer, Qp};

/// What has been posted since `wr_start`.
#[derive(Default)]
pub(crate) struct Batch {
    /// Index of the first slot.
    first: u32,
    /// The first error, an errno, or 0.
    err: c_int,
    /// The open slot's entry, and its offset in the QP's buffer.
    wqe: SendWqe,
    slot: usize,
}

/// Fills in the functions of a QP. Refused where an operation is not one of the QP's type.
pub(crate) fn set_ops(
    qp: &mut ffi::ibv_qp_ex,
    kind: ffi::ibv_qp_type,
    ops: u64,
) -> Result<(), i32> {
    let mut left = ops;
    for (flag, opcode) in [
        (ffi::IBV_QP_EX_WITH_SEND, ffi::IBV_WR_SEND),
        (ffi::IBV_QP_EX_WITH_SEND_WITH_IMM, ffi::IBV_WR_SEND_WITH_IMM),
        (ffi::IBV_QP_EX_WITH_SEND_WITH_INV, ffi::IBV_WR_SEND_WITH_INV),
        (ffi::IBV_QP_EX_WITH_RDMA_WRITE, ffi::IBV_WR_RDMA_WRITE),
        (
            ffi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
            ffi::IBV_WR_RDMA_WRITE_WITH_IMM,
        ),
        (ffi::IBV_QP_EX_WITH_RDMA_READ, ffi::IBV_WR_RDMA_READ),
        (
            ffi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
            ffi::IBV_WR_ATOMIC_CMP_AND_SWP,
        ),
        (
            ffi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
            ffi::IBV_WR_ATOMIC_FETCH_AND_ADD,
        ),
    ] {
        if opcode_of(kind, opcode).is_some() {
            left &= !u64::from(flag);
        }
    }
    if left != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_send = Some(wr_send);
    qp.wr_send_imm = Some(wr_send_imm);
    qp.wr_send_inv = Some(wr_send_inv);
    qp.wr_rdma_write = Some(wr_rdma_write);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    qp.wr_rdma_read = Some(wr_rdma_read);
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    Ok(())
}

/// The QP and its send queue between `wr_start` and its end.
///
/// # Safety
/// `qp` must be a live QP of ours, and this thread must hold the lock of its send queue.
unsafe fn locked<'a>(qp: *mut ffi::ibv_qp_ex) -> (&'a Qp, &'a mut Producer) {
    // SAFETY: by the caller's promise.
    unsafe {
        let ours = Qp::from_ptr(qp.cast());
        (ours, &mut *ours.send_mutex().data_ptr())
    }
}

unsafe extern "C" fn wr_start(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: a live QP of ours.
    let mut sq = unsafe { Qp::from_ptr(qp.cast()) }.send_mutex().lock();
    // SAFETY: as above; libibverbs writes the state when it modifies the QP.
    let state = unsafe { (&raw const (*qp).qp_base.state).read_volatile() };
    let err = if matches!(
        state,
        ffi::IBV_QPS_RESET | ffi::IBV_QPS_INIT | ffi::IBV_QPS_RTR
    ) {
        libc::EINVAL
    } else {
        0
    };
    sq.batch = Batch {
        first: sq.index,
        err,
        ..Batch::default()
    };
    // The lock stays until `wr_complete` or `wr_abort`.
    core::mem::forget(sq);
}

unsafe extern "C" fn wr_complete(qp: *mut ffi::ibv_qp_ex) -> c_int {
    // SAFETY: a live QP of ours, locked by `wr_start`.
    let (ours, sq) = unsafe { locked(qp) };
    let err = sq.batch.err;
    if err != 0 {
        sq.index = sq.batch.first;
    } else if sq.index != sq.batch.first {
        // SAFETY: a live QP of ours in an open context of ours.
        unsafe { ring_send(qp.cast(), ours, sq.index) };
    }
    // SAFETY: locked by `wr_start`, and `sq` is not used any more.
    unsafe { ours.send_mutex().force_unlock() };
    err
}

unsafe extern "C" fn wr_abort(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: a live QP of ours, locked by `wr_start`.
    let (ours, sq) = unsafe { locked(qp) };
    sq.index = sq.batch.first;
    // SAFETY: locked by `wr_start`, and `sq` is not used any more.
    unsafe { ours.send_mutex().force_unlock() };
}

/// Opens the next slot for an operation; `fill` completes the entry.
///
/// # Safety
/// As [`locked`].
unsafe fn open(qp: *mut ffi::ibv_qp_ex, opcode: SendOpcode, fill: impl FnOnce(&mut SendWqe)) {
    // SAFETY: by the caller's promise.
    let (ours, sq, wr_id, wr_flags) = unsafe {
        let (ours, sq) = locked(qp);
        (ours, sq, (*qp).wr_id, (*qp).wr_flags)
    };
    if sq.batch.err != 0 {
        return;
    }
    if sq.is_full(ours.send_head()) {
        sq.batch.err = libc::ENOMEM;
        return;
    }
    // Whether the data are inline is told by the setter, not by a flag.
    match flags(wr_flags & !ffi::IBV_SEND_INLINE, ours.signal_all) {
        Ok(flags) => {
            let mut wqe = SendWqe {
                opcode: opcode.raw(),
                flags,
                wr_id,
                ..SendWqe::default()
            };
            fill(&mut wqe);
            sq.batch.slot = sq.slot();
            sq.batch.wqe = wqe;
            sq.index = sq.index.wrapping_add(1);
            ours.buffer.write(sq.batch.slot, &wqe.to_bytes());
        }
        Err(errno) => sq.batch.err = errno,
    }
}

/// Changes the open slot: `change` gets its entry, and may write to the bytes from the offset on, of
/// which it gets the number too.
///
/// # Safety
/// As [`locked`].
unsafe fn set(
    qp: *mut ffi::ibv_qp_ex,
    change: impl FnOnce(&Qp, &mut SendWqe, usize, usize) -> Result<(), i32>,
) {
    // SAFETY: by the caller's promise.
    let (ours, sq) = unsafe { locked(qp) };
    if sq.batch.err != 0 {
        return;
    }
    if sq.index == sq.batch.first {
        // A setter before any operation.
        sq.batch.err = libc::EINVAL;
        return;
    }
    let mut used = SendWqe::SIZE;
    if [SendOpcode::CompareSwap.raw(), SendOpcode::FetchAdd.raw()].contains(&sq.batch.wqe.opcode) {
        used += AtomicSegment::SIZE;
    }
    let (slot, stride) = (sq.batch.slot, sq.stride());
    match change(ours, &mut sq.batch.wqe, slot + used, stride - used) {
        Ok(()) => ours.buffer.write(slot, &sq.batch.wqe.to_bytes()),
        Err(errno) => sq.batch.err = errno,
    }
}

macro_rules! operations {
    ($($name:ident($($arg:ident: $t:ty),*) $opcode:ident { $($field:ident: $value:expr),* })*) => {$(
        unsafe extern "C" fn $name(qp: *mut ffi::ibv_qp_ex $(, $arg: $t)*) {
            // SAFETY: a live QP of ours, locked by `wr_start`.
            unsafe { open(qp, SendOpcode::$opcode, |_wqe| { $(_wqe.$field = $value;)* }) }
        }
    )*};
}

operations! {
    wr_send() Send {}
    wr_send_imm(imm: u32) SendImm { imm: imm }
    wr_send_inv(rkey: u32) SendInvalidate { imm: rkey }
    wr_rdma_write(rkey: u32, addr: u64) Write { key: rkey, remote: addr }
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) WriteImm { key: rkey, remote: addr, imm: imm }
    wr_rdma_read(rkey: u32, addr: u64) Read { key: rkey, remote: addr }
}

/// Opens a slot for an atomic and writes its operands.
///
/// # Safety
/// As [`locked`].
unsafe fn atomic(
    qp: *mut ffi::ibv_qp_ex,
    opcode: SendOpcode,
    rkey: u32,
    addr: u64,
    operands: AtomicSegment,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        open(qp, opcode, |wqe| {
            wqe.key = rkey;
            wqe.remote = addr;
        });
        set(qp, |ours, _, data, _| {
            ours.buffer
                .write(data - AtomicSegment::SIZE, &operands.to_bytes());
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    addr: u64,
    compare: u64,
    swap: u64,
) {
    let operands = AtomicSegment {
        swap_or_add: swap,
        compare,
    };
    // SAFETY: a live QP of ours, locked by `wr_start`.
    unsafe { atomic(qp, SendOpcode::CompareSwap, rkey, addr, operands) }
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ffi::ibv_qp_ex, rkey: u32, addr: u64, add: u64) {
    let operands = AtomicSegment {
        swap_or_add: add,
        compare: 0,
    };
    // SAFETY: a live QP of ours, locked by `wr_start`.
    unsafe { atomic(qp, SendOpcode::FetchAdd, rkey, addr, operands) }
}

unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ffi::ibv_qp_ex,
    ah: *mut ffi::ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: a live QP of ours, locked by `wr_start`; the address handle is one of ours, or null.
    unsafe {
        set(qp, |_, wqe, _, _| {
            let ah = ah.cast::<Ah>().as_ref().ok_or(libc::EINVAL)?;
            wqe.remote = ah.destination(remote_qpn)?;
            wqe.key = remote_qkey;
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ffi::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let list = [ffi::ibv_sge { addr, length, lkey }];
    // SAFETY: a live QP of ours, locked by `wr_start`.
    unsafe {
        set(qp, |ours, wqe, data, room| {
            set_list(ours, wqe, data, room, &list)
        })
    }
}

unsafe extern "C" fn wr_set_sge_list(
    qp: *mut ffi::ibv_qp_ex,
    count: usize,
    list: *const ffi::ibv_sge,
) {
    // SAFETY: a live QP of ours, locked by `wr_start`; the program's list.
    unsafe {
        set(qp, |ours, wqe, data, room| {
            if count * size_of::<ffi::ibv_sge>() > room {
                return Err(libc::EINVAL);
            }
            let list = if count == 0 {
                &[]
            } else {
                core::slice::from_raw_parts(list, count)
            };
            set_list(ours, wqe, data, room, list)
        });
    }
}

fn set_list(
    qp: &Qp,
    wqe: &mut SendWqe,
    data: usize,
    room: usize,
    list: &[ffi::ibv_sge],
) -> Result<(), i32> {
    let length = crate::post::message_length(list)?;
    crate::post::check_atomic(wqe.opcode, list.len(), length)?;
    write_elements(&qp.buffer, data, room, list)?;
    wqe.num_sge = list.len() as u8;
    Ok(())
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ffi::ibv_qp_ex, addr: *mut c_void, length: usize) {
    let list = ffi::ibv_data_buf { addr, length };
    // SAFETY: a live QP of ours, locked by `wr_start`; the program's data.
    unsafe { wr_set_inline_data_list(qp, 1, &list) }
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ffi::ibv_qp_ex,
    count: usize,
    list: *const ffi::ibv_data_buf,
) {
    // SAFETY: a live QP of ours, locked by `wr_start`; the program's list and data.
    unsafe {
        set(qp, |ours, wqe, data, room| {
            let carries_data = [
                SendOpcode::Send,
                SendOpcode::SendImm,
                SendOpcode::SendInvalidate,
                SendOpcode::Write,
                SendOpcode::WriteImm,
            ];
            if !carries_data.iter().any(|op| op.raw() == wqe.opcode) {
                return Err(libc::EINVAL);
            }
            let mut used = 0;
            for i in 0..count {
                let part = &*list.add(i);
                if part.length > room - used {
                    return Err(libc::EINVAL);
                }
                ours.buffer
                    .write_from(data + used, part.addr.cast(), part.length);
                used += part.length;
            }
            wqe.flags |= SEND_INLINE;
            wqe.inline_len = used as u16;
            Ok(())
        });
    }
}

const _: () = assert!(offset_of!(ffi::ibv_qp_ex, qp_base) == 0);
