// SPDX-License-Identifier: GPL-2.0-or-later

//! Address vectors: the path to a peer.

use super::bindings;
use core::mem::ManuallyDrop;
use kernel::prelude::*;

/// The part of a path that goes into the global route header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GlobalRoute {
    /// GID of the peer, in wire order.
    pub(crate) dgid: [u8; 16],
    /// Flow label, 20 bits.
    pub(crate) flow_label: u32,
    /// Index of the own GID in the table of the port.
    pub(crate) sgid_index: u8,
    /// Hop limit.
    pub(crate) hop_limit: u8,
    /// Traffic class.
    pub(crate) traffic_class: u8,
}

/// A path to a peer in an InfiniBand subnet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AhAttr {
    /// LID of the peer.
    pub(crate) dlid: u16,
    /// Low bits of the own LID, under the mask of LMC.
    pub(crate) src_path_bits: u8,
    /// Service level.
    pub(crate) sl: u8,
    /// `enum ib_rate`; 0 for the rate of the port.
    pub(crate) static_rate: u8,
    /// Port, from 1.
    pub(crate) port: u32,
    /// Global route, if packets have one.
    pub(crate) grh: Option<GlobalRoute>,
}

impl AhAttr {
    pub(super) fn from_raw(raw: &bindings::rdma_ah_attr) -> Result<Self> {
        if raw.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB {
            return Err(EINVAL);
        }

        // SAFETY: The type says that this is the member in use.
        let ib = unsafe { &raw.__bindgen_anon_1.ib };
        let grh = &raw.grh;

        Ok(Self {
            dlid: ib.dlid,
            src_path_bits: ib.src_path_bits,
            sl: raw.sl,
            static_rate: raw.static_rate,
            port: raw.port_num,
            grh: if u32::from(raw.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0 {
                Some(GlobalRoute {
                    // SAFETY: Every bit pattern is a GID.
                    dgid: unsafe { *grh.dgid.raw },
                    flow_label: grh.flow_label,
                    sgid_index: grh.sgid_index,
                    hop_limit: grh.hop_limit,
                    traffic_class: grh.traffic_class,
                })
            } else {
                None
            },
        })
    }

    pub(super) fn fill(&self, raw: &mut bindings::rdma_ah_attr) {
        raw.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB;
        raw.sl = self.sl;
        raw.static_rate = self.static_rate;
        raw.port_num = self.port;
        raw.ah_flags = 0;
        raw.__bindgen_anon_1.ib = ManuallyDrop::new(bindings::ib_ah_attr {
            dlid: self.dlid,
            src_path_bits: self.src_path_bits,
        });
        if let Some(grh) = &self.grh {
            raw.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
            raw.grh.dgid.raw = ManuallyDrop::new(grh.dgid);
            raw.grh.flow_label = grh.flow_label;
            raw.grh.sgid_index = grh.sgid_index;
            raw.grh.hop_limit = grh.hop_limit;
            raw.grh.traffic_class = grh.traffic_class;
        }
    }
}

#[kunit_tests(ochre_ah_verbs)]
mod tests {
    use super::*;

    const LOCAL: AhAttr = AhAttr {
        dlid: 0xbfff,
        src_path_bits: 127,
        sl: 3,
        static_rate: 2,
        port: 1,
        grh: None,
    };

    fn again(attr: &AhAttr) -> Result<AhAttr> {
        let mut raw = bindings::rdma_ah_attr::default();
        attr.fill(&mut raw);
        AhAttr::from_raw(&raw)
    }

    #[test]
    fn a_path_comes_back_as_it_was() {
        let global = AhAttr {
            grh: Some(GlobalRoute {
                dgid: [
                    0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
                ],
                flow_label: 0x1_2345,
                sgid_index: 1,
                hop_limit: 255,
                traffic_class: 7,
            }),
            ..LOCAL
        };
        assert_eq!(again(&LOCAL), Ok(LOCAL));
        assert_eq!(again(&global), Ok(global));
    }

    #[test]
    fn a_path_of_another_link_layer_is_refused() {
        let mut raw = bindings::rdma_ah_attr::default();
        LOCAL.fill(&mut raw);
        raw.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        assert_eq!(AhAttr::from_raw(&raw), Err(EINVAL));
    }
}
