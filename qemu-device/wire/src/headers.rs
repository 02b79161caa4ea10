// SPDX-License-Identifier: GPL-2.0-or-later
//! The headers of a packet, each a plain struct that reads from and writes to a byte array.

use crate::aeth::Syndrome;
use crate::bytes::{be16, be32, be64, bytes, low24, put, put16, put32, put64};
use crate::opcode::Opcode;
use crate::types::{Gid, Lid, PKey, Psn, QKey, Qpn, Sl, Vl};

/// What follows the LRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Lnh {
    /// Raw packet with an EtherType.
    Raw = 0,
    /// Raw IPv6 packet.
    RawIpv6 = 1,
    /// BTH.
    Local = 2,
    /// GRH.
    Global = 3,
}

impl Lnh {
    #[inline]
    const fn from_bits(v: u8) -> Self {
        match v & 3 {
            0 => Lnh::Raw,
            1 => Lnh::RawIpv6,
            2 => Lnh::Local,
            _ => Lnh::Global,
        }
    }
}

/// Local route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lrh {
    /// Virtual lane.
    pub vl: Vl,
    /// Link version, 0.
    pub lver: u8,
    /// Service level.
    pub sl: Sl,
    /// Next header.
    pub lnh: Lnh,
    /// Destination.
    pub dlid: Lid,
    /// Length in 4-byte words from the LRH to the ICRC, both counted; 11 bits.
    pub pkt_len: u16,
    /// Source.
    pub slid: Lid,
}

impl Lrh {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the header; reserved bits are ignored.
    #[inline]
    pub fn read(b: &[u8; 8]) -> Self {
        Lrh {
            vl: Vl::new(b[0] >> 4),
            lver: b[0] & 0xf,
            sl: Sl::new(b[1] >> 4),
            lnh: Lnh::from_bits(b[1]),
            dlid: Lid(be16(b, 2)),
            pkt_len: be16(b, 4) & 0x7ff,
            slid: Lid(be16(b, 6)),
        }
    }

    /// Writes the header; reserved bits are zero.
    #[inline]
    pub fn write(&self, b: &mut [u8; 8]) {
        b[0] = self.vl.get() << 4 | self.lver & 0xf;
        b[1] = self.sl.get() << 4 | self.lnh as u8;
        put16(b, 2, self.dlid.0);
        put16(b, 4, self.pkt_len & 0x7ff);
        put16(b, 6, self.slid.0);
    }
}

/// Global route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// IP version, 6.
    pub ip_ver: u8,
    /// Traffic class.
    pub tclass: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes from after the GRH to the end of the ICRC.
    pub pay_len: u16,
    /// Next header, 0x1b for IBA transport.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub sgid: Gid,
    /// Destination.
    pub dgid: Gid,
}

impl Grh {
    /// Bytes on the wire.
    pub const LEN: usize = 40;
    /// [`Grh::next_header`] of IBA transport.
    pub const NEXT_IBA: u8 = 0x1b;

    /// A header from `sgid` to `dgid`; the packet builder fills in the length.
    #[inline]
    pub const fn new(sgid: Gid, dgid: Gid, tclass: u8, flow_label: u32, hop_limit: u8) -> Self {
        Grh {
            ip_ver: 6,
            tclass,
            flow_label,
            pay_len: 0,
            next_header: Self::NEXT_IBA,
            hop_limit,
            sgid,
            dgid,
        }
    }

    /// Reads the header.
    #[inline]
    pub fn read(b: &[u8; 40]) -> Self {
        let w = be32(b, 0);
        Grh {
            ip_ver: (w >> 28) as u8,
            tclass: (w >> 20) as u8,
            flow_label: w & 0xf_ffff,
            pay_len: be16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            sgid: Gid(bytes(b, 8)),
            dgid: Gid(bytes(b, 24)),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn write(&self, b: &mut [u8; 40]) {
        put32(
            b,
            0,
            u32::from(self.ip_ver) << 28
                | u32::from(self.tclass) << 20
                | self.flow_label & 0xf_ffff,
        );
        put16(b, 4, self.pay_len);
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        put(b, 8, &self.sgid.0);
        put(b, 24, &self.dgid.0);
    }
}

/// Base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Operation.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// MigReq: true in the migrated state, which is the normal one.
    pub mig_req: bool,
    /// Pad bytes after the payload, 0 to 3.
    pub pad: u8,
    /// Transport version, 0.
    pub tver: u8,
    /// Partition.
    pub pkey: PKey,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Destination QP.
    pub dest_qp: Qpn,
    /// Acknowledge requested.
    pub ack_req: bool,
    /// Sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// A header with the flags of an ordinary packet: migrated, not solicited, no ACK request.
    /// The packet builder fills in the pad count.
    #[inline]
    pub const fn new(opcode: Opcode, pkey: PKey, dest_qp: Qpn, psn: Psn) -> Self {
        Bth {
            opcode,
            solicited: false,
            mig_req: true,
            pad: 0,
            tver: 0,
            pkey,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    /// Reads the header; `None` if the opcode is not one of [`Opcode`]. Reserved bits are ignored.
    #[inline]
    pub fn read(b: &[u8; 12]) -> Option<Self> {
        Some(Bth {
            opcode: Opcode::from_u8(b[0])?,
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad: b[1] >> 4 & 3,
            tver: b[1] & 0xf,
            pkey: PKey(be16(b, 2)),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qp: Qpn::new(low24(b, 4)),
            ack_req: b[8] & 0x80 != 0,
            psn: Psn::new(low24(b, 8)),
        })
    }

    /// Writes the header; reserved bits are zero.
    #[inline]
    pub fn write(&self, b: &mut [u8; 12]) {
        b[0] = self.opcode.to_u8();
        b[1] = u8::from(self.solicited) << 7
            | u8::from(self.mig_req) << 6
            | (self.pad & 3) << 4
            | self.tver & 0xf;
        put16(b, 2, self.pkey.0);
        put32(
            b,
            4,
            u32::from(self.fecn) << 31 | u32::from(self.becn) << 30 | self.dest_qp.get(),
        );
        put32(b, 8, u32::from(self.ack_req) << 31 | self.psn.get());
    }
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key that must match that of the receiving QP.
    pub qkey: QKey,
    /// Sending QP.
    pub src_qp: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    pub fn read(b: &[u8; 8]) -> Self {
        Deth {
            qkey: QKey(be32(b, 0)),
            src_qp: Qpn::new(low24(b, 4)),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn write(&self, b: &mut [u8; 8]) {
        put32(b, 0, self.qkey.0);
        put32(b, 4, self.src_qp.get());
    }
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Remote virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole operation in bytes.
    pub len: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads the header.
    #[inline]
    pub fn read(b: &[u8; 16]) -> Self {
        Reth {
            va: be64(b, 0),
            rkey: be32(b, 8),
            len: be32(b, 12),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn write(&self, b: &mut [u8; 16]) {
        put64(b, 0, self.va);
        put32(b, 8, self.rkey);
        put32(b, 12, self.len);
    }
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Remote virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in, or to add.
    pub swap_add: u64,
    /// Value to compare with; not used by fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads the header.
    #[inline]
    pub fn read(b: &[u8; 28]) -> Self {
        AtomicEth {
            va: be64(b, 0),
            rkey: be32(b, 8),
            swap_add: be64(b, 12),
            compare: be64(b, 20),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn write(&self, b: &mut [u8; 28]) {
        put64(b, 0, self.va);
        put32(b, 8, self.rkey);
        put64(b, 12, self.swap_add);
        put64(b, 20, self.compare);
    }
}

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

impl Default for Aeth {
    fn default() -> Self {
        Aeth {
            syndrome: Syndrome::Ack { credits: 0 },
            msn: 0,
        }
    }
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn read(b: &[u8; 4]) -> Self {
        Aeth {
            syndrome: Syndrome::from_u8(b[0]),
            msn: low24(b, 0),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn write(&self, b: &mut [u8; 4]) {
        put32(
            b,
            0,
            u32::from(self.syndrome.to_u8()) << 24 | self.msn & 0xff_ffff,
        );
    }
}

/// Bytes of an immediate data header.
pub const IMM_LEN: usize = 4;
/// Bytes of an invalidate extended transport header.
pub const IETH_LEN: usize = 4;
/// Bytes of an XRC extended transport header.
pub const XRCETH_LEN: usize = 4;
/// Bytes of an atomic ACK extended transport header.
pub const ATOMIC_ACK_LEN: usize = 8;

/// A link packet: flow control of one data lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowControl {
    /// 0 is normal, 1 is initialization, others are reserved.
    pub op: u8,
    /// Total blocks sent on this lane since initialization, modulo 4096.
    pub fctbs: u16,
    /// The lane.
    pub vl: Vl,
    /// Credit limit: blocks the receiver has room for in total, modulo 4096.
    pub fccl: u16,
}

impl FlowControl {
    /// Bytes on the wire, LPCRC included.
    pub const LEN: usize = 6;
    /// [`FlowControl::op`] in normal operation.
    pub const OP_NORMAL: u8 = 0;
    /// [`FlowControl::op`] during initialization.
    pub const OP_INIT: u8 = 1;
    /// Size of a credit block in bytes.
    pub const BLOCK: usize = 64;

    /// Reads the packet; `None` if the LPCRC is wrong.
    #[inline]
    pub fn read(b: &[u8; 6]) -> Option<Self> {
        (crate::crc::lpcrc(&[b[0], b[1], b[2], b[3]]) == [b[4], b[5]])
            .then(|| Self::read_unchecked(b))
    }

    /// Reads the packet without a look at its LPCRC.
    #[inline]
    pub fn read_unchecked(b: &[u8; 6]) -> Self {
        FlowControl {
            op: b[0] >> 4,
            fctbs: be16(b, 0) & 0xfff,
            vl: Vl::new(b[2] >> 4),
            fccl: be16(b, 2) & 0xfff,
        }
    }

    /// Writes the packet and its LPCRC.
    #[inline]
    pub fn write(&self, b: &mut [u8; 6]) {
        put16(b, 0, u16::from(self.op & 0xf) << 12 | self.fctbs & 0xfff);
        put16(b, 2, u16::from(self.vl.get()) << 12 | self.fccl & 0xfff);
        let crc = crate::crc::lpcrc(&[b[0], b[1], b[2], b[3]]);
        b[4] = crc[0];
        b[5] = crc[1];
    }
}
