// SPDX-License-Identifier: GPL-2.0-or-later

//! Callbacks for user contexts, protection domains and address handles.

use super::{
    super::{
        bindings,
        mmap::{
            self,
            Mappings, //
        },
        Ah,
        AhAttr,
        Pd,
        UContext,
        Udata, //
    },
    device,
    vtable::VTable,
    Operations, //
};
use core::{
    ffi::c_int,
    marker::PhantomData, //
};
use kernel::{
    device::Bound,
    error::from_result,
    pci,
    prelude::*, //
};

/// A user context that is being made.
pub(crate) struct NewUContext<'a, T: Operations> {
    raw: *mut bindings::ib_ucontext,
    mappings: Mappings,
    _context: PhantomData<&'a T>,
}

impl<T: Operations> NewUContext<'_, T> {
    /// Lets processes of the context map `pages` pages of a BAR from byte `offset` on, uncached.
    /// Returns the offset that they pass to `mmap`.
    ///
    /// The mapping is possible until the context goes; pages that are mapped vanish when the device
    /// is unbound.
    pub(crate) fn map_bar(
        &mut self,
        pdev: &pci::Device<Bound>,
        bar: u32,
        offset: u64,
        pages: usize,
    ) -> Result<u64> {
        // SAFETY: The context lives while it is made; the mappings become part of it, or are
        // dropped before `alloc_ucontext` returns.
        unsafe { self.mappings.add_bar(self.raw, pdev, bar, offset, pages) }
    }
}

impl<T: Operations> VTable<T> {
    /// `alloc_ucontext` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn alloc_ucontext(
        raw: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes a new context of our device, which stays registered.
            let dev = unsafe { device::<T>((*raw).device) };
            let mut context = NewUContext {
                raw,
                mappings: Mappings::new(),
                _context: PhantomData,
            };
            // SAFETY: The request is that of this call.
            let udata = unsafe { Udata::<T>::without_context(udata) };

            let init = |slot: *mut T::UContext| {
                // SAFETY: This is an operation; the place is that of the private data.
                unsafe {
                    dev.with_data(|hca| {
                        pin_init::raw_try_init(slot, T::alloc_ucontext(hca, &mut context, &udata))
                    })
                }?;
                Ok(core::mem::replace(&mut context.mappings, Mappings::new()))
            };
            // SAFETY: The core passes a new object of the size that we told it.
            unsafe { UContext::<T>::init(raw, mmap::with_mappings(init)) }?;
            Ok(0)
        })
    }

    /// `dealloc_ucontext` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn dealloc_ucontext(raw: *mut bindings::ib_ucontext) {
        // SAFETY: The core passes a context that we made, which nobody uses any more.
        unsafe {
            device::<T>((*raw).device)
                .with_data(|hca| T::dealloc_ucontext(hca, UContext::<T>::from_raw(raw)));
            UContext::<T>::fini(raw);
        }
    }

    /// That it is there tells the core that processes may lose the device; the core takes their
    /// mappings away by itself.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn disassociate_ucontext(_raw: *mut bindings::ib_ucontext) {}

    /// `mmap` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn mmap(
        raw: *mut bindings::ib_ucontext,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: This is the operation; all entries are inserted by `Mappings`.
        from_result(|| unsafe { mmap::map(raw, vma) }.map(|()| 0))
    }

    /// `alloc_pd` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn alloc_pd(
        raw: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes a new object of our device, which stays registered.
            let dev = unsafe { device::<T>((*raw).device) };
            // SAFETY: The request is that of this call.
            let udata = unsafe { Udata::<T>::new(udata) };
            // SAFETY: This is an operation; the object is new.
            unsafe { dev.with_data(|hca| Pd::<T>::init(raw, T::alloc_pd(hca, &udata))) }?;
            Ok(0)
        })
    }

    /// `dealloc_pd` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn dealloc_pd(
        raw: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        let _ = udata;
        // SAFETY: The core passes an object that we made, which nobody uses any more.
        unsafe {
            device::<T>((*raw).device).with_data(|hca| T::dealloc_pd(hca, Pd::<T>::from_raw(raw)));
            Pd::<T>::fini(raw);
        }
        0
    }

    /// `create_ah` and `create_user_ah` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn create_ah(
        raw: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes a new object of our device, which stays registered.
            let dev = unsafe { device::<T>((*raw).device) };
            // SAFETY: The core holds the protection domain, which is one of ours.
            let pd = unsafe { Pd::<T>::from_raw((*raw).pd) };
            // SAFETY: The request is that of this call.
            let udata = unsafe { Udata::<T>::new(udata) };
            // SAFETY: The core passes its structures.
            let (attr, flags) = unsafe { (AhAttr::from_raw(&*(*attr).ah_attr)?, (*attr).flags) };
            let sleepable = flags & bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE != 0;

            // SAFETY: This is an operation; the object is new.
            unsafe {
                dev.with_data(|hca| {
                    Ah::<T>::init(raw, T::create_ah(hca, pd, &attr, sleepable, &udata))
                })
            }?;
            Ok(0)
        })
    }

    /// `query_ah` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn query_ah(
        raw: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes an object that we made.
            let answer = unsafe {
                device::<T>((*raw).device).with_data(|hca| T::query_ah(hca, Ah::<T>::from_raw(raw)))
            }?;
            // SAFETY: The core passes its structure.
            answer.fill(unsafe { &mut *attr });
            Ok(0)
        })
    }

    /// `destroy_ah` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn destroy_ah(raw: *mut bindings::ib_ah, flags: u32) -> c_int {
        let sleepable = flags & bindings::rdma_destroy_ah_flags_RDMA_DESTROY_AH_SLEEPABLE != 0;
        // SAFETY: The core passes an object that we made, which nobody uses any more.
        unsafe {
            device::<T>((*raw).device)
                .with_data(|hca| T::destroy_ah(hca, Ah::<T>::from_raw(raw), sleepable));
            Ah::<T>::fini(raw);
        }
        0
    }
}
