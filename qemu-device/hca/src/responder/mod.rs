// SPDX-License-Identifier: GPL-2.0-or-later
//! The answering side of connected QPs.
