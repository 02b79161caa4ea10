// SPDX-License-Identifier: GPL-2.0-or-later

//! User contexts: each has a doorbell page.

use crate::{
    abi::{
        AllocUcontextReq,
        AllocUcontextResp, //
    },
    device::Data,
    hw::{
        doorbell,
        pci as hw_pci,
        regs, //
    },
    rdma::{
        NewUContext,
        Udata, //
    },
    Ochre, //
};
use kernel::prelude::*;

/// Private data of a user context.
pub(crate) struct UContext {
    /// Number of its doorbell page.
    page: u32,
}

impl UContext {
    /// Number of the context's doorbell page.
    pub(crate) fn page(&self) -> u32 {
        self.page
    }
}

/// Makes a context: looks whether the provider speaks the device's language, and gives it a doorbell
/// page.
pub(crate) fn alloc(
    data: &Data<'_>,
    context: &mut NewUContext<'_, Ochre>,
    udata: &Udata<'_, Ochre>,
) -> Result<UContext> {
    let request = AllocUcontextReq::from_bytes(&udata.read(AllocUcontextReq::SIZE)?);
    if request.reserved != 0 {
        return Err(EINVAL);
    }
    if request.interface_major != regs::INTERFACE_MAJOR.into() {
        dev_dbg!(
            data.pdev,
            "the provider speaks interface {}.{}, the device {}.{}\n",
            request.interface_major,
            request.interface_minor,
            regs::INTERFACE_MAJOR,
            data.identity.interface_minor
        );
        return Err(EPROTONOSUPPORT);
    }

    let page = data.doorbells.take_page()?;
    let result = answer(data, context, udata, page);
    if result.is_err() {
        data.doorbells.release_page(page);
    }
    result.map(|()| UContext { page })
}

fn answer(
    data: &Data<'_>,
    context: &mut NewUContext<'_, Ochre>,
    udata: &Udata<'_, Ochre>,
    page: u32,
) -> Result {
    let offset = u64::from(page) * doorbell::PAGE_SIZE;
    let doorbell_offset = context.map_bar(data.pdev, hw_pci::BAR_DOORBELLS.into(), offset, 1)?;

    let limits = &data.limits;
    let response = AllocUcontextResp {
        doorbell_offset,
        doorbell_length: doorbell::PAGE_SIZE as u32,
        doorbell_page: page,
        max_send_wr: limits.max_qp_wr,
        max_recv_wr: limits.max_qp_wr,
        max_sge: limits.max_sge,
        max_inline: limits.max_inline,
        max_cqe: limits.max_cqe,
        interface_minor: data.identity.interface_minor.into(),
        clock_khz: limits.clock_khz.into(),
    };
    udata.respond(&response.to_bytes())
}

/// The context is going.
pub(crate) fn dealloc(data: &Data<'_>, context: &UContext) {
    data.doorbells.release_page(context.page);
}

// Pages of the device are mapped to processes one by one.
const _: () = assert!(doorbell::PAGE_SIZE == kernel::page::PAGE_SIZE as u64);
