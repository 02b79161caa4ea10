// SPDX-License-Identifier: GPL-2.0-or-later
//! Starts QEMU in place of virtme-ng and ends it when the lab is gone.
//!
//! virtme-ng is told that the guard is its QEMU. Questions about the version pass through; a virtual
//! machine runs as the guard's child while the guard holds a connection to the lab. The lab learns
//! how QEMU ended, and a lab that vanishes, however, takes QEMU with it.

use std::env;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::getpgrp;

/// The QEMU to run.
pub const QEMU: &str = "OCHRE_GUARD_QEMU";

/// The lab's socket.
pub const SOCKET: &str = "OCHRE_GUARD_SOCKET";

/// Runs QEMU with this process's arguments.
///
/// # Errors
/// When the environment is not as the lab makes it, or QEMU cannot be started.
pub fn run() -> Result<ExitCode> {
    let qemu = env::var_os(QEMU).with_context(|| format!("{QEMU} is not set; the lab sets it"))?;
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "-kernel") {
        let error = Command::new(&qemu).args(&arguments).exec();
        return Err(error).with_context(|| format!("cannot start {}", qemu.to_string_lossy()));
    }

    let socket =
        env::var_os(SOCKET).with_context(|| format!("{SOCKET} is not set; the lab sets it"))?;
    let mut lab = UnixStream::connect(&socket)
        .with_context(|| format!("cannot reach the lab at {}", socket.to_string_lossy()))?;
    let mut child = Command::new(&qemu)
        .args(&arguments)
        .spawn()
        .with_context(|| format!("cannot start {}", qemu.to_string_lossy()))?;
    let _ = writeln!(lab, "pid {}", child.id());

    let mut watched = lab.try_clone().context("cannot watch the lab")?;
    thread::spawn(move || {
        // The lab writes nothing: a read returns when it has ended.
        let _ = watched.read(&mut [0]);
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    });

    let status = child.wait().context("cannot wait for QEMU")?;
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => format!("code {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    };
    let _ = writeln!(lab, "{ended}");
    Ok(ExitCode::from(
        u8::try_from(status.code().unwrap_or(1)).unwrap_or(1),
    ))
}
