// SPDX-License-Identifier: GPL-2.0-or-later
//! Completions of CQs that many queues may share: each program is given its own.

use std::collections::{HashMap, VecDeque};

use ochre_hw::cqe::{Cqe, CqeOpcode};

use crate::common::pair::Pair;
use crate::common::peers::{Cq, End, SIZES};
use crate::common::place::SLOTS;
use crate::common::rng::Rng;

/// A queue whose requests complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    Send,
    Receive,
}

/// Completions that were taken from a CQ on the way to another queue's.
#[derive(Default)]
pub struct Completions {
    /// By host, QP and queue, each with the CQ that it came from.
    waiting: HashMap<(usize, u32, Queue), VecDeque<(u32, Cqe)>>,
}

impl Completions {
    /// The next completion of a queue of an end at `host`.
    pub fn next(&mut self, host: usize, end: &mut End, queue: Queue) -> Option<Cqe> {
        let wanted = (host, end.number, queue);
        let (number, cq) = match queue {
            Queue::Send => (end.cqs[0], &mut end.send_cq),
            Queue::Receive => (end.cqs[1], &mut end.recv_cq),
        };
        let waited = self.waiting.get_mut(&wanted).and_then(VecDeque::pop_front);
        if let Some((from, cqe)) = waited {
            assert_eq!(from, number, "the CQ of a completion of {wanted:x?}");
            return Some(cqe);
        }
        while let Some(cqe) = cq.poll() {
            let whose = (host, cqe.qpn, queue_of(&cqe));
            if whose == wanted {
                return Some(cqe);
            }
            let others = self.waiting.entry(whose).or_default();
            others.push_back((number, cqe));
        }
        None
    }

    /// Nobody may have been given what is not his.
    pub fn finish(&self) {
        for (whose, left) in &self.waiting {
            assert!(
                left.is_empty(),
                "{} completions that nobody wants, of {whose:x?}",
                left.len()
            );
        }
    }
}

fn queue_of(cqe: &Cqe) -> Queue {
    match CqeOpcode::from_raw(cqe.opcode).expect("an opcode") {
        CqeOpcode::Recv | CqeOpcode::RecvWriteImm => Queue::Receive,
        _ => Queue::Send,
    }
}

/// CQs of both hosts that so many QPs share, for sends and for receives: two, or one for both.
pub fn shared(pair: &mut Pair, qps: usize, rng: &mut Rng) -> [[Cq; 2]; 2] {
    let requests = (u64::from(SIZES.send_wr) + SLOTS) * qps as u64;
    let log = requests.next_power_of_two().trailing_zeros() as u8;
    let is_one = rng.chance(50);
    [0, 1].map(|n| {
        let sends = pair.host(n).create_cq(0, log);
        let receives = if is_one {
            sends.clone()
        } else {
            pair.host(n).create_cq(0, log)
        };
        [sends, receives]
    })
}
