// SPDX-License-Identifier: GPL-2.0-or-later
//! The CRCs of whole packets: the sender writes them, the receiver checks them, each in one pass over
//! the packet.

use crate::build::{pad_len, trailer_len, BuildError};
use crate::crc::{Icrc, Vcrc};
use crate::headers::{Lnh, Lrh};

/// Result of [`check_crcs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcCheck {
    /// Both are right.
    Good,
    /// The variant CRC is wrong: the link damaged the packet.
    BadVcrc,
    /// Only the invariant CRC is wrong: the packet was damaged before this link.
    BadIcrc,
}

/// Checks both CRCs of a received packet, LRH to VCRC, whatever is in it. A raw packet has no
/// invariant CRC that could be wrong.
pub fn check_crcs(packet: &[u8]) -> CrcCheck {
    let Some((body, vcrc)) = packet.split_last_chunk::<{ Vcrc::LEN }>() else {
        return CrcCheck::BadVcrc;
    };
    let transport = body.get(1).is_some_and(|b| b & 3 >= Lnh::Local as u8);
    let Some((covered, icrc)) = body
        .split_last_chunk::<{ Icrc::LEN }>()
        .filter(|(covered, _)| transport && covered.len() >= Lrh::LEN)
    else {
        let mut v = Vcrc::new();
        v.update(body);
        return match v.finish() == *vcrc {
            true if !transport => CrcCheck::Good,
            true => CrcCheck::BadIcrc,
            false => CrcCheck::BadVcrc,
        };
    };
    let (i, mut v) = both(covered);
    v.update(icrc);
    if v.finish() != *vcrc {
        CrcCheck::BadVcrc
    } else if i.finish() != *icrc {
        CrcCheck::BadIcrc
    } else {
        CrcCheck::Good
    }
}

/// Finishes a packet in place: writes pad and CRCs after `payload` bytes of payload that stand at
/// `header_len` of `packet`, and returns the length of the packet.
pub fn write_trailer(
    packet: &mut [u8],
    header_len: usize,
    payload: usize,
) -> Result<usize, BuildError> {
    let end = header_len + payload;
    let covered = end + pad_len(payload);
    let need = end + trailer_len(payload);
    let have = packet.len();
    let short = BuildError::NoSpace { need, have };
    let (body, vcrc) = packet
        .get_mut(..need)
        .and_then(|p| p.split_last_chunk_mut::<{ Vcrc::LEN }>())
        .ok_or(short)?;
    body[end..covered].fill(0);
    let (body, icrc) = body.split_last_chunk_mut::<{ Icrc::LEN }>().ok_or(short)?;
    let (i, mut v) = both(body);
    *icrc = i.finish();
    v.update(icrc);
    *vcrc = v.finish();
    Ok(need)
}

/// Both CRCs over a packet from its LRH to its pad bytes.
fn both(covered: &[u8]) -> (Icrc, Vcrc) {
    #[cfg(feature = "std")]
    if let Some((i, v)) = crate::fold::packet(covered) {
        return (Icrc::from_register(i), Vcrc::from_register(v));
    }
    let mut v = Vcrc::new();
    v.update(covered);
    (Icrc::over_headers(covered), v)
}
