// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! How the device shows itself on the PCI Express bus.

/// Vendor id. 0x1234 is the id that QEMU's own example devices use; it is assigned to nobody.
pub const VENDOR_ID: u16 = 0x1234;
/// Device id of the Ochre HCA.
pub const DEVICE_ID: u16 = 0x0c4e;
/// Revision of the hardware.
pub const REVISION: u8 = 1;
/// Class code: network controller, InfiniBand.
pub const CLASS_INFINIBAND: u16 = 0x0207;

/// BAR of the registers (`regs`).
pub const BAR_REGS: u8 = 0;
/// Size of the register BAR, bytes.
pub const BAR_REGS_SIZE: u64 = 0x1_0000;
/// BAR of the doorbell pages (`doorbell`).
pub const BAR_DOORBELLS: u8 = 2;
/// BAR of the MSI-X table and pending bits.
pub const BAR_MSIX: u8 = 4;
/// Size of the MSI-X BAR, bytes: table at 0, pending bits in the second half.
pub const BAR_MSIX_SIZE: u64 = 0x1_0000;
/// Offset of the MSI-X pending-bit array in its BAR.
pub const MSIX_PBA_OFFSET: u32 = 0x8000;
/// Most MSI-X vectors that a device can be given: one for async events and commands, the others
/// for completions.
pub const MAX_VECTORS: u16 = 64;
