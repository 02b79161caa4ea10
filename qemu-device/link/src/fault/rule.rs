// SPDX-License-Identifier: GPL-2.0-or-later
//! Rules as they are after parsing. `Display` gives text that parses to the same rule.

use core::fmt;
use core::time::Duration;

use super::opcode::OpcodeSet;

/// Rules in the order in which they look at a packet, and the seed of their draws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    /// Seed of all draws. Each rule draws numbers of its own.
    pub seed: u64,
    /// The rules.
    pub rules: Vec<Rule>,
}

impl RuleSet {
    /// Seed where the text names none.
    pub const SEED: u64 = 1;
    /// Most rules of a set.
    pub const MOST: usize = 256;
}

impl Default for RuleSet {
    fn default() -> Self {
        RuleSet {
            seed: Self::SEED,
            rules: Vec::new(),
        }
    }
}

/// What happens to which packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What happens.
    pub action: Action,
    /// To which packets.
    pub when: Condition,
}

/// What a rule does to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is lost.
    Drop,
    /// It arrives more than once.
    Duplicate {
        /// Copies besides the packet, 1 to 100.
        copies: u16,
        /// How long after the packet the copies come.
        after: Duration,
    },
    /// It arrives later; what comes behind it may overtake it.
    Delay {
        /// How much later at least.
        by: Duration,
        /// Up to how much more, drawn for each packet.
        jitter: Duration,
    },
    /// Bits of one byte are wrong.
    Corrupt {
        /// What becomes of the CRCs.
        crc: Crc,
        /// The byte; if none, a byte of the payload is drawn (of the headers after the BTH, or of the
        /// BTH, where there is no payload).
        place: Option<Place>,
        /// The bits, not 0; if none, one bit is drawn.
        xor: Option<u8>,
    },
    /// It goes behind packets that follow it to the same QP.
    Reorder {
        /// Behind how many, 1 to 1000.
        by: u16,
        /// How long it waits for them at most.
        within: Duration,
    },
    /// Its PSN is another one, and the CRCs are right.
    PsnShift {
        /// Added to the PSN modulo 2^24; not 0.
        by: i32,
    },
    /// It carries a congestion mark, and the CRCs are right.
    Ecn {
        /// Which.
        mark: Mark,
    },
    /// The port holds back the flow control packets, and with them the credits, of the packet's lane.
    HoldCredits {
        /// For how long.
        time: Duration,
    },
}

/// The CRCs of a corrupted packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crc {
    /// Both as before the damage: the next link layer drops the packet and counts an error.
    #[default]
    Bad,
    /// VCRC made right, ICRC as before: the transport of the destination drops the packet silently.
    BadIcrc,
    /// Both made right: nobody can see the damage.
    Good,
}

impl Crc {
    /// Every value with its name.
    pub const NAMES: [(Crc, &'static str); 3] = [
        (Crc::Bad, "bad"),
        (Crc::BadIcrc, "bad-icrc"),
        (Crc::Good, "good"),
    ];
}

/// Congestion marks of the BTH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Forward.
    #[default]
    Fecn,
    /// Backward.
    Becn,
    /// Both.
    Both,
}

impl Mark {
    /// Every value with its name.
    pub const NAMES: [(Mark, &'static str); 3] = [
        (Mark::Fecn, "fecn"),
        (Mark::Becn, "becn"),
        (Mark::Both, "both"),
    ];

    /// The bits in byte 4 of the BTH.
    pub(super) const fn bits(self) -> u8 {
        match self {
            Mark::Fecn => 0x80,
            Mark::Becn => 0x40,
            Mark::Both => 0xc0,
        }
    }
}

/// A byte of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// From the start of the LRH.
    Lrh(u16),
    /// From the start of the BTH.
    Bth(u16),
    /// From the start of the payload.
    Payload(u16),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Lrh(n) => write!(f, "{n}"),
            Place::Bth(n) => write!(f, "bth+{n}"),
            Place::Payload(n) => write!(f, "payload+{n}"),
        }
    }
}

/// Which way a packet goes, seen from the port that has the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It is sent.
    Tx,
    /// It is received.
    Rx,
}

impl Direction {
    /// Every value with its name.
    pub const NAMES: [(Direction, &'static str); 2] =
        [(Direction::Tx, "tx"), (Direction::Rx, "rx")];
}

/// Numbers from the first to the last, both of them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First.
    pub first: u64,
    /// Last. For PSNs it may be below the first: the span then goes over the end of the numbers.
    pub last: u64,
}

impl Span {
    /// One number.
    pub const fn one(n: u64) -> Self {
        Span { first: n, last: n }
    }

    /// Whether the span has `n`.
    #[inline]
    pub const fn has(&self, n: u64) -> bool {
        if self.first <= self.last {
            self.first <= n && n <= self.last
        } else {
            n >= self.first || n <= self.last
        }
    }
}

impl fmt::Display for Span {
    /// In hexadecimal with `{:#}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |f: &mut fmt::Formatter<'_>, n: u64| {
            if f.alternate() {
                write!(f, "{n:#x}")
            } else {
                write!(f, "{n}")
            }
        };
        number(f, self.first)?;
        if self.first != self.last {
            f.write_str("..")?;
            number(f, self.last)?;
        }
        Ok(())
    }
}

/// A probability in steps of 10^-9, more than 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probability(u32);

impl Probability {
    const ONE: u32 = 1_000_000_000;

    /// `n` in a thousand million, if that is a probability and not 0.
    pub const fn from_billionths(n: u64) -> Option<Self> {
        if n == 0 || n > Self::ONE as u64 {
            None
        } else {
            Some(Probability(n as u32))
        }
    }

    /// Whether a draw from all 64-bit numbers has come out.
    #[inline]
    pub(super) const fn hit(self, draw: u64) -> bool {
        // The upper 32 bits as a fraction, scaled; an error below 10^-9.
        ((draw >> 32) * Self::ONE as u64 >> 32) < self.0 as u64
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Self::ONE {
            return f.write_str("1");
        }
        let digits = format!("{:09}", self.0);
        write!(f, "0.{}", digits.trim_end_matches('0'))
    }
}

/// Which packets a rule acts on: those that meet every condition there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Opcode.
    pub opcode: Option<OpcodeSet>,
    /// Destination QP.
    pub qpn: Option<Span>,
    /// PSN.
    pub psn: Option<Span>,
    /// Lane.
    pub vl: Option<Span>,
    /// Direction.
    pub direction: Option<Direction>,
    /// Of the packets that meet the above, counted from 1, these.
    pub nth: Option<Span>,
    /// Of the packets that meet all but `nth`, each one whose count this divides; not 0.
    pub every: Option<u64>,
    /// Of those, a part, drawn.
    pub probability: Option<Probability>,
    /// How often the rule acts at most.
    pub shots: Option<u64>,
}

/// A time in the largest unit of which it is a whole number.
pub(super) struct Written(pub(super) Duration);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
            if ns % unit == 0 {
                return write!(f, "{}{name}", ns / unit);
            }
        }
        write!(f, "{ns}ns")
    }
}

/// Name of a value in a table of names.
pub(super) fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: &T) -> &'static str {
    names
        .iter()
        .find(|(v, _)| v == value)
        .map_or("", |(_, name)| name)
}

/// Defaults that the text need not name.
pub(super) const COPIES: u16 = 1;
pub(super) const BY: u16 = 1;
pub(super) const WITHIN: Duration = Duration::from_millis(1);

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Drop => f.write_str("drop"),
            Action::Duplicate { copies, after } => {
                f.write_str("duplicate")?;
                if *copies != COPIES {
                    write!(f, " copies={copies}")?;
                }
                if *after != Duration::ZERO {
                    write!(f, " after={}", Written(*after))?;
                }
                Ok(())
            }
            Action::Delay { by, jitter } => {
                write!(f, "delay {}", Written(*by))?;
                if *jitter != Duration::ZERO {
                    write!(f, " jitter={}", Written(*jitter))?;
                }
                Ok(())
            }
            Action::Corrupt { crc, place, xor } => {
                write!(f, "corrupt crc={}", name_of(&Crc::NAMES, crc))?;
                if let Some(place) = place {
                    write!(f, " byte={place}")?;
                }
                if let Some(xor) = xor {
                    write!(f, " xor={xor:#04x}")?;
                }
                Ok(())
            }
            Action::Reorder { by, within } => {
                f.write_str("reorder")?;
                if *by != BY {
                    write!(f, " by={by}")?;
                }
                if *within != WITHIN {
                    write!(f, " within={}", Written(*within))?;
                }
                Ok(())
            }
            Action::PsnShift { by } => write!(f, "psn-shift {by:+}"),
            Action::Ecn { mark } => write!(f, "ecn mark={}", name_of(&Mark::NAMES, mark)),
            Action::HoldCredits { time } => write!(f, "hold-credits {}", Written(*time)),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.action)?;
        let w = &self.when;
        if let Some(opcode) = &w.opcode {
            write!(f, " opcode={opcode}")?;
        }
        if let Some(qpn) = &w.qpn {
            write!(f, " qpn={qpn:#}")?;
        }
        if let Some(psn) = &w.psn {
            write!(f, " psn={psn}")?;
        }
        if let Some(vl) = &w.vl {
            write!(f, " vl={vl}")?;
        }
        if let Some(direction) = &w.direction {
            write!(f, " dir={}", name_of(&Direction::NAMES, direction))?;
        }
        if let Some(nth) = &w.nth {
            write!(f, " nth={nth}")?;
        }
        if let Some(every) = w.every {
            write!(f, " every={every}")?;
        }
        if let Some(probability) = w.probability {
            write!(f, " prob={probability}")?;
        }
        if let Some(shots) = w.shots {
            write!(f, " shots={shots}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for rule in &self.rules {
            writeln!(f, "{rule}")?;
        }
        Ok(())
    }
}
