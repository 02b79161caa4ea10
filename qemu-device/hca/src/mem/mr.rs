// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory regions and their keys.

use std::collections::VecDeque;

use ochre_hw::verbs::access;

use crate::mem::{MemError, PageList};
use crate::seams::{Dma, DmaError};

/// A memory region.
#[derive(Debug)]
pub struct Mr {
    /// Protection domain.
    pub pd: u32,
    /// `access::REGION` bits.
    pub access: u32,
    /// Where its bytes are.
    pub target: Target,
}

/// What a region covers.
#[derive(Debug)]
pub enum Target {
    /// Every DMA address; virtual addresses are DMA addresses.
    WholeMemory,
    /// Pages at a virtual address.
    Pages {
        /// Virtual address of the first byte.
        iova: u64,
        /// Bytes.
        length: u64,
        /// The pages.
        pages: PageList,
        /// Offset of the first byte in the pages.
        first: u64,
    },
}

impl Mr {
    /// Whether `len` bytes at `va` are inside the region.
    #[inline]
    fn covers(&self, va: u64, len: u64) -> bool {
        match &self.target {
            Target::WholeMemory => va.checked_add(len).is_some(),
            Target::Pages { iova, length, .. } => va
                .checked_sub(*iova)
                .is_some_and(|at| at <= *length && len <= *length - at),
        }
    }

    /// The DMA address of byte `va`, and how many of `len` bytes follow it without a gap.
    #[inline]
    fn run(&self, va: u64, len: usize) -> Result<(u64, usize), DmaError> {
        match &self.target {
            Target::WholeMemory => Ok((va, len)),
            Target::Pages {
                iova, pages, first, ..
            } => pages
                .resolve(va.wrapping_sub(*iova).wrapping_add(*first), len)
                .ok_or(DmaError { addr: va, len }),
        }
    }

    /// Copies bytes out of the region. The caller has checked the range.
    #[inline]
    pub fn read<D: Dma>(&self, dma: &D, mut va: u64, mut buf: &mut [u8]) -> Result<(), DmaError> {
        while !buf.is_empty() {
            let (addr, run) = self.run(va, buf.len())?;
            let (head, rest) = buf.split_at_mut(run);
            dma.read(addr, head)?;
            va = va.wrapping_add(run as u64);
            buf = rest;
        }
        Ok(())
    }

    /// Copies bytes into the region. The caller has checked the range.
    #[inline]
    pub fn write<D: Dma>(&self, dma: &D, mut va: u64, mut buf: &[u8]) -> Result<(), DmaError> {
        while !buf.is_empty() {
            let (addr, run) = self.run(va, buf.len())?;
            let (head, rest) = buf.split_at(run);
            dma.write(addr, head)?;
            va = va.wrapping_add(run as u64);
            buf = rest;
        }
        Ok(())
    }

    /// The DMA address of 8 aligned bytes at `va`, for an atomic. The caller has checked range and
    /// alignment of `va`; the memory behind it may still be off, which is a [`DmaError`].
    pub fn word(&self, va: u64) -> Result<u64, DmaError> {
        match self.run(va, 8)? {
            (addr, 8) if addr % 8 == 0 => Ok(addr),
            _ => Err(DmaError { addr: va, len: 8 }),
        }
    }
}

#[derive(Debug)]
struct Slot {
    tag: u8,
    mr: Option<Box<Mr>>,
}

/// All regions, by key: the index in bits 31:8, the tag in bits 7:0.
#[derive(Debug)]
pub struct MrTable {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    max: u32,
    used: u32,
}

impl MrTable {
    /// An empty table for at most `max` regions.
    pub fn new(max: u32) -> Self {
        MrTable {
            slots: Vec::new(),
            free: VecDeque::new(),
            max: max.min(1 << 24),
            used: 0,
        }
    }

    /// Regions in the table.
    pub fn len(&self) -> u32 {
        self.used
    }

    /// Whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.used >= self.max
    }

    /// Adds a region and gives its key; gives it back where the table is full.
    pub fn insert(&mut self, mr: Mr) -> Result<u32, Mr> {
        if self.is_full() {
            return Err(mr);
        }
        let index = match self.free.pop_front() {
            Some(index) => index,
            None => {
                // A new place starts with tag 1, so that no key is 0.
                self.slots.push(Slot { tag: 0, mr: None });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.tag = slot.tag.wrapping_add(1);
        if slot.tag == 0 {
            slot.tag = 1;
        }
        slot.mr = Some(Box::new(mr));
        self.used += 1;
        Ok(index << 8 | u32::from(slot.tag))
    }

    /// The region with this key.
    #[inline]
    pub fn get(&self, key: u32) -> Option<&Mr> {
        let slot = self.slots.get((key >> 8) as usize)?;
        if slot.tag == key as u8 {
            slot.mr.as_deref()
        } else {
            None
        }
    }

    /// Takes a region out; its key names nothing any more.
    pub fn remove(&mut self, key: u32) -> Option<Box<Mr>> {
        self.get(key)?;
        let index = key >> 8;
        let mr = self.slots.get_mut(index as usize)?.mr.take()?;
        self.free.push_back(index);
        self.used -= 1;
        Some(mr)
    }

    /// Checks an access of `len` bytes at `va` by a QP of `pd` that needs the rights `need`, and
    /// gives the region.
    #[inline]
    pub fn check(&self, key: u32, pd: u32, va: u64, len: u64, need: u32) -> Result<&Mr, MemError> {
        let mr = self.get(key).ok_or(MemError::Key(key))?;
        if mr.pd != pd {
            return Err(MemError::Pd {
                region: mr.pd,
                access: pd,
            });
        }
        let missing = need & access::REGION & !mr.access;
        if missing != 0 {
            return Err(MemError::Access(missing));
        }
        if !mr.covers(va, len) {
            return Err(MemError::Range { addr: va, len });
        }
        Ok(mr)
    }
}
