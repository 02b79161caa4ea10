// SPDX-License-Identifier: GPL-2.0-or-later

//! Doorbell pages: page 0 is the driver's, each user context has one of the others.

use crate::hw::{
    doorbell,
    pci as hw_pci, //
};
use kernel::{
    device::Bound,
    id_pool::IdPool,
    io::Io,
    new_mutex,
    pci::{
        self,
        Bar, //
    },
    prelude::*,
    sync::Mutex, //
};

/// The doorbell BAR.
#[pin_data]
pub(crate) struct Doorbells<'a> {
    bar: Bar<'a>,
    pages: u32,
    #[pin]
    used: Mutex<IdPool>,
}

impl<'a> Doorbells<'a> {
    /// Maps the BAR, which has `pages` doorbell pages.
    pub(crate) fn new(pdev: &'a pci::Device<Bound>, pages: u32) -> impl PinInit<Self, Error> + 'a {
        pin_init::pin_init_scope(move || -> Result<_> {
            let len = pdev.resource_len(hw_pci::BAR_DOORBELLS.into())?;
            if pages == 0 || u64::from(pages) * doorbell::PAGE_SIZE > len {
                dev_err!(
                    pdev,
                    "the device says that it has {pages} doorbell pages, in a BAR of {len} bytes\n"
                );
                return Err(ENODEV);
            }

            let bar = pdev.iomap_region(hw_pci::BAR_DOORBELLS.into(), c"ochre doorbells")?;
            let mut used = IdPool::with_capacity(pages as usize, GFP_KERNEL)?;
            used.find_unused_id(doorbell::KERNEL_PAGE as usize)
                .ok_or(ENOSPC)?
                .acquire();

            Ok(try_pin_init!(Self {
                bar,
                pages,
                used <- new_mutex!(used),
            }))
        })
    }

    /// Takes a page for a user context: gives its number.
    pub(crate) fn take_page(&self) -> Result<u32> {
        let mut used = self.used.lock();
        let id = used
            .find_unused_id(doorbell::KERNEL_PAGE as usize + 1)
            .ok_or(ENOSPC)?;
        // The pool may have room for more pages than there are.
        if id.as_u32() >= self.pages {
            return Err(ENOSPC);
        }
        Ok(id.acquire() as u32)
    }

    /// Gives the page of a user context back.
    pub(crate) fn release_page(&self, page: u32) {
        self.used.lock().release_id(page as usize);
    }

    /// Makes the device look at the send queue of a queue pair of the kernel.
    pub(crate) fn ring_send(&self, qp: u32) {
        self.ring(doorbell::SEND, qp);
    }

    /// Makes the device look at the receive queue of a queue pair of the kernel.
    pub(crate) fn ring_recv(&self, qp: u32) {
        self.ring(doorbell::RECV, qp);
    }

    fn ring(&self, which: u64, qp: u32) {
        let offset = u64::from(doorbell::KERNEL_PAGE) * doorbell::PAGE_SIZE + which;
        // The BAR holds at least the driver's page.
        let _ = self.bar.try_write32(qp, offset as usize);
    }
}
