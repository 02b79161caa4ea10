// SPDX-License-Identifier: GPL-2.0-or-later

//! Attributes of queue pairs: changes and queries.

use super::Qp;
use crate::{
    ah,
    cmd::{
        number,
        ModifyQp,
        QueryQp,
        Wait, //
    },
    device::Data,
    hw::{
        cmd::qp as hw_qp,
        verbs::{
            access,
            qp_attr,
            QpAttr as HwAttr, //
        },
    },
    rdma::{
        Mtu,
        QpAttr,
        QpQuery,
        QpState,
        Udata, //
    },
    Ochre, //
};
use kernel::prelude::*;

/// PSNs and QP numbers have 24 bits.
const MASK_24: u32 = 0xff_ffff;
/// Largest count of retries.
const MAX_RETRY: u8 = 7;
/// Largest code of a time.
const MAX_TIME: u8 = 31;

/// A value up to a limit; [`EINVAL`] beyond.
fn up_to<T: PartialOrd>(value: T, max: T) -> Result<T> {
    if value > max {
        return Err(EINVAL);
    }
    Ok(value)
}

/// The attributes as the device knows them; [`EINVAL`] for values beyond its limits.
fn to_hw(data: &Data<'_>, attr: &QpAttr, next: QpState) -> Result<HwAttr> {
    let limits = &data.limits;
    if attr.alt_path.is_some() {
        return Err(EOPNOTSUPP);
    }

    let mut hw = HwAttr {
        state: next as u8,
        ..HwAttr::default()
    };
    if let Some(state) = attr.cur_state {
        hw.cur_state = state as u8;
    }
    if let Some(notify) = attr.en_sqd_async_notify {
        hw.sqd_event = notify.into();
    }
    if let Some(rights) = attr.access {
        // Others have no meaning for a queue pair.
        hw.access = rights & access::QP;
    }
    if let Some(index) = attr.pkey_index {
        hw.pkey_index = up_to(index, limits.pkeys - 1)?;
    }
    if let Some(port) = attr.port {
        if !(1..=u32::from(limits.ports)).contains(&port) {
            return Err(EINVAL);
        }
        hw.port = port as u8;
    }
    if let Some(qkey) = attr.qkey {
        hw.qkey = qkey;
    }
    if let Some(av) = &attr.av {
        hw.av = ah::to_hw(data, av)?;
    }
    if let Some(mtu) = attr.path_mtu {
        hw.path_mtu = mtu as u8;
    }
    if let Some(timeout) = attr.timeout {
        hw.timeout = up_to(timeout, MAX_TIME)?;
    }
    if let Some(count) = attr.retry_cnt {
        hw.retry_count = up_to(count, MAX_RETRY)?;
    }
    if let Some(count) = attr.rnr_retry {
        hw.rnr_retry = up_to(count, MAX_RETRY)?;
    }
    if let Some(psn) = attr.rq_psn {
        hw.rq_psn = psn & MASK_24;
    }
    if let Some(psn) = attr.sq_psn {
        hw.sq_psn = psn & MASK_24;
    }
    if let Some(max) = attr.max_rd_atomic {
        hw.max_rd_atomic = up_to(u32::from(max), limits.max_rd_atomic)? as u8;
    }
    if let Some(max) = attr.max_dest_rd_atomic {
        hw.max_dest_rd_atomic = up_to(u32::from(max), limits.max_dest_rd_atomic)? as u8;
    }
    if let Some(timer) = attr.min_rnr_timer {
        hw.min_rnr_timer = up_to(timer, MAX_TIME)?;
    }
    if let Some(qpn) = attr.dest_qpn {
        hw.dest_qpn = qpn & MASK_24;
    }
    Ok(hw)
}

/// Changes a queue pair.
pub(crate) fn modify(data: &Data<'_>, qp: &Qp, attr: &QpAttr, udata: &Udata<'_, Ochre>) -> Result {
    udata.no_input()?;
    let next = attr.check_transition(qp.state(), qp.qp_type())?;
    let input = hw_qp::ModifyQp {
        qp: qp.number,
        mask: attr.mask & qp_attr::ALL,
        attr: to_hw(data, attr, next)?,
        ..hw_qp::ModifyQp::default()
    };

    if let Err(e) = data.command::<ModifyQp>(input, Wait::Sleep) {
        // A queue pair of a dead device does nothing any more, and is as good as stopped.
        if !(data.is_dead() && matches!(next, QpState::Err | QpState::Reset)) {
            return Err(e);
        }
    }
    qp.set_state(next);
    if next == QpState::Reset {
        qp.forget_requests();
    }
    udata.no_response()
}

/// Attributes of a queue pair.
pub(crate) fn query(data: &Data<'_>, qp: &Qp) -> Result<QpQuery> {
    let hw = data
        .command::<QueryQp>(number(qp.number), Wait::Sleep)?
        .attr;

    Ok(QpQuery {
        state: QpState::from_raw(hw.state.into())?,
        path_mtu: Mtu::from_raw(hw.path_mtu.into()).unwrap_or_default(),
        qkey: hw.qkey,
        rq_psn: hw.rq_psn,
        sq_psn: hw.sq_psn,
        dest_qpn: hw.dest_qpn,
        access: hw.access,
        caps: *qp.caps(),
        av: ah::from_hw(&hw.av),
        pkey_index: hw.pkey_index,
        sq_draining: hw.sq_draining != 0,
        max_rd_atomic: hw.max_rd_atomic,
        max_dest_rd_atomic: hw.max_dest_rd_atomic,
        min_rnr_timer: hw.min_rnr_timer,
        port: hw.port.into(),
        timeout: hw.timeout,
        retry_cnt: hw.retry_count,
        rnr_retry: hw.rnr_retry,
        signal_all: qp.signal_all(),
    })
}
