// SPDX-License-Identifier: GPL-2.0-or-later
//! The engines alone: two devices in one thread, over a cable inside the process. Time is processor
//! time of the thread; an iteration is one message, completed and acknowledged.
#![allow(missing_docs)] // of what criterion's macros make

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::pump::{Pump, Traffic};
use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use ochre_hw::wqe::SendOpcode::{Read, Send, Write};

/// Name, whether with CRCs, traffic.
const KINDS: [(&str, bool, Traffic); 7] = [
    ("write_4096", true, Traffic::new("WRITE", Write, 4096)),
    (
        "write_4096_no_crc",
        false,
        Traffic::new("WRITE", Write, 4096),
    ),
    ("read_4096", true, Traffic::new("READ", Read, 4096)),
    ("send_4096", true, Traffic::new("SEND", Send, 4096)),
    ("write_64", true, Traffic::new("WRITE", Write, 64)),
    (
        "write_64_inline",
        true,
        Traffic::new("WRITE", Write, 64).inline(),
    ),
    ("send_64", true, Traffic::new("SEND", Send, 64)),
];

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine");
    for (name, crc, traffic) in KINDS {
        let mut pump = Pump::new(crc);
        group.throughput(Throughput::Bytes(traffic.len.into()));
        group.bench_function(name, |b| b.iter_custom(|n| pump.run(traffic, n)));
    }
    group.finish();
}

/// What a message costs when each goes to another of this many QPs.
fn scale(c: &mut Criterion) {
    let mut group = c.benchmark_group("scale");
    group.throughput(Throughput::Elements(1));
    let traffic = Traffic::new("WRITE", Write, 64);
    for qps in [10, 100, 1000, 10_000] {
        let mut pump = Pump::spread(qps);
        pump.warm(traffic);
        group.bench_function(qps.to_string(), |b| {
            b.iter_custom(|n| pump.run(traffic, n));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = messages, scale
}
criterion_main!(benches);
