// SPDX-License-Identifier: GPL-2.0-or-later
//! The threads that watch a VM: its console, its guard, its agent.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{lock, Shared};
use crate::dmesg;
use crate::proto::Decoder;

/// Waits for a connection, until the VM is dead.
pub(super) fn accept(listener: &UnixListener, vm: &Shared) -> Option<UnixStream> {
    listener.set_nonblocking(true).ok()?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).ok()?;
                return Some(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if vm.is_dead() {
                    return None;
                }
                thread::sleep(Duration::from_millis(5));
            }
            Err(_) => return None,
        }
    }
}

/// Writes the console to its log; a panic in it is the VM's death.
pub(super) fn follow_console(vm: &Shared, mut source: impl Read, mut log: File) {
    let mut chunk = [0; 4096];
    let mut line = Vec::new();
    loop {
        match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => {
                let _ = log.write_all(&chunk[..n]);
                for &byte in &chunk[..n] {
                    if byte != b'\n' {
                        line.push(byte);
                        continue;
                    }
                    let text = String::from_utf8_lossy(&line);
                    if dmesg::is_panic(&text) {
                        vm.die(&format!("its kernel panicked: {}", text.trim()));
                    }
                    line.clear();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    vm.die("virtme-ng ended");
}

/// Learns from the guard how QEMU ended.
pub(super) fn follow_guard(vm: &Shared, listener: &UnixListener) {
    let Some(stream) = accept(listener, vm) else {
        return;
    };
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let mut state = lock(&vm.state);
        match line.strip_prefix("pid ") {
            Some(pid) => state.qemu_pid = pid.parse().ok(),
            None => state.qemu_end = Some(line),
        }
    }
    let closing = {
        let mut state = lock(&vm.state);
        if state.qemu_end.is_none() {
            state.qemu_end = Some("no word".into());
        }
        state.closing
    };
    vm.die(if closing {
        "it was ended"
    } else {
        "its guest powered off or QEMU failed"
    });
}

/// Handles what the agent reports.
pub(super) fn follow_agent(vm: &Shared, listener: &UnixListener, mut log: File) {
    let Some(mut stream) = accept(listener, vm) else {
        return;
    };
    match stream.try_clone() {
        Ok(clone) => *lock(&vm.agent) = Some(clone),
        Err(error) => return vm.die(&format!("the agent's socket broke: {error}")),
    }
    let mut decoder = Decoder::default();
    let mut chunk = vec![0; 64 << 10];
    let mut resets = 0;
    loop {
        let n = match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let now = lock(&vm.state).resets;
        if now != resets {
            resets = now;
            decoder.reset();
        }
        decoder.push(&chunk[..n]);
        while let Some(report) = decoder.take() {
            vm.handle(report, &mut log);
        }
    }
    vm.die("QEMU closed the agent's port");
}

/// The last lines of a log, indented.
pub(super) fn last_lines(path: &Path, count: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().rev().take(count).collect();
    let lines: Vec<_> = lines
        .into_iter()
        .rev()
        .map(|line| format!("    {}", line.trim_end()))
        .collect();
    lines.join("\n")
}
