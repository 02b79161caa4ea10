// SPDX-License-Identifier: GPL-2.0-or-later
//! What an engine may touch besides its QP: memory, completions, events, port attributes, counters,
//! time and the scheduler.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ochre_hw::cmd::port::{Counter, COUNTER_SLOTS};
use ochre_hw::cmd::queue::ASYNC_EQ;
use ochre_hw::cqe::Cqe;
use ochre_hw::eqe::{Eqe, EventType};
use ochre_hw::regs::FatalReason;

use crate::ah::Ah;
use crate::cq::{ArmCheck, Cq};
use crate::eq::Eq;
use crate::mcast::Groups;
use crate::mem::{gather, scatter, MemError, MrTable, PageBudget, SgData};
use crate::mgmt::KeyViolation;
use crate::port::PortContext;
use crate::sched::Scheduler;
use crate::seams::Dma;
use crate::table::Table;
use crate::wq::SendSlot;
use crate::{Limits, Time};

/// A protection domain: how many objects belong to it.
#[derive(Debug, Default)]
pub struct Pd {
    /// Regions, QPs and address handles.
    pub users: u32,
}

/// Which key of a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadKey {
    Pkey,
    Qkey,
}

/// A packet that was refused for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Violation {
    pub(crate) bad: BadKey,
    pub(crate) packet: KeyViolation,
}

/// How long an event waits where its event queue has no room, before it is tried again.
const EVENT_RETRY: Duration = Duration::from_micros(200);

/// Events of QPs and CQs that wait for room in the async event queue, in order, each once.
#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<(EventType, u32)>,
    known: BTreeSet<(EventType, u32)>,
    /// When it is tried again.
    retry: Option<Time>,
}

impl Waiting {
    fn push(&mut self, event: EventType, number: u32) {
        if self.known.insert((event, number)) {
            self.queue.push_back((event, number));
        }
    }

    fn first(&self) -> Option<(EventType, u32)> {
        self.queue.front().copied()
    }

    fn pop(&mut self) {
        if let Some(first) = self.queue.pop_front() {
            self.known.remove(&first);
        }
    }

    /// Takes the events of an object out, of those that `is_its` says are of its kind.
    fn forget(&mut self, is_its: impl Fn(EventType) -> bool, number: u32) {
        if self.queue.is_empty() {
            return;
        }
        let stays = |&(event, of): &(EventType, u32)| of != number || !is_its(event);
        self.queue.retain(stays);
        self.known.retain(stays);
    }
}

/// Everything of the device but QPs and links.
#[derive(Debug)]
pub struct Ctx<D> {
    /// Memory of the guest.
    pub dma: D,
    /// Time of this call into the device.
    pub now: Time,
    /// Most objects of each kind.
    pub limits: Limits,
    /// Room for the lists of pages of all objects.
    pub pages: PageBudget,
    /// Protection domains.
    pub pds: Table<Pd>,
    /// Event queues.
    pub eqs: Table<Eq>,
    /// Completion queues.
    pub cqs: Table<Cq>,
    /// Memory regions.
    pub mrs: MrTable,
    /// Address handles.
    pub ahs: Table<Ah>,
    /// Multicast groups and the QPs attached to them.
    pub groups: Groups,
    /// Ports; port `n` at index `n - 1`.
    pub ports: Vec<PortContext>,
    /// Who is to run next.
    pub sched: Scheduler,
    /// Why the device has stopped, if it has.
    pub fatal: Option<FatalReason>,
    /// The last packet refused for its key, for the management agents.
    pub(crate) violation: Option<Violation>,
    /// Where send requests are read to.
    pub(crate) slot: SendSlot,
    /// What happens now comes of a packet from the peer.
    pub(crate) from_peer: bool,
    pub(crate) vectors_due: u64,
    pub(crate) cqs_noted: Vec<u32>,
    pub(crate) cqs_broken: Vec<u32>,
    pub(crate) cqs_held: BTreeSet<(Time, u32)>,
    waiting: Waiting,
    pub(crate) eqs_noted: Vec<u32>,
    pub(crate) counters: Vec<[u64; COUNTER_SLOTS]>,
}

impl<D: Dma> Ctx<D> {
    /// An empty device of this many ports.
    pub(crate) fn new(dma: D, limits: Limits, ports: Vec<PortContext>) -> Self {
        Ctx {
            dma,
            now: Time::ZERO,
            pages: PageBudget::new(limits.pages),
            pds: Table::new(1, limits.pds),
            eqs: Table::new(0, limits.eqs),
            cqs: Table::new(1, limits.cqs),
            mrs: MrTable::new(limits.mrs),
            ahs: Table::new(1, limits.ahs),
            groups: Groups::new(limits.mcast_groups, limits.mcast_qps),
            sched: Scheduler::new(ports.len()),
            fatal: None,
            violation: None,
            slot: SendSlot::default(),
            from_peer: false,
            vectors_due: 0,
            cqs_noted: Vec::new(),
            cqs_broken: Vec::new(),
            cqs_held: BTreeSet::new(),
            waiting: Waiting::default(),
            eqs_noted: Vec::new(),
            counters: vec![[0; COUNTER_SLOTS]; ports.len()],
            ports,
            limits,
        }
    }

    /// Forgets every object; the ports are as given.
    pub(crate) fn reset(&mut self, ports: Vec<PortContext>) {
        let limits = self.limits;
        self.pds = Table::new(1, limits.pds);
        self.eqs = Table::new(0, limits.eqs);
        self.cqs = Table::new(1, limits.cqs);
        self.mrs = MrTable::new(limits.mrs);
        self.ahs = Table::new(1, limits.ahs);
        self.groups = Groups::new(limits.mcast_groups, limits.mcast_qps);
        self.sched = Scheduler::new(ports.len());
        self.fatal = None;
        self.violation = None;
        self.vectors_due = 0;
        self.cqs_noted.clear();
        self.cqs_broken.clear();
        self.cqs_held.clear();
        self.waiting = Waiting::default();
        self.eqs_noted.clear();
        self.counters.fill([0; COUNTER_SLOTS]);
        self.ports = ports;
    }

    /// The next event queue to be created is number 0 again.
    pub(crate) fn restart_eqs(&mut self) {
        self.eqs = Table::new(0, self.limits.eqs);
    }

    /// Looks at the arm word of a CQ at the end of this call.
    pub(crate) fn look_at_cq(&mut self, cq: u32) {
        if let Some(queue) = self.cqs.get_mut(cq) {
            if !queue.noted {
                queue.noted = true;
                self.cqs_noted.push(cq);
            }
        }
    }

    /// Takes a CQ out, and what is noted of it.
    pub(crate) fn forget_cq(&mut self, cq: u32) {
        self.waiting.forget(|event| event == EventType::CqError, cq);
        if let Some(queue) = self.cqs.remove(cq) {
            if let Some(time) = queue.held_until() {
                self.cqs_held.remove(&(time, cq));
            }
        }
    }

    /// Forgets what is noted of a QP that is being destroyed.
    pub(crate) fn forget_qp(&mut self, qp: u32) {
        self.waiting.forget(|event| event != EventType::CqError, qp);
    }

    /// When the first held event is due.
    pub(crate) fn next_held_event(&self) -> Option<Time> {
        let completion = self.cqs_held.first().map(|&(time, _)| time);
        Time::earliest(completion, self.waiting.retry)
    }

    /// The port with this number, from 1.
    #[inline]
    pub fn port(&self, number: u8) -> Option<&PortContext> {
        self.ports.get(usize::from(number).checked_sub(1)?)
    }

    /// The same to change.
    #[inline]
    pub fn port_mut(&mut self, number: u8) -> Option<&mut PortContext> {
        self.ports.get_mut(usize::from(number).checked_sub(1)?)
    }

    /// Counts one more on a port (from 1).
    #[inline]
    pub fn count(&mut self, port: u8, counter: Counter) {
        let index = usize::from(port).wrapping_sub(1);
        if let Some(values) = self.counters.get_mut(index) {
            values[counter.raw() as usize] += 1;
        }
    }

    /// Value of a counter of a port (from 1).
    pub fn counter(&self, port: u8, counter: Counter) -> u64 {
        let index = usize::from(port).wrapping_sub(1);
        self.counters
            .get(index)
            .map_or(0, |values| values[counter.raw() as usize])
    }

    /// Copies bytes `offset..offset + out.len()` of a request's data out of the guest's memory.
    #[inline]
    pub fn gather(
        &self,
        pd: u32,
        data: SgData<'_>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), MemError> {
        gather(&self.dma, &self.mrs, pd, data, offset, out)
    }

    /// Copies bytes to the elements of a receive, READ or atomic, from byte `offset` on.
    #[inline]
    pub fn scatter(
        &self,
        pd: u32,
        data: SgData<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), MemError> {
        scatter(&self.dma, &self.mrs, pd, data, offset, bytes)
    }

    /// Writes a completion to CQ `cq`; time stamp and phase are filled in, the rest is as given.
    ///
    /// A CQ that is full or cannot be written breaks: its event is written and its QPs go to the
    /// error state as soon as the engine returns. A completion to a broken CQ is lost.
    pub fn complete(&mut self, cq: u32, mut cqe: Cqe) {
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
        if queue.broken || self.fatal.is_some() {
            return;
        }
        cqe.timestamp = self.now.as_nanos();
        match queue.push(&self.dma, cqe, self.from_peer) {
            Ok(()) => self.look_at_cq(cq),
            Err(_) => self.break_cq(cq),
        }
    }

    fn break_cq(&mut self, cq: u32) {
        if let Some(queue) = self.cqs.get_mut(cq) {
            if !queue.broken {
                queue.broken = true;
                self.cqs_broken.push(cq);
                self.count(1, Counter::CqOverruns);
                self.event(EventType::CqError, 0, cq);
            }
        }
    }

    /// Writes an event to the async event queue. `port` is 0 where the event is not a port's.
    ///
    /// Events of QPs and CQs wait where there is no room: a program can have thousands of QPs, which
    /// all fail at once, and that must not stop the device for the others.
    pub fn event(&mut self, event: EventType, port: u8, number: u32) {
        if port != 0 || event == EventType::CommandDone {
            return self.post_event(ASYNC_EQ, event, port, number);
        }
        self.waiting.push(event, number);
        self.write_waiting();
    }

    /// Writes the events of QPs and CQs that wait, as far as there is room.
    fn write_waiting(&mut self) {
        self.waiting.retry = None;
        while let Some((event, number)) = self.waiting.first() {
            let room = match self.eqs.get_mut(ASYNC_EQ) {
                Some(queue) if self.fatal.is_none() => queue.has_room(&self.dma),
                _ => Ok(true),
            };
            match room {
                Ok(true) => {
                    self.waiting.pop();
                    self.post_event(ASYNC_EQ, event, 0, number);
                }
                Ok(false) => {
                    self.waiting.retry = Some(self.now + EVENT_RETRY);
                    return;
                }
                Err(reason) => return self.stop(reason),
            }
        }
    }

    fn post_event(&mut self, eq: u32, event: EventType, port: u8, number: u32) {
        // Without the async queue nobody listens yet; a device that has stopped writes nothing.
        let Some(queue) = self.eqs.get_mut(eq).filter(|_| self.fatal.is_none()) else {
            return;
        };
        let eqe = Eqe {
            event: event.raw(),
            port,
            number,
            timestamp: self.now.as_nanos(),
            ..Eqe::default()
        };
        match queue.push(&self.dma, eqe) {
            Ok(()) => {
                if !queue.noted {
                    queue.noted = true;
                    self.eqs_noted.push(eq);
                }
            }
            Err(reason) => self.stop(reason),
        }
    }

    /// Stops the device: only a reset helps.
    pub(crate) fn stop(&mut self, reason: FatalReason) {
        self.fatal.get_or_insert(reason);
    }

    /// Looks at the arm words of all queues that were written to, once for the whole burst.
    pub(crate) fn look_at_arms(&mut self) {
        if self.waiting.retry.is_some_and(|time| time <= self.now) {
            self.write_waiting();
        }
        while let Some(&(time, cq)) = self.cqs_held.first() {
            if time > self.now {
                break;
            }
            self.cqs_held.pop_first();
            self.look_at_cq(cq);
        }
        if self.fatal.is_some() || (self.cqs_noted.is_empty() && self.eqs_noted.is_empty()) {
            return;
        }
        // Entries are visible before the arm words are read: software arms, then looks for entries.
        self.dma.fence();
        while let Some(cq) = self.cqs_noted.pop() {
            let Some(queue) = self.cqs.get_mut(cq) else {
                continue;
            };
            queue.noted = false;
            let eq = queue.eq;
            match queue.check_arm(&self.dma, self.now) {
                Ok(ArmCheck::Quiet) => {}
                Ok(ArmCheck::Event(arm)) => {
                    let room = match self.eqs.get_mut(eq) {
                        Some(events) => events.has_room(&self.dma),
                        None => Ok(true),
                    };
                    match room {
                        Ok(true) => {
                            queue.told(arm);
                            self.post_event(eq, EventType::CqCompletion, 0, cq);
                        }
                        // A program that arms faster than the driver reads events must not stop
                        // the device.
                        Ok(false) => {
                            let time = queue.hold(self.now, self.now + EVENT_RETRY);
                            self.cqs_held.insert((time, cq));
                        }
                        Err(reason) => self.stop(reason),
                    }
                }
                Ok(ArmCheck::Later(time)) => {
                    self.cqs_held.insert((time, cq));
                }
                Err(_) => self.break_cq(cq),
            }
        }
        self.dma.fence();
        while let Some(eq) = self.eqs_noted.pop() {
            let Some(queue) = self.eqs.get_mut(eq) else {
                continue;
            };
            queue.noted = false;
            match queue.check_arm(&self.dma) {
                Ok(true) => {
                    self.vectors_due |= 1 << (queue.vector & 63);
                }
                Ok(false) => {}
                Err(reason) => self.stop(reason),
            }
        }
    }
}
