// SPDX-License-Identifier: GPL-2.0-or-later

//! Memory of processes as the device sees it.

use crate::{
    hw::queue::{
        MemDesc,
        MEM_INDIRECT,
        MEM_MAX_PAGES,
        PAGE_SIZES, //
    },
    rdma::{
        access,
        dma::Buffer,
        Hca,
        Umem, //
    },
    Ochre, //
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*, //
};

/// log2 of the granule of buffers, bytes.
const PAGE_SHIFT: u32 = 12;

/// Pages of a process as a command describes them. It must live until the command is done.
pub(crate) struct PageList {
    desc: MemDesc,
    _list: Option<Buffer>,
}

impl PageList {
    /// Lists the pages of pinned memory, in the largest of the page sizes `sizes` (a bit mask of
    /// bytes) that it can be listed in when its start is known as `virt_addr`.
    pub(crate) fn new(
        dev: &Device<Bound>,
        umem: &Umem,
        sizes: u64,
        virt_addr: u64,
    ) -> Result<Self> {
        let page_size = umem.best_page_size(sizes, virt_addr)?;
        let pages = umem.num_blocks(page_size);
        let num_pages = u32::try_from(pages).map_err(|_| EFBIG)?;
        if num_pages == 0 || num_pages > MEM_MAX_PAGES {
            return Err(EFBIG);
        }
        let mut desc = MemDesc {
            num_pages,
            page_shift: page_size.trailing_zeros() as u8,
            ..MemDesc::default()
        };

        if pages == 1 {
            desc.addr = umem.blocks(page_size).next().ok_or(EINVAL)?;
            return Ok(Self { desc, _list: None });
        }

        let list = Buffer::new(dev, pages * size_of::<u64>())?;
        let mut listed = 0;
        for (i, address) in umem.blocks(page_size).enumerate() {
            list.store64(i * size_of::<u64>(), address)?;
            listed += 1;
        }
        if listed != pages {
            return Err(EINVAL);
        }
        desc.addr = list.dma_address();
        desc.flags = MEM_INDIRECT;
        Ok(Self {
            desc,
            _list: Some(list),
        })
    }

    /// The pages, for a command.
    pub(crate) fn desc(&self) -> MemDesc {
        self.desc
    }
}

/// Page sizes in which a device that knows `known` can be told of a queue at `addr`, which is not
/// zero. A queue begins at the start of its first page, so a page must not be larger than what the
/// address is aligned to.
fn queue_page_sizes(known: u64, addr: u64) -> u64 {
    let alignment = 1u64 << addr.trailing_zeros();

    known & PAGE_SIZES & (alignment | (alignment - 1))
}

/// The buffer of a queue in the memory of a process.
pub(crate) struct UserBuffer {
    umem: Umem,
    pages: PageList,
}

impl UserBuffer {
    /// Pins the buffer of `len` bytes at `addr` of the calling process, in which `needed` bytes are
    /// used; both must be multiples of 4096.
    pub(crate) fn pin(hca: Hca<'_, Ochre>, addr: u64, len: u64, needed: u64) -> Result<Self> {
        let granule = 1u64 << PAGE_SHIFT;
        if addr % granule != 0 || len % granule != 0 || len < needed || addr == 0 {
            return Err(EINVAL);
        }
        let size = usize::try_from(len).map_err(|_| EINVAL)?;

        let umem = Umem::get(hca.dev, addr, size, access::LOCAL_WRITE)?;
        let sizes = queue_page_sizes(hca.limits.page_sizes, addr);
        let pages = PageList::new(hca.pdev.as_ref(), &umem, sizes, addr)?;

        Ok(Self { umem, pages })
    }

    /// The buffer, for a command.
    pub(crate) fn desc(&self) -> MemDesc {
        self.pages.desc()
    }

    /// The pinned memory, which must stay while the device uses the queue.
    pub(crate) fn into_umem(self) -> Umem {
        self.umem
    }
}

#[kunit_tests(ochre_mem)]
mod tests {
    use super::*;

    const KIB_4: u64 = 1 << 12;
    const MIB_2: u64 = 1 << 21;

    #[test]
    fn a_page_of_a_queue_is_no_larger_than_its_address_is_aligned() {
        assert_eq!(queue_page_sizes(KIB_4 | MIB_2, MIB_2), KIB_4 | MIB_2);
        assert_eq!(queue_page_sizes(KIB_4 | MIB_2, 3 * MIB_2), KIB_4 | MIB_2);
        assert_eq!(queue_page_sizes(KIB_4 | MIB_2, MIB_2 + KIB_4), KIB_4);
        assert_eq!(queue_page_sizes(KIB_4 | MIB_2, 1 << 63), KIB_4 | MIB_2);
    }

    #[test]
    fn only_sizes_that_commands_can_name_are_used() {
        assert_eq!(queue_page_sizes(u64::MAX, 1 << 63), PAGE_SIZES);
        assert_eq!(queue_page_sizes(MIB_2, KIB_4), 0);
    }
}
