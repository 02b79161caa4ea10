// SPDX-License-Identifier: GPL-2.0-or-later
//! Random traffic in one direction of a connection, and the model that says what must come of it.
//!
//! The model knows nothing of packets: requests take effect in the order in which they are posted,
//! each exactly once. Source memory does not change; what is written is compared byte by byte.

use std::collections::VecDeque;

use ochre_hw::cqe::{Cqe, CqeOpcode, CQE_IMM, CQE_SOLICITED};
use ochre_hw::wqe::{
    AtomicSegment, SendOpcode, SendWqe, Sge, SEND_FENCE, SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED,
};

use super::guest::{elements, GuestQp};
use super::rng::Rng;
use super::{Dma, Memory};

/// Bytes that WRITEs go to.
pub const TARGET: u64 = 4 << 20;
/// Bytes of the constant memory that is sent and read.
pub const SOURCE: u64 = 4 << 20;
/// Room of one receive, and of the result of one READ.
pub const SLOT: u64 = 64 << 10;
/// Receives, and READ results, that are in use at once.
pub const SLOTS: u64 = 32;
/// Words for atomics.
pub const WORDS: u64 = 8;

/// Memory of a host that a lane uses.
#[derive(Clone)]
pub struct Place {
    pub mem: Memory,
    pub key: u32,
    /// Constant memory, `SOURCE` bytes.
    pub source: u64,
    /// What the peer's WRITEs go to, `TARGET` bytes; words for its atomics lie behind.
    pub target: u64,
    /// Receives, `SLOTS` of `SLOT` bytes.
    pub receives: u64,
    /// Results of READs and atomics, `SLOTS` of `SLOT` bytes.
    pub results: u64,
}

impl Place {
    /// Bytes of a host's memory for a lane.
    pub const BYTES: u64 = SOURCE + TARGET + WORDS * 8 + 2 * SLOT * SLOTS;

    /// Lays a lane's memory out at `at`, in the region `key`.
    pub fn new(mem: &Memory, key: u32, at: u64) -> Self {
        Place {
            mem: mem.clone(),
            key,
            source: at,
            receives: at + SOURCE,
            results: at + SOURCE + SLOT * SLOTS,
            target: at + SOURCE + 2 * SLOT * SLOTS,
        }
    }

    fn bytes(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.mem.read(at, &mut bytes).unwrap();
        bytes
    }
}

/// What a request must do.
struct Expected {
    opcode: SendOpcode,
    id: u64,
    signaled: bool,
    index: u32,
    /// Result of a READ or atomic, and where it must stand.
    result: Option<(u64, Vec<u8>)>,
    len: u64,
}

/// What a receive must bring.
struct Arrival {
    opcode: CqeOpcode,
    bytes: Option<Vec<u8>>,
    len: u64,
    imm: Option<[u8; 4]>,
    solicited: bool,
}

/// Sizes and kinds of a lane's traffic.
#[derive(Clone)]
pub struct Mix {
    pub opcodes: Vec<SendOpcode>,
    pub mtu: u64,
    /// Percentage of messages of up to `SOURCE` bytes, for WRITEs.
    pub long: u64,
    pub messages: u64,
}

/// One direction.
pub struct Lane {
    rng: Rng,
    mix: Mix,
    from: Place,
    to: Place,
    /// The constant memories, as the model knows them.
    source: Vec<u8>,
    remote: Vec<u8>,
    /// What `to.target` must hold.
    target: Vec<u8>,
    words: [u64; WORDS as usize],
    expected: VecDeque<Expected>,
    arrivals: VecDeque<Arrival>,
    posted: u64,
    results_used: u64,
    results_posted: u64,
    receives_posted: u64,
    receives_done: u64,
}

impl Lane {
    pub fn new(seed: u64, mix: Mix, from: Place, to: Place) -> Self {
        Lane {
            rng: Rng::new(seed),
            source: from.bytes(from.source, SOURCE),
            remote: to.bytes(to.source, SOURCE),
            target: to.bytes(to.target, TARGET),
            words: [0; WORDS as usize],
            mix,
            from,
            to,
            expected: VecDeque::new(),
            arrivals: VecDeque::new(),
            posted: 0,
            results_used: 0,
            results_posted: 0,
            receives_posted: 0,
            receives_done: 0,
        }
    }

    /// Everything is posted and everything has come.
    pub fn is_done(&self) -> bool {
        self.posted == self.mix.messages && self.expected.is_empty() && self.arrivals.is_empty()
    }

    pub fn state(&self) -> String {
        format!(
            "{} of {} posted, {} under way, {} receives missing",
            self.posted,
            self.mix.messages,
            self.expected.len(),
            self.arrivals.len()
        )
    }

    fn length(&mut self, opcode: SendOpcode, inline: bool) -> u64 {
        let mtu = self.mix.mtu;
        if inline {
            return self.rng.below(65);
        }
        let is_write = opcode == SendOpcode::Write || opcode == SendOpcode::WriteImm;
        if is_write && self.rng.chance(self.mix.long) {
            return self.rng.below(3 << 20);
        }
        let random = self.rng.below(SLOT + 1);
        self.rng
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
            .min(SLOT)
    }

    /// Cuts a piece of memory into elements, some of them empty.
    fn sges(&mut self, key: u32, mut at: u64, mut len: u64) -> Vec<Sge> {
        let mut sges = Vec::new();
        let count = 1 + self.rng.below(4);
        for n in 1..=count {
            let part = if n == count {
                len
            } else {
                self.rng.below(len + 1)
            };
            sges.push(Sge {
                addr: at,
                length: part as u32,
                lkey: key,
            });
            at += part;
            len -= part;
        }
        sges
    }

    /// Posts receives on the receiving side, now and then.
    pub fn post_receives(&mut self, guest: &mut GuestQp) {
        let room = SLOTS - (self.receives_posted - self.receives_done);
        if room == 0 || self.rng.chance(50) {
            return;
        }
        for _ in 0..=self.rng.below(room) {
            let slot = self.to.receives + self.receives_posted % SLOTS * SLOT;
            let sges = self.sges(self.to.key, slot, SLOT);
            guest.post_recv(self.receives_posted, &sges);
            self.receives_posted += 1;
        }
    }

    /// Posts some requests, as far as there is room; whether a doorbell is due.
    pub fn post_sends(&mut self, guest: &mut GuestQp) -> bool {
        let mut any = false;
        for _ in 0..self.rng.below(8) {
            if self.posted == self.mix.messages || guest.sq_room() == 0 {
                break;
            }
            let opcode = self.rng.pick(&self.mix.opcodes);
            let has_result = matches!(
                opcode,
                SendOpcode::Read | SendOpcode::CompareSwap | SendOpcode::FetchAdd
            );
            if has_result && self.results_posted - self.results_used == SLOTS {
                break;
            }
            self.post(guest, opcode);
            any = true;
        }
        if any {
            guest.publish_sends();
        }
        any
    }

    fn post(&mut self, guest: &mut GuestQp, opcode: SendOpcode) {
        let is_data = !matches!(
            opcode,
            SendOpcode::Read | SendOpcode::CompareSwap | SendOpcode::FetchAdd
        );
        let inline = is_data && self.rng.chance(20);
        let len = self.length(opcode, inline);
        // The last request is signaled, so that the end is seen.
        let signaled = self.posted + 1 == self.mix.messages || self.rng.chance(60);
        let solicited = self.rng.chance(30);
        let mut flags = 0;
        for (flag, set) in [
            (SEND_SIGNALED, signaled),
            (SEND_SOLICITED, solicited),
            (SEND_INLINE, inline),
            (SEND_FENCE, self.rng.chance(10)),
        ] {
            if set {
                flags |= flag;
            }
        }
        let imm = self.rng.next().to_le_bytes()[..4].try_into().unwrap();
        let mut wqe = SendWqe {
            opcode: opcode.raw(),
            flags,
            wr_id: self.posted,
            imm: u32::from_le_bytes(imm),
            key: self.to.key,
            ..SendWqe::default()
        };
        let mut result = None;
        let mut data = Vec::new();
        match opcode {
            SendOpcode::CompareSwap | SendOpcode::FetchAdd => {
                let (operands, word) = self.atomic(opcode);
                wqe.remote = self.to.target + TARGET + word as u64 * 8;
                let at = self.result_slot();
                result = Some((at, self.words[word].to_le_bytes().to_vec()));
                self.apply_atomic(opcode, &operands, word);
                data.extend(operands.to_bytes());
                data.extend(elements(&[Sge {
                    addr: at,
                    length: 8,
                    lkey: self.from.key,
                }]));
                wqe.num_sge = 1;
            }
            SendOpcode::Read => {
                let from = self.rng.below(SOURCE - len + 1);
                wqe.remote = self.to.source + from;
                let at = self.result_slot();
                let bytes = self.remote[from as usize..(from + len) as usize].to_vec();
                result = Some((at, bytes));
                let sges = self.sges(self.from.key, at, len);
                wqe.num_sge = sges.len() as u8;
                data = elements(&sges);
            }
            _ => {
                let from = self.rng.below(SOURCE - len + 1);
                let bytes = self.source[from as usize..(from + len) as usize].to_vec();
                if inline {
                    wqe.inline_len = len as u16;
                    data = bytes.clone();
                } else {
                    let sges = self.sges(self.from.key, self.from.source + from, len);
                    wqe.num_sge = sges.len() as u8;
                    data = elements(&sges);
                }
                let written = matches!(opcode, SendOpcode::Write | SendOpcode::WriteImm);
                if written {
                    let at = self.rng.below(TARGET - len + 1);
                    wqe.remote = self.to.target + at;
                    self.target[at as usize..(at + len) as usize].copy_from_slice(&bytes);
                }
                if opcode != SendOpcode::Write {
                    self.arrivals.push_back(Arrival {
                        opcode: if written {
                            CqeOpcode::RecvWriteImm
                        } else {
                            CqeOpcode::Recv
                        },
                        bytes: (!written).then_some(bytes),
                        len,
                        imm: (opcode != SendOpcode::Send).then_some(imm),
                        solicited,
                    });
                }
            }
        }
        let index = guest.sq_producer.wrapping_add(1);
        guest.write_send(&wqe, &data);
        self.expected.push_back(Expected {
            opcode,
            id: self.posted,
            signaled,
            index,
            len: result.as_ref().map_or(0, |r| r.1.len() as u64),
            result,
        });
        self.posted += 1;
    }

    fn result_slot(&mut self) -> u64 {
        let at = self.from.results + self.results_posted % SLOTS * SLOT;
        self.results_posted += 1;
        at
    }

    fn atomic(&mut self, opcode: SendOpcode) -> (AtomicSegment, usize) {
        let word = self.rng.below(WORDS) as usize;
        let swap_or_add = self.rng.next();
        // Every second comparison holds.
        let compare = match opcode {
            SendOpcode::CompareSwap if self.rng.chance(50) => self.words[word],
            SendOpcode::CompareSwap => self.rng.next(),
            _ => 0,
        };
        let operands = AtomicSegment {
            swap_or_add,
            compare,
        };
        (operands, word)
    }

    fn apply_atomic(&mut self, opcode: SendOpcode, operands: &AtomicSegment, word: usize) {
        let value = &mut self.words[word];
        if opcode == SendOpcode::FetchAdd {
            *value = value.wrapping_add(operands.swap_or_add);
        } else if *value == operands.compare {
            *value = operands.swap_or_add;
        }
    }

    /// Checks a completion of the sending side.
    pub fn sent(&mut self, guest: &mut GuestQp, cqe: &Cqe) {
        assert_eq!(cqe.status, 0, "status of request {}", cqe.wr_id);
        // Unsignaled requests before it are done with it.
        loop {
            let done = self.expected.pop_front().expect("a request is under way");
            if let Some((at, bytes)) = &done.result {
                let found = self.from.bytes(*at, bytes.len() as u64);
                assert!(found == *bytes, "result of request {}", done.id);
                self.results_used += 1;
            }
            if done.signaled {
                assert_eq!(cqe.wr_id, done.id, "completions come in order");
                assert_eq!(cqe.wqe_index, done.index);
                assert_eq!(u64::from(cqe.byte_len), done.len);
                let opcode = match done.opcode {
                    SendOpcode::Write | SendOpcode::WriteImm => CqeOpcode::Write,
                    SendOpcode::Read => CqeOpcode::Read,
                    SendOpcode::CompareSwap => CqeOpcode::CompareSwap,
                    SendOpcode::FetchAdd => CqeOpcode::FetchAdd,
                    _ => CqeOpcode::Send,
                };
                assert_eq!(cqe.opcode, opcode.raw());
                guest.sq_consumer = cqe.wqe_index;
                return;
            }
        }
    }

    /// Checks a completion of the receiving side.
    pub fn received(&mut self, guest: &mut GuestQp, cqe: &Cqe) {
        assert_eq!(cqe.status, 0, "status of receive {}", cqe.wr_id);
        assert_eq!(cqe.wr_id, self.receives_done, "receives complete in order");
        let arrival = self.arrivals.pop_front().expect("a message was sent");
        assert_eq!(cqe.opcode, arrival.opcode.raw());
        assert_eq!(u64::from(cqe.byte_len), arrival.len);
        let imm = (cqe.flags & CQE_IMM != 0).then_some(cqe.imm.to_le_bytes());
        assert_eq!(imm, arrival.imm);
        assert_eq!(cqe.flags & CQE_SOLICITED != 0, arrival.solicited);
        if let Some(bytes) = arrival.bytes {
            let slot = self.to.receives + self.receives_done % SLOTS * SLOT;
            let found = self.to.bytes(slot, arrival.len);
            assert!(found == bytes, "content of receive {}", cqe.wr_id);
        }
        self.receives_done += 1;
        guest.rq_consumer = cqe.wqe_index;
    }

    /// Compares what was written with what must stand there, after the end.
    pub fn check_memory(&self) {
        let found = self.to.bytes(self.to.target, TARGET);
        let differs = found.iter().zip(&self.target).position(|(a, b)| a != b);
        assert_eq!(differs, None, "first byte that the WRITEs left wrong");
        for (n, word) in self.words.iter().enumerate() {
            let at = self.to.target + TARGET + n as u64 * 8;
            assert_eq!(self.to.bytes(at, 8), word.to_le_bytes(), "word {n}");
        }
    }
}
