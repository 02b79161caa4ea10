// SPDX-License-Identifier: GPL-2.0-or-later
//! Multicast groups between two devices on a cable.

mod common;

use common::datagram::{end, ends, End, QKEY, SIZES};
use common::host::{Host, Pair, LID_A};
use ochre_hca::Dma;
use ochre_hw::cmd::port::Counter;
use ochre_hw::cmd::qp::Multicast;
use ochre_hw::cmd::Opcode;
use ochre_hw::cqe::CQE_GRH;
use ochre_hw::verbs::{AddressVector, QpType, AV_GRH};
use ochre_link::mem::MemConfig;
use ochre_link::PortConfig;

const MLID: u16 = 0xc005;

fn mgid() -> [u8; 16] {
    let mut mgid = [0; 16];
    mgid[..2].copy_from_slice(&[0xff, 0x12]);
    mgid
}

fn join(h: &mut Host, qp: u32) {
    let group = Multicast {
        mgid: mgid(),
        qp,
        mlid: MLID,
        ..Multicast::default()
    };
    h.command(Opcode::AttachMulticast, group).unwrap();
}

/// The way of an end to the group.
fn way(h: &mut Host, end: &End) -> u32 {
    let av = AddressVector {
        dgid: mgid(),
        dlid: MLID,
        port: 1,
        flags: AV_GRH,
        ..AddressVector::default()
    };
    h.create_ah(end.pd, av)
}

#[test]
fn a_group_has_all_its_members() {
    let mut pair = Pair::active();
    let (mut a, mut b) = ends(&mut pair);
    let mut b2 = end(&mut pair.b, QpType::Ud, LID_A, QKEY);
    join(&mut pair.a, a.qp);
    join(&mut pair.b, b.qp);
    join(&mut pair.b, b2.qp);
    a.ah = way(&mut pair.a, &a);
    a.guest.post_recv(1, &[a.sge(4096, 128)]);
    b.guest.post_recv(2, &[b.sge(0, 128)]);
    b2.guest.post_recv(3, &[b2.sge(0, 128)]);
    pair.a.mem.write(a.data, b"all").unwrap();
    let sge = a.sge(0, 3);
    a.send(&mut pair.a, a.wqe(0xff_ffff, 1), &[sge]);
    pair.settle();
    assert_eq!(a.cq.poll().unwrap().opcode, 0);
    assert_eq!(a.one().wr_id, 1, "the sender is a member too");
    for (end, wr_id) in [(&mut b, 2), (&mut b2, 3)] {
        let cqe = end.one();
        assert_eq!((cqe.wr_id, cqe.flags, cqe.slid), (wr_id, CQE_GRH, LID_A));
        assert_eq!(&pair.b.mem.bytes::<3>(end.data + 40).unwrap(), b"all");
    }
}

#[test]
fn a_copy_without_room_is_counted() {
    let small = PortConfig {
        loopback_buffer: 32 << 10,
        ..PortConfig::default()
    };
    let mut pair = Pair::with(MemConfig::default(), small);
    pair.bring_up();
    pair.a.set_port_info(|info| info.neighbor_mtu = 5);
    let (mut a, _) = ends(&mut pair);
    join(&mut pair.a, a.qp);
    a.ah = way(&mut pair.a, &a);
    let sends = SIZES.send_wr;
    for _ in 0..sends {
        let sge = a.sge(0, 4096);
        a.guest
            .post_send(&a.wqe(0xff_ffff, 1), &common::guest::elements(&[sge]));
    }
    pair.a.ring(a.qp, &a.guest);
    pair.settle();
    // There is no receive, so that each copy that has come is dropped there.
    let dropped = pair.a.counter(Counter::UdDropped);
    let discarded = pair.a.hca.link_mut(1).unwrap().counters().xmit_discards;
    assert!(dropped > 0 && discarded > 0, "{dropped} {discarded}");
    assert_eq!(dropped + discarded, sends.into());
}
