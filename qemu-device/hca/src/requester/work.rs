// SPDX-License-Identifier: GPL-2.0-or-later

//! Send work requests under way: read once from their slot, checked, kept until they complete.

use ochre_hw::cqe::{CqeOpcode, CqeStatus};
use ochre_hw::verbs::QpType;
use ochre_hw::wqe::Sge;
use ochre_hw::wqe::{SendOpcode, SEND_FENCE, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED};
use ochre_wire::Psn;

use crate::mem::SgData;
use crate::wq::SendRequest;

/// Longest message, bytes.
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;

/// One send work request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) opcode: SendOpcode,
    /// `SEND_*` flags.
    pub(crate) flags: u8,
    /// Scatter/gather elements, kept in [`super::flight::Flight`].
    pub(crate) num_sge: u8,
    /// The PSNs are assigned: the first packet is sent or about to be.
    pub(crate) started: bool,
    /// The request cannot be carried out; it completes with this status when its turn comes.
    pub(crate) failed: Option<CqeStatus>,
    /// Bytes of the message.
    pub(crate) len: u32,
    pub(crate) key: u32,
    /// Immediate data or key to invalidate, as a number in the order of the wire.
    pub(crate) imm: u32,
    /// First PSN, valid once started.
    pub(crate) first: Psn,
    /// PSNs that it takes: packets sent, or packets of a READ's response.
    pub(crate) packets: u32,
    /// Packet of the response from which a READ was last asked for.
    pub(crate) resumed_at: u32,
    pub(crate) wr_id: u64,
    pub(crate) remote: u64,
    pub(crate) swap_or_add: u64,
    pub(crate) compare: u64,
}

impl Work {
    /// A request that is answered with data: a READ or an atomic.
    #[inline]
    pub(crate) fn wants_response(&self) -> bool {
        self.is_read() || self.is_atomic()
    }

    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.opcode == SendOpcode::Read
    }

    #[inline]
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self.opcode, SendOpcode::CompareSwap | SendOpcode::FetchAdd)
    }

    #[inline]
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.opcode, SendOpcode::Write | SendOpcode::WriteImm)
    }

    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.flags & SEND_INLINE != 0
    }

    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.flags & SEND_FENCE != 0
    }

    #[inline]
    pub(crate) fn is_signaled(&self) -> bool {
        self.flags & SEND_SIGNALED != 0
    }

    #[inline]
    pub(crate) fn is_solicited(&self) -> bool {
        self.flags & SEND_SOLICITED != 0
    }

    /// The PSN after its last.
    #[inline]
    pub(crate) fn end(&self) -> Psn {
        self.first.add(self.packets)
    }

    /// What its completion says.
    pub(crate) fn cqe_opcode(&self) -> CqeOpcode {
        cqe_opcode(Some(self.opcode))
    }
}

/// What the completion of a request says that was never taken up.
pub(crate) fn cqe_opcode(opcode: Option<SendOpcode>) -> CqeOpcode {
    match opcode {
        None => CqeOpcode::Send,
        Some(SendOpcode::Send | SendOpcode::SendImm | SendOpcode::SendInvalidate) => {
            CqeOpcode::Send
        }
        Some(SendOpcode::Write | SendOpcode::WriteImm) => CqeOpcode::Write,
        Some(SendOpcode::Read) => CqeOpcode::Read,
        Some(SendOpcode::CompareSwap) => CqeOpcode::CompareSwap,
        Some(SendOpcode::FetchAdd) => CqeOpcode::FetchAdd,
    }
}

/// Whether a connected QP of this type can carry out `opcode`.
fn is_possible(kind: QpType, opcode: SendOpcode) -> bool {
    match kind {
        QpType::Rc => true,
        QpType::Uc => matches!(
            opcode,
            SendOpcode::Send | SendOpcode::SendImm | SendOpcode::Write | SendOpcode::WriteImm
        ),
        QpType::Ud | QpType::Smi | QpType::Gsi => {
            matches!(opcode, SendOpcode::Send | SendOpcode::SendImm)
        }
    }
}

/// The work that a request asks for. A request that cannot be carried out gives work that has
/// [`Work::failed`] with the status of its completion. Keys are not looked at here.
pub(crate) fn accept(kind: QpType, request: &SendRequest<'_>) -> Work {
    let wqe = &request.wqe;
    let opcode = request.opcode.unwrap_or(SendOpcode::Send);
    let mut work = Work {
        opcode,
        flags: wqe.flags,
        num_sge: 0,
        started: false,
        failed: None,
        len: 0,
        key: wqe.key,
        imm: match opcode {
            SendOpcode::SendInvalidate => wqe.imm,
            // The field holds the bytes as they travel.
            _ => wqe.imm.swap_bytes(),
        },
        first: Psn::default(),
        packets: 0,
        resumed_at: 0,
        wr_id: wqe.wr_id,
        remote: wqe.remote,
        swap_or_add: request.atomic.swap_or_add,
        compare: request.atomic.compare,
    };
    if request.opcode.is_none() || !is_possible(kind, opcode) {
        work.failed = Some(CqeStatus::LocalQpOperation);
        return work;
    }
    let data = request.data();
    let len = data.len();
    if len > u64::from(MAX_MESSAGE) || (work.is_atomic() && len != 8) {
        work.failed = Some(CqeStatus::LocalLength);
        return work;
    }
    work.len = len as u32;
    if let SgData::Elements(bytes) = data {
        work.num_sge = (bytes.len() / Sge::SIZE) as u8;
    }
    work
}
