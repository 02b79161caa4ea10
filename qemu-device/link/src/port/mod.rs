// SPDX-License-Identifier: GPL-2.0-or-later
//! The link layer of one port.

mod check;
mod config;
mod flow;
mod manage;
mod rx;
mod tx;

#[cfg(test)]
mod tests;

pub use config::{PortConfig, PortEvent, Role, RxPacket, Seal, TxStall};

use std::collections::VecDeque;

use ochre_wire::{FlowControl, Lid, Mtu, Vl};

use crate::arbiter::VlArbitration;
use crate::cable::{Cable, Frame, Presence, Wake};
use crate::capture::{Content, Direction};
use crate::counters::Counters;
use crate::drain::Drain;
use crate::fault::Wire;
use crate::ring::Ring;
use crate::state::{PhysState, PortState};
use crate::time::Time;
use crate::training::{Outcome, Sequence, Trainer};

use flow::{Flow, Stalls};

/// Events kept for an owner that does not ask for them.
const EVENTS_MOST: usize = 64;
/// Default of LocalPhyErrors and OverrunErrors.
const THRESHOLD: u8 = 8;

/// One port on a cable. See the crate's documentation for a round of use.
///
/// All methods use the time of the last [`Port::poll`].
pub struct Port<C: Cable> {
    config: PortConfig,
    wire: Wire<C>,
    now: Time,
    counters: Counters,
    events: VecDeque<PortEvent>,
    arbitration: VlArbitration,

    trainer: Trainer,
    seen: Presence,
    phys_told: PhysState,
    state: PortState,

    lid: Lid,
    lmc: u8,
    mtu: Mtu,
    operational: u8,
    sl2vl: [Vl; 16],
    local_phy_threshold: u8,
    overrun_threshold: u8,
    phy_errors: u32,

    flow: Flow,
    stalls: Stalls,
    open: Option<tx::Open>,
    loopback: [Ring; 2],

    current: Option<rx::Current>,
    rx_lanes: u16,
    drain: Option<Drain>,
    held: [Ring; 16],
    held_lanes: u16,
    held_vl15: usize,
    loopback_turn: bool,
}

impl<C: Cable> Port<C> {
    /// A port that is Down and Polling. Values of `config` out of range are brought into range.
    pub fn new(mut config: PortConfig, cable: C) -> Self {
        config.vl_buffer = config.vl_buffer.clamp(8 << 10, 128 << 10);
        config.data_vls = manage::lanes_at_most(config.data_vls, 15);
        config.loopback_buffer = config.loopback_buffer.clamp(32 << 10, 64 << 20);
        let trainer = Trainer::new(config.widths, config.speeds, config.seed);
        Port {
            wire: Wire::new(cable),
            now: Time::ZERO,
            counters: Counters::default(),
            events: VecDeque::new(),
            arbitration: VlArbitration::default(),
            phys_told: trainer.phys(),
            trainer,
            seen: Presence::default(),
            state: PortState::Down,
            lid: Lid::RESERVED,
            lmc: 0,
            mtu: Mtu::Mtu256.min(config.mtu_cap),
            operational: 1,
            sl2vl: [Vl::VL0; 16],
            local_phy_threshold: THRESHOLD,
            overrun_threshold: THRESHOLD,
            phy_errors: 0,
            flow: Flow::new(config.vl_buffer, config.fc_refresh, config.fc_watchdog),
            stalls: Stalls::default(),
            open: None,
            loopback: [Ring::new(config.loopback_buffer), Ring::new(32 << 10)],
            current: None,
            rx_lanes: u16::MAX,
            drain: None,
            held: core::array::from_fn(|_| Ring::new(2 * config.vl_buffer + (16 << 10))),
            held_lanes: 0,
            held_vl15: 0,
            loopback_turn: false,
            config,
        }
    }

    /// Does what is due at `now`: the cable's connection, training, link packets, timers. Cheap when
    /// nothing is due; to be called on every wake-up and doorbell before anything else.
    pub fn poll(&mut self, now: Time) {
        self.now = self.now.max(now);
        let now = self.now;
        self.wire.poll(now);
        self.look_at_presence();
        if self.trainer.next_deadline().is_some_and(|t| now >= t) {
            let o = self.trainer.on_time(now);
            self.link_outcome(o);
        }
        self.take_link_frames();
        if self.trainer.is_up() && self.flow.next_deadline().is_some_and(|t| now >= t) {
            let silent = self.flow.on_time(now, self.operational);
            if silent {
                self.recover();
            }
        }
        if self.stalls.any() {
            self.flow.due |= self.stalls.on_time(now);
            if self.stalls.wait_for_space() && self.has_space() {
                self.stalls.space_found(now, &mut self.counters);
            }
        }
        self.counters.symbol_errors += u64::from(self.wire.take_symbol_errors());
        let sent = self.send_delayed();
        if self.send_link_frames() || sent {
            self.wire.flush();
        }
    }

    /// When [`Port::poll`] has to be called even if nothing arrives.
    pub fn next_deadline(&self) -> Option<Time> {
        let mut t = Time::earliest(self.wire.next_deadline(), self.trainer.next_deadline());
        if self.trainer.is_up() {
            t = Time::earliest(t, self.flow.next_deadline());
        }
        t = Time::earliest(t, self.stalls.next_deadline());
        if let Some(drain) = &self.drain {
            let waits = self.held_lanes & self.rx_lanes & !(1 << 15) != 0
                || !self.loopback[tx::LOOPBACK_DATA].is_empty();
            if waits {
                t = Time::earliest(t, Some(drain.opens_at()));
            }
        }
        t
    }

    /// The oldest event not yet taken; of more than 64 the oldest are lost.
    pub fn poll_event(&mut self) -> Option<PortEvent> {
        self.events.pop_front()
    }

    /// Publishes what was sent and released, and wakes the peer if it sleeps. Once per batch.
    pub fn flush(&mut self) {
        self.send_link_frames();
        self.wire.flush();
    }

    /// Before sleeping: `false` if there is something to do (poll and receive again), else the cable
    /// will wake this end. Flushes first, the capture too.
    pub fn arm(&mut self) -> bool {
        self.send_link_frames();
        let wake = if self.stalls.any() {
            Wake::All
        } else {
            Wake::Packets
        };
        let idle = self.wire.arm(wake);
        idle && !self.work_inside()
    }

    /// Takes the request of [`Port::arm`] back: the cable need not wake this end, which polls.
    pub fn disarm(&mut self) {
        self.wire.disarm();
    }

    fn event(&mut self, event: PortEvent) {
        if self.events.len() == EVENTS_MOST {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn look_at_presence(&mut self) {
        let presence = self.wire.presence();
        if presence == self.seen {
            return;
        }
        let (was, is) = (self.seen.up, presence.up);
        self.seen = presence;
        if was {
            let o = self.trainer.presence(false, self.now);
            self.link_outcome(o);
        }
        if is {
            let o = self.trainer.presence(true, self.now);
            self.link_outcome(o);
        }
    }

    /// Follows what training did, and tells the owner about physical states.
    fn link_outcome(&mut self, outcome: Option<Outcome>) {
        match outcome {
            Some(Outcome::Up) => {
                self.flow.reset(Some(self.now), self.operational);
                self.phy_errors = 0;
                self.tell_phys();
                self.enter(PortState::Initialize);
            }
            Some(Outcome::Lost) => {
                self.counters.link_downed += 1;
                self.link_lost();
            }
            Some(Outcome::Recovered) => {
                self.counters.link_error_recovery += 1;
                self.phy_errors = 0;
                self.flow.all_due(self.operational);
            }
            Some(Outcome::NoCommonRate(peer_widths, peer_speeds)) => {
                self.event(PortEvent::NoCommonRate {
                    peer_widths,
                    peer_speeds,
                });
            }
            Some(Outcome::Recovering) | None => {}
        }
        self.tell_phys();
    }

    fn link_lost(&mut self) {
        self.flow.reset(None, 0);
        self.wire.clear();
        self.stalls.clear(self.now, &mut self.counters);
        self.open = None;
        self.current = None;
        self.loopback.iter_mut().for_each(Ring::clear);
        self.held.iter_mut().for_each(Ring::clear);
        self.held_lanes = 0;
        self.held_vl15 = 0;
        self.tell_phys();
        self.enter(PortState::Down);
    }

    fn tell_phys(&mut self) {
        let (from, to) = (self.phys_told, self.trainer.phys());
        if from != to {
            self.phys_told = to;
            self.event(PortEvent::Phys { from, to });
        }
    }

    fn enter(&mut self, to: PortState) {
        let from = self.state;
        if from != to {
            self.state = to;
            if self.trainer.is_up() {
                self.flow.all_due(self.operational);
            }
            self.event(PortEvent::State { from, to });
        }
    }

    fn recover(&mut self) {
        let o = self.trainer.recover(self.now);
        self.link_outcome(o);
    }

    /// A damaged packet; too many of them make the link recover.
    fn phy_error(&mut self) {
        self.phy_errors += 1;
        if self.phy_errors > u32::from(self.local_phy_threshold) {
            self.phy_errors = 0;
            self.counters.local_link_integrity_errors += 1;
            self.recover();
        }
    }

    /// Sends packets that rules have delayed and that are due; gives whether there were any.
    fn send_delayed(&mut self) -> bool {
        self.open.is_none()
            && self.trainer.is_up()
            && self.trainer.phys() != PhysState::Recovery
            && self.wire.pump()
    }

    /// The frame that is next, past the rules for wire faults.
    fn next_frame(&mut self) -> Option<(Frame, usize)> {
        let next = self.wire.rx_next();
        while let Some(note) = self.wire.take_note() {
            self.flow.take_note(note);
        }
        next
    }

    /// Takes in training sequences and link packets that are next on the cable.
    fn take_link_frames(&mut self) {
        while !self.current_on_cable() {
            match self.next_frame() {
                Some((frame @ (Frame::Training | Frame::Link), _)) => self.take_link_frame(frame),
                _ => break,
            }
        }
    }

    /// Takes in the training sequence or link packet that is next on the cable.
    fn take_link_frame(&mut self, frame: Frame) {
        let bytes = self.wire.rx_bytes();
        if frame == Frame::Training {
            let sequence = Sequence::read(bytes);
            self.wire.rx_release();
            match sequence {
                Some(s) => {
                    for o in self.trainer.on_sequence(s, self.now).into_iter().flatten() {
                        self.link_outcome(Some(o));
                    }
                    self.tell_phys();
                }
                None => self.counters.symbol_errors += 1,
            }
            return;
        }
        self.wire.record_next(Content::Link);
        let packet: Option<&[u8; FlowControl::LEN]> = bytes.try_into().ok();
        let crc = self.config.crc;
        let fc = packet.and_then(|p| {
            if crc {
                FlowControl::read(p)
            } else {
                Some(FlowControl::read_unchecked(p))
            }
        });
        self.wire.rx_release();
        if !self.trainer.is_up() {
            return;
        }
        let Some(mut fc) = fc else {
            self.counters.rcv_errors += 1;
            self.phy_error();
            return;
        };
        // What rules have delayed is still to arrive.
        fc.fctbs = fc.fctbs.wrapping_sub(self.wire.rx_blocks(fc.vl));
        let most = flow::most_blocks(self.mtu);
        if !self.flow.receive(&fc, most, self.now) {
            self.counters.rcv_errors += 1;
            return;
        }
        self.counters.fc_received += 1;
        if let Some(tx) = self.flow.tx.get(fc.vl.index()) {
            self.stalls
                .credits_changed(fc.vl, tx, self.now, &mut self.counters);
        }
    }

    /// Queues the training sequences and link packets that are due; those that find no space stay
    /// due. Returns whether anything was queued.
    fn send_link_frames(&mut self) -> bool {
        let mut any = false;
        if self.open.is_some() {
            // A packet is being written; its slot must not be given up.
            return false;
        }
        while let Some(s) = self.trainer.to_send() {
            let Ok(slot) = self
                .wire
                .cable_mut()
                .tx_reserve(Frame::Training, Sequence::LEN)
            else {
                return any;
            };
            slot.copy_from_slice(&s.to_bytes());
            self.wire.cable_mut().tx_commit();
            self.trainer.sent();
            any = true;
        }
        let due = self.flow.due & !self.wire.held_lanes();
        if due == 0 || !self.trainer.is_up() {
            return any;
        }
        for vl in (0..flow::LANES as u8).map(Vl::new) {
            if due & 1 << vl.get() == 0 {
                continue;
            }
            // What rules have delayed is not sent yet.
            let waiting = self.wire.tx_blocks(vl);
            let Ok(slot) = self
                .wire
                .cable_mut()
                .tx_reserve(Frame::Link, FlowControl::LEN)
            else {
                return any;
            };
            self.flow.due &= !(1 << vl.get());
            let init = self.state == PortState::Initialize;
            let threshold = self.overrun_threshold;
            let fc = self.flow.make(vl, init, threshold, &mut self.counters);
            if let (Some(mut fc), Some(out)) = (fc, slot.first_chunk_mut()) {
                fc.fctbs = fc.fctbs.wrapping_sub(waiting);
                fc.write(out);
                let packet = *out;
                self.wire.record(Content::Link, Direction::Sent, &packet);
                self.wire.cable_mut().tx_commit();
                any = true;
            }
        }
        any
    }
}
