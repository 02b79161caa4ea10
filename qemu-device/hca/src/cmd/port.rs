// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands on ports.

use ochre_hw::cmd::port::{
    MadIn, MadOut, ModifyPort, PortIn, QueryCountersOut, QueryGidOut, QueryPkeyOut, QueryPortOut,
    TableIn, MAD_CONSUMED, MAD_HAS_SOURCE, MAD_IGNORE_BKEY, MAD_IGNORE_MKEY, MAD_REPLY,
    MAD_SUCCESS, RESET_QKEY_VIOLATIONS,
};
use ochre_hw::Field;
use ochre_link::Cable;
use ochre_wire::mad::Mad;
use ochre_wire::Lid;

use super::{must_be_zero, CmdError};
use crate::device::Device;
use crate::mgmt::{Outcome, Source};
use crate::seams::Dma;

impl<D: Dma, C: Cable> Device<D, C> {
    /// Index of the port that byte `at` of the input names.
    fn port_index(&self, port: u8, at: usize) -> Result<usize, CmdError> {
        match usize::from(port).checked_sub(1) {
            Some(index) if index < self.links.len() => Ok(index),
            _ => Err(CmdError::parameter(at)),
        }
    }

    fn named_port(&self, input: &PortIn) -> Result<usize, CmdError> {
        let index = self.port_index(input.port, 0x00)?;
        must_be_zero(&input.reserved, 0x01)?;
        Ok(index)
    }

    pub(super) fn query_port(&self, input: &PortIn) -> Result<QueryPortOut, CmdError> {
        let index = self.named_port(input)?;
        let (port, link) = (&self.ctx.ports[index], &self.links[index]);
        let info = self
            .mgmt
            .port_info(&self.ctx.ports, &self.links, input.port)
            .ok_or(CmdError::parameter(0x00))?;
        Ok(QueryPortOut {
            subnet_prefix: port.gid_prefix,
            port_guid: port.guids[0].0,
            capability_mask: info.capability_mask,
            max_message: self.config.limits.message,
            lid: port.lid.0,
            sm_lid: port.sm_lid.0,
            pkey_violations: port.pkey_violations,
            qkey_violations: port.qkey_violations,
            active_speed: link.speed_active().0,
            pkeys: port.pkeys.len() as u16,
            gids: port.guids.len() as u16,
            state: link.state().code(),
            phys_state: link.phys_state().code(),
            max_mtu: info.mtu_cap,
            active_mtu: port.mtu.code(),
            lmc: port.lmc,
            sm_sl: port.sm_sl.get(),
            active_width: link.width_active().0,
            vl_cap: info.vl_cap,
            subnet_timeout: info.subnet_timeout,
            init_type_reply: info.init_type_reply,
            ..Default::default()
        })
    }

    pub(super) fn modify_port(&mut self, input: &ModifyPort) -> Result<(), CmdError> {
        let index = self.port_index(input.port, 0x00)?;
        must_be_zero(&input.reserved0, 0x01)?;
        if input.flags & !RESET_QKEY_VIOLATIONS != 0 {
            return Err(CmdError::parameter(0x04));
        }
        must_be_zero(&input.reserved1, 0x10)?;
        self.mgmt
            .modify_capabilities(
                self.ctx.now,
                &self.ctx.ports,
                input.port,
                input.set_capabilities,
                input.clear_capabilities,
            )
            .map_err(|error| {
                let set = error.0 & input.set_capabilities != 0;
                CmdError::parameter(if set { 0x08 } else { 0x0c })
            })?;
        if input.flags & RESET_QKEY_VIOLATIONS != 0 {
            self.ctx.ports[index].qkey_violations = 0;
        }
        Ok(())
    }

    pub(super) fn query_gid(&self, input: &TableIn) -> Result<QueryGidOut, CmdError> {
        let port = &self.ctx.ports[self.table_port(input)?];
        if usize::from(input.index) >= port.guids.len() {
            return Err(CmdError::parameter(0x02));
        }
        let gid = port.gid(input.index as u8).unwrap_or_default();
        Ok(QueryGidOut { gid: gid.0 })
    }

    pub(super) fn query_pkey(&self, input: &TableIn) -> Result<QueryPkeyOut, CmdError> {
        let port = &self.ctx.ports[self.table_port(input)?];
        match port.pkeys.get(usize::from(input.index)) {
            Some(key) => Ok(QueryPkeyOut {
                pkey: key.0,
                ..Default::default()
            }),
            None => Err(CmdError::parameter(0x02)),
        }
    }

    fn table_port(&self, input: &TableIn) -> Result<usize, CmdError> {
        let index = self.port_index(input.port, 0x00)?;
        must_be_zero(&[input.reserved0], 0x01)?;
        must_be_zero(&input.reserved1, 0x04)?;
        Ok(index)
    }

    pub(super) fn process_mad(&mut self, input: &MadIn) -> Result<MadOut, CmdError> {
        self.port_index(input.port, 0x00)?;
        let flags = MAD_IGNORE_MKEY | MAD_IGNORE_BKEY | MAD_HAS_SOURCE;
        if input.flags & !flags != 0 {
            return Err(CmdError::parameter(0x01));
        }
        must_be_zero(&input.reserved, 0x0b)?;
        let source = Source::Host {
            slid: if input.flags & MAD_HAS_SOURCE != 0 {
                Lid(input.slid)
            } else {
                Lid::RESERVED
            },
            ignore_m_key: input.flags & MAD_IGNORE_MKEY != 0,
        };
        let outcome = self.mgmt.handle(
            self.ctx.now,
            &mut self.ctx.ports,
            &mut self.links,
            input.port,
            &Mad(input.mad),
            &source,
        );
        self.after_mad();
        let (result, mad) = match outcome {
            Outcome::Reply(mad) => (MAD_SUCCESS | MAD_REPLY, mad),
            Outcome::Consumed | Outcome::Drop => (MAD_SUCCESS | MAD_CONSUMED, Mad::default()),
            Outcome::PassToHost => (MAD_SUCCESS, Mad::default()),
        };
        Ok(MadOut {
            result,
            reserved: 0,
            mad: mad.0,
        })
    }

    pub(super) fn query_counters(&self, input: &PortIn) -> Result<QueryCountersOut, CmdError> {
        let index = self.named_port(input)?;
        let mut out = QueryCountersOut::default();
        for (place, value) in out.values.chunks_exact_mut(8).zip(self.ctx.counters[index]) {
            value.put(place);
        }
        Ok(out)
    }
}
