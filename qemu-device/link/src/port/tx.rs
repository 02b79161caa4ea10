// SPDX-License-Identifier: GPL-2.0-or-later
//! Sending: slots, credits, arbitration.

use ochre_wire::{Lid, Vcrc, Vl, MIN_PACKET};

use crate::cable::{Cable, CableError, Frame, MAX_FRAME};
use crate::capture::{Content, Direction};
use crate::credit;
use crate::ring::Ring;
use crate::state::PhysState;

use super::{check, Port, Role, Seal, TxStall};

/// Loopback ring of the data lanes, and that of VL15.
pub(super) const LOOPBACK_DATA: usize = 0;
pub(super) const LOOPBACK_VL15: usize = 1;

/// The slot that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    vl: Vl,
    bytes: usize,
    multicast: bool,
    /// Index of the loopback ring, if not on the cable.
    loopback: Option<usize>,
}

impl<C: Cable> Port<C> {
    /// A slot of `bytes` bytes (whole packet, LRH to VCRC) for a packet on lane `vl` to `dlid`. The
    /// caller writes the packet there and calls [`Port::tx_commit`]; a slot that is not committed is
    /// given up by the next `tx_begin` or [`Port::tx_abort`]. If `dlid` is a unicast LID of this
    /// port, the slot is in the loopback buffer. What the slot holds at first is undefined.
    #[inline]
    pub fn tx_begin(&mut self, vl: Vl, dlid: Lid, bytes: usize) -> Result<&mut [u8], TxStall> {
        let own = self.config.role == Role::Adapter
            && dlid.is_unicast()
            && dlid.is_in(self.lid, self.lmc);
        self.begin(vl, dlid.is_multicast(), bytes, own)
    }

    /// As [`Port::tx_begin`] with the loopback buffer whatever the DLID: the copy of a multicast
    /// packet that the own port is to get.
    pub fn tx_begin_loopback(&mut self, vl: Vl, bytes: usize) -> Result<&mut [u8], TxStall> {
        self.begin(vl, true, bytes, true)
    }

    fn begin(
        &mut self,
        vl: Vl,
        multicast: bool,
        bytes: usize,
        own: bool,
    ) -> Result<&mut [u8], TxStall> {
        self.open = None;
        let most = check::most_bytes(vl, self.mtu);
        if bytes < MIN_PACKET || bytes > most || bytes % 4 != Vcrc::LEN {
            return Err(TxStall::Length(bytes));
        }
        if !vl.is_management() && vl.get() >= self.operational {
            return Err(TxStall::NoLane(vl));
        }
        if !self.state.may_send(vl) {
            return Err(TxStall::NotActive(self.state));
        }
        let loopback = own.then_some(if vl.is_management() {
            LOOPBACK_VL15
        } else {
            LOOPBACK_DATA
        });
        let open = Open {
            vl,
            bytes,
            multicast,
            loopback,
        };
        if let Some(i) = loopback {
            // Two steps for the borrow checker: the slot is fetched again when it is there.
            if self.loopback[i].reserve(bytes, Frame::Data).is_none() {
                self.stalls.for_space(vl, self.now);
                return Err(TxStall::RingFull);
            }
            self.open = Some(open);
            return Ok(self.loopback[i].slot());
        }
        if self.trainer.phys() == PhysState::Recovery {
            self.stalls.for_space(vl, self.now);
            return Err(TxStall::RingFull);
        }
        if let Some(tx) = self.flow.tx.get(vl.index()) {
            let n = credit::blocks(bytes);
            if !tx.allows(n) {
                self.stalls.for_credits(vl, n, self.now);
                return Err(TxStall::NoCredits(vl));
            }
        }
        match self.wire.tx_reserve(bytes) {
            Ok(slot) => {
                self.open = Some(open);
                Ok(slot)
            }
            Err(CableError::Full) => {
                self.stalls.for_space(vl, self.now);
                Err(TxStall::RingFull)
            }
            // The port learns of it at the next poll.
            Err(CableError::Down) => Err(TxStall::NotActive(self.state)),
            Err(CableError::Length(n)) => Err(TxStall::Length(n)),
        }
    }

    /// The slot of the last [`Port::tx_begin`], until it is committed; else empty.
    #[inline]
    pub fn tx_slot(&mut self) -> &mut [u8] {
        match self.open {
            Some(Open {
                loopback: Some(i), ..
            }) => self.loopback[i].slot(),
            Some(_) => self.wire.tx_slot(),
            None => &mut [],
        }
    }

    /// Sends the packet in the slot: VCRC if asked for, credits, counters, capture. The LRH in the
    /// slot must have the lane and the length that `tx_begin` was told. Visible to the peer after
    /// [`Port::flush`]. Without a slot nothing happens.
    pub fn tx_commit(&mut self, seal: Seal) {
        let Some(open) = self.open else {
            return;
        };
        let crc = self.config.crc;
        let slot = match open.loopback {
            Some(i) => self.loopback[i].slot(),
            None => self.wire.tx_slot(),
        };
        if seal == Seal::Port {
            if let Some((body, out)) = slot.split_last_chunk_mut::<{ Vcrc::LEN }>() {
                *out = if crc {
                    let mut v = Vcrc::new();
                    v.update(body);
                    v.finish()
                } else {
                    [0; Vcrc::LEN]
                };
            }
        }
        self.open = None;
        match open.loopback {
            Some(i) => {
                let slot = self.loopback[i].slot();
                self.wire.record(Content::Data, Direction::Sent, slot);
                self.loopback[i].commit();
                self.counters.loopback_pkts += 1;
            }
            None => {
                let n = credit::blocks(open.bytes);
                match self.flow.tx.get_mut(open.vl.index()) {
                    Some(tx) => {
                        let times = self.wire.commit(tx.available().saturating_sub(n));
                        tx.sent(n * times);
                    }
                    None => {
                        self.wire.commit(u16::MAX);
                    }
                }
            }
        }
        let c = &mut self.counters;
        c.xmit_pkts += 1;
        c.xmit_data += words(open.bytes);
        if open.multicast {
            c.multicast_xmit_pkts += 1;
        } else {
            c.unicast_xmit_pkts += 1;
        }
        self.arbitration.charge(open.vl, open.bytes);
        self.stalls.sent(open.vl, self.now, &mut self.counters);
    }

    /// Gives the slot up; nothing is sent.
    pub fn tx_abort(&mut self) {
        self.open = None;
        self.loopback.iter_mut().for_each(Ring::abort);
    }

    /// Whether a packet of `bytes` bytes may be sent on `vl` to another port as far as state, lane and
    /// credits go.
    pub fn can_send(&self, vl: Vl, bytes: usize) -> bool {
        self.state.may_send(vl)
            && (vl.is_management() || vl.get() < self.operational)
            && self
                .flow
                .tx
                .get(vl.index())
                .is_none_or(|tx| tx.allows(credit::blocks(bytes)))
    }

    /// Of the lanes in `ready` (bit n: lane n has a packet to send) that have any credits the one
    /// whose turn it is by the arbitration tables; VL15 first. The packet is charged to the turn when
    /// it is committed. A lane that then stalls is to be left out of `ready` by the caller.
    pub fn arbitrate(&mut self, ready: u16) -> Option<Vl> {
        let mut able = ready & (1 << 15 | ((1u32 << self.operational) - 1) as u16);
        for (i, tx) in self.flow.tx.iter().enumerate() {
            if tx.available() == 0 {
                able &= !(1 << i);
            }
        }
        self.arbitration.pick(able)
    }

    /// Lanes (bits) that refused a packet ([`TxStall::NoCredits`], [`TxStall::RingFull`]) and would
    /// take it now, or whose link went down since; each told once. To be looked at after every
    /// [`Port::poll`] and [`Port::rx`] round.
    pub fn take_unstalled(&mut self) -> u16 {
        self.stalls.take_over()
    }

    /// The owner no longer has a packet waiting on the stalled lanes in `lanes` (bits): their wait
    /// ends for PortXmitWait.
    pub fn forget_stall(&mut self, lanes: u16) {
        self.stalls.end(lanes, self.now, &mut self.counters);
    }

    /// Counts `packets` packets that the owner threw away instead of sending them (PortXmitDiscards).
    pub fn discard(&mut self, packets: u64) {
        self.counters.xmit_discards += packets;
    }

    /// Whether a stalled sender would find space now, for any packet.
    pub(super) fn has_space(&mut self) -> bool {
        if self.open.is_some() || self.trainer.phys() == PhysState::Recovery {
            return false;
        }
        let cable = self.wire.has_space();
        let loopback = self
            .loopback
            .iter_mut()
            .all(|r| r.reserve(MAX_FRAME, Frame::Data).is_some());
        self.loopback.iter_mut().for_each(Ring::abort);
        cable && loopback
    }
}

/// 32-bit words from LRH to ICRC of a packet of `bytes` bytes with its VCRC.
#[inline]
pub(super) fn words(bytes: usize) -> u64 {
    ((bytes - Vcrc::LEN.min(bytes)) / 4) as u64
}
