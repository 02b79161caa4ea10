// SPDX-License-Identifier: GPL-2.0-or-later
//! How many messages of each kind and size went.

use std::ops::AddAssign;

use ochre_hw::wqe::SendOpcode;

const OPCODES: [(SendOpcode, &str); 7] = [
    (SendOpcode::Send, "SEND"),
    (SendOpcode::SendImm, "SEND with immediate"),
    (SendOpcode::Write, "WRITE"),
    (SendOpcode::WriteImm, "WRITE with immediate"),
    (SendOpcode::Read, "READ"),
    (SendOpcode::CompareSwap, "compare-and-swap"),
    (SendOpcode::FetchAdd, "fetch-and-add"),
];
const SIZES: [&str; 7] = ["0", "1", "MTU-1", "MTU", "MTU+1", "above 1 MiB", "other"];

/// Messages that completed, by opcode and size; and what happened besides.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    messages: [[u64; SIZES.len()]; OPCODES.len()],
    /// Connections that ended in the middle of traffic, and were made again.
    pub ends: u64,
    /// Send queues drained and resumed.
    pub drains: u64,
    /// Send queues that went on after a failed request.
    pub resumed: u64,
    /// Receives that brought something, of services that may lose.
    pub arrived: u64,
}

impl Tally {
    pub fn count(&mut self, opcode: SendOpcode, len: u64, mtu: u64) {
        let by = OPCODES.iter().position(|(o, _)| *o == opcode);
        let size = match len {
            0 => 0,
            1 => 1,
            len if len + 1 == mtu => 2,
            len if len == mtu => 3,
            len if len == mtu + 1 => 4,
            len if len > 1 << 20 => 5,
            _ => 6,
        };
        self.messages[by.expect("an opcode of the verbs")][size] += 1;
    }

    pub fn total(&self) -> u64 {
        self.messages.iter().flatten().sum()
    }

    /// Opcodes and sizes of which there is no message, and what else did not happen; an atomic has one
    /// size.
    pub fn missing(&self) -> Vec<String> {
        let counts = self.counts();
        let never = counts.iter().filter(|(count, _)| *count == 0);
        let mut missing: Vec<_> = never.map(|(_, what)| what.to_string()).collect();
        for ((opcode, name), sizes) in OPCODES.iter().zip(&self.messages) {
            let is_atomic = matches!(opcode, SendOpcode::CompareSwap | SendOpcode::FetchAdd);
            for (size, count) in SIZES.iter().zip(sizes) {
                if *count == 0 && is_atomic == (*size == "other") {
                    missing.push(format!("{name} of {size} bytes"));
                }
            }
        }
        missing
    }

    fn counts(&self) -> [(u64, &'static str); 3] {
        [
            (self.ends, "connections ended and made anew"),
            (self.drains, "queues drained"),
            (self.resumed, "queues resumed after a failure"),
        ]
    }

    /// What happened to connections and queues, as far as it did.
    pub fn happenings(&self) -> String {
        let counts = self.counts();
        let happened = counts.iter().filter(|(count, _)| *count > 0);
        happened
            .map(|(count, what)| format!(", {count} {what}"))
            .collect()
    }

    /// Messages of each opcode.
    pub fn by_opcode(&self) -> String {
        let parts = OPCODES.iter().zip(&self.messages);
        let parts = parts.map(|((_, name), sizes)| (name, sizes.iter().sum::<u64>()));
        let parts: Vec<_> = parts
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        parts.join(", ")
    }

    /// Messages of each size.
    pub fn by_size(&self) -> String {
        let sum = |n: usize| self.messages.iter().map(|sizes| sizes[n]).sum::<u64>();
        let parts: Vec<_> = SIZES
            .iter()
            .enumerate()
            .map(|(n, size)| format!("{} of {size}", sum(n)))
            .collect();
        parts.join(", ")
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        let pairs = self.messages.iter_mut().flatten();
        for (sum, more) in pairs.zip(other.messages.iter().flatten()) {
            *sum += more;
        }
        self.ends += other.ends;
        self.drains += other.drains;
        self.resumed += other.resumed;
        self.arrived += other.arrived;
    }
}
