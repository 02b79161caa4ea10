// SPDX-License-Identifier: GPL-2.0-or-later
//! Stands in for QEMU under virtme-ng, and ends it together with the lab.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ochre_lab::guard::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ochre-guard: {error:#}");
            ExitCode::FAILURE
        }
    }
}
