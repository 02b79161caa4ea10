// SPDX-License-Identifier: GPL-2.0-or-later
//! Two hosts whose ports are joined, in one thread under one clock.

use std::time::Duration;

use ochre_hca::{Config, Time};
use ochre_link::mem::{MemCable, MemConfig};
use ochre_link::{Port, PortConfig};
use ochre_wire::{Guid, Lid};

use super::host::{Host, MEMORY};

/// The hosts.
pub struct Pair {
    pub a: Host,
    pub b: Host,
    pub now: Time,
}

/// LIDs that [`Pair::active`] gives.
pub const LID_A: u16 = 5;
pub const LID_B: u16 = 9;

/// LID of a port of host 0 or 1.
pub fn lid(host: usize, port: u8) -> u16 {
    [LID_A, LID_B][host] + 16 * u16::from(port - 1)
}

/// How the ports of two hosts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cabling {
    /// One port each.
    One,
    /// Two ports each, the first to the first and the second to the second.
    Two,
    /// Two ports each, the first to the second and the second to the first.
    Crossed,
}

impl Cabling {
    /// Ports of a host.
    pub fn ports(self) -> u8 {
        if self == Cabling::One {
            1
        } else {
            2
        }
    }

    /// The peer's port at the other end of the cable of `port`.
    pub fn peer(self, port: u8) -> u8 {
        if self == Cabling::Crossed {
            3 - port
        } else {
            port
        }
    }
}

impl Pair {
    pub fn new(cable: MemConfig) -> Self {
        Self::with(cable, PortConfig::default())
    }

    pub fn with(cable: MemConfig, port: PortConfig) -> Self {
        Self::with_memory(cable, port, MEMORY)
    }

    /// The same with so many bytes of memory in each.
    pub fn with_memory(cable: MemConfig, port: PortConfig, memory: usize) -> Self {
        Self::with_ports(Cabling::One, cable, port, memory)
    }

    /// The same with cables for all ports.
    pub fn with_ports(cabling: Cabling, cable: MemConfig, port: PortConfig, memory: usize) -> Self {
        let mut ends: [Vec<_>; 2] = Default::default();
        for n in 1..=cabling.ports() {
            let (left, right) = MemCable::pair(MemConfig {
                seed: cable.seed.wrapping_add(u64::from(n) - 1),
                ..cable.clone()
            });
            ends[0].push((n, left));
            ends[1].push((cabling.peer(n), right));
        }
        let [a, b] = ends.map(|mut cables| {
            cables.sort_by_key(|&(n, _)| n);
            cables
        });
        let host = |n: u64, cables: Vec<(u8, MemCable)>| {
            let links = cables.into_iter().map(|(number, cable)| {
                let port = PortConfig {
                    seed: n + 2 * (u64::from(number) - 1),
                    ..port.clone()
                };
                Port::new(port, cable)
            });
            Host::with_links(
                Config {
                    node_guid: Guid(0x0200_5e00_0000_0000 + (n << 8)),
                    ..Config::default()
                },
                links.collect(),
                memory,
            )
        };
        Pair {
            a: host(1, a),
            b: host(2, b),
            now: Time::ZERO,
        }
    }

    /// Two hosts with enabled devices and active ports.
    pub fn active() -> Self {
        let mut pair = Self::new(MemConfig::default());
        pair.bring_up();
        pair
    }

    /// Enables the devices and does what a subnet manager does.
    pub fn bring_up(&mut self) {
        self.a.enable();
        self.b.enable();
        self.run_for(Duration::from_secs(2));
        let ports = self.a.hca.ports() as u8;
        for (n, host) in [&mut self.a, &mut self.b].into_iter().enumerate() {
            for port in 1..=ports {
                assert_eq!(host.query_port_of(port).state, 2, "the link is up");
                host.set_port_info_of(port, |info| {
                    info.lid = Lid(lid(n, port));
                    info.master_sm_lid = Lid(LID_A);
                    info.neighbor_mtu = 5;
                    info.port_state = 3;
                });
            }
        }
        self.settle();
        for host in [&mut self.a, &mut self.b] {
            for port in 1..=ports {
                host.set_port_info_of(port, |info| {
                    info.neighbor_mtu = 5;
                    info.port_state = 4;
                });
                assert_eq!(host.query_port_of(port).state, 4);
            }
        }
        self.settle();
        self.a.events();
        self.b.events();
    }

    /// Host 0 or 1.
    pub fn host(&mut self, n: usize) -> &mut Host {
        if n == 0 {
            &mut self.a
        } else {
            &mut self.b
        }
    }

    /// Rounds of both devices until neither has anything to do at this time.
    pub fn settle(&mut self) {
        loop {
            // Both have a turn in any case.
            let more = self.poll();
            if !more && self.a.hca.arm() && self.b.hca.arm() {
                break;
            }
        }
    }

    /// A round of both devices; whether there is more to do.
    pub fn poll(&mut self) -> bool {
        self.a.now = self.now;
        self.b.now = self.now;
        self.a.poll() | self.b.poll()
    }

    /// Lets time pass to `next`, and a little in any case: a deadline that has passed and does not move
    /// must not stop the clock.
    pub fn pass_to(&mut self, next: Time) {
        self.now = next.max(self.now + Duration::from_nanos(1));
        self.a.now = self.now;
        self.b.now = self.now;
    }

    /// When something happens next by itself.
    pub fn next_time(&self) -> Option<Time> {
        let links = [&self.a, &self.b]
            .into_iter()
            .flat_map(|host| (1..=host.hca.ports()).filter_map(|n| host.hca.link(n)));
        let arrivals = links.filter_map(|link| link.cable().next_arrival());
        let deadlines = [&self.a, &self.b]
            .into_iter()
            .filter_map(|host| host.hca.next_deadline());
        arrivals.chain(deadlines).min()
    }

    /// Lets time pass, event by event.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.settle();
        while let Some(next) = self.next_time().filter(|&t| t <= end) {
            self.pass_to(next);
            self.settle();
        }
        self.now = end;
        self.settle();
    }
}
