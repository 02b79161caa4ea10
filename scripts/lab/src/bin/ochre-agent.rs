// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent in a guest of the lab.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ochre_lab::agent::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ochre-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
