// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! An opened device, and the verbs that only pass a command on.

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of, MaybeUninit};

use ochre_abi::{AllocPdResp, AllocUcontextReq, AllocUcontextResp, CreateAhResp};
use ochre_hw::regs::{INTERFACE_MAJOR, INTERFACE_MINOR};

use crate::ffi::{self, fail, Cmd};
use crate::memory::Doorbells;
use crate::qp::QpTable;
use crate::{cq, poll, post, qp};

/// `RDMA_DRIVER_UNKNOWN`: devices are matched by their PCI ids.
const DRIVER_ID: u32 = 0;

/// What the provider keeps of an opened device.
pub(crate) struct State {
    /// The context's doorbell page.
    pub(crate) doorbells: Doorbells,
    /// The context's QPs by number.
    pub(crate) qps: QpTable,
    /// What the kernel driver said when the context was made.
    pub(crate) limits: AllocUcontextResp,
}

/// An opened device. libibverbs allocates it, zeroed, and knows the first field.
#[repr(C)]
pub(crate) struct Context {
    verbs: ffi::verbs_context,
    state: MaybeUninit<State>,
}

impl Context {
    fn pointer(ctx: *mut ffi::ibv_context) -> *mut Self {
        const OFFSET: usize = offset_of!(Context, verbs) + offset_of!(ffi::verbs_context, context);
        ctx.wrapping_byte_sub(OFFSET).cast()
    }

    /// The state of an opened device.
    ///
    /// # Safety
    /// `ctx` must be a context that [`open`] made and that is not closed during `'a`.
    pub(crate) unsafe fn state<'a>(ctx: *mut ffi::ibv_context) -> &'a State {
        // SAFETY: by the caller's promise the pointer is to a `Context`, whose state `open` wrote.
        unsafe { (*Self::pointer(ctx)).state.assume_init_ref() }
    }
}

static OPS: ffi::verbs_context_ops = ffi::verbs_context_ops {
    alloc_pd: Some(alloc_pd),
    attach_mcast: Some(ffi::ibv_cmd_attach_mcast),
    create_ah: Some(create_ah),
    create_cq: Some(cq::create_cq),
    create_cq_ex: Some(cq::create_cq_ex),
    create_qp: Some(qp::create_qp),
    create_qp_ex: Some(qp::create_qp_ex),
    dealloc_pd: Some(dealloc_pd),
    dereg_mr: Some(dereg_mr),
    destroy_ah: Some(destroy_ah),
    destroy_cq: Some(cq::destroy_cq),
    destroy_qp: Some(qp::destroy_qp),
    detach_mcast: Some(ffi::ibv_cmd_detach_mcast),
    free_context: Some(free_context),
    modify_cq: Some(modify_cq),
    modify_qp: Some(qp::modify_qp),
    poll_cq: Some(poll::poll_cq),
    post_recv: Some(post::post_recv),
    post_send: Some(post::post_send),
    query_device_ex: Some(query_device_ex),
    query_port: Some(query_port),
    query_qp: Some(qp::query_qp),
    reg_mr: Some(reg_mr),
    req_notify_cq: Some(cq::req_notify_cq),
    ..NO_OPS
};

// SAFETY: a structure of optional functions, for which all zeros means none.
const NO_OPS: ffi::verbs_context_ops = unsafe { MaybeUninit::zeroed().assume_init() };

/// Opens a device: makes the kernel's context and maps the doorbell page.
pub(crate) unsafe extern "C" fn open(
    device: *mut ffi::ibv_device,
    cmd_fd: c_int,
    _: *mut c_void,
) -> *mut ffi::verbs_context {
    // SAFETY: libibverbs hands in a device of ours and the file that it opened for it; it allocates
    // zeroed memory of the size that it is told and sets up the part at the offset.
    let ctx: *mut Context = unsafe {
        ffi::_verbs_init_and_alloc_context(
            device,
            cmd_fd,
            size_of::<Context>(),
            core::ptr::without_provenance_mut(offset_of!(Context, verbs)),
            DRIVER_ID,
        )
    }
    .cast();
    if ctx.is_null() {
        return fail(libc::ENOMEM);
    }
    // SAFETY: just allocated and initialised, and known to nobody else.
    match unsafe { connect(&mut (*ctx).verbs, cmd_fd) } {
        Ok(state) => {
            // SAFETY: as above; the operations are static.
            unsafe {
                (*ctx).state.write(state);
                ffi::verbs_set_ops(&mut (*ctx).verbs, &OPS);
                &mut (*ctx).verbs
            }
        }
        Err(errno) => {
            // SAFETY: as above; the memory came from the C allocator.
            unsafe {
                ffi::verbs_uninit_context(&mut (*ctx).verbs);
                libc::free(ctx.cast());
            }
            fail(errno)
        }
    }
}

/// Makes the kernel's context and maps the doorbell page. The error is an errno.
fn connect(verbs: &mut ffi::verbs_context, cmd_fd: c_int) -> Result<State, i32> {
    let mut cmd = Cmd::<ffi::ibv_get_context, _>::new(AllocUcontextReq {
        interface_major: INTERFACE_MAJOR.into(),
        interface_minor: INTERFACE_MINOR.into(),
        reserved: 0,
    });
    let mut resp = Cmd::<ffi::ib_uverbs_get_context_resp, _>::new(AllocUcontextResp::default());
    // SAFETY: command and response are as long as is said, and the context is being set up.
    let err = unsafe {
        ffi::ibv_cmd_get_context(
            verbs,
            &mut cmd.core,
            size_of_val(&cmd),
            &mut resp.core,
            size_of_val(&resp),
        )
    };
    if err == libc::EPROTONOSUPPORT {
        eprintln!(
            "libochre: the kernel driver does not speak hardware interface {INTERFACE_MAJOR}.{INTERFACE_MINOR};              build driver and provider from the same source"
        );
    }
    if err != 0 {
        return Err(err);
    }
    let limits = resp.driver;
    let doorbells = Doorbells::new(
        cmd_fd,
        limits.doorbell_offset,
        limits.doorbell_length as usize,
    )
    .inspect_err(|errno| eprintln!("libochre: cannot map the doorbell page (errno {errno})"))?;
    Ok(State {
        doorbells,
        qps: QpTable::new(),
        limits,
    })
}

unsafe extern "C" fn free_context(ctx: *mut ffi::ibv_context) {
    let ctx = Context::pointer(ctx);
    // SAFETY: libibverbs closes a context of ours, once, after all its objects; the memory came from
    // the C allocator.
    unsafe {
        (*ctx).state.assume_init_drop();
        ffi::verbs_uninit_context(&mut (*ctx).verbs);
        libc::free(ctx.cast());
    }
}

unsafe extern "C" fn query_device_ex(
    ctx: *mut ffi::ibv_context,
    input: *const ffi::ibv_query_device_ex_input,
    attr: *mut ffi::ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    let mut resp = ffi::ib_uverbs_ex_query_device_resp::default();
    let mut resp_size = size_of_val(&resp);
    // SAFETY: the pointers are the program's, as libibverbs checked them.
    let err = unsafe {
        ffi::ibv_cmd_query_device_any(ctx, input, attr, attr_size, &mut resp, &mut resp_size)
    };
    if err != 0 {
        return err;
    }
    let version = resp.base.fw_ver;
    let text = format!(
        "{}.{}.{}",
        (version >> 32) & 0xffff,
        (version >> 16) & 0xffff,
        version & 0xffff
    );
    // SAFETY: the command filled in the attributes, at least their original part.
    let field = unsafe { &mut (*attr).orig_attr.fw_ver };
    field.fill(0);
    for (to, from) in field.iter_mut().take(63).zip(text.bytes()) {
        *to = from as core::ffi::c_char;
    }
    0
}

unsafe extern "C" fn query_port(
    ctx: *mut ffi::ibv_context,
    port: u8,
    attr: *mut ffi::ibv_port_attr,
) -> c_int {
    let mut cmd = Cmd::<ffi::ibv_query_port, _>::new(());
    // SAFETY: the command is as long as is said; the pointers are the program's.
    unsafe { ffi::ibv_cmd_query_port(ctx, port, attr, &mut cmd.core, size_of_val(&cmd)) }
}

unsafe extern "C" fn alloc_pd(ctx: *mut ffi::ibv_context) -> *mut ffi::ibv_pd {
    let mut pd = Box::new(ffi::ibv_pd::default());
    let mut cmd = Cmd::<ffi::ibv_alloc_pd, _>::new(());
    let mut resp = Cmd::<ffi::ib_uverbs_alloc_pd_resp, _>::new(AllocPdResp::default());
    // SAFETY: command and response are as long as is said.
    let err = unsafe {
        ffi::ibv_cmd_alloc_pd(
            ctx,
            &mut *pd,
            &mut cmd.core,
            size_of_val(&cmd),
            &mut resp.core,
            size_of_val(&resp),
        )
    };
    if err != 0 {
        return fail(err);
    }
    Box::into_raw(pd)
}

unsafe extern "C" fn dealloc_pd(pd: *mut ffi::ibv_pd) -> c_int {
    // SAFETY: a PD of ours that nothing uses any more; freed once the kernel agrees.
    unsafe {
        let err = ffi::ibv_cmd_dealloc_pd(pd);
        if err == 0 {
            drop(Box::from_raw(pd));
        }
        err
    }
}

unsafe extern "C" fn reg_mr(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ffi::ibv_mr {
    let mut mr = Box::new(ffi::verbs_mr::default());
    let mut cmd = Cmd::<ffi::ibv_reg_mr, _>::new(());
    let mut resp = ffi::ib_uverbs_reg_mr_resp::default();
    // SAFETY: command and response are as long as is said. The kernel pins the range or refuses it.
    let err = unsafe {
        ffi::ibv_cmd_reg_mr(
            pd,
            addr,
            length,
            iova,
            access,
            &mut *mr,
            &mut cmd.core,
            size_of_val(&cmd),
            &mut resp,
            size_of_val(&resp),
        )
    };
    if err != 0 {
        return fail(err);
    }
    const { assert!(offset_of!(ffi::verbs_mr, ibv_mr) == 0) };
    Box::into_raw(mr).cast()
}

unsafe extern "C" fn dereg_mr(mr: *mut ffi::verbs_mr) -> c_int {
    // SAFETY: a region of ours; freed once the kernel agrees.
    unsafe {
        let err = ffi::ibv_cmd_dereg_mr(mr);
        if err == 0 {
            drop(Box::from_raw(mr));
        }
        err
    }
}

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    ah: ffi::ibv_ah,
    /// The device's number of it.
    ahn: u32,
}

impl Ah {
    /// Address handle and QP number as a send slot has them. The error is an errno.
    pub(crate) fn destination(&self, remote_qpn: u32) -> Result<u64, i32> {
        if remote_qpn > 0xff_ffff {
            return Err(libc::EINVAL);
        }
        Ok(u64::from(self.ahn) | (u64::from(remote_qpn) << 32))
    }
}

unsafe extern "C" fn create_ah(
    pd: *mut ffi::ibv_pd,
    attr: *mut ffi::ibv_ah_attr,
) -> *mut ffi::ibv_ah {
    let mut ah = Box::new(Ah {
        ah: ffi::ibv_ah::default(),
        ahn: 0,
    });
    let mut resp = Cmd::<ffi::ib_uverbs_create_ah_resp, _>::new(CreateAhResp::default());
    let size = size_of_val(&resp);
    // SAFETY: the response is as long as is said; the attributes are the program's.
    let err = unsafe { ffi::ibv_cmd_create_ah(pd, &mut ah.ah, attr, &mut resp.core, size) };
    if err != 0 {
        return fail(err);
    }
    ah.ahn = resp.driver.ahn;
    Box::into_raw(ah).cast()
}

unsafe extern "C" fn destroy_ah(ah: *mut ffi::ibv_ah) -> c_int {
    // SAFETY: an address handle of ours; freed once the kernel agrees.
    unsafe {
        let err = ffi::ibv_cmd_destroy_ah(ah);
        if err == 0 {
            drop(Box::from_raw(ah.cast::<Ah>()));
        }
        err
    }
}

unsafe extern "C" fn modify_cq(cq: *mut ffi::ibv_cq, attr: *mut ffi::ibv_modify_cq_attr) -> c_int {
    let mut cmd = Cmd::<ffi::ibv_modify_cq, _>::new(());
    // SAFETY: the command is as long as is said; the pointers are the program's.
    unsafe { ffi::ibv_cmd_modify_cq(cq, attr, &mut cmd.core, size_of_val(&cmd)) }
}
