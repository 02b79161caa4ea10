// SPDX-License-Identifier: GPL-2.0-or-later

//! Driver of the Ochre InfiniBand host channel adapter.
//!
//! - [`hw`] is the contract with the hardware and [`abi`] the one with the user-space provider;
//!   both are compiled from the files that device and provider compile too.
//! - [`rdma`] is the safe layer over the kernel's RDMA subsystem.
//! - [`driver`] brings a device up and down, [`cmd`] carries commands to it, [`eq`] and [`events`]
//!   bring its events, [`health`] notices its death.
//! - [`verbs`] hands the verbs to one module for each kind of object.

mod ah;
mod block;
mod cmd;
mod counters;
mod cq;
mod device;
mod doorbell;
mod driver;
mod eq;
mod events;
mod health;
mod limiter;
mod mad;
mod mem;
mod mr;
mod pd;
mod port;
mod post;
mod qp;
mod queue;
mod rdma;
mod regs;
mod ucontext;
mod verbs;

include!(concat!(env!("OCHRE_GENERATED"), "/hw_contract.rs"));

/// The driver.
pub(crate) struct Ochre;

kernel::module_pci_driver! {
    type: rdma::Adapter<Ochre>,
    name: "ochre",
    authors: ["The Ochre authors"],
    description: "Ochre InfiniBand HCA driver",
    license: "GPL",
}
