// SPDX-License-Identifier: GPL-2.0-or-later
//! Random numbers, the same for the same seed.

/// splitmix64
#[derive(Debug)]
pub struct Rng(u64);

impl Rng {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Bytes without a meaning.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.number().to_le_bytes()[..piece.len()]);
        }
        bytes
    }
}
