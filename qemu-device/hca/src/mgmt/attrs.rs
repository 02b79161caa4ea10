// SPDX-License-Identifier: GPL-2.0-or-later
//! Subnet management attributes other than PortInfo.

use ochre_hw::eqe::EventType;
use ochre_wire::mad::sma::{
    GuidInfo, NodeInfo, PKeyTable, SlToVl, VlArbEntry, VlArbitration, NODE_TYPE_CA,
};
use ochre_wire::mad::{attr, status, Mad, BASE_VERSION, CLASS_VERSION};
use ochre_wire::{Guid, PKey};

use super::agent::Agent;
use super::link::Link;
use super::smp::Request;

/// Entries of a block of GUIDs.
const GUIDS: usize = 8;
/// Entries of a block of P_Keys.
const PKEYS: usize = 32;

/// Gets or sets the attribute that `mad` names; the data of `mad` become those of the answer. Gives
/// the status.
pub(super) fn handle<L: Link>(r: &mut Request<'_, L>, mad: &mut Mad, set: bool) -> u16 {
    match (mad.attr_id(), set) {
        (attr::NODE_DESCRIPTION, false) => plain(mad, |m| {
            *m.smp_data_mut() = r.node.description.0;
        }),
        (attr::NODE_INFO, false) => plain(mad, |m| node_info(r).write(m.smp_data_mut())),
        (attr::GUID_INFO, _) => guid_info(r, mad, set),
        (attr::PKEY_TABLE, _) => pkey_table(r, mad, set),
        (attr::SL_TO_VL, _) => sl_to_vl(r, mad, set),
        (attr::VL_ARBITRATION, _) => vl_arbitration(r, mad, set),
        _ => status::BAD_METHOD_ATTR,
    }
}

/// An attribute whose modifier is not used.
fn plain(mad: &mut Mad, write: impl FnOnce(&mut Mad)) -> u16 {
    if mad.attr_mod() != 0 {
        return status::BAD_VALUE;
    }
    write(mad);
    status::OK
}

fn node_info<L>(r: &Request<'_, L>) -> NodeInfo {
    let port = &r.ports[r.index];
    NodeInfo {
        base_version: BASE_VERSION,
        class_version: CLASS_VERSION,
        node_type: NODE_TYPE_CA,
        num_ports: r.ports.len() as u8,
        system_image_guid: r.node.system_image_guid,
        node_guid: r.node.node_guid,
        port_guid: port.guids.first().copied().unwrap_or_default(),
        partition_cap: port.pkeys.len() as u16,
        device_id: r.node.device_id,
        revision: r.node.revision,
        local_port_num: port.number,
        vendor_id: r.node.vendor_id,
    }
}

fn guid_info<L>(r: &mut Request<'_, L>, mad: &mut Mad, set: bool) -> u16 {
    let port = &mut r.ports[r.index];
    let first = (mad.attr_mod() as usize).saturating_mul(GUIDS);
    if first >= port.guids.len() {
        return status::BAD_VALUE;
    }
    let entries = first..port.guids.len().min(first + GUIDS);
    if set {
        let wanted = GuidInfo::read(mad.smp_data());
        let mut changed = false;
        for (i, guid) in entries.clone().zip(wanted.0) {
            // Entry 0 is the port GUID and stays.
            if i != 0 && port.guids[i] != guid {
                port.guids[i] = guid;
                changed = true;
            }
        }
        if changed {
            r.agents[r.index].event(EventType::GidChange);
        }
    }
    let mut block = GuidInfo([Guid(0); GUIDS]);
    block.0[..entries.len()].copy_from_slice(&port.guids[entries]);
    block.write(mad.smp_data_mut());
    status::OK
}

fn pkey_table<L>(r: &mut Request<'_, L>, mad: &mut Mad, set: bool) -> u16 {
    let port = &mut r.ports[r.index];
    // The upper half names a port of a switch.
    let first = (mad.attr_mod() & 0xffff) as usize * PKEYS;
    if first >= port.pkeys.len() {
        return status::BAD_VALUE;
    }
    let entries = first..port.pkeys.len().min(first + PKEYS);
    if set {
        let wanted = PKeyTable::read(mad.smp_data());
        let mut changed = false;
        for (i, pkey) in entries.clone().zip(wanted.0) {
            // An invalid key is an empty entry, whatever its membership bit.
            let pkey = if pkey.is_valid() { pkey } else { PKey(0) };
            if port.pkeys[i] != pkey {
                port.pkeys[i] = pkey;
                changed = true;
            }
        }
        if changed {
            r.agents[r.index].event(EventType::PkeyChange);
        }
    }
    let mut block = PKeyTable([PKey(0); PKEYS]);
    block.0[..entries.len()].copy_from_slice(&port.pkeys[entries]);
    block.write(mad.smp_data_mut());
    status::OK
}

fn sl_to_vl<L: Link>(r: &mut Request<'_, L>, mad: &mut Mad, set: bool) -> u16 {
    let agent = &mut r.agents[r.index];
    if set {
        agent.sl_to_vl = SlToVl::read(mad.smp_data()).0;
        agent.apply_sl_to_vl(&mut r.ports[r.index], &mut r.links[r.index]);
    }
    SlToVl(agent.sl_to_vl).write(mad.smp_data_mut());
    status::OK
}

fn vl_arbitration<L: Link>(r: &mut Request<'_, L>, mad: &mut Mad, set: bool) -> u16 {
    let (agent, link) = (&mut r.agents[r.index], &mut r.links[r.index]);
    if Agent::arbitration_cap(link) == 0 {
        return status::BAD_METHOD_ATTR;
    }
    // Blocks 2 and 4 would be the second halves of tables of 64 entries.
    let high = match mad.attr_mod() >> 16 {
        1 => false,
        3 => true,
        _ => return status::BAD_VALUE,
    };
    if set {
        let wanted = VlArbitration::read(mad.smp_data());
        if wanted
            .0
            .iter()
            .any(|e: &VlArbEntry| e.weight != 0 && e.vl == 15)
        {
            return status::BAD_VALUE;
        }
        if high {
            agent.arbitration_high = wanted.0;
        } else {
            agent.arbitration_low = wanted.0;
        }
        agent.apply_arbitration(link);
    }
    VlArbitration(if high {
        agent.arbitration_high
    } else {
        agent.arbitration_low
    })
    .write(mad.smp_data_mut());
    status::OK
}
