// SPDX-License-Identifier: GPL-2.0-or-later
//! A fixed number of messages between two devices, to be counted by a tool that counts instructions:
//! the difference between two runs is what the messages between them cost.

#[path = "../tests/common/mod.rs"]
mod common;

use std::process::ExitCode;

use common::pump::{Pump, Traffic};
use ochre_hw::wqe::SendOpcode::{Send, Write};

/// The kinds: name, whether with CRCs, traffic.
const KINDS: [(&str, bool, Traffic); 4] = [
    ("write-4096", true, Traffic::new("WRITE", Write, 4096)),
    (
        "write-4096-no-crc",
        false,
        Traffic::new("WRITE", Write, 4096),
    ),
    ("write-64", true, Traffic::new("WRITE", Write, 64)),
    ("send-64", true, Traffic::new("SEND", Send, 64)),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let kind = arguments
        .first()
        .and_then(|name| KINDS.iter().find(|kind| kind.0 == name));
    let messages = arguments.get(1).and_then(|text| text.parse().ok());
    let (Some((_, crc, traffic)), Some(messages), 2) = (kind, messages, arguments.len()) else {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.0).collect();
        eprintln!("usage: counted {} MESSAGES", names.join("|"));
        return ExitCode::from(2);
    };
    Pump::new(*crc).run(*traffic, messages);
    ExitCode::SUCCESS
}
