// SPDX-License-Identifier: GPL-2.0-or-later
//! The ends of connections between two hosts.

use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, qp_attr as m, AddressVector, QpAttr, QpState, QpType};

use super::guest::{GuestCq, GuestQp};
use super::host::{Host, Pair, LID_A, LID_B};
use super::place::{Place, Room};
use super::rng::Rng;
use super::Dma;

/// Queues of every end.
pub const SIZES: QpSizes = QpSizes {
    send_wr: 64,
    send_sge: 4,
    inline_data: 64,
    recv_wr: 32,
    recv_sge: 4,
};

/// One end of a connection.
pub struct End {
    pub number: u32,
    pub guest: GuestQp,
    pub pd: u32,
    /// The CQs' numbers, for sends and for receives.
    pub cqs: [u32; 2],
    pub send_cq: GuestCq,
    pub recv_cq: GuestCq,
    pub place: Place,
}

/// A CQ with its number.
pub type Cq = (u32, GuestCq);

/// A QP in RESET with CQs of its own and memory; its source memory is random.
pub fn make_end(host: &mut Host, kind: QpType, room: Room, rng: &mut Rng) -> End {
    let cqs = [host.create_cq(0, 7), host.create_cq(0, 6)];
    make_end_on(host, kind, room, cqs, rng)
}

/// The same on CQs that are there, for sends and for receives.
pub fn make_end_on(
    host: &mut Host,
    kind: QpType,
    room: Room,
    [(send, send_cq), (recv, recv_cq)]: [Cq; 2],
    rng: &mut Rng,
) -> End {
    let pd = host.alloc_pd();
    let (key, at) = host.create_mr(pd, room.bytes(), access::REGION);
    let place = Place::new(&host.mem, key, at, room);
    host.mem
        .write(place.source, &rng.bytes(room.source as usize))
        .unwrap();
    let cqs = [send, recv];
    let (number, guest) = host.create_qp(kind, pd, cqs, &SIZES);
    End {
        number,
        guest,
        pd,
        cqs,
        send_cq,
        recv_cq,
        place,
    }
}

/// Takes a connected QP from RESET to RTS.
pub fn connect(host: &mut Host, kind: QpType, qp: u32, attr: QpAttr) {
    let rc = |mask| if kind == QpType::Rc { mask } else { 0 };
    let steps = [
        (QpState::Init, m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS),
        (
            QpState::Rtr,
            m::AV
                | m::PATH_MTU
                | m::DEST_QPN
                | m::RQ_PSN
                | rc(m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER),
        ),
        (
            QpState::Rts,
            m::SQ_PSN | rc(m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::MAX_RD_ATOMIC),
        ),
    ];
    for (state, mask) in steps {
        let attr = QpAttr {
            state: state.raw(),
            ..attr
        };
        host.modify_qp(qp, mask | m::STATE, attr).unwrap();
    }
}

/// Attributes of a connection to `peer` through `port`, unless a test changes them.
pub fn attributes(peer: u32, port: u8, dlid: u16) -> QpAttr {
    QpAttr {
        port,
        access: access::QP,
        path_mtu: 5,
        dest_qpn: peer,
        sq_psn: 0xff_fff8,
        rq_psn: 0xff_fff8,
        timeout: 8,
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        av: AddressVector {
            dlid,
            port,
            ..AddressVector::default()
        },
        ..QpAttr::default()
    }
}

/// Two QPs in RTS, connected to each other; `change` changes the attributes of both.
pub fn connected(
    pair: &mut Pair,
    kind: QpType,
    rng: &mut Rng,
    change: impl Fn(&mut QpAttr),
) -> [End; 2] {
    let a = make_end(&mut pair.a, kind, Room::PLAIN, rng);
    let b = make_end(&mut pair.b, kind, Room::PLAIN, rng);
    let attr = |peer: &End, dlid| {
        let mut attr = attributes(peer.number, 1, dlid);
        change(&mut attr);
        attr
    };
    connect(&mut pair.a, kind, a.number, attr(&b, LID_B));
    connect(&mut pair.b, kind, b.number, attr(&a, LID_A));
    [a, b]
}
