// SPDX-License-Identifier: GPL-2.0-or-later
//! One end of datagrams.

use ochre_hw::cqe::{Cqe, CqeStatus};
use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, AddressVector, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge, SEND_SIGNALED};

use super::guest::{elements, GuestCq, GuestQp};
use super::host::{Host, Pair, LID_A, LID_B};

/// The Q_Key of all.
pub const QKEY: u32 = 0x1111_2222;
/// Of each QP.
pub const SIZES: QpSizes = QpSizes {
    send_wr: 16,
    send_sge: 3,
    inline_data: 256,
    recv_wr: 16,
    recv_sge: 2,
};

/// One end: a QP with its CQ and some memory.
pub struct End {
    pub qp: u32,
    pub guest: GuestQp,
    pub cqn: u32,
    pub cq: GuestCq,
    pub pd: u32,
    pub key: u32,
    pub data: u64,
    pub ah: u32,
}

/// A QP in RTS that sends to the LID `peer`.
pub fn end(h: &mut Host, kind: QpType, peer: u16, qkey: u32) -> End {
    let pd = h.alloc_pd();
    let (cqn, cq) = h.create_cq(0, 6);
    let (qp, guest) = h.create_qp(kind, pd, [cqn, cqn], &SIZES);
    h.start_datagram(qp, kind, qkey);
    let (key, data) = h.create_mr(pd, 16 << 10, access::LOCAL_WRITE);
    let ah = h.create_ah(
        pd,
        AddressVector {
            dlid: peer,
            sl: 3,
            port: 1,
            ..AddressVector::default()
        },
    );
    End {
        qp,
        guest,
        cqn,
        cq,
        pd,
        key,
        data,
        ah,
    }
}

/// One of each host, which send to each other.
pub fn ends(pair: &mut Pair) -> (End, End) {
    (
        end(&mut pair.a, QpType::Ud, LID_B, QKEY),
        end(&mut pair.b, QpType::Ud, LID_A, QKEY),
    )
}

impl End {
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            addr: self.data + offset,
            length,
            lkey: self.key,
        }
    }

    pub fn wqe(&self, dest: u32, num_sge: u8) -> SendWqe {
        SendWqe {
            opcode: SendOpcode::Send.raw(),
            flags: SEND_SIGNALED,
            num_sge,
            wr_id: 0x77,
            remote: u64::from(dest) << 32 | u64::from(self.ah),
            key: QKEY,
            ..SendWqe::default()
        }
    }

    pub fn send(&mut self, h: &mut Host, wqe: SendWqe, sges: &[Sge]) {
        self.guest.post_send(&wqe, &elements(sges));
        h.ring(self.qp, &self.guest);
    }

    pub fn one(&mut self) -> Cqe {
        let cqe = self.cq.poll().expect("a completion");
        assert_eq!(self.cq.poll(), None, "only one completion");
        cqe
    }

    pub fn status(&mut self) -> CqeStatus {
        CqeStatus::from_raw(self.one().status).unwrap()
    }
}
