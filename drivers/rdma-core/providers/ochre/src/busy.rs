// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Busy polling: a program that finds nothing lends the device its processor.
//!
//! See [`ochre_hw::doorbell::BUSY_POLL`]. A program that arms the queue and sleeps is left alone.

/// Polls without a completion between two doorbells. A program that looks once and goes on to do
/// something else writes none.
const EVERY: u32 = 4;

/// What a completion queue knows about the program that polls it.
#[derive(Default)]
pub(crate) struct BusyPoll {
    /// Polls in a row that found nothing.
    empty: u32,
    /// The device was told since the queue was last armed.
    told: bool,
    /// The queue is armed, and nothing was found since: the program looks once more, and sleeps.
    armed: bool,
}

impl BusyPoll {
    /// A poll found something.
    #[inline]
    pub(crate) fn found(&mut self) {
        self.empty = 0;
        self.armed = false;
    }

    /// A poll found nothing; whether the device is to be told, if it has asked for that.
    #[inline]
    pub(crate) fn found_nothing(&mut self, asked: impl FnOnce() -> bool) -> bool {
        if self.armed {
            return false;
        }
        self.empty = self.empty.wrapping_add(1);
        let tell = self.empty % EVERY == 0 && asked();
        self.told |= tell;
        tell
    }

    /// The queue is armed; whether the device is to be told that polling ends.
    #[inline]
    pub(crate) fn arm(&mut self) -> bool {
        self.empty = 0;
        self.armed = true;
        core::mem::take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many empty polls tell the device.
    fn polls(busy: &mut BusyPoll, count: u32) -> usize {
        (0..count).filter(|_| busy.found_nothing(|| true)).count()
    }

    #[test]
    fn only_who_finds_nothing_again_and_again_tells() {
        let mut busy = BusyPoll::default();
        for _ in 0..100 {
            assert_eq!(polls(&mut busy, EVERY - 1), 0);
            busy.found();
        }
        assert_eq!(polls(&mut busy, 10 * EVERY), 10);
    }

    #[test]
    fn a_device_that_has_no_use_for_it_is_not_told() {
        let mut busy = BusyPoll::default();
        assert!((0..100).all(|_| !busy.found_nothing(|| false)));
        assert!(!busy.arm());
    }

    #[test]
    fn who_sleeps_says_so_once_and_is_left_alone() {
        let mut busy = BusyPoll::default();
        assert!(!busy.arm(), "it has not polled");
        assert_eq!(polls(&mut busy, 100), 0);
        busy.found();
        assert_eq!(polls(&mut busy, EVERY), 1);
        assert!(busy.arm());
        assert!(!busy.arm());
        assert_eq!(polls(&mut busy, 100), 0);
    }
}
