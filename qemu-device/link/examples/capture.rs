// SPDX-License-Identifier: GPL-2.0-or-later
//! Writes a capture of two ports inside this process: the link comes up, a few packets pass.
//!
//!     cargo run -p ochre-link --example capture -- FILE
//!     tshark -r FILE

use std::fs::File;
use std::time::Duration;

use ochre_link::{
    Capture, MemCable, MemConfig, Port, PortConfig, PortState, Seal, Tap, Time, TxStall,
};
use ochre_wire::{Bth, Build, Deth, Ext, Lid, Opcode, PKey, Psn, QKey, Qpn, Sl, Vl};

fn send(port: &mut Port<MemCable>, build: &Build, payload: &[u8]) -> Result<(), TxStall> {
    let slot = port.tx_begin(build.vl, build.dlid, build.packet_len(payload.len()))?;
    let len = slot.len();
    build
        .write_packet(payload, slot)
        .map_err(|_| TxStall::Length(len))?;
    port.tx_commit(Seal::Done);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: capture FILE")?;
    let capture = Capture::new(File::create(path)?)?;
    let (a, b) = MemCable::pair(MemConfig {
        latency: Duration::from_nanos(500),
        ..MemConfig::default()
    });
    let mut ports = [
        Port::new(PortConfig::default(), a),
        Port::new(
            PortConfig {
                seed: 1,
                ..PortConfig::default()
            },
            b,
        ),
    ];
    let epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    for (port, number) in ports.iter_mut().zip(0..) {
        port.set_tap(Some(Tap {
            capture: capture.clone(),
            port: number,
            link_packets: true,
            epoch_ns: epoch.as_nanos() as u64,
        }));
    }
    for step in 0..200u64 {
        let now = Time::from_micros(step);
        for (port, lid) in ports.iter_mut().zip([1, 2]) {
            port.poll(now);
            if port.state() == PortState::Initialize {
                port.set_lid(Lid(lid), 0);
                port.set_state(PortState::Armed)?;
            }
            if step == 100 {
                port.set_state(PortState::Active)?;
            }
            while port.rx().is_some() {
                port.rx_done();
            }
        }
        if (110..115).contains(&step) {
            let build = Build {
                vl: Vl::VL0,
                sl: Sl::new(0),
                slid: Lid(1),
                dlid: Lid(2),
                grh: None,
                bth: Bth::new(
                    Opcode::UD_SEND_ONLY,
                    PKey::DEFAULT,
                    Qpn::new(0x12),
                    Psn::new(step as u32),
                ),
                ext: Ext {
                    deth: Deth {
                        qkey: QKey(0x1111),
                        src_qp: Qpn::new(0x34),
                    },
                    ..Ext::default()
                },
            };
            send(&mut ports[0], &build, &[0x5a; 64][..step as usize - 60])?;
        }
        ports.iter_mut().for_each(Port::flush);
    }
    let c = ports[1].counters();
    println!("{} packets received, {} errors", c.rcv_pkts, c.rcv_errors);
    capture.flush();
    match capture.take_error() {
        Some(e) => Err(e.into()),
        None => Ok(()),
    }
}
