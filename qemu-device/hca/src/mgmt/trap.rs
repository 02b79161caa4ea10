// SPDX-License-Identifier: GPL-2.0-or-later
//! Traps: notices sent to the subnet manager until it represses them.

use std::time::Duration;

use ochre_wire::mad::notice::{
    notice_type, trap, BadKey, BadMKey, LinkDetails, LocalChange, Notice,
};
use ochre_wire::mad::{attr, class, method, Mad};
use ochre_wire::{Gid, Lid, Qpn, Sl};

use crate::Time;

/// First time-out of a trap that nobody represses; it doubles each time.
const FIRST_REPEAT: Duration = Duration::from_secs(1);
/// Longest time-out of a trap that nobody represses.
const LAST_REPEAT: Duration = Duration::from_secs(64);

/// The traps of a channel adapter, one slot each: a second event of a kind replaces the details.
const NUMBERS: [u16; 7] = [
    trap::LOCAL_LINK_INTEGRITY,
    trap::BUFFER_OVERRUN,
    trap::FLOW_CONTROL_WATCHDOG,
    trap::LOCAL_CHANGE,
    trap::BAD_M_KEY,
    trap::BAD_P_KEY,
    trap::BAD_Q_KEY,
];

#[derive(Clone, Copy, Debug)]
struct Slot {
    details: [u8; Notice::DETAILS],
    /// Transaction of the last transmission; 0 before the first.
    tid: u64,
    due: Time,
    repeat: Duration,
}

/// Traps of a port that wait to be sent or to be repressed.
#[derive(Debug, Default)]
pub(super) struct Traps {
    slots: [Option<Slot>; NUMBERS.len()],
    /// No trap before this time.
    quiet_until: Time,
    next_tid: u32,
}

/// A packet that violates a key, for traps 257 and 258.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyViolation {
    /// Source.
    pub slid: Lid,
    /// Destination.
    pub dlid: Lid,
    /// The bad P_Key or Q_Key.
    pub key: u32,
    /// Service level.
    pub sl: Sl,
    /// Source QP, 0 where the packet does not name it.
    pub src_qp: Qpn,
    /// Destination QP.
    pub dest_qp: Qpn,
    /// Source and destination GID of a packet with a GRH.
    pub gids: Option<(Gid, Gid)>,
}

impl KeyViolation {
    fn details(&self) -> [u8; Notice::DETAILS] {
        let (gid1, gid2) = self.gids.unwrap_or_default();
        let mut details = [0; Notice::DETAILS];
        BadKey {
            lid1: self.slid,
            lid2: self.dlid,
            key: self.key,
            sl: self.sl.get(),
            qp1: self.src_qp.get(),
            qp2: self.dest_qp.get(),
            gid1,
            gid2,
        }
        .write(&mut details);
        details
    }
}

impl Traps {
    fn note(&mut self, number: u16, details: [u8; Notice::DETAILS], now: Time) {
        let Some(i) = NUMBERS.iter().position(|n| *n == number) else {
            return;
        };
        self.slots[i] = Some(Slot {
            details,
            tid: 0,
            due: now,
            repeat: FIRST_REPEAT,
        });
    }

    /// A threshold of the link was reached: trap 129, 130 or 131.
    pub(super) fn link_errors(&mut self, number: u16, lid: Lid, port: u8, now: Time) {
        let mut details = [0; Notice::DETAILS];
        LinkDetails { lid, port }.write(&mut details);
        self.note(number, details, now);
    }

    /// Capabilities or something local changed. Changes that were not yet repressed add up.
    pub(super) fn local_change(&mut self, change: LocalChange, now: Time) {
        let mut change = change;
        let pending = NUMBERS
            .iter()
            .position(|n| *n == trap::LOCAL_CHANGE)
            .and_then(|i| self.slots[i]);
        if let Some(slot) = pending {
            let before = LocalChange::read(&slot.details);
            change.other_local_changes |= before.other_local_changes;
            change.change_flags |= before.change_flags;
        }
        let mut details = [0; Notice::DETAILS];
        change.write(&mut details);
        self.note(trap::LOCAL_CHANGE, details, now);
    }

    /// `mad` came with a bad M_Key from `slid`.
    pub(super) fn bad_m_key(&mut self, mad: &Mad, slid: Lid, own: Lid, now: Time) {
        let mut details = [0; Notice::DETAILS];
        let directed = mad.is_directed();
        let hops = usize::from(mad.hop_count());
        let kept = hops.min(BadMKey::PATH_LEN);
        BadMKey {
            lid: own,
            dr_slid: if directed { mad.dr_slid() } else { slid },
            method: mad.method(),
            attr_id: mad.attr_id(),
            attr_mod: mad.attr_mod(),
            m_key: mad.m_key(),
            directed,
            truncated: directed && hops > kept,
            hop_count: if directed { kept as u8 } else { 0 },
        }
        .write(&mut details);
        if directed {
            details[BadMKey::PATH..BadMKey::PATH + kept]
                .copy_from_slice(&mad.return_path()[..kept]);
        }
        self.note(trap::BAD_M_KEY, details, now);
    }

    /// A packet came with a bad P_Key.
    pub(super) fn bad_p_key(&mut self, violation: &KeyViolation, now: Time) {
        self.note(trap::BAD_P_KEY, violation.details(), now);
    }

    /// A packet came with a bad Q_Key.
    pub(super) fn bad_q_key(&mut self, violation: &KeyViolation, now: Time) {
        self.note(trap::BAD_Q_KEY, violation.details(), now);
    }

    /// Forgets everything: nobody is there to be told.
    pub(super) fn clear(&mut self) {
        self.slots = Default::default();
    }

    /// The subnet manager has received the trap with this transaction.
    pub(super) fn repress(&mut self, tid: u64) {
        for slot in &mut self.slots {
            if slot.is_some_and(|s| s.tid == tid) {
                *slot = None;
            }
        }
    }

    /// When [`Traps::poll`] has something to send.
    pub(super) fn deadline(&self) -> Option<Time> {
        let due = self.slots.iter().flatten().map(|s| s.due).min()?;
        Some(due.max(self.quiet_until))
    }

    /// The trap that is due, from the port with LID `lid`; at most one in each `interval`.
    pub(super) fn poll(
        &mut self,
        now: Time,
        interval: Duration,
        lid: Lid,
        m_key: u64,
    ) -> Option<Mad> {
        if now < self.quiet_until {
            return None;
        }
        let (i, slot) = self
            .slots
            .iter_mut()
            .enumerate()
            .filter_map(|(i, s)| s.as_mut().map(|s| (i, s)))
            .filter(|(_, s)| s.due <= now)
            .min_by_key(|(_, s)| s.due)?;
        self.next_tid = self.next_tid.wrapping_add(1).max(1);
        // The upper half tells the traps of the firmware from requests of the host.
        slot.tid = u64::from(class::SUBN_LID_ROUTED) << 56 | u64::from(self.next_tid);
        slot.due = now + slot.repeat.max(interval);
        slot.repeat = (slot.repeat * 2).min(LAST_REPEAT);
        self.quiet_until = now + interval;

        let number = NUMBERS[i];
        let kind = match number {
            trap::LOCAL_CHANGE => notice_type::INFO,
            trap::BAD_M_KEY | trap::BAD_P_KEY | trap::BAD_Q_KEY => notice_type::SECURITY,
            _ => notice_type::URGENT,
        };
        let mut mad = Mad::new(
            class::SUBN_LID_ROUTED,
            method::TRAP,
            attr::NOTICE,
            0,
            slot.tid,
        );
        mad.set_m_key(m_key);
        Notice::generic(kind, number, lid, slot.details).write(mad.smp_data_mut());
        Some(mad)
    }
}
