// SPDX-License-Identifier: GPL-2.0-or-later
//! Connections under rules for wire faults: what is lost, repeated, damaged or out of order on the wire is
//! made good, with the retries that it takes and no others.

mod common;

use std::time::Duration;

use common::end::End;
use common::guest::elements;
use common::host::{Host, Pair, LID_A, LID_B};
use common::Dma;
use ochre_hw::cqe::{Cqe, CqeStatus};
use ochre_hw::queue::QpSizes;
use ochre_hw::wqe::{AtomicSegment, SendOpcode, SendWqe, Sge, SEND_SIGNALED};

/// Five packets.
const LENGTH: u32 = 4 * 4096 + 100;
/// Of the connections that `Host::start_rc` makes.
const FIRST_PSN: u32 = 0xff_fff0;
/// The local ACK time-out is 67 ms, and may take up to four times that.
const BEFORE_TIMEOUT: Duration = Duration::from_millis(60);
const AFTER_TIMEOUT: Duration = Duration::from_millis(300);
const SIZES: QpSizes = QpSizes {
    send_wr: 16,
    send_sge: 1,
    inline_data: 0,
    recv_wr: 8,
    recv_sge: 1,
};

/// Two connected ends; A's port has rules.
struct Bed {
    pair: Pair,
    a: End,
    b: End,
    sent: Vec<u8>,
}

impl Bed {
    fn new(rules: &str) -> Self {
        let mut pair = Pair::active();
        let (a, b) = (
            End::new(&mut pair.a, &SIZES, LENGTH),
            End::new(&mut pair.b, &SIZES, LENGTH),
        );
        pair.a.start_rc(a.qp, b.qp, LID_B);
        pair.b.start_rc(b.qp, a.qp, LID_A);
        let sent: Vec<u8> = (0..LENGTH).map(|i| (i ^ i >> 8) as u8).collect();
        pair.a.mem.write(a.data, &sent).unwrap();
        let rules = rules.parse().expect("the rules are right");
        pair.a.hca.link_mut(1).unwrap().set_faults(rules);
        Bed { pair, a, b, sent }
    }

    fn post(&mut self, opcode: SendOpcode, length: u32, more: &[u8]) {
        let wqe = SendWqe {
            opcode: opcode.raw(),
            flags: SEND_SIGNALED,
            num_sge: 1,
            remote: self.b.data,
            key: self.b.key,
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: self.a.data,
            length,
            lkey: self.a.key,
        };
        let bytes = [more, &elements(&[sge])].concat();
        self.a.guest.post_send(&wqe, &bytes);
        self.pair.a.ring(self.a.qp, &self.a.guest);
    }

    fn write(&mut self) {
        self.post(SendOpcode::Write, LENGTH, &[]);
    }

    /// A completion of A's that comes within this time.
    fn within(&mut self, time: Duration) -> Option<Cqe> {
        self.pair.run_for(time);
        self.a.cq.poll()
    }

    /// A's request ends well within this time, and B has the data.
    fn done(&mut self, time: Duration) {
        let cqe = self.within(time).expect("it is done");
        assert_eq!(cqe.status, CqeStatus::Success.raw());
        assert_eq!(self.received(), self.sent);
    }

    fn received(&self) -> Vec<u8> {
        let mut got = vec![0; LENGTH as usize];
        self.pair.b.mem.read(self.b.data, &mut got).unwrap();
        got
    }

    /// Hits and shots of each rule.
    fn counts(&self) -> Vec<(u64, u64)> {
        let report = self.pair.a.hca.link(1).unwrap().faults();
        report.rules.iter().map(|r| (r.hits, r.shots)).collect()
    }
}

/// A rule that changes nothing that matters, and counts the packets of the request that get through.
const COUNT: &str = "; ecn opcode=rc-rdma-write-* dir=tx";

#[test]
fn a_lost_middle_packet_is_sent_again_when_the_gap_is_seen() {
    let mut bed = Bed::new(&format!(
        "drop opcode=rc-rdma-write-middle dir=tx nth=2{COUNT}"
    ));
    bed.write();
    bed.done(BEFORE_TIMEOUT);
    // Four of five, then the third and what follows.
    assert_eq!(bed.counts(), [(2, 1), (4 + 3, 7)]);
}

#[test]
fn a_lost_last_packet_is_sent_again_after_the_timeout() {
    let mut bed = Bed::new("drop opcode=rc-rdma-write-last shots=1; ecn opcode=rc-rdma-write-last");
    bed.write();
    assert_eq!(bed.within(BEFORE_TIMEOUT), None);
    bed.done(AFTER_TIMEOUT);
    assert_eq!(bed.counts()[1].0, 1);
}

#[test]
fn a_lost_acknowledge_makes_no_second_message() {
    let mut bed = Bed::new("drop opcode=rc-acknowledge dir=rx shots=1");
    let sge = Sge {
        addr: bed.b.data,
        length: LENGTH,
        lkey: bed.b.key,
    };
    bed.b.guest.post_recv(7, &[sge]);
    bed.b.guest.post_recv(8, &[sge]);
    bed.post(SendOpcode::Send, LENGTH, &[]);
    assert_eq!(bed.within(BEFORE_TIMEOUT), None);
    bed.done(AFTER_TIMEOUT);
    let received = bed.b.cq.poll().expect("it is received");
    assert_eq!((received.wr_id, received.byte_len), (7, LENGTH));
    assert_eq!(bed.b.cq.poll(), None);
}

#[test]
fn an_atomic_whose_answer_is_lost_is_done_once() {
    let mut bed = Bed::new("drop opcode=rc-atomic-* dir=rx shots=1");
    bed.pair
        .b
        .mem
        .write(bed.b.data, &40u64.to_le_bytes())
        .unwrap();
    let add = AtomicSegment {
        swap_or_add: 2,
        ..AtomicSegment::default()
    };
    bed.post(SendOpcode::FetchAdd, 8, &add.to_bytes());
    let cqe = bed.within(AFTER_TIMEOUT).expect("it is done");
    assert_eq!(cqe.status, CqeStatus::Success.raw());
    let word = |host: &Host, at| u64::from_le_bytes(host.mem.bytes(at).unwrap());
    assert_eq!(word(&bed.pair.a, bed.a.data), 40);
    assert_eq!(word(&bed.pair.b, bed.b.data), 42);
    assert_eq!(bed.counts(), [(1, 1)]);
}

#[test]
fn repeated_packets_are_taken_once() {
    let rules = format!("duplicate opcode=rc-rdma-write-* dir=tx copies=2{COUNT}");
    let mut bed = Bed::new(&rules);
    bed.write();
    bed.done(BEFORE_TIMEOUT);
    assert_eq!(bed.counts()[0], (5, 5), "nothing is sent again");
}

#[test]
fn an_old_packet_that_comes_late_does_no_harm() {
    // A ghost of the first packet comes when the memory holds something else.
    let mut bed = Bed::new("duplicate opcode=rc-rdma-write-first dir=tx after=5ms shots=1");
    bed.write();
    bed.done(Duration::from_millis(3));
    bed.sent.reverse();
    bed.pair.a.mem.write(bed.a.data, &bed.sent).unwrap();
    bed.write();
    bed.done(Duration::from_millis(20));
}

#[test]
fn damage_is_found_by_the_link_or_by_the_transport() {
    for crc in ["bad", "bad-icrc"] {
        let mut bed = Bed::new(&format!(
            "corrupt crc={crc} byte=payload+9 opcode=rc-rdma-write-middle dir=tx nth=1{COUNT}"
        ));
        bed.write();
        bed.done(BEFORE_TIMEOUT);
        // All five, then the second and what follows.
        assert_eq!(bed.counts()[1].0, 5 + 4, "{crc}");
        let errors = bed.pair.b.hca.link_mut(1).unwrap().counters().rcv_errors;
        assert_eq!(errors, u64::from(crc == "bad"), "{crc}");
    }
}

#[test]
fn damage_with_good_crcs_is_found_by_nobody() {
    let mut bed = Bed::new("corrupt crc=good byte=payload+9 xor=0x10 psn=0xfffff1 dir=tx");
    bed.write();
    let cqe = bed.within(BEFORE_TIMEOUT).expect("it is done");
    assert_eq!(cqe.status, CqeStatus::Success.raw());
    let mut want = bed.sent.clone();
    want[4096 + 9] ^= 0x10;
    assert!(bed.received() == want, "one byte is wrong, and only that");
}

#[test]
fn packets_out_of_order_are_sent_again() {
    for fault in ["reorder", "psn-shift +1", "psn-shift -3", "delay 1ms"] {
        let psn = FIRST_PSN + 2;
        let mut bed = Bed::new(&format!("{fault} psn={psn} dir=tx shots=1{COUNT}"));
        bed.write();
        bed.done(BEFORE_TIMEOUT);
        assert_eq!(bed.counts()[0], (1, 1), "{fault}");
        assert!(bed.counts()[1].0 >= 5 + 2, "{fault}: {:?}", bed.counts());
    }
}

#[test]
fn a_read_whose_answer_has_a_gap_asks_for_the_rest() {
    let mut bed = Bed::new(
        "drop opcode=rc-*read-response-middle dir=rx nth=2; ecn opcode=rc-*-read-request dir=tx",
    );
    bed.pair.b.mem.write(bed.b.data, &bed.sent).unwrap();
    bed.pair
        .a
        .mem
        .write(bed.a.data, &vec![0; LENGTH as usize])
        .unwrap();
    bed.post(SendOpcode::Read, LENGTH, &[]);
    let cqe = bed.within(BEFORE_TIMEOUT).expect("it is done");
    assert_eq!(cqe.status, CqeStatus::Success.raw());
    let mut got = vec![0; LENGTH as usize];
    bed.pair.a.mem.read(bed.a.data, &mut got).unwrap();
    assert!(got == bed.sent);
    assert_eq!(bed.counts()[1].0, 2, "one request, and one for the rest");
}

#[test]
fn who_never_gets_through_gives_up_after_its_retries() {
    let mut bed = Bed::new("drop opcode=rc-rdma-write-only dir=tx");
    bed.post(SendOpcode::Write, 64, &[]);
    let cqe = bed.within(Duration::from_secs(4)).expect("it has failed");
    assert_eq!(cqe.status, CqeStatus::RetryExceeded.raw());
    // Once, and the 7 retries of the connection.
    assert_eq!(bed.counts(), [(8, 8)]);
}

#[test]
fn credits_that_are_held_back_only_cost_time() {
    let mut bed = Bed::new("");
    let rules = "hold-credits 10ms dir=rx nth=1".parse().unwrap();
    bed.pair.b.hca.link_mut(1).unwrap().set_faults(rules);
    // More than the receive buffer of a lane.
    for _ in 0..10 {
        bed.write();
    }
    bed.pair.run_for(Duration::from_millis(8));
    assert!(core::iter::from_fn(|| bed.a.cq.poll()).count() < 10);
    bed.pair.run_for(Duration::from_millis(5));
    assert!(core::iter::from_fn(|| bed.a.cq.poll()).all(|c| c.status == 0));
    assert_eq!(bed.received(), bed.sent);
    let counters = *bed.pair.a.hca.link_mut(1).unwrap().counters();
    assert!(counters.xmit_wait > 0);
    assert_eq!(counters.xmit_discards, 0);
}
