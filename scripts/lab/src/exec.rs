// SPDX-License-Identifier: GPL-2.0-or-later
//! A program that runs in a guest, seen from the host.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Result};

use crate::output::Printer;
use crate::patience;
use crate::proto::{Bytes, Exit, Request, Size, Stream};
use crate::vm::Shared;

/// What happens to a program.
#[derive(Debug)]
pub enum Event {
    /// It wrote something.
    Output(Stream, Vec<u8>),
    /// It ended.
    Exited(Exit),
    /// It could not be started.
    Failed(String),
}

/// A program's whole output and its end.
#[derive(Debug, Clone)]
pub struct Finished {
    /// How it ended.
    pub exit: Exit,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Finished {
    /// The output, if the program returned zero.
    ///
    /// # Errors
    /// Tells how the program ended and what it wrote last.
    pub fn success(self, what: &str) -> Result<Self> {
        if self.exit.ok() {
            return Ok(self);
        }
        let text = if self.err.trim().is_empty() {
            &self.out
        } else {
            &self.err
        };
        let lines: Vec<_> = text.trim().lines().rev().take(8).collect();
        let tail: Vec<_> = lines.into_iter().rev().collect();
        bail!("{what}: {}\n{}", self.exit, tail.join("\n"))
    }
}

/// A running program.
pub struct Program {
    id: u64,
    name: String,
    vm: Arc<Shared>,
    events: Receiver<Event>,
    printer: Option<Printer>,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Program {
    pub(crate) fn new(
        id: u64,
        name: &str,
        vm: Arc<Shared>,
        events: Receiver<Event>,
        print: bool,
    ) -> Self {
        let printer = print.then(|| Printer::new(&vm.name));
        Self {
            id,
            name: name.to_owned(),
            vm,
            events,
            printer,
            out: Vec::new(),
            err: Vec::new(),
        }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// Nothing within `patience`, or the VM died.
    pub fn event(&mut self, patience: Duration) -> Result<Option<Event>> {
        match self.events.recv_timeout(patience) {
            Ok(Event::Output(stream, bytes)) => {
                if let Some(printer) = &mut self.printer {
                    printer.push(stream, &bytes);
                }
                match stream {
                    Stream::Out => self.out.extend_from_slice(&bytes),
                    Stream::Err => self.err.extend_from_slice(&bytes),
                }
                Ok(Some(Event::Output(stream, bytes)))
            }
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.vm.obituary()),
        }
    }

    /// Waits until the program has written `needle`.
    ///
    /// # Errors
    /// It ended before, took longer than `limit`, or the VM died.
    pub fn wait_for(&mut self, needle: &str, limit: Duration) -> Result<()> {
        let limit = patience::of(limit);
        let end = Instant::now() + limit;
        loop {
            let seen = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(needle);
            if seen(&self.out) || seen(&self.err) {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.event(left)? {
                Some(Event::Output(..)) => {}
                Some(Event::Exited(exit)) => bail!(
                    "{} on {} ended ({exit}) before it said '{needle}': {}",
                    self.name,
                    self.vm.name,
                    self.text().trim()
                ),
                Some(Event::Failed(error)) => bail!("on {}: {error}", self.vm.name),
                None => bail!(
                    "{} on {} did not say '{needle}' within {} s: {}",
                    self.name,
                    self.vm.name,
                    limit.as_secs(),
                    self.text().trim()
                ),
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.out).into_owned();
        text.push_str(&String::from_utf8_lossy(&self.err));
        text
    }

    /// Waits for the program's end; one that takes longer than `limit` is killed.
    ///
    /// # Errors
    /// It took too long, could not be started, or the VM died.
    pub fn wait(mut self, limit: Duration) -> Result<Finished> {
        let limit = patience::of(limit);
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.event(left)? {
                Some(Event::Output(..)) => {}
                Some(Event::Exited(exit)) => return Ok(self.finish(exit)),
                Some(Event::Failed(error)) => bail!("on {}: {error}", self.vm.name),
                None => {
                    self.kill(nix::libc::SIGKILL);
                    let said = self.text();
                    let name = std::mem::take(&mut self.name);
                    let vm = self.vm.name.clone();
                    drop(self);
                    return Err(anyhow!(
                        "{name} on {vm} did not end within {} s and was killed; it said: {}",
                        limit.as_secs(),
                        said.trim()
                    ));
                }
            }
        }
    }

    /// The program's output so far.
    pub fn finish(&mut self, exit: Exit) -> Finished {
        if let Some(printer) = &mut self.printer {
            printer.finish();
        }
        Finished {
            exit,
            out: String::from_utf8_lossy(&self.out).into_owned(),
            err: String::from_utf8_lossy(&self.err).into_owned(),
        }
    }

    /// Sends a signal to the program and its children.
    pub fn kill(&self, signal: i32) {
        self.vm.request(&Request::Kill {
            id: self.id,
            signal,
        });
    }

    /// Gives the program input; nothing is end of file.
    pub fn input(&self, bytes: &[u8]) {
        self.handle().input(bytes);
    }

    /// What feeds the program from another thread.
    pub fn handle(&self) -> Handle {
        Handle {
            id: self.id,
            vm: Arc::clone(&self.vm),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(printer) = &mut self.printer {
            printer.finish();
        }
        self.vm.forget(self.id);
    }
}

/// A way to a program's input, to use beside the [`Program`].
#[derive(Clone)]
pub struct Handle {
    id: u64,
    vm: Arc<Shared>,
}

impl Handle {
    /// Gives the program input; nothing is end of file.
    pub fn input(&self, bytes: &[u8]) {
        self.vm.request(&Request::Stdin {
            id: self.id,
            data: Bytes(bytes.to_vec()),
        });
    }

    /// Tells the program's terminal its new size.
    pub fn resize(&self, size: Size) {
        self.vm.request(&Request::Resize { id: self.id, size });
    }

    /// Sends a signal to the program and its children.
    pub fn kill(&self, signal: i32) {
        self.vm.request(&Request::Kill {
            id: self.id,
            signal,
        });
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("id", &self.id).finish()
    }
}
