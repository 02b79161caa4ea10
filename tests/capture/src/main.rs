// SPDX-License-Identifier: GPL-2.0-or-later
//! `ochre-check-capture FILE`: checks every CRC, length and header in a capture.
//!
//! Exit code 0: there are packets and all are well. 1: there are faults, or no packets. 2: the file
//! cannot be read.

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use ochre_capture::{check, Report};

const USAGE: &str = "usage: ochre-check-capture FILE";

fn show(report: &Report) {
    println!(
        "{} packets of {} bytes, {} link packets, {} faults",
        report.packets, report.bytes, report.link_packets, report.faults
    );
    for (name, count) in &report.opcodes {
        println!("{count:>12} {name}");
    }
    for fault in &report.first {
        println!(
            "record {} (byte {} of the file): {}",
            fault.record, fault.offset, fault.what
        );
    }
    let more = report.faults - report.first.len() as u64;
    if more > 0 {
        println!("and {more} more faults");
    }
    if report.packets == 0 {
        println!("there is no packet in the capture");
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(path), None) = (arguments.next(), arguments.next()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if path == "--help" || path == "-h" {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) => {
            eprintln!("ochre-check-capture: {}: {e}", path.to_string_lossy());
            return ExitCode::from(2);
        }
    };
    match check(BufReader::with_capacity(1 << 20, file)) {
        Ok(report) => {
            show(&report);
            ExitCode::from(u8::from(!report.is_well()))
        }
        Err(e) => {
            eprintln!("ochre-check-capture: {}: {e}", path.to_string_lossy());
            ExitCode::from(2)
        }
    }
}
