// SPDX-License-Identifier: GPL-2.0-or-later
//! The link layer of one port.

mod config;

pub use config::{PortConfig, PortEvent, Role, RxPacket, Seal, TxStall};

use std::collections::VecDeque;

use ochre_wire::{Lid, Mtu, Sl, Vl};

use crate::arbiter::VlArbitration;
use crate::cable::Cable;
use crate::capture::Tap;
use crate::counters::Counters;
use crate::rate::{Speeds, Widths};
use crate::state::{PhysState, PortState, StateError};
use crate::time::Time;

/// One port on a cable. See the crate's documentation for a round of use.
///
/// All methods use the time of the last [`Port::poll`].
pub struct Port<C: Cable> {
    config: PortConfig,
    cable: C,
    now: Time,
    counters: Counters,
    events: VecDeque<PortEvent>,
    arbitration: VlArbitration,
    tap: Option<Tap>,
}

impl<C: Cable> Port<C> {
    /// A port that is Down and Polling. Values of `config` out of range are brought into range.
    pub fn new(config: PortConfig, cable: C) -> Self {
        Port {
            config,
            cable,
            now: Time::ZERO,
            counters: Counters::default(),
            events: VecDeque::new(),
            arbitration: VlArbitration::default(),
            tap: None,
        }
    }

    /// Does what is due at `now`: the cable's connection, training, link packets, timers. Cheap when
    /// nothing is due; to be called on every wake-up and doorbell before anything else.
    pub fn poll(&mut self, now: Time) {
        self.now = now;
        unimplemented!()
    }

    /// When [`Port::poll`] has to be called even if nothing arrives.
    pub fn next_deadline(&self) -> Option<Time> {
        unimplemented!()
    }

    /// The oldest event not yet taken.
    pub fn poll_event(&mut self) -> Option<PortEvent> {
        self.events.pop_front()
    }

    /// Publishes what was sent and released, and wakes the peer if it sleeps. Once per batch.
    pub fn flush(&mut self) {
        unimplemented!()
    }

    /// Before sleeping: `false` if there is something to do (poll and receive again), else the cable
    /// will wake this end. Flushes first.
    pub fn arm(&mut self) -> bool {
        unimplemented!()
    }

    // Sending.

    /// A slot of `bytes` bytes (whole packet, LRH to VCRC) for a packet on lane `vl` to `dlid`. The
    /// caller writes the packet there and calls [`Port::tx_commit`]; a slot that is not committed is
    /// given up by the next `tx_begin` or [`Port::tx_abort`]. If `dlid` is a unicast LID of this
    /// port, the slot is in the loopback buffer.
    pub fn tx_begin(&mut self, vl: Vl, dlid: Lid, bytes: usize) -> Result<&mut [u8], TxStall> {
        let _ = (vl, dlid, bytes);
        unimplemented!()
    }

    /// As [`Port::tx_begin`] with the loopback buffer whatever the DLID: the copy of a multicast
    /// packet that the own port is to get.
    pub fn tx_begin_loopback(&mut self, vl: Vl, bytes: usize) -> Result<&mut [u8], TxStall> {
        let _ = (vl, bytes);
        unimplemented!()
    }

    /// The slot of the last [`Port::tx_begin`], until it is committed; else empty.
    pub fn tx_slot(&mut self) -> &mut [u8] {
        unimplemented!()
    }

    /// Sends the packet in the slot: VCRC if asked for, credits, counters, capture. The LRH in the
    /// slot must have the lane and the length that `tx_begin` was told; both are written again here.
    /// Visible to the peer after [`Port::flush`].
    pub fn tx_commit(&mut self, seal: Seal) {
        let _ = seal;
        unimplemented!()
    }

    /// Gives the slot up; nothing is sent.
    pub fn tx_abort(&mut self) {
        unimplemented!()
    }

    /// Whether a packet of `bytes` bytes may be sent on `vl` as far as state and credits go.
    pub fn can_send(&self, vl: Vl, bytes: usize) -> bool {
        let _ = (vl, bytes);
        unimplemented!()
    }

    /// Of the lanes in `ready` (bit n: lane n has a packet to send) the one whose turn it is by the
    /// arbitration tables and the credits; VL15 first. `bytes` of the next packet are charged when it
    /// is committed.
    pub fn arbitrate(&mut self, ready: u16) -> Option<Vl> {
        let _ = ready;
        unimplemented!()
    }

    /// Lanes (bits) that refused a packet since the last call and would take it now.
    pub fn take_unstalled(&mut self) -> u16 {
        unimplemented!()
    }

    /// The owner no longer has a packet waiting on the stalled lanes in `lanes` (bits): their wait
    /// ends for PortXmitWait.
    pub fn forget_stall(&mut self, lanes: u16) {
        let _ = lanes;
        unimplemented!()
    }

    /// Counts `packets` packets that the owner threw away instead of sending them (PortXmitDiscards).
    pub fn discard(&mut self, packets: u64) {
        self.counters.xmit_discards += packets;
    }

    // Receiving.

    /// The next packet that has passed all checks of the link layer, if there is one. It stays
    /// current, and every call returns it again, until [`Port::rx_done`]; sending in between is fine.
    pub fn rx(&mut self) -> Option<RxPacket> {
        unimplemented!()
    }

    /// The bytes of the current packet, LRH to VCRC; empty if there is none. They may lie in memory
    /// that a misbehaving peer still writes: read each field once.
    pub fn rx_bytes(&self) -> &[u8] {
        unimplemented!()
    }

    /// Done with the current packet: frees its buffer and returns its credits.
    pub fn rx_done(&mut self) {
        unimplemented!()
    }

    /// Lanes (bits) from which [`Port::rx`] may take packets; all at first. Packets of other data
    /// lanes wait in their receive buffers without returning credits; VL15 packets beyond the VL15
    /// buffer are dropped and counted.
    pub fn set_rx_lanes(&mut self, lanes: u16) {
        let _ = lanes;
        unimplemented!()
    }

    /// Lets [`Port::rx`] take at most this many bytes per second from the data lanes; `None` any.
    /// Credits return as slowly, so the sender waits; nothing is dropped, VL15 is not touched.
    pub fn set_drain_rate(&mut self, bytes_per_second: Option<u64>) {
        let _ = bytes_per_second;
        unimplemented!()
    }

    // Management.

    /// Logical state.
    pub fn state(&self) -> PortState {
        unimplemented!()
    }

    /// Physical state.
    pub fn phys_state(&self) -> PhysState {
        unimplemented!()
    }

    /// Set(PortInfo) of PortState: `Down`, `Armed` or `Active`. `Down` takes the link down; the port
    /// then goes on in its [`Port::set_down_default`] state.
    pub fn set_state(&mut self, state: PortState) -> Result<(), StateError> {
        let _ = state;
        unimplemented!()
    }

    /// Set(PortInfo) of PortPhysicalState: `Sleep`, `Polling` or `Disabled` (others are ignored).
    /// Takes the link down; `Polling` trains anew.
    pub fn set_phys_state(&mut self, state: PhysState) {
        let _ = state;
        unimplemented!()
    }

    /// State after the link went down: `Sleep` or `Polling` (LinkDownDefaultState; others are ignored).
    pub fn set_down_default(&mut self, state: PhysState) {
        let _ = state;
        unimplemented!()
    }

    /// LinkDownDefaultState.
    pub fn down_default(&self) -> PhysState {
        unimplemented!()
    }

    /// What the port was made with.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// Widths enabled; takes effect at the next training.
    pub fn set_widths_enabled(&mut self, widths: Widths) {
        let _ = widths;
        unimplemented!()
    }

    /// Widths enabled.
    pub fn widths_enabled(&self) -> Widths {
        unimplemented!()
    }

    /// Width in use; the smallest supported while the link is down.
    pub fn width_active(&self) -> Widths {
        unimplemented!()
    }

    /// Speeds enabled; takes effect at the next training.
    pub fn set_speeds_enabled(&mut self, speeds: Speeds) {
        let _ = speeds;
        unimplemented!()
    }

    /// Speeds enabled.
    pub fn speeds_enabled(&self) -> Speeds {
        unimplemented!()
    }

    /// Speed in use; the smallest supported while the link is down.
    pub fn speed_active(&self) -> Speeds {
        unimplemented!()
    }

    /// Base LID and LID mask control (0 to 7) of the port.
    pub fn set_lid(&mut self, lid: Lid, lmc: u8) {
        let _ = (lid, lmc);
        unimplemented!()
    }

    /// Base LID; 0 before a subnet manager sets one.
    pub fn lid(&self) -> Lid {
        unimplemented!()
    }

    /// LID mask control.
    pub fn lmc(&self) -> u8 {
        unimplemented!()
    }

    /// NeighborMTU: the largest payload sent and received; at most the capability.
    pub fn set_mtu(&mut self, mtu: Mtu) {
        let _ = mtu;
        unimplemented!()
    }

    /// NeighborMTU.
    pub fn mtu(&self) -> Mtu {
        unimplemented!()
    }

    /// OperationalVLs as a number of data lanes (1, 2, 4, 8 or 15, at most the capability; others are
    /// ignored). Newly operational lanes start with the peer's next flow control packet.
    pub fn set_operational_vls(&mut self, data_vls: u8) {
        let _ = data_vls;
        unimplemented!()
    }

    /// Number of data lanes in operation.
    pub fn operational_vls(&self) -> u8 {
        unimplemented!()
    }

    /// Lane of service level `sl`; `None` if the mapping says VL15 or a lane that is not operational,
    /// in which case the packet is to be discarded.
    pub fn sl_to_vl(&self, sl: Sl) -> Option<Vl> {
        let _ = sl;
        unimplemented!()
    }

    /// SLtoVLMappingTable, indexed by service level.
    pub fn set_sl2vl(&mut self, table: [Vl; 16]) {
        let _ = table;
        unimplemented!()
    }

    /// SLtoVLMappingTable.
    pub fn sl2vl(&self) -> &[Vl; 16] {
        unimplemented!()
    }

    /// VLArbitrationTable and limit of high priority.
    pub fn arbitration(&self) -> &VlArbitration {
        &self.arbitration
    }

    /// The same to change.
    pub fn arbitration_mut(&mut self) -> &mut VlArbitration {
        &mut self.arbitration
    }

    /// Thresholds of PortInfo: LocalPhyErrors and OverrunErrors, 0 to 15 each.
    pub fn set_error_thresholds(&mut self, local_phy: u8, overrun: u8) {
        let _ = (local_phy, overrun);
        unimplemented!()
    }

    /// The counters as of now, a wait in progress included.
    pub fn counters(&mut self) -> &Counters {
        unimplemented!()
    }

    /// The counters to reset or to count what the owner saw.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Turns the capture on or off.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.tap = tap;
    }

    /// The cable.
    pub fn cable(&self) -> &C {
        &self.cable
    }

    /// The cable, for its descriptors and handlers.
    pub fn cable_mut(&mut self) -> &mut C {
        &mut self.cable
    }
}
