// SPDX-License-Identifier: GPL-2.0-or-later
//! Newtypes, sequence number arithmetic and the tables of AETH codes.

use ochre_wire::{
    ack_timeout_ns, code_from_credits, credits_from_code, rnr_timer_ns, Gid, Guid, Lid, Mtu,
    NakCode, PKey, Psn, Syndrome,
};
use proptest::prelude::*;

#[test]
fn lids() {
    assert!(!Lid::RESERVED.is_unicast() && !Lid::PERMISSIVE.is_unicast());
    assert!(Lid(0xbfff).is_unicast() && !Lid(0xc000).is_unicast());
    assert!(Lid(0xc000).is_multicast() && Lid(0xfffe).is_multicast());
    assert!(!Lid::PERMISSIVE.is_multicast());
    assert!(Lid(0x17).is_in(Lid(0x14), 2) && !Lid(0x18).is_in(Lid(0x14), 2));
    assert!(!Lid(1).is_in(Lid(0), 7));
}

#[test]
fn partition_keys_match_when_one_side_is_full() {
    let (full, limited) = (PKey(0x8001), PKey(0x0001));
    assert!(full.matches(full) && full.matches(limited) && limited.matches(full));
    assert!(!limited.matches(limited));
    assert!(!full.matches(PKey(0x8002)));
    assert!(!PKey(0x8000).matches(PKey(0x8000)));
}

#[test]
fn mtus() {
    for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        let mtu = Mtu::from_code(code).unwrap();
        assert_eq!((mtu.code(), mtu.bytes()), (code, bytes));
        assert_eq!(1 << mtu.shift(), bytes);
    }
    assert_eq!(Mtu::from_code(0), None);
    assert_eq!(Mtu::from_code(6), None);
    assert_eq!(Mtu::Mtu1024.packets(0), 1);
    assert_eq!(Mtu::Mtu1024.packets(1024), 1);
    assert_eq!(Mtu::Mtu1024.packets(1025), 2);
    assert_eq!(Mtu::Mtu256.packets(u32::MAX), 1 << 24);
}

#[test]
fn identifiers_print_as_the_tools_do() {
    let gid = Gid::new(Gid::DEFAULT_PREFIX, Guid(0x0002_c903_0001_0203));
    assert_eq!(gid.to_string(), "fe80:0000:0000:0000:0002:c903:0001:0203");
    assert_eq!(gid.guid().to_string(), "0002:c903:0001:0203");
    assert_eq!(gid.prefix(), Gid::DEFAULT_PREFIX);
}

#[test]
fn rnr_timers() {
    // The ends and some of the middle of the RNR NAK timer table, in microseconds.
    for (code, us) in [
        (0, 655_360),
        (1, 10),
        (5, 60),
        (12, 640),
        (14, 1_280),
        (20, 10_240),
        (31, 491_520),
    ] {
        assert_eq!(rnr_timer_ns(code), us * 1000, "code {code}");
    }
    for code in 2..=31 {
        assert!(rnr_timer_ns(code) > rnr_timer_ns(code - 1));
    }
}

#[test]
fn credits() {
    for (code, n) in [(0, 0), (4, 4), (5, 6), (10, 32), (30, 32768)] {
        assert_eq!(credits_from_code(code), Some(n));
        assert_eq!(code_from_credits(n), code);
    }
    assert_eq!(credits_from_code(31), None);
    assert_eq!(code_from_credits(7), 5);
    assert_eq!(code_from_credits(u32::MAX), 30);
}

#[test]
fn timeouts() {
    assert_eq!(ack_timeout_ns(0), None);
    assert_eq!(ack_timeout_ns(1), Some(8_192));
    assert_eq!(ack_timeout_ns(14), Some(67_108_864));
    assert_eq!(ack_timeout_ns(31), Some(4_096 << 31));
}

#[test]
fn syndromes_round_trip() {
    for v in 0..=255 {
        assert_eq!(Syndrome::from_u8(v).to_u8(), v);
    }
    assert_eq!(Syndrome::from_u8(0x1f), Syndrome::ACK_NO_CREDITS);
    assert_eq!(Syndrome::from_u8(0x20 | 12), Syndrome::RnrNak { timer: 12 });
    assert_eq!(
        Syndrome::from_u8(0x61),
        Syndrome::Nak(NakCode::InvalidRequest)
    );
    assert_eq!(Syndrome::from_u8(0x65), Syndrome::Reserved(0x65));
    assert_eq!(Syndrome::from_u8(0x40), Syndrome::Reserved(0x40));
}

proptest! {
    #[test]
    fn psn_arithmetic_is_modular(a in any::<u32>(), n in 0..0x80_0000_u32) {
        let psn = Psn::new(a);
        prop_assert_eq!(psn.add(n).sub(n), psn);
        prop_assert_eq!(psn.add(n).diff(psn), n as i32);
        prop_assert_eq!(psn.diff(psn.add(n)), -(n as i32));
        prop_assert_eq!(psn.add(n).since(psn), n);
        prop_assert_eq!(psn.next().prev(), psn);
        prop_assert_eq!(psn.is_before(psn.add(n)), n > 0);
        prop_assert_eq!(psn.add(n).is_after(psn), n > 0);
        prop_assert!(psn.add(n).get() < 1 << 24);
    }
}
