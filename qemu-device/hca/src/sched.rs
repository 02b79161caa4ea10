// SPDX-License-Identifier: GPL-2.0-or-later
//! Whose turn it is: QPs with work, QPs that wait for credits, QPs that wait for a time.

use std::collections::{BTreeSet, VecDeque};

use crate::Time;
use ochre_wire::Vl;

/// Lanes of a port.
const LANES: usize = 16;

/// What the scheduler keeps in each QP.
#[derive(Debug, Default)]
pub struct SchedEntry {
    /// In the ready queue, or in a lane's queue.
    queued: bool,
    /// When the QP wants [`crate::qp::on_timer`].
    deadline: Option<Time>,
    /// The time under which it stands in the timer set: never later than `deadline`.
    armed: Option<Time>,
}

/// Queues of QPs, by their number.
#[derive(Debug)]
pub struct Scheduler {
    ready: VecDeque<u32>,
    timers: BTreeSet<(Time, u32)>,
    lanes: Vec<[VecDeque<u32>; LANES]>,
}

impl Scheduler {
    /// Nothing to do, for this many ports.
    pub fn new(ports: usize) -> Self {
        Scheduler {
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            lanes: (0..ports).map(|_| Default::default()).collect(),
        }
    }

    /// Puts a QP into the ready queue, unless it waits in some queue already.
    #[inline]
    pub fn schedule(&mut self, qp: u32, entry: &mut SchedEntry) {
        if !entry.queued {
            entry.queued = true;
            self.ready.push_back(qp);
        }
    }

    /// Puts a QP into the queue of a lane (port from 1) until [`Scheduler::credits`] is called.
    pub fn wait_for_credits(&mut self, qp: u32, entry: &mut SchedEntry, port: u8, vl: Vl) {
        let lane = usize::from(port)
            .checked_sub(1)
            .and_then(|p| self.lanes.get_mut(p))
            .map(|lanes| &mut lanes[vl.index()]);
        match lane {
            Some(lane) if !entry.queued => {
                entry.queued = true;
                lane.push_back(qp);
            }
            _ => {}
        }
    }

    /// A lane has credits or room again: all that wait for it are ready.
    pub fn credits(&mut self, port: u8, vl: Vl) {
        let lanes = usize::from(port)
            .checked_sub(1)
            .and_then(|p| self.lanes.get_mut(p));
        if let Some(lanes) = lanes {
            self.ready.append(&mut lanes[vl.index()]);
        }
    }

    /// Whether anything waits for credits on a lane.
    pub fn is_waiting(&self, port: u8, vl: Vl) -> bool {
        usize::from(port)
            .checked_sub(1)
            .and_then(|p| self.lanes.get(p))
            .is_some_and(|lanes| !lanes[vl.index()].is_empty())
    }

    /// Takes the next number out of the ready queue; it may name a QP that is gone. The caller
    /// clears the entry with [`SchedEntry::take`].
    #[inline]
    pub fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// QPs in the ready queue.
    #[inline]
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Sets or clears the time when a QP wants to be called.
    #[inline]
    pub fn set_deadline(&mut self, qp: u32, entry: &mut SchedEntry, deadline: Option<Time>) {
        entry.deadline = deadline;
        // A later or no deadline is seen to when the earlier one comes.
        match (deadline, entry.armed) {
            (Some(new), Some(old)) if new < old => {
                self.timers.remove(&(old, qp));
            }
            (Some(_), None) => {}
            _ => return,
        }
        if let Some(new) = deadline {
            self.timers.insert((new, qp));
            entry.armed = Some(new);
        }
    }

    /// The earliest time in the timer set.
    pub fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|&(time, _)| time)
    }

    /// Takes a QP whose time in the timer set has come. The caller asks
    /// [`Scheduler::expired`] whether its deadline has come too.
    pub fn next_expired(&mut self, now: Time) -> Option<u32> {
        let &(time, qp) = self.timers.first()?;
        if time > now {
            return None;
        }
        self.timers.pop_first();
        Some(qp)
    }

    /// Whether a QP that [`Scheduler::next_expired`] gave is due; where not, it stands in the timer
    /// set again with its later deadline.
    pub fn expired(&mut self, now: Time, qp: u32, entry: &mut SchedEntry) -> bool {
        entry.armed = None;
        match entry.deadline {
            None => false,
            Some(deadline) if deadline <= now => {
                entry.deadline = None;
                true
            }
            Some(deadline) => {
                self.timers.insert((deadline, qp));
                entry.armed = Some(deadline);
                false
            }
        }
    }

    /// Forgets a QP that is being destroyed. Its number may stay in a queue; that does no harm.
    pub fn forget(&mut self, qp: u32, entry: &mut SchedEntry) {
        if let Some(time) = entry.armed.take() {
            self.timers.remove(&(time, qp));
        }
        entry.deadline = None;
    }
}

impl SchedEntry {
    /// The QP is no longer in a queue: whether it was in one.
    #[inline]
    pub fn take(&mut self) -> bool {
        core::mem::take(&mut self.queued)
    }

    /// When the QP wants to be called.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}
