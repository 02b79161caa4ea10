// SPDX-License-Identifier: GPL-2.0-or-later

//! Bindings of the RDMA headers, made by bindgen when the module is built.
//!
//! Types that do not come from the RDMA headers are those of [`kernel::bindings`].

#![allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

pub(crate) use kernel::bindings::*;
use kernel::ffi;
use pin_init::MaybeZeroable;

include!(concat!(env!("OCHRE_GENERATED"), "/rdma_bindings.rs"));
