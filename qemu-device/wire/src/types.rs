// SPDX-License-Identifier: GPL-2.0-or-later
//! Newtypes for the fields of InfiniBand packets.

use core::fmt;

use crate::bytes::{be64, put64};

/// Local identifier of a port, 16 bits, host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lid(pub u16);

impl Lid {
    /// The reserved LID, never a valid source or destination.
    pub const RESERVED: Lid = Lid(0);
    /// First multicast LID.
    pub const MULTICAST_FIRST: Lid = Lid(0xc000);
    /// Last multicast LID.
    pub const MULTICAST_LAST: Lid = Lid(0xfffe);
    /// The permissive LID: accepted by every port on its way to QP0.
    pub const PERMISSIVE: Lid = Lid(0xffff);

    /// Whether this is a unicast LID (0x0001 to 0xbfff).
    #[inline]
    pub const fn is_unicast(self) -> bool {
        self.0 != 0 && self.0 < 0xc000
    }

    /// Whether this is a multicast LID (0xc000 to 0xfffe).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0 >= 0xc000 && self.0 != 0xffff
    }

    /// Whether a port with base LID `base` and LID mask control `lmc` (0 to 7) owns this LID.
    #[inline]
    pub const fn is_in(self, base: Lid, lmc: u8) -> bool {
        let lmc = lmc & 7;
        base.0 != 0 && self.0 >> lmc == base.0 >> lmc
    }
}

/// Queue pair number, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(u32);

impl Qpn {
    /// QP0, the subnet management interface.
    pub const SMI: Qpn = Qpn(0);
    /// QP1, the general services interface.
    pub const GSI: Qpn = Qpn(1);
    /// Destination QP of multicast packets.
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);

    /// The low 24 bits of `v`.
    #[inline]
    pub const fn new(v: u32) -> Self {
        Qpn(v & 0xff_ffff)
    }

    /// The number, at most 0xffffff.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Packet sequence number, arithmetic modulo 2^24.
///
/// There is no `Ord`: sequence numbers are ordered only within a window, see [`Psn::diff`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `v`.
    #[inline]
    pub const fn new(v: u32) -> Self {
        Psn(v & 0xff_ffff)
    }

    /// The number, at most 0xffffff.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// `self + n` modulo 2^24.
    #[inline]
    #[must_use]
    pub const fn add(self, n: u32) -> Self {
        Psn::new(self.0.wrapping_add(n))
    }

    /// `self - n` modulo 2^24.
    #[inline]
    #[must_use]
    pub const fn sub(self, n: u32) -> Self {
        Psn::new(self.0.wrapping_sub(n))
    }

    /// The following number.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The number before.
    #[inline]
    #[must_use]
    pub const fn prev(self) -> Self {
        self.sub(1)
    }

    /// Signed distance `self - other` in the window of 2^24: from -2^23 to 2^23 - 1.
    #[inline]
    pub const fn diff(self, other: Psn) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// Unsigned distance going forward from `other` to `self`, 0 to 2^24 - 1.
    #[inline]
    pub const fn since(self, other: Psn) -> u32 {
        self.0.wrapping_sub(other.0) & 0xff_ffff
    }

    /// Whether `self` comes before `other` (at most 2^23 behind).
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.diff(other) < 0
    }

    /// Whether `self` comes after `other` (at most 2^23 - 1 ahead).
    #[inline]
    pub const fn is_after(self, other: Psn) -> bool {
        self.diff(other) > 0
    }
}

/// Partition key: 15-bit key, top bit set for full membership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PKey(pub u16);

impl PKey {
    /// The default partition, full member.
    pub const DEFAULT: PKey = PKey(0xffff);
    /// The default partition, limited member.
    pub const DEFAULT_LIMITED: PKey = PKey(0x7fff);

    /// Whether the key names a partition at all (the low 15 bits are not zero).
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.0 & 0x7fff != 0
    }

    /// Full membership.
    #[inline]
    pub const fn is_full(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// Whether packets with key `other` may be received by a holder of `self`: the same valid
    /// partition, and at least one of the two a full member.
    #[inline]
    pub const fn matches(self, other: PKey) -> bool {
        self.is_valid() && self.0 & 0x7fff == other.0 & 0x7fff && (self.0 | other.0) & 0x8000 != 0
    }
}

/// Queue key of datagram packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QKey(pub u32);

impl QKey {
    /// The well-known Q_Key of QP1.
    pub const GSI: QKey = QKey(0x8001_0000);

    /// A controlled Q_Key in a send work request asks for the Q_Key of the QP context instead.
    #[inline]
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// Virtual lane, 0 to 15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vl(u8);

impl Vl {
    /// Lane 0, which every port has.
    pub const VL0: Vl = Vl(0);
    /// Lane 15, subnet management only, without flow control.
    pub const VL15: Vl = Vl(15);

    /// The low 4 bits of `v`.
    #[inline]
    pub const fn new(v: u8) -> Self {
        Vl(v & 0xf)
    }

    /// The number, 0 to 15.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number as an index of a 16-element array.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether this is the management lane.
    #[inline]
    pub const fn is_management(self) -> bool {
        self.0 == 15
    }
}

/// Service level, 0 to 15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sl(u8);

impl Sl {
    /// The low 4 bits of `v`.
    #[inline]
    pub const fn new(v: u8) -> Self {
        Sl(v & 0xf)
    }

    /// The number, 0 to 15.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number as an index of a 16-element array.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Maximum transfer unit: the largest payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes
    Mtu256 = 1,
    /// 512 bytes
    Mtu512 = 2,
    /// 1024 bytes
    Mtu1024 = 3,
    /// 2048 bytes
    Mtu2048 = 4,
    /// 4096 bytes
    Mtu4096 = 5,
}

impl Mtu {
    /// The MTU with this code (1 to 5) in PortInfo, path records and verbs.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Mtu::Mtu256,
            2 => Mtu::Mtu512,
            3 => Mtu::Mtu1024,
            4 => Mtu::Mtu2048,
            5 => Mtu::Mtu4096,
            _ => return None,
        })
    }

    /// Its code, 1 to 5.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Its size in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        128 << self as usize
    }

    /// Its size as a power of two: 8 to 12.
    #[inline]
    pub const fn shift(self) -> u32 {
        7 + self as u32
    }

    /// Packets that a message of `len` bytes takes; an empty message takes one.
    #[inline]
    pub const fn packets(self, len: u32) -> u32 {
        if len == 0 {
            1
        } else {
            ((len - 1) >> self.shift()) + 1
        }
    }
}

/// EUI-64 identifier of a node, system or port, host byte order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub u64);

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:04x}:{:04x}:{:04x}:{:04x}",
            v >> 48,
            (v >> 32) & 0xffff,
            (v >> 16) & 0xffff,
            v & 0xffff
        )
    }
}

/// Global identifier, 16 bytes in wire order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The subnet prefix of a port before a subnet manager sets one (link-local).
    pub const DEFAULT_PREFIX: u64 = 0xfe80_0000_0000_0000;

    /// The unicast GID of `guid` in the subnet with `prefix`.
    #[inline]
    pub fn new(prefix: u64, guid: Guid) -> Self {
        let mut b = [0; 16];
        put64(&mut b, 0, prefix);
        put64(&mut b, 8, guid.0);
        Gid(b)
    }

    /// The upper 64 bits.
    #[inline]
    pub fn prefix(self) -> u64 {
        be64(&self.0, 0)
    }

    /// The lower 64 bits.
    #[inline]
    pub fn guid(self) -> Guid {
        Guid(be64(&self.0, 8))
    }

    /// Whether this is a multicast GID (first byte 0xff).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] == 0xff
    }

    /// Whether all bytes are zero (the reserved GID).
    #[inline]
    pub fn is_reserved(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pair) in self.0.chunks_exact(2).enumerate() {
            if i != 0 {
                f.write_str(":")?;
            }
            write!(f, "{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}
