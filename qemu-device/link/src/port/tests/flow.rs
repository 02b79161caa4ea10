// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::counters::XMIT_WAIT_TICK_NS;

/// Sends numbered packets of `len` bytes until the port refuses; returns how many went and why.
fn fill(pair: &mut Pair, vl: Vl, len: usize, from: u32) -> (u32, TxStall) {
    let mut n = 0;
    loop {
        let mut payload = vec![0; len];
        payload[..4].copy_from_slice(&(from + n).to_be_bytes());
        match pair.send(0, vl, LIDS[1], &payload) {
            Ok(()) => n += 1,
            Err(e) => return (n, e),
        }
    }
}

#[test]
fn a_lane_takes_2048_blocks_and_waits() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    // 64 blocks each.
    let (n, why) = fill(&mut pair, Vl::VL0, 4096 - 28, 0);
    assert_eq!((n, why), (32, TxStall::NoCredits(Vl::VL0)));
    assert!(!pair.p[0].can_send(Vl::VL0, 4094));
    // Another lane has its own.
    let (n, why) = fill(&mut pair, Vl::new(14), 4096 - 28, 0);
    assert_eq!((n, why), (32, TxStall::NoCredits(Vl::new(14))));
    assert_eq!(pair.p[0].take_unstalled(), 0);

    let start = pair.now;
    pair.now = start + Duration::from_millis(7);
    pair.round();
    pair.round();
    let c = pair.counters(0);
    assert_eq!(c.xmit_wait, 7_000_000 / XMIT_WAIT_TICK_NS);
    assert_eq!(pair.p[0].take_unstalled(), 1 | 1 << 14);
    assert_eq!(pair.got[1].len(), 64);
    let (n, _) = fill(&mut pair, Vl::VL0, 4096 - 28, 0);
    assert_eq!(n, 32);
}

#[test]
fn credits_return_in_quarters() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    let before = pair.counters(1).fc_sent;
    let mut sent = 0;
    for _ in 0..100 {
        sent += fill(&mut pair, Vl::VL0, 4096 - 28, 0).0;
        pair.run(Duration::from_micros(10));
    }
    assert!(sent >= 100 * 32 - 8, "{sent}");
    let fc = pair.counters(1).fc_sent - before;
    // One for each 32 KiB, and the answers to a starved sender.
    assert!(fc <= u64::from(sent) / 8 + 110, "{fc} for {sent}");
}

#[test]
fn a_forgotten_stall_no_longer_counts() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.p[1].set_rx_lanes(1 << 15);
    fill(&mut pair, Vl::VL0, 4068, 0);
    pair.now += Duration::from_millis(1);
    pair.p[0].poll(pair.now);
    pair.p[0].forget_stall(u16::MAX);
    pair.now += Duration::from_millis(5);
    pair.p[0].poll(pair.now);
    assert_eq!(pair.counters(0).xmit_wait, 1_000_000 / XMIT_WAIT_TICK_NS);
}

#[test]
fn a_slow_receiver_makes_the_sender_wait_and_loses_nothing() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.p[1].set_drain_rate(Some(10_000_000));
    let start = pair.now;
    let mut next = 0;
    let mut smps = 0;
    while next < 2000 {
        next += fill(&mut pair, Vl::VL0, 4068, next).0;
        // Management is not held up.
        pair.send(0, Vl::VL15, LIDS[1], &[0; 256]).unwrap();
        smps += 1;
        pair.run(Duration::from_micros(500));
        let got = pair.got[1].iter().filter(|p| p[0] >> 4 == 15).count();
        assert_eq!(got, smps);
        pair.p[0].take_unstalled();
    }
    pair.p[0].forget_stall(u16::MAX);
    pair.run(Duration::from_secs(2));
    let data: Vec<u32> = pair.got[1]
        .iter()
        .filter(|p| p[0] >> 4 == 0)
        .map(|p| number(p))
        .collect();
    assert_eq!(data, (0..next).collect::<Vec<_>>());
    let took = pair.now.since(start) - Duration::from_secs(2);
    let floor = f64::from(next - 64) * 4094.0 / 10e6;
    assert!(took.as_secs_f64() >= floor, "{took:?} for {next} packets");
    let c = pair.counters(0);
    // All but the first 128 KiB and the pauses of this test were waiting.
    assert!(c.xmit_wait > took.as_micros() as u64 / 2, "{}", c.xmit_wait);
    let r = pair.counters(1);
    assert_eq!(r.rcv_errors + r.vl15_dropped + r.state_drops, 0);
    assert_eq!(r.rcv_pkts, c.xmit_pkts);
}

#[test]
fn the_limit_can_be_lifted() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.p[1].set_drain_rate(Some(1));
    let n = fill(&mut pair, Vl::VL0, 4068, 0).0;
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.got[1].len(), 1);
    pair.p[1].set_drain_rate(None);
    let more = fill(&mut pair, Vl::VL0, 4068, n);
    // A refresh has given back the one packet that was taken.
    assert_eq!(more, (1, TxStall::NoCredits(Vl::VL0)));
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.got[1].len(), n as usize + 1);
    assert_eq!(pair.p[0].take_unstalled(), 1);
}

#[test]
fn closed_lanes_are_held_in_order_and_vl15_is_dropped_when_full() {
    let config = PortConfig {
        vl15_buffer: 3,
        ..fifteen_lanes()
    };
    let mut pair = Pair::active(config, MemConfig::default());
    pair.p[1].set_rx_lanes(1 << 2);
    for n in 0u32..5 {
        for vl in [0, 1, 2, 15] {
            pair.send(0, Vl::new(vl), LIDS[1], &n.to_be_bytes())
                .unwrap();
        }
    }
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[1].len(), 5);
    assert_eq!(pair.counters(1).vl15_dropped, 2);
    pair.p[1].set_rx_lanes(u16::MAX);
    for vl in [0, 1, 15] {
        pair.send(0, Vl::new(vl), LIDS[1], &99u32.to_be_bytes())
            .unwrap();
    }
    pair.run(Duration::from_millis(1));
    for (vl, want) in [
        (0, vec![0, 1, 2, 3, 4, 99]),
        (1, vec![0, 1, 2, 3, 4, 99]),
        (15, vec![0, 1, 2, 99]),
    ] {
        let got: Vec<u32> = pair.got[1]
            .iter()
            .filter(|p| p[0] >> 4 == vl)
            .map(|p| number(p))
            .collect();
        assert_eq!(got, want, "lane {vl}");
    }
    assert_eq!(pair.counters(1).rcv_errors, 0);
}

#[test]
fn all_lanes_full_of_small_packets_fit_the_receive_buffers() {
    let mut pair = Pair::active(
        fifteen_lanes(),
        MemConfig {
            capacity: 64 << 20,
            ..MemConfig::default()
        },
    );
    pair.p[1].set_rx_lanes(0);
    let mut sent = 0;
    for vl in 0..15 {
        // 66 bytes: two blocks each, the worst case for the ring.
        let (n, why) = fill(&mut pair, Vl::new(vl), 40, 0);
        assert_eq!((n, why), (1024, TxStall::NoCredits(Vl::new(vl))));
        sent += n as usize;
        pair.run(Duration::from_micros(1));
    }
    pair.p[1].set_rx_lanes(u16::MAX);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[1].len(), sent);
}

#[test]
fn a_full_cable_stalls_and_recovers() {
    let mut pair = Pair::active(
        fifteen_lanes(),
        MemConfig {
            capacity: 64 << 10,
            ..MemConfig::default()
        },
    );
    let (n, why) = fill(&mut pair, Vl::VL0, 4068, 0);
    assert_eq!(why, TxStall::RingFull);
    assert!(n < 32);
    pair.now += Duration::from_micros(30);
    pair.round();
    pair.round();
    assert_eq!(pair.p[0].take_unstalled(), 1);
    assert!(pair.counters(0).xmit_wait >= 30_000 / XMIT_WAIT_TICK_NS);
    assert!(fill(&mut pair, Vl::VL0, 4068, 0).0 > 0);
}

#[test]
fn own_lid_turns_around() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.p[0].set_lid(Lid(8), 2);
    let before = pair.counters(0);
    for (vl, dlid) in [(0, 8), (3, 11), (15, 9)] {
        pair.send(0, Vl::new(vl), Lid(dlid), &[7; 64]).unwrap();
    }
    // Not ours any more.
    pair.send(0, Vl::VL0, Lid(12), &[7; 64]).unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[0].len(), 3);
    assert!(pair.got[1].is_empty());
    assert_eq!(pair.counters(1).dlid_drops, 1);
    for p in &pair.got[0] {
        assert!(ochre_wire::vcrc_ok(p));
    }
    let c = pair.counters(0);
    assert_eq!(c.xmit_pkts - before.xmit_pkts, 4);
    assert_eq!(c.rcv_pkts - before.rcv_pkts, 3);
    assert_eq!(c.rcv_data - before.rcv_data, 3 * (8 + 12 + 64 + 4) / 4);
    assert_eq!(c.unicast_rcv_pkts - before.unicast_rcv_pkts, 3);
    assert_eq!(c.loopback_pkts, 3);
}

#[test]
fn loopback_has_an_end_too() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    let mut n = 0;
    let why = loop {
        match pair.send(0, Vl::VL0, LIDS[0], &[0; 4068]) {
            Ok(()) => n += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(why, TxStall::RingFull);
    assert_eq!(n, (256 << 10) / 4160);
    assert!(!pair.p[0].arm(), "there is something to receive");
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[0].len(), n);
    assert_eq!(pair.p[0].take_unstalled(), 1);
    // A copy of a multicast packet for the own port.
    let slot = pair.p[0].tx_begin_loopback(Vl::VL0, 26).unwrap();
    slot.fill(0);
    Lrh {
        vl: Vl::VL0,
        lver: 0,
        sl: Sl::new(0),
        lnh: Lnh::Local,
        dlid: Lid(0xc001),
        pkt_len: 6,
        slid: LIDS[0],
    }
    .write(slot.first_chunk_mut().unwrap());
    pair.p[0].tx_commit(Seal::Port);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[0].len(), n + 1);
    assert_eq!(pair.counters(0).multicast_rcv_pkts, 1);
}

#[test]
fn words_and_kinds_are_counted() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    let before = [pair.counters(0), pair.counters(1)];
    pair.send(0, Vl::VL0, LIDS[1], &[0; 100]).unwrap();
    pair.send(0, Vl::VL15, LIDS[1], &[0; 256]).unwrap();
    pair.send(0, Vl::VL0, Lid(0xc000), &[0; 4]).unwrap();
    pair.run(Duration::from_millis(1));
    let words = (100 + 256 + 4 + 3 * 24) / 4;
    let (a, b) = (pair.counters(0), pair.counters(1));
    assert_eq!(a.xmit_data - before[0].xmit_data, words);
    assert_eq!(b.rcv_data - before[1].rcv_data, words);
    assert_eq!(a.xmit_pkts - before[0].xmit_pkts, 3);
    assert_eq!(a.unicast_xmit_pkts - before[0].unicast_xmit_pkts, 2);
    assert_eq!(a.multicast_xmit_pkts, 1);
    assert_eq!(b.unicast_rcv_pkts - before[1].unicast_rcv_pkts, 2);
    assert_eq!(b.multicast_rcv_pkts, 1);
    assert_eq!(a.xmit_wait, 0);
}

#[test]
fn arbitration_follows_tables_and_credits() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    assert_eq!(pair.p[0].arbitrate(0x8003), Some(Vl::VL15));
    fill(&mut pair, Vl::VL0, 4068, 0);
    assert_eq!(pair.p[0].arbitrate(0b11), Some(Vl::new(1)));
    assert_eq!(pair.p[0].arbitrate(0b1), None);
}

#[test]
fn sending_while_a_packet_is_current() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.send(0, Vl::VL0, LIDS[1], &[9; 64]).unwrap();
    pair.p[0].flush();
    let p = &mut pair.p[1];
    p.poll(pair.now);
    assert_eq!(p.rx().unwrap().len, 90);
    send(p, Vl::VL0, LIDS[1], LIDS[0], &[8; 32]).unwrap();
    assert_eq!(p.rx_bytes()[20..84], [9; 64]);
    assert_eq!(p.rx().unwrap().len, 90);
    p.rx_done();
    assert_eq!(p.rx(), None);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[0].len(), 1);
}

#[test]
fn without_crcs_the_fields_are_zero_and_nothing_is_checked() {
    let config = PortConfig {
        crc: false,
        ..fifteen_lanes()
    };
    let mut pair = Pair::active(config, MemConfig::default());
    pair.send(0, Vl::VL0, LIDS[1], &[9; 64]).unwrap();
    pair.run(Duration::from_millis(1));
    let p = &pair.got[1][0];
    assert_eq!(p[p.len() - 2..], [0, 0]);
    assert_eq!(p.len(), 90);
}
