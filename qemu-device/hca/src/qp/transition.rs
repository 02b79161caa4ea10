// SPDX-License-Identifier: GPL-2.0-or-later

//! The QP state machine as one table: which transitions there are, and which attributes each takes.
//!
//! IBA volume 1, chapter 11, Modify Queue Pair. Every state may go to Reset and to Error; what else
//! is possible stands in [`RULES`].

use ochre_hw::verbs::qp_attr::{
    ACCESS_FLAGS, AV, CUR_STATE, DEST_QPN, EN_SQD_ASYNC_NOTIFY, MAX_DEST_RD_ATOMIC, MAX_RD_ATOMIC,
    MIN_RNR_TIMER, PATH_MTU, PKEY_INDEX, PORT, QKEY, RETRY_CNT, RNR_RETRY, RQ_PSN, SQ_PSN, STATE,
    TIMEOUT,
};
use ochre_hw::verbs::{QpState, QpType};

/// Attributes that a transition needs and those that it may change besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// `qp_attr` bits that must be given.
    pub(crate) required: u32,
    /// `qp_attr` bits that may be given.
    pub(crate) optional: u32,
}

/// One line of the table.
struct Rule {
    from: QpState,
    to: QpState,
    kinds: u8,
    attributes: Attributes,
}

const RC: u8 = 1 << QpType::Rc as u8;
const UC: u8 = 1 << QpType::Uc as u8;
const UD: u8 = 1 << QpType::Ud as u8;
/// The special QPs: their port and number are given when they are created.
const QP01: u8 = 1 << QpType::Smi as u8 | 1 << QpType::Gsi as u8;

const fn rule(from: QpState, to: QpState, kinds: u8, required: u32, optional: u32) -> Rule {
    Rule {
        from,
        to,
        kinds,
        attributes: Attributes { required, optional },
    }
}

use QpState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

#[rustfmt::skip]
const RULES: &[Rule] = &[
    rule(Reset, Init, RC | UC, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    rule(Reset, Init, UD,      PKEY_INDEX | PORT | QKEY, 0),
    rule(Reset, Init, QP01,    PKEY_INDEX | QKEY, 0),

    rule(Init, Init, RC | UC,  0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    rule(Init, Init, UD,       0, PKEY_INDEX | PORT | QKEY),
    rule(Init, Init, QP01,     0, PKEY_INDEX | QKEY),

    rule(Init, Rtr, RC, AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
                        ACCESS_FLAGS | PKEY_INDEX),
    rule(Init, Rtr, UC,        AV | PATH_MTU | DEST_QPN | RQ_PSN, ACCESS_FLAGS | PKEY_INDEX),
    rule(Init, Rtr, UD | QP01, 0, PKEY_INDEX | QKEY),

    rule(Rtr, Rts, RC,         SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_RD_ATOMIC,
                               CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER),
    rule(Rtr, Rts, UC,         SQ_PSN, CUR_STATE | ACCESS_FLAGS),
    rule(Rtr, Rts, UD | QP01,  SQ_PSN, CUR_STATE | QKEY),

    rule(Rts, Rts, RC,         0, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER),
    rule(Rts, Rts, UC,         0, CUR_STATE | ACCESS_FLAGS),
    rule(Rts, Rts, UD | QP01,  0, CUR_STATE | QKEY),

    rule(Rts, Sqd, RC | UC | UD | QP01, 0, EN_SQD_ASYNC_NOTIFY),

    rule(Sqd, Sqd, RC,         0, PORT | AV | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_RD_ATOMIC
                                  | MAX_DEST_RD_ATOMIC | PKEY_INDEX | ACCESS_FLAGS | MIN_RNR_TIMER),
    rule(Sqd, Sqd, UC,         0, PORT | AV | PKEY_INDEX | ACCESS_FLAGS),
    rule(Sqd, Sqd, UD | QP01,  0, PKEY_INDEX | QKEY),

    rule(Sqd, Rts, RC,         0, CUR_STATE | ACCESS_FLAGS | MIN_RNR_TIMER),
    rule(Sqd, Rts, UC,         0, CUR_STATE | ACCESS_FLAGS),
    rule(Sqd, Rts, UD | QP01,  0, CUR_STATE | QKEY),

    rule(Sqe, Rts, UC,         0, CUR_STATE | ACCESS_FLAGS),
    rule(Sqe, Rts, UD | QP01,  0, CUR_STATE | QKEY),
];

/// The attributes that a QP of type `kind` takes on its way `from` one state `to` another, or `None`
/// where there is no such way. [`STATE`] itself is not among them; [`CUR_STATE`] may stand with any.
pub(crate) fn attributes(kind: QpType, from: QpState, to: QpState) -> Option<Attributes> {
    if matches!(to, Reset | Error) {
        return Some(Attributes {
            required: 0,
            optional: STATE | CUR_STATE,
        });
    }
    RULES
        .iter()
        .find(|r| r.from == from && r.to == to && r.kinds >> kind as u8 & 1 != 0)
        .map(|r| Attributes {
            required: r.attributes.required,
            optional: r.attributes.optional | STATE | CUR_STATE,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_transition_is_declared_twice() {
        for (i, a) in RULES.iter().enumerate() {
            for b in &RULES[i + 1..] {
                assert!(
                    (a.from, a.to) != (b.from, b.to) || a.kinds & b.kinds == 0,
                    "{:?} -> {:?} twice",
                    a.from,
                    a.to
                );
            }
            assert_eq!(a.attributes.required & a.attributes.optional, 0);
        }
    }

    #[test]
    fn every_type_goes_up_step_by_step_and_never_skips_one() {
        for &kind in QpType::ALL {
            for (from, to) in [
                (Reset, Init),
                (Init, Rtr),
                (Rtr, Rts),
                (Rts, Sqd),
                (Sqd, Rts),
            ] {
                assert!(
                    attributes(kind, from, to).is_some(),
                    "{kind:?} {from:?} {to:?}"
                );
            }
            for (from, to) in [
                (Reset, Rtr),
                (Reset, Rts),
                (Init, Rts),
                (Rtr, Init),
                (Rts, Rtr),
                (Rtr, Sqd),
                (Error, Rts),
                (Error, Init),
                (Rtr, Rtr),
            ] {
                assert!(
                    attributes(kind, from, to).is_none(),
                    "{kind:?} {from:?} {to:?}"
                );
            }
        }
    }

    #[test]
    fn only_unacknowledged_types_leave_the_send_queue_error_state() {
        for &kind in QpType::ALL {
            assert_eq!(attributes(kind, Sqe, Rts).is_some(), kind != QpType::Rc);
        }
    }

    #[test]
    fn reset_and_error_are_open_to_every_state() {
        for &kind in QpType::ALL {
            for &from in QpState::ALL {
                for to in [Reset, Error] {
                    let a = attributes(kind, from, to).unwrap();
                    assert_eq!(a.required, 0);
                    assert_eq!(a.optional, STATE | CUR_STATE);
                }
            }
        }
    }

    #[test]
    fn rc_takes_its_reliability_attributes_on_the_way() {
        let rtr = attributes(QpType::Rc, Init, Rtr).unwrap();
        assert_ne!(rtr.required & MIN_RNR_TIMER, 0);
        assert_eq!((rtr.required | rtr.optional) & TIMEOUT, 0);
        let rts = attributes(QpType::Rc, Rtr, Rts).unwrap();
        assert_ne!(rts.required & RETRY_CNT, 0);
        assert_eq!(attributes(QpType::Uc, Rtr, Rts).unwrap().required, SQ_PSN);
    }
}
