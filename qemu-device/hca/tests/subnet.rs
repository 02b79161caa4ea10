// SPDX-License-Identifier: GPL-2.0-or-later
//! A subnet manager in the first of two hosts brings both ports up with directed-route packets over
//! the cable, hears the traps of the neighbour and represses them.

mod common;

use std::time::Duration;

use common::guest::{elements, GuestCq, GuestQp};
use common::host::{Host, Pair};
use ochre_hca::Dma;
use ochre_hw::cmd::device::SetNodeDescription;
use ochre_hw::cmd::Opcode;
use ochre_hw::eqe::EventType;
use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, AddressVector, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge};
use ochre_link::mem::MemConfig;
use ochre_wire::mad::notice::{change, trap, LocalChange, Notice};
use ochre_wire::mad::sma::{phys_state, NodeInfo, PortInfo};
use ochre_wire::mad::{attr, class, method, status, Mad};
use ochre_wire::Lid;

const SM_LID: Lid = Lid(1);
const PEER_LID: Lid = Lid(2);
const RECEIVES: u64 = 8;
/// Space of a received MAD: GRH and payload.
const SLOT: u64 = 512;

/// QP0 of a host, with receives in a ring of slots behind the send buffer.
struct Smi {
    qp: u32,
    guest: GuestQp,
    cq: GuestCq,
    pd: u32,
    key: u32,
    data: u64,
    tid: u64,
}

impl Smi {
    fn new(h: &mut Host) -> Self {
        let pd = h.alloc_pd();
        let (cqn, cq) = h.create_cq(0, 6);
        let sizes = QpSizes {
            send_wr: 16,
            send_sge: 1,
            inline_data: 64,
            recv_wr: 16,
            recv_sge: 1,
        };
        let (qp, guest) = h.create_qp(QpType::Smi, pd, [cqn, cqn], &sizes);
        h.start_datagram(qp, QpType::Smi, 0);
        let (key, data) = h.create_mr(pd, 16 << 10, access::LOCAL_WRITE);
        let mut smi = Smi {
            qp,
            guest,
            cq,
            pd,
            key,
            data,
            tid: 1 << 32,
        };
        for slot in 0..RECEIVES {
            smi.post(slot);
        }
        smi
    }

    fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            addr: self.data + offset,
            length,
            lkey: self.key,
        }
    }

    fn post(&mut self, slot: u64) {
        let sge = self.sge(SLOT * (1 + slot), 296);
        self.guest.post_recv(slot, &[sge]);
    }

    fn send(&mut self, h: &mut Host, mad: &Mad, dlid: Lid) {
        h.mem.write(self.data, &mad.0).unwrap();
        let ah = h.create_ah(
            self.pd,
            AddressVector {
                dlid: dlid.0,
                port: 1,
                ..AddressVector::default()
            },
        );
        let wqe = SendWqe {
            opcode: SendOpcode::Send.raw(),
            num_sge: 1,
            remote: u64::from(ah),
            ..SendWqe::default()
        };
        let sge = self.sge(0, 256);
        self.guest.post_send(&wqe, &elements(&[sge]));
        h.ring(self.qp, &self.guest);
    }

    fn receive(&mut self, h: &Host) -> Option<Mad> {
        let cqe = self.cq.poll()?;
        assert_eq!((cqe.status, cqe.byte_len), (0, 296));
        let mad = Mad(h
            .mem
            .bytes(self.data + SLOT * (1 + cqe.wr_id) + 40)
            .unwrap());
        self.post(cqe.wr_id);
        Some(mad)
    }
}

struct Subnet {
    pair: Pair,
    smi: Smi,
}

impl Subnet {
    /// A directed-route request to the own node (no hops) or to the neighbour (one hop), with the
    /// hop pointer as the MAD layer of the kernel leaves it.
    fn ask(&mut self, m: u8, attr_id: u16, attr_mod: u32, hops: u8, data: &[u8; 64]) -> Mad {
        self.smi.tid += 1;
        let mut mad = Mad::new(class::SUBN_DIRECTED, m, attr_id, attr_mod, self.smi.tid);
        mad.set_dr_lids(Lid::PERMISSIVE, Lid::PERMISSIVE);
        mad.set_hop_count(hops);
        mad.set_hop_pointer(1);
        mad.initial_path_mut()[1] = 1;
        *mad.smp_data_mut() = *data;
        let out = if hops == 0 {
            self.pair.a.process_mad(&mad).expect("the own node answers")
        } else {
            self.smi.send(&mut self.pair.a, &mad, Lid::PERMISSIVE);
            self.pair.settle();
            let out = self
                .smi
                .receive(&self.pair.a)
                .expect("the neighbour answers");
            assert_eq!((out.hop_pointer(), out.return_path()[1]), (1, 1));
            out
        };
        assert_eq!((out.method(), out.tid()), (method::GET_RESP, mad.tid()));
        assert_eq!(out.status(), status::DIRECTION);
        out
    }

    fn port_info(&mut self, hops: u8) -> PortInfo {
        PortInfo::read(
            self.ask(method::GET, attr::PORT_INFO, 0, hops, &[0; 64])
                .smp_data(),
        )
    }

    fn set(&mut self, hops: u8, edit: impl FnOnce(&mut PortInfo)) {
        let mut pi = self.port_info(hops);
        pi.port_state = 0;
        pi.port_physical_state = 0;
        edit(&mut pi);
        let mut data = [0; 64];
        pi.write(&mut data);
        self.ask(method::SET, attr::PORT_INFO, 1, hops, &data);
    }

    fn up() -> Self {
        let mut pair = Pair::new(MemConfig::default());
        pair.a.enable();
        pair.b.enable();
        pair.run_for(Duration::from_secs(2));
        let smi = Smi::new(&mut pair.a);
        let mut net = Subnet { pair, smi };
        for (hops, lid) in [(0, SM_LID), (1, PEER_LID)] {
            assert_eq!(net.port_info(hops).port_state, 2);
            net.set(hops, |pi| {
                pi.lid = lid;
                pi.master_sm_lid = SM_LID;
                pi.subnet_timeout = 18;
                pi.client_reregister = true;
            });
        }
        for state in [3, 4] {
            for hops in [0, 1] {
                net.set(hops, |pi| pi.port_state = state);
            }
        }
        net.pair.settle();
        net
    }
}

#[test]
fn both_ports_become_active() {
    let mut net = Subnet::up();
    let a = NodeInfo::read(
        net.ask(method::GET, attr::NODE_INFO, 0, 0, &[0; 64])
            .smp_data(),
    );
    let b = NodeInfo::read(
        net.ask(method::GET, attr::NODE_INFO, 0, 1, &[0; 64])
            .smp_data(),
    );
    assert_ne!(a.node_guid, b.node_guid);
    for (host, lid) in [(&mut net.pair.a, SM_LID), (&mut net.pair.b, PEER_LID)] {
        let port = host.query_port();
        assert_eq!((port.state, port.phys_state), (4, 5));
        assert_eq!((port.lid, port.sm_lid), (lid.0, SM_LID.0));
        let events: Vec<_> = host.events().into_iter().map(|(e, ..)| e).collect();
        for event in [
            EventType::LidChange,
            EventType::SmChange,
            EventType::ClientReregister,
            EventType::PortActive,
        ] {
            assert!(events.contains(&event), "{event:?} in {events:?}");
        }
    }
}

#[test]
fn a_trap_of_the_neighbour_is_heard_and_repressed() {
    let mut net = Subnet::up();
    let mut description = [0; 64];
    description[..4].copy_from_slice(b"node");
    net.pair
        .b
        .command(
            Opcode::SetNodeDescription,
            SetNodeDescription { description },
        )
        .unwrap();
    net.pair.settle();
    let heard = net.smi.receive(&net.pair.a).expect("a trap");
    assert_eq!((heard.class(), heard.method()), (0x01, method::TRAP));
    let notice = Notice::read(heard.smp_data());
    assert_eq!(notice.header.trap_number, trap::LOCAL_CHANGE);
    assert_eq!(notice.header.issuer_lid, PEER_LID);
    let details = LocalChange::read(&notice.details);
    assert_eq!(details.change_flags, change::NODE_DESCRIPTION);

    // Without an answer it comes again; with one it does not.
    net.pair.run_for(Duration::from_secs(2));
    let mut again = net.smi.receive(&net.pair.a).expect("the trap again");
    assert_eq!(Notice::read(again.smp_data()), notice);
    again.set_method(method::TRAP_REPRESS);
    net.smi.send(&mut net.pair.a, &again, PEER_LID);
    net.pair.run_for(Duration::from_secs(300));
    assert_eq!(net.smi.receive(&net.pair.a), None);
}

#[test]
fn a_port_told_to_go_down_answers_first_and_comes_back() {
    let mut net = Subnet::up();
    net.pair.a.events();
    net.pair.b.events();
    net.set(1, |pi| {
        pi.port_state = 1;
        pi.port_physical_state = phys_state::POLLING;
    });
    net.pair.run_for(Duration::from_secs(2));
    for host in [&mut net.pair.a, &mut net.pair.b] {
        let events = host.events();
        assert!(events.iter().any(|(e, ..)| *e == EventType::PortError));
        assert_eq!(host.query_port().state, 2, "trained anew");
    }
    // LIDs are kept until somebody sets others.
    assert_eq!(net.port_info(1).lid, PEER_LID);
}
