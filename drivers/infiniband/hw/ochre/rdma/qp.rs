// SPDX-License-Identifier: GPL-2.0-or-later

//! Attributes of queue pairs.

use super::{
    bindings,
    AhAttr,
    Cq,
    Mtu,
    Object,
    Operations, //
};
use core::marker::PhantomData;
use kernel::prelude::*;

/// Type of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpType {
    /// QP0: subnet management.
    Smi,
    /// QP1: general services.
    Gsi,
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl QpType {
    /// [`EOPNOTSUPP`] for a type that the layer does not know.
    pub(super) fn from_raw(raw: bindings::ib_qp_type) -> Result<Self> {
        Ok(match raw {
            bindings::ib_qp_type_IB_QPT_SMI => Self::Smi,
            bindings::ib_qp_type_IB_QPT_GSI => Self::Gsi,
            bindings::ib_qp_type_IB_QPT_RC => Self::Rc,
            bindings::ib_qp_type_IB_QPT_UC => Self::Uc,
            bindings::ib_qp_type_IB_QPT_UD => Self::Ud,
            _ => return Err(EOPNOTSUPP),
        })
    }

    fn as_raw(self) -> bindings::ib_qp_type {
        match self {
            Self::Smi => bindings::ib_qp_type_IB_QPT_SMI,
            Self::Gsi => bindings::ib_qp_type_IB_QPT_GSI,
            Self::Rc => bindings::ib_qp_type_IB_QPT_RC,
            Self::Uc => bindings::ib_qp_type_IB_QPT_UC,
            Self::Ud => bindings::ib_qp_type_IB_QPT_UD,
        }
    }

    /// Whether each send names its peer.
    pub(crate) fn is_datagram(self) -> bool {
        matches!(self, Self::Smi | Self::Gsi | Self::Ud)
    }
}

/// State of a queue pair, `enum ib_qp_state`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum QpState {
    #[default]
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

impl QpState {
    /// The state of the encoding of verbs; [`EINVAL`] where it has no meaning.
    pub(crate) fn from_raw(raw: u32) -> Result<Self> {
        Ok(match raw {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Err,
            _ => return Err(EINVAL),
        })
    }
}

/// Which send requests write completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalType {
    /// All of them.
    All,
    /// Those that ask for it, and those that fail.
    Requested,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QpCaps {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

impl QpCaps {
    fn from_raw(cap: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        }
    }

    fn fill(&self, cap: &mut bindings::ib_qp_cap) {
        cap.max_send_wr = self.max_send_wr;
        cap.max_recv_wr = self.max_recv_wr;
        cap.max_send_sge = self.max_send_sge;
        cap.max_recv_sge = self.max_recv_sge;
        cap.max_inline_data = self.max_inline_data;
    }
}

/// Attributes of a new queue pair.
pub(crate) struct QpInitAttr<'a, T: Operations> {
    raw: &'a mut bindings::ib_qp_init_attr,
    qp_type: QpType,
    _ops: PhantomData<&'a T>,
}

impl<'a, T: Operations> QpInitAttr<'a, T> {
    /// # Safety
    ///
    /// The attributes must be those that the core passes to `create_qp`.
    pub(super) unsafe fn from_raw(raw: &'a mut bindings::ib_qp_init_attr) -> Result<Self> {
        if !raw.srq.is_null() || !raw.xrcd.is_null() || !raw.rwq_ind_tbl.is_null() {
            return Err(EOPNOTSUPP);
        }
        if raw.send_cq.is_null() || raw.recv_cq.is_null() {
            return Err(EINVAL);
        }

        Ok(Self {
            qp_type: QpType::from_raw(raw.qp_type)?,
            raw,
            _ops: PhantomData,
        })
    }

    /// Type.
    pub(crate) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Port of a QP of type SMI or GSI.
    pub(crate) fn port(&self) -> u32 {
        self.raw.port_num
    }

    /// `IB_QP_CREATE_*`.
    pub(crate) fn create_flags(&self) -> u32 {
        self.raw.create_flags
    }

    /// Which sends write completions.
    pub(crate) fn signal_type(&self) -> SignalType {
        match self.raw.sq_sig_type {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR => SignalType::All,
            _ => SignalType::Requested,
        }
    }

    /// Queue for completions of sends.
    pub(crate) fn send_cq(&self) -> &Cq<T> {
        // SAFETY: The core holds the queue, which is one of ours and not null.
        unsafe { Cq::<T>::from_raw(self.raw.send_cq) }
    }

    /// Queue for completions of receives.
    pub(crate) fn recv_cq(&self) -> &Cq<T> {
        // SAFETY: The core holds the queue, which is one of ours and not null.
        unsafe { Cq::<T>::from_raw(self.raw.recv_cq) }
    }

    /// Sizes asked for.
    pub(crate) fn caps(&self) -> QpCaps {
        QpCaps::from_raw(&self.raw.cap)
    }

    /// Tells the sizes that the queue pair has.
    pub(crate) fn set_caps(&mut self, caps: &QpCaps) {
        caps.fill(&mut self.raw.cap);
    }
}

/// An alternate path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AltPath {
    /// The path.
    pub(crate) av: AhAttr,
    /// Index of the P_Key.
    pub(crate) pkey_index: u16,
    /// Port.
    pub(crate) port: u32,
    /// Local ACK time-out.
    pub(crate) timeout: u8,
}

/// Attributes to be changed; those that are [`None`] stay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QpAttr {
    /// `IB_QP_*`: the attributes that are given.
    pub(crate) mask: u32,
    pub(crate) state: Option<QpState>,
    pub(crate) cur_state: Option<QpState>,
    pub(crate) en_sqd_async_notify: Option<bool>,
    pub(crate) access: Option<u32>,
    pub(crate) pkey_index: Option<u16>,
    pub(crate) port: Option<u32>,
    pub(crate) qkey: Option<u32>,
    pub(crate) av: Option<AhAttr>,
    pub(crate) path_mtu: Option<Mtu>,
    pub(crate) timeout: Option<u8>,
    pub(crate) retry_cnt: Option<u8>,
    pub(crate) rnr_retry: Option<u8>,
    pub(crate) rq_psn: Option<u32>,
    pub(crate) max_rd_atomic: Option<u8>,
    pub(crate) alt_path: Option<AltPath>,
    pub(crate) min_rnr_timer: Option<u8>,
    pub(crate) sq_psn: Option<u32>,
    pub(crate) max_dest_rd_atomic: Option<u8>,
    pub(crate) dest_qpn: Option<u32>,
}

impl QpAttr {
    /// Attributes that the layer knows: all standard ones but path migration and a new size.
    const KNOWN: u32 = bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS
        & !(bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE | bindings::ib_qp_attr_mask_IB_QP_CAP);

    /// [`EOPNOTSUPP`] for attributes that the layer does not know, [`EINVAL`] for values that mean
    /// nothing.
    pub(super) fn from_raw(raw: &bindings::ib_qp_attr, mask: u32) -> Result<Self> {
        // Consumers set the migration state to MIGRATED as a matter of habit.
        let migrated = bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE;
        if mask & migrated != 0 && raw.path_mig_state != bindings::ib_mig_state_IB_MIG_MIGRATED {
            return Err(EOPNOTSUPP);
        }
        if mask & !(Self::KNOWN | migrated) != 0 {
            return Err(EOPNOTSUPP);
        }

        macro_rules! given {
            ($bit:ident, $value:expr) => {
                if mask & bindings::$bit != 0 {
                    Some($value)
                } else {
                    None
                }
            };
        }

        Ok(Self {
            mask,
            state: given!(
                ib_qp_attr_mask_IB_QP_STATE,
                QpState::from_raw(raw.qp_state)?
            ),
            cur_state: given!(
                ib_qp_attr_mask_IB_QP_CUR_STATE,
                QpState::from_raw(raw.cur_qp_state)?
            ),
            en_sqd_async_notify: given!(
                ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY,
                raw.en_sqd_async_notify != 0
            ),
            access: given!(
                ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
                raw.qp_access_flags as u32
            ),
            pkey_index: given!(ib_qp_attr_mask_IB_QP_PKEY_INDEX, raw.pkey_index),
            port: given!(ib_qp_attr_mask_IB_QP_PORT, raw.port_num),
            qkey: given!(ib_qp_attr_mask_IB_QP_QKEY, raw.qkey),
            av: given!(ib_qp_attr_mask_IB_QP_AV, AhAttr::from_raw(&raw.ah_attr)?),
            path_mtu: given!(ib_qp_attr_mask_IB_QP_PATH_MTU, Mtu::from_raw(raw.path_mtu)?),
            timeout: given!(ib_qp_attr_mask_IB_QP_TIMEOUT, raw.timeout),
            retry_cnt: given!(ib_qp_attr_mask_IB_QP_RETRY_CNT, raw.retry_cnt),
            rnr_retry: given!(ib_qp_attr_mask_IB_QP_RNR_RETRY, raw.rnr_retry),
            rq_psn: given!(ib_qp_attr_mask_IB_QP_RQ_PSN, raw.rq_psn),
            max_rd_atomic: given!(ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC, raw.max_rd_atomic),
            alt_path: given!(
                ib_qp_attr_mask_IB_QP_ALT_PATH,
                AltPath {
                    av: AhAttr::from_raw(&raw.alt_ah_attr)?,
                    pkey_index: raw.alt_pkey_index,
                    port: raw.alt_port_num,
                    timeout: raw.alt_timeout,
                }
            ),
            min_rnr_timer: given!(ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER, raw.min_rnr_timer),
            sq_psn: given!(ib_qp_attr_mask_IB_QP_SQ_PSN, raw.sq_psn),
            max_dest_rd_atomic: given!(
                ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC,
                raw.max_dest_rd_atomic
            ),
            dest_qpn: given!(ib_qp_attr_mask_IB_QP_DEST_QPN, raw.dest_qp_num),
        })
    }

    /// Checks that a queue pair of type `qp_type` in state `cur` may be changed so, that no
    /// attribute is missing and none is too much; returns the state that it will be in.
    pub(crate) fn check_transition(&self, cur: QpState, qp_type: QpType) -> Result<QpState> {
        let cur = self.cur_state.unwrap_or(cur);
        let next = self.state.unwrap_or(cur);

        // SAFETY: The function only looks into a table of its own.
        let ok = unsafe {
            bindings::ib_modify_qp_is_ok(cur as u32, next as u32, qp_type.as_raw(), self.mask)
        };

        if ok {
            Ok(next)
        } else {
            Err(EINVAL)
        }
    }
}

/// Attributes of a queue pair, as `query_qp` answers them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QpQuery {
    pub(crate) state: QpState,
    pub(crate) path_mtu: Mtu,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qpn: u32,
    pub(crate) access: u32,
    pub(crate) caps: QpCaps,
    pub(crate) av: AhAttr,
    pub(crate) pkey_index: u16,
    pub(crate) sq_draining: bool,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port: u32,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) signal_all: bool,
}

impl QpQuery {
    /// Fills both structures of `ib_query_qp`; the queues of `init` are the caller's business.
    pub(super) fn fill(
        &self,
        attr: &mut bindings::ib_qp_attr,
        init: &mut bindings::ib_qp_init_attr,
    ) {
        attr.qp_state = self.state as u32;
        attr.cur_qp_state = self.state as u32;
        attr.path_mtu = self.path_mtu as u32;
        attr.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
        attr.qkey = self.qkey;
        attr.rq_psn = self.rq_psn;
        attr.sq_psn = self.sq_psn;
        attr.dest_qp_num = self.dest_qpn;
        attr.qp_access_flags = self.access as i32;
        self.caps.fill(&mut attr.cap);
        self.av.fill(&mut attr.ah_attr);
        attr.pkey_index = self.pkey_index;
        attr.en_sqd_async_notify = 0;
        attr.sq_draining = self.sq_draining.into();
        attr.max_rd_atomic = self.max_rd_atomic;
        attr.max_dest_rd_atomic = self.max_dest_rd_atomic;
        attr.min_rnr_timer = self.min_rnr_timer;
        attr.port_num = self.port;
        attr.timeout = self.timeout;
        attr.retry_cnt = self.retry_cnt;
        attr.rnr_retry = self.rnr_retry;

        self.caps.fill(&mut init.cap);
        init.sq_sig_type = if self.signal_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
    }
}

impl<D> Object<bindings::ib_cq, D> {
    /// Whether a process made the completion queue.
    pub(crate) fn is_user(&self) -> bool {
        // SAFETY: The object is alive, and the field does not change.
        !unsafe { (*self.as_raw()).uobject }.is_null()
    }
}

impl<D> Object<bindings::ib_qp, D> {
    /// Whether a process made the queue pair.
    pub(crate) fn is_user(&self) -> bool {
        // SAFETY: The object is alive, and the field does not change.
        !unsafe { (*self.as_raw()).uobject }.is_null()
    }

    /// Port: of a QP of type SMI or GSI always, of others once it was set.
    pub(crate) fn port(&self) -> u32 {
        // SAFETY: The object is alive; a word is read while it may be changed.
        unsafe { (&raw const (*self.as_raw()).port).read_volatile() }
    }
}

#[kunit_tests(ochre_qp_verbs)]
mod tests {
    use super::*;

    const STATE: u32 = bindings::ib_qp_attr_mask_IB_QP_STATE;
    const TO_INIT: u32 = STATE
        | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
        | bindings::ib_qp_attr_mask_IB_QP_PORT
        | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;

    fn raw(state: QpState) -> bindings::ib_qp_attr {
        bindings::ib_qp_attr {
            qp_state: state as u32,
            pkey_index: 3,
            port_num: 1,
            timeout: 14,
            ..bindings::ib_qp_attr::default()
        }
    }

    #[test]
    fn only_what_the_mask_names_is_given() -> Result {
        let attr = QpAttr::from_raw(&raw(QpState::Init), TO_INIT)?;
        assert_eq!(attr.state, Some(QpState::Init));
        assert_eq!(attr.pkey_index, Some(3));
        assert_eq!(attr.port, Some(1));
        assert_eq!(attr.access, Some(0));
        assert_eq!(attr.timeout, None);
        assert!(attr.av.is_none());
        Ok(())
    }

    #[test]
    fn what_the_layer_does_not_know_is_refused() {
        let refused = |mask: u32| {
            QpAttr::from_raw(&bindings::ib_qp_attr::default(), mask).err() == Some(EOPNOTSUPP)
        };
        assert!(refused(bindings::ib_qp_attr_mask_IB_QP_CAP));
        assert!(refused(1 << 31));
    }

    #[test]
    fn a_path_may_be_migrated_but_does_not_migrate() -> Result {
        let mask = bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE;
        let mut raw = raw(QpState::Rts);
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
        QpAttr::from_raw(&raw, mask)?;
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_REARM;
        assert_eq!(QpAttr::from_raw(&raw, mask).err(), Some(EOPNOTSUPP));
        Ok(())
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        let mut raw = bindings::ib_qp_attr {
            qp_state: 7,
            ..bindings::ib_qp_attr::default()
        };
        assert_eq!(QpAttr::from_raw(&raw, STATE).err(), Some(EINVAL));
        raw.path_mtu = 6;
        let mtu = bindings::ib_qp_attr_mask_IB_QP_PATH_MTU;
        assert_eq!(QpAttr::from_raw(&raw, mtu).err(), Some(EINVAL));
    }

    #[test]
    fn transitions_are_those_of_the_verbs() -> Result {
        let to_init = QpAttr::from_raw(&raw(QpState::Init), TO_INIT)?;
        let from = |state| to_init.check_transition(state, QpType::Rc);
        assert_eq!(from(QpState::Reset), Ok(QpState::Init));
        assert_eq!(from(QpState::Rts), Err(EINVAL));
        // A datagram QP has a Q_Key in place of rights.
        let datagram = to_init.check_transition(QpState::Reset, QpType::Ud);
        assert_eq!(datagram, Err(EINVAL));
        Ok(())
    }

    #[test]
    fn every_state_leads_to_reset_and_all_others_to_error() -> Result {
        let reset = QpAttr::from_raw(&raw(QpState::Reset), STATE)?;
        let error = QpAttr::from_raw(&raw(QpState::Err), STATE)?;
        for raw_state in 0..7 {
            let state = QpState::from_raw(raw_state)?;
            let to_reset = reset.check_transition(state, QpType::Rc);
            assert_eq!(to_reset, Ok(QpState::Reset));
            let to_error = error.check_transition(state, QpType::Rc);
            // A QP in reset has nothing to flush: the core keeps it there.
            let expected = if state == QpState::Reset {
                Err(EINVAL)
            } else {
                Ok(QpState::Err)
            };
            assert_eq!(to_error, expected);
        }
        Ok(())
    }

    #[test]
    fn types_are_those_of_the_verbs() {
        for qp_type in [QpType::Smi, QpType::Gsi, QpType::Rc, QpType::Uc, QpType::Ud] {
            assert_eq!(QpType::from_raw(qp_type.as_raw()), Ok(qp_type));
        }
        let driver = bindings::ib_qp_type_IB_QPT_DRIVER;
        assert_eq!(QpType::from_raw(driver), Err(EOPNOTSUPP));
    }

    #[test]
    fn an_answer_fills_both_structures() {
        let mut attr = bindings::ib_qp_attr::default();
        let mut init = bindings::ib_qp_init_attr::default();
        let query = QpQuery {
            state: QpState::Sqd,
            path_mtu: Mtu::Mtu2048,
            sq_draining: true,
            signal_all: true,
            caps: QpCaps {
                max_send_wr: 5,
                ..QpCaps::default()
            },
            ..QpQuery::default()
        };
        query.fill(&mut attr, &mut init);
        assert_eq!(attr.qp_state, 4);
        assert_eq!(attr.path_mtu, 4);
        assert_eq!(attr.sq_draining, 1);
        assert_eq!(attr.cap.max_send_wr, 5);
        assert_eq!(init.cap.max_send_wr, 5);
        assert_eq!(init.sq_sig_type, bindings::ib_sig_type_IB_SIGNAL_ALL_WR);
    }
}
