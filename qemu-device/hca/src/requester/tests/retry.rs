// SPDX-License-Identifier: GPL-2.0-or-later
//! What is lost, refused or late: sending again, and giving up.

use core::time::Duration;

use ochre_hw::cmd::port::Counter;
use ochre_hw::cqe::CqeStatus;
use ochre_hw::verbs::{QpState, QpType};
use ochre_hw::wqe::SendOpcode;
use ochre_wire::{Packet, Psn};

use super::psns;
use crate::bed::Bed;

#[test]
fn a_lost_packet_is_sent_again_after_the_time_out() {
    let mut bed = Bed::rc();
    let bytes = bed.a.fill(0, 2000, 3);
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 2000);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.run();
    bed.a.wire.packets.clear();
    bed.wait(3);
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.b.bytes(0, 2000), bytes);
    assert_eq!(bed.a.ctx.counter(1, Counter::LocalAckTimeouts), 1);
}

#[test]
fn retries_end_and_begin_anew_with_each_progress() {
    let mut bed = Bed::new(QpType::Rc, |attr| attr.retry_count = 2);
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 256 * 40);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    // Twice nothing arrives, then the first 35 packets do, then twice nothing more, then all.
    for round in 0..5 {
        bed.a.run();
        if round == 2 {
            bed.deliver_a(35);
            bed.b.run();
            bed.deliver_b(usize::MAX);
            bed.a.wire.packets.clear();
        } else if round == 4 {
            bed.settle();
            break;
        }
        bed.a.wire.packets.clear();
        bed.b.wire.packets.clear();
        bed.pass(Duration::from_millis(4));
    }
    bed.wait(3);
    bed.a.sent(CqeStatus::Success);
    bed.a.sent(CqeStatus::Success);
    // Nobody there any more.
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    for _ in 0..3 {
        bed.a.run();
        bed.a.wire.packets.clear();
        assert_eq!(bed.a.qp.state, QpState::Rts);
        bed.pass(Duration::from_millis(4));
    }
    bed.a.run();
    bed.a.sent(CqeStatus::RetryExceeded);
    bed.a.sent(CqeStatus::WorkRequestFlushed);
    assert_eq!(bed.a.ctx.counter(1, Counter::RetryExceeded), 1);
}

#[test]
fn a_gap_is_refused_once_and_sent_again_from_there() {
    let mut bed = Bed::rc();
    let bytes = bed.a.fill(0, 256 * 8, 9);
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 256 * 8);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.run();
    bed.a.wire.packets.remove(2);
    bed.deliver_a(usize::MAX);
    bed.b.run();
    assert_eq!(bed.b.wire.packets.len(), 1);
    bed.deliver_b(1);
    bed.a.run();
    assert_eq!(psns(&bed.a.wire.packets), (102..108).collect::<Vec<_>>());
    bed.settle();
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.b.bytes(0, 256 * 8), bytes);
    assert_eq!(bed.a.ctx.counter(1, Counter::PacketSeqErrors), 1);
    assert_eq!(bed.b.ctx.counter(1, Counter::OutOfSequence), 1);
}

#[test]
fn a_lost_acknowledge_is_made_up_for_by_a_later_one() {
    let mut bed = Bed::rc();
    let (data, key) = (bed.b.data, bed.b.key);
    for _ in 0..2 {
        let sge = bed.a.sge(0, 8);
        bed.a.post(SendOpcode::Write, &[sge], data, key);
        bed.a.run();
        bed.deliver_a(1);
        bed.b.run();
    }
    bed.b.wire.packets.pop_front();
    bed.deliver_b(1);
    bed.a.sent(CqeStatus::Success);
    bed.a.sent(CqeStatus::Success);
}

#[test]
fn the_rest_of_a_read_is_asked_for_where_its_response_breaks_off() {
    let mut bed = Bed::rc();
    let bytes = bed.b.fill(0, 256 * 6 + 10, 4);
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 256 * 6 + 10);
    bed.a.post(SendOpcode::Read, &[sge], data, key);
    let write = bed.a.sge(0, 8);
    bed.a.post(SendOpcode::Write, &[write], data + 8192, key);
    bed.a.run();
    bed.deliver_a(usize::MAX);
    bed.b.run();
    // Seven packets of the response, and the acknowledge of the WRITE. The fourth is lost.
    assert_eq!(bed.b.wire.packets.len(), 8);
    bed.b.wire.packets.remove(3);
    bed.deliver_b(usize::MAX);
    bed.a.run();
    let again = Packet::parse(&bed.a.wire.packets[0]).unwrap();
    assert_eq!(again.bth().psn, Psn::new(103));
    let reth = again.reth().unwrap();
    assert_eq!((reth.va, reth.len), (data + 768, 256 * 3 + 10));
    bed.settle();
    bed.a.sent(CqeStatus::Success);
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.a.bytes(0, bytes.len()), bytes);
    assert_eq!(bed.a.ctx.counter(1, Counter::ImpliedNakSeqErrors), 1);
}

#[test]
fn rnr_naks_wait_for_their_timer_and_are_counted() {
    for (rnr_retry, gives_up) in [(2, true), (7, false)] {
        let mut bed = Bed::new(QpType::Rc, |attr| {
            attr.rnr_retry = rnr_retry;
            attr.min_rnr_timer = 14;
        });
        let sge = bed.a.sge(0, 10);
        bed.a.post(SendOpcode::Send, &[sge], 0, 0);
        for round in 0..20 {
            bed.settle();
            if bed.a.qp.state == QpState::Error {
                assert_eq!(round, 2);
                break;
            }
            // Code 14 stands for 1.28 ms; nothing is sent before they are over.
            bed.pass(Duration::from_micros(1279));
            bed.a.run();
            assert!(bed.a.wire.packets.is_empty());
            bed.pass(Duration::from_micros(1));
        }
        if gives_up {
            assert_eq!(bed.a.sent(CqeStatus::RnrRetryExceeded).syndrome, 0x20 | 14);
        } else {
            bed.b.guest.post_recv(5, &[bed.b.sge(0, 10)]);
            bed.settle();
            bed.a.sent(CqeStatus::Success);
            bed.b.received(CqeStatus::Success);
        }
    }
}

#[test]
fn ghosts_are_ignored() {
    let mut bed = Bed::rc();
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 8);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.run();
    bed.deliver_a(1);
    bed.b.run();
    let ack = bed.b.wire.packets[0].clone();
    for _ in 0..3 {
        bed.a.receive(&ack);
    }
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.run();
    bed.a.receive(&ack);
    bed.a.sent(CqeStatus::Success);
    assert!(bed.a.send_cq.poll().is_none());
}

#[test]
fn psns_wrap_in_the_middle_of_a_message() {
    for opcode in [SendOpcode::Write, SendOpcode::Read, SendOpcode::Send] {
        let mut bed = Bed::new(QpType::Rc, |attr| {
            attr.sq_psn = 0xff_fffd;
            attr.rq_psn = 0xff_fffd;
        });
        let (from, to) = if opcode == SendOpcode::Read {
            (&bed.b, &bed.a)
        } else {
            (&bed.a, &bed.b)
        };
        let bytes = from.fill(0, 256 * 9, 8);
        to.fill(0, 256 * 9, 77);
        bed.b.guest.post_recv(0, &[bed.b.sge(0, 256 * 9)]);
        let sge = bed.a.sge(0, 256 * 9);
        let (data, key) = (bed.b.data, bed.b.key);
        bed.a.post(opcode, &[sge], data, key);
        bed.a.run();
        if opcode != SendOpcode::Read {
            bed.a.wire.packets.remove(4);
        }
        bed.settle();
        bed.wait(3);
        bed.a.sent(CqeStatus::Success);
        let to = if opcode == SendOpcode::Read {
            &bed.a
        } else {
            &bed.b
        };
        assert_eq!(to.bytes(0, 256 * 9), bytes, "{opcode:?}");
    }
}
