// SPDX-License-Identifier: GPL-2.0-or-later
//! The verbs in plain words: what must come of the requests of a program. No packet, no link and no
//! time occur here, and nothing of the engine is used; what is common with it are the names of opcodes
//! and statuses that programs see.
//!
//! - [`reliable`]: one direction of a reliable connection. Requests take effect once each, in the order
//!   in which they are posted, and complete in that order.
//! - [`unreliable`]: one direction of an unreliable connection. A message arrives whole or not at all,
//!   in the order of sending.
//! - [`datagram`]: datagrams between any QPs. Each arrives whole or not at all.
//!
//! A model is told what a program posts, by [`Model::post`] and [`Model::post_receive`], and judges each
//! completion that the program gets, by [`Model::sent`] and [`Model::received`]. It panics where a
//! completion, or the memory at that time, is not what the verbs promise. Places in memory are
//! addresses, each side with its own.

pub mod datagram;
mod image;
pub mod reliable;
pub mod unreliable;

use ochre_hw::cqe::{CqeOpcode, CqeStatus};

pub use image::Image;

/// A piece of memory: address and bytes.
pub type Piece = (u64, u64);

/// What memory holds: reads so many bytes at an address.
pub type Look<'a> = &'a dyn Fn(u64, u64) -> Vec<u8>;

/// What a request does.
#[derive(Clone, Debug)]
pub enum Operation {
    /// The bytes go to the next receive.
    Send { bytes: Vec<u8> },
    /// The bytes go to the responder's memory at an address.
    Write { at: u64, bytes: Vec<u8> },
    /// Bytes of the responder's memory come to pieces of the own.
    Read { at: u64, into: Vec<Piece> },
    /// A word of the responder's memory is changed where it equals `compare`; what it was comes back.
    CompareSwap {
        at: u64,
        compare: u64,
        swap: u64,
        into: Vec<Piece>,
    },
    /// `add` is added to a word of the responder's memory; what it was comes back.
    FetchAdd { at: u64, add: u64, into: Vec<Piece> },
}

/// A send request.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: u64,
    pub operation: Operation,
    /// Immediate data, with a SEND or a WRITE.
    pub imm: Option<[u8; 4]>,
    pub signaled: bool,
    pub solicited: bool,
    /// The own key is one of the QP's domain with the rights that it takes.
    pub own_key: bool,
    /// So is the responder's.
    pub key: bool,
}

impl Request {
    /// Bytes that it moves.
    pub fn len(&self) -> u64 {
        match &self.operation {
            Operation::Send { bytes } | Operation::Write { bytes, .. } => bytes.len() as u64,
            Operation::Read { into, .. } => length(into),
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => 8,
        }
    }

    /// Whether it takes a receive of the responder.
    pub fn takes_receive(&self) -> bool {
        matches!(self.operation, Operation::Send { .. }) || self.imm.is_some()
    }

    /// Whether it brings something back.
    pub fn has_result(&self) -> bool {
        !matches!(
            self.operation,
            Operation::Send { .. } | Operation::Write { .. }
        )
    }

    /// What the requester's completion calls it.
    pub fn opcode(&self) -> CqeOpcode {
        match self.operation {
            Operation::Send { .. } => CqeOpcode::Send,
            Operation::Write { .. } => CqeOpcode::Write,
            Operation::Read { .. } => CqeOpcode::Read,
            Operation::CompareSwap { .. } => CqeOpcode::CompareSwap,
            Operation::FetchAdd { .. } => CqeOpcode::FetchAdd,
        }
    }

    /// What the responder's completion calls it, where there is one.
    pub fn receive_opcode(&self) -> CqeOpcode {
        match self.operation {
            Operation::Send { .. } => CqeOpcode::Recv,
            _ => CqeOpcode::RecvWriteImm,
        }
    }
}

/// A receive request.
#[derive(Clone, Debug)]
pub struct Receive {
    pub id: u64,
    pub into: Vec<Piece>,
}

/// What a program is told of a request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub id: u64,
    pub opcode: CqeOpcode,
    pub status: CqeStatus,
    /// Bytes received, or brought back.
    pub len: u64,
    pub imm: Option<[u8; 4]>,
    pub solicited: bool,
}

/// Bytes that are put somewhere: one effect of a request on memory.
pub type Effects = Vec<(u64, Vec<u8>)>;

/// Bytes of some pieces together.
pub fn length(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|&(_, len)| len).sum()
}

/// Lays bytes out over pieces, as far as there are bytes.
fn scatter(pieces: &[Piece], bytes: &[u8]) -> Effects {
    let mut rest = bytes;
    let mut effects = Vec::new();
    for &(at, len) in pieces {
        let (part, others) = rest.split_at(rest.len().min(len as usize));
        if !part.is_empty() {
            effects.push((at, part.to_vec()));
        }
        rest = others;
    }
    effects
}

/// The bytes that stand in memory where `effects` put theirs.
fn is_there(effects: &Effects, look: Look<'_>) -> bool {
    effects
        .iter()
        .all(|(at, bytes)| look(*at, bytes.len() as u64) == *bytes)
}

/// One direction of a connection.
pub trait Model {
    /// The requester posts a request.
    fn post(&mut self, request: Request);

    /// The responder posts a receive.
    fn post_receive(&mut self, receive: Receive);

    /// The requester gets a completion; `look` reads its memory.
    fn sent(&mut self, completion: &Completion, look: Look<'_>);

    /// The responder gets a completion; `look` reads its memory.
    fn received(&mut self, completion: &Completion, look: Look<'_>);

    /// Room of the receive that a message posted now will have, where that is posted already.
    fn room(&self) -> Option<u64>;

    /// Bytes of the first message that waits for a receive.
    fn wanted(&self) -> Option<u64>;

    /// Whether a READ that may still be under way reads some of these bytes: who overwrites them has to
    /// use a fence.
    fn is_read(&self, at: u64, len: u64) -> bool;

    /// A request was posted that must fail.
    fn must_fail(&self) -> bool;

    /// Software goes on after a failed request, once all behind it are flushed.
    fn resume(&mut self);

    /// From now on the connection may end at any time, for a reason outside of this direction: the
    /// first request to fail may do so with one of these statuses.
    fn cut(&mut self, first: &[CqeStatus]);

    /// The connection has ended in good order: everything has arrived.
    fn finish(&mut self, requester: Look<'_>, responder: Look<'_>);

    /// The connection was cut and is no more. What is not known to be done may be done, half done or
    /// not begun, in order. The model forgets all requests, and begins anew with memory as it is.
    fn settle(&mut self, requester: Look<'_>, responder: Look<'_>);
}
