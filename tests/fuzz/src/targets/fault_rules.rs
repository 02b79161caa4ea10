// SPDX-License-Identifier: GPL-2.0-or-later
//! The text of wire faults: any text is parsed or refused; what is shown parses to the same.

use ochre_link::RuleSet;

use crate::note;

pub(super) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match text.parse::<RuleSet>() {
        Ok(rules) => {
            let shown = rules.to_string();
            assert_eq!(shown.parse::<RuleSet>().as_ref(), Ok(&rules), "{shown}");
            for rule in &rules.rules {
                let word = rule.to_string();
                note(word.split(' ').next());
            }
        }
        Err(e) => {
            let line = text.lines().nth(e.line.wrapping_sub(1));
            assert!(line.is_some(), "{e}: there is no such line");
            let end = line.unwrap_or_default().chars().count() + 1;
            assert!((1..=end).contains(&e.column), "{e}: no such column");
            // The words of the message, without what it quotes.
            let words: String = e
                .to_string()
                .chars()
                .filter(|c| c.is_ascii_lowercase())
                .collect();
            note(words.get(..words.len().min(24)));
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    [
        "drop opcode=rc-rdma-write-middle nth=2 dir=tx # a gap",
        "drop opcode=rc-* qpn=0x12; seed 7",
        "duplicate opcode=rc-rdma-write-first after=5ms copies=3",
        "corrupt crc=good byte=payload+0 xor=0x01 shots=1",
        "corrupt crc=bad-icrc byte=bth+8\ncorrupt crc=bad byte=5",
        "delay 50us; delay 50us jitter=20us prob=10%",
        "reorder opcode=uc-* every=100 by=2 within=1ms",
        "psn-shift -3 psn=0xfffff0..15",
        "hold-credits 10ms dir=rx every=1000",
        "ecn mark=both qpn=3..9 vl=15 prob=0.01",
        "",
    ]
    .map(|s| s.as_bytes().to_vec())
    .to_vec()
}
