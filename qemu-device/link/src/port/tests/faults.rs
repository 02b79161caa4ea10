// SPDX-License-Identifier: GPL-2.0-or-later
//! Rules for wire faults between two ports.

use std::io::Write;
use std::sync::{Arc, Mutex};

use ochre_wire::{Bth, Build, Ext, Opcode, Operation, PKey, Packet, Psn, Qpn};

use super::*;
use crate::capture::{Capture, Tap};
use crate::credit;

const QPN: u32 = 0x12;
const MS: Duration = Duration::from_millis(1);
/// Payload with which a packet takes 64 blocks.
const LONG: usize = 4096 - 28;

fn packet(i: usize, qpn: u32, psn: u32, payload: usize) -> Vec<u8> {
    let build = Build {
        vl: Vl::VL0,
        sl: Sl::new(0),
        slid: LIDS[i],
        dlid: LIDS[1 - i],
        grh: None,
        bth: Bth::new(
            Opcode::rc(Operation::SendMiddle),
            PKey::DEFAULT,
            Qpn::new(qpn),
            Psn::new(psn),
        ),
        ext: Ext::default(),
    };
    let mut out = vec![0; build.packet_len(payload)];
    build
        .write_packet(&vec![psn as u8; payload], &mut out)
        .unwrap();
    out
}

fn post(pair: &mut Pair, i: usize, packet: &[u8]) -> Result<(), TxStall> {
    let p = &mut pair.p[i];
    p.tx_begin(Vl::VL0, LIDS[1 - i], packet.len())?
        .copy_from_slice(packet);
    p.tx_commit(Seal::Done);
    Ok(())
}

/// Sends packets with these PSNs from end 0.
fn send(pair: &mut Pair, psns: impl IntoIterator<Item = u32>) {
    for psn in psns {
        post(pair, 0, &packet(0, QPN, psn, 40)).unwrap();
    }
}

/// The PSNs that end 1 has got so far, taken away.
fn got(pair: &mut Pair) -> Vec<u32> {
    core::mem::take(&mut pair.got[1])
        .iter()
        .map(|b| {
            let p = Packet::parse(b).unwrap();
            assert!(p.vcrc_ok());
            p.bth().psn.get()
        })
        .collect()
}

fn rules(pair: &mut Pair, end: usize, text: &str) {
    pair.p[end].set_faults(text.parse().unwrap_or_else(|e| panic!("{text}: {e}")));
}

fn shots(pair: &Pair, end: usize) -> Vec<u64> {
    pair.p[end].faults().rules.iter().map(|r| r.shots).collect()
}

fn active() -> Pair {
    Pair::active(fifteen_lanes(), MemConfig::default())
}

/// Runs a test with the rules where packets are sent, and where they are received.
fn both_ends(test: impl Fn(&mut Pair, usize, &str)) {
    test(&mut active(), 0, "dir=tx");
    test(&mut active(), 1, "dir=rx");
}

#[test]
fn dropped_and_repeated() {
    both_ends(|pair, end, dir| {
        rules(
            pair,
            end,
            &format!("drop {dir} psn=1; duplicate {dir} psn=3 copies=2"),
        );
        send(pair, 0..5);
        pair.run(MS);
        assert_eq!(got(pair), [0, 2, 3, 3, 3, 4]);
        assert_eq!(shots(pair, end), [1, 1]);
        // The other direction is free.
        let other = if dir == "dir=tx" {
            "drop dir=rx"
        } else {
            "drop dir=tx"
        };
        rules(pair, end, other);
        send(pair, 5..7);
        pair.run(MS);
        assert_eq!(got(pair), [5, 6]);
    });
}

#[test]
fn delayed_and_overtaken() {
    both_ends(|pair, end, dir| {
        rules(
            pair,
            end,
            &format!("delay 5ms {dir} psn=0; duplicate after=7ms {dir} psn=1"),
        );
        send(pair, 0..3);
        pair.run(4 * MS);
        assert_eq!(got(pair), [1, 2]);
        pair.run(2 * MS);
        assert_eq!(got(pair), [0]);
        pair.run(2 * MS);
        assert_eq!(got(pair), [1]);
    });
}

#[test]
fn one_delay_for_all_keeps_the_order() {
    both_ends(|pair, end, dir| {
        rules(pair, end, &format!("delay 3ms {dir}"));
        send(pair, 0..20);
        pair.run(2 * MS);
        assert_eq!(got(pair), []);
        send(pair, 20..25);
        pair.run(MS + MS / 2);
        assert_eq!(got(pair), (0..20).collect::<Vec<_>>());
        pair.run(3 * MS);
        assert_eq!(got(pair), (20..25).collect::<Vec<_>>());
    });
}

#[test]
fn reordered_within_their_flow() {
    both_ends(|pair, end, dir| {
        rules(pair, end, &format!("reorder {dir}"));
        // Another flow does not count.
        post(pair, 0, &packet(0, QPN, 0, 40)).unwrap();
        post(pair, 0, &packet(0, QPN + 1, 100, 40)).unwrap();
        send(pair, 1..4);
        pair.run(MS / 2);
        assert_eq!(got(pair), [1, 0, 3, 2]);
        // What nobody overtakes goes after a while.
        pair.run(MS);
        assert_eq!(got(pair), [100]);
        rules(pair, end, &format!("reorder by=2 {dir} psn=1"));
        send(pair, 0..5);
        pair.run(MS);
        assert_eq!(got(pair), [0, 2, 3, 1, 4]);
    });
}

#[test]
fn corrupted_packets_are_dropped_by_the_link_layer_and_counted() {
    both_ends(|pair, end, dir| {
        rules(
            pair,
            end,
            &format!("corrupt {dir} psn=1; corrupt crc=good byte=payload+2 xor=0x0f {dir} psn=2"),
        );
        send(pair, 0..4);
        pair.run(MS);
        let third = pair.got[1][1].clone();
        assert_eq!(got(pair), [0, 2, 3]);
        let p = Packet::parse(&third).unwrap();
        assert!(p.icrc_ok());
        assert_eq!(p.payload()[..4], [2, 2, 2 ^ 0x0f, 2]);
        assert_eq!(pair.counters(1).rcv_errors, 1);
    });
}

#[test]
fn shifted_and_marked() {
    both_ends(|pair, end, dir| {
        rules(
            pair,
            end,
            &format!("psn-shift -2 {dir} psn=1; ecn mark=becn {dir} psn=2"),
        );
        send(pair, 0..3);
        pair.run(MS);
        let marks: Vec<_> = pair.got[1]
            .iter()
            .map(|b| {
                let p = Packet::parse(b).unwrap();
                assert!(p.icrc_ok());
                (p.bth().fecn, p.bth().becn)
            })
            .collect();
        assert_eq!(marks, [(false, false), (false, false), (false, true)]);
        assert_eq!(got(pair), [0, 0xff_ffff, 2]);
    });
}

/// Sends as many long packets as there are credits for.
fn fill(pair: &mut Pair, psn: &mut u32) -> usize {
    let mut n = 0;
    while post(pair, 0, &packet(0, QPN, *psn, LONG)).is_ok() {
        *psn += 1;
        n += 1;
    }
    n
}

#[test]
fn held_credits_stop_the_sender_and_lose_nothing() {
    let mut pair = active();
    rules(&mut pair, 1, "hold-credits 20ms dir=rx nth=1");
    let mut psn = 0;
    assert_eq!(fill(&mut pair, &mut psn), 32);
    pair.run(10 * MS);
    assert_eq!(got(&mut pair).len(), 32);
    assert_eq!(fill(&mut pair, &mut psn), 0);
    pair.run(8 * MS);
    assert_eq!(fill(&mut pair, &mut psn), 0);
    let waited = pair.counters(0).xmit_wait;
    assert!(waited > 0);
    pair.run(3 * MS);
    assert_eq!(fill(&mut pair, &mut psn), 32);
    pair.run(MS);
    assert_eq!(got(&mut pair), (32..64).collect::<Vec<_>>());
}

/// Receiver and sender have counted the same blocks on lane 0, and no buffer is in use.
fn assert_balanced(pair: &Pair, what: &str) {
    let (tx, rx) = (&pair.p[0].flow.tx[0], &pair.p[1].flow.rx[0]);
    assert_eq!(rx.used(), 0, "{what}");
    let arrived = rx.fccl().wrapping_sub(credit::MAX_BLOCKS) & 0xfff;
    assert_eq!(arrived, tx.fctbs(), "{what}: blocks arrived and sent");
}

/// The accounts of both ends agree after each fault by itself: no flow control packet of the sender,
/// which would repair them, comes unless the test asks for it, and then in the middle of the fault.
#[test]
fn each_fault_leaves_the_credits_balanced() {
    both_ends(|pair, end, dir| {
        for fault in [
            "drop",
            "duplicate copies=2",
            "duplicate after=3ms",
            "delay 3ms",
            "reorder within=4ms",
            "corrupt",
            "psn-shift 9",
            "hold-credits 2ms",
        ] {
            for repair in [false, true] {
                rules(pair, end, &format!("{fault} {dir} nth=2..3"));
                let before = pair.counters(0).fc_sent;
                for psn in 0..4 {
                    post(pair, 0, &packet(0, QPN, psn, LONG)).unwrap();
                    if repair {
                        pair.p[0].flow.due |= 1;
                    }
                    pair.run(MS / 4);
                }
                pair.run(8 * MS);
                assert!(shots(pair, end)[0] >= 1, "{fault}");
                let what = format!("{fault} {dir} repair={repair}");
                assert_balanced(pair, &what);
                let told = pair.counters(0).fc_sent - before;
                assert_eq!(told > 0, repair, "{what}");
            }
        }
        // The damaged packets.
        assert_eq!(pair.counters(1).rcv_errors, 4);
    });
}

/// Neither end's account of credits is wrong after all kinds of faults, though nothing but the rules'
/// own care repairs it here: the next refresh is a second away.
#[test]
fn credits_stay_right() {
    both_ends(|pair, end, dir| {
        let text = format!(
            "seed 5; drop {dir} prob=10%; duplicate {dir} prob=5%; delay 50us jitter=1ms {dir} prob=10%;
             reorder {dir} prob=10%; corrupt {dir} prob=0.1%; duplicate after=3ms {dir} prob=3%"
        );
        rules(pair, end, &text);
        let mut psn = 0;
        let start = pair.now;
        let mut received = 0;
        for _ in 0..150 {
            fill(pair, &mut psn);
            pair.run(MS);
            received += core::mem::take(&mut pair.got[1]).len();
        }
        assert!(pair.now.since(start) < Duration::from_secs(1));
        assert!(psn > 2000, "only {psn} packets in 150 ms");
        let share = received as f64 / f64::from(psn);
        assert!((0.85..1.1).contains(&share), "{share}");
        assert!(
            shots(pair, end).iter().all(|n| *n > 0),
            "{}",
            pair.p[end].faults()
        );

        rules(pair, end, "");
        pair.run(5 * MS);
        pair.got[1].clear();
        // Whatever the receiver promises, it has room for: no packet finds a full buffer.
        let errors = pair.counters(1).rcv_errors;
        pair.p[1].set_rx_lanes(1 << 15);
        let n = fill(pair, &mut psn);
        pair.run(4 * MS);
        let more = fill(pair, &mut psn);
        pair.run(4 * MS);
        assert_eq!(n + more, 32, "{n} and {more} packets of 64 blocks");
        assert_eq!(pair.counters(1).rcv_errors, errors);
        pair.p[1].set_rx_lanes(u16::MAX);
        pair.run(MS);
        assert_eq!(got(pair).len(), 32);
    });
}

#[test]
fn faults_replay_from_their_seed() {
    let run = |seed: u32| {
        let mut pair = active();
        rules(
            &mut pair,
            0,
            &format!("seed {seed}; drop prob=20%; delay 1us jitter=9us prob=30%"),
        );
        for psn in 0..300 {
            send(&mut pair, [psn]);
            pair.run(Duration::from_micros(1));
        }
        pair.run(MS);
        got(&mut pair)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn other_rules_let_go_what_waits() {
    both_ends(|pair, end, dir| {
        rules(pair, end, &format!("delay 60s {dir}"));
        send(pair, 0..3);
        pair.run(MS);
        rules(pair, end, &format!("drop {dir} psn=4"));
        pair.run(MS);
        assert_eq!(got(pair), [0, 1, 2]);
        send(pair, 3..6);
        rules(pair, end, "");
        pair.run(MS);
        assert_eq!(got(pair).len(), if end == 0 { 2 } else { 3 });
        assert_eq!(pair.p[end].faults().to_string(), "");
        send(pair, 6..7);
        pair.run(MS);
        assert_eq!(got(pair), [6]);
    });
}

#[test]
fn what_waits_is_lost_with_the_link() {
    both_ends(|pair, end, dir| {
        rules(pair, end, &format!("delay 60s {dir} psn=0..2"));
        send(pair, 0..3);
        pair.run(MS);
        pair.p[0].cable_mut().plug(false);
        pair.run(MS);
        pair.p[0].cable_mut().plug(true);
        pair.run(Duration::from_secs(20));
        pair.activate();
        assert_eq!(got(pair), []);
        send(pair, 3..5);
        pair.run(Duration::from_secs(60));
        assert_eq!(got(pair), [3, 4]);
        assert_eq!(shots(pair, end), [3]);
        assert_balanced(pair, dir);
    });
}

#[test]
fn a_full_cable_keeps_what_is_due_in_its_order() {
    let mem = MemConfig {
        capacity: 16 << 10,
        ..MemConfig::default()
    };
    let mut pair = Pair::active(fifteen_lanes(), mem);
    rules(&mut pair, 0, "duplicate copies=5 psn=1");
    send(&mut pair, [0]);
    post(&mut pair, 0, &packet(0, QPN, 1, LONG)).unwrap();
    // There is space for a short packet, but it must not overtake the copies that find none.
    assert!(pair.p[0].cable_mut().tx_reserve(Frame::Data, 100).is_ok());
    assert_eq!(
        post(&mut pair, 0, &packet(0, QPN, 2, 40)),
        Err(TxStall::RingFull)
    );
    let mut psn = 2;
    while psn < 40 {
        pair.run(MS);
        while psn < 40 && post(&mut pair, 0, &packet(0, QPN, psn, 40)).is_ok() {
            psn += 1;
        }
    }
    pair.run(MS);
    let mut got = got(&mut pair);
    assert_eq!(got.iter().filter(|n| **n == 1).count(), 6);
    got.dedup();
    assert_eq!(got, (0..40).collect::<Vec<_>>());
}

/// A file in memory.
#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, b: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(b);
        Ok(b.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// PSNs and times of the packets in a capture.
fn captured(file: &File) -> Vec<(u32, u64)> {
    let b = file.0.lock().unwrap();
    let mut at = 24;
    let mut out = Vec::new();
    while at < b.len() {
        let word = |n: usize| u32::from_le_bytes(b[at + n..at + n + 4].try_into().unwrap());
        let len = word(8) as usize;
        let ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4));
        let record = &b[at + 16 + 16..at + 16 + len];
        let p = Packet::parse(record).unwrap();
        out.push((p.bth().psn.get(), ns));
        at += 16 + len;
    }
    out
}

/// The capture has what the rules leave, when it goes.
#[test]
fn the_capture_sees_what_is_behind_the_rules() {
    let mut pair = active();
    let files: [File; 2] = Default::default();
    for (port, file) in pair.p.iter_mut().zip(&files) {
        port.set_tap(Some(Tap {
            capture: Capture::new(file.clone()).unwrap(),
            port: 0,
            link_packets: false,
            epoch_ns: 0,
        }));
    }
    rules(
        &mut pair,
        0,
        "drop psn=1; duplicate psn=2; psn-shift 100 psn=3; delay 2ms psn=4",
    );
    rules(&mut pair, 1, "drop psn=5");
    let start = pair.now.as_nanos();
    send(&mut pair, 0..7);
    pair.run(5 * MS);
    pair.p.iter_mut().for_each(|p| p.set_tap(None));
    let sent = captured(&files[0]);
    let psns = |of: &[(u32, u64)]| of.iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(psns(&sent), [0, 2, 2, 103, 5, 6, 4]);
    assert!(sent[6].1 >= start + 2_000_000 && sent[5].1 < start + 1_000_000);
    assert_eq!(psns(&captured(&files[1])), [0, 2, 2, 103, 6, 4]);
}
