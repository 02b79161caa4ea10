// SPDX-License-Identifier: GPL-2.0-or-later
//! Traffic between two devices in one thread, over a cable inside the process, as fast as it goes:
//! what the measuring programs share. Time is the processor time of the thread, so that figures hold
//! on a busy machine too.

use std::time::Duration;

use nix::time::{clock_gettime, ClockId};
use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_INLINE, SEND_SIGNALED};
use ochre_link::mem::MemConfig;
use ochre_link::PortConfig;

use super::guest::{GuestCq, GuestQp};
use super::host::{Host, Pair, LID_A, LID_B};

/// Requests under way on a pump with one QP.
const DEPTH: u32 = 64;
/// Requests under way on a pump with many QPs, each on another QP.
const SPREAD: u32 = 8;
/// Bytes of the data regions; they stay in the cache.
const DATA: u64 = 1 << 18;
/// Completion queue entries, log2.
const CQ_LOG: u8 = 10;

/// One kind of traffic.
#[derive(Clone, Copy)]
pub struct Traffic {
    /// What it is called.
    pub name: &'static str,
    /// SEND, WRITE or READ.
    pub opcode: SendOpcode,
    /// Bytes of a message.
    pub len: u32,
    /// Whether the bytes are in the send queue entry.
    pub inline: bool,
}

impl Traffic {
    /// Messages whose bytes are gathered from a region.
    pub const fn new(name: &'static str, opcode: SendOpcode, len: u32) -> Self {
        Traffic {
            name,
            opcode,
            len,
            inline: false,
        }
    }

    /// The same with the bytes in the send queue entry.
    pub const fn inline(self) -> Self {
        Traffic {
            inline: true,
            ..self
        }
    }
}

/// One of the two hosts' side.
struct Side {
    qps: Vec<(u32, GuestQp)>,
    cq: GuestCq,
    key: u32,
    data: u64,
}

impl Side {
    fn new(host: &mut Host, qps: u32, depth: u32) -> Self {
        let sizes = QpSizes {
            send_wr: depth * 2,
            send_sge: 1,
            inline_data: 64,
            recv_wr: depth * 2,
            recv_sge: 1,
        };
        let pd = host.alloc_pd();
        let (cq, guest_cq) = host.create_cq(0, CQ_LOG);
        let (key, data) = host.create_mr(pd, DATA, access::REGION);
        Side {
            qps: (0..qps)
                .map(|_| host.create_qp(QpType::Rc, pd, [cq, cq], &sizes))
                .collect(),
            cq: guest_cq,
            key,
            data,
        }
    }
}

/// Two hosts whose RC QPs are connected, the first of one to the first of the other and so on.
pub struct Pump {
    pair: Pair,
    sides: [Side; 2],
    depth: u32,
    /// Where the next message goes.
    turn: usize,
}

impl Pump {
    /// A pump with one QP on each side.
    pub fn new(crc: bool) -> Self {
        Self::with(crc, 1, DEPTH)
    }

    /// A pump that spreads its messages over this many QPs.
    pub fn spread(qps: u32) -> Self {
        Self::with(true, qps, SPREAD)
    }

    fn with(crc: bool, qps: u32, depth: u32) -> Self {
        // A page for each QP, and room for the rest.
        let memory = (32 << 20) + qps as usize * 8192;
        let port = PortConfig {
            crc,
            ..PortConfig::default()
        };
        let mut pair = Pair::with_memory(MemConfig::default(), port, memory);
        pair.bring_up();
        let a = Side::new(&mut pair.a, qps, depth);
        let b = Side::new(&mut pair.b, qps, depth);
        for ((left, _), (right, _)) in a.qps.iter().zip(&b.qps) {
            pair.a.start_rc(*left, *right, LID_B);
            pair.b.start_rc(*right, *left, LID_A);
        }
        Pump {
            pair,
            sides: [a, b],
            depth,
            turn: 0,
        }
    }

    /// The host that sends.
    pub fn sender(&mut self) -> &mut Host {
        &mut self.pair.a
    }

    /// Lets every QP send once: the first message of a QP takes memory for those to come.
    pub fn warm(&mut self, traffic: Traffic) {
        self.run(traffic, self.sides[0].qps.len() as u64);
    }

    /// Sends messages until all are completed; gives the processor time.
    pub fn run(&mut self, traffic: Traffic, messages: u64) -> Duration {
        let Traffic { opcode, len, .. } = traffic;
        let receives = opcode == SendOpcode::Send;
        assert!(!receives || self.sides[1].qps.len() == 1);
        let places = DATA / u64::from(len);
        let depth = u64::from(self.depth);
        let (mut posted, mut done, mut received) = (0u64, 0u64, 0u64);
        let mut recv_posted = 0u64;
        let start = processor_time();
        while done < messages || (receives && received < messages) {
            while receives && recv_posted < messages && recv_posted - received < depth * 2 {
                let side = &mut self.sides[1];
                let sge = Sge {
                    addr: side.data + recv_posted % places * u64::from(len),
                    length: len,
                    lkey: side.key,
                };
                side.qps[0].1.post_recv(recv_posted, &[sge]);
                recv_posted += 1;
            }
            let room = depth - (posted - done);
            let new = room.min(messages - posted);
            self.post(traffic, posted, new);
            posted += new;
            self.pair.a.poll();
            self.pair.b.poll();
            while let Some(cqe) = self.sides[0].cq.poll() {
                assert_eq!(cqe.status, 0, "status of a send");
                done += 1;
            }
            while let Some(cqe) = self.sides[1].cq.poll() {
                assert_eq!(cqe.status, 0, "status of a receive");
                assert_eq!(cqe.wr_id, received);
                received += 1;
            }
        }
        processor_time() - start
    }

    /// Posts messages from number `first` on, each on the next QP, and rings for each QP once.
    fn post(&mut self, traffic: Traffic, first: u64, count: u64) {
        let places = DATA / u64::from(traffic.len);
        let [a, b] = &mut self.sides;
        let qps = a.qps.len();
        for number in first..first + count {
            let at = number % places * u64::from(traffic.len);
            let inline = traffic.inline;
            let wqe = SendWqe {
                opcode: traffic.opcode.raw(),
                flags: SEND_SIGNALED | if inline { SEND_INLINE } else { 0 },
                num_sge: u8::from(!inline),
                inline_len: if inline { traffic.len as u16 } else { 0 },
                wr_id: number,
                remote: b.data + at,
                key: b.key,
                ..SendWqe::default()
            };
            let qp = &mut a.qps[self.turn].1;
            if inline {
                qp.write_send(&wqe, &[7; 64][..traffic.len as usize]);
            } else {
                let sge = Sge {
                    addr: a.data + at,
                    length: traffic.len,
                    lkey: a.key,
                };
                qp.write_send(&wqe, &sge.to_bytes());
            }
            if qps > 1 {
                qp.publish_sends();
                self.pair.a.ring(a.qps[self.turn].0, &a.qps[self.turn].1);
                self.turn = (self.turn + 1) % qps;
            }
        }
        if qps == 1 && count > 0 {
            a.qps[0].1.publish_sends();
            self.pair.a.ring(a.qps[0].0, &a.qps[0].1);
        }
    }
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    // By the C library: valgrind does not map the kernel's own clock.
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("threads have a clock");
    Duration::from(time)
}
