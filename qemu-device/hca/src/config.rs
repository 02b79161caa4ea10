// SPDX-License-Identifier: GPL-2.0-or-later
//! How a device is made.

use ochre_hw::{pci, queue};
use ochre_wire::mad::sma::NodeDescription;
use ochre_wire::Guid;

use crate::mgmt::Node;

/// Most objects of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// QPs, the special ones included.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Pages that all objects together name in lists; each takes 8 bytes of the host's memory.
    pub pages: u64,
    /// Protection domains.
    pub pds: u32,
    /// Address handles.
    pub ahs: u32,
    /// Event queues.
    pub eqs: u32,
    /// Multicast groups.
    pub mcast_groups: u32,
    /// QPs attached to one group.
    pub mcast_qps: u32,
    /// READs and atomics outstanding for a QP's responder.
    pub dest_rd_atomic: u8,
    /// READs and atomics outstanding for a QP's requester.
    pub rd_atomic: u8,
    /// Longest message, bytes.
    pub message: u32,
    /// Longest region, bytes.
    pub mr_size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            qps: 1 << 16,
            cqs: 1 << 16,
            mrs: 1 << 20,
            pages: 1 << 25,
            pds: 1 << 15,
            ahs: 1 << 16,
            eqs: u32::from(pci::MAX_VECTORS),
            mcast_groups: 8192,
            mcast_qps: 240,
            dest_rd_atomic: 128,
            rd_atomic: 128,
            message: 1 << 31,
            mr_size: u64::from(queue::MEM_MAX_PAGES) << 31,
        }
    }
}

/// How a device is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Node GUID; the port GUIDs follow it.
    pub node_guid: Guid,
    /// NodeDescription before software sets another, up to 64 bytes of UTF-8.
    pub description: String,
    /// MSI-X vectors, 1 to 64.
    pub vectors: u16,
    /// Doorbell pages, at least 1.
    pub doorbell_pages: u32,
    /// P_Keys of a port.
    pub pkeys: u16,
    /// GIDs of a port.
    pub gids: u8,
    /// Most objects of each kind.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            node_guid: Guid(0x0002_c900_0000_0000),
            description: "Ochre HCA".into(),
            vectors: 8,
            doorbell_pages: 1024,
            pkeys: 128,
            gids: 32,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// What the node tells the subnet manager of itself.
    pub(crate) fn node(&self) -> Node {
        Node {
            node_guid: self.node_guid,
            system_image_guid: self.node_guid,
            vendor_id: self.vendor_oui(),
            device_id: pci::DEVICE_ID,
            revision: pci::REVISION.into(),
            description: NodeDescription::new(&self.description),
        }
    }

    /// The vendor's OUI: the upper 24 bits of the node GUID.
    pub fn vendor_oui(&self) -> u32 {
        (self.node_guid.0 >> 40) as u32
    }

    /// GUID of a port, from 1.
    pub fn port_guid(&self, port: u8) -> Guid {
        Guid(self.node_guid.0.wrapping_add(u64::from(port)))
    }
}
