// SPDX-License-Identifier: GPL-2.0-or-later
//! The firmware of the Ochre HCA.
