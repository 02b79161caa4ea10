// SPDX-License-Identifier: GPL-2.0-or-later
//! Both CRCs of a packet in one pass.
//!
//! The ICRC takes some bytes of the headers as ones. CRCs are linear, so what such a byte differs
//! from ones can as well be added to the register before the first byte: by as much as has the same
//! effect once the pass comes to that byte. So the pass is over the packet as it is.

use ochre_crc::{join, Registers};

use crate::headers::{Bth, Lrh};

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
    Some(ochre_crc::run(start, covered))
}

/// Where FECN and BECN are in a packet without a GRH.
const ECN_AT: usize = Lrh::LEN + 4;

/// Joined registers before the first byte, by what the ICRC takes as ones.
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
    let poly = 0x04c1_1db7_u32.reverse_bits();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::{Icrc, Vcrc};

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
