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
        cmd::{
            device::QueryDeviceOut,
            qp as hw_qp, //
        },
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
fn to_hw(limits: &QueryDeviceOut, attr: &QpAttr, next: QpState) -> Result<HwAttr> {
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
        hw.av = ah::to_hw(limits, av)?;
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
        attr: to_hw(&data.limits, attr, next)?,
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

#[kunit_tests(ochre_qp_attr)]
mod tests {
    use super::*;
    use crate::rdma::AhAttr;

    fn limits() -> QueryDeviceOut {
        QueryDeviceOut {
            ports: 1,
            gids: 4,
            pkeys: 16,
            max_rd_atomic: 8,
            max_dest_rd_atomic: 4,
            ..QueryDeviceOut::default()
        }
    }

    fn hw(attr: &QpAttr) -> Result<HwAttr> {
        to_hw(&limits(), attr, QpState::Rtr)
    }

    #[test]
    fn what_is_not_given_is_zero_but_the_state() -> Result {
        let expected = HwAttr {
            state: QpState::Rtr as u8,
            ..HwAttr::default()
        };
        assert!(hw(&QpAttr::default())? == expected);
        Ok(())
    }

    #[test]
    fn each_attribute_has_its_place() -> Result {
        let given = hw(&QpAttr {
            cur_state: Some(QpState::Init),
            en_sqd_async_notify: Some(true),
            pkey_index: Some(15),
            port: Some(1),
            qkey: Some(0x8001_0000),
            av: Some(AhAttr {
                dlid: 7,
                port: 1,
                ..AhAttr::default()
            }),
            path_mtu: Some(Mtu::Mtu4096),
            timeout: Some(31),
            retry_cnt: Some(7),
            rnr_retry: Some(6),
            max_rd_atomic: Some(8),
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: Some(12),
            ..QpAttr::default()
        })?;
        assert_eq!(given.cur_state, 1);
        assert_eq!(given.sqd_event, 1);
        assert_eq!(given.pkey_index, 15);
        assert_eq!(given.port, 1);
        assert_eq!(given.qkey, 0x8001_0000);
        assert_eq!(given.av.dlid, 7);
        assert_eq!(given.path_mtu, 5);
        assert_eq!(given.timeout, 31);
        assert_eq!(given.retry_count, 7);
        assert_eq!(given.rnr_retry, 6);
        assert_eq!(given.max_rd_atomic, 8);
        assert_eq!(given.max_dest_rd_atomic, 4);
        assert_eq!(given.min_rnr_timer, 12);
        Ok(())
    }

    #[test]
    fn psns_and_numbers_have_24_bits() -> Result {
        let given = hw(&QpAttr {
            rq_psn: Some(0xff00_0001),
            sq_psn: Some(0x01ff_ffff),
            dest_qpn: Some(0xab12_3456),
            ..QpAttr::default()
        })?;
        assert_eq!(given.rq_psn, 1);
        assert_eq!(given.sq_psn, 0xff_ffff);
        assert_eq!(given.dest_qpn, 0x12_3456);
        Ok(())
    }

    #[test]
    fn rights_without_meaning_for_a_qp_are_left_out() -> Result {
        let given = hw(&QpAttr {
            access: Some(u32::MAX),
            ..QpAttr::default()
        })?;
        assert_eq!(given.access, access::QP);
        Ok(())
    }

    #[test]
    fn values_beyond_the_limits_are_refused() {
        let refused = |change: fn(&mut QpAttr)| {
            let mut attr = QpAttr::default();
            change(&mut attr);
            hw(&attr).err() == Some(EINVAL)
        };
        assert!(refused(|attr| attr.pkey_index = Some(16)));
        assert!(refused(|attr| attr.port = Some(0)));
        assert!(refused(|attr| attr.port = Some(2)));
        assert!(refused(|attr| attr.port = Some(257)));
        assert!(refused(|attr| attr.timeout = Some(32)));
        assert!(refused(|attr| attr.retry_cnt = Some(8)));
        assert!(refused(|attr| attr.rnr_retry = Some(8)));
        assert!(refused(|attr| attr.min_rnr_timer = Some(32)));
        assert!(refused(|attr| attr.max_rd_atomic = Some(9)));
        assert!(refused(|attr| attr.max_dest_rd_atomic = Some(5)));
        assert!(refused(|attr| attr.av = Some(AhAttr::default())));
    }
}
