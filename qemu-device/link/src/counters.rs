// SPDX-License-Identifier: GPL-2.0-or-later
//! Counters of a port, 64 bits each; the PMA narrows and saturates them.

/// Nanoseconds of one tick of [`Counters::xmit_wait`].
pub const XMIT_WAIT_TICK_NS: u64 = 1_000;

/// The counters of the PMA's PortCounters and PortCountersExtended, and a few of our own.
///
/// Data counters are in 32-bit words from the LRH to the ICRC, the VCRC not counted, on all lanes;
/// link packets are not counted. Packets that turn around in the port count both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// PortXmitData, 32-bit words.
    pub xmit_data: u64,
    /// PortRcvData, 32-bit words.
    pub rcv_data: u64,
    /// PortXmitPkts.
    pub xmit_pkts: u64,
    /// PortRcvPkts.
    pub rcv_pkts: u64,
    /// PortUnicastXmitPkts.
    pub unicast_xmit_pkts: u64,
    /// PortUnicastRcvPkts.
    pub unicast_rcv_pkts: u64,
    /// PortMulticastXmitPkts.
    pub multicast_xmit_pkts: u64,
    /// PortMulticastRcvPkts.
    pub multicast_rcv_pkts: u64,
    /// PortXmitWait: ticks of [`XMIT_WAIT_TICK_NS`] in which there was a packet to send and none was
    /// sent, for want of credits or of space on the cable. Begin and end of a wait are known as well
    /// as the owner tells the time: once a round.
    pub xmit_wait: u64,
    /// PortXmitDiscards: packets thrown away before they were sent.
    pub xmit_discards: u64,
    /// SymbolErrorCounter: damaged symbols, which here are frames of unknown kind or training
    /// sequences that make no sense.
    pub symbol_errors: u64,
    /// LinkErrorRecoveryCounter: recoveries that succeeded.
    pub link_error_recovery: u64,
    /// LinkDownedCounter: recoveries that failed and links lost.
    pub link_downed: u64,
    /// PortRcvErrors: packets with a wrong CRC or length, an unknown lane or version, or no buffer.
    pub rcv_errors: u64,
    /// PortRcvRemotePhysicalErrors: packets that their sender marked as bad.
    pub rcv_remote_physical_errors: u64,
    /// PortRcvSwitchRelayErrors: packets that a switch could not forward.
    pub rcv_switch_relay_errors: u64,
    /// PortXmitConstraintErrors.
    pub xmit_constraint_errors: u64,
    /// PortRcvConstraintErrors.
    pub rcv_constraint_errors: u64,
    /// LocalLinkIntegrityErrors: times that damaged packets outnumbered good ones beyond the
    /// threshold LocalPhyErrors.
    pub local_link_integrity_errors: u64,
    /// ExcessiveBufferOverrunErrors: times that overruns went on for OverrunErrors flow control
    /// periods.
    pub excessive_buffer_overrun_errors: u64,
    /// VL15Dropped: management packets dropped for want of a buffer.
    pub vl15_dropped: u64,

    /// Our own: packets dropped because the port state does not let them pass.
    pub state_drops: u64,
    /// Our own: packets dropped because their DLID is not of this port.
    pub dlid_drops: u64,
    /// Our own: flow control packets sent.
    pub fc_sent: u64,
    /// Our own: flow control packets received.
    pub fc_received: u64,
    /// Our own: packets that turned around inside the port.
    pub loopback_pkts: u64,
}
