// SPDX-License-Identifier: GPL-2.0-or-later
//! What only a debug kernel can tell, beyond its log: memory that nobody can free any more, and whether its
//! checks still run at all.

use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, Result};

use crate::lab::{shell, Lab};
use crate::vm::Vm;

/// Arguments for a debug kernel.
///
/// - While it looks at its processor, the kernel has no features for a moment, not even 57-bit addresses: KASAN
///   calls memory wild that an interrupt uses just then. With 48 bits it does not ask.
/// - A small configuration has KUnit off until it is asked for; then suites run as their module is loaded.
pub const ARGUMENTS: &[&str] = &["no5lvl", "kunit.enable=1", "kunit.autorun=1"];

/// How long two scans may take.
const LIMIT: Duration = Duration::from_secs(60);

/// kmemleak passes over what is younger than 5 s, and over what has changed since its last look: so it takes two
/// scans to believe that something is lost. Lockdep turns itself off with its first report, or when its tables
/// are full.
const SCRIPT: &str = "set -e
    leaks=/sys/kernel/debug/kmemleak
    sleep 6
    echo scan >$leaks
    echo scan >$leaks
    cat $leaks
    echo clear >$leaks
    if ! grep -qE 'debug_locks: +1$' /proc/lockdep_stats; then
        echo 'lockdep has turned itself off' >&2
        exit 1
    fi";

/// Looks into the kernels of a lab; the answer says what is wrong.
///
/// # Errors
/// When a kernel cannot be asked.
pub fn faults(lab: &Lab) -> Result<Option<String>> {
    let answers: Vec<Result<Option<String>>> = thread::scope(|scope| {
        let threads: Vec<_> = lab
            .vms
            .iter()
            .map(|vm| scope.spawn(move || ask(vm)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a question to a VM failed")))
            })
            .collect()
    });
    for answer in answers {
        if let Some(fault) = answer? {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

fn ask(vm: &Vm) -> Result<Option<String>> {
    let finished = shell(vm, SCRIPT, false)?.wait(LIMIT)?;
    if !finished.exit.ok() {
        bail!(
            "VM {}: the debug kernel does not do its checks: {}",
            vm.name(),
            finished.err.trim()
        );
    }
    if finished.out.trim().is_empty() {
        return Ok(None);
    }
    Ok(Some(format!(
        "VM {}'s kernel has lost memory:\n{}",
        vm.name(),
        finished.out.trim_end()
    )))
}
