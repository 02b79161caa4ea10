// SPDX-License-Identifier: GPL-2.0-or-later
//! What subnet management reads and sets.

use ochre_wire::{Lid, Mtu, Sl, Vl};

use crate::arbiter::VlArbitration;
use crate::cable::Cable;
use crate::capture::Tap;
use crate::counters::Counters;
use crate::fault::{Report, RuleSet};
use crate::rate::{Speeds, Widths};
use crate::state::{PhysState, PortState, StateError};

use super::{Port, PortConfig};

/// The greatest number of data lanes that PortInfo can say, at most `wanted` and `most`.
pub(super) fn lanes_at_most(wanted: u8, most: u8) -> u8 {
    [15, 8, 4, 2]
        .into_iter()
        .find(|n| *n <= wanted.min(most))
        .unwrap_or(1)
}

impl<C: Cable> Port<C> {
    /// What the port was made with.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// Logical state.
    #[inline]
    pub fn state(&self) -> PortState {
        self.state
    }

    /// Physical state.
    pub fn phys_state(&self) -> PhysState {
        self.trainer.phys()
    }

    /// Set(PortInfo) of PortState: `Down`, `Armed` or `Active`. `Down` takes the link down; the port
    /// then goes on in its [`Port::set_down_default`] state.
    pub fn set_state(&mut self, state: PortState) -> Result<(), StateError> {
        let next = self.state.set(state)?;
        if next == PortState::Down {
            self.set_phys_state(self.trainer.down_default);
        } else {
            self.enter(next);
        }
        Ok(())
    }

    /// Set(PortInfo) of PortPhysicalState: `Sleep`, `Polling` or `Disabled` (others are ignored).
    /// Takes the link down; `Polling` trains anew. The link downed counter does not count it.
    pub fn set_phys_state(&mut self, state: PhysState) {
        if !matches!(
            state,
            PhysState::Sleep | PhysState::Polling | PhysState::Disabled
        ) {
            return;
        }
        if self.trainer.set_phys(state, self.now).is_some() {
            self.link_lost();
        }
        self.tell_phys();
    }

    /// State after the link went down: `Sleep` or `Polling` (LinkDownDefaultState; others are ignored).
    pub fn set_down_default(&mut self, state: PhysState) {
        if matches!(state, PhysState::Sleep | PhysState::Polling) {
            self.trainer.down_default = state;
        }
    }

    /// LinkDownDefaultState.
    pub fn down_default(&self) -> PhysState {
        self.trainer.down_default
    }

    /// Widths enabled, of those supported (if none is, nothing changes); takes effect at the next
    /// training.
    pub fn set_widths_enabled(&mut self, widths: Widths) {
        let widths = widths.and(self.config.widths);
        if widths != Widths::NONE {
            self.trainer.widths = widths;
        }
    }

    /// Widths enabled.
    pub fn widths_enabled(&self) -> Widths {
        self.trainer.widths
    }

    /// Width in use; while the link is down the smallest enabled.
    pub fn width_active(&self) -> Widths {
        match self.trainer.width_active {
            Widths::NONE => self.trainer.widths.smallest(),
            w => w,
        }
    }

    /// Speeds enabled, of those supported (if none is, nothing changes); takes effect at the next
    /// training.
    pub fn set_speeds_enabled(&mut self, speeds: Speeds) {
        let speeds = speeds.and(self.config.speeds);
        if speeds != Speeds::NONE {
            self.trainer.speeds = speeds;
        }
    }

    /// Speeds enabled.
    pub fn speeds_enabled(&self) -> Speeds {
        self.trainer.speeds
    }

    /// Speed in use; while the link is down the smallest enabled.
    pub fn speed_active(&self) -> Speeds {
        match self.trainer.speed_active {
            Speeds::NONE => self.trainer.speeds.smallest(),
            s => s,
        }
    }

    /// Base LID and LID mask control (0 to 7) of the port.
    pub fn set_lid(&mut self, lid: Lid, lmc: u8) {
        self.lid = lid;
        self.lmc = lmc & 7;
    }

    /// Base LID; 0 before a subnet manager sets one.
    #[inline]
    pub fn lid(&self) -> Lid {
        self.lid
    }

    /// LID mask control.
    #[inline]
    pub fn lmc(&self) -> u8 {
        self.lmc
    }

    /// NeighborMTU: the largest payload sent and received; at most the capability.
    pub fn set_mtu(&mut self, mtu: Mtu) {
        self.mtu = mtu.min(self.config.mtu_cap);
    }

    /// NeighborMTU; 256 bytes at first.
    #[inline]
    pub fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// OperationalVLs as a number of data lanes (1, 2, 4, 8 or 15; others are rounded down, and to
    /// the capability).
    pub fn set_operational_vls(&mut self, data_vls: u8) {
        self.operational = lanes_at_most(data_vls, self.config.data_vls);
        if self.trainer.is_up() {
            self.flow.all_due(self.operational);
        }
    }

    /// Number of data lanes in operation; 1 at first.
    pub fn operational_vls(&self) -> u8 {
        self.operational
    }

    /// Lane of service level `sl`; `None` if the mapping says VL15 or a lane that is not operational,
    /// in which case the packet is to be discarded.
    #[inline]
    pub fn sl_to_vl(&self, sl: Sl) -> Option<Vl> {
        let vl = self.sl2vl[sl.index() & 15];
        (vl.get() < self.operational).then_some(vl)
    }

    /// SLtoVLMappingTable, indexed by service level.
    pub fn set_sl2vl(&mut self, table: [Vl; 16]) {
        self.sl2vl = table;
    }

    /// SLtoVLMappingTable; all VL0 at first.
    pub fn sl2vl(&self) -> &[Vl; 16] {
        &self.sl2vl
    }

    /// VLArbitrationTable and VLHighLimit.
    pub fn arbitration(&self) -> &VlArbitration {
        &self.arbitration
    }

    /// The same to change.
    pub fn arbitration_mut(&mut self) -> &mut VlArbitration {
        &mut self.arbitration
    }

    /// Thresholds of PortInfo: LocalPhyErrors and OverrunErrors, 0 to 15 each; 8 at first.
    pub fn set_error_thresholds(&mut self, local_phy: u8, overrun: u8) {
        self.local_phy_threshold = local_phy & 15;
        self.overrun_threshold = overrun & 15;
    }

    /// LocalPhyErrors and OverrunErrors.
    pub fn error_thresholds(&self) -> (u8, u8) {
        (self.local_phy_threshold, self.overrun_threshold)
    }

    /// The counters as of now, a wait in progress included.
    pub fn counters(&mut self) -> &Counters {
        self.stalls.account(self.now, &mut self.counters);
        &self.counters
    }

    /// The counters to reset, or to count what the owner saw.
    pub fn counters_mut(&mut self) -> &mut Counters {
        self.stalls.account(self.now, &mut self.counters);
        &mut self.counters
    }

    /// Turns the capture on or off.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.wire.set_tap(tap);
    }

    /// Other rules for wire faults, see [`crate::fault`]; their counts start anew. What waits for the
    /// former ones goes on at the next [`Port::poll`], which is to come soon.
    pub fn set_faults(&mut self, rules: RuleSet) {
        self.wire.set_rules(rules, self.config.crc);
    }

    /// The rules for wire faults, and what they have done.
    pub fn faults(&self) -> Report {
        self.wire.report()
    }

    /// The cable.
    pub fn cable(&self) -> &C {
        self.wire.cable()
    }

    /// The cable, for its descriptors and handlers.
    pub fn cable_mut(&mut self) -> &mut C {
        self.wire.cable_mut()
    }
}
