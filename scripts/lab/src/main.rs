// SPDX-License-Identifier: GPL-2.0-or-later
//! Boots virtual machines joined by Ochre HCAs and runs commands in them.

use std::process::ExitCode;

fn main() -> ExitCode {
    ochre_lab::cli::main()
}
