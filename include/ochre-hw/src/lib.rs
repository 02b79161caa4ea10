// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause
//! The hardware/software contract of the Ochre HCA.
