// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory of a queue: a record, and entries behind it.

use crate::mem::PageList;
use crate::seams::{Dma, DmaError};

/// Memory of a queue. Offsets are in bytes from its start; one beyond its end gives [`DmaError`].
#[derive(Debug)]
pub struct QueueMem(PageList);

impl QueueMem {
    /// The queue in `pages`.
    pub fn new(pages: PageList) -> Self {
        QueueMem(pages)
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    fn run(&self, offset: u64, len: usize) -> Result<(u64, usize), DmaError> {
        self.0
            .resolve(offset, len)
            .ok_or(DmaError { addr: offset, len })
    }

    /// The address of an entry, which never crosses the end of a page.
    #[inline]
    fn entry(&self, offset: u64, len: usize) -> Result<u64, DmaError> {
        match self.run(offset, len)? {
            (addr, run) if run == len => Ok(addr),
            _ => Err(DmaError { addr: offset, len }),
        }
    }

    /// Copies bytes out of the queue.
    #[inline]
    pub fn read<D: Dma>(
        &self,
        dma: &D,
        mut offset: u64,
        mut buf: &mut [u8],
    ) -> Result<(), DmaError> {
        while !buf.is_empty() {
            let (addr, run) = self.run(offset, buf.len())?;
            let (head, rest) = buf.split_at_mut(run);
            dma.read(addr, head)?;
            offset += run as u64;
            buf = rest;
        }
        Ok(())
    }

    /// Loads a word with acquire semantics.
    #[inline]
    pub fn load_u32<D: Dma>(&self, dma: &D, offset: u64) -> Result<u32, DmaError> {
        dma.load_u32(self.entry(offset, 4)?)
    }

    /// Stores a word with release semantics.
    #[inline]
    pub fn store_u32<D: Dma>(&self, dma: &D, offset: u64, value: u32) -> Result<(), DmaError> {
        dma.store_u32(self.entry(offset, 4)?, value)
    }

    /// Writes an entry, its last 8 bytes last.
    #[inline]
    pub fn publish<D: Dma>(&self, dma: &D, offset: u64, entry: &[u8]) -> Result<(), DmaError> {
        dma.publish(self.entry(offset, entry.len())?, entry)
    }
}
