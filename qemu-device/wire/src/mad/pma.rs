// SPDX-License-Identifier: GPL-2.0-or-later
//! Performance management attributes, 192 bytes each.

use super::fields::attribute;
use crate::types::{Gid, Lid, PKey, QKey};

/// Bits of [`ClassPortInfo::capability_mask`] of the performance management class.
pub mod class_cap {
    /// Port 255 in a request stands for all ports.
    pub const ALL_PORT_SELECT: u16 = 1 << 8;
    /// PortCountersExtended is supported.
    pub const EXTENDED_WIDTH: u16 = 1 << 9;
    /// PortCountersExtended is supported without the unicast and multicast counters.
    pub const EXTENDED_WIDTH_NO_IETF: u16 = 1 << 10;
    /// PortXmitWait in PortCounters is supported.
    pub const XMIT_WAIT: u16 = 1 << 12;
}

/// Bit of [`ClassPortInfo::capability_mask2`]: the error counters of PortCountersExtended are
/// supported.
pub const CLASS_CAP2_ADDITIONAL_EXTENDED: u32 = 1 << 1;

attribute! {
    /// ClassPortInfo: what the agent of a class supports.
    ClassPortInfo[192] {
        /// Version of the common header.
        base_version: u8 = at(0),
        /// Version of the class.
        class_version: u8 = at(1),
        /// Capabilities.
        capability_mask: u16 = at(2),
        /// More capabilities, 27 bits.
        capability_mask2: u32 = word(4, 5, 27),
        /// Response time: 4.096 us * 2^value.
        resp_time_value: u8 = bits(7, 0, 5),
        /// Where to send requests of this class instead; all zero to stay here.
        redirect_gid: Gid = at(8),
        /// Traffic class, service level and flow label of the redirection.
        redirect_tc_sl_fl: u32 = at(24),
        /// LID of the redirection.
        redirect_lid: Lid = at(28),
        /// P_Key of the redirection.
        redirect_pkey: PKey = at(30),
        /// QP of the redirection, 24 bits.
        redirect_qp: u32 = word(32, 0, 24),
        /// Q_Key of the redirection.
        redirect_qkey: QKey = at(36),
        /// Where to send traps.
        trap_gid: Gid = at(40),
        /// Traffic class, service level and flow label of traps.
        trap_tc_sl_fl: u32 = at(56),
        /// LID for traps.
        trap_lid: Lid = at(60),
        /// P_Key for traps.
        trap_pkey: PKey = at(62),
        /// Hop limit for traps.
        trap_hop_limit: u8 = at(64),
        /// QP for traps, 24 bits.
        trap_qp: u32 = word(64, 0, 24),
        /// Q_Key for traps.
        trap_qkey: QKey = at(68),
    }
}

/// Bits of [`PortCounters::counter_select`], in the order of the counters.
pub mod select {
    /// SymbolErrorCounter
    pub const SYMBOL_ERROR: u16 = 1 << 0;
    /// LinkErrorRecoveryCounter
    pub const LINK_ERROR_RECOVERY: u16 = 1 << 1;
    /// LinkDownedCounter
    pub const LINK_DOWNED: u16 = 1 << 2;
    /// PortRcvErrors
    pub const RCV_ERRORS: u16 = 1 << 3;
    /// PortRcvRemotePhysicalErrors
    pub const RCV_REMOTE_PHYSICAL_ERRORS: u16 = 1 << 4;
    /// PortRcvSwitchRelayErrors
    pub const RCV_SWITCH_RELAY_ERRORS: u16 = 1 << 5;
    /// PortXmitDiscards
    pub const XMIT_DISCARDS: u16 = 1 << 6;
    /// PortXmitConstraintErrors
    pub const XMIT_CONSTRAINT_ERRORS: u16 = 1 << 7;
    /// PortRcvConstraintErrors
    pub const RCV_CONSTRAINT_ERRORS: u16 = 1 << 8;
    /// LocalLinkIntegrityErrors
    pub const LOCAL_LINK_INTEGRITY: u16 = 1 << 9;
    /// ExcessiveBufferOverrunErrors
    pub const BUFFER_OVERRUN: u16 = 1 << 10;
    /// VL15Dropped
    pub const VL15_DROPPED: u16 = 1 << 11;
    /// PortXmitData
    pub const XMIT_DATA: u16 = 1 << 12;
    /// PortRcvData
    pub const RCV_DATA: u16 = 1 << 13;
    /// PortXmitPkts
    pub const XMIT_PKTS: u16 = 1 << 14;
    /// PortRcvPkts
    pub const RCV_PKTS: u16 = 1 << 15;
    /// Of [`super::PortCounters::counter_select2`]: PortXmitWait
    pub const XMIT_WAIT: u8 = 1 << 0;
}

attribute! {
    /// PortCounters: counters that stop at their maximum.
    PortCounters[192] {
        /// Port.
        port_select: u8 = at(1),
        /// Counters that a Set writes, see [`select`].
        counter_select: u16 = at(2),
        /// Minor link errors.
        symbol_error: u16 = at(4),
        /// Link error recoveries that succeeded.
        link_error_recovery: u8 = at(6),
        /// Times the link went down.
        link_downed: u8 = at(7),
        /// Packets received with an error.
        rcv_errors: u16 = at(8),
        /// Packets received that were marked bad.
        rcv_remote_physical_errors: u16 = at(10),
        /// Switches: packets received that could not be relayed.
        rcv_switch_relay_errors: u16 = at(12),
        /// Packets discarded because the link was down or congested.
        xmit_discards: u16 = at(14),
        /// Packets not sent for want of rights.
        xmit_constraint_errors: u8 = at(16),
        /// Packets not received for want of rights.
        rcv_constraint_errors: u8 = at(17),
        /// More counters that a Set writes.
        counter_select2: u8 = at(18),
        /// Local physical errors that reached their threshold, 4 bits.
        local_link_integrity_errors: u8 = bits(19, 4, 4),
        /// Consecutive buffer overruns that reached their threshold, 4 bits.
        buffer_overrun_errors: u8 = bits(19, 0, 4),
        /// Packets of VL15 dropped for want of a buffer.
        vl15_dropped: u16 = at(22),
        /// Data sent, in units of 4 bytes.
        xmit_data: u32 = at(24),
        /// Data received, in units of 4 bytes.
        rcv_data: u32 = at(28),
        /// Packets sent.
        xmit_pkts: u32 = at(32),
        /// Packets received.
        rcv_pkts: u32 = at(36),
        /// Ticks in which data waited to be sent.
        xmit_wait: u32 = at(40),
    }
}

/// Bits of [`PortCountersExt::counter_select`], in the order of the counters.
pub mod select_ext {
    /// PortXmitData
    pub const XMIT_DATA: u16 = 1 << 0;
    /// PortRcvData
    pub const RCV_DATA: u16 = 1 << 1;
    /// PortXmitPkts
    pub const XMIT_PKTS: u16 = 1 << 2;
    /// PortRcvPkts
    pub const RCV_PKTS: u16 = 1 << 3;
    /// PortUnicastXmitPkts
    pub const UNICAST_XMIT_PKTS: u16 = 1 << 4;
    /// PortUnicastRcvPkts
    pub const UNICAST_RCV_PKTS: u16 = 1 << 5;
    /// PortMulticastXmitPkts
    pub const MULTICAST_XMIT_PKTS: u16 = 1 << 6;
    /// PortMulticastRcvPkts
    pub const MULTICAST_RCV_PKTS: u16 = 1 << 7;
}

attribute! {
    /// PortCountersExtended: 64-bit counters that wrap.
    PortCountersExt[192] {
        /// Port.
        port_select: u8 = at(1),
        /// Counters that a Set writes, see [`select_ext`].
        counter_select: u16 = at(2),
        /// More counters that a Set writes: the error counters, bit 0 being the symbol errors.
        counter_select2: u32 = at(4),
        /// Data sent, in units of 4 bytes.
        xmit_data: u64 = at(8),
        /// Data received, in units of 4 bytes.
        rcv_data: u64 = at(16),
        /// Packets sent.
        xmit_pkts: u64 = at(24),
        /// Packets received.
        rcv_pkts: u64 = at(32),
        /// Unicast packets sent.
        unicast_xmit_pkts: u64 = at(40),
        /// Unicast packets received.
        unicast_rcv_pkts: u64 = at(48),
        /// Multicast packets sent.
        multicast_xmit_pkts: u64 = at(56),
        /// Multicast packets received.
        multicast_rcv_pkts: u64 = at(64),
        /// As in [`PortCounters`], 64 bits wide.
        symbol_error: u64 = at(72),
        /// As in [`PortCounters`], 64 bits wide.
        link_error_recovery: u64 = at(80),
        /// As in [`PortCounters`], 64 bits wide.
        link_downed: u64 = at(88),
        /// As in [`PortCounters`], 64 bits wide.
        rcv_errors: u64 = at(96),
        /// As in [`PortCounters`], 64 bits wide.
        rcv_remote_physical_errors: u64 = at(104),
        /// As in [`PortCounters`], 64 bits wide.
        rcv_switch_relay_errors: u64 = at(112),
        /// As in [`PortCounters`], 64 bits wide.
        xmit_discards: u64 = at(120),
        /// As in [`PortCounters`], 64 bits wide.
        xmit_constraint_errors: u64 = at(128),
        /// As in [`PortCounters`], 64 bits wide.
        rcv_constraint_errors: u64 = at(136),
        /// As in [`PortCounters`], 64 bits wide.
        local_link_integrity_errors: u64 = at(144),
        /// As in [`PortCounters`], 64 bits wide.
        buffer_overrun_errors: u64 = at(152),
        /// As in [`PortCounters`], 64 bits wide.
        vl15_dropped: u64 = at(160),
        /// As in [`PortCounters`], 64 bits wide.
        xmit_wait: u64 = at(168),
    }
}
