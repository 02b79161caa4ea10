// SPDX-License-Identifier: GPL-2.0-or-later
//! The sending side, packet by packet.

mod retry;

use ochre_hw::cqe::CqeStatus;
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{access, QpState, QpType};
use ochre_hw::wqe::{
    AtomicSegment, SendOpcode, SendWqe, SEND_FENCE, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED,
};
use ochre_wire::{Operation, Packet, Psn};

use crate::bed::{Bed, DATA};
use crate::seams::Dma;

/// Operations of packets under way.
fn operations<'a>(packets: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<Operation> {
    packets
        .into_iter()
        .map(|p| Packet::parse(p).unwrap().bth().opcode.op)
        .collect()
}

fn psns<'a>(packets: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u32> {
    packets
        .into_iter()
        .map(|p| Packet::parse(p).unwrap().bth().psn.get())
        .collect()
}

#[test]
fn queue_indices_pass_the_end_of_32_bits() {
    for before in [0, 1, 5, 63] {
        let mut bed = Bed::rc();
        let start = u32::MAX - before;
        bed.a.start_at(start);
        bed.b.start_at(start);
        for n in 0..200u32 {
            let bytes = bed.a.fill(0, 300, n as u8);
            let room = bed.b.sge(1000, 300);
            bed.b.guest.post_recv(n.into(), &[room]);
            let sge = bed.a.sge(0, 300);
            let id = bed.a.post(SendOpcode::Send, &[sge], 0, 0);
            bed.settle();
            let next = start.wrapping_add(n + 1);
            let sent = bed.a.sent(CqeStatus::Success);
            assert_eq!((sent.wr_id, sent.wqe_index), (id, next));
            let received = bed.b.received(CqeStatus::Success);
            assert_eq!((received.wr_id, received.wqe_index), (n.into(), next));
            assert_eq!(bed.b.bytes(1000, 300), bytes);
        }
    }
}

#[test]
fn a_message_is_cut_into_packets_of_the_path_mtu() {
    use Operation::{SendFirst, SendLast, SendMiddle, SendOnly, WriteFirst, WriteLast, WriteOnly};
    let cases: &[(SendOpcode, u32, &[Operation])] = &[
        (SendOpcode::Send, 0, &[SendOnly]),
        (SendOpcode::Send, 256, &[SendOnly]),
        (SendOpcode::Send, 257, &[SendFirst, SendLast]),
        (SendOpcode::Send, 768, &[SendFirst, SendMiddle, SendLast]),
        (
            SendOpcode::SendImm,
            300,
            &[SendFirst, Operation::SendLastImm],
        ),
        (SendOpcode::SendImm, 3, &[Operation::SendOnlyImm]),
        (SendOpcode::Write, 1, &[WriteOnly]),
        (SendOpcode::Write, 512, &[WriteFirst, WriteLast]),
        (SendOpcode::WriteImm, 0, &[Operation::WriteOnlyImm]),
        (
            SendOpcode::WriteImm,
            257,
            &[WriteFirst, Operation::WriteLastImm],
        ),
        (SendOpcode::Read, 5000, &[Operation::ReadRequest]),
    ];
    for &(opcode, len, expected) in cases {
        let mut bed = Bed::rc();
        let sge = bed.a.sge(0, len);
        bed.a.post(opcode, &[sge], bed.b.data, bed.b.key);
        bed.a.run();
        assert_eq!(
            operations(&bed.a.wire.packets),
            expected,
            "{opcode:?} of {len}"
        );
        let last = Packet::parse(bed.a.wire.packets.back().unwrap()).unwrap();
        assert_eq!(last.bth().ack_req, opcode != SendOpcode::Read);
    }
}

#[test]
fn every_operation_moves_its_bytes_and_completes() {
    for &opcode in SendOpcode::ALL {
        for len in [0usize, 1, 255, 256, 257, 5000] {
            if matches!(opcode, SendOpcode::SendInvalidate)
                || matches!(opcode, SendOpcode::CompareSwap | SendOpcode::FetchAdd)
            {
                continue;
            }
            let mut bed = Bed::rc();
            let is_read = opcode == SendOpcode::Read;
            let source = if is_read { &bed.b } else { &bed.a };
            let bytes = source.fill(64, len, 0x5a);
            // Three elements, the last of them empty.
            let first = (len / 3) as u32;
            let sges = [
                bed.a.sge(64, first),
                bed.a.sge(64 + u64::from(first), len as u32 - first),
                bed.a.sge(0, 0),
            ];
            let recv = bed.b.sge(64, len as u32);
            bed.b.guest.post_recv(77, &[recv]);
            let id = bed.a.post(opcode, &sges, bed.b.data + 64, bed.b.key);
            bed.settle();
            let cqe = bed.a.sent(CqeStatus::Success);
            assert_eq!((cqe.wr_id, cqe.wqe_index), (id, 1), "{opcode:?} of {len}");
            assert_eq!(cqe.byte_len as usize, if is_read { len } else { 0 });
            let sink = if is_read { &bed.a } else { &bed.b };
            assert_eq!(sink.bytes(64, len), bytes, "{opcode:?} of {len}");
            let takes = matches!(
                opcode,
                SendOpcode::Send | SendOpcode::SendImm | SendOpcode::WriteImm
            );
            if takes {
                let cqe = bed.b.received(CqeStatus::Success);
                assert_eq!((cqe.wr_id, cqe.byte_len as usize), (77, len));
                if opcode != SendOpcode::Send {
                    assert_eq!(cqe.imm.to_le_bytes(), [0xa, 0xb, 0xc, 0xd]);
                }
            }
            assert!(bed.b.recv_cq.poll().is_none());
            assert_eq!(bed.a.qp.sched.deadline(), None);
        }
    }
}

#[test]
fn atomics_give_the_value_before() {
    let mut bed = Bed::rc();
    bed.b.mem.write(bed.b.data, &5u64.to_le_bytes()).unwrap();
    let (at, key) = (bed.b.data, bed.b.key);
    let add = AtomicSegment {
        swap_or_add: 7,
        compare: 0,
    };
    bed.a.post_atomic(SendOpcode::FetchAdd, add, 0, at, key);
    let swap = AtomicSegment {
        swap_or_add: 99,
        compare: 12,
    };
    bed.a.post_atomic(SendOpcode::CompareSwap, swap, 8, at, key);
    bed.a
        .post_atomic(SendOpcode::CompareSwap, swap, 16, at, key);
    bed.settle();
    for _ in 0..3 {
        assert_eq!(bed.a.sent(CqeStatus::Success).byte_len, 8);
    }
    assert_eq!(bed.a.bytes(0, 8), 5u64.to_le_bytes());
    assert_eq!(bed.a.bytes(8, 8), 12u64.to_le_bytes());
    assert_eq!(bed.a.bytes(16, 8), 99u64.to_le_bytes());
    assert_eq!(bed.b.bytes(0, 8), 99u64.to_le_bytes());
}

#[test]
fn inline_data_are_sent_from_the_slot() {
    let mut bed = Bed::rc();
    bed.b.guest.post_recv(1, &[bed.b.sge(0, 64)]);
    let wqe = SendWqe {
        opcode: SendOpcode::Send.raw(),
        flags: SEND_INLINE | SEND_SIGNALED | SEND_SOLICITED,
        inline_len: 5,
        ..SendWqe::default()
    };
    bed.a.guest.post_send(&wqe, b"ochre");
    bed.settle();
    bed.a.sent(CqeStatus::Success);
    let cqe = bed.b.received(CqeStatus::Success);
    assert_eq!(
        cqe.flags & ochre_hw::cqe::CQE_SOLICITED,
        ochre_hw::cqe::CQE_SOLICITED
    );
    assert_eq!(bed.b.bytes(0, 5), b"ochre");
}

#[test]
fn unsignaled_requests_complete_silently_but_free_their_slots() {
    let mut bed = Bed::rc();
    let (data, key) = (bed.b.data, bed.b.key);
    for flags in [0, 0, SEND_SIGNALED, 0] {
        let sge = bed.a.sge(0, 8);
        bed.a.post_with(SendOpcode::Write, flags, &[sge], data, key);
    }
    bed.settle();
    let cqe = bed.a.sent(CqeStatus::Success);
    assert_eq!((cqe.wr_id, cqe.wqe_index), (2, 3));
    assert!(bed.a.send_cq.poll().is_none());
    assert_eq!(bed.a.qp.sq.tail, 4);
}

#[test]
fn a_slot_is_read_once() {
    // The number of elements changes after the request was taken up: nothing of that is seen, also
    // not when the packets are sent again.
    let mut bed = Bed::rc();
    let bytes = bed.a.fill(0, 600, 1);
    let sges = [bed.a.sge(0, 300), bed.a.sge(300, 300)];
    let (data, key) = (bed.b.data, bed.b.key);
    bed.a.post(SendOpcode::Write, &sges, data, key);
    bed.a.run();
    bed.a.wire.packets.clear();
    let slot = bed.a.guest.send_slot(0);
    bed.a.mem.write(slot, &[0xff; 64]).unwrap();
    bed.wait(4);
    assert_eq!(bed.a.sent(CqeStatus::Success).wr_id, 0);
    assert_eq!(bed.b.bytes(0, 600), bytes);
}

#[test]
fn malformed_requests_fail_in_their_turn() {
    let mut bed = Bed::rc();
    let (data, key) = (bed.b.data, bed.b.key);
    let good = bed.a.sge(0, 1000);
    bed.a.post(SendOpcode::Write, &[good], data, key);
    bed.a.guest.post_send(
        &SendWqe {
            opcode: 99,
            wr_id: 1,
            ..SendWqe::default()
        },
        &[],
    );
    bed.a.post(SendOpcode::Write, &[good], data, key);
    bed.wait(4);
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.a.sent(CqeStatus::LocalQpOperation).wr_id, 1);
    let flushed = bed.a.sent(CqeStatus::WorkRequestFlushed);
    assert_eq!((flushed.wr_id, flushed.wqe_index), (2, 3));
    assert_eq!(bed.a.qp.state, QpState::Error);
    assert_eq!(bed.a.event(), None);
}

#[test]
fn local_keys_and_rights_are_checked() {
    let read_only = access::REMOTE_READ;
    for (opcode, status) in [
        (SendOpcode::Write, CqeStatus::Success),
        (SendOpcode::Read, CqeStatus::LocalProtection),
    ] {
        let mut bed = Bed::rc();
        let mut sge = bed.a.sge(0, 8);
        sge.lkey = bed.a.region(read_only);
        bed.a.post(opcode, &[sge], bed.b.data, bed.b.key);
        bed.settle();
        bed.a.sent(status);
    }
    for wrong in [0, 1] {
        let mut bed = Bed::rc();
        let mut sge = bed.a.sge(DATA - 8, 8);
        if wrong == 0 {
            sge.lkey ^= 1;
        } else {
            sge.length = 9;
        }
        bed.a.post(SendOpcode::Send, &[sge], 0, 0);
        bed.settle();
        bed.a.sent(CqeStatus::LocalProtection);
    }
}

#[test]
fn a_region_that_goes_while_it_is_sent_fails_the_request() {
    let mut bed = Bed::rc();
    let mut sge = bed.a.sge(0, 4096);
    sge.lkey = bed.a.region(access::LOCAL_WRITE);
    bed.a.post(SendOpcode::Write, &[sge], bed.b.data, bed.b.key);
    bed.a.wire.credits = Some(3);
    bed.a.run();
    bed.a.ctx.mrs.remove(sge.lkey).unwrap();
    bed.a.wire.credits = None;
    bed.settle();
    bed.a.sent(CqeStatus::LocalProtection);
    assert_eq!(bed.a.qp.state, QpState::Error);
}

#[test]
fn the_longest_message_goes_and_one_byte_more_does_not() {
    for (extra, status) in [(0u32, None), (1, Some(CqeStatus::LocalLength))] {
        let mut bed = Bed::rc();
        let (whole, data) = (1 << 20, bed.b.data);
        let mr = crate::mem::Mr {
            pd: 1,
            access: access::REGION,
            target: crate::mem::Target::WholeMemory,
        };
        let key = bed.a.ctx.mrs.insert(mr).ok().unwrap();
        let sge = |length| ochre_hw::wqe::Sge {
            addr: 0,
            length,
            lkey: key,
        };
        bed.a.post(
            SendOpcode::Read,
            &[sge(1 << 30), sge(1 << 30), sge(extra)],
            data,
            bed.b.key,
        );
        bed.a.run();
        match status {
            Some(status) => {
                bed.a.sent(status);
            }
            None => {
                // 2^31 bytes at an MTU of 256 take half of the number space.
                let packet = Packet::parse(&bed.a.wire.packets[0]).unwrap();
                assert_eq!(packet.reth().unwrap().len, 1 << 31);
                assert_eq!(bed.a.qp.requester.end, Psn::new(100 + (1 << 23)));
                assert!(whole < packet.reth().unwrap().len);
            }
        }
    }
}

#[test]
fn reads_under_way_are_limited() {
    let mut bed = Bed::rc();
    let (data, key) = (bed.b.data, bed.b.key);
    for i in 0..9 {
        let sge = bed.a.sge(i * 8, 8);
        bed.a.post(SendOpcode::Read, &[sge], data, key);
    }
    bed.a.run();
    assert_eq!(bed.a.wire.packets.len(), 4);
    bed.deliver_a(usize::MAX);
    bed.b.run();
    bed.deliver_b(1);
    bed.a.run();
    assert_eq!(bed.a.wire.packets.len(), 1);
    bed.settle();
    for _ in 0..9 {
        bed.a.sent(CqeStatus::Success);
    }
}

#[test]
fn without_any_read_allowed_a_read_is_refused_and_writes_go() {
    let mut bed = Bed::new(QpType::Rc, |attr| {
        attr.max_rd_atomic = 0;
        attr.max_dest_rd_atomic = 0;
    });
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 8);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.post(SendOpcode::Read, &[sge], data, key);
    bed.wait(3);
    bed.a.sent(CqeStatus::Success);
    bed.a.sent(CqeStatus::LocalQpOperation);
}

#[test]
fn a_fence_waits_for_reads() {
    let mut bed = Bed::rc();
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 600);
    bed.a.post(SendOpcode::Read, &[sge], data, key);
    bed.a.post_with(
        SendOpcode::Write,
        SEND_FENCE | SEND_SIGNALED,
        &[sge],
        data,
        key,
    );
    bed.a.run();
    assert_eq!(operations(&bed.a.wire.packets), [Operation::ReadRequest]);
    bed.deliver_a(1);
    bed.b.run();
    assert_eq!(bed.b.wire.packets.len(), 3);
    bed.deliver_b(2);
    bed.a.run();
    assert!(bed.a.wire.packets.is_empty());
    bed.deliver_b(1);
    bed.a.run();
    assert_eq!(bed.a.wire.packets.len(), 3);
}

#[test]
fn an_unreliable_connection_completes_at_once_and_survives_a_bad_request() {
    let mut bed = Bed::new(QpType::Uc, |_| ());
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 600);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.run();
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.a.wire.packets.len(), 3);
    bed.a.post(SendOpcode::Read, &[sge], data, key);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.run();
    bed.a.sent(CqeStatus::LocalQpOperation);
    bed.a.sent(CqeStatus::WorkRequestFlushed);
    assert_eq!(bed.a.qp.state, QpState::Sqe);
    bed.a.go(QpState::Rts);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.settle();
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.a.qp.state, QpState::Rts);
    assert_eq!(bed.b.qp.state, QpState::Rts);
}

#[test]
fn draining_ends_what_was_begun_and_nothing_more() {
    let mut bed = Bed::rc();
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 256 * 10);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.wire.credits = Some(3);
    bed.a.run();
    let attr = ochre_hw::verbs::QpAttr {
        state: QpState::Sqd.raw(),
        sqd_event: 1,
        ..Default::default()
    };
    use ochre_hw::verbs::qp_attr::{EN_SQD_ASYNC_NOTIFY, STATE};
    bed.a.modify(STATE | EN_SQD_ASYNC_NOTIFY, &attr);
    let is_draining = |bed: &Bed| crate::qp::query(&bed.a.qp, &bed.a.ctx).sq_draining;
    assert_eq!(is_draining(&bed), 1);
    bed.a.wire.credits = None;
    bed.wait(3);
    bed.a.sent(CqeStatus::Success);
    assert!(bed.a.send_cq.poll().is_none());
    assert_eq!(bed.a.event(), Some(EventType::QpSqDrained));
    assert_eq!(is_draining(&bed), 0);
    bed.a.go(QpState::Rts);
    bed.wait(3);
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.a.event(), None);
}

#[test]
fn a_producer_index_out_of_range_breaks_only_the_qp() {
    let mut bed = Bed::rc();
    bed.a.mem.store_u32(bed.a.guest.base, 65).unwrap();
    bed.a.run();
    assert_eq!(bed.a.qp.state, QpState::Error);
    assert_eq!(bed.a.event(), Some(EventType::QpFatal));
}

#[test]
fn the_engine_asks_for_doorbells_only_when_it_sleeps() {
    let mut bed = Bed::rc();
    bed.a.run();
    assert!(bed.a.guest.wants_send_doorbell());
    let (data, key) = (bed.b.data, bed.b.key);
    let sge = bed.a.sge(0, 256 * 10);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.wire.credits = Some(3);
    bed.a.run();
    assert!(!bed.a.guest.wants_send_doorbell());
    bed.a.wire.credits = None;
    bed.settle();
    assert!(bed.a.guest.wants_send_doorbell());
}

#[test]
fn an_idle_qp_is_small() {
    assert!(size_of::<crate::qp::Qp>() < 2048);
}
