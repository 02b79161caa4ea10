// SPDX-License-Identifier: GPL-2.0-or-later
//! Registers, the command queue, and the commands on device and ports, as a driver sees them.

mod common;

use common::host::{Host, Pair};
use ochre_hca::Dma;
use ochre_hw::cmd::device::QueryDeviceOut;
use ochre_hw::cmd::port::{ModifyPort, PortIn, QueryGidOut, QueryPkeyOut, TableIn};
use ochre_hw::cmd::{CmdSlot, Opcode, Status, OWNER_DEVICE, SLOT_EVENT};
use ochre_hw::eqe::EventType;
use ochre_hw::queue::QpSizes;
use ochre_hw::regs::{self, FatalReason};
use ochre_hw::verbs::QpType;
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
    for (base, log) in [(0, 3), (0x1020, 3), (0x1000, 9), (!63, 3)] {
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
