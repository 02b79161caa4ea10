// SPDX-License-Identifier: GPL-2.0-or-later
//! Receiving: checks, receive buffers, the drain limit.

use ochre_wire::{check_crcs, CrcCheck, Lrh, Vl};

use crate::cable::{Cable, Frame};
use crate::capture::{Content, Direction};
use crate::credit;
use crate::drain::Drain;
use crate::state::PortState;

use super::check::{self, Meta, Reject, Rules};
use super::tx::{words, LOOPBACK_DATA, LOOPBACK_VL15};
use super::{Port, RxPacket};

/// Where the current packet lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Cable,
    Loopback(usize),
    Held,
}

/// The packet that the owner works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    place: Place,
    packet: RxPacket,
}

const VL15_BIT: u16 = 1 << 15;

impl<C: Cable> Port<C> {
    /// The next packet that has passed all checks of the link layer, if there is one. It stays
    /// current, and every call returns it again, until [`Port::rx_done`]; sending in between is fine.
    pub fn rx(&mut self) -> Option<RxPacket> {
        if let Some(current) = &self.current {
            return Some(current.packet);
        }
        if let Some(drain) = &mut self.drain {
            drain.advance(self.now);
        }
        if self.held_lanes & self.rx_lanes != 0 {
            if let Some(c) = self.next_held() {
                return self.present(c);
            }
        }
        self.loopback_turn = !self.loopback_turn;
        let first = if self.loopback_turn {
            self.next_loopback()
        } else {
            None
        };
        let next = match first {
            Some(c) => Some(c),
            None => match self.next_on_cable() {
                Some(c) => Some(c),
                None if !self.loopback_turn => self.next_loopback(),
                None => None,
            },
        };
        next.and_then(|c| self.present(c))
    }

    fn present(&mut self, c: Current) -> Option<RxPacket> {
        self.current = Some(c);
        Some(c.packet)
    }

    /// The bytes of the current packet, LRH to VCRC; empty if there is none. They may lie in memory
    /// that a misbehaving peer still writes: read each field once.
    #[inline]
    pub fn rx_bytes(&self) -> &[u8] {
        match self.current {
            Some(Current {
                place: Place::Cable,
                ..
            }) => self.wire.rx_bytes(),
            Some(Current {
                place: Place::Loopback(i),
                ..
            }) => self.loopback[i].front().unwrap_or_default(),
            Some(Current {
                place: Place::Held,
                packet,
            }) => self.held[packet.vl.index()].front().unwrap_or_default(),
            None => &[],
        }
    }

    /// Done with the current packet: frees its buffer and returns its credits. Without a current
    /// packet nothing happens.
    pub fn rx_done(&mut self) {
        let Some(Current { place, packet }) = self.current.take() else {
            return;
        };
        let vl = packet.vl;
        match place {
            Place::Cable => {
                self.wire.rx_release();
                self.flow.left(vl, credit::blocks(packet.len));
            }
            Place::Loopback(i) => {
                self.loopback[i].pop();
                if self.stalls.wait_for_space() && self.has_space() {
                    self.stalls.space_found(self.now, &mut self.counters);
                }
            }
            Place::Held => {
                let ring = &mut self.held[vl.index()];
                ring.pop();
                if ring.is_empty() {
                    self.held_lanes &= !(1 << vl.get());
                }
                if vl.is_management() {
                    self.held_vl15 = self.held_vl15.saturating_sub(1);
                }
                self.flow.left(vl, credit::blocks(packet.len));
            }
        }
        if !vl.is_management() {
            if let Some(drain) = &mut self.drain {
                drain.take(packet.len);
            }
        }
        // Credits go back in the middle of a long batch, so that the sender works on meanwhile.
        if self.flow.due != 0 {
            self.flush();
        }
    }

    /// Lanes (bits) from which [`Port::rx`] may take packets; all at first. Packets of other data
    /// lanes wait in their receive buffers without returning credits; VL15 packets beyond the VL15
    /// buffer are dropped and counted.
    pub fn set_rx_lanes(&mut self, lanes: u16) {
        self.rx_lanes = lanes;
    }

    /// Lets [`Port::rx`] take at most this many bytes per second from the data lanes; `None` any.
    /// Credits return as slowly, so the sender waits; nothing is dropped, VL15 is not touched.
    pub fn set_drain_rate(&mut self, bytes_per_second: Option<u64>) {
        self.drain = bytes_per_second.map(|rate| Drain::new(rate, self.now));
    }

    /// The drain limit, bytes per second.
    pub fn drain_rate(&self) -> Option<u64> {
        self.drain.as_ref().map(Drain::rate)
    }

    pub(super) fn current_on_cable(&self) -> bool {
        self.current.is_some_and(|c| c.place == Place::Cable)
    }

    /// Whether [`Port::rx`] would find something that is not on the cable.
    pub(super) fn work_inside(&mut self) -> bool {
        if let Some(drain) = &mut self.drain {
            drain.advance(self.now);
        }
        let open = if self.may_drain() { u16::MAX } else { VL15_BIT };
        let inside = |ring: usize, lanes: u16| {
            !self.loopback[ring].is_empty() && lanes & open & self.rx_lanes != 0
        };
        self.current.is_some()
            || self.held_lanes & self.rx_lanes & open != 0
            || inside(LOOPBACK_VL15, VL15_BIT)
            || inside(LOOPBACK_DATA, self.loopback_lane())
    }

    /// Bit of the lane of the oldest data packet that turned around.
    fn loopback_lane(&self) -> u16 {
        self.loopback[LOOPBACK_DATA]
            .front()
            .and_then(|b| b.first())
            .map_or(0, |b| 1 << (b >> 4))
    }

    fn may_drain(&self) -> bool {
        self.drain.as_ref().is_none_or(Drain::open)
    }

    /// Whether packets of `vl` may be taken now, those held back not considered.
    fn lane_open(&self, vl: Vl) -> bool {
        self.rx_lanes & 1 << vl.get() != 0 && (vl.is_management() || self.may_drain())
    }

    fn next_held(&mut self) -> Option<Current> {
        let mut lanes = self.held_lanes & self.rx_lanes;
        if !self.may_drain() {
            lanes &= VL15_BIT;
        }
        // VL15 first, then the highest lane: with a limit the tables of the sender decide the shares.
        let vl = Vl::new(
            15 - u8::try_from(lanes.leading_zeros())
                .ok()
                .filter(|n| *n < 16)?,
        );
        let bytes = self.held[vl.index()].front()?;
        Some(Current {
            place: Place::Held,
            packet: RxPacket {
                vl,
                len: bytes.len(),
                loopback: false,
                icrc_ok: self.icrc_ok(bytes),
            },
        })
    }

    fn next_loopback(&mut self) -> Option<Current> {
        for i in [LOOPBACK_VL15, LOOPBACK_DATA] {
            while let Some(bytes) = self.loopback[i].front() {
                let Some(lrh) = bytes.first_chunk().map(Lrh::read) else {
                    self.loopback[i].pop();
                    continue;
                };
                let len = bytes.len();
                if !self.lane_open(lrh.vl) {
                    break;
                }
                let icrc_ok = self.icrc_ok(bytes);
                self.wire.record(Content::Data, Direction::Received, bytes);
                self.count_received(lrh.dlid.is_multicast(), len);
                return Some(Current {
                    place: Place::Loopback(i),
                    packet: RxPacket {
                        vl: lrh.vl,
                        len,
                        loopback: true,
                        icrc_ok,
                    },
                });
            }
        }
        None
    }

    /// Whether the ICRC of a packet in own memory is right.
    fn icrc_ok(&self, bytes: &[u8]) -> bool {
        !self.config.crc || check_crcs(bytes) != CrcCheck::BadIcrc
    }

    /// The next good packet on the cable that may be taken now; those that may not are held back.
    fn next_on_cable(&mut self) -> Option<Current> {
        loop {
            let (frame, len) = self.next_frame()?;
            match frame {
                Frame::Training | Frame::Link => self.take_link_frame(frame),
                Frame::Data | Frame::BadData => {
                    if let Some(packet) = self.admit(frame, len) {
                        return Some(Current {
                            place: Place::Cable,
                            packet,
                        });
                    }
                }
            }
        }
    }

    /// Checks the data packet that is next on the cable. Unless it is returned, it is off the cable
    /// afterwards: dropped or held back.
    fn admit(&mut self, frame: Frame, len: usize) -> Option<RxPacket> {
        if !self.trainer.is_up() {
            self.counters.state_drops += 1;
            self.wire.rx_release();
            return None;
        }
        let rules = Rules {
            role: self.config.role,
            state: self.state,
            crc: self.config.crc,
            operational: self.operational,
            mtu: self.mtu,
            lid: self.lid,
            lmc: self.lmc,
        };
        let bytes = self.wire.rx_bytes();
        let (meta, verdict) = check::check(bytes, frame, &rules);
        self.wire.record_next(Content::Data);
        let blocks = credit::blocks(len);
        let buffered = meta.is_none_or(|m| self.flow.arrived(m.vl, blocks));
        let (meta, icrc_ok) = match (meta, verdict) {
            (Some(meta), Ok(icrc_ok)) if buffered => (meta, icrc_ok),
            (meta, verdict) => {
                self.drop_packet(meta, buffered, blocks, verdict);
                return None;
            }
        };
        self.phy_errors = self.phy_errors.saturating_sub(1);
        if self.state == PortState::Armed && !meta.vl.is_management() {
            self.enter(PortState::Active);
        }
        let bit = 1 << meta.vl.get();
        let packet = RxPacket {
            vl: meta.vl,
            len,
            loopback: false,
            icrc_ok,
        };
        if self.held_lanes & bit == 0 && self.lane_open(meta.vl) {
            self.count_received(meta.dlid.is_multicast(), len);
            return Some(packet);
        }
        self.hold(&meta, len);
        None
    }

    /// Moves the packet that is next on the cable into its receive buffer.
    fn hold(&mut self, meta: &Meta, len: usize) {
        let i = meta.vl.index();
        let room = !meta.vl.is_management() || self.held_vl15 < self.config.vl15_buffer;
        if room && self.held[i].push(self.wire.rx_bytes()) {
            self.held_lanes |= 1 << i;
            if meta.vl.is_management() {
                self.held_vl15 += 1;
            }
            self.count_received(meta.dlid.is_multicast(), len);
        } else if meta.vl.is_management() {
            self.counters.vl15_dropped += 1;
        } else {
            // The ring of a data lane has room for all that credits allow, see `Port::new`.
            self.counters.rcv_errors += 1;
            self.flow.left(meta.vl, credit::blocks(len));
        }
        self.wire.rx_release();
    }

    fn drop_packet(
        &mut self,
        meta: Option<Meta>,
        buffered: bool,
        blocks: u16,
        verdict: Result<bool, Reject>,
    ) {
        self.wire.rx_release();
        if let (Some(meta), true) = (meta, buffered) {
            self.flow.left(meta.vl, blocks);
        }
        let c = &mut self.counters;
        match verdict {
            // Good, and no buffer for it.
            Ok(_) => c.rcv_errors += 1,
            Err(Reject::Marked) => c.rcv_remote_physical_errors += 1,
            Err(Reject::Malformed) => c.rcv_errors += 1,
            Err(Reject::State) => c.state_drops += 1,
            Err(Reject::NotOurs) => c.dlid_drops += 1,
            Err(Reject::Damaged) => {
                c.rcv_errors += 1;
                self.phy_error();
            }
        }
    }

    #[inline]
    fn count_received(&mut self, multicast: bool, bytes: usize) {
        let c = &mut self.counters;
        c.rcv_pkts += 1;
        c.rcv_data += words(bytes);
        if multicast {
            c.multicast_rcv_pkts += 1;
        } else {
            c.unicast_rcv_pkts += 1;
        }
    }
}
