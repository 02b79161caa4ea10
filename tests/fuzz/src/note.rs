// SPDX-License-Identifier: GPL-2.0-or-later
//! What an input led to: targets note outcomes, the driver keeps inputs with new ones.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

thread_local! {
    static NOTES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Notes an outcome of the input that is running.
pub fn note(outcome: impl Hash) {
    let mut hasher = DefaultHasher::new();
    outcome.hash(&mut hasher);
    let hash = hasher.finish();
    NOTES.with_borrow_mut(|notes| {
        if notes.len() < 4096 {
            notes.push(hash);
        }
    });
}

/// Takes what this thread has noted since the last call.
pub fn take_notes() -> Vec<u64> {
    NOTES.take()
}
