// SPDX-License-Identifier: GPL-2.0-or-later
//! Queues that cannot be: what the kernel is told of a buffer makes no sense.

use std::io;

use anyhow::{bail, Context as _, Result};
use ochre_abi::{CreateCqReq, CreateQpReq};
use ochre_hw::cqe::Cqe;
use ochre_hw::queue::QpLayout;

use crate::objects::{request, Cq, Kind, SIZES};
use crate::pages::{Pages, PAGE};
use crate::uverbs::{Context, QpOf};

/// Where no memory of a process can be.
const NOWHERE: u64 = 1 << 46;

/// Holds that a call failed with this error.
fn refused<T>(what: &str, result: io::Result<T>, error: i32) -> Result<()> {
    match result {
        Ok(_) => bail!("{what}: it was made"),
        Err(e) if e.raw_os_error() == Some(error) => Ok(()),
        Err(e) => bail!("{what}: {e}, expected error {error}"),
    }
}

type Change<R> = fn(&mut R);

/// CQs.
pub fn of_cqs() -> Result<()> {
    const WRONG: &[(&str, Change<CreateCqReq>, i32)] = &[
        ("no memory", |r| r.buf_addr = NOWHERE, libc::EFAULT),
        ("address 0", |r| r.buf_addr = 0, libc::EINVAL),
        (
            "an address off the page",
            |r| r.buf_addr += 64,
            libc::EINVAL,
        ),
        ("a length off the page", |r| r.buf_len -= 64, libc::EINVAL),
        ("no length", |r| r.buf_len = 0, libc::EINVAL),
        ("a length beyond all", |r| r.buf_len = !4095, libc::EINVAL),
        (
            "too many entries for it",
            |r| r.log_entries = 12,
            libc::EINVAL,
        ),
        ("2^31 entries", |r| r.log_entries = 31, libc::EINVAL),
        (
            "2^4294967295 entries",
            |r| r.log_entries = u32::MAX,
            libc::EINVAL,
        ),
        ("reserved bytes", |r| r.reserved = 1, libc::EINVAL),
    ];
    let context = Context::open()?;
    let memory = Pages::new(2 * PAGE)?;
    let good = CreateCqReq {
        buf_addr: memory.addr(),
        buf_len: memory.len() as u64,
        log_entries: ((memory.len() / Cqe::SIZE) as u32).ilog2() - 1,
        reserved: 0,
    };
    for &(what, change, error) in WRONG {
        let mut bad = good;
        change(&mut bad);
        refused(what, context.create_cq(4, None, &bad), error)?;
    }
    let cq = context.create_cq(4, None, &good)?;
    context.destroy_cq(cq)?;
    Ok(())
}

/// QPs.
pub fn of_qps() -> Result<()> {
    const WRONG: &[(&str, Change<CreateQpReq>, i32)] = &[
        ("no memory", |r| r.buf_addr = NOWHERE, libc::EFAULT),
        ("address 0", |r| r.buf_addr = 0, libc::EINVAL),
        (
            "an address off the page",
            |r| r.buf_addr += 64,
            libc::EINVAL,
        ),
        ("a length off the page", |r| r.buf_len -= 64, libc::EINVAL),
        ("no length", |r| r.buf_len = 0, libc::EINVAL),
        ("sends over the record", |r| r.sq_offset = 0, libc::EINVAL),
        (
            "receives over the record",
            |r| r.rq_offset = 64,
            libc::EINVAL,
        ),
        ("sends off their place", |r| r.sq_offset += 4, libc::EINVAL),
        (
            "receives off their place",
            |r| r.rq_offset += 4,
            libc::EINVAL,
        ),
        (
            "sends behind the buffer",
            |r| r.sq_offset = 1 << 20,
            libc::EINVAL,
        ),
        (
            "sends at the end of all",
            |r| r.sq_offset = !127,
            libc::EINVAL,
        ),
        (
            "receives behind the buffer",
            |r| r.rq_offset = 1 << 20,
            libc::EINVAL,
        ),
        (
            "too many sends for it",
            |r| r.log_sq_slots = 15,
            libc::EINVAL,
        ),
        ("2^255 sends", |r| r.log_sq_slots = 255, libc::EINVAL),
        ("2^255 receives", |r| r.log_rq_slots = 255, libc::EINVAL),
        ("slots of a byte", |r| r.log_sq_stride = 0, libc::EINVAL),
        (
            "slots of 2^255 bytes",
            |r| r.log_rq_stride = 255,
            libc::EINVAL,
        ),
        (
            "fewer slots than were asked for",
            |r| r.log_sq_slots = 0,
            libc::EINVAL,
        ),
        ("reserved bytes", |r| r.reserved = 1, libc::EINVAL),
    ];
    let context = Context::open()?;
    let pd = context.alloc_pd()?;
    let cq = Cq::new(&context, 4, false)?;
    let layout = QpLayout::new(&SIZES).context("the layout of a QP")?;
    let memory = Pages::new(layout.bytes as usize)?;
    let of = QpOf {
        pd: pd.handle,
        cqs: [cq.object.handle; 2],
        kind: Kind::Rc as u8,
        sizes: [SIZES.send_wr, SIZES.recv_wr, 4, 4, 64],
    };
    let good = request(&memory, &layout);
    for &(what, change, error) in WRONG {
        let mut bad = good;
        change(&mut bad);
        refused(what, context.create_qp(&of, &bad), error)?;
    }
    for kind in [0, 1, 7, 8, 9, 255] {
        let of = QpOf { kind, ..of };
        if context.create_qp(&of, &good).is_ok() {
            bail!("a QP of type {kind} was made");
        }
    }
    let qp = context.create_qp(&of, &good)?;
    context.destroy_qp(qp)?;
    context.destroy_cq(cq.object)?;
    context.dealloc_pd(pd)?;
    Ok(())
}
