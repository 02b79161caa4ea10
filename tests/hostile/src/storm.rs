// SPDX-License-Identifier: GPL-2.0-or-later
//! A storm of nonsense: QPs of all kinds, to this machine and to another one, whose queues, records,
//! doorbells and memory are used in every way but the right one, and now and then in the right one,
//! so that the nonsense gets far.

use std::mem::offset_of;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ochre_hw::cqe::CqeStatus;
use ochre_hw::queue::{CqRecord, QpRecord};
use ochre_hw::verbs::access;
use ochre_hw::wqe::{RecvWqe, SendOpcode, SendWqe, Sge, SEND_INLINE, SEND_SIGNALED};

use crate::objects::{elements, Cq, Kind, Qp, SIZES};
use crate::pages::{Pages, PAGE};
use crate::rng::Rng;
use crate::uverbs::{Context, Object};

/// Steps of a round.
const STEPS: u64 = 400;
/// Bytes of the region for data.
const DATA: usize = 16 * PAGE;

/// What came of it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests that went well.
    pub well: u64,
    /// Requests that failed by their own fault.
    pub failed: u64,
    /// Requests that were flushed.
    pub flushed: u64,
    /// How often a QP was taken through its states anew.
    pub restarts: u64,
}

impl Tally {
    /// Adds another round.
    pub fn add(&mut self, other: &Tally) {
        self.well += other.well;
        self.failed += other.failed;
        self.flushed += other.flushed;
        self.restarts += other.restarts;
    }
}

/// What the other machine's storm has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// LID of its port.
    pub lid: u16,
    /// QPs that are connected to ours.
    pub qps: [u32; 2],
    /// Key of its region.
    pub key: u32,
    /// Address of its region.
    pub addr: u64,
}

impl Peer {
    /// Bytes that it takes in a message.
    pub const SIZE: usize = 22;

    /// As a message.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.lid.to_le_bytes().to_vec();
        for word in [self.qps[0], self.qps[1], self.key] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.addr.to_le_bytes());
        bytes
    }

    /// From a message.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        Peer {
            lid: u16::from_le_bytes([bytes[0], bytes[1]]),
            qps: [word(2), word(6)],
            key: word(10),
            addr: u64::from(word(14)) | u64::from(word(18)) << 32,
        }
    }
}

/// A region: where it begins, its length, and its key.
#[derive(Clone, Copy, Debug)]
struct Region {
    addr: u64,
    len: u64,
    mr: Object,
}

/// All objects of one round.
#[derive(Debug)]
pub struct Storm {
    rng: Rng,
    context: Context,
    doorbells: Pages,
    pds: [Object; 2],
    cqs: Vec<Cq>,
    qps: Vec<Qp>,
    data: Pages,
    regions: Vec<Region>,
    handles: Vec<Object>,
    peer: Peer,
    tally: Tally,
}

impl Storm {
    /// Makes the objects.
    pub fn new(seed: u64) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let context = Context::open().context("opening the device")?;
        let doorbells = context.doorbells().context("mapping the doorbell page")?;
        let pds = [context.alloc_pd()?, context.alloc_pd()?];
        let cqs = [(8, false), (8, true), (4, true)]
            .map(|(log, events)| Cq::new(&context, log, events))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .context("making CQs")?;
        let kinds = [
            // Those that the peer knows of.
            Kind::Rc,
            Kind::Rc,
            // Those that are connected to each other.
            Kind::Rc,
            Kind::Rc,
            Kind::Uc,
            Kind::Uc,
            Kind::Ud,
            Kind::Ud,
        ];
        let mut qps = Vec::new();
        for kind in kinds {
            // The small queue, which soon overruns, is not for many.
            let mut cq = || cqs[[0, 0, 0, 1, 1, 2][rng.below(6) as usize]].object;
            qps.push(Qp::new(&context, pds[0], [cq(), cq()], kind).context("making a QP")?);
        }
        let data = Pages::new(DATA)?;
        let mut storm = Storm {
            rng,
            context,
            doorbells,
            pds,
            cqs,
            qps,
            data,
            regions: Vec::new(),
            handles: Vec::new(),
            peer: Peer::default(),
            tally: Tally::default(),
        };
        storm.register()?;
        Ok(storm)
    }

    /// Regions of data, and of the queues themselves.
    fn register(&mut self) -> Result<()> {
        let data = (self.data.addr(), self.data.len() as u64);
        let mut wanted = vec![
            (0, data, access::REGION),
            (0, data, 0),
            (0, data, access::REMOTE_READ),
            (1, data, access::REGION),
        ];
        let queues = self.qps.iter().map(|qp| &qp.memory);
        let queues = queues.chain(self.cqs.iter().map(|cq| &cq.memory));
        wanted.extend(queues.map(|m| (0, (m.addr(), m.len() as u64), access::REGION)));
        for (pd, (addr, len), rights) in wanted {
            let mr = self.context.reg_mr(self.pds[pd], addr, len, rights);
            let mr = mr.context("registering memory")?;
            self.regions.push(Region { addr, len, mr });
        }
        Ok(())
    }

    /// What the other machine's storm needs to know.
    pub fn as_peer(&self) -> Result<Peer> {
        Ok(Peer {
            lid: self.context.lid()?,
            qps: [self.qps[0].object.number, self.qps[1].object.number],
            key: self.regions[0].mr.number,
            addr: self.regions[0].addr,
        })
    }

    /// Connects all QPs.
    pub fn connect(&mut self, peer: Peer) -> Result<()> {
        self.peer = peer;
        let lid = self.context.lid()?;
        let number = |storm: &Self, of: usize| storm.qps[of].object.number;
        for of in 2..6 {
            self.qps[of].peer = (lid, number(self, of ^ 1));
        }
        for of in [0, 1] {
            self.qps[of].peer = (peer.lid, peer.qps[of]);
        }
        for qp in &mut self.qps {
            qp.start(&self.context).context("connecting a QP")?;
        }
        // To this port, to the peer's, and to one that is not there.
        for dlid in [lid, peer.lid, 0x7777] {
            self.handles
                .push(self.context.create_ah(self.pds[0], dlid)?);
        }
        self.handles.push(self.context.create_ah(self.pds[1], lid)?);
        Ok(())
    }

    /// Does its worst.
    pub fn run(&mut self) -> Result<()> {
        for _ in 0..STEPS {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let which = self.rng.below(self.qps.len() as u64) as usize;
        match self.rng.below(100) {
            0..=34 => self.sends(which),
            35..=49 => self.receives(which),
            50..=52 => self.noise(),
            53..=55 => self.indices(which),
            56..=61 => self.ring(),
            62..=63 => self.record(),
            64..=85 => self.restart(which)?,
            86 => self.lose_memory(which)?,
            87..=89 => self.churn()?,
            _ => {
                let pause = self.rng.below(3000);
                thread::sleep(Duration::from_micros(pause));
            }
        }
        if self.rng.chance(80) {
            self.drain();
        }
        Ok(())
    }

    /// Takes what has completed.
    fn drain(&mut self) {
        for cq in &mut self.cqs {
            // What was overwritten may look like completions without an end.
            for _ in 0..512 {
                let Some(cqe) = cq.poll() else {
                    break;
                };
                match CqeStatus::from_raw(cqe.status) {
                    Some(CqeStatus::Success) => self.tally.well += 1,
                    Some(CqeStatus::WorkRequestFlushed) => self.tally.flushed += 1,
                    _ => self.tally.failed += 1,
                }
            }
        }
    }

    /// An address in a region of data, and its key.
    fn right_place(&mut self, len: u32) -> (u64, u32) {
        let region = self.regions[0];
        let at = self.rng.below(region.len - u64::from(len)) & !7;
        (region.addr + at, region.mr.number)
    }

    /// An address and a key of which something is wrong, or of a queue.
    fn wrong_place(&mut self) -> (u64, u32) {
        let region = match self.rng.below(3) {
            0 => self.regions[0],
            // A queue of our own.
            1 => self.regions[4 + self.rng.below(self.regions.len() as u64 - 4) as usize],
            _ => self.rng.pick(&self.regions),
        };
        let offset = match self.rng.below(6) {
            0 => self.rng.below(region.len + 2 * PAGE as u64),
            1 => 0u64.wrapping_sub(self.rng.below(4096)),
            2 => region.len - self.rng.below(64),
            // Records, and the first slots behind them.
            3 => self.rng.below(64) * 4,
            _ => self.rng.below(region.len / 2) & !7,
        };
        let key = match self.rng.below(8) {
            0 => self.rng.number() as u32,
            1 => region.mr.number ^ 1,
            2 => 0,
            _ => region.mr.number,
        };
        (region.addr.wrapping_add(offset), key)
    }

    fn wrong_length(&mut self) -> u32 {
        match self.rng.below(8) {
            0 => self.rng.number() as u32,
            1 => u32::MAX,
            2 => 1 << 31,
            3 => 0,
            _ => self.rng.below(9000) as u32,
        }
    }

    /// Elements of a request; most are in order where it is to be `right`.
    fn list(&mut self, right: bool, len: u32) -> Vec<u8> {
        let count = if right { 1 } else { self.rng.below(5) };
        let list: Vec<_> = (0..count)
            .map(|_| {
                let (length, (addr, lkey)) = if right {
                    (len, self.right_place(len))
                } else {
                    (self.wrong_length(), self.wrong_place())
                };
                Sge { addr, length, lkey }
            })
            .collect();
        elements(&list)
    }

    /// Sends, of which some are right.
    fn sends(&mut self, which: usize) {
        for _ in 0..=self.rng.below(6) {
            let right = self.rng.chance(75);
            let opcode = if self.qps[which].kind == Kind::Ud && right {
                SendOpcode::Send
            } else {
                self.rng.pick(SendOpcode::ALL)
            };
            let atomic = matches!(opcode, SendOpcode::CompareSwap | SendOpcode::FetchAdd);
            let len = match (atomic, self.rng.below(3)) {
                (true, _) => 8,
                (false, 0) => self.rng.below(9000) as u32,
                (false, _) => self.rng.below(256) as u32,
            };
            let mut data = self.list(right, len);
            let (remote, key) = match (right, which) {
                (true, 0 | 1) => (self.peer.addr, self.peer.key),
                (true, _) => self.right_place(len),
                (false, _) => self.wrong_place(),
            };
            let mut wqe = SendWqe {
                opcode: opcode.raw(),
                flags: SEND_SIGNALED,
                num_sge: (data.len() / Sge::SIZE) as u8,
                imm: self.rng.number() as u32,
                wr_id: self.rng.number(),
                remote,
                key,
                ..SendWqe::default()
            };
            if atomic {
                let mut operands = self.rng.bytes::<16>().to_vec();
                operands.extend(&data);
                data = operands;
            }
            if self.qps[which].kind == Kind::Ud {
                self.address(&mut wqe, right);
            }
            if !right {
                self.spoil(&mut wqe);
            }
            self.qps[which].push_send(&wqe, &data);
        }
        self.qps[which].post(&self.doorbells);
    }

    /// Address of a datagram.
    fn address(&mut self, wqe: &mut SendWqe, right: bool) {
        let (number, handle) = if right {
            (self.rng.pick(&[6, 7]), self.handles[0].number)
        } else {
            let any = self.rng.number() as u32;
            let handle = self.rng.pick(&self.handles).number;
            (
                self.rng.below(8) as usize,
                self.rng.pick(&[any, handle, handle]),
            )
        };
        let mut number = self.qps[number].object.number;
        wqe.key = 0x1234;
        if !right {
            let any = self.rng.number() as u32;
            number = self.rng.pick(&[number, any, any & 3, self.peer.qps[0]]);
            // The privileged ones are not for programs, whatever they write.
            wqe.key = self.rng.pick(&[0x1234, 0x1235, 0x8000_0000, 0x8001_0000]);
        }
        wqe.remote = u64::from(number) << 32 | u64::from(handle);
    }

    /// Makes a header wrong in one place.
    fn spoil(&mut self, wqe: &mut SendWqe) {
        match self.rng.below(12) {
            0 => wqe.opcode = self.rng.number() as u8,
            1 => wqe.flags = self.rng.number() as u8,
            2 => wqe.num_sge = self.rng.number() as u8,
            3 => wqe.reserved = self.rng.number() as u8,
            4 => wqe.inline_len = self.rng.number() as u16,
            5 | 6 => {
                wqe.flags |= SEND_INLINE;
                wqe.num_sge = 0;
                wqe.inline_len = self.rng.below(u64::from(SIZES.inline_data) + 8) as u16;
            }
            7 => wqe.pkey_index = self.rng.number() as u16,
            8 => wqe.flags &= !SEND_SIGNALED,
            _ => {}
        }
    }

    /// Receives, of which most are right.
    fn receives(&mut self, which: usize) {
        for _ in 0..self.rng.below(8) {
            let right = self.rng.chance(90);
            let data = self.list(right, 9040);
            let mut wqe = RecvWqe {
                wr_id: self.rng.number(),
                num_sge: (data.len() / Sge::SIZE) as u32,
                reserved: 0,
            };
            match self.rng.below(4) {
                0 if !right => wqe.num_sge = self.rng.number() as u32,
                1 if !right => wqe.reserved = self.rng.number() as u32,
                _ => {}
            }
            self.qps[which].push_receive(&wqe, &data);
        }
        self.qps[which].post(&self.doorbells);
    }

    /// Bytes without a meaning anywhere in a queue.
    fn noise(&mut self) {
        let noise: [u8; 64] = self.rng.bytes();
        let queues = self.qps.len() + self.cqs.len();
        let which = self.rng.below(queues as u64) as usize;
        let memory = match self.qps.get(which) {
            Some(qp) => &qp.memory,
            None => &self.cqs[which - self.qps.len()].memory,
        };
        let at = self.rng.below((memory.len() - noise.len()) as u64) as usize;
        memory.write(at, &noise);
    }

    /// Producer indices that cannot be, and words that are the device's.
    fn indices(&mut self, which: usize) {
        let qp = &mut self.qps[which];
        let word = self.rng.pick(&[
            offset_of!(QpRecord, sq_producer),
            offset_of!(QpRecord, sq_producer),
            offset_of!(QpRecord, rq_producer),
            offset_of!(QpRecord, sq_need_wake),
            offset_of!(QpRecord, rq_need_wake),
        ]);
        let value = match self.rng.below(5) {
            0 => self.rng.number() as u32,
            1 => qp.sends.wrapping_sub(1),
            2 => qp
                .sends
                .wrapping_add(1 << qp.layout.log_sq_slots)
                .wrapping_add(1),
            3 => 0,
            _ => qp.sends.wrapping_add(self.rng.below(16) as u32),
        };
        qp.memory.store(word, value);
        self.ring_at(0, which);
    }

    fn ring_at(&mut self, offset: usize, which: usize) {
        self.doorbells.store(offset, self.qps[which].object.number);
    }

    /// Doorbells for anyone, anywhere in the page, of any width; and reads of the page.
    fn ring(&mut self) {
        for _ in 0..self.rng.below(20) {
            let number = match self.rng.below(4) {
                0 => self.rng.number(),
                // The special QPs, and those of other programs.
                1 => self.rng.below(0x40),
                2 => self.rng.below(0x1000),
                _ => {
                    let own = self.rng.below(self.qps.len() as u64) as usize;
                    self.qps[own].object.number.into()
                }
            };
            let offset = match self.rng.below(3) {
                0 => self.rng.below(PAGE as u64) as usize,
                _ => self.rng.below(3) as usize * 4,
            };
            let width = self.rng.pick(&[4, 4, 4, 4, 1, 2, 8]);
            if self.rng.chance(5) {
                self.doorbells.load(offset & !3);
            } else {
                self.doorbells.store_of_width(offset, width, number);
            }
        }
    }

    /// A CQ's record is changed under the device.
    fn record(&mut self) {
        let which = self.rng.below(self.cqs.len() as u64) as usize;
        let arm = self.rng.chance(80);
        let value = self.rng.number() as u32;
        let memory = &self.cqs[which].memory;
        if arm {
            memory.store(offset_of!(CqRecord, arm), value);
        } else {
            memory.store(offset_of!(CqRecord, consumer), value);
        }
    }

    /// A QP gets another chance, and the one that it is connected to.
    fn restart(&mut self, which: usize) -> Result<()> {
        self.tally.restarts += 1;
        for which in [which, which ^ 1] {
            let qp = &mut self.qps[which];
            qp.start(&self.context).context("starting a QP anew")?;
        }
        Ok(())
    }

    /// Memory of a queue or of data goes while the device works with it.
    fn lose_memory(&mut self, which: usize) -> Result<()> {
        let choice = self.rng.below(5);
        let page = PAGE * self.rng.below(2) as usize;
        match choice {
            0 => self.qps[which].memory.replace(page, PAGE)?,
            1 => self.qps[which].memory.discard(),
            2 => self.data.replace(page, PAGE)?,
            3 => self.cqs[which % 3].memory.replace(0, PAGE)?,
            _ => self.qps[which].memory.unmap(),
        }
        Ok(())
    }

    /// Objects go and come while others use them.
    fn churn(&mut self) -> Result<()> {
        match self.rng.below(3) {
            0 => {
                let which = self.rng.below(4) as usize;
                let region = self.regions[which];
                let pd = self.pds[usize::from(which == 3)];
                self.context.dereg_mr(region.mr)?;
                let mr = self
                    .context
                    .reg_mr(pd, region.addr, region.len, access::REGION)?;
                self.regions[which].mr = mr;
            }
            1 => {
                let which = self.rng.below(self.handles.len() as u64) as usize;
                self.context.destroy_ah(self.handles[which])?;
                self.handles[which] = self.context.create_ah(self.pds[0], self.peer.lid)?;
            }
            _ => {
                // Those behind the two that the peer knows.
                let which = 2 + self.rng.below(self.qps.len() as u64 - 2) as usize;
                let (kind, to) = (self.qps[which].kind, self.qps[which].peer);
                self.context.destroy_qp(self.qps[which].object)?;
                let mut cq = || self.rng.pick(&[0, 1]);
                let cqs = [self.cqs[cq()].object, self.cqs[cq()].object];
                let mut qp = Qp::new(&self.context, self.pds[0], cqs, kind)?;
                qp.peer = to;
                qp.start(&self.context)?;
                self.qps[which] = qp;
            }
        }
        Ok(())
    }

    /// Everything goes: in order, or as with a program that is killed. Gives what came of the round.
    pub fn end(mut self) -> Result<Tally> {
        self.drain();
        if self.rng.chance(25) {
            // The kernel clears up when the files are closed.
            return Ok(self.tally);
        }
        if self.rng.chance(30) {
            for qp in &mut self.qps {
                qp.memory.unmap();
            }
            self.data.unmap();
        }
        let context = &self.context;
        for qp in &self.qps {
            context.destroy_qp(qp.object).context("destroying a QP")?;
        }
        for cq in &self.cqs {
            context.destroy_cq(cq.object).context("destroying a CQ")?;
        }
        for region in &self.regions {
            context
                .dereg_mr(region.mr)
                .context("taking a region away")?;
        }
        for &handle in &self.handles {
            context.destroy_ah(handle).context("destroying a handle")?;
        }
        for pd in self.pds {
            context.dealloc_pd(pd).context("destroying a PD")?;
        }
        Ok(self.tally)
    }
}
