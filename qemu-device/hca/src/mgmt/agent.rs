// SPDX-License-Identifier: GPL-2.0-or-later
//! Management state of one port, beyond what the engines use ([`PortContext`]).

use std::time::Duration;

use ochre_hw::eqe::EventType;
use ochre_link::PhysState;
use ochre_wire::mad::sma::{cap, VlArbEntry};
use ochre_wire::Vl;

use super::link::Link;
use super::pma::Baselines;
use super::trap::Traps;
use crate::port::PortContext;
use crate::Time;

/// Entries of each VL arbitration table of a port with more than one data lane.
pub(super) const ARBITRATION_ENTRIES: usize = 32;

/// Capabilities that the host may claim and give up.
pub(super) const HOST_CAPABILITIES: u32 = cap::SM
    | cap::NOTICE
    | cap::SM_DISABLED
    | cap::CM
    | cap::SNMP_TUNNEL
    | cap::DEVICE_MGMT
    | cap::VENDOR_CLASS
    | cap::BOOT_MGMT;

/// Bit of CapabilityMask2: width 2x.
const CAP2_WIDTH_2X: u16 = 1 << 4;
/// Bit of CapabilityMask2: speed HDR.
const CAP2_SPEED_HDR: u16 = 1 << 5;
/// Bit of CapabilityMask2: speed NDR.
const CAP2_SPEED_NDR: u16 = 1 << 10;

/// Management state of one port.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) capability_mask: u32,
    pub(super) capability_mask2: u16,
    pub(super) m_key: u64,
    pub(super) m_key_protect: u8,
    pub(super) m_key_lease: u16,
    pub(super) m_key_violations: u16,
    /// When the protection ends, once a violation has started the lease.
    pub(super) lease_end: Option<Time>,
    pub(super) subnet_timeout: u8,
    pub(super) init_type_reply: u8,
    pub(super) multicast_pkey_trap_suppression: u8,
    pub(super) local_phy_errors: u8,
    pub(super) overrun_errors: u8,
    /// SLtoVLMappingTable as it was set.
    pub(super) sl_to_vl: [u8; 16],
    pub(super) arbitration_low: [VlArbEntry; ARBITRATION_ENTRIES],
    pub(super) arbitration_high: [VlArbEntry; ARBITRATION_ENTRIES],
    pub(super) vl_high_limit: u8,
    /// Where the link is to go once the answer to the request for it has left.
    pub(super) link_down: Option<PhysState>,
    pub(super) traps: Traps,
    pub(super) baselines: Baselines,
    events: u16,
}

/// Events of a port in the order in which they are told.
const EVENTS: [EventType; 7] = [
    EventType::PortError,
    EventType::LidChange,
    EventType::GidChange,
    EventType::PkeyChange,
    EventType::SmChange,
    EventType::PortActive,
    EventType::ClientReregister,
];

impl Agent {
    /// State after power-on; also brings `port` and `link` to what a subnet manager expects then.
    pub(super) fn new<L: Link>(port: &mut PortContext, link: &mut L) -> Self {
        let speeds = link.speeds().supported;
        let mut capability_mask = cap::TRAP
            | cap::SYS_IMAGE_GUID
            | cap::CAP_MASK_NOTICE
            | cap::CLIENT_REREGISTER
            | cap::OTHER_LOCAL_CHANGES;
        if speeds.ext() != 0 {
            capability_mask |= cap::EXTENDED_SPEEDS;
        }
        let mut capability_mask2 = 0;
        if link.widths().supported.0 & ochre_link::Widths::X2.0 != 0 {
            capability_mask2 |= CAP2_WIDTH_2X;
        }
        if speeds.ext() & 4 != 0 {
            capability_mask2 |= CAP2_SPEED_HDR;
        }
        if speeds.ext() & 8 != 0 {
            capability_mask2 |= CAP2_SPEED_NDR;
        }
        if capability_mask2 != 0 {
            capability_mask |= cap::CAP_MASK2;
        }
        let lanes = link.data_vls();
        if lanes > 1 {
            capability_mask |= cap::SL_MAPPING;
        }
        let mut arbitration_low = [VlArbEntry::default(); ARBITRATION_ENTRIES];
        for (vl, entry) in (0..lanes).zip(&mut arbitration_low) {
            *entry = VlArbEntry { vl, weight: 64 };
        }
        let agent = Agent {
            capability_mask,
            capability_mask2,
            m_key: 0,
            m_key_protect: 0,
            m_key_lease: 0,
            m_key_violations: 0,
            lease_end: None,
            subnet_timeout: 18,
            init_type_reply: 0,
            multicast_pkey_trap_suppression: 0,
            local_phy_errors: 8,
            overrun_errors: 8,
            sl_to_vl: [0; 16],
            arbitration_low,
            arbitration_high: [VlArbEntry::default(); ARBITRATION_ENTRIES],
            vl_high_limit: 0,
            link_down: None,
            traps: Traps::default(),
            baselines: Baselines::at(&link.counters()),
            events: 0,
        };
        // A subnet manager that finds an MTU or a number of lanes other than the largest that both
        // ends have takes the link down once more; so these start at the largest.
        port.mtu = link.mtu_cap();
        link.set_mtu(port.mtu);
        link.set_operational_vls(lanes);
        link.set_lid(port.lid, port.lmc);
        link.set_error_thresholds(agent.local_phy_errors, agent.overrun_errors);
        agent.apply_arbitration(link);
        agent.apply_sl_to_vl(port, link);
        agent
    }

    /// Entries of each arbitration table: none where there is nothing to arbitrate.
    pub(super) fn arbitration_cap<L: Link>(link: &L) -> usize {
        if link.data_vls() > 1 {
            ARBITRATION_ENTRIES
        } else {
            0
        }
    }

    /// Gives the arbitration tables to the link.
    pub(super) fn apply_arbitration<L: Link>(&self, link: &mut L) {
        link.set_arbitration(
            &self.arbitration_low,
            &self.arbitration_high,
            self.vl_high_limit,
        );
    }

    /// Gives the mapping to the link and to the engines; levels without an operational lane drop
    /// their packets.
    pub(super) fn apply_sl_to_vl<L: Link>(&self, port: &mut PortContext, link: &mut L) {
        let lanes = link.operational_vls();
        link.set_sl_to_vl(self.sl_to_vl.map(Vl::new));
        port.sl_to_vl = self
            .sl_to_vl
            .map(|vl| if vl < lanes { Vl::new(vl) } else { Vl::VL15 });
    }

    /// Notes an event for the host.
    pub(super) fn event(&mut self, event: EventType) {
        if let Some(i) = EVENTS.iter().position(|e| *e == event) {
            self.events |= 1 << i;
        }
    }

    /// The next event for the host.
    pub(super) fn take_event(&mut self) -> Option<EventType> {
        let i = self.events.trailing_zeros() as usize;
        let event = *EVENTS.get(i)?;
        self.events &= self.events - 1;
        Some(event)
    }

    /// Least time between two traps.
    pub(super) fn trap_interval(&self) -> Duration {
        Duration::from_nanos(4096 << self.subnet_timeout.min(31))
    }

    /// Ends the protection by the M_Key when its lease is over.
    pub(super) fn check_lease(&mut self, now: Time) {
        if self.lease_end.is_some_and(|end| end <= now) {
            self.lease_end = None;
            self.m_key_protect = 0;
        }
    }
}
