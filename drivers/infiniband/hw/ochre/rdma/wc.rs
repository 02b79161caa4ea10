// SPDX-License-Identifier: GPL-2.0-or-later

//! Work completions for the kernel.

use super::{
    bindings,
    Operations,
    Qp, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop, //
};
use kernel::prelude::*;

/// Status of a completion, `enum ib_wc_status`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WcStatus {
    Success = bindings::ib_wc_status_IB_WC_SUCCESS,
    LocLenErr = bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
    LocQpOpErr = bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR,
    LocProtErr = bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
    WrFlushErr = bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
    MwBindErr = bindings::ib_wc_status_IB_WC_MW_BIND_ERR,
    BadRespErr = bindings::ib_wc_status_IB_WC_BAD_RESP_ERR,
    LocAccessErr = bindings::ib_wc_status_IB_WC_LOC_ACCESS_ERR,
    RemInvReqErr = bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR,
    RemAccessErr = bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR,
    RemOpErr = bindings::ib_wc_status_IB_WC_REM_OP_ERR,
    RetryExcErr = bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR,
    RnrRetryExcErr = bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR,
    RemAbortErr = bindings::ib_wc_status_IB_WC_REM_ABORT_ERR,
    FatalErr = bindings::ib_wc_status_IB_WC_FATAL_ERR,
    RespTimeoutErr = bindings::ib_wc_status_IB_WC_RESP_TIMEOUT_ERR,
    GeneralErr = bindings::ib_wc_status_IB_WC_GENERAL_ERR,
}

/// What is completed, `enum ib_wc_opcode`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WcOpcode {
    Send = bindings::ib_wc_opcode_IB_WC_SEND,
    RdmaWrite = bindings::ib_wc_opcode_IB_WC_RDMA_WRITE,
    RdmaRead = bindings::ib_wc_opcode_IB_WC_RDMA_READ,
    CompSwap = bindings::ib_wc_opcode_IB_WC_COMP_SWAP,
    FetchAdd = bindings::ib_wc_opcode_IB_WC_FETCH_ADD,
    LocalInv = bindings::ib_wc_opcode_IB_WC_LOCAL_INV,
    RegMr = bindings::ib_wc_opcode_IB_WC_REG_MR,
    Recv = bindings::ib_wc_opcode_IB_WC_RECV,
    RecvRdmaWithImm = bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM,
}

/// What came with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WcFlags {
    /// Nothing.
    #[default]
    None,
    /// Immediate data, in wire order.
    Imm([u8; 4]),
    /// A key was invalidated.
    Invalidate(u32),
}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wc {
    /// The identifier of the request.
    pub(crate) wr_id: u64,
    /// Status; all that follows counts only for [`WcStatus::Success`].
    pub(crate) status: WcStatus,
    /// The vendor's own code of an error.
    pub(crate) vendor_err: u32,
    /// What is completed.
    pub(crate) opcode: WcOpcode,
    /// Bytes received or read; for datagrams with the 40 bytes of the GRH.
    pub(crate) byte_len: u32,
    /// What came with the message.
    pub(crate) with: WcFlags,
    /// The first 40 bytes of a datagram's buffer hold a GRH.
    pub(crate) grh: bool,
    /// QP number of the sender of a datagram.
    pub(crate) src_qp: u32,
    /// LID of the sender of a datagram.
    pub(crate) slid: u16,
    /// Index of the P_Key of a datagram.
    pub(crate) pkey_index: u16,
    /// Service level of a datagram.
    pub(crate) sl: u8,
    /// Low bits of the LID that a datagram came to.
    pub(crate) dlid_path_bits: u8,
}

/// Room for completions that the caller of `poll_cq` gave.
pub(crate) struct WcSink<'a, T: Operations> {
    next: *mut bindings::ib_wc,
    left: usize,
    pushed: usize,
    _room: PhantomData<&'a mut bindings::ib_wc>,
    _ops: PhantomData<T>,
}

impl<T: Operations> WcSink<'_, T> {
    /// # Safety
    ///
    /// `first` must be valid for writes of `num` completions for the lifetime of the sink.
    pub(super) unsafe fn new(first: *mut bindings::ib_wc, num: usize) -> Self {
        Self {
            next: first,
            left: num,
            pushed: 0,
            _room: PhantomData,
            _ops: PhantomData,
        }
    }

    /// How many completions were handed over.
    pub(super) fn pushed(&self) -> usize {
        self.pushed
    }

    /// Whether there is no room for another completion.
    pub(crate) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Hands a completion of the queue pair `qp` over; [`ENOSPC`] where there is no room.
    pub(crate) fn push(&mut self, qp: &Qp<T>, wc: &Wc) -> Result {
        if self.left == 0 {
            return Err(ENOSPC);
        }

        let mut flags = 0;
        let mut ex = bindings::ib_wc__bindgen_ty_2 {
            invalidate_rkey: ManuallyDrop::new(0),
        };
        match wc.with {
            WcFlags::None => (),
            WcFlags::Imm(imm) => {
                flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM;
                ex.imm_data = ManuallyDrop::new(u32::from_ne_bytes(imm));
            }
            WcFlags::Invalidate(rkey) => {
                flags |= bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE;
                ex.invalidate_rkey = ManuallyDrop::new(rkey);
            }
        }
        if wc.grh {
            flags |= bindings::ib_wc_flags_IB_WC_GRH;
        }

        let raw = bindings::ib_wc {
            __bindgen_anon_1: bindings::ib_wc__bindgen_ty_1 {
                wr_id: ManuallyDrop::new(wc.wr_id),
            },
            status: wc.status as u32,
            opcode: wc.opcode as u32,
            vendor_err: wc.vendor_err,
            byte_len: wc.byte_len,
            qp: qp.as_raw(),
            ex,
            src_qp: wc.src_qp,
            slid: wc.slid.into(),
            wc_flags: flags as i32,
            pkey_index: wc.pkey_index,
            sl: wc.sl,
            dlid_path_bits: wc.dlid_path_bits,
            port_num: qp.port(),
            smac: [0; 6],
            vlan_id: 0,
            network_hdr_type: 0,
        };

        // SAFETY: There is room for one completion.
        unsafe {
            self.next.write(raw);
            self.next = self.next.add(1);
        }
        self.left -= 1;
        self.pushed += 1;

        Ok(())
    }
}
