// SPDX-License-Identifier: GPL-2.0-or-later
//! The data of work requests: inline bytes, or scatter/gather elements.

use ochre_hw::verbs::access;
use ochre_hw::wqe::Sge;

use crate::mem::{MemError, MrTable};
use crate::seams::Dma;

/// Data of a work request, as it was copied out of its slot.
#[derive(Clone, Copy, Debug)]
pub enum SgData<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// Elements as they stand in the slot, 16 bytes each.
    Elements(&'a [u8]),
}

impl<'a> SgData<'a> {
    /// The elements; none for inline data.
    #[inline]
    pub fn elements(self) -> impl Iterator<Item = Sge> + 'a {
        let bytes = match self {
            SgData::Inline(_) => &[],
            SgData::Elements(bytes) => bytes,
        };
        bytes.chunks_exact(Sge::SIZE).map(|raw| {
            let mut element = [0; Sge::SIZE];
            element.copy_from_slice(raw);
            Sge::from_bytes(&element)
        })
    }

    /// Bytes in all.
    #[inline]
    pub fn len(self) -> u64 {
        match self {
            SgData::Inline(bytes) => bytes.len() as u64,
            SgData::Elements(_) => self.elements().map(|e| u64::from(e.length)).sum(),
        }
    }

    /// Whether there is no byte of data.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The pieces of elements that hold the bytes `offset..offset + len`: address, length, key.
    #[inline]
    fn pieces(self, offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, u32)> + 'a {
        let mut skip = offset;
        let mut left = len as u64;
        self.elements().filter_map(move |e| {
            let length = u64::from(e.length);
            if left == 0 || skip >= length {
                skip = skip.saturating_sub(length);
                return None;
            }
            let n = left.min(length - skip);
            let addr = e.addr.wrapping_add(skip);
            skip = 0;
            left -= n;
            Some((addr, n as usize, e.lkey))
        })
    }
}

/// Copies bytes `offset..offset + out.len()` of a request's data to `out`. Each element is checked
/// as far as it is used.
#[inline]
pub fn gather<D: Dma>(
    dma: &D,
    mrs: &MrTable,
    pd: u32,
    data: SgData<'_>,
    offset: u64,
    out: &mut [u8],
) -> Result<(), MemError> {
    let range = MemError::Range {
        addr: offset,
        len: out.len() as u64,
    };
    if let SgData::Inline(bytes) = data {
        let at = usize::try_from(offset).map_err(|_| range)?;
        let bytes = bytes.get(at..).and_then(|b| b.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(range)?);
        return Ok(());
    }
    let mut done = 0;
    for (addr, len, key) in data.pieces(offset, out.len()) {
        let mr = mrs.check(key, pd, addr, len as u64, 0)?;
        mr.read(dma, addr, &mut out[done..done + len])?;
        done += len;
    }
    if done == out.len() {
        Ok(())
    } else {
        Err(range)
    }
}

/// Copies `bytes` to the elements of a receive (or of a READ or atomic), from byte `offset` of their
/// room on.
#[inline]
pub fn scatter<D: Dma>(
    dma: &D,
    mrs: &MrTable,
    pd: u32,
    data: SgData<'_>,
    offset: u64,
    bytes: &[u8],
) -> Result<(), MemError> {
    let mut done = 0;
    for (addr, len, key) in data.pieces(offset, bytes.len()) {
        let mr = mrs.check(key, pd, addr, len as u64, access::LOCAL_WRITE)?;
        mr.write(dma, addr, &bytes[done..done + len])?;
        done += len;
    }
    if done == bytes.len() {
        Ok(())
    } else {
        Err(MemError::Range {
            addr: offset,
            len: bytes.len() as u64,
        })
    }
}
