// SPDX-License-Identifier: GPL-2.0-or-later
//! QPs and CQs in memory of our own, posted to and polled as the manual of the hardware says, or not.

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use ochre_abi::{CreateCqReq, CreateQpReq};
use ochre_hw::cqe::{Cqe, CQE_PHASE};
use ochre_hw::doorbell;
use ochre_hw::queue::{CqRecord, QpLayout, QpRecord, QpSizes};
use ochre_hw::verbs::{access, qp_attr, QpState};
use ochre_hw::wqe::{RecvWqe, SendWqe, Sge};

use crate::pages::Pages;
use crate::uverbs::{Attributes, Context, Object, QpOf};

/// What our QPs have room for.
pub const SIZES: QpSizes = QpSizes {
    send_wr: 32,
    send_sge: 4,
    inline_data: 64,
    recv_wr: 32,
    recv_sge: 4,
};

/// How long something that is bound to come may take.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    /// Handle and number.
    pub object: Object,
    /// Record and entries.
    pub memory: Pages,
    log_entries: u8,
    consumer: u32,
    _channel: Option<OwnedFd>,
}

impl Cq {
    /// A queue of `1 << log_entries` entries, perhaps with a channel for events.
    pub fn new(context: &Context, log_entries: u8, events: bool) -> io::Result<Self> {
        let memory = Pages::new(CqRecord::SIZE + (Cqe::SIZE << log_entries))?;
        let channel = events.then(|| context.create_channel()).transpose()?;
        let request = CreateCqReq {
            buf_addr: memory.addr(),
            buf_len: memory.len() as u64,
            log_entries: log_entries.into(),
            reserved: 0,
        };
        let object = context.create_cq(1 << log_entries, channel.as_ref(), &request)?;
        Ok(Cq {
            object,
            memory,
            log_entries,
            consumer: 0,
            _channel: channel,
        })
    }

    /// The next completion.
    pub fn poll(&mut self) -> Option<Cqe> {
        let slot = self.consumer as usize & ((1 << self.log_entries) - 1);
        let offset = CqRecord::SIZE + slot * Cqe::SIZE;
        let [owner] = self.memory.read(offset + offset_of!(Cqe, owner));
        let pass = (self.consumer >> self.log_entries) & 1;
        if u32::from(owner & CQE_PHASE) == pass {
            return None;
        }
        let cqe = Cqe::from_bytes(&self.memory.read(offset));
        self.consumer = self.consumer.wrapping_add(1);
        self.memory
            .store(offset_of!(CqRecord, consumer), self.consumer);
        Some(cqe)
    }

    /// Waits for a completion.
    pub fn wait(&mut self) -> Result<Cqe> {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.poll() {
                return Ok(cqe);
            }
            if start.elapsed() > PATIENCE {
                bail!("no completion within {} s", PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Service of a QP, by its number in the verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are those of the verbs")]
pub enum Kind {
    Rc = 2,
    Uc = 3,
    Ud = 4,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    /// Handle and number.
    pub object: Object,
    /// Record and slots.
    pub memory: Pages,
    /// Where they are.
    pub layout: QpLayout,
    /// Its service.
    pub kind: Kind,
    /// LID and QP number that it is connected to.
    pub peer: (u16, u32),
    /// Index of the next send.
    pub sends: u32,
    /// Index of the next receive.
    pub receives: u32,
}

impl Qp {
    /// A QP in RESET.
    pub fn new(context: &Context, pd: Object, cqs: [Object; 2], kind: Kind) -> io::Result<Self> {
        let layout = QpLayout::new(&SIZES).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = Pages::new(layout.bytes as usize)?;
        let of = QpOf {
            pd: pd.handle,
            cqs: cqs.map(|cq| cq.handle),
            kind: kind as u8,
            sizes: [SIZES.send_wr, SIZES.recv_wr, 4, 4, 64],
        };
        let object = context.create_qp(&of, &request(&memory, &layout))?;
        Ok(Qp {
            object,
            memory,
            layout,
            kind,
            peer: (0, object.number),
            sends: 0,
            receives: 0,
        })
    }

    /// From any state to RTS, by RESET. A QP whose queues are in disorder may come to ERROR instead.
    pub fn start(&mut self, context: &Context) -> io::Result<()> {
        let state = |state: QpState, mask: u32| Attributes {
            mask: mask | qp_attr::STATE,
            state: state.raw(),
            dlid: self.peer.0,
            dest_qpn: self.peer.1,
            qkey: 0x1234,
            access: access::QP,
            path_mtu: 5,
            reads: 8,
            // 17 ms.
            timeout: 12,
            retries: 2,
            ..Attributes::default()
        };
        let (init, rtr, rts) = match self.kind {
            Kind::Rc => (
                qp_attr::ACCESS_FLAGS,
                qp_attr::AV
                    | qp_attr::PATH_MTU
                    | qp_attr::DEST_QPN
                    | qp_attr::RQ_PSN
                    | qp_attr::MAX_DEST_RD_ATOMIC
                    | qp_attr::MIN_RNR_TIMER,
                qp_attr::SQ_PSN
                    | qp_attr::TIMEOUT
                    | qp_attr::RETRY_CNT
                    | qp_attr::RNR_RETRY
                    | qp_attr::MAX_RD_ATOMIC,
            ),
            Kind::Uc => (
                qp_attr::ACCESS_FLAGS,
                qp_attr::AV | qp_attr::PATH_MTU | qp_attr::DEST_QPN | qp_attr::RQ_PSN,
                qp_attr::SQ_PSN,
            ),
            Kind::Ud => (qp_attr::QKEY, 0, qp_attr::SQ_PSN),
        };
        let init = init | qp_attr::PKEY_INDEX | qp_attr::PORT;
        let steps = [
            state(QpState::Reset, 0),
            state(QpState::Init, init),
            state(QpState::Rtr, rtr),
            state(QpState::Rts, rts),
        ];
        for step in &steps {
            let done = context.modify_qp(self.object, step);
            // A packet may have met in RTR what is wrong with the queues; that ended in error.
            let died = |e: &io::Error| e.raw_os_error() == Some(libc::EINVAL);
            if step.state == QpState::Rts.raw() && done.as_ref().is_err_and(died) {
                return Ok(());
            }
            done?;
            if step.state == QpState::Reset.raw() {
                self.sends = 0;
                self.receives = 0;
                self.publish();
            }
        }
        Ok(())
    }

    fn place(&self, offset: u32, log_slots: u8, log_stride: u8, index: u32) -> usize {
        let slot = index & ((1 << log_slots) - 1);
        (offset + (slot << log_stride)) as usize
    }

    /// Fills the next send slot, as far as it goes.
    pub fn push_send(&mut self, wqe: &SendWqe, data: &[u8]) {
        let l = &self.layout;
        let at = self.place(l.sq_offset, l.log_sq_slots, l.log_sq_stride, self.sends);
        self.memory.write(at, &wqe.to_bytes());
        let room = (1 << l.log_sq_stride) - SendWqe::SIZE;
        self.memory
            .write(at + SendWqe::SIZE, &data[..data.len().min(room)]);
        self.sends = self.sends.wrapping_add(1);
    }

    /// Fills the next receive slot, as far as it goes.
    pub fn push_receive(&mut self, wqe: &RecvWqe, data: &[u8]) {
        let l = &self.layout;
        let at = self.place(l.rq_offset, l.log_rq_slots, l.log_rq_stride, self.receives);
        self.memory.write(at, &wqe.to_bytes());
        let room = (1 << l.log_rq_stride) - RecvWqe::SIZE;
        self.memory
            .write(at + RecvWqe::SIZE, &data[..data.len().min(room)]);
        self.receives = self.receives.wrapping_add(1);
    }

    /// Shows the device both indices.
    pub fn publish(&self) {
        self.memory
            .store(offset_of!(QpRecord, sq_producer), self.sends);
        self.memory
            .store(offset_of!(QpRecord, rq_producer), self.receives);
    }

    /// Whether the device wants a doorbell for sends.
    pub fn needs_wake(&self) -> bool {
        self.memory.load(offset_of!(QpRecord, sq_need_wake)) != 0
    }

    /// Shows the device both indices, and rings where it wants to be told.
    pub fn post(&self, doorbells: &Pages) {
        self.publish();
        if self.needs_wake() {
            doorbells.store(doorbell::SEND as usize, self.object.number);
        }
        if self.memory.load(offset_of!(QpRecord, rq_need_wake)) != 0 {
            doorbells.store(doorbell::RECV as usize, self.object.number);
        }
    }
}

/// The layout of a buffer, for the driver.
pub fn request(memory: &Pages, layout: &QpLayout) -> CreateQpReq {
    CreateQpReq {
        buf_addr: memory.addr(),
        buf_len: memory.len() as u64,
        sq_offset: layout.sq_offset,
        rq_offset: layout.rq_offset,
        log_sq_slots: layout.log_sq_slots,
        log_sq_stride: layout.log_sq_stride,
        log_rq_slots: layout.log_rq_slots,
        log_rq_stride: layout.log_rq_stride,
        reserved: 0,
    }
}

/// The elements as they stand in a slot.
pub fn elements(list: &[Sge]) -> Vec<u8> {
    list.iter().flat_map(Sge::to_bytes).collect()
}

/// Two connected QPs of this process, a CQ, and a region of four pages.
#[derive(Debug)]
pub struct Loop {
    /// The context.
    pub context: Context,
    /// Its doorbell page.
    pub doorbells: Pages,
    /// The PD of everything.
    pub pd: Object,
    /// Where both complete.
    pub cq: Cq,
    /// The two.
    pub qps: [Qp; 2],
    /// The region's memory.
    pub data: Pages,
    /// The region.
    pub mr: Object,
}

impl Loop {
    /// Makes all of it.
    pub fn new() -> Result<Self> {
        let context = Context::open().context("opening the device")?;
        let doorbells = context.doorbells().context("mapping the doorbell page")?;
        let pd = context.alloc_pd()?;
        let cq = Cq::new(&context, 6, false)?;
        let lid = context.lid()?;
        let make = || Qp::new(&context, pd, [cq.object; 2], Kind::Rc);
        let mut qps = [make()?, make()?];
        let numbers = [qps[1].object.number, qps[0].object.number];
        for (qp, number) in qps.iter_mut().zip(numbers) {
            qp.peer = (lid, number);
            qp.start(&context).context("connecting QPs")?;
        }
        let data = Pages::new(4 * crate::pages::PAGE)?;
        let mr = context.reg_mr(pd, data.addr(), data.len() as u64, access::REGION)?;
        Ok(Loop {
            context,
            doorbells,
            pd,
            cq,
            qps,
            data,
            mr,
        })
    }

    /// Fills a slot of the first QP with a WRITE of eight bytes from the first page of the region to
    /// the second, and shows it to the device.
    pub fn fill(&mut self) {
        let wqe = SendWqe {
            opcode: ochre_hw::wqe::SendOpcode::Write.raw(),
            flags: ochre_hw::wqe::SEND_SIGNALED,
            num_sge: 1,
            remote: self.data.addr() + crate::pages::PAGE as u64,
            key: self.mr.number,
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: self.data.addr(),
            length: 8,
            lkey: self.mr.number,
        };
        self.qps[0].push_send(&wqe, &elements(&[sge]));
        self.qps[0].publish();
    }

    /// Moves eight bytes by a WRITE and looks whether they are there.
    pub fn check(&mut self, bytes: [u8; 8]) -> Result<()> {
        self.data.write(0, &bytes);
        self.fill();
        self.qps[0].post(&self.doorbells);
        let cqe = self.cq.wait()?;
        if cqe.status != 0 {
            bail!("a WRITE in good order ended with status {}", cqe.status);
        }
        let found: [u8; 8] = self.data.read(crate::pages::PAGE);
        if found != bytes {
            bail!("a WRITE in good order moved {found:x?} in place of {bytes:x?}");
        }
        Ok(())
    }

    /// Destroys all of it, in order.
    pub fn end(self) -> Result<()> {
        for qp in &self.qps {
            self.context.destroy_qp(qp.object)?;
        }
        self.context.destroy_cq(self.cq.object)?;
        self.context.dereg_mr(self.mr)?;
        self.context.dealloc_pd(self.pd)?;
        Ok(())
    }
}
