// SPDX-License-Identifier: GPL-2.0-or-later
//! Registers and commands, as a driver sees them: every command, and what each refuses.

mod common;

use common::host::{block, Host, Pair};
use ochre_hca::Dma;
use ochre_hw::cmd::device::QueryDeviceOut;
use ochre_hw::cmd::mem::{CreateMr, MrKind};
use ochre_hw::cmd::port::{ModifyPort, PortIn, QueryGidOut, QueryPkeyOut, TableIn};
use ochre_hw::cmd::qp::{CreateAh, Multicast};
use ochre_hw::cmd::queue::{CreateCq, CreateEq, ModifyCq};
use ochre_hw::cmd::{CmdSlot, Opcode, Status, OWNER_DEVICE, SLOT_EVENT};
use ochre_hw::eqe::EventType;
use ochre_hw::queue::{MemDesc, QpSizes, MEM_INDIRECT};
use ochre_hw::regs::{self, FatalReason};
use ochre_hw::verbs::{access, AddressVector, QpType, AV_GRH};
use ochre_hw::Field;
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
fn registers_say_what_the_device_is() {
    let mut h = Pair::new(MemConfig::default()).a;
    assert_eq!(h.reg(regs::MAGIC), u32::from_le_bytes(*b"OCHR"));
    assert_eq!(h.reg(regs::INTERFACE_VERSION), 1 << 16);
    assert_eq!(h.reg(regs::NUM_VECTORS), 8);
    assert_eq!(h.reg(regs::NUM_PORTS), 1);
    assert_eq!(h.hca.reg_read(h.now, regs::FIRMWARE_VERSION, 8), 1 << 32);
    assert_eq!(h.reg(regs::FIRMWARE_VERSION + 4), 1);
    // By halves as well as whole.
    h.set_reg(regs::CMDQ_BASE, 0x1000);
    h.set_reg(regs::CMDQ_BASE + 4, 2);
    assert_eq!(h.hca.reg_read(h.now, regs::CMDQ_BASE, 8), 0x2_0000_1000);
    assert_eq!(h.reg(regs::CMDQ_BASE + 4), 2);
    h.now.0 = 0x1_2345_6789;
    assert_eq!(h.hca.reg_read(h.now, regs::CLOCK, 8), 0x1_2345_6789);
    // What is not there, or not aligned, reads as zero.
    for (offset, size) in [(0x48, 4), (0xfff8, 8), (2, 4), (4, 8), (0, 2), (0, 1)] {
        assert_eq!(h.hca.reg_read(h.now, offset, size), 0, "{offset:#x} {size}");
    }
}

#[test]
fn a_bad_command_queue_is_fatal_until_reset() {
    let mut h = host();
    for (base, log) in [(0, 3), (0x1020, 3), (0x1000, 9), (u64::MAX & !63, 3)] {
        h.set_reg(regs::CONTROL, regs::CONTROL_RESET);
        h.hca.reg_write(h.now, regs::CMDQ_BASE, 8, base);
        h.set_reg(regs::CMDQ_LOG_SLOTS, log);
        h.set_reg(regs::CONTROL, regs::CONTROL_ENABLE);
        assert_eq!(h.reg(regs::STATUS), regs::STATUS_FATAL, "{base:#x} {log}");
        assert_eq!(
            h.reg(regs::FATAL_REASON),
            FatalReason::BadCommandQueue.raw()
        );
        h.set_reg(regs::CONTROL, regs::CONTROL_ENABLE);
        assert_eq!(h.reg(regs::STATUS), regs::STATUS_FATAL);
    }
    h.set_reg(regs::CONTROL, regs::CONTROL_RESET);
    assert_eq!(h.reg(regs::STATUS), 0);
    assert_eq!(h.reg(regs::FATAL_REASON), 0);
    assert_eq!(h.hca.reg_read(h.now, regs::CMDQ_BASE, 8), 0);
}

#[test]
fn an_unreachable_or_overrun_command_queue_is_fatal() {
    let mut h = host();
    h.set_reg(regs::CONTROL, regs::CONTROL_RESET);
    h.hca.reg_write(h.now, regs::CMDQ_BASE, 8, 1 << 40);
    h.set_reg(regs::CONTROL, regs::CONTROL_ENABLE);
    assert_eq!(h.reg(regs::STATUS), regs::STATUS_READY);
    h.set_reg(regs::CMDQ_DOORBELL, 1);
    let reason = h.reg(regs::FATAL_REASON);
    assert_eq!(reason, FatalReason::CommandQueueDma.raw());

    let queue = h.heap.take(4096);
    h.set_reg(regs::CONTROL, regs::CONTROL_RESET);
    h.hca.reg_write(h.now, regs::CMDQ_BASE, 8, queue);
    h.set_reg(regs::CMDQ_LOG_SLOTS, 2);
    h.set_reg(regs::CONTROL, regs::CONTROL_ENABLE);
    h.mem.store_u32(queue, 5).unwrap();
    h.set_reg(regs::CMDQ_DOORBELL, 1);
    let reason = h.reg(regs::FATAL_REASON);
    assert_eq!(reason, FatalReason::CommandQueueOverrun.raw());
}

#[test]
fn slots_are_checked() {
    let mut h = host();
    let good = CmdSlot {
        opcode: Opcode::AllocPd.raw(),
        out_addr: h.heap.take(64),
        out_len: 8,
        owner: OWNER_DEVICE,
        ..CmdSlot::default()
    };
    let mut status = |slot: CmdSlot| {
        let answer = h.submit(&slot);
        assert_eq!(answer.owner, 0);
        Status::from_raw(answer.status).unwrap()
    };
    assert_eq!(status(good), Status::Ok);
    assert_eq!(status(CmdSlot { opcode: 0, ..good }), Status::BadOpcode);
    assert_eq!(status(CmdSlot { in_len: 8, ..good }), Status::BadLength);
    assert_eq!(status(CmdSlot { out_len: 7, ..good }), Status::BadLength);
    assert_eq!(status(CmdSlot { flags: 2, ..good }), Status::BadParameter);
    assert_eq!(status(CmdSlot { owner: 0, ..good }), Status::BadParameter);
    let mut reserved0 = [0; 24];
    reserved0[23] = 1;
    let reserved = CmdSlot { reserved0, ..good };
    assert_eq!(status(reserved), Status::BadParameter);
    let out_addr = u64::MAX - 7;
    assert_eq!(status(CmdSlot { out_addr, ..good }), Status::DmaError);
    let unread = CmdSlot {
        opcode: Opcode::DeallocPd.raw(),
        in_addr: 1 << 50,
        in_len: 8,
        ..good
    };
    assert_eq!(status(unread), Status::DmaError);
    // Only the good one has made anything.
    assert_eq!(h.objects().pds, 1);
}

#[test]
fn the_end_of_a_command_is_an_event_if_asked_for() {
    let mut h = host();
    let slot = CmdSlot {
        opcode: Opcode::QueryObjects.raw(),
        out_addr: h.heap.take(64),
        out_len: 64,
        flags: SLOT_EVENT,
        token: 0xfeed,
        owner: OWNER_DEVICE,
        ..CmdSlot::default()
    };
    assert_eq!(h.submit(&slot).status, 0);
    assert_eq!(h.events(), [(EventType::CommandDone, 0, 0xfeed)]);
    // A refused one ends too.
    h.submit(&CmdSlot { opcode: 99, ..slot });
    assert_eq!(h.events(), [(EventType::CommandDone, 0, 0xfeed)]);
}

#[test]
fn many_commands_at_once_are_done_in_order() {
    let mut h = host();
    let queue = h.heap.take(64 + 64 * 4);
    let out = h.heap.take(4096);
    h.set_reg(regs::CONTROL, regs::CONTROL_RESET);
    h.hca.reg_write(h.now, regs::CMDQ_BASE, 8, queue);
    h.set_reg(regs::CMDQ_LOG_SLOTS, 2);
    h.set_reg(regs::CONTROL, regs::CONTROL_ENABLE);
    for round in 0..3u32 {
        for i in 0..4u64 {
            let slot = CmdSlot {
                opcode: Opcode::AllocPd.raw(),
                out_addr: out + i * 8,
                out_len: 8,
                owner: OWNER_DEVICE,
                ..CmdSlot::default()
            };
            let at = queue + 64 + i * 64;
            h.mem.write(at, &slot.to_bytes()).unwrap();
        }
        h.mem.store_u32(queue, (round + 1) * 4).unwrap();
        h.set_reg(regs::CMDQ_DOORBELL, 0);
        for i in 0..4 {
            let number = h.mem.load_u32(out + u64::from(i) * 8).unwrap();
            assert_eq!(number, 1 + round * 4 + i);
        }
    }
}

#[test]
fn query_device_tells_the_limits() {
    let mut h = host();
    let out = h.command_bytes(Opcode::QueryDevice.raw(), &[]).unwrap();
    let d = QueryDeviceOut::get(&out);
    assert_eq!(d.node_guid, 0x0200_5e00_0000_0100);
    assert_eq!(d.vendor_id, 0x02005e);
    assert_eq!((d.ports, d.pkeys, d.gids), (1, 128, 32));
    assert_eq!((d.max_qp_wr, d.max_sge, d.max_inline), (32768, 30, 928));
    assert_eq!((d.max_message, d.clock_khz), (1 << 31, 1_000_000));
}

#[test]
fn ports_and_tables() {
    let mut h = host();
    let p = h.query_port();
    assert_eq!(p.port_guid, 0x0200_5e00_0000_0101);
    assert_eq!(p.subnet_prefix, 0xfe80_0000_0000_0000);
    assert_eq!((p.lid, p.state, p.pkeys, p.gids), (0, 1, 128, 32));
    assert_eq!(p.max_mtu, 5);
    let port = PortIn {
        port: 2,
        ..PortIn::default()
    };
    assert_eq!(h.command(Opcode::QueryPort, port), Err(bad(0)));
    let mut port = PortIn {
        port: 1,
        ..PortIn::default()
    };
    port.reserved[6] = 1;
    assert_eq!(h.command(Opcode::QueryPort, port), Err(bad(7)));
    let entry = |index| TableIn {
        port: 1,
        index,
        ..TableIn::default()
    };
    let gid = QueryGidOut::get(&h.command(Opcode::QueryGid, entry(0)).unwrap()).gid;
    assert_eq!(gid[..8], [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
    assert_eq!(gid[8..], 0x0200_5e00_0000_0101u64.to_be_bytes());
    assert_eq!(h.command(Opcode::QueryGid, entry(31)).unwrap(), [0; 16]);
    assert_eq!(h.command(Opcode::QueryGid, entry(32)), Err(bad(2)));
    let key = QueryPkeyOut::get(&h.command(Opcode::QueryPkey, entry(0)).unwrap());
    assert_eq!(key.pkey, 0xffff);
    assert_eq!(h.command(Opcode::QueryPkey, entry(127)).unwrap(), [0; 8]);
    assert_eq!(h.command(Opcode::QueryPkey, entry(128)), Err(bad(2)));
}

#[test]
fn the_driver_sets_capabilities_that_are_its_own() {
    const IS_SM: u32 = 1 << 1;
    let mut h = host();
    let before = h.query_port().capability_mask;
    assert_eq!(before & IS_SM, 0);
    let set = ModifyPort {
        port: 1,
        set_capabilities: IS_SM,
        ..ModifyPort::default()
    };
    h.command(Opcode::ModifyPort, set).unwrap();
    assert_eq!(h.query_port().capability_mask, before | IS_SM);
    let clear = ModifyPort {
        port: 1,
        clear_capabilities: IS_SM,
        ..ModifyPort::default()
    };
    h.command(Opcode::ModifyPort, clear).unwrap();
    assert_eq!(h.query_port().capability_mask, before);
    let foreign = ModifyPort {
        port: 1,
        set_capabilities: 1 << 31,
        ..ModifyPort::default()
    };
    assert_eq!(h.command(Opcode::ModifyPort, foreign), Err(bad(8)));
    let flags = ModifyPort {
        port: 1,
        flags: 2,
        ..ModifyPort::default()
    };
    assert_eq!(h.command(Opcode::ModifyPort, flags), Err(bad(4)));
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

#[test]
fn reset_leaves_nothing() {
    let mut h = host();
    let pd = h.alloc_pd();
    let (cq, _) = h.create_cq(0, 4);
    h.create_qp(QpType::Ud, pd, [cq, cq], &SIZES);
    h.create_mr(pd, 4096, 1);
    h.set_reg(regs::CONTROL, 0);
    assert_eq!(h.reg(regs::STATUS), 0);
    h.enable();
    let o = h.objects();
    assert_eq!((o.eqs, o.cqs, o.pds, o.mrs, o.qps), (1, 0, 0, 0, 0));
}

#[test]
fn every_opcode_refuses_every_other_length() {
    let mut h = host();
    for &opcode in Opcode::ALL {
        let mut accepted = 0;
        for len in 0..=300 {
            let out = h.command_bytes(opcode.raw(), &vec![0; len]);
            if out != Err((Status::BadLength, 0)) {
                accepted += 1;
            }
        }
        assert_eq!(accepted, 1, "{opcode:?} takes one length");
    }
}
