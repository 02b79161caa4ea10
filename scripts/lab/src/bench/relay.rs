// SPDX-License-Identifier: GPL-2.0-or-later
//! What the machine can do for bytes that go through shared memory: one thread copies blocks of a
//! packet's size into a window as large as a lane's credits, another one copies them out. Nothing is
//! checked, and nobody sleeps: no device whose packets take this way is faster.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;

/// Bytes of a packet's payload.
pub const BLOCK: usize = 4096;
/// Packets of this size for which a lane's credits last.
const WINDOW: usize = 31;
/// The memory that is sent from, and that is received into.
const BUFFER: usize = 1 << 20;
/// How long bytes are relayed, and how many blocks at least.
const TIME: Duration = Duration::from_millis(150);
const LEAST: u64 = 1000;
/// After how many blocks the sender looks at the time.
const CHECK: u64 = 16;

/// A count in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// Bytes a second, in 10^6, with the threads on the same processor and on two; nothing for two where
/// this process may use only one.
///
/// # Errors
/// When the system does not tell its processors.
pub fn measure() -> Result<(f64, Option<f64>)> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("no list of processors")?;
    let mut processors = (0..CpuSet::count()).filter(|&n| allowed.is_set(n).unwrap_or(false));
    let first = processors.next().context("no processor")?;
    let one = relay([first, first]);
    let two = processors.next().map(|second| relay([first, second]));
    Ok((one, two))
}

fn relay(processors: [usize; 2]) -> f64 {
    let window: Vec<Mutex<[u8; BLOCK]>> = (0..WINDOW).map(|_| Mutex::new([1; BLOCK])).collect();
    let (sent, taken) = (Count::default(), Count::default());
    let wait = || {
        if processors[0] == processors[1] {
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    };
    let start = Instant::now();
    let ended = AtomicBool::new(false);
    let sender = || {
        choose(processors[0]);
        let memory = vec![1_u8; BUFFER];
        let (mut done, mut allowed) = (0_u64, 0);
        while done < LEAST || done % CHECK != 0 || start.elapsed() < TIME {
            if done == allowed {
                allowed = taken.0.load(Ordering::Acquire) + WINDOW as u64;
                if done == allowed {
                    wait();
                    continue;
                }
            }
            let at = done as usize * BLOCK % BUFFER;
            // Never contended: the counts keep the sides apart.
            if let Ok(mut block) = window[done as usize % WINDOW].lock() {
                block.copy_from_slice(&memory[at..at + BLOCK]);
            }
            done += 1;
            sent.0.store(done, Ordering::Release);
        }
        ended.store(true, Ordering::Release);
    };
    let receiver = || {
        choose(processors[1]);
        let mut memory = vec![1_u8; BUFFER];
        let (mut done, mut there) = (0_u64, 0);
        loop {
            if done == there {
                // In this order: what was sent before the end is seen.
                let last = ended.load(Ordering::Acquire);
                there = sent.0.load(Ordering::Acquire);
                if done == there {
                    if last {
                        return;
                    }
                    wait();
                    continue;
                }
            }
            let at = done as usize * BLOCK % BUFFER;
            if let Ok(block) = window[done as usize % WINDOW].lock() {
                memory[at..at + BLOCK].copy_from_slice(&*block);
            }
            done += 1;
            taken.0.store(done, Ordering::Release);
        }
    };
    thread::scope(|scope| {
        scope.spawn(sender);
        scope.spawn(receiver);
    });
    let bytes = taken.0.load(Ordering::Relaxed) as f64 * BLOCK as f64;
    bytes / start.elapsed().as_secs_f64() / 1e6
}

/// Lets the calling thread run on one processor only.
fn choose(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .expect("a processor of the list that the system gave");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_get_through_on_one_processor_and_on_two() {
        let (one, two) = measure().unwrap();
        assert!(one > 0.0, "{one} MB/s");
        assert!(two.is_none_or(|two| two > 0.0), "{two:?} MB/s");
    }
}
