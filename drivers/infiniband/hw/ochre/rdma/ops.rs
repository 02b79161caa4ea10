// SPDX-License-Identifier: GPL-2.0-or-later

//! The verbs that a driver implements.

use super::{
    bindings,
    object::{
        CqPrivate,
        MrPrivate,
        QpPrivate, //
    },
    Ah,
    AhAttr,
    CounterDesc,
    Cq,
    Device,
    DeviceAttr,
    Hca,
    Mad,
    MadReply,
    ModifyPort,
    Mr,
    Pd,
    PortAttr,
    PortImmutable,
    Qp,
    QpAttr,
    QpInitAttr,
    QpQuery,
    RecvWrs,
    SendWrs,
    UContext,
    Udata,
    WcSink, //
};
use kernel::prelude::*;

mod device;
mod memory;
mod queue;
mod user;
mod vtable;

pub(crate) use self::user::NewUContext;
pub(super) use self::vtable::VTable;

/// Attributes of a new completion queue, `struct ib_cq_init_attr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqInitAttr {
    /// Entries wanted; the queue may have more.
    pub(crate) cqe: u32,
    /// Completion vector, less than [`DeviceInfo::comp_vectors`](super::DeviceInfo).
    pub(crate) comp_vector: u32,
    /// `IB_UVERBS_CQ_FLAGS_*`.
    pub(crate) flags: u32,
}

/// The verbs of a device whose ports are InfiniBand.
///
/// Verbs objects are made by the `create_*`, `alloc_*` and `reg_*` methods, which return an
/// initialiser for the private data; where one fails, whatever it did before must be undone when
/// the error is returned. The data are dropped by the layer after the matching `destroy_*`,
/// `dealloc_*` or `dereg_*` method, which cannot fail: the core frees an object of the kernel
/// whatever the answer is. A device that does not answer has to be stopped from touching the
/// object's memory by other means (a reset) before the method returns.
///
/// *Context*: a method that does not say otherwise runs in process context and may sleep. Methods
/// run concurrently, but the core never runs a destroy method while another method uses the same
/// object.
#[vtable]
pub(crate) trait Operations: Sized + Send + Sync + 'static {
    /// What the driver keeps for a device. It lives as long as the PCI device is bound (`'a`), so
    /// that it may hold BARs and references to the bus device.
    type Data<'a>: Send + Sync + 'a;

    /// Private data of a user context.
    type UContext: Send + Sync + 'static;
    /// Private data of a protection domain.
    type Pd: Send + Sync + 'static;
    /// Private data of an address handle.
    type Ah: Send + Sync + 'static;
    /// Private data of a completion queue.
    type Cq: CqPrivate + Send + Sync + 'static;
    /// Private data of a queue pair.
    type Qp: QpPrivate + Send + Sync + 'static;
    /// Private data of a memory region.
    type Mr: MrPrivate + Send + Sync + 'static;

    /// Version of the ABI between driver and user-space provider.
    const ABI_VERSION: u32;

    /// Counters of a port, shown under `hw_counters`.
    const PORT_COUNTERS: &'static [CounterDesc] = &[];

    /// Attributes of the device. Called once before the device is registered and at each query.
    fn query_device(hca: Hca<'_, Self>) -> Result<DeviceAttr>;

    /// Attributes of a port.
    fn query_port(hca: Hca<'_, Self>, port: u32) -> Result<PortAttr>;

    /// Sizes of a port's tables. Called while the device is being registered.
    fn port_immutable(hca: Hca<'_, Self>, port: u32) -> Result<PortImmutable>;

    /// An entry of a port's GID table, 16 bytes in wire order.
    fn query_gid(hca: Hca<'_, Self>, port: u32, index: u32) -> Result<[u8; 16]>;

    /// An entry of a port's P_Key table, as a number.
    fn query_pkey(hca: Hca<'_, Self>, port: u32, index: u16) -> Result<u16>;

    /// Writes the version of the firmware, such as `1.0.0`; it is cut at 31 bytes.
    fn fw_version(hca: Hca<'_, Self>, out: &mut dyn core::fmt::Write) -> core::fmt::Result;

    /// Sets the description of the node.
    fn modify_node_desc(hca: Hca<'_, Self>, desc: &[u8; 64]) -> Result {
        let _ = (hca, desc);
        Err(EOPNOTSUPP)
    }

    /// Changes a port.
    fn modify_port(hca: Hca<'_, Self>, port: u32, change: &ModifyPort) -> Result {
        let _ = (hca, port, change);
        Err(EOPNOTSUPP)
    }

    /// Handles a MAD: one that came to QP0 or QP1, a directed-route SMP of this node to itself, or
    /// a query of the counters by sysfs.
    ///
    /// `reply` is all zeros; what is written there is sent only with [`MadReply::Reply`].
    fn process_mad(
        hca: Hca<'_, Self>,
        port: u32,
        mad: &Mad<'_>,
        reply: &mut [u8; 256],
    ) -> Result<MadReply>;

    /// Reads a port's counters, one value for each of [`Self::PORT_COUNTERS`].
    fn port_counters(hca: Hca<'_, Self>, port: u32, values: &mut [u64]) -> Result {
        let _ = (hca, port, values);
        Err(EOPNOTSUPP)
    }

    /// Makes a user context, and answers the provider.
    fn alloc_ucontext(
        hca: Hca<'_, Self>,
        context: &mut NewUContext<'_, Self>,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::UContext, Error>;

    /// The context is going; its mappings are gone already.
    fn dealloc_ucontext(hca: Hca<'_, Self>, context: &UContext<Self>);

    /// Makes a protection domain.
    fn alloc_pd(hca: Hca<'_, Self>, udata: &Udata<'_, Self>) -> impl PinInit<Self::Pd, Error>;

    /// The protection domain is going.
    fn dealloc_pd(hca: Hca<'_, Self>, pd: &Pd<Self>);

    /// Makes an address handle.
    ///
    /// *Context*: any, softirq among them, where `attr.sleepable` is false.
    fn create_ah(
        hca: Hca<'_, Self>,
        pd: &Pd<Self>,
        attr: &AhAttr,
        sleepable: bool,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::Ah, Error>;

    /// The address handle is going.
    ///
    /// *Context*: any, softirq among them, where `sleepable` is false; the private data are dropped
    /// in the same context.
    fn destroy_ah(hca: Hca<'_, Self>, ah: &Ah<Self>, sleepable: bool);

    /// What an address handle was made of, kept in the private data.
    fn query_ah(hca: Hca<'_, Self>, ah: &Ah<Self>) -> Result<AhAttr>;

    /// Makes a completion queue. Its number is what [`CqPrivate::number`] of the data says.
    fn create_cq(
        hca: Hca<'_, Self>,
        attr: &CqInitAttr,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::Cq, Error>;

    /// The completion queue is going: on return, the device writes no completion and no event for
    /// it any more.
    fn destroy_cq(hca: Hca<'_, Self>, cq: &Cq<Self>);

    /// Changes the size of a user's completion queue and returns the new number of entries.
    fn resize_cq(
        hca: Hca<'_, Self>,
        cq: &Cq<Self>,
        cqe: u32,
        udata: &Udata<'_, Self>,
    ) -> Result<u32> {
        let _ = (hca, cq, cqe, udata);
        Err(EOPNOTSUPP)
    }

    /// Sets the moderation of a completion queue: an event only after `count` completions or
    /// `period` microseconds.
    fn modify_cq(hca: Hca<'_, Self>, cq: &Cq<Self>, count: u16, period: u16) -> Result {
        let _ = (hca, cq, count, period);
        Err(EOPNOTSUPP)
    }

    /// Hands completions of a kernel's queue to `out`, until there are no more or it is full.
    ///
    /// *Context*: any, also with interrupts off.
    fn poll_cq(hca: Hca<'_, Self>, cq: &Cq<Self>, out: &mut WcSink<'_, Self>) -> Result;

    /// Arms a kernel's completion queue, for the next solicited or for any completion.
    ///
    /// Returns whether there are completions to be polled that would give no event.
    ///
    /// *Context*: any, also with interrupts off.
    fn req_notify_cq(hca: Hca<'_, Self>, cq: &Cq<Self>, solicited_only: bool) -> Result<bool>;

    /// Makes a queue pair. Its number is what [`QpPrivate::number`] of the data says; the layer
    /// gives QPs of type SMI and GSI the well-known numbers 0 and 1 towards the core.
    fn create_qp(
        hca: Hca<'_, Self>,
        pd: &Pd<Self>,
        attr: &mut QpInitAttr<'_, Self>,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::Qp, Error>;

    /// Changes a queue pair. Transitions are checked with [`QpAttr::check_transition`].
    fn modify_qp(
        hca: Hca<'_, Self>,
        qp: &Qp<Self>,
        attr: &QpAttr,
        udata: &Udata<'_, Self>,
    ) -> Result;

    /// Attributes of a queue pair.
    fn query_qp(hca: Hca<'_, Self>, qp: &Qp<Self>) -> Result<QpQuery>;

    /// The queue pair is going: on return, the device does not touch its memory any more, and
    /// completions of it are either polled or never delivered.
    fn destroy_qp(hca: Hca<'_, Self>, qp: &Qp<Self>);

    /// Posts send requests of the kernel. On an error, the request that
    /// [`SendWrs::next`] gave last is reported as the bad one, and the ones before it are posted.
    ///
    /// *Context*: any, also with interrupts off.
    fn post_send(hca: Hca<'_, Self>, qp: &Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result;

    /// Posts receive requests of the kernel; errors as with [`Self::post_send`].
    ///
    /// *Context*: any, also with interrupts off.
    fn post_recv(hca: Hca<'_, Self>, qp: &Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    /// Attaches a QP to a multicast group.
    fn attach_mcast(hca: Hca<'_, Self>, qp: &Qp<Self>, gid: &[u8; 16], lid: u16) -> Result {
        let _ = (hca, qp, gid, lid);
        Err(EOPNOTSUPP)
    }

    /// Detaches a QP from a multicast group.
    fn detach_mcast(hca: Hca<'_, Self>, qp: &Qp<Self>, gid: &[u8; 16], lid: u16) -> Result {
        let _ = (hca, qp, gid, lid);
        Err(EOPNOTSUPP)
    }

    /// Makes a region of all of the kernel's memory, by DMA address.
    fn get_dma_mr(hca: Hca<'_, Self>, pd: &Pd<Self>, access: u32) -> impl PinInit<Self::Mr, Error>;

    /// Registers memory of a process: `length` bytes at `start`, which peers and work requests
    /// know as `virt_addr`. `access` holds [`access`](super::access) bits.
    fn reg_user_mr(
        hca: Hca<'_, Self>,
        pd: &Pd<Self>,
        start: u64,
        length: u64,
        virt_addr: u64,
        access: u32,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::Mr, Error>;

    /// The region is going: on return, the device does not touch its memory any more.
    fn dereg_mr(hca: Hca<'_, Self>, mr: &Mr<Self>);

    /// Makes a region for fast registration of up to `max_pages` pages.
    fn alloc_mr(
        hca: Hca<'_, Self>,
        pd: &Pd<Self>,
        max_pages: u32,
    ) -> impl PinInit<Self::Mr, Error> {
        let _ = (hca, pd, max_pages);
        Err::<Self::Mr, Error>(EOPNOTSUPP)
    }

    /// A new list of pages begins for a region of [`Self::alloc_mr`].
    ///
    /// *Context*: any.
    fn begin_mr_pages(hca: Hca<'_, Self>, mr: &Mr<Self>) {
        let _ = (hca, mr);
    }

    /// The next page of a region of [`Self::alloc_mr`]: its DMA address. [`ENOMEM`] where the
    /// region has no room for it.
    ///
    /// *Context*: any.
    fn add_mr_page(mr: &Mr<Self>, address: u64) -> Result {
        let _ = (mr, address);
        Err(EOPNOTSUPP)
    }
}

/// The device of an object that the core passes to an operation.
///
/// # Safety
///
/// `raw` must point to the `struct ib_device` of a registered [`Device<T>`], which stays
/// registered for `'a`.
unsafe fn device<'a, T: Operations>(raw: *mut bindings::ib_device) -> &'a Device<T> {
    // SAFETY: By the requirements of this function.
    unsafe { Device::from_raw(raw) }
}
