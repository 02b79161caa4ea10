// SPDX-License-Identifier: GPL-2.0-or-later
//! The sending side of connected QPs.
