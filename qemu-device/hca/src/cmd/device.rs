// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands on the device as a whole.

use ochre_hw::cmd::device::{QueryDeviceOut, QueryObjectsOut, SetNodeDescription};
use ochre_hw::cmd::queue::{MAX_LOG_CQE, MAX_LOG_EQE};
use ochre_hw::pci;
use ochre_hw::queue::{MAX_INLINE, MAX_LOG_WR, MAX_SGE, PAGE_SIZES};
use ochre_link::Cable;
use ochre_wire::mad::sma::NodeDescription;

use crate::device::Device;
use crate::regs::VERSION;
use crate::seams::Dma;

/// Local CA ACK delay: 4.096 us * 2^15 = 134 ms. A virtual CPU may be away that long.
const ACK_DELAY: u8 = 15;
/// The device clock counts nanoseconds.
const CLOCK_KHZ: u32 = 1_000_000;

impl<D: Dma, C: Cable> Device<D, C> {
    pub(super) fn query_device(&self) -> QueryDeviceOut {
        let limits = &self.config.limits;
        QueryDeviceOut {
            firmware_version: VERSION,
            node_guid: self.config.node_guid.0,
            system_image_guid: self.config.node_guid.0,
            max_mr_size: limits.mr_size,
            page_sizes: PAGE_SIZES,
            capabilities: 0,
            vendor_id: self.config.vendor_oui(),
            part_id: u32::from(pci::DEVICE_ID),
            hw_version: u32::from(pci::REVISION),
            max_qp: limits.qps,
            max_qp_wr: 1 << MAX_LOG_WR,
            max_sge: MAX_SGE,
            max_inline: MAX_INLINE,
            max_cq: limits.cqs,
            max_cqe: 1 << MAX_LOG_CQE,
            max_mr: limits.mrs,
            max_pd: limits.pds,
            max_ah: limits.ahs,
            max_eq: limits.eqs,
            max_eqe: 1 << MAX_LOG_EQE,
            max_mcast_groups: limits.mcast_groups,
            max_mcast_qps: limits.mcast_qps,
            max_dest_rd_atomic: limits.dest_rd_atomic.into(),
            max_rd_atomic: limits.rd_atomic.into(),
            max_message: limits.message,
            clock_khz: CLOCK_KHZ,
            pkeys: self.config.pkeys,
            gids: self.config.gids.into(),
            ports: self.links.len() as u8,
            ack_delay: ACK_DELAY,
            ..Default::default()
        }
    }

    pub(crate) fn query_objects(&self) -> QueryObjectsOut {
        QueryObjectsOut {
            eqs: self.ctx.eqs.len(),
            cqs: self.ctx.cqs.len(),
            pds: self.ctx.pds.len(),
            mrs: self.ctx.mrs.len(),
            qps: self.qps.len(),
            ahs: self.ctx.ahs.len(),
            mcast_attachments: self.ctx.groups.attachments(),
            ..Default::default()
        }
    }

    pub(super) fn set_node_description(&mut self, input: &SetNodeDescription) {
        self.mgmt.set_description(
            self.ctx.now,
            &self.ctx.ports,
            NodeDescription(input.description),
        );
    }
}
