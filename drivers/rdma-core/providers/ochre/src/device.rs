// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! The entry point: which devices are ours.

use core::ffi::c_void;
use core::ptr;

use crate::context;
use crate::ffi::{
    verbs_device, verbs_device_ops, verbs_match_ent, verbs_match_ent__bindgen_ty_1,
    verbs_register_driver_34, verbs_sysfs_dev, VERBS_MATCH_PCI,
};

/// A table of C structures that hold only pointers to other statics.
#[repr(transparent)]
struct Table<T>(T);

// SAFETY: the tables are never written, and what they point to is static.
unsafe impl<T> Sync for Table<T> {}

static MATCHES: Table<[verbs_match_ent; 2]> = Table([
    verbs_match_ent {
        driver_data: ptr::null_mut(),
        u: verbs_match_ent__bindgen_ty_1 { driver_id: 0 },
        vendor: ochre_hw::pci::VENDOR_ID,
        device: ochre_hw::pci::DEVICE_ID,
        kind: VERBS_MATCH_PCI as u8,
    },
    // The end: VERBS_MATCH_SENTINEL.
    verbs_match_ent {
        driver_data: ptr::null_mut(),
        u: verbs_match_ent__bindgen_ty_1 { driver_id: 0 },
        vendor: 0,
        device: 0,
        kind: 0,
    },
]);

static OPS: Table<verbs_device_ops> = Table(verbs_device_ops {
    name: c"ochre".as_ptr(),
    match_min_abi_version: ochre_abi::UVERBS_ABI_VERSION,
    match_max_abi_version: ochre_abi::UVERBS_ABI_VERSION,
    match_table: ptr::addr_of!(MATCHES).cast(),
    static_providers: ptr::null_mut(),
    match_device: None,
    alloc_context: Some(context::open),
    import_context: None,
    alloc_device: Some(alloc_device),
    uninit_device: Some(uninit_device),
});

unsafe extern "C" fn alloc_device(_: *mut verbs_sysfs_dev) -> *mut verbs_device {
    // SAFETY: allocates zeroed memory for a C structure of which every field may be zero; libibverbs
    // fills it in. It is freed in `uninit_device`.
    unsafe { libc::calloc(1, size_of::<verbs_device>()).cast() }
}

unsafe extern "C" fn uninit_device(device: *mut verbs_device) {
    // SAFETY: libibverbs hands back, once, what `alloc_device` made.
    unsafe { libc::free(device.cast::<c_void>()) }
}

extern "C" fn register() {
    // SAFETY: the operations are static. This runs once, when the library is loaded, as libibverbs
    // asks of a provider.
    unsafe { verbs_register_driver_34(ptr::addr_of!(OPS).cast()) }
}

#[used]
#[link_section = ".init_array"]
static REGISTER: extern "C" fn() = register;
