// SPDX-License-Identifier: GPL-2.0-or-later

//! Callbacks for devices and ports.

use super::{
    super::{
        bindings,
        CounterDesc,
        Mad,
        ModifyPort,
        Udata, //
    },
    device,
    vtable::VTable,
    Operations, //
};
use core::{
    ffi::c_int,
    fmt, //
};
use kernel::{
    error::from_result,
    prelude::*, //
};

/// What the core asks of an InfiniBand port, `RDMA_CORE_PORT_IBA_IB`.
const PORT_IBA_IB: u32 = bindings::RDMA_CORE_CAP_PROT_IB
    | bindings::RDMA_CORE_CAP_IB_MAD
    | bindings::RDMA_CORE_CAP_IB_SMI
    | bindings::RDMA_CORE_CAP_IB_CM
    | bindings::RDMA_CORE_CAP_IB_SA
    | bindings::RDMA_CORE_CAP_AF_IB;

/// Bytes of a MAD.
const MAD_SIZE: usize = 256;

/// Writes text into a C string of fixed size, and cuts it there.
struct FixedStr<'a> {
    rest: &'a mut [u8],
}

impl fmt::Write for FixedStr<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let len = s.len().min(self.rest.len());
        let (now, later) = core::mem::take(&mut self.rest).split_at_mut(len);
        now.copy_from_slice(&s.as_bytes()[..len]);
        self.rest = later;
        Ok(())
    }
}

impl<T: Operations> VTable<T> {
    /// `query_device` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn query_device(
        raw: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes our device, which stays registered.
            let dev = unsafe { device::<T>(raw) };
            // SAFETY: As above; the request comes from a process without a context or with one that
            // is not looked at.
            let udata = unsafe { Udata::<T>::without_context(udata) };

            udata.no_input()?;
            // SAFETY: This is an operation.
            let answer = unsafe { dev.with_data(T::query_device) }?;
            // SAFETY: The core passes its structure, zeroed.
            answer.fill(dev.has_local_dma_lkey(), unsafe { &mut *attr });
            udata.no_response()?;
            Ok(0)
        })
    }

    /// `query_port` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn query_port(
        raw: *mut bindings::ib_device,
        port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes our device, and this is an operation.
            let answer = unsafe { device::<T>(raw).with_data(|hca| T::query_port(hca, port)) }?;
            // SAFETY: The core passes its structure, zeroed.
            answer.fill(unsafe { &mut *attr });
            Ok(0)
        })
    }

    /// `get_port_immutable` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn get_port_immutable(
        raw: *mut bindings::ib_device,
        port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes our device, and this is an operation.
            let answer = unsafe { device::<T>(raw).with_data(|hca| T::port_immutable(hca, port)) }?;
            // SAFETY: The core passes its structure.
            unsafe {
                immutable.write(bindings::ib_port_immutable {
                    pkey_tbl_len: answer.pkey_tbl_len.into(),
                    gid_tbl_len: answer.gid_tbl_len as c_int,
                    core_cap_flags: PORT_IBA_IB,
                    max_mad_size: MAD_SIZE as u32,
                });
            }
            Ok(0)
        })
    }

    /// `get_link_layer` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn get_link_layer(
        _raw: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        bindings::rdma_link_layer_IB_LINK_LAYER_INFINIBAND
    }

    /// `query_gid` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn query_gid(
        raw: *mut bindings::ib_device,
        port: u32,
        index: c_int,
        gid: *mut bindings::ib_gid,
    ) -> c_int {
        from_result(|| {
            let index = u32::try_from(index)?;
            let answer =
                // SAFETY: The core passes our device, and this is an operation.
                unsafe { device::<T>(raw).with_data(|hca| T::query_gid(hca, port, index)) }?;
            // SAFETY: A GID is 16 bytes.
            unsafe { gid.cast::<[u8; 16]>().write(answer) };
            Ok(0)
        })
    }

    /// `query_pkey` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn query_pkey(
        raw: *mut bindings::ib_device,
        port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        from_result(|| {
            let answer =
                // SAFETY: The core passes our device, and this is an operation.
                unsafe { device::<T>(raw).with_data(|hca| T::query_pkey(hca, port, index)) }?;
            // SAFETY: The core passes a place for the answer.
            unsafe { pkey.write(answer) };
            Ok(0)
        })
    }

    /// `get_dev_fw_str` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn get_dev_fw_str(
        raw: *mut bindings::ib_device,
        out: *mut kernel::ffi::c_char,
    ) {
        // SAFETY: The core passes a place of this size.
        let text = unsafe { &mut *out.cast::<[u8; bindings::IB_FW_VERSION_NAME_MAX as usize]>() };
        text.fill(0);

        // The last byte stays zero.
        if let Some((_, rest)) = text.split_last_mut() {
            let mut writer = FixedStr { rest };
            let result =
                // SAFETY: The core passes our device, and this is an operation.
                unsafe { device::<T>(raw).with_data(|hca| T::fw_version(hca, &mut writer)) };
            if result.is_err() {
                text.fill(0);
            }
        }
    }

    /// `modify_device` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn modify_device(
        raw: *mut bindings::ib_device,
        mask: c_int,
        modify: *mut bindings::ib_device_modify,
    ) -> c_int {
        from_result(|| {
            if mask as u32 != bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: The core passes its structure.
            let desc = unsafe { &*(&raw const (*modify).node_desc).cast::<[u8; 64]>() };
            // SAFETY: The core passes our device, and this is an operation.
            unsafe { device::<T>(raw).with_data(|hca| T::modify_node_desc(hca, desc)) }?;
            // SAFETY: The core leaves this copy to the driver.
            unsafe { (&raw mut (*raw).node_desc).cast::<[u8; 64]>().write(*desc) };
            Ok(0)
        })
    }

    /// `modify_port` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn modify_port(
        raw: *mut bindings::ib_device,
        port: u32,
        mask: c_int,
        modify: *mut bindings::ib_port_modify,
    ) -> c_int {
        from_result(|| {
            let mask = mask as u32;
            // SAFETY: The core passes its structure.
            let modify = unsafe { &*modify };
            let change = ModifyPort {
                shutdown: mask & bindings::ib_port_modify_flags_IB_PORT_SHUTDOWN != 0,
                reset_qkey_counter: mask & bindings::ib_port_modify_flags_IB_PORT_RESET_QKEY_CNTR
                    != 0,
                set_cap_mask: modify.set_port_cap_mask,
                clear_cap_mask: modify.clr_port_cap_mask,
            };
            // SAFETY: The core passes our device, and this is an operation.
            unsafe { device::<T>(raw).with_data(|hca| T::modify_port(hca, port, &change)) }?;
            Ok(0)
        })
    }

    /// `process_mad` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn process_mad(
        raw: *mut bindings::ib_device,
        flags: c_int,
        port: u32,
        wc: *const bindings::ib_wc,
        grh: *const bindings::ib_grh,
        mad: *const bindings::ib_mad,
        out: *mut bindings::ib_mad,
        out_size: *mut usize,
        _out_pkey_index: *mut u16,
    ) -> c_int {
        // SAFETY: The core passes a place of at least one MAD. MADs of another size are only there
        // for ports of another kind.
        let reply = unsafe { &mut *out.cast::<[u8; MAD_SIZE]>() };
        reply.fill(0);
        // SAFETY: The core passes a MAD, and where it came from or null.
        let mad = unsafe { Mad::from_raw(flags as u32, mad, wc, grh) };

        let result =
            // SAFETY: The core passes our device, and this is an operation.
            unsafe { device::<T>(raw).with_data(|hca| T::process_mad(hca, port, &mad, reply)) };
        match result {
            Ok(result) => {
                // SAFETY: The core passes a place for the size.
                unsafe { out_size.write(MAD_SIZE) };
                result.as_raw() as c_int
            }
            Err(_) => bindings::ib_mad_result_IB_MAD_RESULT_FAILURE as c_int,
        }
    }

    /// `alloc_hw_port_stats` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn alloc_hw_port_stats(
        _raw: *mut bindings::ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        CounterDesc::alloc(T::PORT_COUNTERS)
    }

    /// `get_hw_stats` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn get_hw_stats(
        raw: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes what `alloc_hw_port_stats` made, locked, so it has a value
            // for each description.
            let values = unsafe {
                core::slice::from_raw_parts_mut(
                    (&raw mut (*stats).value).cast::<u64>(),
                    T::PORT_COUNTERS.len(),
                )
            };
            // SAFETY: The core passes our device, and this is an operation.
            unsafe { device::<T>(raw).with_data(|hca| T::port_counters(hca, port, values)) }?;
            Ok(T::PORT_COUNTERS.len() as c_int)
        })
    }
}
