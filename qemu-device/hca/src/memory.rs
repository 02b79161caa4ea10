// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory in this process that stands in for a guest's, for tests and simulations.

use std::cell::Cell;
use std::rc::Rc;

use crate::seams::{Dma, DmaError};

/// Memory from DMA address 0 up, shared by clones: one for the device, one for the driver's side.
///
/// Both are in one thread, so plain copies do, and what is one access here is one for the other side
/// too. Accesses beyond its end give [`DmaError`].
#[derive(Clone, Debug)]
pub struct Memory(Rc<[Cell<u8>]>);

impl Memory {
    /// Zeroed memory of `len` bytes.
    pub fn new(len: usize) -> Self {
        Memory((0..len).map(|_| Cell::new(0)).collect())
    }

    /// Bytes of memory.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no memory at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `len` bytes from `addr` on.
    #[inline]
    fn cells(&self, addr: u64, len: usize) -> Result<&[Cell<u8>], DmaError> {
        let error = DmaError { addr, len };
        let at = usize::try_from(addr).map_err(|_| error)?;
        let end = at.checked_add(len).ok_or(error)?;
        self.0.get(at..end).ok_or(error)
    }

    /// The aligned word of `N` bytes at `addr`.
    #[inline]
    fn word<const N: usize>(&self, addr: u64) -> Result<&[Cell<u8>; N], DmaError> {
        let error = DmaError { addr, len: N };
        if addr % N as u64 != 0 {
            return Err(error);
        }
        self.cells(addr, N)?.first_chunk().ok_or(error)
    }

    /// Copies `N` bytes from memory.
    pub fn bytes<const N: usize>(&self, addr: u64) -> Result<[u8; N], DmaError> {
        let mut buf = [0; N];
        self.read(addr, &mut buf)?;
        Ok(buf)
    }
}

#[inline]
fn get<const N: usize>(word: &[Cell<u8>; N]) -> [u8; N] {
    core::array::from_fn(|i| word[i].get())
}

#[inline]
fn set<const N: usize>(word: &[Cell<u8>; N], value: [u8; N]) {
    for (cell, byte) in word.iter().zip(value) {
        cell.set(byte);
    }
}

impl Dma for Memory {
    #[inline]
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let cells = self.cells(addr, buf.len())?;
        for (byte, cell) in buf.iter_mut().zip(cells) {
            *byte = cell.get();
        }
        Ok(())
    }

    #[inline]
    fn write(&self, addr: u64, buf: &[u8]) -> Result<(), DmaError> {
        let cells = self.cells(addr, buf.len())?;
        for (cell, byte) in cells.iter().zip(buf) {
            cell.set(*byte);
        }
        Ok(())
    }

    #[inline]
    fn load_u32(&self, addr: u64) -> Result<u32, DmaError> {
        Ok(u32::from_le_bytes(get(self.word(addr)?)))
    }

    #[inline]
    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaError> {
        set(self.word(addr)?, value.to_le_bytes());
        Ok(())
    }

    #[inline]
    fn publish(&self, addr: u64, entry: &[u8]) -> Result<(), DmaError> {
        if addr % 8 != 0 || entry.len() % 8 != 0 || entry.is_empty() {
            let len = entry.len();
            return Err(DmaError { addr, len });
        }
        self.write(addr, entry)
    }

    fn compare_swap_u64(&self, addr: u64, compare: u64, swap: u64) -> Result<u64, DmaError> {
        let word = self.word(addr)?;
        let old = u64::from_le_bytes(get(word));
        if old == compare {
            set(word, swap.to_le_bytes());
        }
        Ok(old)
    }

    fn fetch_add_u64(&self, addr: u64, add: u64) -> Result<u64, DmaError> {
        let word = self.word(addr)?;
        let old = u64::from_le_bytes(get(word));
        set(word, old.wrapping_add(add).to_le_bytes());
        Ok(old)
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
