// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::port::{Port, PortConfig, Seal, TxStall};
use crate::state::PortState;
use ochre_wire::{Lid, Lnh, Lrh, Mtu, Sl, Vl};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

/// A folder that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static N: AtomicU32 = AtomicU32::new(0);
        let n = N.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ochre-link-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn config(&self) -> ShmConfig {
        ShmConfig {
            ring_bytes: RING_LEAST,
            ..ShmConfig::new(self.0.join("link"))
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Time since the process began to test.
fn now() -> Time {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(Instant::now);
    Time::from_nanos(start.elapsed().as_nanos() as u64)
}

fn step(cables: &mut [&mut ShmCable]) {
    for c in cables {
        c.on_control(now());
        c.poll(now());
    }
}

/// Steps the cables until `done`, at most 20 s.
fn until(cables: &mut [&mut ShmCable], mut done: impl FnMut(&mut [&mut ShmCable]) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done(cables) {
        assert!(Instant::now() < end, "did not happen");
        step(cables);
        thread::sleep(Duration::from_millis(1));
    }
}

fn up(cables: &mut [&mut ShmCable]) -> bool {
    cables.iter().all(|c| c.presence().up)
}

#[test]
fn two_ends_meet_in_any_order() {
    let dir = Dir::new();
    let mut a = ShmCable::new(dir.config()).unwrap();
    let mut b = ShmCable::new(dir.config()).unwrap();
    assert_eq!(a.next_deadline(), Some(Time::ZERO));
    step(&mut [&mut a]);
    assert!(a.listener.is_some());
    assert_eq!(a.next_deadline(), None, "a listener needs no timer");
    until(&mut [&mut a, &mut b], up);
    assert_eq!(a.presence().generation, 1);
    a.tx_reserve(Frame::Data, 5)
        .unwrap()
        .copy_from_slice(b"hello");
    a.tx_commit();
    a.flush();
    assert_eq!(b.rx_next(), Some((Frame::Data, 5)));
    assert_eq!(b.rx_bytes(), b"hello");
    b.rx_release();
    drop((a, b));
    let left: Vec<_> = fs::read_dir(&dir.0).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn racing_starts_make_one_listener() {
    for _ in 0..50 {
        let dir = Dir::new();
        let ends: Vec<_> = (0..2)
            .map(|_| {
                let config = dir.config();
                thread::spawn(move || {
                    let mut c = ShmCable::new(config).unwrap();
                    until(&mut [&mut c], up);
                    c
                })
            })
            .collect();
        let ends: Vec<ShmCable> = ends.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(ends.iter().filter(|c| c.listener.is_some()).count(), 1);
    }
}

#[test]
fn a_socket_left_by_a_dead_process_is_replaced() {
    let dir = Dir::new();
    let config = dir.config();
    drop(UnixListener::bind(&config.path).unwrap());
    assert!(config.path.exists());
    let mut a = ShmCable::new(config.clone()).unwrap();
    let mut b = ShmCable::new(config).unwrap();
    until(&mut [&mut a, &mut b], up);
}

#[test]
fn a_file_in_the_way_is_left_alone() {
    let dir = Dir::new();
    let config = dir.config();
    fs::write(&config.path, "precious").unwrap();
    let mut a = ShmCable::new(config.clone()).unwrap();
    step(&mut [&mut a]);
    let e = a.take_error().unwrap().to_string();
    assert!(e.contains("not a socket"), "{e}");
    assert_eq!(fs::read_to_string(&config.path).unwrap(), "precious");
}

#[test]
fn bad_configurations_say_what_would_be_right() {
    let dir = Dir::new();
    for (ring_bytes, path, text) in [
        (
            100_000,
            Path::new("/tmp/x"),
            "expected a power of two from 65536",
        ),
        (128 << 20, Path::new("/tmp/x"), "to 67108864"),
        (1 << 20, Path::new(""), "1 to 107 bytes"),
        (1 << 20, Path::new(&"x".repeat(200)), "1 to 107 bytes"),
    ] {
        let config = ShmConfig {
            ring_bytes,
            path: path.to_owned(),
            crc: true,
        };
        let e = ShmCable::new(config).err().unwrap().to_string();
        assert!(e.contains(text), "{e}");
    }
    let nowhere = ShmConfig::new(dir.0.join("no/such/folder"));
    let mut a = ShmCable::new(nowhere).unwrap();
    step(&mut [&mut a]);
    let e = a.take_error().unwrap().to_string();
    assert!(
        e.contains("cannot listen") && e.contains("No such file"),
        "{e}"
    );
    assert!(a.next_deadline().is_some(), "it tries again");
}

#[test]
fn both_ends_hear_of_a_mismatch() {
    let dir = Dir::new();
    let config = dir.config();
    let mut a = ShmCable::new(config.clone()).unwrap();
    let mut b = ShmCable::new(ShmConfig {
        ring_bytes: 2 * RING_LEAST,
        ..config.clone()
    })
    .unwrap();
    let mut heard = [None, None];
    until(&mut [&mut a, &mut b], |c| {
        for i in 0..2 {
            if let Some(e) = c[i].take_error() {
                heard[i].get_or_insert(e.to_string());
            }
        }
        heard.iter().all(Option::is_some)
    });
    let [a_heard, b_heard] = heard.map(Option::unwrap);
    assert!(a_heard.contains("65536 bytes here and 131072"), "{a_heard}");
    assert!(b_heard.contains("131072 bytes here and 65536"), "{b_heard}");
    assert!(!a.presence().up && !b.presence().up);
    // Put right, they meet.
    drop(b);
    let mut b = ShmCable::new(config).unwrap();
    until(&mut [&mut a, &mut b], up);
}

#[test]
fn a_third_end_is_told_that_the_place_is_taken() {
    let dir = Dir::new();
    let mut a = ShmCable::new(dir.config()).unwrap();
    let mut b = ShmCable::new(dir.config()).unwrap();
    until(&mut [&mut a, &mut b], up);
    let mut c = ShmCable::new(dir.config()).unwrap();
    let mut heard = None;
    until(&mut [&mut a, &mut b, &mut c], |c| {
        heard = heard.take().or(c[2].take_error());
        heard.is_some()
    });
    let heard = heard.unwrap().to_string();
    assert!(heard.contains("has a peer already"), "{heard}");
    assert!(up(&mut [&mut a, &mut b]));
    // When the peer leaves, the place is free.
    drop(b);
    until(&mut [&mut a, &mut c], up);
    assert_eq!(a.presence().generation, 2);
}

#[test]
fn strangers_on_the_socket_do_no_harm() {
    let dir = Dir::new();
    let mut a = ShmCable::new(dir.config()).unwrap();
    step(&mut [&mut a]);
    for message in [&b"GET / HTTP/1.1"[..], &hello::refusal("go away")] {
        let Connect::Peer(s) = socket::connect_to(&dir.config().path).unwrap() else {
            panic!("nobody listens");
        };
        socket::send(&s, message, &[]).unwrap();
        until(&mut [&mut a], |c| c[0].take_error().is_some());
    }
    // A good hello with the wrong descriptors.
    let (read, write) = std::os::unix::net::UnixStream::pair().unwrap();
    let hello = Hello::of(&dir.config()).to_bytes();
    for fds in [
        vec![],
        vec![write.as_fd()],
        vec![read.as_fd(), write.as_fd()],
    ] {
        let Connect::Peer(s) = socket::connect_to(&dir.config().path).unwrap() else {
            panic!("nobody listens");
        };
        socket::send(&s, &hello, &fds).unwrap();
        let mut why = None;
        until(&mut [&mut a], |c| {
            why = c[0].take_error();
            why.is_some()
        });
        let why = why.unwrap().to_string();
        assert!(why.contains("eventfd"), "{why}");
    }
    let mut b = ShmCable::new(dir.config()).unwrap();
    until(&mut [&mut a, &mut b], up);
}

#[test]
fn memory_that_could_shrink_is_refused() {
    let dir = Dir::new();
    let config = dir.config();
    // A listener that offers what it should not.
    let listener = Listener::new(&config.path).unwrap().unwrap();
    let good = ring::memory_bytes(config.ring_bytes);
    let unsealed = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&unsealed, good as u64).unwrap();
    let small = socket::new_memory(4096).unwrap();
    let plain = OwnedFd::from(fs::File::create(dir.0.join("plain")).unwrap());
    rustix::fs::ftruncate(&plain, good as u64).unwrap();
    for (memory, text) in [
        (unsealed, "not sealed"),
        (small, "has 4096 bytes"),
        (plain, "no"),
    ] {
        let mut a = ShmCable::new(config.clone()).unwrap();
        step(&mut [&mut a]);
        let s = listener.accept().unwrap().unwrap();
        let wake = socket::new_eventfd().unwrap();
        let hello = Hello::of(&config).to_bytes();
        socket::send(&s, &hello, &[wake.as_fd(), memory.as_fd()]).unwrap();
        let mut why = None;
        until(&mut [&mut a], |c| {
            why = c[0].take_error();
            why.is_some()
        });
        let why = why.unwrap().to_string();
        assert!(why.contains(text), "{why}");
        assert!(!a.presence().up);
    }
}

#[test]
fn a_peer_that_says_nothing_is_given_up() {
    let dir = Dir::new();
    let listener = Listener::new(&dir.config().path).unwrap().unwrap();
    let mut a = ShmCable::new(dir.config()).unwrap();
    a.poll(Time::ZERO);
    let _silent = listener.accept().unwrap().unwrap();
    let t = a.next_deadline().unwrap();
    assert_eq!(t, Time::ZERO + HELLO_LIMIT);
    a.poll(t);
    let e = a.take_error().unwrap().to_string();
    assert!(e.contains("does not answer"), "{e}");
    assert_eq!(a.next_deadline(), Some(t + RETRY_LATER));
}

#[test]
fn a_broken_ring_costs_only_its_own_link() {
    let dir = Dir::new();
    let mut a = ShmCable::new(dir.config()).unwrap();
    let mut b = ShmCable::new(dir.config()).unwrap();
    until(&mut [&mut a, &mut b], up);
    // Frames of a length that no honest end sends.
    let rings = a.rings().unwrap();
    rings.queue_nonsense();
    a.flush();
    assert_eq!(b.rx_next(), None);
    assert!(!b.arm(Wake::All));
    b.poll(now());
    assert!(!b.presence().up);
    let e = b.take_error().unwrap().to_string();
    assert!(e.contains("impossible record header"), "{e}");
    until(&mut [&mut a, &mut b], |c| {
        up(c) && c[0].presence().generation == 2
    });
}

// Ports on threads, as a device has them.

struct End {
    port: Port<ShmCable>,
    sent: u32,
    got: u32,
}

impl End {
    fn new(config: ShmConfig, seed: u64) -> Self {
        let ports = PortConfig {
            seed,
            ..PortConfig::default()
        };
        End {
            port: Port::new(ports, ShmCable::new(config).unwrap()),
            sent: 0,
            got: 0,
        }
    }

    fn activate(&mut self, lid: Lid) {
        self.port.set_lid(lid, 0);
        self.port.set_mtu(Mtu::Mtu4096);
        self.port.set_state(PortState::Armed).unwrap();
    }

    /// Sends a numbered packet of 4 KiB to `dlid`.
    fn send(&mut self, dlid: Lid) -> Result<(), TxStall> {
        let bytes = 4096 + 26;
        let slot = self.port.tx_begin(Vl::VL0, dlid, bytes)?;
        Lrh {
            vl: Vl::VL0,
            lver: 0,
            sl: Sl::new(0),
            lnh: Lnh::Local,
            dlid,
            pkt_len: 1030,
            slid: Lid(1),
        }
        .write(slot.first_chunk_mut().unwrap());
        slot[8..].fill(self.sent as u8);
        slot[20..24].copy_from_slice(&self.sent.to_be_bytes());
        self.port.tx_commit(Seal::Port);
        self.sent += 1;
        Ok(())
    }

    /// Sleeps until something happens or is due.
    fn sleep(&mut self) {
        if !self.port.arm() {
            return;
        }
        let ns = match self.port.next_deadline() {
            Some(t) => t.since(now()).as_nanos() as i64,
            None => 1_000_000_000,
        };
        let wait = Timespec {
            tv_sec: ns / 1_000_000_000,
            tv_nsec: ns % 1_000_000_000,
        };
        let cable = self.port.cable();
        let (data, control) = {
            let mut fds = [
                PollFd::from_borrowed_fd(cable.data_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(cable.control_fd(), PollFlags::IN),
            ];
            poll(&mut fds, Some(&wait)).unwrap();
            (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
        };
        if data {
            self.port.cable_mut().on_data();
        }
        if control {
            self.port.cable_mut().on_control(now());
        }
    }

    fn receive(&mut self) {
        while self.port.rx().is_some() {
            let b = self.port.rx_bytes();
            let n = u32::from_be_bytes([b[20], b[21], b[22], b[23]]);
            assert_eq!(n, self.got, "lost or out of order");
            assert!(b[24..4096].iter().all(|x| *x == n as u8));
            self.port.rx_done();
            self.got += 1;
        }
    }
}

#[test]
fn ports_on_two_threads_carry_everything_in_order() {
    const PACKETS: u32 = 20_000;
    let dir = Dir::new();
    let done = std::sync::Arc::new(AtomicU32::new(0));
    let armed = std::sync::Arc::new(AtomicU32::new(0));
    let run = |seed: u64, own: Lid, peer: Lid| {
        let config = dir.config();
        let (done, armed) = (done.clone(), armed.clone());
        thread::spawn(move || {
            let mut e = End::new(config, seed);
            let limit = Instant::now() + Duration::from_secs(120);
            let mut finished = false;
            while done.load(Ordering::SeqCst) < 2 {
                assert!(Instant::now() < limit, "sent {} got {}", e.sent, e.got);
                e.port.poll(now());
                while e.port.poll_event().is_some() {}
                if e.port.state() == PortState::Initialize {
                    e.activate(own);
                    armed.fetch_add(1, Ordering::SeqCst);
                }
                // No data before the peer takes them.
                if e.port.state() == PortState::Armed {
                    if armed.load(Ordering::SeqCst) < 2 {
                        continue;
                    }
                    e.port.set_state(PortState::Active).unwrap();
                }
                e.receive();
                e.port.take_unstalled();
                while e.sent < PACKETS && e.send(peer).is_ok() {}
                e.port.flush();
                if !finished && e.got == PACKETS && e.sent == PACKETS {
                    finished = true;
                    done.fetch_add(1, Ordering::SeqCst);
                }
                e.sleep();
            }
            let c = *e.port.counters();
            assert_eq!(c.rcv_errors + c.state_drops + c.dlid_drops, 0);
            c
        })
    };
    let a = run(1, Lid(1), Lid(2));
    let b = run(2, Lid(2), Lid(1));
    let (a, b) = (a.join().unwrap(), b.join().unwrap());
    assert_eq!(a.xmit_pkts, u64::from(PACKETS));
    assert_eq!(b.rcv_pkts, u64::from(PACKETS));
}

#[test]
fn a_dead_peer_is_link_down_and_its_successor_retrains() {
    let dir = Dir::new();
    let mut a = End::new(dir.config(), 1);
    let mut b = End::new(dir.config(), 2);
    let run = |ends: &mut [&mut End], done: &dyn Fn(&[&mut End]) -> bool| {
        let limit = Instant::now() + Duration::from_secs(20);
        while !done(ends) {
            assert!(Instant::now() < limit, "did not happen");
            for e in ends.iter_mut() {
                e.port.cable_mut().on_control(now());
                e.port.poll(now());
                e.port.flush();
            }
        }
    };
    let both = |e: &[&mut End]| e.iter().all(|e| e.port.state() == PortState::Initialize);
    run(&mut [&mut a, &mut b], &both);
    for _ in 0..3 {
        // The listener dies first, then the one that connected, and so on.
        drop(core::mem::replace(&mut a, b));
        run(&mut [&mut a], &|e| e[0].port.state() == PortState::Down);
        b = End::new(dir.config(), 3);
        run(&mut [&mut a, &mut b], &both);
    }
    assert!(a.port.counters().link_downed >= 1);
}
