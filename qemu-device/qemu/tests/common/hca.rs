// SPDX-License-Identifier: GPL-2.0-or-later

//! A driver for the device, as small as a test needs it.

use std::time::Instant;

use ochre_hw::cmd::port::{PortIn, QueryPortOut};
use ochre_hw::cmd::queue::CreateEq;
use ochre_hw::cmd::{CmdSlot, NumberOut, Opcode, Status, OWNER_DEVICE, OWNER_DRIVER};
use ochre_hw::eqe::{Eqe, EQE_PHASE};
use ochre_hw::queue::{CmdRecord, EqRecord, MemDesc};
use ochre_hw::{pci, regs};

use super::machine::{Machine, PATIENCE};

const BAR_REGS: u64 = 0xe000_0000;
/// Where the doorbell pages are.
pub const BAR_DOORBELLS: u64 = 0xe020_0000;
const BAR_MSIX: u64 = 0xe001_0000;

/// Where the driver's structures lie in guest memory.
const COMMANDS: u64 = 0x10_0000;
const INPUT: u64 = 0x10_2000;
const OUTPUT: u64 = 0x10_3000;
const EVENTS: u64 = 0x10_4000;
/// Words that MSI-X vectors are pointed at.
const SIGNALS: u64 = 0x10_6000;
const LOG_SLOTS: u32 = 2;
const LOG_EVENTS: u8 = 5;
/// From here on a test does as it likes.
#[allow(dead_code, reason = "each test program uses a part of this module")]
pub const FREE: u64 = 0x20_0000;

/// The device of a machine.
pub struct Hca {
    bus: u8,
    slot: u8,
    producer: u32,
    consumer: u32,
    token: u32,
}

impl Hca {
    /// Finds the device in a slot of a bus, and gives its BARs addresses.
    pub fn probe(machine: &mut Machine, bus: u8, slot: u8) -> Self {
        let id = machine.config_load(bus, slot, 0);
        assert_eq!(
            id,
            u32::from(pci::DEVICE_ID) << 16 | u32::from(pci::VENDOR_ID),
            "no ochre-hca in slot {slot} of bus {bus}"
        );
        for (bar, address) in [
            (pci::BAR_REGS, BAR_REGS),
            (pci::BAR_DOORBELLS, BAR_DOORBELLS),
            (pci::BAR_MSIX, BAR_MSIX),
        ] {
            let offset = 0x10 + 4 * u32::from(bar);
            machine.config_store(bus, slot, offset, address as u32);
            machine.config_store(bus, slot, offset + 4, 0);
        }
        // Memory and bus master.
        machine.config_store(bus, slot, 4, 6);
        Hca {
            bus,
            slot,
            producer: 0,
            consumer: 0,
            token: 0,
        }
    }

    /// Reads a register.
    pub fn reg(&self, machine: &mut Machine, offset: u64, size: u32) -> u64 {
        machine.load(BAR_REGS + offset, size)
    }

    /// Writes a register.
    pub fn set_reg(&self, machine: &mut Machine, offset: u64, value: u64, size: u32) {
        machine.store(BAR_REGS + offset, value, size);
    }

    /// Makes the command queue.
    pub fn enable(&mut self, machine: &mut Machine) {
        machine.zero(COMMANDS, CmdRecord::SIZE + (CmdSlot::SIZE << LOG_SLOTS));
        self.set_reg(machine, regs::CMDQ_BASE, COMMANDS, 8);
        self.set_reg(machine, regs::CMDQ_LOG_SLOTS, LOG_SLOTS.into(), 4);
        self.set_reg(machine, regs::CONTROL, regs::CONTROL_ENABLE.into(), 4);
        assert_eq!(
            self.reg(machine, regs::STATUS, 4),
            u64::from(regs::STATUS_READY),
            "not ready, fatal reason {}",
            self.reg(machine, regs::FATAL_REASON, 4)
        );
        self.producer = 0;
        self.consumer = 0;
    }

    /// Runs a command by polling; gives its status and its output.
    pub fn command(
        &mut self,
        machine: &mut Machine,
        opcode: u16,
        flags: u16,
        input: &[u8],
        output: usize,
    ) -> (Status, Vec<u8>) {
        let at = COMMANDS
            + CmdRecord::SIZE as u64
            + u64::from(self.producer % (1 << LOG_SLOTS)) * CmdSlot::SIZE as u64;
        self.token += 1;
        machine.write(INPUT, &[input, &[0; 8]].concat());
        let slot = CmdSlot {
            opcode,
            flags,
            token: self.token,
            in_addr: if input.is_empty() { 0 } else { INPUT },
            out_addr: if output == 0 { 0 } else { OUTPUT },
            in_len: input.len() as u32,
            out_len: output as u32,
            owner: OWNER_DEVICE,
            ..CmdSlot::default()
        };
        machine.write(at, &slot.to_bytes());
        self.producer = self.producer.wrapping_add(1);
        machine.store(COMMANDS, self.producer.into(), 4);
        self.set_reg(machine, regs::CMDQ_DOORBELL, 1, 4);
        let start = Instant::now();
        loop {
            let bytes: [u8; CmdSlot::SIZE] = machine
                .read(at, CmdSlot::SIZE)
                .try_into()
                .expect("wrong length");
            let slot = CmdSlot::from_bytes(&bytes);
            if slot.owner == OWNER_DRIVER {
                let status = Status::from_raw(slot.status).expect("unknown status");
                let written = slot.out_written as usize;
                assert!(written <= output, "more output than room");
                let bytes = if written == 0 {
                    Vec::new()
                } else {
                    machine.read(OUTPUT, written)
                };
                return (status, bytes);
            }
            assert!(start.elapsed() < PATIENCE, "the command does not end");
        }
    }

    /// Runs a command that must succeed.
    pub fn run<const N: usize>(
        &mut self,
        machine: &mut Machine,
        opcode: Opcode,
        input: &[u8],
    ) -> [u8; N] {
        let (status, output) = self.command(machine, opcode.raw(), 0, input, N);
        assert_eq!(status, Status::Ok, "{opcode:?}");
        output.try_into().expect("output of another length")
    }

    /// Makes the event queue for asynchronous events, on a vector that writes `0xb0b0 + vector` to memory.
    pub fn make_events(&mut self, machine: &mut Machine, vector: u16) {
        machine.zero(EVENTS, EqRecord::SIZE + (Eqe::SIZE << LOG_EVENTS));
        self.aim(machine, vector);
        let input = CreateEq {
            mem: MemDesc {
                addr: EVENTS,
                num_pages: 1,
                page_shift: 13,
                ..MemDesc::default()
            },
            vector,
            log_entries: LOG_EVENTS,
            ..CreateEq::default()
        };
        let output = self.run(machine, Opcode::CreateEq, &input.to_bytes());
        assert_eq!(NumberOut::from_bytes(&output).number, 0);
        self.arm(machine, 1);
    }

    /// Arms the event queue.
    pub fn arm(&self, machine: &mut Machine, number: u32) {
        machine.store(EVENTS + 4, number.into(), 4);
    }

    /// Points a vector at a word of memory, and turns MSI-X on.
    fn aim(&self, machine: &mut Machine, vector: u16) {
        let entry = BAR_MSIX + u64::from(vector) * 16;
        machine.store(entry, SIGNALS + u64::from(vector) * 4, 4);
        machine.store(entry + 4, 0, 4);
        machine.store(entry + 8, 0xb0b0 + u64::from(vector), 4);
        machine.store(entry + 12, 0, 4);
        machine.store(SIGNALS + u64::from(vector) * 4, 0, 4);
        let at = machine
            .capability(self.bus, self.slot, 0x11)
            .expect("no MSI-X");
        let head = machine.config_load(self.bus, self.slot, at);
        machine.config_store(self.bus, self.slot, at, head | 0x8000_0000);
    }

    /// Waits for a vector's interrupt, and takes it.
    pub fn wait_interrupt(&self, machine: &mut Machine, vector: u16) {
        let at = SIGNALS + u64::from(vector) * 4;
        let start = Instant::now();
        while machine.load(at, 4) == 0 {
            assert!(
                start.elapsed() < PATIENCE,
                "no interrupt on vector {vector}"
            );
        }
        assert_eq!(machine.load(at, 4), 0xb0b0 + u64::from(vector));
        machine.store(at, 0, 4);
    }

    /// The next event, if there is one.
    pub fn event(&mut self, machine: &mut Machine) -> Option<Eqe> {
        let index = self.consumer % (1 << LOG_EVENTS);
        let phase = if (self.consumer >> LOG_EVENTS) & 1 == 0 {
            EQE_PHASE
        } else {
            0
        };
        let at = EVENTS + EqRecord::SIZE as u64 + u64::from(index) * Eqe::SIZE as u64;
        let bytes: [u8; Eqe::SIZE] = machine
            .read(at, Eqe::SIZE)
            .try_into()
            .expect("wrong length");
        let event = Eqe::from_bytes(&bytes);
        if event.owner & EQE_PHASE != phase {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        machine.store(EVENTS, self.consumer.into(), 4);
        Some(event)
    }

    /// Takes all events that are there.
    pub fn drop_events(&mut self, machine: &mut Machine) {
        while self.event(machine).is_some() {}
    }

    /// Attributes of a port.
    pub fn port(&mut self, machine: &mut Machine, port: u8) -> QueryPortOut {
        let input = PortIn {
            port,
            ..PortIn::default()
        };
        QueryPortOut::from_bytes(&self.run(machine, Opcode::QueryPort, &input.to_bytes()))
    }

    /// Waits until port 1 has a physical state.
    pub fn wait_phys_state(&mut self, machine: &mut Machine, state: u8) {
        let start = Instant::now();
        loop {
            let port = self.port(machine, 1);
            if port.phys_state == state {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "physical state is {}, it should become {state}",
                port.phys_state
            );
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Function level reset.
    pub fn flr(&self, machine: &mut Machine) {
        let at = machine
            .capability(self.bus, self.slot, 0x10)
            .expect("no PCI Express capability");
        let capabilities = machine.config_load(self.bus, self.slot, at + 4);
        assert_ne!(capabilities & 1 << 28, 0, "no function level reset");
        let control = machine.config_load(self.bus, self.slot, at + 8);
        machine.config_store(self.bus, self.slot, at + 8, control & 0xffff | 1 << 15);
        // As after any reset, the BARs are gone.
        let probed = Hca::probe(machine, self.bus, self.slot);
        assert_eq!(probed.reg(machine, regs::STATUS, 4), 0);
    }
}
