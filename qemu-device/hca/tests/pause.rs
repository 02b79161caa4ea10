// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine that stands still for a while: its peer waits, and goes on or gives up by its own retry rules.

mod common;

use std::time::Duration;

use common::end::{ask_node_info, End};
use common::guest::elements;
use common::host::{Pair, LID_A, LID_B};
use common::Dma;
use ochre_hw::cqe::CqeStatus;
use ochre_hw::queue::QpSizes;
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_SIGNALED};
use ochre_link::PortState;

/// More than the receive buffer of a lane.
const LENGTH: u32 = 400 << 10;
const SIZES: QpSizes = QpSizes {
    send_wr: 16,
    send_sge: 1,
    inline_data: 0,
    recv_wr: 1,
    recv_sge: 1,
};

fn connected(retries: u8) -> (Pair, End, End) {
    let mut pair = Pair::active();
    let (a, b) = (
        End::new(&mut pair.a, &SIZES, LENGTH),
        End::new(&mut pair.b, &SIZES, LENGTH),
    );
    pair.a.start_rc_retrying(a.qp, b.qp, LID_B, retries);
    pair.b.start_rc(b.qp, a.qp, LID_A);
    (pair, a, b)
}

fn request(end: &mut End, peer: &End, opcode: SendOpcode, length: u32) {
    let wqe = SendWqe {
        opcode: opcode.raw(),
        flags: SEND_SIGNALED,
        num_sge: 1,
        remote: peer.data,
        key: peer.key,
        ..SendWqe::default()
    };
    let sge = Sge {
        addr: end.data,
        length,
        lkey: end.key,
    };
    end.guest.post_send(&wqe, &elements(&[sge]));
}

fn data() -> Vec<u8> {
    (0..LENGTH).map(|i| (i ^ i >> 9) as u8).collect()
}

#[test]
fn a_peer_waits_without_credits_and_goes_on_with_right_data() {
    let (mut pair, mut a, b) = connected(7);
    pair.a.mem.write(a.data, &data()).unwrap();
    pair.b.set_paused(true);
    request(&mut a, &b, SendOpcode::Write, LENGTH);
    pair.a.ring(a.qp, &a.guest);
    pair.run_for(Duration::from_millis(20));
    let mut got = vec![0; LENGTH as usize];
    pair.b.mem.read(b.data, &mut got).unwrap();
    assert_eq!(got, vec![0; LENGTH as usize], "memory is left alone");
    assert_eq!(a.cq.poll(), None);
    let sender = pair.a.hca.link_mut(1).unwrap();
    assert_eq!(sender.state(), PortState::Active, "the link stays up");
    assert!(sender.counters().xmit_wait > 0, "it waits for credits");
    assert_eq!(sender.counters().xmit_discards, 0);

    pair.b.set_paused(false);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(a.cq.poll().expect("it is done").status, 0);
    pair.b.mem.read(b.data, &mut got).unwrap();
    assert_eq!(got, data());
    let counters = *pair.b.hca.link_mut(1).unwrap().counters();
    assert_eq!((counters.rcv_errors, counters.dlid_drops), (0, 0));
}

#[test]
fn a_peer_whose_retries_end_gets_its_error() {
    let (mut pair, mut a, b) = connected(7);
    pair.b.set_paused(true);
    request(&mut a, &b, SendOpcode::Write, 4096);
    pair.a.ring(a.qp, &a.guest);
    pair.run_for(Duration::from_secs(60));
    let cqe = a.cq.poll().expect("an error");
    assert_eq!(cqe.status, CqeStatus::RetryExceeded.raw());
    assert_eq!(
        pair.a.hca.link(1).unwrap().state(),
        PortState::Active,
        "the link stays up"
    );
}

#[test]
fn answers_that_came_in_a_pause_count_before_its_time_outs() {
    // A time-out would be the end of it.
    let (mut pair, mut a, b) = connected(0);
    pair.b.mem.write(b.data, &data()).unwrap();
    request(&mut a, &b, SendOpcode::Read, 16 << 10);
    pair.a.ring(a.qp, &a.guest);
    pair.a.set_paused(true);
    pair.run_for(Duration::from_secs(5));
    assert_eq!(a.cq.poll(), None);
    pair.a.set_paused(false);
    pair.run_for(Duration::from_millis(5));
    assert_eq!(a.cq.poll().expect("it is done").status, 0);
    let mut got = vec![0; 16 << 10];
    pair.a.mem.read(a.data, &mut got).unwrap();
    assert_eq!(got, data()[..16 << 10]);
}

#[test]
fn a_link_that_goes_in_a_pause_is_told_after_it() {
    let (mut pair, _, _) = connected(7);
    pair.a.events();
    pair.a.set_paused(true);
    pair.b.hca.link_mut(1).unwrap().cable_mut().plug(false);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.a.events(), []);
    pair.a.set_paused(false);
    pair.run_for(Duration::from_millis(20));
    assert_ne!(pair.a.events(), []);
}

#[test]
fn a_subnet_manager_still_gets_its_answers() {
    let (mut pair, _, _) = connected(7);
    pair.a.set_paused(true);
    assert_eq!(ask_node_info(&mut pair), Some(LID_A));
}
