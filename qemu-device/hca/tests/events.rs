// SPDX-License-Identifier: GPL-2.0-or-later
//! Completion events, event queues and interrupts.

mod common;

use std::time::Duration;

use common::guest::{GuestCq, GuestEq, GuestQp};
use common::host::{Host, Pair, LID_A};
use ochre_hca::Dma;
use ochre_hw::cmd::queue::ModifyCq;
use ochre_hw::cmd::{CmdSlot, Opcode, OWNER_DEVICE, SLOT_EVENT};
use ochre_hw::eqe::EventType;
use ochre_hw::queue::{QpSizes, CQ_ARM_NEXT, CQ_ARM_SOLICITED, CQ_ARM_STEP};
use ochre_hw::regs::{self, FatalReason};
use ochre_hw::verbs::{access, AddressVector, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_SIGNALED, SEND_SOLICITED};

const QKEY: u32 = 7;
const SIZES: QpSizes = QpSizes {
    send_wr: 64,
    send_sge: 1,
    inline_data: 0,
    recv_wr: 64,
    recv_sge: 1,
};

/// A QP that sends to itself, with its completion event queue at vector 3.
struct Rig {
    pair: Pair,
    eq: GuestEq,
    cqn: u32,
    cq: GuestCq,
    qp: u32,
    guest: GuestQp,
    ah: u32,
    arm: u32,
}

impl Rig {
    fn new() -> Self {
        Self::with_cq(8)
    }

    /// With 2^`log_entries` entries in the CQ.
    fn with_cq(log_entries: u8) -> Self {
        let mut pair = Pair::active();
        let h = &mut pair.a;
        let (eqn, eq) = h.create_eq(3, 4);
        let pd = h.alloc_pd();
        let (cqn, cq) = h.create_cq(eqn, log_entries);
        let (qp, mut guest) = h.create_qp(QpType::Ud, pd, [cqn, cqn], &SIZES);
        h.start_datagram(qp, QpType::Ud, QKEY);
        let (key, addr) = h.create_mr(pd, 4096, access::LOCAL_WRITE);
        for _ in 0..64 {
            guest.post_recv(
                1,
                &[Sge {
                    addr,
                    length: 4096,
                    lkey: key,
                }],
            );
        }
        let ah = h.create_ah(
            pd,
            AddressVector {
                dlid: LID_A,
                port: 1,
                ..AddressVector::default()
            },
        );
        h.hca.interrupts_mut().0.clear();
        Rig {
            pair,
            eq,
            cqn,
            cq,
            qp,
            guest,
            ah,
            arm: 0,
        }
    }

    fn host(&mut self) -> &mut Host {
        &mut self.pair.a
    }

    /// Arms the CQ anew.
    fn arm_cq(&mut self, kind: u32) {
        self.arm = (self.arm & !3) + CQ_ARM_STEP | kind;
        self.pair
            .a
            .mem
            .store_u32(self.cq.base + 4, self.arm)
            .unwrap();
    }

    /// Sends `n` empty datagrams with `flags` to the QP itself.
    fn send(&mut self, n: u32, flags: u8) {
        for _ in 0..n {
            let wqe = SendWqe {
                opcode: SendOpcode::Send.raw(),
                flags,
                remote: u64::from(self.qp) << 32 | u64::from(self.ah),
                key: QKEY,
                ..SendWqe::default()
            };
            self.guest.post_send(&wqe, &[]);
        }
        self.pair.a.ring(self.qp, &self.guest);
        self.pair.settle();
    }

    fn interrupts(&mut self) -> Vec<u16> {
        core::mem::take(&mut self.host().hca.interrupts_mut().0)
    }

    /// The completion events there are.
    fn events(&mut self) -> usize {
        let cqn = self.cqn;
        let events = core::iter::from_fn(|| self.eq.poll());
        events
            .inspect(|e| {
                assert_eq!(e.event, EventType::CqCompletion.raw());
                assert_eq!(e.number, cqn);
            })
            .count()
    }
}

#[test]
fn one_event_for_each_arming() {
    let mut rig = Rig::new();
    rig.send(3, SEND_SIGNALED);
    assert_eq!(rig.events(), 0, "not armed yet");
    rig.arm_cq(CQ_ARM_NEXT);
    rig.pair.settle();
    assert_eq!(rig.events(), 0, "only completions to come count");
    rig.send(3, SEND_SIGNALED);
    assert_eq!(rig.events(), 1);
    rig.send(3, SEND_SIGNALED);
    assert_eq!(rig.events(), 0);
    rig.arm_cq(CQ_ARM_NEXT);
    rig.send(1, 0);
    assert_eq!(rig.events(), 1);
    assert_eq!(rig.interrupts(), [], "the event queue is not armed");
}

#[test]
fn solicited_arming_waits_for_solicited_or_failed_completions() {
    let mut rig = Rig::new();
    rig.arm_cq(CQ_ARM_SOLICITED);
    rig.send(2, SEND_SIGNALED);
    assert_eq!(rig.events(), 0);
    rig.send(1, SEND_SIGNALED | SEND_SOLICITED);
    assert_eq!(rig.events(), 1);
    rig.arm_cq(CQ_ARM_SOLICITED);
    rig.ah += 1000;
    rig.send(1, 0);
    assert_eq!(rig.events(), 1, "a failure counts as solicited");
}

#[test]
fn one_interrupt_for_each_arming_of_the_event_queue() {
    let mut rig = Rig::new();
    rig.eq.arm(1);
    rig.arm_cq(CQ_ARM_NEXT);
    rig.send(1, 0);
    assert_eq!(rig.interrupts(), [3]);
    rig.arm_cq(CQ_ARM_NEXT);
    rig.send(1, 0);
    assert_eq!(rig.interrupts(), []);
    rig.eq.arm(2);
    rig.arm_cq(CQ_ARM_NEXT);
    rig.send(1, 0);
    assert_eq!(rig.interrupts(), [3]);
    assert_eq!(rig.events(), 3);
}

#[test]
fn the_phase_turns_with_each_pass() {
    let mut rig = Rig::with_cq(5);
    // 32 entries, two for each message: three passes and more.
    for i in 0..60 {
        rig.send(1, SEND_SIGNALED);
        assert_eq!(rig.cq.poll().unwrap().opcode, 0, "{i}");
        assert_eq!(rig.cq.poll().unwrap().opcode, 0x80, "{i}");
        assert_eq!(rig.cq.poll(), None);
    }
    // The event queue has 16 entries.
    for _ in 0..40 {
        rig.arm_cq(CQ_ARM_NEXT);
        rig.send(1, SEND_SIGNALED);
        assert_eq!(rig.events(), 1);
        while rig.cq.poll().is_some() {}
    }
}

#[test]
fn moderation_by_count_and_by_time() {
    let mut rig = Rig::new();
    let cq = rig.cqn;
    let moderate = ModifyCq {
        cq,
        count: 4,
        period: 100,
        ..ModifyCq::default()
    };
    rig.host().command(Opcode::ModifyCq, moderate).unwrap();
    rig.arm_cq(CQ_ARM_NEXT);
    rig.send(3, 0);
    assert_eq!(rig.events(), 0, "held back");
    rig.send(1, 0);
    assert_eq!(rig.events(), 1, "the fourth is enough");
    rig.arm_cq(CQ_ARM_NEXT);
    rig.send(1, 0);
    rig.pair.run_for(Duration::from_micros(99));
    assert_eq!(rig.events(), 0);
    rig.pair.run_for(Duration::from_micros(1));
    assert_eq!(rig.events(), 1, "after the period");
    // A CQ that goes while its event is held back leaves no deadline.
    rig.arm_cq(CQ_ARM_NEXT);
    rig.send(1, 0);
    let qp = rig.qp;
    rig.host().destroy(Opcode::DestroyQp, qp).unwrap();
    rig.host().destroy(Opcode::DestroyCq, cq).unwrap();
    rig.pair.run_for(Duration::from_millis(1));
    assert_eq!(rig.events(), 0);
}

#[test]
fn completion_events_wait_for_room() {
    let mut rig = Rig::new();
    for _ in 0..40 {
        rig.arm_cq(CQ_ARM_NEXT);
        rig.send(1, 0);
    }
    assert_eq!(rig.host().reg(regs::STATUS), regs::STATUS_READY);
    assert_eq!(rig.events(), 12, "a quarter of the queue stays free");
    // The last arming has its event as soon as there is room.
    rig.pair.run_for(Duration::from_millis(1));
    assert_eq!(rig.events(), 1);
    rig.pair.run_for(Duration::from_millis(1));
    assert_eq!(rig.events(), 0);
}

#[test]
fn an_event_queue_that_nobody_reads_is_fatal() {
    let mut rig = Rig::new();
    let h = rig.host();
    for token in 0..257 {
        h.submit(&CmdSlot {
            opcode: Opcode::AllocPd.raw(),
            flags: SLOT_EVENT,
            token,
            owner: OWNER_DEVICE,
            ..CmdSlot::default()
        });
    }
    assert_eq!(h.reg(regs::STATUS), regs::STATUS_FATAL);
    let reason = h.reg(regs::FATAL_REASON);
    assert_eq!(reason, FatalReason::EventQueueOverrun.raw());
    // Nothing moves any more, until a reset.
    rig.send(1, SEND_SIGNALED);
    let h = rig.host();
    h.enable();
    assert_eq!(h.reg(regs::STATUS), regs::STATUS_READY);
    assert_eq!(h.objects().cqs, 0);
}

#[test]
fn ports_tell_of_themselves() {
    let mut pair = Pair::new(ochre_link::mem::MemConfig::default());
    pair.bring_up();
    pair.b.hca.link_mut(1).unwrap().cable_mut().plug(false);
    pair.run_for(Duration::from_millis(10));
    assert_eq!(pair.a.events(), [(EventType::PortError, 1, 0)]);
    assert_ne!(pair.a.query_port().state, 4);
}

#[test]
fn events_of_many_qps_wait_for_room() {
    const QPS: usize = 300;
    let mut pair = Pair::active();
    let h = &mut pair.a;
    let pd = h.alloc_pd();
    let (cqn, _) = h.create_cq(0, 1);
    let mut qps: Vec<_> = (0..QPS)
        .map(|_| {
            let (qp, guest) = h.create_qp(QpType::Ud, pd, [cqn, cqn], &SIZES);
            h.start_datagram(qp, QpType::Ud, QKEY);
            (qp, guest)
        })
        .collect();
    let ah = h.create_ah(
        pd,
        AddressVector {
            dlid: LID_A,
            port: 1,
            ..AddressVector::default()
        },
    );
    assert_eq!(h.events(), []);
    // The queue of asynchronous events has 256 entries. One completion too many breaks the CQ, and
    // all of its QPs.
    let (first, guest) = &mut qps[0];
    for _ in 0..3 {
        let wqe = SendWqe {
            opcode: SendOpcode::Send.raw(),
            flags: SEND_SIGNALED,
            remote: 0xabcdef << 32 | u64::from(ah),
            ..SendWqe::default()
        };
        guest.post_send(&wqe, &[]);
    }
    h.ring(*first, guest);
    assert_eq!(h.reg(regs::STATUS), regs::STATUS_READY);
    // Commands have room of their own, and a QP that goes takes its events along.
    let gone = qps.pop().unwrap().0;
    h.destroy(Opcode::DestroyQp, gone).unwrap();
    let mut events = h.events();
    assert_eq!(events.len(), 192);
    for _ in 0..2 {
        pair.run_for(Duration::from_millis(1));
        events.extend(pair.a.events());
    }
    let fatal = |&(qp, _): &(u32, GuestQp)| (EventType::QpFatal, 0, qp);
    let all: Vec<_> = core::iter::once((EventType::CqError, 0, cqn))
        .chain(qps.iter().map(fatal))
        .collect();
    assert_eq!(events, all);
}
