// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Posting: from `ibv_send_wr` and `ibv_recv_wr` to slots in the QP's buffer.
//!
//! A work request that cannot be right is refused here, with the errno that the verbs name: `EINVAL`
//! for the request, `ENOMEM` for a full queue. The device checks everything again.

use core::ffi::c_int;
use core::mem::offset_of;
use core::slice;
use core::sync::atomic::{fence, Ordering};

use ochre_hw::queue::{QpRecord, MAX_SGE};
use ochre_hw::wqe::{
    AtomicSegment, RecvWqe, SendOpcode, SendWqe, Sge, SEND_FENCE, SEND_INLINE, SEND_SIGNALED,
    SEND_SOLICITED,
};

use crate::context::{Ah, Context};
use crate::ffi;
use crate::memory::{publish, Buffer};
use crate::qp::Qp;

/// Longest message of the transport, bytes.
const MAX_MESSAGE: u64 = 1 << 31;

/// Publishes a queue's producer index, and says whether the device must be told.
#[inline]
fn publish_and_check(buffer: &Buffer, producer: usize, index: u32, need_wake: usize) -> bool {
    publish(buffer.word(producer), index);
    // The index must be visible before the flag is read: the device does it the other way round.
    fence(Ordering::SeqCst);
    buffer.word(need_wake).load(Ordering::Relaxed) != 0
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ffi::ibv_qp,
    mut wr: *mut ffi::ibv_send_wr,
    bad_wr: *mut *mut ffi::ibv_send_wr,
) -> c_int {
    // SAFETY: a live QP of ours; libibverbs writes type and number once and the state when it
    // modifies the QP.
    let (ours, kind, qpn, context, state) = unsafe {
        (
            Qp::from_ptr(qp),
            (*qp).qp_type,
            (*qp).qp_num,
            (*qp).context,
            (&raw const (*qp).state).read_volatile(),
        )
    };
    let (mut sq, head) = ours.send_queue();
    let first = sq.index;
    let mut err = 0;
    // SAFETY: the program hands in a list of work requests that ends with null.
    while let Some(request) = unsafe { wr.as_ref() } {
        err = if matches!(
            state,
            ffi::IBV_QPS_RESET | ffi::IBV_QPS_INIT | ffi::IBV_QPS_RTR
        ) {
            libc::EINVAL
        } else if sq.is_full(head) {
            libc::ENOMEM
        } else {
            // SAFETY: the program's request; the slot is free, by the check, and locked.
            unsafe {
                write_send(
                    &ours.buffer,
                    sq.slot(),
                    sq.stride(),
                    kind,
                    ours.signal_all,
                    request,
                )
            }
            .err()
            .unwrap_or(0)
        };
        if err != 0 {
            // SAFETY: the program's place for the request that failed.
            unsafe { *bad_wr = wr };
            break;
        }
        sq.index = sq.index.wrapping_add(1);
        wr = request.next;
    }
    if sq.index != first
        && publish_and_check(
            &ours.buffer,
            offset_of!(QpRecord, sq_producer),
            sq.index,
            offset_of!(QpRecord, sq_need_wake),
        )
    {
        // SAFETY: an open context of ours.
        unsafe { Context::state(context) }.doorbells.send(qpn);
    }
    err
}

/// The elements of a work request, where their number is possible.
///
/// # Safety
/// `list` must be readable for `count` elements.
unsafe fn elements<'a>(
    list: *const ffi::ibv_sge,
    count: c_int,
    most: usize,
) -> Result<&'a [ffi::ibv_sge], i32> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(n) if n <= most && !list.is_null() => {
            // SAFETY: by the caller's promise.
            Ok(unsafe { slice::from_raw_parts(list, n) })
        }
        _ => Err(libc::EINVAL),
    }
}

/// What a QP type may send.
fn opcode(kind: ffi::ibv_qp_type, opcode: ffi::ibv_wr_opcode) -> Option<SendOpcode> {
    let rc = kind == ffi::IBV_QPT_RC;
    let connected = rc || kind == ffi::IBV_QPT_UC;
    match opcode {
        ffi::IBV_WR_SEND => Some(SendOpcode::Send),
        ffi::IBV_WR_SEND_WITH_IMM => Some(SendOpcode::SendImm),
        ffi::IBV_WR_SEND_WITH_INV if rc => Some(SendOpcode::SendInvalidate),
        ffi::IBV_WR_RDMA_WRITE if connected => Some(SendOpcode::Write),
        ffi::IBV_WR_RDMA_WRITE_WITH_IMM if connected => Some(SendOpcode::WriteImm),
        ffi::IBV_WR_RDMA_READ if rc => Some(SendOpcode::Read),
        ffi::IBV_WR_ATOMIC_CMP_AND_SWP if rc => Some(SendOpcode::CompareSwap),
        ffi::IBV_WR_ATOMIC_FETCH_AND_ADD if rc => Some(SendOpcode::FetchAdd),
        _ => None,
    }
}

/// Flags of a slot from those of the request.
fn flags(send_flags: u32, signal_all: bool) -> Result<u8, i32> {
    const KNOWN: u32 = ffi::IBV_SEND_SIGNALED
        | ffi::IBV_SEND_SOLICITED
        | ffi::IBV_SEND_FENCE
        | ffi::IBV_SEND_INLINE;
    if send_flags & !KNOWN != 0 {
        return Err(libc::EINVAL);
    }
    let mut flags = 0;
    for (theirs, ours) in [
        (ffi::IBV_SEND_SIGNALED, SEND_SIGNALED),
        (ffi::IBV_SEND_SOLICITED, SEND_SOLICITED),
        (ffi::IBV_SEND_FENCE, SEND_FENCE),
        (ffi::IBV_SEND_INLINE, SEND_INLINE),
    ] {
        if send_flags & theirs != 0 {
            flags |= ours;
        }
    }
    if signal_all {
        flags |= SEND_SIGNALED;
    }
    Ok(flags)
}

/// Writes one send request to the slot at `slot`. The error is an errno.
///
/// # Safety
/// The pointers in the request must be what the verbs demand: a list of `num_sge` elements, inline
/// data that can be read, an address handle of ours.
#[inline]
unsafe fn write_send(
    buffer: &Buffer,
    slot: usize,
    stride: usize,
    kind: ffi::ibv_qp_type,
    signal_all: bool,
    wr: &ffi::ibv_send_wr,
) -> Result<(), i32> {
    let opcode = opcode(kind, wr.opcode).ok_or(libc::EINVAL)?;
    let flags = flags(wr.send_flags, signal_all)?;
    // SAFETY: by the caller's promise.
    let list = unsafe { elements(wr.sg_list, wr.num_sge, MAX_SGE as usize) }?;
    let length: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
    if length > MAX_MESSAGE {
        return Err(libc::EINVAL);
    }
    let mut wqe = SendWqe {
        opcode: opcode.raw(),
        flags,
        wr_id: wr.wr_id,
        ..SendWqe::default()
    };
    match opcode {
        SendOpcode::SendImm | SendOpcode::WriteImm => {
            // SAFETY: both variants of the union are plain integers.
            wqe.imm = unsafe { wr.__bindgen_anon_1.imm_data };
        }
        SendOpcode::SendInvalidate => {
            // SAFETY: as above.
            wqe.imm = unsafe { wr.__bindgen_anon_1.invalidate_rkey };
        }
        _ => {}
    }
    let mut data = slot + SendWqe::SIZE;
    match opcode {
        SendOpcode::Write | SendOpcode::WriteImm | SendOpcode::Read => {
            // SAFETY: the variants of the union are integers and a pointer; the opcode says which.
            let rdma = unsafe { wr.wr.rdma };
            wqe.remote = rdma.remote_addr;
            wqe.key = rdma.rkey;
        }
        SendOpcode::CompareSwap | SendOpcode::FetchAdd => {
            if list.len() != 1 || length != 8 {
                return Err(libc::EINVAL);
            }
            // SAFETY: as above.
            let atomic = unsafe { wr.wr.atomic };
            wqe.remote = atomic.remote_addr;
            wqe.key = atomic.rkey;
            let operands = if opcode == SendOpcode::CompareSwap {
                AtomicSegment {
                    swap_or_add: atomic.swap,
                    compare: atomic.compare_add,
                }
            } else {
                AtomicSegment {
                    swap_or_add: atomic.compare_add,
                    compare: 0,
                }
            };
            buffer.write(data, &operands.to_bytes());
            data += AtomicSegment::SIZE;
        }
        _ if kind == ffi::IBV_QPT_UD => {
            // SAFETY: as above; the address handle is one of ours by the caller's promise.
            let (ud, ah) = unsafe { (wr.wr.ud, wr.wr.ud.ah.cast::<Ah>().as_ref()) };
            let ah = ah.ok_or(libc::EINVAL)?;
            if ud.remote_qpn > 0xff_ffff {
                return Err(libc::EINVAL);
            }
            wqe.remote = u64::from(ah.ahn) | (u64::from(ud.remote_qpn) << 32);
            wqe.key = ud.remote_qkey;
        }
        _ => {}
    }
    let room = slot + stride - data;
    if flags & SEND_INLINE != 0 {
        if matches!(
            opcode,
            SendOpcode::Read | SendOpcode::CompareSwap | SendOpcode::FetchAdd
        ) || length > room as u64
        {
            return Err(libc::EINVAL);
        }
        for sge in list {
            // SAFETY: the program's data, by the caller's promise.
            unsafe { buffer.write_from(data, sge.addr as *const u8, sge.length as usize) };
            data += sge.length as usize;
        }
        wqe.inline_len = length as u16;
    } else {
        write_elements(buffer, data, room, list)?;
        wqe.num_sge = list.len() as u8;
    }
    buffer.write(slot, &wqe.to_bytes());
    Ok(())
}

/// Writes scatter/gather elements at `data`, where there are `room` bytes.
#[inline]
fn write_elements(
    buffer: &Buffer,
    data: usize,
    room: usize,
    list: &[ffi::ibv_sge],
) -> Result<(), i32> {
    if list.len() * Sge::SIZE > room {
        return Err(libc::EINVAL);
    }
    for (i, sge) in list.iter().enumerate() {
        let sge = Sge {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        };
        buffer.write(data + i * Sge::SIZE, &sge.to_bytes());
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ffi::ibv_qp,
    mut wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: a live QP of ours, as in `post_send`.
    let (ours, qpn, context, state) = unsafe {
        (
            Qp::from_ptr(qp),
            (*qp).qp_num,
            (*qp).context,
            (&raw const (*qp).state).read_volatile(),
        )
    };
    let (mut rq, head) = ours.recv_queue();
    let first = rq.index;
    let mut err = 0;
    // SAFETY: the program hands in a list of work requests that ends with null.
    while let Some(request) = unsafe { wr.as_ref() } {
        err = if state == ffi::IBV_QPS_RESET {
            libc::EINVAL
        } else if rq.is_full(head) {
            libc::ENOMEM
        } else {
            // SAFETY: the program's list of elements.
            unsafe { write_recv(&ours.buffer, rq.slot(), rq.stride(), request) }
                .err()
                .unwrap_or(0)
        };
        if err != 0 {
            // SAFETY: the program's place for the request that failed.
            unsafe { *bad_wr = wr };
            break;
        }
        rq.index = rq.index.wrapping_add(1);
        wr = request.next;
    }
    if rq.index != first
        && publish_and_check(
            &ours.buffer,
            offset_of!(QpRecord, rq_producer),
            rq.index,
            offset_of!(QpRecord, rq_need_wake),
        )
    {
        // SAFETY: an open context of ours.
        unsafe { Context::state(context) }.doorbells.recv(qpn);
    }
    err
}

/// Writes one receive request to the slot at `slot`. The error is an errno.
///
/// # Safety
/// The request's list must be readable for its `num_sge` elements.
unsafe fn write_recv(
    buffer: &Buffer,
    slot: usize,
    stride: usize,
    wr: &ffi::ibv_recv_wr,
) -> Result<(), i32> {
    // SAFETY: by the caller's promise.
    let list = unsafe { elements(wr.sg_list, wr.num_sge, MAX_SGE as usize) }?;
    write_elements(buffer, slot + RecvWqe::SIZE, stride - RecvWqe::SIZE, list)?;
    let wqe = RecvWqe {
        wr_id: wr.wr_id,
        num_sge: list.len() as u32,
        reserved: 0,
    };
    buffer.write(slot, &wqe.to_bytes());
    Ok(())
}
