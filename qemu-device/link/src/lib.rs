// SPDX-License-Identifier: GPL-2.0-or-later
//! InfiniBand ports and the cables between them.
