// SPDX-License-Identifier: GPL-2.0-or-later
//! What a program in a guest can do to an HCA when it means harm: it speaks to the kernel as libibverbs
//! does, but has its queues and its doorbell page to itself, and does with them what it should not.

pub mod doors;
pub mod layouts;
pub mod objects;
pub mod pages;
pub mod rng;
pub mod storm;
pub mod uverbs;
