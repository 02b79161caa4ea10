// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast the engines are: RDMA WRITEs and SENDs between two devices in one thread, over a cable
//! inside the process. Run it with `--release`; `--no-crc` leaves the checksums out.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_INLINE, SEND_SIGNALED};
use ochre_link::mem::MemConfig;
use ochre_link::PortConfig;

use common::guest::{elements, GuestCq, GuestQp};
use common::host::{Pair, LID_A, LID_B};

/// Requests under way.
const DEPTH: u32 = 64;
/// Bytes of the data regions; they stay in the cache.
const DATA: u64 = 1 << 20;

struct Bench {
    pair: Pair,
    qp: [u32; 2],
    guest: [GuestQp; 2],
    cq: [GuestCq; 2],
    data: [u64; 2],
    key: [u32; 2],
}

fn set_up(crc: bool) -> Bench {
    let mut pair = Pair::with(
        MemConfig::default(),
        PortConfig {
            crc,
            ..PortConfig::default()
        },
    );
    pair.bring_up();
    let sizes = QpSizes {
        send_wr: DEPTH * 2,
        send_sge: 1,
        inline_data: 64,
        recv_wr: DEPTH * 2,
        recv_sge: 1,
    };
    let make = |host: &mut common::host::Host| {
        let pd = host.alloc_pd();
        let (cq, guest_cq) = host.create_cq(0, 10);
        let (key, data) = host.create_mr(pd, DATA, access::REGION);
        let (qp, guest) = host.create_qp(QpType::Rc, pd, [cq, cq], &sizes);
        (qp, guest, guest_cq, key, data)
    };
    let a = make(&mut pair.a);
    let b = make(&mut pair.b);
    pair.a.start_rc(a.0, b.0, LID_B);
    pair.b.start_rc(b.0, a.0, LID_A);
    Bench {
        pair,
        qp: [a.0, b.0],
        guest: [a.1, b.1],
        cq: [a.2, b.2],
        key: [a.3, b.3],
        data: [a.4, b.4],
    }
}

/// One kind of traffic.
#[derive(Clone, Copy)]
struct Traffic {
    name: &'static str,
    opcode: SendOpcode,
    len: u32,
    inline: bool,
}

/// Messages per second.
fn measure(bench: &mut Bench, traffic: Traffic, messages: u64) -> f64 {
    let Traffic {
        opcode,
        len,
        inline,
        ..
    } = traffic;
    let receives = opcode == SendOpcode::Send;
    let places = DATA / u64::from(len);
    let (mut posted, mut done, mut received) = (0u64, 0u64, 0u64);
    let mut recv_posted = 0u64;
    let start = Instant::now();
    while done < messages {
        while receives && recv_posted - received < u64::from(DEPTH) * 2 {
            let sge = Sge {
                addr: bench.data[1] + recv_posted % places * u64::from(len),
                length: len,
                lkey: bench.key[1],
            };
            bench.guest[1].post_recv(recv_posted, &[sge]);
            recv_posted += 1;
        }
        let mut new = false;
        while posted < messages && posted - done < u64::from(DEPTH) {
            let at = posted % places * u64::from(len);
            let sge = Sge {
                addr: bench.data[0] + at,
                length: len,
                lkey: bench.key[0],
            };
            let wqe = SendWqe {
                opcode: opcode.raw(),
                flags: SEND_SIGNALED | if inline { SEND_INLINE } else { 0 },
                num_sge: u8::from(!inline),
                inline_len: if inline { len as u16 } else { 0 },
                wr_id: posted,
                remote: bench.data[1] + at,
                key: bench.key[1],
                ..SendWqe::default()
            };
            if inline {
                bench.guest[0].write_send(&wqe, &[7; 64][..len as usize]);
            } else {
                bench.guest[0].write_send(&wqe, &elements(&[sge]));
            }
            posted += 1;
            new = true;
        }
        if new {
            bench.guest[0].publish_sends();
            bench.pair.a.ring(bench.qp[0], &bench.guest[0]);
        }
        bench.pair.a.poll();
        bench.pair.b.poll();
        while let Some(cqe) = bench.cq[0].poll() {
            assert_eq!(cqe.status, 0, "status of a send");
            assert_eq!(cqe.wr_id, done);
            done += 1;
        }
        while let Some(cqe) = bench.cq[1].poll() {
            assert_eq!(cqe.status, 0, "status of a receive");
            assert_eq!(cqe.wr_id, received);
            received += 1;
        }
    }
    messages as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let crc = !std::env::args().any(|a| a == "--no-crc");
    let traffic = |name, opcode, len, inline| Traffic {
        name,
        opcode,
        len,
        inline,
    };
    let kinds = [
        (traffic("WRITE", SendOpcode::Write, 4096, false), 400_000),
        (traffic("WRITE", SendOpcode::Write, 64 << 10, false), 25_000),
        (traffic("READ", SendOpcode::Read, 64 << 10, false), 25_000),
        (traffic("SEND", SendOpcode::Send, 4096, false), 400_000),
        (traffic("WRITE", SendOpcode::Write, 64, false), 2_000_000),
        (
            traffic("WRITE inline", SendOpcode::Write, 64, true),
            2_000_000,
        ),
        (traffic("SEND", SendOpcode::Send, 64, false), 2_000_000),
        (traffic("SEND inline", SendOpcode::Send, 8, true), 2_000_000),
    ];
    println!("CRCs {}", if crc { "on" } else { "off" });
    for (traffic, messages) in kinds {
        let mut bench = set_up(crc);
        let rate = measure(&mut bench, traffic, messages);
        println!(
            "{:12} of {:6} bytes: {:6.3} GB/s, {:6.3} M messages/s",
            traffic.name,
            traffic.len,
            rate * f64::from(traffic.len) / 1e9,
            rate / 1e6
        );
    }
}
