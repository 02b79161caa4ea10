// SPDX-License-Identifier: GPL-2.0-or-later
//! Attempts on the pages and the QPs of another process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use ochre_hw::doorbell;

use crate::objects::{Loop, PATIENCE};
use crate::pages::PAGE;
use crate::uverbs::Context;

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Each context can map its own page, once at the offset that it was told, and nothing else.
pub fn only_the_own_page() -> Result<()> {
    let context = Context::open()?;
    let others = [Context::open()?, Context::open()?];
    let own = context.driver.doorbell_offset;
    let mut found = Vec::new();
    // Twice the pages that a device has.
    for page in 0..2048 {
        let offset = page * PAGE as u64;
        if context.map(offset, PAGE, RW, libc::MAP_SHARED).is_ok() {
            found.push(offset);
        }
    }
    ensure!(
        found == [own],
        "{found:x?} can be mapped, its own is {own:#x}; others have {:x?}",
        others.map(|other| other.driver.doorbell_offset)
    );
    Ok(())
}

/// Not more of it than there is, and not as a private copy.
pub fn only_as_it_is_meant() -> Result<()> {
    let context = Context::open()?;
    let offset = context.driver.doorbell_offset;
    for (what, len, flags) in [
        ("two pages", 2 * PAGE, libc::MAP_SHARED),
        ("a private copy", PAGE, libc::MAP_PRIVATE),
    ] {
        let mapped = context.map(offset, len, RW, flags);
        ensure!(mapped.is_err(), "{what} can be mapped");
    }
    Ok(())
}

/// A process with a request in its send queue that the device has not been told of.
pub fn victim() -> Result<()> {
    let mut own = Loop::new()?;
    let start = Instant::now();
    while !own.qps[0].needs_wake() {
        ensure!(
            start.elapsed() < PATIENCE,
            "the device never wants to be told of sends"
        );
        thread::sleep(Duration::from_millis(1));
    }
    own.data.write(0, &[7; 8]);
    own.fill();
    println!("{}", own.qps[0].object.number);
    for line in std::io::stdin().lines() {
        match line?.as_str() {
            "done?" => println!("{}", own.cq.poll().is_some()),
            _ => {
                own.qps[0].post(&own.doorbells);
                println!("{}", own.cq.wait()?.status);
            }
        }
    }
    own.end()
}

/// The other process, and talk with it.
struct Victim {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Victim {
    fn start() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("victim")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the other process has no pipes");
        };
        Ok(Victim {
            child,
            to: Some(to),
            from: BufReader::new(from),
        })
    }

    fn read(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the other process says nothing");
        Ok(line.trim().to_owned())
    }

    fn ask(&mut self, what: &str) -> Result<String> {
        if let Some(to) = &mut self.to {
            writeln!(to, "{what}")?;
        }
        self.read()
    }

    fn end(mut self) -> Result<()> {
        self.to = None;
        let status = self.child.wait()?;
        ensure!(status.success(), "the other process ended with {status}");
        Ok(())
    }
}

/// Doorbells in the own page do not reach the QPs of another process; its own doorbells do.
pub fn only_the_own_qps() -> Result<()> {
    let mut victim = Victim::start()?;
    let number: u32 = victim.read()?.parse().context("the other's QP number")?;
    let mut own = Loop::new()?;
    for _ in 0..200 {
        own.doorbells.store(doorbell::SEND as usize, number);
        own.doorbells.store(doorbell::RECV as usize, number);
    }
    // The device does what it was told before this.
    for byte in 0..4 {
        own.check([byte; 8])?;
    }
    ensure!(
        victim.ask("done?")? == "false",
        "a doorbell rang for a QP of another process"
    );
    let status = victim.ask("ring")?;
    ensure!(status == "0", "the other's own doorbell: status {status}");
    victim.end()?;
    own.end()
}
