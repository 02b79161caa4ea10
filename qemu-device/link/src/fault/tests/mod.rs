// SPDX-License-Identifier: GPL-2.0-or-later

mod actions;
mod text;
