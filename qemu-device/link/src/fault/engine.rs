// SPDX-License-Identifier: GPL-2.0-or-later
//! Which rules act on a packet, what they make of it, and how often they have.

use core::fmt;
use core::time::Duration;

use super::packet::{self, View};
use super::rule::{Action, Condition, Crc, Direction, Rule, RuleSet};

/// splitmix64: any seed is good, and neighbours differ.
#[derive(Clone, Debug)]
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A rule at work.
#[derive(Clone, Debug)]
struct Armed {
    rule: Rule,
    draws: Draws,
    /// Packets that met the conditions from `opcode` to `dir`.
    hits: u64,
    /// Packets that it has acted on.
    shots: u64,
}

impl Armed {
    /// It will never act again.
    fn is_spent(&self) -> bool {
        let when = &self.rule.when;
        when.shots.is_some_and(|most| self.shots >= most)
            || when.nth.is_some_and(|nth| self.hits >= nth.last)
    }

    /// The packet is one that the rule counts.
    fn looks_at(&self, direction: Direction, view: &View) -> bool {
        !self.is_spent() && meets(&self.rule.when, direction, view)
    }

    /// Counts a packet that the rule looks at; gives whether it is to act.
    fn count(&mut self) -> bool {
        self.hits += 1;
        let when = &self.rule.when;
        when.nth.is_none_or(|nth| nth.has(self.hits))
            && when.every.is_none_or(|n| self.hits % n == 0)
            && when.probability.is_none_or(|p| p.hit(self.draws.next()))
    }
}

fn meets(when: &Condition, direction: Direction, view: &View) -> bool {
    let transport =
        |wants: &dyn Fn(&packet::Transport) -> bool| view.transport.as_ref().is_some_and(wants);
    when.direction.is_none_or(|d| d == direction)
        && when.vl.is_none_or(|vl| vl.has(view.vl.into()))
        && when
            .opcode
            .as_ref()
            .is_none_or(|set| transport(&|t| set.has(t.opcode)))
        && when.qpn.is_none_or(|q| transport(&|t| q.has(t.qpn.into())))
        && when.psn.is_none_or(|p| transport(&|t| p.has(t.psn.into())))
}

/// What the port can do for a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Copies besides the packet for which there are credits and space.
    pub(super) copies: u16,
    /// The packet can wait.
    pub(super) wait: bool,
    /// The packet overtakes another one, so that it does not itself go behind others.
    pub(super) overtakes: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// It is lost; the rest does not matter, but for `hold`.
    pub(super) lost: bool,
    /// It comes this much later.
    pub(super) delay: Duration,
    /// It goes behind this many packets.
    pub(super) behind: u16,
    /// And waits this long for them at most.
    pub(super) within: Duration,
    /// Further copies of it.
    pub(super) copies: u16,
    /// How long after it they come.
    pub(super) after: Duration,
    /// How long its lane gets no flow control packets from this port.
    pub(super) hold: Duration,
    /// CRCs that are to stay wrong, whatever later rules change.
    pub(super) spoiled: Spoiled,
}

/// Which CRCs are wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spoiled {
    icrc: bool,
    vcrc: bool,
}

impl Spoiled {
    /// Makes the CRCs right that are to be right; the ICRC only if the change was to what it covers.
    fn seal(self, bytes: &mut [u8], view: &View, icrc: bool) {
        if !self.vcrc {
            packet::seal(bytes, view, icrc && !self.icrc);
        }
    }
}

/// The rules of a port at work.
#[derive(Clone, Debug, Default)]
pub(super) struct Engine {
    seed: u64,
    rules: Vec<Armed>,
    /// CRCs are in use.
    crc: bool,
}

impl Engine {
    pub(super) fn new(set: RuleSet, crc: bool) -> Self {
        let rules = set
            .rules
            .into_iter()
            .zip(1u64..)
            .map(|(rule, n)| Armed {
                rule,
                // A stream for each rule, so that what one draws does not depend on the others.
                draws: Draws(set.seed ^ n.wrapping_mul(0xd134_2543_de82_ef95)),
                hits: 0,
                shots: 0,
            })
            .collect();
        Engine {
            seed: set.seed,
            rules,
            crc,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any rule looks at this packet. If none does, it passes as it is.
    pub(super) fn looks_at(&self, direction: Direction, view: &View) -> bool {
        self.rules.iter().any(|r| r.looks_at(direction, view))
    }

    /// Lets all rules look at a packet, in their order, and changes it. A rule sees what the ones
    /// before have made of the packet; nobody sees a lost one.
    pub(super) fn act(&mut self, direction: Direction, bytes: &mut [u8], room: Room) -> Fate {
        let mut fate = Fate::default();
        for armed in &mut self.rules {
            let Some(view) = View::read(bytes) else {
                break;
            };
            if !armed.looks_at(direction, &view) || !armed.count() {
                continue;
            }
            let draws = &mut armed.draws;
            if apply(
                &armed.rule.action,
                draws,
                bytes,
                &view,
                room,
                self.crc,
                &mut fate,
            ) {
                armed.shots += 1;
            }
            if fate.lost {
                break;
            }
        }
        fate
    }

    pub(super) fn report(&self) -> Report {
        Report {
            seed: self.seed,
            rules: self
                .rules
                .iter()
                .map(|armed| RuleReport {
                    rule: armed.rule.clone(),
                    hits: armed.hits,
                    shots: armed.shots,
                    spent: armed.is_spent(),
                })
                .collect(),
        }
    }
}

/// Does what the action says; gives whether it could.
fn apply(
    action: &Action,
    draws: &mut Draws,
    bytes: &mut [u8],
    view: &View,
    room: Room,
    crc: bool,
    fate: &mut Fate,
) -> bool {
    match *action {
        Action::Drop => fate.lost = true,
        Action::Duplicate { copies, after } => {
            let copies = fate.copies + copies;
            if copies > room.copies {
                return false;
            }
            fate.copies = copies;
            fate.after = fate.after.max(after);
        }
        Action::Delay { by, jitter } => {
            let span = jitter.as_nanos() as u64 + 1;
            let more = Duration::from_nanos(draws.next() % span);
            if !room.wait {
                return false;
            }
            fate.delay += by + more;
        }
        Action::Corrupt {
            crc: what,
            place,
            xor,
        } => {
            let (where_, bit) = (draws.next(), draws.next());
            let at = match place {
                Some(place) => packet::place(bytes, view, place),
                None => packet::drawn_place(bytes, view, where_),
            };
            let Some(byte) = at.and_then(|at| bytes.get_mut(at)) else {
                return false;
            };
            *byte ^= xor.unwrap_or(1 << (bit % 8));
            fate.spoiled.icrc |= what != Crc::Good;
            fate.spoiled.vcrc |= what == Crc::Bad;
            if crc {
                fate.spoiled.seal(bytes, view, true);
            }
        }
        Action::Reorder { by, within } => {
            if !room.wait || room.overtakes || view.transport.is_none() {
                return false;
            }
            fate.behind = fate.behind.max(by);
            fate.within = fate.within.max(within);
        }
        Action::PsnShift { by } => {
            let Some(transport) = &view.transport else {
                return false;
            };
            packet::shift_psn(bytes, transport, by);
            if crc {
                fate.spoiled.seal(bytes, view, true);
            }
        }
        Action::Ecn { mark } => {
            let Some(transport) = &view.transport else {
                return false;
            };
            packet::mark(bytes, transport, mark.bits());
            if crc {
                fate.spoiled.seal(bytes, view, false);
            }
        }
        Action::HoldCredits { time } => {
            if view.vl == 15 {
                return false;
            }
            fate.hold = fate.hold.max(time);
        }
    }
    true
}

/// A rule and what it has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleReport {
    /// The rule.
    pub rule: Rule,
    /// Packets that met its conditions on opcode, QPN, PSN, lane and direction. A rule that is spent
    /// counts no more.
    pub hits: u64,
    /// Packets that it acted on.
    pub shots: u64,
    /// It will never act again.
    pub spent: bool,
}

/// The rules of a port and what they have done. `Display` gives one rule a line with its counts as a
/// comment, which parses to the same rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Seed of the draws.
    pub seed: u64,
    /// The rules in their order.
    pub rules: Vec<RuleReport>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rules.is_empty() {
            return Ok(());
        }
        writeln!(f, "seed {}", self.seed)?;
        for r in &self.rules {
            let spent = if r.spent { ", spent" } else { "" };
            writeln!(f, "{}  # hits {}, shots {}{spent}", r.rule, r.hits, r.shots)?;
        }
        Ok(())
    }
}
