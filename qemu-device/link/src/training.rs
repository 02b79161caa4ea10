// SPDX-License-Identifier: GPL-2.0-or-later
//! Link training: how two ports find each other and agree on width and speed.
//!
//! A real link trains with ordered sets of symbols; here a training sequence is a frame of its own
//! kind. Each training has a number. A port in Polling sends TS1 with its number; whoever hears it
//! answers TS2, which echoes the number; a TS2 with the own number means that both directions work.
//!
//! ```text
//!   Sleep --TS1--> Polling --TS1--> Training --TS2 echo--> LinkUp <--TS2 echo-- Recovery
//!     ^              ^  |                                  |  |                  ^  |
//!     |              |  +------------TS2 echo--------------^  +--errors, TS1+R---+  |
//!     +--------------+---- peer gone, DOWN, TS1 with a new number, time-out --------+
//! ```
//!
//! A sequence is repeated after 10 ms and then at doubling distances up to 1 s, so that one that got
//! lost only costs time.

use core::time::Duration;

use ochre_wire::Vcrc;

use crate::rate::{Speeds, Widths};
use crate::state::PhysState;
use crate::time::Time;

/// First distance of repetition.
const RETRY: Duration = Duration::from_millis(10);
/// Last distance of repetition.
const RETRY_MOST: Duration = Duration::from_secs(1);
/// Time that a recovery may take.
const RECOVERY_LIMIT: Duration = Duration::from_millis(500);

/// Kind of a training sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Here I am.
    Ts1 = 1,
    /// I hear you.
    Ts2 = 2,
    /// I leave.
    Down = 3,
}

/// A training sequence. 18 bytes: kind, flags (bit 0 recovery, bit 1 ready), widths, format (1),
/// speeds (2), zero (2), number (4), echo (4), CRC (2, that of VCRC); numbers are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Kind.
    pub kind: Kind,
    /// Sent in Recovery.
    pub recovery: bool,
    /// The sender is in LinkUp already.
    pub ready: bool,
    /// Widths that the sender has enabled.
    pub widths: Widths,
    /// Speeds that the sender has enabled.
    pub speeds: Speeds,
    /// Number of the sender's training.
    pub number: u32,
    /// Number last heard from the peer, 0 if none.
    pub echo: u32,
}

impl Sequence {
    /// Bytes of the frame.
    pub const LEN: usize = 18;
    const FORMAT: u8 = 1;

    /// The frame.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0] = self.kind as u8;
        b[1] = u8::from(self.recovery) | u8::from(self.ready) << 1;
        b[2] = self.widths.0;
        b[3] = Self::FORMAT;
        b[4..6].copy_from_slice(&self.speeds.0.to_be_bytes());
        b[8..12].copy_from_slice(&self.number.to_be_bytes());
        b[12..16].copy_from_slice(&self.echo.to_be_bytes());
        let mut crc = Vcrc::new();
        crc.update(&b[..16]);
        b[16..].copy_from_slice(&crc.finish());
        b
    }

    /// Reads a frame; `None` if it is damaged or unknown.
    pub fn read(b: &[u8]) -> Option<Self> {
        let b: &[u8; Self::LEN] = b.try_into().ok()?;
        let mut crc = Vcrc::new();
        crc.update(&b[..16]);
        if crc.finish() != [b[16], b[17]] || b[3] != Self::FORMAT {
            return None;
        }
        Some(Sequence {
            kind: match b[0] {
                1 => Kind::Ts1,
                2 => Kind::Ts2,
                3 => Kind::Down,
                _ => return None,
            },
            recovery: b[1] & 1 != 0,
            ready: b[1] & 2 != 0,
            widths: Widths(b[2]),
            speeds: Speeds(u16::from_be_bytes([b[4], b[5]])),
            number: u32::from_be_bytes([b[8], b[9], b[10], b[11]]),
            echo: u32::from_be_bytes([b[12], b[13], b[14], b[15]]),
        })
    }
}

/// What training did to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The link has come up.
    Up,
    /// A link that was up (or in recovery) is lost.
    Lost,
    /// A recovery has begun.
    Recovering,
    /// A recovery has succeeded.
    Recovered,
    /// The peer shares no rate with this port.
    NoCommonRate(Widths, Speeds),
}

/// The physical state of one port. Inputs return what happened to the link, [`Trainer::to_send`] what
/// is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Trainer {
    phys: PhysState,
    pub(crate) down_default: PhysState,
    pub(crate) widths: Widths,
    pub(crate) speeds: Speeds,
    pub(crate) width_active: Widths,
    pub(crate) speed_active: Speeds,
    present: bool,
    seed: u64,
    number: u32,
    peer: u32,
    out: Option<(Kind, bool)>,
    retry_at: Option<Time>,
    retry: Duration,
    give_up_at: Option<Time>,
    told_no_rate: Option<(Widths, Speeds)>,
}

impl Trainer {
    pub(crate) fn new(widths: Widths, speeds: Speeds, seed: u64) -> Self {
        Trainer {
            phys: PhysState::Polling,
            down_default: PhysState::Polling,
            widths,
            speeds,
            width_active: Widths::NONE,
            speed_active: Speeds::NONE,
            present: false,
            seed,
            number: 0,
            peer: 0,
            out: None,
            retry_at: None,
            retry: RETRY,
            give_up_at: None,
            told_no_rate: None,
        }
    }

    pub(crate) fn phys(&self) -> PhysState {
        self.phys
    }

    /// Packets pass.
    pub(crate) fn is_up(&self) -> bool {
        self.phys == PhysState::LinkUp
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        Time::earliest(self.retry_at, self.give_up_at)
    }

    /// The sequence to send next; to be called until `None`, and [`Trainer::sent`] after each.
    pub(crate) fn to_send(&self) -> Option<Sequence> {
        let (kind, ready) = self.out?;
        Some(Sequence {
            kind,
            recovery: self.phys == PhysState::Recovery,
            ready,
            widths: self.widths,
            speeds: self.speeds,
            number: self.number,
            echo: self.peer,
        })
    }

    pub(crate) fn sent(&mut self) {
        self.out = None;
    }

    /// The next number of a training, never 0 and well mixed.
    fn renumber(&mut self) {
        loop {
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.seed;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let n = (z ^ z >> 31) as u32;
            if n != 0 && n != self.number {
                self.number = n;
                return;
            }
        }
    }

    fn say(&mut self, kind: Kind, ready: bool, now: Time, repeat: bool) {
        self.out = self.present.then_some((kind, ready));
        self.retry_at = (repeat && self.present).then(|| now + self.retry);
    }

    /// Enters `phys` afresh, with no memory of a peer.
    fn restart(&mut self, phys: PhysState, now: Time) {
        self.phys = phys;
        self.peer = 0;
        self.retry = RETRY;
        self.retry_at = None;
        self.give_up_at = None;
        self.width_active = Widths::NONE;
        self.speed_active = Speeds::NONE;
        self.renumber();
        if phys == PhysState::Polling {
            self.say(Kind::Ts1, false, now, true);
        }
    }

    fn had_link(&self) -> bool {
        matches!(self.phys, PhysState::LinkUp | PhysState::Recovery)
    }

    fn lose(&mut self, phys: PhysState, now: Time) -> Option<Outcome> {
        let had = self.had_link();
        self.restart(phys, now);
        had.then_some(Outcome::Lost)
    }

    /// A peer has come (with empty rings) or gone.
    pub(crate) fn presence(&mut self, present: bool, now: Time) -> Option<Outcome> {
        self.present = present;
        self.told_no_rate = None;
        match self.phys {
            PhysState::Sleep | PhysState::Disabled => {
                self.out = None;
                None
            }
            PhysState::Polling => self.lose(PhysState::Polling, now),
            PhysState::Training | PhysState::LinkUp | PhysState::Recovery => {
                let next = if self.had_link() {
                    self.down_default
                } else {
                    PhysState::Polling
                };
                self.lose(next, now)
            }
        }
    }

    /// Management asks for Sleep, Polling or Disabled.
    pub(crate) fn set_phys(&mut self, phys: PhysState, now: Time) -> Option<Outcome> {
        let engaged = self.had_link() || self.phys == PhysState::Training;
        let number = self.number;
        let outcome = self.lose(phys, now);
        if engaged && phys != PhysState::Polling {
            // The peer knows this training by its old number.
            self.number = number;
            self.say(Kind::Down, false, now, false);
        }
        outcome
    }

    /// The link has had too many errors: train again, state and credits kept.
    pub(crate) fn recover(&mut self, now: Time) -> Option<Outcome> {
        if !self.is_up() {
            return None;
        }
        self.renumber();
        self.phys = PhysState::Recovery;
        self.retry = RETRY;
        self.give_up_at = Some(now + RECOVERY_LIMIT);
        self.say(Kind::Ts1, false, now, true);
        Some(Outcome::Recovering)
    }

    /// Repeats what may have got lost; gives a recovery up.
    pub(crate) fn on_time(&mut self, now: Time) -> Option<Outcome> {
        if self.give_up_at.is_some_and(|t| now >= t) {
            return self.lose(self.down_default, now);
        }
        if self.retry_at.is_some_and(|t| now >= t) {
            self.retry = (self.retry * 2).min(RETRY_MOST);
            let kind = if self.peer != 0 && self.phys != PhysState::Polling {
                Kind::Ts2
            } else {
                Kind::Ts1
            };
            self.say(kind, false, now, true);
        }
        None
    }

    /// A sequence has arrived. Up to two things may happen: the old link is lost, a new one is up.
    pub(crate) fn on_sequence(&mut self, s: Sequence, now: Time) -> [Option<Outcome>; 2] {
        use PhysState::{Disabled, LinkUp, Polling, Recovery, Sleep, Training};
        let mut lost = None;
        if s.number == 0 || self.phys == Disabled {
            return [None; 2];
        }
        match s.kind {
            Kind::Down => {
                if s.number == self.peer && (self.had_link() || self.phys == Training) {
                    let next = if self.had_link() {
                        self.down_default
                    } else {
                        Polling
                    };
                    lost = self.lose(next, now);
                }
                [lost, None]
            }
            Kind::Ts1 => {
                match self.phys {
                    Sleep => self.restart(Polling, now),
                    // A late copy of the training that made this link.
                    LinkUp if s.number == self.peer => return [None; 2],
                    LinkUp if s.recovery => {
                        lost = self.recover(now);
                    }
                    LinkUp => lost = self.lose(Polling, now),
                    Recovery if !s.recovery => lost = self.lose(Polling, now),
                    _ => {}
                }
                self.peer = s.number;
                if matches!(self.phys, Polling | Training) {
                    if !self.agree(&s) {
                        return [lost, self.no_rate(&s, now)];
                    }
                    self.phys = Training;
                    self.retry = RETRY;
                }
                self.say(Kind::Ts2, false, now, true);
                [lost, None]
            }
            Kind::Ts2 => {
                if s.echo != self.number || self.phys == Sleep {
                    return [None; 2];
                }
                let was = self.phys;
                match was {
                    LinkUp => {
                        if s.number == self.peer && !s.ready {
                            self.say(Kind::Ts2, true, now, false);
                        }
                        return [None; 2];
                    }
                    Recovery if !s.recovery && !s.ready => {
                        return [self.lose(Polling, now), None];
                    }
                    Recovery => {}
                    _ => {
                        if !self.agree(&s) {
                            self.peer = s.number;
                            return [None, self.no_rate(&s, now)];
                        }
                    }
                }
                self.peer = s.number;
                self.phys = LinkUp;
                self.retry = RETRY;
                self.retry_at = None;
                self.give_up_at = None;
                self.out = None;
                if !s.ready {
                    self.say(Kind::Ts2, true, now, false);
                }
                let outcome = if was == Recovery {
                    Outcome::Recovered
                } else {
                    Outcome::Up
                };
                [None, Some(outcome)]
            }
        }
    }

    /// Chooses the greatest width and speed that both have enabled.
    fn agree(&mut self, s: &Sequence) -> bool {
        self.width_active = self.widths.and(s.widths).greatest();
        self.speed_active = self.speeds.and(s.speeds).greatest();
        self.width_active != Widths::NONE && self.speed_active != Speeds::NONE
    }

    fn no_rate(&mut self, s: &Sequence, now: Time) -> Option<Outcome> {
        if self.phys != PhysState::Polling {
            self.restart(PhysState::Polling, now);
            self.out = None;
        }
        // No answer at once, and the distance of repetition goes on growing: both ends would answer
        // each other for ever.
        self.peer = 0;
        self.width_active = Widths::NONE;
        self.speed_active = Speeds::NONE;
        let theirs = (s.widths, s.speeds);
        let new = self.told_no_rate != Some(theirs);
        self.told_no_rate = Some(theirs);
        new.then_some(Outcome::NoCommonRate(s.widths, s.speeds))
    }
}

#[cfg(test)]
mod tests;
