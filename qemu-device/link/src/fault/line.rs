// SPDX-License-Identifier: GPL-2.0-or-later
//! Packets between a port and its cable while there are rules: those that wait, in both directions.

use std::collections::VecDeque;

use ochre_wire::Vl;

use crate::cable::{Cable, CableError, Frame};
use crate::capture::{Content, Direction as Way, Tap};
use crate::credit;
use crate::time::Time;

use super::engine::{Engine, Fate, Room};
use super::packet::View;
use super::rule::Direction;

/// Most packets that wait in one direction. Credits keep data lanes far below; what comes beyond passes
/// without waiting.
const WAITING_MOST: usize = 8192;
/// Buffers kept for packets to come.
const SPARE_MOST: usize = 64;

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    due: Time,
    /// How many packets of its flow it lets go first; it is due when they have gone, if that is earlier.
    behind: u16,
    /// Destination QP: the flow.
    qpn: Option<u32>,
    frame: Frame,
    bytes: Vec<u8>,
    /// Lane by which its sender counted it, and blocks.
    charge: (Vl, u16),
    /// A copy that the peer did not send.
    copy: bool,
}

/// The packets that wait in one direction.
#[derive(Debug, Default)]
struct Queue {
    /// By time; those of one time in the order in which they came.
    packets: VecDeque<Waiting>,
    /// Blocks of each lane in them.
    blocks: [u16; 16],
    spare: Vec<Vec<u8>>,
}

impl Queue {
    fn push(&mut self, packet: Waiting) {
        if !packet.copy {
            let blocks = &mut self.blocks[packet.charge.0.index() & 15];
            *blocks = blocks.wrapping_add(packet.charge.1);
        }
        let at = self.packets.partition_point(|p| p.due <= packet.due);
        self.packets.insert(at, packet);
    }

    /// The first packet, if it is due.
    fn pop(&mut self, now: Time) -> Option<Waiting> {
        if !self.is_due(now) {
            return None;
        }
        let packet = self.packets.pop_front()?;
        if !packet.copy {
            let blocks = &mut self.blocks[packet.charge.0.index() & 15];
            *blocks = blocks.wrapping_sub(packet.charge.1);
        }
        Some(packet)
    }

    fn is_due(&self, now: Time) -> bool {
        self.packets.front().is_some_and(|p| p.due <= now)
    }

    /// A packet of a flow has gone: those that wait for that come nearer.
    fn passed(&mut self, qpn: Option<u32>, now: Time) {
        let mut at = 0;
        while let Some(p) = self.packets.get_mut(at) {
            if p.behind != 0 && p.qpn == qpn {
                p.behind -= 1;
                if p.behind == 0 && p.due > now {
                    p.due = now;
                    if let Some(packet) = self.packets.remove(at) {
                        let to = self.packets.partition_point(|p| p.due <= now);
                        self.packets.insert(to, packet);
                    }
                }
            }
            at += 1;
        }
    }

    /// Whether a packet of the flow waits for others to go first.
    fn is_overtaken(&self, qpn: Option<u32>) -> bool {
        self.packets.iter().any(|p| p.behind != 0 && p.qpn == qpn)
    }

    fn release_all(&mut self, now: Time) {
        for p in &mut self.packets {
            p.behind = 0;
            p.due = p.due.min(now);
        }
    }

    fn clear(&mut self) {
        self.packets.clear();
        self.blocks = [0; 16];
    }

    fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MOST {
            self.spare.push(buffer);
        }
    }
}

/// What the port has to make good in its account of a lane's credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A packet of so many blocks was sent by the peer, and will not be received.
    Lost(Vl, u16),
    /// A packet of so many blocks will be received that the peer did not send.
    Extra(Vl, u16),
}

/// A port's rules at work on its cable.
#[derive(Debug, Default)]
pub(super) struct Line {
    engine: Engine,
    tx: Queue,
    rx: Queue,
    /// The received packet that is next, if it is not on the cable.
    front: Option<Waiting>,
    /// The rules have seen the packet that is next on the cable.
    judged: bool,
    notes: Vec<Note>,
    /// Until when a lane gets no flow control packets.
    held: [Time; 15],
}

impl Line {
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Other rules. What waits for the former ones goes on at once.
    pub(super) fn set_engine(&mut self, engine: Engine, now: Time) {
        self.engine = engine;
        self.tx.release_all(now);
        self.rx.release_all(now);
        self.held = [Time::ZERO; 15];
    }

    /// No rules, and nothing that former ones left.
    pub(super) fn is_idle(&self) -> bool {
        self.engine.is_empty()
            && self.tx.packets.is_empty()
            && self.rx.packets.is_empty()
            && self.front.is_none()
            && self.notes.is_empty()
    }

    /// The link is down: what waits is lost.
    pub(super) fn clear(&mut self) {
        self.tx.clear();
        self.rx.clear();
        self.notes.clear();
        self.judged = false;
    }

    pub(super) fn next_deadline(&self, now: Time) -> Option<Time> {
        let first = |q: &Queue| q.packets.iter().map(|p| p.due).find(|t| *t > now);
        let held = self.held.iter().copied().filter(|t| *t > now).min();
        Time::earliest(Time::earliest(first(&self.tx), first(&self.rx)), held)
    }

    /// Something is there for [`Line::rx_next`] that is not on the cable.
    pub(super) fn has_received(&self, now: Time) -> bool {
        self.front.is_some() || self.rx.is_due(now)
    }

    /// Lanes (bits) that get no flow control packets now.
    pub(super) fn held_lanes(&self, now: Time) -> u16 {
        let mut lanes = 0;
        for (n, until) in self.held.iter().enumerate() {
            lanes |= u16::from(*until > now) << n;
        }
        lanes
    }

    fn hold(&mut self, vl: u8, fate: &Fate, now: Time) {
        if fate.hold.is_zero() {
            return;
        }
        if let Some(until) = self.held.get_mut(usize::from(vl)) {
            *until = (*until).max(now + fate.hold);
        }
    }

    /// Blocks of a lane that the port has sent and the cable has not seen yet.
    pub(super) fn tx_blocks(&self, vl: Vl) -> u16 {
        self.tx.blocks[vl.index() & 15]
    }

    /// Blocks of a lane that the peer has sent and the port has not seen yet.
    pub(super) fn rx_blocks(&self, vl: Vl) -> u16 {
        self.rx.blocks[vl.index() & 15]
    }

    pub(super) fn take_note(&mut self) -> Option<Note> {
        self.notes.pop()
    }

    /// Before a slot is reserved for a packet. `false`: a packet that is due finds no space, and the
    /// new one must not overtake it.
    pub(super) fn may_reserve<C: Cable>(
        &mut self,
        cable: &mut C,
        tap: Option<&Tap>,
        now: Time,
    ) -> bool {
        self.pump(cable, tap, now);
        !self.tx.is_due(now)
    }

    /// Sends the packet in the reserved slot as the rules have it. `spare` are the credits that remain
    /// after it. Gives how many times its credits are used: 0 if it is lost.
    pub(super) fn send<C: Cable>(
        &mut self,
        cable: &mut C,
        tap: Option<&Tap>,
        now: Time,
        spare: u16,
    ) -> u16 {
        let slot = cable.tx_slot();
        let view = View::read(slot).filter(|v| self.engine.looks_at(Direction::Tx, v));
        let Some(view) = view else {
            let qpn = qpn_of(slot);
            put(cable, tap, now);
            self.after(qpn, cable, tap, now);
            return 1;
        };
        let qpn = view.transport.map(|t| t.qpn);
        let blocks = credit::blocks(slot.len()).max(1);
        let wait = self.tx.packets.len() < WAITING_MOST;
        let room = Room {
            copies: if wait { spare / blocks } else { 0 },
            wait,
            overtakes: self.tx.is_overtaken(qpn),
        };
        let fate = self.engine.act(Direction::Tx, slot, room);
        self.hold(view.vl, &fate, now);
        if fate.lost {
            return 0;
        }
        let first = now + fate.delay;
        let waits = fate.behind != 0 || first > now;
        let times = fate.copies + u16::from(waits);
        let slot = cable.tx_slot();
        for n in 0..times {
            let copy = n != 0 || !waits;
            let bytes = self.tx.buffer(slot);
            self.tx.push(Waiting {
                due: match (copy, fate.behind) {
                    (true, _) => first + fate.after,
                    (false, 0) => first,
                    (false, _) => first + fate.within,
                },
                behind: if copy { 0 } else { fate.behind },
                qpn,
                frame: Frame::Data,
                bytes,
                charge: (Vl::new(view.vl), blocks),
                // The port counts copies that it sends as its own packets.
                copy: false,
            });
        }
        if waits {
            self.pump(cable, tap, now);
        } else {
            put(cable, tap, now);
            self.after(qpn, cable, tap, now);
        }
        1 + fate.copies
    }

    /// A packet of a flow was sent: sends what has waited for that.
    fn after<C: Cable>(&mut self, qpn: Option<u32>, cable: &mut C, tap: Option<&Tap>, now: Time) {
        if !self.tx.packets.is_empty() {
            self.tx.passed(qpn, now);
            self.pump(cable, tap, now);
        }
    }

    /// Sends packets that are due; gives whether it did. No slot may be reserved and in use.
    pub(super) fn pump<C: Cable>(&mut self, cable: &mut C, tap: Option<&Tap>, now: Time) -> bool {
        let mut any = false;
        while let Some(p) = self.tx.packets.front().filter(|p| p.due <= now) {
            match cable.tx_reserve(p.frame, p.bytes.len()) {
                Ok(slot) => {
                    slot.copy_from_slice(&p.bytes);
                    put(cable, tap, now);
                    any = true;
                }
                Err(CableError::Full) => break,
                // It is lost.
                Err(CableError::Down | CableError::Length(_)) => {}
            }
            if let Some(p) = self.tx.pop(now) {
                self.tx.recycle(p.bytes);
            }
        }
        any
    }

    /// The frame that is next for the port, past the rules.
    pub(super) fn rx_next<C: Cable>(&mut self, cable: &mut C, now: Time) -> Option<(Frame, usize)> {
        loop {
            if let Some(p) = &self.front {
                return Some((p.frame, p.bytes.len()));
            }
            if self.judged {
                return cable.rx_next();
            }
            if let Some(p) = self.rx.pop(now) {
                if p.copy {
                    self.notes.push(Note::Extra(p.charge.0, p.charge.1));
                }
                self.front = Some(p);
                continue;
            }
            let (frame, len) = cable.rx_next()?;
            if !matches!(frame, Frame::Data | Frame::BadData) {
                return Some((frame, len));
            }
            let bytes = cable.rx_bytes();
            let view = View::read(bytes);
            match view.filter(|v| self.engine.looks_at(Direction::Rx, v)) {
                Some(view) => {
                    let buffer = self.rx.buffer(bytes);
                    cable.rx_release();
                    self.receive(frame, buffer, view, now);
                }
                None => {
                    self.rx
                        .passed(view.and_then(|v| Some(v.transport?.qpn)), now);
                    self.judged = true;
                }
            }
        }
    }

    /// Takes in a packet that rules look at.
    fn receive(&mut self, frame: Frame, mut bytes: Vec<u8>, view: View, now: Time) {
        let qpn = view.transport.map(|t| t.qpn);
        let charge = (Vl::new(view.vl), credit::blocks(bytes.len()));
        let wait = self.rx.packets.len() < WAITING_MOST;
        let room = Room {
            copies: if wait { u16::MAX } else { 0 },
            wait,
            overtakes: self.rx.is_overtaken(qpn),
        };
        let fate = self.engine.act(Direction::Rx, &mut bytes, room);
        self.hold(view.vl, &fate, now);
        if fate.lost {
            self.notes.push(Note::Lost(charge.0, charge.1));
            self.rx.recycle(bytes);
            return;
        }
        let first = now + fate.delay;
        for _ in 0..fate.copies {
            let bytes = self.rx.buffer(&bytes);
            self.rx.push(Waiting {
                due: first + fate.after,
                behind: 0,
                qpn,
                frame,
                bytes,
                charge,
                copy: true,
            });
        }
        let packet = Waiting {
            due: if fate.behind == 0 {
                first
            } else {
                first + fate.within
            },
            behind: fate.behind,
            qpn,
            frame,
            bytes,
            charge,
            copy: false,
        };
        if packet.behind == 0 && packet.due <= now {
            self.rx.passed(qpn, now);
            self.front = Some(packet);
        } else {
            self.rx.push(packet);
        }
    }

    pub(super) fn rx_bytes<'a, C: Cable>(&'a self, cable: &'a C) -> &'a [u8] {
        match &self.front {
            Some(p) => &p.bytes,
            None => cable.rx_bytes(),
        }
    }

    pub(super) fn rx_release<C: Cable>(&mut self, cable: &mut C) {
        match self.front.take() {
            Some(p) => self.rx.recycle(p.bytes),
            None => {
                self.judged = false;
                cable.rx_release();
            }
        }
    }
}

/// Sends the packet in the reserved slot as it is.
fn put<C: Cable>(cable: &mut C, tap: Option<&Tap>, now: Time) {
    if let Some(tap) = tap {
        tap.record(now, Content::Data, Way::Sent, cable.tx_slot());
    }
    cable.tx_commit();
}

fn qpn_of(bytes: &[u8]) -> Option<u32> {
    Some(View::read(bytes)?.transport?.qpn)
}
