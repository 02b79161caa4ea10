// SPDX-License-Identifier: GPL-2.0-or-later

//! Memory of queues that driver and device share.

use crate::{
    hw::queue::{
        MemDesc,
        MEM_INDIRECT, //
    },
    rdma::dma::Buffer, //
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*, //
};

/// log2 of the granule of a block, bytes.
const PAGE_SHIFT: u32 = 12;
/// log2 of the size of a chunk, bytes. Larger pieces of contiguous memory are hard to get.
const CHUNK_SHIFT: u32 = 16;
const CHUNK: usize = 1 << CHUNK_SHIFT;

/// Zeroed memory that driver and device share, accessed by byte offset.
///
/// A small block is contiguous; a large one consists of chunks, which the device is given a list of.
/// Aligned words do not cross the border of a chunk.
pub(crate) struct Block {
    chunks: KVec<Buffer>,
    /// Addresses of the chunks, where there are several.
    list: Option<Buffer>,
}

impl Block {
    /// Allocates at least `len` bytes.
    pub(crate) fn new(dev: &Device<Bound>, len: usize) -> Result<Self> {
        let len = len
            .max(1)
            .checked_next_multiple_of(1 << PAGE_SHIFT)
            .ok_or(EOVERFLOW)?;
        if len <= CHUNK {
            let mut chunks = KVec::with_capacity(1, GFP_KERNEL)?;
            chunks.push(Buffer::new(dev, len)?, GFP_KERNEL)?;
            return Ok(Self { chunks, list: None });
        }

        let num = len.div_ceil(CHUNK);
        let list = Buffer::new(dev, num * size_of::<u64>())?;
        let mut chunks = KVec::with_capacity(num, GFP_KERNEL)?;
        for i in 0..num {
            let chunk = Buffer::new(dev, CHUNK)?;
            list.store64(i * size_of::<u64>(), chunk.dma_address())?;
            chunks.push(chunk, GFP_KERNEL)?;
        }
        Ok(Self {
            chunks,
            list: Some(list),
        })
    }

    /// The block as commands describe it.
    pub(crate) fn desc(&self) -> MemDesc {
        match (&self.list, self.chunks.first()) {
            (Some(list), _) => MemDesc {
                addr: list.dma_address(),
                num_pages: self.chunks.len() as u32,
                page_shift: CHUNK_SHIFT as u8,
                flags: MEM_INDIRECT,
                ..MemDesc::default()
            },
            (None, Some(chunk)) => MemDesc {
                addr: chunk.dma_address(),
                num_pages: (chunk.len() >> PAGE_SHIFT) as u32,
                page_shift: PAGE_SHIFT as u8,
                ..MemDesc::default()
            },
            (None, None) => MemDesc::default(),
        }
    }

    /// The chunk of an offset, and the offset in it.
    #[inline]
    fn at(&self, offset: usize) -> Result<(&Buffer, usize)> {
        let chunk = self.chunks.get(offset >> CHUNK_SHIFT).ok_or(EINVAL)?;

        Ok((chunk, offset & (CHUNK - 1)))
    }

    /// Loads an 8-bit word.
    #[inline]
    pub(crate) fn load8(&self, offset: usize) -> Result<u8> {
        let (chunk, offset) = self.at(offset)?;

        chunk.load8(offset)
    }

    /// Loads an aligned 32-bit word.
    #[inline]
    pub(crate) fn load32(&self, offset: usize) -> Result<u32> {
        let (chunk, offset) = self.at(offset)?;

        chunk.load32(offset)
    }

    /// Loads an aligned 64-bit word.
    #[inline]
    pub(crate) fn load64(&self, offset: usize) -> Result<u64> {
        let (chunk, offset) = self.at(offset)?;

        chunk.load64(offset)
    }

    /// Stores an aligned 32-bit word.
    #[inline]
    pub(crate) fn store32(&self, offset: usize, value: u32) -> Result {
        let (chunk, offset) = self.at(offset)?;

        chunk.store32(offset, value)
    }

    /// Copies `N` bytes out of the block; they must lie in one chunk, as every structure on its own
    /// size does.
    #[inline]
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        let (chunk, offset) = self.at(offset)?;

        chunk.read(offset)
    }

    /// Copies bytes into the block.
    #[inline]
    pub(crate) fn write(&self, mut offset: usize, mut bytes: &[u8]) -> Result {
        while !bytes.is_empty() {
            let (chunk, start) = self.at(offset)?;
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - start));
            chunk.write(start, now)?;
            offset += now.len();
            bytes = later;
        }
        Ok(())
    }
}
