// SPDX-License-Identifier: GPL-2.0-or-later
//! libibverbs as C has it.

#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/verbs.rs"));
