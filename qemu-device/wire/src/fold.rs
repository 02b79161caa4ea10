// SPDX-License-Identifier: GPL-2.0-or-later
//! Both CRCs of a packet in one pass over its payload.
//!
//! A remainder modulo the product of two polynomials holds the remainders modulo each. The product
//! of the 32-bit and the 16-bit polynomial has degree 48; with another factor of degree 16, any, it
//! is a polynomial for the engine of a 64-bit CRC, which so computes both at the price of one.
//!
//! With S(n) the register of a CRC of n bits, before the reversal of its bits, the registers belong
//! together as S(64) = x^32 S(32) modulo the 32-bit polynomial and S(64) = x^48 S(16) modulo the
//! 16-bit one. Both ways are linear, so tables by groups of 4 bits do them.

extern crate std;

use std::sync::LazyLock;

/// Polynomials with their highest term.
const P32: u64 = 0x1_04c1_1db7;
const P16: u64 = 0x1_100b;
const P48: u64 = product(P32, P16) as u64;
/// The other factor; the engine needs a product whose lowest term is 1.
const OTHER: u64 = 0x1_0001;

/// Shortest input that is worth a pass of its own.
pub(crate) const MIN: usize = 256;

/// Registers of ICRC and VCRC, bits in reverse as they are kept everywhere else.
pub(crate) type Registers = (u32, u16);

/// Registers after `bytes`, from those before.
pub(crate) fn fold((icrc, vcrc): Registers, bytes: &[u8]) -> Registers {
    static PARAMS: LazyLock<crc_fast::CrcParams> = LazyLock::new(|| {
        // The term x^64 is not written.
        let poly = product(P48, OTHER) as u64;
        crc_fast::CrcParams::new("ICRC and VCRC", 64, poly, 0, true, 0, 0)
    });
    let mut params = *PARAMS;
    params.init = look_up(&JOIN, u64::from(icrc) | u64::from(vcrc) << 32);
    let joined = crc_fast::checksum_with_params(params, bytes);
    let split = look_up(&SPLIT, joined);
    (split as u32, (split >> 32) as u16)
}

/// Registers of both (ICRC in the low 32 bits, VCRC above) to that of the product.
static JOIN: [[u64; 16]; 12] = table(true);
/// The way back.
static SPLIT: [[u64; 16]; 16] = table(false);

fn look_up<const N: usize>(table: &[[u64; 16]; N], v: u64) -> u64 {
    let mut out = 0;
    for (i, t) in table.iter().enumerate() {
        out ^= t[(v >> (4 * i)) as usize & 15];
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

/// Polynomials over GF(2), bit i the coefficient of x^i.
const fn product(a: u64, b: u64) -> u128 {
    let mut out = 0;
    let mut i = 0;
    while i < 64 {
        if b >> i & 1 != 0 {
            out ^= (a as u128) << i;
        }
        i += 1;
    }
    out
}

const fn remainder(mut a: u128, p: u64) -> u64 {
    let degree = p.ilog2();
    while a >> degree != 0 {
        a ^= (p as u128) << (a.ilog2() - degree);
    }
    a as u64
}

const fn multiply(a: u64, b: u64, p: u64) -> u64 {
    remainder(product(a, b), p)
}

/// The `b` with `a b = 1` modulo `p`, by Euclid's algorithm; `a` is prime to `p`.
const fn inverse(a: u64, p: u64) -> u64 {
    let (mut r0, mut r1) = (p, a);
    let (mut t0, mut t1) = (0_u64, 1_u64);
    while r1 != 1 {
        // One step of the division of r0 by r1 at a time.
        let (d0, d1) = (r0.ilog2(), r1.ilog2());
        if d0 < d1 {
            (r0, r1) = (r1, r0);
            (t0, t1) = (t1, t0);
        } else {
            r0 ^= r1 << (d0 - d1);
            t0 = remainder((t0 as u128) ^ ((t1 as u128) << (d0 - d1)), p);
            if r0 == 1 {
                return t0;
            }
        }
    }
    t1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::{Icrc, Vcrc};

    #[test]
    fn arithmetic() {
        assert_eq!(multiply(inverse(1 << 16, P32), 1 << 16, P32), 1);
        assert_eq!(multiply(inverse(0x1234, P16), 0x1234, P16), 1);
        assert_eq!(remainder(u128::from(P48), P32), 0);
        assert_eq!(remainder(u128::from(P48), P16), 0);
    }

    #[test]
    fn joined_registers_split_again() {
        for v in [0, 1, 0xffff_ffff, 0xffff_0000_0000, 0x1234_5678_9abc] {
            assert_eq!(look_up(&SPLIT, look_up(&JOIN, v)), v);
        }
    }

    #[test]
    fn one_pass_is_as_two() {
        let data: [u8; 5000] = core::array::from_fn(|i| (i * 37 + i / 11) as u8);
        for len in [0, 1, 15, 16, 255, 256, 257, 1000, 1024, 4095, 4096, 5000] {
            let (mut icrc, mut vcrc) = (Icrc::new(), Vcrc::new());
            icrc.update(b"headers");
            vcrc.update(b"other headers");
            let start = (icrc.register(), vcrc.register());
            icrc.update(&data[..len]);
            vcrc.update(&data[..len]);
            let want = (icrc.register(), vcrc.register());
            assert_eq!(fold(start, &data[..len]), want, "{len} bytes");
        }
    }
}
