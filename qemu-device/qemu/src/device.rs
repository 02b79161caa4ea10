// SPDX-License-Identifier: GPL-2.0-or-later

//! The device: firmware under a lock, and the thread that serves it.
//!
//! The vCPU that rings a doorbell runs the firmware itself, under a budget, so that a send costs no
//! switch of threads. What is left, what arrives and what is due runs in the service thread, which
//! sleeps on the cables' descriptors, a timer and a wake-up of its own. A doorbell that finds the device
//! busy is queued and run by whoever holds the lock: no vCPU waits on the data path. A vCPU that polls for
//! completions lends its time ([`crate::busy`]).

mod settings;

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_queue::ArrayQueue;
use ochre_hca::{Budget, Hca, Interrupts, Time};
use ochre_hw::doorbell;
use ochre_link::{Capture, Port, PortConfig, ShmConfig, Tap};
use ochre_wire::Guid;

use crate::abi::{Host, Ram};
use crate::busy::BusyPoll;
use crate::cable::{Ready, Socket};
use crate::config::Config;
use crate::ram::GuestMemory;
use crate::wake::{now, Event, Poller, Timer};

/// Doorbell pages: one for the kernel, the others for user contexts.
pub const DOORBELL_PAGES: u32 = 512;
/// Size of the doorbell BAR, bytes.
pub const DOORBELL_BAR_SIZE: u64 = DOORBELL_PAGES as u64 * doorbell::PAGE_SIZE;

/// Packets in one round of the service thread.
const ROUND: Budget = Budget(128);
/// Longest time for which the capture keeps a packet in its buffer.
const CAPTURE_DELAY: Duration = Duration::from_millis(100);
/// Doorbells that can wait for a busy device; more wait for the lock.
const QUEUED_DOORBELLS: usize = 256;

/// The vectors that are due, as a bit mask.
#[derive(Debug, Default)]
pub struct Vectors(u64);

impl Interrupts for Vectors {
    #[inline]
    fn raise(&mut self, vector: u16) {
        if let Some(bit) = 1_u64.checked_shl(u32::from(vector)) {
            self.0 |= bit;
        }
    }
}

/// A doorbell that found the device busy.
#[derive(Clone, Copy, Debug)]
struct Doorbell {
    offset: u64,
    value: u32,
}

struct State {
    hca: Hca<GuestMemory, Vectors, Socket>,
    /// The service thread sleeps, or is about to: what it has not seen needs a signal.
    asleep: bool,
    /// When the timer goes off. It is never put off, only brought forward: a deadline that was
    /// dropped costs one idle wake-up and not a system call for each packet.
    timer: Time,
    busy: BusyPoll,
    drain: [u64; 2],
    capture: Option<Capture>,
    /// Whether packets go to the capture.
    capturing: bool,
    /// When what the capture has buffered is to be written out.
    flush: Option<Time>,
}

impl State {
    /// Packets may have been sent or received.
    #[inline]
    fn moved(&mut self, at: Time) {
        if self.capturing && self.flush.is_none() {
            self.flush = Some(at + CAPTURE_DELAY);
        }
    }

    /// When the service thread has to run even if nothing happens.
    fn deadline(&self) -> Option<Time> {
        let own = Time::earliest(self.flush, self.busy.deadline());
        Time::earliest(self.hca.next_deadline(), own)
    }

    /// Writes the capture out where it is time to; gives why that failed, and ends the capture then.
    fn flush_capture(&mut self, at: Time) -> Option<String> {
        if self.flush.is_none_or(|due| due > at) {
            return None;
        }
        self.flush = None;
        let capture = self.capture.as_ref()?;
        capture.flush();
        let error = capture.take_error()?;
        self.capture = None;
        self.set_taps(false);
        Some(format!("the capture has ended: {error}"))
    }

    fn set_taps(&mut self, capturing: bool) {
        let capture = self.capture.clone().filter(|_| capturing);
        self.capturing = capture.is_some();
        for port in 0..self.hca.ports() {
            let tap = capture.clone().map(|capture| Tap {
                capture,
                port: port as u8,
                link_packets: false,
                epoch_ns: epoch(),
            });
            if let Some(link) = self.hca.link_mut(port + 1) {
                link.set_tap(tap);
            }
        }
    }
}

/// A device.
pub struct Core {
    host: Host,
    state: Mutex<State>,
    doorbells: ArrayQueue<Doorbell>,
    /// Threads that wait for the lock, with the BQL in hand. The service thread lets them go first.
    waiting: AtomicU32,
    poller: Arc<Poller>,
    wake: Event,
    timer: Timer,
    stop: AtomicBool,
    /// The problem told last, for each port.
    reported: Mutex<[Option<String>; 2]>,
}

/// Wall-clock time of the origin of the device's clock, nanoseconds since 1970.
fn epoch() -> u64 {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    wall.saturating_sub(now().as_nanos())
}

impl Core {
    /// Makes a device.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(config: Config, host: Host) -> Result<Self, String> {
        let system = |error: std::io::Error| format!("cannot make the device's events: {error}");
        let poller = Arc::new(Poller::new().map_err(system)?);
        let wake = Event::new().map_err(system)?;
        let timer = Timer::new().map_err(system)?;
        poller
            .add(wake.as_raw_fd(), Ready::Wake.token())
            .and_then(|()| poller.add(timer.as_raw_fd(), Ready::Timer.token()))
            .map_err(system)?;

        let capture = config
            .capture
            .as_ref()
            .map(|path| {
                File::create(path)
                    .and_then(Capture::new)
                    .map_err(|error| format!("cannot capture to {}: {error}", path.display()))
            })
            .transpose()?;

        let mut ports = Vec::new();
        for index in 0..config.ports {
            let link = config.link[usize::from(index)].as_ref().map(|path| {
                let mut link = ShmConfig::new(path);
                link.crc = config.crc;
                link
            });
            let socket = Socket::new(usize::from(index) + 1, link, poller.clone())?;
            let port = Port::new(
                PortConfig {
                    widths: config.widths,
                    speeds: config.speeds,
                    crc: config.crc,
                    seed: config.node_guid.wrapping_add(u64::from(index)) ^ now().as_nanos(),
                    ..PortConfig::default()
                },
                socket,
            );
            ports.push(port);
        }

        let mut hca = Hca::new(
            ochre_hca::Config {
                node_guid: Guid(config.node_guid),
                vectors: config.vectors,
                doorbell_pages: DOORBELL_PAGES,
                ..ochre_hca::Config::default()
            },
            GuestMemory::new(host),
            Vectors::default(),
            ports,
        );
        // The machine may not run yet.
        hca.set_paused(now(), true);
        let core = Core {
            host,
            state: Mutex::new(State {
                hca,
                asleep: false,
                timer: Time::MAX,
                busy: BusyPoll::default(),
                drain: [0; 2],
                capture,
                capturing: false,
                flush: None,
            }),
            doorbells: ArrayQueue::new(QUEUED_DOORBELLS),
            waiting: AtomicU32::new(0),
            poller,
            wake,
            timer,
            stop: AtomicBool::new(false),
            reported: Mutex::default(),
        };
        core.set_capturing(true);
        Ok(core)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        if let Some(state) = self.try_lock() {
            return state;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        state
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Runs the doorbells that wait; gives whether there is more to do.
    fn run_doorbells(&self, state: &mut State, at: Time) -> bool {
        let mut more = false;
        while let Some(bell) = self.doorbells.pop() {
            more |= state.hca.doorbell(at, bell.offset, bell.value);
        }
        more
    }

    /// Drops the lock and delivers what is due. `more`: the service thread has to go on.
    fn release<'a>(&'a self, mut state: MutexGuard<'a, State>, mut more: bool) {
        loop {
            let vectors = std::mem::take(&mut state.hca.interrupts_mut().0);
            let mut signal = false;
            if state.asleep {
                if more {
                    state.asleep = false;
                    signal = true;
                } else {
                    self.set_timer(&mut state);
                }
            }
            drop(state);
            if signal {
                self.wake.signal();
            }
            if vectors != 0 {
                // SAFETY: the callback may be called from any thread, without the device's lock.
                unsafe { (self.host.raise)(self.host.opaque, vectors) };
            }
            // A doorbell that was queued while the lock was held, by a vCPU that could not get it: either
            // it sees the lock free, or this sees the doorbell.
            fence(Ordering::SeqCst);
            if self.doorbells.is_empty() {
                return;
            }
            match self.try_lock() {
                Some(taken) => state = taken,
                None => return,
            }
            more = self.run_doorbells(&mut state, now());
        }
    }

    /// Brings the timer forward where the firmware's next deadline is before it.
    fn set_timer(&self, state: &mut State) {
        if let Some(deadline) = state.deadline() {
            if deadline < state.timer {
                state.timer = deadline;
                self.timer.set(deadline);
            }
        }
    }

    /// Body of the service thread.
    pub fn service(&self) {
        let mut ready = Vec::with_capacity(8);
        while !self.stop.load(Ordering::SeqCst) {
            if self.round(&ready) {
                ready.clear();
                ready.extend(self.poller.wait().map(Ready::from_token));
            } else {
                ready.clear();
            }
        }
    }

    /// One round of the service thread. Gives whether it may sleep.
    fn round(&self, ready: &[Ready]) -> bool {
        // A busy device drops its lock only for an instant, in which a thread that waits does not wake up.
        while self.waiting.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = now();
        state.asleep = false;
        for ready in ready {
            match *ready {
                Ready::Wake => self.wake.clear(),
                Ready::Timer => {
                    self.timer.clear();
                    state.timer = Time::MAX;
                }
                Ready::Data(port) => {
                    if let Some(link) = state.hca.link_mut(port) {
                        link.cable_mut().on_data();
                    }
                }
                Ready::Control(port) => {
                    if let Some(link) = state.hca.link_mut(port) {
                        link.cable_mut().on_control(at);
                    }
                }
            }
        }
        let idle = ready.iter().all(|ready| *ready == Ready::Timer)
            && state.hca.next_deadline().is_none_or(|due| due > at);
        if !idle {
            state.moved(at);
        }
        let more = self
            .host
            .burst(|| self.run_doorbells(&mut state, at) | state.hca.poll(at, ROUND));
        let ended = state.flush_capture(at);
        let sleep = !more && (state.busy.goes_on(at) || state.hca.arm());
        if sleep {
            state.asleep = true;
        }
        let problems = self.problems(&mut state);
        self.release(state, false);
        for problem in problems.into_iter().flatten().chain(ended) {
            self.report(&problem);
        }
        sleep
    }

    /// What has gone wrong on the links and was not told yet.
    fn problems(&self, state: &mut State) -> [Option<String>; 2] {
        let mut problems = [None, None];
        for (index, problem) in problems.iter_mut().enumerate() {
            let error = state
                .hca
                .link_mut(index + 1)
                .and_then(|link| link.cable_mut().take_error());
            if error.is_some() {
                let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
                if reported[index] != error {
                    reported[index].clone_from(&error);
                    *problem = error;
                }
            }
        }
        problems
    }

    fn report(&self, message: &str) {
        let Ok(message) = CString::new(message) else {
            return;
        };
        // SAFETY: a C string that lives during the call.
        unsafe { (self.host.report)(self.host.opaque, message.as_ptr()) };
    }

    /// Makes the service thread end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake.signal();
    }

    /// Reset of the machine or of the function.
    pub fn reset(&self) {
        let mut state = self.lock();
        while self.doorbells.pop().is_some() {}
        state.hca.reset(now());
        // An interrupt of before the reset must not come after it.
        state.hca.interrupts_mut().0 = 0;
        self.release(state, true);
    }

    /// The machine stands still, or goes on.
    pub fn set_paused(&self, paused: bool) {
        let mut state = self.lock();
        state.hca.set_paused(now(), paused);
        self.release(state, true);
    }

    /// Replaces the table of guest RAM.
    ///
    /// # Safety
    /// As [`GuestMemory::replace`] has it for the ranges.
    pub unsafe fn set_ram(&self, ranges: Vec<Ram>) {
        let state = self.lock();
        // SAFETY: every access to guest memory is made by the firmware, which runs under this lock; the
        // ranges are as the caller promises.
        unsafe { state.hca.dma().replace(ranges) };
    }

    /// Reads a register.
    pub fn reg_read(&self, offset: u64, size: u32) -> u64 {
        let mut state = self.lock();
        let value = state.hca.reg_read(now(), offset, size);
        self.release(state, false);
        value
    }

    /// Writes a register.
    pub fn reg_write(&self, offset: u64, value: u64, size: u32) {
        let mut state = self.lock();
        let more = state.hca.reg_write(now(), offset, size, value);
        self.release(state, more);
    }

    /// Writes to a doorbell page.
    pub fn doorbell(&self, offset: u64, value: u64, size: u32) {
        if size != 4 || offset % 4 != 0 {
            return;
        }
        if offset % doorbell::PAGE_SIZE == doorbell::BUSY_POLL {
            match value as u32 {
                doorbell::BUSY_POLL_ON => self.busy_poll(),
                _ => self.end_busy_poll(),
            }
            return;
        }
        let bell = Doorbell {
            offset,
            value: value as u32,
        };
        let mut state = match self.try_lock() {
            Some(state) => state,
            None => match self.doorbells.push(bell) {
                Ok(()) => {
                    fence(Ordering::SeqCst);
                    match self.try_lock() {
                        Some(mut state) => {
                            let more = self.run_doorbells(&mut state, now());
                            self.release(state, more);
                            return;
                        }
                        // Whoever has the lock sees the queue after dropping it.
                        None => return,
                    }
                }
                Err(_) => self.lock(),
            },
        };
        let at = now();
        state.moved(at);
        let more = self.run_doorbells(&mut state, at) | state.hca.doorbell(at, offset, bell.value);
        state.busy.worked(at, now);
        self.leave(state, more);
    }

    /// A virtual CPU has nothing better to do than to serve the device.
    fn busy_poll(&self) {
        let Some(mut state) = self.try_lock() else {
            // Somebody else does.
            return;
        };
        let at = now();
        state.moved(at);
        let more = self.run_doorbells(&mut state, at) | state.hca.poll(at, Budget::DOORBELL);
        if state.busy.polled(at, now()) && state.asleep && !state.busy.is_on() {
            state.busy.begin(at);
            state.hca.disarm();
        }
        self.leave(state, more);
    }

    /// A virtual CPU has done its part. What is left is for the service thread, unless virtual CPUs that
    /// poll see to it.
    fn leave<'a>(&'a self, state: MutexGuard<'a, State>, more: bool) {
        let more = more && !state.busy.is_on();
        self.release(state, more);
    }

    /// The virtual CPU that served the device is about to rest.
    fn end_busy_poll(&self) {
        let mut state = self.lock();
        let mut more = false;
        if state.busy.stop() {
            more = state.hca.poll(now(), Budget::DOORBELL) || state.asleep && !state.hca.arm();
        }
        self.release(state, more);
    }
}

#[cfg(test)]
mod tests;
