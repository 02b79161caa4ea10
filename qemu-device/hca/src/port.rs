// SPDX-License-Identifier: GPL-2.0-or-later
//! What a port is in its subnet: the attributes that the subnet manager sets and that engines use.

use ochre_hw::verbs::{AddressVector, AV_GRH};
use ochre_wire::{Bth, Build, Ext, Gid, Grh, Guid, Lid, Mtu, PKey, Sl, Vl};

/// Attributes of a port. The subnet management agent writes them, engines read them.
#[derive(Debug)]
pub struct PortContext {
    /// Number, from 1.
    pub number: u8,
    /// Logical state Active: data packets may be sent and received.
    pub active: bool,
    /// GID prefix.
    pub gid_prefix: u64,
    /// Base LID, 0 before it is set.
    pub lid: Lid,
    /// LID mask control, 0 to 7.
    pub lmc: u8,
    /// MTU in use.
    pub mtu: Mtu,
    /// Lane of each service level; `VL15` where packets of the level are dropped.
    pub sl_to_vl: [Vl; 16],
    /// P_Key table; an invalid key (0) is an empty entry.
    pub pkeys: Vec<PKey>,
    /// GUID table; the GID of an index is the prefix and this. Entry 0 is the port GUID.
    pub guids: Vec<Guid>,
    /// LID of the master subnet manager.
    pub sm_lid: Lid,
    /// Service level of the master subnet manager.
    pub sm_sl: Sl,
    /// Packets refused for their P_Key; stays at its largest value.
    pub pkey_violations: u16,
    /// Packets refused for their Q_Key; stays at its largest value.
    pub qkey_violations: u16,
}

/// An address vector that does not lead anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The source GID index is beyond the table or names an empty entry.
    #[error("no GID at index {0}")]
    Sgid(u8),
    /// The P_Key index is beyond the table or names an empty entry.
    #[error("no P_Key at index {0}")]
    Pkey(u16),
}

impl PortContext {
    /// A port as it is after power-on.
    pub fn new(number: u8, guid: Guid, pkeys: usize, guids: usize) -> Self {
        let mut port = PortContext {
            number,
            active: false,
            gid_prefix: Gid::DEFAULT_PREFIX,
            lid: Lid::RESERVED,
            lmc: 0,
            mtu: Mtu::Mtu4096,
            sl_to_vl: [Vl::VL0; 16],
            pkeys: vec![PKey(0); pkeys.max(1)],
            guids: vec![Guid(0); guids.max(1)],
            sm_lid: Lid::RESERVED,
            sm_sl: Sl::new(0),
            pkey_violations: 0,
            qkey_violations: 0,
        };
        port.pkeys[0] = PKey::DEFAULT;
        port.guids[0] = guid;
        port
    }

    /// The GID at `index`, if the entry is not empty.
    #[inline]
    pub fn gid(&self, index: u8) -> Option<Gid> {
        match self.guids.get(usize::from(index)) {
            Some(&guid) if guid.0 != 0 => Some(Gid::new(self.gid_prefix, guid)),
            _ => None,
        }
    }

    /// Whether `gid` is one of this port's, under its prefix or the link-local one.
    pub fn owns_gid(&self, gid: Gid) -> bool {
        (gid.prefix() == self.gid_prefix || gid.prefix() == Gid::DEFAULT_PREFIX)
            && gid.guid().0 != 0
            && self.guids.contains(&gid.guid())
    }

    /// The P_Key at `index`, if the entry is not empty.
    #[inline]
    pub fn pkey(&self, index: u16) -> Option<PKey> {
        self.pkeys
            .get(usize::from(index))
            .copied()
            .filter(|key| key.is_valid())
    }

    /// Index of a P_Key of this port that accepts packets with `key`.
    pub fn find_pkey(&self, key: PKey) -> Option<u16> {
        self.pkeys
            .iter()
            .position(|own| own.matches(key))
            .map(|i| i as u16)
    }

    /// Whether the unicast LID `lid` is this port's.
    #[inline]
    pub fn owns_lid(&self, lid: Lid) -> bool {
        lid.is_in(self.lid, self.lmc)
    }

    /// The low bits of a destination LID that the LMC leaves free.
    #[inline]
    pub fn path_bits(&self, lid: Lid) -> u8 {
        (lid.0 & ((1 << self.lmc) - 1)) as u8
    }

    /// A packet along `av` with the headers given; all that depends on the path is filled in.
    #[inline]
    pub fn build(&self, av: &AddressVector, bth: Bth, ext: Ext) -> Result<Build, RouteError> {
        let grh = if av.flags & AV_GRH != 0 {
            let sgid = self
                .gid(av.sgid_index)
                .ok_or(RouteError::Sgid(av.sgid_index))?;
            Some(Grh::new(
                sgid,
                Gid(av.dgid),
                av.traffic_class,
                av.flow_label,
                av.hop_limit,
            ))
        } else {
            None
        };
        let sl = Sl::new(av.sl);
        let bits = u16::from(av.src_path_bits) & ((1 << self.lmc) - 1);
        Ok(Build {
            vl: self.sl_to_vl[sl.index()],
            sl,
            slid: Lid(self.lid.0 | bits),
            dlid: Lid(av.dlid),
            grh,
            bth,
            ext,
        })
    }
}
