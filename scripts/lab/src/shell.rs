// SPDX-License-Identifier: GPL-2.0-or-later
//! A person's terminal joined to a program in a guest.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nix::pty::Winsize;
use nix::sys::termios::{cfmakeraw, tcgetattr, tcsetattr, SetArg, Termios};
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::Signals;

use crate::cleanup;
use crate::exec::{Event, Program};
use crate::proto::{Command, Exit, Size};

nix::ioctl_read_bad!(
    /// Reads the size of the terminal behind a file descriptor.
    get_window_size,
    nix::libc::TIOCGWINSZ,
    Winsize
);

static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// Puts the terminal back as it was.
fn restore() {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(saved) = saved {
        let _ = tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &saved);
    }
}

/// The terminal in raw mode, until this is dropped.
struct Raw;

impl Raw {
    fn enter() -> Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        cleanup::on_exit(restore);
        tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &raw)?;
        Ok(Self)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Size of our own terminal.
fn size() -> Size {
    let mut size = Winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: descriptor 0 may be anything, which the call checks; `size` is ours to be written.
    let found = unsafe { get_window_size(0, &raw mut size) };
    if found.is_ok() && size.ws_row > 0 && size.ws_col > 0 {
        Size {
            rows: size.ws_row,
            cols: size.ws_col,
        }
    } else {
        Size { rows: 24, cols: 80 }
    }
}

/// The shell for a person, or for a script on our standard input.
pub fn command() -> Command {
    let term = std::env::var("TERM").unwrap_or_else(|_| "linux".into());
    let terminal = io::stdin().is_terminal();
    Command {
        argv: vec!["bash".into()],
        env: [("TERM".to_owned(), term), ("HOME".into(), "/root".into())].into(),
        cwd: None,
        tty: terminal.then(size),
        stdin: true,
    }
}

/// What the other end of a terminal does with input and sizes.
pub trait Remote: Clone + Send + 'static {
    /// Takes input; nothing is end of file.
    fn input(&self, bytes: &[u8]);
    /// Takes a new size of the terminal.
    fn resize(&self, size: Size);
}

impl Remote for crate::exec::Handle {
    fn input(&self, bytes: &[u8]) {
        Self::input(self, bytes);
    }

    fn resize(&self, size: Size) {
        Self::resize(self, size);
    }
}

/// Joins our terminal to `remote`; `next` returns its output piece by piece and then its end.
///
/// # Errors
/// Those of the terminal and of `next`.
pub fn attach(
    remote: &impl Remote,
    mut next: impl FnMut() -> Result<std::result::Result<Vec<u8>, Exit>>,
) -> Result<i32> {
    let raw = if io::stdin().is_terminal() {
        Some(Raw::enter()?)
    } else {
        None
    };
    {
        let remote = remote.clone();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = io::stdin().read(&mut chunk) {
                remote.input(&chunk[..n]);
            }
            remote.input(&[]);
        });
    }
    if raw.is_some() {
        let mut signals = Signals::new([SIGWINCH])?;
        let remote = remote.clone();
        thread::spawn(move || {
            for _ in signals.forever() {
                remote.resize(size());
            }
        });
    }
    loop {
        match next()? {
            Ok(bytes) => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
            }
            Err(exit) => return Ok(exit.code()),
        }
    }
}

/// Joins our terminal to a shell that runs in a VM of this process.
///
/// # Errors
/// When the VM dies, or our terminal fails.
pub fn local(mut program: Program) -> Result<i32> {
    let handle = program.handle();
    attach(&handle, move || loop {
        match program.event(Duration::from_secs(3600))? {
            Some(Event::Output(_, bytes)) => return Ok(Ok(bytes)),
            Some(Event::Exited(exit)) => return Ok(Err(exit)),
            Some(Event::Failed(error)) => anyhow::bail!("{error}"),
            None => {}
        }
    })
}
