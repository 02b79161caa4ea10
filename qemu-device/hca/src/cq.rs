// SPDX-License-Identifier: GPL-2.0-or-later
//! Completion queues.

use core::mem::offset_of;
use std::collections::BTreeSet;
use std::time::Duration;

use ochre_hw::cqe::{Cqe, CqeStatus, CQE_PHASE, CQE_SOLICITED};
use ochre_hw::queue::{CqRecord, CQ_ARM_KIND, CQ_ARM_NEXT, CQ_ARM_SOLICITED};

use crate::mem::QueueMem;
use crate::seams::Dma;
use crate::Time;

/// Offsets of the words of a [`CqRecord`].
const CONSUMER: u64 = offset_of!(CqRecord, consumer) as u64;
const ARM: u64 = offset_of!(CqRecord, arm) as u64;
const BUSY_POLL: u64 = offset_of!(CqRecord, busy_poll) as u64;

/// After so many bursts of completions without a packet from the peer, busy polling is of no use.
const OWN_BURSTS: u8 = 64;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    mem: QueueMem,
    log_entries: u8,
    producer: u32,
    /// The consumer index as last read.
    consumer: u32,
    /// The value of the arm word that has had its event.
    arm_seen: u32,
    /// Completions since the arm word was looked at.
    fresh: Fresh,
    moderation: Moderation,
    /// Bursts since the last one with a completion of the peer's packets, at most [`OWN_BURSTS`]: the
    /// word for busy polling is not zero below that.
    own_bursts: u8,
    /// Event queue of its completion events.
    pub eq: u32,
    /// QPs that complete to this CQ.
    pub qps: BTreeSet<u32>,
    /// Overrun, or its memory cannot be written: nothing is written any more.
    pub broken: bool,
    /// Noted for [`Cq::check_arm`] at the end of the burst.
    pub noted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fresh {
    any: bool,
    /// Solicited or failed ones.
    solicited: bool,
    /// Of packets from the peer.
    from_peer: bool,
}

/// Moderation of completion events.
#[derive(Clone, Copy, Debug, Default)]
struct Moderation {
    count: u16,
    period: Duration,
    /// Completions that an event is held back for.
    held: u16,
    /// When the held event is due.
    deadline: Option<Time>,
}

/// A completion that could not be written: the CQ is broken from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqFault {
    /// It is full.
    Overrun,
    /// Its memory cannot be reached.
    Dma,
}

/// What [`Cq::check_arm`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmCheck {
    /// No event.
    Quiet,
    /// An event is due now, for this value of the arm word: [`Cq::told`] once it is written.
    Event(u32),
    /// An event is due at this time at the latest.
    Later(Time),
}

impl Cq {
    /// A queue of 2^`log_entries` entries in `mem` with its events in event queue `eq`.
    pub fn new(mem: QueueMem, log_entries: u8, eq: u32) -> Self {
        Cq {
            mem,
            log_entries,
            producer: 0,
            consumer: 0,
            arm_seen: 0,
            fresh: Fresh::default(),
            moderation: Moderation::default(),
            own_bursts: OWN_BURSTS,
            eq,
            qps: BTreeSet::new(),
            broken: false,
            noted: false,
        }
    }

    /// Makes the indices start at `index`: time does not suffice to count so far.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u32) {
        self.producer = index;
        self.consumer = index;
    }

    /// Bytes that a queue of this size takes.
    pub fn bytes(log_entries: u8) -> u64 {
        CqRecord::SIZE as u64 + ((Cqe::SIZE as u64) << log_entries)
    }

    /// Entries of the queue.
    pub fn entries(&self) -> u32 {
        1 << self.log_entries
    }

    /// Sets the moderation: `count` completions or `period` after the first.
    pub fn set_moderation(&mut self, count: u16, period: Duration) {
        self.moderation.count = count;
        self.moderation.period = period;
    }

    /// Holds a due event back until `time`, or until the earlier time that it is held until.
    pub fn hold(&mut self, now: Time, time: Time) -> Time {
        let deadline = self
            .moderation
            .deadline
            .filter(|&t| t > now)
            .unwrap_or(time);
        self.moderation.deadline = Some(deadline);
        deadline
    }

    /// When its held event is due.
    pub fn held_until(&self) -> Option<Time> {
        self.moderation.deadline
    }

    /// Writes a completion, of a packet `from_peer` or of the own doing; the phase is filled in.
    #[inline]
    pub fn push<D: Dma>(&mut self, dma: &D, mut cqe: Cqe, from_peer: bool) -> Result<(), CqFault> {
        let size = self.entries();
        if self.producer.wrapping_sub(self.consumer) >= size {
            self.consumer = self.mem.load_u32(dma, CONSUMER).map_err(|_| CqFault::Dma)?;
            if self.producer.wrapping_sub(self.consumer) >= size {
                return Err(CqFault::Overrun);
            }
        }
        let pass = self.producer >> self.log_entries;
        cqe.owner = if pass & 1 == 0 { CQE_PHASE } else { 0 };
        let slot = u64::from(self.producer & (size - 1));
        let offset = CqRecord::SIZE as u64 + slot * Cqe::SIZE as u64;
        self.mem
            .publish(dma, offset, &cqe.to_bytes())
            .map_err(|_| CqFault::Dma)?;
        self.producer = self.producer.wrapping_add(1);
        self.fresh.any = true;
        self.fresh.from_peer |= from_peer;
        if cqe.flags & CQE_SOLICITED != 0 || cqe.status != CqeStatus::Success.raw() {
            self.fresh.solicited = true;
        }
        if self.moderation.count > 1 {
            self.moderation.held = self.moderation.held.saturating_add(1);
        }
        Ok(())
    }

    /// Looks whether the queue is armed for what was written since the last look. The caller has
    /// done a full barrier after the last write.
    pub fn check_arm<D: Dma>(&mut self, dma: &D, now: Time) -> Result<ArmCheck, CqFault> {
        if !self.fresh.any {
            return Ok(ArmCheck::Quiet);
        }
        self.note_busy_poll(dma)?;
        let arm = self.mem.load_u32(dma, ARM).map_err(|_| CqFault::Dma)?;
        let wanted = arm != self.arm_seen
            && match arm & CQ_ARM_KIND {
                CQ_ARM_NEXT => self.fresh.any,
                CQ_ARM_SOLICITED => self.fresh.solicited,
                _ => false,
            };
        let m = &mut self.moderation;
        if !wanted {
            // Not armed for these completions: a later arming waits for later ones.
            self.fresh = Fresh::default();
            m.held = 0;
            m.deadline = None;
            return Ok(ArmCheck::Quiet);
        }
        if m.count > 1 && !m.period.is_zero() && m.held < m.count {
            let deadline = *m.deadline.get_or_insert(now + m.period);
            if now < deadline {
                return Ok(ArmCheck::Later(deadline));
            }
        }
        Ok(ArmCheck::Event(arm))
    }

    /// Tells software whether polling for the peer's packets is of use: not where completions come of
    /// what it does itself.
    fn note_busy_poll<D: Dma>(&mut self, dma: &D) -> Result<(), CqFault> {
        let was_useful = self.own_bursts < OWN_BURSTS;
        self.own_bursts = if self.fresh.from_peer {
            0
        } else {
            OWN_BURSTS.min(self.own_bursts + 1)
        };
        let useful = self.own_bursts < OWN_BURSTS;
        if useful == was_useful {
            return Ok(());
        }
        self.mem
            .store_u32(dma, BUSY_POLL, useful.into())
            .map_err(|_| CqFault::Dma)
    }

    /// The event that was due for this value of the arm word is being written.
    pub fn told(&mut self, arm: u32) {
        self.moderation.held = 0;
        self.moderation.deadline = None;
        self.fresh = Fresh::default();
        self.arm_seen = arm;
    }
}
