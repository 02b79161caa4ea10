// SPDX-License-Identifier: GPL-2.0-or-later
//! A fixed number of messages between two devices, to be counted by a tool that counts instructions:
//! the difference between two runs is what the messages between them cost.

#[path = "../tests/common/mod.rs"]
mod common;

use std::process::ExitCode;

use common::pump::{Pump, Traffic};
use ochre_hw::wqe::SendOpcode::{Send, Write};

const LONG: Traffic = Traffic::new("WRITE", Write, 4096);
const SHORT: Traffic = Traffic::new("WRITE", Write, 64);
const SEND: Traffic = Traffic::new("SEND", Send, 64);

/// A kind: name, what is set up, traffic.
type Kind = (&'static str, fn() -> Pump, Traffic);

const KINDS: [Kind; 6] = [
    ("write-4096", || Pump::new(true), LONG),
    ("write-4096-no-crc", || Pump::new(false), LONG),
    ("write-64", || Pump::new(true), SHORT),
    ("send-64", || Pump::new(true), SEND),
    // Each message on the next of so many QPs: what it costs must not grow with their number.
    ("write-64-qps-10", || Pump::spread(10), SHORT),
    ("write-64-qps-10000", || Pump::spread(10_000), SHORT),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let kind = arguments
        .first()
        .and_then(|name| KINDS.iter().find(|kind| kind.0 == name));
    let messages = arguments.get(1).and_then(|text| text.parse().ok());
    let (Some((_, set_up, traffic)), Some(messages), 2) = (kind, messages, arguments.len()) else {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.0).collect();
        eprintln!("usage: counted {} MESSAGES", names.join("|"));
        return ExitCode::from(2);
    };
    let mut pump = set_up();
    pump.warm(*traffic);
    pump.run(*traffic, messages);
    ExitCode::SUCCESS
}
