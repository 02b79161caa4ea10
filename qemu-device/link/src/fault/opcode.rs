// SPDX-License-Identifier: GPL-2.0-or-later
//! Names of opcodes: transport and operation as the specification has them, in small letters with
//! hyphens, such as `rc-send-last-with-immediate`; and shorter ones, such as `rc-send-last-imm`.

use core::fmt;

use ochre_wire::{Opcode, Operation, Transport};

use Operation as Op;

const TRANSPORTS: [(Transport, &str); 4] = [
    (Transport::Rc, "rc"),
    (Transport::Uc, "uc"),
    (Transport::Ud, "ud"),
    (Transport::Xrc, "xrc"),
];

/// Operation, its name, and a shorter one.
const OPERATIONS: [(Operation, &str, &str); 23] = [
    (Op::SendFirst, "send-first", "send-first"),
    (Op::SendMiddle, "send-middle", "send-middle"),
    (Op::SendLast, "send-last", "send-last"),
    (Op::SendLastImm, "send-last-with-immediate", "send-last-imm"),
    (Op::SendOnly, "send-only", "send-only"),
    (Op::SendOnlyImm, "send-only-with-immediate", "send-only-imm"),
    (Op::WriteFirst, "rdma-write-first", "write-first"),
    (Op::WriteMiddle, "rdma-write-middle", "write-middle"),
    (Op::WriteLast, "rdma-write-last", "write-last"),
    (
        Op::WriteLastImm,
        "rdma-write-last-with-immediate",
        "write-last-imm",
    ),
    (Op::WriteOnly, "rdma-write-only", "write-only"),
    (
        Op::WriteOnlyImm,
        "rdma-write-only-with-immediate",
        "write-only-imm",
    ),
    (Op::ReadRequest, "rdma-read-request", "read-request"),
    (
        Op::ReadResponseFirst,
        "rdma-read-response-first",
        "read-response-first",
    ),
    (
        Op::ReadResponseMiddle,
        "rdma-read-response-middle",
        "read-response-middle",
    ),
    (
        Op::ReadResponseLast,
        "rdma-read-response-last",
        "read-response-last",
    ),
    (
        Op::ReadResponseOnly,
        "rdma-read-response-only",
        "read-response-only",
    ),
    (Op::Ack, "acknowledge", "ack"),
    (Op::AtomicAck, "atomic-acknowledge", "atomic-ack"),
    (Op::CmpSwap, "cmp-swap", "cmp-swap"),
    (Op::FetchAdd, "fetch-add", "fetch-add"),
    (
        Op::SendLastInv,
        "send-last-with-invalidate",
        "send-last-inv",
    ),
    (
        Op::SendOnlyInv,
        "send-only-with-invalidate",
        "send-only-inv",
    ),
];

/// Every opcode with its two names.
pub fn names() -> impl Iterator<Item = (Opcode, [String; 2])> {
    TRANSPORTS.into_iter().flat_map(|(transport, service)| {
        OPERATIONS
            .into_iter()
            .map(move |(op, long, short)| {
                (
                    Opcode::new(transport, op),
                    [long, short].map(|name| format!("{service}-{name}")),
                )
            })
            .filter(|(opcode, _)| opcode.is_defined())
    })
}

/// A set of opcodes: names, patterns with `*` for any run of characters, and numbers (`0x81`), with
/// commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpcodeSet {
    text: String,
    bits: [u64; 4],
}

/// What is wrong with the text of an opcode set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpcodeError {
    /// Nothing between two commas.
    Empty,
    /// No opcode has this name, or fits this pattern; and a name that is close to it.
    Unknown(String, Option<String>),
}

impl OpcodeSet {
    /// Parses a set. An error comes with the offset in characters of the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, (usize, OpcodeError)> {
        let mut bits = [0u64; 4];
        let mut add = |code: u8| bits[usize::from(code >> 6)] |= 1 << (code & 63);
        let mut at = 0;
        for part in text.split(',') {
            if part.is_empty() {
                return Err((at, OpcodeError::Empty));
            }
            let pattern = part.to_ascii_lowercase();
            let number = pattern
                .strip_prefix("0x")
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            if let Some(code) = number {
                add(code);
            } else {
                let mut any = false;
                for (opcode, names) in names() {
                    if names.iter().any(|name| fits(&pattern, name)) {
                        add(opcode.to_u8());
                        any = true;
                    }
                }
                if !any {
                    let close = super::parse::closest(
                        &pattern,
                        names().flat_map(|(_, names)| names).collect::<Vec<_>>(),
                    );
                    return Err((at, OpcodeError::Unknown(part.into(), close)));
                }
            }
            at += part.chars().count() + 1;
        }
        Ok(OpcodeSet {
            text: text.into(),
            bits,
        })
    }

    /// Whether the set has the opcode of this BTH byte.
    #[inline]
    pub const fn has(&self, code: u8) -> bool {
        self.bits[(code >> 6) as usize] >> (code & 63) & 1 != 0
    }
}

impl fmt::Display for OpcodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a name fits a pattern in which `*` stands for any run of characters, the empty one too.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = name.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    let mut rest = rest;
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(fits("rc-send-last", "rc-send-last"));
        assert!(!fits("rc-send-last", "rc-send-last-imm"));
        assert!(fits("rc-*", "rc-send-last"));
        assert!(!fits("rc-*", "xrc-send-last"));
        assert!(fits("*-last", "rc-send-last"));
        assert!(fits("*send*l*t", "rc-send-last"));
        assert!(fits("*", ""));
        assert!(!fits("aba*aba", "aba"), "ends do not overlap");
        assert!(fits("a*b*c", "abbc"));
    }

    #[test]
    fn sets() {
        let set = OpcodeSet::parse("rc-send-last,UC-*,0x81").unwrap();
        assert!(set.has(0x02) && set.has(0x20) && set.has(0x2b) && set.has(0x81));
        assert!(!set.has(0x03) && !set.has(0x2c) && !set.has(0x80));
        let both = |a, b| {
            assert_eq!(
                OpcodeSet::parse(a).unwrap().bits,
                OpcodeSet::parse(b).unwrap().bits
            )
        };
        both("rc-rdma-write-only-with-immediate", "rc-write-only-imm");
        both("rc-acknowledge", "rc-ack");
        // 23 of RC.
        let rc = OpcodeSet::parse("rc-*").unwrap();
        assert_eq!(rc.bits.iter().map(|b| b.count_ones()).sum::<u32>(), 23);
    }

    #[test]
    fn errors_say_where() {
        assert_eq!(OpcodeSet::parse("rc-ack,,x"), Err((7, OpcodeError::Empty)));
        let Err((7, OpcodeError::Unknown(what, close))) = OpcodeSet::parse("rc-ack,rc-snd-last")
        else {
            panic!("not refused");
        };
        assert_eq!(what, "rc-snd-last");
        assert_eq!(close.as_deref(), Some("rc-send-last"));
        assert!(OpcodeSet::parse("ud-read-request").is_err());
    }
}
