// SPDX-License-Identifier: GPL-2.0-or-later
//! Programs that send datagrams to each other and to groups, between hosts and within one.

use std::collections::VecDeque;

use ochre_hw::cmd::port::Counter;
use ochre_hw::cqe::{Cqe, CqeOpcode, CqeStatus, CQE_GRH, CQE_IMM, CQE_SOLICITED};
use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, qp_attr, AddressVector, QpAttr, QpState, QpType, AV_GRH};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED};

use crate::common::guest::{elements, GuestCq, GuestQp};
use crate::common::pair::{lid, Pair};
use crate::common::rng::Rng;
use crate::common::Dma;
use crate::groups::Group;
use crate::reference::datagram::{Datagram, Datagrams, Route};
use crate::tally::Tally;

/// Room of a receive for the GRH.
const GRH: u64 = 40;
const SLOTS: u64 = 32;
const SLOT: u64 = 4096 + GRH;
const SOURCE: u64 = 64 << 10;
const SIZES: QpSizes = QpSizes {
    send_wr: 32,
    send_sge: 4,
    inline_data: 64,
    recv_wr: SLOTS as u32,
    recv_sge: 4,
};

/// The QP that a datagram to a group names.
const MULTICAST_QP: u32 = 0xff_ffff;
/// A key that nobody has: a program got it wrong.
const WRONG: u32 = 0x00ab_cd00;

/// Where a way leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Host(usize),
    /// By its place among the groups.
    Group(usize),
}

/// A way to the other host, to the own, or to a group.
struct Way {
    handle: u32,
    to: Target,
    service_level: u8,
    route: Option<Route>,
}

/// A send request whose completion has not come.
struct Outstanding {
    id: u64,
    status: CqeStatus,
    signaled: bool,
    opcode: SendOpcode,
    len: u64,
}

/// A program with one QP.
pub struct Station {
    rng: Rng,
    host: usize,
    number: u32,
    qkey: u32,
    guest: GuestQp,
    send_cq: GuestCq,
    recv_cq: GuestCq,
    key: u32,
    source: u64,
    receives: u64,
    ways: Vec<Way>,
    mtu: u64,
    messages: u64,
    posted: u64,
    outstanding: VecDeque<Outstanding>,
    /// A request has failed: what is behind it is flushed until software resumes.
    is_broken: bool,
    receives_posted: u64,
    receives_done: u64,
    tally: Tally,
}

/// What a station needs to know of another: host, QP and Q_Key.
pub type Peer = (usize, u32, u32);

fn gid(host: usize) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    // The GUID of the first port follows the node's.
    let guid = 0x0200_5e00_0000_0001 + ((host as u64 + 1) << 8);
    gid[8..].copy_from_slice(&guid.to_be_bytes());
    gid
}

impl Station {
    /// A QP in RTS on the first port of a host, with ways to both hosts and all groups.
    pub fn new(
        pair: &mut Pair,
        host: usize,
        qkey: u32,
        mtu: u64,
        groups: &[Group],
        rng: &mut Rng,
    ) -> Self {
        let mut rng = Rng::new(rng.next());
        let h = pair.host(host);
        let pd = h.alloc_pd();
        let (send, send_cq) = h.create_cq(0, 6);
        let (recv, recv_cq) = h.create_cq(0, 6);
        let (number, guest) = h.create_qp(QpType::Ud, pd, [send, recv], &SIZES);
        h.start_datagram(number, QpType::Ud, qkey);
        let (key, source) = h.create_mr(pd, SOURCE + SLOTS * SLOT, access::LOCAL_WRITE);
        h.mem.write(source, &rng.bytes(SOURCE as usize)).unwrap();
        let to_hosts = (0..2).flat_map(|to| [(Target::Host(to), false), (Target::Host(to), true)]);
        // Multicast goes by the GID, so there is always one.
        let to_groups = (0..groups.len()).map(|n| (Target::Group(n), true));
        let mut ways = Vec::new();
        for (to, is_global) in to_hosts.chain(to_groups) {
            let service_level = rng.below(16) as u8;
            let (dlid, dgid) = match to {
                Target::Host(to) => (lid(to, 1), gid(to)),
                Target::Group(n) => (groups[n].mlid, groups[n].mgid),
            };
            let route = is_global.then(|| Route {
                source: gid(host),
                destination: dgid,
                traffic_class: rng.next() as u8,
                flow_label: rng.below(1 << 20) as u32,
                hop_limit: rng.next() as u8,
            });
            let mut av = AddressVector {
                dlid,
                sl: service_level,
                port: 1,
                ..AddressVector::default()
            };
            if let Some(route) = &route {
                av.flags = AV_GRH;
                av.dgid = route.destination;
                av.traffic_class = route.traffic_class;
                av.flow_label = route.flow_label;
                av.hop_limit = route.hop_limit;
            }
            ways.push(Way {
                handle: h.create_ah(pd, av),
                to,
                service_level,
                route,
            });
        }
        Station {
            rng,
            host,
            number,
            qkey,
            guest,
            send_cq,
            recv_cq,
            key,
            source,
            receives: source + SOURCE,
            ways,
            mtu,
            messages: 0,
            posted: 0,
            outstanding: VecDeque::new(),
            is_broken: false,
            receives_posted: 0,
            receives_done: 0,
            tally: Tally::default(),
        }
    }

    pub fn peer(&self) -> Peer {
        (self.host, self.number, self.qkey)
    }

    /// Lets it send so many more.
    pub fn go_on(&mut self, messages: u64) {
        self.messages += messages;
    }

    pub fn is_done(&self) -> bool {
        self.posted >= self.messages && self.outstanding.is_empty()
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// One round of the program; whether it found something.
    pub fn round(
        &mut self,
        pair: &mut Pair,
        peers: &[Peer],
        groups: &[Group],
        network: &mut Datagrams,
    ) -> bool {
        let mut found = self.take_completions(pair, network);
        if self.is_broken && self.outstanding.is_empty() {
            let attr = QpAttr {
                state: QpState::Rts.raw(),
                ..QpAttr::default()
            };
            let h = pair.host(self.host);
            let state = h.query_qp(self.number).state;
            assert_eq!(state, QpState::Sqe.raw());
            h.modify_qp(self.number, qp_attr::STATE, attr).unwrap();
            self.is_broken = false;
            self.tally.resumed += 1;
        }
        if self.rng.chance(50) {
            self.post_receives();
        }
        for _ in 0..self.rng.below(6) {
            if self.posted >= self.messages || self.guest.sq_room() == 0 {
                break;
            }
            self.post(peers, groups, network);
            found = true;
        }
        self.guest.publish_sends();
        pair.host(self.host).ring(self.number, &self.guest);
        found
    }

    fn post_receives(&mut self) {
        let room = SLOTS - (self.receives_posted - self.receives_done);
        for _ in 0..room {
            let slot = self.receives + self.receives_posted % SLOTS * SLOT;
            let sges = self.sges(slot, SLOT, self.key);
            self.guest.post_recv(self.receives_posted, &sges);
            self.receives_posted += 1;
        }
    }

    fn sges(&mut self, mut at: u64, mut len: u64, key: u32) -> Vec<Sge> {
        let count = 1 + self.rng.below(u64::from(SIZES.send_sge));
        let mut sges = Vec::new();
        for n in 1..=count {
            let part = if n == count {
                len
            } else {
                self.rng.below(len + 1)
            };
            sges.push(Sge {
                addr: at,
                length: part as u32,
                lkey: key,
            });
            at += part;
            len -= part;
        }
        sges
    }

    fn post(&mut self, peers: &[Peer], groups: &[Group], network: &mut Datagrams) {
        // To a group with the Q_Key of anybody; who has another one does not get it.
        let (to_host, to_qp, qkey) = self.rng.pick(peers);
        let target = if self.rng.chance(15) {
            Target::Group(self.rng.below(groups.len() as u64) as usize)
        } else {
            Target::Host(to_host)
        };
        let (to_qp, targets) = match target {
            Target::Host(_) => (to_qp, vec![(to_host, to_qp, qkey)]),
            Target::Group(n) => (MULTICAST_QP, groups[n].members.clone()),
        };
        let ways: Vec<_> = (0..self.ways.len())
            .filter(|&n| self.ways[n].to == target)
            .collect();
        let way = self.rng.pick(&ways);
        let is_inline = self.rng.chance(20);
        let mtu = self.mtu;
        let random = self.rng.below(mtu + 1);
        let len = if is_inline {
            self.rng.below(u64::from(SIZES.inline_data) + 1)
        } else if self.rng.below(1000) < 3 {
            mtu + 1
        } else {
            self.rng.pick(&[0, 1, mtu - 1, mtu, random / 16, random])
        };
        let qkey = if self.rng.chance(5) { qkey ^ 1 } else { qkey };
        let is_key_right = is_inline || self.rng.below(1000) >= 3;
        let has_imm = self.rng.chance(50);
        let opcode = if has_imm {
            SendOpcode::SendImm
        } else {
            SendOpcode::Send
        };
        let imm: [u8; 4] = self.rng.next().to_le_bytes()[..4].try_into().unwrap();
        let solicited = self.rng.chance(30);
        let signaled = self.posted + 1 == self.messages || self.rng.chance(60);
        let from = self.source + self.rng.below(SOURCE - len + 1);
        let mut wqe = SendWqe {
            opcode: opcode.raw(),
            wr_id: self.posted,
            imm: u32::from_le_bytes(imm),
            remote: u64::from(to_qp) << 32 | u64::from(self.ways[way].handle),
            key: qkey,
            ..SendWqe::default()
        };
        for (flag, set) in [
            (SEND_SIGNALED, signaled),
            (SEND_SOLICITED, solicited),
            (SEND_INLINE, is_inline),
        ] {
            if set {
                wqe.flags |= flag;
            }
        }
        let mut bytes = vec![0; len as usize];
        self.guest.read(from, &mut bytes);
        if is_inline {
            wqe.inline_len = len as u16;
            self.guest.write_send(&wqe, &bytes);
        } else {
            let key = if is_key_right { self.key } else { WRONG };
            let sges = self.sges(from, len, key);
            wqe.num_sge = sges.len() as u8;
            self.guest.write_send(&wqe, &elements(&sges));
        }
        let status = if self.is_broken {
            CqeStatus::WorkRequestFlushed
        } else if len > mtu {
            self.is_broken = true;
            CqeStatus::LocalLength
        } else if len > 0 && !is_key_right {
            self.is_broken = true;
            CqeStatus::LocalProtection
        } else {
            let way = &self.ways[way];
            let datagram = |to| Datagram {
                to,
                source_qp: self.number,
                source_lid: lid(self.host, 1),
                service_level: way.service_level,
                route: way.route.clone(),
                bytes: bytes.clone(),
                imm: has_imm.then_some(imm),
                solicited,
            };
            for &(host, qp, own) in &targets {
                if own == qkey {
                    network.send(datagram((host, qp)));
                }
            }
            for host in 0..2 {
                // A packet violates once, however many it is for.
                let mut here = targets.iter().filter(|target| target.0 == host);
                network.forbidden += u64::from(here.any(|target| target.2 != qkey));
            }
            CqeStatus::Success
        };
        self.outstanding.push_back(Outstanding {
            id: self.posted,
            status,
            signaled,
            opcode,
            len,
        });
        self.posted += 1;
    }

    /// Takes and judges what has completed.
    pub fn take_completions(&mut self, pair: &mut Pair, network: &mut Datagrams) -> bool {
        let mut found = false;
        while let Some(cqe) = self.send_cq.poll() {
            self.sent(&cqe);
            found = true;
        }
        while let Some(cqe) = self.recv_cq.poll() {
            let datagram = self.received(pair, &cqe);
            network.receive(&datagram);
            found = true;
        }
        found
    }

    fn sent(&mut self, cqe: &Cqe) {
        loop {
            let request = self.outstanding.pop_front().expect("it was posted");
            let status = request.status;
            if status == CqeStatus::Success {
                self.tally.count(request.opcode, request.len, self.mtu);
            }
            if request.id == cqe.wr_id {
                assert_eq!(cqe.status, status.raw(), "request {}", request.id);
                assert!(request.signaled || status != CqeStatus::Success);
                assert_eq!(cqe.opcode, CqeOpcode::Send.raw());
                break;
            }
            let is_silent = !request.signaled && status == CqeStatus::Success;
            assert!(is_silent, "request {} completes", request.id);
        }
        self.guest.sq_consumer = cqe.wqe_index;
    }

    /// The datagram that a receive has brought.
    fn received(&mut self, pair: &mut Pair, cqe: &Cqe) -> Datagram {
        assert_eq!(cqe.status, CqeStatus::Success.raw());
        assert_eq!(cqe.opcode, CqeOpcode::Recv.raw());
        assert_eq!(cqe.wr_id, self.receives_done, "receives complete in order");
        assert_eq!(
            (cqe.qpn, cqe.pkey_index, cqe.dlid_path_bits),
            (self.number, 0, 0)
        );
        let slot = self.receives + self.receives_done % SLOTS * SLOT;
        let mut bytes = vec![0; cqe.byte_len as usize];
        pair.host(self.host).mem.read(slot, &mut bytes).unwrap();
        self.receives_done += 1;
        self.guest.rq_consumer = cqe.wqe_index;
        self.tally.arrived += 1;
        let grh = bytes.drain(..GRH as usize).collect::<Vec<_>>();
        Datagram {
            to: (self.host, self.number),
            source_qp: cqe.src_qpn,
            source_lid: cqe.slid,
            service_level: cqe.sl,
            route: (cqe.flags & CQE_GRH != 0).then(|| route(&grh, bytes.len())),
            bytes,
            imm: (cqe.flags & CQE_IMM != 0).then_some(cqe.imm.to_le_bytes()),
            solicited: cqe.flags & CQE_SOLICITED != 0,
        }
    }
}

/// The fields of a GRH in front of a datagram with so many bytes.
fn route(grh: &[u8], payload: usize) -> Route {
    let word = u32::from_be_bytes(grh[..4].try_into().unwrap());
    assert_eq!(word >> 28, 6, "IP version");
    assert_eq!(grh[6], 0x1b, "next header");
    let length = usize::from(u16::from_be_bytes([grh[4], grh[5]]));
    // BTH, DETH and ICRC, and 4 bytes of immediate data where there are any.
    let others = length - payload.next_multiple_of(4);
    assert!(others == 24 || others == 28, "length in the GRH");
    Route {
        source: grh[8..24].try_into().unwrap(),
        destination: grh[24..40].try_into().unwrap(),
        traffic_class: (word >> 20) as u8,
        flow_label: word & 0xf_ffff,
        hop_limit: grh[7],
    }
}

/// Datagrams that a host has not given to its programs.
#[derive(Default)]
pub struct Refused {
    /// For want of a receive, by each QP.
    pub dropped: u64,
    /// For a wrong key.
    pub violations: u64,
}

impl Refused {
    pub fn add(&mut self, pair: &mut Pair, host: usize) {
        let host = pair.host(host);
        self.dropped += host.counter(Counter::UdDropped);
        self.violations += u64::from(host.query_port().qkey_violations);
    }
}
