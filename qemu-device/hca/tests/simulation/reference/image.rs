// SPDX-License-Identifier: GPL-2.0-or-later
//! What a stretch of memory must hold.

use super::{Effects, Look};

/// Memory from an address on.
#[derive(Clone)]
pub struct Image {
    start: u64,
    bytes: Vec<u8>,
}

impl Image {
    pub fn new(start: u64, end: u64, look: Look<'_>) -> Self {
        Image {
            start,
            bytes: look(start, end - start),
        }
    }

    /// Nothing may be anywhere.
    fn range(&self, at: u64, len: u64) -> std::ops::Range<usize> {
        if len == 0 {
            return 0..0;
        }
        let from = (at - self.start) as usize;
        from..from + len as usize
    }

    /// Whether `len` bytes at `at` lie in it.
    pub fn has(&self, at: u64, len: u64) -> bool {
        let end = self.start + self.bytes.len() as u64;
        at >= self.start && at.checked_add(len).is_some_and(|e| e <= end)
    }

    pub fn get(&self, at: u64, len: u64) -> &[u8] {
        &self.bytes[self.range(at, len)]
    }

    pub fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.get(at, 8).try_into().unwrap())
    }

    pub fn apply(&mut self, effects: &Effects) {
        for (at, bytes) in effects {
            let range = self.range(*at, bytes.len() as u64);
            self.bytes[range].copy_from_slice(bytes);
        }
    }

    /// What memory holds now.
    pub fn actual(&self, look: Look<'_>) -> Vec<u8> {
        look(self.start, self.bytes.len() as u64)
    }

    /// Panics at the first byte that is not as it must be.
    pub fn check(&self, look: Look<'_>, whose: &str) {
        let differs = self
            .actual(look)
            .iter()
            .zip(&self.bytes)
            .position(|(a, b)| a != b);
        assert_eq!(
            differs, None,
            "first wrong byte in the {whose}'s memory from {:#x} on",
            self.start
        );
    }

    /// Takes memory as it is, which must be this image after some of `effects`, in order: all before
    /// one, and the first bytes of that one.
    pub fn advance(&mut self, effects: &[Effects], look: Look<'_>, whose: &str) {
        let actual = self.actual(look);
        // Bytes in which the image is not the memory; each step counts them anew where it writes.
        let mut wrong = mismatches(&self.bytes, &actual);
        for effect in effects {
            if wrong == 0 {
                break;
            }
            let before = self.clone_of(effect);
            let mut partly = wrong;
            let mut is_prefix = true;
            let mut after = wrong;
            for ((at, new), old) in effect.iter().zip(&before) {
                let range = self.range(*at, new.len() as u64);
                let there = &actual[range.clone()];
                let had = mismatches(old, there);
                after = after - had + mismatches(new, there);
                if is_prefix {
                    let prefix = there.iter().zip(new).take_while(|(a, b)| a == b).count();
                    is_prefix = prefix == new.len();
                    partly = partly - had + mismatches(&old[prefix..], &there[prefix..]);
                }
                self.bytes[range].copy_from_slice(new);
            }
            if partly == 0 {
                wrong = 0;
                break;
            }
            wrong = after;
        }
        assert_eq!(
            wrong, 0,
            "bytes in the {whose}'s memory that no order of its requests explains"
        );
        self.bytes = actual;
    }

    /// Panics at the first byte that is neither what it was nor what one of `writes` put there; one that
    /// is certain replaces all before it.
    pub fn check_any<'a>(&self, writes: impl Iterator<Item = (&'a Effects, bool)>, look: Look<'_>) {
        let actual = self.actual(look);
        let mut explained: Vec<bool> = actual
            .iter()
            .zip(&self.bytes)
            .map(|(a, b)| a == b)
            .collect();
        for (effects, is_certain) in writes {
            for (at, bytes) in effects {
                let range = self.range(*at, bytes.len() as u64);
                let places = explained[range.clone()].iter_mut().zip(&actual[range]);
                for ((explained, there), byte) in places.zip(bytes) {
                    *explained = there == byte || (*explained && !is_certain);
                }
            }
        }
        let wrong = explained.iter().position(|e| !e);
        assert_eq!(
            wrong, None,
            "first byte of the responder's memory from {:#x} on that no WRITE has put there",
            self.start
        );
    }

    fn clone_of(&self, effects: &Effects) -> Vec<Vec<u8>> {
        effects
            .iter()
            .map(|(at, bytes)| self.get(*at, bytes.len() as u64).to_vec())
            .collect()
    }
}

fn mismatches(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}
