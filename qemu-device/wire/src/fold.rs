// SPDX-License-Identifier: GPL-2.0-or-later
//! Both CRCs of a packet in one pass.
//!
//! A remainder modulo the product of two polynomials holds the remainders modulo each. The product
//! of the 32-bit and the 16-bit polynomial has degree 48; with another factor of degree 16, any, it
//! is a polynomial for the engine of a 64-bit CRC, which so computes both at the price of one.
//!
//! With S(n) the register of a CRC of n bits, before the reversal of its bits, the registers belong
//! together as S(64) = x^32 S(32) modulo the 32-bit polynomial and S(64) = x^48 S(16) modulo the
//! 16-bit one. Both ways are linear, so tables by groups of 4 bits do them.
//!
//! The ICRC takes some bytes of the headers as ones. CRCs are linear, so what such a byte differs
//! from ones can as well be added to the register before the first byte: by as much as has the same
//! effect once the engine comes to that byte. So the pass is over the packet as it is.

extern crate std;

use std::sync::LazyLock;

use crate::headers::{Bth, Lrh};

/// Polynomials with their highest term.
const P32: u64 = 0x1_04c1_1db7;
const P16: u64 = 0x1_100b;
const P48: u64 = product(P32, P16) as u64;
/// The other factor; the engine needs a product whose lowest term is 1.
const OTHER: u64 = 0x1_0001;

/// Registers of ICRC and VCRC, bits in reverse as they are kept everywhere else.
pub(crate) type Registers = (u32, u16);

/// Registers after a packet from its LRH to its pad bytes, if it has a BTH and no GRH.
pub(crate) fn packet(covered: &[u8]) -> Option<Registers> {
    let local = covered.get(1)? & 3 == 2;
    if !local || covered.len() < Lrh::LEN + Bth::LEN {
        return None;
    }
    let (vl, ecn) = (covered[0] >> 4, covered[ECN_AT]);
    let start = START.ones
        ^ START.vl[usize::from(vl)]
        ^ START.ecn[0][usize::from(ecn & 15)]
        ^ START.ecn[1][usize::from(ecn >> 4)];
    Some(split(run(start, covered)))
}

/// Where FECN and BECN are in a packet without a GRH.
const ECN_AT: usize = Lrh::LEN + 4;

/// Registers of the product before the first byte, by what the ICRC takes as ones.
struct Start {
    /// With all these bits ones.
    ones: u64,
    /// What a VL adds.
    vl: [u64; 16],
    /// What the byte with FECN and BECN adds, by its lower and its upper half.
    ecn: [[u64; 16]; 2],
}

static START: Start = {
    let mut start = Start {
        ones: join(0xffff_ffff, 0xffff),
        vl: [0; 16],
        ecn: [[0; 16]; 2],
    };
    let mut i = 0;
    while i < 16 {
        let zeros = 15 - i as u32;
        start.vl[i] = join(zeros << 4, 0);
        start.ecn[0][i] = join(back(zeros, ECN_AT), 0);
        start.ecn[1][i] = join(back(zeros << 4, ECN_AT), 0);
        i += 1;
    }
    start
};

/// The register of the ICRC that is `register` after `bytes` zero bytes.
const fn back(mut register: u32, bytes: usize) -> u32 {
    let poly = (P32 as u32).reverse_bits();
    let mut bit = 0;
    while bit < 8 * bytes {
        // The highest bit tells whether the polynomial was added.
        register = if register >> 31 != 0 {
            (register ^ poly) << 1 | 1
        } else {
            register << 1
        };
        bit += 1;
    }
    register
}

/// The register of the product after `bytes`, from that before.
fn run(joined: u64, bytes: &[u8]) -> u64 {
    static PARAMS: LazyLock<crc_fast::CrcParams> = LazyLock::new(|| {
        // The term x^64 is not written.
        let poly = product(P48, OTHER) as u64;
        crc_fast::CrcParams::new("ICRC and VCRC", 64, poly, 0, true, 0, 0)
    });
    let mut params = *PARAMS;
    params.init = joined;
    crc_fast::checksum_with_params(params, bytes)
}

const fn join(icrc: u32, vcrc: u16) -> u64 {
    look_up(&JOIN, icrc as u64 | (vcrc as u64) << 32)
}

fn split(joined: u64) -> Registers {
    let both = look_up(&SPLIT, joined);
    (both as u32, (both >> 32) as u16)
}

/// Registers of both (ICRC in the low 32 bits, VCRC above) to that of the product.
const JOIN: [[u64; 16]; 12] = table(true);
/// The way back.
static SPLIT: [[u64; 16]; 16] = table(false);

#[inline]
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
        for (icrc, vcrc) in [
            (0, 0),
            (1, 0),
            (0xffff_ffff, 0),
            (0, 0xffff),
            (0x1234_5678, 0x9abc),
        ] {
            assert_eq!(split(join(icrc, vcrc)), (icrc, vcrc));
        }
    }

    #[test]
    fn one_pass_is_as_two() {
        let mut data: [u8; 5000] = core::array::from_fn(|i| (i * 37 + i / 11) as u8);
        for len in [
            20, 21, 24, 31, 32, 36, 48, 100, 127, 128, 255, 256, 257, 1000, 4096, 5000,
        ] {
            for (vl, ecn) in [(0, 0), (3, 0x80), (15, 0xff), (9, 0x40), (8, 0x5a)] {
                data[0] = vl << 4;
                data[1] = 2;
                data[ECN_AT] = ecn;
                let covered = &data[..len];
                let mut vcrc = Vcrc::new();
                vcrc.update(covered);
                let want = (Icrc::over_headers(covered).register(), vcrc.register());
                assert_eq!(packet(covered), Some(want), "{len} bytes, VL {vl}");
            }
        }
        data[1] = 3;
        assert_eq!(packet(&data), None, "with a GRH");
        data[1] = 2;
        assert_eq!(packet(&data[..19]), None, "too short for a BTH");
    }
}
