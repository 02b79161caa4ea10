// SPDX-License-Identifier: GPL-2.0-or-later
//! The traffic of one end: groups of SEND, WRITE, READ and fetch-and-add, and what comes from the peer.
//!
//! Every byte and every order is checked. A SEND's data name its group, the READ gives back what the WRITE
//! has left at the peer, and the atomic counts the groups there: it would show one that was done twice.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};

use crate::ffi;
use crate::peer::Ends;
use crate::verbs::{
    Context, Domain, Path, Qp, Queue, Region, Request, DEVICE_FATAL, FLUSHED, RETRY_EXCEEDED,
    SUCCESS,
};

/// Groups under way.
const WINDOW: usize = 4;
/// Requests of a group.
const REQUESTS: usize = 4;
/// Receives that are posted: those of two windows, and one for the goodbye.
const RECEIVES: usize = 2 * WINDOW + 1;
/// Bytes of the last message.
const GOODBYE: usize = 4;
/// How long requests may take to be flushed once the first has failed.
const FLUSH: Duration = Duration::from_secs(120);
/// How long after a failed call the event may come that explains it.
const EXPLAINED: Duration = Duration::from_secs(60);

/// How the traffic ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both ends have said goodbye.
    Stopped,
    /// The peer did not answer.
    RetriesExceeded,
    /// The device has gone or has stopped.
    DeviceGone,
}

/// Bytes that differ by group.
fn pattern(seed: u64, group: u64, out: &mut [u8]) {
    let mut state = seed ^ group.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (n, word) in out.chunks_exact_mut(8).enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = if n == 0 { group } else { state };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Where things lie in the region, with messages of `size` bytes.
struct Layout {
    size: usize,
}

impl Layout {
    fn source(&self, slot: usize) -> usize {
        slot * self.size
    }

    fn readback(&self, slot: usize) -> usize {
        (WINDOW + slot) * self.size
    }

    /// What the peer writes and reads.
    fn remote(&self, slot: usize) -> usize {
        (2 * WINDOW + slot) * self.size
    }

    fn receive(&self, n: usize) -> usize {
        (3 * WINDOW + n) * self.size
    }

    fn result(&self, slot: usize) -> usize {
        (3 * WINDOW + RECEIVES) * self.size + 8 * slot
    }

    /// What the peer's atomics count up.
    fn counter(&self) -> usize {
        self.result(WINDOW)
    }

    fn len(&self) -> usize {
        self.counter() + 8
    }
}

/// One end of the traffic.
pub(crate) struct Stream {
    qp: Qp,
    queue: Rc<Queue>,
    region: Region,
    context: Rc<Context>,
    layout: Layout,
    seed: u64,
    psn: u32,
    peer: Option<Ends>,
    /// Groups begun and groups that have completed.
    begun: u64,
    done: u64,
    /// Least time between two groups, and when the next may begin.
    pace: Duration,
    next: Instant,
    /// Groups of the peer that have arrived.
    received: u64,
    /// Requests and receives under way.
    sends: usize,
    receives: usize,
    leaving: bool,
    said_goodbye: bool,
    heard_goodbye: bool,
    wanted: Vec<u8>,
    found: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(device: &str, size: usize, seed: u64, pace: Duration) -> Result<Self> {
        let context = Context::open(device)?;
        let domain = Domain::new(&context)?;
        let layout = Layout { size };
        let region = Region::new(&domain, layout.len())?;
        let sends = (REQUESTS * WINDOW + 1) as u32;
        let queue = Queue::new(&context, sends + RECEIVES as u32)?;
        let qp = Qp::new(&domain, &queue, sends, RECEIVES as u32)?;
        qp.init()?;
        let mut stream = Stream {
            qp,
            queue,
            region,
            context,
            layout,
            seed,
            psn: seed as u32 & 0xff_ffff,
            peer: None,
            begun: 0,
            done: 0,
            pace,
            next: Instant::now(),
            received: 0,
            sends: 0,
            receives: 0,
            leaving: false,
            said_goodbye: false,
            heard_goodbye: false,
            wanted: vec![0; size],
            found: vec![0; size],
        };
        for n in 0..RECEIVES {
            stream.post_receive(n)?;
        }
        Ok(stream)
    }

    /// What the peer has to know.
    pub(crate) fn ends(&self) -> Result<Ends> {
        let (lid, mtu) = self.context.port()?;
        Ok(Ends {
            lid,
            mtu,
            qpn: self.qp.number(),
            psn: self.psn,
            seed: self.seed,
            slots: self.region.addr(self.layout.remote(0)),
            counter: self.region.addr(self.layout.counter()),
            rkey: self.region.rkey(),
            size: self.layout.size as u64,
        })
    }

    pub(crate) fn connect(&mut self, peer: Ends, timeout: u8, retries: u8) -> Result<()> {
        ensure!(
            peer.size == self.layout.size as u64,
            "the peer's messages have {} bytes, ours {}",
            peer.size,
            self.layout.size
        );
        let (_, mtu) = self.context.port()?;
        self.qp.connect(&Path {
            qpn: peer.qpn,
            lid: peer.lid,
            psn: peer.psn,
            own_psn: self.psn,
            mtu: mtu.min(peer.mtu),
            timeout,
            retries,
        })?;
        self.peer = Some(peer);
        Ok(())
    }

    /// Groups that have completed, and groups of the peer that have arrived.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.done, self.received)
    }

    /// Sends and receives until `stop` is set, the peer says goodbye, or something ends it. `tell` is called
    /// as soon as both directions flow, and about once a second.
    pub(crate) fn run(&mut self, stop: &AtomicBool, mut tell: impl FnMut(&Self)) -> Result<End> {
        let mut told = Instant::now();
        let mut flows = false;
        loop {
            self.leaving |= stop.load(Ordering::Relaxed) || self.heard_goodbye;
            if let Some(end) = self.post().or_else(|error| self.or_gone(error))? {
                return Ok(end);
            }
            if self.said_goodbye && self.heard_goodbye && self.sends == 0 {
                return Ok(End::Stopped);
            }
            let begins = !flows && self.done > 0 && self.received > 0;
            flows |= begins;
            if begins || told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                tell(self);
            }
            if let Some(end) = self.step().or_else(|error| self.or_gone(error))? {
                return Ok(end);
            }
        }
    }

    /// A call that failed because the device is going is no error; its event tells.
    fn or_gone(&self, error: anyhow::Error) -> Result<Option<End>> {
        let until = Instant::now() + EXPLAINED;
        while Instant::now() < until {
            if self.queue.wait(200)?.event && self.gone() {
                return Ok(Some(End::DeviceGone));
            }
        }
        Err(error)
    }

    /// Takes an event of the device: whether the device has gone.
    fn gone(&self) -> bool {
        // The events of a device that was taken away cannot be read any more.
        self.context
            .event()
            .map_or(true, |event| event == DEVICE_FATAL)
    }

    /// Handles completions, or waits for some.
    fn step(&mut self) -> Result<Option<End>> {
        self.queue.arm()?;
        let mut any = false;
        while let Some(wc) = self.queue.poll()? {
            any = true;
            if wc.status != SUCCESS {
                return self.failed(&wc).map(Some);
            }
            self.completed(&wc)?;
        }
        if any {
            return Ok(None);
        }
        let ms = if self.may_begin() {
            self.pace.as_millis().clamp(1, 500) as u16
        } else {
            500
        };
        let found = self.queue.wait(ms)?;
        if found.completion {
            self.queue.take_event()?;
        }
        Ok((found.event && self.gone()).then_some(End::DeviceGone))
    }

    fn post_receive(&mut self, n: usize) -> Result<()> {
        let at = self.layout.receive(n);
        self.qp
            .post_recv(n as u64, &self.region, at, self.layout.size)?;
        self.receives += 1;
        Ok(())
    }

    /// Whether another group may be under way.
    fn may_begin(&self) -> bool {
        !self.leaving && self.begun - self.done < WINDOW as u64
    }

    /// Begins what may begin.
    fn post(&mut self) -> Result<Option<End>> {
        let Some(peer) = self.peer else {
            bail!("not connected");
        };
        while self.may_begin() && Instant::now() >= self.next {
            self.next = Instant::now() + self.pace;
            let slot = (self.begun % WINDOW as u64) as usize;
            let (source, size) = (self.layout.source(slot), self.layout.size);
            pattern(self.seed, self.begun, &mut self.wanted);
            self.region.write(source, &self.wanted);
            let theirs = peer.slots + (slot * size) as u64;
            let requests = [
                (Request::Send, source, size),
                (Request::Write(theirs, peer.rkey), source, size),
                (
                    Request::Read(theirs, peer.rkey),
                    self.layout.readback(slot),
                    size,
                ),
                (
                    Request::FetchAdd(peer.counter, peer.rkey),
                    self.layout.result(slot),
                    8,
                ),
            ];
            for (n, (request, at, len)) in requests.into_iter().enumerate() {
                let id = self.begun * REQUESTS as u64 + n as u64;
                self.qp.post(id, request, &self.region, at, len)?;
                self.sends += 1;
            }
            self.begun += 1;
        }
        if self.leaving && !self.said_goodbye && self.done == self.begun {
            let at = self.layout.source(0);
            self.qp
                .post(u64::MAX, Request::Send, &self.region, at, GOODBYE)?;
            self.sends += 1;
            self.said_goodbye = true;
        }
        Ok(None)
    }

    fn completed(&mut self, wc: &ffi::ibv_wc) -> Result<()> {
        if wc.opcode & ffi::IBV_WC_RECV != 0 {
            return self.arrived(wc);
        }
        self.sends -= 1;
        if wc.wr_id == u64::MAX {
            return Ok(());
        }
        let (group, step) = (wc.wr_id / REQUESTS as u64, wc.wr_id % REQUESTS as u64);
        ensure!(
            group == self.done,
            "group {group} completes before {}",
            self.done
        );
        let slot = (group % WINDOW as u64) as usize;
        if step == 2 {
            pattern(self.seed, group, &mut self.wanted);
            self.region
                .read(self.layout.readback(slot), &mut self.found);
            self.compare(&format!("READ of group {group}"))?;
        } else if step == 3 {
            let mut before = [0; 8];
            self.region.read(self.layout.result(slot), &mut before);
            let before = u64::from_ne_bytes(before);
            ensure!(
                before == group,
                "the atomic of group {group} found {before}"
            );
            self.done += 1;
        }
        Ok(())
    }

    /// A message of the peer.
    fn arrived(&mut self, wc: &ffi::ibv_wc) -> Result<()> {
        self.receives -= 1;
        let n = wc.wr_id as usize;
        if wc.byte_len as usize == GOODBYE {
            ensure!(!self.heard_goodbye, "the peer says goodbye twice");
            self.heard_goodbye = true;
            return Ok(());
        }
        let length = wc.byte_len as usize;
        ensure!(length == self.layout.size, "a message of {length} bytes");
        ensure!(!self.heard_goodbye, "a message after the goodbye");
        let seed = self.peer.map_or(0, |peer| peer.seed);
        pattern(seed, self.received, &mut self.wanted);
        self.region.read(self.layout.receive(n), &mut self.found);
        self.compare(&format!("message {}", self.received))?;
        self.received += 1;
        self.post_receive(n)
    }

    fn compare(&self, what: &str) -> Result<()> {
        let wrong = self
            .wanted
            .iter()
            .zip(&self.found)
            .position(|(a, b)| a != b);
        if let Some(at) = wrong {
            bail!(
                "{what}: byte {at} is {:#x}, expected {:#x}",
                self.found[at],
                self.wanted[at]
            );
        }
        Ok(())
    }

    /// A request has failed. All others have to be flushed then, none may succeed.
    fn failed(&mut self, first: &ffi::ibv_wc) -> Result<End> {
        // A device that has gone flushes everything; software does the same where it ends.
        let end = match first.status {
            RETRY_EXCEEDED => End::RetriesExceeded,
            FLUSHED => End::DeviceGone,
            status => bail!("completion {:#x} has status {status}", first.wr_id),
        };
        // Which queue it is of stands in the identifier only: the opcode of a failed request is undefined.
        let mut left = self.sends + self.receives - 1;
        let until = Instant::now() + FLUSH;
        while left > 0 {
            match self.queue.poll()? {
                Some(wc) if wc.status == FLUSHED => left -= 1,
                Some(wc) => bail!("after a failure, {:#x} has status {}", wc.wr_id, wc.status),
                None => {
                    let found = self.queue.wait(100)?;
                    if found.event && self.gone() {
                        return Ok(End::DeviceGone);
                    }
                    ensure!(Instant::now() < until, "{left} requests are not flushed");
                }
            }
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_and_name_their_group() {
        let make = |seed, group| {
            let mut bytes = [0; 64];
            pattern(seed, group, &mut bytes);
            bytes
        };
        assert_eq!(make(1, 7)[..8], 7u64.to_le_bytes());
        assert_ne!(make(1, 7)[8..], make(1, 8)[8..]);
        assert_ne!(make(1, 7)[8..], make(2, 7)[8..]);
        assert_eq!(make(3, 9), make(3, 9));
    }

    #[test]
    fn nothing_overlaps() {
        let layout = Layout { size: 64 };
        let mut all: Vec<_> = (0..WINDOW)
            .flat_map(|n| [layout.source(n), layout.readback(n), layout.remote(n)])
            .chain((0..RECEIVES).map(|n| layout.receive(n)))
            .collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == 64));
        assert_eq!(all.last().map(|last| last + 64), Some(layout.result(0)));
    }
}
