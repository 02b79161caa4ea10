// SPDX-License-Identifier: GPL-2.0-or-later
//! One end of a reliable connection, with memory that its peer may read and write.

use ochre_hw::queue::QpSizes;
use ochre_hw::verbs::{access, QpType};

use super::guest::{GuestCq, GuestQp};
use super::host::Host;

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
