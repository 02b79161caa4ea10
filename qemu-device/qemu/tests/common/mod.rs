// SPDX-License-Identifier: GPL-2.0-or-later

//! What the tests of the device in QEMU share.

pub mod hca;
pub mod machine;
pub mod pair;
pub mod port;
pub mod usage;
