// SPDX-License-Identifier: GPL-2.0-or-later
//! Subnet management packets: directed routes, the M_Key, dispatch.

use std::time::Duration;

use ochre_wire::mad::{attr, method, status, Mad, BASE_VERSION, CLASS_VERSION};
use ochre_wire::Lid;

use super::agent::Agent;
use super::link::Link;
use super::{attrs, port_info, reply, Node, Outcome, Source};
use crate::port::PortContext;
use crate::Time;

/// Hops that a directed route can have, and one.
const MAX_HOPS: u8 = 64;
/// Bits of the attribute modifier of PortInfo that are the port number.
const PORT_INFO_PORT: u32 = 0xff;

/// All that a request may read and change.
pub(super) struct Request<'a, L> {
    pub(super) now: Time,
    pub(super) node: &'a Node,
    pub(super) agents: &'a mut [Agent],
    pub(super) ports: &'a mut [PortContext],
    pub(super) links: &'a mut [L],
    /// Port, from 0, that the request came to.
    pub(super) index: usize,
}

impl<L: Link> Request<'_, L> {
    pub(super) fn handle(mut self, mad: &Mad, source: &Source) -> Outcome {
        // What goes back to a subnet manager, or comes to one, is the host's.
        if mad.is_response() || mad.method() == method::TRAP {
            return Outcome::PassToHost;
        }
        if mad.is_directed() && mad.is_returning() {
            return Outcome::PassToHost;
        }
        let mut mad = *mad;
        let from_wire = matches!(source, Source::Wire(_));
        let port_number = self.ports[self.index].number;
        if from_wire && mad.is_directed() && !arrive(&mut mad, port_number) {
            return Outcome::Drop;
        }
        if mad.attr_id() == attr::SM_INFO {
            return Outcome::PassToHost;
        }
        match self.answer(&mad, source) {
            Outcome::Reply(mut out) => {
                if from_wire && out.is_directed() {
                    depart(&mut out);
                }
                Outcome::Reply(out)
            }
            other => other,
        }
    }

    fn answer(&mut self, mad: &Mad, source: &Source) -> Outcome {
        if mad.base_version() != BASE_VERSION || mad.class_version() != CLASS_VERSION {
            return reply(*mad, status::BAD_VERSION);
        }
        let set = match mad.method() {
            method::GET => false,
            method::SET => true,
            method::TRAP_REPRESS => {
                if self.check_m_key(self.index, mad, source) {
                    self.agents[self.index].traps.repress(mad.tid());
                    return Outcome::Consumed;
                }
                return Outcome::Drop;
            }
            _ => return reply(*mad, status::BAD_METHOD),
        };
        if !self.check_m_key(self.index, mad, source) {
            return Outcome::Drop;
        }
        if mad.attr_id() == attr::PORT_INFO {
            return self.port_info(mad, set, source);
        }
        let mut out = *mad;
        let code = attrs::handle(self, &mut out, set);
        reply(out, code)
    }

    /// PortInfo may name another port of the node, with its own M_Key.
    fn port_info(&mut self, mad: &Mad, set: bool, source: &Source) -> Outcome {
        let index = match (mad.attr_mod() & PORT_INFO_PORT) as usize {
            0 => self.index,
            n if n <= self.agents.len() => n - 1,
            _ => return reply(*mad, status::BAD_VALUE),
        };
        if index != self.index && !self.check_m_key(index, mad, source) {
            return Outcome::Drop;
        }
        let (agent, port, link) = (
            &mut self.agents[index],
            &mut self.ports[index],
            &mut self.links[index],
        );
        let mut out = *mad;
        let code = if set {
            port_info::set(agent, port, link, &mut out)
        } else {
            port_info::get(agent, port, link, mad.m_key(), &mut out);
            status::OK
        };
        reply(out, code)
    }

    /// Whether the request may go on as far as the M_Key of port `index` goes. A Get with a wrong
    /// key is stopped only from protection level 2.
    fn check_m_key(&mut self, index: usize, mad: &Mad, source: &Source) -> bool {
        let agent = &mut self.agents[index];
        let (slid, ignore) = match source {
            Source::Wire(address) => (address.slid, false),
            Source::Host { slid, ignore_m_key } => (*slid, *ignore_m_key),
        };
        if ignore || agent.m_key == 0 || agent.m_key == mad.m_key() {
            agent.lease_end = None;
            return true;
        }
        if mad.method() == method::GET && agent.m_key_protect < 2 {
            return true;
        }
        agent.m_key_violations = agent.m_key_violations.saturating_add(1);
        if agent.m_key_lease != 0 && agent.lease_end.is_none() {
            agent.lease_end = Some(self.now + Duration::from_secs(u64::from(agent.m_key_lease)));
        }
        let port = &self.ports[index];
        if port.active {
            agent.traps.bad_m_key(mad, slid, port.lid, self.now);
        }
        false
    }
}

/// What a channel adapter does with an outgoing directed-route packet that came to `port`: whether
/// the route ends here.
fn arrive(mad: &mut Mad, port: u8) -> bool {
    let (pointer, count) = (mad.hop_pointer(), mad.hop_count());
    if count >= MAX_HOPS {
        return false;
    }
    if pointer == count {
        // The end of the directed part.
        if mad.dr_dlid() != Lid::PERMISSIVE {
            return false;
        }
        if count != 0 {
            mad.return_path_mut()[usize::from(count)] = port;
        }
        mad.set_hop_pointer(pointer + 1);
        return true;
    }
    // Beyond the end after a LID-routed part; before the end is for switches.
    pointer == count + 1
}

/// What a channel adapter does with a returning directed-route packet of its own.
fn depart(mad: &mut Mad) {
    mad.set_hop_pointer(mad.hop_pointer().saturating_sub(1));
}
