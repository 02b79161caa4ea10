// SPDX-License-Identifier: GPL-2.0-or-later

//! Packets between two devices in two real QEMUs, with no guest: every byte through guest memory, rings in
//! shared memory and the service threads.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]
mod common;

use std::time::{Duration, Instant};

use common::machine::Folder;
use common::pair::{connected, join, End, DATA};
use ochre_hw::cqe::{CqeOpcode, CqeStatus};
use ochre_hw::wqe::{AtomicSegment, SendOpcode};
use serde_json::json;

/// Bytes that differ everywhere.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[test]
fn messages_of_every_kind_arrive_whole() {
    let folder = Folder::new();
    let capture = folder.path("capture.pcap");
    let (mut a, mut b) = connected(
        &folder.path("link"),
        &format!(",capture={}", capture.display()),
        "",
    );
    for (turn, len) in [1, 4, 63, 256, 4095, 4096, 4097, 20_000, 300_000]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(len, turn as u64 + 99);
        // An odd address, so that nothing is aligned.
        let (from, to) = (DATA + 3, DATA + 0x10_0000 + 1);
        a.machine.write(from, &bytes);
        b.machine.zero(to - 1, len + 8);

        let remote = b.remote(to);
        a.post(SendOpcode::Write, &remote, from, len as u32, &[]);
        a.done();
        assert_eq!(b.machine.read(to, len), bytes, "WRITE of {len} bytes");
        assert_eq!(b.machine.load(to - 1, 1), 0);
        assert_eq!(b.machine.load(to + len as u64, 1), 0);

        a.machine.zero(from, len);
        a.post(SendOpcode::Read, &remote, from, len as u32, &[]);
        assert_eq!(a.done().opcode, CqeOpcode::Read.raw());
        assert_eq!(a.machine.read(from, len), bytes, "READ of {len} bytes");

        b.machine.zero(to, len);
        b.post_recv(to, len as u32);
        a.post(SendOpcode::Send, &remote, from, len as u32, &[]);
        a.done();
        let received = b.done();
        assert_eq!(received.opcode, CqeOpcode::Recv.raw());
        assert_eq!(received.byte_len as usize, len);
        assert_eq!(b.machine.read(to, len), bytes, "SEND of {len} bytes");
    }
    let sent: usize = 3 * 329_000;
    std::thread::sleep(Duration::from_millis(200));
    let size = || std::fs::metadata(&capture).unwrap().len() as usize;
    assert!(size() > sent, "a running capture has {} bytes", size());
    a.post(SendOpcode::Write, &b.remote(DATA), DATA, 300_000, &[]);
    a.done();
    a.machine.quit();
    assert!(size() > sent + 300_000, "the capture has {} bytes", size());
    b.machine.quit();
}

#[test]
fn atomics_give_the_value_before() {
    let folder = Folder::new();
    let (mut a, mut b) = connected(&folder.path("link"), "", "");
    let (result, word) = (DATA, DATA + 64);
    b.machine.store(word, 40, 8);
    let remote = b.remote(word);
    let add = AtomicSegment {
        swap_or_add: 2,
        ..AtomicSegment::default()
    };
    a.post(SendOpcode::FetchAdd, &remote, result, 8, &add.to_bytes());
    assert_eq!(a.done().opcode, CqeOpcode::FetchAdd.raw());
    assert_eq!(a.machine.load(result, 8), 40);
    assert_eq!(b.machine.load(word, 8), 42);
    for (compare, after) in [(41, 42), (42, 7)] {
        let swap = AtomicSegment {
            swap_or_add: 7,
            compare,
        };
        a.post(
            SendOpcode::CompareSwap,
            &remote,
            result,
            8,
            &swap.to_bytes(),
        );
        a.done();
        assert_eq!(a.machine.load(result, 8), 42);
        assert_eq!(b.machine.load(word, 8), after);
    }
    a.machine.quit();
    b.machine.quit();
}

#[test]
fn a_machine_that_stands_still_keeps_its_peer_waiting() {
    const LEN: u32 = 300_000;
    let folder = Folder::new();
    let (mut a, mut b) = connected(&folder.path("link"), "", "");
    let bytes = pattern(LEN as usize, 11);
    a.machine.write(DATA, &bytes);
    b.machine.zero(DATA, LEN as usize);
    b.machine.qmp("stop", json!({})).unwrap();
    let waits = a.counters().xmit_wait;
    a.post(SendOpcode::Write, &b.remote(DATA), DATA, LEN, &[]);
    std::thread::sleep(Duration::from_millis(50));
    assert!(a.counters().xmit_wait > waits, "the sender has no credits");
    assert!(a.poll().is_none());
    assert_eq!(
        b.machine.read(DATA, LEN as usize),
        vec![0; LEN as usize],
        "memory is left alone"
    );
    b.machine.qmp("cont", json!({})).unwrap();
    a.done();
    assert_eq!(b.machine.read(DATA, LEN as usize), bytes);
    a.machine.quit();
    b.machine.quit();
}

#[test]
fn both_directions_at_once() {
    const LEN: u32 = 100_000;
    const TURNS: u32 = 200;
    let folder = Folder::new();
    let (mut a, mut b) = connected(&folder.path("link"), "", "");
    let bytes_a = pattern(LEN as usize, 5);
    let bytes_b = pattern(LEN as usize, 6);
    a.machine.write(DATA, &bytes_a);
    b.machine.write(DATA, &bytes_b);
    let to = DATA + 0x10_0000;
    let (remote_a, remote_b) = (a.remote(to), b.remote(to));
    let (mut posted, mut done) = (0, [0, 0]);
    let start = Instant::now();
    while done != [TURNS, TURNS] {
        let under_way = posted - done[0].min(done[1]);
        if posted < TURNS && under_way < 32 {
            a.post(SendOpcode::Write, &remote_b, DATA, LEN, &[]);
            b.post(SendOpcode::Write, &remote_a, DATA, LEN, &[]);
            posted += 1;
        }
        for (end, done) in [&mut a, &mut b].into_iter().zip(&mut done) {
            while let Some(cqe) = end.poll() {
                assert_eq!(cqe.status, CqeStatus::Success.raw());
                *done += 1;
            }
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{done:?} of {TURNS}"
        );
    }
    assert_eq!(a.machine.read(to, LEN as usize), bytes_b);
    assert_eq!(b.machine.read(to, LEN as usize), bytes_a);
    a.machine.quit();
    b.machine.quit();
}

#[test]
fn a_slow_receiver_makes_the_sender_wait_and_loses_nothing() {
    const LEN: usize = 1 << 20;
    let folder = Folder::new();
    let (mut a, mut b) = connected(&folder.path("link"), "", ",drain0=8000000");
    let bytes = pattern(LEN, 77);
    a.machine.write(DATA, &bytes);
    let remote = b.remote(DATA);
    let start = Instant::now();
    a.post(SendOpcode::Write, &remote, DATA, LEN as u32, &[]);
    a.done();
    // 1 MiB, less the receive buffer, at 8 MB/s.
    assert!(
        start.elapsed() > Duration::from_millis(80),
        "not slowed down"
    );
    assert_eq!(b.machine.read(DATA, LEN), bytes);
    let (sender, receiver) = (a.counters(), b.counters());
    assert_ne!(sender.xmit_wait, 0, "PortXmitWait");
    assert_eq!(sender.xmit_discards, 0);
    assert_eq!(receiver.rcv_errors, 0);
    b.machine.qom_set("hca", "drain0", json!(0));
    a.post(SendOpcode::Write, &remote, DATA, LEN as u32, &[]);
    a.done();
    a.machine.quit();
    b.machine.quit();
}

#[test]
fn a_dead_peer_ends_in_an_error_and_another_one_serves() {
    let folder = Folder::new();
    let link = folder.path("link");
    let (mut a, b) = connected(&link, "", "");
    let remote = b.remote(DATA);
    for _ in 0..8 {
        a.post(SendOpcode::Write, &remote, DATA, 1 << 20, &[]);
    }
    b.machine.kill();
    let statuses: Vec<_> = (0..8)
        .map(|_| CqeStatus::from_raw(a.wait().status))
        .collect();
    let failed = statuses
        .iter()
        .position(|status| *status == Some(CqeStatus::RetryExceeded))
        .expect("no request failed");
    for status in &statuses[..failed] {
        assert_eq!(*status, Some(CqeStatus::Success));
    }
    for status in &statuses[failed + 1..] {
        assert_eq!(*status, Some(CqeStatus::WorkRequestFlushed));
    }

    let mut b = End::start(&link, 2, "");
    a.hca.flr(&mut a.machine);
    a.hca.enable(&mut a.machine);
    a.hca.make_events(&mut a.machine, 0);
    join(&mut a, &mut b);
    a.machine.write(DATA, b"again");
    let remote = b.remote(DATA);
    a.post(SendOpcode::Write, &remote, DATA, 5, &[]);
    a.done();
    assert_eq!(b.machine.read(DATA, 5), b"again");
    a.machine.quit();
    b.machine.quit();
}

#[test]
fn reset_in_the_middle_of_traffic() {
    let folder = Folder::new();
    let (mut a, mut b) = connected(&folder.path("link"), "", "");
    for turn in 0..20 {
        let (to_a, to_b) = (a.remote(DATA + 0x200_0000), b.remote(DATA + 0x200_0000));
        for _ in 0..4 {
            a.post(SendOpcode::Write, &to_b, DATA, 1 << 20, &[]);
            b.post(SendOpcode::Read, &to_a, DATA, 1 << 20, &[]);
        }
        std::thread::sleep(Duration::from_micros(turn * 100));
        for end in [&mut a, &mut b] {
            end.hca.flr(&mut end.machine);
            end.hca.enable(&mut end.machine);
            end.hca.make_events(&mut end.machine, 0);
        }
        join(&mut a, &mut b);
        let remote = b.remote(DATA);
        a.post(SendOpcode::Write, &remote, DATA, 4096, &[]);
        a.done();
    }
    a.machine.quit();
    b.machine.quit();
}
