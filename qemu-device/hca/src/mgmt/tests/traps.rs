// SPDX-License-Identifier: GPL-2.0-or-later
//! Traps, from the event to the TrapRepress.

use std::time::Duration;

use ochre_wire::mad::notice::{change, trap, BadKey, BadMKey, LinkDetails, LocalChange, Notice};
use ochre_wire::mad::sma::cap;

use super::super::KeyViolation;
use super::*;

fn notice(out: &Outgoing) -> Notice {
    assert_eq!((out.mad.class(), out.mad.method()), (0x01, method::TRAP));
    assert_eq!(out.mad.attr_id(), attr::NOTICE);
    Notice::read(out.mad.smp_data())
}

#[test]
fn local_change_is_sent_until_repressed() {
    let mut d = Device::active();
    d.mgmt
        .set_description(d.now, &d.ports, NodeDescription::new("node a"));
    d.mgmt
        .modify_capabilities(d.now, &d.ports, 1, cap::SM, 0)
        .expect("the host may claim SM");
    let first = d.poll().expect("a trap is due");
    assert_eq!((first.build.dlid, first.build.slid), (Lid(9), Lid(4)));
    assert_eq!(first.build.vl, Vl::VL15);
    let n = notice(&first);
    assert_eq!(n.header.trap_number, trap::LOCAL_CHANGE);
    assert_eq!((n.header.notice_type, n.header.producer), (4, 1));
    assert_eq!(n.header.issuer_lid, Lid(4));
    let details = LocalChange::read(&n.details);
    assert_eq!(details.lid, Lid(4));
    assert_eq!(details.capability_mask, d.port_info().capability_mask);
    assert!(details.capability_mask & cap::SM != 0);
    assert!(details.other_local_changes);
    assert_eq!(details.change_flags, change::NODE_DESCRIPTION);

    // Nobody answers: again, later and later.
    assert_eq!(d.poll(), None);
    let mut last = d.now;
    let mut gaps = Vec::new();
    for _ in 0..8 {
        d.now = d.mgmt.next_deadline(&d.ports).expect("a repeat is due");
        if let Some(out) = d.poll() {
            assert_eq!(notice(&out), n);
            gaps.push(d.now.since(last));
            last = d.now;
        }
    }
    assert!(
        gaps.len() > 1 && gaps.windows(2).all(|w| w[0] <= w[1]),
        "{gaps:?}"
    );

    // The answer to an older transmission does not count, the one to the last does.
    let repress = |tid| {
        Mad::new(
            class::SUBN_LID_ROUTED,
            method::TRAP_REPRESS,
            attr::NOTICE,
            0,
            tid,
        )
    };
    assert_eq!(d.handle(&repress(first.mad.tid())), Outcome::Consumed);
    d.now += Duration::from_secs(100);
    let again = d.poll().expect("still there");
    assert_eq!(d.handle(&repress(again.mad.tid())), Outcome::Consumed);
    d.now += Duration::from_secs(100);
    assert_eq!(d.poll(), None);
}

#[test]
fn traps_keep_the_interval_of_the_subnet() {
    let mut d = Device::active();
    d.set_port_info(|pi| pi.subnet_timeout = 18);
    let interval = Duration::from_nanos(4096 << 18);
    let violation = KeyViolation {
        slid: Lid(7),
        dlid: Lid(4),
        key: 0x8123,
        sl: Sl::new(2),
        src_qp: Qpn::new(0x10),
        dest_qp: Qpn::new(0x20),
        gids: None,
    };
    for _ in 0..1000 {
        d.mgmt.bad_pkey(d.now, &mut d.ports, 1, &violation);
        d.mgmt.bad_qkey(d.now, &mut d.ports, 1, &violation);
    }
    assert_eq!(d.port_info().p_key_violations, 1000);
    assert_eq!(d.port_info().q_key_violations, 1000);
    let a = notice(&d.poll().expect("one at once"));
    assert_eq!(d.poll(), None);
    d.now += interval;
    let b = notice(&d.poll().expect("the other after the interval"));
    let mut numbers = [a.header.trap_number, b.header.trap_number];
    numbers.sort_unstable();
    assert_eq!(numbers, [trap::BAD_P_KEY, trap::BAD_Q_KEY]);
    assert_eq!(a.header.notice_type, 2);
    assert_eq!(
        BadKey::read(&a.details),
        BadKey {
            lid1: Lid(7),
            lid2: Lid(4),
            key: 0x8123,
            sl: 2,
            qp1: 0x10,
            qp2: 0x20,
            ..BadKey::default()
        }
    );
}

#[test]
fn bad_m_key() {
    let mut d = Device::active();
    d.set_port_info(|pi| {
        pi.m_key = 5;
        pi.m_key_protect_bits = 2;
    });
    let mut mad = directed(method::GET, attr::PKEY_TABLE, 1, &[1]);
    mad.set_m_key(6);
    assert_eq!(d.handle(&mad), Outcome::Drop);
    let out = d.poll().expect("trap 256");
    assert_eq!(out.mad.m_key(), 5);
    let n = notice(&out);
    assert_eq!(n.header.trap_number, trap::BAD_M_KEY);
    assert_eq!(
        BadMKey::read(&n.details),
        BadMKey {
            lid: Lid(4),
            dr_slid: Lid::PERMISSIVE,
            method: method::GET,
            attr_id: attr::PKEY_TABLE,
            attr_mod: 1,
            m_key: 6,
            directed: true,
            truncated: false,
            hop_count: 1,
        }
    );
    // A TrapRepress needs the key too.
    let mut repress = Mad::new(
        class::SUBN_LID_ROUTED,
        method::TRAP_REPRESS,
        attr::NOTICE,
        0,
        out.mad.tid(),
    );
    assert_eq!(d.handle(&repress), Outcome::Drop);
    repress.set_m_key(5);
    assert_eq!(d.handle(&repress), Outcome::Consumed);
}

#[test]
fn link_error_thresholds() {
    let mut d = Device::active();
    assert_eq!(d.poll(), None);
    d.links[0].counters.local_link_integrity_errors = 1;
    assert_eq!(d.poll(), None, "looked at once a second");
    d.now += Duration::from_secs(1);
    let n = notice(&d.poll().expect("trap 129"));
    assert_eq!(n.header.trap_number, trap::LOCAL_LINK_INTEGRITY);
    assert_eq!((n.header.notice_type, n.header.is_generic), (1, true));
    assert_eq!(
        LinkDetails::read(&n.details),
        LinkDetails {
            lid: Lid(4),
            port: 1
        }
    );
}

#[test]
fn nobody_to_tell() {
    let mut d = Device::new();
    d.mgmt
        .set_description(d.now, &d.ports, NodeDescription::new("quiet"));
    assert_eq!(d.poll(), None);
    assert_eq!(d.mgmt.next_deadline(&d.ports), None);

    // A link that goes down forgets what was to be told.
    let mut d = Device::active();
    d.mgmt
        .set_description(d.now, &d.ports, NodeDescription::new("gone"));
    d.links[0].enter(PortState::Down);
    d.pump();
    assert_eq!(d.event(), Some(EventType::PortError));
    assert_eq!(d.poll(), None);
    // The same description again is no change.
    let mut d = Device::active();
    d.mgmt
        .set_description(d.now, &d.ports, NodeDescription::new("ochre"));
    assert_eq!(d.poll(), None);
}

#[test]
fn capabilities_of_the_hardware_stay() {
    let mut d = Device::active();
    let e = d
        .mgmt
        .modify_capabilities(d.now, &d.ports, 1, cap::SM, cap::TRAP)
        .expect_err("TRAP is the firmware's");
    assert_eq!(e.0, cap::TRAP);
    assert_eq!(d.port_info().capability_mask & cap::SM, 0);
}
