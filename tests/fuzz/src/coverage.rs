// SPDX-License-Identifier: GPL-2.0-or-later
//! Which edges of the crates under test an input has run through.
//!
//! `scripts/rustc-coverage.sh` lets the compiler add a counter of eight bits to each edge; each object file then tells
//! of its counters before `main`. A build without it has none, and nothing here costs anything.

#![allow(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The counters of one object file: address of the first, and how many.
type Counters = (usize, usize);

/// Counters that are looked at together, because most are zero.
const CHUNK: usize = 128;

static COUNTERS: Mutex<Vec<Counters>> = Mutex::new(Vec::new());

fn counters() -> MutexGuard<'static, Vec<Counters>> {
    COUNTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called by the code that the compiler adds to an object file.
extern "C" fn register(start: *mut u8, stop: *mut u8) {
    let (start, len) = (start as usize, stop as usize - start as usize);
    let mut counters = counters();
    if len > 0 && !counters.iter().any(|c| c.0 == start) {
        counters.push((start, len));
    }
}

/// The name that the compiler's code calls.
#[no_mangle]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    register(start, stop);
}

/// What inputs have reached so far.
#[derive(Debug, Default)]
pub struct Reached {
    /// For each edge the classes of counts that were seen, a bit each.
    classes: Vec<u8>,
    edges: usize,
}

/// Counts that differ little are of one class: a loop that runs once more leads nowhere new.
fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128..=255 => 128,
    }
}

impl Reached {
    /// Edges that were reached.
    pub fn edges(&self) -> usize {
        self.edges
    }

    /// Takes in the counts of the input that has run; gives whether one was new.
    pub fn take(&mut self) -> bool {
        let (mut is_new, mut base) = (false, 0);
        for &(start, len) in counters().iter() {
            // SAFETY: the linker put `len` counters there, which live as long as the program. The code that counts
            // is that of targets: none runs now, in no thread, because this is called between inputs.
            let counts = unsafe { std::slice::from_raw_parts(start as *const u8, len) };
            if self.classes.len() < base + len {
                self.classes.resize(base + len, 0);
            }
            for (at, counts) in counts.chunks(CHUNK).enumerate() {
                if counts.iter().fold(0, |all, count| all | count) == 0 {
                    continue;
                }
                let classes = &mut self.classes[base + at * CHUNK..];
                for (count, seen) in counts.iter().zip(classes) {
                    let class = class(*count);
                    is_new |= class & !*seen != 0;
                    self.edges += usize::from(class != 0 && *seen == 0);
                    *seen |= class;
                }
            }
            base += len;
        }
        is_new
    }
}

/// Sets all counts to zero, before an input runs: the driver is counted too.
pub fn clear() {
    for &(start, len) in counters().iter() {
        // SAFETY: as in `Reached::take`.
        unsafe { std::slice::from_raw_parts_mut(start as *mut u8, len) }.fill(0);
    }
}

/// How many edges there are; 0 in a build without counters.
pub fn total() -> usize {
    // Keeps the function in the program, whichever library the linker sees first.
    std::hint::black_box(__sanitizer_cov_8bit_counters_init as extern "C" fn(*mut u8, *mut u8));
    counters().iter().map(|c| c.1).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    /// Counters as the compiler makes them.
    static SOME: [AtomicU8; 100] = [const { AtomicU8::new(0) }; 100];

    /// Tells of the counters, as an object file does.
    pub(crate) fn register_some() {
        let counters = SOME.as_ptr_range();
        register(
            counters.start.cast_mut().cast(),
            counters.end.cast_mut().cast(),
        );
    }

    /// Counts an edge.
    pub(crate) fn count(edge: usize) {
        SOME[edge].fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn counts_of_one_class_are_one() {
        let classes: Vec<_> = (0..=255).map(class).collect();
        assert_eq!(classes[..5], [0, 1, 2, 4, 8]);
        assert!(classes.windows(2).all(|w| w[0] <= w[1]));
        assert_eq!(classes[4], classes[7]);
        assert_ne!(classes[7], classes[8]);
    }
}
