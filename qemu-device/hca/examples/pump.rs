// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast the engines are, for a person: RDMA WRITEs, READs and SENDs between two devices in one
//! thread, and what a message costs when each goes to another of many QPs. Run it with `--release`;
//! `--no-crc` leaves the checksums out, a number runs that line of the table only.

#[path = "../tests/common/mod.rs"]
mod common;

use common::pump::{Pump, Traffic};
use ochre_hw::wqe::SendOpcode::{Read, Send, Write};

fn main() {
    let crc = !std::env::args().any(|a| a == "--no-crc");
    let kinds = [
        (Traffic::new("WRITE", Write, 4096), 400_000),
        (Traffic::new("WRITE", Write, 64 << 10), 25_000),
        (Traffic::new("READ", Read, 64 << 10), 25_000),
        (Traffic::new("SEND", Send, 4096), 400_000),
        (Traffic::new("WRITE", Write, 64), 2_000_000),
        (Traffic::new("WRITE inline", Write, 64).inline(), 2_000_000),
        (Traffic::new("SEND", Send, 64), 2_000_000),
        (Traffic::new("SEND inline", Send, 8).inline(), 2_000_000),
    ];
    let scales = [10, 100, 1000, 10_000];
    println!("CRCs {}", if crc { "on" } else { "off" });
    let only: Option<usize> = std::env::args().find_map(|a| a.parse().ok());
    for (line, (traffic, messages)) in kinds.iter().copied().enumerate() {
        if only.is_some_and(|n| n != line) {
            continue;
        }
        let time = Pump::new(crc).run(traffic, messages);
        let rate = messages as f64 / time.as_secs_f64();
        println!(
            "{:12} of {:6} bytes: {:6.3} GB/s, {:6.3} M messages/s",
            traffic.name,
            traffic.len,
            rate * f64::from(traffic.len) / 1e9,
            rate / 1e6
        );
    }
    for (line, qps) in scales.into_iter().enumerate() {
        if !crc || only.is_some_and(|n| n != kinds.len() + line) {
            continue;
        }
        let traffic = Traffic::new("WRITE", Write, 64);
        let mut pump = Pump::spread(qps);
        // Every QP has sent before it counts.
        pump.run(traffic, qps.into());
        let messages = 500_000;
        // The least of a few: what else runs on the machine takes caches away.
        let times = (0..5).map(|_| pump.run(traffic, messages));
        let least = times.min().unwrap_or_default();
        println!(
            "WRITE        of     64 bytes on {qps:5} QPs: {:6.1} ns a message",
            least.as_nanos() as f64 / messages as f64
        );
    }
}
