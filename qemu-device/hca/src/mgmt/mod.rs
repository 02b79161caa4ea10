// SPDX-License-Identifier: GPL-2.0-or-later
//! The management agents of the firmware.
