// SPDX-License-Identifier: GPL-2.0-or-later
//! Logical and physical port states, with the encodings of PortInfo.

use ochre_wire::Vl;

/// Logical state of a port (PortInfo PortState).
///
/// ```text
///           link up            SMA: Armed            SMA: Active, or a data packet
///   Down ------------> Initialize ------------> Armed ------------> Active
///     ^                    |                      |                   |
///     +--------------------+----------------------+-------------------+
///                        link down, or SMA: Down
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PortState {
    /// Nothing passes.
    #[default]
    Down = 1,
    /// Subnet management packets and link packets pass.
    Initialize = 2,
    /// As `Initialize`, and data packets are received; the first of them makes the port `Active`.
    Armed = 3,
    /// Everything passes.
    Active = 4,
}

impl PortState {
    /// The state with this code (1 to 4).
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => PortState::Down,
            2 => PortState::Initialize,
            3 => PortState::Armed,
            4 => PortState::Active,
            _ => return None,
        })
    }

    /// Its code in PortInfo.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether data packets of this lane may be sent in this state.
    #[inline]
    pub const fn may_send(self, vl: Vl) -> bool {
        match self {
            PortState::Down => false,
            PortState::Initialize | PortState::Armed => vl.is_management(),
            PortState::Active => true,
        }
    }

    /// Whether data packets of this lane are received in this state.
    #[inline]
    pub const fn may_receive(self, vl: Vl) -> bool {
        match self {
            PortState::Down => false,
            PortState::Initialize => vl.is_management(),
            PortState::Armed | PortState::Active => true,
        }
    }

    /// What a Set(PortInfo) of `wanted` leads to. Setting the present state to itself is allowed for
    /// `Armed` and `Active` and changes nothing.
    pub const fn set(self, wanted: PortState) -> Result<PortState, StateError> {
        use PortState::{Active, Armed, Down, Initialize};
        match (self, wanted) {
            (_, Down) => Ok(Down),
            (Initialize | Armed, Armed) => Ok(Armed),
            (Armed | Active, Active) => Ok(Active),
            (from, to) => Err(StateError { from, to }),
        }
    }
}

/// A change of PortState that a subnet manager may not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port state cannot be set from {from:?} to {to:?}")]
pub struct StateError {
    /// State of the port.
    pub from: PortState,
    /// State asked for.
    pub to: PortState,
}

/// Physical state of a port (PortInfo PortPhysicalState).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PhysState {
    /// Silent until it is told to poll or the peer trains.
    Sleep = 1,
    /// Looks for a peer.
    #[default]
    Polling = 2,
    /// Silent, whatever the peer does.
    Disabled = 3,
    /// The peer answers; width and speed are agreed.
    Training = 4,
    /// Packets pass.
    LinkUp = 5,
    /// Trains again after errors, without a change of the logical state.
    Recovery = 6,
}

impl PhysState {
    /// Its code in PortInfo.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The state with this code (1 to 6).
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => PhysState::Sleep,
            2 => PhysState::Polling,
            3 => PhysState::Disabled,
            4 => PhysState::Training,
            5 => PhysState::LinkUp,
            6 => PhysState::Recovery,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PortState::{Active, Armed, Down, Initialize};

    #[test]
    fn only_the_ways_of_the_diagram() {
        let allowed = [
            (Down, Down),
            (Initialize, Down),
            (Armed, Down),
            (Active, Down),
            (Initialize, Armed),
            (Armed, Armed),
            (Armed, Active),
            (Active, Active),
        ];
        for from in [Down, Initialize, Armed, Active] {
            for to in [Down, Initialize, Armed, Active] {
                let want = if allowed.contains(&(from, to)) {
                    Ok(to)
                } else {
                    Err(StateError { from, to })
                };
                assert_eq!(from.set(to), want);
            }
        }
    }

    #[test]
    fn lanes_by_state() {
        let table = [
            (Down, [false, false, false, false]),
            (Initialize, [false, false, true, true]),
            (Armed, [false, true, true, true]),
            (Active, [true, true, true, true]),
        ];
        for (state, want) in table {
            let got = [
                state.may_send(Vl::VL0),
                state.may_receive(Vl::VL0),
                state.may_send(Vl::VL15),
                state.may_receive(Vl::VL15),
            ];
            assert_eq!(got, want, "{state:?}");
        }
    }

    #[test]
    fn codes_round_trip() {
        for c in 0..=255 {
            if let Some(s) = PortState::from_code(c) {
                assert_eq!(s.code(), c);
            }
            if let Some(s) = PhysState::from_code(c) {
                assert_eq!(s.code(), c);
            }
        }
    }
}
