// SPDX-License-Identifier: GPL-2.0-or-later

//! The command queue in memory.
//!
//! The device takes slots in order and hands them back in any order. What a command reads and
//! writes lies in a mailbox. A slot is free again as soon as the device has handed it back and
//! anybody has seen it, while its mailbox waits for the command's owner: so a caller that must not
//! sleep never waits for a task that cannot run.

use super::{
    Failure,
    Wait, //
};
use crate::{
    hw::{
        cmd::{
            self,
            CmdSlot, //
        },
        queue::CmdRecord,
    },
    rdma::dma::Buffer,
    regs::Regs, //
};
use core::mem::offset_of;
use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_condvar, new_spinlock_irq,
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Relaxed,
            Release, //
        },
        barrier::{
            dma_mb,
            mb,
            Full,
            Read,
            Write, //
        },
        CondVar,
        SpinLockIrq, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

/// log2 of the number of slots.
const LOG_SLOTS: u32 = 5;
const SLOTS: usize = 1 << LOG_SLOTS;
/// Mailboxes; those beyond [`SLOTS`] are for callers that must not sleep.
const MAILBOXES: usize = SLOTS + 8;
/// Room for a command's input, bytes.
pub(super) const INPUT_BYTES: usize = 512;
/// Room for a command's output, bytes.
pub(super) const OUTPUT_BYTES: usize = 512;
const MAILBOX_BYTES: usize = INPUT_BYTES + OUTPUT_BYTES;
/// Where the mailboxes begin, behind record and slots.
const MAILBOX_OFFSET: usize = 4096;
const _: () = assert!(CmdRecord::SIZE + SLOTS * CmdSlot::SIZE <= MAILBOX_OFFSET);

/// The last 8 bytes of a slot, which the device writes.
const ANSWER: usize = offset_of!(CmdSlot, out_written);
const OWNER: usize = offset_of!(CmdSlot, owner);

/// After this long without an answer, the device counts as dead. Commands take microseconds; a
/// virtual machine whose host is overloaded may still stall for long.
const TIMEOUT: Delta = Delta::from_secs(60);
/// How often a caller that polls looks whether the device is still alive.
const POLLS_PER_CHECK: u32 = 4096;
/// How long a caller that may sleep does so between two looks, before there are events.
const POLL_INTERVAL: Delta = Delta::from_micros(20);

/// What a mailbox is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mailbox {
    Free,
    /// The device has the command.
    Pending,
    /// The device has answered.
    Done(Answer),
}

/// What the device writes to a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Answer {
    written: u32,
    status: u8,
    bad_field: u8,
}

/// Bytes of a slot that hold the answer.
const ANSWER_BYTES: usize = CmdSlot::SIZE - ANSWER;

impl Answer {
    fn from_bytes(bytes: &[u8; ANSWER_BYTES]) -> Self {
        Self {
            written: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            status: bytes[offset_of!(CmdSlot, status) - ANSWER],
            bad_field: bytes[offset_of!(CmdSlot, bad_field) - ANSWER],
        }
    }

    /// Whether the command was done and has `wanted` bytes of output.
    fn judge(self, wanted: usize) -> Result<(), Failure> {
        if self.status != cmd::Status::Ok.raw() {
            return Err(Failure::Refused {
                status: self.status,
                bad_field: self.bad_field,
            });
        }
        if (self.written as usize) < wanted {
            return Err(Failure::ShortOutput {
                written: self.written,
            });
        }
        Ok(())
    }
}

struct State {
    /// Index of the next slot.
    producer: u32,
    /// Which mailbox the command of a slot has; `None` where the slot is free.
    slots: [Option<u8>; SLOTS],
    mailboxes: [Mailbox; MAILBOXES],
}

impl State {
    const fn new() -> Self {
        Self {
            producer: 0,
            slots: [None; SLOTS],
            mailboxes: [Mailbox::Free; MAILBOXES],
        }
    }

    /// The slot and the mailbox of the next command, if there is room: the last mailboxes are for
    /// callers that must not sleep.
    fn room(&self, sleep: bool) -> Option<(usize, usize)> {
        let slot = self.producer as usize % SLOTS;
        if self.slots[slot].is_some() {
            return None;
        }
        let usable = if sleep { SLOTS } else { MAILBOXES };
        let mailbox = self.mailboxes[..usable]
            .iter()
            .position(|&m| m == Mailbox::Free)?;
        Some((slot, mailbox))
    }

    /// The device has the command in a slot, which [`State::room`] has given.
    fn sent(&mut self, slot: usize, mailbox: usize) {
        self.producer = self.producer.wrapping_add(1);
        self.slots[slot] = Some(mailbox as u8);
        self.mailboxes[mailbox] = Mailbox::Pending;
    }

    /// The device has handed a slot back.
    fn answered(&mut self, slot: usize, answer: Answer) {
        if let Some(mailbox) = self.slots[slot].take() {
            self.mailboxes[usize::from(mailbox)] = Mailbox::Done(answer);
        }
    }
}

/// The command queue.
#[pin_data]
pub(crate) struct CommandQueue {
    mem: Buffer,
    /// Whether the device writes an event for each command.
    events: AtomicFlag,
    /// Whether the device does not answer any more.
    dead: AtomicFlag,
    #[pin]
    state: SpinLockIrq<State>,
    /// Somebody's command may be done, or a slot or mailbox may be free.
    #[pin]
    change: CondVar,
}

impl CommandQueue {
    /// Allocates the queue.
    pub(crate) fn new(dev: &Device<Bound>) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            mem: Buffer::new(dev, MAILBOX_OFFSET + MAILBOXES * MAILBOX_BYTES)?,
            events: AtomicFlag::new(false),
            dead: AtomicFlag::new(false),
            state <- new_spinlock_irq!(State::new()),
            change <- new_condvar!(),
        })
    }

    /// Starts the device with this queue.
    pub(crate) fn start(&self, regs: &Regs) {
        regs.enable(self.mem.dma_address(), LOG_SLOTS);
    }

    /// From now on the device may write events for commands, and callers may sleep; or no longer.
    pub(crate) fn use_events(&self, on: bool) {
        self.events.store(on, Relaxed);
    }

    /// Gives up all commands, now and later: the device is dead.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Release);
        self.wake();
    }

    /// Looks for answers and wakes those who wait: to be called upon a command's event, and once in
    /// a while so that nobody waits for an event that was lost.
    pub(crate) fn wake(&self) {
        {
            let mut state = self.state.lock();
            self.reap(&mut state);
        }
        self.change.notify_all();
    }

    /// Runs a command whose input and output are bytes.
    pub(super) fn run(
        &self,
        regs: &Regs,
        opcode: cmd::Opcode,
        input: &[u8],
        output: &mut [u8],
        wait: Wait,
    ) -> Result<(), Failure> {
        let start = Instant::<Monotonic>::now();
        let sleep = wait == Wait::Sleep;

        let mut sent = None;
        self.wait_until(regs, sleep, start, |state| {
            sent = self.send(state, opcode, input, output.len(), sleep);
            sent.is_some()
        })?;
        let mailbox = sent.ok_or(Failure::Busy)?;
        regs.ring_commands();

        let mut answer = None;
        self.wait_until(regs, sleep, start, |state| {
            if let Mailbox::Done(done) = state.mailboxes[mailbox] {
                answer = Some(done);
            }
            answer.is_some()
        })?;
        let result = match answer {
            Some(answer) => self.take(mailbox, answer, output),
            None => Err(Failure::Busy),
        };

        {
            let mut state = self.state.lock();
            state.mailboxes[mailbox] = Mailbox::Free;
        }
        self.change.notify_all();
        result
    }

    /// Waits until `ready`, which is asked with the state at hand each time when it may have
    /// changed.
    fn wait_until(
        &self,
        regs: &Regs,
        sleep: bool,
        start: Instant<Monotonic>,
        mut ready: impl FnMut(&mut State) -> bool,
    ) -> Result<(), Failure> {
        let mut polls = 0u32;
        let mut state = self.state.lock();

        loop {
            self.reap(&mut state);
            if ready(&mut state) {
                return Ok(());
            }
            if self.dead.load(Acquire) {
                return Err(Failure::Dead);
            }
            if start.elapsed() > TIMEOUT {
                return Err(Failure::TimedOut);
            }

            if sleep && self.events.load(Relaxed) {
                self.change.wait(&mut state);
                continue;
            }

            drop(state);
            polls = polls.wrapping_add(1);
            if sleep {
                fsleep(POLL_INTERVAL);
            } else {
                cpu_relax();
            }
            if (sleep || polls % POLLS_PER_CHECK == 0) && !regs.is_ready() {
                return Err(Failure::Dead);
            }
            state = self.state.lock();
        }
    }

    /// Hands a command to the device, if there is room: gives the number of its mailbox.
    fn send(
        &self,
        state: &mut State,
        opcode: cmd::Opcode,
        input: &[u8],
        out_len: usize,
        sleep: bool,
    ) -> Option<usize> {
        let (slot, mailbox) = state.room(sleep)?;
        let in_offset = MAILBOX_OFFSET + mailbox * MAILBOX_BYTES;
        let out_offset = in_offset + INPUT_BYTES;
        let entry = CmdSlot {
            opcode: opcode.raw(),
            flags: if self.events.load(Relaxed) {
                cmd::SLOT_EVENT
            } else {
                0
            },
            token: mailbox as u32,
            in_addr: match input.len() {
                0 => 0,
                _ => self.mem.dma_address() + in_offset as u64,
            },
            out_addr: match out_len {
                0 => 0,
                _ => self.mem.dma_address() + out_offset as u64,
            },
            in_len: input.len() as u32,
            out_len: out_len as u32,
            owner: cmd::OWNER_DEVICE,
            ..CmdSlot::default()
        };
        self.mem.write(in_offset, input).ok()?;
        self.mem.write(slot_offset(slot), &entry.to_bytes()).ok()?;
        // The device reads slot and mailbox once it sees the producer index.
        dma_mb(Write);
        state.sent(slot, mailbox);
        self.mem
            .store32(offset_of!(CmdRecord, producer), state.producer)
            .ok()?;
        // The doorbell comes after the index.
        mb(Full);
        Some(mailbox)
    }

    /// Takes slots back that the device has handed back.
    fn reap(&self, state: &mut State) {
        for slot in 0..SLOTS {
            if state.slots[slot].is_none() {
                continue;
            }
            let offset = slot_offset(slot);
            match self.mem.load8(offset + OWNER) {
                Ok(cmd::OWNER_DRIVER) => {}
                _ => continue,
            }
            // The device writes the owner last.
            dma_mb(Read);
            if let Ok(answer) = self.mem.read(offset + ANSWER) {
                state.answered(slot, Answer::from_bytes(&answer));
            }
        }
    }

    /// Judges an answer, and copies its output.
    fn take(&self, mailbox: usize, answer: Answer, output: &mut [u8]) -> Result<(), Failure> {
        answer.judge(output.len())?;
        let offset = MAILBOX_OFFSET + mailbox * MAILBOX_BYTES + INPUT_BYTES;
        self.mem
            .copy_out(offset, output)
            .map_err(|_| Failure::ShortOutput {
                written: answer.written,
            })
    }
}

/// Where a slot begins.
fn slot_offset(slot: usize) -> usize {
    CmdRecord::SIZE + slot * CmdSlot::SIZE
}

#[kunit_tests(ochre_cmd_ring)]
mod tests {
    use super::*;

    const OK: Answer = Answer {
        written: 16,
        status: cmd::Status::Ok.raw(),
        bad_field: 0,
    };

    /// Sends a command: gives its slot and mailbox.
    fn send(state: &mut State, sleep: bool) -> Option<(usize, usize)> {
        let (slot, mailbox) = state.room(sleep)?;
        state.sent(slot, mailbox);
        Some((slot, mailbox))
    }

    #[test]
    fn commands_take_slots_in_order_until_the_ring_is_full() {
        let mut state = State::new();
        for i in 0..SLOTS {
            assert_eq!(send(&mut state, true), Some((i, i)));
        }
        assert_eq!(state.room(true), None);
        assert_eq!(state.room(false), None);
    }

    #[test]
    fn a_slot_is_free_with_its_answer_but_its_mailbox_only_when_taken() {
        let mut state = State::new();
        for _ in 0..SLOTS {
            send(&mut state, true);
        }
        state.answered(0, OK);
        assert!(state.mailboxes[0] == Mailbox::Done(OK));
        // No mailbox for one who may sleep, but one for who must not.
        assert_eq!(state.room(true), None);
        assert_eq!(state.room(false), Some((0, SLOTS)));
        state.mailboxes[0] = Mailbox::Free;
        assert_eq!(state.room(true), Some((0, 0)));
    }

    #[test]
    fn answers_in_any_order_free_the_next_slot_in_its_turn() {
        let mut state = State::new();
        for _ in 0..SLOTS {
            send(&mut state, true);
        }
        for slot in (1..SLOTS).rev() {
            state.answered(slot, OK);
            state.mailboxes[slot] = Mailbox::Free;
        }
        // The device takes slots in order, and has not handed the first one back.
        assert_eq!(state.room(true), None);
        state.answered(0, OK);
        assert_eq!(state.room(true), Some((0, 1)));
    }

    #[test]
    fn the_producer_index_runs_around_32_bits() {
        let mut state = State::new();
        state.producer = u32::MAX;
        assert_eq!(send(&mut state, true), Some((SLOTS - 1, 0)));
        assert_eq!(state.producer, 0);
        assert_eq!(send(&mut state, true), Some((0, 1)));
    }

    #[test]
    fn an_answer_without_a_command_is_no_matter() {
        let mut state = State::new();
        state.answered(3, OK);
        assert!(state.mailboxes.iter().all(|&m| m == Mailbox::Free));
    }

    #[test]
    fn answers_are_read_from_the_end_of_a_slot() {
        let slot = CmdSlot {
            out_written: 0x0102_0304,
            status: 5,
            bad_field: 0x2c,
            owner: cmd::OWNER_DRIVER,
            ..CmdSlot::default()
        };
        let mut bytes = [0; ANSWER_BYTES];
        bytes.copy_from_slice(&slot.to_bytes()[ANSWER..]);
        let answer = Answer::from_bytes(&bytes);
        assert_eq!(answer.written, 0x0102_0304);
        assert_eq!(answer.status, 5);
        assert_eq!(answer.bad_field, 0x2c);
    }

    #[test]
    fn refusals_and_short_answers_are_failures() {
        assert_eq!(OK.judge(16), Ok(()));
        assert_eq!(OK.judge(0), Ok(()));
        assert_eq!(OK.judge(17), Err(Failure::ShortOutput { written: 16 }));
        let refused = Answer {
            status: 3,
            bad_field: 8,
            ..OK
        };
        assert_eq!(
            refused.judge(0),
            Err(Failure::Refused {
                status: 3,
                bad_field: 8
            })
        );
    }
}
