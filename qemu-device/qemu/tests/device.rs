// SPDX-License-Identifier: GPL-2.0-or-later

//! The whole device in a real QEMU, with no guest: bus, registers, commands, interrupts, links, and life
//! and death of both ends.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]
mod common;

use std::io::Read;

use common::hca::Hca;
use common::machine::{refused, Folder, Machine};
use common::port::RootPort;
use ochre_hw::cmd::device::QueryDeviceOut;
use ochre_hw::cmd::{NumberOut, Opcode, Status, SLOT_EVENT};
use ochre_hw::eqe::EventType;
use ochre_hw::{pci, regs};
use serde_json::json;

const SLOT: u8 = 4;
/// Physical states of a port.
const POLLING: u8 = 2;
const LINK_UP: u8 = 5;
/// Logical states of a port.
const DOWN: u8 = 1;
const INIT: u8 = 2;

fn start(properties: &str) -> (Machine, Hca) {
    let device = format!("ochre-hca,id=hca,addr={SLOT}{properties}");
    let mut machine = Machine::start(&["-device", &device]);
    let hca = Hca::probe(&mut machine, 0, SLOT);
    (machine, hca)
}

fn link(folder: &Folder, more: &str) -> String {
    format!(",link0={}{more}", folder.path("link").display())
}

#[test]
fn the_bus_sees_an_infiniband_controller() {
    let (mut machine, hca) = start(",vectors=5,ports=2");
    let class = machine.config_load(0, SLOT, 8);
    assert_eq!(class >> 16, u32::from(pci::CLASS_INFINIBAND));
    assert_eq!(class as u8, pci::REVISION);
    let msix = machine.capability(0, SLOT, 0x11).unwrap();
    assert_eq!((machine.config_load(0, SLOT, msix) >> 16 & 0x7ff) + 1, 5);
    let express = machine.capability(0, SLOT, 0x10).unwrap();
    // Type of device: on the root bus an integrated endpoint.
    assert_eq!(machine.config_load(0, SLOT, express) >> 20 & 0xf, 9);

    let m = &mut machine;
    assert_eq!(hca.reg(m, regs::MAGIC, 4), u64::from(regs::MAGIC_VALUE));
    assert_eq!(
        hca.reg(m, regs::INTERFACE_VERSION, 4),
        u64::from(regs::INTERFACE_MAJOR) << 16 | u64::from(regs::INTERFACE_MINOR)
    );
    assert_eq!(hca.reg(m, regs::NUM_VECTORS, 4), 5);
    assert_eq!(hca.reg(m, regs::NUM_PORTS, 4), 2);
    assert_eq!(hca.reg(m, regs::NUM_DOORBELL_PAGES, 4), 512);
    let before = hca.reg(m, regs::CLOCK, 8);
    assert!(hca.reg(m, regs::CLOCK, 8) > before);
    machine.quit();
}

#[test]
fn odd_accesses_do_nothing() {
    let (mut machine, hca) = start("");
    let m = &mut machine;
    assert_eq!(hca.reg(m, regs::MAGIC, 1), 0);
    assert_eq!(hca.reg(m, regs::MAGIC + 2, 4), 0);
    assert_eq!(hca.reg(m, 0x8000, 8), 0);
    hca.set_reg(m, regs::CONTROL, 1, 1);
    hca.set_reg(m, regs::MAGIC, 0, 4);
    hca.set_reg(m, 0xfffc, u64::MAX, 4);
    assert_eq!(hca.reg(m, regs::STATUS, 4), 0);
    assert_eq!(hca.reg(m, regs::MAGIC, 4), u64::from(regs::MAGIC_VALUE));
    machine.quit();
}

#[test]
fn commands_run_and_interrupt() {
    let (mut machine, mut hca) = start(",node-guid=02:00:c0:ff:ee:00:00:07");
    let m = &mut machine;
    hca.enable(m);
    let output = hca.run(m, Opcode::QueryDevice, &[]);
    let device = QueryDeviceOut::from_bytes(&output);
    assert_eq!(device.node_guid, 0x0200_c0ff_ee00_0007);
    assert_eq!(
        device.firmware_version,
        hca.reg(m, regs::FIRMWARE_VERSION, 8)
    );
    assert_eq!(hca.command(m, 0xffff, 0, &[], 0).0, Status::BadOpcode);
    let query = Opcode::QueryPort.raw();
    assert_eq!(
        hca.command(m, query, 0, &[9; 8], 64).0,
        Status::BadParameter
    );

    hca.make_events(m, 2);
    for turn in 0..100 {
        hca.arm(m, 2 + turn);
        let port = [1, 0, 0, 0, 0, 0, 0, 0];
        let (status, _) = hca.command(m, query, SLOT_EVENT, &port, 64);
        assert_eq!(status, Status::Ok);
        hca.wait_interrupt(m, 2);
        let event = hca.event(m).expect("no event");
        assert_eq!(event.event, EventType::CommandDone.raw());
        assert!(hca.event(m).is_none());
    }
    machine.quit();
}

#[test]
fn its_objects_are_counted_until_a_reset() {
    let (mut machine, mut hca) = start("");
    let m = &mut machine;
    let none = "eqs=0 cqs=0 pds=0 mrs=0 qps=0 ahs=0 mcast=0";
    assert_eq!(m.qom_get("hca", "objects"), none);
    hca.enable(m);
    hca.make_events(m, 0);
    for _ in 0..3 {
        hca.run::<{ NumberOut::SIZE }>(m, Opcode::AllocPd, &[]);
    }
    assert_eq!(
        m.qom_get("hca", "objects"),
        "eqs=1 cqs=0 pds=3 mrs=0 qps=0 ahs=0 mcast=0"
    );
    hca.flr(m);
    assert_eq!(m.qom_get("hca", "objects"), none);
    machine.quit();
}

#[test]
fn a_bad_command_queue_is_fatal_until_reset() {
    let (mut machine, mut hca) = start("");
    let m = &mut machine;
    for base in [0, 0x10_0020, 0xffff_ffff_ffff_0000, 0xe000_0000] {
        hca.set_reg(m, regs::CMDQ_BASE, base, 8);
        hca.set_reg(m, regs::CMDQ_LOG_SLOTS, 2, 4);
        hca.set_reg(m, regs::CONTROL, regs::CONTROL_ENABLE.into(), 4);
        hca.set_reg(m, regs::CMDQ_DOORBELL, 1, 4);
        let status = hca.reg(m, regs::STATUS, 4);
        assert_eq!(status, u64::from(regs::STATUS_FATAL), "base {base:#x}");
        assert_ne!(hca.reg(m, regs::FATAL_REASON, 4), 0);
        hca.set_reg(m, regs::CONTROL, regs::CONTROL_RESET.into(), 4);
        assert_eq!(hca.reg(m, regs::STATUS, 4), 0);
    }
    hca.enable(m);
    hca.port(m, 1);
    machine.quit();
}

#[test]
fn two_devices_train_and_a_peer_comes_and_goes() {
    let folder = Folder::new();
    let (mut a, mut hca_a) = start(&link(&folder, ""));
    hca_a.enable(&mut a);
    hca_a.make_events(&mut a, 0);
    hca_a.wait_phys_state(&mut a, POLLING);

    for round in 0..3 {
        let (mut b, mut hca_b) = start(&link(&folder, ""));
        hca_b.enable(&mut b);
        hca_a.wait_phys_state(&mut a, LINK_UP);
        hca_b.wait_phys_state(&mut b, LINK_UP);
        let (port_a, port_b) = (hca_a.port(&mut a, 1), hca_b.port(&mut b, 1));
        assert_eq!((port_a.state, port_b.state), (INIT, INIT));
        assert_ne!(port_a.port_guid, port_b.port_guid);
        assert_eq!(port_a.active_width, 2, "4x");
        assert_eq!(port_a.active_speed, 32, "EDR");
        if round == 1 {
            b.quit();
        } else {
            b.kill();
        }
        hca_a.wait_phys_state(&mut a, POLLING);
        assert_eq!(hca_a.port(&mut a, 1).state, DOWN);
    }
    a.quit();
}

#[test]
fn width_and_speed_are_negotiated() {
    let folder = Folder::new();
    let (mut a, mut hca_a) = start(&link(&folder, ",speed=xdr,width=12x"));
    let (mut b, mut hca_b) = start(&link(&folder, ",speed=qdr,width=1x"));
    hca_a.enable(&mut a);
    hca_b.enable(&mut b);
    hca_a.wait_phys_state(&mut a, LINK_UP);
    hca_b.wait_phys_state(&mut b, LINK_UP);
    for port in [hca_a.port(&mut a, 1), hca_b.port(&mut b, 1)] {
        assert_eq!(port.active_width, 1, "1x");
        assert_eq!(port.active_speed, 4, "QDR");
    }
}

#[test]
fn the_cable_can_be_pulled_and_put_back() {
    let folder = Folder::new();
    let (mut a, mut hca_a) = start(&link(&folder, ""));
    let (mut b, mut hca_b) = start(&link(&folder, ""));
    hca_a.enable(&mut a);
    hca_b.enable(&mut b);
    for _ in 0..5 {
        hca_a.wait_phys_state(&mut a, LINK_UP);
        hca_b.wait_phys_state(&mut b, LINK_UP);
        a.qom_set("hca", "plugged0", json!(false));
        hca_a.wait_phys_state(&mut a, POLLING);
        hca_b.wait_phys_state(&mut b, POLLING);
        a.qom_set("hca", "plugged0", json!(true));
    }
    hca_a.wait_phys_state(&mut a, LINK_UP);
    b.qom_set("hca", "drain0", json!(1_000_000));
    let path = json!({ "path": "/machine/peripheral/hca", "property": "drain0" });
    assert_eq!(b.qmp("qom-get", path), Ok(json!(1_000_000)));
    a.quit();
    b.quit();
}

#[test]
fn function_level_reset_retrains_the_link() {
    let folder = Folder::new();
    let (mut a, mut hca_a) = start(&link(&folder, ""));
    let (mut b, mut hca_b) = start(&link(&folder, ""));
    hca_b.enable(&mut b);
    for _ in 0..10 {
        hca_a.enable(&mut a);
        hca_a.make_events(&mut a, 1);
        hca_a.wait_phys_state(&mut a, LINK_UP);
        hca_b.wait_phys_state(&mut b, LINK_UP);
        hca_a.flr(&mut a);
    }
    a.qmp("system_reset", json!({})).unwrap();
    a.qmp_event("RESET");
    let mut hca_a = Hca::probe(&mut a, 0, SLOT);
    hca_a.enable(&mut a);
    hca_a.wait_phys_state(&mut a, LINK_UP);
    a.quit();
    hca_b.wait_phys_state(&mut b, POLLING);
    b.quit();
}

#[test]
fn plugged_in_and_out_under_a_root_port() {
    let folder = Folder::new();
    let path = folder.path("link").display().to_string();
    let mut a = RootPort::start();
    let (mut b, mut hca_b) = start(&link(&folder, ""));
    hca_b.enable(&mut b);
    for _ in 0..3 {
        let mut hca = a.plug(&path);
        hca.enable(&mut a.machine);
        let at = a.machine.capability(1, 0, 0x10).unwrap();
        // Type of device: an endpoint.
        assert_eq!(a.machine.config_load(1, 0, at) >> 20 & 0xf, 0);
        hca.wait_phys_state(&mut a.machine, LINK_UP);
        hca_b.wait_phys_state(&mut b, LINK_UP);
        a.unplug();
        hca_b.wait_phys_state(&mut b, POLLING);
    }
    a.machine.quit();
    b.quit();
}

#[test]
fn migration_is_refused() {
    let (mut machine, _) = start("");
    let error = machine
        .qmp("migrate", json!({ "uri": "exec:cat >/dev/null" }))
        .unwrap_err();
    assert!(error.contains("ochre-hca"), "{error}");
    machine.quit();
}

#[test]
fn a_capture_has_a_header() {
    let folder = Folder::new();
    let capture = folder.path("capture.erf.pcap");
    let (machine, _) = start(&format!(",capture={}", capture.display()));
    machine.quit();
    let mut head = [0; 4];
    std::fs::File::open(capture)
        .unwrap()
        .read_exact(&mut head)
        .unwrap();
    let magic = u32::from_le_bytes(head);
    // pcap with microseconds or nanoseconds, or pcapng.
    assert!(
        [0xa1b2_c3d4, 0xa1b2_3c4d, 0x0a0d_0d0a].contains(&magic),
        "{magic:#x}"
    );
}

#[test]
fn bad_properties_are_explained() {
    for (properties, message) in [
        ("ports=3", "ports is 3; it can be 1 or 2"),
        ("vectors=65", "vectors is 65, it can be 1 to 64"),
        ("speed=fast", "it can be sdr, ddr"),
        ("width=3x", "it can be 1x, 2x"),
        ("node-guid=12", "16 hexadecimal digits"),
        ("link1=/tmp/x", "add ports=2"),
        ("ports=2,link0=/tmp/x,link1=/tmp/x", "a path of its own"),
        ("capture=/nowhere/at/all", "/nowhere/at/all"),
    ] {
        let said = refused(&["-device", &format!("ochre-hca,{properties}")]);
        assert!(said.contains(message), "{properties}: {said}");
    }
}
