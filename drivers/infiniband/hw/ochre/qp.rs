// SPDX-License-Identifier: GPL-2.0-or-later

//! Queue pairs.

use crate::{
    abi::{
        CreateQpReq,
        CreateQpResp, //
    },
    cmd::{
        AttachMulticast,
        CreateQp,
        DestroyQp,
        DetachMulticast,
        Wait, //
    },
    cq::{
        Cq,
        KernelCq,
        Member, //
    },
    device::Data,
    hw::{
        cmd::{
            device::QueryDeviceOut,
            qp as hw_qp, //
        },
        doorbell,
        queue::{
            MemDesc,
            QpLayout,
            QpRecord,
            QpSizes,
            MAX_LOG_RQ_STRIDE,
            MAX_LOG_SQ_STRIDE,
            MAX_LOG_WR,
            MIN_LOG_RQ_STRIDE,
            MIN_LOG_SQ_STRIDE, //
        },
        verbs,
    },
    mem::UserBuffer,
    pd::Pd,
    queue::{
        Queues,
        Side, //
    },
    rdma::{
        CqPrivate,
        Hca,
        QpCaps,
        QpInitAttr,
        QpPrivate,
        QpState,
        QpType,
        SignalType,
        Udata,
        Umem, //
    },
    Ochre, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

mod attr;

pub(crate) use self::attr::{
    modify,
    query, //
};

/// What a queue pair of the kernel has.
pub(crate) struct KernelQp {
    queues: Pin<KBox<Queues>>,
    send_cq: Arc<KernelCq>,
    recv_cq: Arc<KernelCq>,
    member: Member,
}

/// Whose queue pair it is.
enum Kind {
    /// A process posts by itself.
    User { _umem: Umem },
    /// The kernel posts.
    Kernel(KernelQp),
}

/// Private data of a queue pair.
pub(crate) struct Qp {
    number: u32,
    qp_type: QpType,
    /// The state that it was set to last; the device may have gone on to an error state.
    state: Atomic<u32>,
    /// Every send of the kernel writes a completion.
    signal_all: bool,
    caps: QpCaps,
    send_cqn: u32,
    recv_cqn: u32,
    kind: Kind,
}

impl Qp {
    fn kernel(&self) -> Result<&KernelQp> {
        match &self.kind {
            Kind::Kernel(kernel) => Ok(kernel),
            Kind::User { .. } => Err(EINVAL),
        }
    }

    /// The queues of the kernel; [`EINVAL`] where a process has them.
    pub(crate) fn queues(&self) -> Result<&Queues> {
        Ok(&self.kernel()?.queues)
    }

    /// The kernel's completion queue of one side; [`EINVAL`] where a process has it.
    pub(crate) fn kernel_cq(&self, side: Side) -> Result<&KernelCq> {
        let kernel = self.kernel()?;

        Ok(match side {
            Side::Send => &kernel.send_cq,
            Side::Recv => &kernel.recv_cq,
        })
    }

    /// Number of the completion queue of one side.
    pub(crate) fn cqn(&self, side: Side) -> u32 {
        match side {
            Side::Send => self.send_cqn,
            Side::Recv => self.recv_cqn,
        }
    }

    /// Its type.
    pub(crate) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Whether every send writes a completion.
    pub(crate) fn signal_all(&self) -> bool {
        self.signal_all
    }

    /// Its sizes.
    pub(crate) fn caps(&self) -> &QpCaps {
        &self.caps
    }

    /// The state that it was set to last.
    pub(crate) fn state(&self) -> QpState {
        QpState::from_raw(self.state.load(Relaxed)).unwrap_or(QpState::Err)
    }

    fn set_state(&self, state: QpState) {
        self.state.store(state as u32, Relaxed);
    }

    /// The queue pair is in RESET: nothing that was posted is left.
    fn forget_requests(&self) {
        if let Kind::Kernel(kernel) = &self.kind {
            kernel.send_cq.purge(&kernel.member);
            kernel.recv_cq.purge(&kernel.member);
            kernel.queues.reset();
        }
    }
}

impl QpPrivate for Qp {
    fn number(&self) -> u32 {
        self.number
    }
}

fn hw_type(qp_type: QpType) -> verbs::QpType {
    match qp_type {
        QpType::Smi => verbs::QpType::Smi,
        QpType::Gsi => verbs::QpType::Gsi,
        QpType::Rc => verbs::QpType::Rc,
        QpType::Uc => verbs::QpType::Uc,
        QpType::Ud => verbs::QpType::Ud,
    }
}

/// Port of a special QP, 0 for others.
fn special_port(data: &Data<'_>, attr: &QpInitAttr<'_, Ochre>) -> Result<u8> {
    match attr.qp_type() {
        QpType::Smi | QpType::Gsi => {
            let port = u8::try_from(attr.port()).map_err(|_| EINVAL)?;
            if !(1..=data.limits.ports).contains(&port) {
                return Err(EINVAL);
            }
            Ok(port)
        }
        _ => Ok(0),
    }
}

fn check_caps(limits: &QueryDeviceOut, caps: &QpCaps) -> Result {
    if caps.max_send_wr > limits.max_qp_wr
        || caps.max_recv_wr > limits.max_qp_wr
        || caps.max_send_sge > limits.max_sge
        || caps.max_recv_sge > limits.max_sge
        || caps.max_inline_data > limits.max_inline
    {
        return Err(EINVAL);
    }
    Ok(())
}

fn sizes(caps: &QpCaps) -> QpSizes {
    QpSizes {
        send_wr: caps.max_send_wr,
        send_sge: caps.max_send_sge,
        inline_data: caps.max_inline_data,
        recv_wr: caps.max_recv_wr,
        recv_sge: caps.max_recv_sge,
    }
}

/// The sizes that a layout has, as far as the device allows them.
fn caps(limits: &QueryDeviceOut, layout: &QpLayout) -> QpCaps {
    let sizes = layout.sizes();

    QpCaps {
        max_send_wr: sizes.send_wr.min(limits.max_qp_wr),
        max_recv_wr: sizes.recv_wr.min(limits.max_qp_wr),
        max_send_sge: sizes.send_sge.min(limits.max_sge),
        max_recv_sge: sizes.recv_sge.min(limits.max_sge),
        max_inline_data: sizes.inline_data.min(limits.max_inline),
    }
}

/// Makes a queue pair.
pub(crate) fn create(
    hca: Hca<'_, Ochre>,
    pd: &Pd,
    attr: &mut QpInitAttr<'_, Ochre>,
    udata: &Udata<'_, Ochre>,
) -> Result<Qp> {
    if attr.create_flags() != 0 {
        return Err(EOPNOTSUPP);
    }
    check_caps(&hca.limits, &attr.caps())?;
    let port = special_port(&hca, attr)?;

    let qp = match udata.context() {
        Some(context) => {
            if port != 0 {
                return Err(EINVAL);
            }
            create_user(hca, pd, attr, udata, context.page())?
        }
        None => create_kernel(&hca, pd, attr, port)?,
    };
    attr.set_caps(&qp.caps);
    Ok(qp)
}

fn command(
    data: &Data<'_>,
    pd: &Pd,
    attr: &QpInitAttr<'_, Ochre>,
    mem: MemDesc,
    layout: &QpLayout,
    port: u8,
    page: u32,
) -> Result<u32> {
    let input = hw_qp::CreateQp {
        mem,
        sq_offset: layout.sq_offset,
        rq_offset: layout.rq_offset,
        log_sq_slots: layout.log_sq_slots,
        log_sq_stride: layout.log_sq_stride,
        log_rq_slots: layout.log_rq_slots,
        log_rq_stride: layout.log_rq_stride,
        qp_type: hw_type(attr.qp_type()).raw(),
        port,
        pd: pd.number(),
        send_cq: attr.send_cq().number(),
        recv_cq: attr.recv_cq().number(),
        doorbell_page: page,
        ..hw_qp::CreateQp::default()
    };

    Ok(data.command::<CreateQp>(input, Wait::Sleep)?.number)
}

fn new_qp(attr: &QpInitAttr<'_, Ochre>, number: u32, caps: QpCaps, kind: Kind) -> Qp {
    Qp {
        number,
        qp_type: attr.qp_type(),
        state: Atomic::new(QpState::Reset as u32),
        signal_all: attr.signal_type() == SignalType::All,
        caps,
        send_cqn: attr.send_cq().number(),
        recv_cqn: attr.recv_cq().number(),
        kind,
    }
}

fn create_kernel(data: &Data<'_>, pd: &Pd, attr: &QpInitAttr<'_, Ochre>, port: u8) -> Result<Qp> {
    let send_cq = Cq::kernel(attr.send_cq())?.clone();
    let recv_cq = Cq::kernel(attr.recv_cq())?.clone();
    let layout = QpLayout::new(&sizes(&attr.caps())).ok_or(EINVAL)?;
    let queues = KBox::pin_init(Queues::new(data.pdev.as_ref(), &layout), GFP_KERNEL)?;

    let number = command(
        data,
        pd,
        attr,
        queues.mem().desc(),
        &layout,
        port,
        doorbell::KERNEL_PAGE,
    )?;
    let member = Member {
        wire_number: match attr.qp_type() {
            QpType::Smi => 0,
            QpType::Gsi => 1,
            _ => number,
        },
        port,
        number,
    };
    if let Err(e) = send_cq.add(member).and_then(|()| recv_cq.add(member)) {
        data.destroy::<DestroyQp>(number);
        send_cq.remove(&member);
        return Err(e);
    }

    Ok(new_qp(
        attr,
        number,
        caps(&data.limits, &layout),
        Kind::Kernel(KernelQp {
            queues,
            send_cq,
            recv_cq,
            member,
        }),
    ))
}

/// The layout of a buffer that a process describes; [`EINVAL`] where it makes no sense.
fn user_layout(request: &CreateQpReq) -> Result<QpLayout> {
    let strides = (MIN_LOG_SQ_STRIDE..=MAX_LOG_SQ_STRIDE).contains(&request.log_sq_stride)
        && (MIN_LOG_RQ_STRIDE..=MAX_LOG_RQ_STRIDE).contains(&request.log_rq_stride);
    let slots = request.log_sq_slots <= MAX_LOG_WR && request.log_rq_slots <= MAX_LOG_WR;
    if request.reserved != 0 || !strides || !slots {
        return Err(EINVAL);
    }

    let end = |offset: u32, log_slots: u8, log_stride: u8| -> Result<u32> {
        if offset < QpRecord::SIZE as u32 {
            return Err(EINVAL);
        }
        offset
            .checked_add(1 << (log_slots + log_stride))
            .ok_or(EINVAL)
    };
    let sq_end = end(
        request.sq_offset,
        request.log_sq_slots,
        request.log_sq_stride,
    )?;
    let rq_end = end(
        request.rq_offset,
        request.log_rq_slots,
        request.log_rq_stride,
    )?;

    Ok(QpLayout {
        sq_offset: request.sq_offset,
        log_sq_slots: request.log_sq_slots,
        log_sq_stride: request.log_sq_stride,
        rq_offset: request.rq_offset,
        log_rq_slots: request.log_rq_slots,
        log_rq_stride: request.log_rq_stride,
        bytes: sq_end.max(rq_end),
    })
}

fn create_user(
    hca: Hca<'_, Ochre>,
    pd: &Pd,
    attr: &QpInitAttr<'_, Ochre>,
    udata: &Udata<'_, Ochre>,
    page: u32,
) -> Result<Qp> {
    let request = CreateQpReq::from_bytes(&udata.read(CreateQpReq::SIZE)?);
    let layout = user_layout(&request)?;
    let wanted = attr.caps();
    let caps = caps(&hca.limits, &layout);
    if wanted.max_send_wr > caps.max_send_wr
        || wanted.max_recv_wr > caps.max_recv_wr
        || wanted.max_send_sge > caps.max_send_sge
        || wanted.max_recv_sge > caps.max_recv_sge
        || wanted.max_inline_data > caps.max_inline_data
    {
        return Err(EINVAL);
    }

    let buffer = UserBuffer::pin(hca, request.buf_addr, request.buf_len, layout.bytes.into())?;
    let number = command(&hca, pd, attr, buffer.desc(), &layout, 0, page)?;

    let response = CreateQpResp {
        qpn: number,
        ..CreateQpResp::default()
    };
    if let Err(e) = udata.respond(&response.to_bytes()) {
        hca.destroy::<DestroyQp>(number);
        return Err(e);
    }
    Ok(new_qp(
        attr,
        number,
        caps,
        Kind::User {
            _umem: buffer.into_umem(),
        },
    ))
}

/// The queue pair is going.
pub(crate) fn destroy(data: &Data<'_>, qp: &Qp) {
    data.destroy::<DestroyQp>(qp.number);
    if let Kind::Kernel(kernel) = &qp.kind {
        kernel.send_cq.remove(&kernel.member);
        kernel.recv_cq.remove(&kernel.member);
    }
}

fn multicast(qp: &Qp, gid: &[u8; 16], lid: u16) -> Result<hw_qp::Multicast> {
    if qp.qp_type != QpType::Ud {
        return Err(EINVAL);
    }
    Ok(hw_qp::Multicast {
        mgid: *gid,
        qp: qp.number,
        mlid: lid,
        ..hw_qp::Multicast::default()
    })
}

/// Attaches a queue pair to a multicast group.
pub(crate) fn attach_mcast(data: &Data<'_>, qp: &Qp, gid: &[u8; 16], lid: u16) -> Result {
    data.command::<AttachMulticast>(multicast(qp, gid, lid)?, Wait::Sleep)
}

/// Detaches a queue pair from a multicast group.
pub(crate) fn detach_mcast(data: &Data<'_>, qp: &Qp, gid: &[u8; 16], lid: u16) -> Result {
    if data.is_dead() {
        return Ok(());
    }
    data.command::<DetachMulticast>(multicast(qp, gid, lid)?, Wait::Sleep)
}

#[kunit_tests(ochre_qp)]
mod tests {
    use super::*;

    fn limits() -> QueryDeviceOut {
        QueryDeviceOut {
            max_qp_wr: 1000,
            max_sge: 4,
            max_inline: 64,
            ..QueryDeviceOut::default()
        }
    }

    const MOST: QpCaps = QpCaps {
        max_send_wr: 1000,
        max_recv_wr: 1000,
        max_send_sge: 4,
        max_recv_sge: 4,
        max_inline_data: 64,
    };

    fn request() -> CreateQpReq {
        CreateQpReq {
            sq_offset: 4096,
            log_sq_slots: 4,
            log_sq_stride: MIN_LOG_SQ_STRIDE,
            rq_offset: QpRecord::SIZE as u32,
            log_rq_slots: 3,
            log_rq_stride: MIN_LOG_RQ_STRIDE,
            ..CreateQpReq::default()
        }
    }

    #[test]
    fn no_size_is_beyond_the_limits() {
        assert!(check_caps(&limits(), &MOST).is_ok());
        let more = |change: fn(&mut QpCaps)| {
            let mut caps = MOST;
            change(&mut caps);
            check_caps(&limits(), &caps) == Err(EINVAL)
        };
        assert!(more(|caps| caps.max_send_wr += 1));
        assert!(more(|caps| caps.max_recv_wr += 1));
        assert!(more(|caps| caps.max_send_sge += 1));
        assert!(more(|caps| caps.max_recv_sge += 1));
        assert!(more(|caps| caps.max_inline_data += 1));
    }

    #[test]
    fn a_layout_holds_what_was_asked_for_and_tells_no_more_than_the_limits() -> Result {
        let layout = QpLayout::new(&sizes(&MOST)).ok_or(EINVAL)?;
        assert_eq!(caps(&limits(), &layout), MOST);
        Ok(())
    }

    #[test]
    fn the_layout_of_a_process_ends_behind_its_last_queue() -> Result {
        let layout = user_layout(&request())?;
        assert_eq!(layout.bytes, 4096 + (16 << MIN_LOG_SQ_STRIDE));
        Ok(())
    }

    #[test]
    fn the_layout_of_a_process_may_be_nonsense() {
        let refused = |change: fn(&mut CreateQpReq)| {
            let mut request = request();
            change(&mut request);
            user_layout(&request).err() == Some(EINVAL)
        };
        assert!(refused(|r| r.reserved = 1));
        assert!(refused(|r| r.log_sq_stride = MIN_LOG_SQ_STRIDE - 1));
        assert!(refused(|r| r.log_sq_stride = MAX_LOG_SQ_STRIDE + 1));
        assert!(refused(|r| r.log_rq_stride = MIN_LOG_RQ_STRIDE - 1));
        assert!(refused(|r| r.log_rq_stride = MAX_LOG_RQ_STRIDE + 1));
        assert!(refused(|r| r.log_sq_slots = MAX_LOG_WR + 1));
        assert!(refused(|r| r.log_rq_slots = u8::MAX));
        // In the record, and around the end of 32 bits.
        assert!(refused(|r| r.sq_offset = 0));
        assert!(refused(|r| r.rq_offset = QpRecord::SIZE as u32 - 1));
        assert!(refused(|r| r.sq_offset = u32::MAX));
    }
}
