// SPDX-License-Identifier: GPL-2.0-or-later
//! The performance management agent.

use ochre_wire::mad::pma::{
    class_cap, select, select_ext, ClassPortInfo, PortCounters, PortCountersExt,
};

use super::*;

fn perf(m: u8, attr_id: u16) -> Mad {
    Mad::new(class::PERF, m, attr_id, 0, 9)
}

fn counters(d: &mut Device, m: u8, request: PortCounters) -> PortCounters {
    let mut mad = perf(m, attr::PORT_COUNTERS);
    request.write(mad.pma_data_mut());
    let out = d.reply(&mad);
    assert_eq!(out.status(), 0);
    PortCounters::read(out.pma_data())
}

fn ext(d: &mut Device, m: u8, request: PortCountersExt) -> PortCountersExt {
    let mut mad = perf(m, attr::PORT_COUNTERS_EXT);
    request.write(mad.pma_data_mut());
    let out = d.reply(&mad);
    assert_eq!(out.status(), 0);
    PortCountersExt::read(out.pma_data())
}

fn of_port(port_select: u8) -> PortCounters {
    PortCounters {
        port_select,
        ..PortCounters::default()
    }
}

#[test]
fn class_port_info() {
    let mut d = Device::new();
    let out = d.reply(&perf(method::GET, attr::CLASS_PORT_INFO));
    let info = ClassPortInfo::read(out.pma_data());
    let want = class_cap::ALL_PORT_SELECT | class_cap::EXTENDED_WIDTH | class_cap::XMIT_WAIT;
    assert_eq!(info.capability_mask, want);
    assert_eq!((info.base_version, info.class_version), (1, 1));
    assert_eq!(info.redirect_qp, 0);
}

#[test]
fn errors_in_the_status() {
    let mut d = Device::new();
    assert_eq!(
        d.reply(&perf(method::SET, attr::CLASS_PORT_INFO)).status(),
        status::BAD_METHOD_ATTR
    );
    assert_eq!(
        d.reply(&perf(method::GET, 0x0010)).status(),
        status::BAD_METHOD_ATTR
    );
    assert_eq!(
        d.reply(&perf(method::SEND, attr::PORT_COUNTERS)).status(),
        status::BAD_METHOD
    );
    let mut mad = perf(method::GET, attr::PORT_COUNTERS);
    of_port(2).write(mad.pma_data_mut());
    assert_eq!(d.reply(&mad).status(), status::BAD_VALUE);
    let mut mad = perf(method::GET, attr::PORT_COUNTERS);
    mad.0[2] = 3;
    assert_eq!(d.reply(&mad).status(), status::BAD_VERSION);
}

#[test]
fn narrow_counters_stop_at_their_largest() {
    let mut d = Device::new();
    d.links[0].counters = Counters {
        xmit_data: u64::from(u32::MAX) + 5,
        rcv_pkts: 12,
        symbol_errors: 70_000,
        link_downed: 300,
        local_link_integrity_errors: 20,
        vl15_dropped: 3,
        xmit_wait: 99,
        ..Counters::default()
    };
    let c = counters(&mut d, method::GET, of_port(1));
    assert_eq!((c.xmit_data, c.rcv_pkts), (u32::MAX, 12));
    assert_eq!((c.symbol_error, c.link_downed), (u16::MAX, u8::MAX));
    assert_eq!(c.local_link_integrity_errors, 15);
    assert_eq!((c.vl15_dropped, c.xmit_wait), (3, 99));

    let e = ext(
        &mut d,
        method::GET,
        PortCountersExt {
            port_select: 1,
            ..Default::default()
        },
    );
    assert_eq!(e.xmit_data, u64::from(u32::MAX) + 5);
    assert_eq!((e.symbol_error, e.xmit_wait), (70_000, 99));
}

#[test]
fn set_writes_what_is_selected() {
    let mut d = Device::new();
    d.links[0].counters = Counters {
        xmit_data: 1000,
        rcv_data: 2000,
        xmit_discards: 7,
        xmit_wait: 50,
        ..Counters::default()
    };
    let c = counters(
        &mut d,
        method::SET,
        PortCounters {
            port_select: 1,
            counter_select: select::XMIT_DATA | select::XMIT_DISCARDS,
            counter_select2: select::XMIT_WAIT,
            xmit_data: 10,
            ..PortCounters::default()
        },
    );
    assert_eq!((c.xmit_data, c.rcv_data), (10, 2000));
    assert_eq!((c.xmit_discards, c.xmit_wait), (0, 0));
    d.links[0].counters.xmit_data += 5;
    d.links[0].counters.xmit_wait += 1;
    let c = counters(&mut d, method::GET, of_port(1));
    assert_eq!((c.xmit_data, c.xmit_wait), (15, 1));

    // The wide counters are others.
    let all = PortCountersExt {
        port_select: 1,
        ..Default::default()
    };
    assert_eq!(ext(&mut d, method::GET, all).xmit_data, 1005);
    let e = ext(
        &mut d,
        method::SET,
        PortCountersExt {
            counter_select: select_ext::RCV_DATA,
            counter_select2: 1 << 12,
            ..all
        },
    );
    assert_eq!((e.xmit_data, e.rcv_data, e.xmit_wait), (1005, 0, 0));
    assert_eq!(counters(&mut d, method::GET, of_port(1)).rcv_data, 2000);
}

#[test]
fn wide_counters_wrap() {
    let mut d = Device::new();
    let e = ext(
        &mut d,
        method::SET,
        PortCountersExt {
            port_select: 1,
            counter_select: select_ext::MULTICAST_RCV_PKTS,
            multicast_rcv_pkts: u64::MAX,
            ..Default::default()
        },
    );
    assert_eq!(e.multicast_rcv_pkts, u64::MAX);
    d.links[0].counters.multicast_rcv_pkts += 2;
    let e = ext(
        &mut d,
        method::GET,
        PortCountersExt {
            port_select: 1,
            ..Default::default()
        },
    );
    assert_eq!(e.multicast_rcv_pkts, 1);
}

#[test]
fn all_ports_add_up() {
    let mut d = Device::with(2, 1, NODE_GUID);
    d.links[0].counters.rcv_pkts = 3;
    d.links[1].counters.rcv_pkts = 4;
    assert_eq!(counters(&mut d, method::GET, of_port(255)).rcv_pkts, 7);
    assert_eq!(counters(&mut d, method::GET, of_port(2)).rcv_pkts, 4);
    counters(
        &mut d,
        method::SET,
        PortCounters {
            counter_select: 0xffff,
            ..of_port(255)
        },
    );
    assert_eq!(counters(&mut d, method::GET, of_port(255)).rcv_pkts, 0);
}

#[test]
fn counters_start_from_zero_after_a_reset() {
    let mut d = Device::new();
    d.links[0].counters.rcv_pkts = 9;
    d.mgmt = Mgmt::new(d.mgmt.node, &mut d.ports, &mut d.links);
    assert_eq!(counters(&mut d, method::GET, of_port(1)).rcv_pkts, 0);
    d.links[0].counters.rcv_pkts = 11;
    assert_eq!(counters(&mut d, method::GET, of_port(1)).rcv_pkts, 2);
}
