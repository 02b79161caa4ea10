// SPDX-License-Identifier: GPL-2.0-or-later
//! Packets from a link into a device: requests to its QPs, responses to what they have asked, and
//! management. Nothing but what keys, rights and receives allow is written.

use std::time::Duration;

use ochre_hw::wqe::{AtomicSegment, SendOpcode, SendWqe, Sge, SEND_SIGNALED};
use ochre_link::Seal;
use ochre_wire::{Build, Lid, Opcode, Operation, Packet, Psn, Qpn, Syndrome, Transport, Vl};

use super::memory::Bed;
use super::packets;
use crate::bytes::{put_piece, Bytes};
use crate::common::guest::elements;
use crate::common::host::LID_B;
use crate::note;

/// Most packets of an input.
const STEPS: usize = 64;

/// The second host asks the first, which is silent, for this much.
fn ask(bed: &mut Bed) {
    let (remote, key) = (bed.sides[0].data, bed.sides[0].key);
    let side = &mut bed.sides[1];
    for opcode in [SendOpcode::Write, SendOpcode::Read, SendOpcode::FetchAdd] {
        let wqe = SendWqe {
            opcode: opcode.raw(),
            flags: SEND_SIGNALED,
            num_sge: 1,
            remote,
            key,
            ..SendWqe::default()
        };
        let is_atomic = opcode == SendOpcode::FetchAdd;
        let mut data = Vec::new();
        if is_atomic {
            data.extend(AtomicSegment::default().to_bytes());
        }
        data.extend(elements(&[Sge {
            addr: side.data,
            length: if is_atomic { 8 } else { 6000 },
            lkey: side.key,
        }]));
        side.qps[0].1.post_send(&wqe, &data);
    }
    let number = side.qps[0].0;
    bed.pair.b.ring(number, &bed.sides[1].qps[0].1);
}

pub(super) fn run(input: &[u8]) {
    let mut bed = Bed::new();
    bed.watch();
    // The first host's QP is gone for the time being: only the input answers.
    let mut input = Bytes::new(input);
    if input.u8() & 1 != 0 {
        ask(&mut bed);
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let (flags, wait) = (input.u8(), input.u8());
        let mut bytes = input.piece().to_vec();
        packets::fix(&mut bytes, flags);
        let (vl, dlid) = match Packet::parse(&bytes) {
            Ok(packet) => {
                note((packet.bth().opcode.to_u8(), packet.icrc_ok()));
                (packet.lrh().vl, packet.lrh().dlid)
            }
            Err(_) => (Vl::VL0, Lid(LID_B)),
        };
        if let Some(link) = bed.pair.a.hca.link_mut(1) {
            if let Ok(slot) = link.tx_begin(vl, dlid, bytes.len()) {
                slot.copy_from_slice(&bytes);
                link.tx_commit(Seal::Done);
                link.flush();
            }
        }
        // The second host first, so that the first does not answer before it.
        bed.pair.b.poll();
        bed.pair
            .run_for(Duration::from_micros(u64::from(wait) * 16));
        for (_, guest) in &bed.sides[1].qps {
            note(guest.rq_consumer);
        }
    }
    bed.finish();
    assert!(bed.both_ready(), "packets are not fatal to a device");
}

fn seed_of(ask: bool, builds: &[(Build, usize)]) -> Vec<u8> {
    let mut seed = vec![u8::from(ask)];
    for (build, payload) in builds {
        seed.extend([3, 0]);
        put_piece(&mut seed, &packets::whole(build, &vec![7; *payload]));
    }
    seed
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bed = Bed::new();
    let b = &bed.sides[1];
    let mut seeds = Vec::new();
    for opcode in packets::opcodes() {
        let kind = match opcode.transport {
            Transport::Rc | Transport::Xrc => 0,
            Transport::Uc => 1,
            Transport::Ud => 2,
        };
        let full = if kind == 1 { 1024 } else { 4096 };
        let payload = match opcode.op {
            op if !op.has_payload() => 0,
            op if op.ends_message() => 16,
            _ => full,
        };
        for (key, va) in [(b.key, b.data), (b.constant_key, b.constant)] {
            let mut build = packets::build(opcode, b.qps[kind].0, false);
            let first_psn = if kind == 0 { 0xff_fff0 } else { 0 };
            build.bth.psn = Psn::new(first_psn);
            build.ext.reth.va = va;
            build.ext.reth.rkey = key;
            build.ext.reth.len = payload.max(16) as u32;
            build.ext.atomic.va = va;
            build.ext.atomic.rkey = key;
            if opcode.op.is_response() {
                build.ext.aeth.syndrome = Syndrome::Ack { credits: 31 };
                seeds.push(seed_of(true, &[(build, payload)]));
                continue;
            }
            // What begins a message gets its end too.
            let mut rest = build;
            rest.bth.psn = Psn::new(first_psn).next();
            rest.bth.opcode = match opcode.op {
                Operation::SendFirst => Opcode::new(opcode.transport, Operation::SendLast),
                Operation::WriteFirst => Opcode::new(opcode.transport, Operation::WriteLast),
                _ => opcode,
            };
            rest.bth.dest_qp = Qpn::new(b.qps[kind].0);
            seeds.push(seed_of(false, &[(build, payload), (rest, payload.min(16))]));
        }
    }
    seeds
}
