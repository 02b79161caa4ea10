// SPDX-License-Identifier: GPL-2.0-or-later
//! Partitions, and ports with several LIDs.

mod common;

use common::guest::{GuestCq, GuestQp};
use common::host::{Host, Pair, LID_A};
use common::Dma;
use ochre_hw::cqe::CqeStatus;
use ochre_hw::eqe::EventType;
use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, qp_attr, AddressVector, QpAttr, QpState, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_SIGNALED};
use ochre_wire::mad::{attr, class, method, Mad};

const GSI_QKEY: u32 = 0x8001_0000;
const SIZES: QpSizes = QpSizes {
    send_wr: 8,
    send_sge: 1,
    inline_data: 0,
    recv_wr: 8,
    recv_sge: 1,
};

/// Writes the first P_Keys of a port, as the subnet manager does.
fn set_pkeys(host: &mut Host, keys: &[u16]) {
    let mut mad = Mad::new(class::SUBN_LID_ROUTED, method::SET, attr::PKEY_TABLE, 0, 9);
    for (place, key) in mad.smp_data_mut().chunks_exact_mut(2).zip(keys) {
        place.copy_from_slice(&key.to_be_bytes());
    }
    let reply = host.process_mad(&mad).expect("an answer");
    assert_eq!(reply.status(), 0);
}

struct End {
    qp: u32,
    guest: GuestQp,
    cq: GuestCq,
    pd: u32,
    key: u32,
    data: u64,
}

fn end(h: &mut Host, kind: QpType, pkey_index: u16) -> End {
    let pd = h.alloc_pd();
    let (cqn, cq) = h.create_cq(0, 5);
    let (qp, guest) = h.create_qp(kind, pd, [cqn, cqn], &SIZES);
    let qkey = if kind == QpType::Gsi { GSI_QKEY } else { 1 };
    h.start_datagram(qp, kind, qkey);
    if kind == QpType::Ud {
        // The P_Key can be changed on the way to RTR only.
        for (mask, state) in [
            (0, QpState::Reset),
            (
                qp_attr::PORT | qp_attr::QKEY | qp_attr::PKEY_INDEX,
                QpState::Init,
            ),
            (0, QpState::Rtr),
            (qp_attr::SQ_PSN, QpState::Rts),
        ] {
            let attr = QpAttr {
                state: state.raw(),
                port: 1,
                qkey,
                pkey_index,
                ..QpAttr::default()
            };
            h.modify_qp(qp, qp_attr::STATE | mask, attr).unwrap();
        }
    }
    let (key, data) = h.create_mr(pd, 4096, access::LOCAL_WRITE);
    End {
        qp,
        guest,
        cq,
        pd,
        key,
        data,
    }
}

impl End {
    fn recv(&mut self) {
        let sge = Sge {
            addr: self.data,
            length: 4096,
            lkey: self.key,
        };
        self.guest.post_recv(1, &[sge]);
    }

    /// Sends 256 bytes to QP `dest` at `dlid`.
    fn send(&mut self, h: &mut Host, dest: u32, dlid: u16, qkey: u32, pkey_index: u16) {
        let av = AddressVector {
            dlid,
            port: 1,
            ..AddressVector::default()
        };
        let ah = h.create_ah(self.pd, av);
        let wqe = SendWqe {
            opcode: SendOpcode::Send.raw(),
            flags: SEND_SIGNALED,
            num_sge: 1,
            remote: u64::from(dest) << 32 | u64::from(ah),
            key: qkey,
            pkey_index,
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: self.data,
            length: 256,
            lkey: self.key,
        };
        self.guest.post_send(&wqe, &common::guest::elements(&[sge]));
        h.ring(self.qp, &self.guest);
    }
}

#[test]
fn limited_members_talk_to_full_ones_only() {
    let (full, limited, other) = (0x8123, 0x0123, 0x8456);
    for (a_key, b_key, passes) in [
        (full, full, true),
        (full, limited, true),
        (limited, full, true),
        (limited, limited, false),
        (other, full, false),
    ] {
        let mut pair = Pair::active();
        set_pkeys(&mut pair.a, &[0xffff, a_key]);
        set_pkeys(&mut pair.b, &[0xffff, 0x9999, b_key]);
        assert_eq!(pair.a.events(), [(EventType::PkeyChange, 1, 0)]);
        let mut a = end(&mut pair.a, QpType::Ud, 1);
        let mut b = end(&mut pair.b, QpType::Ud, 2);
        b.recv();
        a.send(&mut pair.a, b.qp, common::host::LID_B, 1, 0);
        pair.settle();
        assert_eq!(a.cq.poll().unwrap().status, 0);
        let got = b.cq.poll();
        assert_eq!(got.is_some(), passes, "{a_key:#x} to {b_key:#x}");
        if let Some(cqe) = got {
            assert_eq!(cqe.pkey_index, 2);
        }
        let violations = pair.b.query_port().pkey_violations;
        assert_eq!(violations, u16::from(!passes));
    }
}

#[test]
fn general_services_use_any_key_of_the_table() {
    let mut pair = Pair::active();
    set_pkeys(&mut pair.a, &[0xffff, 0x8123]);
    set_pkeys(&mut pair.b, &[0xffff, 0, 0x0123]);
    let mut a = end(&mut pair.a, QpType::Gsi, 0);
    let mut b = end(&mut pair.b, QpType::Gsi, 0);
    // A class that the firmware leaves to the host.
    let mad = Mad::new(0x07, method::SEND, 0x10, 0, 6);
    pair.a.mem.write(a.data, &mad.0).unwrap();
    for (index, at_receiver) in [(1, 2), (0, 0)] {
        b.recv();
        a.send(&mut pair.a, 1, common::host::LID_B, GSI_QKEY, index);
        pair.settle();
        assert_eq!(a.cq.poll().unwrap().status, 0);
        assert_eq!(b.cq.poll().unwrap().pkey_index, at_receiver);
    }
    // An empty entry is no key.
    a.send(&mut pair.a, 1, common::host::LID_B, GSI_QKEY, 5);
    let status = CqeStatus::LocalQpOperation.raw();
    assert_eq!(a.cq.poll().unwrap().status, status);
}

#[test]
fn path_bits_tell_which_lid_was_meant() {
    let mut pair = Pair::active();
    let base = 0x40;
    pair.b.set_port_info(|info| {
        info.lid = ochre_wire::Lid(base);
        info.lmc = 2;
        info.neighbor_mtu = 5;
    });
    pair.b.events();
    let mut a = end(&mut pair.a, QpType::Ud, 0);
    let mut b = end(&mut pair.b, QpType::Ud, 0);
    for bits in 0..4u16 {
        b.recv();
        a.send(&mut pair.a, b.qp, base + bits, 1, 0);
        pair.settle();
        let cqe = b.cq.poll().expect("each of the four LIDs is its own");
        assert_eq!(u16::from(cqe.dlid_path_bits), bits);
        assert_eq!(cqe.slid, LID_A);
    }
    b.recv();
    a.send(&mut pair.a, b.qp, base + 4, 1, 0);
    pair.settle();
    assert_eq!(b.cq.poll(), None);
}
