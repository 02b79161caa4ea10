// SPDX-License-Identifier: GPL-2.0-or-later
//! Chooses what executes the guests, by booting one.
//!
//! A usable `/dev/kvm` proves nothing: on some nested hosts a stock kernel hangs or is refused. So the
//! probe boots the kernel without a root file system under KVM, and believes in KVM only when the
//! kernel comes as far as missing it. The answer is kept in the cache until QEMU, the kernel or
//! `/dev/kvm` change.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cleanup;
use crate::launch::Accel;
use crate::paths;

/// A stock kernel needs about one second under KVM.
const LIMIT: Duration = Duration::from_secs(8);

/// What the probe found, and why.
#[derive(Debug)]
pub struct Outcome {
    /// The accelerator to use.
    pub accel: Accel,
    /// One line for a person.
    pub reason: String,
}

/// The accelerator for this QEMU and this kernel: the variable `OCHRE_ACCEL`, the kept answer, or a
/// new probe.
///
/// # Errors
/// When the variable holds nonsense or the probe cannot be run at all.
pub fn choose(qemu: &Path, kernel: &Path, afresh: bool) -> Result<Outcome> {
    if let Ok(name) = std::env::var("OCHRE_ACCEL") {
        let accel = match name.as_str() {
            "kvm" => Accel::Kvm,
            "tcg" => Accel::Tcg,
            _ => bail!("OCHRE_ACCEL is '{name}'; it can be 'kvm' or 'tcg'"),
        };
        return Ok(Outcome {
            accel,
            reason: "as OCHRE_ACCEL says".into(),
        });
    }
    let key = format!(
        "{} {} {}",
        stamp(qemu),
        stamp(kernel),
        stamp("/dev/kvm".as_ref())
    );
    let kept = paths::cache()?.join("accel");
    if !afresh {
        let text = fs::read_to_string(&kept).unwrap_or_default();
        let mut lines = text.lines();
        if lines.next() == Some(&key) {
            let accel = match lines.next() {
                Some("kvm") => Some(Accel::Kvm),
                Some("tcg") => Some(Accel::Tcg),
                _ => None,
            };
            if let (Some(accel), Some(reason)) = (accel, lines.next()) {
                return Ok(Outcome {
                    accel,
                    reason: format!("{reason} (probed before)"),
                });
            }
        }
    }
    let outcome = probe(qemu, kernel)?;
    let text = format!("{key}\n{}\n{}\n", outcome.accel, outcome.reason);
    fs::write(&kept, text).with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(outcome)
}

/// What identifies a file's present content well enough.
fn stamp(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(data) => format!(
            "{}:{}:{}:{}",
            path.display(),
            data.ino(),
            data.size(),
            data.mtime()
        ),
        Err(_) => format!("{}:-", path.display()),
    }
}

fn probe(qemu: &Path, kernel: &Path) -> Result<Outcome> {
    let tcg = |reason: &str| Outcome {
        accel: Accel::Tcg,
        reason: reason.to_owned(),
    };
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm");
    if let Err(error) = device {
        return Ok(tcg(&format!("/dev/kvm cannot be opened: {error}")));
    }
    let mut child = Command::new(qemu)
        .args(["-machine", "q35,accel=kvm", "-cpu", "host", "-m", "256M"])
        .args(["-nodefaults", "-no-reboot", "-display", "none"])
        .args(["-L", "/usr/share/seabios", "-L", "/usr/share/qemu"])
        .args(["-serial", "stdio", "-kernel"])
        .arg(kernel)
        .args(["-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", qemu.display()))?;
    let group = i32::try_from(child.id()).context("a process number out of range")?;
    cleanup::add_group(group);
    let (sender, pieces) = channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as _),
        child.stderr.take().map(|stream| Box::new(stream) as _),
    ];
    for mut stream in streams.into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut chunk) {
                if sender.send(chunk[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);

    let start = Instant::now();
    let mut said = Vec::new();
    let outcome = loop {
        let text = String::from_utf8_lossy(&said);
        if text.contains("VFS: Unable to mount root fs") || text.contains("not syncing: VFS") {
            break Outcome {
                accel: Accel::Kvm,
                reason: format!(
                    "the kernel boots under KVM in {:.1} s",
                    start.elapsed().as_secs_f64()
                ),
            };
        }
        if text.contains("KVM internal error") {
            break tcg("KVM fails on this host with an internal error");
        }
        match pieces.recv_timeout(LIMIT.saturating_sub(start.elapsed())) {
            Ok(piece) => said.extend(piece),
            Err(RecvTimeoutError::Timeout) => {
                break tcg(&format!(
                    "the kernel hangs under KVM ({} s)",
                    LIMIT.as_secs()
                ));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let last = text.lines().last().unwrap_or("it said nothing").trim();
                break tcg(&format!("QEMU gave up under KVM: {last}"));
            }
        }
    };
    cleanup::end_group(group);
    let _ = child.wait();
    Ok(outcome)
}
