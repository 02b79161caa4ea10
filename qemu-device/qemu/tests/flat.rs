// SPDX-License-Identifier: GPL-2.0-or-later

//! What a QEMU takes of the host does not grow with the number of times that something is done to its device.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]
mod common;

use common::hca::FREE;
use common::machine::{Folder, Machine};
use common::pair::{connected, join, End, DATA};
use common::port::RootPort;
use common::usage::Usage;
use ochre_hw::cmd::mem::{CreateMr, MrKind};
use ochre_hw::cmd::{NumberIn, NumberOut, Opcode};
use ochre_hw::queue::{MemDesc, MEM_INDIRECT};
use ochre_hw::regs;
use ochre_hw::verbs::access;
use ochre_hw::wqe::SendOpcode;
use serde_json::json;

/// Physical states of a port.
const POLLING: u8 = 2;
const LINK_UP: u8 = 5;

/// Does something `count` times, or `OCHRE_ROUNDS` if that is more, to warm up, and then four times as often, of which
/// nothing may be left.
fn flat<T>(
    subject: &mut T,
    machines: fn(&T) -> Vec<&Machine>,
    count: usize,
    round: impl Fn(&mut T),
) {
    let wanted = std::env::var("OCHRE_ROUNDS").ok();
    let count = count.max(wanted.and_then(|n| n.parse().ok()).unwrap_or(0));
    for _ in 0..count {
        round(subject);
    }
    let before: Vec<Usage> = machines(subject).iter().map(|m| m.rest()).collect();
    for _ in 0..4 * count {
        round(subject);
    }
    for (machine, before) in machines(subject).into_iter().zip(&before) {
        let after = machine.settle(&before.with_slack());
        println!("{before:?}\n{after:?} after {} rounds", 4 * count);
    }
}

fn both(ends: &(End, End)) -> Vec<&Machine> {
    vec![&ends.0.machine, &ends.1.machine]
}

/// A message in each direction.
fn talk(a: &mut End, b: &mut End) {
    let (to_a, to_b) = (a.remote(DATA + 0x10_0000), b.remote(DATA + 0x10_0000));
    b.post_recv(DATA + 0x20_0000, 10_000);
    a.post(SendOpcode::Send, &to_b, DATA, 10_000, &[]);
    a.done();
    b.done();
    for end in [&mut *a, &mut *b] {
        end.hca.drop_events(&mut end.machine);
    }
    a.post(SendOpcode::Read, &to_b, DATA, 10_000, &[]);
    b.post(SendOpcode::Write, &to_a, DATA, 10_000, &[]);
    a.done();
    b.done();
}

#[test]
fn resets_take_no_memory() {
    let folder = Folder::new();
    let mut ends = connected(&folder.path("link"), "", "");
    flat(&mut ends, both, 50, |(a, b)| {
        let remote = b.remote(DATA);
        a.post(SendOpcode::Write, &remote, DATA, 1 << 20, &[]);
        a.hca.flr(&mut a.machine);
        b.hca
            .set_reg(&mut b.machine, regs::CONTROL, regs::CONTROL_RESET.into(), 4);
        for end in [&mut *a, &mut *b] {
            end.hca.enable(&mut end.machine);
            end.hca.make_events(&mut end.machine, 0);
        }
        join(a, b);
        talk(a, b);
    });
}

#[test]
fn a_cable_pulled_and_put_back_takes_no_memory() {
    let folder = Folder::new();
    let mut ends = connected(&folder.path("link"), "", "");
    flat(&mut ends, both, 50, |(a, b)| {
        let remote = b.remote(DATA);
        a.post(SendOpcode::Write, &remote, DATA, 1 << 20, &[]);
        a.machine.qom_set("hca", "plugged0", json!(false));
        for end in [&mut *a, &mut *b] {
            end.hca.wait_phys_state(&mut end.machine, POLLING);
            end.drop_qp();
        }
        a.machine.qom_set("hca", "plugged0", json!(true));
        join(a, b);
        talk(a, b);
    });
}

#[test]
fn objects_that_are_gone_take_no_memory() {
    let folder = Folder::new();
    let mut ends = connected(&folder.path("link"), "", "");
    let list = FREE + 0x8_0000;
    for end in [&mut ends.0, &mut ends.1] {
        for page in 0..512 {
            end.machine.store(list + 8 * page, DATA + 4096 * page, 8);
        }
    }
    flat(&mut ends, both, 50, |(a, b)| {
        talk(a, b);
        for end in [&mut *a, &mut *b] {
            let mr = CreateMr {
                mem: MemDesc {
                    addr: list,
                    num_pages: 512,
                    page_shift: 12,
                    flags: MEM_INDIRECT,
                    ..MemDesc::default()
                },
                iova: 0x1000_0000,
                length: 512 * 4096,
                pd: end.pd,
                access: access::REGION,
                kind: MrKind::Pages.raw(),
                ..CreateMr::default()
            };
            let key = end
                .hca
                .run(&mut end.machine, Opcode::CreateMr, &mr.to_bytes());
            let number = NumberOut::from_bytes(&key).number;
            let key = NumberIn {
                number,
                ..NumberIn::default()
            };
            end.hca
                .run::<0>(&mut end.machine, Opcode::DestroyMr, &key.to_bytes());
            end.drop_qp();
            end.make_qp();
        }
        let (lid_a, lid_b) = (a.lid, b.lid);
        a.connect(lid_b, b.qpn);
        b.connect(lid_a, a.qpn);
    });
}

#[test]
fn peers_that_come_and_go_take_no_memory() {
    let folder = Folder::new();
    let link = folder.path("link");
    let (a, b) = connected(&link, "", "");
    let mut ends = (a, Some(b));
    flat(
        &mut ends,
        |ends| vec![&ends.0.machine],
        10,
        |(a, b)| {
            let old = b.take().expect("no peer");
            let remote = old.remote(DATA);
            a.post(SendOpcode::Write, &remote, DATA, 1 << 20, &[]);
            old.machine.kill();
            a.hca.wait_phys_state(&mut a.machine, POLLING);
            a.drop_qp();
            let b = b.insert(End::start(&link, 2, ""));
            join(a, b);
            talk(a, b);
        },
    );
}

#[test]
fn a_device_that_is_gone_takes_no_memory() {
    let folder = Folder::new();
    let path = folder.path("link").display().to_string();
    let b = End::start(&folder.path("link"), 2, "");
    let mut ends = (RootPort::start(), b);
    flat(
        &mut ends,
        |ends| vec![&ends.0.machine, &ends.1.machine],
        50,
        |(a, b)| {
            let mut hca = a.plug(&path);
            hca.enable(&mut a.machine);
            hca.make_events(&mut a.machine, 0);
            hca.wait_phys_state(&mut a.machine, LINK_UP);
            b.hca.wait_phys_state(&mut b.machine, LINK_UP);
            a.unplug();
            b.hca.wait_phys_state(&mut b.machine, POLLING);
        },
    );
}

#[test]
fn properties_and_pauses_take_no_memory() {
    let folder = Folder::new();
    let capture = folder.path("capture.pcap");
    let mut ends = connected(
        &folder.path("link"),
        &format!(",capture={}", capture.display()),
        "",
    );
    flat(&mut ends, both, 50, |(a, b)| {
        a.machine
            .qom_set("hca", "faults0", json!("drop nth=1000000"));
        a.machine.qom_get("hca", "faults0");
        a.machine.qom_get("hca", "objects");
        a.machine.qom_set("hca", "capturing", json!(false));
        a.machine.qmp("stop", json!({})).unwrap();
        a.machine.qmp("cont", json!({})).unwrap();
        talk(a, b);
        a.machine.qom_set("hca", "capturing", json!(true));
    });
}
