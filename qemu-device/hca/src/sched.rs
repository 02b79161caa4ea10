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
    /// In the ready queue.
    ready: bool,
    /// In the queue of a lane of a port.
    lane: Option<(u8, Vl)>,
    /// When the QP wants [`crate::qp::on_timer`].
    deadline: Option<Time>,
    /// The time under which it stands in the timer set: never later than `deadline`.
    armed: Option<Time>,
}

/// A QP's turn; it may be gone, or no longer want it: see [`SchedEntry::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number.
    pub qp: u32,
    /// It comes from a lane's queue.
    from_lane: bool,
}

/// Queues of QPs, by their number.
#[derive(Debug)]
pub struct Scheduler {
    ready: VecDeque<Turn>,
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

    /// Puts a QP into the ready queue, unless it is there already. One that waits for credits looks
    /// at its state anew.
    #[inline]
    pub fn schedule(&mut self, qp: u32, entry: &mut SchedEntry) {
        if !entry.ready {
            entry.ready = true;
            self.ready.push_back(Turn {
                qp,
                from_lane: false,
            });
        }
    }

    /// Puts a QP into the queue of a lane (port from 1) until [`Scheduler::credits`] is called.
    pub fn wait_for_credits(&mut self, qp: u32, entry: &mut SchedEntry, port: u8, vl: Vl) {
        if entry.lane == Some((port, vl)) {
            return;
        }
        let lanes = usize::from(port)
            .checked_sub(1)
            .and_then(|p| self.lanes.get_mut(p));
        if let Some(lanes) = lanes {
            entry.lane = Some((port, vl));
            lanes[vl.index()].push_back(qp);
        }
    }

    /// A lane has credits or room again: all that wait for it are ready.
    pub fn credits(&mut self, port: u8, vl: Vl) {
        let lanes = usize::from(port)
            .checked_sub(1)
            .and_then(|p| self.lanes.get_mut(p));
        if let Some(lanes) = lanes {
            let turns = lanes[vl.index()].drain(..).map(|qp| Turn {
                qp,
                from_lane: true,
            });
            self.ready.extend(turns);
        }
    }

    /// Takes the next turn out of the ready queue.
    #[inline]
    pub fn next_ready(&mut self) -> Option<Turn> {
        self.ready.pop_front()
    }

    /// Turns in the ready queue.
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

    /// A QP no longer waits for credits. Gives the lane of the port (from 1) if it was the last that
    /// waited there.
    pub fn stop_waiting(&mut self, qp: u32, entry: &mut SchedEntry) -> Option<(u8, Vl)> {
        let (port, vl) = entry.lane.take()?;
        let queue = &mut self.lanes[usize::from(port) - 1][vl.index()];
        let before = queue.len();
        queue.retain(|&waiting| waiting != qp);
        (before > 0 && queue.is_empty()).then_some((port, vl))
    }

    /// Forgets a QP that is being destroyed. Its number may stay in the ready queue; that does no harm.
    /// Gives a lane as [`Scheduler::stop_waiting`] does.
    pub fn forget(&mut self, qp: u32, entry: &mut SchedEntry) -> Option<(u8, Vl)> {
        if let Some(time) = entry.armed.take() {
            self.timers.remove(&(time, qp));
        }
        entry.deadline = None;
        self.stop_waiting(qp, entry)
    }
}

impl SchedEntry {
    /// The QP has this turn: whether it still wants it.
    #[inline]
    pub fn take(&mut self, turn: Turn) -> bool {
        if turn.from_lane {
            self.lane.take().is_some()
        } else {
            core::mem::take(&mut self.ready)
        }
    }

    /// Whether it waits for credits, or has just got some.
    #[inline]
    pub fn waits(&self) -> bool {
        self.lane.is_some()
    }

    /// When the QP wants to be called.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VL: Vl = Vl::VL0;

    fn turn(s: &mut Scheduler, entry: &mut SchedEntry) -> Option<bool> {
        s.next_ready().map(|turn| entry.take(turn))
    }

    #[test]
    fn a_qp_stands_in_a_queue_once() {
        let (mut s, mut e) = (Scheduler::new(1), SchedEntry::default());
        s.schedule(7, &mut e);
        s.schedule(7, &mut e);
        assert_eq!(turn(&mut s, &mut e), Some(true));
        assert_eq!(turn(&mut s, &mut e), None);
    }

    #[test]
    fn who_waits_for_credits_can_be_called_before() {
        let (mut s, mut e) = (Scheduler::new(1), SchedEntry::default());
        for _ in 0..10 {
            s.wait_for_credits(7, &mut e, 1, VL);
            s.schedule(7, &mut e);
            assert_eq!(turn(&mut s, &mut e), Some(true));
            assert_eq!(turn(&mut s, &mut e), None);
        }
        s.credits(1, VL);
        assert_eq!(s.ready(), 1);
        assert_eq!(turn(&mut s, &mut e), Some(true));
        s.credits(1, VL);
        assert_eq!(turn(&mut s, &mut e), None);
    }

    #[test]
    fn the_number_of_a_qp_that_is_gone_gives_no_turn_to_its_successor() {
        let (mut s, mut e) = (Scheduler::new(1), SchedEntry::default());
        s.schedule(7, &mut e);
        s.wait_for_credits(7, &mut e, 1, VL);
        s.credits(1, VL);
        s.forget(7, &mut e);
        let mut successor = SchedEntry::default();
        assert_eq!(turn(&mut s, &mut successor), Some(false));
        assert_eq!(turn(&mut s, &mut successor), Some(false));
    }

    #[test]
    fn the_last_that_stops_waiting_tells_its_lane() {
        let mut s = Scheduler::new(1);
        let mut waiting = [(); 3].map(|()| SchedEntry::default());
        for (n, entry) in waiting.iter_mut().enumerate() {
            s.wait_for_credits(n as u32, entry, 1, VL);
        }
        let [first, second, third] = &mut waiting;
        assert_eq!(s.stop_waiting(1, second), None);
        assert_eq!(s.stop_waiting(1, second), None);
        assert_eq!(s.forget(0, first), None);
        assert_eq!(s.forget(2, third), Some((1, VL)));
        s.credits(1, VL);
        assert_eq!(s.ready(), 0);
        // Those that have got credits wait no more, whoever is left.
        s.wait_for_credits(1, second, 1, VL);
        s.credits(1, VL);
        assert_eq!(s.forget(1, second), None);
    }

    #[test]
    fn a_later_deadline_waits_for_the_earlier_one() {
        let (mut s, mut e) = (Scheduler::new(1), SchedEntry::default());
        s.set_deadline(7, &mut e, Some(Time(10)));
        s.set_deadline(7, &mut e, Some(Time(30)));
        assert_eq!(s.next_deadline(), Some(Time(10)));
        assert_eq!(s.next_expired(Time(9)), None);
        assert_eq!(s.next_expired(Time(10)), Some(7));
        assert!(!s.expired(Time(10), 7, &mut e));
        s.set_deadline(7, &mut e, Some(Time(20)));
        assert_eq!(s.next_deadline(), Some(Time(20)));
        assert_eq!(s.next_expired(Time(25)), Some(7));
        assert!(s.expired(Time(25), 7, &mut e));
        assert_eq!(s.next_deadline(), None);
        s.set_deadline(7, &mut e, Some(Time(40)));
        s.set_deadline(7, &mut e, None);
        assert_eq!(s.next_expired(Time(40)), Some(7));
        assert!(!s.expired(Time(40), 7, &mut e));
        s.set_deadline(7, &mut e, Some(Time(50)));
        s.forget(7, &mut e);
        assert_eq!(s.next_deadline(), None);
    }
}
