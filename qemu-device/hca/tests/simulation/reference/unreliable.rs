// SPDX-License-Identifier: GPL-2.0-or-later
//! One direction of an unreliable connection.
//!
//! - Every request succeeds, in order, whatever becomes of it on the way; also one that the responder
//!   may not serve, which changes nothing there and takes no receive.
//! - A request with a wrong key of the own side fails, and what is posted after it is flushed, until
//!   software goes on.
//! - A SEND arrives whole or not at all, and what arrives does so in the order of sending. Nothing
//!   arrives twice, unless the link itself repeats packets: then a message may, at once.
//! - Software may break or reset either end at any time: then the requests that are left are flushed, in
//!   order, and so are the receives.
//! - A WRITE that does not arrive whole may have left a part of its bytes.

use std::collections::VecDeque;

use ochre_hw::cqe::CqeStatus;

use super::{
    is_there, scatter, Completion, Effects, Image, Look, Model, Operation, Receive, Request,
};

/// A request whose end the requester does not know of, and how it must end.
struct Posted {
    request: Request,
    status: CqeStatus,
}

/// Bytes of a WRITE.
struct Written {
    request: u64,
    effects: Effects,
    /// They were all there at a time when nothing of later WRITEs was.
    is_certain: bool,
}

pub struct Unreliable {
    responder: Image,
    requester: Image,
    /// The link repeats packets.
    repeats: bool,
    requests: VecDeque<Posted>,
    /// A request has failed since software went on.
    is_broken: bool,
    /// The connection may end at any time, and nothing is sent any more.
    is_cut: bool,
    /// It has ended: nothing but flushes comes, of sends and of receives.
    sends_flushed: bool,
    receives_flushed: bool,
    receives: VecDeque<Receive>,
    /// Messages that may still arrive.
    messages: VecDeque<Request>,
    last: Option<Request>,
    writes: Vec<Written>,
    sent: u64,
    arrived: u64,
}

impl Unreliable {
    /// Between a responder whose memory requests act on and a requester's memory that stays as it is.
    pub fn new(responder: Image, requester: Image, repeats: bool) -> Self {
        Unreliable {
            responder,
            requester,
            repeats,
            requests: VecDeque::new(),
            is_broken: false,
            is_cut: false,
            sends_flushed: false,
            receives_flushed: false,
            receives: VecDeque::new(),
            messages: VecDeque::new(),
            last: None,
            writes: Vec::new(),
            sent: 0,
            arrived: 0,
        }
    }

    /// How a request that is posted now must end.
    fn status(&self, request: &Request) -> CqeStatus {
        if self.is_broken || self.is_cut {
            CqeStatus::WorkRequestFlushed
        } else if !request.own_key && request.len() > 0 {
            CqeStatus::LocalProtection
        } else {
            CqeStatus::Success
        }
    }

    /// Whether the responder may serve it. No byte is touched by a message without bytes.
    fn is_allowed(&self, request: &Request) -> bool {
        match request.operation {
            Operation::Write { at, .. } if request.len() > 0 => {
                request.key && self.responder.has(at, request.len())
            }
            _ => true,
        }
    }

    /// It is on its way.
    fn go(&mut self, request: &Request) {
        if let Operation::Write { at, bytes } = &request.operation {
            self.writes.push(Written {
                request: request.id,
                effects: vec![(*at, bytes.clone())],
                is_certain: false,
            });
        }
        if request.takes_receive() {
            self.sent += 1;
            self.messages.push_back(request.clone());
        }
    }

    /// Whether a completed receive can be this message.
    fn is(request: &Request, receive: &Receive, c: &Completion, look: Look<'_>) -> bool {
        let expected = Completion {
            id: receive.id,
            opcode: request.receive_opcode(),
            status: CqeStatus::Success,
            len: request.len(),
            imm: request.imm,
            solicited: request.solicited,
        };
        let content = match &request.operation {
            Operation::Send { bytes } => scatter(&receive.into, bytes),
            _ => Effects::new(),
        };
        *c == expected && is_there(&content, look)
    }
}

impl Model for Unreliable {
    fn post(&mut self, request: Request) {
        assert!(
            !request.has_result(),
            "no answer comes on such a connection"
        );
        let status = self.status(&request);
        self.is_broken = status != CqeStatus::Success;
        if !self.is_broken && self.is_allowed(&request) {
            self.go(&request);
        }
        self.requests.push_back(Posted { request, status });
    }

    fn post_receive(&mut self, receive: Receive) {
        self.receives.push_back(receive);
    }

    fn sent(&mut self, c: &Completion, _: Look<'_>) {
        self.sends_flushed |= self.is_cut && c.status == CqeStatus::WorkRequestFlushed;
        loop {
            let posted = self.requests.pop_front().expect("a request is under way");
            let Posted { request, status } = posted;
            let is_silent = !request.signaled && status == CqeStatus::Success;
            if request.id != c.id {
                assert!(
                    is_silent,
                    "request {} completes before {}",
                    request.id, c.id
                );
                continue;
            }
            assert!(
                !is_silent || self.sends_flushed,
                "request {} is unsignaled",
                c.id
            );
            let expected = Completion {
                id: request.id,
                opcode: request.opcode(),
                status: if self.sends_flushed {
                    CqeStatus::WorkRequestFlushed
                } else {
                    status
                },
                len: 0,
                imm: None,
                solicited: false,
            };
            assert_eq!(*c, expected);
            return;
        }
    }

    fn received(&mut self, c: &Completion, look: Look<'_>) {
        let receive = self.receives.pop_front().expect("a receive is posted");
        if c.status == CqeStatus::WorkRequestFlushed {
            assert_eq!(c.id, receive.id, "receives are flushed in order");
            assert!(
                self.is_cut,
                "receive {} is flushed, and nothing has failed",
                c.id
            );
            self.receives_flushed = true;
            return;
        }
        assert!(!self.receives_flushed, "receive {} after a flush", c.id);
        let repeated = self.last.as_ref().filter(|_| self.repeats);
        if repeated.is_some_and(|last| Self::is(last, &receive, c, look)) {
            return;
        }
        // Those before it are lost: what arrives does so in order.
        let message = loop {
            let next = self.messages.pop_front();
            let next = next.unwrap_or_else(|| panic!("no message sent is what arrived: {c:?}"));
            if Self::is(&next, &receive, c, look) {
                break next;
            }
        };
        let id = message.id;
        if let Some(write) = self.writes.iter_mut().rfind(|w| w.request == id) {
            write.is_certain = true;
        }
        self.last = Some(message);
        self.arrived += 1;
    }

    fn room(&self) -> Option<u64> {
        None
    }

    fn wanted(&self) -> Option<u64> {
        None
    }

    fn is_read(&self, _: u64, _: u64) -> bool {
        false
    }

    fn must_fail(&self) -> bool {
        self.is_broken
    }

    fn resume(&mut self) {
        assert!(self.is_broken && self.requests.is_empty());
        self.is_broken = false;
    }

    fn cut(&mut self, _: &[CqeStatus]) {
        self.is_cut = true;
    }

    fn finish(&mut self, requester: Look<'_>, responder: Look<'_>) {
        assert!(self.requests.is_empty(), "requests without an end");
        assert!(
            self.arrived * 3 >= self.sent,
            "{} messages of {} arrived: more than the link loses are lost",
            self.arrived,
            self.sent
        );
        self.requester.check(requester, "requester");
        let writes = self.writes.iter().map(|w| (&w.effects, w.is_certain));
        self.responder.check_any(writes, responder);
    }

    fn settle(&mut self, _: Look<'_>, _: Look<'_>) {
        self.requests.clear();
        self.receives.clear();
        // They may have come nowhere, and it was no link that lost them.
        self.sent -= self.messages.len() as u64;
        self.messages.clear();
        self.last = None;
        self.is_broken = false;
        self.is_cut = false;
        self.sends_flushed = false;
        self.receives_flushed = false;
    }
}
