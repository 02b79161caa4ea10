// SPDX-License-Identifier: GPL-2.0-or-later
//! From text to rules, or to what is wrong, where, and what would be right.
//!
//! Rules are separated by ends of lines or by `;`. `#` starts a comment that goes to the end of the line.
//! A rule is an action, then words of the form `name=value` in any order. `seed N` stands for itself.

use core::fmt;
use core::time::Duration;

use super::opcode::{OpcodeError, OpcodeSet};
use super::rule::{
    Action, Condition, Crc, Direction, Mark, Place, Probability, Rule, RuleSet, Span, BY, COPIES,
    WITHIN,
};

/// What is wrong with the text of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column, in characters from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for ParseError {}

/// Column and message.
type Wrong = (usize, String);
type Parsed<T> = Result<T, Wrong>;
/// A piece of the text and its column.
type Word<'a> = (usize, &'a str);

impl core::str::FromStr for RuleSet {
    type Err = ParseError;

    /// Parses rules; on an error nothing of the text counts.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut set = RuleSet::default();
        let mut seeded = false;
        for (index, line) in text.lines().enumerate() {
            let code = line.split('#').next().unwrap_or_default();
            let mut column = 1;
            for part in code.split(';') {
                statement(part, column, &mut set, &mut seeded).map_err(|(column, message)| {
                    ParseError {
                        line: index + 1,
                        column,
                        message,
                    }
                })?;
                column += part.chars().count() + 1;
            }
        }
        Ok(set)
    }
}

/// The words of a text that starts at `column`, with their columns.
fn words(text: &str, column: usize) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start = None;
    for (n, (at, c)) in text.char_indices().enumerate() {
        if c.is_whitespace() {
            if let Some((column, from)) = start.take() {
                words.push((column, &text[from..at]));
            }
        } else if start.is_none() {
            start = Some((column + n, at));
        }
    }
    if let Some((column, from)) = start {
        words.push((column, &text[from..]));
    }
    words
}

/// One statement: nothing, a seed or a rule.
fn statement(text: &str, column: usize, set: &mut RuleSet, seeded: &mut bool) -> Parsed<()> {
    let words = words(text, column);
    let Some((&(at, name), rest)) = words.split_first() else {
        return Ok(());
    };
    if name == "seed" {
        let (value, rest) = operand(at, name, rest, "a number, for example `seed 42`")?;
        let seed = number(value, u64::MAX)?;
        if let Some((at, word)) = rest.first() {
            return Err((
                *at,
                format!("`{word}` after the seed; nothing may follow it"),
            ));
        }
        if core::mem::replace(seeded, true) {
            return Err((at, "a second seed; a set of rules has one".into()));
        }
        set.seed = seed;
        return Ok(());
    }
    if set.rules.len() == RuleSet::MOST {
        return Err((at, format!("more than {} rules", RuleSet::MOST)));
    }
    set.rules.push(rule(at, name, rest)?);
    Ok(())
}

/// The word after an action that has an operand.
fn operand<'a, 'b>(
    at: usize,
    name: &str,
    rest: &'b [Word<'a>],
    what: &str,
) -> Parsed<(Word<'a>, &'b [Word<'a>])> {
    match rest.split_first() {
        Some((&word, rest)) if !word.1.contains('=') => Ok((word, rest)),
        Some((&(at, word), _)) => Err((at, format!("`{word}` where `{name}` has {what}"))),
        None => Err((
            at + name.chars().count(),
            format!("nothing after `{name}`; it needs {what}"),
        )),
    }
}

/// Names of the actions.
const ACTIONS: [&str; 8] = [
    "drop",
    "duplicate",
    "delay",
    "corrupt",
    "reorder",
    "psn-shift",
    "ecn",
    "hold-credits",
];

/// Names of the conditions.
const CONDITIONS: [&str; 9] = [
    "opcode", "qpn", "psn", "vl", "dir", "nth", "every", "prob", "shots",
];

fn rule(at: usize, name: &str, rest: &[Word<'_>]) -> Parsed<Rule> {
    let time = "a time, for example 5us or 1.5ms";
    let (mut action, settings, rest): (Action, &[&str], _) = match name {
        "drop" => (Action::Drop, &[], rest),
        "duplicate" => (
            Action::Duplicate {
                copies: COPIES,
                after: Duration::ZERO,
            },
            &["copies", "after"],
            rest,
        ),
        "delay" => {
            let (word, rest) = operand(at, name, rest, time)?;
            let action = Action::Delay {
                by: duration(word, false)?,
                jitter: Duration::ZERO,
            };
            (action, &["jitter"], rest)
        }
        "corrupt" => (
            Action::Corrupt {
                crc: Crc::default(),
                place: None,
                xor: None,
            },
            &["crc", "byte", "xor"],
            rest,
        ),
        "reorder" => (
            Action::Reorder {
                by: BY,
                within: WITHIN,
            },
            &["by", "within"],
            rest,
        ),
        "psn-shift" => {
            let what = "a number, for example `psn-shift +1` or `psn-shift -3`";
            let (word, rest) = operand(at, name, rest, what)?;
            (Action::PsnShift { by: shift(word)? }, &[], rest)
        }
        "ecn" => (
            Action::Ecn {
                mark: Mark::default(),
            },
            &["mark"],
            rest,
        ),
        "hold-credits" => {
            let (word, rest) = operand(at, name, rest, time)?;
            let action = Action::HoldCredits {
                time: duration(word, false)?,
            };
            (action, &[], rest)
        }
        _ => {
            return Err((
                at,
                format!(
                    "`{name}` is not an action{}; actions are {}, and `seed`",
                    hint(name, &ACTIONS),
                    ACTIONS.join(", ")
                ),
            ))
        }
    };
    let mut when = Condition::default();
    let mut seen: Vec<&str> = Vec::new();
    for &(at, word) in rest {
        let Some((key, value)) = word.split_once('=') else {
            return Err((
                at,
                format!("`{word}` is not of the form name=value, for example vl=0"),
            ));
        };
        let known = [settings, &CONDITIONS].concat();
        if !known.contains(&key) {
            return Err((
                at,
                format!(
                    "`{key}` is nothing that `{name}` has{}; it has {}",
                    hint(key, &known),
                    known.join(", ")
                ),
            ));
        }
        if seen.contains(&key) {
            return Err((at, format!("`{key}` for the second time; once is enough")));
        }
        seen.push(key);
        let value = (at + key.chars().count() + 1, value);
        if value.1.is_empty() {
            return Err((value.0, format!("nothing after `{key}=`")));
        }
        if CONDITIONS.contains(&key) {
            condition(&mut when, key, value)?;
        } else {
            setting(&mut action, key, value)?;
        }
    }
    Ok(Rule { action, when })
}

fn condition(when: &mut Condition, key: &str, value: Word<'_>) -> Parsed<()> {
    let (at, text) = value;
    match key {
        "opcode" => when.opcode = Some(opcodes(value)?),
        "qpn" => when.qpn = Some(span(value, 0, 0xff_ffff, false)?),
        "psn" => when.psn = Some(span(value, 0, 0xff_ffff, true)?),
        "vl" => when.vl = Some(span(value, 0, 15, false)?),
        "dir" => when.direction = Some(choice(value, &Direction::NAMES)?),
        "nth" => when.nth = Some(span(value, 1, u64::MAX, false)?),
        "every" => when.every = Some(at_least_one(value, u64::MAX)?),
        "prob" => {
            when.probability = Some(probability(text).ok_or_else(|| {
                (
                    at,
                    format!(
                        "`{text}` is not a probability: more than 0, at most 1, at most 9 digits \
                         after the point; for example 0.01 or 1%"
                    ),
                )
            })?);
        }
        _ => when.shots = Some(at_least_one(value, u64::MAX)?),
    }
    Ok(())
}

fn setting(action: &mut Action, key: &str, value: Word<'_>) -> Parsed<()> {
    match action {
        Action::Duplicate { copies, after } => match key {
            "copies" => *copies = at_least_one(value, 100)? as u16,
            _ => *after = duration(value, true)?,
        },
        Action::Delay { jitter, .. } => *jitter = duration(value, true)?,
        Action::Corrupt { crc, place, xor } => match key {
            "crc" => *crc = choice(value, &Crc::NAMES)?,
            "byte" => *place = Some(byte(value)?),
            _ => *xor = Some(at_least_one(value, 0xff)? as u8),
        },
        Action::Reorder { by, within } => match key {
            "by" => *by = at_least_one(value, 1000)? as u16,
            _ => *within = duration(value, false)?,
        },
        Action::Ecn { mark } => *mark = choice(value, &Mark::NAMES)?,
        // They have no settings.
        Action::Drop | Action::PsnShift { .. } | Action::HoldCredits { .. } => {}
    }
    Ok(())
}

fn opcodes((at, text): Word<'_>) -> Parsed<OpcodeSet> {
    OpcodeSet::parse(text).map_err(|(offset, error)| {
        let message = match error {
            OpcodeError::Empty => "an opcode is missing at a comma".into(),
            OpcodeError::Unknown(what, close) => format!(
                "no opcode is `{what}`{}; opcodes are names such as rc-send-last, patterns such as \
                 rc-* or *-ack, and numbers such as 0x81",
                close.map_or(String::new(), |name| format!(", did you mean `{name}`?"))
            ),
        };
        (at + offset, message)
    })
}

/// A number, decimal or hexadecimal with `0x`, at most `most`.
fn number((at, text): Word<'_>, most: u64) -> Parsed<u64> {
    let digits = |text: &str, radix| {
        // The standard parser takes signs.
        let ok = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
        ok.then(|| u64::from_str_radix(text, radix).ok())
    };
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => digits(hex, 16),
        None => digits(text, 10),
    };
    match value {
        Some(Some(n)) if n <= most => Ok(n),
        Some(_) => Err((
            at,
            format!("{text} is too much; at most {most} ({most:#x})"),
        )),
        None => Err((
            at,
            format!("`{text}` is not a number; for example 18 or 0x12"),
        )),
    }
}

fn at_least_one(value: Word<'_>, most: u64) -> Parsed<u64> {
    match number(value, most)? {
        0 => Err((value.0, "0 makes no sense here; 1 or more".into())),
        n => Ok(n),
    }
}

fn span((at, text): Word<'_>, least: u64, most: u64, wraps: bool) -> Parsed<Span> {
    let check = |at, text| match number((at, text), most)? {
        n if n < least => Err((at, format!("{n} is too little; at least {least}"))),
        n => Ok(n),
    };
    let Some((first, last)) = text.split_once("..") else {
        return check(at, text).map(Span::one);
    };
    let second = at + first.chars().count() + 2;
    for (at, part) in [(at, first), (second, last)] {
        if part.is_empty() {
            return Err((
                at,
                format!(
                    "a number is missing in `{text}`; a span is first..last, for example 50..150"
                ),
            ));
        }
    }
    let span = Span {
        first: check(at, first)?,
        last: check(second, last)?,
    };
    if span.first > span.last && !wraps {
        return Err((
            at,
            format!("`{text}` goes backwards; {last}..{first} would be right"),
        ));
    }
    Ok(span)
}

/// A decimal number as a whole number of 10^-`scale`.
fn decimal(text: &str, scale: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > scale {
        return None;
    }
    if fraction.is_empty() && text.contains('.') {
        return None;
    }
    format!("{whole}{fraction:0<scale$}").parse().ok()
}

fn probability(text: &str) -> Option<Probability> {
    let billionths = match text.strip_suffix('%') {
        Some(percent) => decimal(percent, 7)?,
        None => decimal(text, 9)?,
    };
    Probability::from_billionths(billionths)
}

/// The longest time of a rule.
const LONGEST: u64 = 60_000_000_000;

fn duration((at, text): Word<'_>, zero: bool) -> Parsed<Duration> {
    let bad = || {
        (
            at,
            format!(
                "`{text}` is not a time; a number and ns, us, ms or s, for example 5us or 1.5ms"
            ),
        )
    };
    let (digits, scale) = [("ns", 0), ("us", 3), ("ms", 6), ("s", 9)]
        .into_iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
        .ok_or_else(bad)?;
    match decimal(digits, scale).ok_or_else(bad)? {
        0 if !zero => Err((at, "no time at all; 1ns or more".into())),
        ns if ns > LONGEST => Err((at, format!("{text} is too long; at most 60s"))),
        ns => Ok(Duration::from_nanos(ns)),
    }
}

fn shift((at, text): Word<'_>) -> Parsed<i32> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    match number((at, digits), 0x7f_ffff)? {
        0 => Err((at, "a shift by 0 changes nothing".into())),
        n => Ok(sign * n as i32),
    }
}

fn byte((at, text): Word<'_>) -> Parsed<Place> {
    let offset = |text: &str, skip: usize| number((at + skip, text), 4400).map(|n| n as u16);
    match text.split_once('+') {
        None => offset(text, 0).map(Place::Lrh),
        Some(("lrh", n)) => offset(n, 4).map(Place::Lrh),
        Some(("bth", n)) => offset(n, 4).map(Place::Bth),
        Some(("payload", n)) => offset(n, 8).map(Place::Payload),
        Some((what, _)) => Err((
            at,
            format!(
                "`{what}` is no part of a packet to count from; a byte is N, bth+N or payload+N"
            ),
        )),
    }
}

fn choice<T: Copy>((at, text): Word<'_>, names: &[(T, &'static str)]) -> Parsed<T> {
    if let Some((value, _)) = names.iter().find(|(_, name)| *name == text) {
        return Ok(*value);
    }
    let names: Vec<_> = names.iter().map(|(_, name)| *name).collect();
    Err((at, format!("`{text}` is not one of {}", names.join(", "))))
}

fn hint(word: &str, known: &[&str]) -> String {
    closest(word, known.iter().map(|s| (*s).to_owned()))
        .map_or(String::new(), |name| format!(", did you mean `{name}`?"))
}

/// The name that is at most two edits away, if one is.
pub(super) fn closest(word: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    if word.len() > 64 {
        return None;
    }
    names
        .into_iter()
        .map(|name| (distance(word, &name), name))
        .filter(|(d, name)| *d <= 2 && *d < name.len())
        .min_by_key(|(d, _)| *d)
        .map(|(_, name)| name)
}

/// Characters to insert, remove or replace to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = core::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
