// SPDX-License-Identifier: GPL-2.0-or-later
//! UD and the special QPs between two devices on a cable.

mod common;

use common::datagram::{end, ends, End, QKEY, SIZES};
use common::host::{Pair, LID_A, LID_B};
use ochre_hca::Dma;
use ochre_hw::cmd::port::Counter;
use ochre_hw::cqe::{CqeStatus, CQE_GRH, CQE_IMM, CQE_SOLICITED};
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{access, qp_attr, AddressVector, QpAttr, QpState, QpType, AV_GRH};
use ochre_hw::wqe::{
    SendOpcode, SendWqe, Sge, SEND_FENCE, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED,
};
use ochre_wire::mad::{attr, class, method, Mad};

const GSI_QKEY: u32 = 0x8001_0000;
const GRH: u32 = 40;

#[test]
fn a_datagram_with_all_its_fields() {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    pair.a.mem.write(a.data, b"hello, ").unwrap();
    pair.a.mem.write(a.data + 100, b"datagram").unwrap();
    b.guest.post_recv(0xabc, &[b.sge(0, 45), b.sge(200, 100)]);
    let wqe = SendWqe {
        opcode: SendOpcode::SendImm.raw(),
        flags: SEND_SIGNALED | SEND_SOLICITED | SEND_FENCE,
        imm: u32::from_le_bytes([1, 2, 3, 4]),
        ..a.wqe(b.qp, 2)
    };
    let sges = [a.sge(0, 7), a.sge(100, 8)];
    a.send(&mut pair.a, wqe, &sges);
    let sent = a.one();
    assert_eq!((sent.wr_id, sent.status, sent.wqe_index), (0x77, 0, 1));
    assert_eq!((sent.qpn, sent.opcode), (a.qp, 0));
    pair.settle();
    let got = b.one();
    assert_eq!((got.wr_id, got.status, got.wqe_index), (0xabc, 0, 1));
    assert_eq!((got.qpn, got.src_qpn, got.opcode), (b.qp, a.qp, 0x80));
    assert_eq!((got.slid, got.sl, got.dlid_path_bits), (LID_A, 3, 0));
    assert_eq!(got.byte_len, GRH + 15);
    assert_eq!(got.imm.to_le_bytes(), [1, 2, 3, 4]);
    assert_eq!(got.flags, CQE_IMM | CQE_SOLICITED);
    assert_eq!((got.pkey_index, got.port), (0, 0));
    // 5 bytes in the first element behind the GRH, the rest in the second.
    assert_eq!(&pair.b.mem.bytes::<5>(b.data + 40).unwrap(), b"hello");
    assert_eq!(
        &pair.b.mem.bytes::<10>(b.data + 200).unwrap(),
        b", datagram"
    );
    assert_eq!(pair.b.mem.bytes::<2>(b.data + 45).unwrap(), [0; 2]);
}

#[test]
fn inline_unsignaled_and_empty() {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    for _ in 0..3 {
        b.guest.post_recv(0, &[b.sge(0, 4096)]);
    }
    let inline = SendWqe {
        flags: SEND_INLINE,
        inline_len: 13,
        ..a.wqe(b.qp, 0)
    };
    a.guest.post_send(&inline, b"inline bytes!");
    pair.a.ring(a.qp, &a.guest);
    let empty = a.wqe(b.qp, 0);
    a.send(&mut pair.a, empty, &[]);
    // Only the signaled one completes, and frees both slots.
    assert_eq!(a.one().wqe_index, 2);
    pair.settle();
    assert_eq!(b.cq.poll().unwrap().byte_len, GRH + 13);
    assert_eq!(b.one().byte_len, GRH);
    assert_eq!(
        &pair.b.mem.bytes::<13>(b.data + 40).unwrap(),
        b"inline bytes!"
    );
}

#[test]
fn a_grh_comes_in_front() {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    let gid = |n: u64| {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[8..].copy_from_slice(&(0x0200_5e00_0000_0001 + (n << 8)).to_be_bytes());
        gid
    };
    a.ah = pair.a.create_ah(
        a.pd,
        AddressVector {
            dgid: gid(2),
            dlid: LID_B,
            port: 1,
            flags: AV_GRH,
            flow_label: 0x12345,
            hop_limit: 7,
            traffic_class: 0x5a,
            ..AddressVector::default()
        },
    );
    b.guest.post_recv(0, &[b.sge(0, 128)]);
    let sge = a.sge(0, 4);
    a.send(&mut pair.a, a.wqe(b.qp, 1), &[sge]);
    pair.settle();
    assert_eq!(b.one().flags, CQE_GRH);
    let grh = pair.b.mem.bytes::<40>(b.data).unwrap();
    assert_eq!(grh[..4], [0x65, 0xa1, 0x23, 0x45]);
    assert_eq!((grh[6], grh[7]), (0x1b, 7));
    assert_eq!(grh[8..24], gid(1));
    assert_eq!(grh[24..], gid(2));
}

#[test]
fn a_packet_for_the_own_lid_turns_around() {
    let mut pair = Pair::active();
    let mut a = end(&mut pair.a, QpType::Ud, LID_A, QKEY);
    let mut b = end(&mut pair.a, QpType::Ud, LID_A, QKEY);
    pair.a.mem.write(a.data, b"myself").unwrap();
    b.guest.post_recv(0, &[b.sge(0, 128)]);
    let sge = a.sge(0, 6);
    a.send(&mut pair.a, a.wqe(b.qp, 1), &[sge]);
    pair.settle();
    assert_eq!(b.one().slid, LID_A);
    assert_eq!(&pair.a.mem.bytes::<6>(b.data + 40).unwrap(), b"myself");
}

#[test]
fn polling_is_asked_for_where_the_peer_brings_completions() {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    let mut near = end(&mut pair.b, QpType::Ud, LID_B, QKEY);
    for _ in 0..2 {
        assert!(!b.cq.asks_for_polling());
        b.guest.post_recv(0, &[b.sge(0, 128)]);
        let sge = a.sge(0, 4);
        a.send(&mut pair.a, a.wqe(b.qp, 1), &[sge]);
        assert!(!a.cq.asks_for_polling(), "a datagram ends when it is sent");
        pair.settle();
        assert_eq!((a.one().status, b.one().status), (0, 0));
        // Packets from the same port make up for it, after a while.
        for count in 0..64 {
            assert!(b.cq.asks_for_polling(), "{count}");
            b.guest.post_recv(0, &[b.sge(0, 128)]);
            let sge = near.sge(0, 4);
            near.send(&mut pair.b, near.wqe(b.qp, 1), &[sge]);
            pair.settle();
            assert_eq!((near.one().status, b.one().status), (0, 0));
            assert!(!near.cq.asks_for_polling());
        }
    }
}

#[test]
fn nothing_is_received_without_a_receive_or_the_right_keys() {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    let sge = a.sge(0, 4);
    a.send(&mut pair.a, a.wqe(b.qp, 1), &[sge]);
    pair.settle();
    assert_eq!(pair.b.counter(Counter::UdDropped), 1);
    b.guest.post_recv(1, &[b.sge(0, 128)]);
    let other = SendWqe {
        key: QKEY + 1,
        ..a.wqe(b.qp, 1)
    };
    a.send(&mut pair.a, other, &[sge]);
    a.send(&mut pair.a, a.wqe(b.qp + 5, 1), &[sge]);
    pair.settle();
    assert_eq!(b.cq.poll(), None);
    assert_eq!(pair.b.counter(Counter::NoQp), 1);
    assert_eq!(pair.b.query_port().qkey_violations, 1);
    // Bit 31 of the Q_Key asks for the QP's own.
    let own = SendWqe {
        key: 0x8000_0000,
        ..a.wqe(b.qp, 1)
    };
    a.send(&mut pair.a, own, &[sge]);
    pair.settle();
    assert_eq!(b.one().wr_id, 1);
    for _ in 0..4 {
        assert_eq!(a.cq.poll().unwrap().status, 0);
    }
}

/// A send that must fail with `status`: the QP stops sending, flushes what follows, and lives on
/// after it is told to.
fn refused(change: impl Fn(&mut SendWqe, &mut Sge), status: CqeStatus) {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    b.guest.post_recv(0, &[b.sge(0, 8192)]);
    let (mut wqe, mut sge) = (a.wqe(b.qp, 1), a.sge(0, 4));
    change(&mut wqe, &mut sge);
    // Without the flag too: what fails always completes.
    wqe.flags &= !SEND_SIGNALED;
    a.send(&mut pair.a, wqe, &[sge]);
    pair.settle();
    assert_eq!(a.status(), status);
    assert_eq!(pair.a.query_qp(a.qp).state, QpState::Sqe.raw());
    let good = a.wqe(b.qp, 1);
    let sge = a.sge(0, 4);
    a.send(&mut pair.a, good, &[sge]);
    pair.settle();
    assert_eq!(a.status(), CqeStatus::WorkRequestFlushed);
    assert_eq!(b.cq.poll(), None);
    let rts = QpAttr {
        state: QpState::Rts.raw(),
        ..QpAttr::default()
    };
    pair.a.modify_qp(a.qp, qp_attr::STATE, rts).unwrap();
    a.send(&mut pair.a, good, &[sge]);
    pair.settle();
    assert_eq!(a.status(), CqeStatus::Success);
    assert_eq!(b.one().status, 0);
}

#[test]
fn sends_are_checked() {
    let form = CqeStatus::LocalQpOperation;
    refused(|w, _| w.opcode = 0, form);
    refused(|w, _| w.opcode = SendOpcode::Write.raw(), form);
    refused(|w, _| w.opcode = SendOpcode::SendInvalidate.raw(), form);
    refused(|w, _| w.flags |= 0x10, form);
    refused(|w, _| w.reserved = 1, form);
    refused(|w, _| w.num_sge = 31, form);
    refused(|w, _| w.inline_len = 1, form);
    refused(|w, _| w.remote = w.remote & !0xffff_ffff | 99, form);
    refused(|w, _| w.remote |= 1 << 56, form);
    let memory = CqeStatus::LocalProtection;
    refused(|_, s| s.lkey ^= 1, memory);
    refused(|_, s| s.addr -= 1, memory);
    refused(|_, s| s.addr += 16 << 10, memory);
    refused(|_, s| s.length = 4097, CqeStatus::LocalLength);
}

#[test]
fn keys_of_another_domain_are_refused() {
    let mut pair = Pair::active();
    let (mut a, b) = ends(&mut pair);
    let other = pair.a.alloc_pd();
    let (key, addr) = pair.a.create_mr(other, 4096, access::LOCAL_WRITE);
    let sge = Sge {
        addr,
        length: 4,
        lkey: key,
    };
    a.send(&mut pair.a, a.wqe(b.qp, 1), &[sge]);
    assert_eq!(a.status(), CqeStatus::LocalProtection);
}

/// A receive that must fail with `status` and takes its QP to the error state.
fn bad_receive(room: impl Fn(&End) -> Sge, access: u32, status: CqeStatus) {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    (b.key, b.data) = pair.b.create_mr(b.pd, 16 << 10, access);
    let sge = room(&b);
    b.guest.post_recv(5, &[sge]);
    b.guest.post_recv(6, &[sge]);
    let sge = a.sge(0, 100);
    a.send(&mut pair.a, a.wqe(b.qp, 1), &[sge]);
    pair.settle();
    let first = b.cq.poll().unwrap();
    assert_eq!((first.wr_id, first.status), (5, status.raw()));
    let second = b.one();
    assert_eq!(second.wr_id, 6);
    assert_eq!(second.status, CqeStatus::WorkRequestFlushed.raw());
    assert_eq!(pair.b.query_qp(b.qp).state, QpState::Error.raw());
    // In the error state receives are flushed as they are posted.
    b.guest.post_recv(7, &[]);
    let need_wake = pair.b.mem.load_u32(b.guest.base + 0x44).unwrap();
    assert_eq!(need_wake, 1);
    pair.b
        .hca
        .doorbell(pair.now, ochre_hw::doorbell::RECV, b.qp);
    assert_eq!(b.one().wr_id, 7);
}

#[test]
fn receives_are_checked() {
    let write = access::LOCAL_WRITE;
    bad_receive(|b| b.sge(0, 139), write, CqeStatus::LocalLength);
    let memory = CqeStatus::LocalProtection;
    bad_receive(|b| b.sge(16 << 10, 200), write, memory);
    bad_receive(|b| b.sge(0, 200), access::REMOTE_READ, memory);
}

#[test]
fn management_packets_of_the_host_pass_between_special_qps() {
    let mut pair = Pair::active();
    for (kind, mut mad) in [
        // A subnet manager's business; and a class that the firmware does not know.
        (
            QpType::Smi,
            Mad::new(class::SUBN_LID_ROUTED, method::GET, attr::SM_INFO, 0, 5),
        ),
        (QpType::Gsi, Mad::new(0x07, method::SEND, 0x10, 0, 6)),
    ] {
        let qkey = if kind == QpType::Gsi { GSI_QKEY } else { 0 };
        let mut a = end(&mut pair.a, kind, LID_B, qkey);
        let mut b = end(&mut pair.b, kind, LID_A, qkey);
        mad.0[200] = 0x42;
        pair.a.mem.write(a.data, &mad.0).unwrap();
        b.guest.post_recv(9, &[b.sge(0, 296)]);
        let dest = u32::from(kind == QpType::Gsi);
        let wqe = SendWqe {
            key: qkey,
            ..a.wqe(dest, 1)
        };
        let sge = a.sge(0, 256);
        a.send(&mut pair.a, wqe, &[sge]);
        pair.settle();
        let sent = a.one();
        assert_eq!((sent.status, sent.qpn), (0, dest));
        let got = b.one();
        assert_eq!((got.wr_id, got.status, got.byte_len), (9, 0, 296));
        assert_eq!((got.qpn, got.src_qpn, got.port), (dest, dest, 1));
        assert_eq!((got.slid, got.pkey_index), (LID_A, 0));
        assert_eq!(pair.b.mem.bytes::<256>(b.data + 40).unwrap(), mad.0);
    }
}

#[test]
fn the_firmware_answers_from_afar() {
    let mut pair = Pair::active();
    for (kind, mad) in [
        (
            QpType::Smi,
            Mad::new(
                class::SUBN_LID_ROUTED,
                method::GET,
                attr::NODE_INFO,
                0,
                0x55,
            ),
        ),
        (
            QpType::Gsi,
            Mad::new(class::PERF, method::GET, attr::CLASS_PORT_INFO, 0, 0x66),
        ),
    ] {
        let qkey = if kind == QpType::Gsi { GSI_QKEY } else { 0 };
        let dest = u32::from(kind == QpType::Gsi);
        let mut a = end(&mut pair.a, kind, LID_B, qkey);
        pair.a.mem.write(a.data, &mad.0).unwrap();
        a.guest.post_recv(1, &[a.sge(1024, 296)]);
        let wqe = SendWqe {
            key: qkey,
            flags: 0,
            ..a.wqe(dest, 1)
        };
        let sge = a.sge(0, 256);
        a.send(&mut pair.a, wqe, &[sge]);
        pair.settle();
        let got = a.one();
        assert_eq!((got.slid, got.src_qpn, got.status), (LID_B, dest, 0));
        let reply = Mad(pair.a.mem.bytes(a.data + 1024 + 40).unwrap());
        assert_eq!(reply.method(), method::GET_RESP);
        assert_eq!((reply.tid(), reply.status()), (mad.tid(), 0));
    }
}

#[test]
fn a_producer_too_far_ahead_breaks_the_qp() {
    let mut pair = Pair::active();
    let (a, _) = ends(&mut pair);
    pair.a.mem.store_u32(a.guest.base, 17).unwrap();
    pair.a
        .hca
        .doorbell(pair.now, ochre_hw::doorbell::SEND, a.qp);
    assert_eq!(pair.a.events(), [(EventType::QpFatal, 0, a.qp)]);
    assert_eq!(pair.a.query_qp(a.qp).state, QpState::Error.raw());
    assert_eq!(pair.a.reg(ochre_hw::regs::STATUS), 1, "the device lives");
}

#[test]
fn an_overrun_completion_queue_breaks_with_its_qps() {
    let mut pair = Pair::active();
    let (mut a, b) = ends(&mut pair);
    let (cq2, _) = pair.a.create_cq(0, 1);
    let (qp2, mut guest2) = pair.a.create_qp(QpType::Ud, a.pd, [cq2, cq2], &SIZES);
    pair.a.start_datagram(qp2, QpType::Ud, QKEY);
    for _ in 0..3 {
        guest2.post_send(&a.wqe(b.qp, 0), &[]);
    }
    pair.a.ring(qp2, &guest2);
    pair.settle();
    let events = pair.a.events();
    assert_eq!(
        events,
        [(EventType::CqError, 0, cq2), (EventType::QpFatal, 0, qp2)]
    );
    assert_eq!(pair.a.query_qp(qp2).state, QpState::Error.raw());
    assert_eq!(pair.a.counter(Counter::CqOverruns), 1);
    // Others are not touched.
    let sge = a.sge(0, 4);
    a.send(&mut pair.a, a.wqe(b.qp, 1), &[sge]);
    assert_eq!(a.status(), CqeStatus::Success);
    assert_ne!(a.cqn, cq2);
}

#[test]
fn a_drained_qp_says_so_and_goes_on_later() {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    b.guest.post_recv(1, &[b.sge(0, 128)]);
    let to = |state: QpState| QpAttr {
        state: state.raw(),
        sqd_event: 1,
        ..QpAttr::default()
    };
    let drain = qp_attr::STATE | qp_attr::EN_SQD_ASYNC_NOTIFY;
    pair.a.modify_qp(a.qp, drain, to(QpState::Sqd)).unwrap();
    assert_eq!(pair.a.events(), [(EventType::QpSqDrained, 0, a.qp)]);
    a.guest.post_send(&a.wqe(b.qp, 0), &[]);
    pair.a.hca.doorbell(pair.now, 0, a.qp);
    pair.settle();
    assert_eq!(a.cq.poll(), None, "a drained queue does not begin");
    pair.a
        .modify_qp(a.qp, qp_attr::STATE, to(QpState::Rts))
        .unwrap();
    pair.settle();
    assert_eq!(a.status(), CqeStatus::Success);
    assert_eq!(b.one().wr_id, 1);
    assert_eq!(pair.a.events(), []);
}

#[test]
fn a_doorbell_from_another_page_is_ignored() {
    let mut pair = Pair::active();
    let (mut a, b) = ends(&mut pair);
    a.guest.post_send(&a.wqe(b.qp, 0), &[]);
    assert!(a.guest.wants_send_doorbell());
    pair.a.hca.doorbell(pair.now, 4096, a.qp);
    assert_eq!(a.cq.poll(), None);
    pair.a.hca.doorbell(pair.now, 8, a.qp);
    assert_eq!(a.cq.poll(), None);
    pair.a.hca.doorbell(pair.now, 0, a.qp + 1000);
    assert_eq!(a.cq.poll(), None);
    pair.a.hca.doorbell(pair.now, 0, a.qp);
    assert_eq!(a.status(), CqeStatus::Success);
    assert!(a.guest.wants_send_doorbell(), "it sleeps again");
}
