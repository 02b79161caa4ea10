// SPDX-License-Identifier: GPL-2.0-or-later
//! The management agents of the firmware: subnet management and performance management.
//!
//! [`Mgmt::handle`] takes a MAD, from the wire or from the driver's PROCESS_MAD command, and says
//! what becomes of it. [`Mgmt::poll`] gives the traps that are due, [`Mgmt::take_event`] what the
//! host is to be told. Attributes that engines use are in each port's [`PortContext`]; the agents
//! write them there and to the [`Link`].
//!
//! - [`link`]: what the agents ask of a port's link layer.
//! - `agent`: state of a port. `smp`: directed routes, M_Key, dispatch. `attrs`, `port_info`: the
//!   attributes. `trap`: notices. `pma`: counters.

mod agent;
mod attrs;
pub mod link;
mod pma;
mod port_info;
mod smp;
#[cfg(test)]
mod tests;
mod trap;

use std::time::Duration;

use ochre_hw::eqe::EventType;
use ochre_link::{Counters, PortEvent, PortState};
use ochre_wire::mad::notice::{change, trap as trap_number, LocalChange};
use ochre_wire::mad::sma::{NodeDescription, PortInfo};
use ochre_wire::mad::{class, method, status, Mad};
use ochre_wire::{Bth, Build, Deth, Ext, Grh, Guid, Lid, Opcode, PKey, Psn, QKey, Qpn, Sl, Vl};

use self::agent::{Agent, HOST_CAPABILITIES};
pub use self::link::{Link, Rate};
pub use self::trap::KeyViolation;
use crate::port::PortContext;
use crate::Time;

/// How often the error counters of a link are looked at for traps 129 and 130.
const ERROR_CHECK: Duration = Duration::from_secs(1);

/// What the node is.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Node GUID.
    pub node_guid: Guid,
    /// System image GUID.
    pub system_image_guid: Guid,
    /// Vendor, an OUI of 24 bits.
    pub vendor_id: u32,
    /// Device, by the vendor.
    pub device_id: u16,
    /// Revision, by the vendor.
    pub revision: u32,
    /// Description, which the host may change.
    pub description: NodeDescription,
}

/// Where a MAD comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From a packet.
    Wire(Address),
    /// From the driver, which has done the hop pointer of a directed route.
    Host {
        /// Source LID, 0 where the driver gives none.
        slid: Lid,
        /// Do not check the M_Key.
        ignore_m_key: bool,
    },
}

/// Addresses of a packet with a MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Source LID.
    pub slid: Lid,
    /// Destination LID.
    pub dlid: Lid,
    /// Service level.
    pub sl: Sl,
    /// P_Key.
    pub pkey: PKey,
    /// Source QP.
    pub src_qp: Qpn,
    /// Destination QP, 0 or 1.
    pub dest_qp: Qpn,
    /// Global route header.
    pub grh: Option<Grh>,
}

impl Address {
    /// Headers of a packet that answers one with these addresses, from a port with `mapping` as its
    /// lanes by service level. The packet number is `psn`.
    pub fn reply(&self, mapping: &[Vl; 16], psn: Psn) -> Build {
        let smi = self.dest_qp == Qpn::SMI;
        Build {
            vl: if smi {
                Vl::VL15
            } else {
                mapping[self.sl.index()]
            },
            sl: self.sl,
            slid: self.dlid,
            dlid: self.slid,
            grh: self
                .grh
                .map(|g| Grh::new(g.dgid, g.sgid, g.tclass, g.flow_label, 0xff)),
            bth: Bth::new(Opcode::UD_SEND_ONLY, self.pkey, self.src_qp, psn),
            ext: datagram(self.dest_qp),
        }
    }
}

/// Datagram header of a management packet from QP0 or QP1.
fn datagram(src_qp: Qpn) -> Ext {
    Ext {
        deth: Deth {
            qkey: if src_qp == Qpn::SMI {
                QKey(0)
            } else {
                QKey::GSI
            },
            src_qp,
        },
        ..Ext::default()
    }
}

/// What becomes of a MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack of one call
pub enum Outcome {
    /// The answer goes back to where the MAD came from.
    Reply(Mad),
    /// Done; nobody else is to see the MAD.
    Consumed,
    /// The firmware has nothing to do with it: the host is to see the MAD as it came.
    PassToHost,
    /// It must not be answered, by the host neither: a bad M_Key or an impossible route.
    Drop,
}

/// A MAD that the firmware sends by itself, from QP0 to QP0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Port, from 1.
    pub port: u8,
    /// Headers of the packet; the packet number in them is 0.
    pub build: Build,
    /// The payload.
    pub mad: Mad,
}

/// A capability that is not the host's to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("capability bits {0:#010x} cannot be changed by the host")]
pub struct CapabilityError(pub u32);

/// The agents of all ports of the device.
///
/// Methods take the contexts and the links of all ports in order; port numbers start from 1.
#[derive(Debug)]
pub struct Mgmt {
    node: Node,
    agents: Vec<Agent>,
    next_error_check: Option<Time>,
    /// Error counters as last seen, by port: link integrity and buffer overrun.
    errors_seen: Vec<(u64, u64)>,
}

impl Mgmt {
    /// Agents after power-on or reset; also sets up `ports` and `links` as they are to be then.
    pub fn new<L: Link>(node: Node, ports: &mut [PortContext], links: &mut [L]) -> Self {
        let agents = ports
            .iter_mut()
            .zip(links.iter_mut())
            .map(|(port, link)| Agent::new(port, link))
            .collect();
        Mgmt {
            node,
            agents,
            next_error_check: None,
            errors_seen: links.iter_mut().map(|l| errors(&l.counters())).collect(),
        }
    }

    /// Handles a MAD that came to `port`.
    pub fn handle<L: Link>(
        &mut self,
        now: Time,
        ports: &mut [PortContext],
        links: &mut [L],
        port: u8,
        mad: &Mad,
        source: &Source,
    ) -> Outcome {
        let index = usize::from(port).wrapping_sub(1);
        if index >= self.agents.len() || index >= ports.len() || index >= links.len() {
            return Outcome::Drop;
        }
        for agent in &mut self.agents {
            agent.check_lease(now);
        }
        match mad.class() {
            class::SUBN_LID_ROUTED | class::SUBN_DIRECTED => smp::Request {
                now,
                node: &self.node,
                agents: &mut self.agents,
                ports,
                links,
                index,
            }
            .handle(mad, source),
            class::PERF if !mad.is_response() => pma::handle(&mut self.agents, links, port, mad),
            _ => Outcome::PassToHost,
        }
    }

    /// PortInfo of `port` as the host sees it; `None` if there is no such port.
    pub fn port_info<L: Link>(
        &self,
        ports: &[PortContext],
        links: &[L],
        port: u8,
    ) -> Option<PortInfo> {
        let i = usize::from(port).checked_sub(1)?;
        Some(port_info::current(
            self.agents.get(i)?,
            ports.get(i)?,
            links.get(i)?,
        ))
    }

    /// The node description.
    pub fn description(&self) -> &NodeDescription {
        &self.node.description
    }

    /// The host changes the node description; subnet managers are told by trap 144.
    pub fn set_description(
        &mut self,
        now: Time,
        ports: &[PortContext],
        description: NodeDescription,
    ) {
        if self.node.description == description {
            return;
        }
        self.node.description = description;
        for (agent, port) in self.agents.iter_mut().zip(ports) {
            local_change(agent, port, change::NODE_DESCRIPTION, now);
        }
    }

    /// The host changes capabilities of `port`; the subnet manager is told by trap 144. A port that
    /// does not exist is ignored.
    pub fn modify_capabilities(
        &mut self,
        now: Time,
        ports: &[PortContext],
        port: u8,
        set: u32,
        clear: u32,
    ) -> Result<(), CapabilityError> {
        let foreign = (set | clear) & !HOST_CAPABILITIES;
        if foreign != 0 {
            return Err(CapabilityError(foreign));
        }
        let index = usize::from(port).wrapping_sub(1);
        if let (Some(agent), Some(port)) = (self.agents.get_mut(index), ports.get(index)) {
            let before = agent.capability_mask;
            agent.capability_mask = before & !clear | set;
            if agent.capability_mask != before {
                local_change(agent, port, 0, now);
            }
        }
        Ok(())
    }

    /// The link layer of `port` reports an event: keeps [`PortContext::active`] and tells the host.
    pub fn link_event(&mut self, ports: &mut [PortContext], port: u8, event: &PortEvent) {
        let index = usize::from(port).wrapping_sub(1);
        let (Some(agent), Some(port)) = (self.agents.get_mut(index), ports.get_mut(index)) else {
            return;
        };
        if let PortEvent::State { from, to } = *event {
            port.active = to == PortState::Active;
            if to == PortState::Active {
                agent.event(EventType::PortActive);
            } else if from == PortState::Active {
                agent.event(EventType::PortError);
                agent.traps.clear();
            }
        }
    }

    /// A packet came to `port` with a bad P_Key: counts it, and trap 257.
    pub fn bad_pkey(
        &mut self,
        now: Time,
        ports: &mut [PortContext],
        port: u8,
        violation: &KeyViolation,
    ) {
        let index = usize::from(port).wrapping_sub(1);
        if let (Some(agent), Some(port)) = (self.agents.get_mut(index), ports.get_mut(index)) {
            port.pkey_violations = port.pkey_violations.saturating_add(1);
            if port.active {
                agent.traps.bad_p_key(violation, now);
            }
        }
    }

    /// A datagram came to `port` with a bad Q_Key: counts it, and trap 258.
    pub fn bad_qkey(
        &mut self,
        now: Time,
        ports: &mut [PortContext],
        port: u8,
        violation: &KeyViolation,
    ) {
        let index = usize::from(port).wrapping_sub(1);
        if let (Some(agent), Some(port)) = (self.agents.get_mut(index), ports.get_mut(index)) {
            port.qkey_violations = port.qkey_violations.saturating_add(1);
            if port.active {
                agent.traps.bad_q_key(violation, now);
            }
        }
    }

    /// The next event for the host: port and type.
    pub fn take_event(&mut self) -> Option<(u8, EventType)> {
        (1..)
            .zip(&mut self.agents)
            .find_map(|(n, agent)| agent.take_event().map(|e| (n, e)))
    }

    /// Does what is due at `now`: takes links down whose answer has left, ends leases, looks for
    /// link errors. Gives a trap to send, if one is due; to be called until it gives none.
    pub fn poll<L: Link>(
        &mut self,
        now: Time,
        ports: &[PortContext],
        links: &mut [L],
    ) -> Option<Outgoing> {
        for (agent, link) in self.agents.iter_mut().zip(links.iter_mut()) {
            agent.check_lease(now);
            if let Some(state) = agent.link_down.take() {
                link.set_phys_state(state);
            }
        }
        if self.next_error_check.is_none_or(|t| t <= now) {
            self.check_errors(now, ports, links);
        }
        for (agent, port) in self.agents.iter_mut().zip(ports) {
            if !port.active || port.lid == Lid::RESERVED || !port.sm_lid.is_unicast() {
                continue;
            }
            let interval = agent.trap_interval();
            if let Some(mad) = agent.traps.poll(now, interval, port.lid, agent.m_key) {
                return Some(Outgoing {
                    port: port.number,
                    build: Build {
                        vl: Vl::VL15,
                        sl: port.sm_sl,
                        slid: port.lid,
                        dlid: port.sm_lid,
                        grh: None,
                        bth: Bth::new(Opcode::UD_SEND_ONLY, PKey::DEFAULT, Qpn::SMI, Psn::new(0)),
                        ext: datagram(Qpn::SMI),
                    },
                    mad,
                });
            }
        }
        None
    }

    /// When [`Mgmt::poll`] has something to do.
    pub fn next_deadline(&self, ports: &[PortContext]) -> Option<Time> {
        let mut first = None;
        let mut any_active = false;
        for (agent, port) in self.agents.iter().zip(ports) {
            if agent.link_down.is_some() {
                first = Some(Time::ZERO);
            }
            first = Time::earliest(first, agent.lease_end);
            if port.active {
                any_active = true;
                if port.sm_lid.is_unicast() && port.lid != Lid::RESERVED {
                    first = Time::earliest(first, agent.traps.deadline());
                }
            }
        }
        if any_active {
            first = Time::earliest(first, self.next_error_check);
        }
        first
    }

    fn check_errors<L: Link>(&mut self, now: Time, ports: &[PortContext], links: &mut [L]) {
        self.next_error_check = Some(now + ERROR_CHECK);
        let seen = self.agents.iter_mut().zip(&mut self.errors_seen);
        for ((agent, seen), (port, link)) in seen.zip(ports.iter().zip(links)) {
            let errors = errors(&link.counters());
            if port.active {
                let mut trap = |number| agent.traps.link_errors(number, port.lid, port.number, now);
                if errors.0 > seen.0 {
                    trap(trap_number::LOCAL_LINK_INTEGRITY);
                }
                if errors.1 > seen.1 {
                    trap(trap_number::BUFFER_OVERRUN);
                }
            }
            *seen = errors;
        }
    }
}

/// The counters behind traps 129 and 130.
fn errors(c: &Counters) -> (u64, u64) {
    (
        c.local_link_integrity_errors,
        c.excessive_buffer_overrun_errors,
    )
}

/// Notes trap 144. A port that is not active has no subnet manager to tell: the one to come reads
/// everything anyway.
fn local_change(agent: &mut Agent, port: &PortContext, flags: u16, now: Time) {
    if port.active {
        agent.traps.local_change(
            LocalChange {
                lid: port.lid,
                other_local_changes: flags != 0,
                capability_mask: agent.capability_mask,
                change_flags: flags,
                capability_mask2: agent.capability_mask2,
            },
            now,
        );
    }
}

/// The answer to `mad` with this status; the attribute data are those of `mad`.
fn reply(mut mad: Mad, code: u16) -> Outcome {
    mad.set_method(method::GET_RESP);
    let direction = if mad.is_directed() {
        status::DIRECTION
    } else {
        0
    };
    mad.set_status(code | direction);
    Outcome::Reply(mad)
}
