// SPDX-License-Identifier: GPL-2.0-or-later
//! Notice: what a trap reports.

use super::fields::attribute;
use crate::types::{Gid, Guid, Lid};

/// Type of a notice.
pub mod notice_type {
    /// Fatal
    pub const FATAL: u8 = 0;
    /// Urgent
    pub const URGENT: u8 = 1;
    /// Security
    pub const SECURITY: u8 = 2;
    /// Subnet management
    pub const SUBNET_MGMT: u8 = 3;
    /// Informational
    pub const INFO: u8 = 4;
}

/// Trap numbers that concern a channel adapter.
pub mod trap {
    /// Switches: the link state of a port changed.
    pub const LINK_STATE_CHANGE: u16 = 128;
    /// Local link integrity threshold reached.
    pub const LOCAL_LINK_INTEGRITY: u16 = 129;
    /// Excessive buffer overrun threshold reached.
    pub const BUFFER_OVERRUN: u16 = 130;
    /// Flow control watchdog expired.
    pub const FLOW_CONTROL_WATCHDOG: u16 = 131;
    /// Capability mask, node description, enabled width or speed changed.
    pub const LOCAL_CHANGE: u16 = 144;
    /// System image GUID changed.
    pub const SYSTEM_IMAGE_GUID: u16 = 145;
    /// Bad M_Key.
    pub const BAD_M_KEY: u16 = 256;
    /// Bad P_Key.
    pub const BAD_P_KEY: u16 = 257;
    /// Bad Q_Key.
    pub const BAD_Q_KEY: u16 = 258;
}

/// Producer type of a channel adapter.
pub const PRODUCER_CA: u32 = 1;

attribute! {
    /// The part that all notices have.
    NoticeHeader[64] {
        /// Defined by the specification, not by a vendor.
        is_generic: bool = bits(0, 7, 1),
        /// See [`notice_type`].
        notice_type: u8 = bits(0, 0, 7),
        /// Node type of the producer, 24 bits; the vendor for notices that are not generic.
        producer: u32 = word(0, 0, 24),
        /// See [`trap`].
        trap_number: u16 = at(4),
        /// LID of the producer.
        issuer_lid: Lid = at(6),
        /// Flips with each notice; traps do not use it.
        toggle: bool = bits(8, 7, 1),
        /// Low byte of the count of notices queued; traps do not use it.
        count: u8 = at(9),
    }
}

attribute! {
    /// Details of traps 128 (port not given) and 129 to 131.
    LinkDetails[54] {
        /// LID of the port.
        lid: Lid = at(2),
        /// Number of the port.
        port: u8 = at(4),
    }
}

/// Bits of [`LocalChange::change_flags`].
pub mod change {
    /// The node description changed.
    pub const NODE_DESCRIPTION: u16 = 1 << 0;
    /// LinkWidthEnabled changed.
    pub const LINK_WIDTH_ENABLED: u16 = 1 << 1;
    /// LinkSpeedEnabled changed.
    pub const LINK_SPEED_ENABLED: u16 = 1 << 2;
}

attribute! {
    /// Details of trap 144.
    LocalChange[54] {
        /// LID of the port.
        lid: Lid = at(2),
        /// Something other than the capability mask changed, see `change_flags`.
        other_local_changes: bool = bits(5, 0, 1),
        /// Capability mask after the change.
        capability_mask: u32 = at(6),
        /// See [`change`].
        change_flags: u16 = at(10),
        /// Second capability mask after the change.
        capability_mask2: u16 = at(12),
    }
}

attribute! {
    /// Details of trap 145.
    SystemImageChange[54] {
        /// LID of the port.
        lid: Lid = at(2),
        /// The new GUID.
        guid: Guid = at(6),
    }
}

attribute! {
    /// Details of trap 256, without the path.
    BadMKey[54] {
        /// LID of the port.
        lid: Lid = at(2),
        /// Source LID of the offending packet, or of its directed route.
        dr_slid: Lid = at(4),
        /// Method of the offending packet.
        method: u8 = at(6),
        /// Attribute of the offending packet.
        attr_id: u16 = at(8),
        /// Attribute modifier of the offending packet.
        attr_mod: u32 = at(10),
        /// M_Key of the offending packet.
        m_key: u64 = at(14),
        /// The offending packet was directed-route.
        directed: bool = bits(23, 7, 1),
        /// The path was longer than what fits.
        truncated: bool = bits(23, 6, 1),
        /// Entries of the path that follow.
        hop_count: u8 = bits(23, 0, 6),
    }
}

impl BadMKey {
    /// Offset in the details of the return path, of which 30 entries fit.
    pub const PATH: usize = 24;
    /// Entries of the path that fit.
    pub const PATH_LEN: usize = 30;
}

attribute! {
    /// Details of traps 257 and 258.
    BadKey[54] {
        /// Source of the offending packet.
        lid1: Lid = at(2),
        /// Destination of the offending packet.
        lid2: Lid = at(4),
        /// The bad P_Key or Q_Key.
        key: u32 = at(6),
        /// Service level of the offending packet.
        sl: u8 = bits(10, 4, 4),
        /// Source QP, 24 bits; 0 if the packet does not name it.
        qp1: u32 = word(10, 0, 24),
        /// Destination QP, 24 bits.
        qp2: u32 = word(14, 0, 24),
        /// Source GID, zero without a GRH.
        gid1: Gid = at(18),
        /// Destination GID, zero without a GRH.
        gid2: Gid = at(34),
    }
}

/// The details that follow the header of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The part that all notices have.
    pub header: NoticeHeader,
    /// What happened, by the trap number.
    pub details: [u8; 54],
}

impl Notice {
    /// Bytes of the details.
    pub const DETAILS: usize = 54;

    /// A generic notice of a channel adapter.
    pub fn generic(notice_type: u8, trap_number: u16, issuer_lid: Lid, details: [u8; 54]) -> Self {
        Notice {
            header: NoticeHeader {
                is_generic: true,
                notice_type,
                producer: PRODUCER_CA,
                trap_number,
                issuer_lid,
                ..NoticeHeader::default()
            },
            details,
        }
    }

    /// Reads the attribute.
    pub fn read(data: &[u8; 64]) -> Self {
        let mut details = [0; 54];
        details.copy_from_slice(&data[10..]);
        Notice {
            header: NoticeHeader::read(data),
            details,
        }
    }

    /// Writes the attribute.
    pub fn write(&self, data: &mut [u8; 64]) {
        self.header.write(data);
        data[10..].copy_from_slice(&self.details);
    }
}
