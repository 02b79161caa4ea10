// SPDX-License-Identifier: GPL-2.0-or-later

//! Callbacks for completion queues and queue pairs.

use super::{
    super::{
        bindings,
        object::{
            CqPrivate,
            QpPrivate, //
        },
        Cq,
        Pd,
        Qp,
        QpAttr,
        QpInitAttr,
        QpType,
        RecvWrs,
        SendWrs,
        Udata,
        WcSink, //
    },
    device,
    vtable::VTable,
    CqInitAttr,
    Operations, //
};
use core::ffi::c_int;
use kernel::{
    error::from_result,
    prelude::*, //
};

impl<T: Operations> VTable<T> {
    /// `create_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn create_cq(
        raw: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes a new object of our device, which stays registered.
            let dev = unsafe { device::<T>((*raw).device) };
            // SAFETY: The request is that of this call.
            let udata = unsafe { Udata::<T>::new(bindings::ochre_attrs_udata(attrs)) };
            // SAFETY: The core passes its structure.
            let attr = unsafe { &*attr };
            let attr = CqInitAttr {
                cqe: attr.cqe,
                comp_vector: attr.comp_vector,
                flags: attr.flags,
            };

            // SAFETY: This is an operation; the object is new.
            unsafe { dev.with_data(|hca| Cq::<T>::init(raw, T::create_cq(hca, &attr, &udata))) }?;
            // SAFETY: The object was initialised just now.
            let cq = unsafe { Cq::<T>::from_raw(raw) };
            // SAFETY: The field is the driver's to be set.
            unsafe { (*raw).cqe = cq.entries() as c_int };

            // SAFETY: `destroy_cq` takes it out again.
            if let Err(e) = unsafe { dev.cqs().insert(cq.number(), cq) } {
                // SAFETY: Nobody knows the object yet.
                unsafe { Self::destroy_cq(raw, core::ptr::null_mut()) };
                return Err(e);
            }
            Ok(0)
        })
    }

    /// `destroy_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn destroy_cq(
        raw: *mut bindings::ib_cq,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        let _ = udata;
        // SAFETY: The core passes an object that we made, which nobody but events uses any more.
        unsafe {
            let dev = device::<T>((*raw).device);
            let cq = Cq::<T>::from_raw(raw);
            dev.with_data(|hca| T::destroy_cq(hca, cq));
            dev.cqs().remove(cq.number(), cq);
            Cq::<T>::fini(raw);
        }
        0
    }

    /// `resize_user_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn resize_user_cq(
        raw: *mut bindings::ib_cq,
        cqe: u32,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The request is that of this call.
            let udata = unsafe { Udata::<T>::new(udata) };
            // SAFETY: The core passes an object that we made, and this is an operation.
            unsafe {
                let entries = device::<T>((*raw).device)
                    .with_data(|hca| T::resize_cq(hca, Cq::<T>::from_raw(raw), cqe, &udata))?;
                (*raw).cqe = entries as c_int;
            }
            Ok(0)
        })
    }

    /// `modify_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn modify_cq(
        raw: *mut bindings::ib_cq,
        count: u16,
        period: u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes an object that we made, and this is an operation.
            unsafe {
                device::<T>((*raw).device)
                    .with_data(|hca| T::modify_cq(hca, Cq::<T>::from_raw(raw), count, period))
            }?;
            Ok(0)
        })
    }

    /// `poll_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn poll_cq(
        raw: *mut bindings::ib_cq,
        num: c_int,
        wc: *mut bindings::ib_wc,
    ) -> c_int {
        // SAFETY: The core passes room for so many completions.
        let mut sink = unsafe { WcSink::<T>::new(wc, usize::try_from(num).unwrap_or(0)) };
        // SAFETY: The core passes an object that we made, and this is an operation.
        let result = unsafe {
            device::<T>((*raw).device)
                .with_data(|hca| T::poll_cq(hca, Cq::<T>::from_raw(raw), &mut sink))
        };

        // Completions that were handed over must not get lost.
        match result {
            Err(e) if sink.pushed() == 0 => e.to_errno(),
            _ => sink.pushed() as c_int,
        }
    }

    /// `req_notify_cq` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn req_notify_cq(
        raw: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        from_result(|| {
            let solicited = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK
                == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED;
            // SAFETY: The core passes an object that we made, and this is an operation.
            let missed = unsafe {
                device::<T>((*raw).device)
                    .with_data(|hca| T::req_notify_cq(hca, Cq::<T>::from_raw(raw), solicited))
            }?;
            let asked = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
            Ok((missed && asked).into())
        })
    }

    /// `create_qp` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn create_qp(
        raw: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes a new object of our device, which stays registered.
            let dev = unsafe { device::<T>((*raw).device) };
            // SAFETY: As above.
            let pd = unsafe { (*raw).pd };
            if pd.is_null() {
                return Err(EINVAL);
            }
            // SAFETY: The core holds the protection domain, which is one of ours.
            let pd = unsafe { Pd::<T>::from_raw(pd) };
            // SAFETY: The request is that of this call.
            let udata = unsafe { Udata::<T>::new(udata) };
            // SAFETY: The core passes its structure.
            let mut attr = unsafe { QpInitAttr::<T>::from_raw(&mut *attr) }?;

            // SAFETY: This is an operation; the object is new.
            unsafe {
                dev.with_data(|hca| Qp::<T>::init(raw, T::create_qp(hca, pd, &mut attr, &udata)))
            }?;
            // SAFETY: The object was initialised just now.
            let qp = unsafe { Qp::<T>::from_raw(raw) };
            let number = match attr.qp_type() {
                QpType::Smi => 0,
                QpType::Gsi => 1,
                _ => qp.number(),
            };
            // SAFETY: The field is the driver's to be set.
            unsafe { (*raw).qp_num = number };

            // SAFETY: `destroy_qp` takes it out again.
            if let Err(e) = unsafe { dev.qps().insert(qp.number(), qp) } {
                // SAFETY: Nobody knows the object yet.
                unsafe { Self::destroy_qp(raw, core::ptr::null_mut()) };
                return Err(e);
            }
            Ok(0)
        })
    }

    /// `modify_qp` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn modify_qp(
        raw: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The request is that of this call.
            let udata = unsafe { Udata::<T>::new(udata) };
            // SAFETY: The core passes its structure.
            let attr = QpAttr::from_raw(unsafe { &*attr }, mask as u32)?;
            // SAFETY: The core passes an object that we made, and this is an operation.
            unsafe {
                device::<T>((*raw).device)
                    .with_data(|hca| T::modify_qp(hca, Qp::<T>::from_raw(raw), &attr, &udata))
            }?;
            Ok(0)
        })
    }

    /// `query_qp` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn query_qp(
        raw: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes an object that we made, and this is an operation.
            let answer = unsafe {
                device::<T>((*raw).device).with_data(|hca| T::query_qp(hca, Qp::<T>::from_raw(raw)))
            }?;
            // SAFETY: The core passes its structures, and fields of the object that do not change.
            unsafe {
                answer.fill(&mut *attr, &mut *init);
                (*init).event_handler = (*raw).event_handler;
                (*init).qp_context = (*raw).qp_context;
                (*init).send_cq = (*raw).send_cq;
                (*init).recv_cq = (*raw).recv_cq;
                (*init).srq = (*raw).srq;
                (*init).qp_type = (*raw).qp_type;
                (*init).port_num = (*raw).port;
            }
            Ok(0)
        })
    }

    /// `destroy_qp` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn destroy_qp(
        raw: *mut bindings::ib_qp,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        let _ = udata;
        // SAFETY: The core passes an object that we made, which nobody but events and pollers of
        // its completion queues uses any more.
        unsafe {
            let dev = device::<T>((*raw).device);
            let qp = Qp::<T>::from_raw(raw);
            dev.with_data(|hca| T::destroy_qp(hca, qp));
            dev.qps().remove(qp.number(), qp);
            Qp::<T>::fini(raw);
        }
        0
    }

    /// `post_send` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn post_send(
        raw: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad_wr: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: The core passes an object that we made.
        let qp_type = match QpType::from_raw(unsafe { (*raw).qp_type }) {
            Ok(qp_type) => qp_type,
            Err(e) => {
                // SAFETY: The core passes a place for the request to blame.
                unsafe { bad_wr.write(wr) };
                return e.to_errno();
            }
        };
        // SAFETY: The core passes a list for this queue pair, valid for the call.
        let mut wrs = unsafe { SendWrs::<T>::new(wr, qp_type) };
        // SAFETY: The core passes an object that we made, and this is an operation.
        let result = unsafe {
            device::<T>((*raw).device)
                .with_data(|hca| T::post_send(hca, Qp::<T>::from_raw(raw), &mut wrs))
        };
        match result {
            Ok(()) => 0,
            Err(e) => {
                // SAFETY: As above.
                unsafe { bad_wr.write(wrs.bad()) };
                e.to_errno()
            }
        }
    }

    /// `post_recv` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn post_recv(
        raw: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad_wr: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: The core passes a list, valid for the call.
        let mut wrs = unsafe { RecvWrs::new(wr) };
        // SAFETY: The core passes an object that we made, and this is an operation.
        let result = unsafe {
            device::<T>((*raw).device)
                .with_data(|hca| T::post_recv(hca, Qp::<T>::from_raw(raw), &mut wrs))
        };
        match result {
            Ok(()) => 0,
            Err(e) => {
                // SAFETY: The core passes a place for the request to blame.
                unsafe { bad_wr.write(wrs.bad()) };
                e.to_errno()
            }
        }
    }

    /// `attach_mcast` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn attach_mcast(
        raw: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes an object that we made and a GID, and this is an operation.
            unsafe {
                device::<T>((*raw).device).with_data(|hca| {
                    T::attach_mcast(hca, Qp::<T>::from_raw(raw), &*gid.cast(), lid)
                })
            }?;
            Ok(0)
        })
    }

    /// `detach_mcast` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn detach_mcast(
        raw: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        lid: u16,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes an object that we made and a GID, and this is an operation.
            unsafe {
                device::<T>((*raw).device).with_data(|hca| {
                    T::detach_mcast(hca, Qp::<T>::from_raw(raw), &*gid.cast(), lid)
                })
            }?;
            Ok(0)
        })
    }
}
