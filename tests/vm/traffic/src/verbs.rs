// SPDX-License-Identifier: GPL-2.0-or-later
//! As much of the verbs as this program needs, and all of its `unsafe`.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use anyhow::{anyhow, bail, Context as _, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::ffi;

pub(crate) use crate::ffi::{
    IBV_EVENT_DEVICE_FATAL as DEVICE_FATAL, IBV_WC_RETRY_EXC_ERR as RETRY_EXCEEDED,
    IBV_WC_SUCCESS as SUCCESS, IBV_WC_WR_FLUSH_ERR as FLUSHED,
};

/// The error of a call that returns null or -1 and sets errno.
fn last(what: &str) -> anyhow::Error {
    anyhow!("{what}: {}", io::Error::last_os_error())
}

/// The error of a call that returns an errno.
fn check(what: &str, code: i32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(anyhow!("{what}: {}", io::Error::from_raw_os_error(code)))
}

/// An open device.
pub(crate) struct Context(NonNull<ffi::ibv_context>);

impl Context {
    pub(crate) fn open(name: &str) -> Result<Rc<Self>> {
        let mut count = 0;
        // SAFETY: the list lives until it is freed below, after the device is open; its entries up to
        // `count` are devices with names that are C strings.
        unsafe {
            let list = ffi::ibv_get_device_list(&raw mut count);
            if list.is_null() {
                return Err(last("the list of devices"));
            }
            let mut context = None;
            for n in 0..usize::try_from(count).unwrap_or(0) {
                let device = *list.add(n);
                if CStr::from_ptr(ffi::ibv_get_device_name(device)).to_bytes() == name.as_bytes() {
                    context = Some(NonNull::new(ffi::ibv_open_device(device)));
                }
            }
            let error = last("opening the device");
            ffi::ibv_free_device_list(list);
            match context {
                Some(Some(context)) => Ok(Rc::new(Context(context))),
                Some(None) => Err(error),
                None => bail!("there is no device {name}"),
            }
        }
    }

    fn raw(&self) -> *mut ffi::ibv_context {
        self.0.as_ptr()
    }

    /// LID and code of the active MTU of port 1.
    pub(crate) fn port(&self) -> Result<(u16, u32)> {
        // The library knows an older and shorter form of the attributes by this name.
        let mut attr = ffi::ibv_port_attr::default();
        // SAFETY: the context is open, and the attributes have room for either form.
        let code = unsafe { ffi::ibv_query_port(self.raw(), 1, (&raw mut attr).cast()) };
        check("the port's attributes", code)?;
        if attr.state != ffi::IBV_PORT_ACTIVE {
            bail!("the port is not active");
        }
        Ok((attr.lid, attr.active_mtu))
    }

    /// Takes an event of the device, waiting for it.
    pub(crate) fn event(&self) -> Result<u32> {
        let mut event = ffi::ibv_async_event::default();
        // SAFETY: the context is open; the event that was taken is given back at once.
        unsafe {
            if ffi::ibv_get_async_event(self.raw(), &raw mut event) != 0 {
                return Err(last("the device's events"));
            }
            ffi::ibv_ack_async_event(&raw mut event);
        }
        Ok(event.event_type)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all that uses the context holds an Rc of it. A device that has gone refuses, which
        // does not matter any more; so it is with the other objects.
        unsafe { ffi::ibv_close_device(self.raw()) };
    }
}

/// A protection domain.
pub(crate) struct Domain {
    pd: NonNull<ffi::ibv_pd>,
    _context: Rc<Context>,
}

impl Domain {
    pub(crate) fn new(context: &Rc<Context>) -> Result<Rc<Self>> {
        // SAFETY: the context is open.
        let pd = NonNull::new(unsafe { ffi::ibv_alloc_pd(context.raw()) });
        let pd = pd.ok_or_else(|| last("a protection domain"))?;
        Ok(Rc::new(Domain {
            pd,
            _context: Rc::clone(context),
        }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: regions and QPs hold an Rc.
        unsafe { ffi::ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}

/// Registered memory with all rights. The device writes it at any time, so it is copied in and out.
pub(crate) struct Region {
    mr: NonNull<ffi::ibv_mr>,
    memory: NonNull<u8>,
    len: usize,
    _domain: Rc<Domain>,
}

impl Region {
    pub(crate) fn new(domain: &Rc<Domain>, len: usize) -> Result<Self> {
        // In words of 8 bytes: atomics want such an alignment.
        let words = vec![0u64; len.div_ceil(8)].into_boxed_slice();
        let memory = NonNull::from(Box::leak(words)).cast::<u8>();
        let rights = ffi::IBV_ACCESS_LOCAL_WRITE
            | ffi::IBV_ACCESS_REMOTE_WRITE
            | ffi::IBV_ACCESS_REMOTE_READ
            | ffi::IBV_ACCESS_REMOTE_ATOMIC;
        // SAFETY: the memory is never given back: the device may write it as long as the process lives.
        let mr = NonNull::new(unsafe {
            ffi::ibv_reg_mr(
                domain.pd.as_ptr(),
                memory.as_ptr().cast(),
                len,
                rights as i32,
            )
        });
        Ok(Region {
            mr: mr.ok_or_else(|| last("a memory region"))?,
            memory,
            len,
            _domain: Rc::clone(domain),
        })
    }

    /// Where the byte at `offset` is for a peer.
    pub(crate) fn addr(&self, offset: usize) -> u64 {
        self.memory.as_ptr() as u64 + offset as u64
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the region lives.
        unsafe { (*self.mr.as_ptr()).rkey }
    }

    fn lkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: in range; nobody has a reference into the memory.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.memory.as_ptr().add(offset),
                bytes.len(),
            );
        }
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: as above.
        unsafe {
            ptr::copy_nonoverlapping(
                self.memory.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }

    fn element(&self, offset: usize, len: usize) -> ffi::ibv_sge {
        assert!(offset + len <= self.len);
        ffi::ibv_sge {
            addr: self.addr(offset),
            length: len as u32,
            lkey: self.lkey(),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region is not used any more.
        unsafe { ffi::ibv_dereg_mr(self.mr.as_ptr()) };
    }
}

/// A completion queue and its channel.
pub(crate) struct Queue {
    cq: NonNull<ffi::ibv_cq>,
    channel: NonNull<ffi::ibv_comp_channel>,
    context: Rc<Context>,
}

/// What [`Queue::wait`] found; both may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) completion: bool,
    pub(crate) event: bool,
}

impl Queue {
    pub(crate) fn new(context: &Rc<Context>, entries: u32) -> Result<Rc<Self>> {
        // SAFETY: the context is open.
        let channel = NonNull::new(unsafe { ffi::ibv_create_comp_channel(context.raw()) })
            .ok_or_else(|| last("a completion channel"))?;
        // SAFETY: context and channel are open.
        let cq = NonNull::new(unsafe {
            let none = ptr::null_mut();
            ffi::ibv_create_cq(context.raw(), entries as i32, none, channel.as_ptr(), 0)
        })
        .ok_or_else(|| last("a completion queue"))?;
        Ok(Rc::new(Queue {
            cq,
            channel,
            context: Rc::clone(context),
        }))
    }

    fn ops(&self) -> ffi::ibv_context_ops {
        // SAFETY: the context is open.
        unsafe { (*self.context.raw()).ops }
    }

    /// Asks for an event with the next completion.
    pub(crate) fn arm(&self) -> Result<()> {
        let arm = self
            .ops()
            .req_notify_cq
            .context("the provider cannot arm")?;
        // SAFETY: the queue lives.
        check("arming", unsafe { arm(self.cq.as_ptr(), 0) })
    }

    /// The next completion.
    pub(crate) fn poll(&self) -> Result<Option<ffi::ibv_wc>> {
        let poll = self.ops().poll_cq.context("the provider cannot poll")?;
        let mut wc = ffi::ibv_wc::default();
        // SAFETY: the queue lives, and there is room for one completion.
        match unsafe { poll(self.cq.as_ptr(), 1, &raw mut wc) } {
            0 => Ok(None),
            1 => Ok(Some(wc)),
            code => bail!("polling: {code}"),
        }
    }

    /// Waits for a completion's event, an event of the device, a signal or `ms`.
    pub(crate) fn wait(&self, ms: u16) -> Result<Found> {
        // SAFETY: both descriptors are open as long as channel and context are.
        let (completions, events) = unsafe {
            (
                BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd),
                BorrowedFd::borrow_raw((*self.context.raw()).async_fd),
            )
        };
        let mut fds = [
            PollFd::new(completions, PollFlags::POLLIN),
            PollFd::new(events, PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::from(ms)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => bail!("poll: {error}"),
        }
        let [completion, event] = fds.map(|fd| fd.revents().is_some_and(|found| !found.is_empty()));
        Ok(Found { completion, event })
    }

    /// Takes an event of the channel, of which [`Self::wait`] told.
    pub(crate) fn take_event(&self) -> Result<()> {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is open; the event is given back at once.
        unsafe {
            let channel = self.channel.as_ptr();
            if ffi::ibv_get_cq_event(channel, &raw mut cq, &raw mut context) != 0 {
                return Err(last("the completion channel"));
            }
            ffi::ibv_ack_cq_events(cq, 1);
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: QPs hold an Rc; all events are given back.
        unsafe {
            ffi::ibv_destroy_cq(self.cq.as_ptr());
            ffi::ibv_destroy_comp_channel(self.channel.as_ptr());
        }
    }
}

/// How a QP is connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) qpn: u32,
    pub(crate) lid: u16,
    pub(crate) psn: u32,
    pub(crate) own_psn: u32,
    pub(crate) mtu: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Send,
    Write(u64, u32),
    Read(u64, u32),
    FetchAdd(u64, u32),
}

/// A reliable connection.
pub(crate) struct Qp {
    qp: NonNull<ffi::ibv_qp>,
    queue: Rc<Queue>,
    _domain: Rc<Domain>,
}

impl Qp {
    pub(crate) fn new(
        domain: &Rc<Domain>,
        queue: &Rc<Queue>,
        sends: u32,
        receives: u32,
    ) -> Result<Self> {
        let mut init = ffi::ibv_qp_init_attr {
            send_cq: queue.cq.as_ptr(),
            recv_cq: queue.cq.as_ptr(),
            cap: ffi::ibv_qp_cap {
                max_send_wr: sends,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: ffi::IBV_QPT_RC,
            sq_sig_all: 1,
            ..Default::default()
        };
        // SAFETY: domain and queue live as long as the QP, which holds them.
        let qp = NonNull::new(unsafe { ffi::ibv_create_qp(domain.pd.as_ptr(), &raw mut init) });
        Ok(Qp {
            qp: qp.ok_or_else(|| last("a QP"))?,
            queue: Rc::clone(queue),
            _domain: Rc::clone(domain),
        })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the QP lives.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    fn modify(&self, what: &str, mut attr: ffi::ibv_qp_attr, mask: u32) -> Result<()> {
        // SAFETY: the QP lives.
        let code = unsafe { ffi::ibv_modify_qp(self.qp.as_ptr(), &raw mut attr, mask as i32) };
        check(what, code)
    }

    /// To INIT: receives can be posted.
    pub(crate) fn init(&self) -> Result<()> {
        let attr = ffi::ibv_qp_attr {
            qp_state: ffi::IBV_QPS_INIT,
            port_num: 1,
            qp_access_flags: ffi::IBV_ACCESS_REMOTE_WRITE
                | ffi::IBV_ACCESS_REMOTE_READ
                | ffi::IBV_ACCESS_REMOTE_ATOMIC,
            ..Default::default()
        };
        let mask = ffi::IBV_QP_STATE
            | ffi::IBV_QP_PKEY_INDEX
            | ffi::IBV_QP_PORT
            | ffi::IBV_QP_ACCESS_FLAGS;
        self.modify("to INIT", attr, mask)
    }

    /// From INIT to RTS.
    pub(crate) fn connect(&self, path: &Path) -> Result<()> {
        let attr = ffi::ibv_qp_attr {
            qp_state: ffi::IBV_QPS_RTR,
            path_mtu: path.mtu,
            dest_qp_num: path.qpn,
            rq_psn: path.psn,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            ah_attr: ffi::ibv_ah_attr {
                dlid: path.lid,
                port_num: 1,
                ..Default::default()
            },
            ..Default::default()
        };
        let mask = ffi::IBV_QP_STATE
            | ffi::IBV_QP_AV
            | ffi::IBV_QP_PATH_MTU
            | ffi::IBV_QP_DEST_QPN
            | ffi::IBV_QP_RQ_PSN
            | ffi::IBV_QP_MAX_DEST_RD_ATOMIC
            | ffi::IBV_QP_MIN_RNR_TIMER;
        self.modify("to RTR", attr, mask)?;
        let attr = ffi::ibv_qp_attr {
            qp_state: ffi::IBV_QPS_RTS,
            timeout: path.timeout,
            retry_cnt: path.retries,
            rnr_retry: 7,
            sq_psn: path.own_psn,
            max_rd_atomic: 4,
            ..Default::default()
        };
        let mask = ffi::IBV_QP_STATE
            | ffi::IBV_QP_TIMEOUT
            | ffi::IBV_QP_RETRY_CNT
            | ffi::IBV_QP_RNR_RETRY
            | ffi::IBV_QP_SQ_PSN
            | ffi::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("to RTS", attr, mask)
    }

    pub(crate) fn post_recv(&self, id: u64, region: &Region, at: usize, len: usize) -> Result<()> {
        let post = self.queue.ops().post_recv.context("no post_recv")?;
        let mut element = region.element(at, len);
        let mut request = ffi::ibv_recv_wr {
            wr_id: id,
            sg_list: &raw mut element,
            num_sge: 1,
            ..Default::default()
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the QP lives, request and element live during the call.
        let code = unsafe { post(self.qp.as_ptr(), &raw mut request, &raw mut bad) };
        check("posting a receive", code)
    }

    pub(crate) fn post(
        &self,
        id: u64,
        what: Request,
        region: &Region,
        at: usize,
        len: usize,
    ) -> Result<()> {
        let post = self.queue.ops().post_send.context("no post_send")?;
        let mut element = region.element(at, len);
        // SAFETY: all zeroes are a valid request.
        let mut request: ffi::ibv_send_wr = unsafe { mem::zeroed() };
        request.wr_id = id;
        request.sg_list = &raw mut element;
        request.num_sge = 1;
        match what {
            Request::Send => request.opcode = ffi::IBV_WR_SEND,
            Request::Write(addr, key) | Request::Read(addr, key) => {
                request.opcode = match what {
                    Request::Write(..) => ffi::IBV_WR_RDMA_WRITE,
                    _ => ffi::IBV_WR_RDMA_READ,
                };
                request.wr.rdma.remote_addr = addr;
                request.wr.rdma.rkey = key;
            }
            Request::FetchAdd(addr, key) => {
                request.opcode = ffi::IBV_WR_ATOMIC_FETCH_AND_ADD;
                request.wr.atomic.remote_addr = addr;
                request.wr.atomic.rkey = key;
                request.wr.atomic.compare_add = 1;
            }
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the QP lives, request and element live during the call.
        let code = unsafe { post(self.qp.as_ptr(), &raw mut request, &raw mut bad) };
        check("posting a send", code)
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: the QP is not used any more.
        unsafe { ffi::ibv_destroy_qp(self.qp.as_ptr()) };
    }
}
