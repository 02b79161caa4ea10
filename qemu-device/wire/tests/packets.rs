// SPDX-License-Identifier: GPL-2.0-or-later
//! Data packets: known vectors, round trips of every opcode, and parsers that accept any bytes.

use ochre_wire::{
    check_crcs, pad_len, set_vl, vcrc_ok, Aeth, AtomicEth, Bth, Build, BuildError, CrcCheck, Deth,
    Ext, FlowControl, Gid, Grh, Guid, Headers, Lid, NakCode, Opcode, Operation, PKey, Packet,
    ParseError, Psn, QKey, Qpn, Reth, Sl, Syndrome, Transport, Vl, MAX_HEADERS, MAX_PACKET,
};
use proptest::prelude::*;

/// The sample local packet of the specification's ICRC section (offset/value table in the
/// description of the ICRC; quoted in the public linux-rdma discussion of the rxe ICRC, January
/// 2025), with the VL that the sample masks (7), up to the byte before the ICRC.
const SAMPLE: [u8; 52] = [
    0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0x00, 0x87, 0xb1, 0xb3,
    0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d, 0x40, 0x02, 0x38, 0xf2, 0x7a, 0x05,
    0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69,
    0x0e, 0xd4, 0x00, 0x00,
];
/// Its ICRC, bytes 52 to 55 of the sample.
const SAMPLE_ICRC: [u8; 4] = [0x96, 0x25, 0xb7, 0x5a];

/// One bit at a time, straight from the rules: polynomial 0x100B, ones to start, least significant
/// bit first, complemented, least significant byte first.
fn vcrc_by_bits(bytes: &[u8]) -> [u8; 2] {
    let mut crc = 0xffff_u16;
    for b in bytes {
        for i in 0..8 {
            let feedback = crc & 1 != u16::from(b >> i & 1);
            crc >>= 1;
            if feedback {
                crc ^= 0x100b_u16.reverse_bits();
            }
        }
    }
    (!crc).to_le_bytes()
}

#[test]
fn sample_packet_of_the_specification() {
    let mut packet = SAMPLE.to_vec();
    packet.extend(SAMPLE_ICRC);
    packet.extend(vcrc_by_bits(&packet));

    let p = Packet::parse(&packet).unwrap();
    assert_eq!(p.icrc(), SAMPLE_ICRC);
    assert!(p.icrc_ok() && p.vcrc_ok());
    assert_eq!((p.lrh().vl, p.lrh().sl), (Vl::new(7), Sl::new(1)));
    assert_eq!((p.lrh().dlid, p.lrh().slid), (Lid(0x375c), Lid(0x17d2)));
    assert_eq!(p.bth().opcode, Opcode::rc(Operation::WriteOnly));
    assert_eq!((p.bth().pkey, p.bth().pad), (PKey(0x2487), 2));
    assert_eq!(p.bth().dest_qp, Qpn::new(0x87_b1b3));
    assert_eq!(p.bth().psn, Psn::new(0x0d_ec2a));
    let reth = Reth {
        va: 0x0171_0a1c_015d_4002,
        rkey: 0x38f2_7a05,
        len: 14,
    };
    assert_eq!(p.reth(), Some(reth));
    assert_eq!(p.payload(), &SAMPLE[36..50]);

    // Building the same packet gives the same bytes.
    let build = Build {
        vl: Vl::new(7),
        sl: Sl::new(1),
        slid: Lid(0x17d2),
        dlid: Lid(0x375c),
        grh: None,
        bth: Bth {
            mig_req: false,
            ..*p.bth()
        },
        ext: Ext {
            reth,
            ..Ext::default()
        },
    };
    let mut out = [0; MAX_PACKET];
    let n = build.write_packet(&SAMPLE[36..50], &mut out).unwrap();
    assert_eq!(&out[..n], &packet);
}

#[test]
fn global_packet_hides_what_routers_change_from_the_icrc() {
    let mut build = build_of(Opcode::rc(Operation::SendOnly), true);
    let mut a = [0; MAX_PACKET];
    let n = build.write_packet(b"payload", &mut a).unwrap();
    build.vl = Vl::new(3);
    build.sl = Sl::new(9);
    build.slid = Lid(0x1111);
    build.dlid = Lid(0x2222);
    build.bth.fecn = true;
    build.bth.becn = true;
    let grh = build.grh.as_mut().unwrap();
    grh.tclass = 0x77;
    grh.flow_label = 0xabcde;
    grh.hop_limit = 3;
    let mut b = [0; MAX_PACKET];
    assert_eq!(build.write_packet(b"payload", &mut b), Ok(n));
    let (a, b) = (
        Packet::parse(&a[..n]).unwrap(),
        Packet::parse(&b[..n]).unwrap(),
    );
    assert_eq!(a.icrc(), b.icrc());
    assert_ne!(a.vcrc(), b.vcrc());
    assert!(a.icrc_ok() && b.icrc_ok() && a.vcrc_ok() && b.vcrc_ok());
}

#[test]
fn local_packet_covers_lids_and_hides_the_lane() {
    let build = build_of(Opcode::rc(Operation::SendOnly), false);
    let mut out = [0; MAX_PACKET];
    let n = build.write_packet(b"payload", &mut out).unwrap();
    set_vl(&mut out, Vl::new(5));
    assert!(Packet::parse(&out[..n]).unwrap().icrc_ok());
    assert!(!vcrc_ok(&out[..n]));
    out[7] ^= 1;
    assert!(!Packet::parse(&out[..n]).unwrap().icrc_ok());
}

#[test]
fn link_packet() {
    let fc = FlowControl {
        op: FlowControl::OP_INIT,
        fctbs: 0xabc,
        vl: Vl::new(3),
        fccl: 0x123,
    };
    let mut b = [0; 6];
    fc.write(&mut b);
    assert_eq!(b[..4], [0x1a, 0xbc, 0x31, 0x23]);
    assert_eq!([b[4], b[5]], vcrc_by_bits(&b[..4]));
    assert_eq!(FlowControl::read(&b), Some(fc));
    for bit in 0..48 {
        let mut bad = b;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(FlowControl::read(&bad), None, "bit {bit}");
    }
}

fn all_opcodes() -> impl Iterator<Item = Opcode> {
    (0..=255).filter_map(Opcode::from_u8)
}

fn build_of(opcode: Opcode, global: bool) -> Build {
    Build {
        vl: Vl::new(1),
        sl: Sl::new(2),
        slid: Lid(3),
        dlid: Lid(4),
        grh: global.then(|| {
            Grh::new(
                Gid::new(Gid::DEFAULT_PREFIX, Guid(1)),
                Gid::new(Gid::DEFAULT_PREFIX, Guid(2)),
                5,
                6,
                64,
            )
        }),
        bth: Bth {
            solicited: true,
            ack_req: true,
            ..Bth::new(
                opcode,
                PKey::DEFAULT,
                Qpn::new(0x12_3456),
                Psn::new(0xab_cdef),
            )
        },
        ext: Ext {
            deth: Deth {
                qkey: QKey(0x1122_3344),
                src_qp: Qpn::new(0x55_6677),
            },
            xrc_srq: Qpn::new(0x88_99aa),
            reth: Reth {
                va: 0x0102_0304_0506_0708,
                rkey: 0x090a_0b0c,
                len: 0x0d0e_0f10,
            },
            atomic: AtomicEth {
                va: 0x1112_1314_1516_1718,
                rkey: 0x191a_1b1c,
                swap_add: 0x2122_2324_2526_2728,
                compare: 0x3132_3334_3536_3738,
            },
            aeth: Aeth {
                syndrome: Syndrome::Nak(NakCode::RemoteAccess),
                msn: 0x41_4243,
            },
            atomic_ack: 0x5152_5354_5556_5758,
            imm: 0x6162_6364,
            invalidate_rkey: 0x7172_7374,
        },
    }
}

#[test]
fn every_opcode_round_trips() {
    let mut seen = 0;
    for opcode in all_opcodes() {
        assert_eq!(Opcode::from_u8(opcode.to_u8()), Some(opcode));
        seen += 1;
        for global in [false, true] {
            for len in [0, 1, 2, 3, 4, 255, 4096] {
                if len > 0 && !opcode.op.has_payload() {
                    continue;
                }
                let build = build_of(opcode, global);
                let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let mut out = [0xee; MAX_PACKET];
                let n = build.write_packet(&payload, &mut out).unwrap();
                assert_eq!(n, build.packet_len(len));
                assert!(build.header_len() <= MAX_HEADERS);
                let p = Packet::parse(&out[..n]).unwrap();
                assert!(p.icrc_ok() && p.vcrc_ok(), "{opcode:?}");
                assert_eq!(p.payload(), payload);
                assert_eq!(p.bth().pad as usize, pad_len(len));
                assert_eq!(
                    *p.bth(),
                    Bth {
                        pad: pad_len(len) as u8,
                        ..build.bth
                    }
                );
                assert_eq!(p.has_grh(), global);
                if let Some(grh) = p.grh() {
                    let pay_len = (n - 2 - 48) as u16;
                    assert_eq!(
                        grh,
                        Grh {
                            pay_len,
                            ..build.grh.unwrap()
                        }
                    );
                }
                let ext = &build.ext;
                let op = opcode.op;
                assert_eq!(
                    p.deth(),
                    (opcode.transport == Transport::Ud).then_some(ext.deth)
                );
                assert_eq!(
                    p.xrc_srq(),
                    (opcode.transport == Transport::Xrc && !op.is_response())
                        .then_some(ext.xrc_srq)
                );
                assert_eq!(p.reth(), op.has_reth().then_some(ext.reth));
                assert_eq!(p.atomic(), op.has_atomic().then_some(ext.atomic));
                assert_eq!(p.aeth(), op.has_aeth().then_some(ext.aeth));
                assert_eq!(
                    p.atomic_ack(),
                    op.has_atomic_ack().then_some(ext.atomic_ack)
                );
                assert_eq!(p.imm(), op.has_imm().then_some(ext.imm));
                assert_eq!(
                    p.invalidate_rkey(),
                    op.has_ieth().then_some(ext.invalidate_rkey)
                );

                // A prefix with the headers and the length is as good as the packet.
                let h = Headers::parse(&out[..n.min(MAX_HEADERS)], n).unwrap();
                assert_eq!(h.payload_range(), p.payload_range());
            }
        }
    }
    // RC 23, UC 12, UD 2, XRC 23.
    assert_eq!(seen, 60);
}

#[test]
fn known_opcode_numbers() {
    use Operation as Op;
    for (opcode, v) in [
        (Opcode::rc(Op::SendFirst), 0x00),
        (Opcode::rc(Op::WriteOnlyImm), 0x0b),
        (Opcode::rc(Op::ReadRequest), 0x0c),
        (Opcode::rc(Op::Ack), 0x11),
        (Opcode::rc(Op::FetchAdd), 0x14),
        (Opcode::rc(Op::SendOnlyInv), 0x17),
        (Opcode::uc(Op::WriteFirst), 0x26),
        (Opcode::UD_SEND_ONLY, 0x64),
        (Opcode::UD_SEND_ONLY_IMM, 0x65),
        (Opcode::new(Transport::Xrc, Op::SendFirst), 0xa0),
    ] {
        assert_eq!(opcode.to_u8(), v);
    }
    for undefined in [0x15, 0x18, 0x2c, 0x31, 0x44, 0x60, 0x66, 0x80, 0xff] {
        assert_eq!(Opcode::from_u8(undefined), None, "{undefined:#x}");
    }
}

#[test]
fn malformed_packets_say_why() {
    let build = build_of(Opcode::rc(Operation::SendOnly), true);
    let mut out = [0; MAX_PACKET];
    let n = build.write_packet(b"abcde", &mut out).unwrap();
    let parse = |edit: &dyn Fn(&mut [u8])| {
        let mut b = out[..n].to_vec();
        edit(&mut b);
        Packet::parse(&b).map(|_| ()).unwrap_err()
    };
    assert_eq!(parse(&|b| b[0] |= 1), ParseError::LinkVersion(1));
    assert_eq!(parse(&|b| b[1] &= !3), ParseError::Raw(0));
    assert_eq!(
        parse(&|b| b[5] += 1),
        ParseError::Length {
            lrh: n + 2,
            have: n - 2
        }
    );
    assert_eq!(parse(&|b| b[8] = 0x40), ParseError::IpVersion(4));
    assert_eq!(parse(&|b| b[14] = 17), ParseError::NextHeader(17));
    assert!(matches!(
        parse(&|b| b[13] += 1),
        ParseError::GrhLength { .. }
    ));
    assert_eq!(parse(&|b| b[48] = 0xff), ParseError::Opcode(0xff));
    assert_eq!(parse(&|b| b[49] |= 2), ParseError::TransportVersion(2));
    assert_eq!(
        parse(&|b| b[48] = 0x0c),
        ParseError::Truncated {
            need: n + 8,
            have: n
        }
    );
    assert_eq!(
        Packet::parse(&out[..10]).unwrap_err(),
        ParseError::Truncated { need: 26, have: 10 }
    );
    // Payload behind an ACK.
    let ack = build_of(Opcode::rc(Operation::Ack), false);
    let mut b = [0; 64];
    let n = ack.write_packet(&[], &mut b).unwrap();
    b[n..n + 4].fill(0);
    b[5] += 1;
    assert_eq!(
        Packet::parse(&b[..n + 4]).unwrap_err(),
        ParseError::Payload { len: 4, pad: 0 }
    );
}

#[test]
fn build_refuses_what_does_not_fit() {
    let build = build_of(Opcode::rc(Operation::SendOnly), false);
    assert_eq!(
        build.write_headers(0, &mut [0; 19]),
        Err(BuildError::NoSpace { need: 20, have: 19 })
    );
    assert_eq!(
        build.write_packet(&[0; 4], &mut [0; 29]),
        Err(BuildError::NoSpace { need: 30, have: 29 })
    );
    assert_eq!(
        build.write_headers(4097, &mut [0; 6000]),
        Err(BuildError::TooLong(4097))
    );
}

#[test]
fn check_tells_link_errors_from_older_ones() {
    let build = build_of(Opcode::rc(Operation::SendOnly), false);
    let mut out = [0; MAX_PACKET];
    let n = build.write_packet(&[7; 333], &mut out).unwrap();
    assert_eq!(check_crcs(&out[..n]), CrcCheck::Good);
    let mut bad = out;
    bad[100] ^= 4;
    assert_eq!(check_crcs(&bad[..n]), CrcCheck::BadVcrc);
    let fixed = vcrc_by_bits(&bad[..n - 2]);
    bad[n - 2..n].copy_from_slice(&fixed);
    assert_eq!(check_crcs(&bad[..n]), CrcCheck::BadIcrc);
    // A raw packet has a VCRC only, and what is shorter than its CRCs is damaged.
    bad[1] &= !3;
    let fixed = vcrc_by_bits(&bad[..n - 2]);
    bad[n - 2..n].copy_from_slice(&fixed);
    assert_eq!(check_crcs(&bad[..n]), CrcCheck::Good);
    assert_eq!(check_crcs(&[]), CrcCheck::BadVcrc);
    assert_eq!(check_crcs(&[0, 2, 0, 0]), CrcCheck::BadVcrc);
}

proptest! {
    #[test]
    fn any_bytes_parse_or_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
                               fix in any::<bool>()) {
        if fix && bytes.len() >= 26 {
            // Make the cheap checks pass, so that the deeper ones are reached.
            bytes.truncate(bytes.len() - (bytes.len() - 2) % 4);
            let words = ((bytes.len() - 2) / 4) as u16;
            bytes[0] &= 0xf0;
            bytes[1] |= 2;
            bytes[4..6].copy_from_slice(&words.to_be_bytes());
        }
        if let Ok(p) = Packet::parse(&bytes) {
            prop_assert!(p.payload_range().end + 6 <= bytes.len());
            let _ = (p.payload(), p.icrc_ok(), p.vcrc_ok(), p.grh(), p.deth(), p.xrc_srq());
            let _ = (p.reth(), p.atomic(), p.aeth(), p.atomic_ack(), p.imm(), p.invalidate_rkey());
        }
    }

    #[test]
    fn any_prefix_parses_or_fails(bytes in proptest::collection::vec(any::<u8>(), 0..100),
                                  len in any::<usize>()) {
        if let Ok(h) = Headers::parse(&bytes, len) {
            prop_assert!(h.header_len() <= bytes.len());
            prop_assert!(h.payload_range().end < len);
        }
    }

    #[test]
    fn damage_never_passes(at in 0..400_usize, bit in 0..8_u32) {
        let build = build_of(Opcode::rc(Operation::WriteOnlyImm), false);
        let mut out = [0; MAX_PACKET];
        let n = build.write_packet(&[0x5a; 301], &mut out).unwrap();
        out[at % n] ^= 1 << bit;
        prop_assert!(!vcrc_ok(&out[..n]));
    }

    #[test]
    fn link_packets_round_trip(op in 0..16_u8, fctbs in 0..4096_u16, vl in 0..16_u8,
                               fccl in 0..4096_u16) {
        let fc = FlowControl { op, fctbs, vl: Vl::new(vl), fccl };
        let mut b = [0; 6];
        fc.write(&mut b);
        prop_assert_eq!(FlowControl::read(&b), Some(fc));
    }

    #[test]
    fn the_check_knows_what_was_written(payload in proptest::collection::vec(any::<u8>(), 0..4097),
                                        grh in any::<bool>(), vl in 0..15_u8, ecn in any::<u8>(),
                                        at in any::<usize>(), bit in 0..8_u32) {
        let build = build_of(Opcode::rc(Operation::SendOnly), grh);
        let mut out = [0; MAX_PACKET];
        let n = build.write_packet(&payload, &mut out).unwrap();
        let ecn_at = if grh { 8 + 40 + 4 } else { 8 + 4 };
        // What the way may change: the ICRC stays, the VCRC is made anew.
        set_vl(&mut out[..n], Vl::new(vl));
        out[ecn_at] = ecn;
        let vcrc = vcrc_by_bits(&out[..n - 2]);
        prop_assert_eq!(check_crcs(&out[..n]) == CrcCheck::Good, vcrc == out[n - 2..n]);
        out[n - 2..n].copy_from_slice(&vcrc);
        prop_assert_eq!(check_crcs(&out[..n]), CrcCheck::Good);
        prop_assert!(Packet::parse(&out[..n]).unwrap().icrc_ok());
        out[at % n] ^= 1 << bit;
        prop_assert_eq!(check_crcs(&out[..n]), CrcCheck::BadVcrc);
    }
}
