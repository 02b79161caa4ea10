// SPDX-License-Identifier: GPL-2.0-or-later
//! A limit on the rate at which a port takes packets out of its receive buffers.

use core::time::Duration;

use crate::time::Time;

/// Bytes may pass while the balance is positive; a packet may overdraw it. It refills with time up to
/// one millisecond's worth.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    rate: u64,
    /// In bytes times 10^9, so that every nanosecond counts.
    balance: i128,
    at: Time,
}

const SCALE: i128 = 1_000_000_000;

impl Drain {
    /// `rate` bytes per second, at least 1.
    pub(crate) fn new(rate: u64, now: Time) -> Self {
        Drain {
            rate: rate.max(1),
            balance: 1,
            at: now,
        }
    }

    /// Bytes per second.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Takes the time that has passed into account.
    pub(crate) fn advance(&mut self, now: Time) {
        let ns = now.since(self.at).as_nanos() as i128;
        self.at = self.at.max(now);
        let most = i128::from(self.rate) * 1_000_000;
        self.balance = (self.balance + ns * i128::from(self.rate)).min(most.max(1));
    }

    /// Whether a packet may pass now.
    pub(crate) fn open(&self) -> bool {
        self.balance > 0
    }

    /// A packet of `bytes` bytes has passed.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.balance -= bytes as i128 * SCALE;
    }

    /// When a packet may pass.
    pub(crate) fn opens_at(&self) -> Time {
        if self.open() {
            return self.at;
        }
        let ns = (1 - self.balance + i128::from(self.rate) - 1) / i128::from(self.rate);
        self.at + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rate() {
        let mut d = Drain::new(1_000_000, Time::ZERO);
        let mut now = Time::ZERO;
        let mut sent = 0;
        while now < Time::from_secs(1) {
            d.advance(now);
            assert!(d.open());
            d.take(4146);
            sent += 4146;
            let next = d.opens_at();
            assert!(next > now);
            now = next;
        }
        assert!((1_000_000..1_010_000).contains(&sent), "{sent}");
    }

    #[test]
    fn opens_exactly_when_it_says() {
        for rate in [1, 3, 999, 1_000_003, 7_000_000_000] {
            let mut d = Drain::new(rate, Time::ZERO);
            d.take(64);
            let t = d.opens_at();
            d.advance(t - Duration::from_nanos(1));
            assert!(!d.open(), "rate {rate}");
            d.advance(t);
            assert!(d.open(), "rate {rate}");
        }
    }

    #[test]
    fn a_long_rest_saves_only_a_millisecond() {
        let mut d = Drain::new(1_000_000, Time::ZERO);
        d.advance(Time::from_secs(100));
        d.take(1000);
        assert!(!d.open());
    }
}
