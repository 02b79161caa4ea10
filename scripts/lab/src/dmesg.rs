// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds in a kernel log what must not be there.

use crate::proto::Record;

/// What the kernel prints when something is wrong with itself.
const SPLATS: &[&str] = &[
    "WARNING:",
    "BUG:",
    "kernel BUG at",
    "Oops:",
    "general protection fault",
    "Kernel panic",
    "unable to handle",
    "Unable to handle",
    "INFO: task ",
    "INFO: trying to register non-static key",
    "hung_task:",
    "blocked for more than",
    "rcu: INFO:",
    "RCU Stall",
    "soft lockup",
    "hard LOCKUP",
    "possible circular locking",
    "possible recursive locking",
    "possible irq lock inversion",
    "inconsistent lock state",
    "suspicious RCU usage",
    "sleeping function called from invalid context",
    "scheduling while atomic",
    "workqueue lockup",
    "nobody cared",
    "refcount_t:",
    "UBSAN:",
    "KASAN:",
    "list_add corruption",
    "list_del corruption",
    "rust_kernel: panicked",
    "rust_panic",
    "suspected memory leaks",
    "Kernel memory leak detector disabled",
    "turning off the locking correctness validator",
];

/// The records that tell of a fault in the kernel or in a driver.
pub fn splats(records: &[Record]) -> Vec<&Record> {
    records
        .iter()
        .filter(|record| is_splat(&record.text))
        .collect()
}

/// Whether a line of the kernel's log tells of a fault.
pub fn is_splat(text: &str) -> bool {
    SPLATS.iter().any(|splat| text.contains(splat))
}

/// Whether a line says that the kernel has stopped for good.
pub fn is_panic(text: &str) -> bool {
    text.contains("Kernel panic - not syncing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_seen() {
        for text in [
            "WARNING: CPU: 0 PID: 312 at drivers/infiniband/core/device.c:1 ib_free+0x1",
            "BUG: unable to handle page fault for address: 0000000000000010",
            "Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI",
            "INFO: task opensm:312 blocked for more than 120 seconds.",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "WARNING: possible circular locking dependency detected",
            "refcount_t: underflow; use-after-free.",
        ] {
            assert!(is_splat(text), "{text}");
        }
    }

    #[test]
    fn ordinary_lines_are_not() {
        for text in [
            "ochre 0000:01:00.0: port 1 is up",
            "Kernel command line: quiet hung_task_panic=1",
            "rcu: Hierarchical RCU implementation.",
            "Debug: sleeping",
        ] {
            assert!(!is_splat(text), "{text}");
        }
    }
}
