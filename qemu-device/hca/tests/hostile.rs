// SPDX-License-Identifier: GPL-2.0-or-later
//! A guest that means harm: memory that is not there, indices and entries that make no sense.
//! Each ends in the error that the contract names; the device, and its other users, live on.

mod common;

use common::guest::elements;
use common::host::{block, Host, Pair, LID_A, LID_B, MEMORY};
use common::rng::Rng;
use common::Dma;
use ochre_hw::cmd::queue::{CreateCq, CreateEq};
use ochre_hw::cmd::{CmdSlot, Opcode, OWNER_DEVICE};
use ochre_hw::cqe::CqeStatus;
use ochre_hw::doorbell;
use ochre_hw::eqe::EventType;
use ochre_hw::queue::{MemDesc, QpSizes, MEM_INDIRECT};
use ochre_hw::regs::{self, FatalReason};
use ochre_hw::verbs::{access, qp_attr, AddressVector, QpAttr, QpState, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_SIGNALED};

const SIZES: QpSizes = QpSizes {
    send_wr: 16,
    send_sge: 4,
    inline_data: 128,
    recv_wr: 16,
    recv_sge: 4,
};
/// Where there is no memory.
const NOWHERE: u64 = 1 << 40;

/// A list of pages of which the first is memory and the others are not.
fn torn(h: &mut Host, first: u64, pages: u32) -> MemDesc {
    let list = h.heap.take(u64::from(pages) * 8);
    for i in 0..u64::from(pages) {
        let page = if i == 0 { first } else { NOWHERE + (i << 12) };
        h.mem.write(list + i * 8, &page.to_le_bytes()).unwrap();
    }
    MemDesc {
        addr: list,
        num_pages: pages,
        page_shift: 12,
        flags: MEM_INDIRECT,
        ..MemDesc::default()
    }
}

fn ud_send(h: &mut Host, qp: u32, ah: u32) -> SendWqe {
    let _ = h;
    SendWqe {
        opcode: SendOpcode::Send.raw(),
        flags: SEND_SIGNALED,
        remote: u64::from(qp) << 32 | u64::from(ah),
        ..SendWqe::default()
    }
}

fn own_ah(h: &mut Host, pd: u32) -> u32 {
    h.create_ah(
        pd,
        AddressVector {
            dlid: LID_A,
            port: 1,
            ..AddressVector::default()
        },
    )
}

#[test]
fn a_completion_queue_without_memory_breaks() {
    let mut pair = Pair::active();
    let h = &mut pair.a;
    let pd = h.alloc_pd();
    // The record is there, most of the entries are not.
    let first = h.heap.take(4096);
    let mem = torn(h, first, 2);
    let input = CreateCq {
        mem,
        log_entries: 6,
        ..CreateCq::default()
    };
    let cq = h.create(Opcode::CreateCq, input).unwrap();
    let (qp, mut guest) = h.create_qp(QpType::Ud, pd, [cq, cq], &SIZES);
    h.start_datagram(qp, QpType::Ud, 0);
    let ah = own_ah(h, pd);
    // 63 entries fit behind the record.
    for _ in 0..64 {
        let wqe = ud_send(h, 0xabcdef, ah);
        guest.post_send(&wqe, &[]);
        h.ring(qp, &guest);
    }
    assert_eq!(
        h.events(),
        [(EventType::CqError, 0, cq), (EventType::QpFatal, 0, qp)]
    );
    assert_eq!(h.query_qp(qp).state, QpState::Error.raw());
    assert_eq!(h.reg(regs::STATUS), regs::STATUS_READY);
    h.destroy(Opcode::DestroyQp, qp).unwrap();
    h.destroy(Opcode::DestroyCq, cq).unwrap();
}

#[test]
fn an_event_queue_without_memory_is_fatal() {
    let mut pair = Pair::active();
    let h = &mut pair.a;
    let mem = block(NOWHERE, 4096);
    let input = CreateEq {
        mem,
        log_entries: 4,
        ..CreateEq::default()
    };
    h.destroy(Opcode::DestroyEq, 0).unwrap();
    assert_eq!(h.create(Opcode::CreateEq, input), Ok(0));
    let slot = CmdSlot {
        opcode: Opcode::QueryObjects.raw(),
        flags: ochre_hw::cmd::SLOT_EVENT,
        out_addr: 4096,
        out_len: 64,
        owner: OWNER_DEVICE,
        ..CmdSlot::default()
    };
    h.submit(&slot);
    assert_eq!(h.reg(regs::STATUS), regs::STATUS_FATAL);
    let reason = h.reg(regs::FATAL_REASON);
    assert_eq!(reason, FatalReason::EventQueueDma.raw());
}

#[test]
fn a_queue_pair_without_memory_breaks() {
    let mut pair = Pair::active();
    let h = &mut pair.a;
    let pd = h.alloc_pd();
    let (cq, mut polled) = h.create_cq(0, 6);
    let ah = own_ah(h, pd);
    // The record and the first slots are there, the others are not.
    let sizes = QpSizes {
        send_wr: 32,
        ..SIZES
    };
    let (mut input, mut guest) = h.qp_input(QpType::Ud, pd, [cq, cq], &sizes);
    // A short request needs no more of its slot than the start, so the last slot may be cut.
    let room = 4096 - u32::from(guest.layout.sq_offset as u16);
    let slots = room.div_ceil(1 << guest.layout.log_sq_stride);
    assert!(slots < 32, "the queue is longer than a page");
    input.mem = torn(h, guest.base, input.mem.num_pages);
    let qp = h.create(Opcode::CreateQp, input).unwrap();
    h.start_datagram(qp, QpType::Ud, 0);
    for _ in 0..=slots {
        let wqe = ud_send(h, 0xabcdef, ah);
        guest.post_send(&wqe, &[]);
        h.ring(qp, &guest);
    }
    for _ in 0..slots {
        assert_eq!(polled.poll().unwrap().status, 0);
    }
    assert_eq!(h.events(), [(EventType::QpFatal, 0, qp)]);
    // All of it elsewhere.
    input.mem = block(NOWHERE, guest.layout.bytes.into());
    let qp = h.create(Opcode::CreateQp, input).unwrap();
    h.start_datagram(qp, QpType::Ud, 0);
    assert_eq!(h.events(), [(EventType::QpFatal, 0, qp)]);
    assert_eq!(h.reg(regs::STATUS), regs::STATUS_READY);
}

#[test]
fn a_region_without_memory_fails_its_requests() {
    let mut pair = Pair::active();
    let h = &mut pair.a;
    let pd = h.alloc_pd();
    let (cqn, mut cq) = h.create_cq(0, 6);
    let (qp, mut guest) = h.create_qp(QpType::Ud, pd, [cqn, cqn], &SIZES);
    h.start_datagram(qp, QpType::Ud, 0);
    let ah = own_ah(h, pd);
    let first = h.heap.take(4096);
    let mem = torn(h, first, 2);
    let input = ochre_hw::cmd::mem::CreateMr {
        mem,
        iova: 0x10000,
        length: 8192,
        pd,
        access: access::LOCAL_WRITE,
        kind: 1,
        ..Default::default()
    };
    let lkey = h.create(Opcode::CreateMr, input).unwrap();
    let wqe = SendWqe {
        num_sge: 1,
        ..ud_send(h, 0xabcdef, ah)
    };
    let sge = |addr| Sge {
        addr,
        length: 64,
        lkey,
    };
    guest.post_send(&wqe, &elements(&[sge(0x10000 + 4032)]));
    guest.post_send(&wqe, &elements(&[sge(0x10000 + 4033)]));
    h.ring(qp, &guest);
    assert_eq!(cq.poll().unwrap().status, 0);
    let status = CqeStatus::LocalProtection.raw();
    assert_eq!(cq.poll().unwrap().status, status);
}

#[test]
fn consumers_that_run_ahead_are_an_overrun_not_a_hole() {
    let mut pair = Pair::active();
    let h = &mut pair.a;
    let pd = h.alloc_pd();
    let (cqn, cq) = h.create_cq(0, 2);
    let (qp, mut guest) = h.create_qp(QpType::Ud, pd, [cqn, cqn], &SIZES);
    h.start_datagram(qp, QpType::Ud, 0);
    let ah = own_ah(h, pd);
    // The consumer says that it has read what was never written.
    h.mem.store_u32(cq.base, 1000).unwrap();
    for _ in 0..5 {
        let wqe = ud_send(h, 0xabcdef, ah);
        guest.post_send(&wqe, &[]);
    }
    h.ring(qp, &guest);
    assert_eq!(
        h.events(),
        [(EventType::CqError, 0, cqn), (EventType::QpFatal, 0, qp)]
    );
}

/// Objects of all kinds on both sides, under a storm of nonsense.
fn storm(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut pair = Pair::active();
    let mut qps = Vec::new();
    let mut areas = Vec::new();
    for (host, peer) in [(&mut pair.a, LID_B), (&mut pair.b, LID_A)] {
        let pd = host.alloc_pd();
        let (cq, guest_cq) = host.create_cq(0, 8);
        areas.push((guest_cq.base, 64u64 + (64 << 8)));
        let (key, data) = host.create_mr(pd, 64 << 10, access::REGION);
        areas.push((data, 64 << 10));
        let ah = host.create_ah(
            pd,
            AddressVector {
                dlid: peer,
                port: 1,
                ..AddressVector::default()
            },
        );
        for kind in [QpType::Rc, QpType::Uc, QpType::Ud, QpType::Smi, QpType::Gsi] {
            let (qp, guest) = host.create_qp(kind, pd, [cq, cq], &SIZES);
            match kind {
                QpType::Rc => host.start_rc(qp, qp, peer),
                QpType::Uc => host.start_uc(qp, qp, peer),
                _ => host.start_datagram(qp, kind, 0),
            }
            areas.push((guest.base, guest.layout.bytes.into()));
            qps.push((qp, guest, key, data, ah));
        }
    }
    for _ in 0..400 {
        let which = rng.below(qps.len() as u64) as usize;
        let on_a = which < qps.len() / 2;
        let host = if on_a { &mut pair.a } else { &mut pair.b };
        let (qp, guest, key, data, ah) = &mut qps[which];
        match rng.below(8) {
            // Entries that are nearly right.
            0..=2 => {
                let mut wqe = SendWqe {
                    opcode: rng.below(10) as u8,
                    flags: rng.below(16) as u8,
                    num_sge: rng.below(5) as u8,
                    remote: if rng.below(2) == 0 { *data } else { rng.next() },
                    key: *key,
                    ..SendWqe::default()
                };
                if rng.below(2) == 0 {
                    wqe.remote = u64::from(*qp) << 32 | u64::from(*ah);
                }
                let sges: Vec<_> = (0..4)
                    .map(|_| Sge {
                        addr: *data + rng.below(1 << 16),
                        length: rng.below(9000) as u32,
                        lkey: if rng.below(8) == 0 {
                            rng.next() as u32
                        } else {
                            *key
                        },
                    })
                    .collect();
                guest.post_recv(rng.next(), &sges[..rng.below(5) as usize]);
                guest.post_send(&wqe, &elements(&sges));
                host.hca.doorbell(host.now, doorbell::SEND, *qp);
            }
            // Noise in queues and records.
            3 => {
                let (base, len) = areas[rng.below(areas.len() as u64) as usize];
                let noise = rng.bytes(64);
                let at = base + (rng.below(len - 64) & !7);
                host.mem.write(at, &noise).unwrap();
                host.hca.doorbell(host.now, rng.below(8192) & !3, *qp);
            }
            // Commands with noise, of the right length.
            4 => {
                let opcode = Opcode::ALL[rng.below(Opcode::ALL.len() as u64) as usize];
                let len = [0, 8, 16, 24, 32, 48, 64, 96, 144, 272][rng.below(10) as usize];
                let mut input = rng.bytes(len);
                if rng.below(2) == 0 {
                    // Mostly zero is more often nearly right.
                    for byte in input.iter_mut().skip(4) {
                        *byte &= (rng.below(16) == 0) as u8;
                    }
                }
                let _ = host.command_bytes(opcode.raw(), &input);
            }
            5 => {
                let attr = QpAttr {
                    state: rng.below(8) as u8,
                    port: 1,
                    path_mtu: rng.below(6) as u8,
                    dest_qpn: *qp,
                    av: AddressVector {
                        dlid: if on_a { LID_B } else { LID_A },
                        port: 1,
                        ..AddressVector::default()
                    },
                    ..QpAttr::default()
                };
                let mask = qp_attr::STATE | rng.next() as u32 & qp_attr::ALL;
                let _ = host.modify_qp(*qp, mask, attr);
            }
            6 => {
                host.hca
                    .doorbell(host.now, rng.below(4) * 4, rng.next() as u32 & 0x3f);
                host.reg(rng.below(32) * 4);
            }
            _ => {
                if rng.below(4) == 0 {
                    pair.run_for(std::time::Duration::from_millis(rng.below(100)));
                } else {
                    pair.settle();
                }
            }
        }
        for host in [&mut pair.a, &mut pair.b] {
            if host.reg(regs::STATUS) != regs::STATUS_READY {
                host.enable();
            }
        }
    }
    // Whatever happened: after a reset everything is as new.
    for host in [&mut pair.a, &mut pair.b] {
        host.enable();
        let objects = host.objects();
        assert_eq!((objects.qps, objects.mrs, objects.pds), (0, 0, 0));
    }
    pair.run_for(std::time::Duration::from_secs(3));
    assert_eq!(pair.a.query_port().phys_state, 5, "the link trains again");
    assert!(pair.a.mem.len() == MEMORY);
}

#[test]
fn a_storm_of_nonsense_breaks_nothing() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let first = number("OCHRE_SEED").unwrap_or(0);
    let count = number("OCHRE_SEEDS").unwrap_or(20);
    for seed in first..first + count {
        println!("OCHRE_SEED={seed} OCHRE_SEEDS=1 runs this one alone");
        storm(seed);
    }
}
