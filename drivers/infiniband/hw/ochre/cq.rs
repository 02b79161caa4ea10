// SPDX-License-Identifier: GPL-2.0-or-later

//! Completion queues.

use crate::{
    abi::{
        CreateCqReq,
        CreateCqResp, //
    },
    block::Block,
    cmd::{
        CreateCq,
        DestroyCq,
        ModifyCq,
        Wait, //
    },
    device::Data,
    hw::{
        cmd::queue::{
            self as hw_queue,
            MAX_LOG_CQE, //
        },
        cqe::Cqe,
        queue::{
            CqRecord,
            MemDesc, //
        },
    },
    mem::UserBuffer,
    rdma::{
        CqInitAttr,
        CqPrivate,
        Hca,
        Udata,
        Umem, //
    },
    Ochre, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

mod kernel_cq;

pub(crate) use self::kernel_cq::{
    KernelCq,
    Member, //
};

/// `IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION`: every completion of ours has a time.
const FLAG_TIMESTAMP: u32 = 1 << 0;

/// Whose queue it is.
enum Kind {
    /// A process polls it by itself.
    User { _umem: Umem },
    /// The kernel polls it.
    Kernel(Arc<KernelCq>),
}

/// Private data of a completion queue.
pub(crate) struct Cq {
    number: u32,
    entries: u32,
    kind: Kind,
}

impl Cq {
    /// The queue of the kernel; [`EINVAL`] where a process has it.
    pub(crate) fn kernel(&self) -> Result<&Arc<KernelCq>> {
        match &self.kind {
            Kind::Kernel(cq) => Ok(cq),
            Kind::User { .. } => Err(EINVAL),
        }
    }
}

impl CqPrivate for Cq {
    fn number(&self) -> u32 {
        self.number
    }

    fn entries(&self) -> u32 {
        self.entries
    }
}

/// Makes a completion queue.
pub(crate) fn create(
    hca: Hca<'_, Ochre>,
    attr: &CqInitAttr,
    udata: &Udata<'_, Ochre>,
) -> Result<Cq> {
    if attr.flags & !FLAG_TIMESTAMP != 0 {
        return Err(EOPNOTSUPP);
    }
    if attr.cqe == 0 || attr.cqe > hca.limits.max_cqe {
        return Err(EINVAL);
    }
    let eq = hca.comp_eq(attr.comp_vector)?;

    if udata.is_user() {
        create_user(hca, attr, eq, udata)
    } else {
        create_kernel(&hca, attr, eq)
    }
}

fn command(data: &Data<'_>, mem: MemDesc, eq: u32, log_entries: u8) -> Result<u32> {
    let input = hw_queue::CreateCq {
        mem,
        eq,
        log_entries,
        ..hw_queue::CreateCq::default()
    };

    Ok(data.command::<CreateCq>(input, Wait::Sleep)?.number)
}

/// Bytes of a queue of `1 << log_entries` completions.
fn bytes(log_entries: u8) -> usize {
    CqRecord::SIZE + (Cqe::SIZE << log_entries)
}

fn create_kernel(data: &Data<'_>, attr: &CqInitAttr, eq: u32) -> Result<Cq> {
    let entries = attr.cqe.checked_next_power_of_two().ok_or(EINVAL)?;
    let log_entries = entries.ilog2() as u8;
    let buffer = Block::new(data.pdev.as_ref(), bytes(log_entries))?;
    let desc = buffer.desc();
    let cq = Arc::pin_init(KernelCq::new(buffer, log_entries), GFP_KERNEL)?;

    Ok(Cq {
        number: command(data, desc, eq, log_entries)?,
        entries,
        kind: Kind::Kernel(cq),
    })
}

fn create_user(
    hca: Hca<'_, Ochre>,
    attr: &CqInitAttr,
    eq: u32,
    udata: &Udata<'_, Ochre>,
) -> Result<Cq> {
    let request = CreateCqReq::from_bytes(&udata.read(CreateCqReq::SIZE)?);
    if request.reserved != 0 || request.log_entries > MAX_LOG_CQE.into() {
        return Err(EINVAL);
    }
    let log_entries = request.log_entries as u8;
    let entries = 1 << log_entries;
    if attr.cqe > entries || entries > hca.limits.max_cqe.next_power_of_two() {
        return Err(EINVAL);
    }

    let buffer = UserBuffer::pin(
        hca,
        request.buf_addr,
        request.buf_len,
        bytes(log_entries) as u64,
    )?;
    let number = command(&hca, buffer.desc(), eq, log_entries)?;

    let response = CreateCqResp {
        cqn: number,
        ..CreateCqResp::default()
    };
    if let Err(e) = udata.respond(&response.to_bytes()) {
        hca.destroy::<DestroyCq>(number);
        return Err(e);
    }
    Ok(Cq {
        number,
        entries,
        kind: Kind::User {
            _umem: buffer.into_umem(),
        },
    })
}

/// The queue is going.
pub(crate) fn destroy(data: &Data<'_>, cq: &Cq) {
    data.destroy::<DestroyCq>(cq.number);
}

/// Sets the moderation of a queue's events.
pub(crate) fn modify(data: &Data<'_>, cq: &Cq, count: u16, period: u16) -> Result {
    let input = hw_queue::ModifyCq {
        cq: cq.number,
        count,
        period,
        ..hw_queue::ModifyCq::default()
    };

    data.command::<ModifyCq>(input, Wait::Sleep)
}
