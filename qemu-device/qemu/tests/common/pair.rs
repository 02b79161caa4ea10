// SPDX-License-Identifier: GPL-2.0-or-later

//! Two machines with a link between their devices, its ports set up as a subnet manager would, and
//! connected RC queue pairs.

use std::path::Path;
use std::time::{Duration, Instant};

use ochre_hw::cmd::mem::{CreateMr, MrKind};
use ochre_hw::cmd::port::{MadIn, MadOut, MAD_REPLY};
use ochre_hw::cmd::qp::{CreateQp, ModifyQp};
use ochre_hw::cmd::queue::CreateCq;
use ochre_hw::cmd::{NumberIn, NumberOut, Opcode};
use ochre_hw::cqe::{Cqe, CqeStatus, CQE_PHASE};
use ochre_hw::queue::{CqRecord, MemDesc, QpLayout, QpSizes};
use ochre_hw::verbs::{access, qp_attr, AddressVector, QpAttr, QpState, QpType};
use ochre_hw::wqe::{RecvWqe, SendOpcode, SendWqe, Sge, SEND_SIGNALED};
use ochre_wire::mad::pma::PortCounters;
use ochre_wire::mad::sma::PortInfo;
use ochre_wire::mad::{attr, class, method, Mad};
use ochre_wire::Lid;

use super::hca::{Hca, BAR_DOORBELLS, FREE};
use super::machine::{Machine, PATIENCE};

const SLOT: u8 = 4;
const CQ: u64 = FREE;
const QP: u64 = FREE + 0x4_0000;
const LOG_CQE: u8 = 8;
/// Where tests keep data.
pub const DATA: u64 = 0x100_0000;

/// One end: a machine, its device, and an RC queue pair.
pub struct End {
    pub machine: Machine,
    pub hca: Hca,
    pub lid: u16,
    pub pd: u32,
    key: u32,
    cq: u32,
    pub qpn: u32,
    layout: QpLayout,
    sent: u32,
    received: u32,
    consumer: u32,
}

impl End {
    /// Starts a machine whose device has the link, with further properties.
    pub fn start(link: &Path, lid: u16, properties: &str) -> Self {
        let device = format!(
            "ochre-hca,id=hca,addr={SLOT},link0={}{properties}",
            link.display()
        );
        let mut machine = Machine::start(&["-device", &device]);
        let mut hca = Hca::probe(&mut machine, 0, SLOT);
        hca.enable(&mut machine);
        hca.make_events(&mut machine, 0);
        End {
            machine,
            hca,
            lid,
            pd: 0,
            key: 0,
            cq: 0,
            qpn: 0,
            layout: QpLayout::default(),
            sent: 0,
            received: 0,
            consumer: 0,
        }
    }

    /// Sends a MAD to the firmware's agents; gives the reply.
    pub fn mad(&mut self, mad: &Mad) -> Mad {
        let input = MadIn {
            port: 1,
            flags: ochre_hw::cmd::port::MAD_IGNORE_MKEY,
            mad: mad.0,
            ..MadIn::default()
        };
        let output = self
            .hca
            .run(&mut self.machine, Opcode::ProcessMad, &input.to_bytes());
        let output = MadOut::from_bytes(&output);
        assert_ne!(output.result & MAD_REPLY, 0, "no reply to {mad:?}");
        Mad(output.mad)
    }

    /// Does to the port what a subnet manager does.
    pub fn bring_up(&mut self, peer: u16) {
        self.hca.wait_phys_state(&mut self.machine, 5);
        let get = Mad::new(class::SUBN_LID_ROUTED, method::GET, attr::PORT_INFO, 1, 1);
        for state in [3, 4] {
            let mut info = PortInfo::read(self.mad(&get).smp_data());
            info.lid = Lid(self.lid);
            info.master_sm_lid = Lid(peer.min(self.lid));
            info.port_state = state;
            info.port_physical_state = 0;
            info.link_down_default_state = 0;
            info.neighbor_mtu = 5;
            info.operational_vls = 1;
            let mut set = Mad::new(class::SUBN_LID_ROUTED, method::SET, attr::PORT_INFO, 1, 2);
            info.write(set.smp_data_mut());
            let reply = self.mad(&set);
            assert_eq!(reply.status(), 0, "Set(PortInfo) to state {state}");
        }
        assert_eq!(self.hca.port(&mut self.machine, 1).state, 4);
    }

    /// Makes PD, region, CQ and QP, and takes the QP to INIT.
    pub fn make_qp(&mut self) {
        let m = &mut self.machine;
        let number = |bytes: [u8; NumberOut::SIZE]| NumberOut::from_bytes(&bytes).number;
        self.pd = number(self.hca.run(m, Opcode::AllocPd, &[]));
        let mr = CreateMr {
            pd: self.pd,
            access: access::REGION,
            kind: MrKind::WholeMemory.raw(),
            ..CreateMr::default()
        };
        self.key = number(self.hca.run(m, Opcode::CreateMr, &mr.to_bytes()));

        m.zero(CQ, CqRecord::SIZE + (Cqe::SIZE << LOG_CQE));
        let cq = CreateCq {
            mem: MemDesc {
                addr: CQ,
                num_pages: 5,
                page_shift: 12,
                ..MemDesc::default()
            },
            eq: 0,
            log_entries: LOG_CQE,
            ..CreateCq::default()
        };
        self.cq = number(self.hca.run(m, Opcode::CreateCq, &cq.to_bytes()));
        self.consumer = 0;

        self.layout = QpLayout::new(&QpSizes {
            send_wr: 64,
            send_sge: 1,
            inline_data: 0,
            recv_wr: 64,
            recv_sge: 1,
        })
        .expect("no such queue pair");
        m.zero(QP, self.layout.bytes as usize);
        let qp = CreateQp {
            mem: MemDesc {
                addr: QP,
                num_pages: self.layout.bytes / 4096,
                page_shift: 12,
                ..MemDesc::default()
            },
            sq_offset: self.layout.sq_offset,
            rq_offset: self.layout.rq_offset,
            log_sq_slots: self.layout.log_sq_slots,
            log_sq_stride: self.layout.log_sq_stride,
            log_rq_slots: self.layout.log_rq_slots,
            log_rq_stride: self.layout.log_rq_stride,
            qp_type: QpType::Rc.raw(),
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            ..CreateQp::default()
        };
        self.qpn = number(self.hca.run(m, Opcode::CreateQp, &qp.to_bytes()));
        (self.sent, self.received) = (0, 0);
        let attr = QpAttr {
            state: QpState::Init.raw(),
            port: 1,
            access: access::QP,
            ..QpAttr::default()
        };
        self.modify(
            qp_attr::STATE | qp_attr::PKEY_INDEX | qp_attr::PORT | qp_attr::ACCESS_FLAGS,
            attr,
        );
    }

    /// Destroys what [`End::make_qp`] has made.
    pub fn drop_qp(&mut self) {
        for (opcode, number) in [
            (Opcode::DestroyQp, self.qpn),
            (Opcode::DestroyCq, self.cq),
            (Opcode::DestroyMr, self.key),
            (Opcode::DeallocPd, self.pd),
        ] {
            let input = NumberIn {
                number,
                ..NumberIn::default()
            };
            self.hca
                .run::<0>(&mut self.machine, opcode, &input.to_bytes());
        }
    }

    fn modify(&mut self, mask: u32, attr: QpAttr) {
        let input = ModifyQp {
            qp: self.qpn,
            mask,
            attr,
            ..ModifyQp::default()
        };
        self.hca
            .run::<0>(&mut self.machine, Opcode::ModifyQp, &input.to_bytes());
    }

    /// Connects the QP with the peer's.
    pub fn connect(&mut self, dlid: u16, dest_qpn: u32) {
        let attr = QpAttr {
            state: QpState::Rtr.raw(),
            path_mtu: 5,
            dest_qpn,
            rq_psn: 0xff_fff0,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            av: AddressVector {
                dlid,
                port: 1,
                ..AddressVector::default()
            },
            ..QpAttr::default()
        };
        let mask = qp_attr::STATE
            | qp_attr::AV
            | qp_attr::PATH_MTU
            | qp_attr::DEST_QPN
            | qp_attr::RQ_PSN
            | qp_attr::MAX_DEST_RD_ATOMIC
            | qp_attr::MIN_RNR_TIMER;
        self.modify(mask, attr);
        let attr = QpAttr {
            state: QpState::Rts.raw(),
            sq_psn: 0xff_fff0,
            // 67 ms, and then 3 tries.
            timeout: 14,
            retry_count: 3,
            rnr_retry: 7,
            max_rd_atomic: 16,
            ..QpAttr::default()
        };
        let mask = qp_attr::STATE
            | qp_attr::SQ_PSN
            | qp_attr::TIMEOUT
            | qp_attr::RETRY_CNT
            | qp_attr::RNR_RETRY
            | qp_attr::MAX_RD_ATOMIC;
        self.modify(mask, attr);
    }

    /// Posts a send request with one element, and what `more` puts between them.
    pub fn post(
        &mut self,
        opcode: SendOpcode,
        peer: &Remote,
        local: u64,
        length: u32,
        more: &[u8],
    ) {
        let slot = self.sent % (1 << self.layout.log_sq_slots);
        let at =
            QP + u64::from(self.layout.sq_offset) + (u64::from(slot) << self.layout.log_sq_stride);
        let wqe = SendWqe {
            opcode: opcode.raw(),
            flags: SEND_SIGNALED,
            num_sge: 1,
            wr_id: self.sent.into(),
            remote: peer.addr,
            key: peer.key,
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: local,
            length,
            lkey: self.key,
        };
        let bytes = [&wqe.to_bytes()[..], more, &sge.to_bytes()].concat();
        self.machine.write(at, &bytes);
        self.sent = self.sent.wrapping_add(1);
        self.machine.store(QP, self.sent.into(), 4);
        if self.machine.load(QP + 0x40, 4) != 0 {
            self.machine.store(BAR_DOORBELLS, self.qpn.into(), 4);
        }
    }

    /// Posts a receive request.
    pub fn post_recv(&mut self, addr: u64, length: u32) {
        let slot = self.received % (1 << self.layout.log_rq_slots);
        let at =
            QP + u64::from(self.layout.rq_offset) + (u64::from(slot) << self.layout.log_rq_stride);
        let wqe = RecvWqe {
            wr_id: 0x8000_0000 | u64::from(self.received),
            num_sge: 1,
            ..RecvWqe::default()
        };
        let sge = Sge {
            addr,
            length,
            lkey: self.key,
        };
        let bytes = [&wqe.to_bytes()[..], &sge.to_bytes()].concat();
        self.machine.write(at, &bytes);
        self.received = self.received.wrapping_add(1);
        self.machine.store(QP + 4, self.received.into(), 4);
    }

    /// The next completion, if there is one.
    pub fn poll(&mut self) -> Option<Cqe> {
        let index = self.consumer % (1 << LOG_CQE);
        let phase = if (self.consumer >> LOG_CQE) & 1 == 0 {
            CQE_PHASE
        } else {
            0
        };
        let at = CQ + CqRecord::SIZE as u64 + u64::from(index) * Cqe::SIZE as u64;
        if self.machine.load(at + 63, 1) as u8 & CQE_PHASE != phase {
            return None;
        }
        let bytes = self.machine.read(at, Cqe::SIZE);
        self.consumer = self.consumer.wrapping_add(1);
        self.machine.store(CQ, self.consumer.into(), 4);
        Some(Cqe::from_bytes(&bytes.try_into().expect("wrong length")))
    }

    /// Waits for the next completion.
    pub fn wait(&mut self) -> Cqe {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.poll() {
                return cqe;
            }
            assert!(start.elapsed() < PATIENCE, "no completion");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Waits for the next completion, which must be a success.
    pub fn done(&mut self) -> Cqe {
        let cqe = self.wait();
        assert_eq!(
            CqeStatus::from_raw(cqe.status),
            Some(CqeStatus::Success),
            "{cqe:?}"
        );
        cqe
    }

    /// What a peer needs to reach this end's memory at `addr`.
    pub fn remote(&self, addr: u64) -> Remote {
        Remote {
            addr,
            key: self.key,
        }
    }

    /// The port's counters, from the performance management agent.
    pub fn counters(&mut self) -> PortCounters {
        let mut get = Mad::new(class::PERF, method::GET, attr::PORT_COUNTERS, 0, 3);
        let select = PortCounters {
            port_select: 1,
            ..PortCounters::default()
        };
        select.write(get.pma_data_mut());
        PortCounters::read(self.mad(&get).pma_data())
    }
}

/// Memory of the peer.
#[derive(Clone, Copy)]
pub struct Remote {
    pub addr: u64,
    pub key: u32,
}

/// Two ends, connected.
pub fn connected(link: &Path, properties_a: &str, properties_b: &str) -> (End, End) {
    let mut a = End::start(link, 1, properties_a);
    let mut b = End::start(link, 2, properties_b);
    join(&mut a, &mut b);
    (a, b)
}

/// Brings the ports of two ends up, and connects queue pairs.
pub fn join(a: &mut End, b: &mut End) {
    let (lid_a, lid_b) = (a.lid, b.lid);
    // An end hears late that its peer was reset: until then its port shows the link of before. A new
    // link comes up at the end that was reset only when the other has left the old one, so that
    // after each end was seen up, both are in the new link or on their way into it.
    for end in [&mut *b, &mut *a] {
        end.hca.wait_phys_state(&mut end.machine, 5);
    }
    a.bring_up(lid_b);
    b.bring_up(lid_a);
    a.make_qp();
    b.make_qp();
    a.connect(lid_b, b.qpn);
    b.connect(lid_a, a.qpn);
}
