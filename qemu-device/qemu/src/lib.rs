// SPDX-License-Identifier: GPL-2.0-or-later
//! The QEMU device of the Ochre HCA.
