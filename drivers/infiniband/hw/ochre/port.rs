// SPDX-License-Identifier: GPL-2.0-or-later

//! Ports: attributes, tables and changes.

use crate::{
    cmd::{
        ModifyPort as ModifyPortCmd,
        QueryGid,
        QueryPkey,
        QueryPort,
        Wait, //
    },
    device::Data,
    hw::cmd::{
        device::QueryDeviceOut,
        port::{
            self as hw_port,
            PortIn,
            QueryPortOut,
            TableIn, //
        },
    },
    rdma::{
        LinkWidth,
        ModifyPort,
        Mtu,
        PhysState,
        PortAttr,
        PortImmutable,
        PortState, //
    }, //
};
use kernel::prelude::*;

/// A port's number as commands have it.
fn number(limits: &QueryDeviceOut, port: u32) -> Result<u8> {
    match u8::try_from(port) {
        Ok(number) if (1..=limits.ports).contains(&number) => Ok(number),
        _ => Err(EINVAL),
    }
}

/// Input of commands that name a port.
pub(crate) fn port_in(data: &Data<'_>, port: u32) -> Result<PortIn> {
    Ok(PortIn {
        port: number(&data.limits, port)?,
        ..PortIn::default()
    })
}

/// Input of commands that name an entry of a table with `len` entries.
fn table_in(limits: &QueryDeviceOut, port: u32, index: u32, len: u16) -> Result<TableIn> {
    let index = u16::try_from(index).map_err(|_| EINVAL)?;
    if index >= len {
        return Err(EINVAL);
    }
    Ok(TableIn {
        port: number(limits, port)?,
        index,
        ..TableIn::default()
    })
}

fn mtu(data: &Data<'_>, raw: u8) -> Result<Mtu> {
    Mtu::from_raw(raw.into()).inspect_err(|_| {
        dev_err!(data.pdev, "QUERY_PORT gave {raw} for an MTU\n");
    })
}

/// Attributes of a port.
pub(crate) fn query(data: &Data<'_>, port: u32) -> Result<PortAttr> {
    let out: QueryPortOut = data.command::<QueryPort>(port_in(data, port)?, Wait::Sleep)?;

    Ok(PortAttr {
        subnet_prefix: out.subnet_prefix,
        state: PortState::from_raw(out.state),
        max_mtu: mtu(data, out.max_mtu)?,
        active_mtu: mtu(data, out.active_mtu)?,
        gid_tbl_len: out.gids.into(),
        port_cap_flags: out.capability_mask,
        max_msg_sz: out.max_message,
        bad_pkey_cntr: out.pkey_violations.into(),
        qkey_viol_cntr: out.qkey_violations.into(),
        pkey_tbl_len: out.pkeys,
        sm_lid: out.sm_lid,
        lid: out.lid,
        lmc: out.lmc,
        max_vl_num: out.vl_cap,
        sm_sl: out.sm_sl,
        subnet_timeout: out.subnet_timeout,
        init_type_reply: out.init_type_reply,
        active_width: LinkWidth::from_raw(out.active_width),
        active_speed: out.active_speed,
        phys_state: PhysState::from_raw(out.phys_state),
        port_cap_flags2: 0,
    })
}

/// Sizes of a port's tables.
pub(crate) fn immutable(data: &Data<'_>, port: u32) -> Result<PortImmutable> {
    let out: QueryPortOut = data.command::<QueryPort>(port_in(data, port)?, Wait::Sleep)?;

    Ok(PortImmutable {
        pkey_tbl_len: out.pkeys,
        gid_tbl_len: out.gids.into(),
    })
}

/// An entry of a port's GID table, in wire order.
pub(crate) fn gid(data: &Data<'_>, port: u32, index: u32) -> Result<[u8; 16]> {
    let input = table_in(&data.limits, port, index, data.limits.gids)?;

    Ok(data.command::<QueryGid>(input, Wait::Sleep)?.gid)
}

/// An entry of a port's P_Key table.
pub(crate) fn pkey(data: &Data<'_>, port: u32, index: u16) -> Result<u16> {
    let input = table_in(&data.limits, port, index.into(), data.limits.pkeys)?;

    Ok(data.command::<QueryPkey>(input, Wait::Sleep)?.pkey)
}

/// Changes a port.
pub(crate) fn modify(data: &Data<'_>, port: u32, change: &ModifyPort) -> Result {
    if change.shutdown {
        return Err(EOPNOTSUPP);
    }
    let input = hw_port::ModifyPort {
        port: number(&data.limits, port)?,
        flags: if change.reset_qkey_counter {
            hw_port::RESET_QKEY_VIOLATIONS
        } else {
            0
        },
        set_capabilities: change.set_cap_mask,
        clear_capabilities: change.clear_cap_mask,
        ..hw_port::ModifyPort::default()
    };

    data.command::<ModifyPortCmd>(input, Wait::Sleep)
}

#[kunit_tests(ochre_port)]
mod tests {
    use super::*;

    fn limits() -> QueryDeviceOut {
        QueryDeviceOut {
            ports: 2,
            ..QueryDeviceOut::default()
        }
    }

    #[test]
    fn ports_count_from_one() {
        assert_eq!(number(&limits(), 1), Ok(1));
        assert_eq!(number(&limits(), 2), Ok(2));
        for port in [0, 3, 255, 256, 257, u32::MAX] {
            assert_eq!(number(&limits(), port), Err(EINVAL));
        }
    }

    #[test]
    fn entries_are_in_the_table() -> Result {
        let last = table_in(&limits(), 2, 15, 16)?;
        assert_eq!((last.port, last.index), (2, 15));
        for index in [16, 0xffff, 0x1_0000, 0x1_0001, u32::MAX] {
            assert_eq!(table_in(&limits(), 1, index, 16).err(), Some(EINVAL));
        }
        assert_eq!(table_in(&limits(), 3, 0, 16).err(), Some(EINVAL));
        Ok(())
    }
}
