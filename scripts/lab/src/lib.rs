// SPDX-License-Identifier: GPL-2.0-or-later
//! The lab runner: virtual machines joined by Ochre HCAs.
