// SPDX-License-Identifier: GPL-2.0-or-later
//! Folding by the carry-less multiplication of x86 processors.
//!
//! A block of 16 bytes is a polynomial of degree 127 whose highest coefficient is bit 0 of its first
//! byte. What was folded so far is one block B; with the next 16 bytes N it becomes B x^128 + N, with
//! B x^128 brought down to 127 degrees again by two multiplications, one for each half of B. With the
//! bits in reverse, the product of two halves has one x too many, so that constants have one less.
//! Long packets are folded in four blocks side by side, or four pairs of blocks where the processor
//! multiplies two blocks at a time; the distance is four or eight blocks then.
//!
//! At the end the registers are B x^32 modulo the 32-bit polynomial and B x^16 modulo the 16-bit one,
//! by Barrett's reduction.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_inserti128_si256,
    _mm256_loadu_si256, _mm256_set_epi64x, _mm256_xor_si256, _mm_clmulepi64_si128,
    _mm_cvtsi128_si64, _mm_cvtsi64_si128, _mm_extract_epi64, _mm_loadu_si128, _mm_set_epi64x,
    _mm_shuffle_epi8, _mm_xor_si128,
};

use crate::poly::{divide, power};
use crate::{Registers, P16, P32, P48};

/// Bytes of a block.
const BLOCK: usize = 16;
/// Fewest bytes that can be folded.
pub(crate) const LEAST: usize = BLOCK;
/// Blocks or pairs of blocks side by side.
const LANES: usize = 4;
/// From this many bytes on, folding side by side is worth its set-up.
const LONG: usize = 4 * LANES * BLOCK;

/// What the processor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// PCLMULQDQ: a block at a time.
    Blocks,
    /// VPCLMULQDQ: two blocks at a time.
    Pairs,
}

/// The best way here.
#[inline]
fn best() -> Option<Way> {
    if !(is_x86_feature_detected!("avx") && is_x86_feature_detected!("pclmulqdq")) {
        return None;
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq") {
        return Some(Way::Pairs);
    }
    Some(Way::Blocks)
}

/// All ways that the processor has.
#[cfg(test)]
pub(crate) fn ways() -> Vec<Way> {
    match best() {
        None => vec![],
        Some(Way::Blocks) => vec![Way::Blocks],
        Some(Way::Pairs) => vec![Way::Blocks, Way::Pairs],
    }
}

/// The registers after `bytes`, from the joined register before; `None` where the processor cannot or
/// there are fewer than [`LEAST`] bytes.
#[inline]
pub(crate) fn run(joined: u64, bytes: &[u8]) -> Option<Registers> {
    if bytes.len() < LEAST {
        return None;
    }
    match best()? {
        // SAFETY: the processor has what is asked for, and there are bytes enough.
        Way::Blocks => Some(unsafe { by_blocks(joined, bytes) }),
        // SAFETY: as before.
        Way::Pairs => Some(unsafe { by_pairs(joined, bytes) }),
    }
}

/// As [`run`], by a way of [`ways`].
#[cfg(test)]
pub(crate) fn run_by(way: Way, joined: u64, bytes: &[u8]) -> Option<Registers> {
    if bytes.len() < LEAST || !ways().contains(&way) {
        return None;
    }
    // SAFETY: the processor has this way, and there are bytes enough.
    Some(unsafe {
        match way {
            Way::Blocks => by_blocks(joined, bytes),
            Way::Pairs => by_pairs(joined, bytes),
        }
    })
}

/// What folds a block over a distance: the factors of its first and of its second half.
type Factors = (u64, u64);

const fn distance(blocks: u32) -> Factors {
    let bits = blocks * 128;
    (
        power(bits + 63, P48).reverse_bits(),
        power(bits - 1, P48).reverse_bits(),
    )
}

const BY_1: Factors = distance(1);
const BY_2: Factors = distance(2);
const BY_3: Factors = distance(3);
const BY_4: Factors = distance(4);
const BY_6: Factors = distance(6);
const BY_8: Factors = distance(8);

/// # Safety
/// The processor has AVX and PCLMULQDQ; there are at least [`LEAST`] bytes.
#[target_feature(enable = "avx,pclmulqdq")]
unsafe fn by_blocks(joined: u64, bytes: &[u8]) -> Registers {
    // SAFETY: that of the caller.
    unsafe {
        let (mut block, mut rest) = begin(joined, bytes);
        if rest.len() >= LONG {
            (block, rest) = side_by_side(block, rest);
        }
        finish(one_by_one(block, rest))
    }
}

/// # Safety
/// The processor has AVX2, PCLMULQDQ and VPCLMULQDQ; there are at least [`LEAST`] bytes.
#[target_feature(enable = "avx2,pclmulqdq")]
unsafe fn by_pairs(joined: u64, bytes: &[u8]) -> Registers {
    // SAFETY: that of the caller.
    unsafe {
        let (mut block, mut rest) = begin(joined, bytes);
        if rest.len() >= LONG {
            (block, rest) = pairs_side_by_side(block, rest);
        }
        finish(one_by_one(block, rest))
    }
}

/// The first block, and the whole blocks behind it. Zeros before the first byte change nothing, so
/// the odd bytes come first; the register is added to the first eight bytes.
///
/// # Safety
/// The processor has AVX and PCLMULQDQ; there are at least [`LEAST`] bytes.
#[inline]
#[target_feature(enable = "avx,pclmulqdq")]
unsafe fn begin(joined: u64, bytes: &[u8]) -> (__m128i, &[u8]) {
    let odd = bytes.len() % BLOCK;
    // SAFETY: that of the caller; the table has a block at each place up to two blocks.
    let block = unsafe {
        let register = _mm_cvtsi64_si128(joined as i64);
        let later = load(&SHIFTS[odd..]);
        let sooner = load(&SHIFTS[odd + BLOCK..]);
        let first = _mm_shuffle_epi8(_mm_xor_si128(load(bytes), register), later);
        let second = _mm_xor_si128(load(&bytes[odd..]), _mm_shuffle_epi8(register, sooner));
        fold(first, BY_1, second)
    };
    (block, &bytes[odd + BLOCK..])
}

/// For a shuffle that moves bytes: from place n on, to places higher by 16 - n; from place 16 + n on,
/// to places lower by n. What comes in is zero.
static SHIFTS: [u8; 3 * BLOCK] = {
    let mut shifts = [0x80; 3 * BLOCK];
    let mut n = 0;
    while n < BLOCK {
        shifts[BLOCK + n] = n as u8;
        n += 1;
    }
    shifts
};

/// # Safety
/// The processor has AVX.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn load(block: &[u8]) -> __m128i {
    assert!(block.len() >= BLOCK);
    // SAFETY: there are so many bytes, and they need no alignment.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

/// `block` over a distance, and what is there.
///
/// # Safety
/// The processor has AVX and PCLMULQDQ.
#[inline]
#[target_feature(enable = "avx,pclmulqdq")]
unsafe fn fold(block: __m128i, by: Factors, there: __m128i) -> __m128i {
    // SAFETY: that of the caller.
    unsafe {
        let by = _mm_set_epi64x(by.1 as i64, by.0 as i64);
        let first = _mm_clmulepi64_si128(block, by, 0x00);
        let second = _mm_clmulepi64_si128(block, by, 0x11);
        _mm_xor_si128(_mm_xor_si128(first, second), there)
    }
}

/// # Safety
/// The processor has AVX and PCLMULQDQ.
#[inline]
#[target_feature(enable = "avx,pclmulqdq")]
unsafe fn one_by_one(mut block: __m128i, bytes: &[u8]) -> __m128i {
    for next in bytes.chunks_exact(BLOCK) {
        // SAFETY: that of the caller.
        block = unsafe { fold(block, BY_1, load(next)) };
    }
    block
}

/// Folds the first bytes in blocks side by side; gives what is left. There are at least [`LONG`] bytes.
///
/// # Safety
/// The processor has AVX and PCLMULQDQ.
#[inline]
#[target_feature(enable = "avx,pclmulqdq")]
unsafe fn side_by_side(block: __m128i, bytes: &[u8]) -> (__m128i, &[u8]) {
    let mut strides = bytes.chunks_exact(LANES * BLOCK);
    let Some(first) = strides.next() else {
        return (block, bytes);
    };
    // SAFETY: that of the caller.
    unsafe {
        let mut lanes: [__m128i; LANES] = core::array::from_fn(|n| load(&first[n * BLOCK..]));
        lanes[0] = fold(block, BY_1, lanes[0]);
        for stride in &mut strides {
            for (n, lane) in lanes.iter_mut().enumerate() {
                *lane = fold(*lane, BY_4, load(&stride[n * BLOCK..]));
            }
        }
        let [a, b, c, d] = lanes;
        let block = fold(a, BY_3, fold(b, BY_2, fold(c, BY_1, d)));
        (block, strides.remainder())
    }
}

/// As [`side_by_side`], two blocks at a time.
///
/// # Safety
/// The processor has AVX2, PCLMULQDQ and VPCLMULQDQ.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq")]
unsafe fn pairs_side_by_side(block: __m128i, bytes: &[u8]) -> (__m128i, &[u8]) {
    const PAIR: usize = 2 * BLOCK;
    let mut strides = bytes.chunks_exact(LANES * PAIR);
    let Some(first) = strides.next() else {
        return (block, bytes);
    };
    // SAFETY: that of the caller.
    unsafe {
        let mut lanes: [__m256i; LANES] = core::array::from_fn(|n| load_pair(&first[n * PAIR..]));
        let start = fold(block, BY_1, _mm256_castsi256_si128(lanes[0]));
        lanes[0] = _mm256_inserti128_si256(lanes[0], start, 0);
        for stride in &mut strides {
            for (n, lane) in lanes.iter_mut().enumerate() {
                *lane = fold_pair(*lane, BY_8, load_pair(&stride[n * PAIR..]));
            }
        }
        let [a, b, c, d] = lanes;
        let pair = fold_pair(a, BY_6, fold_pair(b, BY_4, fold_pair(c, BY_2, d)));
        let second = _mm256_extracti128_si256(pair, 1);
        let block = fold(_mm256_castsi256_si128(pair), BY_1, second);
        (block, strides.remainder())
    }
}

/// # Safety
/// The processor has AVX.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn load_pair(pair: &[u8]) -> __m256i {
    assert!(pair.len() >= 2 * BLOCK);
    // SAFETY: there are so many bytes, and they need no alignment.
    unsafe { _mm256_loadu_si256(pair.as_ptr().cast()) }
}

/// As [`fold`], two blocks at a time. The compiler's own name for this multiplication is younger than
/// the compiler that this crate is for.
///
/// # Safety
/// The processor has AVX2 and VPCLMULQDQ.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn fold_pair(pair: __m256i, by: Factors, there: __m256i) -> __m256i {
    let (by0, by1) = (by.0 as i64, by.1 as i64);
    // SAFETY: the caller's processor has the instructions, which touch nothing but these registers.
    unsafe {
        let by = _mm256_set_epi64x(by1, by0, by1, by0);
        let (first, second): (__m256i, __m256i);
        asm!(
            "vpclmulqdq {first}, {pair}, {by}, 0x00",
            "vpclmulqdq {second}, {pair}, {by}, 0x11",
            first = out(ymm_reg) first,
            second = lateout(ymm_reg) second,
            pair = in(ymm_reg) pair,
            by = in(ymm_reg) by,
            options(pure, nomem, nostack, preserves_flags),
        );
        _mm256_xor_si256(_mm256_xor_si256(first, second), there)
    }
}

/// What reduces a block B to B x^n modulo a polynomial of degree n, 16 or 32.
struct Reduction {
    degree: u32,
    /// For the first half of a block: x^(n + 63).
    first: u64,
    /// For what of that is above x^63: x^63.
    above: u64,
    /// x^64 divided by the polynomial.
    quotient: u64,
    /// The polynomial.
    poly: u64,
}

impl Reduction {
    const fn new(poly: u64) -> Self {
        let degree = poly.ilog2();
        Reduction {
            degree,
            first: power(degree + 63, poly).reverse_bits(),
            above: power(63, poly).reverse_bits(),
            quotient: (divide(1 << 64, poly).0 as u64).reverse_bits() >> (degree - 1),
            poly: poly.reverse_bits() >> (63 - degree),
        }
    }
}

const TO_ICRC: Reduction = Reduction::new(P32);
const TO_VCRC: Reduction = Reduction::new(P16);

/// # Safety
/// The processor has AVX and PCLMULQDQ.
#[inline]
#[target_feature(enable = "avx,pclmulqdq")]
unsafe fn finish(block: __m128i) -> Registers {
    // SAFETY: that of the caller.
    unsafe {
        (
            reduce(block, &TO_ICRC) as u32,
            reduce(block, &TO_VCRC) as u16,
        )
    }
}

/// The register of `r` for what was folded to a block.
///
/// # Safety
/// The processor has AVX and PCLMULQDQ.
#[inline]
#[target_feature(enable = "avx,pclmulqdq")]
unsafe fn reduce(block: __m128i, r: &Reduction) -> u64 {
    // SAFETY: that of the caller.
    let multiply = |a: u64, b: u64| unsafe {
        let product = _mm_clmulepi64_si128(
            _mm_cvtsi64_si128(a as i64),
            _mm_cvtsi64_si128(b as i64),
            0x00,
        );
        (
            _mm_cvtsi128_si64(product) as u64,
            _mm_extract_epi64(product, 1) as u64,
        )
    };
    // SAFETY: that of the caller.
    let (first, second) = unsafe {
        (
            _mm_cvtsi128_si64(block) as u64,
            _mm_extract_epi64(block, 1) as u64,
        )
    };
    // The first half times x^(n + 64), and the second one times x^n: degree 63 + n.
    let (above, below) = multiply(first, r.first);
    let above = above ^ second << (64 - r.degree);
    let below = below ^ second >> r.degree;
    let (_, folded) = multiply(above, r.above);
    let rest = below ^ folded;
    // Degree 63: what the polynomial goes into it.
    let high = u64::MAX >> r.degree;
    let (times, _) = multiply(rest & high, r.quotient);
    let (taken, _) = multiply(times & high, r.poly);
    (rest ^ taken) >> (64 - r.degree)
}
