// SPDX-License-Identifier: GPL-2.0-or-later

//! The C table of operations.

use super::{
    super::{
        bindings,
        mmap,
        Ah,
        Cq,
        Pd,
        Qp,
        UContext, //
    },
    Operations, //
};
use core::{
    marker::PhantomData,
    mem::size_of, //
};
use kernel::ModuleMetadata;

/// The callbacks of a driver, as the core calls them.
pub(in super::super) struct VTable<T: Operations>(PhantomData<T>);

impl<T: Operations> VTable<T> {
    /// `uverbs_robust_udata`: every operation that gets a request checks it, and answers through
    /// the helpers of the core; see [`Udata`](super::super::Udata).
    const FLAGS: [u8; 1] = [1 << 1];

    const OPS: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: T::OwnerModule::THIS_MODULE.as_ptr(),
        driver_id: bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
        uverbs_abi_ver: T::ABI_VERSION,
        _bitfield_1: bindings::__BindgenBitfieldUnit::new(Self::FLAGS),
        device_group: &raw const bindings::ochre_device_group,

        query_device: Some(Self::query_device),
        query_port: Some(Self::query_port),
        get_port_immutable: Some(Self::get_port_immutable),
        get_link_layer: Some(Self::get_link_layer),
        query_gid: Some(Self::query_gid),
        query_pkey: Some(Self::query_pkey),
        get_dev_fw_str: Some(Self::get_dev_fw_str),
        modify_device: if T::HAS_MODIFY_NODE_DESC {
            Some(Self::modify_device)
        } else {
            None
        },
        modify_port: if T::HAS_MODIFY_PORT {
            Some(Self::modify_port)
        } else {
            None
        },
        process_mad: Some(Self::process_mad),
        alloc_hw_port_stats: if T::HAS_PORT_COUNTERS {
            Some(Self::alloc_hw_port_stats)
        } else {
            None
        },
        get_hw_stats: if T::HAS_PORT_COUNTERS {
            Some(Self::get_hw_stats)
        } else {
            None
        },

        alloc_ucontext: Some(Self::alloc_ucontext),
        dealloc_ucontext: Some(Self::dealloc_ucontext),
        disassociate_ucontext: Some(Self::disassociate_ucontext),
        mmap: Some(Self::mmap),
        mmap_free: Some(mmap::free),
        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),
        create_ah: Some(Self::create_ah),
        create_user_ah: Some(Self::create_ah),
        query_ah: Some(Self::query_ah),
        destroy_ah: Some(Self::destroy_ah),

        create_cq: Some(Self::create_cq),
        destroy_cq: Some(Self::destroy_cq),
        resize_user_cq: if T::HAS_RESIZE_CQ {
            Some(Self::resize_user_cq)
        } else {
            None
        },
        modify_cq: if T::HAS_MODIFY_CQ {
            Some(Self::modify_cq)
        } else {
            None
        },
        poll_cq: Some(Self::poll_cq),
        req_notify_cq: Some(Self::req_notify_cq),

        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        query_qp: Some(Self::query_qp),
        destroy_qp: Some(Self::destroy_qp),
        post_send: Some(Self::post_send),
        post_recv: Some(Self::post_recv),
        attach_mcast: if T::HAS_ATTACH_MCAST {
            Some(Self::attach_mcast)
        } else {
            None
        },
        detach_mcast: if T::HAS_DETACH_MCAST {
            Some(Self::detach_mcast)
        } else {
            None
        },

        get_dma_mr: Some(Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        dereg_mr: Some(Self::dereg_mr),
        alloc_mr: if T::HAS_ALLOC_MR {
            Some(Self::alloc_mr)
        } else {
            None
        },
        map_mr_sg: if T::HAS_ADD_MR_PAGE {
            Some(Self::map_mr_sg)
        } else {
            None
        },

        size_ib_ucontext: size_of::<UContext<T>>(),
        size_ib_pd: size_of::<Pd<T>>(),
        size_ib_ah: size_of::<Ah<T>>(),
        size_ib_cq: size_of::<Cq<T>>(),
        size_ib_qp: size_of::<Qp<T>>(),

        // SAFETY: Zero is valid for every field: pointers, numbers and optional functions.
        ..unsafe { core::mem::zeroed() }
    };

    /// The table.
    pub(in super::super) const fn get() -> &'static bindings::ib_device_ops {
        &Self::OPS
    }
}
