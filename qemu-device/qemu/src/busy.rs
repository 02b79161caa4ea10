// SPDX-License-Identifier: GPL-2.0-or-later

//! Busy polling: virtual CPUs that serve the device while they have nothing to do.
//!
//! A program that polls empty completion queues says so by a doorbell ([`ochre_hw::doorbell::BUSY_POLL`]), and the
//! device works in its time. Where that is most of its time, the device is left to it: the service thread sleeps on
//! unless it is called for something else, no peer wakes it for a packet, and no processor changes hands. It only looks
//! now and then whether the program still polls.
//!
//! A program with much to post keeps its processor, and the service thread works beside it. One that stops without
//! arming its queue, to look at a word in its memory as `ib_write_lat` does, has its packets wait for the service thread's
//! next look. Each time it has to poll for twice as long before the device is left to it again.

use std::time::Duration;

use ochre_link::Time;

/// From one doorbell's end to the next of a program that does nothing else.
const PAUSE: Duration = Duration::from_micros(5);
/// As much time of polling pays for a longer pause.
const PRICE: u32 = 2;
/// How often the service thread looks: the longest time for which a packet waits when the program has stopped.
const LOOK: Duration = Duration::from_micros(500);
/// A program that has polled in the time before a look still does; interrupts of the guest may take as long.
const RECENT: Duration = Duration::from_micros(100);
/// How long a program has polled before the device is left to it, at first and at most.
const TRUST: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(100)];

/// Whether virtual CPUs serve the device.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    /// When the last doorbell was served.
    last: Option<Time>,
    /// Time that the device has spent on other doorbells since.
    work: Duration,
    /// Time spent in polling, less that of pauses.
    credit: Duration,
    /// How much of that it takes to leave the device to virtual CPUs.
    trust: Duration,
    /// When the service thread looks next; none where it serves the device itself.
    look_at: Option<Time>,
}

impl Default for BusyPoll {
    fn default() -> Self {
        BusyPoll {
            last: None,
            work: Duration::ZERO,
            credit: Duration::ZERO,
            trust: TRUST[0],
            look_at: None,
        }
    }
}

impl BusyPoll {
    /// A doorbell has come at one time and was served by another: whether the device may be left to virtual CPUs.
    pub(crate) fn polled(&mut self, at: Time, served: Time) -> bool {
        if let Some(last) = self.last {
            let pause = at.since(last).saturating_sub(self.work);
            self.credit = if pause <= PAUSE {
                (self.credit + served.since(last)).min(2 * self.trust)
            } else {
                self.credit.saturating_sub(PRICE * pause)
            };
        }
        self.last = Some(served);
        self.work = Duration::ZERO;
        self.credit >= self.trust
    }

    /// Another doorbell came at this time, and is served now: the device's work is no pause of the program.
    pub(crate) fn worked(&mut self, at: Time, served: impl FnOnce() -> Time) {
        if self.last.is_some_and(|last| at.since(last) <= RECENT) {
            self.work += served().since(at);
        }
    }

    /// Leaves the device to virtual CPUs.
    pub(crate) fn begin(&mut self, at: Time) {
        self.look_at = Some(at + LOOK);
    }

    /// Whether the device is left to virtual CPUs.
    pub(crate) fn is_on(&self) -> bool {
        self.look_at.is_some()
    }

    /// The service thread is about to sleep: whether the device stays with virtual CPUs.
    pub(crate) fn goes_on(&mut self, at: Time) -> bool {
        if self.look_at.is_some_and(|due| due <= at) {
            self.look_at = None;
            if self.last.is_none_or(|last| at.since(last) > RECENT) {
                self.trust = TRUST[1].min(2 * self.trust);
                self.credit = Duration::ZERO;
            } else if self.credit > Duration::ZERO {
                self.trust = TRUST[0].max(self.trust / 2);
                self.look_at = Some(at + LOOK);
            }
        }
        self.is_on()
    }

    /// The program says that it stops: whether the device was with virtual CPUs.
    pub(crate) fn stop(&mut self) -> bool {
        self.last = None;
        self.credit = Duration::ZERO;
        self.look_at.take().is_some()
    }

    /// When the service thread has to look.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.look_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Time = Time::from_micros;

    /// Polls with these pauses until the device may be left to the program, or for a second: how long it took.
    fn earn(busy: &mut BusyPoll, at: &mut Time, pauses: &[u64]) -> Option<Duration> {
        let start = *at;
        for pause in pauses.iter().cycle() {
            *at += Duration::from_micros(*pause);
            let served = *at + Duration::from_micros(1);
            let done = busy.polled(*at, served);
            *at = served;
            if done || at.since(start) > Duration::from_secs(1) {
                return done.then(|| at.since(start));
            }
        }
        None
    }

    #[test]
    fn who_polls_most_of_its_time_gets_the_device() {
        let mut busy = BusyPoll::default();
        let mut at = US(1000);
        assert!(earn(&mut busy, &mut at, &[1]).is_some());
        assert!(!busy.is_on());
        busy.begin(at);
        assert_eq!(busy.deadline(), Some(at + LOOK));
        // Woken for something else before it is time to look.
        assert!(busy.goes_on(at + Duration::from_micros(400)));
        assert_eq!(busy.deadline(), Some(at + LOOK));
        at += Duration::from_micros(450);
        earn(&mut busy, &mut at, &[1]);
        assert!(busy.goes_on(at));
        assert!(busy.goes_on(at + LOOK - Duration::from_micros(440)));
        // Nor does the device's own work count as a pause.
        let mut busy = BusyPoll::default();
        let work = |busy: &mut BusyPoll, at: Time| {
            busy.worked(at, || at + Duration::from_micros(20));
            at + Duration::from_micros(20)
        };
        busy.polled(at, at);
        at = work(&mut busy, at);
        at = work(&mut busy, at);
        assert!(earn(&mut busy, &mut at, &[1]).is_some_and(|time| time < 2 * TRUST[0]));
        // A pause for the guest's timer now and then does not hinder, longer ones do.
        let mut busy = BusyPoll::default();
        assert!(earn(&mut busy, &mut at, &[1; 200]).is_some());
        assert!(earn(&mut BusyPoll::default(), &mut at, &[1, 1, 1, 10]).is_none());
    }

    #[test]
    fn who_has_more_to_do_gives_the_device_back() {
        let mut busy = BusyPoll::default();
        let mut at = Time::ZERO;
        earn(&mut busy, &mut at, &[1]);
        busy.begin(at);
        at += LOOK;
        busy.polled(at, at);
        assert!(!busy.goes_on(at));
        assert_eq!(busy.trust, TRUST[0], "it still polls");
    }

    #[test]
    fn who_stops_without_a_word_is_noticed_and_trusted_less() {
        let mut busy = BusyPoll::default();
        let mut at = Time::ZERO;
        let mut polled = Vec::new();
        for _ in 0..20 {
            polled.extend(earn(&mut busy, &mut at, &[1]));
            busy.begin(at);
            at += LOOK;
            assert!(!busy.goes_on(at));
            assert_eq!(busy.deadline(), None);
        }
        assert_eq!(polled.len(), 20);
        assert!(polled.is_sorted());
        assert!(polled[0] < Duration::from_micros(60));
        assert!(polled[19] >= TRUST[1]);
        // It is trusted again when it keeps polling.
        for _ in 0..20 {
            earn(&mut busy, &mut at, &[1]);
            busy.begin(at - LOOK);
            assert!(busy.goes_on(at));
        }
        assert_eq!(busy.trust, TRUST[0]);
    }

    #[test]
    fn who_says_that_it_stops_is_believed() {
        let mut busy = BusyPoll::default();
        assert!(!busy.stop());
        let mut at = Time::ZERO;
        earn(&mut busy, &mut at, &[1]);
        busy.begin(at);
        assert!(busy.stop());
        assert!(!busy.is_on());
        assert!(!busy.polled(at, at), "a fresh start");
        assert_eq!(busy.trust, TRUST[0]);
    }
}
