// SPDX-License-Identifier: GPL-2.0-or-later
//! How a failing input becomes a small one.

use std::time::{Duration, Instant};

/// Takes pieces out of `input`, then makes bytes zero, as long as `fails` says that it still fails;
/// ends when nothing more can be left out, or after `limit`.
pub fn shrink(
    mut input: Vec<u8>,
    limit: Duration,
    mut fails: impl FnMut(&[u8]) -> bool,
) -> Vec<u8> {
    let end = Instant::now() + limit;
    let mut size = input.len().div_ceil(2);
    while size > 0 && Instant::now() < end {
        let mut at = 0;
        let mut smaller = false;
        while at < input.len() && Instant::now() < end {
            let mut less = input.clone();
            less.drain(at..(at + size).min(input.len()));
            if fails(&less) {
                input = less;
                smaller = true;
            } else {
                at += size;
            }
        }
        // Another pass with the same size may find more.
        if !smaller || size > input.len() {
            size /= 2;
        }
    }
    for at in 0..input.len() {
        if input[at] != 0 && Instant::now() < end {
            let mut zero = input.clone();
            zero[at] = 0;
            if fails(&zero) {
                input = zero;
            }
        }
    }
    input
}
