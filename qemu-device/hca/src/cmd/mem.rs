// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands on protection domains and memory regions.

use ochre_hw::cmd::mem::{CreateMr, MrKind};
use ochre_hw::queue::MemDesc;
use ochre_hw::verbs::access;
use ochre_link::Cable;

use super::{must_be_zero, CmdError};
use crate::ctx::Pd;
use crate::device::Device;
use crate::mem::{Mr, PageList, Target};
use crate::seams::Dma;

impl<D: Dma, C: Cable> Device<D, C> {
    pub(super) fn alloc_pd(&mut self) -> Result<u32, CmdError> {
        self.ctx
            .pds
            .insert(Pd::default())
            .map_err(|_| CmdError::no_resources())
    }

    pub(super) fn dealloc_pd(&mut self, number: u32) -> Result<(), CmdError> {
        let pd = self.ctx.pds.get(number).ok_or(CmdError::no_object(0))?;
        if pd.users > 0 {
            return Err(CmdError::busy(0));
        }
        self.ctx.pds.remove(number);
        Ok(())
    }

    /// The protection domain that byte `at` of the input names.
    pub(super) fn pd_mut(&mut self, number: u32, at: usize) -> Result<&mut Pd, CmdError> {
        self.ctx.pds.get_mut(number).ok_or(CmdError::no_object(at))
    }

    /// One user less of a protection domain.
    pub(super) fn release_pd(&mut self, number: u32) {
        if let Some(pd) = self.ctx.pds.get_mut(number) {
            pd.users -= 1;
        }
    }

    pub(super) fn create_mr(&mut self, input: &CreateMr) -> Result<u32, CmdError> {
        self.pd_mut(input.pd, 0x20)?;
        let writes = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
        let lacks_local = input.access & writes != 0 && input.access & access::LOCAL_WRITE == 0;
        if input.access & !access::REGION != 0 || lacks_local {
            return Err(CmdError::parameter(0x24));
        }
        must_be_zero(&input.reserved, 0x29)?;
        if self.ctx.mrs.is_full() {
            return Err(CmdError::no_resources());
        }
        let target = match MrKind::from_raw(input.kind) {
            Some(MrKind::Pages) => self.paged(input)?,
            Some(MrKind::WholeMemory) => {
                if input.mem != MemDesc::default() {
                    return Err(CmdError::parameter(0x00));
                }
                Target::WholeMemory
            }
            None => return Err(CmdError::parameter(0x28)),
        };
        let mr = Mr {
            pd: input.pd,
            access: input.access,
            target,
        };
        let key = self
            .ctx
            .mrs
            .insert(mr)
            .map_err(|_| CmdError::no_resources())?;
        self.pd_mut(input.pd, 0x20)?.users += 1;
        Ok(key)
    }

    /// The pages of a region, which have to hold all of it.
    fn paged(&self, input: &CreateMr) -> Result<Target, CmdError> {
        let bad_length = CmdError::parameter(0x18);
        if input.length == 0 || input.length > self.config.limits.mr_size {
            return Err(bad_length);
        }
        if input.iova.checked_add(input.length - 1).is_none() {
            return Err(bad_length);
        }
        let pages = PageList::load(&self.ctx.dma, &input.mem, 0x00, &self.ctx.pages)?;
        let first = input.iova & (pages.page_size() - 1);
        if first + input.length > pages.len() {
            return Err(bad_length);
        }
        Ok(Target::Pages {
            iova: input.iova,
            length: input.length,
            pages,
            first,
        })
    }

    pub(super) fn destroy_mr(&mut self, key: u32) -> Result<(), CmdError> {
        let mr = self.ctx.mrs.remove(key).ok_or(CmdError::no_object(0))?;
        self.release_pd(mr.pd);
        Ok(())
    }
}
