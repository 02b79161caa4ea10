// SPDX-License-Identifier: GPL-2.0-or-later
//! What the agents read from and write to the link layer of a port.

use ochre_link::arbiter::Entry;
use ochre_link::{Cable, Counters, PhysState, Port, PortState, Speeds, StateError, Widths};
use ochre_wire::mad::sma::VlArbEntry;
use ochre_wire::{Lid, Mtu, Vl};

/// Supported, enabled and active values of a link property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate<T> {
    /// What the port can do.
    pub supported: T,
    /// What the subnet manager allows.
    pub enabled: T,
    /// What the link does now.
    pub active: T,
}

/// The link layer of a port as management sees it.
pub trait Link {
    /// Logical state.
    fn state(&self) -> PortState;
    /// Physical state.
    fn phys_state(&self) -> PhysState;
    /// Takes the logical state to `Down`, `Armed` or `Active`.
    fn set_state(&mut self, state: PortState) -> Result<(), StateError>;
    /// Takes the link down, to `Sleep`, `Polling` or `Disabled`.
    fn set_phys_state(&mut self, state: PhysState);
    /// Physical state after the link went down.
    fn down_default(&self) -> PhysState;
    /// Sets the physical state after the link went down: `Sleep` or `Polling`.
    fn set_down_default(&mut self, state: PhysState);
    /// Widths.
    fn widths(&self) -> Rate<Widths>;
    /// Sets the widths enabled, a subset of those supported.
    fn enable_widths(&mut self, widths: Widths);
    /// Speeds.
    fn speeds(&self) -> Rate<Speeds>;
    /// Sets the speeds enabled, a subset of those supported.
    fn enable_speeds(&mut self, speeds: Speeds);
    /// Sets base LID and LID mask control.
    fn set_lid(&mut self, lid: Lid, lmc: u8);
    /// Largest MTU.
    fn mtu_cap(&self) -> Mtu;
    /// Sets the MTU in use.
    fn set_mtu(&mut self, mtu: Mtu);
    /// Number of data lanes supported: 1, 2, 4, 8 or 15.
    fn data_vls(&self) -> u8;
    /// Number of data lanes in operation.
    fn operational_vls(&self) -> u8;
    /// Sets the number of data lanes in operation.
    fn set_operational_vls(&mut self, data_vls: u8);
    /// Sets the lane of each service level.
    fn set_sl_to_vl(&mut self, table: [Vl; 16]);
    /// Sets the arbitration tables and the limit of high priority.
    fn set_arbitration(&mut self, low: &[VlArbEntry], high: &[VlArbEntry], high_limit: u8);
    /// Sets the thresholds of local physical errors and buffer overruns, 0 to 15 each.
    fn set_error_thresholds(&mut self, local_phy: u8, overrun: u8);
    /// Counters as of now.
    fn counters(&mut self) -> Counters;
}

impl<C: Cable> Link for Port<C> {
    fn state(&self) -> PortState {
        Port::state(self)
    }

    fn phys_state(&self) -> PhysState {
        Port::phys_state(self)
    }

    fn set_state(&mut self, state: PortState) -> Result<(), StateError> {
        Port::set_state(self, state)
    }

    fn set_phys_state(&mut self, state: PhysState) {
        Port::set_phys_state(self, state);
    }

    fn down_default(&self) -> PhysState {
        Port::down_default(self)
    }

    fn set_down_default(&mut self, state: PhysState) {
        Port::set_down_default(self, state);
    }

    fn widths(&self) -> Rate<Widths> {
        Rate {
            supported: self.config().widths,
            enabled: self.widths_enabled(),
            active: self.width_active(),
        }
    }

    fn enable_widths(&mut self, widths: Widths) {
        self.set_widths_enabled(widths);
    }

    fn speeds(&self) -> Rate<Speeds> {
        Rate {
            supported: self.config().speeds,
            enabled: self.speeds_enabled(),
            active: self.speed_active(),
        }
    }

    fn enable_speeds(&mut self, speeds: Speeds) {
        self.set_speeds_enabled(speeds);
    }

    fn set_lid(&mut self, lid: Lid, lmc: u8) {
        Port::set_lid(self, lid, lmc);
    }

    fn mtu_cap(&self) -> Mtu {
        self.config().mtu_cap
    }

    fn set_mtu(&mut self, mtu: Mtu) {
        Port::set_mtu(self, mtu);
    }

    fn data_vls(&self) -> u8 {
        self.config().data_vls
    }

    fn operational_vls(&self) -> u8 {
        Port::operational_vls(self)
    }

    fn set_operational_vls(&mut self, data_vls: u8) {
        Port::set_operational_vls(self, data_vls);
    }

    fn set_sl_to_vl(&mut self, table: [Vl; 16]) {
        self.set_sl2vl(table);
    }

    fn set_arbitration(&mut self, low: &[VlArbEntry], high: &[VlArbEntry], high_limit: u8) {
        fn entries(from: &[VlArbEntry]) -> Vec<Entry> {
            from.iter()
                .map(|e| Entry {
                    vl: Vl::new(e.vl),
                    weight: e.weight,
                })
                .collect()
        }
        let arbitration = self.arbitration_mut();
        arbitration.set_low(&entries(low));
        arbitration.set_high(&entries(high));
        arbitration.set_high_limit(high_limit);
    }

    fn set_error_thresholds(&mut self, local_phy: u8, overrun: u8) {
        Port::set_error_thresholds(self, local_phy, overrun);
    }

    fn counters(&mut self) -> Counters {
        *Port::counters(self)
    }
}
