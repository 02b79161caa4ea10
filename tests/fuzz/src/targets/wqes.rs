// SPDX-License-Identifier: GPL-2.0-or-later
//! Work queues as a hostile program fills them: entries, records, doorbells, consumer indices. The
//! device writes only where keys allow it, and connections of others go on.

use std::time::Duration;

use ochre_hw::wqe::{
    AtomicSegment, RecvWqe, SendOpcode, SendWqe, Sge, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED,
};

use super::memory::{Bed, Side, KINDS};
use crate::bytes::{put_piece, Bytes};
use crate::common::guest::elements;
use crate::common::Dma;

/// Most steps of an input.
const STEPS: usize = 64;

const SEND: u8 = 0;
const RECV: u8 = 1;
const SETTLE: u8 = 5;

/// Writes a slot of a work queue and moves its producer index.
fn entry(bed: &mut Bed, which: usize, qp: usize, is_send: bool, bytes: &[u8]) {
    let (number, guest) = &mut bed.sides[which].qps[qp];
    let (l, number) = (&guest.layout, *number);
    let (producer, offset, log_slots, log_stride, at_record) = if is_send {
        let p = &mut guest.sq_producer;
        (p, l.sq_offset, l.log_sq_slots, l.log_sq_stride, 0)
    } else {
        let p = &mut guest.rq_producer;
        (p, l.rq_offset, l.log_rq_slots, l.log_rq_stride, 4)
    };
    let slot = u64::from(*producer & ((1 << log_slots) - 1));
    *producer = producer.wrapping_add(1);
    let (index, base) = (*producer, guest.base);
    let bytes = &bytes[..bytes.len().min(1 << log_stride)];
    let host = bed.host(which);
    let at = base + u64::from(offset) + (slot << log_stride);
    host.mem.write(at, bytes).expect("inside the queue");
    host.mem
        .store_u32(base + at_record, index)
        .expect("its record");
    host.hca
        .doorbell(host.now, if is_send { 0 } else { 4 }, number);
}

pub(super) fn run(input: &[u8]) {
    let mut bed = Bed::new();
    bed.watch();
    let mut input = Bytes::new(input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let (verb, place) = (input.u8() % 9, input.u8());
        let (which, qp) = (
            usize::from(place & 1),
            usize::from(place >> 1) % KINDS.len(),
        );
        match verb {
            SEND | RECV => entry(&mut bed, which, qp, verb == SEND, input.piece()),
            2 => {
                let (at, index) = (u64::from(input.u8() & 1) * 4, input.u32());
                let base = bed.sides[which].qps[qp].1.base;
                bed.host(which)
                    .mem
                    .store_u32(base + at, index)
                    .expect("its record");
            }
            3 => {
                let (at, value) = (u64::from(input.u16()), input.u32());
                let host = bed.host(which);
                // The connection of others is not the input's to ring for; nothing comes of it anyway.
                host.hca.doorbell(host.now, at, value);
            }
            4 => {
                let wait = Duration::from_micros(input.u16().into());
                bed.pair.run_for(wait);
            }
            SETTLE => bed.pair.settle(),
            // Anything anywhere in a QP's buffer.
            6 => {
                let (at, bytes) = (input.u16(), input.piece());
                let guest = &bed.sides[which].qps[qp].1;
                let at = u64::from(at) % u64::from(guest.layout.bytes);
                let room = (u64::from(guest.layout.bytes) - at) as usize;
                let to = guest.base + at;
                let host = bed.host(which);
                host.mem
                    .write(to, &bytes[..bytes.len().min(room)])
                    .expect("inside");
            }
            7 => bed.sides[which].drain(),
            _ => {
                let index = input.u32();
                let base = bed.sides[which].cq.base;
                bed.host(which)
                    .mem
                    .store_u32(base, index)
                    .expect("its record");
            }
        }
    }
    bed.finish();
    if bed.both_ready() {
        bed.others_go_on();
        bed.finish();
    }
}

fn step(seed: &mut Vec<u8>, verb: u8, place: u8, bytes: &[u8]) {
    seed.extend([verb, place]);
    put_piece(seed, bytes);
}

/// A send slot with a request to the other side.
fn request(me: &Side, peer: &Side, opcode: SendOpcode, flags: u8, ud: Option<u32>) -> Vec<u8> {
    let is_atomic = matches!(opcode, SendOpcode::CompareSwap | SendOpcode::FetchAdd);
    let inline = flags & SEND_INLINE != 0;
    let wqe = SendWqe {
        opcode: opcode.raw(),
        flags,
        num_sge: u8::from(!inline),
        inline_len: if inline { 20 } else { 0 },
        remote: match ud {
            Some(qp) => u64::from(qp) << 32 | u64::from(me.ah),
            None => peer.data,
        },
        key: if ud.is_some() { 0x1111 } else { peer.key },
        ..SendWqe::default()
    };
    let mut bytes = wqe.to_bytes().to_vec();
    if is_atomic {
        bytes.extend(AtomicSegment::default().to_bytes());
    }
    let sge = Sge {
        addr: me.data + 4096,
        length: if is_atomic { 8 } else { 5000 },
        lkey: me.key,
    };
    if inline {
        bytes.extend([9; 20]);
    } else {
        bytes.extend(elements(&[sge]));
    }
    bytes
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bed = Bed::new();
    let [a, b] = &bed.sides;
    let mut seeds = Vec::new();
    for &opcode in SendOpcode::ALL {
        for flags in [SEND_SIGNALED, SEND_SIGNALED | SEND_SOLICITED | SEND_INLINE] {
            for place in [0, 2] {
                let mut seed = Vec::new();
                step(&mut seed, SEND, place, &request(a, b, opcode, flags, None));
                seed.extend([SETTLE, 0]);
                // To where the peer may only read.
                let mut other = request(a, b, opcode, flags, None);
                other[0x10..0x18].copy_from_slice(&b.constant.to_le_bytes());
                other[0x18..0x1c].copy_from_slice(&b.constant_key.to_le_bytes());
                step(&mut seed, SEND, place, &other);
                seeds.push(seed);
            }
        }
    }
    let qp = b.qps[2].0;
    let mut seed = Vec::new();
    let send = request(a, b, SendOpcode::Send, SEND_SIGNALED, Some(qp));
    step(&mut seed, SEND, 4, &send);
    let recv = RecvWqe {
        wr_id: 1,
        num_sge: 1,
        reserved: 0,
    };
    let mut bytes = recv.to_bytes().to_vec();
    bytes.extend(elements(&[Sge {
        addr: b.data,
        length: 100,
        lkey: b.key,
    }]));
    step(&mut seed, RECV, 5, &bytes);
    seeds.push(seed);
    seeds
}
