// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use proptest::prelude::*;

/// Sends from both ends through faults for a while; returns numbers sent and received.
fn traffic(pair: &mut Pair, packets: u32) -> [(u32, Vec<u32>); 2] {
    let mut next = [0u32; 2];
    let mut idle = 0;
    pair.got = Default::default();
    while (next[0] < packets || next[1] < packets) && idle < 20_000 {
        let mut any = false;
        for (i, n) in next.iter_mut().enumerate() {
            pair.p[i].take_unstalled();
            while *n < packets {
                let mut payload = [0; 1024];
                payload[..4].copy_from_slice(&n.to_be_bytes());
                if pair
                    .send(i, Vl::new((*n % 3) as u8), LIDS[1 - i], &payload)
                    .is_err()
                {
                    break;
                }
                *n += 1;
                any = true;
            }
        }
        idle = if any { 0 } else { idle + 1 };
        pair.run(Duration::from_micros(200));
    }
    for i in 0..2 {
        pair.p[i].forget_stall(u16::MAX);
    }
    pair.run(Duration::from_millis(50));
    let numbers = |p: &[Vec<u8>]| p.iter().map(|b| number(b)).collect();
    [
        (next[0], numbers(&pair.got[1])),
        (next[1], numbers(&pair.got[0])),
    ]
}

fn lossy(f: Faults, seed: u64) -> MemConfig {
    MemConfig {
        faults: [f; 2],
        latency: Duration::from_micros(3),
        seed,
        ..MemConfig::default()
    }
}

#[test]
fn credits_survive_losses_of_every_kind() {
    for seed in 0..5 {
        let f = Faults {
            drop_ppm: 50_000,
            corrupt_ppm: 20_000,
            duplicate_ppm: 10_000,
            delay_ppm: 20_000,
            delay: Duration::from_micros(40),
            data_only: false,
            most_hits: 0,
        };
        let mut pair = Pair::active(fifteen_lanes(), lossy(f, seed));
        let out = traffic(&mut pair, 5000);
        for (i, (sent, got)) in out.iter().enumerate() {
            assert_eq!(*sent, 5000, "seed {seed} end {i}: stuck");
            let share = got.len() as f64 / 5000.0;
            assert!((0.9..0.97).contains(&share), "seed {seed}: {share}");
            assert!(got.iter().all(|n| n < sent), "a damaged packet got through");
        }
        assert_eq!(pair.states(), [PortState::Active; 2]);
        for i in 0..2 {
            let c = pair.counters(i);
            assert!(c.rcv_errors > 50, "{}", c.rcv_errors);
            assert_eq!(c.link_downed, 0);
        }
    }
}

#[test]
fn losses_replay_from_their_seed() {
    let f = Faults {
        drop_ppm: 30_000,
        corrupt_ppm: 30_000,
        ..Faults::default()
    };
    let run = || {
        let mut pair = Pair::active(fifteen_lanes(), lossy(f, 77));
        let out = traffic(&mut pair, 2000);
        (out, pair.counters(0), pair.counters(1), pair.now)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_clean_link_loses_and_repeats_nothing() {
    let mut pair = Pair::active(fifteen_lanes(), lossy(Faults::default(), 0));
    for (sent, mut got) in traffic(&mut pair, 5000) {
        got.sort_unstable();
        assert_eq!(got, (0..sent).collect::<Vec<_>>());
    }
    let (a, b) = (pair.counters(0), pair.counters(1));
    assert_eq!(a.xmit_pkts, b.rcv_pkts);
    assert_eq!(b.xmit_data, a.rcv_data);
    assert_eq!(a.rcv_errors + b.rcv_errors, 0);
}

#[test]
fn too_much_damage_makes_the_link_recover() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    let all = Faults {
        corrupt_ppm: 1_000_000,
        data_only: true,
        ..Faults::default()
    };
    pair.p[0].cable_mut().set_faults(all);
    for n in 0u32..9 {
        pair.send(0, Vl::VL0, LIDS[1], &n.to_be_bytes()).unwrap();
    }
    pair.run(Duration::from_secs(1));
    let c = pair.counters(1);
    assert_eq!(c.rcv_errors, 9);
    assert_eq!(c.local_link_integrity_errors, 1);
    assert_eq!(c.link_error_recovery, 1);
    assert_eq!(pair.counters(0).link_error_recovery, 1);
    assert_eq!(pair.states(), [PortState::Active; 2]);
    pair.p[0].cable_mut().set_faults(Faults::default());
    pair.send(0, Vl::VL0, LIDS[1], &[1; 4]).unwrap();
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.got[1].len(), 1);
    assert_eq!(pair.counters(1).link_downed, 0);
}

#[test]
fn a_silent_peer_is_noticed_by_the_watchdog() {
    let config = PortConfig {
        fc_watchdog: Some(Duration::from_secs(3)),
        ..fifteen_lanes()
    };
    let mut pair = Pair::active(config, MemConfig::default());
    pair.run(Duration::from_secs(30));
    assert_eq!(pair.counters(0).link_error_recovery, 0);
    let dead = Faults {
        drop_ppm: 1_000_000,
        ..Faults::default()
    };
    pair.p[1].cable_mut().set_faults(dead);
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.p[0].state(), PortState::Down);
    assert_eq!(pair.counters(0).link_downed, 1);
    pair.p[1].cable_mut().set_faults(Faults::default());
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.states(), [PortState::Initialize; 2]);
}

#[test]
fn marked_packets_count_apart_and_return_their_credits() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    for _ in 0..100 {
        pair.p[0].tx_begin(Vl::VL0, LIDS[1], 4094).unwrap().fill(0);
        pair.p[0].cable_mut().tx_mark_bad();
        pair.p[0].tx_commit(Seal::Port);
        pair.run(Duration::from_micros(1));
    }
    let c = pair.counters(1);
    assert_eq!(c.rcv_remote_physical_errors, 100);
    assert_eq!(c.rcv_pkts, 0);
}

/// A peer without rules: frames of any bytes.
fn rogue() -> (Port<MemCable>, MemCable) {
    let (a, b) = MemCable::pair(MemConfig::default());
    let mut port = Port::new(fifteen_lanes(), a);
    let mut rogue = b;
    let mut now = Time::ZERO;
    let send = |rogue: &mut MemCable, kind, bytes: &[u8]| {
        rogue
            .tx_reserve(kind, bytes.len())
            .unwrap()
            .copy_from_slice(bytes);
        rogue.tx_commit();
        rogue.flush();
    };
    rogue.poll(now);
    port.poll(now);
    // An honest training, echoing the port's number.
    let mut number = 0;
    while let Some((Frame::Training, _)) = rogue.rx_next() {
        number = Sequence::read(rogue.rx_bytes()).unwrap().number;
        rogue.rx_release();
    }
    let s = Sequence {
        kind: crate::training::Kind::Ts2,
        recovery: false,
        ready: true,
        widths: crate::rate::Widths::ALL,
        speeds: crate::rate::Speeds::ALL,
        number: 5,
        echo: number,
    };
    send(&mut rogue, Frame::Training, &s.to_bytes());
    now += Duration::from_micros(1);
    port.poll(now);
    port.set_lid(LIDS[0], 0);
    port.set_operational_vls(15);
    port.set_mtu(Mtu::Mtu4096);
    port.set_state(PortState::Armed).unwrap();
    port.set_state(PortState::Active).unwrap();
    (port, rogue)
}

#[test]
fn a_sender_beyond_its_credits_is_cut_off() {
    let (mut port, mut rogue) = rogue();
    port.set_rx_lanes(1 << 15);
    let packet = {
        let (mut a, _) = rogue_packet();
        a.truncate(4094);
        a
    };
    for _ in 0..40 {
        rogue
            .tx_reserve(Frame::Data, 4094)
            .unwrap()
            .copy_from_slice(&packet);
        rogue.tx_commit();
        rogue.flush();
        port.poll(Time::from_millis(1));
        assert_eq!(port.rx(), None);
    }
    assert_eq!(port.counters().rcv_errors, 8);
    port.set_rx_lanes(u16::MAX);
    let mut n = 0;
    while port.rx().is_some() {
        port.rx_done();
        n += 1;
    }
    assert_eq!(n, 32);
}

/// A good packet of 4094 bytes for the first port.
fn rogue_packet() -> (Vec<u8>, usize) {
    let mut p = vec![0; 4094];
    Lrh {
        vl: Vl::VL0,
        lver: 0,
        sl: Sl::new(0),
        lnh: Lnh::Local,
        dlid: LIDS[0],
        pkt_len: 1023,
        slid: LIDS[1],
    }
    .write(p.first_chunk_mut().unwrap());
    let (body, crc) = p.split_last_chunk_mut::<2>().unwrap();
    let mut v = ochre_wire::Vcrc::new();
    v.update(body);
    *crc = v.finish();
    let len = p.len();
    (p, len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No frames make a port panic or give out a packet that breaks the rules.
    #[test]
    fn any_frames(frames in proptest::collection::vec(
        (1u8..=4, proptest::collection::vec(any::<u8>(), 1..200), any::<bool>()), 0..200)) {
        let (mut port, mut rogue) = rogue();
        let mut now = Time::from_millis(1);
        for (kind, mut bytes, sealed) in frames {
            if sealed && bytes.len() >= 26 {
                bytes.truncate(bytes.len() / 4 * 4 - 2);
                let words = ((bytes.len() - 2) / 4) as u16;
                bytes[0] &= 0xf0;
                bytes[1] = 2;
                bytes[4..6].copy_from_slice(&words.to_be_bytes());
                if let Some((body, crc)) = bytes.split_last_chunk_mut::<2>() {
                    let mut v = ochre_wire::Vcrc::new();
                    v.update(body);
                    *crc = v.finish();
                }
            }
            let kind = Frame::from_code(kind).unwrap();
            if let Ok(slot) = rogue.tx_reserve(kind, bytes.len()) {
                slot.copy_from_slice(&bytes);
                rogue.tx_commit();
                rogue.flush();
            }
            now += Duration::from_micros(7);
            port.poll(now);
            while let Some(p) = port.rx() {
                let b = port.rx_bytes();
                prop_assert_eq!(b.len(), p.len);
                prop_assert!(ochre_wire::vcrc_ok(b));
                port.rx_done();
            }
            port.arm();
        }
    }
}
