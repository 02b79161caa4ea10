// SPDX-License-Identifier: GPL-2.0-or-later
//! Whole data packets: parsing into a view, building in place.
//!
//! A packet is LRH, optional GRH, BTH, extended headers, payload, pad bytes to a multiple of 4,
//! ICRC, VCRC. Offsets and lengths are in bytes.

use core::ops::{Deref, Range};

use crate::bytes::{be32, be64, bytes, low24, put32, put64};
use crate::crc::{Icrc, Vcrc};
use crate::headers::{
    Aeth, AtomicEth, Bth, Deth, Grh, Lnh, Lrh, Reth, ATOMIC_ACK_LEN, IETH_LEN, IMM_LEN, XRCETH_LEN,
};
use crate::types::{Lid, Qpn, Sl, Vl};

/// Most bytes of headers before the payload: LRH, GRH, BTH, XRCETH and AtomicETH.
pub const MAX_HEADERS: usize = Lrh::LEN + Grh::LEN + Bth::LEN + XRCETH_LEN + AtomicEth::LEN;
/// Most bytes of a packet from LRH to VCRC, at an MTU of 4096.
pub const MAX_PACKET: usize = MAX_HEADERS + 4096 + Icrc::LEN + Vcrc::LEN;
/// Most bytes after the payload: pad, ICRC, VCRC.
pub const MAX_TRAILER: usize = 3 + Icrc::LEN + Vcrc::LEN;
/// Fewest bytes of a data packet.
pub const MIN_PACKET: usize = Lrh::LEN + Bth::LEN + Icrc::LEN + Vcrc::LEN;

/// Why bytes are not a well-formed IBA data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Shorter than the headers it must have.
    #[error("packet of {have} bytes is too short: its headers and CRCs take {need}")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// The link version is not 0.
    #[error("LRH has link version {0}, expected 0")]
    LinkVersion(u8),
    /// The length in the LRH is not that of the packet.
    #[error("LRH says {lrh} bytes up to the ICRC, packet has {have}")]
    Length {
        /// Bytes by the LRH.
        lrh: usize,
        /// Bytes there, VCRC not counted.
        have: usize,
    },
    /// A raw packet, which is not IBA transport.
    #[error("raw packet (LNH {0})")]
    Raw(u8),
    /// GRH with an IP version other than 6.
    #[error("GRH has IP version {0}, expected 6")]
    IpVersion(u8),
    /// GRH with a next header other than 0x1b.
    #[error("GRH has next header {0:#04x}, expected 0x1b")]
    NextHeader(u8),
    /// The length in the GRH is not that of the packet.
    #[error("GRH says {grh} bytes after it, packet has {have}")]
    GrhLength {
        /// Bytes by the GRH.
        grh: usize,
        /// Bytes there, VCRC not counted.
        have: usize,
    },
    /// Unknown opcode.
    #[error("BTH has unknown opcode {0:#04x}")]
    Opcode(u8),
    /// Unknown transport version.
    #[error("BTH has transport version {0}, expected 0")]
    TransportVersion(u8),
    /// The packet has payload where its opcode allows none, or less than its pad count.
    #[error("{len} bytes of payload and pad with a pad count of {pad} do not fit the opcode")]
    Payload {
        /// Bytes between headers and ICRC.
        len: usize,
        /// Pad count of the BTH.
        pad: usize,
    },
}

/// Why a packet was not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The output slice is too short.
    #[error("packet needs {need} bytes, buffer has {have}")]
    NoSpace {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// The length does not fit the 11 bits of the LRH.
    #[error("payload of {0} bytes is too long for a packet")]
    TooLong(usize),
}

/// Checked headers of a data packet, over the bytes that hold them.
///
/// The payload need not be in memory: [`Headers::parse`] takes a prefix of the packet and its whole
/// length, so that the payload can be copied from where it is.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    lrh: Lrh,
    bth: Bth,
    bth_at: u8,
    packet_len: u16,
}

impl<'a> Headers<'a> {
    /// Parses the headers of a packet of `packet_len` bytes (LRH to VCRC) of which `bytes` is a
    /// prefix; [`MAX_HEADERS`] bytes of it (or the whole packet, if shorter) are always enough.
    #[inline]
    pub fn parse(bytes: &'a [u8], packet_len: usize) -> Result<Self, ParseError> {
        let have = bytes.len().min(packet_len);
        let short = |need| ParseError::Truncated { need, have };
        let crcs = Icrc::LEN + Vcrc::LEN;
        if packet_len < MIN_PACKET {
            return Err(short(MIN_PACKET));
        }
        let lrh = Lrh::read(bytes.first_chunk().ok_or(short(Lrh::LEN))?);
        if lrh.lver != 0 {
            return Err(ParseError::LinkVersion(lrh.lver));
        }
        let lrh_len = usize::from(lrh.pkt_len) * 4;
        if lrh_len + Vcrc::LEN != packet_len {
            return Err(ParseError::Length {
                lrh: lrh_len,
                have: packet_len - Vcrc::LEN,
            });
        }
        let bth_at = match lrh.lnh {
            Lnh::Local => Lrh::LEN,
            Lnh::Global => {
                let grh = bytes
                    .get(Lrh::LEN..)
                    .and_then(|b| b.first_chunk::<{ Grh::LEN }>())
                    .ok_or(short(Lrh::LEN + Grh::LEN))?;
                if grh[0] >> 4 != 6 {
                    return Err(ParseError::IpVersion(grh[0] >> 4));
                }
                if grh[6] != Grh::NEXT_IBA {
                    return Err(ParseError::NextHeader(grh[6]));
                }
                let grh_len = usize::from(u16::from_be_bytes([grh[4], grh[5]]));
                let after = lrh_len.saturating_sub(Lrh::LEN + Grh::LEN);
                if grh_len != after {
                    return Err(ParseError::GrhLength {
                        grh: grh_len,
                        have: after,
                    });
                }
                Lrh::LEN + Grh::LEN
            }
            raw => return Err(ParseError::Raw(raw as u8)),
        };
        let bth_bytes = bytes
            .get(bth_at..)
            .and_then(|b| b.first_chunk::<{ Bth::LEN }>())
            .ok_or(short(bth_at + Bth::LEN))?;
        let bth = Bth::read(bth_bytes).ok_or(ParseError::Opcode(bth_bytes[0]))?;
        if bth.tver != 0 {
            return Err(ParseError::TransportVersion(bth.tver));
        }
        let headers = bth_at + Bth::LEN + bth.opcode.ext_len();
        if have < headers || packet_len < headers + crcs {
            return Err(short(headers + crcs));
        }
        let len = packet_len - headers - crcs;
        let pad = usize::from(bth.pad);
        if pad > len || (len > 0 && !bth.opcode.op.has_payload()) {
            return Err(ParseError::Payload { len, pad });
        }
        Ok(Headers {
            bytes: &bytes[..headers],
            lrh,
            bth,
            bth_at: bth_at as u8,
            packet_len: packet_len as u16,
        })
    }

    /// The header bytes, LRH to the last extended header.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of the headers, which is the offset of the payload.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of payload without the pad.
    #[inline]
    pub fn payload_len(&self) -> usize {
        usize::from(self.packet_len)
            - self.bytes.len()
            - usize::from(self.bth.pad)
            - Icrc::LEN
            - Vcrc::LEN
    }

    /// Where the payload is in the packet, without the pad.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        self.bytes.len()..self.bytes.len() + self.payload_len()
    }

    /// Bytes of the packet, LRH to VCRC.
    #[inline]
    pub fn packet_len(&self) -> usize {
        usize::from(self.packet_len)
    }

    /// Local route header.
    #[inline]
    pub fn lrh(&self) -> &Lrh {
        &self.lrh
    }

    /// Base transport header.
    #[inline]
    pub fn bth(&self) -> &Bth {
        &self.bth
    }

    /// Whether there is a GRH.
    #[inline]
    pub fn has_grh(&self) -> bool {
        usize::from(self.bth_at) != Lrh::LEN
    }

    /// The 40 bytes of the GRH.
    #[inline]
    pub fn grh_bytes(&self) -> Option<&'a [u8; 40]> {
        if self.has_grh() {
            self.bytes.get(Lrh::LEN..)?.first_chunk()
        } else {
            None
        }
    }

    /// Global route header.
    #[inline]
    pub fn grh(&self) -> Option<Grh> {
        self.grh_bytes().map(Grh::read)
    }

    /// Offset of the headers after BTH, DETH and XRCETH.
    #[inline]
    fn ext_at(&self) -> usize {
        let op = self.bth.opcode;
        usize::from(self.bth_at)
            + Bth::LEN
            + if op.has_deth() { Deth::LEN } else { 0 }
            + if op.has_xrceth() { XRCETH_LEN } else { 0 }
    }

    /// Datagram header, if the opcode has one.
    #[inline]
    pub fn deth(&self) -> Option<Deth> {
        let at = usize::from(self.bth_at) + Bth::LEN;
        (self.bth.opcode.has_deth()).then(|| Deth::read(&bytes(self.bytes, at)))
    }

    /// Destination shared receive queue of an XRC request.
    #[inline]
    pub fn xrc_srq(&self) -> Option<Qpn> {
        let at = usize::from(self.bth_at) + Bth::LEN;
        (self.bth.opcode.has_xrceth()).then(|| Qpn::new(low24(self.bytes, at)))
    }

    /// RDMA header, if the opcode has one.
    #[inline]
    pub fn reth(&self) -> Option<Reth> {
        (self.bth.opcode.op.has_reth()).then(|| Reth::read(&bytes(self.bytes, self.ext_at())))
    }

    /// Atomic header, if the opcode has one.
    #[inline]
    pub fn atomic(&self) -> Option<AtomicEth> {
        (self.bth.opcode.op.has_atomic())
            .then(|| AtomicEth::read(&bytes(self.bytes, self.ext_at())))
    }

    /// ACK header, if the opcode has one.
    #[inline]
    pub fn aeth(&self) -> Option<Aeth> {
        (self.bth.opcode.op.has_aeth()).then(|| Aeth::read(&bytes(self.bytes, self.ext_at())))
    }

    /// Value before the operation, of an atomic response.
    #[inline]
    pub fn atomic_ack(&self) -> Option<u64> {
        (self.bth.opcode.op.has_atomic_ack())
            .then(|| be64(self.bytes, self.bytes.len() - ATOMIC_ACK_LEN))
    }

    /// Immediate data, if the opcode has it.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        (self.bth.opcode.op.has_imm()).then(|| be32(self.bytes, self.bytes.len() - IMM_LEN))
    }

    /// Remote key to invalidate, if the opcode has one.
    #[inline]
    pub fn invalidate_rkey(&self) -> Option<u32> {
        (self.bth.opcode.op.has_ieth()).then(|| be32(self.bytes, self.bytes.len() - IETH_LEN))
    }
}

/// A whole data packet in memory. Its headers are reached by `Deref`.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    headers: Headers<'a>,
    bytes: &'a [u8],
}

impl<'a> Deref for Packet<'a> {
    type Target = Headers<'a>;

    #[inline]
    fn deref(&self) -> &Headers<'a> {
        &self.headers
    }
}

impl<'a> Packet<'a> {
    /// Parses `bytes`, LRH to VCRC. The CRCs are not checked here, see [`Packet::icrc_ok`] and
    /// [`Packet::vcrc_ok`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let headers = Headers::parse(bytes, bytes.len())?;
        Ok(Packet { headers, bytes })
    }

    /// The headers.
    #[inline]
    pub fn headers(&self) -> &Headers<'a> {
        &self.headers
    }

    /// The whole packet.
    #[inline]
    pub fn packet(&self) -> &'a [u8] {
        self.bytes
    }

    /// The payload without the pad.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.headers.payload_range()]
    }

    /// The four bytes of the invariant CRC.
    #[inline]
    pub fn icrc(&self) -> [u8; 4] {
        bytes(self.bytes, self.bytes.len() - Icrc::LEN - Vcrc::LEN)
    }

    /// The two bytes of the variant CRC.
    #[inline]
    pub fn vcrc(&self) -> [u8; 2] {
        bytes(self.bytes, self.bytes.len() - Vcrc::LEN)
    }

    /// Whether the invariant CRC is right.
    pub fn icrc_ok(&self) -> bool {
        let mut crc = Icrc::over_headers(self.headers.bytes);
        crc.update(&self.bytes[self.header_len()..self.bytes.len() - Icrc::LEN - Vcrc::LEN]);
        crc.finish() == self.icrc()
    }

    /// Whether the variant CRC is right.
    pub fn vcrc_ok(&self) -> bool {
        vcrc_ok(self.bytes)
    }
}

/// Whether the variant CRC at the end of `packet` is right, whatever is in the packet.
pub fn vcrc_ok(packet: &[u8]) -> bool {
    let Some((body, crc)) = packet.split_last_chunk() else {
        return false;
    };
    let mut v = Vcrc::new();
    v.update(body);
    v.finish() == *crc
}

/// Writes another lane into a packet in place. The ICRC stays right; the VCRC does not.
/// An empty packet is left alone.
#[inline]
pub fn set_vl(packet: &mut [u8], vl: Vl) {
    if let Some(b) = packet.first_mut() {
        *b = vl.get() << 4 | *b & 0xf;
    }
}

/// Extended headers of a packet to build; only those that the opcode has are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ext {
    /// Datagram header.
    pub deth: Deth,
    /// Destination shared receive queue of an XRC request.
    pub xrc_srq: Qpn,
    /// RDMA header.
    pub reth: Reth,
    /// Atomic header.
    pub atomic: AtomicEth,
    /// ACK header.
    pub aeth: Aeth,
    /// Value before the operation, of an atomic response.
    pub atomic_ack: u64,
    /// Immediate data.
    pub imm: u32,
    /// Remote key to invalidate.
    pub invalidate_rkey: u32,
}

/// Headers of a packet to build. Lengths and the pad count are filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Virtual lane.
    pub vl: Vl,
    /// Service level.
    pub sl: Sl,
    /// Source.
    pub slid: Lid,
    /// Destination.
    pub dlid: Lid,
    /// Global route header.
    pub grh: Option<Grh>,
    /// Base transport header; the pad count in it does not matter.
    pub bth: Bth,
    /// Extended headers.
    pub ext: Ext,
}

impl Build {
    /// Bytes that [`Build::write_headers`] will write.
    #[inline]
    pub const fn header_len(&self) -> usize {
        let grh = if self.grh.is_some() { Grh::LEN } else { 0 };
        Lrh::LEN + grh + Bth::LEN + self.bth.opcode.ext_len()
    }

    /// Bytes of the whole packet with `payload` bytes of payload, LRH to VCRC.
    #[inline]
    pub const fn packet_len(&self, payload: usize) -> usize {
        self.header_len() + payload + trailer_len(payload)
    }

    /// Writes all headers for a payload of `payload` bytes to the start of `out` and returns their
    /// length. The payload goes behind them, then [`write_trailer`] or [`Sealer`].
    #[inline]
    pub fn write_headers(&self, payload: usize, out: &mut [u8]) -> Result<usize, BuildError> {
        let op = self.bth.opcode;
        let len = self.header_len();
        let pad = pad_len(payload);
        let words = (len + payload + pad + Icrc::LEN) / 4;
        if payload > 4096 || words > 0x7ff {
            return Err(BuildError::TooLong(payload));
        }
        let have = out.len();
        let out = out
            .get_mut(..len)
            .ok_or(BuildError::NoSpace { need: len, have })?;

        let (head, out) = split::<{ Lrh::LEN }>(out);
        Lrh {
            vl: self.vl,
            lver: 0,
            sl: self.sl,
            lnh: if self.grh.is_some() {
                Lnh::Global
            } else {
                Lnh::Local
            },
            dlid: self.dlid,
            pkt_len: words as u16,
            slid: self.slid,
        }
        .write(head);
        let out = if let Some(grh) = &self.grh {
            let (head, out) = split::<{ Grh::LEN }>(out);
            let pay_len = (words * 4 - Lrh::LEN - Grh::LEN) as u16;
            Grh { pay_len, ..*grh }.write(head);
            out
        } else {
            out
        };
        let (head, mut out) = split::<{ Bth::LEN }>(out);
        Bth {
            pad: pad as u8,
            ..self.bth
        }
        .write(head);

        if op.has_deth() {
            let (head, rest) = split::<{ Deth::LEN }>(out);
            self.ext.deth.write(head);
            out = rest;
        }
        if op.has_xrceth() {
            let (head, rest) = split::<XRCETH_LEN>(out);
            put32(head, 0, self.ext.xrc_srq.get());
            out = rest;
        }
        if op.op.has_reth() {
            let (head, rest) = split::<{ Reth::LEN }>(out);
            self.ext.reth.write(head);
            out = rest;
        }
        if op.op.has_atomic() {
            let (head, rest) = split::<{ AtomicEth::LEN }>(out);
            self.ext.atomic.write(head);
            out = rest;
        }
        if op.op.has_aeth() {
            let (head, rest) = split::<{ Aeth::LEN }>(out);
            self.ext.aeth.write(head);
            out = rest;
        }
        if op.op.has_atomic_ack() {
            let (head, rest) = split::<ATOMIC_ACK_LEN>(out);
            put64(head, 0, self.ext.atomic_ack);
            out = rest;
        }
        if op.op.has_imm() {
            let (head, rest) = split::<IMM_LEN>(out);
            put32(head, 0, self.ext.imm);
            out = rest;
        }
        if op.op.has_ieth() {
            let (head, _) = split::<IETH_LEN>(out);
            put32(head, 0, self.ext.invalidate_rkey);
        }
        Ok(len)
    }

    /// Writes the whole packet, CRCs included, and returns its length.
    pub fn write_packet(&self, payload: &[u8], out: &mut [u8]) -> Result<usize, BuildError> {
        let need = self.packet_len(payload.len());
        let have = out.len();
        let header_len = self.write_headers(payload.len(), out)?;
        let packet = out
            .get_mut(..need)
            .ok_or(BuildError::NoSpace { need, have })?;
        packet[header_len..header_len + payload.len()].copy_from_slice(payload);
        write_trailer(packet, header_len, payload.len())?;
        Ok(need)
    }
}

/// The first `N` bytes and the rest. The caller has checked the length.
#[inline]
fn split<const N: usize>(out: &mut [u8]) -> (&mut [u8; N], &mut [u8]) {
    match out.split_first_chunk_mut::<N>() {
        Some(parts) => parts,
        None => unreachable!("header_len covers every header"),
    }
}

/// Pad bytes after `payload` bytes.
#[inline]
pub const fn pad_len(payload: usize) -> usize {
    payload.wrapping_neg() & 3
}

/// Bytes after `payload` bytes of payload: pad, ICRC, VCRC.
#[inline]
pub const fn trailer_len(payload: usize) -> usize {
    pad_len(payload) + Icrc::LEN + Vcrc::LEN
}

/// Finishes a packet in place: writes pad and CRCs after `payload` bytes of payload that stand at
/// `header_len` of `packet`, and returns the length of the packet.
pub fn write_trailer(
    packet: &mut [u8],
    header_len: usize,
    payload: usize,
) -> Result<usize, BuildError> {
    let end = header_len + payload;
    let need = end + trailer_len(payload);
    let have = packet.len();
    if have < need {
        return Err(BuildError::NoSpace { need, have });
    }
    let mut seal = Sealer::new(&packet[..header_len]);
    seal.update(&packet[header_len..end]);
    let (trailer, len) = seal.finish(payload);
    packet[end..need].copy_from_slice(&trailer[..len]);
    Ok(need)
}

/// Both CRCs of a packet, fed piece by piece while the payload is copied.
///
/// Sender: `new` with the headers as written, `update` with the payload in order, `finish`.
/// Receiver: the same, then compare with the trailer of the packet ([`Sealer::check`]).
#[derive(Clone, Debug)]
pub struct Sealer {
    icrc: Icrc,
    vcrc: Vcrc,
}

impl Sealer {
    /// The state after `headers` (LRH to the last extended header).
    #[inline]
    pub fn new(headers: &[u8]) -> Self {
        let mut vcrc = Vcrc::new();
        vcrc.update(headers);
        Sealer {
            icrc: Icrc::over_headers(headers),
            vcrc,
        }
    }

    /// Adds payload bytes. Pieces of a few kilobytes stay in the first-level cache.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.icrc.update(bytes);
        self.vcrc.update(bytes);
    }

    /// Pad, ICRC and VCRC of a packet with `payload` bytes of payload in all: the bytes and how
    /// many of them count.
    #[inline]
    pub fn finish(mut self, payload: usize) -> ([u8; MAX_TRAILER], usize) {
        let mut out = [0; MAX_TRAILER];
        let pad = pad_len(payload);
        self.icrc.update(&[0; 3][..pad]);
        out[pad..pad + Icrc::LEN].copy_from_slice(&self.icrc.finish());
        self.vcrc.update(&out[..pad + Icrc::LEN]);
        let len = pad + Icrc::LEN + Vcrc::LEN;
        out[pad + Icrc::LEN..len].copy_from_slice(&self.vcrc.finish());
        (out, len)
    }

    /// Checks a received `trailer` (pad, ICRC, VCRC); what came before has been fed in.
    #[inline]
    pub fn check(mut self, trailer: &[u8]) -> CrcCheck {
        let Some((body, vcrc)) = trailer.split_last_chunk::<{ Vcrc::LEN }>() else {
            return CrcCheck::BadVcrc;
        };
        self.vcrc.update(body);
        if self.vcrc.finish() != *vcrc {
            return CrcCheck::BadVcrc;
        }
        let Some((pad, icrc)) = body.split_last_chunk::<{ Icrc::LEN }>() else {
            return CrcCheck::BadIcrc;
        };
        self.icrc.update(pad);
        if self.icrc.finish() == *icrc {
            CrcCheck::Good
        } else {
            CrcCheck::BadIcrc
        }
    }
}

/// Result of [`Sealer::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcCheck {
    /// Both are right.
    Good,
    /// The variant CRC is wrong: the link damaged the packet.
    BadVcrc,
    /// Only the invariant CRC is wrong: the packet was damaged before this link.
    BadIcrc,
}
