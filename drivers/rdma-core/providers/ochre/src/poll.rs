// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Polling: from completion queue entries to `ibv_wc`.

use core::ffi::c_int;

use ochre_hw::cqe::{Cqe, CqeOpcode, CqeStatus, CQE_GRH, CQE_IMM, CQE_INVALIDATED};

use crate::context::Context;
use crate::cq::Cq;
use crate::ffi;

pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut ffi::ibv_cq,
    num_entries: c_int,
    wc: *mut ffi::ibv_wc,
) -> c_int {
    // SAFETY: a CQ of ours, in a context of ours.
    let (state, mut ring) = unsafe { (Context::state((*cq).context), Cq::from_ptr(cq).lock()) };
    let mut found = 0;
    while found < num_entries {
        let Some(cqe) = ring.next() else { break };
        state.qps.complete(&cqe);
        // SAFETY: the program gives room for `num_entries` elements.
        unsafe { wc.add(found as usize).write(completion(&cqe)) };
        found += 1;
    }
    if found > 0 {
        ring.release();
    } else if ring.found_nothing() {
        drop(ring);
        state.doorbells.busy_poll(true);
    }
    found
}

/// The verbs' status of an entry. A status or opcode that the contract does not know (a device that
/// broke it) becomes `IBV_WC_GENERAL_ERR`.
#[inline]
pub(crate) fn status(cqe: &Cqe) -> ffi::ibv_wc_status {
    let known = CqeOpcode::from_raw(cqe.opcode).and(CqeStatus::from_raw(cqe.status));
    known.unwrap_or(CqeStatus::General).raw().into()
}

/// The verbs' opcode of an entry.
#[inline]
pub(crate) fn opcode(cqe: &Cqe) -> ffi::ibv_wc_opcode {
    match CqeOpcode::from_raw(cqe.opcode) {
        Some(CqeOpcode::Write) => ffi::IBV_WC_RDMA_WRITE,
        Some(CqeOpcode::Read) => ffi::IBV_WC_RDMA_READ,
        Some(CqeOpcode::CompareSwap) => ffi::IBV_WC_COMP_SWAP,
        Some(CqeOpcode::FetchAdd) => ffi::IBV_WC_FETCH_ADD,
        Some(CqeOpcode::Recv) => ffi::IBV_WC_RECV,
        Some(CqeOpcode::RecvWriteImm) => ffi::IBV_WC_RECV_RDMA_WITH_IMM,
        Some(CqeOpcode::Send) | None => ffi::IBV_WC_SEND,
    }
}

/// The verbs' flags of an entry.
#[inline]
pub(crate) fn wc_flags(cqe: &Cqe) -> u32 {
    let mut flags = 0;
    for (ours, theirs) in [
        (CQE_IMM, ffi::IBV_WC_WITH_IMM),
        (CQE_INVALIDATED, ffi::IBV_WC_WITH_INV),
        (CQE_GRH, ffi::IBV_WC_GRH),
    ] {
        if cqe.flags & ours != 0 {
            flags |= theirs;
        }
    }
    flags
}

/// The verbs' form of an entry.
fn completion(cqe: &Cqe) -> ffi::ibv_wc {
    let data = if cqe.flags & CQE_INVALIDATED != 0 {
        ffi::ibv_wc__bindgen_ty_1 {
            invalidated_rkey: cqe.imm,
        }
    } else {
        // Both are the four bytes in wire order.
        ffi::ibv_wc__bindgen_ty_1 { imm_data: cqe.imm }
    };
    ffi::ibv_wc {
        wr_id: cqe.wr_id,
        status: status(cqe),
        opcode: opcode(cqe),
        vendor_err: cqe.syndrome.into(),
        byte_len: cqe.byte_len,
        __bindgen_anon_1: data,
        qp_num: cqe.qpn,
        src_qp: cqe.src_qpn,
        wc_flags: wc_flags(cqe),
        pkey_index: cqe.pkey_index,
        slid: cqe.slid,
        sl: cqe.sl,
        dlid_path_bits: cqe.dlid_path_bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_the_verbs() {
        for (ours, theirs) in [
            (CqeStatus::Success, ffi::IBV_WC_SUCCESS),
            (CqeStatus::LocalLength, ffi::IBV_WC_LOC_LEN_ERR),
            (CqeStatus::LocalQpOperation, ffi::IBV_WC_LOC_QP_OP_ERR),
            (CqeStatus::LocalProtection, ffi::IBV_WC_LOC_PROT_ERR),
            (CqeStatus::WorkRequestFlushed, ffi::IBV_WC_WR_FLUSH_ERR),
            (CqeStatus::BadResponse, ffi::IBV_WC_BAD_RESP_ERR),
            (CqeStatus::LocalAccess, ffi::IBV_WC_LOC_ACCESS_ERR),
            (CqeStatus::RemoteInvalidRequest, ffi::IBV_WC_REM_INV_REQ_ERR),
            (CqeStatus::RemoteAccess, ffi::IBV_WC_REM_ACCESS_ERR),
            (CqeStatus::RemoteOperation, ffi::IBV_WC_REM_OP_ERR),
            (CqeStatus::RetryExceeded, ffi::IBV_WC_RETRY_EXC_ERR),
            (CqeStatus::RnrRetryExceeded, ffi::IBV_WC_RNR_RETRY_EXC_ERR),
            (CqeStatus::General, ffi::IBV_WC_GENERAL_ERR),
        ] {
            assert_eq!(u32::from(ours.raw()), theirs);
        }
    }

    #[test]
    fn immediate_data_keep_their_wire_order() {
        let cqe = Cqe {
            imm: u32::from_le_bytes([1, 2, 3, 4]),
            flags: CQE_IMM,
            ..Cqe::default()
        };
        let wc = completion(&cqe);
        // SAFETY: both variants of the union are plain integers.
        let imm = unsafe { wc.__bindgen_anon_1.imm_data };
        assert_eq!(imm.to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!(wc.wc_flags, ffi::IBV_WC_WITH_IMM);
    }

    #[test]
    fn an_unknown_opcode_is_an_error() {
        let cqe = Cqe {
            opcode: 0x55,
            ..Cqe::default()
        };
        assert_eq!(completion(&cqe).status, ffi::IBV_WC_GENERAL_ERR);
    }
}
