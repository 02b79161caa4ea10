// SPDX-License-Identifier: GPL-2.0-or-later

//! Event queues.
//!
//! The interrupt handler reads every new event and acts at once on those that may be handled with
//! interrupts off. Events whose handling may sleep are left in the queue for the interrupt's
//! thread; until the thread has handled them, the device keeps their entries untouched, because
//! the consumer index in the queue's record stays behind.

use crate::{
    block::Block,
    cmd::{
        CreateEq,
        Wait, //
    },
    device::Core,
    hw::{
        cmd::queue,
        eqe::{
            Eqe,
            EQE_PHASE, //
        },
        queue::EqRecord,
    }, //
};
use core::mem::offset_of;
use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_spinlock_irq,
    prelude::*,
    sync::{
        barrier::{
            dma_mb,
            mb,
            Full,
            Read, //
        },
        SetOnce,
        SpinLockIrq, //
    }, //
};

/// The device learns of consumed events at least this often.
const PUBLISH_INTERVAL: u32 = 64;

/// How far the events of a queue are handled. Indices run freely.
struct State {
    /// Index of the first event that the interrupt handler has not seen.
    seen: u32,
    /// Index of the first event that the thread has not handled; not beyond `seen`.
    handled: u32,
    /// Whether the thread has something to do.
    deferred: bool,
    /// The last value that armed the queue.
    arm: u32,
}

/// Whether an entry whose owner byte is `owner` is that of `index`, and not one of the pass before.
fn is_written(owner: u8, index: u32, log_entries: u8) -> bool {
    (owner & EQE_PHASE != 0) == ((index >> log_entries) & 1 == 0)
}

/// An event queue and its memory.
#[pin_data]
pub(crate) struct EventQueue {
    mem: Block,
    log_entries: u8,
    /// The device's number of the queue, once it knows it.
    number: SetOnce<u32>,
    #[pin]
    state: SpinLockIrq<State>,
}

impl EventQueue {
    /// Allocates a queue of `1 << log_entries` events.
    pub(crate) fn new(dev: &Device<Bound>, log_entries: u8) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            mem: Block::new(dev, EqRecord::SIZE + (Eqe::SIZE << log_entries))?,
            log_entries,
            number: SetOnce::new(),
            state <- new_spinlock_irq!(State {
                seen: 0,
                handled: 0,
                deferred: false,
                arm: 0,
            }),
        })
    }

    /// Makes the queue known to the device, which then raises an MSI-X vector for it, and arms it.
    pub(crate) fn create(&self, core: &Core, vector: u16) -> Result {
        let input = queue::CreateEq {
            mem: self.mem.desc(),
            vector,
            log_entries: self.log_entries,
            ..queue::CreateEq::default()
        };
        // An event may come before the command is done.
        self.rearm(&mut self.state.lock())?;
        let out = core.command::<CreateEq>(input, Wait::Sleep)?;
        self.number.populate(out.number);
        Ok(())
    }

    /// The device's number of the queue.
    pub(crate) fn number(&self) -> Result<u32> {
        self.number.copy().ok_or(ENODEV)
    }

    fn rearm(&self, state: &mut State) -> Result {
        state.arm = state.arm.wrapping_add(1);
        self.mem.store32(offset_of!(EqRecord, arm), state.arm)?;
        // The device must see this before the queue is looked at once more.
        mb(Full);
        Ok(())
    }

    /// The event of an index, if the device has written it.
    fn event(&self, index: u32) -> Option<Eqe> {
        let size = 1u32 << self.log_entries;
        let offset = EqRecord::SIZE + (index & (size - 1)) as usize * Eqe::SIZE;
        let owner = self.mem.load8(offset + offset_of!(Eqe, owner)).ok()?;
        if !is_written(owner, index, self.log_entries) {
            return None;
        }
        // The device writes the owner last.
        dma_mb(Read);
        Some(Eqe::from_bytes(&self.mem.read(offset).ok()?))
    }

    /// Tells the device how far events are consumed.
    fn publish(&self, state: &State) {
        // The entries are read before the device may write them again.
        mb(Full);
        // The record is always in the memory.
        let _ = self
            .mem
            .store32(offset_of!(EqRecord, consumer), state.handled);
    }

    /// Handles new events with interrupts off, and arms the queue again: to be called by the
    /// interrupt handler.
    ///
    /// `handle` gives false for an event that is the thread's. Returns whether the thread has
    /// something to do.
    pub(crate) fn interrupt(&self, mut handle: impl FnMut(&Eqe) -> bool) -> bool {
        let mut armed = false;
        loop {
            let mut any = false;
            // Only this handler moves `seen`, and it does not run twice at once.
            let mut seen = self.state.lock().seen;
            while let Some(event) = self.event(seen) {
                any = true;
                let deferred = !handle(&event);
                seen = seen.wrapping_add(1);
                let mut state = self.state.lock();
                state.seen = seen;
                state.deferred |= deferred;
                if !state.deferred {
                    state.handled = seen;
                    if seen % PUBLISH_INTERVAL == 0 {
                        self.publish(&state);
                    }
                }
            }

            let mut state = self.state.lock();
            if any {
                self.publish(&state);
            } else if armed {
                return state.deferred;
            }
            // The interrupt has used the last arming up, even where its event was seen before.
            if self.rearm(&mut state).is_err() {
                return state.deferred;
            }
            armed = true;
        }
    }

    /// Handles the events that the interrupt handler has left: to be called by the interrupt's
    /// thread. `handle` gets every event again, and must pass over those that are handled.
    pub(crate) fn thread(&self, mut handle: impl FnMut(&Eqe)) {
        loop {
            let index = {
                let mut state = self.state.lock();
                if state.handled == state.seen {
                    state.deferred = false;
                    self.publish(&state);
                    return;
                }
                state.handled
            };
            if let Some(event) = self.event(index) {
                handle(&event);
            }
            self.state.lock().handled = index.wrapping_add(1);
        }
    }
}

#[kunit_tests(ochre_eq)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_turns_with_each_pass() {
        for index in [0, 1, 63, 128, 191] {
            assert!(is_written(EQE_PHASE, index, 6));
            assert!(!is_written(0, index, 6));
        }
        for index in [64, 127, 192, u32::MAX] {
            assert!(!is_written(EQE_PHASE, index, 6));
            assert!(is_written(0, index, 6));
        }
    }

    #[test]
    fn other_bits_of_the_owner_are_no_matter() {
        assert!(is_written(0xff, 0, 12));
        assert!(!is_written(0xfe, 0, 12));
    }
}
