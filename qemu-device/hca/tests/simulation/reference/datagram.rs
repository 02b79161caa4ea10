// SPDX-License-Identifier: GPL-2.0-or-later
//! Datagrams between any QPs.
//!
//! - A datagram arrives whole or not at all, once, unless the link itself repeats packets. Datagrams
//!   may overtake each other.
//! - It arrives only where its Q_Key is the QP's.
//! - One to a group arrives at each member, also at the sender where that is one.
//! - The receiver is told who has sent it, and by which way.

use std::collections::HashMap;

/// What the receiver sees of the way, where the datagram has a global route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub traffic_class: u8,
    pub flow_label: u32,
    pub hop_limit: u8,
}

/// A datagram as its receiver must see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    /// Host and QP that it is for.
    pub to: (usize, u32),
    pub source_qp: u32,
    pub source_lid: u16,
    pub service_level: u8,
    pub route: Option<Route>,
    pub bytes: Vec<u8>,
    pub imm: Option<[u8; 4]>,
    pub solicited: bool,
}

#[derive(Default)]
struct Count {
    sent: u64,
    arrived: u64,
}

/// All datagrams of a network.
#[derive(Default)]
pub struct Datagrams {
    /// How often a datagram may arrive.
    most: u64,
    counts: HashMap<Datagram, Count>,
    pub sent: u64,
    pub arrived: u64,
    /// Packets that come to a host where a receiver has another Q_Key.
    pub forbidden: u64,
}

impl Datagrams {
    /// On links that repeat packets or do not.
    pub fn new(repeats: bool) -> Self {
        Datagrams {
            most: 1 + u64::from(repeats),
            ..Datagrams::default()
        }
    }

    /// One is sent to a receiver that has its Q_Key.
    pub fn send(&mut self, datagram: Datagram) {
        self.counts.entry(datagram).or_default().sent += 1;
        self.sent += 1;
    }

    /// One has arrived.
    pub fn receive(&mut self, datagram: &Datagram) {
        let count = self.counts.get_mut(datagram);
        let count = count.unwrap_or_else(|| panic!("nobody has sent {datagram:?}"));
        count.arrived += 1;
        assert!(
            count.arrived <= count.sent * self.most,
            "{} times sent, {} times arrived: {datagram:?}",
            count.sent,
            count.arrived
        );
        self.arrived += 1;
    }
}
