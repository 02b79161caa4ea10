// SPDX-License-Identifier: GPL-2.0-or-later

//! Callbacks for memory regions.

use super::{
    super::{
        bindings,
        object::MrPrivate,
        Mr,
        Pd,
        Udata, //
    },
    device,
    vtable::VTable,
    Operations, //
};
use core::{
    ffi::c_int,
    mem::MaybeUninit, //
};
use kernel::{
    error::from_result,
    prelude::*, //
};

/// Allocates a region, which the core leaves to the driver, and initialises it with `init`.
///
/// # Safety
///
/// `init` must initialise the object at the pointer that it gets, or fail.
unsafe fn new_mr<T: Operations>(
    init: impl FnOnce(*mut bindings::ib_mr) -> Result,
) -> *mut bindings::ib_mr {
    let memory = match KBox::<Mr<T>>::new_uninit(GFP_KERNEL | __GFP_ZERO) {
        Ok(memory) => KBox::into_raw(memory),
        Err(_) => return ENOMEM.to_ptr(),
    };
    let raw = memory.cast::<bindings::ib_mr>();

    if let Err(e) = init(raw) {
        // SAFETY: The memory came from the box above, and nothing in it is initialised.
        drop(unsafe { KBox::<MaybeUninit<Mr<T>>>::from_raw(memory) });
        return e.to_ptr();
    }

    // SAFETY: The object is initialised; both fields are the driver's to be set.
    unsafe {
        let mr = Mr::<T>::from_raw(raw);
        (*raw).lkey = mr.lkey();
        (*raw).rkey = mr.rkey();
    }
    raw
}

impl<T: Operations> VTable<T> {
    /// `get_dma_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: The core passes an object of our device and holds it; this is an operation.
        unsafe {
            let dev = device::<T>((*pd).device);
            let pd = Pd::<T>::from_raw(pd);
            new_mr::<T>(|raw| {
                dev.with_data(|hca| Mr::<T>::init(raw, T::get_dma_mr(hca, pd, access as u32)))
            })
        }
    }

    /// `reg_user_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn reg_user_mr(
        pd: *mut bindings::ib_pd,
        start: u64,
        length: u64,
        virt_addr: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        if !dmah.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        let access = access as u32;

        // SAFETY: The core passes an object of our device and holds it; the request is that of
        // this call; this is an operation.
        unsafe {
            let dev = device::<T>((*pd).device);
            let pd = Pd::<T>::from_raw(pd);
            let udata = Udata::<T>::new(udata);
            new_mr::<T>(|raw| {
                dev.with_data(|hca| {
                    Mr::<T>::init(
                        raw,
                        T::reg_user_mr(hca, pd, start, length, virt_addr, access, &udata),
                    )
                })
            })
        }
    }

    /// `alloc_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn alloc_mr(
        pd: *mut bindings::ib_pd,
        kind: bindings::ib_mr_type,
        max_pages: u32,
    ) -> *mut bindings::ib_mr {
        if kind != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
            return EOPNOTSUPP.to_ptr();
        }

        // SAFETY: The core passes an object of our device and holds it; this is an operation.
        unsafe {
            let dev = device::<T>((*pd).device);
            let pd = Pd::<T>::from_raw(pd);
            new_mr::<T>(|raw| {
                dev.with_data(|hca| Mr::<T>::init(raw, T::alloc_mr(hca, pd, max_pages)))
            })
        }
    }

    /// `dereg_mr` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn dereg_mr(
        raw: *mut bindings::ib_mr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        let _ = udata;
        // SAFETY: The core passes an object that `new_mr` made, which nobody uses any more.
        unsafe {
            device::<T>((*raw).device).with_data(|hca| T::dereg_mr(hca, Mr::<T>::from_raw(raw)));
            Mr::<T>::fini(raw);
            drop(KBox::<MaybeUninit<Mr<T>>>::from_raw(raw.cast()));
        }
        0
    }

    /// `map_mr_sg` of `struct ib_device_ops`.
    ///
    /// # Safety
    ///
    /// Only the core calls it, as the operation of this name.
    pub(super) unsafe extern "C" fn map_mr_sg(
        raw: *mut bindings::ib_mr,
        sg: *mut bindings::scatterlist,
        nents: c_int,
        offset: *mut u32,
    ) -> c_int {
        // SAFETY: The core passes an object that we made and a list that is mapped for DMA; this is
        // an operation.
        unsafe {
            device::<T>((*raw).device)
                .with_data(|hca| T::begin_mr_pages(hca, Mr::<T>::from_raw(raw)));
            bindings::ib_sg_to_pages(raw, sg, nents, offset, Some(Self::set_page))
        }
    }

    /// Adds a page to the list of a region.
    ///
    /// # Safety
    ///
    /// `raw` must be a region that we made, which stays for the call.
    unsafe extern "C" fn set_page(raw: *mut bindings::ib_mr, address: u64) -> c_int {
        from_result(|| {
            // SAFETY: The region is the one that `map_mr_sg` passed.
            T::add_mr_page(unsafe { Mr::<T>::from_raw(raw) }, address)?;
            Ok(0)
        })
    }
}
