// SPDX-License-Identifier: GPL-2.0-or-later
//! A program that sends at random in one direction of a connection. What it posts it tells the
//! reference; what it gets, the reference judges.

use std::collections::VecDeque;

use ochre_hw::cqe::{Cqe, CqeOpcode, CqeStatus, CQE_IMM, CQE_SOLICITED};
use ochre_hw::wqe::{
    AtomicSegment, SendOpcode, SendWqe, Sge, SEND_FENCE, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED,
};

use crate::common::guest::{elements, GuestQp};
use crate::common::peers::SIZES;
use crate::common::place::{Place, SLOTS, WORDS};
use crate::common::rng::Rng;
use crate::reference::{Completion, Model, Operation, Piece, Receive, Request};
use crate::tally::Tally;

/// A key that nobody has: a program got it wrong.
const WRONG: u32 = 0x00ab_cd00;

/// Sizes and kinds of a lane's traffic.
#[derive(Clone)]
pub struct Mix {
    pub opcodes: Vec<SendOpcode>,
    pub mtu: u64,
    /// Messages of MiBs in a thousand.
    pub long: u64,
    /// Requests that must fail in a thousand.
    pub wrong: u64,
    /// How often receives are posted, rounds in a hundred.
    pub receives: u64,
    /// What takes a receive is only sent where that is posted already: nobody waits for a receiver.
    pub ahead: bool,
    pub messages: u64,
}

/// A request that has not ended, as far as the program knows.
struct Outstanding {
    id: u64,
    opcode: SendOpcode,
    len: u64,
    uses_slot: bool,
    uses_big: bool,
}

/// One direction.
pub struct Lane {
    rng: Rng,
    mix: Mix,
    from: Place,
    to: Place,
    pub model: Box<dyn Model>,
    outstanding: VecDeque<Outstanding>,
    posted: u64,
    done: u64,
    slots_used: u64,
    next_slot: u64,
    big_result_used: bool,
    receives_posted: u64,
    receives_done: u64,
    /// The receive that has the long piece.
    big_receive: Option<u64>,
    /// A send, or a receive, has failed.
    pub has_failed: bool,
    /// Status of the first failed send.
    pub failure: Option<CqeStatus>,
    pub tally: Tally,
}

fn completion(cqe: &Cqe) -> Completion {
    Completion {
        id: cqe.wr_id,
        opcode: CqeOpcode::from_raw(cqe.opcode).expect("an opcode"),
        status: CqeStatus::from_raw(cqe.status).expect("a status"),
        len: cqe.byte_len.into(),
        imm: (cqe.flags & CQE_IMM != 0).then_some(cqe.imm.to_le_bytes()),
        solicited: cqe.flags & CQE_SOLICITED != 0,
    }
}

impl Lane {
    pub fn new(seed: u64, mix: Mix, from: Place, to: Place, model: Box<dyn Model>) -> Self {
        Lane {
            rng: Rng::new(seed),
            mix,
            from,
            to,
            model,
            outstanding: VecDeque::new(),
            posted: 0,
            done: 0,
            slots_used: 0,
            next_slot: 0,
            big_result_used: false,
            receives_posted: 0,
            receives_done: 0,
            big_receive: None,
            has_failed: false,
            failure: None,
            tally: Tally::default(),
        }
    }

    /// Requests that have not ended, as far as the program knows.
    pub fn sends_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    pub fn receives_outstanding(&self) -> bool {
        self.receives_posted > self.receives_done
    }

    /// All messages are through.
    pub fn is_done(&self) -> bool {
        self.done >= self.mix.messages && self.outstanding.is_empty()
    }

    pub fn state(&self) -> String {
        format!(
            "{} of {} done, {} under way, {} receives posted",
            self.done,
            self.mix.messages,
            self.outstanding.len(),
            self.receives_posted - self.receives_done
        )
    }

    pub fn set_mtu(&mut self, mtu: u64) {
        self.mix.mtu = mtu;
    }

    /// The connection has ended in good order.
    pub fn finish(&mut self) {
        let (from, to) = (&self.from, &self.to);
        self.model
            .finish(&|at, len| from.bytes(at, len), &|at, len| to.bytes(at, len));
    }

    /// The requester's software goes on after a failure.
    pub fn resume(&mut self) {
        self.model.resume();
        self.has_failed = false;
        self.failure = None;
    }

    /// The connection is no more; another one follows.
    pub fn settle(&mut self) {
        let (from, to) = (&self.from, &self.to);
        self.model
            .settle(&|at, len| from.bytes(at, len), &|at, len| to.bytes(at, len));
        self.outstanding.clear();
        self.slots_used = 0;
        self.big_result_used = false;
        self.receives_done = self.receives_posted;
        self.big_receive = None;
        self.has_failed = false;
        self.failure = None;
    }

    /// Bytes of the next message.
    fn length(&mut self, opcode: SendOpcode, inline: bool) -> u64 {
        let mtu = self.mix.mtu;
        if inline {
            return self.rng.below(u64::from(SIZES.inline_data) + 1);
        }
        let slot = self.to.room.slot;
        let random = self.rng.below(slot + 1);
        let mut len = self
            .rng
            .pick(&[
                0,
                1,
                mtu - 1,
                mtu,
                mtu + 1,
                3 * mtu + 17,
                random / 16,
                random,
            ])
            .min(slot);
        let big = self.to.room.big;
        if big > 0 && self.rng.below(1000) < self.mix.long {
            len = (1 << 20) + 1 + self.rng.below(big - (1 << 20));
        }
        if opcode == SendOpcode::Read && len > slot && self.big_result_used {
            len = random;
        }
        if matches!(opcode, SendOpcode::Send | SendOpcode::SendImm) {
            // A receive that is posted already sets the limit; one too long is another matter.
            let room = self.model.room();
            if room.is_none() && self.big_receive.is_some() {
                len = len.min(slot);
            }
            if self.mix.wrong == 0 || self.rng.below(1000) >= self.mix.wrong {
                len = len.min(room.unwrap_or(len));
            }
        }
        len
    }

    /// Cuts a piece of memory into elements, some of them empty.
    fn pieces(&mut self, mut at: u64, mut len: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let count = 1 + self.rng.below(u64::from(SIZES.send_sge));
        for n in 1..=count {
            let part = if n == count {
                len
            } else {
                self.rng.below(len + 1)
            };
            pieces.push((at, part));
            at += part;
            len -= part;
        }
        pieces
    }

    /// Posts receives on the receiving side, now and then.
    pub fn post_receives(&mut self, guest: &mut GuestQp) {
        let room = SLOTS - (self.receives_posted - self.receives_done);
        if room == 0 || self.rng.below(100) >= self.mix.receives {
            return;
        }
        for _ in 0..=self.rng.below(room.min(8)) {
            let slot = self.to.room.slot;
            let wanted = self.model.wanted();
            let (at, len) = if wanted.is_some_and(|len| len > slot) {
                if self.big_receive.is_some() {
                    return;
                }
                self.big_receive = Some(self.receives_posted);
                (self.to.big_receive, self.to.room.big)
            } else {
                let at = self.to.receives + self.receives_posted % SLOTS * slot;
                // Now and then not a byte more than the message has.
                let exact = wanted.filter(|_| self.rng.chance(30));
                (at, exact.unwrap_or(slot))
            };
            let into = self.pieces(at, len);
            guest.post_recv(self.receives_posted, &sges(&into, self.to.key));
            self.model.post_receive(Receive {
                id: self.receives_posted,
                into,
            });
            self.receives_posted += 1;
        }
    }

    /// Posts some requests, as far as there is room; whether a doorbell is due.
    pub fn post_sends(&mut self, guest: &mut GuestQp) -> bool {
        let mut any = false;
        for _ in 0..self.rng.below(8) {
            let left = self
                .mix
                .messages
                .saturating_sub(self.done + self.outstanding.len() as u64);
            if left == 0 || guest.sq_room() == 0 {
                break;
            }
            let mut opcode = self.rng.pick(&self.mix.opcodes);
            if self.slots_used == SLOTS {
                break;
            }
            if self.mix.ahead && opcode != SendOpcode::Write && self.model.room().is_none() {
                opcode = SendOpcode::Write;
            }
            self.post(guest, opcode, left == 1);
            any = true;
        }
        if any {
            guest.publish_sends();
        }
        any
    }

    /// Posts one more request, to a QP that is in the error state; whether there was room.
    pub fn post_to_error(&mut self, guest: &mut GuestQp) -> bool {
        let has_room = guest.sq_room() > 0;
        if has_room {
            self.post(guest, SendOpcode::Write, true);
            guest.publish_sends();
        }
        has_room
    }

    fn post(&mut self, guest: &mut GuestQp, opcode: SendOpcode, is_last: bool) {
        let has_result = matches!(
            opcode,
            SendOpcode::Read | SendOpcode::CompareSwap | SendOpcode::FetchAdd
        );
        let inline = !has_result && self.rng.chance(20);
        let is_wrong = self.rng.below(1000) < self.mix.wrong;
        // What is wrong: the own key, the responder's key, or the place.
        let wrong = if is_wrong { 1 + self.rng.below(3) } else { 0 };
        let len = if opcode == SendOpcode::CompareSwap || opcode == SendOpcode::FetchAdd {
            8
        } else {
            self.length(opcode, inline)
        };
        let is_big = len > self.to.room.slot;
        let into = if has_result {
            let at = if is_big {
                self.big_result_used = true;
                self.from.big_result
            } else {
                self.next_slot += 1;
                self.slots_used += 1;
                self.from.results + self.next_slot % SLOTS * self.from.room.slot
            };
            if opcode == SendOpcode::Read {
                self.pieces(at, len)
            } else {
                vec![(at, 8)]
            }
        } else {
            Vec::new()
        };
        let mut fence = self.rng.chance(10);
        let (operation, data) = self.operation(opcode, len, into, wrong == 3, &mut fence);
        // The last request is signaled, so that the end is seen.
        let request = Request {
            id: self.posted,
            operation,
            imm: matches!(opcode, SendOpcode::SendImm | SendOpcode::WriteImm)
                .then(|| self.rng.next().to_le_bytes()[..4].try_into().unwrap()),
            signaled: is_last || self.rng.chance(60),
            solicited: self.rng.chance(30),
            own_key: inline || wrong != 1,
            key: wrong != 2,
        };
        let mut flags = 0;
        for (flag, set) in [
            (SEND_SIGNALED, request.signaled),
            (SEND_SOLICITED, request.solicited),
            (SEND_INLINE, inline),
            (SEND_FENCE, fence),
        ] {
            if set {
                flags |= flag;
            }
        }
        let mut wqe = SendWqe {
            opcode: opcode.raw(),
            flags,
            wr_id: request.id,
            imm: u32::from_le_bytes(request.imm.unwrap_or_default()),
            key: if request.key { self.to.key } else { WRONG },
            ..SendWqe::default()
        };
        let mut bytes = Vec::new();
        match &request.operation {
            Operation::Send { .. } => {}
            Operation::Write { at, .. } | Operation::Read { at, .. } => wqe.remote = *at,
            Operation::CompareSwap {
                at, compare, swap, ..
            } => {
                wqe.remote = *at;
                let operands = AtomicSegment {
                    swap_or_add: *swap,
                    compare: *compare,
                };
                bytes.extend(operands.to_bytes());
            }
            Operation::FetchAdd { at, add, .. } => {
                wqe.remote = *at;
                let operands = AtomicSegment {
                    swap_or_add: *add,
                    compare: 0,
                };
                bytes.extend(operands.to_bytes());
            }
        }
        if inline {
            wqe.inline_len = len as u16;
            bytes.extend(self.from.bytes(data[0].0, len));
        } else {
            let key = if request.own_key {
                self.from.key
            } else {
                WRONG
            };
            wqe.num_sge = data.len() as u8;
            bytes.extend(elements(&sges(&data, key)));
        }
        guest.write_send(&wqe, &bytes);
        self.outstanding.push_back(Outstanding {
            id: request.id,
            opcode,
            len,
            uses_slot: has_result && !is_big,
            uses_big: has_result && is_big,
        });
        self.posted += 1;
        self.model.post(request);
    }

    /// What a request does, and the pieces of own memory that it names.
    fn operation(
        &mut self,
        opcode: SendOpcode,
        len: u64,
        into: Vec<Piece>,
        is_beyond: bool,
        fence: &mut bool,
    ) -> (Operation, Vec<Piece>) {
        let pieces = into.clone();
        match opcode {
            SendOpcode::CompareSwap | SendOpcode::FetchAdd => {
                // A wrong place is one that is not on 8 bytes.
                let at = self.to.words + self.rng.below(WORDS) * 8;
                let at = if is_beyond { at - 4 } else { at };
                let operation = if opcode == SendOpcode::FetchAdd {
                    Operation::FetchAdd {
                        at,
                        add: self.rng.next(),
                        into,
                    }
                } else {
                    // Values are few, so that many comparisons hold.
                    Operation::CompareSwap {
                        at,
                        compare: self.rng.below(2),
                        swap: self.rng.below(2),
                        into,
                    }
                };
                (operation, pieces)
            }
            SendOpcode::Read => {
                // What was written before, too: it is there before the READ is executed.
                let (start, room) = if self.rng.chance(30) {
                    (self.to.target, self.to.room.target)
                } else {
                    (self.to.source, self.to.room.source)
                };
                let at = start + self.rng.below(room - len + 1);
                let at = if is_beyond { self.to.end - len / 2 } else { at };
                (Operation::Read { at, into }, pieces)
            }
            _ => {
                let from = self.from.source + self.rng.below(self.from.room.source - len + 1);
                let bytes = self.from.bytes(from, len);
                let data = self.pieces(from, len);
                if matches!(opcode, SendOpcode::Send | SendOpcode::SendImm) {
                    return (Operation::Send { bytes }, data);
                }
                let at = self.to.target + self.rng.below(self.to.room.target - len + 1);
                *fence |= self.model.is_read(at, len);
                let at = if is_beyond { self.to.end - len / 2 } else { at };
                (Operation::Write { at, bytes }, data)
            }
        }
    }

    /// A completion of the sending side.
    pub fn sent(&mut self, guest: &mut GuestQp, cqe: &Cqe) {
        let completion = completion(cqe);
        let from = &self.from;
        self.model.sent(&completion, &|at, len| from.bytes(at, len));
        let is_good = completion.status == CqeStatus::Success;
        if !is_good {
            self.has_failed = true;
            self.failure = self.failure.or(Some(completion.status));
        }
        loop {
            let request = self.outstanding.pop_front().expect("it was posted");
            self.slots_used -= u64::from(request.uses_slot);
            self.big_result_used &= !request.uses_big;
            let is_this = request.id == completion.id;
            if is_good || !is_this {
                self.done += 1;
                self.tally.count(request.opcode, request.len, self.mix.mtu);
            }
            if is_this {
                break;
            }
        }
        guest.sq_consumer = cqe.wqe_index;
    }

    /// A completion of the receiving side.
    pub fn received(&mut self, guest: &mut GuestQp, cqe: &Cqe) {
        let completion = completion(cqe);
        let to = &self.to;
        self.model
            .received(&completion, &|at, len| to.bytes(at, len));
        if completion.status == CqeStatus::Success {
            self.tally.arrived += 1;
        } else {
            self.has_failed = true;
        }
        self.big_receive = self.big_receive.filter(|id| *id != completion.id);
        self.receives_done += 1;
        guest.rq_consumer = cqe.wqe_index;
    }
}

fn sges(pieces: &[Piece], key: u32) -> Vec<Sge> {
    let sge = |&(addr, length): &Piece| Sge {
        addr,
        length: length as u32,
        lkey: key,
    };
    pieces.iter().map(sge).collect()
}
