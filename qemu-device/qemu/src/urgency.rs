// SPDX-License-Identifier: GPL-2.0-or-later

//! Makes the service thread run as soon as it is woken.
//!
//! A guest that polls for its completions keeps its vCPU's thread busy. On a machine with no core to spare,
//! the packet that ends the wait is taken in by the service thread, which the scheduler would let wait for
//! the rest of that vCPU's time slice: some milliseconds, where the work takes microseconds.

use std::io;

/// Time slice that the thread asks for, ns: the shortest that Linux gives. From Linux 6.12 on, a thread that
/// wakes up with a shorter slice than the one that runs takes its place.
const SLICE: u64 = 100_000;
/// Priority that the thread asks for, where it may: it works for much less than its share of the time.
const NICE: i32 = -10;

const SCHED_OTHER: u32 = 0;

/// `struct sched_attr` of Linux.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

fn set(nice: i32) -> io::Result<()> {
    let attr = SchedAttr {
        size: std::mem::size_of::<SchedAttr>() as u32,
        policy: SCHED_OTHER,
        nice,
        runtime: SLICE,
        ..SchedAttr::default()
    };
    // SAFETY: the kernel reads `size` bytes of `attr`; thread 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attr, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Asks for a short slice and a high priority for the calling thread. Where the system does not give them,
/// the thread runs as all others do.
pub fn raise() {
    // SAFETY: no pointers. A priority of -1 is told from an error by errno only; the next higher is as good.
    let present = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    if set(NICE.min(present)).is_err() {
        let _ = set(present);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_keeps_or_gains_priority() {
        std::thread::spawn(|| {
            let nice = || {
                // SAFETY: no pointers.
                unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
            };
            let before = nice();
            raise();
            assert!(nice() <= before);
        })
        .join()
        .unwrap();
    }
}
