// SPDX-License-Identifier: GPL-2.0-or-later
//! From text to rules and back.

use core::time::Duration;

use proptest::prelude::*;

use crate::fault::*;

fn parse(text: &str) -> RuleSet {
    text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

/// The error of a text: line, column, and its message.
fn refused(text: &str) -> (usize, usize, String) {
    match text.parse::<RuleSet>() {
        Ok(set) => panic!("{text:?} is taken as {set}"),
        Err(e) => (e.line, e.column, e.message),
    }
}

#[test]
fn a_rule_with_everything() {
    let set = parse(
        "drop opcode=rc-send-last qpn=0x12 psn=50..150 vl=0..3 dir=tx nth=3 every=1 prob=50% shots=1",
    );
    let w = &set.rules[0].when;
    assert_eq!(set.seed, RuleSet::SEED);
    assert_eq!(set.rules[0].action, Action::Drop);
    assert!(w.opcode.as_ref().is_some_and(|o| o.has(2) && !o.has(3)));
    assert_eq!(w.qpn, Some(Span::one(0x12)));
    assert_eq!(
        w.psn,
        Some(Span {
            first: 50,
            last: 150
        })
    );
    assert_eq!(w.vl, Some(Span { first: 0, last: 3 }));
    assert_eq!(w.direction, Some(Direction::Tx));
    assert_eq!(w.nth, Some(Span::one(3)));
    assert_eq!(w.every, Some(1));
    assert_eq!(w.probability, Probability::from_billionths(500_000_000));
    assert_eq!(w.shots, Some(1));
}

#[test]
fn every_action() {
    let set = parse(
        "# all of them
         seed 0x2a
         drop; duplicate; duplicate copies=3 after=5ms
         delay 1.5us jitter=20ns   # a comment; drop
         corrupt; corrupt crc=good byte=payload+7 xor=0x80; corrupt crc=bad-icrc byte=bth+8
         corrupt byte=5;
         reorder; reorder by=2 within=2s
         psn-shift -3; psn-shift +1; psn-shift 7
         ecn; ecn mark=both
         hold-credits 10ms
         ",
    );
    assert_eq!(set.seed, 42);
    let actions: Vec<_> = set.rules.into_iter().map(|r| r.action).collect();
    let ms = Duration::from_millis;
    assert_eq!(
        actions,
        [
            Action::Drop,
            Action::Duplicate {
                copies: 1,
                after: Duration::ZERO
            },
            Action::Duplicate {
                copies: 3,
                after: ms(5)
            },
            Action::Delay {
                by: Duration::from_nanos(1500),
                jitter: Duration::from_nanos(20)
            },
            Action::Corrupt {
                crc: Crc::Bad,
                place: None,
                xor: None
            },
            Action::Corrupt {
                crc: Crc::Good,
                place: Some(Place::Payload(7)),
                xor: Some(0x80)
            },
            Action::Corrupt {
                crc: Crc::BadIcrc,
                place: Some(Place::Bth(8)),
                xor: None
            },
            Action::Corrupt {
                crc: Crc::Bad,
                place: Some(Place::Lrh(5)),
                xor: None
            },
            Action::Reorder {
                by: 1,
                within: ms(1)
            },
            Action::Reorder {
                by: 2,
                within: ms(2000)
            },
            Action::PsnShift { by: -3 },
            Action::PsnShift { by: 1 },
            Action::PsnShift { by: 7 },
            Action::Ecn { mark: Mark::Fecn },
            Action::Ecn { mark: Mark::Both },
            Action::HoldCredits { time: ms(10) },
        ]
    );
}

#[test]
fn nothing_is_a_set_too() {
    for text in ["", " ", ";;", "\n# drop\n", ";\r\n;"] {
        assert_eq!(parse(text), RuleSet::default());
    }
}

#[test]
fn errors_say_what_where_and_what_would_be_right() {
    let cases = [
        ("drp", 1, 1, "did you mean `drop`?"),
        ("drop; ecn; explode", 1, 12, "actions are drop, duplicate"),
        ("drop vl=0\n  drop qnp=3", 2, 8, "did you mean `qpn`?"),
        ("drop copies=2", 1, 6, "it has opcode"),
        (
            "drop opcode=rc-ack,rc-snd-only",
            1,
            20,
            "did you mean `rc-send-only`?",
        ),
        ("drop opcode=rc-ack,", 1, 20, "missing at a comma"),
        ("drop qpn=0x1000000", 1, 10, "at most 16777215"),
        ("drop qpn=5..2", 1, 10, "2..5 would be right"),
        ("drop psn=5..", 1, 13, "a number is missing"),
        ("drop psn=..5", 1, 10, "a number is missing"),
        ("drop psn=1..x", 1, 13, "is not a number"),
        ("drop psn=-1", 1, 10, "is not a number"),
        ("drop psn=+1", 1, 10, "is not a number"),
        ("drop psn=99999999999999999999", 1, 10, "too much"),
        ("drop vl=16", 1, 9, "at most 15"),
        ("drop dir=up", 1, 10, "not one of tx, rx"),
        ("drop nth=0", 1, 10, "at least 1"),
        ("drop every=0", 1, 12, "1 or more"),
        ("drop shots=0", 1, 12, "1 or more"),
        ("drop prob=1.5", 1, 11, "at most 1"),
        ("drop prob=0", 1, 11, "more than 0"),
        ("drop prob=.5", 1, 11, "for example 0.01"),
        ("drop vl=", 1, 9, "nothing after `vl=`"),
        ("drop vl", 1, 6, "not of the form name=value"),
        ("drop vl=0 vl=1", 1, 11, "second time"),
        ("delay", 1, 6, "needs a time"),
        ("delay vl=0", 1, 7, "a time, for example"),
        ("delay 5", 1, 7, "is not a time"),
        ("delay 0us", 1, 7, "1ns or more"),
        ("delay 0.5ns", 1, 7, "is not a time"),
        ("delay 61s", 1, 7, "at most 60s"),
        ("delay 1us jitter=1h", 1, 18, "is not a time"),
        ("corrupt crc=ugly", 1, 13, "not one of bad, bad-icrc, good"),
        ("corrupt byte=eth+5", 1, 14, "bth+N or payload+N"),
        ("corrupt byte=bth+x", 1, 18, "is not a number"),
        ("corrupt byte=4401", 1, 14, "at most 4400"),
        ("corrupt xor=0", 1, 13, "1 or more"),
        ("corrupt xor=256", 1, 13, "at most 255"),
        ("duplicate copies=101", 1, 18, "at most 100"),
        ("psn-shift", 1, 10, "for example `psn-shift +1`"),
        ("psn-shift 0", 1, 11, "changes nothing"),
        ("psn-shift --1", 1, 11, "is not a number"),
        ("ecn mark=cecn", 1, 10, "not one of fecn, becn, both"),
        ("hold-credits", 1, 13, "needs a time"),
        ("seed", 1, 5, "`seed 42`"),
        ("seed 1 drop", 1, 8, "nothing may follow"),
        ("seed 1; seed 2", 1, 9, "a set of rules has one"),
        ("ecn märk=fecn", 1, 5, "did you mean `mark`?"),
        ("drop vl=ä; drp", 1, 9, "is not a number"),
        ("# ä\nécn", 2, 1, "did you mean `ecn`?"),
    ];
    for (text, line, column, part) in cases {
        let (l, c, message) = refused(text);
        assert_eq!((l, c), (line, column), "{text:?}: {message}");
        assert!(message.contains(part), "{text:?}: {message}");
    }
    let many = "drop;".repeat(RuleSet::MOST + 1);
    assert!(refused(&many).2.contains("more than 256 rules"));
}

/// What the page for users shows can be used.
#[test]
fn the_examples_of_the_documentation_parse() {
    let page = include_str!("../../../FAULTS.md");
    let examples = page.split("## Examples").nth(1).unwrap();
    let examples = examples.split("## ").next().unwrap();
    assert!(parse(examples).rules.len() >= 11);
    for action in ["drop", "corrupt", "hold-credits", "psn-shift", "ecn"] {
        assert!(page.contains(&format!("| `{action}")), "{action}");
    }
}

#[test]
fn spans_of_psns_go_over_the_end() {
    let span = parse("drop psn=0xfffff0..15").rules[0].when.psn.unwrap();
    for (psn, in_it) in [
        (0xff_ffef, false),
        (0xff_fff0, true),
        (0, true),
        (15, true),
        (16, false),
    ] {
        assert_eq!(span.has(psn), in_it, "{psn:#x}");
    }
}

fn span(most: u64, wraps: bool) -> impl Strategy<Value = Span> {
    (0..=most, 0..=most).prop_map(move |(a, b)| Span {
        first: if wraps { a } else { a.min(b) },
        last: if wraps { b } else { a.max(b) },
    })
}

fn time() -> impl Strategy<Value = Duration> {
    (1u64..60, 0u32..4).prop_map(|(n, unit)| Duration::from_nanos(n * 1000u64.pow(unit) + n % 2))
}

fn action() -> impl Strategy<Value = Action> {
    let place = prop_oneof![
        (0u16..=4400).prop_map(Place::Lrh),
        (0u16..=4400).prop_map(Place::Bth),
        (0u16..=4400).prop_map(Place::Payload),
    ];
    prop_oneof![
        Just(Action::Drop),
        (1u16..=100, prop_oneof![Just(Duration::ZERO), time()])
            .prop_map(|(copies, after)| Action::Duplicate { copies, after }),
        (time(), prop_oneof![Just(Duration::ZERO), time()])
            .prop_map(|(by, jitter)| Action::Delay { by, jitter }),
        (
            proptest::sample::select(Crc::NAMES.map(|(v, _)| v).to_vec()),
            proptest::option::of(place),
            proptest::option::of(1u8..)
        )
            .prop_map(|(crc, place, xor)| Action::Corrupt { crc, place, xor }),
        (1u16..=1000, time()).prop_map(|(by, within)| Action::Reorder { by, within }),
        (1i32..0x7f_ffff, any::<bool>()).prop_map(|(n, minus)| Action::PsnShift {
            by: if minus { -n } else { n }
        }),
        proptest::sample::select(Mark::NAMES.map(|(v, _)| v).to_vec())
            .prop_map(|mark| Action::Ecn { mark }),
        time().prop_map(|time| Action::HoldCredits { time }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    use proptest::option::of;
    let opcode = proptest::sample::subsequence(
        vec![
            "rc-*",
            "ud-send-only",
            "*-imm",
            "0x81",
            "uc-rdma-write-last",
            "rc-ack",
        ],
        1..4,
    )
    .prop_map(|names| OpcodeSet::parse(&names.join(",")).unwrap());
    let condition = (
        of(opcode),
        of(span(0xff_ffff, false)),
        of(span(0xff_ffff, true)),
        of(span(15, false)),
        of(prop_oneof![Just(Direction::Tx), Just(Direction::Rx)]),
        of(span(u64::MAX - 1, false).prop_map(|s| Span {
            first: s.first + 1,
            last: s.last + 1,
        })),
        of(1u64..),
        of((1u64..=1_000_000_000).prop_map(|n| Probability::from_billionths(n).unwrap())),
        of(1u64..),
    )
        .prop_map(
            |(opcode, qpn, psn, vl, direction, nth, every, probability, shots)| Condition {
                opcode,
                qpn,
                psn,
                vl,
                direction,
                nth,
                every,
                probability,
                shots,
            },
        );
    (action(), condition).prop_map(|(action, when)| Rule { action, when })
}

/// Pieces of the language in no order.
fn soup() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "drop",
        "duplicate",
        "delay",
        "corrupt",
        "reorder",
        "psn-shift",
        "ecn",
        "hold-credits",
        "seed",
        "opcode",
        "qpn",
        "psn",
        "vl",
        "dir",
        "nth",
        "every",
        "prob",
        "shots",
        "copies",
        "after",
        "crc",
        "byte",
        "xor",
        "mark",
        "=",
        "=",
        "=",
        " ",
        " ",
        " ",
        ";",
        "\n",
        "#",
        "..",
        "+",
        "-",
        "*",
        ",",
        "0x",
        "5",
        "12us",
        "1.5ms",
        "%",
        "rc-*",
        "tx",
        "good",
        "payload",
        "ä",
        "\t",
        "\r",
    ]);
    proptest::collection::vec(piece, 0..30).prop_map(|p| p.concat())
}

proptest! {
    #[test]
    fn what_is_shown_parses_to_the_same(seed in any::<u64>(),
                                        rules in proptest::collection::vec(rule(), 0..8)) {
        let set = RuleSet { seed, rules };
        let text = set.to_string();
        prop_assert_eq!(text.parse::<RuleSet>(), Ok(set.clone()), "{}", text);
        let line = text.replace('\n', ";");
        prop_assert_eq!(line.parse::<RuleSet>(), Ok(set), "{}", line);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in prop_oneof![any::<String>(), soup()]) {
        match text.parse::<RuleSet>() {
            Ok(set) => prop_assert_eq!(set.to_string().parse::<RuleSet>(), Ok(set)),
            Err(e) => {
                let line = text.lines().nth(e.line - 1);
                prop_assert!(line.is_some(), "line {} of {:?}", e.line, text);
                let end = line.unwrap_or_default().chars().count() + 1;
                prop_assert!((1..=end).contains(&e.column), "{e} in {text:?}");
            }
        }
    }
}
