// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands on QPs, address handles and multicast groups.

use ochre_hw::cmd::qp::{CreateAh, CreateQp, ModifyQp, Multicast, QueryQpOut};
use ochre_hw::queue::{
    QpRecord, MAX_LOG_RQ_STRIDE, MAX_LOG_SQ_STRIDE, MAX_LOG_WR, MIN_LOG_RQ_STRIDE,
    MIN_LOG_SQ_STRIDE,
};
use ochre_hw::verbs::{qp_attr, AddressVector, QpType, AV_GRH};
use ochre_link::Cable;
use ochre_wire::{Gid, Lid, Qpn};

use super::{must_be_zero, CmdError};
use crate::ah::Ah;
use crate::device::Device;
use crate::mem::{PageList, QueueMem};
use crate::port::PortContext;
use crate::qp::{self, NewQp, Qp};
use crate::seams::Dma;
use crate::wq::WorkQueue;

/// Checks an address vector that stands at byte `at` of a command's input.
pub(crate) fn check_av(
    ports: &[PortContext],
    av: &AddressVector,
    at: usize,
) -> Result<(), CmdError> {
    let bad = |field| Err(CmdError::parameter(at + field));
    let index = usize::from(av.port).wrapping_sub(1);
    let Some(port) = ports.get(index) else {
        return bad(0x18);
    };
    if av.flags & !AV_GRH != 0 {
        return bad(0x1d);
    }
    must_be_zero(&av.reserved, at + 0x1e)?;
    // A destination LID of 0 is no error here: hosts make handles for a subnet manager before there
    // is one, and replace them when it appears. A packet sent there finds nobody.
    if av.sl > 15 {
        return bad(0x16);
    }
    if av.src_path_bits > 0x7f {
        return bad(0x17);
    }
    if av.flags & AV_GRH != 0 {
        if av.flow_label > 0xf_ffff {
            return bad(0x10);
        }
        if usize::from(av.sgid_index) >= port.guids.len() {
            return bad(0x1a);
        }
    }
    Ok(())
}

/// Checks the place of a queue in a QP's buffer: its fields' bytes in the input are `at` (offset),
/// `slots` and `stride`.
struct Place {
    offset: u32,
    log_slots: u8,
    log_stride: u8,
    strides: (u8, u8),
    at: (usize, usize, usize),
}

impl Place {
    fn check(&self, buffer: u64) -> Result<(u64, u64), CmdError> {
        let (offset, slots, stride) = self.at;
        if self.log_slots > MAX_LOG_WR {
            return Err(CmdError::parameter(slots));
        }
        if self.log_stride < self.strides.0 || self.log_stride > self.strides.1 {
            return Err(CmdError::parameter(stride));
        }
        let align = (1u32 << self.log_stride).min(64);
        let start = u64::from(self.offset);
        let end = start + (1u64 << (self.log_slots + self.log_stride));
        if self.offset % align != 0 || start < QpRecord::SIZE as u64 || end > buffer {
            return Err(CmdError::parameter(offset));
        }
        Ok((start, end))
    }
}

impl<D: Dma, C: Cable> Device<D, C> {
    pub(super) fn create_qp(&mut self, input: &CreateQp) -> Result<u32, CmdError> {
        let kind = QpType::from_raw(input.qp_type).ok_or(CmdError::parameter(0x1c))?;
        let special = matches!(kind, QpType::Smi | QpType::Gsi);
        let port_fits = if special {
            (1..=self.links.len()).contains(&usize::from(input.port))
        } else {
            input.port == 0
        };
        if !port_fits {
            return Err(CmdError::parameter(0x1d));
        }
        must_be_zero(&input.reserved0, 0x1e)?;
        must_be_zero(&input.reserved1, 0x30)?;
        must_be_zero(&input.reserved2, 0x48)?;
        self.pd_mut(input.pd, 0x20)?;
        for (cq, at) in [(input.send_cq, 0x24), (input.recv_cq, 0x28)] {
            if self.ctx.cqs.get(cq).is_none() {
                return Err(CmdError::no_object(at));
            }
        }
        if input.doorbell_page >= self.config.doorbell_pages {
            return Err(CmdError::parameter(0x2c));
        }
        if special
            && self
                .special_slot(kind, input.port)
                .is_some_and(|s| s.is_some())
        {
            return Err(CmdError::busy(0x1d));
        }
        let mem = QueueMem::new(PageList::load(
            &self.ctx.dma,
            &input.mem,
            0x00,
            &self.ctx.pages,
        )?);
        let sq = Place {
            offset: input.sq_offset,
            log_slots: input.log_sq_slots,
            log_stride: input.log_sq_stride,
            strides: (MIN_LOG_SQ_STRIDE, MAX_LOG_SQ_STRIDE),
            at: (0x10, 0x18, 0x19),
        }
        .check(mem.len())?;
        let rq = Place {
            offset: input.rq_offset,
            log_slots: input.log_rq_slots,
            log_stride: input.log_rq_stride,
            strides: (MIN_LOG_RQ_STRIDE, MAX_LOG_RQ_STRIDE),
            at: (0x14, 0x1a, 0x1b),
        }
        .check(mem.len())?;
        if sq.0 < rq.1 && rq.0 < sq.1 {
            return Err(CmdError::parameter(0x14));
        }
        let number = self.qps.next_number().ok_or(CmdError::no_resources())?;
        let qpn = match kind {
            QpType::Smi => Qpn::SMI,
            QpType::Gsi => Qpn::GSI,
            _ => Qpn::new(number),
        };
        let qp = Qp::new(
            number,
            NewQp {
                qpn,
                kind,
                port: input.port,
                pd: input.pd,
                send_cq: input.send_cq,
                recv_cq: input.recv_cq,
                doorbell_page: input.doorbell_page,
                mem,
                sq: WorkQueue::send(input.sq_offset, input.log_sq_slots, input.log_sq_stride),
                rq: WorkQueue::recv(input.rq_offset, input.log_rq_slots, input.log_rq_stride),
            },
        );
        self.qps.insert(qp).map_err(|_| CmdError::no_resources())?;
        if let Some(slot) = self.special_slot(kind, input.port) {
            *slot = Some(number);
        }
        for cq in [input.send_cq, input.recv_cq] {
            if let Some(cq) = self.ctx.cqs.get_mut(cq) {
                cq.qps.insert(number);
            }
        }
        self.pd_mut(input.pd, 0x20)?.users += 1;
        Ok(number)
    }

    /// Where the number of a special QP is kept.
    fn special_slot(&mut self, kind: QpType, port: u8) -> Option<&mut Option<u32>> {
        let special = self.special.get_mut(usize::from(port).checked_sub(1)?)?;
        match kind {
            QpType::Smi => Some(&mut special.smi),
            QpType::Gsi => Some(&mut special.gsi),
            _ => None,
        }
    }

    pub(super) fn modify_qp(&mut self, input: &ModifyQp) -> Result<(), CmdError> {
        let qp = self
            .qps
            .get_mut(input.qp)
            .ok_or(CmdError::no_object(0x00))?;
        if input.mask & !qp_attr::ALL != 0 {
            return Err(CmdError::parameter(0x04));
        }
        must_be_zero(&input.reserved, 0x08)?;
        must_be_zero(&input.attr.reserved0, 0x32)?;
        must_be_zero(&input.attr.reserved1, 0x60)?;
        must_be_zero(&input.attr.reserved2, 0x78)?;
        qp::modify(qp, &mut self.ctx, &input.attr, input.mask)?;
        // It looks at its queues in the new state.
        self.ctx.sched.schedule(input.qp, &mut qp.sched);
        Ok(())
    }

    pub(super) fn query_qp(&self, number: u32) -> Result<QueryQpOut, CmdError> {
        let qp = self.qps.get(number).ok_or(CmdError::no_object(0))?;
        Ok(QueryQpOut {
            attr: qp::query(qp, &self.ctx),
        })
    }

    pub(super) fn destroy_qp(&mut self, number: u32) -> Result<(), CmdError> {
        let mut qp = self.qps.remove(number).ok_or(CmdError::no_object(0))?;
        self.ctx.groups.detach_all(number);
        self.ctx.forget_qp(number);
        let lane = self.ctx.sched.forget(number, &mut qp.sched);
        self.nobody_waits(lane);
        if let Some(slot) = self.special_slot(qp.kind, qp.port) {
            *slot = None;
        }
        for cq in [qp.send_cq, qp.recv_cq] {
            if let Some(cq) = self.ctx.cqs.get_mut(cq) {
                cq.qps.remove(&number);
            }
        }
        self.release_pd(qp.pd);
        Ok(())
    }

    pub(super) fn create_ah(&mut self, input: &CreateAh) -> Result<u32, CmdError> {
        check_av(&self.ctx.ports, &input.av, 0x00)?;
        self.pd_mut(input.pd, 0x20)?;
        must_be_zero(&input.reserved, 0x24)?;
        let number = self
            .ctx
            .ahs
            .insert(Ah {
                pd: input.pd,
                av: input.av,
            })
            .map_err(|_| CmdError::no_resources())?;
        self.pd_mut(input.pd, 0x20)?.users += 1;
        Ok(number)
    }

    pub(super) fn destroy_ah(&mut self, number: u32) -> Result<(), CmdError> {
        let ah = self.ctx.ahs.remove(number).ok_or(CmdError::no_object(0))?;
        self.release_pd(ah.pd);
        Ok(())
    }

    /// Checks the input and gives its group.
    fn group(&mut self, input: &Multicast) -> Result<(Gid, Lid), CmdError> {
        let (mgid, mlid) = (Gid(input.mgid), Lid(input.mlid));
        if !mgid.is_multicast() {
            return Err(CmdError::parameter(0x00));
        }
        let qp = self.qps.get(input.qp).ok_or(CmdError::no_object(0x10))?;
        if qp.kind != QpType::Ud {
            return Err(CmdError::parameter(0x10));
        }
        if !mlid.is_multicast() {
            return Err(CmdError::parameter(0x14));
        }
        must_be_zero(&input.reserved, 0x16)?;
        Ok((mgid, mlid))
    }

    pub(super) fn attach_multicast(&mut self, input: &Multicast) -> Result<(), CmdError> {
        let (mgid, mlid) = self.group(input)?;
        self.ctx
            .groups
            .attach(mgid, mlid, input.qp)
            .map_err(|_| CmdError::no_resources())
    }

    pub(super) fn detach_multicast(&mut self, input: &Multicast) -> Result<(), CmdError> {
        let (mgid, mlid) = self.group(input)?;
        if self.ctx.groups.detach(mgid, mlid, input.qp) {
            Ok(())
        } else {
            Err(CmdError::no_object(0x00))
        }
    }
}
