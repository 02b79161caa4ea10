// SPDX-License-Identifier: GPL-2.0-or-later
//! Data packets: any bytes parse or fail; what parses is built again to the same.

use ochre_wire::{
    vcrc_ok, Aeth, AtomicEth, Bth, Build, Deth, Ext, Gid, Grh, Guid, Headers, Icrc, Lid, Opcode,
    PKey, Packet, Psn, QKey, Qpn, Reth, Sl, Vcrc, Vl, MAX_PACKET,
};

use crate::bytes::Bytes;
use crate::note;

/// Makes the length in the LRH fit.
const FIX_LENGTH: u8 = 1;
/// Makes both CRCs fit.
const FIX_CRCS: u8 = 2;

/// Makes lengths and CRCs right, as the flags say; for bytes that are a packet otherwise.
pub(super) fn fix(bytes: &mut Vec<u8>, flags: u8) {
    if bytes.len() < 8 + 12 + 6 {
        return;
    }
    if flags & FIX_LENGTH != 0 {
        bytes.truncate((bytes.len() - 2) / 4 * 4 + 2);
        let words = ((bytes.len() - 2) / 4) as u16;
        bytes[4] = bytes[4] & 0xf8 | (words >> 8) as u8 & 7;
        bytes[5] = words as u8;
    }
    if flags & FIX_CRCS != 0 {
        let body = bytes.len() - 6;
        if let Ok(packet) = Packet::parse(bytes) {
            let mut icrc = Icrc::over_headers(packet.headers().bytes());
            icrc.update(&bytes[packet.header_len()..body]);
            bytes[body..body + 4].copy_from_slice(&icrc.finish());
        }
        let mut vcrc = Vcrc::new();
        vcrc.update(&bytes[..body + 4]);
        bytes[body + 4..].copy_from_slice(&vcrc.finish());
    }
}

pub(super) fn run(input: &[u8]) {
    let mut input = Bytes::new(input);
    let flags = input.u8();
    let prefix = input.u8();
    let mut bytes = input.rest().to_vec();
    fix(&mut bytes, flags);
    // Headers found in a prefix are those of the whole.
    let cut = bytes.len().min(prefix.into());
    let early = Headers::parse(&bytes[..cut], bytes.len());
    let packet = match Packet::parse(&bytes) {
        Ok(packet) => packet,
        Err(e) => {
            assert!(early.is_err(), "a prefix parsed, the packet does not: {e}");
            note(std::mem::discriminant(&e));
            return;
        }
    };
    if let Ok(early) = early {
        assert_eq!(early.bytes(), packet.headers().bytes());
        assert_eq!(early.payload_range(), packet.payload_range());
    }
    let opcode = packet.bth().opcode;
    note((opcode.to_u8(), packet.has_grh(), packet.icrc_ok()));
    if flags & FIX_CRCS != 0 {
        assert!(packet.icrc_ok() && packet.vcrc_ok());
    }
    rebuild(&packet);
}

/// Builds a packet from the headers of another.
fn rebuild(packet: &Packet<'_>) {
    let lrh = packet.lrh();
    let build = Build {
        vl: lrh.vl,
        sl: lrh.sl,
        slid: lrh.slid,
        dlid: lrh.dlid,
        grh: packet.grh(),
        bth: *packet.bth(),
        ext: Ext {
            deth: packet.deth().unwrap_or_default(),
            xrc_srq: packet.xrc_srq().unwrap_or_default(),
            reth: packet.reth().unwrap_or_default(),
            atomic: packet.atomic().unwrap_or_default(),
            aeth: packet.aeth().unwrap_or_default(),
            atomic_ack: packet.atomic_ack().unwrap_or_default(),
            imm: packet.imm().unwrap_or_default(),
            invalidate_rkey: packet.invalidate_rkey().unwrap_or_default(),
        },
    };
    let payload = packet.payload();
    let mut out = vec![0; MAX_PACKET.max(packet.packet_len())];
    let Ok(len) = build.write_packet(payload, &mut out) else {
        assert!(payload.len() > 4096, "what was parsed can be built");
        return;
    };
    assert_eq!(len, packet.packet_len());
    let again = Packet::parse(&out[..len]).expect("what is built is well-formed");
    assert!(again.icrc_ok() && vcrc_ok(&out[..len]));
    assert_eq!(again.lrh(), lrh);
    assert_eq!(again.grh(), packet.grh());
    assert_eq!(again.bth(), packet.bth());
    assert_eq!(again.payload(), payload);
    assert_eq!(again.deth(), packet.deth());
    assert_eq!(again.xrc_srq(), packet.xrc_srq());
    assert_eq!(again.reth(), packet.reth());
    assert_eq!(again.atomic(), packet.atomic());
    assert_eq!(again.aeth(), packet.aeth());
    assert_eq!(again.atomic_ack(), packet.atomic_ack());
    assert_eq!(again.imm(), packet.imm());
    assert_eq!(again.invalidate_rkey(), packet.invalidate_rkey());
}

/// A packet of an opcode to a QP.
pub(super) fn build(opcode: Opcode, qp: u32, global: bool) -> Build {
    Build {
        vl: Vl::VL0,
        sl: Sl::new(0),
        slid: Lid(5),
        dlid: Lid(9),
        grh: global.then(|| {
            let gid = |n| Gid::new(Gid::DEFAULT_PREFIX, Guid(n));
            Grh::new(gid(1), gid(2), 0, 0, 64)
        }),
        bth: Bth {
            ack_req: true,
            ..Bth::new(opcode, PKey::DEFAULT, Qpn::new(qp), Psn::new(0xff_fff0))
        },
        ext: Ext {
            deth: Deth {
                qkey: QKey(0x1111),
                src_qp: Qpn::new(2),
            },
            reth: Reth {
                va: 0x1000,
                rkey: 0x100,
                len: 16,
            },
            atomic: AtomicEth::default(),
            aeth: Aeth::default(),
            ..Ext::default()
        },
    }
}

/// The bytes of a packet.
pub(super) fn whole(build: &Build, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; MAX_PACKET];
    let len = build.write_packet(payload, &mut out).unwrap_or(0);
    out.truncate(len);
    out
}

/// Every opcode there is.
pub(super) fn opcodes() -> impl Iterator<Item = Opcode> {
    (0..=255).filter_map(Opcode::from_u8)
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for opcode in opcodes() {
        for global in [false, true] {
            let len = if opcode.op.has_payload() { 13 } else { 0 };
            let packet = whole(&build(opcode, 2, global), &[7; 13][..len]);
            let mut seed = vec![FIX_LENGTH | FIX_CRCS, 128];
            seed.extend(packet);
            seeds.push(seed);
        }
    }
    seeds
}
