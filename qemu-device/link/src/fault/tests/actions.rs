// SPDX-License-Identifier: GPL-2.0-or-later
//! Which packets rules act on, and what they make of them.

use core::time::Duration;

use ochre_wire::{
    Aeth, Bth, Build, Ext, Grh, Lid, Opcode, Operation, PKey, Packet, Psn, Qpn, Sl, Vl,
};

use crate::fault::engine::{Engine, Fate, Room};
use crate::fault::packet::View;
use crate::fault::Direction;

const ROOM: Room = Room {
    copies: 1000,
    wait: true,
    overtakes: false,
};

fn engine(rules: &str) -> Engine {
    Engine::new(rules.parse().unwrap(), true)
}

fn build(op: Operation, qpn: u32, psn: u32, vl: u8) -> Build {
    Build {
        vl: Vl::new(vl),
        sl: Sl::new(0),
        slid: Lid(1),
        dlid: Lid(2),
        grh: None,
        bth: Bth::new(Opcode::rc(op), PKey::DEFAULT, Qpn::new(qpn), Psn::new(psn)),
        ext: Ext {
            aeth: Aeth::default(),
            ..Ext::default()
        },
    }
}

fn bytes(build: &Build, payload: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload).map(|i| (i * 7) as u8).collect();
    let mut out = vec![0; build.packet_len(payload.len())];
    build.write_packet(&payload, &mut out).unwrap();
    out
}

fn packet(op: Operation, qpn: u32, psn: u32) -> Vec<u8> {
    bytes(&build(op, qpn, psn, 0), 64)
}

use Operation::{Ack, SendLast, SendMiddle};

/// What becomes of a packet that is sent.
fn act(e: &mut Engine, packet: &mut [u8]) -> Fate {
    e.act(Direction::Tx, packet, ROOM)
}

/// Whether each of some packets is lost.
fn lost(rules: &str, packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<bool> {
    let mut e = engine(rules);
    packets
        .into_iter()
        .map(|mut p| {
            let looks = e.looks_at(Direction::Tx, &View::read(&p).unwrap());
            let fate = act(&mut e, &mut p);
            assert!(looks || fate == Fate::default());
            fate.lost
        })
        .collect()
}

fn numbered(n: u32) -> Vec<Vec<u8>> {
    (1..=n).map(|psn| packet(SendMiddle, 3, psn)).collect()
}

#[test]
fn conditions_choose() {
    let all = |op, qpn, psn| vec![packet(op, qpn, psn)];
    assert_eq!(lost("drop", all(Ack, 3, 4)), [true]);
    assert_eq!(lost("drop opcode=rc-ack", all(Ack, 3, 4)), [true]);
    assert_eq!(lost("drop opcode=rc-send-*", all(Ack, 3, 4)), [false]);
    assert_eq!(lost("drop qpn=3..5", all(Ack, 5, 4)), [true]);
    assert_eq!(lost("drop qpn=3..5", all(Ack, 6, 4)), [false]);
    assert_eq!(lost("drop psn=0xfffffe..2", all(Ack, 6, 1)), [true]);
    assert_eq!(lost("drop psn=0xfffffe..2", all(Ack, 6, 3)), [false]);
    assert_eq!(lost("drop dir=rx", all(Ack, 6, 3)), [false]);
    assert_eq!(lost("drop vl=1", all(Ack, 6, 3)), [false]);
    let lane = bytes(&build(Ack, 3, 4, 7), 0);
    assert_eq!(lost("drop vl=7 dir=tx", [lane]), [true]);
    let mut e = engine("drop dir=rx");
    assert!(e.act(Direction::Rx, &mut packet(Ack, 1, 1), ROOM).lost);
}

#[test]
fn a_grh_is_looked_behind() {
    let mut b = build(SendLast, 0x1234, 99, 0);
    b.grh = Some(Grh::new(Default::default(), Default::default(), 0, 0, 1));
    let p = bytes(&b, 10);
    assert_eq!(
        lost("drop qpn=0x1234 psn=99 opcode=rc-send-last", [p]),
        [true]
    );
}

#[test]
fn what_has_no_transport_meets_no_condition_on_it() {
    let mut raw = packet(Ack, 3, 4);
    raw[1] &= !3;
    for rule in [
        "drop qpn=3",
        "drop psn=4",
        "drop opcode=*",
        "reorder",
        "ecn",
        "psn-shift 1",
    ] {
        let before = raw.clone();
        assert_eq!(act(&mut engine(rule), &mut raw), Fate::default(), "{rule}");
        assert_eq!(raw, before);
    }
    assert_eq!(
        lost("drop vl=0", [raw.clone(), raw[..9].to_vec()]),
        [true, true]
    );
    assert!(!act(&mut engine("drop"), &mut raw[..7]).lost);
}

#[test]
fn counts_choose() {
    assert_eq!(
        lost("drop nth=3", numbered(5)),
        [false, false, true, false, false]
    );
    assert_eq!(
        lost("drop nth=2..3", numbered(4)),
        [false, true, true, false]
    );
    assert_eq!(
        lost("drop every=2", numbered(4)),
        [false, true, false, true]
    );
    assert_eq!(
        lost("drop shots=2", numbered(4)),
        [true, true, false, false]
    );
    assert_eq!(
        lost("drop every=2 shots=1", numbered(4)),
        [false, true, false, false]
    );
    // Only what meets the conditions counts.
    assert_eq!(
        lost(
            "drop psn=3.. nth=2".replace("3..", "3..9").as_str(),
            numbered(5)
        ),
        [false, false, false, true, false]
    );
}

#[test]
fn draws_are_of_the_seed_and_of_the_rule() {
    let run = |rules: &str| lost(rules, numbered(4000));
    let some = run("seed 7; drop prob=10%");
    let n = some.iter().filter(|l| **l).count();
    assert!((320..480).contains(&n), "{n} of 4000");
    assert_eq!(some, run("seed 7; drop prob=10%"));
    assert_ne!(some, run("seed 8; drop prob=10%"));
    // Another rule behind it draws for itself.
    let two = run("seed 7; drop prob=10%; ecn prob=0.5");
    assert_eq!(some, two);
    assert_eq!(run("drop prob=1").iter().filter(|l| **l).count(), 4000);
}

#[test]
fn the_report_counts_and_can_be_set_again() {
    let rules = "drop qpn=3 every=2 shots=1; ecn prob=1; corrupt byte=4000";
    let mut e = engine(rules);
    for mut p in numbered(3) {
        act(&mut e, &mut p);
    }
    let report = e.report();
    let counts: Vec<_> = report
        .rules
        .iter()
        .map(|r| (r.hits, r.shots, r.spent))
        .collect();
    // The second packet was lost before the others saw it; no packet has a byte 4000.
    assert_eq!(counts, [(2, 1, true), (2, 2, false), (2, 0, false)]);
    let text = report.to_string();
    assert!(
        text.contains("shots=1  # hits 2, shots 1, spent\n"),
        "{text}"
    );
    assert_eq!(text.parse(), rules.parse::<crate::RuleSet>());
}

#[test]
fn corrupt_leaves_the_crcs_wrong_or_makes_them_right() {
    let good = packet(SendLast, 3, 9);
    for (crc, vcrc_ok, icrc_ok) in [
        ("bad", false, false),
        ("bad-icrc", true, false),
        ("good", true, true),
    ] {
        let mut p = good.clone();
        let mut e = engine(&format!("corrupt crc={crc} byte=payload+5 xor=0x81"));
        assert!(!act(&mut e, &mut p).lost);
        let parsed = Packet::parse(&p).unwrap();
        assert_eq!(parsed.vcrc_ok(), vcrc_ok, "{crc}");
        assert_eq!(parsed.icrc_ok(), icrc_ok, "{crc}");
        assert_eq!(parsed.payload()[5], 35 ^ 0x81);
        let end = p.len() - 6;
        let changed = (0..end).filter(|i| p[*i] != good[*i]).count();
        assert_eq!(changed, 1, "{crc}");
    }
}

#[test]
fn what_is_spoiled_stays_so() {
    for (crc, vcrc_ok) in [("bad", false), ("bad-icrc", true)] {
        let mut p = packet(SendLast, 3, 9);
        let rules = format!("corrupt crc={crc}; ecn; psn-shift 1; corrupt crc=good");
        act(&mut engine(&rules), &mut p);
        let parsed = Packet::parse(&p).unwrap();
        assert_eq!(
            (parsed.vcrc_ok(), parsed.icrc_ok()),
            (vcrc_ok, false),
            "{crc}"
        );
    }
}

#[test]
fn corrupt_counts_from_each_header() {
    let good = packet(SendLast, 3, 9);
    for (place, at) in [
        ("5", 5),
        ("lrh+5", 5),
        ("bth+8", 16),
        ("payload+0", 20),
        ("payload+63", 83),
    ] {
        let mut p = good.clone();
        act(&mut engine(&format!("corrupt byte={place} xor=1")), &mut p);
        assert_eq!(p[at], good[at] ^ 1, "{place}");
    }
    // CRCs, and what is not there.
    for place in ["84", "85", "4000", "payload+64", "bth+76"] {
        let mut p = good.clone();
        let mut e = engine(&format!("corrupt byte={place}"));
        act(&mut e, &mut p);
        assert_eq!((&p, e.report().rules[0].shots), (&good, 0), "{place}");
    }
}

#[test]
fn corrupt_draws_a_bit_of_the_payload() {
    let mut e = engine("corrupt");
    let mut places = std::collections::BTreeSet::new();
    for mut p in numbered(200) {
        let good = p.clone();
        act(&mut e, &mut p);
        let at = (0..p.len()).find(|i| p[*i] != good[*i]).unwrap();
        assert_eq!((p[at] ^ good[at]).count_ones(), 1);
        assert!((20..84).contains(&at));
        places.insert(at);
    }
    assert!(places.len() > 40);
    // An ACK has its AETH.
    let mut p = bytes(&build(Ack, 3, 4, 0), 0);
    let good = p.clone();
    act(&mut e, &mut p);
    let at = (0..p.len()).find(|i| p[*i] != good[*i]).unwrap();
    assert!((20..24).contains(&at));
}

#[test]
fn psns_shift_over_the_end_and_the_crcs_are_right() {
    for (by, psn, want) in [("+1", 0xff_ffff, 0), ("-3", 1, 0xff_fffe), ("100", 5, 105)] {
        let mut p = packet(SendLast, 3, psn);
        act(&mut engine(&format!("psn-shift {by}")), &mut p);
        let parsed = Packet::parse(&p).unwrap();
        assert_eq!(parsed.bth().psn.get(), want);
        assert!(parsed.vcrc_ok() && parsed.icrc_ok());
    }
}

#[test]
fn marks_are_set_and_the_crcs_are_right() {
    for (rule, fecn, becn) in [
        ("ecn", true, false),
        ("ecn mark=becn", false, true),
        ("ecn mark=both", true, true),
    ] {
        let mut p = packet(SendLast, 3, 4);
        act(&mut engine(rule), &mut p);
        let parsed = Packet::parse(&p).unwrap();
        assert_eq!((parsed.bth().fecn, parsed.bth().becn), (fecn, becn));
        assert!(parsed.vcrc_ok() && parsed.icrc_ok());
    }
}

#[test]
fn a_link_without_crcs_gets_none() {
    let mut p = packet(SendLast, 3, 4);
    let end = p.len() - 6;
    p[end..].fill(0);
    let mut e = Engine::new("psn-shift 1; ecn; corrupt crc=good".parse().unwrap(), false);
    act(&mut e, &mut p);
    assert_eq!(p[end..], [0; 6]);
}

#[test]
fn times_add_up() {
    let us = Duration::from_micros;
    let mut p = packet(SendLast, 3, 4);
    let fate = act(
        &mut engine("delay 5us; delay 2us; duplicate after=3us; duplicate copies=2"),
        &mut p,
    );
    assert_eq!((fate.delay, fate.copies, fate.after), (us(7), 3, us(3)));
    let fate = act(
        &mut engine("reorder by=2 within=9us; hold-credits 4us"),
        &mut p,
    );
    assert_eq!((fate.behind, fate.within, fate.hold), (2, us(9), us(4)));

    let mut e = engine("delay 5us jitter=10us");
    let delays: Vec<_> = (0..1000).map(|_| act(&mut e, &mut p).delay).collect();
    assert!(delays.iter().all(|d| (us(5)..=us(15)).contains(d)));
    assert!(delays.iter().any(|d| *d > us(14)) && delays.iter().any(|d| *d < us(6)));
}

#[test]
fn what_there_is_no_room_for_is_not_done_and_not_counted() {
    let mut p = packet(SendLast, 3, 4);
    let room = Room {
        copies: 1,
        wait: false,
        overtakes: true,
    };
    let mut e = engine("duplicate; duplicate; delay 1us; reorder; hold-credits 1us");
    let fate = e.act(Direction::Tx, &mut p, room);
    assert_eq!(
        fate,
        Fate {
            copies: 1,
            hold: Duration::from_micros(1),
            ..Fate::default()
        }
    );
    let shots: Vec<_> = e.report().rules.iter().map(|r| r.shots).collect();
    assert_eq!(shots, [1, 0, 0, 0, 1]);
    // VL15 has no credits.
    let mut smp = bytes(&build(SendLast, 0, 0, 15), 256);
    assert!(act(&mut engine("hold-credits 1us"), &mut smp)
        .hold
        .is_zero());
}

#[test]
fn a_later_rule_sees_what_earlier_ones_did() {
    assert_eq!(
        lost(
            "psn-shift 5 psn=4; drop psn=9",
            [packet(SendLast, 3, 4), packet(SendLast, 3, 5)]
        ),
        [true, false]
    );
}
