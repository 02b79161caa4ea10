// SPDX-License-Identifier: GPL-2.0-or-later

//! A limit for messages that programs can cause.

use kernel::{
    prelude::*,
    sync::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// Messages that may come at once.
const BURST: u32 = 20;
/// How long until as many again may come.
const INTERVAL: Delta = Delta::from_secs(5);

struct State {
    /// When the current interval began.
    start: Option<Instant<Monotonic>>,
    /// Messages in the current interval.
    used: u32,
}

/// Lets no more than a burst of messages through in each interval.
#[pin_data]
pub(crate) struct Limiter {
    #[pin]
    state: SpinLockIrq<State>,
}

impl Limiter {
    /// A limiter that has let nothing through yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock_irq!(State {
                start: None,
                used: 0,
            }),
        })
    }

    /// Whether one more message may be written.
    pub(crate) fn allow(&self) -> bool {
        let mut state = self.state.lock();
        match state.start {
            Some(start) if start.elapsed() < INTERVAL => {}
            _ => {
                state.start = Some(Instant::now());
                state.used = 0;
            }
        }
        state.used = state.used.saturating_add(1);
        state.used <= BURST
    }
}
