// SPDX-License-Identifier: GPL-2.0-or-later
//! One direction of a reliable connection.
//!
//! - Each request takes effect once, in the order of posting, and completes in that order.
//! - A SEND, and a WRITE with immediate data, takes the responder's oldest receive; without one it
//!   waits, and so does what was posted behind it.
//! - A request with a wrong key, beyond the region, misaligned or too long for its receive fails and
//!   takes no effect. It is the last one: what was posted behind it is flushed, on both sides.
//! - An unsignaled request that succeeds says nothing; the next completion tells that it is done.

use std::collections::VecDeque;

use ochre_hw::cqe::CqeStatus;

use super::{
    is_there, length, scatter, Completion, Effects, Image, Look, Model, Operation, Piece, Receive,
    Request,
};

const RESPONDER: usize = 0;
const REQUESTER: usize = 1;

/// A request whose end the requester does not know of.
struct Posted {
    request: Request,
    /// How it ends, once that is certain.
    status: Option<CqeStatus>,
}

/// A receive that is used up.
struct Arrival {
    /// The request that used it.
    request: u64,
    completion: Completion,
    content: Effects,
}

/// What a request has done to one side's memory.
struct Done {
    request: u64,
    effects: Effects,
}

pub struct Reliable {
    /// The responder's memory after all requests that could be executed.
    now: Image,
    /// Memory of both sides after those that are known to be done.
    sure: [Image; 2],
    /// What lies between, in order.
    between: [VecDeque<Done>; 2],
    requests: VecDeque<Posted>,
    /// Of `requests`, those that are executed, or failed.
    executed: usize,
    receives: VecDeque<Receive>,
    /// Of `receives`, those that are used up.
    used: usize,
    arrivals: VecDeque<Arrival>,
    /// A request failed: none behind it is executed.
    stopped: bool,
    /// It was wrong.
    refused: bool,
    /// The first request that was flushed, or failed, and had not been executed.
    waited: Option<Request>,
    /// What else may be the first status of a failed request; empty where nothing else may fail.
    cut: Vec<CqeStatus>,
    sends_failed: bool,
    receives_failed: bool,
}

impl Reliable {
    /// Between a responder whose memory requests act on and a requester's memory that results come to.
    pub fn new(responder: Image, requester: Image) -> Self {
        Reliable {
            now: responder.clone(),
            sure: [responder, requester],
            between: Default::default(),
            requests: VecDeque::new(),
            executed: 0,
            receives: VecDeque::new(),
            used: 0,
            arrivals: VecDeque::new(),
            stopped: false,
            refused: false,
            waited: None,
            cut: Vec::new(),
            sends_failed: false,
            receives_failed: false,
        }
    }

    /// Why a request must fail, if it must.
    fn refusal(&self, request: &Request) -> Option<CqeStatus> {
        let len = request.len();
        if !request.own_key && len > 0 {
            return Some(CqeStatus::LocalProtection);
        }
        let (at, is_atomic) = match request.operation {
            Operation::Send { .. } => return None,
            Operation::Write { at, .. } | Operation::Read { at, .. } => (at, false),
            Operation::CompareSwap { at, .. } | Operation::FetchAdd { at, .. } => (at, true),
        };
        if is_atomic && at % 8 != 0 {
            return Some(CqeStatus::RemoteInvalidRequest);
        }
        // No byte is touched by a message without bytes.
        let refused = len > 0 && !(request.key && self.now.has(at, len));
        refused.then_some(CqeStatus::RemoteAccess)
    }

    /// Executes what can be executed.
    fn execute(&mut self) {
        while !self.stopped && self.executed < self.requests.len() {
            let request = self.requests[self.executed].request.clone();
            let status = match self.refusal(&request) {
                Some(status) => status,
                None if request.takes_receive() => {
                    let Some(receive) = self.receives.get(self.used).cloned() else {
                        return;
                    };
                    self.used += 1;
                    self.arrive(&request, &receive)
                }
                None => {
                    self.act(&request);
                    CqeStatus::Success
                }
            };
            self.refused = status != CqeStatus::Success;
            self.stopped = self.refused;
            self.requests[self.executed].status = Some(status);
            self.executed += 1;
        }
    }

    /// A message that takes a receive.
    fn arrive(&mut self, request: &Request, receive: &Receive) -> CqeStatus {
        let mut content = Effects::new();
        let mut status = CqeStatus::Success;
        if let Operation::Send { bytes } = &request.operation {
            content = scatter(&receive.into, bytes);
            if request.len() > length(&receive.into) {
                status = CqeStatus::LocalLength;
            }
        }
        let is_whole = status == CqeStatus::Success;
        self.arrivals.push_back(Arrival {
            request: request.id,
            completion: Completion {
                id: receive.id,
                opcode: request.receive_opcode(),
                status,
                len: if is_whole { request.len() } else { 0 },
                imm: request.imm.filter(|_| is_whole),
                solicited: request.solicited && is_whole,
            },
            content: content.clone(),
        });
        if matches!(request.operation, Operation::Send { .. }) {
            self.note(RESPONDER, request.id, content);
        } else {
            self.act(request);
        }
        if is_whole {
            CqeStatus::Success
        } else {
            CqeStatus::RemoteInvalidRequest
        }
    }

    /// A request for memory.
    fn act(&mut self, request: &Request) {
        let id = request.id;
        match &request.operation {
            Operation::Send { .. } => unreachable!("a SEND takes a receive"),
            Operation::Write { at, bytes } => {
                self.note(RESPONDER, id, vec![(*at, bytes.clone())]);
            }
            Operation::Read { at, into } => {
                let bytes = self.now.get(*at, length(into)).to_vec();
                self.note(REQUESTER, id, scatter(into, &bytes));
            }
            Operation::CompareSwap {
                at,
                compare,
                swap,
                into,
            } => {
                let was = self.now.word(*at);
                let next = if was == *compare { *swap } else { was };
                self.atomic(id, *at, was, next, into);
            }
            Operation::FetchAdd { at, add, into } => {
                let was = self.now.word(*at);
                self.atomic(id, *at, was, was.wrapping_add(*add), into);
            }
        }
    }

    fn atomic(&mut self, id: u64, at: u64, was: u64, next: u64, into: &[Piece]) {
        self.note(RESPONDER, id, vec![(at, next.to_le_bytes().to_vec())]);
        self.note(REQUESTER, id, scatter(into, &was.to_le_bytes()));
    }

    fn note(&mut self, side: usize, request: u64, effects: Effects) {
        if side == RESPONDER {
            self.now.apply(&effects);
        }
        self.between[side].push_back(Done { request, effects });
    }

    /// All requests up to this one are known to have acted on a side's memory.
    fn certain(&mut self, side: usize, upto: u64) {
        let between = &mut self.between[side];
        while between.front().is_some_and(|done| done.request <= upto) {
            let done = between.pop_front().expect("it is there");
            self.sure[side].apply(&done.effects);
        }
    }

    /// Takes the oldest request off as done, and checks what it has brought.
    fn done(&mut self, look: Look<'_>) -> Request {
        let posted = self.requests.pop_front().expect("a request is under way");
        let id = posted.request.id;
        assert_eq!(
            posted.status,
            Some(CqeStatus::Success),
            "how request {id} must end; it succeeded"
        );
        self.executed -= 1;
        let result = self.between[REQUESTER].iter().find(|d| d.request == id);
        let is_right = result.is_none_or(|d| is_there(&d.effects, look));
        assert!(is_right, "the result of request {id} is there");
        self.certain(RESPONDER, id);
        self.certain(REQUESTER, id);
        posted.request
    }

    /// Forgets all requests.
    fn forget(&mut self) {
        self.requests.clear();
        self.receives.clear();
        self.arrivals.clear();
        self.cut.clear();
        self.executed = 0;
        self.used = 0;
        self.stopped = false;
        self.refused = false;
        self.waited = None;
        self.sends_failed = false;
        self.receives_failed = false;
    }
}

impl Model for Reliable {
    fn post(&mut self, request: Request) {
        self.requests.push_back(Posted {
            request,
            status: None,
        });
        self.execute();
    }

    fn post_receive(&mut self, receive: Receive) {
        self.receives.push_back(receive);
        self.execute();
    }

    fn sent(&mut self, c: &Completion, look: Look<'_>) {
        // What stands before it succeeded, and was not to say so.
        while self.requests.front().is_some_and(|p| p.request.id != c.id) {
            assert!(!self.sends_failed, "a flush leaves no request out");
            let silent = self.done(look);
            assert!(
                !silent.signaled,
                "request {} completes before {}",
                silent.id, c.id
            );
        }
        if c.status == CqeStatus::Success {
            assert!(!self.sends_failed, "request {} after a failed one", c.id);
            let request = self.done(look);
            assert!(request.signaled, "request {} is unsignaled", c.id);
            let len = if request.has_result() {
                request.len()
            } else {
                0
            };
            assert_eq!(
                *c,
                Completion {
                    id: request.id,
                    opcode: request.opcode(),
                    status: CqeStatus::Success,
                    len,
                    imm: None,
                    solicited: false,
                }
            );
            return;
        }
        let posted = self.requests.pop_front().expect("a request is under way");
        self.executed = self.executed.saturating_sub(1);
        assert_eq!(c.opcode, posted.request.opcode());
        let is_first = !std::mem::replace(&mut self.sends_failed, true);
        if is_first {
            self.stopped = true;
            let is_due = posted.status == Some(c.status) || self.cut.contains(&c.status);
            assert!(
                is_due,
                "request {} failed with {:?}, it must end with {:?}; others: {:?}",
                c.id, c.status, posted.status, self.cut
            );
        } else {
            assert_eq!(c.status, CqeStatus::WorkRequestFlushed, "request {}", c.id);
        }
        if posted.status.is_none() && self.waited.is_none() {
            self.waited = Some(posted.request);
        }
    }

    fn received(&mut self, c: &Completion, look: Look<'_>) {
        let receive = self.receives.pop_front().expect("a receive is posted");
        assert_eq!(c.id, receive.id, "receives complete in order");
        if c.status == CqeStatus::WorkRequestFlushed {
            assert!(
                self.stopped || !self.cut.is_empty(),
                "receive {} is flushed, and nothing has failed",
                c.id
            );
            self.receives_failed = true;
            if self.used > 0 {
                self.used -= 1;
                self.arrivals.pop_front();
            }
            return;
        }
        assert!(!self.receives_failed, "receive {} after a flush", c.id);
        let arrival = self.arrivals.pop_front().expect("a message was sent");
        self.used -= 1;
        assert_eq!(*c, arrival.completion);
        if c.status == CqeStatus::Success {
            assert!(
                is_there(&arrival.content, look),
                "the content of receive {} is there",
                c.id
            );
            self.certain(RESPONDER, arrival.request);
        }
    }

    fn room(&self) -> Option<u64> {
        if self.executed < self.requests.len() || self.stopped {
            return None;
        }
        self.receives.get(self.used).map(|r| length(&r.into))
    }

    fn wanted(&self) -> Option<u64> {
        let waiting = self.requests.get(self.executed)?;
        let is_send = matches!(waiting.request.operation, Operation::Send { .. });
        (!self.stopped).then(|| if is_send { waiting.request.len() } else { 0 })
    }

    fn is_read(&self, at: u64, len: u64) -> bool {
        self.requests.iter().any(|p| match &p.request.operation {
            Operation::Read { at: from, into } => *from < at + len && at < *from + length(into),
            _ => false,
        })
    }

    fn must_fail(&self) -> bool {
        self.refused
    }

    fn resume(&mut self) {
        unreachable!("a reliable connection ends with its first failure");
    }

    fn cut(&mut self, first: &[CqeStatus]) {
        self.cut.extend(first);
    }

    fn finish(&mut self, requester: Look<'_>, responder: Look<'_>) {
        assert!(self.requests.is_empty(), "requests without an end");
        assert!(self.arrivals.is_empty(), "messages that did not arrive");
        assert!(self.between.iter().all(VecDeque::is_empty));
        self.sure[RESPONDER].check(responder, "responder");
        self.sure[REQUESTER].check(requester, "requester");
    }

    fn settle(&mut self, requester: Look<'_>, responder: Look<'_>) {
        let mut effects = self.between.each_mut().map(|between| {
            let done = between.drain(..).map(|done| done.effects);
            done.collect::<Vec<_>>()
        });
        // A WRITE that waits for its receive may have come but for its end.
        let next = self.requests.get(self.executed).filter(|_| !self.stopped);
        let waiting = self.waited.as_ref().or(next.map(|posted| &posted.request));
        if let Some(Operation::Write { at, bytes }) = waiting.map(|w| &w.operation) {
            effects[RESPONDER].push(vec![(*at, bytes.clone())]);
        }
        self.sure[RESPONDER].advance(&effects[RESPONDER], responder, "responder");
        self.sure[REQUESTER].advance(&effects[REQUESTER], requester, "requester");
        self.now = self.sure[RESPONDER].clone();
        self.forget();
    }
}
