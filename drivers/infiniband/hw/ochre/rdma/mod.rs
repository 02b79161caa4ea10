// SPDX-License-Identifier: GPL-2.0-or-later

//! The RDMA subsystem, safely.
//!
//! A driver implements [`Operations`] for its verbs and [`Driver`] for its PCI device, and hands
//! [`Adapter`] to the PCI bus. Everything else here is what these two traits are made of.
//!
//! - [`Device`] is the `struct ib_device` with what the layer keeps beside it; [`Hca`] is what each
//!   callback gets: the device and the driver's own data.
//! - [`Object`] is a verbs object: the C structure that `ib_core` allocates, followed by the
//!   driver's private data, which the layer initialises in place and drops. [`Pd`], [`Ah`],
//!   [`Cq`], [`Qp`], [`Mr`] and [`UContext`] name its kinds.
//! - Events find their objects by number: [`Device::cq_completion`], [`Device::qp_event`] and the
//!   like hold the object alive while its owner is told.
//!
//! C headers: `include/rdma/ib_verbs.h`, `include/rdma/ib_umem.h`,
//! `include/rdma/uverbs_ioctl.h`.

#![allow(
    dead_code,
    unused_imports,
    reason = "the layer offers the subsystem, not what one driver uses of it"
)]

mod ah;
mod attr;
pub(crate) mod bindings;
mod counters;
mod device;
pub(crate) mod dma;
mod events;
mod mad;
mod mmap;
mod object;
mod ops;
mod pci;
mod qp;
mod udata;
mod umem;
mod wc;
mod wr;

pub(crate) use self::{
    ah::{
        AhAttr,
        GlobalRoute, //
    },
    attr::{
        access,
        AtomicCap,
        DeviceAttr,
        DeviceInfo,
        LinkWidth,
        ModifyPort,
        Mtu,
        PhysState,
        PortAttr,
        PortImmutable,
        PortState, //
    },
    counters::CounterDesc,
    device::{
        Device,
        Hca, //
    },
    events::{
        PortEvent,
        QpEvent, //
    },
    mad::{
        Mad,
        MadReply,
        MadSource, //
    },
    object::{
        Ah,
        Cq,
        CqPrivate,
        Mr,
        MrPrivate,
        Object,
        ObjectRef,
        Pd,
        Qp,
        QpPrivate,
        UContext, //
    },
    ops::{
        CqInitAttr,
        NewUContext,
        Operations, //
    },
    pci::{
        device_id,
        Adapter,
        Driver,
        IrqOutcome, //
    },
    qp::{
        QpAttr,
        QpCaps,
        QpInitAttr,
        QpQuery,
        QpState,
        QpType,
        SignalType, //
    },
    udata::Udata,
    umem::Umem,
    wc::{
        Wc,
        WcFlags,
        WcOpcode,
        WcSink,
        WcStatus, //
    },
    wr::{
        RecvWr,
        RecvWrs,
        RegWr,
        SendFlags,
        SendOp,
        SendWr,
        SendWrs,
        Sge, //
    },
};
