// SPDX-License-Identifier: GPL-2.0-or-later
//! Whole data packets, parsed into a view. [`crate::build`] makes them.
//!
//! A packet is LRH, optional GRH, BTH, extended headers, payload, pad bytes to a multiple of 4,
//! ICRC, VCRC. Offsets and lengths are in bytes.

use core::ops::{Deref, Range};

use crate::bytes::{be32, be64, bytes, low24};
use crate::crc::{Icrc, Vcrc};
use crate::headers::{
    Aeth, AtomicEth, Bth, Deth, Grh, Lnh, Lrh, Reth, ATOMIC_ACK_LEN, IETH_LEN, IMM_LEN, XRCETH_LEN,
};
use crate::types::{Qpn, Vl};

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
    #[inline(always)] // Its result is large: better written where it is used.
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
    #[inline(always)] // As the headers'.
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
