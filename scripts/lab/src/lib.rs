// SPDX-License-Identifier: GPL-2.0-or-later
//! The lab runner: virtual machines joined by Ochre HCAs.
//!
//! `ochre-lab` runs on the host, inside the project's root file system, and boots virtual machines
//! by virtme-ng. `ochre-agent` runs in each of them and executes what the host asks for.
//! `ochre-guard` sits between virtme-ng and QEMU, so that no QEMU outlives its lab.

pub mod agent;
pub mod bench;
pub mod cleanup;
pub mod cli;
pub mod client;
pub mod control;
pub mod debug;
pub mod demo;
pub mod device;
pub mod dmesg;
pub mod exec;
pub mod guard;
pub mod ktap;
pub mod kunit;
pub mod lab;
pub mod launch;
pub mod output;
pub mod paths;
pub mod patience;
pub mod probe;
pub mod proto;
pub mod qmp;
pub mod shell;
pub mod suite;
pub mod vm;
