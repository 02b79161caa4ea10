// SPDX-License-Identifier: GPL-2.0-or-later
//! One end of a reliable connection, with memory that its peer may read and write; and a question of a subnet manager.

use ochre_hca::Dma;
use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, AddressVector, QpType};
use ochre_hw::wqe::{SendOpcode, SendWqe, Sge};
use ochre_wire::mad::{attr, class, method, Mad};

use super::guest::{elements, GuestCq, GuestQp};
use super::host::{Host, Pair, LID_A};

/// A QP that is not connected yet, its CQ and a region with all rights.
pub struct End {
    pub qp: u32,
    pub guest: GuestQp,
    pub cq: GuestCq,
    pub key: u32,
    pub data: u64,
}

impl End {
    /// With `length` bytes in the region.
    pub fn new(h: &mut Host, sizes: &QpSizes, length: u32) -> Self {
        let pd = h.alloc_pd();
        let (cqn, cq) = h.create_cq(0, 5);
        let (qp, guest) = h.create_qp(QpType::Rc, pd, [cqn, cqn], sizes);
        let (key, data) = h.create_mr(pd, length.into(), access::REGION);
        End {
            qp,
            guest,
            cq,
            key,
            data,
        }
    }
}

const SIZES: QpSizes = QpSizes {
    send_wr: 4,
    send_sge: 1,
    inline_data: 0,
    recv_wr: 1,
    recv_sge: 1,
};

/// Asks A's firmware on lane 15 what it is, as a subnet manager in B does; gives the LID of an answer.
pub fn ask_node_info(pair: &mut Pair) -> Option<u16> {
    let pd = pair.b.alloc_pd();
    let (cqn, mut cq) = pair.b.create_cq(0, 3);
    let (qp, mut guest) = pair.b.create_qp(QpType::Smi, pd, [cqn, cqn], &SIZES);
    pair.b.start_datagram(qp, QpType::Smi, 0);
    let (key, data) = pair.b.create_mr(pd, 4096, access::LOCAL_WRITE);
    let ah = pair.b.create_ah(
        pd,
        AddressVector {
            dlid: LID_A,
            port: 1,
            ..Default::default()
        },
    );
    let mad = Mad::new(class::SUBN_LID_ROUTED, method::GET, attr::NODE_INFO, 0, 3);
    pair.b.mem.write(data, &mad.0).unwrap();
    let sge = |addr, length| Sge {
        addr,
        length,
        lkey: key,
    };
    guest.post_recv(1, &[sge(data + 1024, 296)]);
    let wqe = SendWqe {
        opcode: SendOpcode::Send.raw(),
        num_sge: 1,
        remote: u64::from(ah),
        ..SendWqe::default()
    };
    guest.post_send(&wqe, &elements(&[sge(data, 256)]));
    pair.b.ring(qp, &guest);
    pair.settle();
    cq.poll().map(|cqe| cqe.slid)
}
