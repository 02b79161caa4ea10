// SPDX-License-Identifier: GPL-2.0-or-later

//! What the service thread sleeps on: event counters, a timer, and a set of descriptors.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use ochre_link::Time;

/// A descriptor from a system call, or its error.
fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Zero, or an error of a system call.
fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// An eventfd.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// An event that has not happened.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(Event)
    }

    /// Wakes who waits for it.
    pub fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: 8 bytes are read from `one`. A full counter means that it is signalled already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Forgets that it happened.
    pub fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: 8 bytes are written to `count`. An empty counter gives an error, which is fine.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The device's clock: nanoseconds of the host's monotonic clock.
#[must_use]
pub fn now() -> Time {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `at` is written; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut at) };
    Time::from_nanos(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}

/// A timerfd on the device's clock.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is off.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers.
        owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }).map(Timer)
    }

    /// Lets it go off at `deadline`; at once if that has passed.
    pub fn set(&self, deadline: Time) {
        // All zero would turn it off.
        let nanos = deadline.as_nanos().max(1);
        let value = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: (nanos / 1_000_000_000) as libc::time_t,
                tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
            },
        };
        // SAFETY: `value` is read, nothing is written.
        unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &value,
                std::ptr::null_mut(),
            )
        };
    }

    /// Forgets that it went off.
    pub fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: 8 bytes are written to `count`.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// An epoll set, level-triggered.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Poller)
    }

    /// Adds a descriptor; `token` comes back from [`Poller::wait`] when it is readable.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        // SAFETY: `event` is read.
        done(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) })
    }

    /// Takes a descriptor out.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: no event is needed to delete; a descriptor that is not there gives an error, which is fine.
        unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd,
                std::ptr::null_mut(),
            )
        };
    }

    /// Sleeps until a descriptor is readable; gives the tokens of those that are.
    pub fn wait(&self) -> impl Iterator<Item = u64> {
        const MAX: usize = 8;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MAX];
        // SAFETY: at most MAX events are written.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                MAX as libc::c_int,
                -1,
            )
        };
        // An interrupted wait gives -1: nothing is readable, the caller comes back.
        let count = usize::try_from(count).unwrap_or(0);
        events.into_iter().take(count).map(|event| event.u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn events_and_timers_wake() {
        let poller = Poller::new().unwrap();
        let event = Event::new().unwrap();
        let timer = Timer::new().unwrap();
        poller.add(event.as_raw_fd(), 1).unwrap();
        poller.add(timer.as_raw_fd(), 2).unwrap();

        event.signal();
        event.signal();
        assert_eq!(poller.wait().collect::<Vec<_>>(), [1]);
        event.clear();

        let at = now() + Duration::from_millis(2);
        timer.set(at);
        assert_eq!(poller.wait().collect::<Vec<_>>(), [2]);
        assert!(now() >= at);
        timer.clear();

        timer.set(Time::ZERO);
        assert_eq!(poller.wait().collect::<Vec<_>>(), [2]);
    }
}
