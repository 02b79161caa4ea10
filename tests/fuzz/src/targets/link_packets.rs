// SPDX-License-Identifier: GPL-2.0-or-later
//! Frames of every kind into a port that is up: link packets, data, training.

use std::time::Duration;

use ochre_link::mem::{MemCable, MemConfig};
use ochre_link::{Cable, Frame, Port, PortConfig, PortState, Time};
use ochre_wire::{vcrc_ok, FlowControl, Lid, Vl};

use super::packets;
use crate::bytes::{put_piece, Bytes};
use crate::note;

/// Two ports that are active.
fn ports() -> ([Port<MemCable>; 2], Time) {
    let (a, b) = MemCable::pair(MemConfig::default());
    let other = PortConfig {
        seed: 1,
        ..PortConfig::default()
    };
    let mut ports = [Port::new(PortConfig::default(), a), Port::new(other, b)];
    let mut now = Time::ZERO;
    for step in 0..1000u64 {
        now = Time::from_micros(step * 10);
        let mut up = true;
        for (port, lid) in ports.iter_mut().zip([5, 9]) {
            port.poll(now);
            if port.state() == PortState::Initialize {
                port.set_lid(Lid(lid), 0);
                port.set_state(PortState::Armed).expect("after INIT");
            }
            up &= port.state() == PortState::Armed;
            port.flush();
        }
        if up {
            break;
        }
    }
    for port in &mut ports {
        port.set_state(PortState::Active).expect("after ARMED");
    }
    (ports, now)
}

pub(super) fn run(input: &[u8]) {
    let ([mut sender, mut port], mut now) = ports();
    let mut input = Bytes::new(input);
    for _ in 0..256 {
        if input.is_empty() {
            break;
        }
        let kind = Frame::from_code(input.u8() % 4 + 1).unwrap_or(Frame::Link);
        let (flags, wait) = (input.u8(), input.u8());
        let mut bytes = input.piece().to_vec();
        if kind == Frame::Data {
            packets::fix(&mut bytes, flags);
        }
        if let Some(b) = bytes.first_chunk_mut::<6>().filter(|_| kind == Frame::Link) {
            // Every second one gets a good CRC.
            let flow = FlowControl::read_unchecked(b);
            if flags & 1 != 0 {
                flow.write(b);
                assert_eq!(FlowControl::read(b), Some(flow));
            }
            note((flow.op, flow.vl.get(), FlowControl::read(b).is_some()));
        }
        let cable = sender.cable_mut();
        if let Ok(slot) = cable.tx_reserve(kind, bytes.len()) {
            slot.copy_from_slice(&bytes);
            cable.tx_commit();
            cable.flush();
        }
        now += Duration::from_micros(u64::from(wait));
        port.poll(now);
        while let Some(event) = port.poll_event() {
            note(std::mem::discriminant(&event));
        }
        while let Some(packet) = port.rx() {
            let bytes = port.rx_bytes();
            assert_eq!(bytes.len(), packet.len);
            assert!(vcrc_ok(bytes), "the link layer checks what it gives out");
            note((packet.vl.get(), kind as u8));
            port.rx_done();
        }
        port.flush();
        port.arm();
        note((port.state() as u8, port.counters().rcv_errors.min(8)));
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for op in 0..3 {
        for vl in [0, 1, 3, 15] {
            let flow = FlowControl {
                op,
                fctbs: 0,
                vl: Vl::new(vl),
                fccl: 100,
            };
            let mut b = [0; 6];
            flow.write(&mut b);
            let mut seed = vec![2, 1, 1];
            put_piece(&mut seed, &b);
            seeds.push(seed);
        }
    }
    for opcode in packets::opcodes() {
        let len = if opcode.op.has_payload() { 16 } else { 0 };
        let mut seed = vec![0, 3, 1];
        put_piece(
            &mut seed,
            &packets::whole(&packets::build(opcode, 2, false), &[7; 16][..len]),
        );
        seeds.push(seed);
    }
    seeds
}
