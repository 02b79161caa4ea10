// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! libochre: the libibverbs provider of the Ochre HCA.
//!
//! libibverbs loads this library, which registers itself; for each Ochre device it then makes a
//! context, in which posting, polling and arming happen in user memory: work requests are written to
//! the QP's buffer, completions are read from the CQ's, and a doorbell page of the device is mapped.
//! Everything else is a command to the kernel driver.
//!
//! - `ffi`: libibverbs' private interface, generated from rdma-core's headers.
//! - `device`: the entry point, and which devices are ours.
//! - `context`: an opened device, and the verbs that only pass through.
//! - `memory`: memory that is shared with the device.
//! - `cq`, `qp`: making and destroying queues.
//! - `busy`: what a program that polls and finds nothing tells the device.
//! - `poll`, `post`: the data path; `poll_ex`, `post_ex`: the same for programs that poll and post
//!   field by field (`ibv_cq_ex`, `ibv_qp_ex`).

mod busy;
mod context;
mod cq;
mod device;
mod ffi;
mod memory;
mod poll;
mod poll_ex;
mod post;
mod post_ex;
mod qp;
