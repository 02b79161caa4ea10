// SPDX-License-Identifier: GPL-2.0-or-later
//! A connection with traffic in both directions, and what its software does to it meanwhile: it drains
//! a send queue and goes on, breaks the connection, resets or destroys a QP, and makes it anew.

use std::time::Duration;

use ochre_hca::Time;
use ochre_hw::cmd::Opcode;
use ochre_hw::cqe::CqeStatus;
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::{qp_attr, QpAttr, QpState, QpType};

use crate::common::pair::{lid, Cabling, Pair};
use crate::common::peers::{attributes, connect, make_end, make_end_on, Cq, End, SIZES};
use crate::common::place::Room;
use crate::common::rng::Rng;
use crate::completions::{Completions, Queue};
use crate::lane::{Lane, Mix};
use crate::reference::reliable::Reliable;
use crate::reference::unreliable::Unreliable;
use crate::reference::{Image, Model};
use crate::tally::Tally;

/// What all connections of a run are like.
#[derive(Clone)]
pub struct Style {
    pub kind: QpType,
    pub room: Room,
    pub mix: Mix,
    /// The link may lose what an unreliable connection sends.
    pub is_lossy: bool,
    /// How often software interferes, in 10,000 rounds.
    pub trouble: u64,
    /// Retries for want of a receive.
    pub rnr_retry: u8,
}

/// How the first request may fail when the other end is gone or in the error state.
const GONE: [CqeStatus; 2] = [CqeStatus::WorkRequestFlushed, CqeStatus::RetryExceeded];
/// After this time nothing of a connection is under way any more.
const SILENCE: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// This end's send queue drains until its event comes.
    Draining(usize),
    /// It is drained, and stays so until then.
    Drained(usize, Time),
    /// This end's QP is in RESET, or no more. The other one has to find out, until then.
    Alone(usize, Time),
    /// Both ends complete what is left.
    Flushing,
    /// Until then packets of the old connection may come.
    Silent(Time),
}

/// A connection.
pub struct Connection {
    style: Style,
    rng: Rng,
    /// Port of each end.
    ports: [u8; 2],
    ends: [End; 2],
    /// `lanes[n]` goes from end `n` to the other.
    pub lanes: [Lane; 2],
    phase: Phase,
    /// Ends whose QP completes nothing any more.
    gone: [bool; 2],
    destroyed: [bool; 2],
    /// Ends that have posted a request in the error state.
    told: [bool; 2],
    /// Events of refused requests, at each end.
    refusals: [Vec<EventType>; 2],
    /// What its software has done.
    tally: Tally,
}

impl Connection {
    /// On port `port` of the first host, with CQs of its own or with `cqs`, those of each host.
    pub fn new(
        pair: &mut Pair,
        cabling: Cabling,
        port: u8,
        style: &Style,
        cqs: Option<&[[Cq; 2]; 2]>,
        rng: &mut Rng,
        repeats: bool,
    ) -> Self {
        let mut rng = Rng::new(rng.next());
        let ends = [0, 1].map(|n| {
            let host = pair.host(n);
            match cqs {
                None => make_end(host, style.kind, style.room, &mut rng),
                Some(cqs) => {
                    let cqs = cqs[n].clone();
                    make_end_on(host, style.kind, style.room, cqs, &mut rng)
                }
            }
        });
        let mut lane = |n: usize| {
            let (from, to) = (ends[n].place.clone(), ends[1 - n].place.clone());
            let results = Image::new(from.results, from.end, &|at, len| from.bytes(at, len));
            let look = |at, len| to.bytes(at, len);
            let model: Box<dyn Model> = if style.is_lossy {
                // Where messages may end in the middle, receives hold a part of them.
                let responder = Image::new(to.source, to.receives, &look);
                Box::new(Unreliable::new(responder, results, repeats))
            } else {
                let responder = Image::new(to.source, to.results, &look);
                Box::new(Reliable::new(responder, results))
            };
            Lane::new(rng.next(), style.mix.clone(), from, to, model)
        };
        let lanes = [lane(0), lane(1)];
        let mut connection = Connection {
            style: style.clone(),
            rng,
            ports: [port, cabling.peer(port)],
            ends,
            lanes,
            phase: Phase::Running,
            gone: [false; 2],
            destroyed: [false; 2],
            told: [false; 2],
            refusals: Default::default(),
            tally: Tally::default(),
        };
        connection.connect(pair);
        connection
    }

    /// Takes both QPs from RESET to RTS.
    fn connect(&mut self, pair: &mut Pair) {
        let rng = &mut self.rng;
        let mtu_code = rng.pick(&[1u8, 2, 3, 4, 5]);
        let depth = rng.pick(&[1u8, 2, 4, 16]);
        // Most connections pass the end of the PSNs.
        let psns = [0, 1].map(|_| (0xff_ffc0 + rng.below(80) as u32) & 0xff_ffff);
        for n in 0..2 {
            let (own, peer) = (&self.ends[n], &self.ends[1 - n]);
            let attr = QpAttr {
                path_mtu: mtu_code,
                sq_psn: psns[n],
                rq_psn: psns[1 - n],
                max_rd_atomic: depth,
                max_dest_rd_atomic: depth,
                rnr_retry: self.style.rnr_retry,
                ..attributes(peer.number, self.ports[n], lid(1 - n, self.ports[1 - n]))
            };
            connect(pair.host(n), self.style.kind, own.number, attr);
            self.lanes[n].set_mtu(128 << mtu_code);
            if self.style.rnr_retry < 7 {
                // A receiver may be too slow at any time.
                let slow = CqeStatus::RnrRetryExceeded;
                for lane in &mut self.lanes {
                    lane.model.cut(&[
                        CqeStatus::WorkRequestFlushed,
                        slow,
                        CqeStatus::RetryExceeded,
                    ]);
                }
            }
        }
        self.gone = [false; 2];
        self.destroyed = [false; 2];
        self.told = [false; 2];
        self.phase = Phase::Running;
    }

    pub fn is_done(&self) -> bool {
        self.phase == Phase::Running
            && self
                .lanes
                .iter()
                .all(|lane| lane.is_done() && !lane.has_failed)
    }

    pub fn state(&self) -> String {
        let [there, back] = [0, 1].map(|n| self.lanes[n].state());
        format!("{:?}: {there}; back {back}", self.phase)
    }

    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        tally += self.lanes[0].tally;
        tally += self.lanes[1].tally;
        tally
    }

    /// When software acts next by itself.
    pub fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Drained(_, until) | Phase::Alone(_, until) | Phase::Silent(until) => Some(until),
            _ => None,
        }
    }

    /// Whether an event is this connection's, which takes it.
    pub fn event(&mut self, host: usize, event: EventType, number: u32) -> bool {
        if self.ends[host].number != number {
            return false;
        }
        match event {
            EventType::QpSqDrained => {
                if self.phase == Phase::Draining(host) {
                    self.phase = Phase::Drained(host, Time::ZERO);
                    self.tally.drains += 1;
                } else {
                    assert_eq!(self.phase, Phase::Flushing, "drained unasked");
                }
            }
            EventType::QpAccessError | EventType::QpRequestError => {
                let requests = &self.lanes[1 - host].model;
                assert!(requests.must_fail(), "{event:?} without a wrong request");
                self.refusals[host].push(event);
            }
            other => panic!("{other:?} of QP {number:#x}"),
        }
        true
    }

    /// One round of the connection's software; whether it found something.
    pub fn round(&mut self, pair: &mut Pair, completions: &mut Completions) -> bool {
        let mut found = self.take_completions(completions);
        let now = pair.now;
        match self.phase {
            Phase::Running => {
                let goes_on = self.style.kind == QpType::Uc;
                if !goes_on && self.lanes.iter().any(|lane| lane.has_failed) {
                    self.end(pair);
                    return true;
                }
                if self.rng.below(10_000) < self.style.trouble {
                    self.interfere(pair, completions);
                    return true;
                }
                for n in 0..2 {
                    if self.lanes[n].has_failed && !self.lanes[n].sends_outstanding() {
                        self.resume(pair, n);
                    }
                    found |= self.post(pair, n, true);
                }
            }
            Phase::Draining(n) => {
                // Failures end it; the other end goes on.
                if self.lanes.iter().any(|lane| lane.has_failed) {
                    self.end(pair);
                    return true;
                }
                self.post(pair, 1 - n, true);
                self.post(pair, n, false);
            }
            Phase::Drained(n, until) => {
                if until == Time::ZERO {
                    self.phase = Phase::Drained(n, now + Duration::from_micros(300));
                    return true;
                }
                self.post(pair, 1 - n, true);
                self.post(pair, n, true);
                if now >= until {
                    self.modify(pair, n, QpState::Rts);
                    self.phase = Phase::Running;
                    return true;
                }
            }
            Phase::Alone(n, until) => {
                let other = &self.lanes[1 - n];
                if other.has_failed || !other.sends_outstanding() || now >= until {
                    self.end(pair);
                    return true;
                }
            }
            Phase::Flushing => {
                for n in 0..2 {
                    let guest = &mut self.ends[n].guest;
                    if !(self.gone[n] || self.told[n]) && self.lanes[n].post_to_error(guest) {
                        self.told[n] = true;
                        pair.host(n).ring(self.ends[n].number, guest);
                        found = true;
                    }
                }
                let is_over = (0..2).all(|n| {
                    self.gone[n]
                        || !(self.lanes[n].sends_outstanding()
                            || self.lanes[1 - n].receives_outstanding())
                });
                if is_over {
                    self.phase = Phase::Silent(now + SILENCE);
                    return true;
                }
            }
            Phase::Silent(until) => {
                if now >= until {
                    self.again(pair);
                    return true;
                }
            }
        }
        found
    }

    /// Takes and judges the completions of both ends.
    fn take_completions(&mut self, completions: &mut Completions) -> bool {
        let mut found = false;
        for n in 0..2 {
            let end = &mut self.ends[n];
            while let Some(cqe) = completions.next(n, end, Queue::Send) {
                assert!(!self.gone[n], "a completion of a QP that is no more");
                if matches!(self.phase, Phase::Drained(drained, t) if drained == n && t != Time::ZERO)
                {
                    let is_flush = cqe.status == CqeStatus::WorkRequestFlushed.raw();
                    assert!(is_flush, "a drained send queue goes on");
                }
                self.lanes[n].sent(&mut end.guest, &cqe);
                found = true;
            }
            while let Some(cqe) = completions.next(n, end, Queue::Receive) {
                assert!(!self.gone[n], "a completion of a QP that is no more");
                self.lanes[1 - n].received(&mut end.guest, &cqe);
                found = true;
            }
        }
        found
    }

    /// End `n` posts receives, and requests where it may; whether it posted requests.
    fn post(&mut self, pair: &mut Pair, n: usize, sends: bool) -> bool {
        let guest = &mut self.ends[n].guest;
        self.lanes[1 - n].post_receives(guest);
        if !sends || !self.lanes[n].post_sends(guest) {
            return false;
        }
        pair.host(n).ring(self.ends[n].number, guest);
        if self.style.kind == QpType::Rc && self.lanes[n].model.must_fail() {
            // Both ends go to the error state with it, and so does the other direction.
            self.lanes[1 - n].model.cut(&GONE);
        }
        true
    }

    /// End `n` sends again after a failed request, and the other end has noticed nothing.
    fn resume(&mut self, pair: &mut Pair, n: usize) {
        let states = [0, 1].map(|n| pair.host(n).query_qp(self.ends[n].number).state);
        assert_eq!(states[n], QpState::Sqe.raw());
        let peer_may = [QpState::Rts.raw(), QpState::Sqe.raw()];
        assert!(peer_may.contains(&states[1 - n]));
        self.modify(pair, n, QpState::Rts);
        self.lanes[n].resume();
        self.tally.resumed += 1;
    }

    /// Whether it went there.
    fn modify(&mut self, pair: &mut Pair, n: usize, state: QpState) -> bool {
        let mut mask = qp_attr::STATE;
        if state == QpState::Sqd {
            mask |= qp_attr::EN_SQD_ASYNC_NOTIFY;
        }
        let attr = QpAttr {
            state: state.raw(),
            sqd_event: 1,
            ..QpAttr::default()
        };
        let number = self.ends[n].number;
        let done = pair.host(n).modify_qp(number, mask, attr);
        // A QP that has failed, which nothing says yet, goes nowhere but to the error state.
        let may_have_failed =
            self.style.rnr_retry < 7 || self.lanes.iter().any(|lane| lane.model.must_fail());
        assert!(done.is_ok() || may_have_failed, "{state:?}: {done:?}");
        done.is_ok()
    }

    /// Software does something to the connection in the middle of its traffic.
    fn interfere(&mut self, pair: &mut Pair, completions: &mut Completions) {
        let n = self.rng.below(2) as usize;
        match self.rng.below(4) {
            0 => {
                if self.modify(pair, n, QpState::Sqd) {
                    self.phase = Phase::Draining(n);
                }
            }
            1 => {
                self.cut();
                self.end(pair);
            }
            what => {
                self.cut();
                if what == 2 {
                    self.modify(pair, n, QpState::Reset);
                } else {
                    let number = self.ends[n].number;
                    pair.host(n).destroy(Opcode::DestroyQp, number).unwrap();
                    self.destroyed[n] = true;
                }
                // What was completed before is still in the CQs; nothing comes after it.
                self.take_completions(completions);
                self.gone[n] = true;
                let patience = Duration::from_micros(self.rng.below(30_000));
                self.phase = Phase::Alone(n, pair.now + patience);
            }
        }
    }

    fn cut(&mut self) {
        for lane in &mut self.lanes {
            lane.model.cut(&GONE);
        }
    }

    /// Takes both ends to the error state, where everything outstanding is flushed, and what is posted
    /// there too.
    fn end(&mut self, pair: &mut Pair) {
        self.cut();
        self.tally.ends += 1;
        for n in 0..2 {
            if self.gone[n] {
                continue;
            }
            self.modify(pair, n, QpState::Error);
        }
        self.phase = Phase::Flushing;
    }

    /// Makes the connection anew.
    fn again(&mut self, pair: &mut Pair) {
        for n in 0..2 {
            let refusals = std::mem::take(&mut self.refusals[n]);
            let heard = self.lanes[1 - n].failure;
            // Who was told of a refusal, by the responder's NAK, had the responder make one event.
            match heard {
                Some(CqeStatus::RemoteAccess) => assert_eq!(refusals, [EventType::QpAccessError]),
                Some(CqeStatus::RemoteInvalidRequest) => {
                    // A message too long for its receive is told by that receive.
                    assert!(refusals.is_empty() || refusals == [EventType::QpRequestError]);
                }
                _ => assert!(refusals.len() <= 1),
            }
        }
        for n in 0..2 {
            self.lanes[n].settle();
        }
        for n in 0..2 {
            let host = pair.host(n);
            let end = &mut self.ends[n];
            let exists = !self.destroyed[n];
            if exists && self.rng.chance(50) {
                host.destroy(Opcode::DestroyQp, end.number).unwrap();
            } else if exists {
                let reset = QpAttr::default();
                host.modify_qp(end.number, qp_attr::STATE, reset).unwrap();
                end.guest.reset();
                continue;
            }
            let (number, guest) = host.create_qp(self.style.kind, end.pd, end.cqs, &SIZES);
            end.number = number;
            end.guest = guest;
        }
        self.connect(pair);
    }

    /// Checks what is left when all is done.
    pub fn finish(&mut self, pair: &mut Pair, completions: &mut Completions) {
        self.take_completions(completions);
        for n in 0..2 {
            self.lanes[n].finish();
            let state = pair.host(n).query_qp(self.ends[n].number).state;
            assert_eq!(state, QpState::Rts.raw());
        }
    }
}
