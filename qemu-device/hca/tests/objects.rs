// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands that make and destroy objects: what each refuses, and what holds on to what.

mod common;

use common::host::{block, Host, Pair};
use ochre_hca::Dma;
use ochre_hw::cmd::mem::{CreateMr, MrKind};
use ochre_hw::cmd::qp::{CreateAh, Multicast};
use ochre_hw::cmd::queue::{CreateCq, CreateEq, ModifyCq};
use ochre_hw::cmd::{Opcode, Status};
use ochre_hw::queue::{MemDesc, QpSizes, MEM_INDIRECT};
use ochre_hw::verbs::{access, AddressVector, QpType, AV_GRH};
use ochre_link::mem::MemConfig;

const SIZES: QpSizes = QpSizes {
    send_wr: 8,
    send_sge: 2,
    inline_data: 64,
    recv_wr: 8,
    recv_sge: 2,
};

fn host() -> Host {
    let mut host = Pair::new(MemConfig::default()).a;
    host.enable();
    host
}

fn bad(at: u8) -> (Status, u8) {
    (Status::BadParameter, at)
}

fn missing(at: u8) -> (Status, u8) {
    (Status::NoSuchObject, at)
}

#[test]
fn event_queues() {
    let mut h = host();
    let mem = block(h.heap.take(8192), 8192);
    let good = CreateEq {
        mem,
        vector: 1,
        log_entries: 4,
        ..CreateEq::default()
    };
    let mut refused = |eq: CreateEq| h.create(Opcode::CreateEq, eq).unwrap_err();
    assert_eq!(refused(CreateEq { vector: 8, ..good }), bad(0x10));
    let log_entries = 17;
    assert_eq!(
        refused(CreateEq {
            log_entries,
            ..good
        }),
        bad(0x12)
    );
    let log_entries = 8;
    assert_eq!(
        refused(CreateEq {
            log_entries,
            ..good
        }),
        bad(0x08)
    );
    let mut reserved = [0; 13];
    reserved[0] = 1;
    assert_eq!(refused(CreateEq { reserved, ..good }), bad(0x13));
    let eq = h.create(Opcode::CreateEq, good).unwrap();
    assert_eq!(eq, 1);
    assert_eq!(
        h.destroy(Opcode::DestroyEq, 0),
        Err((Status::Busy, 0)),
        "the async queue goes last"
    );
    let (cq, _) = h.create_cq(eq, 4);
    assert_eq!(h.destroy(Opcode::DestroyEq, eq), Err((Status::Busy, 0)));
    h.destroy(Opcode::DestroyCq, cq).unwrap();
    h.destroy(Opcode::DestroyEq, eq).unwrap();
    assert_eq!(h.destroy(Opcode::DestroyEq, eq), Err(missing(0)));
    h.destroy(Opcode::DestroyEq, 0).unwrap();
    assert_eq!(h.objects().eqs, 0);
    // The next one is the async queue again.
    assert_eq!(h.create(Opcode::CreateEq, good), Ok(0));
}

#[test]
fn memory_descriptors_are_checked() {
    let mut h = host();
    let good = block(h.heap.take(8192), 8192);
    let list = h.heap.take(4096);
    let mut refused = |mem: MemDesc| {
        let eq = CreateEq {
            mem,
            log_entries: 4,
            ..CreateEq::default()
        };
        h.create(Opcode::CreateEq, eq).unwrap_err()
    };
    let addr = good.addr;
    assert_eq!(
        refused(MemDesc {
            addr: addr + 8,
            ..good
        }),
        bad(0)
    );
    assert_eq!(refused(MemDesc { addr: !63, ..good }), bad(0));
    assert_eq!(
        refused(MemDesc {
            num_pages: 0,
            ..good
        }),
        bad(8)
    );
    let num_pages = (1 << 20) + 1;
    assert_eq!(refused(MemDesc { num_pages, ..good }), bad(8));
    assert_eq!(
        refused(MemDesc {
            page_shift: 11,
            ..good
        }),
        bad(0xc)
    );
    assert_eq!(
        refused(MemDesc {
            page_shift: 32,
            ..good
        }),
        bad(0xc)
    );
    assert_eq!(refused(MemDesc { flags: 2, ..good }), bad(0xd));
    let reserved = [0, 1];
    assert_eq!(refused(MemDesc { reserved, ..good }), bad(0xe));
    let indirect = MemDesc {
        addr: list,
        flags: MEM_INDIRECT,
        ..good
    };
    let off = MemDesc {
        addr: list + 4,
        ..indirect
    };
    assert_eq!(refused(off), bad(0));
    let nowhere = MemDesc {
        addr: 1 << 40,
        ..indirect
    };
    assert_eq!(refused(nowhere), (Status::DmaError, 0));
    h.mem.write(list, &(addr + 64).to_le_bytes()).unwrap();
    h.mem.write(list + 8, &addr.to_le_bytes()).unwrap();
    let eq = CreateEq {
        mem: indirect,
        log_entries: 4,
        ..CreateEq::default()
    };
    assert_eq!(h.create(Opcode::CreateEq, eq), Err(bad(0)));
    h.mem.write(list, &(addr + 4096).to_le_bytes()).unwrap();
    assert_eq!(h.create(Opcode::CreateEq, eq), Ok(1));
}

#[test]
fn completion_queues() {
    let mut h = host();
    let good = CreateCq {
        mem: block(h.heap.take(4096), 4096),
        eq: 0,
        log_entries: 4,
        ..CreateCq::default()
    };
    let mut refused = |cq: CreateCq| h.create(Opcode::CreateCq, cq).unwrap_err();
    assert_eq!(refused(CreateCq { eq: 7, ..good }), missing(0x10));
    let log_entries = 21;
    assert_eq!(
        refused(CreateCq {
            log_entries,
            ..good
        }),
        bad(0x14)
    );
    let log_entries = 6;
    assert_eq!(
        refused(CreateCq {
            log_entries,
            ..good
        }),
        bad(0x08)
    );
    let mut reserved = [0; 11];
    reserved[10] = 9;
    assert_eq!(refused(CreateCq { reserved, ..good }), bad(0x1f));
    let cq = h.create(Opcode::CreateCq, good).unwrap();
    let modify = ModifyCq {
        cq,
        count: 4,
        period: 10,
        ..ModifyCq::default()
    };
    h.command(Opcode::ModifyCq, modify).unwrap();
    let other = ModifyCq {
        cq: cq + 1,
        ..modify
    };
    assert_eq!(h.command(Opcode::ModifyCq, other), Err(missing(0)));
    let pd = h.alloc_pd();
    let (qp, _) = h.create_qp(QpType::Ud, pd, [cq, cq], &SIZES);
    assert_eq!(h.destroy(Opcode::DestroyCq, cq), Err((Status::Busy, 0)));
    h.destroy(Opcode::DestroyQp, qp).unwrap();
    h.destroy(Opcode::DestroyCq, cq).unwrap();
}

#[test]
fn regions() {
    let mut h = host();
    let pd = h.alloc_pd();
    let good = CreateMr {
        mem: block(h.heap.take(8192), 8192),
        iova: 0x7000_0100,
        length: 8192 - 0x100,
        pd,
        access: access::LOCAL_WRITE | access::REMOTE_READ,
        kind: MrKind::Pages.raw(),
        ..CreateMr::default()
    };
    let mut refused = |mr: CreateMr| h.create(Opcode::CreateMr, mr).unwrap_err();
    assert_eq!(refused(CreateMr { pd: 77, ..good }), missing(0x20));
    let access = access::REMOTE_WRITE;
    assert_eq!(refused(CreateMr { access, ..good }), bad(0x24));
    let access = access::REMOTE_ATOMIC;
    assert_eq!(refused(CreateMr { access, ..good }), bad(0x24));
    assert_eq!(refused(CreateMr { access: 16, ..good }), bad(0x24));
    assert_eq!(refused(CreateMr { kind: 0, ..good }), bad(0x28));
    assert_eq!(refused(CreateMr { length: 0, ..good }), bad(0x18));
    let length = 8192;
    assert_eq!(refused(CreateMr { length, ..good }), bad(0x18));
    let iova = u64::MAX - 100;
    assert_eq!(refused(CreateMr { iova, ..good }), bad(0x18));
    let whole = MrKind::WholeMemory.raw();
    assert_eq!(
        refused(CreateMr {
            kind: whole,
            ..good
        }),
        bad(0)
    );
    let key = h.create(Opcode::CreateMr, good).unwrap();
    assert_ne!(key, 0);
    let whole = CreateMr {
        mem: MemDesc::default(),
        iova: 0,
        length: 0,
        kind: whole,
        ..good
    };
    let all = h.create(Opcode::CreateMr, whole).unwrap();
    assert_ne!(key, all);
    assert_eq!(h.destroy(Opcode::DeallocPd, pd), Err((Status::Busy, 0)));
    h.destroy(Opcode::DestroyMr, key).unwrap();
    assert_eq!(h.destroy(Opcode::DestroyMr, key), Err(missing(0)));
    // The index is used again, with another tag.
    let again = h.create(Opcode::CreateMr, good).unwrap();
    assert_eq!(again >> 8, key >> 8);
    assert_ne!(again, key);
    assert_eq!(h.destroy(Opcode::DestroyMr, key), Err(missing(0)));
    h.destroy(Opcode::DestroyMr, again).unwrap();
    h.destroy(Opcode::DestroyMr, all).unwrap();
    h.destroy(Opcode::DeallocPd, pd).unwrap();
    assert_eq!(h.objects().mrs, 0);
}

#[test]
fn queue_pairs() {
    let mut h = host();
    let pd = h.alloc_pd();
    let (cq, _) = h.create_cq(0, 4);
    let (good, guest) = h.qp_input(QpType::Rc, pd, [cq, cq], &SIZES);
    let mut refused = |change: &dyn Fn(&mut ochre_hw::cmd::qp::CreateQp)| {
        let mut input = good;
        change(&mut input);
        h.create(Opcode::CreateQp, input).unwrap_err()
    };
    assert_eq!(refused(&|q| q.qp_type = 9), bad(0x1c));
    assert_eq!(refused(&|q| q.port = 1), bad(0x1d));
    assert_eq!(refused(&|q| q.pd = 99), missing(0x20));
    assert_eq!(refused(&|q| q.send_cq = 99), missing(0x24));
    assert_eq!(refused(&|q| q.recv_cq = 99), missing(0x28));
    assert_eq!(refused(&|q| q.doorbell_page = 1024), bad(0x2c));
    assert_eq!(refused(&|q| q.reserved1[5] = 1), bad(0x35));
    assert_eq!(refused(&|q| q.log_sq_slots = 16), bad(0x18));
    assert_eq!(refused(&|q| q.log_sq_stride = 5), bad(0x19));
    assert_eq!(refused(&|q| q.log_rq_slots = 16), bad(0x1a));
    assert_eq!(refused(&|q| q.log_rq_stride = 11), bad(0x1b));
    assert_eq!(refused(&|q| q.sq_offset = 64), bad(0x10), "over the record");
    assert_eq!(refused(&|q| q.sq_offset += 8), bad(0x10));
    assert_eq!(refused(&|q| q.rq_offset = 1 << 20), bad(0x14));
    assert_eq!(refused(&|q| q.rq_offset = q.sq_offset), bad(0x14));
    let qp = h.create(Opcode::CreateQp, good).unwrap();
    assert!(qp >= 2);
    assert_eq!(h.mem.load_u32(guest.base + 0x40), Ok(0));
    assert_eq!(h.query_qp(qp).state, 0);
    assert_eq!(h.destroy(Opcode::DeallocPd, pd), Err((Status::Busy, 0)));
    h.destroy(Opcode::DestroyQp, qp).unwrap();
    assert_eq!(h.destroy(Opcode::DestroyQp, qp), Err(missing(0)));
    let objects = h.objects();
    assert_eq!((objects.qps, objects.pds, objects.cqs), (0, 1, 1));
}

#[test]
fn one_of_each_special_queue_pair() {
    let mut h = host();
    let pd = h.alloc_pd();
    let (cq, _) = h.create_cq(0, 4);
    for kind in [QpType::Smi, QpType::Gsi] {
        let (input, _) = h.qp_input(kind, pd, [cq, cq], &SIZES);
        let qp = h.create(Opcode::CreateQp, input).unwrap();
        assert_eq!(h.create(Opcode::CreateQp, input), Err((Status::Busy, 0x1d)));
        h.destroy(Opcode::DestroyQp, qp).unwrap();
        let mut elsewhere = input;
        elsewhere.port = 2;
        assert_eq!(h.create(Opcode::CreateQp, elsewhere), Err(bad(0x1d)));
        h.create(Opcode::CreateQp, input).unwrap();
    }
}

#[test]
fn address_handles() {
    let mut h = host();
    let pd = h.alloc_pd();
    let good = CreateAh {
        av: AddressVector {
            dlid: 7,
            port: 1,
            ..AddressVector::default()
        },
        pd,
        ..CreateAh::default()
    };
    let mut refused = |change: &dyn Fn(&mut CreateAh)| {
        let mut input = good;
        change(&mut input);
        h.create(Opcode::CreateAh, input).unwrap_err()
    };
    assert_eq!(refused(&|a| a.av.port = 0), bad(0x18));
    assert_eq!(refused(&|a| a.av.port = 2), bad(0x18));
    assert_eq!(refused(&|a| a.av.sl = 16), bad(0x16));
    assert_eq!(refused(&|a| a.av.flags = 2), bad(0x1d));
    assert_eq!(refused(&|a| a.av.reserved = [0, 1]), bad(0x1f));
    assert_eq!(refused(&|a| a.pd = 9), missing(0x20));
    assert_eq!(refused(&|a| a.reserved[0] = 1), bad(0x24));
    let global = |a: &mut CreateAh| a.av.flags = AV_GRH;
    assert_eq!(
        refused(&|a| {
            global(a);
            a.av.flow_label = 1 << 20;
        }),
        bad(0x10)
    );
    assert_eq!(
        refused(&|a| {
            global(a);
            a.av.sgid_index = 32;
        }),
        bad(0x1a)
    );
    // A handle for a subnet manager that is not there yet.
    let mut early = good;
    early.av.dlid = 0;
    let ah = h.create(Opcode::CreateAh, early).unwrap();
    h.destroy(Opcode::DestroyAh, ah).unwrap();
    let ah = h.create(Opcode::CreateAh, good).unwrap();
    assert_eq!(h.destroy(Opcode::DeallocPd, pd), Err((Status::Busy, 0)));
    h.destroy(Opcode::DestroyAh, ah).unwrap();
    h.destroy(Opcode::DeallocPd, pd).unwrap();
}

#[test]
fn multicast_attachments() {
    let mut h = host();
    let pd = h.alloc_pd();
    let (cq, _) = h.create_cq(0, 4);
    let (ud, _) = h.create_qp(QpType::Ud, pd, [cq, cq], &SIZES);
    let (rc, _) = h.create_qp(QpType::Rc, pd, [cq, cq], &SIZES);
    let mut mgid = [0; 16];
    mgid[0] = 0xff;
    let good = Multicast {
        mgid,
        qp: ud,
        mlid: 0xc000,
        ..Multicast::default()
    };
    let mut refused = |m: Multicast| h.command(Opcode::AttachMulticast, m).unwrap_err();
    assert_eq!(
        refused(Multicast {
            mgid: [0; 16],
            ..good
        }),
        bad(0)
    );
    assert_eq!(refused(Multicast { qp: rc, ..good }), bad(0x10));
    assert_eq!(refused(Multicast { qp: 1, ..good }), missing(0x10));
    assert_eq!(
        refused(Multicast {
            mlid: 0xffff,
            ..good
        }),
        bad(0x14)
    );
    h.command(Opcode::AttachMulticast, good).unwrap();
    assert_eq!(h.objects().mcast_attachments, 1);
    h.command(Opcode::DetachMulticast, good).unwrap();
    assert_eq!(h.command(Opcode::DetachMulticast, good), Err(missing(0)));
    h.command(Opcode::AttachMulticast, good).unwrap();
    // A QP takes its attachments along.
    h.destroy(Opcode::DestroyQp, ud).unwrap();
    assert_eq!(h.objects().mcast_attachments, 0);
}
