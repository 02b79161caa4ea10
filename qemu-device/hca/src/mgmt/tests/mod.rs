// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests of the agents against a link that only remembers what it is told.

mod bring_up;
mod counters;
mod smps;
mod traps;

use ochre_hw::eqe::EventType;
use ochre_link::{Counters, PhysState, PortEvent, PortState, Speeds, StateError, Widths};
use ochre_wire::mad::sma::{NodeDescription, PortInfo, VlArbEntry};
use ochre_wire::mad::{attr, class, method, status, Mad};
use ochre_wire::{Guid, Lid, Mtu, PKey, Qpn, Sl, Vl};

use super::{Address, Link, Mgmt, Node, Outcome, Outgoing, Rate, Source};
use crate::port::PortContext;
use crate::Time;

#[derive(Debug)]
struct FakeLink {
    state: PortState,
    phys: PhysState,
    down_default: PhysState,
    widths: Widths,
    speeds: Speeds,
    lid: (Lid, u8),
    mtu: Mtu,
    lanes_cap: u8,
    lanes: u8,
    sl_to_vl: [Vl; 16],
    low: Vec<VlArbEntry>,
    high: Vec<VlArbEntry>,
    high_limit: u8,
    thresholds: (u8, u8),
    counters: Counters,
    events: Vec<PortEvent>,
}

impl FakeLink {
    fn new(lanes: u8) -> Self {
        FakeLink {
            state: PortState::Initialize,
            phys: PhysState::LinkUp,
            down_default: PhysState::Polling,
            widths: Widths::X1.or(Widths::X4),
            speeds: Speeds::EDR.and_slower(),
            lid: (Lid(0), 0),
            mtu: Mtu::Mtu256,
            lanes_cap: lanes,
            lanes: 1,
            sl_to_vl: [Vl::VL0; 16],
            low: Vec::new(),
            high: Vec::new(),
            high_limit: 0,
            thresholds: (0, 0),
            counters: Counters::default(),
            events: Vec::new(),
        }
    }

    fn enter(&mut self, to: PortState) {
        if self.state != to {
            self.events.push(PortEvent::State {
                from: self.state,
                to,
            });
            self.state = to;
        }
    }
}

impl Link for FakeLink {
    fn state(&self) -> PortState {
        self.state
    }
    fn phys_state(&self) -> PhysState {
        self.phys
    }
    fn set_state(&mut self, state: PortState) -> Result<(), StateError> {
        let to = self.state.set(state)?;
        self.enter(to);
        Ok(())
    }
    fn set_phys_state(&mut self, state: PhysState) {
        self.phys = state;
        self.enter(PortState::Down);
    }
    fn down_default(&self) -> PhysState {
        self.down_default
    }
    fn set_down_default(&mut self, state: PhysState) {
        self.down_default = state;
    }
    fn widths(&self) -> Rate<Widths> {
        Rate {
            supported: Widths::X1.or(Widths::X4),
            enabled: self.widths,
            active: self.widths.greatest(),
        }
    }
    fn enable_widths(&mut self, widths: Widths) {
        self.widths = widths;
    }
    fn speeds(&self) -> Rate<Speeds> {
        Rate {
            supported: Speeds::EDR.and_slower(),
            enabled: self.speeds,
            active: self.speeds.greatest(),
        }
    }
    fn enable_speeds(&mut self, speeds: Speeds) {
        self.speeds = speeds;
    }
    fn set_lid(&mut self, lid: Lid, lmc: u8) {
        self.lid = (lid, lmc);
    }
    fn mtu_cap(&self) -> Mtu {
        Mtu::Mtu4096
    }
    fn set_mtu(&mut self, mtu: Mtu) {
        self.mtu = mtu;
    }
    fn data_vls(&self) -> u8 {
        self.lanes_cap
    }
    fn operational_vls(&self) -> u8 {
        self.lanes
    }
    fn set_operational_vls(&mut self, data_vls: u8) {
        self.lanes = data_vls;
    }
    fn set_sl_to_vl(&mut self, table: [Vl; 16]) {
        self.sl_to_vl = table;
    }
    fn set_arbitration(&mut self, low: &[VlArbEntry], high: &[VlArbEntry], high_limit: u8) {
        self.low = low.to_vec();
        self.high = high.to_vec();
        self.high_limit = high_limit;
    }
    fn set_error_thresholds(&mut self, local_phy: u8, overrun: u8) {
        self.thresholds = (local_phy, overrun);
    }
    fn counters(&mut self) -> Counters {
        self.counters
    }
}

const NODE_GUID: u64 = 0x0200_0000_0000_0010;

/// A device with its agents, and a clock.
struct Device {
    now: Time,
    mgmt: Mgmt,
    ports: Vec<PortContext>,
    links: Vec<FakeLink>,
}

impl Device {
    fn with(ports: u8, lanes: u8, guid: u64) -> Self {
        let mut contexts: Vec<_> = (1..=ports)
            .map(|n| PortContext::new(n, Guid(guid + u64::from(n)), 40, 10))
            .collect();
        let mut links: Vec<_> = (0..ports).map(|_| FakeLink::new(lanes)).collect();
        let node = Node {
            node_guid: Guid(guid),
            system_image_guid: Guid(guid),
            vendor_id: 0x12_3456,
            device_id: 0x789a,
            revision: 3,
            description: NodeDescription::new("ochre"),
        };
        Device {
            now: Time::from_secs(1),
            mgmt: Mgmt::new(node, &mut contexts, &mut links),
            ports: contexts,
            links,
        }
    }

    fn new() -> Self {
        Self::with(1, 1, NODE_GUID)
    }

    /// A port that a subnet manager at LID 9 has made active with LID 4.
    fn active() -> Self {
        let mut d = Self::new();
        d.set_port_info(|pi| {
            pi.lid = Lid(4);
            pi.master_sm_lid = Lid(9);
        });
        d.set_port_info(|pi| pi.port_state = 3);
        d.set_port_info(|pi| pi.port_state = 4);
        assert!(d.ports[0].active);
        while d.event().is_some() {}
        d
    }

    fn handle_from(&mut self, port: u8, mad: &Mad, source: &Source) -> Outcome {
        let outcome = self.mgmt.handle(
            self.now,
            &mut self.ports,
            &mut self.links,
            port,
            mad,
            source,
        );
        self.pump();
        outcome
    }

    /// What the device does after each round: hands link events on.
    fn pump(&mut self) {
        for (n, link) in (1..).zip(&mut self.links) {
            for event in link.events.drain(..) {
                self.mgmt.link_event(&mut self.ports, n, &event);
            }
        }
    }

    fn handle(&mut self, mad: &Mad) -> Outcome {
        self.handle_from(1, mad, &wire())
    }

    fn event(&mut self) -> Option<EventType> {
        self.mgmt.take_event().map(|(_, e)| e)
    }

    fn poll(&mut self) -> Option<Outgoing> {
        let out = self.mgmt.poll(self.now, &self.ports, &mut self.links);
        self.pump();
        out
    }

    fn reply(&mut self, mad: &Mad) -> Mad {
        match self.handle(mad) {
            Outcome::Reply(out) => out,
            other => panic!("no reply to {mad:?} but {other:?}"),
        }
    }

    fn port_info(&self) -> PortInfo {
        self.mgmt
            .port_info(&self.ports, &self.links, 1)
            .expect("port 1")
    }

    /// A Set as a subnet manager makes it: what is there, no change of state, and `edit`.
    fn try_set_port_info(&mut self, edit: impl FnOnce(&mut PortInfo)) -> (u16, PortInfo) {
        let mut mad = request(method::SET, attr::PORT_INFO, 1);
        let mut pi = self.port_info();
        mad.set_m_key(pi.m_key);
        pi.port_state = 0;
        pi.port_physical_state = 0;
        edit(&mut pi);
        pi.write(mad.smp_data_mut());
        let out = self.reply(&mad);
        (out.status(), PortInfo::read(out.smp_data()))
    }

    fn set_port_info(&mut self, edit: impl FnOnce(&mut PortInfo)) -> PortInfo {
        let (code, pi) = self.try_set_port_info(edit);
        assert_eq!(code, status::OK);
        pi
    }
}

/// From QP0 of LID 9.
fn wire() -> Source {
    Source::Wire(Address {
        slid: Lid(9),
        dlid: Lid(4),
        sl: Sl::new(0),
        pkey: PKey::DEFAULT,
        src_qp: Qpn::SMI,
        dest_qp: Qpn::SMI,
        grh: None,
    })
}

const HOST: Source = Source::Host {
    slid: Lid(0),
    ignore_m_key: false,
};

fn request(m: u8, attr_id: u16, attr_mod: u32) -> Mad {
    Mad::new(class::SUBN_LID_ROUTED, m, attr_id, attr_mod, 77)
}

/// A directed-route request as it leaves the node of the subnet manager for `path`.
fn directed(m: u8, attr_id: u16, attr_mod: u32, path: &[u8]) -> Mad {
    let mut mad = Mad::new(class::SUBN_DIRECTED, m, attr_id, attr_mod, 78);
    mad.set_dr_lids(Lid::PERMISSIVE, Lid::PERMISSIVE);
    mad.set_hop_count(path.len() as u8);
    mad.initial_path_mut()[1..=path.len()].copy_from_slice(path);
    mad.set_hop_pointer(1);
    mad
}
