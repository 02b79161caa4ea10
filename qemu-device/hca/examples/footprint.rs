// SPDX-License-Identifier: GPL-2.0-or-later
//! What the device keeps in memory for an idle QP and for a memory region: 10,000 connected QPs and
//! 100,000 regions are made, and an allocator counts. Prints one JSON object.

#[path = "../tests/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::host::{Pair, LID_B};
use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, QpType};
use ochre_link::mem::MemConfig;
use ochre_link::PortConfig;

const QPS: u32 = 10_000;
const MRS: u32 = 100_000;

static HELD: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

fn main() {
    let memory = (64 << 20) + QPS as usize * 8192;
    let mut pair = Pair::with_memory(MemConfig::default(), PortConfig::default(), memory);
    pair.bring_up();
    let host = &mut pair.a;
    let sizes = QpSizes {
        send_wr: 16,
        send_sge: 1,
        inline_data: 64,
        recv_wr: 16,
        recv_sge: 1,
    };
    let pd = host.alloc_pd();
    let (cq, _queue) = host.create_cq(0, 8);
    let (_, place) = host.create_mr(pd, 4096, access::REGION);

    let before = held();
    // What the guest keeps for a QP is not the device's.
    let mut numbers = Vec::with_capacity(QPS as usize);
    let own = held() - before;
    for _ in 0..QPS {
        let (number, _) = host.create_qp(QpType::Rc, pd, [cq, cq], &sizes);
        host.start_rc(number, number, LID_B);
        numbers.push(number);
    }
    let qp = (held() - before - own) / QPS as usize;

    let before = held();
    for _ in 0..MRS {
        host.create_mr_at(pd, place, 4096, access::REGION);
    }
    let mr = (held() - before) / MRS as usize;
    let objects = host.objects();
    println!(
        "{{\"qp_bytes\": {qp}, \"mr_bytes\": {mr}, \"qps\": {}, \"mrs\": {}}}",
        numbers.len(),
        objects.mrs
    );
}
