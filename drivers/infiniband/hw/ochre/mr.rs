// SPDX-License-Identifier: GPL-2.0-or-later

//! Memory regions.

use crate::{
    cmd::{
        CreateMr,
        DestroyMr,
        Wait, //
    },
    device::Data,
    hw::{
        cmd::mem::{
            self as hw_mem,
            MrKind, //
        },
        queue::PAGE_SIZES,
        verbs::access as hw_access,
    },
    mem::PageList,
    pd::Pd,
    rdma::{
        access,
        Hca,
        MrPrivate,
        Udata,
        Umem, //
    },
    Ochre, //
};
use kernel::prelude::*;

/// Rights that regions may have; [`access::OPTIONAL`] ones are no matter.
const ACCESS: u32 = hw_access::REGION | access::HUGETLB;

// Rights have the same bits in verbs and in commands.
const _: () = assert!(
    access::LOCAL_WRITE == hw_access::LOCAL_WRITE
        && access::REMOTE_WRITE == hw_access::REMOTE_WRITE
        && access::REMOTE_READ == hw_access::REMOTE_READ
        && access::REMOTE_ATOMIC == hw_access::REMOTE_ATOMIC
);

/// Private data of a memory region.
pub(crate) struct Mr {
    key: u32,
    /// The memory of a process; none where the region is all of the kernel's.
    _umem: Option<Umem>,
}

impl MrPrivate for Mr {
    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }
}

/// A region of a process's memory.
pub(crate) struct UserRegion {
    /// Where it begins in the process.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// Where it begins for peers and work requests.
    pub(crate) virt_addr: u64,
    /// [`access`] bits.
    pub(crate) access: u32,
}

fn hw_rights(rights: u32) -> Result<u32> {
    if rights & !(ACCESS | access::OPTIONAL) != 0 {
        return Err(EOPNOTSUPP);
    }
    Ok(rights & hw_access::REGION)
}

/// Makes a region of all of the kernel's memory.
pub(crate) fn dma(data: &Data<'_>, pd: &Pd, rights: u32) -> Result<Mr> {
    let input = hw_mem::CreateMr {
        pd: pd.number(),
        access: hw_rights(rights)?,
        kind: MrKind::WholeMemory.raw(),
        ..hw_mem::CreateMr::default()
    };

    Ok(Mr {
        key: data.command::<CreateMr>(input, Wait::Sleep)?.number,
        _umem: None,
    })
}

/// Registers memory of a process.
pub(crate) fn user(
    hca: Hca<'_, Ochre>,
    pd: &Pd,
    region: &UserRegion,
    udata: &Udata<'_, Ochre>,
) -> Result<Mr> {
    let data = hca.data();
    udata.no_input()?;
    let access = hw_rights(region.access)?;
    if region.length == 0
        || region.length > data.limits.max_mr_size
        || region.virt_addr.checked_add(region.length - 1).is_none()
    {
        return Err(EINVAL);
    }
    let length = usize::try_from(region.length).map_err(|_| EINVAL)?;

    let umem = Umem::get(hca.dev, region.start, length, region.access)?;
    let pages = PageList::new(
        data.pdev.as_ref(),
        &umem,
        data.limits.page_sizes & PAGE_SIZES,
        region.virt_addr,
    )?;
    let input = hw_mem::CreateMr {
        mem: pages.desc(),
        iova: region.virt_addr,
        length: region.length,
        pd: pd.number(),
        access,
        kind: MrKind::Pages.raw(),
        ..hw_mem::CreateMr::default()
    };
    let key = data.command::<CreateMr>(input, Wait::Sleep)?.number;

    if let Err(e) = udata.no_response() {
        data.destroy::<DestroyMr>(key);
        return Err(e);
    }
    Ok(Mr {
        key,
        _umem: Some(umem),
    })
}

/// The region is going.
pub(crate) fn dereg(data: &Data<'_>, mr: &Mr) {
    data.destroy::<DestroyMr>(mr.key);
}

#[kunit_tests(ochre_mr)]
mod tests {
    use super::*;

    #[test]
    fn the_device_gets_the_rights_that_it_knows() {
        let known = access::LOCAL_WRITE | access::REMOTE_READ;
        assert_eq!(hw_rights(known), Ok(known));
        assert_eq!(hw_rights(known | access::HUGETLB), Ok(known));
        // Rights that a device may ignore.
        assert_eq!(hw_rights(known | access::RELAXED_ORDERING), Ok(known));
    }

    #[test]
    fn other_rights_are_refused() {
        for right in [
            access::MW_BIND,
            access::ZERO_BASED,
            access::ON_DEMAND,
            1 << 8,
            1 << 31,
        ] {
            assert_eq!(hw_rights(right), Err(EOPNOTSUPP));
        }
    }
}
