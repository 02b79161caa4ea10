// SPDX-License-Identifier: GPL-2.0-or-later
//! A host with the device in it: memory, registers and the command queue, as a driver uses them.

use ochre_hca::memory::Memory;
use ochre_hca::{Budget, Config, Dma, Hca, Interrupts, Time};
use ochre_hw::cmd::device::QueryObjectsOut;
use ochre_hw::cmd::mem::{CreateMr, MrKind};
use ochre_hw::cmd::port::{
    Counter, MadIn, MadOut, PortIn, QueryCountersOut, QueryPortOut, MAD_IGNORE_MKEY, MAD_REPLY,
    MAD_SUCCESS,
};
use ochre_hw::cmd::qp::{CreateAh, CreateQp, ModifyQp, QueryQpOut};
use ochre_hw::cmd::queue::{CreateCq, CreateEq};
use ochre_hw::cmd::{CmdSlot, NumberIn, NumberOut, Opcode, Status, OWNER_DEVICE, OWNER_DRIVER};
use ochre_hw::doorbell;
use ochre_hw::eqe::{Eqe, EventType};
use ochre_hw::queue::{MemDesc, QpSizes};
use ochre_hw::regs;
use ochre_hw::verbs::{access, qp_attr, AddressVector, QpAttr, QpState, QpType};
use ochre_hw::Field;
use ochre_link::mem::MemCable;
use ochre_link::{Port, PortConfig};
use ochre_wire::mad::sma::PortInfo;
use ochre_wire::mad::{attr, class, method, Mad};

use super::guest::{GuestCq, GuestEq, GuestQp, Heap};

pub use super::pair::{Pair, LID_A, LID_B};

/// Vectors that were raised, in order.
#[derive(Debug, Default)]
pub struct Raised(pub Vec<u16>);

impl Interrupts for Raised {
    fn raise(&mut self, vector: u16) {
        self.0.push(vector);
    }
}

/// Bytes of memory of a host.
pub const MEMORY: usize = 32 << 20;
/// Slots of the command queue, log2.
const CMDQ_LOG: u32 = 3;

/// A host.
pub struct Host {
    pub mem: Memory,
    pub heap: Heap,
    pub hca: Hca<Memory, Raised, MemCable>,
    pub now: Time,
    cmdq: u64,
    cmd_next: u32,
    args: u64,
    async_eq: Option<GuestEq>,
}

/// A piece of memory as one block.
pub fn block(addr: u64, bytes: u64) -> MemDesc {
    MemDesc {
        addr,
        num_pages: bytes.div_ceil(4096) as u32,
        page_shift: 12,
        ..MemDesc::default()
    }
}

/// What a refused command says: its status and the byte of the input.
pub type Refused = (Status, u8);

impl Host {
    /// A host whose port is at this end of a cable; the device is not enabled.
    pub fn new(config: Config, port: PortConfig, cable: MemCable) -> Self {
        Self::with_memory(config, port, cable, MEMORY)
    }

    /// The same with so many bytes of memory.
    pub fn with_memory(config: Config, port: PortConfig, cable: MemCable, bytes: usize) -> Self {
        Self::with_links(config, vec![Port::new(port, cable)], bytes)
    }

    /// A host with a port for each link.
    pub fn with_links(config: Config, links: Vec<Port<MemCable>>, bytes: usize) -> Self {
        let mem = Memory::new(bytes);
        // Address 0 stays free, so that a zero address is an error.
        let mut heap = Heap::new(4096, bytes as u64);
        let cmdq = heap.take(64 + (64 << CMDQ_LOG));
        let args = heap.take(4096);
        Host {
            hca: Hca::new(config, mem.clone(), Raised::default(), links),
            mem,
            heap,
            now: Time::ZERO,
            cmdq,
            cmd_next: 0,
            args,
            async_eq: None,
        }
    }

    pub fn reg(&mut self, offset: u64) -> u32 {
        self.hca.reg_read(self.now, offset, 4) as u32
    }

    pub fn set_reg(&mut self, offset: u64, value: u32) {
        self.hca.reg_write(self.now, offset, 4, value.into());
    }

    /// The machine stands still, or goes on.
    pub fn set_paused(&mut self, paused: bool) {
        self.hca.set_paused(self.now, paused);
    }

    /// Brings the device up to where commands run, and makes the async event queue.
    pub fn enable(&mut self) {
        assert_eq!(self.reg(regs::MAGIC), regs::MAGIC_VALUE);
        self.set_reg(regs::CONTROL, regs::CONTROL_RESET);
        self.mem
            .write(self.cmdq, &[0; 64 + (64 << CMDQ_LOG)])
            .unwrap();
        self.cmd_next = 0;
        self.hca.reg_write(self.now, regs::CMDQ_BASE, 8, self.cmdq);
        self.set_reg(regs::CMDQ_LOG_SLOTS, CMDQ_LOG);
        self.set_reg(regs::CONTROL, regs::CONTROL_ENABLE);
        assert_eq!(self.reg(regs::STATUS), regs::STATUS_READY);
        let (number, eq) = self.create_eq(0, 8);
        assert_eq!(number, 0);
        self.async_eq = Some(eq);
    }

    /// Fills a slot and rings; the answer is the slot as the device left it.
    pub fn submit(&mut self, slot: &CmdSlot) -> CmdSlot {
        let index = self.cmd_next & ((1 << CMDQ_LOG) - 1);
        let at = self.cmdq + 64 + u64::from(index) * 64;
        self.mem.write(at, &slot.to_bytes()).unwrap();
        self.cmd_next = self.cmd_next.wrapping_add(1);
        self.mem.store_u32(self.cmdq, self.cmd_next).unwrap();
        self.set_reg(regs::CMDQ_DOORBELL, 1);
        CmdSlot::from_bytes(&self.mem.bytes(at).unwrap())
    }

    /// A command with these bytes of input; gives the output.
    pub fn command_bytes(&mut self, opcode: u16, input: &[u8]) -> Result<Vec<u8>, Refused> {
        let room = 1024;
        self.mem.write(self.args, input).unwrap();
        let slot = self.submit(&CmdSlot {
            opcode,
            in_addr: self.args,
            in_len: input.len() as u32,
            out_addr: self.args + 2048,
            out_len: room,
            owner: OWNER_DEVICE,
            ..CmdSlot::default()
        });
        assert_eq!(slot.owner, OWNER_DRIVER, "the command is answered");
        let status = Status::from_raw(slot.status).unwrap();
        if status != Status::Ok {
            assert_eq!(slot.out_written, 0);
            return Err((status, slot.bad_field));
        }
        let mut out = vec![0; slot.out_written as usize];
        self.mem.read(self.args + 2048, &mut out).unwrap();
        Ok(out)
    }

    /// A command with an input structure.
    pub fn command<T: Field>(&mut self, opcode: Opcode, input: T) -> Result<Vec<u8>, Refused> {
        let mut bytes = vec![0; size_of::<T>()];
        input.put(&mut bytes);
        self.command_bytes(opcode.raw(), &bytes)
    }

    /// A command that makes an object; gives its number.
    pub fn create<T: Field>(&mut self, opcode: Opcode, input: T) -> Result<u32, Refused> {
        let out = self.command(opcode, input)?;
        Ok(NumberOut::get(&out).number)
    }

    /// A command that destroys an object.
    pub fn destroy(&mut self, opcode: Opcode, number: u32) -> Result<(), Refused> {
        let input = NumberIn {
            number,
            ..NumberIn::default()
        };
        self.command(opcode, input).map(|_| ())
    }

    pub fn create_eq(&mut self, vector: u16, log_entries: u8) -> (u32, GuestEq) {
        let eq = GuestEq::new(&self.mem, &mut self.heap, log_entries);
        let input = CreateEq {
            mem: block(eq.base, 64 + (32 << log_entries)),
            vector,
            log_entries,
            ..CreateEq::default()
        };
        (self.create(Opcode::CreateEq, input).unwrap(), eq)
    }

    pub fn create_cq(&mut self, eq: u32, log_entries: u8) -> (u32, GuestCq) {
        let cq = GuestCq::new(&self.mem, &mut self.heap, log_entries);
        let input = CreateCq {
            mem: block(cq.base, 64 + (64 << log_entries)),
            eq,
            log_entries,
            ..CreateCq::default()
        };
        (self.create(Opcode::CreateCq, input).unwrap(), cq)
    }

    pub fn alloc_pd(&mut self) -> u32 {
        let out = self.command_bytes(Opcode::AllocPd.raw(), &[]).unwrap();
        NumberOut::get(&out).number
    }

    /// A region over new memory; gives its key and address, which is its virtual address too.
    pub fn create_mr(&mut self, pd: u32, bytes: u64, access: u32) -> (u32, u64) {
        let addr = self.heap.take(bytes);
        (self.create_mr_at(pd, addr, bytes, access), addr)
    }

    /// A region over memory that is there; gives its key.
    pub fn create_mr_at(&mut self, pd: u32, addr: u64, bytes: u64, access: u32) -> u32 {
        let input = CreateMr {
            mem: block(addr, bytes),
            iova: addr,
            length: bytes,
            pd,
            access,
            kind: MrKind::Pages.raw(),
            ..CreateMr::default()
        };
        self.create(Opcode::CreateMr, input).unwrap()
    }

    /// What CREATE_QP takes for a QP with a buffer of these sizes.
    pub fn qp_input(
        &mut self,
        kind: QpType,
        pd: u32,
        cqs: [u32; 2],
        sizes: &QpSizes,
    ) -> (CreateQp, GuestQp) {
        let guest = GuestQp::new(&self.mem, &mut self.heap, sizes);
        let l = &guest.layout;
        let special = matches!(kind, QpType::Smi | QpType::Gsi);
        let input = CreateQp {
            mem: block(guest.base, l.bytes.into()),
            sq_offset: l.sq_offset,
            rq_offset: l.rq_offset,
            log_sq_slots: l.log_sq_slots,
            log_sq_stride: l.log_sq_stride,
            log_rq_slots: l.log_rq_slots,
            log_rq_stride: l.log_rq_stride,
            qp_type: kind.raw(),
            port: u8::from(special),
            pd,
            send_cq: cqs[0],
            recv_cq: cqs[1],
            doorbell_page: doorbell::KERNEL_PAGE,
            ..CreateQp::default()
        };
        (input, guest)
    }

    pub fn create_qp(
        &mut self,
        kind: QpType,
        pd: u32,
        cqs: [u32; 2],
        sizes: &QpSizes,
    ) -> (u32, GuestQp) {
        let (input, guest) = self.qp_input(kind, pd, cqs, sizes);
        (self.create(Opcode::CreateQp, input).unwrap(), guest)
    }

    pub fn modify_qp(&mut self, qp: u32, mask: u32, attr: QpAttr) -> Result<(), Refused> {
        let input = ModifyQp {
            qp,
            mask,
            attr,
            ..ModifyQp::default()
        };
        self.command(Opcode::ModifyQp, input).map(|_| ())
    }

    pub fn query_qp(&mut self, qp: u32) -> QpAttr {
        let input = NumberIn {
            number: qp,
            ..NumberIn::default()
        };
        let out = self.command(Opcode::QueryQp, input).unwrap();
        QueryQpOut::get(&out).attr
    }

    /// Takes a UD or special QP from RESET to RTS.
    pub fn start_datagram(&mut self, qp: u32, kind: QpType, qkey: u32) {
        let state = |state: QpState| QpAttr {
            state: state.raw(),
            port: 1,
            qkey,
            ..QpAttr::default()
        };
        let mut init = qp_attr::STATE | qp_attr::PKEY_INDEX | qp_attr::QKEY;
        if kind == QpType::Ud {
            init |= qp_attr::PORT;
        }
        self.modify_qp(qp, init, state(QpState::Init)).unwrap();
        self.modify_qp(qp, qp_attr::STATE, state(QpState::Rtr))
            .unwrap();
        let rts = qp_attr::STATE | qp_attr::SQ_PSN;
        self.modify_qp(qp, rts, state(QpState::Rts)).unwrap();
    }

    /// Takes an RC QP from RESET to RTS, to its peer at `dlid`.
    pub fn start_rc(&mut self, qp: u32, peer: u32, dlid: u16) {
        self.start_rc_retrying(qp, peer, dlid, 7);
    }

    /// The same with this many retries.
    pub fn start_rc_retrying(&mut self, qp: u32, peer: u32, dlid: u16, retry_count: u8) {
        let attr = QpAttr {
            port: 1,
            access: access::QP,
            path_mtu: 5,
            dest_qpn: peer,
            rq_psn: 0xff_fff0,
            sq_psn: 0xff_fff0,
            timeout: 14,
            retry_count,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            av: AddressVector {
                dlid,
                port: 1,
                ..AddressVector::default()
            },
            ..QpAttr::default()
        };
        let to = |state: QpState| QpAttr {
            state: state.raw(),
            ..attr
        };
        use qp_attr as m;
        let init = m::STATE | m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS;
        self.modify_qp(qp, init, to(QpState::Init)).unwrap();
        let rtr = m::STATE
            | m::AV
            | m::PATH_MTU
            | m::DEST_QPN
            | m::RQ_PSN
            | m::MAX_DEST_RD_ATOMIC
            | m::MIN_RNR_TIMER;
        self.modify_qp(qp, rtr, to(QpState::Rtr)).unwrap();
        let rts =
            m::STATE | m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::SQ_PSN | m::MAX_RD_ATOMIC;
        self.modify_qp(qp, rts, to(QpState::Rts)).unwrap();
    }

    /// Takes a UC QP from RESET to RTS, to its peer at `dlid`.
    pub fn start_uc(&mut self, qp: u32, peer: u32, dlid: u16) {
        use qp_attr as m;
        let to = |state: QpState| QpAttr {
            state: state.raw(),
            port: 1,
            access: access::QP,
            path_mtu: 3,
            dest_qpn: peer,
            av: AddressVector {
                dlid,
                port: 1,
                ..AddressVector::default()
            },
            ..QpAttr::default()
        };
        let init = m::STATE | m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS;
        self.modify_qp(qp, init, to(QpState::Init)).unwrap();
        let rtr = m::STATE | m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN;
        self.modify_qp(qp, rtr, to(QpState::Rtr)).unwrap();
        self.modify_qp(qp, m::STATE | m::SQ_PSN, to(QpState::Rts))
            .unwrap();
    }

    pub fn create_ah(&mut self, pd: u32, av: AddressVector) -> u32 {
        let input = CreateAh {
            av,
            pd,
            ..CreateAh::default()
        };
        self.create(Opcode::CreateAh, input).unwrap()
    }

    /// Rings for a QP's sends, if the device wants it.
    pub fn ring(&mut self, qp: u32, guest: &GuestQp) {
        if guest.wants_send_doorbell() {
            self.hca.doorbell(self.now, doorbell::SEND, qp);
        }
    }

    /// The next async event.
    pub fn event(&mut self) -> Option<Eqe> {
        self.async_eq.as_mut()?.poll()
    }

    /// All async events that are there.
    pub fn events(&mut self) -> Vec<(EventType, u8, u32)> {
        core::iter::from_fn(|| self.event())
            .map(|e| (EventType::from_raw(e.event).unwrap(), e.port, e.number))
            .collect()
    }

    pub fn counter(&mut self, counter: Counter) -> u64 {
        let port = PortIn {
            port: 1,
            ..PortIn::default()
        };
        let out = self.command(Opcode::QueryCounters, port).unwrap();
        QueryCountersOut::get(&out).value(counter)
    }

    pub fn query_port(&mut self) -> QueryPortOut {
        self.query_port_of(1)
    }

    pub fn query_port_of(&mut self, port: u8) -> QueryPortOut {
        let port = PortIn {
            port,
            ..PortIn::default()
        };
        QueryPortOut::get(&self.command(Opcode::QueryPort, port).unwrap())
    }

    pub fn objects(&mut self) -> QueryObjectsOut {
        let out = self.command_bytes(Opcode::QueryObjects.raw(), &[]).unwrap();
        QueryObjectsOut::get(&out)
    }

    /// Hands a MAD to the firmware's agents; gives the reply.
    pub fn process_mad(&mut self, mad: &Mad) -> Option<Mad> {
        self.process_mad_of(1, mad)
    }

    pub fn process_mad_of(&mut self, port: u8, mad: &Mad) -> Option<Mad> {
        let input = MadIn {
            port,
            flags: MAD_IGNORE_MKEY,
            mad: mad.0,
            ..MadIn::default()
        };
        let out = MadOut::get(&self.command(Opcode::ProcessMad, input).unwrap());
        (out.result == MAD_SUCCESS | MAD_REPLY).then_some(Mad(out.mad))
    }

    /// What a subnet manager does to a port: PortInfo with LID and state.
    pub fn set_port_info(&mut self, change: impl FnOnce(&mut PortInfo)) {
        self.set_port_info_of(1, change);
    }

    pub fn set_port_info_of(&mut self, port: u8, change: impl FnOnce(&mut PortInfo)) {
        let number = u32::from(port);
        let class = class::SUBN_LID_ROUTED;
        let get = Mad::new(class, method::GET, attr::PORT_INFO, number, 1);
        let mut reply = self.process_mad_of(port, &get).unwrap();
        let mut info = PortInfo::read(reply.smp_data());
        // States stay as they are unless asked for.
        info.port_state = 0;
        info.port_physical_state = 0;
        info.link_down_default_state = 0;
        change(&mut info);
        info.write(reply.smp_data_mut());
        let mut set = Mad::new(class, method::SET, attr::PORT_INFO, number, 2);
        *set.smp_data_mut() = *reply.smp_data();
        let reply = self.process_mad_of(port, &set).unwrap();
        assert_eq!(reply.status(), 0, "Set(PortInfo) is taken");
    }

    /// One round of the device; whether there is more to do.
    pub fn poll(&mut self) -> bool {
        self.hca.poll(self.now, Budget::POLL)
    }
}
