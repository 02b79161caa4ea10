// SPDX-License-Identifier: GPL-2.0-or-later

//! What a responder has to send, in order: acknowledges, READ responses and atomic results. And what
//! it keeps to answer an atomic a second time.

use std::collections::VecDeque;

use ochre_wire::{Psn, Syndrome};

/// Most replies that wait.
const MAX_QUEUED: usize = 1024;

/// A READ response, sent packet by packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadReply {
    /// PSN of the request, and of the first packet.
    pub(crate) first: Psn,
    /// Packets of the whole response.
    pub(crate) packets: u32,
    /// Packets sent; the next one carries PSN `first + sent`.
    pub(crate) sent: u32,
    /// The packet at which the response was begun anew: it is marked as a first one.
    pub(crate) begun_at: u32,
    pub(crate) va: u64,
    pub(crate) key: u32,
    /// Bytes of the whole response.
    pub(crate) len: u32,
    /// Message sequence number once the READ was taken.
    pub(crate) msn: u32,
    /// It answers a request that was answered before.
    pub(crate) repeated: bool,
}

/// One thing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// An acknowledge, RNR NAK or NAK.
    Ack {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    /// The value before an atomic.
    Atomic {
        psn: Psn,
        value: u64,
        msn: u32,
        repeated: bool,
    },
    /// Data of a READ.
    Read(ReadReply),
}

/// The replies of one QP that are still to be sent, and the results of its last atomics.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    queue: VecDeque<Reply>,
    /// READs and atomics in `queue` that are answered for the first time.
    fresh: usize,
    /// And those that are answered again.
    repeated: usize,
    /// Results of the last atomics: PSN, value, MSN; the oldest first.
    results: VecDeque<(Psn, u64, u32)>,
}

impl Replies {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.results.clear();
        self.fresh = 0;
        self.repeated = 0;
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether so much waits that no more is taken: only a peer that ignores the limits comes here.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_QUEUED
    }

    /// READs and atomics whose first replies are not sent completely: what a requester has under
    /// way at least.
    #[inline]
    pub(crate) fn resources(&self) -> usize {
        self.fresh
    }

    /// READs and atomics that are being answered again.
    #[inline]
    pub(crate) fn repetitions(&self) -> usize {
        self.repeated
    }

    /// The next reply to send.
    #[inline]
    pub(crate) fn front(&mut self) -> Option<&mut Reply> {
        self.queue.front_mut()
    }

    /// The first reply is sent completely.
    #[inline]
    pub(crate) fn pop(&mut self) {
        match self.queue.pop_front() {
            Some(Reply::Atomic { repeated, .. } | Reply::Read(ReadReply { repeated, .. })) => {
                if repeated {
                    self.repeated -= 1;
                } else {
                    self.fresh -= 1;
                }
            }
            Some(Reply::Ack { .. }) | None => {}
        }
    }

    /// Adds an acknowledge, RNR NAK or NAK. It takes the place of an acknowledge just before it,
    /// which it covers.
    #[inline]
    pub(crate) fn ack(&mut self, psn: Psn, syndrome: Syndrome, msn: u32) {
        let reply = Reply::Ack { psn, syndrome, msn };
        match self.queue.back_mut() {
            Some(
                last @ Reply::Ack {
                    syndrome: Syndrome::Ack { .. },
                    ..
                },
            ) => *last = reply,
            _ => self.queue.push_back(reply),
        }
    }

    /// Adds the response to a READ.
    pub(crate) fn read(&mut self, read: ReadReply) {
        if read.repeated {
            self.repeated += 1;
        } else {
            self.drop_covered_ack();
            self.fresh += 1;
        }
        self.queue.push_back(Reply::Read(read));
    }

    /// Adds the result of a new atomic and keeps it, with at most `keep - 1` others.
    pub(crate) fn atomic(&mut self, psn: Psn, value: u64, msn: u32, keep: usize) {
        self.drop_covered_ack();
        while self.results.len() >= keep.max(1) {
            self.results.pop_front();
        }
        self.results.push_back((psn, value, msn));
        self.fresh += 1;
        self.queue.push_back(Reply::Atomic {
            psn,
            value,
            msn,
            repeated: false,
        });
    }

    /// An acknowledge that stands last is covered by the response that comes behind it.
    fn drop_covered_ack(&mut self) {
        if let Some(Reply::Ack {
            syndrome: Syndrome::Ack { .. },
            ..
        }) = self.queue.back()
        {
            self.queue.pop_back();
        }
    }

    /// Answers a repeated atomic from its kept result. `false` where that is gone, or where `most`
    /// replies with data wait already: the request is dropped, as if lost.
    pub(crate) fn repeat_atomic(&mut self, psn: Psn, most: usize) -> bool {
        let waits = |r: &Reply| matches!(r, Reply::Atomic { psn: p, .. } if *p == psn);
        if self.queue.iter().any(waits) {
            return true;
        }
        if self.repeated >= most {
            return false;
        }
        let Some(&(psn, value, msn)) = self.results.iter().rev().find(|r| r.0 == psn) else {
            return false;
        };
        self.repeated += 1;
        self.queue.push_back(Reply::Atomic {
            psn,
            value,
            msn,
            repeated: true,
        });
        true
    }

    /// A repeated READ at `psn`, where its response is still being sent: goes on from there at the
    /// latest. `false` where no response covers `psn` any more.
    pub(crate) fn rewind_read(&mut self, psn: Psn) -> bool {
        for reply in &mut self.queue {
            if let Reply::Read(read) = reply {
                let at = psn.since(read.first);
                if at < read.packets {
                    if at < read.sent {
                        read.sent = at;
                        read.begun_at = at;
                    }
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK: Syndrome = Syndrome::ACK_NO_CREDITS;

    fn read(first: u32, packets: u32) -> ReadReply {
        ReadReply {
            first: Psn::new(first),
            packets,
            sent: 0,
            begun_at: 0,
            va: 0,
            key: 0,
            len: packets * 256,
            msn: 0,
            repeated: false,
        }
    }

    #[test]
    fn acknowledges_join_but_do_not_pass_a_read() {
        let mut r = Replies::default();
        r.ack(Psn::new(1), ACK, 1);
        r.ack(Psn::new(2), ACK, 2);
        r.read(read(3, 2));
        r.ack(Psn::new(5), ACK, 4);
        r.ack(Psn::new(6), Syndrome::RnrNak { timer: 1 }, 4);
        // The READ response covers what came before it, the RNR NAK the acknowledge.
        assert!(matches!(r.front(), Some(Reply::Read(_))));
        assert_eq!(r.resources(), 1);
        r.pop();
        assert_eq!(r.resources(), 0);
        let Some(Reply::Ack { psn, syndrome, .. }) = r.front() else {
            panic!("an acknowledge is left");
        };
        assert_eq!(*psn, Psn::new(6));
        assert_eq!(*syndrome, Syndrome::RnrNak { timer: 1 });
        r.pop();
        assert!(r.is_empty());
    }

    #[test]
    fn a_nak_is_never_overwritten() {
        let mut r = Replies::default();
        r.ack(Psn::new(1), Syndrome::RnrNak { timer: 1 }, 1);
        r.ack(Psn::new(0), ACK, 1);
        assert!(matches!(
            r.front(),
            Some(Reply::Ack {
                syndrome: Syndrome::RnrNak { .. },
                ..
            })
        ));
    }

    #[test]
    fn a_read_goes_back_but_never_ahead() {
        let mut r = Replies::default();
        r.read(read(0xff_fffe, 8));
        if let Some(Reply::Read(read)) = r.front() {
            read.sent = 5;
        }
        assert!(r.rewind_read(Psn::new(0xff_fffe).add(6)));
        assert!(matches!(r.front(), Some(Reply::Read(read)) if read.sent == 5));
        assert!(r.rewind_read(Psn::new(0)));
        assert!(
            matches!(r.front(), Some(Reply::Read(read)) if read.sent == 2 && read.begun_at == 2)
        );
        assert!(!r.rewind_read(Psn::new(6)));
        assert!(!r.rewind_read(Psn::new(0xff_fffd)));
    }

    #[test]
    fn results_of_atomics_are_kept_up_to_the_limit() {
        let mut r = Replies::default();
        for n in 0..5 {
            r.atomic(Psn::new(n), u64::from(n) * 10, n, 4);
            r.pop();
        }
        assert!(!r.repeat_atomic(Psn::new(0), 4));
        assert!(r.repeat_atomic(Psn::new(1), 4));
        // Asked again before it is sent: one answer is enough.
        assert!(r.repeat_atomic(Psn::new(1), 4));
        assert_eq!((r.resources(), r.repetitions()), (0, 1));
        assert!(matches!(r.front(), Some(Reply::Atomic { value: 10, .. })));
        assert!(!r.repeat_atomic(Psn::new(2), 1));
    }
}
