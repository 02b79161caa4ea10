// SPDX-License-Identifier: GPL-2.0-or-later
//! How an input becomes another one.

use crate::common::rng::Rng;

/// Most bytes of an input.
pub const MOST: usize = 16 << 10;
/// Numbers at which things change.
const EDGES: [u64; 20] = [
    0,
    1,
    2,
    3,
    7,
    15,
    63,
    64,
    255,
    256,
    4095,
    4096,
    0x7fff,
    0xffff,
    0xff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 63,
    u64::MAX,
];

/// A place in `input`, the start more often than the rest.
fn place(rng: &mut Rng, len: usize) -> usize {
    let len = if rng.chance(30) { len.min(64) } else { len };
    rng.below(len.max(1) as u64) as usize
}

fn once(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    let at = place(rng, input.len());
    let most = 1 << rng.below(9);
    let some = 1 + rng.below(most) as usize;
    match rng.below(10) {
        0 | 1 if !input.is_empty() => input[at] ^= 1 << rng.below(8),
        2 if !input.is_empty() => input[at] = rng.next() as u8,
        // A number of 1, 2, 4 or 8 bytes in either order.
        3 | 4 if !input.is_empty() => {
            let width = (1 << rng.below(4)).min(input.len() - at);
            let mut number = rng.pick(&EDGES);
            if rng.chance(30) {
                number = number.wrapping_add(rng.below(5)).wrapping_sub(2);
            }
            let mut bytes = number.to_le_bytes();
            if rng.chance(50) {
                bytes[..width].reverse();
            }
            input[at..at + width].copy_from_slice(&bytes[..width]);
        }
        5 if !input.is_empty() => {
            let step = rng.below(33) as u8;
            input[at] = input[at].wrapping_add(step).wrapping_sub(16);
        }
        6 => {
            let end = (at + some).min(input.len());
            input.drain(at.min(end)..end);
        }
        // A piece again, somewhere else.
        7 => {
            let end = (at + some).min(input.len());
            let piece = input[at.min(end)..end].to_vec();
            let to = rng.below(input.len() as u64 + 1) as usize;
            input.splice(to..to, piece);
        }
        8 if !other.is_empty() => {
            let from = rng.below(other.len() as u64) as usize;
            let piece = &other[from..(from + some).min(other.len())];
            let to = rng.below(input.len() as u64 + 1) as usize;
            let end = if rng.chance(50) {
                to
            } else {
                (to + piece.len()).min(input.len())
            };
            input.splice(to..end, piece.iter().copied());
        }
        _ => {
            let to = rng.below(input.len() as u64 + 1) as usize;
            let bytes = rng.bytes(some.min(16));
            input.splice(to..to, bytes);
        }
    }
}

/// Another input from `input`, with pieces of `other`.
pub(crate) fn mutate(rng: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = input.to_vec();
    // Few more often than many, which break what the input has built up.
    for _ in 0..1 << rng.below(5).min(rng.below(5)) {
        once(rng, &mut out, other);
    }
    out.truncate(MOST);
    out
}
