// SPDX-License-Identifier: GPL-2.0-or-later
//! A port's cable with the capture and the rules before it. Without rules each call goes straight on.

use ochre_wire::Vl;

use crate::cable::{Cable, CableError, Frame, Presence, Wake, MAX_FRAME};
use crate::capture::{Content, Direction, Tap};
use crate::time::Time;

use super::engine::{Engine, Report};
use super::line::{Line, Note};
use super::rule::RuleSet;

/// A cable, and what a port has on it.
pub(crate) struct Wire<C> {
    cable: C,
    tap: Option<Tap>,
    now: Time,
    /// None: no rules, and nothing that waits.
    line: Option<Box<Line>>,
}

impl<C: Cable> Wire<C> {
    pub(crate) fn new(cable: C) -> Self {
        Wire {
            cable,
            tap: None,
            now: Time::ZERO,
            line: None,
        }
    }

    pub(crate) fn cable(&self) -> &C {
        &self.cable
    }

    pub(crate) fn cable_mut(&mut self) -> &mut C {
        &mut self.cable
    }

    /// Other rules, counted anew. What waits for former ones goes on at the next poll.
    pub(crate) fn set_rules(&mut self, set: RuleSet, crc: bool) {
        if set.rules.is_empty() && self.line.is_none() {
            return;
        }
        let line = self.line.get_or_insert_default();
        line.set_engine(Engine::new(set, crc), self.now);
    }

    pub(crate) fn report(&self) -> Report {
        match &self.line {
            Some(line) => line.engine().report(),
            None => Engine::default().report(),
        }
    }

    pub(crate) fn set_tap(&mut self, tap: Option<Tap>) {
        if let Some(old) = &self.tap {
            old.capture.flush();
        }
        self.tap = tap;
    }

    /// Captures a packet that does not go through [`Wire::commit`].
    #[inline]
    pub(crate) fn record(&self, content: Content, direction: Direction, bytes: &[u8]) {
        if let Some(tap) = &self.tap {
            tap.record(self.now, content, direction, bytes);
        }
    }

    /// Captures the packet that is next.
    #[inline]
    pub(crate) fn record_next(&self, content: Content) {
        if self.tap.is_some() {
            self.record(content, Direction::Received, self.rx_bytes());
        }
    }

    pub(crate) fn poll(&mut self, now: Time) {
        self.now = now;
        self.cable.poll(now);
        if self.line.as_ref().is_some_and(|line| line.is_idle()) {
            self.line = None;
        }
    }

    /// Sends packets that rules have delayed and that are due; gives whether there were any. No slot
    /// may be reserved and in use.
    pub(crate) fn pump(&mut self) -> bool {
        match &mut self.line {
            Some(line) => line.pump(&mut self.cable, self.tap.as_ref(), self.now),
            None => false,
        }
    }

    /// The link is down: what waits is lost.
    pub(crate) fn clear(&mut self) {
        if let Some(line) = &mut self.line {
            line.clear();
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let line = self.line.as_ref().and_then(|l| l.next_deadline(self.now));
        Time::earliest(self.cable.next_deadline(), line)
    }

    pub(crate) fn presence(&self) -> Presence {
        self.cable.presence()
    }

    pub(crate) fn take_symbol_errors(&mut self) -> u32 {
        self.cable.take_symbol_errors()
    }

    /// Lanes (bits) whose flow control packets the rules hold back.
    #[inline]
    pub(crate) fn held_lanes(&self) -> u16 {
        self.line.as_ref().map_or(0, |l| l.held_lanes(self.now))
    }

    /// Blocks of a lane that the port has sent and the cable has not seen yet.
    #[inline]
    pub(crate) fn tx_blocks(&self, vl: Vl) -> u16 {
        self.line.as_ref().map_or(0, |l| l.tx_blocks(vl))
    }

    /// Blocks of a lane that the peer has sent and the port has not seen yet.
    #[inline]
    pub(crate) fn rx_blocks(&self, vl: Vl) -> u16 {
        self.line.as_ref().map_or(0, |l| l.rx_blocks(vl))
    }

    /// What the port has to make good in its credits; to be asked after each [`Wire::rx_next`].
    #[inline]
    pub(crate) fn take_note(&mut self) -> Option<Note> {
        self.line.as_mut().and_then(|l| l.take_note())
    }

    /// As [`Cable::tx_reserve`] for a data packet.
    #[inline]
    pub(crate) fn tx_reserve(&mut self, bytes: usize) -> Result<&mut [u8], CableError> {
        if let Some(line) = &mut self.line {
            if !line.may_reserve(&mut self.cable, self.tap.as_ref(), self.now) {
                return Err(CableError::Full);
            }
        }
        self.cable.tx_reserve(Frame::Data, bytes)
    }

    /// Whether the cable has space for any packet. No slot may be reserved and in use.
    pub(crate) fn has_space(&mut self) -> bool {
        self.tx_reserve(MAX_FRAME) != Err(CableError::Full)
    }

    /// As [`Cable::tx_slot`].
    #[inline]
    pub(crate) fn tx_slot(&mut self) -> &mut [u8] {
        self.cable.tx_slot()
    }

    /// Sends the packet in the reserved slot. `spare` are the credits that remain after it. Gives how
    /// many times the port is to count its credits as used: once, if there are no rules.
    #[inline]
    pub(crate) fn commit(&mut self, spare: u16) -> u16 {
        if let Some(line) = &mut self.line {
            return line.send(&mut self.cable, self.tap.as_ref(), self.now, spare);
        }
        if let Some(tap) = &self.tap {
            tap.record(
                self.now,
                Content::Data,
                Direction::Sent,
                self.cable.tx_slot(),
            );
        }
        self.cable.tx_commit();
        1
    }

    /// As [`Cable::rx_next`], past the rules.
    #[inline]
    pub(crate) fn rx_next(&mut self) -> Option<(Frame, usize)> {
        match &mut self.line {
            Some(line) => line.rx_next(&mut self.cable, self.now),
            None => self.cable.rx_next(),
        }
    }

    /// As [`Cable::rx_bytes`].
    #[inline]
    pub(crate) fn rx_bytes(&self) -> &[u8] {
        match &self.line {
            Some(line) => line.rx_bytes(&self.cable),
            None => self.cable.rx_bytes(),
        }
    }

    /// As [`Cable::rx_release`].
    #[inline]
    pub(crate) fn rx_release(&mut self) {
        match &mut self.line {
            Some(line) => line.rx_release(&mut self.cable),
            None => self.cable.rx_release(),
        }
    }

    /// As [`Cable::flush`].
    pub(crate) fn flush(&mut self) {
        self.cable.flush();
    }

    /// As [`Cable::arm`]; the capture is flushed too.
    pub(crate) fn arm(&mut self, wake: Wake) -> bool {
        if let Some(tap) = &self.tap {
            tap.capture.flush_if_old(self.now);
        }
        let idle = self.cable.arm(wake);
        idle && !self.line.as_ref().is_some_and(|l| l.has_received(self.now))
    }

    /// As [`Cable::disarm`].
    pub(crate) fn disarm(&mut self) {
        self.cable.disarm();
    }
}
