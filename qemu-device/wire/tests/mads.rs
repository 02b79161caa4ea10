// SPDX-License-Identifier: GPL-2.0-or-later
//! Management datagrams: layouts by hand, round trips of every attribute.

use ochre_wire::mad::notice::{
    notice_type, trap, BadKey, BadMKey, LinkDetails, LocalChange, Notice, NoticeHeader,
    SystemImageChange,
};
use ochre_wire::mad::pma::{ClassPortInfo, PortCounters, PortCountersExt};
use ochre_wire::mad::sma::{
    phys_state, port_state, GuidInfo, NodeDescription, NodeInfo, PKeyTable, PortInfo, SlToVl,
    VlArbitration,
};
use ochre_wire::mad::{attr, class, method, status, Mad};
use ochre_wire::{Guid, Lid, PKey};
use proptest::prelude::*;

#[test]
fn common_header_layout() {
    let mut m = Mad::new(
        class::SUBN_DIRECTED,
        method::GET,
        attr::NODE_INFO,
        0x0102_0304,
        0x1122_3344_5566_7788,
    );
    m.set_hop_pointer(1);
    m.set_hop_count(2);
    m.set_m_key(0xa1a2_a3a4_a5a6_a7a8);
    m.set_dr_lids(Lid(0xffff), Lid(0xfffe));
    m.initial_path_mut()[1] = 7;
    m.return_path_mut()[2] = 9;
    m.set_status(status::DIRECTION | status::BAD_METHOD);
    assert_eq!(
        m.0[..24],
        [
            1, 0x81, 1, 1, 0x80, 0x08, 1, 2, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x00,
            0x11, 0, 0, 1, 2, 3, 4
        ]
    );
    assert_eq!(
        m.0[24..36],
        [0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xff, 0xff, 0xff, 0xfe]
    );
    assert_eq!((m.0[129], m.0[194]), (7, 9));
    assert!(m.is_smp() && m.is_directed() && m.is_returning() && !m.is_response());
    assert_eq!(m.tid(), 0x1122_3344_5566_7788);
    assert_eq!((m.dr_slid(), m.dr_dlid()), (Lid(0xffff), Lid(0xfffe)));
}

#[test]
fn node_info_layout() {
    let mut d = [0; 64];
    NodeInfo {
        base_version: 1,
        class_version: 2,
        node_type: 3,
        num_ports: 4,
        system_image_guid: Guid(0x0506_0708_090a_0b0c),
        node_guid: Guid(0x0d0e_0f10_1112_1314),
        port_guid: Guid(0x1516_1718_191a_1b1c),
        partition_cap: 0x1d1e,
        device_id: 0x1f20,
        revision: 0x2122_2324,
        local_port_num: 0x25,
        vendor_id: 0x26_2728,
    }
    .write(&mut d);
    for (i, b) in d[..40].iter().enumerate() {
        assert_eq!(usize::from(*b), i + 1);
    }
    assert_eq!(d[40..], [0; 24]);
}

#[test]
fn port_info_layout() {
    let mut d = [0; 64];
    PortInfo {
        lid: Lid(0x1234),
        master_sm_lid: Lid(0x5678),
        capability_mask: 0x9abc_def0,
        local_port_num: 1,
        link_width_enabled: 3,
        link_width_supported: 0xb,
        link_width_active: 2,
        link_speed_supported: 7,
        port_state: port_state::ACTIVE,
        port_physical_state: phys_state::LINK_UP,
        link_down_default_state: phys_state::POLLING,
        m_key_protect_bits: 3,
        lmc: 5,
        link_speed_active: 4,
        link_speed_enabled: 7,
        neighbor_mtu: 5,
        master_sm_sl: 6,
        vl_cap: 4,
        init_type: 1,
        mtu_cap: 5,
        operational_vls: 2,
        client_reregister: true,
        subnet_timeout: 18,
        resp_time_value: 16,
        local_phy_errors: 8,
        overrun_errors: 9,
        link_round_trip_latency: 0xff_ffff,
        capability_mask2: 0xaabb,
        link_speed_ext_active: 2,
        link_speed_ext_supported: 7,
        link_speed_ext_enabled: 3,
        ..PortInfo::default()
    }
    .write(&mut d);
    assert_eq!(d[16..24], [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0]);
    assert_eq!(
        d[28..44],
        [1, 3, 0xb, 2, 0x74, 0x52, 0xc5, 0x47, 0x56, 0x41, 0, 0, 0, 0x05, 0, 0x20]
    );
    assert_eq!(
        d[50..],
        [0, 0x92, 16, 0x89, 0, 0, 0, 0xff, 0xff, 0xff, 0xaa, 0xbb, 0x27, 3]
    );
}

#[test]
fn tables_layout() {
    let mut d = [0; 64];
    let mut map = SlToVl::default();
    for (i, vl) in map.0.iter_mut().enumerate() {
        *vl = i as u8;
    }
    map.write(&mut d);
    assert_eq!(d[..9], [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0]);

    let mut keys = PKeyTable::default();
    keys.0[31] = PKey(0x8123);
    keys.write(&mut d);
    assert_eq!(d[62..], [0x81, 0x23]);

    let mut arb = VlArbitration::default();
    arb.0[1].vl = 14;
    arb.0[1].weight = 255;
    arb.write(&mut d);
    assert_eq!(d[..4], [0, 0, 14, 255]);

    let mut guids = GuidInfo::default();
    guids.0[7] = Guid(5);
    guids.write(&mut d);
    assert_eq!(d[63], 5);
}

#[test]
fn node_description_keeps_characters_whole() {
    assert_eq!(NodeDescription::new("ochre").text(), b"ochre");
    let long = "x".repeat(63) + "é";
    assert_eq!(
        NodeDescription::new(&long).text(),
        "x".repeat(63).as_bytes()
    );
    assert_eq!(NodeDescription([b'y'; 64]).text().len(), 64);
}

#[test]
fn notice_layout() {
    let mut details = [0; 54];
    LocalChange {
        lid: Lid(7),
        other_local_changes: true,
        capability_mask: 0x0102_0304,
        change_flags: 1,
        capability_mask2: 0,
    }
    .write(&mut details);
    let mut d = [0; 64];
    Notice::generic(notice_type::INFO, trap::LOCAL_CHANGE, Lid(7), details).write(&mut d);
    assert_eq!(
        d[..22],
        [0x84, 0, 0, 1, 0, 144, 0, 7, 0, 0, 0, 0, 0, 7, 0, 1, 1, 2, 3, 4, 0, 1]
    );
}

#[test]
fn port_counters_layout() {
    let mut d = [0; 192];
    PortCounters {
        port_select: 1,
        counter_select: 0xffff,
        symbol_error: 0x0405,
        xmit_discards: 0x0e0f,
        counter_select2: 1,
        local_link_integrity_errors: 2,
        buffer_overrun_errors: 3,
        vl15_dropped: 0x1617,
        xmit_data: 0x1819_1a1b,
        xmit_wait: 0x2829_2a2b,
        ..PortCounters::default()
    }
    .write(&mut d);
    assert_eq!(d[..8], [0, 1, 0xff, 0xff, 4, 5, 0, 0]);
    assert_eq!(
        d[14..28],
        [14, 15, 0, 0, 1, 0x23, 0, 0, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b]
    );
    assert_eq!(d[40..45], [0x28, 0x29, 0x2a, 0x2b, 0]);
}

fn array<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    proptest::collection::vec(any::<u8>(), N).prop_map(|v| v.try_into().expect("N bytes"))
}

/// Any bytes read; what is read, written and read again is the same.
macro_rules! round_trip {
    ($($test:ident: $ty:ty[$len:literal],)*) => {
        proptest! {
            $(#[test]
            fn $test(bytes in array::<$len>()) {
                let first = <$ty>::read(&bytes);
                let mut out = [0xff; $len];
                first.write(&mut out);
                prop_assert_eq!(<$ty>::read(&out), first);
                // Only reserved bits may differ, and they are zero.
                for (a, b) in bytes.iter().zip(out) {
                    prop_assert_eq!(a & b, b);
                }
            })*
        }
    };
}

round_trip! {
    node_info: NodeInfo[64],
    port_info: PortInfo[64],
    guid_info: GuidInfo[64],
    pkey_table: PKeyTable[64],
    sl_to_vl: SlToVl[64],
    vl_arbitration: VlArbitration[64],
    notice: Notice[64],
    notice_header: NoticeHeader[64],
    link_details: LinkDetails[54],
    local_change: LocalChange[54],
    system_image_change: SystemImageChange[54],
    bad_m_key: BadMKey[54],
    bad_key: BadKey[54],
    class_port_info: ClassPortInfo[192],
    port_counters: PortCounters[192],
    port_counters_ext: PortCountersExt[192],
}
