// SPDX-License-Identifier: GPL-2.0-or-later
//! Registers, doorbells, memory and the command queue under a hostile driver. After a reset the
//! device is as new.

use std::time::Duration;

use ochre_hca::Config;
use ochre_hw::cmd::mem::{CreateMr, MrKind};
use ochre_hw::cmd::qp::{CreateAh, CreateQp};
use ochre_hw::cmd::queue::{CreateCq, CreateEq};
use ochre_hw::cmd::{CmdSlot, NumberIn, Opcode, Status, OWNER_DEVICE};
use ochre_hw::queue::{QpLayout, QpSizes};
use ochre_hw::regs;
use ochre_hw::verbs::{access, AddressVector, QpType};
use ochre_hw::Field;
use ochre_link::mem::{MemCable, MemConfig};
use ochre_link::PortConfig;

use crate::bytes::{put_piece, Bytes};
use crate::common::host::{block, Host};
use crate::common::Dma;
use crate::note;

/// Bytes of memory.
const MEMORY: usize = 256 << 10;
/// Where inputs and outputs of commands are, and what they may use besides.
const INPUT: u64 = 128 << 10;
const OUTPUT: u64 = INPUT + 4096;
const FREE: u64 = OUTPUT + 4096;
/// Most steps of an input.
const STEPS: usize = 64;

const COMMAND: u8 = 0;

pub(super) fn run(input: &[u8]) {
    let (cable, _other) = MemCable::pair(MemConfig::default());
    let mut host = Host::with_memory(Config::default(), PortConfig::default(), cable, MEMORY);
    host.enable();
    let mut input = Bytes::new(input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        match input.u8() % 8 {
            COMMAND | 1 | 2 => {
                let opcode = u16::from(input.u8());
                let bytes = input.piece();
                host.mem
                    .write(INPUT, &bytes[..bytes.len().min(4096)])
                    .expect("inside");
                let slot = host.submit(&CmdSlot {
                    opcode,
                    in_addr: INPUT,
                    in_len: bytes.len() as u32,
                    out_addr: OUTPUT,
                    out_len: 1024,
                    owner: OWNER_DEVICE,
                    ..CmdSlot::default()
                });
                note((opcode, slot.status, slot.bad_field, slot.owner));
                if slot.owner == 0 && host.reg(regs::STATUS) == regs::STATUS_READY {
                    // An event or completion queue may lie over the slot; then anything stands there.
                    note(Status::from_raw(slot.status).is_some());
                }
            }
            3 => {
                let slot = CmdSlot::from_bytes(&input.array());
                let slot = host.submit(&slot);
                note((slot.status, slot.bad_field, slot.owner));
            }
            4 => {
                let (offset, size, value) = (input.u16(), input.u8(), input.u64());
                let (offset, size) = (u64::from(offset), u32::from(size));
                host.hca.reg_write(host.now, offset, size, value);
                note(host.hca.reg_read(host.now, offset, size) == value);
            }
            5 => {
                let (offset, value) = (input.u32(), input.u32());
                host.hca.doorbell(host.now, offset.into(), value);
            }
            6 => {
                let (at, bytes) = (u64::from(input.u32()) % MEMORY as u64, input.piece());
                let room = MEMORY - at as usize;
                host.mem
                    .write(at, &bytes[..bytes.len().min(room)])
                    .expect("inside");
            }
            _ => {
                host.now += Duration::from_micros(input.u16().into());
                for _ in 0..64 {
                    if !host.poll() {
                        break;
                    }
                }
                host.hca.arm();
            }
        }
        note((host.reg(regs::STATUS), host.reg(regs::FATAL_REASON)));
    }
    host.enable();
    let objects = host.objects();
    let left = (
        objects.qps,
        objects.cqs,
        objects.mrs,
        objects.pds,
        objects.ahs,
    );
    assert_eq!(left, (0, 0, 0, 0, 0), "a reset leaves no object");
}

/// The bytes of a command's step.
fn command<T: Field>(opcode: Opcode, input: T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    input.put(&mut bytes);
    raw(opcode, &bytes)
}

fn raw(opcode: Opcode, input: &[u8]) -> Vec<u8> {
    let mut step = vec![COMMAND, opcode.raw() as u8];
    put_piece(&mut step, input);
    step
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    // Each command alone, zero, with every length that a structure may have.
    for &opcode in Opcode::ALL {
        for len in [0, 8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 272] {
            let mut input = vec![0; len];
            if let Some(first) = input.first_mut() {
                *first = 1;
            }
            seeds.push(raw(opcode, &input));
        }
    }
    // A life of objects.
    let layout = QpLayout::new(&QpSizes {
        send_wr: 4,
        send_sge: 1,
        inline_data: 0,
        recv_wr: 4,
        recv_sge: 1,
    })
    .expect("small");
    let eq = CreateEq {
        mem: block(FREE, 4096),
        vector: 1,
        log_entries: 4,
        ..CreateEq::default()
    };
    let cq = CreateCq {
        mem: block(FREE + 4096, 4096),
        eq: 1,
        log_entries: 4,
        ..CreateCq::default()
    };
    let mr = CreateMr {
        mem: block(FREE + 8192, 8192),
        iova: 0x10000,
        length: 8192,
        pd: 1,
        access: access::REGION,
        kind: MrKind::Pages.raw(),
        ..CreateMr::default()
    };
    let qp = CreateQp {
        mem: block(FREE + 16384, layout.bytes.into()),
        sq_offset: layout.sq_offset,
        rq_offset: layout.rq_offset,
        log_sq_slots: layout.log_sq_slots,
        log_sq_stride: layout.log_sq_stride,
        log_rq_slots: layout.log_rq_slots,
        log_rq_stride: layout.log_rq_stride,
        qp_type: QpType::Rc.raw(),
        pd: 1,
        send_cq: 1,
        recv_cq: 1,
        ..CreateQp::default()
    };
    let ah = CreateAh {
        av: AddressVector {
            dlid: 5,
            port: 1,
            ..AddressVector::default()
        },
        pd: 1,
        ..CreateAh::default()
    };
    let number = |number| NumberIn {
        number,
        ..NumberIn::default()
    };
    let mut life = Vec::new();
    for n in [0, 1] {
        life.extend(command(Opcode::CreateEq, CreateEq { vector: n, ..eq }));
        life.extend(raw(Opcode::AllocPd, &[]));
        life.extend(command(Opcode::CreateCq, CreateCq { eq: n.into(), ..cq }));
    }
    for n in [0, 1] {
        life.extend(command(Opcode::CreateMr, CreateMr { pd: n, ..mr }));
        life.extend(command(
            Opcode::CreateQp,
            CreateQp {
                pd: n,
                send_cq: n,
                recv_cq: n,
                ..qp
            },
        ));
        life.extend(command(Opcode::CreateAh, CreateAh { pd: n, ..ah }));
    }
    for n in 0..3 {
        life.extend(command(Opcode::QueryQp, number(n)));
        life.extend(command(Opcode::DestroyQp, number(n)));
        life.extend(command(Opcode::DestroyAh, number(n)));
        life.extend(command(Opcode::DestroyCq, number(n)));
        life.extend(command(Opcode::DeallocPd, number(n)));
    }
    seeds.push(life);
    seeds
}
