// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Commands on memory regions.

use super::super::queue::MemDesc;
use super::Field;

hw_enum! {
    /// Kind of a region.
    pub enum MrKind: u8 {
        /// Pages of memory at a virtual address.
        Pages = 1,
        /// The whole memory as the device sees it: addresses are DMA addresses. For the kernel only.
        WholeMemory = 2,
    }
}

hw_struct! {
    /// Input of CREATE_MR; the output is the key, which serves as L_Key and as R_Key. Its low 8 bits
    /// are a tag that changes each time when the rest is used again.
    pub struct CreateMr, size 64 {
        /// The pages, for `MrKind::Pages`. The region begins `iova mod page size` bytes into the
        /// first page.
        0x00 => mem: MemDesc,
        /// Virtual address of the first byte.
        0x10 => iova: u64,
        /// Bytes.
        0x18 => length: u64,
        /// Protection domain.
        0x20 => pd: u32,
        /// `access::REGION` bits.
        0x24 => access: u32,
        /// An [`MrKind`].
        0x28 => kind: u8,
        /// MBZ.
        0x29 => reserved: [u8; 23],
    }
}
