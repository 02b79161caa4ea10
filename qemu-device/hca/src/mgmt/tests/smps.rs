// SPDX-License-Identifier: GPL-2.0-or-later
//! Attributes, states, the M_Key and directed routes, one request at a time.

use ochre_wire::mad::sma::{
    cap, GuidInfo, NodeInfo, PKeyTable, SlToVl, VlArbitration, NODE_TYPE_CA,
};
use ochre_wire::Gid;
use proptest::prelude::*;

use super::*;

/// What is wrong, and how to make it so.
type Edit<T> = (&'static str, fn(&mut T));

#[test]
fn node_info_and_description() {
    let mut d = Device::with(2, 1, NODE_GUID);
    for port in [1, 2] {
        let out = d.handle_from(port, &request(method::GET, attr::NODE_INFO, 0), &wire());
        let Outcome::Reply(out) = out else {
            panic!("{out:?}")
        };
        assert_eq!((out.method(), out.status(), out.tid()), (0x81, 0, 77));
        assert_eq!(
            NodeInfo::read(out.smp_data()),
            NodeInfo {
                base_version: 1,
                class_version: 1,
                node_type: NODE_TYPE_CA,
                num_ports: 2,
                system_image_guid: Guid(NODE_GUID),
                node_guid: Guid(NODE_GUID),
                port_guid: Guid(NODE_GUID + u64::from(port)),
                partition_cap: 40,
                device_id: 0x789a,
                revision: 3,
                local_port_num: port,
                vendor_id: 0x12_3456,
            }
        );
    }
    let out = d.reply(&request(method::GET, attr::NODE_DESCRIPTION, 0));
    assert_eq!(&out.smp_data()[..6], b"ochre\0");
}

#[test]
fn errors_in_the_status() {
    let mut d = Device::new();
    let mut status_of = |mad: Mad| d.reply(&mad).status();
    let get = |a, m| request(method::GET, a, m);
    assert_eq!(status_of(get(attr::NODE_INFO, 1)), status::BAD_VALUE);
    assert_eq!(status_of(get(attr::PORT_INFO, 2)), status::BAD_VALUE);
    assert_eq!(status_of(get(attr::PKEY_TABLE, 2)), status::BAD_VALUE);
    assert_eq!(status_of(get(attr::GUID_INFO, 2)), status::BAD_VALUE);
    assert_eq!(status_of(get(attr::GUID_INFO, u32::MAX)), status::BAD_VALUE);
    assert_eq!(
        status_of(get(attr::SWITCH_INFO, 0)),
        status::BAD_METHOD_ATTR
    );
    assert_eq!(status_of(get(attr::LED_INFO, 0)), status::BAD_METHOD_ATTR);
    assert_eq!(
        status_of(request(method::SET, attr::NODE_INFO, 0)),
        status::BAD_METHOD_ATTR
    );
    assert_eq!(
        status_of(request(method::SEND, attr::NODE_INFO, 0)),
        status::BAD_METHOD
    );
    let mut mad = get(attr::NODE_INFO, 0);
    mad.0[0] = 2;
    assert_eq!(status_of(mad), status::BAD_VERSION);
    let mut mad = get(attr::NODE_INFO, 0);
    mad.0[2] = 2;
    assert_eq!(status_of(mad), status::BAD_VERSION);
}

#[test]
fn the_host_gets_what_is_not_the_firmwares() {
    let mut d = Device::new();
    for mad in [
        request(method::GET, attr::SM_INFO, 0),
        request(method::SET, attr::SM_INFO, 0),
        request(method::GET_RESP, attr::NODE_INFO, 0),
        request(method::TRAP, attr::NOTICE, 0),
        Mad::new(class::SUBN_ADM, method::GET, attr::CLASS_PORT_INFO, 0, 1),
        Mad::new(class::PERF, method::GET_RESP, attr::PORT_COUNTERS, 0, 1),
        Mad::new(0x07, method::SEND, 0x10, 0, 1),
    ] {
        assert_eq!(d.handle(&mad), Outcome::PassToHost, "{mad:?}");
        assert_eq!(d.handle_from(1, &mad, &HOST), Outcome::PassToHost);
    }
    assert_eq!(
        d.handle_from(2, &request(method::GET, attr::NODE_INFO, 0), &wire()),
        Outcome::Drop
    );
}

#[test]
fn port_info_at_power_on() {
    let d = Device::new();
    let pi = d.port_info();
    // The largest MTU and all lanes: a subnet manager then has no reason to take the link down.
    assert_eq!((pi.neighbor_mtu, pi.mtu_cap), (5, 5));
    assert_eq!((pi.operational_vls, pi.vl_cap), (1, 1));
    assert_eq!(d.links[0].mtu, Mtu::Mtu4096);
    assert_eq!(pi.gid_prefix, Gid::DEFAULT_PREFIX);
    assert_eq!((pi.lid, pi.master_sm_lid), (Lid(0), Lid(0)));
    assert_eq!((pi.link_width_supported, pi.link_width_active), (3, 2));
    assert_eq!((pi.link_speed_supported, pi.link_speed_active), (7, 4));
    assert_eq!(
        (pi.link_speed_ext_supported, pi.link_speed_ext_active),
        (3, 2)
    );
    assert_eq!(
        (pi.vl_arbitration_low_cap, pi.vl_arbitration_high_cap),
        (0, 0)
    );
    assert_eq!(pi.guid_cap, 10);
    let want = cap::TRAP | cap::CLIENT_REREGISTER | cap::EXTENDED_SPEEDS;
    assert_eq!(pi.capability_mask & want, want);
    assert_eq!(pi.capability_mask & (cap::SM | cap::SL_MAPPING), 0);
}

#[test]
fn set_port_info_tells_the_host() {
    let mut d = Device::new();
    let pi = d.set_port_info(|pi| {
        pi.lid = Lid(4);
        pi.lmc = 2;
        pi.master_sm_lid = Lid(9);
        pi.master_sm_sl = 3;
        pi.gid_prefix = 0x1234;
        pi.client_reregister = true;
        pi.subnet_timeout = 12;
        pi.local_phy_errors = 5;
    });
    assert!(pi.client_reregister, "the answer shows the bit");
    assert!(!d.port_info().client_reregister, "but it is not kept");
    assert_eq!(d.links[0].lid, (Lid(4), 2));
    assert_eq!(d.links[0].thresholds, (5, 8));
    assert_eq!((d.ports[0].sm_lid, d.ports[0].sm_sl), (Lid(9), Sl::new(3)));
    assert_eq!(d.port_info().subnet_timeout, 12);
    for event in [
        EventType::LidChange,
        EventType::GidChange,
        EventType::SmChange,
        EventType::ClientReregister,
    ] {
        assert_eq!(d.event(), Some(event));
    }
    assert_eq!(d.event(), None);
    // The same again changes nothing.
    d.set_port_info(|_| {});
    assert_eq!(d.event(), None);
}

#[test]
fn set_port_info_refuses_bad_values_as_a_whole() {
    let mut d = Device::new();
    let edits: [Edit<PortInfo>; 14] = [
        ("multicast LID", |pi| pi.lid = Lid(0xc000)),
        ("permissive SM LID", |pi| pi.master_sm_lid = Lid(0xffff)),
        ("width not supported", |pi| pi.link_width_enabled = 8),
        ("speed not supported", |pi| pi.link_speed_enabled = 8),
        ("extended speed not supported", |pi| {
            pi.link_speed_ext_enabled = 4;
        }),
        ("down default", |pi| pi.link_down_default_state = 3),
        ("MTU code", |pi| pi.neighbor_mtu = 6),
        ("no MTU", |pi| pi.neighbor_mtu = 0),
        ("more lanes than there are", |pi| pi.operational_vls = 2),
        ("Initialize", |pi| pi.port_state = 2),
        ("Active from Initialize", |pi| pi.port_state = 4),
        ("reserved state", |pi| pi.port_state = 7),
        ("reserved physical state", |pi| pi.port_physical_state = 5),
        ("Armed and Polling", |pi| {
            pi.port_state = 3;
            pi.port_physical_state = 2;
        }),
    ];
    for (what, edit) in edits {
        let before = d.port_info();
        let (code, pi) = d.try_set_port_info(|pi| {
            pi.subnet_timeout = 3;
            edit(pi);
        });
        assert_eq!(code, status::BAD_VALUE, "{what}");
        assert_eq!(pi, before, "{what}");
        assert_eq!(d.port_info(), before, "{what}");
    }
}

#[test]
fn enabled_widths_and_speeds() {
    let mut d = Device::new();
    d.set_port_info(|pi| {
        pi.link_width_enabled = 1;
        pi.link_speed_enabled = 3;
        pi.link_speed_ext_enabled = 30;
    });
    assert_eq!(d.links[0].widths, Widths::X1);
    assert_eq!(d.links[0].speeds, Speeds(3));
    d.set_port_info(|pi| {
        pi.link_width_enabled = 0;
        pi.link_speed_enabled = 0;
        pi.link_speed_ext_enabled = 0;
    });
    assert_eq!(
        (d.links[0].widths, d.links[0].speeds),
        (Widths::X1, Speeds(3))
    );
    d.set_port_info(|pi| {
        pi.link_width_enabled = 255;
        pi.link_speed_enabled = 15;
        pi.link_speed_ext_enabled = 31;
    });
    assert_eq!(d.links[0].widths, Widths(3));
    assert_eq!(d.links[0].speeds, Speeds::EDR.and_slower());
}

#[test]
fn the_link_goes_down_after_the_answer() {
    let mut d = Device::active();
    let pi = d.set_port_info(|pi| pi.port_state = 1);
    assert_eq!(pi.port_state, 4, "the answer leaves by the link as it is");
    assert_eq!(d.mgmt.next_deadline(&d.ports), Some(Time::ZERO));
    assert_eq!(d.poll(), None);
    assert_eq!(d.links[0].state, PortState::Down);
    assert_eq!(d.links[0].phys, PhysState::Polling);
    assert_eq!(d.event(), Some(EventType::PortError));
    assert!(!d.ports[0].active);

    let mut d = Device::active();
    d.set_port_info(|pi| pi.port_physical_state = 3);
    d.poll();
    assert_eq!(d.links[0].phys, PhysState::Disabled);
}

#[test]
fn partition_table() {
    let mut d = Device::new();
    let out = d.reply(&request(method::GET, attr::PKEY_TABLE, 0));
    let mut table = PKeyTable::read(out.smp_data());
    assert_eq!(table.0[0], PKey::DEFAULT);
    assert_eq!(table.0[1..], [PKey(0); 31]);

    table.0[1] = PKey(0x8001);
    table.0[2] = PKey(0x8000);
    let mut mad = request(method::SET, attr::PKEY_TABLE, 0);
    table.write(mad.smp_data_mut());
    let out = d.reply(&mad);
    table.0[2] = PKey(0);
    assert_eq!(PKeyTable::read(out.smp_data()), table);
    assert_eq!(d.ports[0].pkeys[1], PKey(0x8001));
    assert_eq!(d.event(), Some(EventType::PkeyChange));

    // The second block has 8 entries.
    let mut mad = request(method::SET, attr::PKEY_TABLE, 1);
    PKeyTable([PKey(0x8002); 32]).write(mad.smp_data_mut());
    let out = PKeyTable::read(d.reply(&mad).smp_data());
    assert_eq!(out.0[..8], [PKey(0x8002); 8]);
    assert_eq!(out.0[8..], [PKey(0); 24]);
    assert_eq!(d.ports[0].pkeys.len(), 40);
}

#[test]
fn guid_table_keeps_the_port_guid() {
    let mut d = Device::new();
    let mut mad = request(method::SET, attr::GUID_INFO, 0);
    GuidInfo([Guid(0x55); 8]).write(mad.smp_data_mut());
    let out = GuidInfo::read(d.reply(&mad).smp_data());
    assert_eq!(out.0[0], Guid(NODE_GUID + 1));
    assert_eq!(out.0[1..], [Guid(0x55); 7]);
    assert_eq!(d.event(), Some(EventType::GidChange));
    assert_eq!(d.ports[0].guids[7], Guid(0x55));
    assert_eq!(d.ports[0].guids[8], Guid(0));
}

#[test]
fn lanes_and_arbitration() {
    let mut d = Device::with(1, 4, NODE_GUID);
    assert_eq!(d.links[0].lanes, 4);
    let mut map = SlToVl([0; 16]);
    map.0[1] = 3;
    map.0[2] = 15;
    let mut mad = request(method::SET, attr::SL_TO_VL, 0);
    map.write(mad.smp_data_mut());
    assert_eq!(SlToVl::read(d.reply(&mad).smp_data()), map);
    assert_eq!(d.ports[0].sl_to_vl[1], Vl::new(3));
    assert_eq!(d.ports[0].sl_to_vl[2], Vl::VL15);
    assert_eq!(d.links[0].sl_to_vl[1], Vl::new(3));

    // With two lanes level 1 has none; the table still says what was set.
    d.set_port_info(|pi| pi.operational_vls = 2);
    assert_eq!(d.ports[0].sl_to_vl[1], Vl::VL15);
    assert_eq!(
        SlToVl::read(d.reply(&request(method::GET, attr::SL_TO_VL, 0)).smp_data()),
        map
    );

    let mut arb = VlArbitration::default();
    arb.0[0] = VlArbEntry { vl: 1, weight: 9 };
    for (block, high) in [(1, false), (3, true)] {
        let mut mad = request(method::SET, attr::VL_ARBITRATION, block << 16);
        arb.write(mad.smp_data_mut());
        assert_eq!(d.reply(&mad).status(), 0);
        let table = if high {
            &d.links[0].high
        } else {
            &d.links[0].low
        };
        assert_eq!(table[0], arb.0[0]);
    }
    for block in [0, 2, 4, 5] {
        let mad = request(method::GET, attr::VL_ARBITRATION, block << 16);
        assert_eq!(d.reply(&mad).status(), status::BAD_VALUE);
    }
    arb.0[5] = VlArbEntry { vl: 15, weight: 1 };
    let mut mad = request(method::SET, attr::VL_ARBITRATION, 1 << 16);
    arb.write(mad.smp_data_mut());
    assert_eq!(d.reply(&mad).status(), status::BAD_VALUE);
    d.set_port_info(|pi| pi.vl_high_limit = 7);
    assert_eq!(d.links[0].high_limit, 7);
}

#[test]
fn m_key_levels() {
    const KEY: u64 = 0x1122;
    for level in 0..4 {
        let mut d = Device::new();
        d.set_port_info(|pi| {
            pi.m_key = KEY;
            pi.m_key_protect_bits = level;
        });
        let get = request(method::GET, attr::PORT_INFO, 0);
        let mut with_key = get;
        with_key.set_m_key(KEY);
        assert_eq!(PortInfo::read(d.reply(&with_key).smp_data()).m_key, KEY);
        match level {
            0 => assert_eq!(PortInfo::read(d.reply(&get).smp_data()).m_key, KEY),
            1 => assert_eq!(PortInfo::read(d.reply(&get).smp_data()).m_key, 0),
            _ => assert_eq!(d.handle(&get), Outcome::Drop),
        }
        let set = request(method::SET, attr::PKEY_TABLE, 0);
        assert_eq!(d.handle(&set), Outcome::Drop);
        let violations = if level < 2 { 1 } else { 2 };
        assert_eq!(d.port_info().m_key_violations, violations);
        // The driver may ask for itself.
        let trusted = Source::Host {
            slid: Lid(0),
            ignore_m_key: true,
        };
        assert!(matches!(
            d.handle_from(1, &get, &trusted),
            Outcome::Reply(_)
        ));
    }
}

#[test]
fn m_key_lease() {
    let mut d = Device::new();
    d.set_port_info(|pi| {
        pi.m_key = 5;
        pi.m_key_protect_bits = 2;
        pi.m_key_lease_period = 10;
    });
    let get = request(method::GET, attr::NODE_INFO, 0);
    assert_eq!(d.handle(&get), Outcome::Drop);
    d.now += std::time::Duration::from_secs(9);
    assert_eq!(d.handle(&get), Outcome::Drop);
    // The holder of the key is alive: the lease starts anew with the next violation.
    let mut with_key = get;
    with_key.set_m_key(5);
    d.reply(&with_key);
    d.now += std::time::Duration::from_secs(9);
    assert_eq!(d.handle(&get), Outcome::Drop);
    d.now += std::time::Duration::from_secs(10);
    d.poll();
    assert_eq!(d.port_info().m_key_protect_bits, 0);
    d.reply(&get);
    // Sets still need the key.
    assert_eq!(
        d.handle(&request(method::SET, attr::PKEY_TABLE, 0)),
        Outcome::Drop
    );
}

#[test]
fn violation_counters_only_clear() {
    let mut d = Device::new();
    d.ports[0].pkey_violations = 3;
    d.ports[0].qkey_violations = 4;
    d.set_port_info(|pi| pi.p_key_violations = 9);
    assert_eq!(d.port_info().p_key_violations, 3);
    d.set_port_info(|pi| {
        pi.p_key_violations = 0;
        pi.q_key_violations = 0;
    });
    let pi = d.port_info();
    assert_eq!((pi.p_key_violations, pi.q_key_violations), (0, 0));
}

#[test]
fn other_port_by_modifier() {
    let mut d = Device::with(2, 1, NODE_GUID);
    let mad = request(method::GET, attr::PORT_INFO, 2);
    assert_eq!(PortInfo::read(d.reply(&mad).smp_data()).local_port_num, 2);
    // Bit 31 says that the subnet manager knows extended speeds.
    let mad = request(method::GET, attr::PORT_INFO, 1 << 31);
    assert_eq!(PortInfo::read(d.reply(&mad).smp_data()).local_port_num, 1);
}

#[test]
fn directed_route_from_the_wire() {
    let mut d = Device::with(2, 1, NODE_GUID);
    let mad = directed(method::GET, attr::NODE_INFO, 0, &[1]);
    let Outcome::Reply(out) = d.handle_from(2, &mad, &wire()) else {
        panic!("no reply")
    };
    assert_eq!(out.status(), status::DIRECTION);
    assert_eq!((out.hop_pointer(), out.hop_count()), (1, 1));
    assert_eq!(out.return_path()[1], 2);
    assert_eq!(out.initial_path(), mad.initial_path());

    // An error keeps the direction bit.
    let mad = directed(method::GET, attr::SWITCH_INFO, 0, &[1]);
    assert_eq!(
        d.reply(&mad).status(),
        status::DIRECTION | status::BAD_METHOD_ATTR
    );

    // What is for the host goes there as it came.
    let mad = directed(method::GET, attr::SM_INFO, 0, &[1]);
    assert_eq!(d.handle(&mad), Outcome::PassToHost);
    let mut back = directed(method::GET_RESP, attr::NODE_INFO, 0, &[1]);
    back.set_status(status::DIRECTION);
    assert_eq!(d.handle(&back), Outcome::PassToHost);
}

#[test]
fn routes_that_do_not_end_here_are_dropped() {
    let mut d = Device::new();
    let edits: [Edit<Mad>; 5] = [
        ("passes through", |m| m.set_hop_pointer(1)),
        ("never started", |m| m.set_hop_pointer(0)),
        ("beyond the end", |m| m.set_hop_pointer(4)),
        ("too many hops", |m| {
            m.set_hop_count(64);
            m.set_hop_pointer(64);
        }),
        ("goes on by LID", |m| {
            m.set_hop_pointer(2);
            m.set_dr_lids(Lid::PERMISSIVE, Lid(7));
        }),
    ];
    for (what, edit) in edits {
        let mut mad = directed(method::GET, attr::NODE_INFO, 0, &[1, 1]);
        edit(&mut mad);
        assert_eq!(d.handle(&mad), Outcome::Drop, "{what}");
    }
}

#[test]
fn directed_route_from_the_host() {
    let mut d = Device::new();
    // As the MAD layer gives it: hop pointer beyond the (empty) route, which it takes back itself.
    let mut mad = directed(method::GET, attr::NODE_INFO, 0, &[]);
    mad.set_hop_pointer(1);
    let Outcome::Reply(out) = d.handle_from(1, &mad, &HOST) else {
        panic!("no reply")
    };
    assert_eq!(out.status(), status::DIRECTION);
    assert_eq!((out.hop_pointer(), out.hop_count()), (1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Nothing in a MAD makes the agents panic, and requests for them get an answer of the same
    /// transaction.
    #[test]
    fn any_mad(bytes in proptest::collection::vec(any::<u8>(), 256),
               c in prop_oneof![Just(0x01_u8), Just(0x81), Just(0x04), any::<u8>()],
               m in prop_oneof![Just(1_u8), Just(2), any::<u8>()],
               a in prop_oneof![0x10_u16..0x20, any::<u16>()],
               host in any::<bool>(), lanes in prop_oneof![Just(1_u8), Just(8)]) {
        let mut mad = Mad(bytes.try_into().expect("256 bytes"));
        mad.0[0] = 1;
        mad.0[1] = c;
        mad.0[2] = 1;
        mad.0[3] = m;
        mad.0[16..18].copy_from_slice(&a.to_be_bytes());
        mad.set_attr_mod(mad.attr_mod() & 0x0003_0003);
        let mut d = Device::with(2, lanes, NODE_GUID);
        let source = if host { HOST } else { wire() };
        if let Outcome::Reply(out) = d.handle_from(1, &mad, &source) {
            prop_assert_eq!(out.tid(), mad.tid());
            prop_assert_eq!(out.method(), method::GET_RESP);
        }
        while d.poll().is_some() {}
        prop_assert!(d.ports.iter().all(|p| p.lmc < 8 && p.mtu <= Mtu::Mtu4096));
    }
}
