// SPDX-License-Identifier: GPL-2.0-or-later
//! Capture files: any bytes are checked or refused, and faults lie inside the file.

use ochre_capture::check;

use super::packets;
use crate::note;

pub(super) fn run(input: &[u8]) {
    match check(input) {
        Ok(report) => {
            for fault in &report.first {
                assert!(fault.offset <= input.len() as u64);
                let words: String = fault
                    .what
                    .chars()
                    .filter(|c| c.is_ascii_alphabetic())
                    .collect();
                note(words.get(..words.len().min(24)));
            }
            assert!(report.bytes <= input.len() as u64);
            note((report.packets.min(4), report.link_packets.min(4)));
        }
        Err(e) => note(std::mem::discriminant(&e)),
    }
}

/// A file with these packets; each is whether it is of the link, and its bytes.
fn file(packets: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend(65535u32.to_le_bytes());
    out.extend(197u32.to_le_bytes());
    for (link, packet) in packets {
        let whole = packet.len() + 16;
        out.extend([0; 8]);
        out.extend((whole as u32).to_le_bytes());
        out.extend((whole as u32).to_le_bytes());
        out.extend([0; 8]);
        out.extend([if *link { 25 } else { 21 }, 4]);
        out.extend((whole as u16).to_be_bytes());
        out.extend([0; 2]);
        out.extend((packet.len() as u16).to_be_bytes());
        out.extend(packet);
    }
    out
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut all = vec![(true, vec![0, 0, 0, 0, 0, 0, 0, 0])];
    for opcode in packets::opcodes() {
        let len = if opcode.op.has_payload() { 256 } else { 0 };
        let build = packets::build(opcode, 2, false);
        all.push((false, packets::whole(&build, &[7; 256][..len])));
    }
    let mut seeds: Vec<_> = all.iter().map(|p| file(std::slice::from_ref(p))).collect();
    seeds.push(file(&all));
    seeds
}
