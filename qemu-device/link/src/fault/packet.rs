// SPDX-License-Identifier: GPL-2.0-or-later
//! What rules see of a packet and change in it. Any bytes may come.

use ochre_wire::{Bth, Headers, Icrc, Lnh, Lrh, Psn, Vcrc};

use super::rule::Place;

/// ICRC and VCRC.
const CRCS: usize = Icrc::LEN + Vcrc::LEN;
/// Bytes of a GRH.
const GRH: usize = ochre_wire::Grh::LEN;

/// What rules look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) vl: u8,
    /// None: a raw packet, or one too short.
    pub(super) transport: Option<Transport>,
}

/// What the BTH says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    /// Offset of the BTH.
    pub(super) at: usize,
    pub(super) opcode: u8,
    pub(super) qpn: u32,
    pub(super) psn: u32,
}

impl View {
    /// Reads a packet, LRH to VCRC; `None` if there is not even an LRH.
    pub(super) fn read(bytes: &[u8]) -> Option<View> {
        let lrh = Lrh::read(bytes.first_chunk()?);
        let at = match lrh.lnh {
            Lnh::Local => Some(Lrh::LEN),
            Lnh::Global => Some(Lrh::LEN + GRH),
            Lnh::Raw | Lnh::RawIpv6 => None,
        };
        let transport = at.and_then(|at| {
            let b = bytes
                .get(at..bytes.len().checked_sub(CRCS)?)?
                .first_chunk::<{ Bth::LEN }>()?;
            let low24 = |n: usize| u32::from_be_bytes([0, b[n + 1], b[n + 2], b[n + 3]]);
            Some(Transport {
                at,
                opcode: b[0],
                qpn: low24(4),
                psn: low24(8),
            })
        });
        Some(View {
            vl: lrh.vl.get(),
            transport,
        })
    }
}

/// Adds to the PSN. The CRCs are then wrong.
pub(super) fn shift_psn(bytes: &mut [u8], transport: &Transport, by: i32) {
    let psn = Psn::new(transport.psn).add(by as u32).get();
    if let Some(field) = bytes.get_mut(transport.at + 9..transport.at + 12) {
        field.copy_from_slice(&psn.to_be_bytes()[1..]);
    }
}

/// Sets marks in the BTH. The VCRC is then wrong, the ICRC does not cover them.
pub(super) fn mark(bytes: &mut [u8], transport: &Transport, bits: u8) {
    if let Some(b) = bytes.get_mut(transport.at + 4) {
        *b |= bits;
    }
}

/// Offset of a byte that is there and not of the CRCs.
pub(super) fn place(bytes: &[u8], view: &View, place: Place) -> Option<usize> {
    let at = match place {
        Place::Lrh(n) => usize::from(n),
        Place::Bth(n) => view.transport?.at + usize::from(n),
        Place::Payload(n) => {
            let payload = Headers::parse(bytes, bytes.len()).ok()?.payload_range();
            Some(payload.start + usize::from(n)).filter(|at| *at < payload.end)?
        }
    };
    (at < bytes.len().saturating_sub(CRCS)).then_some(at)
}

/// Offset of a byte by a draw: of the payload, else of the headers after the BTH, else of the BTH; of
/// anything but the CRCs in a packet without a BTH.
pub(super) fn drawn_place(bytes: &[u8], view: &View, draw: u64) -> Option<usize> {
    let end = bytes.len().saturating_sub(CRCS);
    let payload = Headers::parse(bytes, bytes.len()).map_or(0..0, |h| h.payload_range());
    let (bth, behind) = view.transport.map_or((0, end), |t| (t.at, t.at + Bth::LEN));
    let range = [payload, behind..end, bth..end]
        .into_iter()
        .find(|range| !range.is_empty())?;
    Some(range.start + (draw % range.len() as u64) as usize)
}

/// Makes the VCRC right, and the ICRC if asked for and there is one.
pub(super) fn seal(bytes: &mut [u8], view: &View, icrc: bool) {
    let len = bytes.len();
    if icrc && view.transport.is_some() {
        let (body, tail) = bytes.split_at_mut(len - CRCS);
        tail[..Icrc::LEN].copy_from_slice(&Icrc::over_headers(body).finish());
    }
    if let Some((body, out)) = bytes.split_last_chunk_mut::<{ Vcrc::LEN }>() {
        let mut vcrc = Vcrc::new();
        vcrc.update(body);
        *out = vcrc.finish();
    }
}
