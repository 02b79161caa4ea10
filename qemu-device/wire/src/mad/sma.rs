// SPDX-License-Identifier: GPL-2.0-or-later
//! Subnet management attributes of a channel adapter, 64 bytes each.

use super::fields::attribute;
use crate::bytes::{be16, be64, put16, put64};
use crate::types::{Guid, Lid, PKey};

/// NodeInfo: node type of a channel adapter.
pub const NODE_TYPE_CA: u8 = 1;
/// NodeInfo: node type of a switch.
pub const NODE_TYPE_SWITCH: u8 = 2;

attribute! {
    /// NodeInfo: what the node is.
    NodeInfo[64] {
        /// Version of the common MAD header, 1.
        base_version: u8 = at(0),
        /// Version of the subnet management class, 1.
        class_version: u8 = at(1),
        /// 1 channel adapter, 2 switch, 3 router.
        node_type: u8 = at(2),
        /// Physical ports.
        num_ports: u8 = at(3),
        /// Identifies the system that the node is in.
        system_image_guid: Guid = at(4),
        /// Identifies the node.
        node_guid: Guid = at(12),
        /// Identifies the port that this was read through.
        port_guid: Guid = at(20),
        /// Entries of the P_Key table of each port.
        partition_cap: u16 = at(28),
        /// Device, by the vendor.
        device_id: u16 = at(30),
        /// Revision, by the vendor.
        revision: u32 = at(32),
        /// Port that this was read through.
        local_port_num: u8 = at(36),
        /// Vendor, 24 bits.
        vendor_id: u32 = word(36, 0, 24),
    }
}

/// PortInfo: logical port states.
pub mod port_state {
    /// In a Set: leave the state alone.
    pub const NO_CHANGE: u8 = 0;
    /// Down
    pub const DOWN: u8 = 1;
    /// Initialize: only subnet management passes.
    pub const INIT: u8 = 2;
    /// Armed: subnet management passes, data may be received.
    pub const ARMED: u8 = 3;
    /// Active
    pub const ACTIVE: u8 = 4;
}

/// PortInfo: physical port states.
pub mod phys_state {
    /// In a Set: leave the state alone.
    pub const NO_CHANGE: u8 = 0;
    /// Sleep
    pub const SLEEP: u8 = 1;
    /// Polling
    pub const POLLING: u8 = 2;
    /// Disabled
    pub const DISABLED: u8 = 3;
    /// Port configuration training
    pub const TRAINING: u8 = 4;
    /// Link up
    pub const LINK_UP: u8 = 5;
    /// Link error recovery
    pub const RECOVERY: u8 = 6;
}

/// PortInfo: bits of the capability mask.
pub mod cap {
    /// A subnet manager runs behind the port.
    pub const SM: u32 = 1 << 1;
    /// Notices are supported.
    pub const NOTICE: u32 = 1 << 2;
    /// Traps are supported.
    pub const TRAP: u32 = 1 << 3;
    /// Automatic path migration.
    pub const AUTOMATIC_MIGRATION: u32 = 1 << 5;
    /// SLtoVLMappingTable is supported.
    pub const SL_MAPPING: u32 = 1 << 6;
    /// The M_Key is kept in non-volatile memory.
    pub const M_KEY_NVRAM: u32 = 1 << 7;
    /// The P_Keys are kept in non-volatile memory.
    pub const P_KEY_NVRAM: u32 = 1 << 8;
    /// LED control.
    pub const LED_INFO: u32 = 1 << 9;
    /// The subnet manager is disabled.
    pub const SM_DISABLED: u32 = 1 << 10;
    /// SystemImageGUID is supported.
    pub const SYS_IMAGE_GUID: u32 = 1 << 11;
    /// P_Key enforcement at the port of a switch.
    pub const PKEY_SW_EXT_PORT_TRAP: u32 = 1 << 12;
    /// Extended link speeds (14.0625 Gb/s and up per lane) are supported.
    pub const EXTENDED_SPEEDS: u32 = 1 << 14;
    /// The bits of CapabilityMask2 count.
    pub const CAP_MASK2: u32 = 1 << 15;
    /// Connection management.
    pub const CM: u32 = 1 << 16;
    /// SNMP tunnelling.
    pub const SNMP_TUNNEL: u32 = 1 << 17;
    /// Re-initialization (InitType) is supported.
    pub const REINIT: u32 = 1 << 18;
    /// Device management.
    pub const DEVICE_MGMT: u32 = 1 << 19;
    /// Vendor-specific class.
    pub const VENDOR_CLASS: u32 = 1 << 20;
    /// Trap 144 is sent when capabilities change.
    pub const CAP_MASK_NOTICE: u32 = 1 << 22;
    /// Boot management.
    pub const BOOT_MGMT: u32 = 1 << 23;
    /// Link round trip latency is measured.
    pub const LINK_LATENCY: u32 = 1 << 24;
    /// ClientReregister is supported.
    pub const CLIENT_REREGISTER: u32 = 1 << 25;
    /// Trap 144 also reports other local changes.
    pub const OTHER_LOCAL_CHANGES: u32 = 1 << 26;
    /// LinkSpeedEnabled and LinkWidthEnabled pairs are tabulated.
    pub const LINK_SPEED_WIDTH_PAIRS: u32 = 1 << 27;
}

attribute! {
    /// PortInfo: configuration and state of a port.
    PortInfo[64] {
        /// Management key; reads as zero to those who do not hold it.
        m_key: u64 = at(0),
        /// Subnet prefix of the port's GIDs.
        gid_prefix: u64 = at(8),
        /// Base LID.
        lid: Lid = at(16),
        /// LID of the master subnet manager.
        master_sm_lid: Lid = at(18),
        /// Capabilities, see [`cap`].
        capability_mask: u32 = at(20),
        /// Diagnostic code, 0 for none.
        diag_code: u16 = at(24),
        /// Seconds that the M_Key protection lasts after a violation, 0 for ever.
        m_key_lease_period: u16 = at(26),
        /// Port that this was read through.
        local_port_num: u8 = at(28),
        /// Widths allowed: bit 0 1x, bit 1 4x, bit 2 8x, bit 3 12x, bit 4 2x; 255 in a Set means
        /// all supported, 0 no change.
        link_width_enabled: u8 = at(29),
        /// Widths supported, bits as in `link_width_enabled`.
        link_width_supported: u8 = at(30),
        /// Width in use, one bit.
        link_width_active: u8 = at(31),
        /// Speeds supported: bit 0 2.5, bit 1 5, bit 2 10 Gb/s per lane.
        link_speed_supported: u8 = bits(32, 4, 4),
        /// Logical state, see [`port_state`].
        port_state: u8 = bits(32, 0, 4),
        /// Physical state, see [`phys_state`].
        port_physical_state: u8 = bits(33, 4, 4),
        /// Physical state to fall to: 1 sleep, 2 polling; 0 in a Set means no change.
        link_down_default_state: u8 = bits(33, 0, 4),
        /// M_Key protection level, 0 to 3.
        m_key_protect_bits: u8 = bits(34, 6, 2),
        /// LID mask control: low bits of the LID that are don't-care.
        lmc: u8 = bits(34, 0, 3),
        /// Speed in use, one bit.
        link_speed_active: u8 = bits(35, 4, 4),
        /// Speeds allowed; 15 in a Set means all supported, 0 no change.
        link_speed_enabled: u8 = bits(35, 0, 4),
        /// MTU code of the neighbour.
        neighbor_mtu: u8 = bits(36, 4, 4),
        /// Service level of the master subnet manager.
        master_sm_sl: u8 = bits(36, 0, 4),
        /// Data lanes supported: 1 VL0, 2 VL0-1, 3 VL0-3, 4 VL0-7, 5 VL0-14.
        vl_cap: u8 = bits(37, 4, 4),
        /// Kind of initialization that is asked for.
        init_type: u8 = bits(37, 0, 4),
        /// High-priority bytes before a low-priority packet, in units of 4 KiB; 255 no limit.
        vl_high_limit: u8 = at(38),
        /// Entries of the high-priority arbitration table.
        vl_arbitration_high_cap: u8 = at(39),
        /// Entries of the low-priority arbitration table.
        vl_arbitration_low_cap: u8 = at(40),
        /// Kind of initialization that was done.
        init_type_reply: u8 = bits(41, 4, 4),
        /// MTU code of the largest supported.
        mtu_cap: u8 = bits(41, 0, 4),
        /// Switches: drops before a lane counts as stalled.
        vl_stall_count: u8 = bits(42, 5, 3),
        /// Switches: time at the head of a queue.
        hoq_life: u8 = bits(42, 0, 5),
        /// Data lanes in use, code as in `vl_cap`; 0 in a Set means no change.
        operational_vls: u8 = bits(43, 4, 4),
        /// Switches: inbound partition enforcement.
        partition_enforcement_inbound: bool = bits(43, 3, 1),
        /// Switches: outbound partition enforcement.
        partition_enforcement_outbound: bool = bits(43, 2, 1),
        /// Switches: inbound raw packets dropped.
        filter_raw_inbound: bool = bits(43, 1, 1),
        /// Switches: outbound raw packets dropped.
        filter_raw_outbound: bool = bits(43, 0, 1),
        /// SMPs with a bad M_Key.
        m_key_violations: u16 = at(44),
        /// Packets with a bad P_Key.
        p_key_violations: u16 = at(46),
        /// Packets with a bad Q_Key.
        q_key_violations: u16 = at(48),
        /// Entries of the GUID table.
        guid_cap: u8 = at(50),
        /// Clients shall register again with subnet administration.
        client_reregister: bool = bits(51, 7, 1),
        /// Multicast P_Key trap suppression.
        multicast_pkey_trap_suppression: u8 = bits(51, 5, 2),
        /// Longest time of a trip through the subnet and least time between traps:
        /// 4.096 us * 2^value.
        subnet_timeout: u8 = bits(51, 0, 5),
        /// Response time of the management agent: 4.096 us * 2^value.
        resp_time_value: u8 = bits(52, 0, 5),
        /// Threshold of local physical errors.
        local_phy_errors: u8 = bits(53, 4, 4),
        /// Threshold of buffer overruns.
        overrun_errors: u8 = bits(53, 0, 4),
        /// Credits that keep the link busy; 0 if not known.
        max_credit_hint: u16 = at(54),
        /// Link round trip latency in units of 4 ns, 24 bits; all ones if not known.
        link_round_trip_latency: u32 = word(56, 0, 24),
        /// More capabilities.
        capability_mask2: u16 = at(60),
        /// Extended speed in use: bit 0 14.0625, bit 1 25.78125, bit 2 53.125, bit 3 106.25 Gb/s
        /// per lane; 0 if the speed is not an extended one.
        link_speed_ext_active: u8 = bits(62, 4, 4),
        /// Extended speeds supported.
        link_speed_ext_supported: u8 = bits(62, 0, 4),
        /// Extended speeds allowed; 31 in a Set means all supported, 30 none, 0 no change.
        link_speed_ext_enabled: u8 = bits(63, 0, 5),
    }
}

/// NodeDescription: UTF-8 text, padded with zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDescription(pub [u8; 64]);

impl Default for NodeDescription {
    fn default() -> Self {
        NodeDescription([0; 64])
    }
}

impl NodeDescription {
    /// The longest prefix of `text` that fits without cutting a character.
    pub fn new(text: &str) -> Self {
        let mut end = text.len().min(64);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut b = [0; 64];
        b[..end].copy_from_slice(&text.as_bytes()[..end]);
        NodeDescription(b)
    }

    /// The bytes before the padding.
    pub fn text(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(64);
        &self.0[..end]
    }
}

/// GUIDInfo: a block of 8 entries of the GUID table. The attribute modifier is the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuidInfo(pub [Guid; 8]);

impl GuidInfo {
    /// Reads the attribute.
    pub fn read(data: &[u8; 64]) -> Self {
        GuidInfo(core::array::from_fn(|i| Guid(be64(data, i * 8))))
    }

    /// Writes the attribute.
    pub fn write(&self, data: &mut [u8; 64]) {
        for (i, g) in self.0.iter().enumerate() {
            put64(data, i * 8, g.0);
        }
    }
}

/// P_KeyTable: a block of 32 entries. The low 16 bits of the attribute modifier are the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PKeyTable(pub [PKey; 32]);

impl PKeyTable {
    /// Reads the attribute.
    pub fn read(data: &[u8; 64]) -> Self {
        PKeyTable(core::array::from_fn(|i| PKey(be16(data, i * 2))))
    }

    /// Writes the attribute.
    pub fn write(&self, data: &mut [u8; 64]) {
        for (i, k) in self.0.iter().enumerate() {
            put16(data, i * 2, k.0);
        }
    }
}

/// SLtoVLMappingTable: the lane of each service level; 15 drops the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlToVl(pub [u8; 16]);

impl SlToVl {
    /// Reads the attribute.
    pub fn read(data: &[u8; 64]) -> Self {
        SlToVl(core::array::from_fn(|i| {
            data[i / 2] >> if i % 2 == 0 { 4 } else { 0 } & 0xf
        }))
    }

    /// Writes the attribute.
    pub fn write(&self, data: &mut [u8; 64]) {
        data.fill(0);
        for (i, vl) in self.0.iter().enumerate() {
            data[i / 2] |= (vl & 0xf) << if i % 2 == 0 { 4 } else { 0 };
        }
    }
}

/// An entry of a VL arbitration table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlArbEntry {
    /// Lane, 0 to 14.
    pub vl: u8,
    /// Units of 64 bytes; 0 skips the entry.
    pub weight: u8,
}

/// VLArbitrationTable: a block of 32 entries. The upper 16 bits of the attribute modifier are the
/// block: 1 and 2 low priority, 3 and 4 high priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlArbitration(pub [VlArbEntry; 32]);

impl VlArbitration {
    /// Reads the attribute.
    pub fn read(data: &[u8; 64]) -> Self {
        VlArbitration(core::array::from_fn(|i| VlArbEntry {
            vl: data[i * 2] & 0xf,
            weight: data[i * 2 + 1],
        }))
    }

    /// Writes the attribute.
    pub fn write(&self, data: &mut [u8; 64]) {
        for (i, e) in self.0.iter().enumerate() {
            data[i * 2] = e.vl & 0xf;
            data[i * 2 + 1] = e.weight;
        }
    }
}
