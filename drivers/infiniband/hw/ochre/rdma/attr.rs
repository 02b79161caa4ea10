// SPDX-License-Identifier: GPL-2.0-or-later

//! Attributes of devices and ports.

use super::bindings;
use kernel::{
    prelude::*,
    str::CStr, //
};

/// Rights of memory regions and of QPs, `IB_ACCESS_*`.
pub(crate) mod access {
    /// The device may write on behalf of the owner.
    pub(crate) const LOCAL_WRITE: u32 = 1 << 0;
    /// A peer may write.
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    /// A peer may read.
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    /// A peer may do atomics.
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    /// Memory windows may be bound to the region.
    pub(crate) const MW_BIND: u32 = 1 << 4;
    /// Addresses in the region begin at zero.
    pub(crate) const ZERO_BASED: u32 = 1 << 5;
    /// The region is not pinned.
    pub(crate) const ON_DEMAND: u32 = 1 << 6;
    /// The memory consists of huge pages.
    pub(crate) const HUGETLB: u32 = 1 << 7;
    /// Writes may be seen in another order.
    pub(crate) const RELAXED_ORDERING: u32 = 1 << 20;
    /// Rights that a device may ignore, `IB_ACCESS_OPTIONAL`.
    pub(crate) const OPTIONAL: u32 = 0x3ff0_0000;
}

/// What a device does with atomics, `enum ib_atomic_cap`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AtomicCap {
    /// None at all.
    #[default]
    None = 0,
    /// Atomic among the requests to this device.
    Hca = 1,
    /// Atomic also with the processor.
    Global = 2,
}

/// Attributes of a device, as `query_device` answers them; zero where not set.
///
/// Corresponds to `struct ib_device_attr`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: u64,
    /// As a number; on the wire it is big-endian.
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    /// `IB_DEVICE_*`, see [`DeviceAttr::CAP_SYS_IMAGE_GUID`] and the like.
    pub(crate) device_cap_flags: u64,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_sge_rd: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_pd: u32,
    pub(crate) max_qp_rd_atom: u32,
    pub(crate) max_res_rd_atom: u32,
    pub(crate) max_qp_init_rd_atom: u32,
    pub(crate) atomic_cap: AtomicCap,
    pub(crate) masked_atomic_cap: AtomicCap,
    pub(crate) max_mw: u32,
    pub(crate) max_mcast_grp: u32,
    pub(crate) max_mcast_qp_attach: u32,
    pub(crate) max_total_mcast_qp_attach: u32,
    pub(crate) max_ah: u32,
    pub(crate) max_srq: u32,
    pub(crate) max_srq_wr: u32,
    pub(crate) max_srq_sge: u32,
    pub(crate) max_fast_reg_page_list_len: u32,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) timestamp_mask: u64,
    /// Clock of completion timestamps, kHz.
    pub(crate) hca_core_clock: u64,
    pub(crate) max_cq_moderation_count: u16,
    pub(crate) max_cq_moderation_period: u16,
}

impl DeviceAttr {
    /// Bad P_Keys are counted.
    pub(crate) const CAP_BAD_PKEY_CNTR: u64 = 1 << 1;
    /// Bad Q_Keys are counted.
    pub(crate) const CAP_BAD_QKEY_CNTR: u64 = 1 << 2;
    /// The port that an address handle names is enforced.
    pub(crate) const CAP_UD_AV_PORT_ENFORCE: u64 = 1 << 6;
    /// `cur_qp_state` is looked at when a QP is modified.
    pub(crate) const CAP_CURR_QP_STATE_MOD: u64 = 1 << 7;
    /// A port can be shut down.
    pub(crate) const CAP_SHUTDOWN_PORT: u64 = 1 << 8;
    /// `PORT_ACTIVE` events are sent.
    pub(crate) const CAP_PORT_ACTIVE_EVENT: u64 = 1 << 10;
    /// There is a system image GUID.
    pub(crate) const CAP_SYS_IMAGE_GUID: u64 = 1 << 11;
    /// RNR NAKs are sent.
    pub(crate) const CAP_RC_RNR_NAK_GEN: u64 = 1 << 12;
    /// Fast registration, local invalidate and send with invalidate.
    pub(crate) const CAP_MEM_MGT_EXTENSIONS: u64 = 1 << 21;

    pub(super) fn fill(&self, local_dma_lkey: bool, attr: &mut bindings::ib_device_attr) {
        attr.fw_ver = self.fw_ver;
        attr.sys_image_guid = self.sys_image_guid.to_be();
        attr.max_mr_size = self.max_mr_size;
        attr.page_size_cap = self.page_size_cap;
        attr.vendor_id = self.vendor_id;
        attr.vendor_part_id = self.vendor_part_id;
        attr.hw_ver = self.hw_ver;
        attr.max_qp = self.max_qp;
        attr.max_qp_wr = self.max_qp_wr;
        attr.device_cap_flags = self.device_cap_flags;
        attr.kernel_cap_flags = if local_dma_lkey {
            bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY.into()
        } else {
            0
        };
        attr.max_send_sge = self.max_send_sge;
        attr.max_recv_sge = self.max_recv_sge;
        attr.max_sge_rd = self.max_sge_rd;
        attr.max_cq = self.max_cq;
        attr.max_cqe = self.max_cqe;
        attr.max_mr = self.max_mr;
        attr.max_pd = self.max_pd;
        attr.max_qp_rd_atom = self.max_qp_rd_atom;
        attr.max_res_rd_atom = self.max_res_rd_atom;
        attr.max_qp_init_rd_atom = self.max_qp_init_rd_atom;
        attr.atomic_cap = self.atomic_cap as u32;
        attr.masked_atomic_cap = self.masked_atomic_cap as u32;
        attr.max_mw = self.max_mw;
        attr.max_mcast_grp = self.max_mcast_grp;
        attr.max_mcast_qp_attach = self.max_mcast_qp_attach;
        attr.max_total_mcast_qp_attach = self.max_total_mcast_qp_attach;
        attr.max_ah = self.max_ah;
        attr.max_srq = self.max_srq;
        attr.max_srq_wr = self.max_srq_wr;
        attr.max_srq_sge = self.max_srq_sge;
        attr.max_fast_reg_page_list_len = self.max_fast_reg_page_list_len;
        attr.max_pkeys = self.max_pkeys;
        attr.local_ca_ack_delay = self.local_ca_ack_delay;
        attr.timestamp_mask = self.timestamp_mask;
        attr.hca_core_clock = self.hca_core_clock;
        attr.cq_caps.max_cq_moderation_count = self.max_cq_moderation_count;
        attr.cq_caps.max_cq_moderation_period = self.max_cq_moderation_period;
    }
}

/// What the subsystem must know of a device when it is registered.
#[derive(Clone, Copy)]
pub(crate) struct DeviceInfo {
    /// Name with one `%d`, such as `ochre_%d`.
    pub(crate) name: &'static CStr,
    /// GUID of the node, as a number.
    pub(crate) node_guid: u64,
    /// Description of the node, UTF-8, filled with zeros.
    pub(crate) node_desc: [u8; 64],
    /// Number of ports; they count from 1.
    pub(crate) ports: u32,
    /// Number of completion vectors.
    pub(crate) comp_vectors: u32,
    /// The key that names all of the kernel's memory by DMA address, where the device has one.
    pub(crate) local_dma_lkey: Option<u32>,
}

/// Size of a packet's payload, `enum ib_mtu`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mtu {
    #[default]
    Mtu256 = 1,
    Mtu512 = 2,
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

impl Mtu {
    /// The MTU of the encoding that verbs and MADs share.
    pub(crate) fn from_raw(raw: u32) -> Result<Self> {
        Ok(match raw {
            1 => Self::Mtu256,
            2 => Self::Mtu512,
            3 => Self::Mtu1024,
            4 => Self::Mtu2048,
            5 => Self::Mtu4096,
            _ => return Err(EINVAL),
        })
    }

    /// In bytes.
    pub(crate) fn bytes(self) -> u32 {
        128 << self as u32
    }
}

/// Logical state of a port, `enum ib_port_state`; the numbers are those of PortInfo.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PortState {
    #[default]
    Nop = 0,
    Down = 1,
    Init = 2,
    Armed = 3,
    Active = 4,
}

impl PortState {
    /// The state of PortInfo's encoding; [`PortState::Nop`] where it has no meaning.
    pub(crate) fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            _ => Self::Nop,
        }
    }
}

/// Physical state of a port, `enum ib_port_phys_state`; the numbers are those of PortInfo.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PhysState {
    #[default]
    Nop = 0,
    Sleep = 1,
    Polling = 2,
    Disabled = 3,
    Training = 4,
    LinkUp = 5,
    LinkErrorRecovery = 6,
    PhyTest = 7,
}

impl PhysState {
    /// The state of PortInfo's encoding; [`PhysState::Nop`] where it has no meaning.
    pub(crate) fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Sleep,
            2 => Self::Polling,
            3 => Self::Disabled,
            4 => Self::Training,
            5 => Self::LinkUp,
            6 => Self::LinkErrorRecovery,
            7 => Self::PhyTest,
            _ => Self::Nop,
        }
    }
}

/// Width of a link, `enum ib_port_width`; the numbers are those of PortInfo.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkWidth {
    #[default]
    X1 = 1,
    X4 = 2,
    X8 = 4,
    X12 = 8,
    X2 = 16,
}

impl LinkWidth {
    /// The width of PortInfo's encoding, [`LinkWidth::X1`] where it has no meaning.
    pub(crate) fn from_raw(raw: u8) -> Self {
        match raw {
            2 => Self::X4,
            4 => Self::X8,
            8 => Self::X12,
            16 => Self::X2,
            _ => Self::X1,
        }
    }
}

/// Attributes of a port, as `query_port` answers them; zero where not set.
///
/// Corresponds to `struct ib_port_attr`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortAttr {
    /// As a number; on the wire it is big-endian.
    pub(crate) subnet_prefix: u64,
    pub(crate) state: PortState,
    pub(crate) max_mtu: Mtu,
    pub(crate) active_mtu: Mtu,
    pub(crate) gid_tbl_len: u32,
    /// CapabilityMask of PortInfo.
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lid: u16,
    pub(crate) lmc: u8,
    /// VLCap of PortInfo.
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: LinkWidth,
    /// `enum ib_port_speed`: SDR 1, DDR 2, QDR 4, FDR10 8, FDR 16, EDR 32, HDR 64, NDR 128,
    /// XDR 256.
    pub(crate) active_speed: u16,
    pub(crate) phys_state: PhysState,
    /// CapabilityMask2 of PortInfo.
    pub(crate) port_cap_flags2: u16,
}

impl PortAttr {
    pub(super) fn fill(&self, attr: &mut bindings::ib_port_attr) {
        attr.subnet_prefix = self.subnet_prefix;
        attr.state = self.state as u32;
        attr.max_mtu = self.max_mtu as u32;
        attr.active_mtu = self.active_mtu as u32;
        attr.phys_mtu = self.active_mtu.bytes();
        attr.gid_tbl_len = self.gid_tbl_len as i32;
        attr.port_cap_flags = self.port_cap_flags;
        attr.max_msg_sz = self.max_msg_sz;
        attr.bad_pkey_cntr = self.bad_pkey_cntr;
        attr.qkey_viol_cntr = self.qkey_viol_cntr;
        attr.pkey_tbl_len = self.pkey_tbl_len;
        attr.sm_lid = self.sm_lid.into();
        attr.lid = self.lid.into();
        attr.lmc = self.lmc;
        attr.max_vl_num = self.max_vl_num;
        attr.sm_sl = self.sm_sl;
        attr.subnet_timeout = self.subnet_timeout;
        attr.init_type_reply = self.init_type_reply;
        attr.active_width = self.active_width as u8;
        attr.active_speed = self.active_speed;
        attr.phys_state = self.phys_state as u8;
        attr.port_cap_flags2 = self.port_cap_flags2;
    }
}

/// What of an InfiniBand port never changes, `struct ib_port_immutable`.
///
/// The layer declares the port as one of an InfiniBand channel adapter
/// (`RDMA_CORE_PORT_IBA_IB`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortImmutable {
    /// Entries of the P_Key table.
    pub(crate) pkey_tbl_len: u16,
    /// Entries of the GID table.
    pub(crate) gid_tbl_len: u32,
}

/// What `modify_port` changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModifyPort {
    /// Shut the port down.
    pub(crate) shutdown: bool,
    /// Set the counter of Q_Key violations to zero.
    pub(crate) reset_qkey_counter: bool,
    /// Bits of CapabilityMask to be set.
    pub(crate) set_cap_mask: u32,
    /// Bits of CapabilityMask to be cleared.
    pub(crate) clear_cap_mask: u32,
}

#[kunit_tests(ochre_attr)]
mod tests {
    use super::*;

    #[test]
    fn mtus_have_their_bytes() -> Result {
        for (raw, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!(Mtu::from_raw(raw)?.bytes(), bytes);
        }
        for raw in [0, 6, u32::MAX] {
            assert_eq!(Mtu::from_raw(raw), Err(EINVAL));
        }
        Ok(())
    }

    #[test]
    fn states_and_widths_keep_their_numbers() {
        for raw in 1..=4 {
            assert_eq!(PortState::from_raw(raw) as u32, u32::from(raw));
        }
        for raw in 1..=7 {
            assert_eq!(PhysState::from_raw(raw) as u8, raw);
        }
        for raw in [1, 2, 4, 8, 16] {
            assert_eq!(LinkWidth::from_raw(raw) as u8, raw);
        }
    }

    #[test]
    fn numbers_without_meaning_have_a_harmless_one() {
        assert_eq!(PortState::from_raw(5), PortState::Nop);
        assert_eq!(PhysState::from_raw(8), PhysState::Nop);
        assert_eq!(LinkWidth::from_raw(3), LinkWidth::X1);
    }

    #[test]
    fn guids_are_big_endian_for_the_core() {
        let mut raw = bindings::ib_device_attr::default();
        let attr = DeviceAttr {
            sys_image_guid: 0x0102_0304_0506_0708,
            ..DeviceAttr::default()
        };
        attr.fill(false, &mut raw);
        assert_eq!(raw.sys_image_guid.to_ne_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(raw.kernel_cap_flags, 0);
        attr.fill(true, &mut raw);
        assert!(raw.kernel_cap_flags != 0);
    }
}
