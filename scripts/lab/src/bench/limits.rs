// SPDX-License-Identifier: GPL-2.0-or-later
//! What the machine itself can do: how fast one thread copies between two shared mappings, how fast
//! two threads relay bytes, and how fast one process wakes another.

use std::env;
use std::ffi::CString;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use memmap2::MmapMut;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{memfd_create, MFdFlags};
use serde::{Deserialize, Serialize};

use super::relay;
use super::report::{median, round, Row};
use crate::paths;

/// Bytes of the blocks that are copied.
pub const SIZES: [u64; 5] = [2, 4 << 10, 64 << 10, 1 << 20, 8 << 20];

/// How long one size is copied.
const COPY_TIME: Duration = Duration::from_millis(60);

/// Round trips that are timed.
const WAKES: usize = 4000;

/// Argument of the process that is woken.
const ECHO: &str = "--echo";

/// Speed of copies of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Copy {
    /// Bytes of a block.
    pub size: u64,
    /// Bytes a second, in 10^6.
    pub mega_bytes: f64,
}

/// Everything about the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Copies by size.
    pub copies: Vec<Copy>,
    /// Bytes a second, in 10^6, that go through shared memory with both threads on one processor.
    pub relay_one: f64,
    /// The same on two processors, where there are two.
    pub relay_two: Option<f64>,
    /// The least time from one process's write to an eventfd to the end of another's read, in
    /// microseconds: half of a round trip.
    pub wake_min_us: f64,
    /// The median of it.
    pub wake_typical_us: f64,
}

/// Measures, by the program `ochre-limits`.
///
/// # Errors
/// When it does not run.
pub fn measure() -> Result<Limits> {
    let program = paths::sibling("ochre-limits")?;
    let output = Command::new(&program)
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!(
            "{} failed ({}): {}",
            program.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{} printed no figures", program.display()))
}

/// What `ochre-limits` does: prints the machine's limits, or is the process that is woken.
///
/// # Errors
/// When the system refuses memory or a process.
pub fn main() -> Result<()> {
    if env::args().nth(1).as_deref() == Some(ECHO) {
        return echo();
    }
    let (wake_min_us, wake_typical_us) = wakes()?;
    let copies = SIZES
        .iter()
        .map(|&size| {
            Ok(Copy {
                size,
                mega_bytes: copy(usize::try_from(size)?)?,
            })
        })
        .collect::<Result<_>>()?;
    let (relay_one, relay_two) = relay::measure()?;
    let limits = Limits {
        copies,
        relay_one,
        relay_two,
        wake_min_us,
        wake_typical_us,
    };
    println!("{}", serde_json::to_string(&limits)?);
    Ok(())
}

/// Memory as two processes would share it.
fn shared(len: usize) -> Result<MmapMut> {
    let name = CString::new("ochre-limits")?;
    let file = File::from(memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC)?);
    file.set_len(u64::try_from(len)?)?;
    // SAFETY: nothing else has the file, so that it cannot be cut or changed under the mapping.
    let mut map = unsafe { MmapMut::map_mut(&file) }.context("cannot map shared memory")?;
    // The first touch of a page is not what is measured.
    map.fill(1);
    Ok(map)
}

/// Bytes a second, in 10^6, of copies of one block.
fn copy(len: usize) -> Result<f64> {
    let (source, mut target) = (shared(len)?, shared(len)?);
    let batch = ((1 << 20) / len).clamp(1, 1 << 14);
    let mut blocks = 0usize;
    let start = Instant::now();
    loop {
        for _ in 0..batch {
            let source = black_box(&source[..]);
            black_box(&mut target[..]).copy_from_slice(source);
        }
        blocks += batch;
        let time = start.elapsed();
        if time >= COPY_TIME {
            return Ok(len as f64 * blocks as f64 / time.as_secs_f64() / 1e6);
        }
    }
}

/// Least and median time of one way between two processes, in microseconds.
fn wakes() -> Result<(f64, f64)> {
    let event = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("no eventfd");
    let (to, from) = (event()?, event()?);
    let copy = |event: &EventFd| -> Result<OwnedFd> { Ok(event.as_fd().try_clone_to_owned()?) };
    let mut child = Command::new(env::current_exe()?)
        .arg(ECHO)
        .stdin(Stdio::from(copy(&to)?))
        .stdout(Stdio::from(copy(&from)?))
        .spawn()
        .context("cannot start the process to wake")?;
    let mut times = Vec::with_capacity(WAKES);
    for n in 0..WAKES + WAKES / 10 {
        let start = Instant::now();
        to.write(1)?;
        from.read()?;
        let one_way = start.elapsed().as_secs_f64() / 2.0 * 1e6;
        // The first ones warm up.
        if n >= WAKES / 10 {
            times.push(one_way);
        }
    }
    child.kill()?;
    child.wait()?;
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    Ok((least, median(&times).unwrap_or(least)))
}

/// Answers each wake-up, until it is killed.
fn echo() -> Result<()> {
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let mut count = [0; 8];
    loop {
        input.read_exact(&mut count)?;
        output.write_all(&1u64.to_ne_bytes())?;
    }
}

/// The limits of several rounds, one by one.
#[derive(Debug, Default)]
pub struct Rounds(Vec<Limits>);

impl Rounds {
    /// Adds a round.
    pub fn push(&mut self, limits: Limits) {
        self.0.push(limits);
    }

    /// Median speed of copies of this size, in 10^6 bytes a second.
    pub fn copy(&self, size: u64) -> Option<f64> {
        let all: Vec<f64> = self
            .0
            .iter()
            .filter_map(|limits| limits.copies.iter().find(|copy| copy.size == size))
            .map(|copy| copy.mega_bytes)
            .collect();
        median(&all)
    }

    /// Rows of what has no figure of a device to stand beside.
    pub fn rows(&self) -> Vec<Row> {
        let median_of = |figure: fn(&Limits) -> Option<f64>| {
            median(&self.0.iter().filter_map(figure).collect::<Vec<_>>())
        };
        let row = |mode: &str, limit: Option<f64>| Row {
            test: "relay".to_owned(),
            size: relay::BLOCK as u64,
            mode: mode.to_owned(),
            unit: "MB/s".to_owned(),
            limit: limit.map(round),
            ..Row::default()
        };
        vec![
            row("one processor", median_of(|l| Some(l.relay_one))),
            row("two processors", median_of(|l| l.relay_two)),
        ]
    }

    /// Median of the rounds' least wake-up times, in microseconds.
    pub fn wake_min(&self) -> Option<f64> {
        median(&self.0.iter().map(|l| l.wake_min_us).collect::<Vec<_>>())
    }

    /// Median of the rounds' typical wake-up times, in microseconds.
    pub fn wake_typical(&self) -> Option<f64> {
        median(&self.0.iter().map(|l| l.wake_typical_us).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_time() {
        let speed = copy(4096).unwrap();
        assert!(speed.is_finite() && speed > 10.0, "{speed} MB/s");
    }

    #[test]
    fn rounds_have_a_median() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.copy(2), None);
        for speed in [5.0, 1.0, 3.0] {
            rounds.push(Limits {
                copies: vec![Copy {
                    size: 2,
                    mega_bytes: speed,
                }],
                relay_one: speed,
                relay_two: None,
                wake_min_us: speed,
                wake_typical_us: speed * 2.0,
            });
        }
        assert_eq!(rounds.copy(2), Some(3.0));
        assert_eq!(rounds.copy(4), None);
        let relays: Vec<_> = rounds.rows().iter().map(|row| row.limit).collect();
        assert_eq!(relays, [Some(3.0), None]);
        assert_eq!(rounds.wake_min(), Some(3.0));
        assert_eq!(rounds.wake_typical(), Some(6.0));
    }
}
