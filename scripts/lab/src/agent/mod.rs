// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent in the guest: runs programs and reports the kernel log over a virtio-serial port.

mod init;
mod kmsg;
mod port;
mod programs;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::reboot::{reboot, RebootMode};

use crate::proto::{Decoder, Report, Request};
use port::Port;
use programs::Programs;

/// How long the host may be away before the guest powers itself off.
const ABANDONED: Duration = Duration::from_secs(5);

/// Runs the agent until the host asks for a power-off, or is gone for good.
///
/// # Errors
/// When the port is missing or breaks.
pub fn run() -> io::Result<()> {
    if init::is_first() {
        init::run()
    } else {
        serve()
    }
}

fn serve() -> io::Result<()> {
    let port = Arc::new(Port::open()?);
    let programs = Programs::new(Arc::clone(&port));
    port.send(&ready())?;
    {
        let port = Arc::clone(&port);
        thread::spawn(move || {
            if let Err(error) = kmsg::stream(&port) {
                eprintln!("ochre-agent: kernel log: {error}");
            }
        });
    }

    let mut decoder = Decoder::default();
    let mut chunk = vec![0; 64 << 10];
    let mut away = Duration::ZERO;
    loop {
        let n = port.receive(&mut chunk)?;
        if n == 0 {
            // Nobody holds the port's other end.
            let pause = Duration::from_millis(50);
            thread::sleep(pause);
            away += pause;
            if away >= ABANDONED {
                return shut_down(RebootMode::RB_POWER_OFF);
            }
            continue;
        }
        away = Duration::ZERO;
        decoder.push(&chunk[..n]);
        while let Some(request) = decoder.take() {
            match request {
                Request::Exec { id, command } => programs.start(id, command),
                Request::Stdin { id, data } => programs.input(id, data.0),
                Request::Resize { id, size } => programs.resize(id, size),
                Request::Kill { id, signal } => programs.kill(id, signal),
                Request::Poweroff => return shut_down(RebootMode::RB_POWER_OFF),
                Request::Reboot => return shut_down(RebootMode::RB_AUTOBOOT),
            }
        }
    }
}

fn ready() -> Report {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = uptime
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Report::Ready {
        kernel: kernel.trim().to_owned(),
        uptime_ms: (seconds * 1000.0) as u64,
    }
}

fn shut_down(mode: RebootMode) -> io::Result<()> {
    nix::unistd::sync();
    match reboot(mode) {
        Ok(never) => match never {},
        Err(errno) => Err(errno.into()),
    }
}
