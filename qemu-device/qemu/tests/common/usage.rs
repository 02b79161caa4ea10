// SPDX-License-Identifier: GPL-2.0-or-later

//! What a QEMU takes of the host.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Mappings of so many bytes and more are the guest's memory.
const GUEST: u64 = 128 << 20;

/// Has the heap of a program counted in a file, if the counter (`examples/heap.rs`) is built.
pub fn count_heap(command: &mut Command, file: &Path) {
    // This program is in `deps`, which lies beside `examples`.
    let program = std::env::current_exe().expect("no program");
    let counter = program.with_file_name("../examples/libheap.so");
    if counter.exists() {
        fs::write(file, [0; 16]).expect("cannot write the counts");
        command.env("LD_PRELOAD", counter).env("OCHRE_HEAP", file);
    }
}

/// Of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of the heap in use, more than when the program began, and their bytes.
    pub blocks: i64,
    pub bytes: i64,
    /// Bytes of its own memory that it has touched: heap, stacks, variables.
    pub memory: u64,
    /// Bytes of memory that it shares with others, touched or not: a link's rings.
    pub shared: u64,
    /// Open files.
    pub files: usize,
    /// Threads.
    pub threads: usize,
}

impl Usage {
    /// Of the process `pid`, whose heap is counted in a file.
    pub fn of(pid: u32, heap: &Path) -> Self {
        let counts = fs::read(heap).expect(
            "the heap is not counted: cargo build --profile checked -p ochre-qemu --examples",
        );
        let number =
            |at: usize| i64::from_ne_bytes(counts[at..at + 8].try_into().expect("16 bytes"));
        let count = |what: &str| {
            fs::read_dir(format!("/proc/{pid}/{what}"))
                .expect("the process is gone")
                .count()
        };
        let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("no smaps");
        let (memory, shared) = memory(&smaps);
        Usage {
            blocks: number(0),
            bytes: number(8),
            memory,
            shared,
            files: count("fd"),
            threads: count("task"),
        }
    }

    /// What it may become in hundreds of rounds, from which nothing is left. There the heap is, as it was seen, the
    /// same to a few blocks, which are in use for a moment, and some tables have doubled. Its holes are memory too: a
    /// reset gives up a megabyte that waits for other threads before it is freed.
    pub fn with_slack(self) -> Self {
        Usage {
            blocks: self.blocks + 32,
            bytes: self.bytes + (32 << 10),
            memory: self.memory + (8 << 20),
            ..self
        }
    }

    /// Whether nothing is more than in `most`.
    pub fn is_within(&self, most: &Usage) -> bool {
        self.blocks <= most.blocks
            && self.bytes <= most.bytes
            && self.memory <= most.memory
            && self.shared <= most.shared
            && self.files <= most.files
            && self.threads <= most.threads
    }
}

/// What an smaps file says of private memory in use, and of all shared memory, in bytes.
fn memory(smaps: &str) -> (u64, u64) {
    let (mut private, mut shared) = (0, 0);
    let (mut counts, mut is_shared) = (false, false);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            continue;
        };
        let bytes = || value.parse::<u64>().expect("no number in smaps") << 10;
        match name {
            "Size:" if is_shared => shared += bytes(),
            "Size:" => counts &= bytes() < GUEST,
            "Rss:" if counts && !is_shared => private += bytes(),
            _ if name.ends_with(':') => (),
            // A mapping's range and rights.
            _ => (counts, is_shared) = (value.contains('w'), value.ends_with('s')),
        }
    }
    (private, shared)
}
