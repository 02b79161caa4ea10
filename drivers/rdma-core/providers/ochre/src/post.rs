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

/// Hands the send slots before `index` to the device.
///
/// # Safety
/// `qp` must be the live QP that `ours` is, in an open context of ours.
#[inline]
pub(crate) unsafe fn ring_send(qp: *mut ffi::ibv_qp, ours: &Qp, index: u32) {
    let (producer, need_wake) = (
        offset_of!(QpRecord, sq_producer),
        offset_of!(QpRecord, sq_need_wake),
    );
    if publish_and_check(&ours.buffer, producer, index, need_wake) {
        // SAFETY: by the caller's promise; the number is written once.
        unsafe { Context::state((*qp).context).doorbells.send((*qp).qp_num) };
    }
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ffi::ibv_qp,
    mut wr: *mut ffi::ibv_send_wr,
    bad_wr: *mut *mut ffi::ibv_send_wr,
) -> c_int {
    // SAFETY: a live QP of ours; libibverbs writes the type once and the state when it
    // modifies the QP.
    let (ours, kind, state) = unsafe {
        (
            Qp::from_ptr(qp),
            (*qp).qp_type,
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
    if sq.index != first {
        // SAFETY: a live QP of ours in an open context of ours.
        unsafe { ring_send(qp, ours, sq.index) };
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
pub(crate) fn opcode_of(kind: ffi::ibv_qp_type, opcode: ffi::ibv_wr_opcode) -> Option<SendOpcode> {
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

/// Length of a message, bytes. The error is an errno.
pub(crate) fn message_length(list: &[ffi::ibv_sge]) -> Result<u64, i32> {
    let length = list.iter().map(|sge| u64::from(sge.length)).sum();
    if length > MAX_MESSAGE {
        return Err(libc::EINVAL);
    }
    Ok(length)
}

/// An atomic has one element of 8 bytes. The error is an errno.
pub(crate) fn check_atomic(opcode: u8, elements: usize, length: u64) -> Result<(), i32> {
    let atomic = [SendOpcode::CompareSwap.raw(), SendOpcode::FetchAdd.raw()].contains(&opcode);
    if atomic && (elements != 1 || length != 8) {
        return Err(libc::EINVAL);
    }
    Ok(())
}

/// Flags of a slot from those of the request.
pub(crate) fn flags(send_flags: u32, signal_all: bool) -> Result<u8, i32> {
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
    let opcode = opcode_of(kind, wr.opcode).ok_or(libc::EINVAL)?;
    let flags = flags(wr.send_flags, signal_all)?;
    // SAFETY: by the caller's promise.
    let list = unsafe { elements(wr.sg_list, wr.num_sge, MAX_SGE as usize) }?;
    let length = message_length(list)?;
    check_atomic(opcode.raw(), list.len(), length)?;
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
            wqe.remote = ah.ok_or(libc::EINVAL)?.destination(ud.remote_qpn)?;
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
pub(crate) fn write_elements(
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

#[cfg(test)]
mod tests {
    use super::*;

    const STRIDE: usize = 128;
    const SLOT: usize = 256;

    fn sge(length: u32) -> ffi::ibv_sge {
        ffi::ibv_sge {
            addr: 0x1000,
            length,
            lkey: 7,
        }
    }

    /// Writes a request whose list is `list`, and reads the slot back.
    fn post(
        kind: ffi::ibv_qp_type,
        list: &mut [ffi::ibv_sge],
        wr: ffi::ibv_send_wr,
    ) -> Result<[u8; STRIDE], i32> {
        let buffer = Buffer::new(4096).unwrap();
        let wr = ffi::ibv_send_wr {
            sg_list: list.as_mut_ptr(),
            num_sge: list.len() as c_int,
            ..wr
        };
        // SAFETY: the list is as long as is said; tests give valid handles and data.
        unsafe { write_send(&buffer, SLOT, STRIDE, kind, false, &wr) }?;
        Ok(buffer.read(SLOT))
    }

    fn header(slot: &[u8; STRIDE]) -> SendWqe {
        SendWqe::from_bytes(slot[..SendWqe::SIZE].try_into().unwrap())
    }

    fn request(opcode: ffi::ibv_wr_opcode) -> ffi::ibv_send_wr {
        ffi::ibv_send_wr {
            wr_id: 42,
            opcode,
            send_flags: ffi::IBV_SEND_SIGNALED,
            ..Default::default()
        }
    }

    #[test]
    fn a_write_carries_address_key_and_elements() {
        let mut wr = request(ffi::IBV_WR_RDMA_WRITE);
        wr.wr.rdma.remote_addr = 0x1234_5678_9abc;
        wr.wr.rdma.rkey = 0x55;
        let slot = post(ffi::IBV_QPT_RC, &mut [sge(10), sge(20)], wr).unwrap();
        let wqe = header(&slot);
        assert_eq!(wqe.opcode, SendOpcode::Write.raw());
        assert_eq!(
            (wqe.remote, wqe.key, wqe.num_sge),
            (0x1234_5678_9abc, 0x55, 2)
        );
        assert_eq!((wqe.flags, wqe.wr_id), (SEND_SIGNALED, 42));
        let second = Sge::from_bytes(slot[48..64].try_into().unwrap());
        assert_eq!((second.addr, second.length, second.lkey), (0x1000, 20, 7));
    }

    #[test]
    fn inline_data_are_gathered_behind_the_header() {
        let data = *b"0123456789";
        let part = |from: usize, length: u32| ffi::ibv_sge {
            addr: data[from..].as_ptr() as u64,
            length,
            lkey: 0,
        };
        let mut wr = request(ffi::IBV_WR_SEND);
        wr.send_flags |= ffi::IBV_SEND_INLINE;
        let slot = post(ffi::IBV_QPT_RC, &mut [part(6, 4), part(0, 3)], wr).unwrap();
        let wqe = header(&slot);
        assert_eq!((wqe.inline_len, wqe.num_sge), (7, 0));
        assert_eq!(&slot[SendWqe::SIZE..][..7], b"6789012");
    }

    #[test]
    fn an_atomic_carries_its_operands() {
        let mut wr = request(ffi::IBV_WR_ATOMIC_CMP_AND_SWP);
        wr.wr.atomic.compare_add = 11;
        wr.wr.atomic.swap = 22;
        let slot = post(ffi::IBV_QPT_RC, &mut [sge(8)], wr).unwrap();
        let operands = AtomicSegment::from_bytes(slot[32..48].try_into().unwrap());
        assert_eq!((operands.compare, operands.swap_or_add), (11, 22));
        let wr = request(ffi::IBV_WR_ATOMIC_FETCH_AND_ADD);
        assert_eq!(post(ffi::IBV_QPT_RC, &mut [sge(4)], wr), Err(libc::EINVAL));
    }

    #[test]
    fn what_cannot_be_right_is_refused() {
        let refused = |kind, list: &mut [ffi::ibv_sge], wr| {
            assert_eq!(post(kind, list, wr), Err(libc::EINVAL));
        };
        // An operation that the QP type does not have.
        refused(
            ffi::IBV_QPT_UC,
            &mut [sge(1)],
            request(ffi::IBV_WR_RDMA_READ),
        );
        refused(
            ffi::IBV_QPT_UD,
            &mut [sge(1)],
            request(ffi::IBV_WR_RDMA_WRITE),
        );
        // More elements than the slot holds, and more bytes than a message may have.
        refused(ffi::IBV_QPT_RC, &mut [sge(1); 7], request(ffi::IBV_WR_SEND));
        refused(
            ffi::IBV_QPT_RC,
            &mut [sge(1 << 31), sge(1)],
            request(ffi::IBV_WR_SEND),
        );
        // No address handle; a flag nobody knows; inline data on a READ.
        refused(ffi::IBV_QPT_UD, &mut [sge(1)], request(ffi::IBV_WR_SEND));
        let mut wr = request(ffi::IBV_WR_SEND);
        wr.send_flags |= ffi::IBV_SEND_IP_CSUM;
        refused(ffi::IBV_QPT_RC, &mut [sge(1)], wr);
        let mut wr = request(ffi::IBV_WR_RDMA_READ);
        wr.send_flags |= ffi::IBV_SEND_INLINE;
        refused(ffi::IBV_QPT_RC, &mut [], wr);
        // The longest message is allowed.
        assert!(post(
            ffi::IBV_QPT_RC,
            &mut [sge(1 << 31)],
            request(ffi::IBV_WR_SEND)
        )
        .is_ok());
    }
}
