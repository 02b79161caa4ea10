// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::rate::{Speeds, Widths};

#[test]
fn comes_up_to_initialize_and_says_so() {
    let config = PortConfig {
        widths: Widths::ALL,
        speeds: Speeds::ALL,
        ..PortConfig::default()
    };
    let mut pair = Pair::new(config, MemConfig::default());
    assert_eq!(pair.p[0].width_active(), Widths::X1);
    assert_eq!(pair.p[0].speed_active(), Speeds::SDR);
    pair.p[1].set_widths_enabled(Widths::X1.or(Widths::X8));
    pair.p[1].set_speeds_enabled(Speeds::HDR.and_slower());
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.states(), [PortState::Initialize; 2]);
    for i in 0..2 {
        assert_eq!(pair.p[i].width_active(), Widths::X8);
        assert_eq!(pair.p[i].speed_active(), Speeds::HDR);
        assert!(pair.events[i].contains(&PortEvent::State {
            from: PortState::Down,
            to: PortState::Initialize,
        }));
        let last = pair.events[i]
            .iter()
            .rfind(|e| matches!(e, PortEvent::Phys { .. }));
        assert!(matches!(
            last,
            Some(PortEvent::Phys {
                to: PhysState::LinkUp,
                ..
            })
        ));
    }
}

#[test]
fn management_only_until_active() {
    let mut pair = Pair::new(fifteen_lanes(), MemConfig::default());
    assert_eq!(
        pair.send(0, Vl::VL15, LIDS[1], &[0; 256]),
        Err(TxStall::NotActive(PortState::Down))
    );
    pair.run(Duration::from_millis(1));
    assert_eq!(
        pair.send(0, Vl::VL0, LIDS[1], &[0; 256]),
        Err(TxStall::NotActive(PortState::Initialize))
    );
    pair.send(0, Vl::VL15, Lid::PERMISSIVE, &[0; 256]).unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[1].len(), 1);

    // One side Active, the other still in Initialize: data are dropped there.
    pair.p[0].set_state(PortState::Armed).unwrap();
    assert_eq!(
        pair.send(0, Vl::VL0, LIDS[1], &[0; 256]),
        Err(TxStall::NotActive(PortState::Armed))
    );
    pair.p[0].set_state(PortState::Active).unwrap();
    pair.p[1].set_lid(LIDS[1], 0);
    pair.send(0, Vl::VL0, LIDS[1], &[0; 256]).unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[1].len(), 1);
    assert_eq!(pair.counters(1).state_drops, 1);

    // Armed: the first data packet passes and makes the port Active.
    pair.p[1].set_state(PortState::Armed).unwrap();
    pair.send(0, Vl::VL0, LIDS[1], &[0; 256]).unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[1].len(), 2);
    assert_eq!(pair.p[1].state(), PortState::Active);
    assert!(pair.events[1].contains(&PortEvent::State {
        from: PortState::Armed,
        to: PortState::Active,
    }));
}

#[test]
fn illegal_state_changes_are_refused() {
    let mut pair = Pair::new(fifteen_lanes(), MemConfig::default());
    let e = pair.p[0].set_state(PortState::Active).unwrap_err();
    assert_eq!((e.from, e.to), (PortState::Down, PortState::Active));
    pair.run(Duration::from_millis(1));
    assert!(pair.p[0].set_state(PortState::Active).is_err());
    assert!(pair.p[0].set_state(PortState::Initialize).is_err());
}

#[test]
fn set_down_bounces_the_link_and_keeps_the_lid() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.p[0].set_state(PortState::Down).unwrap();
    assert_eq!(pair.p[0].state(), PortState::Down);
    pair.run(Duration::from_secs(3));
    assert_eq!(pair.states(), [PortState::Initialize; 2]);
    assert_eq!(pair.p[0].lid(), LIDS[0]);
    assert_eq!(pair.counters(0).link_downed, 0);
    assert_eq!(pair.counters(1).link_downed, 1);
    pair.activate();
}

#[test]
fn disabled_until_told_to_poll() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.p[0].set_phys_state(PhysState::Disabled);
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.states(), [PortState::Down; 2]);
    assert_eq!(pair.p[0].phys_state(), PhysState::Disabled);
    pair.p[0].set_phys_state(PhysState::LinkUp);
    assert_eq!(pair.p[0].phys_state(), PhysState::Disabled);
    pair.p[0].set_phys_state(PhysState::Polling);
    pair.run(Duration::from_secs(3));
    assert_eq!(pair.states(), [PortState::Initialize; 2]);
}

#[test]
fn a_pulled_cable_is_down_and_a_new_generation_retrains() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.send(0, Vl::VL0, LIDS[1], &[1; 64]).unwrap();
    pair.p[0].flush();
    pair.p[0].cable_mut().plug(false);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.states(), [PortState::Down; 2]);
    assert!(pair.got[1].is_empty());
    // Out and in again between two polls.
    pair.p[0].cable_mut().plug(true);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.states(), [PortState::Initialize; 2]);
    pair.p[0].cable_mut().plug(false);
    pair.p[0].cable_mut().plug(true);
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.states(), [PortState::Initialize; 2]);
    assert_eq!(pair.counters(0).link_downed, 2);
    assert_eq!(pair.counters(1).link_downed, 2);
    pair.activate();
    pair.send(1, Vl::VL0, LIDS[0], &[1; 64]).unwrap();
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.got[0].len(), 1);
}

#[test]
fn the_current_packet_vanishes_with_the_link() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.send(0, Vl::VL0, LIDS[1], &[1; 64]).unwrap();
    pair.p[0].flush();
    pair.p[1].poll(pair.now);
    assert!(pair.p[1].rx().is_some());
    pair.p[0].cable_mut().plug(false);
    pair.p[1].poll(pair.now);
    assert!(pair.p[1].rx_bytes().is_empty());
    pair.p[1].rx_done();
    assert_eq!(pair.p[1].rx(), None);
}

#[test]
fn no_common_rate_is_an_event() {
    let mut pair = Pair::new(PortConfig::default(), MemConfig::default());
    pair.p[0].set_widths_enabled(Widths::X1);
    pair.p[1].set_widths_enabled(Widths::X4);
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.states(), [PortState::Down; 2]);
    let told = pair.events[0]
        .iter()
        .filter(|e| matches!(e, PortEvent::NoCommonRate { peer_widths, .. } if *peer_widths == Widths::X4))
        .count();
    assert_eq!(told, 1);
}

#[test]
fn an_idle_link_wakes_once_a_second() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.run(Duration::from_secs(2));
    pair.polls = 0;
    pair.run(Duration::from_secs(60));
    // Two polls for each of two ports' timers a second, and one quiet round after each.
    assert!(pair.polls <= 2 * 2 * 2 * 61, "{} polls", pair.polls);
}

#[test]
fn lanes_and_lengths_are_checked_before_anything_is_sent() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    pair.p[0].set_operational_vls(4);
    assert_eq!(pair.p[0].operational_vls(), 4);
    let vl = Vl::new(4);
    assert_eq!(
        pair.send(0, vl, LIDS[1], &[0; 64]),
        Err(TxStall::NoLane(vl))
    );
    let p = &mut pair.p[0];
    for bytes in [0, 25, 27, 28, 4096 + 126 + 4] {
        assert_eq!(
            p.tx_begin(Vl::VL0, LIDS[1], bytes),
            Err(TxStall::Length(bytes))
        );
    }
    assert!(p.tx_slot().is_empty());
    p.tx_commit(Seal::Port);
    assert!(p.tx_begin(Vl::VL0, LIDS[1], 4096 + 126).is_ok());
    assert_eq!(p.tx_slot().len(), 4096 + 126);
    p.tx_abort();
    assert!(p.tx_slot().is_empty());
    let before = pair.counters(0);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.counters(0).xmit_pkts, before.xmit_pkts);
    assert!(pair.got[1].is_empty());
}

#[test]
fn service_levels_map_to_operational_lanes() {
    let mut pair = Pair::active(fifteen_lanes(), MemConfig::default());
    let p = &mut pair.p[0];
    let mut table = [Vl::VL0; 16];
    table[3] = Vl::new(3);
    table[4] = Vl::VL15;
    p.set_sl2vl(table);
    assert_eq!(p.sl_to_vl(Sl::new(3)), Some(Vl::new(3)));
    assert_eq!(p.sl_to_vl(Sl::new(4)), None);
    p.set_operational_vls(2);
    assert_eq!(p.sl_to_vl(Sl::new(3)), None);
    assert_eq!(p.sl_to_vl(Sl::new(0)), Some(Vl::VL0));
}
