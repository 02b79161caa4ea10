// SPDX-License-Identifier: GPL-2.0-or-later

//! Management datagrams.

use super::bindings;

/// Where a MAD came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadSource<'a> {
    /// LID of the sender.
    pub(crate) slid: u16,
    /// QP number of the sender.
    pub(crate) src_qp: u32,
    /// Service level.
    pub(crate) sl: u8,
    /// Index of the P_Key.
    pub(crate) pkey_index: u16,
    /// Low bits of the LID that it came to.
    pub(crate) dlid_path_bits: u8,
    /// The global route header, if it came with one.
    pub(crate) grh: Option<&'a [u8; 40]>,
}

/// A MAD to be processed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mad<'a> {
    /// The MAD.
    pub(crate) bytes: &'a [u8; 256],
    /// Where it came from; [`None`] where the kernel itself asks.
    pub(crate) source: Option<MadSource<'a>>,
    /// Do not check the M_Key.
    pub(crate) ignore_mkey: bool,
    /// Do not check the B_Key.
    pub(crate) ignore_bkey: bool,
}

/// What became of a MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadReply {
    /// It is none of the device's; the agents of the kernel and of processes get it.
    Ignored,
    /// It was handled, and agents do not get it.
    Consumed,
    /// It was handled, and the reply is to be sent.
    Reply,
}

impl MadReply {
    pub(super) fn as_raw(self) -> u32 {
        bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS
            | match self {
                Self::Ignored => 0,
                Self::Consumed => bindings::ib_mad_result_IB_MAD_RESULT_CONSUMED,
                Self::Reply => bindings::ib_mad_result_IB_MAD_RESULT_REPLY,
            }
    }
}

impl<'a> Mad<'a> {
    /// # Safety
    ///
    /// `mad` must be valid for 256 bytes, and `wc` and `grh` valid or null, all for `'a`.
    pub(super) unsafe fn from_raw(
        flags: u32,
        mad: *const bindings::ib_mad,
        wc: *const bindings::ib_wc,
        grh: *const bindings::ib_grh,
    ) -> Self {
        // SAFETY: By the requirements of this function; `None` where null.
        let (wc, grh) = unsafe { (wc.as_ref(), grh.cast::<[u8; 40]>().as_ref()) };

        Self {
            // SAFETY: By the requirements of this function.
            bytes: unsafe { &*mad.cast() },
            source: wc.map(|wc| MadSource {
                slid: wc.slid as u16,
                src_qp: wc.src_qp,
                sl: wc.sl,
                pkey_index: wc.pkey_index,
                dlid_path_bits: wc.dlid_path_bits,
                grh: grh.filter(|_| wc.wc_flags as u32 & bindings::ib_wc_flags_IB_WC_GRH != 0),
            }),
            ignore_mkey: flags & bindings::ib_process_mad_flags_IB_MAD_IGNORE_MKEY != 0,
            ignore_bkey: flags & bindings::ib_process_mad_flags_IB_MAD_IGNORE_BKEY != 0,
        }
    }
}
