// SPDX-License-Identifier: GPL-2.0-or-later
//! What the lab prints: lines with the name of the VM they came from.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use crate::proto::Stream;

static LINES: Mutex<()> = Mutex::new(());

/// Prints one line of progress of the lab itself.
pub fn say(text: impl AsRef<str>) {
    line("", text.as_ref());
}

/// Prints one line with a VM's name in front.
pub fn line(vm: &str, text: &str) {
    let _guard = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut out = io::stdout().lock();
    let _ = if vm.is_empty() {
        writeln!(out, "{text}")
    } else if out.is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        let color = 36 - u32::from(vm.bytes().last().unwrap_or(0) % 4);
        writeln!(out, "\x1b[{color}m{vm}|\x1b[0m {text}")
    } else {
        writeln!(out, "{vm}| {text}")
    };
    let _ = out.flush();
}

/// Cuts the output of one program into lines and prints them.
#[derive(Debug)]
pub struct Printer {
    vm: String,
    partial: [Vec<u8>; 2],
}

impl Printer {
    /// Prints with this name in front.
    pub fn new(vm: &str) -> Self {
        Self {
            vm: vm.to_owned(),
            partial: Default::default(),
        }
    }

    /// Takes a piece of output and prints the lines that it completes.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let partial = &mut self.partial[stream as usize];
        partial.extend_from_slice(bytes);
        while let Some(end) = partial.iter().position(|&byte| byte == b'\n') {
            let rest = partial.split_off(end + 1);
            let whole = std::mem::replace(partial, rest);
            line(&self.vm, &clean(&whole));
        }
    }

    /// Prints what has no newline behind it.
    pub fn finish(&mut self) {
        for partial in &mut self.partial {
            if !partial.is_empty() {
                line(&self.vm, &clean(&std::mem::take(partial)));
            }
        }
    }
}

fn clean(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches(['\n', '\r'])
        .to_owned()
}
