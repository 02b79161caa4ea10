// SPDX-License-Identifier: GPL-2.0-or-later

//! Protection domains.

use crate::{
    abi::AllocPdResp,
    cmd::{
        AllocPd,
        DeallocPd,
        Wait, //
    },
    device::Data,
    rdma::Udata,
    Ochre, //
};
use kernel::prelude::*;

/// Private data of a protection domain.
pub(crate) struct Pd {
    number: u32,
}

impl Pd {
    /// The device's number of the domain.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// Makes a protection domain.
pub(crate) fn alloc(data: &Data<'_>, udata: &Udata<'_, Ochre>) -> Result<Pd> {
    udata.no_input()?;
    let number = data.command::<AllocPd>((), Wait::Sleep)?.number;

    let response = AllocPdResp {
        pdn: number,
        ..AllocPdResp::default()
    };
    if let Err(e) = udata.respond(&response.to_bytes()) {
        data.destroy::<DeallocPd>(number);
        return Err(e);
    }
    Ok(Pd { number })
}

/// The domain is going.
pub(crate) fn dealloc(data: &Data<'_>, pd: &Pd) {
    data.destroy::<DeallocPd>(pd.number);
}
