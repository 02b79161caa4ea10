// SPDX-License-Identifier: GPL-2.0-or-later
//! Time as the engines see it.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Nanoseconds since an origin that the embedder chooses; never goes backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than every other time.
    pub const MAX: Time = Time(u64::MAX);

    /// `n` nanoseconds after the origin.
    #[inline]
    pub const fn from_nanos(n: u64) -> Self {
        Time(n)
    }

    /// `n` microseconds after the origin.
    #[inline]
    pub const fn from_micros(n: u64) -> Self {
        Time(n.saturating_mul(1_000))
    }

    /// `n` milliseconds after the origin.
    #[inline]
    pub const fn from_millis(n: u64) -> Self {
        Time(n.saturating_mul(1_000_000))
    }

    /// `n` seconds after the origin.
    #[inline]
    pub const fn from_secs(n: u64) -> Self {
        Time(n.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time that passed since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The earlier of two deadlines that need not exist.
    #[inline]
    pub fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// A duration in nanoseconds, at most `u64::MAX` (584 years).
#[inline]
fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Saturates at [`Time::MAX`].
    #[inline]
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(nanos(d)))
    }
}

impl AddAssign<Duration> for Time {
    #[inline]
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    /// Saturates at [`Time::ZERO`].
    #[inline]
    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(d)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time(5) - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
        assert_eq!(Time(9).since(Time(5)), Duration::from_nanos(4));
        assert_eq!(Time::from_secs(u64::MAX), Time::MAX);
    }

    #[test]
    fn earliest_takes_what_exists() {
        assert_eq!(Time::earliest(None, None), None);
        assert_eq!(Time::earliest(Some(Time(3)), None), Some(Time(3)));
        assert_eq!(Time::earliest(Some(Time(3)), Some(Time(2))), Some(Time(2)));
    }

    #[test]
    fn shows_seconds() {
        assert_eq!(Time(1_000_000_002).to_string(), "1.000000002s");
    }
}
