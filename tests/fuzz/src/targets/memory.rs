// SPDX-License-Identifier: GPL-2.0-or-later
//! Two hosts with QPs of every kind, and a watch over the memory that nobody may write.

use std::time::Duration;

use ochre_hw::queue::QpSizes;
use ochre_hw::regs;
use ochre_hw::verbs::{access, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_SIGNALED};
use ochre_link::{MemConfig, PortConfig};

use crate::common::guest::{elements, GuestCq, GuestQp};
use crate::common::host::{Host, Pair, LID_A, LID_B};
use crate::common::Dma;
use crate::note;

/// Bytes of memory of a host.
const MEMORY: usize = 320 << 10;
/// Bytes of the region that everybody may write.
pub(super) const DATA: u64 = 64 << 10;
/// Bytes of the region that the peer may only read.
const CONSTANT: u64 = 8 << 10;
/// Kinds of QPs that inputs use, in this order.
pub(super) const KINDS: [QpType; 3] = [QpType::Rc, QpType::Uc, QpType::Ud];

const SIZES: QpSizes = QpSizes {
    send_wr: 16,
    send_sge: 4,
    inline_data: 64,
    recv_wr: 16,
    recv_sge: 4,
};

/// What an input may use of a host.
pub(super) struct Side {
    /// One QP of each of [`KINDS`], connected to the same of the peer.
    pub(super) qps: Vec<(u32, GuestQp)>,
    pub(super) cq: GuestCq,
    /// Key and address of `DATA` bytes.
    pub(super) key: u32,
    pub(super) data: u64,
    pub(super) constant_key: u32,
    pub(super) constant: u64,
    pub(super) ah: u32,
    /// A connection that no input touches, and its own CQ.
    other: (u32, GuestQp),
    other_cq: GuestCq,
    /// Memory as it was, and where it may change: address and bytes.
    before: Vec<u8>,
    allowed: Vec<(u64, u64)>,
}

fn side(host: &mut Host, eq: (u64, u64), peer: u16) -> Side {
    let pd = host.alloc_pd();
    let (cq_number, cq) = host.create_cq(0, 6);
    let (other_number, other_cq) = host.create_cq(0, 4);
    let (key, data) = host.create_mr(pd, DATA, access::REGION);
    let (constant_key, constant) = host.create_mr(pd, CONSTANT, access::REMOTE_READ);
    let av = ochre_hw::verbs::AddressVector {
        dlid: peer,
        port: 1,
        ..Default::default()
    };
    let ah = host.create_ah(pd, av);
    let mut allowed = vec![
        eq,
        (cq.base, 64 + (64 << 6)),
        (other_cq.base, 64 + (64 << 4)),
        (data, DATA),
    ];
    let mut make = |host: &mut Host, kind, cq| {
        let (number, guest) = host.create_qp(kind, pd, [cq, cq], &SIZES);
        match kind {
            QpType::Rc => host.start_rc(number, number, peer),
            QpType::Uc => host.start_uc(number, number, peer),
            _ => host.start_datagram(number, kind, 0x1111),
        }
        allowed.push((guest.base, guest.layout.bytes.into()));
        (number, guest)
    };
    let mut qps: Vec<_> = KINDS.iter().map(|&k| make(host, k, cq_number)).collect();
    let other = make(host, QpType::Rc, other_number);
    for (_, guest) in &mut qps {
        for slot in 0..8 {
            let sge = Sge {
                addr: data + slot * 4096,
                length: 4096,
                lkey: key,
            };
            guest.post_recv(slot, &[sge]);
        }
    }
    Side {
        qps,
        cq,
        key,
        data,
        constant_key,
        constant,
        ah,
        other,
        other_cq,
        before: Vec::new(),
        allowed,
    }
}

fn contents(host: &Host) -> Vec<u8> {
    let mut bytes = vec![0; host.mem.len()];
    host.mem.read(0, &mut bytes).expect("all of it");
    bytes
}

impl Side {
    /// Notes what has completed.
    pub(super) fn drain(&mut self) {
        while let Some(cqe) = self.cq.poll() {
            note((cqe.status, cqe.opcode));
        }
    }

    /// Memory is as it was, but for what may change.
    fn check(&mut self, host: &Host) {
        let now = contents(host);
        for &(start, len) in &self.allowed {
            let range = start as usize..(start + len) as usize;
            self.before[range.clone()].copy_from_slice(&now[range]);
        }
        let differs = now.iter().zip(&self.before).position(|(a, b)| a != b);
        if let Some(at) = differs {
            panic!("byte {at:#x} of memory has changed, which nobody may write");
        }
    }
}

/// Two hosts whose ports are active.
pub(super) struct Bed {
    pub(super) pair: Pair,
    pub(super) sides: [Side; 2],
}

impl Bed {
    pub(super) fn new() -> Self {
        let cable = MemConfig {
            capacity: 64 << 10,
            ..MemConfig::default()
        };
        // Nothing is lost here, so that credits need no repeating.
        let port = PortConfig {
            fc_refresh: Duration::from_secs(60),
            fc_watchdog: None,
            ..PortConfig::default()
        };
        let mut pair = Pair::with_memory(cable, port, MEMORY);
        let starts = [pair.a.heap.take(0), pair.b.heap.take(0)];
        pair.bring_up();
        let ends = [pair.a.heap.take(0), pair.b.heap.take(0)];
        let eq = |n: usize| (starts[n], ends[n] - starts[n]);
        let a = side(&mut pair.a, eq(0), LID_B);
        let b = side(&mut pair.b, eq(1), LID_A);
        Bed {
            pair,
            sides: [a, b],
        }
    }

    /// From now on memory is watched; no command is given any more.
    pub(super) fn watch(&mut self) {
        self.pair.settle();
        self.sides[0].before = contents(&self.pair.a);
        self.sides[1].before = contents(&self.pair.b);
    }

    pub(super) fn host(&mut self, which: usize) -> &mut Host {
        if which == 0 {
            &mut self.pair.a
        } else {
            &mut self.pair.b
        }
    }

    /// Ends a run: what completed, what happened, and that no memory changed that may not.
    pub(super) fn finish(&mut self) {
        self.pair.run_for(Duration::from_millis(1));
        for which in 0..2 {
            self.sides[which].drain();
            for (event, port, _) in self.host(which).events() {
                note((event.raw(), port));
            }
            let status = self.host(which).reg(regs::STATUS);
            note((status, which));
        }
        self.sides[0].check(&self.pair.a);
        self.sides[1].check(&self.pair.b);
    }

    /// Both devices work: nothing was fatal to them.
    pub(super) fn both_ready(&mut self) -> bool {
        (0..2).all(|n| self.host(n).reg(regs::STATUS) == regs::STATUS_READY)
    }

    /// A connection that has nothing to do with the input works.
    pub(super) fn others_go_on(&mut self) {
        let (remote, key) = (self.sides[1].data, self.sides[1].key);
        let side = &mut self.sides[0];
        let wqe = SendWqe {
            opcode: SendOpcode::Write.raw(),
            flags: SEND_SIGNALED,
            num_sge: 1,
            remote,
            key,
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: side.data,
            length: 64,
            lkey: side.key,
        };
        side.other.1.post_send(&wqe, &elements(&[sge]));
        self.pair.a.ring(side.other.0, &side.other.1);
        self.pair.run_for(Duration::from_millis(1));
        let cqe = self.sides[0].other_cq.poll();
        assert_eq!(cqe.map(|c| c.status), Some(0), "another connection goes on");
    }
}
