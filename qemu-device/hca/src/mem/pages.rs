// SPDX-License-Identifier: GPL-2.0-or-later
//! A piece of memory: one block, or pages in the order of a list.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use ochre_hw::cmd::Status;
use ochre_hw::queue::{MemDesc, MEM_INDIRECT, MEM_MAX_PAGES};

use crate::cmd::CmdError;
use crate::seams::Dma;

/// Alignment of a block that is not a list of pages, bytes.
const BLOCK_ALIGN: u64 = 64;

/// How many pages all lists of a device may name together: each takes 8 bytes of the host's memory,
/// and a guest may name the same page again and again.
#[derive(Clone, Debug)]
pub struct PageBudget {
    used: Arc<AtomicU64>,
    max: u64,
}

impl PageBudget {
    /// Room for `max` pages.
    pub fn new(max: u64) -> Self {
        PageBudget {
            used: Arc::default(),
            max,
        }
    }

    /// Pages that are named now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes room for `pages` pages until the result is dropped.
    fn take(&self, pages: u64) -> Option<Share> {
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(pages).filter(|&sum| sum <= self.max)
            });
        taken.is_ok().then(|| Share {
            used: self.used.clone(),
            pages,
        })
    }
}

/// A part of a [`PageBudget`], given back when it is dropped.
#[derive(Debug)]
struct Share {
    used: Arc<AtomicU64>,
    pages: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

/// Where the bytes of a piece of memory are.
#[derive(Debug)]
pub struct PageList {
    pages: Pages,
    shift: u8,
    len: u64,
}

#[derive(Debug)]
enum Pages {
    Block(u64),
    List {
        pages: Box<[u64]>,
        /// Held as long as the list.
        _share: Share,
    },
}

/// Byte offsets of the fields in a [`MemDesc`], for [`CmdError`].
mod field {
    pub(super) const ADDR: usize = 0x00;
    pub(super) const NUM_PAGES: usize = 0x08;
    pub(super) const PAGE_SHIFT: usize = 0x0c;
    pub(super) const FLAGS: usize = 0x0d;
    pub(super) const RESERVED: usize = 0x0e;
}

impl PageList {
    /// Checks `desc`, which stands at byte `at` of a command's input, and reads its list of pages.
    /// The list counts against `budget` as long as it lives.
    pub fn load<D: Dma>(
        dma: &D,
        desc: &MemDesc,
        at: usize,
        budget: &PageBudget,
    ) -> Result<Self, CmdError> {
        let bad = |field| CmdError::parameter(at + field);
        if !(12..=31).contains(&desc.page_shift) {
            return Err(bad(field::PAGE_SHIFT));
        }
        if desc.flags & !MEM_INDIRECT != 0 {
            return Err(bad(field::FLAGS));
        }
        if desc.reserved != [0; 2] {
            return Err(bad(field::RESERVED));
        }
        if desc.num_pages == 0 || desc.num_pages > MEM_MAX_PAGES {
            return Err(bad(field::NUM_PAGES));
        }
        let shift = desc.page_shift;
        let len = u64::from(desc.num_pages) << shift;
        let pages = if desc.flags & MEM_INDIRECT == 0 {
            if desc.addr % BLOCK_ALIGN != 0 || desc.addr.checked_add(len).is_none() {
                return Err(bad(field::ADDR));
            }
            Pages::Block(desc.addr)
        } else {
            Self::read_list(dma, desc, at, budget)?
        };
        Ok(PageList { pages, shift, len })
    }

    fn read_list<D: Dma>(
        dma: &D,
        desc: &MemDesc,
        at: usize,
        budget: &PageBudget,
    ) -> Result<Pages, CmdError> {
        let bad = CmdError::parameter(at + field::ADDR);
        let count = desc.num_pages as usize;
        let page = 1u64 << desc.page_shift;
        if desc.addr % 8 != 0 || desc.addr.checked_add(count as u64 * 8).is_none() {
            return Err(bad);
        }
        let share = budget
            .take(count as u64)
            .ok_or(CmdError::new(Status::NoResources, at + field::NUM_PAGES))?;
        let mut pages = Vec::with_capacity(count);
        let mut piece = [0; 4096];
        let mut addr = desc.addr;
        while pages.len() < count {
            let n = (count - pages.len()).min(piece.len() / 8);
            let bytes = &mut piece[..n * 8];
            dma.read(addr, bytes)
                .map_err(|_| CmdError::new(Status::DmaError, at + field::ADDR))?;
            for entry in bytes.chunks_exact(8) {
                let mut raw = [0; 8];
                raw.copy_from_slice(entry);
                let entry = u64::from_le_bytes(raw);
                if entry % page != 0 || entry.checked_add(page).is_none() {
                    return Err(bad);
                }
                pages.push(entry);
            }
            addr += n as u64 * 8;
        }
        // Pages that follow each other are one block.
        if pages.windows(2).all(|p| p[0] + page == p[1]) {
            return Ok(Pages::Block(pages[0]));
        }
        Ok(Pages::List {
            pages: pages.into_boxed_slice(),
            _share: share,
        })
    }

    /// Bytes in all.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing; never so for a list that was loaded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of a page, bytes.
    #[inline]
    pub fn page_size(&self) -> u64 {
        1 << self.shift
    }

    /// The DMA address of byte `offset`, and how many of the `len` bytes from there on follow it
    /// without a gap (at least 1). `None` where `offset + len` is beyond the end.
    #[inline]
    pub fn resolve(&self, offset: u64, len: usize) -> Option<(u64, usize)> {
        let end = offset.checked_add(len as u64)?;
        if end > self.len || len == 0 {
            return None;
        }
        match &self.pages {
            Pages::Block(addr) => Some((addr + offset, len)),
            Pages::List { pages, .. } => {
                let mut index = (offset >> self.shift) as usize;
                let in_page = offset & (self.page_size() - 1);
                let page = *pages.get(index)?;
                let mut run = self.page_size() - in_page;
                let mut last = page;
                while run < len as u64 {
                    index += 1;
                    let next = *pages.get(index)?;
                    if next != last + self.page_size() {
                        break;
                    }
                    run += self.page_size();
                    last = next;
                }
                Some((page + in_page, run.min(len as u64) as usize))
            }
        }
    }
}
