// SPDX-License-Identifier: GPL-2.0-or-later
//! Data packets, built in place: headers, then payload, then pad and CRCs.

use crate::bytes::{put32, put64};
use crate::crc::{Icrc, Vcrc};
use crate::headers::{
    Aeth, AtomicEth, Bth, Deth, Grh, Lnh, Lrh, Reth, ATOMIC_ACK_LEN, IETH_LEN, IMM_LEN, XRCETH_LEN,
};
use crate::seal::write_trailer;
use crate::types::{Lid, Qpn, Sl, Vl};

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
    /// length. The payload goes behind them, then [`write_trailer`].
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
