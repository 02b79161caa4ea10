// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast two ports in two threads move packets over a cable in shared memory.
//!
//!     cargo run --release -p ochre-link --example throughput -- [SECONDS [PAYLOAD [RING_KIB [off]]]]
//!
//! The sender copies each payload from a buffer of 8 MiB into the ring and seals it with both CRCs;
//! the receiver checks both and copies it out into another such buffer, as adapters do. `off` turns
//! the CRCs off.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ochre_link::{Port, PortConfig, PortState, Seal, ShmCable, ShmConfig, Time, Widths};
use ochre_wire::{pad_len, trailer_len, write_trailer, Bth, Lid, Lnh, Lrh, Mtu, Sl, Vl};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::time::{clock_gettime, ClockId};

/// LRH and BTH.
const HEADERS: usize = 8 + 12;
const MEMORY: usize = 8 << 20;

struct Args {
    seconds: u64,
    payload: usize,
    ring: usize,
    crc: bool,
}

fn args() -> Result<Args, String> {
    let mut words = std::env::args().skip(1);
    let mut number = |name: &str, default: u64| match words.next() {
        None => Ok(default),
        Some(w) => w.parse().map_err(|_| format!("{name}: {w} is no number")),
    };
    let seconds = number("seconds", 3)?;
    let payload = number("payload", 4096)? as usize;
    let ring = (number("ring", 4096)? as usize) << 10;
    let crc = std::env::args().nth(4).as_deref() != Some("off");
    if payload == 0 || payload > 4096 || pad_len(payload) != 0 {
        return Err(format!(
            "payload {payload}: expected 4 to 4096, a multiple of 4"
        ));
    }
    Ok(Args {
        seconds,
        payload,
        ring,
        crc,
    })
}

struct End {
    port: Port<ShmCable>,
    start: Instant,
    sleeps: u64,
}

impl End {
    fn now(&self) -> Time {
        Time::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn sleep(&mut self) {
        if !self.port.arm() {
            return;
        }
        self.sleeps += 1;
        let ns = self.port.next_deadline().map_or(100_000_000, |t| {
            t.since(self.now()).as_nanos().min(100_000_000) as i64
        });
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: ns,
        };
        let cable = self.port.cable();
        let (data, control) = {
            let mut fds = [
                PollFd::from_borrowed_fd(cable.data_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(cable.control_fd(), PollFlags::IN),
            ];
            if poll(&mut fds, Some(&wait)).is_err() {
                return;
            }
            (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
        };
        let now = self.now();
        if data {
            self.port.cable_mut().on_data();
        }
        if control {
            self.port.cable_mut().on_control(now);
        }
    }

    /// Polls, and brings the port up by itself.
    fn poll(&mut self, lid: Lid, armed: &AtomicU32) {
        let now = self.now();
        self.port.poll(now);
        while self.port.poll_event().is_some() {}
        if self.port.state() == PortState::Initialize {
            self.port.set_lid(lid, 0);
            self.port.set_mtu(Mtu::Mtu4096);
            if self.port.set_state(PortState::Armed).is_ok() {
                armed.fetch_add(1, Ordering::SeqCst);
            }
        }
        if self.port.state() == PortState::Armed && armed.load(Ordering::SeqCst) == 2 {
            // Cannot fail: the port is Armed.
            let _ = self.port.set_state(PortState::Active);
        }
    }
}

fn send(e: &mut End, a: &Args, memory: &[u8], at: &mut usize) -> bool {
    let bytes = HEADERS + a.payload + trailer_len(a.payload);
    let Ok(slot) = e.port.tx_begin(Vl::VL0, Lid(2), bytes) else {
        return false;
    };
    let (head, rest) = slot.split_at_mut(HEADERS);
    head.fill(0);
    if let Some(b) = head.first_chunk_mut() {
        Lrh {
            vl: Vl::VL0,
            lver: 0,
            sl: Sl::new(0),
            lnh: Lnh::Local,
            dlid: Lid(2),
            pkt_len: ((bytes - 2) / 4) as u16,
            slid: Lid(1),
        }
        .write(b);
    }
    let source = &memory[*at..*at + a.payload];
    let (to, trailer) = rest.split_at_mut(a.payload);
    to.copy_from_slice(source);
    trailer.fill(0);
    if a.crc {
        let sealed = write_trailer(slot, HEADERS, a.payload);
        assert_eq!(sealed, Ok(bytes));
    }
    e.port.tx_commit(Seal::Done);
    *at = (*at + a.payload) % (MEMORY - a.payload);
    true
}

fn receive(e: &mut End, a: &Args, memory: &mut [u8], at: &mut usize) -> u64 {
    let mut n = 0;
    while let Some(packet) = e.port.rx() {
        assert!(packet.icrc_ok);
        let payload = &e.port.rx_bytes()[HEADERS..][..a.payload];
        memory[*at..*at + a.payload].copy_from_slice(payload);
        e.port.rx_done();
        *at = (*at + a.payload) % (MEMORY - a.payload);
        n += 1;
    }
    n
}

/// Processor time of this thread in seconds.
fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let a = Arc::new(args()?);
    assert_eq!(HEADERS, Lrh::LEN + Bth::LEN);
    let path = std::env::temp_dir().join(format!("ochre-throughput-{}", std::process::id()));
    let start = Instant::now();
    let armed = Arc::new(AtomicU32::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let end = |seed| -> Result<End, ochre_link::ShmError> {
        let cable = ShmCable::new(ShmConfig {
            ring_bytes: a.ring,
            crc: a.crc,
            ..ShmConfig::new(&path)
        })?;
        let config = PortConfig {
            crc: a.crc,
            seed,
            widths: Widths::ALL,
            ..PortConfig::default()
        };
        Ok(End {
            port: Port::new(config, cable),
            start,
            sleeps: 0,
        })
    };
    let (mut tx, mut rx) = (end(1)?, end(2)?);

    let receiver = {
        let (a, armed, stop) = (a.clone(), armed.clone(), stop.clone());
        thread::spawn(move || {
            let mut memory = vec![0; MEMORY];
            let (mut at, mut packets) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                rx.poll(Lid(2), &armed);
                packets += receive(&mut rx, &a, &mut memory, &mut at);
                rx.port.flush();
                rx.sleep();
            }
            (packets, rx.sleeps, *rx.port.counters(), cpu_seconds())
        })
    };
    let mut memory: Vec<u8> = (0..MEMORY).map(|i| (i * 7) as u8).collect();
    memory.rotate_left(3);
    let mut at = 0;
    let mut began = None;
    loop {
        tx.poll(Lid(1), &armed);
        tx.port.take_unstalled();
        if tx.port.state() == PortState::Active {
            let began = *began.get_or_insert_with(Instant::now);
            if began.elapsed() >= Duration::from_secs(a.seconds) {
                break;
            }
            let mut n = 0;
            while send(&mut tx, &a, &memory, &mut at) {
                n += 1;
                if n % 8 == 0 {
                    tx.port.flush();
                }
            }
            tx.port.flush();
        }
        tx.sleep();
    }
    let took = began.map_or(Duration::ZERO, |b| b.elapsed());
    stop.store(true, Ordering::Relaxed);
    let tx_cpu = cpu_seconds();
    let (packets, rx_sleeps, r, rx_cpu) = receiver.join().map_err(|_| "the receiver failed")?;
    let t = *tx.port.counters();
    println!(
        "{packets} packets of {} bytes in {took:.2?}: {:.2} GB/s of payload, {:.2} M packets/s",
        a.payload,
        packets as f64 * a.payload as f64 / took.as_secs_f64() / 1e9,
        packets as f64 / took.as_secs_f64() / 1e6,
    );
    println!(
        "processor time: sender {tx_cpu:.2} s, receiver {rx_cpu:.2} s; {:.2} GB per second of the busier",
        packets as f64 * a.payload as f64 / tx_cpu.max(rx_cpu) / 1e9,
    );
    println!(
        "sleeps: sender {}, receiver {rx_sleeps}; flow control packets {}; waited {} us; errors {}",
        tx.sleeps, r.fc_sent, t.xmit_wait, r.rcv_errors,
    );
    Ok(())
}
