// SPDX-License-Identifier: GPL-2.0-or-later
//! The checksums of packets: invariant CRC (32 bits), variant CRC and link packet CRC (16 bits).
//!
//! All of them shift the least significant bit first, start from ones and are complemented; the
//! bytes go on the wire least significant first.

use crate::headers::{Grh, Lrh};
use crate::packet::MAX_HEADERS;

/// Running invariant CRC: feed it the packet from the LRH to the pad bytes, headers masked.
#[derive(Clone, Copy, Debug)]
pub struct Icrc(u32);

impl Default for Icrc {
    fn default() -> Self {
        Self::new()
    }
}

impl Icrc {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// The state before the first byte.
    #[inline]
    pub const fn new() -> Self {
        Icrc(0xffff_ffff)
    }

    /// The state after the headers of a packet. `headers` starts at the LRH and reaches past the
    /// BTH. What switches or routers may change counts as ones: the VL and, with a GRH, the whole
    /// LRH, traffic class, flow label and hop limit; the byte of the BTH with FECN and BECN.
    /// What is too short for these headers is taken as it is.
    #[inline]
    pub fn over_headers(headers: &[u8]) -> Self {
        let mut crc = Icrc::new();
        let global = headers.get(1).is_some_and(|b| b & 3 == 3);
        let bth = if global {
            Lrh::LEN + Grh::LEN
        } else {
            Lrh::LEN
        };
        // One buffer for all headers, so that the engine is entered once.
        let mut masked = [0; MAX_HEADERS];
        let (head, rest) = headers.split_at(headers.len().min(MAX_HEADERS));
        let masked = &mut masked[..head.len()];
        masked.copy_from_slice(head);
        if let Some(fixed) = masked.get_mut(..bth + 5) {
            if global {
                fixed[..Lrh::LEN].fill(0xff);
                fixed[Lrh::LEN] |= 0x0f;
                fixed[Lrh::LEN + 1..Lrh::LEN + 4].fill(0xff);
                fixed[Lrh::LEN + 7] = 0xff;
            } else {
                fixed[0] |= 0xf0;
            }
            fixed[bth + 4] = 0xff;
        }
        crc.update(masked);
        crc.update(rest);
        crc
    }

    /// Adds bytes that follow.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            // The engine keeps the complement outside.
            let mut engine = crc32fast::Hasher::new_with_initial(!self.0);
            engine.update(bytes);
            self.0 = !engine.finalize();
        }
    }

    /// The four bytes of the packet.
    #[inline]
    pub const fn finish(self) -> [u8; 4] {
        (!self.0).to_le_bytes()
    }

    #[cfg(all(test, feature = "std"))]
    pub(crate) const fn register(self) -> u32 {
        self.0
    }

    #[cfg(feature = "std")]
    pub(crate) const fn from_register(register: u32) -> Self {
        Icrc(register)
    }
}

/// Running variant CRC: feed it the packet from the LRH to the ICRC.
#[derive(Clone, Copy, Debug)]
pub struct Vcrc(u16);

impl Default for Vcrc {
    fn default() -> Self {
        Self::new()
    }
}

impl Vcrc {
    /// Bytes on the wire.
    pub const LEN: usize = 2;

    /// The state before the first byte.
    #[inline]
    pub const fn new() -> Self {
        Vcrc(0xffff)
    }

    /// Adds bytes that follow.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc16(self.0, bytes);
    }

    /// The two bytes of the packet.
    #[inline]
    pub const fn finish(self) -> [u8; 2] {
        (!self.0).to_le_bytes()
    }

    #[cfg(all(test, feature = "std"))]
    pub(crate) const fn register(self) -> u16 {
        self.0
    }

    #[cfg(feature = "std")]
    pub(crate) const fn from_register(register: u16) -> Self {
        Vcrc(register)
    }
}

/// Checksum of the four bytes of a link packet.
#[inline]
pub fn lpcrc(bytes: &[u8; 4]) -> [u8; 2] {
    let mut crc = 0xffff;
    for &b in bytes {
        crc = crc >> 8 ^ TABLES[0][usize::from((crc ^ u16::from(b)) & 0xff)];
    }
    (!crc).to_le_bytes()
}

/// x^16 + x^12 + x^3 + x + 1 with the bits in reverse.
const POLY: u16 = 0x100b_u16.reverse_bits();

/// `TABLES[n][b]`: what byte `b` followed by `n` zero bytes adds.
static TABLES: [[u16; 256]; 16] = {
    let mut t = [[0; 256]; 16];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ POLY
            } else {
                crc >> 1
            };
            bit += 1;
        }
        t[0][i] = crc;
        i += 1;
    }
    let mut n = 1;
    while n < 16 {
        let mut i = 0;
        while i < 256 {
            let prev = t[n - 1][i];
            t[n][i] = prev >> 8 ^ t[0][(prev & 0xff) as usize];
            i += 1;
        }
        n += 1;
    }
    t
};

/// Shortest input that is worth the set-up of carry-less multiplication.
#[cfg(feature = "std")]
const FOLD_MIN: usize = 256;

#[inline]
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    #[cfg(feature = "std")]
    if bytes.len() >= FOLD_MIN {
        return fold(crc, bytes);
    }
    slice_by_16(crc, bytes)
}

/// With carry-less multiplication. The engine is that of a 32-bit CRC: with the polynomial in the
/// upper half, and bits in reverse, the register is the 16-bit one in its lower half.
#[cfg(feature = "std")]
fn fold(crc: u16, bytes: &[u8]) -> u16 {
    extern crate std;
    static PARAMS: std::sync::LazyLock<crc_fast::CrcParams> = std::sync::LazyLock::new(|| {
        crc_fast::CrcParams::new("VCRC", 32, 0x100b << 16, 0xffff, true, 0, 0)
    });
    let mut params = *PARAMS;
    params.init = u64::from(crc);
    crc_fast::checksum_with_params(params, bytes) as u16
}

/// With tables, sixteen bytes at a time.
fn slice_by_16(mut crc: u16, bytes: &[u8]) -> u16 {
    let mut chunks = bytes.chunks_exact(16);
    for c in &mut chunks {
        let mut next = TABLES[15][usize::from(c[0] ^ crc as u8)]
            ^ TABLES[14][usize::from(c[1] ^ (crc >> 8) as u8)];
        let mut i = 2;
        while i < 16 {
            next ^= TABLES[15 - i][usize::from(c[i])];
            i += 1;
        }
        crc = next;
    }
    let mut words = chunks.remainder().chunks_exact(4);
    for c in &mut words {
        crc = TABLES[3][usize::from(c[0] ^ crc as u8)]
            ^ TABLES[2][usize::from(c[1] ^ (crc >> 8) as u8)]
            ^ TABLES[1][usize::from(c[2])]
            ^ TABLES[0][usize::from(c[3])];
    }
    for &b in words.remainder() {
        crc = crc >> 8 ^ TABLES[0][usize::from((crc ^ u16::from(b)) & 0xff)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of the byte-wise table of polynomial 0x100B, least significant bit first, as
    /// published in the sources of the MPGA library of the Mellanox IB stack (2004).
    #[test]
    fn vcrc_table_is_the_published_one() {
        for (i, v) in [
            (0, 0x0000),
            (1, 0x1ba1),
            (7, 0x4267),
            (64, 0x6804),
            (128, 0xd008),
            (200, 0x6504),
            (255, 0x0960),
        ] {
            assert_eq!(TABLES[0][i], v, "entry {i}");
        }
    }

    #[test]
    fn all_ways_agree() {
        fn bitwise(mut crc: u16, bytes: &[u8]) -> u16 {
            for &b in bytes {
                crc ^= u16::from(b);
                for _ in 0..8 {
                    crc = if crc & 1 != 0 {
                        crc >> 1 ^ POLY
                    } else {
                        crc >> 1
                    };
                }
            }
            crc
        }
        let data: [u8; 5000] = core::array::from_fn(|i| (i * 31 + i / 7) as u8);
        for len in [
            0, 1, 15, 16, 17, 159, 160, 161, 255, 256, 300, 1023, 2049, 4999,
        ] {
            for seed in [0xffff, 0x0000, 0x1234] {
                let want = bitwise(seed, &data[..len]);
                assert_eq!(slice_by_16(seed, &data[..len]), want, "tables, {len} bytes");
                assert_eq!(crc16(seed, &data[..len]), want, "default, {len} bytes");
                #[cfg(feature = "std")]
                assert_eq!(fold(seed, &data[..len]), want, "folding, {len} bytes");
            }
        }
    }
}
