// SPDX-License-Identifier: GPL-2.0-or-later
//! What a port is made with, and what it tells.

use core::time::Duration;

use ochre_wire::{Mtu, Vl};

use crate::rate::{Speeds, Widths};
use crate::state::{PhysState, PortState};

/// What owns the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A channel adapter: packets for the own LID turn around, foreign unicast packets are dropped.
    #[default]
    Adapter,
    /// A switch: packets of any DLID pass in both directions.
    Switch,
}

/// How a port is made. The capabilities are what PortInfo shows as supported.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// What owns the port.
    pub role: Role,
    /// Widths supported, and enabled at first.
    pub widths: Widths,
    /// Speeds supported, and enabled at first.
    pub speeds: Speeds,
    /// Largest MTU (MTUCap).
    pub mtu_cap: Mtu,
    /// Data lanes supported: 1, 2, 4, 8 or 15 (PortInfo VLCap 1 to 5).
    pub data_vls: u8,
    /// Receive buffer of each data lane in bytes, from 8 KiB to 128 KiB; more than 128 KiB would be
    /// beyond what credits can say.
    pub vl_buffer: usize,
    /// Receive buffer of VL15 in packets, while the owner takes none (see [`crate::Port::set_rx_lanes`]).
    pub vl15_buffer: usize,
    /// Buffer for packets that turn around inside the port, bytes.
    pub loopback_buffer: usize,
    /// CRCs are computed and checked. If not, the CRC fields of packets sent are zero and those of
    /// packets received are not looked at; packets have the same layout and length. Both ends of a
    /// cable must agree.
    pub crc: bool,
    /// Seed of the numbers that tell one training from another; two ends should differ.
    pub seed: u64,
    /// Longest time between two flow control packets of a lane on an idle link, see
    /// [`crate::credit`].
    pub fc_refresh: Duration,
    /// Time without any flow control packet after which the link recovers; `None` never. It must be
    /// longer than `fc_refresh` of the peer.
    pub fc_watchdog: Option<Duration>,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig {
            role: Role::Adapter,
            widths: Widths::X1.or(Widths::X4),
            speeds: Speeds::EDR.and_slower(),
            mtu_cap: Mtu::Mtu4096,
            data_vls: 1,
            vl_buffer: 128 << 10,
            vl15_buffer: 64,
            loopback_buffer: 256 << 10,
            crc: true,
            seed: 0,
            fc_refresh: Duration::from_secs(1),
            fc_watchdog: None,
        }
    }
}

/// Something the owner of a port wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// The logical state has changed.
    State {
        /// State before.
        from: PortState,
        /// State now.
        to: PortState,
    },
    /// The physical state has changed.
    Phys {
        /// State before.
        from: PhysState,
        /// State now.
        to: PhysState,
    },
    /// The peer answers, and shares no width or no speed with this port; the link stays down.
    NoCommonRate {
        /// Widths that the peer has enabled.
        peer_widths: Widths,
        /// Speeds that the peer has enabled.
        peer_speeds: Speeds,
    },
}

/// Why a packet cannot be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TxStall {
    /// The lane has no credits; the wait counts as PortXmitWait. [`crate::Port::take_unstalled`]
    /// tells when it has.
    #[error("lane {} has no credits", .0.get())]
    NoCredits(Vl),
    /// No space on the cable or in the loopback buffer; the port is woken when there is.
    #[error("cable is full")]
    RingFull,
    /// The port state does not let the packet pass. Waiting does not help: the owner drops it
    /// ([`crate::Port::discard`]) or waits for a state event.
    #[error("port is {0:?}")]
    NotActive(PortState),
    /// The lane is not operational.
    #[error("lane {} is not operational", .0.get())]
    NoLane(Vl),
    /// The packet is shorter than a packet can be or longer than the MTU of the neighbour allows.
    #[error("packet of {0} bytes does not fit the MTU")]
    Length(usize),
}

/// Who has written the VCRC of a packet to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The caller has, with [`ochre_wire::write_trailer`].
    Done,
    /// The port is to write it over the last two bytes.
    Port,
}

/// A packet received: the link layer has checked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxPacket {
    /// Lane.
    pub vl: Vl,
    /// Bytes from LRH to VCRC.
    pub len: usize,
    /// It turned around inside this port.
    pub loopback: bool,
    /// Its invariant CRC is right, or none is checked; what is wrong is the owner's to count.
    pub icrc_ok: bool,
}
