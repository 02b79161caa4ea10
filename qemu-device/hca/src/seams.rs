// SPDX-License-Identifier: GPL-2.0-or-later
//! What the firmware needs of its surroundings: memory, interrupts and a way to send packets.

use core::sync::atomic::{fence, Ordering};

use ochre_wire::Build;

/// Guest memory that the device cannot reach: not mapped, not RAM, or bus mastering is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at DMA address {addr:#x} cannot be reached")]
pub struct DmaError {
    /// DMA address of the access.
    pub addr: u64,
    /// Bytes of the access.
    pub len: usize,
}

/// The memory of the guest as the device sees it.
///
/// The guest writes the same memory at the same time, so nothing here gives a reference into it:
/// every access copies. Words are little-endian in memory and given in host order.
pub trait Dma {
    /// Copies `buf.len()` bytes from memory.
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaError>;

    /// Copies `buf` to memory.
    fn write(&self, addr: u64, buf: &[u8]) -> Result<(), DmaError>;

    /// Loads an aligned word with acquire semantics.
    fn load_u32(&self, addr: u64) -> Result<u32, DmaError>;

    /// Stores an aligned word with release semantics.
    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaError>;

    /// Writes an entry so that whoever sees its last 8 bytes sees all of it: the last 8 bytes are
    /// one release store, after all others. `addr` and the length are multiples of 8.
    fn publish(&self, addr: u64, entry: &[u8]) -> Result<(), DmaError>;

    /// Atomically replaces the value at `addr`, a multiple of 8, by `swap` where it is `compare`;
    /// gives the value before.
    fn compare_swap_u64(&self, addr: u64, compare: u64, swap: u64) -> Result<u64, DmaError>;

    /// Atomically adds to the value at `addr`, a multiple of 8; gives the value before.
    fn fetch_add_u64(&self, addr: u64, add: u64) -> Result<u64, DmaError>;

    /// Full barrier: earlier stores are visible before later loads are done.
    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The MSI-X vectors of the device.
pub trait Interrupts {
    /// Notes that a vector is due. This is called under the device's lock and must not call back;
    /// whoever holds the lock delivers after dropping it.
    fn raise(&mut self, vector: u16);
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError<E> {
    /// The lane has no credits, or the link has no room: try again when the port says so.
    NoCredit,
    /// The payload could not be filled in; nothing was sent.
    Fill(E),
}

/// The sending side of a port, for one engine at a time.
pub trait Transmit {
    /// Builds and sends one packet: headers from `build`, then `payload` bytes that `fill` writes
    /// in place (the slice has exactly that length), then pad and CRCs.
    ///
    /// `build.vl` and `build.slid` are taken as they are. On a port that is not active the packet
    /// is dropped and counted (except on VL15) and the result is `Ok`, as for a packet that the
    /// link lost. A packet that is longer than the port's MTU allows is dropped likewise.
    fn send<E>(
        &mut self,
        build: &Build,
        payload: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), SendError<E>>;
}
