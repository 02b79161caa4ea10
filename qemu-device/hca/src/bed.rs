// SPDX-License-Identifier: GPL-2.0-or-later
//! Two connected QPs without the rest of their devices, for tests that look at single packets.

use core::time::Duration;
use std::collections::VecDeque;

use ochre_hw::cqe::{Cqe, CqeStatus};
use ochre_hw::eqe::{Eqe, EventType};
use ochre_hw::queue::{EqRecord, MemDesc, QpSizes};
use ochre_hw::verbs::{access, qp_attr, QpAttr, QpState, QpType};
use ochre_hw::wqe::{AtomicSegment, SendOpcode, SendWqe, Sge, SEND_SIGNALED};
use ochre_wire::{write_trailer, Build, Guid, Lid, Packet, Qpn};

use crate::cq::Cq;
use crate::ctx::Ctx;
use crate::eq::Eq;
use crate::mem::{Mr, PageBudget, PageList, QueueMem, Target};
use crate::memory::Memory;
use crate::port::PortContext;
use crate::qp::{self, NewQp, Progress, Qp};
use crate::seams::{Dma, SendError, Transmit};
use crate::wq::WorkQueue;
use crate::{Limits, Time};

// The simulations share it, and use more of it.
#[allow(dead_code, unreachable_pub)]
#[path = "../tests/common/guest.rs"]
mod guest;

use guest::elements;
pub(crate) use guest::{GuestCq, GuestQp, Heap};

/// Protection domain of everything.
const PD: u32 = 1;
/// Bytes of the data region of an end.
pub(crate) const DATA: u64 = 1 << 20;

/// Packets that one end has sent.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) packets: VecDeque<Vec<u8>>,
    /// Packets that may still be sent before there are no credits.
    pub(crate) credits: Option<usize>,
}

impl Transmit for Wire {
    fn send<E>(
        &mut self,
        build: &Build,
        payload: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), SendError<E>> {
        if let Some(credits) = &mut self.credits {
            *credits = credits.checked_sub(1).ok_or(SendError::NoCredit)?;
        }
        let mut packet = vec![0; build.packet_len(payload)];
        let headers = build.write_headers(payload, &mut packet).unwrap();
        fill(&mut packet[headers..headers + payload]).map_err(SendError::Fill)?;
        write_trailer(&mut packet, headers, payload).unwrap();
        self.packets.push_back(packet);
        Ok(())
    }
}

/// One end: a QP, what its device knows, and its guest.
pub(crate) struct End {
    pub(crate) ctx: Ctx<Memory>,
    pub(crate) mem: Memory,
    pub(crate) qp: Qp,
    pub(crate) guest: GuestQp,
    pub(crate) send_cq: GuestCq,
    pub(crate) recv_cq: GuestCq,
    pub(crate) wire: Wire,
    /// Data region: its address and its key.
    pub(crate) data: u64,
    pub(crate) key: u32,
    eq: u64,
    events: u32,
}

impl End {
    fn new(kind: QpType, lid: u16) -> Self {
        let mem = Memory::new(4 << 20);
        let mut heap = Heap::new(4096, 4 << 20);
        let mut port = PortContext::new(1, Guid(lid.into()), 4, 4);
        port.lid = Lid(lid);
        port.active = true;
        let mut ctx = Ctx::new(mem.clone(), Limits::default(), vec![port]);
        let pages = |addr: u64, bytes: u64| {
            let desc = MemDesc {
                addr,
                num_pages: bytes.div_ceil(4096) as u32,
                page_shift: 12,
                ..MemDesc::default()
            };
            PageList::load(&mem, &desc, 0, &PageBudget::new(1 << 20)).unwrap()
        };
        let eq = heap.take(4096);
        let entries = Eq::new(QueueMem::new(pages(eq, 4096)), 6, 0);
        assert!(ctx.eqs.insert(entries).is_ok());
        let mut cq = || {
            let guest = GuestCq::new(&mem, &mut heap, 9);
            let bytes = Cq::bytes(9);
            let cq = Cq::new(QueueMem::new(pages(guest.base, bytes)), 9, 0);
            (guest, ctx.cqs.insert(cq).ok().unwrap())
        };
        let (send_cq, send_number) = cq();
        let (recv_cq, recv_number) = cq();
        let sizes = QpSizes {
            send_wr: 64,
            send_sge: 4,
            inline_data: 64,
            recv_wr: 64,
            recv_sge: 4,
        };
        let guest = GuestQp::new(&mem, &mut heap, &sizes);
        let l = guest.layout;
        let qp = Qp::new(
            0x100 + u32::from(lid),
            NewQp {
                qpn: Qpn::new(0x100 + u32::from(lid)),
                kind,
                port: 0,
                pd: PD,
                send_cq: send_number,
                recv_cq: recv_number,
                doorbell_page: 0,
                mem: QueueMem::new(pages(guest.base, l.bytes.into())),
                sq: WorkQueue::send(l.sq_offset, l.log_sq_slots, l.log_sq_stride),
                rq: WorkQueue::recv(l.rq_offset, l.log_rq_slots, l.log_rq_stride),
            },
        );
        let data = heap.take(DATA);
        let mut end = End {
            ctx,
            qp,
            guest,
            send_cq,
            recv_cq,
            wire: Wire::default(),
            data,
            key: 0,
            eq,
            events: 0,
            mem,
        };
        end.key = end.region(access::REGION);
        end
    }

    /// Makes all indices of the QP's queues and CQs start at `index`.
    pub(crate) fn start_at(&mut self, index: u32) {
        self.qp.sq.start_at(index);
        self.qp.rq.start_at(index);
        self.guest.start_at(index);
        for number in [self.qp.send_cq, self.qp.recv_cq] {
            self.ctx.cqs.get_mut(number).unwrap().start_at(index);
        }
        self.send_cq.start_at(index);
        self.recv_cq.start_at(index);
    }

    /// One more region over the data, with these rights.
    pub(crate) fn region(&mut self, rights: u32) -> u32 {
        let desc = MemDesc {
            addr: self.data,
            num_pages: (DATA / 4096) as u32,
            page_shift: 12,
            ..MemDesc::default()
        };
        let mr = Mr {
            pd: PD,
            access: rights,
            target: Target::Pages {
                iova: self.data,
                length: DATA,
                pages: PageList::load(&self.mem, &desc, 0, &PageBudget::new(1 << 20)).unwrap(),
                first: 0,
            },
        };
        self.ctx.mrs.insert(mr).ok().unwrap()
    }

    pub(crate) fn modify(&mut self, mask: u32, attr: &QpAttr) {
        qp::modify(&mut self.qp, &mut self.ctx, attr, mask).unwrap();
    }

    pub(crate) fn go(&mut self, state: QpState) {
        let attr = QpAttr {
            state: state.raw(),
            ..QpAttr::default()
        };
        self.modify(qp_attr::STATE, &attr);
    }

    /// An element `at` bytes into the data region.
    pub(crate) fn sge(&self, at: u64, length: u32) -> Sge {
        Sge {
            addr: self.data + at,
            length,
            lkey: self.key,
        }
    }

    pub(crate) fn fill(&self, at: u64, len: usize, seed: u8) -> Vec<u8> {
        let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(7) ^ seed).collect();
        self.mem.write(self.data + at, &bytes).unwrap();
        bytes
    }

    pub(crate) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mem.read(self.data + at, &mut bytes).unwrap();
        bytes
    }

    /// Posts a signaled request to the peer's data region.
    pub(crate) fn post(&mut self, opcode: SendOpcode, sges: &[Sge], remote: u64, key: u32) -> u64 {
        self.post_with(opcode, SEND_SIGNALED, sges, remote, key)
    }

    pub(crate) fn post_with(
        &mut self,
        opcode: SendOpcode,
        flags: u8,
        sges: &[Sge],
        remote: u64,
        key: u32,
    ) -> u64 {
        let wqe = SendWqe {
            opcode: opcode.raw(),
            flags,
            num_sge: sges.len() as u8,
            imm: u32::from_le_bytes([0xa, 0xb, 0xc, 0xd]),
            wr_id: u64::from(self.guest.sq_producer),
            remote,
            key,
            ..SendWqe::default()
        };
        self.guest.post_send(&wqe, &elements(sges));
        wqe.wr_id
    }

    /// Posts an atomic on `remote` whose result goes to `at` in the own data region.
    pub(crate) fn post_atomic(
        &mut self,
        opcode: SendOpcode,
        operands: AtomicSegment,
        at: u64,
        remote: u64,
        key: u32,
    ) {
        let wqe = SendWqe {
            opcode: opcode.raw(),
            flags: SEND_SIGNALED,
            num_sge: 1,
            wr_id: u64::from(self.guest.sq_producer),
            remote,
            key,
            ..SendWqe::default()
        };
        let mut data = operands.to_bytes().to_vec();
        data.extend(elements(&[self.sge(at, 8)]));
        self.guest.post_send(&wqe, &data);
    }

    /// Gives the QP turns until it is idle or has no credits.
    pub(crate) fn run(&mut self) -> Progress {
        loop {
            while let Some(turn) = self.ctx.sched.next_ready() {
                self.qp.sched.take(turn);
            }
            let mut budget = 16;
            let p = qp::run(&mut self.qp, &mut self.ctx, &mut self.wire, &mut budget);
            assert!(budget <= 16);
            if p != Progress::More {
                return p;
            }
        }
    }

    pub(crate) fn receive(&mut self, packet: &[u8]) {
        let packet = Packet::parse(packet).expect("a well-formed packet");
        assert!(packet.icrc_ok());
        qp::receive(&mut self.qp, &mut self.ctx, &packet);
    }

    /// The next event, if there is one.
    pub(crate) fn event(&mut self) -> Option<EventType> {
        let at = self.eq + EqRecord::SIZE as u64 + u64::from(self.events) * Eqe::SIZE as u64;
        let eqe = Eqe::from_bytes(&self.mem.bytes(at).unwrap());
        if eqe.owner & 1 == 0 {
            return None;
        }
        self.events += 1;
        EventType::from_raw(eqe.event)
    }

    /// The next send completion, which must be there and have this status.
    pub(crate) fn sent(&mut self, status: CqeStatus) -> Cqe {
        let cqe = self.send_cq.poll().expect("a send completion");
        assert_eq!(CqeStatus::from_raw(cqe.status), Some(status));
        cqe
    }

    /// The next receive completion, which must be there and have this status.
    pub(crate) fn received(&mut self, status: CqeStatus) -> Cqe {
        let cqe = self.recv_cq.poll().expect("a receive completion");
        assert_eq!(CqeStatus::from_raw(cqe.status), Some(status));
        cqe
    }
}

/// Two ends and what is on its way between them.
pub(crate) struct Bed {
    pub(crate) a: End,
    pub(crate) b: End,
}

impl Bed {
    /// Two RC QPs in RTS.
    pub(crate) fn rc() -> Self {
        Self::new(QpType::Rc, |_| ())
    }

    /// Two QPs in RTS whose attributes `change` has changed.
    pub(crate) fn new(kind: QpType, change: impl Fn(&mut QpAttr)) -> Self {
        let mut bed = Bed {
            a: End::new(kind, 1),
            b: End::new(kind, 2),
        };
        let (number_a, number_b) = (bed.a.qp.number, bed.b.qp.number);
        connect(&mut bed.a, 2, number_b, &change);
        connect(&mut bed.b, 1, number_a, &change);
        bed
    }

    /// Lets both ends send and receive until nothing is left to do at this time.
    pub(crate) fn settle(&mut self) {
        loop {
            self.a.run();
            self.b.run();
            if self.a.wire.packets.is_empty() && self.b.wire.packets.is_empty() {
                return;
            }
            self.deliver_a(usize::MAX);
            self.deliver_b(usize::MAX);
        }
    }

    /// Delivers up to `n` packets that `a` has sent.
    pub(crate) fn deliver_a(&mut self, n: usize) {
        for _ in 0..n {
            let Some(packet) = self.a.wire.packets.pop_front() else {
                return;
            };
            self.b.receive(&packet);
        }
    }

    /// Delivers up to `n` packets that `b` has sent.
    pub(crate) fn deliver_b(&mut self, n: usize) {
        for _ in 0..n {
            let Some(packet) = self.b.wire.packets.pop_front() else {
                return;
            };
            self.a.receive(&packet);
        }
    }

    /// Lets time pass on both ends; timers that are due run.
    pub(crate) fn pass(&mut self, time: Duration) {
        let now: Time = self.a.ctx.now + time;
        for end in [&mut self.a, &mut self.b] {
            end.ctx.now = now;
            if end.qp.sched.deadline().is_some_and(|t| t <= now) {
                qp::on_timer(&mut end.qp, &mut end.ctx);
            }
        }
    }

    /// Lets time pass until nothing is waited for, at most `steps` deadlines.
    pub(crate) fn wait(&mut self, steps: usize) {
        for _ in 0..steps {
            self.settle();
            let next = [&self.a, &self.b]
                .iter()
                .filter_map(|e| e.qp.sched.deadline())
                .min();
            let Some(next) = next else {
                return;
            };
            self.pass(next.since(self.a.ctx.now));
        }
        panic!("still waiting after {steps} deadlines");
    }
}

/// Attributes of every connection, unless a test changes them.
fn attributes(peer_lid: u16, peer: u32) -> QpAttr {
    let mut attr = QpAttr {
        path_mtu: 1,
        rq_psn: 100,
        sq_psn: 100,
        dest_qpn: peer,
        access: access::QP,
        port: 1,
        timeout: 8,
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        ..QpAttr::default()
    };
    attr.av.dlid = peer_lid;
    attr.av.port = 1;
    attr
}

/// The mask of what MODIFY_QP needs on the way to `state`.
pub(crate) fn mask_to(kind: QpType, state: QpState) -> u32 {
    use qp_attr::{
        ACCESS_FLAGS, AV, DEST_QPN, MAX_DEST_RD_ATOMIC, MAX_RD_ATOMIC, MIN_RNR_TIMER, PATH_MTU,
        PKEY_INDEX, PORT, RETRY_CNT, RNR_RETRY, RQ_PSN, SQ_PSN, STATE, TIMEOUT,
    };
    let rc = |mask| if kind == QpType::Rc { mask } else { 0 };
    STATE
        | match state {
            QpState::Init => PKEY_INDEX | PORT | ACCESS_FLAGS,
            QpState::Rtr => {
                AV | PATH_MTU | DEST_QPN | RQ_PSN | rc(MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER)
            }
            QpState::Rts => SQ_PSN | rc(TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_RD_ATOMIC),
            _ => 0,
        }
}

fn connect(end: &mut End, peer_lid: u16, peer: u32, change: &impl Fn(&mut QpAttr)) {
    let mut attr = attributes(peer_lid, peer);
    change(&mut attr);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        attr.state = state.raw();
        let mask = mask_to(end.qp.kind, state);
        end.modify(mask, &attr);
    }
}
