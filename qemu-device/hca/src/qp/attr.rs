// SPDX-License-Identifier: GPL-2.0-or-later

//! Attributes of a QP, as MODIFY_QP gives them: which are needed, and which values they may have.

use core::mem::offset_of;

use ochre_hw::cmd::qp::ModifyQp;
use ochre_hw::cmd::Status;
use ochre_hw::verbs::{access, qp_attr, AddressVector, QpAttr, QpState, QpType, AV_GRH};
use ochre_wire::Mtu;

use super::transition;
use crate::cmd::CmdError;

/// What attributes are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttrLimits {
    /// Ports of the device.
    pub(crate) ports: u8,
    /// P_Keys of a port.
    pub(crate) pkeys: usize,
    /// GIDs of a port.
    pub(crate) gids: usize,
    /// Most READs and atomics that a requester may have outstanding.
    pub(crate) max_rd_atomic: u8,
    /// Most READs and atomics that a responder takes.
    pub(crate) max_dest_rd_atomic: u8,
}

/// Takes over the attributes of `from` that `mask` names; they have passed [`check`].
pub(crate) fn take(to: &mut QpAttr, mask: u32, from: &QpAttr) {
    macro_rules! take {
        ($($bit:ident: $field:ident),* $(,)?) => {
            $( if mask & qp_attr::$bit != 0 { to.$field = from.$field; } )*
        };
    }
    take! {
        EN_SQD_ASYNC_NOTIFY: sqd_event,
        ACCESS_FLAGS: access,
        PKEY_INDEX: pkey_index,
        PORT: port,
        QKEY: qkey,
        AV: av,
        PATH_MTU: path_mtu,
        TIMEOUT: timeout,
        RETRY_CNT: retry_count,
        RNR_RETRY: rnr_retry,
        RQ_PSN: rq_psn,
        MAX_RD_ATOMIC: max_rd_atomic,
        MIN_RNR_TIMER: min_rnr_timer,
        SQ_PSN: sq_psn,
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
        DEST_QPN: dest_qpn,
    }
}

macro_rules! at {
    ($field:ident) => {
        offset_of!(ModifyQp, attr) + offset_of!(QpAttr, $field)
    };
    (av.$field:ident) => {
        at!(av) + offset_of!(AddressVector, $field)
    };
}

const MASK_AT: usize = offset_of!(ModifyQp, mask);

fn bad(field: usize) -> CmdError {
    CmdError::parameter(field)
}

fn bad_state(field: usize) -> CmdError {
    CmdError::new(Status::BadState, field)
}

/// Where the attribute of one mask bit lies.
fn field_of(bit: u32) -> usize {
    match bit {
        qp_attr::CUR_STATE => at!(cur_state),
        qp_attr::EN_SQD_ASYNC_NOTIFY => at!(sqd_event),
        qp_attr::ACCESS_FLAGS => at!(access),
        qp_attr::PKEY_INDEX => at!(pkey_index),
        qp_attr::PORT => at!(port),
        qp_attr::QKEY => at!(qkey),
        qp_attr::AV => at!(av),
        qp_attr::PATH_MTU => at!(path_mtu),
        qp_attr::TIMEOUT => at!(timeout),
        qp_attr::RETRY_CNT => at!(retry_count),
        qp_attr::RNR_RETRY => at!(rnr_retry),
        qp_attr::RQ_PSN => at!(rq_psn),
        qp_attr::MAX_RD_ATOMIC => at!(max_rd_atomic),
        qp_attr::MIN_RNR_TIMER => at!(min_rnr_timer),
        qp_attr::SQ_PSN => at!(sq_psn),
        qp_attr::MAX_DEST_RD_ATOMIC => at!(max_dest_rd_atomic),
        qp_attr::DEST_QPN => at!(dest_qpn),
        _ => MASK_AT,
    }
}

/// Checks one MODIFY_QP of a QP of type `kind` in state `now` and gives its next state. Nothing is
/// changed: a refused command leaves the QP as it was.
pub(crate) fn check(
    kind: QpType,
    now: QpState,
    mask: u32,
    attr: &QpAttr,
    limits: &AttrLimits,
) -> Result<QpState, CmdError> {
    if mask & !qp_attr::ALL != 0 {
        return Err(bad(MASK_AT));
    }
    if mask & qp_attr::CUR_STATE != 0 && QpState::from_raw(attr.cur_state) != Some(now) {
        return Err(bad_state(at!(cur_state)));
    }
    let next = if mask & qp_attr::STATE != 0 {
        QpState::from_raw(attr.state)
            .filter(|&s| s != QpState::Sqe)
            .ok_or(bad(at!(state)))?
    } else {
        now
    };
    let rule = transition::attributes(kind, now, next).ok_or(bad_state(at!(state)))?;
    let missing = rule.required & !mask;
    if missing != 0 {
        return Err(bad(field_of(1 << missing.trailing_zeros())));
    }
    let surplus = mask & !(rule.required | rule.optional);
    if surplus != 0 {
        return Err(bad(field_of(1 << surplus.trailing_zeros())));
    }
    check_values(mask, attr, limits)?;
    let reserved = [
        (attr.reserved0 == [0; 14], at!(reserved0)),
        (attr.reserved1 == [0; 24], at!(reserved1)),
        (attr.reserved2 == [0; 24], at!(reserved2)),
    ];
    for (is_zero, field) in reserved {
        if !is_zero {
            return Err(bad(field));
        }
    }
    Ok(next)
}

fn check_values(mask: u32, attr: &QpAttr, limits: &AttrLimits) -> Result<(), CmdError> {
    let given = |bit| mask & bit != 0;
    let is = |good: bool, field: usize| if good { Ok(()) } else { Err(bad(field)) };
    let port_ok = |port: u8| (1..=limits.ports).contains(&port);
    let is_24_bits = |v: u32| v >> 24 == 0;
    if given(qp_attr::PORT) {
        is(port_ok(attr.port), at!(port))?;
    }
    if given(qp_attr::PKEY_INDEX) {
        is(usize::from(attr.pkey_index) < limits.pkeys, at!(pkey_index))?;
    }
    if given(qp_attr::ACCESS_FLAGS) {
        // LOCAL_WRITE has no meaning for a QP, but software customarily sets it.
        let known = access::QP | access::LOCAL_WRITE;
        is(attr.access & !known == 0, at!(access))?;
    }
    if given(qp_attr::PATH_MTU) {
        is(Mtu::from_code(attr.path_mtu).is_some(), at!(path_mtu))?;
    }
    if given(qp_attr::DEST_QPN) {
        is(is_24_bits(attr.dest_qpn), at!(dest_qpn))?;
    }
    if given(qp_attr::RQ_PSN) {
        is(is_24_bits(attr.rq_psn), at!(rq_psn))?;
    }
    if given(qp_attr::SQ_PSN) {
        is(is_24_bits(attr.sq_psn), at!(sq_psn))?;
    }
    if given(qp_attr::TIMEOUT) {
        is(attr.timeout < 32, at!(timeout))?;
    }
    if given(qp_attr::RETRY_CNT) {
        is(attr.retry_count < 8, at!(retry_count))?;
    }
    if given(qp_attr::RNR_RETRY) {
        is(attr.rnr_retry < 8, at!(rnr_retry))?;
    }
    if given(qp_attr::MIN_RNR_TIMER) {
        is(attr.min_rnr_timer < 32, at!(min_rnr_timer))?;
    }
    if given(qp_attr::MAX_RD_ATOMIC) {
        is(
            attr.max_rd_atomic <= limits.max_rd_atomic,
            at!(max_rd_atomic),
        )?;
    }
    if given(qp_attr::MAX_DEST_RD_ATOMIC) {
        let most = limits.max_dest_rd_atomic;
        is(attr.max_dest_rd_atomic <= most, at!(max_dest_rd_atomic))?;
    }
    if given(qp_attr::AV) {
        let av = &attr.av;
        let grh = av.flags & AV_GRH != 0;
        is(av.dlid != 0 && av.dlid < 0xc000, at!(av.dlid))?;
        is(av.sl < 16, at!(av.sl))?;
        is(av.src_path_bits < 128, at!(av.src_path_bits))?;
        is(port_ok(av.port), at!(av.port))?;
        is(av.flags & !AV_GRH == 0, at!(av.flags))?;
        is(
            !grh || usize::from(av.sgid_index) < limits.gids,
            at!(av.sgid_index),
        )?;
        is(!grh || av.flow_label >> 20 == 0, at!(av.flow_label))?;
        is(av.reserved == [0; 2], at!(av.reserved))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AttrLimits = AttrLimits {
        ports: 1,
        pkeys: 64,
        gids: 16,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
    };

    fn to_rtr() -> (u32, QpAttr) {
        let mut attr = QpAttr {
            state: QpState::Rtr as u8,
            path_mtu: 5,
            ..QpAttr::default()
        };
        attr.av.dlid = 2;
        attr.av.port = 1;
        let rule = transition::attributes(QpType::Rc, QpState::Init, QpState::Rtr).unwrap();
        (rule.required | qp_attr::STATE, attr)
    }

    fn try_rtr(change: impl FnOnce(&mut u32, &mut QpAttr)) -> Result<QpState, CmdError> {
        let (mut mask, mut attr) = to_rtr();
        change(&mut mask, &mut attr);
        check(QpType::Rc, QpState::Init, mask, &attr, &LIMITS)
    }

    #[test]
    fn good_attributes_are_taken() {
        assert_eq!(try_rtr(|_, _| ()), Ok(QpState::Rtr));
        // No READs or atomics at all is a choice, not an error.
        assert_eq!(try_rtr(|_, a| a.max_dest_rd_atomic = 0), Ok(QpState::Rtr));
    }

    #[test]
    fn each_bad_field_is_named() {
        let field = |r: Result<QpState, CmdError>| r.unwrap_err();
        assert_eq!(field(try_rtr(|m, _| *m &= !qp_attr::AV)), bad(at!(av)));
        assert_eq!(
            field(try_rtr(|m, _| *m |= qp_attr::TIMEOUT)),
            bad(at!(timeout))
        );
        assert_eq!(field(try_rtr(|m, _| *m |= 1 << 30)), bad(MASK_AT));
        assert_eq!(field(try_rtr(|_, a| a.path_mtu = 6)), bad(at!(path_mtu)));
        assert_eq!(field(try_rtr(|_, a| a.rq_psn = 1 << 24)), bad(at!(rq_psn)));
        assert_eq!(field(try_rtr(|_, a| a.av.dlid = 0xc000)), bad(at!(av.dlid)));
        assert_eq!(field(try_rtr(|_, a| a.av.port = 2)), bad(at!(av.port)));
        let over = try_rtr(|_, a| a.max_dest_rd_atomic = 17);
        assert_eq!(field(over), bad(at!(max_dest_rd_atomic)));
        let wrong = try_rtr(|m, a| {
            *m |= qp_attr::CUR_STATE;
            a.cur_state = QpState::Rts as u8;
        });
        assert_eq!(field(wrong), bad_state(at!(cur_state)));
        let sqe = try_rtr(|_, a| a.state = QpState::Sqe as u8);
        assert_eq!(field(sqe), bad(at!(state)));
        let skip = try_rtr(|_, a| a.state = QpState::Rts as u8);
        assert_eq!(field(skip), bad_state(at!(state)));
    }

    #[test]
    fn only_what_the_mask_names_is_taken() {
        let (mask, attr) = to_rtr();
        let mut kept = QpAttr {
            retry_count: 3,
            ..QpAttr::default()
        };
        take(&mut kept, mask, &attr);
        assert_eq!(kept.path_mtu, attr.path_mtu);
        assert_eq!(kept.av, attr.av);
        assert_eq!(kept.retry_count, 3);
    }
}
