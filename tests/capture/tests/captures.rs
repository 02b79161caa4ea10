// SPDX-License-Identifier: GPL-2.0-or-later
//! Captures that taps of two ports write, whole and damaged in every way.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use ochre_capture::packet::{check_data, check_link, PacketFault};
use ochre_capture::{check, CheckError};
use ochre_link::{
    Capture, MemCable, MemConfig, Port, PortConfig, PortState, RuleSet, Seal, Tap, Time,
};
use ochre_wire::{
    Aeth, Bth, Build, Deth, Ext, FlowControl, Lid, Opcode, Operation, PKey, Psn, QKey, Qpn, Sl, Vl,
    MAX_PACKET,
};

/// Bytes of the header of the file, and of the headers of a record.
const FILE: usize = 24;
const RECORD: usize = 32;

/// A file in memory that the test keeps hold of.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(b);
        Ok(b.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn build(opcode: Opcode) -> Build {
    Build {
        vl: Vl::VL0,
        sl: Sl::new(0),
        slid: Lid(1),
        dlid: Lid(2),
        grh: None,
        bth: Bth::new(opcode, PKey::DEFAULT, Qpn::new(0x12), Psn::new(3)),
        ext: Ext {
            deth: Deth {
                qkey: QKey(0x1111),
                src_qp: Qpn::new(0x34),
            },
            aeth: Aeth::default(),
            ..Ext::default()
        },
    }
}

fn packet(build: &Build, payload: usize) -> Vec<u8> {
    let mut out = [0; MAX_PACKET];
    let len = build.write_packet(&vec![0x5a; payload], &mut out).unwrap();
    out[..len].to_vec()
}

/// A capture of both ends of a link that comes up and carries five packets.
fn capture(faults: &str) -> Vec<u8> {
    let file = Shared::default();
    let capture = Capture::new(file.clone()).unwrap();
    let (a, b) = MemCable::pair(MemConfig::default());
    let other = PortConfig {
        seed: 1,
        ..PortConfig::default()
    };
    let mut ports = [Port::new(PortConfig::default(), a), Port::new(other, b)];
    for (port, number) in ports.iter_mut().zip(0..) {
        port.set_tap(Some(Tap {
            capture: capture.clone(),
            port: number,
            link_packets: true,
            epoch_ns: 1,
        }));
    }
    ports[0].set_faults(faults.parse::<RuleSet>().unwrap());
    for step in 0..200u64 {
        for (port, lid) in ports.iter_mut().zip([1, 2]) {
            port.poll(Time::from_micros(step));
            if port.state() == PortState::Initialize {
                port.set_lid(Lid(lid), 0);
                port.set_state(PortState::Armed).unwrap();
            }
            if step == 100 {
                port.set_state(PortState::Active).unwrap();
            }
            while port.rx().is_some() {
                port.rx_done();
            }
        }
        if (110..115).contains(&step) {
            let bytes = packet(&build(Opcode::UD_SEND_ONLY), step as usize - 100);
            let slot = ports[0].tx_begin(Vl::VL0, Lid(2), bytes.len()).unwrap();
            slot.copy_from_slice(&bytes);
            ports[0].tx_commit(Seal::Done);
        }
        ports.iter_mut().for_each(Port::flush);
    }
    capture.flush();
    let bytes = file.0.lock().unwrap().clone();
    bytes
}

/// Where the records are: offset and whole length.
fn records(file: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = FILE;
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        found.push((at, 16 + len));
        at += 16 + len;
    }
    found
}

#[test]
fn what_two_ports_say_to_each_other_is_well() {
    let report = check(&capture("")[..]).unwrap();
    assert!(report.is_well(), "{:?}", report.first);
    assert_eq!(report.packets, 10, "five packets, each sent and received");
    assert_eq!(report.opcodes["Ud SendOnly"], 10);
    assert!(report.link_packets > 4);
}

#[test]
fn every_wrong_bit_of_a_packet_is_found_at_its_place() {
    let file = capture("");
    for (number, &(at, len)) in records(&file).iter().enumerate() {
        for bit in RECORD * 8..len * 8 {
            let mut bad = file.clone();
            bad[at + bit / 8] ^= 1 << (bit % 8);
            let report = check(&bad[..]).unwrap();
            assert_eq!(report.faults, 1, "bit {bit} of record {}", number + 1);
            let first = &report.first[0];
            assert_eq!(first.record, number as u64 + 1);
            assert_eq!(first.offset, at as u64);
        }
        // Two of each kind are enough.
        if number > 40 {
            break;
        }
    }
}

#[test]
fn a_fault_on_the_wire_shows() {
    let report = check(&capture("corrupt crc=bad-icrc dir=tx shots=1")[..]).unwrap();
    // Sent by one port and received by the other.
    assert_eq!(report.faults, 2);
    assert_eq!(report.first[0].what, "ICRC is wrong");
    let report = check(&capture("corrupt crc=bad dir=tx shots=1")[..]).unwrap();
    assert_eq!(report.first[0].what, "VCRC is wrong");
    assert!(!report.is_well());
}

#[test]
fn a_file_that_ends_early_is_a_fault() {
    let file = capture("");
    let &(last, len) = records(&file).last().unwrap();
    for cut in [1, 15, 16, 20, len - 1] {
        let report = check(&file[..last + cut]).unwrap();
        assert_eq!(report.faults, 1, "{cut} bytes of the last record");
        assert!(report.first[0].what.contains("ends after"));
    }
    assert_eq!(check(&file[..last]).unwrap().faults, 0);
    let empty = check(&file[..FILE]).unwrap();
    assert!(empty.faults == 0 && !empty.is_well(), "nothing is not well");
}

#[test]
fn other_files_are_refused() {
    let refused = |bytes: &[u8]| matches!(check(bytes), Err(CheckError::Format(_)));
    let mut file = capture("");
    assert!(refused(b""));
    assert!(refused(&file[1..]));
    file[20] = 1;
    assert!(refused(&file), "Ethernet");
}

#[test]
fn contradicting_lengths_end_the_check() {
    let file = capture("");
    let (at, _) = records(&file)[3];
    // Seconds' fraction, kept length, whole length, ERF type, record length, packet length.
    for byte in [7, 8, 12, 24, 26, 30] {
        let mut bad = file.clone();
        bad[at + byte] ^= 0x40;
        let report = check(&bad[..]).unwrap();
        assert_eq!((report.faults, report.first[0].record), (1, 4), "{byte}");
    }
}

#[test]
fn packets_keep_the_rules_of_their_kind() {
    let middle = Opcode::rc(Operation::WriteMiddle);
    assert_eq!(check_data(&packet(&build(middle), 1024)), Ok(middle));
    assert_eq!(
        check_data(&packet(&build(middle), 1000)),
        Err(PacketFault::NotFull(1000))
    );
    let smp = |vl, qp, len| {
        let mut b = build(Opcode::UD_SEND_ONLY);
        b.vl = Vl::new(vl);
        b.bth.dest_qp = Qpn::new(qp);
        check_data(&packet(&b, len))
    };
    assert_eq!(smp(15, 0, 256), Ok(Opcode::UD_SEND_ONLY));
    assert_eq!(smp(0, 1, 256), Ok(Opcode::UD_SEND_ONLY));
    assert_eq!(
        smp(0, 0, 256),
        Err(PacketFault::ManagementLane { qp: 0, vl: 0 })
    );
    assert_eq!(
        smp(15, 1, 256),
        Err(PacketFault::ManagementLane { qp: 1, vl: 15 })
    );
    assert_eq!(smp(15, 0, 252), Err(PacketFault::Mad(252)));
    let lids = |slid, dlid, qp| {
        let mut b = build(Opcode::UD_SEND_ONLY);
        (b.slid, b.dlid) = (Lid(slid), Lid(dlid));
        b.bth.dest_qp = Qpn::new(qp);
        check_data(&packet(&b, 4))
    };
    assert!(lids(1, 0xc001, 0xff_ffff).is_ok());
    assert_eq!(lids(0xc001, 1, 2), Err(PacketFault::Source(0xc001)));
    assert!(matches!(
        lids(1, 0xc001, 2),
        Err(PacketFault::Multicast { .. })
    ));
    assert!(matches!(
        lids(1, 2, 0xff_ffff),
        Err(PacketFault::Multicast { .. })
    ));
}

#[test]
fn link_packets_keep_theirs() {
    let record = |op, vl| {
        let mut b = [0; 8];
        let flow = FlowControl {
            op,
            fctbs: 1,
            vl: Vl::new(vl),
            fccl: 2,
        };
        flow.write(b.first_chunk_mut().unwrap());
        b
    };
    assert_eq!(check_link(&record(0, 3)), Ok(()));
    assert_eq!(check_link(&record(1, 3)), Ok(()));
    assert_eq!(
        check_link(&record(2, 3)),
        Err(PacketFault::LinkOperation(2))
    );
    assert_eq!(check_link(&record(0, 15)), Err(PacketFault::LinkLane));
    assert_eq!(
        check_link(&record(0, 3)[..6]),
        Err(PacketFault::LinkLength(6))
    );
    assert_eq!(check_link(&[1; 8]), Err(PacketFault::LinkLength(8)));
    assert_eq!(
        check_link(&[1, 1, 1, 1, 1, 1, 0, 0]),
        Err(PacketFault::Lpcrc)
    );
}
