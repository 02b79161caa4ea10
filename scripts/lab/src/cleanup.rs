// SPDX-License-Identifier: GPL-2.0-or-later
//! Leaves nothing behind: process groups and folders are noted here as they are made, and removed on
//! the way out, whichever way that is.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

#[derive(Default)]
struct Owned {
    groups: Vec<i32>,
    folders: Vec<PathBuf>,
    restore: Option<fn()>,
}

static OWNED: Mutex<Owned> = Mutex::new(Owned {
    groups: Vec::new(),
    folders: Vec::new(),
    restore: None,
});

static STOPPING: AtomicBool = AtomicBool::new(false);

fn owned() -> MutexGuard<'static, Owned> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Arranges for the cleaning on SIGINT, SIGTERM, SIGHUP and on a panic.
///
/// # Errors
/// When the signals cannot be caught.
pub fn install() -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch the signals that end us")?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            STOPPING.store(true, Ordering::SeqCst);
            let ended = if all() {
                "; its virtual machines are gone"
            } else {
                ""
            };
            eprintln!("ochre-lab: stopped by signal {signal}{ended}");
            std::process::exit(128 + signal);
        }
    });
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        all();
        previous(info);
    }));
    Ok(())
}

/// Whether a signal has asked the lab to end.
pub fn stopping() -> bool {
    STOPPING.load(Ordering::SeqCst)
}

/// Notes a process group to end.
pub fn add_group(group: i32) {
    owned().groups.push(group);
}

/// Ends a process group now and forgets it.
pub fn end_group(group: i32) {
    let mut owned = owned();
    if let Some(at) = owned.groups.iter().position(|&other| other == group) {
        owned.groups.remove(at);
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// Notes a folder to remove.
pub fn add_folder(folder: &Path) {
    owned().folders.push(folder.to_owned());
}

/// Sets what puts the terminal right again.
pub fn on_exit(restore: fn()) {
    owned().restore = Some(restore);
}

/// Ends and removes everything that was noted; returns whether there were processes to end.
pub fn all() -> bool {
    let mut owned = owned();
    let any = !owned.groups.is_empty();
    for group in owned.groups.drain(..) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    for folder in owned.folders.drain(..) {
        let _ = fs::remove_dir_all(folder);
    }
    if let Some(restore) = owned.restore.take() {
        restore();
    }
    any
}
