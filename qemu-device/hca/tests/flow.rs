// SPDX-License-Identifier: GPL-2.0-or-later
//! Senders without credits: they wait, nothing is lost, and who is called away goes.

mod common;

use std::time::Duration;

use common::end::{ask_node_info, End};
use common::guest::elements;
use common::host::{Pair, LID_A, LID_B};
use common::Dma;
use ochre_hw::cmd::Opcode;
use ochre_hw::cqe::CqeStatus;
use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, qp_attr, QpAttr, QpState, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_SIGNALED};

/// Longer than the receive buffer of a lane, whose size is in the port's configuration.
const LENGTH: u32 = 400 << 10;
const SIZES: QpSizes = QpSizes {
    send_wr: 16,
    send_sge: 1,
    inline_data: 0,
    recv_wr: 1,
    recv_sge: 1,
};

/// Two connected ends; B takes no packet from its data lanes.
fn stalled() -> (Pair, End, End) {
    let mut pair = Pair::active();
    let (a, b) = (
        End::new(&mut pair.a, &SIZES, LENGTH),
        End::new(&mut pair.b, &SIZES, LENGTH),
    );
    pair.a.start_rc(a.qp, b.qp, LID_B);
    pair.b.start_rc(b.qp, a.qp, LID_A);
    pair.b.hca.link_mut(1).unwrap().set_rx_lanes(1 << 15);
    (pair, a, b)
}

fn write(pair: &mut Pair, a: &mut End, b: &End) {
    let wqe = SendWqe {
        opcode: SendOpcode::Write.raw(),
        flags: SEND_SIGNALED,
        num_sge: 1,
        remote: b.data,
        key: b.key,
        ..SendWqe::default()
    };
    let sge = Sge {
        addr: a.data,
        length: LENGTH,
        lkey: a.key,
    };
    a.guest.post_send(&wqe, &elements(&[sge]));
    pair.a.ring(a.qp, &a.guest);
}

#[test]
fn a_sender_without_credits_waits_and_nothing_is_lost() {
    let (mut pair, mut a, b) = stalled();
    let data: Vec<u8> = (0..LENGTH).map(|i| (i ^ i >> 9) as u8).collect();
    pair.a.mem.write(a.data, &data).unwrap();
    write(&mut pair, &mut a, &b);
    // Well below the local ACK time-out.
    pair.run_for(Duration::from_millis(20));
    assert_eq!(a.cq.poll(), None);
    let counters = *pair.a.hca.link_mut(1).unwrap().counters();
    assert!(counters.xmit_wait > 0, "it waits for credits");
    assert_eq!(counters.xmit_discards, 0);
    pair.b.hca.link_mut(1).unwrap().set_rx_lanes(u16::MAX);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(a.cq.poll().expect("it is done").status, 0);
    let mut got = vec![0; LENGTH as usize];
    pair.b.mem.read(b.data, &mut got).unwrap();
    assert_eq!(got, data);
    let packets = pair.b.hca.link_mut(1).unwrap().counters().rcv_pkts;
    assert!(packets >= u64::from(LENGTH / 4096));
    let waited = pair.a.hca.link_mut(1).unwrap().counters().xmit_wait;
    pair.run_for(Duration::from_millis(20));
    let later = pair.a.hca.link_mut(1).unwrap().counters().xmit_wait;
    assert_eq!(later, waited, "nobody waits any more");
}

#[test]
fn a_qp_that_waits_for_credits_can_be_moved_to_error() {
    let (mut pair, mut a, b) = stalled();
    write(&mut pair, &mut a, &b);
    pair.run_for(Duration::from_millis(5));
    let error = QpAttr {
        state: QpState::Error.raw(),
        ..QpAttr::default()
    };
    pair.a.modify_qp(a.qp, qp_attr::STATE, error).unwrap();
    let flushed = CqeStatus::WorkRequestFlushed.raw();
    assert_eq!(a.cq.poll().expect("it is flushed").status, flushed);
    let waited = waits(&mut pair);
    pair.a.destroy(Opcode::DestroyQp, a.qp).unwrap();
    pair.run_for(Duration::from_millis(5));
    assert_eq!(waits(&mut pair), waited, "nobody waits any more");
    pair.b.hca.link_mut(1).unwrap().set_rx_lanes(u16::MAX);
    pair.run_for(Duration::from_millis(5));
    assert_eq!(a.cq.poll(), None);
}

/// PortXmitWait of A.
fn waits(pair: &mut Pair) -> u64 {
    pair.a.hca.link_mut(1).unwrap().counters().xmit_wait
}

#[test]
fn the_wait_for_credits_ends_with_the_last_that_waits() {
    let (mut pair, mut a, b) = stalled();
    let mut other = End::new(&mut pair.a, &SIZES, LENGTH);
    let far = End::new(&mut pair.b, &SIZES, LENGTH);
    pair.a.start_rc(other.qp, far.qp, LID_B);
    pair.b.start_rc(far.qp, other.qp, LID_A);
    write(&mut pair, &mut a, &b);
    write(&mut pair, &mut other, &far);
    pair.run_for(Duration::from_millis(5));
    let first = waits(&mut pair);
    pair.a.destroy(Opcode::DestroyQp, a.qp).unwrap();
    pair.run_for(Duration::from_millis(5));
    let second = waits(&mut pair);
    assert!(second > first, "one waits still");
    pair.a.destroy(Opcode::DestroyQp, other.qp).unwrap();
    let third = waits(&mut pair);
    pair.run_for(Duration::from_millis(5));
    assert_eq!(waits(&mut pair), third, "nobody waits any more");
}

#[test]
fn management_passes_while_data_wait() {
    let (mut pair, mut a, b) = stalled();
    write(&mut pair, &mut a, &b);
    pair.run_for(Duration::from_millis(5));
    assert_eq!(ask_node_info(&mut pair), Some(LID_A));
}

#[test]
fn who_waits_for_credits_does_not_wait_for_a_link_that_is_gone() {
    let (mut pair, mut a, b) = stalled();
    write(&mut pair, &mut a, &b);
    pair.run_for(Duration::from_millis(1));
    let pd = pair.a.alloc_pd();
    let (cqn, mut cq) = pair.a.create_cq(0, 3);
    let (qp, mut guest) = pair.a.create_qp(QpType::Ud, pd, [cqn, cqn], &SIZES);
    pair.a.start_datagram(qp, QpType::Ud, 1);
    let av = ochre_hw::verbs::AddressVector {
        dlid: LID_B,
        port: 1,
        ..Default::default()
    };
    let wqe = SendWqe {
        opcode: SendOpcode::Send.raw(),
        flags: SEND_SIGNALED,
        num_sge: 1,
        remote: u64::from(b.qp) << 32 | u64::from(pair.a.create_ah(pd, av)),
        ..SendWqe::default()
    };
    let (lkey, addr) = pair.a.create_mr(pd, 4096, access::LOCAL_WRITE);
    let sge = Sge {
        addr,
        length: 4096,
        lkey,
    };
    guest.post_send(&wqe, &elements(&[sge]));
    pair.a.ring(qp, &guest);
    pair.run_for(Duration::from_millis(5));
    assert_eq!(cq.poll(), None, "no credits");
    pair.b.hca.link_mut(1).unwrap().cable_mut().plug(false);
    pair.run_for(Duration::from_millis(5));
    assert_eq!(cq.poll().expect("the datagram is lost").status, 0);
}
