// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's interface for verbs, without libibverbs: commands are written to the device file.
//!
//! The structures are those of `rdma/ib_user_verbs.h`, with what the driver adds
//! (`rdma/ochre-abi.h`) behind them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use ochre_abi::{
    AllocPdResp, AllocUcontextReq, AllocUcontextResp, CreateAhResp, CreateCqReq, CreateCqResp,
    CreateQpReq, CreateQpResp,
};
use ochre_hw::regs::{INTERFACE_MAJOR, INTERFACE_MINOR};

use crate::pages::{Pages, PAGE};

const DEVICE: &str = "/dev/infiniband/uverbs0";

const GET_CONTEXT: u32 = 0;
const QUERY_PORT: u32 = 2;
const ALLOC_PD: u32 = 3;
const DEALLOC_PD: u32 = 4;
const CREATE_AH: u32 = 5;
const DESTROY_AH: u32 = 8;
const REG_MR: u32 = 9;
const DEREG_MR: u32 = 13;
const CREATE_COMP_CHANNEL: u32 = 17;
const CREATE_CQ: u32 = 18;
const DESTROY_CQ: u32 = 20;
const CREATE_QP: u32 = 24;
const MODIFY_QP: u32 = 26;
const DESTROY_QP: u32 = 27;

/// The port that is used.
pub const PORT: u8 = 1;

/// A command that is being put together.
#[derive(Debug, Default)]
struct Body(Vec<u8>);

impl Body {
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

/// An object of the kernel, and the device's number or key of it.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// The kernel's.
    pub handle: u32,
    /// The device's.
    pub number: u32,
}

/// What a QP is made with, besides its buffer.
#[derive(Clone, Copy, Debug)]
pub struct QpOf {
    /// Handle of the PD.
    pub pd: u32,
    /// Handles of the CQs of sends and receives.
    pub cqs: [u32; 2],
    /// `IBV_QPT_*`: 2 RC, 3 UC, 4 UD.
    pub kind: u8,
    /// What the kernel is told of its sizes: sends, receives, elements, bytes of inline data.
    pub sizes: [u32; 5],
}

/// Attributes of a QP for one transition; `mask` says which count (`IB_QP_*`).
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "they are those of the verbs")]
pub struct Attributes {
    pub mask: u32,
    pub state: u8,
    pub dlid: u16,
    pub dest_qpn: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub qkey: u32,
    pub access: u32,
    pub path_mtu: u8,
    pub reads: u8,
    pub timeout: u8,
    pub retries: u8,
}

/// A context: the opened device.
#[derive(Debug)]
pub struct Context {
    file: File,
    /// Where the kernel writes its answers.
    answer: Pages,
    /// What the driver said when the context was made.
    pub driver: AllocUcontextResp,
    _async: OwnedFd,
}

impl Context {
    /// Opens the first device.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let answer = Pages::new(PAGE)?;
        let request = AllocUcontextReq {
            interface_major: INTERFACE_MAJOR.into(),
            interface_minor: INTERFACE_MINOR.into(),
            reserved: 0,
        };
        let body = Body::default()
            .u64(answer.addr())
            .bytes(&request.to_bytes());
        call(&file, GET_CONTEXT, body, 8 + AllocUcontextResp::SIZE)?;
        let events = answer.load(0) as RawFd;
        let driver = AllocUcontextResp::from_bytes(&answer.read(8));
        Ok(Context {
            // SAFETY: the kernel has just opened this file for us, and nobody else knows of it.
            _async: unsafe { OwnedFd::from_raw_fd(events) },
            file,
            answer,
            driver,
        })
    }

    fn create(&self, command: u32, body: Body, answer: usize) -> io::Result<()> {
        call(&self.file, command, body, answer)
    }

    fn answer(&self) -> Body {
        Body::default().u64(self.answer.addr())
    }

    fn destroy(&self, command: u32, handle: u32) -> io::Result<()> {
        call(&self.file, command, Body::default().u32(handle), 0)
    }

    /// Maps a page of the device.
    pub fn map(&self, offset: u64, len: usize, protection: i32, flags: i32) -> io::Result<Pages> {
        Pages::of_file(&self.file, offset, len, protection, flags)
    }

    /// Maps the context's doorbell page.
    pub fn doorbells(&self) -> io::Result<Pages> {
        self.map(
            self.driver.doorbell_offset,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
        )
    }

    /// The port's LID.
    pub fn lid(&self) -> io::Result<u16> {
        let body = self.answer().u8(PORT).bytes(&[0; 7]);
        self.create(QUERY_PORT, body, 40)?;
        Ok(u16::from_ne_bytes(self.answer.read(22)))
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> io::Result<Object> {
        self.create(ALLOC_PD, self.answer(), 4 + AllocPdResp::SIZE)?;
        let driver = AllocPdResp::from_bytes(&self.answer.read(4));
        Ok(Object {
            handle: self.answer.load(0),
            number: driver.pdn,
        })
    }

    /// Destroys a protection domain.
    pub fn dealloc_pd(&self, pd: Object) -> io::Result<()> {
        self.destroy(DEALLOC_PD, pd.handle)
    }

    /// Registers memory; peers know it by the same addresses.
    pub fn reg_mr(&self, pd: Object, addr: u64, len: u64, access: u32) -> io::Result<Object> {
        let body = self
            .answer()
            .u64(addr)
            .u64(len)
            .u64(addr)
            .u32(pd.handle)
            .u32(access);
        self.create(REG_MR, body, 12)?;
        Ok(Object {
            handle: self.answer.load(0),
            number: self.answer.load(4),
        })
    }

    /// Takes a region away.
    pub fn dereg_mr(&self, mr: Object) -> io::Result<()> {
        self.destroy(DEREG_MR, mr.handle)
    }

    /// Makes an address handle.
    pub fn create_ah(&self, pd: Object, dlid: u16) -> io::Result<Object> {
        let body = self
            .answer()
            .u64(0)
            .u32(pd.handle)
            .u32(0)
            // No GRH.
            .bytes(&[0; 24])
            .u16(dlid)
            .bytes(&[0, 0, 0, 0, PORT, 0]);
        self.create(CREATE_AH, body, 4 + CreateAhResp::SIZE)?;
        let driver = CreateAhResp::from_bytes(&self.answer.read(4));
        Ok(Object {
            handle: self.answer.load(0),
            number: driver.ahn,
        })
    }

    /// Destroys an address handle.
    pub fn destroy_ah(&self, ah: Object) -> io::Result<()> {
        self.destroy(DESTROY_AH, ah.handle)
    }

    /// Makes a channel for completion events.
    pub fn create_channel(&self) -> io::Result<OwnedFd> {
        self.create(CREATE_COMP_CHANNEL, self.answer(), 4)?;
        // SAFETY: the kernel has just opened this file for us, and nobody else knows of it.
        Ok(unsafe { OwnedFd::from_raw_fd(self.answer.load(0) as RawFd) })
    }

    /// Makes a CQ in the memory that `driver` names, perhaps with events.
    pub fn create_cq(
        &self,
        entries: u32,
        channel: Option<&OwnedFd>,
        driver: &CreateCqReq,
    ) -> io::Result<Object> {
        let body = self
            .answer()
            .u64(0)
            .u32(entries)
            .u32(0)
            .u32(channel.map_or(-1, AsRawFd::as_raw_fd) as u32)
            .u32(0)
            .bytes(&driver.to_bytes());
        self.create(CREATE_CQ, body, 8 + CreateCqResp::SIZE)?;
        let driver = CreateCqResp::from_bytes(&self.answer.read(8));
        Ok(Object {
            handle: self.answer.load(0),
            number: driver.cqn,
        })
    }

    /// Destroys a CQ.
    pub fn destroy_cq(&self, cq: Object) -> io::Result<()> {
        self.create(DESTROY_CQ, self.answer().u32(cq.handle).u32(0), 8)
    }

    /// Makes a QP in the memory that `driver` names.
    pub fn create_qp(&self, of: &QpOf, driver: &CreateQpReq) -> io::Result<Object> {
        let mut body = self
            .answer()
            .u64(0)
            .u32(of.pd)
            .u32(of.cqs[0])
            .u32(of.cqs[1])
            .u32(0);
        for size in of.sizes {
            body = body.u32(size);
        }
        let body = body.bytes(&[0, of.kind, 0, 0]).bytes(&driver.to_bytes());
        self.create(CREATE_QP, body, 32 + CreateQpResp::SIZE)?;
        let driver = CreateQpResp::from_bytes(&self.answer.read(32));
        Ok(Object {
            handle: self.answer.load(0),
            number: driver.qpn,
        })
    }

    /// Changes a QP.
    pub fn modify_qp(&self, qp: Object, to: &Attributes) -> io::Result<()> {
        let body = Body::default()
            // The path: no GRH.
            .bytes(&[0; 20])
            .u16(to.dlid)
            .u16(0)
            .bytes(&[0, 0, 0, 0, 0, 0, 0, PORT])
            // No other path.
            .bytes(&[0; 32])
            .u32(qp.handle)
            .u32(to.mask)
            .u32(to.qkey)
            .u32(to.rq_psn)
            .u32(to.sq_psn)
            .u32(to.dest_qpn)
            .u32(to.access)
            // P_Key indices.
            .u32(0)
            .bytes(&[to.state, to.state, to.path_mtu, 0, 0])
            // READs under way on both sides, RNR timer, port.
            .bytes(&[to.reads, to.reads, 12, PORT])
            .bytes(&[to.timeout, to.retries, to.retries, 0, 0, 0, 0]);
        call(&self.file, MODIFY_QP, body, 0)
    }

    /// Destroys a QP.
    pub fn destroy_qp(&self, qp: Object) -> io::Result<()> {
        self.create(DESTROY_QP, self.answer().u32(qp.handle).u32(0), 4)
    }
}

/// Writes a command; the kernel answers with up to `answer` bytes where the command says.
fn call(mut file: &File, command: u32, body: Body, answer: usize) -> io::Result<()> {
    let words = |bytes: usize| u16::try_from(bytes / 4).map_err(io::Error::other);
    let len = 8 + body.0.len();
    let whole = Body::default()
        .u32(command)
        .u16(words(len)?)
        .u16(words(answer)?)
        .bytes(&body.0);
    file.write_all(&whole.0)
}
