// SPDX-License-Identifier: GPL-2.0-or-later
//! Invariant and variant CRC over the same bytes, in one pass.
//!
//! A remainder modulo the product of two polynomials holds the remainders modulo each. So the
//! registers of both CRCs before the first byte are joined to one number modulo the product of the
//! 32-bit and the 16-bit polynomial ([`join`]), bytes are folded modulo that product, and the rest is
//! split into the two registers again ([`run`]).
//!
//! With S(n) the register of a CRC of n bits, before the reversal of its bits, and S the joined one,
//! of 64 bits, they belong together as S = x^32 S(32) modulo the 32-bit polynomial and S = x^48 S(16)
//! modulo the 16-bit one. Registers are those in use everywhere: bits in reverse, before the
//! complement.
//!
//! Processors with carry-less multiplication have a way of their own (`x86`); for others the engine
//! is a library's, that of a 64-bit CRC, whose polynomial is the product and another factor.

mod poly;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::LazyLock;

use poly::{inverse, multiply, product, remainder};

/// The polynomial of the ICRC with its highest term.
const P32: u64 = 0x1_04c1_1db7;
/// That of the VCRC.
const P16: u64 = 0x1_100b;
const P48: u64 = product(P32, P16) as u64;
/// The other factor of the library's polynomial; its lowest term has to be 1.
const OTHER: u64 = 0x1_0001;

/// Registers of ICRC and VCRC.
pub type Registers = (u32, u16);

/// The joined register of two. It is linear: that of a sum (`^`) is the sum.
pub const fn join(icrc: u32, vcrc: u16) -> u64 {
    look_up(&JOIN, icrc as u64 | (vcrc as u64) << 32)
}

/// The registers after `bytes`, from the joined register before.
#[inline]
pub fn run(joined: u64, bytes: &[u8]) -> Registers {
    #[cfg(target_arch = "x86_64")]
    if let Some(registers) = x86::run(joined, bytes) {
        return registers;
    }
    portable(joined, bytes)
}

fn portable(joined: u64, bytes: &[u8]) -> Registers {
    static PARAMS: LazyLock<crc_fast::CrcParams> = LazyLock::new(|| {
        // The term x^64 is not written.
        let poly = product(P48, OTHER) as u64;
        crc_fast::CrcParams::new("ICRC and VCRC", 64, poly, 0, true, 0, 0)
    });
    let mut params = *PARAMS;
    params.init = joined;
    let both = look_up(&SPLIT, crc_fast::checksum_with_params(params, bytes));
    (both as u32, (both >> 32) as u16)
}

/// Registers of both (ICRC in the low 32 bits, VCRC above) to that of the product, by groups of 4 bits.
const JOIN: [[u64; 16]; 12] = table(true);
/// The way back.
static SPLIT: [[u64; 16]; 16] = table(false);

const fn look_up<const N: usize>(table: &[[u64; 16]; N], v: u64) -> u64 {
    let mut out = 0;
    let mut i = 0;
    while i < N {
        out ^= table[i][(v >> (4 * i)) as usize & 15];
        i += 1;
    }
    out
}

const fn table<const N: usize>(join: bool) -> [[u64; 16]; N] {
    let mut t = [[0; 16]; N];
    let mut i = 0;
    while i < N {
        let mut v = 1_usize;
        while v < 16 {
            // The lowest bit of the group, and what the others give.
            let low = v & v.wrapping_neg();
            let bit = 4 * i as u32 + low.trailing_zeros();
            t[i][v] = t[i][v ^ low] ^ if join { join_bit(bit) } else { split_bit(bit) };
            v += 1;
        }
        i += 1;
    }
    t
}

/// What one bit of the two registers is in the register of the product.
const fn join_bit(bit: u32) -> u64 {
    let joined = if bit < 32 {
        // The multiple of the other polynomial that is 1 modulo this one.
        let one = product(P16, inverse(P16, P32)) as u64;
        let shift = remainder(1 << 32, P32);
        multiply(multiply(1 << (31 - bit), shift, P32), one, P48)
    } else {
        let one = product(P32, inverse(remainder(P32 as u128, P16), P16)) as u64;
        let shift = remainder(1 << 48, P16);
        multiply(multiply(1 << (47 - bit), shift, P16), one, P48)
    };
    joined.reverse_bits()
}

/// What one bit of the register of the product is in the two registers.
const fn split_bit(bit: u32) -> u64 {
    let joined = 1 << (63 - bit);
    let back = inverse(remainder(1 << 32, P32), P32);
    let s32 = multiply(remainder(joined, P32), back, P32);
    let back = inverse(remainder(1 << 48, P16), P16);
    let s16 = multiply(remainder(joined, P16), back, P16);
    (s32 as u32).reverse_bits() as u64 | ((s16 as u16).reverse_bits() as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both registers after `bytes`, bit by bit.
    fn plain((mut icrc, mut vcrc): Registers, bytes: &[u8]) -> Registers {
        for &byte in bytes {
            icrc ^= u32::from(byte);
            vcrc ^= u16::from(byte);
            for _ in 0..8 {
                let poly = (P32 as u32).reverse_bits();
                icrc = icrc >> 1 ^ if icrc & 1 != 0 { poly } else { 0 };
                let poly = (P16 as u16).reverse_bits();
                vcrc = vcrc >> 1 ^ if vcrc & 1 != 0 { poly } else { 0 };
            }
        }
        (icrc, vcrc)
    }

    fn agree(registers: Registers, bytes: &[u8]) {
        let want = plain(registers, bytes);
        let joined = join(registers.0, registers.1);
        let len = bytes.len();
        assert_eq!(portable(joined, bytes), want, "the library, {len} bytes");
        #[cfg(target_arch = "x86_64")]
        for way in x86::ways() {
            if let Some(got) = x86::run_by(way, joined, bytes) {
                assert_eq!(got, want, "{way:?}, {len} bytes");
            } else {
                assert!(len < x86::LEAST);
            }
        }
        assert_eq!(run(joined, bytes), want);
    }

    #[test]
    fn all_ways_agree() {
        let data: [u8; 5000] = core::array::from_fn(|i| (i * 37 + i / 11) as u8);
        for registers in [(0, 0), (1, 0), (0xffff_ffff, 0xffff), (0x1234_5678, 0x9abc)] {
            for len in (0..700).chain([1023, 1024, 1025, 4096, 4124, 4132, 4999]) {
                agree(registers, &data[1..=len]);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_agree(
            icrc: u32,
            vcrc: u16,
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..600),
        ) {
            agree((icrc, vcrc), &bytes);
        }
    }
}
