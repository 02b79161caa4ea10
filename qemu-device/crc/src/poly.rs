// SPDX-License-Identifier: GPL-2.0-or-later
//! Polynomials over GF(2) while compiling. Bit i of a number is the coefficient of x^i.

pub(crate) const fn product(a: u64, b: u64) -> u128 {
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

/// Quotient and remainder of `a` by `p`.
pub(crate) const fn divide(mut a: u128, p: u64) -> (u128, u64) {
    let degree = p.ilog2();
    let mut quotient = 0;
    while a >> degree != 0 {
        let shift = a.ilog2() - degree;
        quotient |= 1 << shift;
        a ^= (p as u128) << shift;
    }
    (quotient, a as u64)
}

pub(crate) const fn remainder(a: u128, p: u64) -> u64 {
    divide(a, p).1
}

pub(crate) const fn multiply(a: u64, b: u64, p: u64) -> u64 {
    remainder(product(a, b), p)
}

/// x^n modulo `p`.
pub(crate) const fn power(mut n: u32, p: u64) -> u64 {
    let (mut out, mut square) = (1, 2);
    while n > 0 {
        if n & 1 != 0 {
            out = multiply(out, square, p);
        }
        square = multiply(square, square, p);
        n >>= 1;
    }
    out
}

/// The `b` with `a b = 1` modulo `p`, by Euclid's algorithm; `a` is prime to `p`.
pub(crate) const fn inverse(a: u64, p: u64) -> u64 {
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
    use crate::{P16, P32, P48};

    #[test]
    fn arithmetic() {
        assert_eq!(multiply(inverse(1 << 16, P32), 1 << 16, P32), 1);
        assert_eq!(multiply(inverse(0x1234, P16), 0x1234, P16), 1);
        assert_eq!(remainder(u128::from(P48), P32), 0);
        assert_eq!(remainder(u128::from(P48), P16), 0);
        assert_eq!(power(31, P32), 1 << 31);
        assert_eq!(power(32, P32), P32 ^ 1 << 32);
        assert_eq!(power(77, P16), remainder(1 << 77, P16));
        let (quotient, rest) = divide(1 << 100, P48);
        assert_eq!(product(quotient as u64, P48) ^ u128::from(rest), 1 << 100);
    }
}
