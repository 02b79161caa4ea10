// SPDX-License-Identifier: GPL-2.0-or-later
//! Prints what this machine can do: copies in memory and wake-ups between processes.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ochre_lab::bench::limits::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ochre-limits: {error:#}");
            ExitCode::FAILURE
        }
    }
}
