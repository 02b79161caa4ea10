// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory in this process that stands in for a guest's, for tests and simulations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::seams::{Dma, DmaError};

/// Memory from DMA address 0 up, shared by clones: one for the device, one for the driver's side.
///
/// Accesses beyond its end give [`DmaError`].
#[derive(Clone, Debug)]
pub struct Memory(Arc<[AtomicU64]>);

impl Memory {
    /// Zeroed memory of `len` bytes, rounded up to 8.
    pub fn new(len: usize) -> Self {
        Memory((0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Bytes of memory.
    pub fn len(&self) -> usize {
        self.0.len() * 8
    }

    /// Whether there is no memory at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn words(&self, addr: u64, len: usize) -> Result<(usize, usize), DmaError> {
        let end = addr.checked_add(len as u64);
        match end {
            Some(end) if end <= self.len() as u64 => Ok(((addr / 8) as usize, (addr % 8) as usize)),
            _ => Err(DmaError { addr, len }),
        }
    }

    fn word(&self, addr: u64, align: u64, len: usize) -> Result<&AtomicU64, DmaError> {
        if addr % align != 0 {
            return Err(DmaError { addr, len });
        }
        let (word, _) = self.words(addr, len)?;
        self.0.get(word).ok_or(DmaError { addr, len })
    }

    /// Copies `N` bytes from memory.
    pub fn bytes<const N: usize>(&self, addr: u64) -> Result<[u8; N], DmaError> {
        let mut buf = [0; N];
        self.read(addr, &mut buf)?;
        Ok(buf)
    }
}

/// Copies bytes of the first of `words`, from byte `at` of it on.
fn read_part(words: &[AtomicU64], at: usize, out: &mut [u8]) {
    if let Some(word) = words.first() {
        let value = word.load(Ordering::Relaxed).to_le_bytes();
        for (to, from) in out.iter_mut().zip(&value[at..]) {
            *to = *from;
        }
    }
}

/// Copies bytes into the first of `words`, from byte `at` of it on. A neighbour in the same word may
/// be written meanwhile.
fn write_part(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let Some(word) = words.first().filter(|_| !bytes.is_empty()) else {
        return;
    };
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
        let mut value = old.to_le_bytes();
        for (to, from) in value[at..].iter_mut().zip(bytes) {
            *to = *from;
        }
        Some(u64::from_le_bytes(value))
    });
}

impl Dma for Memory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let (word, at) = self.words(addr, buf.len())?;
        let words = &self.0[word..];
        let (words, buf) = if at == 0 {
            (words, buf)
        } else {
            let (head, rest) = buf.split_at_mut(buf.len().min(8 - at));
            read_part(words, at, head);
            (words.get(1..).unwrap_or(&[]), rest)
        };
        let done = buf.len() / 8;
        let (body, tail) = buf.split_at_mut(done * 8);
        for (chunk, word) in body.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        read_part(words.get(done..).unwrap_or(&[]), 0, tail);
        Ok(())
    }

    fn write(&self, addr: u64, buf: &[u8]) -> Result<(), DmaError> {
        let (word, at) = self.words(addr, buf.len())?;
        let words = &self.0[word..];
        let (words, buf) = if at == 0 {
            (words, buf)
        } else {
            let (head, rest) = buf.split_at(buf.len().min(8 - at));
            write_part(words, at, head);
            (words.get(1..).unwrap_or(&[]), rest)
        };
        let chunks = buf.chunks_exact(8);
        let (done, tail) = (chunks.len(), chunks.remainder());
        for (chunk, word) in chunks.zip(words) {
            let mut value = [0; 8];
            value.copy_from_slice(chunk);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        write_part(words.get(done..).unwrap_or(&[]), 0, tail);
        Ok(())
    }

    fn load_u32(&self, addr: u64) -> Result<u32, DmaError> {
        let value = self.word(addr, 4, 4)?.load(Ordering::Acquire);
        Ok((value >> (addr % 8 * 8)) as u32)
    }

    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaError> {
        let shift = addr % 8 * 8;
        let word = self.word(addr, 4, 4)?;
        let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, |old| {
            Some(old & !(0xffff_ffff << shift) | u64::from(value) << shift)
        });
        Ok(())
    }

    fn publish(&self, addr: u64, entry: &[u8]) -> Result<(), DmaError> {
        let error = DmaError {
            addr,
            len: entry.len(),
        };
        let (body, last) = entry.split_last_chunk::<8>().ok_or(error)?;
        let last_word = self.word(addr.wrapping_add(body.len() as u64), 8, 8)?;
        self.write(addr, body)?;
        last_word.store(u64::from_le_bytes(*last), Ordering::Release);
        Ok(())
    }

    fn compare_swap_u64(&self, addr: u64, compare: u64, swap: u64) -> Result<u64, DmaError> {
        let word = self.word(addr, 8, 8)?;
        match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(old) | Err(old) => Ok(old),
        }
    }

    fn fetch_add_u64(&self, addr: u64, add: u64) -> Result<u64, DmaError> {
        Ok(self.word(addr, 8, 8)?.fetch_add(add, Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_pieces_meet() {
        let m = Memory::new(64);
        m.write(3, b"hello, memory").unwrap();
        assert_eq!(&m.bytes::<13>(3).unwrap(), b"hello, memory");
        assert_eq!(m.bytes::<1>(2).unwrap(), [0]);
        assert_eq!(m.bytes::<1>(16).unwrap(), [0]);
        m.store_u32(4, 0x0102_0304).unwrap();
        assert_eq!(m.bytes::<4>(4).unwrap(), [4, 3, 2, 1]);
        assert_eq!(m.load_u32(4).unwrap(), 0x0102_0304);
    }

    #[test]
    fn the_end_is_the_end() {
        let m = Memory::new(64);
        assert!(m.write(60, &[0; 4]).is_ok());
        assert_eq!(m.write(61, &[0; 4]), Err(DmaError { addr: 61, len: 4 }));
        assert!(m.read(u64::MAX, &mut [0; 2]).is_err());
        assert!(m.load_u32(2).is_err());
        assert!(m.fetch_add_u64(4, 1).is_err());
        assert!(m.publish(64, &[0; 8]).is_err());
    }

    #[test]
    fn atomics_give_the_value_before() {
        let m = Memory::new(8);
        assert_eq!(m.fetch_add_u64(0, 5), Ok(0));
        assert_eq!(m.compare_swap_u64(0, 4, 9), Ok(5));
        assert_eq!(m.compare_swap_u64(0, 5, 9), Ok(5));
        assert_eq!(m.fetch_add_u64(0, u64::MAX), Ok(9));
        assert_eq!(m.bytes::<8>(0).unwrap(), 8u64.to_le_bytes());
    }
}
