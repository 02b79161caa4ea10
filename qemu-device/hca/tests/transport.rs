// SPDX-License-Identifier: GPL-2.0-or-later
//! Connections between two whole devices: what ends them, what they survive, and their limits.

mod common;

use std::time::Duration;

use ochre_hw::cmd::mem::{CreateMr, MrKind};
use ochre_hw::cmd::Opcode;
use ochre_hw::cqe::{CqeStatus, CQE_IMM};
use ochre_hw::doorbell;
use ochre_hw::eqe::EventType;
use ochre_hw::queue::{MemDesc, QpSizes, MEM_INDIRECT};
use ochre_hw::verbs::{access, qp_attr, QpAttr, QpState, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_SIGNALED};
use ochre_link::mem::{Faults, MemConfig};
use ochre_link::PortConfig;

use common::guest::elements;
use common::host::{Host, Pair, LID_A, LID_B};
use common::peers::{connect, connected, End};
use common::rng::Rng;
use common::Dma;

fn post(host: &mut Host, end: &mut End, opcode: SendOpcode, imm: u32, sges: &[Sge], to: &End) {
    let wqe = SendWqe {
        opcode: opcode.raw(),
        flags: SEND_SIGNALED,
        num_sge: sges.len() as u8,
        imm,
        wr_id: end.guest.sq_producer.into(),
        remote: to.place.target,
        key: to.place.key,
        ..SendWqe::default()
    };
    end.guest.post_send(&wqe, &elements(sges));
    if end.guest.wants_send_doorbell() {
        host.hca.doorbell(host.now, doorbell::SEND, end.number);
    }
}

fn source(end: &End, at: u64, length: u32) -> Sge {
    Sge {
        addr: end.place.source + at,
        length,
        lkey: end.place.key,
    }
}

fn receive(end: &mut End, id: u64, length: u32) {
    let sge = Sge {
        addr: end.place.receives,
        length,
        lkey: end.place.key,
    };
    end.guest.post_recv(id, &[sge]);
}

fn statuses(end: &mut End) -> (Vec<u8>, Vec<u8>) {
    let sent = core::iter::from_fn(|| end.send_cq.poll().map(|c| c.status)).collect();
    let received = core::iter::from_fn(|| end.recv_cq.poll().map(|c| c.status)).collect();
    (sent, received)
}

const FLUSHED: u8 = CqeStatus::WorkRequestFlushed as u8;

#[test]
fn a_hundred_sends_meet_a_slow_receiver() {
    // RNR NAKs with every timer, each waited for, none of them the end of the connection.
    for timer in [0, 1, 14, 31] {
        let mut pair = Pair::active();
        let mut rng = Rng::new(timer);
        let [mut a, mut b] = connected(&mut pair, QpType::Rc, &mut rng, |attr| {
            attr.min_rnr_timer = timer as u8;
        });
        for n in 0..100u64 {
            let sge = source(&a, n, 100);
            post(&mut pair.a, &mut a, SendOpcode::Send, 0, &[sge], &b);
            pair.run_for(Duration::from_micros(5));
            assert!(a.send_cq.poll().is_none());
            receive(&mut b, n, 100);
            let wait = ochre_wire::rnr_timer_ns(timer as u8);
            pair.run_for(Duration::from_nanos(wait - 6_000));
            assert!(a.send_cq.poll().is_none(), "timer {timer} is waited for");
            pair.run_for(Duration::from_micros(20));
            assert_eq!(a.send_cq.poll().expect("a completion").status, 0);
            assert_eq!(b.recv_cq.poll().expect("a completion").wr_id, n);
            a.guest.sq_consumer += 1;
            b.guest.rq_consumer += 1;
        }
    }
}

#[test]
fn a_cq_that_overruns_takes_only_its_qps_along() {
    let mut pair = Pair::active();
    let mut rng = Rng::new(1);
    let sizes = QpSizes {
        send_wr: 16,
        send_sge: 1,
        recv_wr: 1,
        ..QpSizes::default()
    };
    let [mut a, b] = connected(&mut pair, QpType::Rc, &mut rng, |_| ());
    let pd = pair.a.alloc_pd();
    let (small, _) = pair.a.create_cq(0, 2);
    let (key, at) = pair.a.create_mr(pd, 4096, access::REGION);
    let (victim, mut guest) = pair.a.create_qp(QpType::Rc, pd, [small, small], &sizes);
    let [_, peer] = connected(&mut pair, QpType::Rc, &mut rng, |_| ());
    pair.a.start_rc(victim, peer.number, LID_B);
    let reset = QpAttr::default();
    let state = qp_attr::STATE;
    pair.b.modify_qp(peer.number, state, reset).unwrap();
    pair.b.start_rc(peer.number, victim, LID_A);
    for _ in 0..8 {
        let wqe = SendWqe {
            opcode: SendOpcode::Write.raw(),
            flags: SEND_SIGNALED,
            num_sge: 1,
            remote: peer.place.target,
            key: peer.place.key,
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: at,
            length: 8,
            lkey: key,
        };
        guest.post_send(&wqe, &elements(&[sge]));
    }
    pair.a.ring(victim, &guest);
    pair.run_for(Duration::from_millis(1));
    let events = pair.a.events();
    assert!(
        events.contains(&(EventType::CqError, 0, small)),
        "{events:?}"
    );
    assert!(
        events.contains(&(EventType::QpFatal, 0, victim)),
        "{events:?}"
    );
    assert_eq!(pair.a.query_qp(victim).state, QpState::Error.raw());
    // The device lives on.
    let sge = source(&a, 0, 10_000);
    post(&mut pair.a, &mut a, SendOpcode::Write, 0, &[sge], &b);
    pair.run_for(Duration::from_millis(1));
    assert_eq!(statuses(&mut a).0, [0]);
}

#[test]
fn a_connection_is_made_again_after_its_peer_went_away() {
    let mut pair = Pair::active();
    let mut rng = Rng::new(2);
    let [mut a, mut b] = connected(&mut pair, QpType::Rc, &mut rng, |attr| {
        attr.retry_count = 1;
    });
    for round in 0..3 {
        for n in 0..4 {
            receive(&mut a, n, 10);
            let sge = source(&a, 0, 100_000);
            post(&mut pair.a, &mut a, SendOpcode::Write, 0, &[sge], &b);
        }
        pair.run_for(Duration::from_millis(1));
        assert_eq!(statuses(&mut a).0, [0; 4], "round {round}");
        // The peer goes to RESET; what is sent to it now finds nobody.
        let reset = QpAttr::default();
        pair.b.modify_qp(b.number, qp_attr::STATE, reset).unwrap();
        for _ in 0..3 {
            let sge = source(&a, 0, 100_000);
            post(&mut pair.a, &mut a, SendOpcode::Write, 0, &[sge], &b);
        }
        pair.run_for(Duration::from_millis(50));
        let (sent, received) = statuses(&mut a);
        assert_eq!(sent, [CqeStatus::RetryExceeded as u8, FLUSHED, FLUSHED]);
        assert_eq!(received, [FLUSHED; 4]);
        assert_eq!(pair.a.query_qp(a.number).state, QpState::Error.raw());
        pair.a.modify_qp(a.number, qp_attr::STATE, reset).unwrap();
        for end in [&mut a, &mut b] {
            for index in [&mut end.guest.sq_producer, &mut end.guest.rq_producer] {
                *index = 0;
            }
            end.place.mem.write(end.guest.base, &[0; 8]).unwrap();
        }
        let attr = |peer: &End, dlid| {
            let mut attr = QpAttr {
                port: 1,
                access: access::QP,
                path_mtu: 3,
                dest_qpn: peer.number,
                timeout: 8,
                retry_count: 1,
                sq_psn: 5,
                rq_psn: 5,
                ..QpAttr::default()
            };
            attr.av.dlid = dlid;
            attr.av.port = 1;
            attr
        };
        connect(&mut pair.a, QpType::Rc, a.number, attr(&b, LID_B));
        connect(&mut pair.b, QpType::Rc, b.number, attr(&a, LID_A));
    }
}

#[test]
fn qps_go_while_traffic_runs() {
    for who in 0..4u64 {
        let mut pair = Pair::active();
        let mut rng = Rng::new(who);
        let [mut a, mut b] = connected(&mut pair, QpType::Rc, &mut rng, |_| ());
        for n in 0..16 {
            receive(&mut b, n, 60_000);
            let sge = source(&a, n * 1000, 60_000);
            let opcode = rng.pick(&[SendOpcode::Send, SendOpcode::Read, SendOpcode::Write]);
            post(&mut pair.a, &mut a, opcode, 0, &[sge], &b);
        }
        for _ in 0..who {
            pair.b.poll();
        }
        let error = QpAttr {
            state: QpState::Error.raw(),
            ..QpAttr::default()
        };
        match who {
            0 => pair.a.destroy(Opcode::DestroyQp, a.number).unwrap(),
            1 => pair.b.destroy(Opcode::DestroyQp, b.number).unwrap(),
            2 => pair.a.modify_qp(a.number, qp_attr::STATE, error).unwrap(),
            _ => pair.b.destroy(Opcode::DestroyMr, b.place.key).unwrap(),
        }
        pair.run_for(Duration::from_millis(100));
        if who != 0 {
            // Every request has ended, and in order.
            let sent: Vec<_> = core::iter::from_fn(|| a.send_cq.poll()).collect();
            let ids: Vec<_> = sent.iter().map(|c| c.wr_id).collect();
            assert_eq!(ids, (0..16).collect::<Vec<_>>());
            let first_bad = sent.iter().position(|c| c.status != 0).expect("one fails");
            let rest = sent[first_bad + 1..].iter();
            assert!(rest.clone().all(|c| c.status == FLUSHED));
        }
        assert_eq!(pair.a.query_port().state, 4);
    }
}

/// A region of `bytes` whose pages are all the same one.
fn folded_region(host: &mut Host, pd: u32, bytes: u64, page: u64) -> u32 {
    let pages = (bytes >> 12) as u32;
    let list = host.heap.take(u64::from(pages) * 8);
    for n in 0..u64::from(pages) {
        host.mem.write(list + n * 8, &page.to_le_bytes()).unwrap();
    }
    let input = CreateMr {
        mem: MemDesc {
            addr: list,
            num_pages: pages,
            page_shift: 12,
            flags: MEM_INDIRECT,
            ..MemDesc::default()
        },
        iova: 0,
        length: bytes,
        pd,
        access: access::REGION,
        kind: MrKind::Pages.raw(),
        ..CreateMr::default()
    };
    host.create(Opcode::CreateMr, input).unwrap()
}

#[test]
fn the_longest_message_arrives() {
    let mut pair = Pair::active();
    let sizes = QpSizes {
        send_wr: 4,
        send_sge: 2,
        recv_wr: 4,
        recv_sge: 2,
        ..QpSizes::default()
    };
    let longest = 1u64 << 31;
    let make = |host: &mut Host, fill: u8| {
        let pd = host.alloc_pd();
        let (cq, guest_cq) = host.create_cq(0, 4);
        let page = host.heap.take(4096);
        host.mem.write(page, &[fill; 4096]).unwrap();
        let key = folded_region(host, pd, longest, page);
        let (qp, guest) = host.create_qp(QpType::Rc, pd, [cq, cq], &sizes);
        (qp, guest, guest_cq, key, page)
    };
    let mut a = make(&mut pair.a, 0x5a);
    let mut b = make(&mut pair.b, 0);
    pair.a.start_rc(a.0, b.0, LID_B);
    pair.b.start_rc(b.0, a.0, LID_A);
    let sge = |key, extra| {
        [
            Sge {
                addr: 0,
                length: 1 << 30,
                lkey: key,
            },
            Sge {
                addr: 0,
                length: (1u32 << 30) + extra,
                lkey: key,
            },
        ]
    };
    b.1.post_recv(1, &sge(b.3, 0));
    for extra in [0, 1] {
        let wqe = SendWqe {
            opcode: SendOpcode::Send.raw(),
            flags: SEND_SIGNALED,
            num_sge: 2,
            ..SendWqe::default()
        };
        a.1.post_send(&wqe, &elements(&sge(a.3, extra)));
        pair.a.ring(a.0, &a.1);
        pair.run_for(Duration::from_millis(10));
        let status = a.2.poll().expect("a completion").status;
        if extra == 0 {
            assert_eq!(status, 0);
            assert_eq!(b.2.poll().expect("a completion").byte_len, 1 << 31);
            assert_eq!(b.4 % 4096, 0);
            assert_eq!(pair.b.mem.bytes::<8>(b.4 + 4088).unwrap(), [0x5a; 8]);
        } else {
            assert_eq!(status, CqeStatus::LocalLength as u8);
        }
    }
}

#[test]
fn what_arrives_on_an_unreliable_connection_is_whole_and_in_order() {
    for seed in 0..5 {
        let mut pair = Pair::with(
            MemConfig {
                seed,
                ..MemConfig::default()
            },
            PortConfig {
                fc_refresh: Duration::from_micros(20),
                ..PortConfig::default()
            },
        );
        pair.bring_up();
        let mut rng = Rng::new(seed);
        let [mut a, mut b] = connected(&mut pair, QpType::Uc, &mut rng, |attr| {
            attr.path_mtu = 2;
        });
        let faults = Faults {
            drop_ppm: 20_000,
            corrupt_ppm: 20_000,
            data_only: true,
            ..Faults::default()
        };
        let link = pair.a.hca.link_mut(1).unwrap();
        link.cable_mut().set_faults(faults);
        let mut sent = Vec::new();
        let (mut next, mut arrived) = (0, 0);
        for n in 0..500u32 {
            let len = rng.pick(&[0, 1, 511, 512, 513, 3000, 20_000]);
            let at = rng.below(100_000);
            let sge = source(&a, at, len);
            let opcode = rng.pick(&[SendOpcode::SendImm, SendOpcode::WriteImm]);
            while b.guest.rq_room() > 0 && b.guest.rq_producer.wrapping_sub(arrived) < 4 {
                let id = b.guest.rq_producer.into();
                receive(&mut b, id, 20_000);
            }
            post(&mut pair.a, &mut a, opcode, n, &[sge], &b);
            sent.push((len, at, opcode));
            pair.run_for(Duration::from_micros(30));
            assert_eq!(a.send_cq.poll().expect("a completion").status, 0);
            while let Some(cqe) = b.recv_cq.poll() {
                assert_eq!((cqe.status, cqe.flags & CQE_IMM), (0, CQE_IMM));
                assert!(cqe.imm >= next, "message {} comes late", cqe.imm);
                next = cqe.imm + 1;
                let (len, at, opcode) = sent[cqe.imm as usize];
                assert_eq!(cqe.byte_len, len);
                let place = match opcode {
                    SendOpcode::SendImm => b.place.receives,
                    _ => b.place.target,
                };
                let mut bytes = [vec![0; len as usize], vec![0; len as usize]];
                a.place
                    .mem
                    .read(a.place.source + at, &mut bytes[0])
                    .unwrap();
                b.place.mem.read(place, &mut bytes[1]).unwrap();
                assert!(bytes[0] == bytes[1], "content of message {}", cqe.imm);
                arrived += 1;
                b.guest.rq_consumer = cqe.wqe_index;
            }
        }
        assert!(arrived > 100 && arrived < 490, "{arrived} of 500");
        assert_eq!(pair.b.query_qp(b.number).state, QpState::Rts.raw());
    }
}
