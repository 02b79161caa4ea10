// SPDX-License-Identifier: GPL-2.0-or-later
//! The answering side, packet by packet.

use ochre_hw::cmd::port::Counter;
use ochre_hw::cqe::CqeStatus;
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{access, QpState, QpType};
use ochre_hw::wqe::{AtomicSegment, SendOpcode};
use ochre_wire::{
    write_trailer, Bth, Build, Ext, Lid, NakCode, Opcode, Operation, PKey, Packet, Psn, Qpn, Reth,
    Sl, Syndrome, Vl,
};

use crate::bed::{Bed, DATA};
use crate::seams::Dma;

/// A packet to the QP of `b`, as a peer of ill will may make it.
fn packet(bed: &Bed, op: Operation, psn: u32, ext: Ext, payload: &[u8]) -> Vec<u8> {
    let dest = Qpn::new(bed.b.qp.number);
    let build = Build {
        vl: Vl::VL0,
        sl: Sl::new(0),
        slid: Lid(1),
        dlid: Lid(2),
        grh: None,
        bth: Bth {
            ack_req: true,
            ..Bth::new(Opcode::rc(op), PKey::DEFAULT, dest, Psn::new(psn))
        },
        ext,
    };
    let mut bytes = vec![0; build.packet_len(payload.len())];
    let headers = build.write_headers(payload.len(), &mut bytes).unwrap();
    bytes[headers..headers + payload.len()].copy_from_slice(payload);
    write_trailer(&mut bytes, headers, payload.len()).unwrap();
    bytes
}

fn write_to(bed: &Bed, at: u64, len: u32) -> Ext {
    Ext {
        reth: Reth {
            va: bed.b.data + at,
            rkey: bed.b.key,
            len,
        },
        ..Ext::default()
    }
}

/// What `b` answers, all of it: PSN and syndrome.
fn answers(bed: &mut Bed) -> Vec<(u32, Syndrome)> {
    bed.b.run();
    let mut answers = Vec::new();
    while let Some(packet) = bed.b.wire.packets.pop_front() {
        let packet = Packet::parse(&packet).unwrap();
        if let Some(aeth) = packet.aeth() {
            answers.push((packet.bth().psn.get(), aeth.syndrome));
        }
    }
    answers
}

const INVALID: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);
const ACCESS: Syndrome = Syndrome::Nak(NakCode::RemoteAccess);
const ACK: Syndrome = Syndrome::ACK_NO_CREDITS;

#[test]
fn wrong_sequences_of_operations_are_invalid() {
    use Operation::{ReadRequest, SendLast, SendMiddle, SendOnly, WriteFirst, WriteLast};
    let cases: &[&[Operation]] = &[
        &[SendMiddle],
        &[SendLast],
        &[WriteLast],
        &[WriteFirst, SendOnly],
        &[WriteFirst, SendLast],
        &[WriteFirst, WriteFirst],
        &[WriteFirst, ReadRequest],
        &[WriteFirst, Operation::FetchAdd],
    ];
    for &case in cases {
        let mut bed = Bed::rc();
        for (i, &op) in case.iter().enumerate() {
            let len = if op.has_payload() { 256 } else { 0 };
            let ext = write_to(&bed, 0, 1024);
            let p = packet(&bed, op, 100 + i as u32, ext, &vec![1; len]);
            bed.b.receive(&p);
        }
        let last = 100 + case.len() as u32 - 1;
        assert_eq!(answers(&mut bed).last(), Some(&(last, INVALID)), "{case:?}");
        assert_eq!(bed.b.qp.state, QpState::Error);
        assert_eq!(bed.b.event(), Some(EventType::QpRequestError));
        assert_eq!(bed.b.ctx.counter(1, Counter::RemoteInvalidRequests), 1);
    }
}

#[test]
fn packets_of_wrong_length_are_invalid() {
    use Operation::{WriteFirst, WriteLast, WriteMiddle, WriteOnly};
    // Length of the whole, then the packets with their payloads.
    let cases: &[(u32, &[(Operation, usize)])] = &[
        (512, &[(WriteFirst, 255)]),
        (512, &[(WriteFirst, 257)]),
        (256, &[(WriteFirst, 256)]),
        (600, &[(WriteFirst, 256), (WriteMiddle, 100)]),
        (512, &[(WriteFirst, 256), (WriteMiddle, 256)]),
        (512, &[(WriteFirst, 256), (WriteLast, 255)]),
        (512, &[(WriteFirst, 256), (WriteLast, 0)]),
        (256, &[(WriteOnly, 255)]),
        (512, &[(WriteOnly, 512)]),
        (0, &[(WriteOnly, 1)]),
        ((1 << 31) + 1, &[(WriteFirst, 256)]),
    ];
    for &(len, packets) in cases {
        let mut bed = Bed::rc();
        for (i, &(op, payload)) in packets.iter().enumerate() {
            let ext = write_to(&bed, 0, len);
            let p = packet(&bed, op, 100 + i as u32, ext, &vec![1; payload]);
            bed.b.receive(&p);
        }
        let answers = answers(&mut bed);
        assert_eq!(answers.last().unwrap().1, INVALID, "{len} {packets:?}");
    }
}

#[test]
fn memory_is_touched_only_with_key_range_and_right() {
    for case in 0..6 {
        let mut bed = Bed::rc();
        let before = bed.b.fill(0, DATA as usize, 3);
        let mut ext = write_to(&bed, 0, 512);
        let mut syndrome = ACCESS;
        match case {
            0 => ext.reth.rkey ^= 0x100,
            1 => ext.reth.rkey ^= 1,
            2 => ext.reth.va = bed.b.data - 1,
            // The end of the whole message counts at its first packet.
            3 => ext.reth.va = bed.b.data + DATA - 511,
            4 => ext.reth.rkey = bed.b.region(access::LOCAL_WRITE | access::REMOTE_READ),
            _ => {
                bed.b.qp.attr.access &= !access::REMOTE_WRITE;
                syndrome = INVALID;
            }
        }
        let p = packet(&bed, Operation::WriteFirst, 100, ext, &[9; 256]);
        bed.b.receive(&p);
        assert_eq!(answers(&mut bed), [(100, syndrome)], "case {case}");
        assert!(bed.b.bytes(0, DATA as usize) == before, "case {case}");
        assert_eq!(bed.b.qp.state, QpState::Error);
    }
}

#[test]
fn an_empty_write_or_read_needs_no_key() {
    let mut bed = Bed::rc();
    bed.a.post(SendOpcode::Write, &[], 1, 2);
    bed.a.post(SendOpcode::Read, &[], 3, 4);
    bed.b.guest.post_recv(6, &[]);
    bed.a.post(SendOpcode::WriteImm, &[], 5, 6);
    bed.settle();
    for _ in 0..3 {
        bed.a.sent(CqeStatus::Success);
    }
    assert_eq!(bed.b.received(CqeStatus::Success).byte_len, 0);
}

#[test]
fn a_requester_hears_why_it_was_refused() {
    let cases = [
        (SendOpcode::Write, true, CqeStatus::RemoteAccess),
        (SendOpcode::Read, true, CqeStatus::RemoteAccess),
        (SendOpcode::Read, false, CqeStatus::RemoteInvalidRequest),
    ];
    for (opcode, has_right, status) in cases {
        let mut bed = Bed::rc();
        if !has_right {
            bed.b.qp.attr.access = 0;
        }
        let sge = bed.a.sge(0, 8);
        let (data, key) = (bed.b.data, bed.b.key ^ 1);
        bed.a.post(opcode, &[sge], data, key);
        bed.a.post(opcode, &[sge], data, key);
        bed.settle();
        let cqe = bed.a.sent(status);
        assert_eq!((cqe.wr_id, cqe.syndrome & 0xe0), (0, 0x60));
        bed.a.sent(CqeStatus::WorkRequestFlushed);
        assert_eq!(bed.b.qp.state, QpState::Error);
    }
}

#[test]
fn a_message_too_long_for_its_receive_fails_both() {
    let mut bed = Bed::rc();
    bed.b.guest.post_recv(5, &[bed.b.sge(0, 300)]);
    bed.b.guest.post_recv(6, &[bed.b.sge(0, 300)]);
    let sge = bed.a.sge(0, 301);
    bed.a.post(SendOpcode::Send, &[sge], 0, 0);
    bed.settle();
    bed.a.sent(CqeStatus::RemoteInvalidRequest);
    assert_eq!(bed.b.received(CqeStatus::LocalLength).wr_id, 5);
    assert_eq!(bed.b.received(CqeStatus::WorkRequestFlushed).wr_id, 6);
    // One that is posted afterwards is flushed too, when the doorbell rings.
    bed.b.guest.post_recv(7, &[]);
    bed.b.run();
    let cqe = bed.b.received(CqeStatus::WorkRequestFlushed);
    assert_eq!((cqe.wr_id, cqe.wqe_index), (7, 3));
}

#[test]
fn a_receive_that_may_not_be_written_fails_both() {
    let mut bed = Bed::rc();
    let mut sge = bed.b.sge(0, 300);
    sge.lkey = bed.b.region(access::REMOTE_READ);
    bed.b.guest.post_recv(5, &[sge]);
    let from = bed.a.sge(0, 20);
    bed.a.post(SendOpcode::Send, &[from], 0, 0);
    bed.settle();
    bed.a.sent(CqeStatus::RemoteOperation);
    bed.b.received(CqeStatus::LocalProtection);
}

#[test]
fn atomics_want_eight_bytes_on_eight_and_their_right() {
    for case in 0..4 {
        let mut bed = Bed::rc();
        let (mut at, mut key) = (bed.b.data + 8, bed.b.key);
        let mut status = CqeStatus::RemoteAccess;
        match case {
            0 => {
                at += 4;
                status = CqeStatus::RemoteInvalidRequest;
            }
            1 => key = bed.b.region(access::LOCAL_WRITE | access::REMOTE_WRITE),
            2 => at = bed.b.data + DATA,
            _ => {
                bed.b.qp.attr.access &= !access::REMOTE_ATOMIC;
                status = CqeStatus::RemoteInvalidRequest;
            }
        }
        let operands = AtomicSegment::default();
        bed.a
            .post_atomic(SendOpcode::FetchAdd, operands, 0, at, key);
        bed.settle();
        bed.a.sent(status);
    }
}

#[test]
fn a_repeated_atomic_is_answered_from_its_result() {
    let mut bed = Bed::rc();
    bed.b.mem.write(bed.b.data, &1u64.to_le_bytes()).unwrap();
    let operands = AtomicSegment {
        swap_or_add: 2,
        compare: 1,
    };
    let (at, key) = (bed.b.data, bed.b.key);
    bed.a
        .post_atomic(SendOpcode::CompareSwap, operands, 0, at, key);
    bed.a.run();
    bed.deliver_a(1);
    bed.b.run();
    bed.b.wire.packets.clear();
    // Somebody else changes the value before the request comes again.
    bed.b.mem.write(bed.b.data, &1u64.to_le_bytes()).unwrap();
    bed.wait(3);
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.a.bytes(0, 8), 1u64.to_le_bytes());
    assert_eq!(bed.b.bytes(0, 8), 1u64.to_le_bytes());
    assert_eq!(bed.b.ctx.counter(1, Counter::DuplicateRequests), 1);
}

#[test]
fn more_reads_than_agreed_are_invalid() {
    let mut bed = Bed::new(QpType::Rc, |attr| attr.max_dest_rd_atomic = 2);
    let (data, key) = (bed.b.data, bed.b.key);
    for _ in 0..3 {
        let sge = bed.a.sge(0, 8);
        bed.a.post(SendOpcode::Read, &[sge], data, key);
    }
    bed.a.run();
    bed.deliver_a(3);
    let last = answers(&mut bed);
    assert_eq!(last, [(100, ACK), (101, ACK), (102, INVALID)]);
}

#[test]
fn as_many_reads_as_agreed_are_taken() {
    let mut bed = Bed::new(QpType::Rc, |attr| {
        attr.max_rd_atomic = 16;
        attr.max_dest_rd_atomic = 16;
    });
    let (data, key) = (bed.b.data, bed.b.key);
    for i in 0..40 {
        let sge = bed.a.sge(i * 1000, 1000);
        bed.a.post(SendOpcode::Read, &[sge], data + i * 1000, key);
    }
    let bytes = bed.b.fill(0, 40_000, 5);
    bed.settle();
    for _ in 0..40 {
        bed.a.sent(CqeStatus::Success);
    }
    assert_eq!(bed.a.bytes(0, 40_000), bytes);
}

#[test]
fn acknowledges_join_and_one_comes_late_where_none_is_asked_for() {
    let mut bed = Bed::rc();
    for i in 0..3 {
        let ext = write_to(&bed, 0, 8);
        let p = packet(&bed, Operation::WriteOnly, 100 + i, ext, &[1; 8]);
        bed.b.receive(&p);
    }
    assert_eq!(answers(&mut bed), [(102, ACK)]);
    let mut p = packet(
        &bed,
        Operation::WriteOnly,
        103,
        write_to(&bed, 0, 8),
        &[1; 8],
    );
    let headers = Packet::parse(&p).unwrap().header_len();
    p[16] &= 0x7f;
    write_trailer(&mut p, headers, 8).unwrap();
    bed.b.receive(&p);
    assert_eq!(answers(&mut bed), []);
    bed.pass(core::time::Duration::from_millis(1));
    assert_eq!(answers(&mut bed), [(103, ACK)]);
    // A duplicate is acknowledged up to where the responder is.
    let p = packet(
        &bed,
        Operation::WriteOnly,
        101,
        write_to(&bed, 0, 8),
        &[7; 8],
    );
    bed.b.receive(&p);
    assert_eq!(answers(&mut bed), [(103, ACK)]);
    assert_eq!(bed.b.bytes(0, 8), [1; 8]);
}

#[test]
fn a_read_may_be_repeated_in_part() {
    let mut bed = Bed::rc();
    let bytes = bed.b.fill(0, 1000, 6);
    let p = packet(
        &bed,
        Operation::ReadRequest,
        100,
        write_to(&bed, 0, 1000),
        &[],
    );
    bed.b.receive(&p);
    assert_eq!(answers(&mut bed).len(), 2);
    let p = packet(
        &bed,
        Operation::ReadRequest,
        102,
        write_to(&bed, 512, 488),
        &[],
    );
    bed.b.receive(&p);
    bed.b.run();
    let first = Packet::parse(&bed.b.wire.packets[0]).unwrap();
    assert_eq!(first.bth().psn, Psn::new(102));
    assert_eq!(first.bth().opcode.op, Operation::ReadResponseFirst);
    assert_eq!(first.payload(), &bytes[512..768]);
    let last = Packet::parse(&bed.b.wire.packets[1]).unwrap();
    assert_eq!(last.payload(), &bytes[768..1000]);
    // One that would reach beyond what was asked for before is not a repetition.
    bed.b.wire.packets.clear();
    let p = packet(
        &bed,
        Operation::ReadRequest,
        103,
        write_to(&bed, 768, 1000),
        &[],
    );
    bed.b.receive(&p);
    assert_eq!(answers(&mut bed), []);
    assert_eq!(bed.b.qp.state, QpState::Rts);
}

#[test]
fn the_first_packet_in_rtr_is_an_event() {
    let mut bed = Bed::rc();
    bed.b.qp.responder.established = false;
    bed.b.qp.state = QpState::Rtr;
    let sge = bed.a.sge(0, 8);
    let (data, key) = (bed.b.data, bed.b.key);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    bed.settle();
    bed.a.sent(CqeStatus::Success);
    bed.a.sent(CqeStatus::Success);
    assert_eq!(bed.b.event(), Some(EventType::QpCommEstablished));
    assert_eq!(bed.b.event(), None);
}

#[test]
fn an_unreliable_connection_drops_a_message_with_a_gap_and_keeps_its_receive() {
    for opcode in [SendOpcode::Send, SendOpcode::WriteImm] {
        let mut bed = Bed::new(QpType::Uc, |_| ());
        bed.b.guest.post_recv(3, &[bed.b.sge(0, 1000)]);
        let (data, key) = (bed.b.data, bed.b.key);
        let bytes = bed.a.fill(0, 1000, 2);
        let sge = bed.a.sge(0, 1000);
        bed.a.post(opcode, &[sge], data, key);
        bed.a.post(opcode, &[sge], data, key);
        bed.a.run();
        bed.a.wire.packets.remove(1);
        bed.settle();
        assert_eq!(bed.b.received(CqeStatus::Success).wr_id, 3);
        assert!(bed.b.recv_cq.poll().is_none());
        assert_eq!(bed.b.bytes(0, 1000), bytes);
    }
}

#[test]
fn an_unreliable_connection_drops_what_it_may_not_do() {
    let mut bed = Bed::new(QpType::Uc, |_| ());
    let sge = bed.a.sge(0, 1000);
    let (data, key) = (bed.b.data, bed.b.key);
    bed.a.post(SendOpcode::Write, &[sge], data, key ^ 1);
    bed.a.post(SendOpcode::Send, &[sge], 0, 0);
    bed.a.post(SendOpcode::Write, &[sge], data, key);
    let bytes = bed.a.fill(0, 1000, 21);
    bed.settle();
    assert_eq!(bed.b.qp.state, QpState::Rts);
    assert_eq!(bed.b.bytes(0, 1000), bytes);
    assert!(bed.b.wire.packets.is_empty());
}

#[test]
fn software_that_ends_the_connection_gets_everything_flushed_in_order() {
    let mut bed = Bed::rc();
    for id in 0..40 {
        bed.a.guest.post_recv(id, &[]);
        let sge = bed.a.sge(0, 8);
        bed.a.post_with(SendOpcode::Send, 0, &[sge], 0, 0);
    }
    bed.a.wire.credits = Some(5);
    bed.a.run();
    bed.a.go(QpState::Error);
    bed.a.run();
    for id in 0..40 {
        let sent = bed.a.sent(CqeStatus::WorkRequestFlushed);
        assert_eq!((sent.wr_id, sent.wqe_index), (id, id as u32 + 1));
        assert_eq!(bed.a.received(CqeStatus::WorkRequestFlushed).wr_id, id);
    }
    assert_eq!(bed.a.event(), None);
    // After RESET the QP can be used again.
    bed.a.go(QpState::Reset);
    assert_eq!(bed.a.qp.sq.tail, 0);
    assert_eq!(crate::qp::query(&bed.a.qp, &bed.a.ctx).path_mtu, 0);
}
