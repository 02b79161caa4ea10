// SPDX-License-Identifier: GPL-2.0-or-later
//! Flow control of a port: credits of all lanes, stalls and the wait that PortXmitWait counts.

use core::time::Duration;

use ochre_wire::{FlowControl, Vl};

use crate::counters::{Counters, XMIT_WAIT_TICK_NS};
use crate::credit::{self, RxCredits, TxCredits};
use crate::fault::Note;
use crate::time::Time;

/// Number of data lanes that exist.
pub(super) const LANES: usize = 15;
/// First and last distance at which a sender without credits asks.
const PROBE: Duration = Duration::from_millis(1);
const PROBE_MOST: Duration = Duration::from_millis(64);

/// Credits, and which flow control packets are due.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) tx: [TxCredits; LANES],
    pub(super) rx: [RxCredits; LANES],
    /// Lanes whose flow control packet is to be sent.
    pub(super) due: u16,
    buffer: usize,
    refresh: Duration,
    refresh_at: Option<Time>,
    watchdog: Option<Duration>,
    watchdog_at: Option<Time>,
    overrun: [Overrun; LANES],
}

/// Overruns of a lane since its last flow control packet, and periods in a row that had one.
#[derive(Clone, Copy, Debug, Default)]
struct Overrun {
    now: bool,
    periods: u8,
}

impl Flow {
    pub(super) fn new(buffer: usize, refresh: Duration, watchdog: Option<Duration>) -> Self {
        Flow {
            tx: [TxCredits::default(); LANES],
            rx: [RxCredits::new(buffer); LANES],
            due: 0,
            buffer,
            refresh,
            refresh_at: None,
            watchdog,
            watchdog_at: None,
            overrun: [Overrun::default(); LANES],
        }
    }

    /// Starts afresh on a link that has come up, or stops.
    pub(super) fn reset(&mut self, up: Option<Time>, lanes: u8) {
        *self = Flow::new(self.buffer, self.refresh, self.watchdog);
        if let Some(now) = up {
            self.all_due(lanes);
            self.refresh_at = Some(now + self.refresh);
            self.heard(now);
        }
    }

    pub(super) fn all_due(&mut self, lanes: u8) {
        self.due |= ((1u32 << lanes) - 1) as u16;
    }

    fn heard(&mut self, now: Time) {
        self.watchdog_at = self.watchdog.map(|w| now + w);
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        Time::earliest(self.refresh_at, self.watchdog_at)
    }

    /// Asks for refreshes that are due. Returns whether the peer has been silent for too long.
    pub(super) fn on_time(&mut self, now: Time, lanes: u8) -> bool {
        if self.refresh_at.is_some_and(|t| now >= t) {
            self.all_due(lanes);
            self.refresh_at = Some(now + self.refresh);
        }
        if self.watchdog_at.is_some_and(|t| now >= t) {
            self.heard(now);
            return true;
        }
        false
    }

    /// The packet of a lane that is due, and that it is sent now. `threshold` is OverrunErrors.
    pub(super) fn make(
        &mut self,
        vl: Vl,
        init: bool,
        threshold: u8,
        counters: &mut Counters,
    ) -> Option<FlowControl> {
        let i = vl.index();
        let o = self.overrun.get_mut(i)?;
        o.periods = if o.now { o.periods + 1 } else { 0 };
        o.now = false;
        if o.periods >= threshold.max(1) {
            o.periods = 0;
            counters.excessive_buffer_overrun_errors += 1;
        }
        counters.fc_sent += 1;
        Some(FlowControl {
            op: if init {
                FlowControl::OP_INIT
            } else {
                FlowControl::OP_NORMAL
            },
            fctbs: self.tx.get(i)?.fctbs(),
            vl,
            fccl: self.rx.get_mut(i)?.tell(),
        })
    }

    /// A flow control packet has arrived; `most` are the blocks of the largest packet. `false`: it is
    /// malformed.
    pub(super) fn receive(&mut self, fc: &FlowControl, most: u16, now: Time) -> bool {
        if fc.op > FlowControl::OP_INIT {
            return false;
        }
        let i = fc.vl.index();
        let (Some(tx), Some(rx)) = (self.tx.get_mut(i), self.rx.get_mut(i)) else {
            return false;
        };
        tx.update(fc.fccl);
        let before = rx.fccl();
        let starved = rx.update(fc.fctbs, most);
        // What it has not heard of yet, or what a repaired count gives it.
        if (starved && rx.fccl() != rx.told()) || rx.fccl() != before {
            self.due |= 1 << i;
        }
        self.heard(now);
        true
    }

    /// A data packet of `n` blocks has arrived; `false`: there is no buffer for it.
    pub(super) fn arrived(&mut self, vl: Vl, n: u16) -> bool {
        let i = vl.index();
        let Some(rx) = self.rx.get_mut(i) else {
            return true;
        };
        let ok = rx.received(n).is_ok();
        if !ok {
            self.overrun[i].now = true;
        }
        ok
    }

    /// Makes good what rules for wire faults did.
    pub(super) fn take_note(&mut self, note: Note) {
        match note {
            // It goes no further than this: its credits go back at once.
            Note::Lost(vl, n) => {
                if self.arrived(vl, n) {
                    self.left(vl, n);
                }
            }
            Note::Extra(vl, n) => {
                if let Some(rx) = self.rx.get_mut(vl.index()) {
                    rx.unsent(n);
                }
            }
        }
    }

    /// A packet has left its buffer.
    pub(super) fn left(&mut self, vl: Vl, n: u16) {
        if let Some(rx) = self.rx.get_mut(vl.index()) {
            rx.released(n);
            if rx.due() {
                self.due |= 1 << vl.get();
            }
        }
    }
}

/// Lanes that wait, and for how long the port has waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    /// For credits.
    credits: u16,
    /// For space on the cable or in the loopback buffer.
    space: u16,
    need: [u16; LANES],
    /// Wait over, not yet told.
    over: u16,
    since: Option<Time>,
    rest_ns: u64,
    probe_at: Option<Time>,
    probe: Duration,
}

impl Stalls {
    pub(super) fn any(&self) -> bool {
        self.credits | self.space != 0
    }

    pub(super) fn wait_for_space(&self) -> bool {
        self.space != 0
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.probe_at
    }

    /// A packet of `n` blocks was refused for want of credits.
    pub(super) fn for_credits(&mut self, vl: Vl, n: u16, now: Time) {
        if let Some(need) = self.need.get_mut(vl.index()) {
            *need = n;
        }
        if self.credits == 0 {
            self.probe = PROBE;
            self.probe_at = Some(now + PROBE);
        }
        self.credits |= 1 << vl.get();
        self.over &= !(1 << vl.get());
        self.since.get_or_insert(now);
    }

    /// A packet was refused for want of space.
    pub(super) fn for_space(&mut self, vl: Vl, now: Time) {
        self.space |= 1 << vl.get();
        self.over &= !(1 << vl.get());
        self.since.get_or_insert(now);
    }

    /// Credits of `vl` have changed.
    pub(super) fn credits_changed(&mut self, vl: Vl, tx: &TxCredits, now: Time, c: &mut Counters) {
        let bit = 1 << vl.get();
        let need = self.need.get(vl.index()).copied().unwrap_or(1);
        if self.credits & bit != 0 && tx.allows(need) {
            self.end(bit, now, c);
            self.over |= bit;
        }
    }

    /// There is space again.
    pub(super) fn space_found(&mut self, now: Time, c: &mut Counters) {
        let lanes = self.space;
        self.space = 0;
        self.over |= lanes & !self.credits;
        self.end(0, now, c);
    }

    /// Lanes no longer wait, for whatever reason.
    pub(super) fn end(&mut self, lanes: u16, now: Time, c: &mut Counters) {
        self.credits &= !lanes;
        self.space &= !lanes;
        if self.credits == 0 {
            self.probe_at = None;
        }
        if !self.any() {
            self.account(now, c);
            self.since = None;
        }
    }

    /// A packet was sent on `vl`: the wait of other lanes, if any, starts anew. A longer packet that
    /// was refused on the same lane may still wait; its owner is told to try again.
    pub(super) fn sent(&mut self, vl: Vl, now: Time, c: &mut Counters) {
        if self.since.is_some() {
            self.account(now, c);
            self.over |= (self.credits | self.space) & 1 << vl.get();
            self.end(1 << vl.get(), now, c);
        }
    }

    /// Adds the wait so far to the counter, in whole ticks.
    pub(super) fn account(&mut self, now: Time, c: &mut Counters) {
        if let Some(since) = self.since {
            let ns = now.since(since).as_nanos() as u64 + self.rest_ns;
            c.xmit_wait += ns / XMIT_WAIT_TICK_NS;
            self.rest_ns = ns % XMIT_WAIT_TICK_NS;
            self.since = Some(now);
        }
    }

    /// Lanes whose wait is over, told once.
    pub(super) fn take_over(&mut self) -> u16 {
        core::mem::take(&mut self.over)
    }

    /// All waits end: the link is down. The lanes are told, so that their owner looks at the state.
    pub(super) fn clear(&mut self, now: Time, c: &mut Counters) {
        self.over |= self.credits | self.space;
        self.end(u16::MAX, now, c);
    }

    /// Lanes that are to ask for credits now.
    pub(super) fn on_time(&mut self, now: Time) -> u16 {
        if self.probe_at.is_some_and(|t| now >= t) {
            self.probe = (self.probe * 2).min(PROBE_MOST);
            self.probe_at = Some(now + self.probe);
            return self.credits;
        }
        0
    }
}

/// Blocks of the largest packet at this MTU.
pub(super) fn most_blocks(mtu: ochre_wire::Mtu) -> u16 {
    credit::blocks(super::check::most_bytes(Vl::VL0, mtu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_counts_ticks_and_keeps_the_rest() {
        let mut s = Stalls::default();
        let mut c = Counters::default();
        let vl = Vl::VL0;
        s.for_credits(vl, 3, Time(500));
        s.for_credits(vl, 3, Time(900));
        s.account(Time(2400), &mut c);
        assert_eq!(c.xmit_wait, 1);
        let mut tx = TxCredits::default();
        tx.update(2);
        s.credits_changed(vl, &tx, Time(2500), &mut c);
        assert!(s.any());
        tx.update(3);
        s.credits_changed(vl, &tx, Time(2500), &mut c);
        assert_eq!(c.xmit_wait, 2);
        assert_eq!(s.take_over(), 1);
        assert_eq!(s.take_over(), 0);
        s.account(Time(9_000_000), &mut c);
        assert_eq!(c.xmit_wait, 2);
    }

    #[test]
    fn the_wait_is_of_the_port_not_of_each_lane() {
        let mut s = Stalls::default();
        let mut c = Counters::default();
        s.for_credits(Vl::VL0, 1, Time(0));
        s.for_space(Vl::new(1), Time(0));
        s.sent(Vl::new(2), Time(5_000), &mut c);
        assert_eq!(c.xmit_wait, 5);
        s.end(1, Time(6_000), &mut c);
        s.space_found(Time(9_000), &mut c);
        assert_eq!(c.xmit_wait, 9);
        assert_eq!(s.take_over(), 2);
    }

    #[test]
    fn a_stalled_sender_asks_ever_less_often() {
        let mut s = Stalls::default();
        s.for_credits(Vl::VL0, 1, Time::ZERO);
        let mut n = 0;
        let mut last = Time::ZERO;
        while let Some(t) = s.next_deadline() {
            if t > Time::from_secs(1) {
                break;
            }
            assert_eq!(s.on_time(t), 1);
            assert!(t > last);
            last = t;
            n += 1;
        }
        assert!((20..25).contains(&n), "{n}");
    }

    #[test]
    fn overruns_count_after_periods_in_a_row() {
        let mut f = Flow::new(8192, Duration::from_secs(1), None);
        let mut c = Counters::default();
        for _ in 0..3 {
            f.make(Vl::VL0, false, 2, &mut c);
            assert!(f.arrived(Vl::VL0, 128));
            assert!(!f.arrived(Vl::VL0, 1));
            f.left(Vl::VL0, 128);
        }
        f.make(Vl::VL0, false, 2, &mut c);
        assert_eq!(c.excessive_buffer_overrun_errors, 1);
    }

    #[test]
    fn malformed_link_packets() {
        let mut f = Flow::new(8192, Duration::from_secs(1), None);
        let mut fc = FlowControl {
            op: 2,
            fctbs: 0,
            vl: Vl::VL0,
            fccl: 5,
        };
        assert!(!f.receive(&fc, 66, Time::ZERO));
        fc.op = 1;
        fc.vl = Vl::VL15;
        assert!(!f.receive(&fc, 66, Time::ZERO));
        fc.vl = Vl::VL0;
        assert!(f.receive(&fc, 66, Time::ZERO));
        assert_eq!(f.tx[0].available(), 5);
    }
}
