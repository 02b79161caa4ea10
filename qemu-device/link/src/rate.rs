// SPDX-License-Identifier: GPL-2.0-or-later
//! Link widths and speeds as masks.

use core::fmt;

/// A set of link widths, in the bits of PortInfo LinkWidthSupported, -Enabled and -Active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Widths(pub u8);

impl Widths {
    /// No width.
    pub const NONE: Widths = Widths(0);
    /// 1x
    pub const X1: Widths = Widths(1);
    /// 4x
    pub const X4: Widths = Widths(2);
    /// 8x
    pub const X8: Widths = Widths(4);
    /// 12x
    pub const X12: Widths = Widths(8);
    /// 2x
    pub const X2: Widths = Widths(16);
    /// All of them.
    pub const ALL: Widths = Widths(0x1f);

    const BY_LANES: [(Widths, u32); 5] = [
        (Widths::X12, 12),
        (Widths::X8, 8),
        (Widths::X4, 4),
        (Widths::X2, 2),
        (Widths::X1, 1),
    ];

    /// The widths in both sets.
    #[must_use]
    pub const fn and(self, other: Widths) -> Widths {
        Widths(self.0 & other.0)
    }

    /// The widths in either set.
    #[must_use]
    pub const fn or(self, other: Widths) -> Widths {
        Widths(self.0 | other.0)
    }

    /// The greatest width of the set; `NONE` if there is none.
    #[must_use]
    pub fn greatest(self) -> Widths {
        Self::BY_LANES
            .iter()
            .find(|(w, _)| self.0 & w.0 != 0)
            .map_or(Widths::NONE, |(w, _)| *w)
    }

    /// The smallest width of the set; `NONE` if there is none.
    #[must_use]
    pub fn smallest(self) -> Widths {
        Self::BY_LANES
            .iter()
            .rfind(|(w, _)| self.0 & w.0 != 0)
            .map_or(Widths::NONE, |(w, _)| *w)
    }

    /// Number of lanes of the greatest width, 0 to 12.
    pub fn lanes(self) -> u32 {
        Self::BY_LANES
            .iter()
            .find(|(w, _)| self.0 & w.0 != 0)
            .map_or(0, |(_, n)| *n)
    }

    /// The width with this many lanes.
    pub fn from_lanes(lanes: u32) -> Option<Widths> {
        Self::BY_LANES
            .iter()
            .find(|(_, n)| *n == lanes)
            .map(|(w, _)| *w)
    }
}

impl fmt::Display for Widths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(
            f,
            Self::BY_LANES
                .iter()
                .rev()
                .filter(|(w, _)| self.0 & w.0 != 0)
                .map(|(_, n)| (*n, "x")),
        )
    }
}

/// A set of link speeds per lane. The bits are those of the verbs' port speed: SDR 1, DDR 2, QDR 4,
/// FDR10 8, FDR 16, EDR 32, HDR 64, NDR 128, XDR 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Speeds(pub u16);

impl Speeds {
    /// No speed.
    pub const NONE: Speeds = Speeds(0);
    /// 2.5 Gb/s
    pub const SDR: Speeds = Speeds(1);
    /// 5 Gb/s
    pub const DDR: Speeds = Speeds(2);
    /// 10 Gb/s
    pub const QDR: Speeds = Speeds(4);
    /// 10.3125 Gb/s
    pub const FDR10: Speeds = Speeds(8);
    /// 14.0625 Gb/s
    pub const FDR: Speeds = Speeds(16);
    /// 25.78125 Gb/s
    pub const EDR: Speeds = Speeds(32);
    /// 53.125 Gb/s
    pub const HDR: Speeds = Speeds(64);
    /// 106.25 Gb/s
    pub const NDR: Speeds = Speeds(128);
    /// 212.5 Gb/s
    pub const XDR: Speeds = Speeds(256);
    /// All that the specification names: all but FDR10, which is a vendor's.
    pub const ALL: Speeds = Speeds(0x1f7);

    /// Speed, name, bits of data per second and lane: the rate on the wire less its line coding.
    const TABLE: [(Speeds, &'static str, u64); 9] = [
        (Speeds::XDR, "XDR", 200_000_000_000),
        (Speeds::NDR, "NDR", 100_000_000_000),
        (Speeds::HDR, "HDR", 50_000_000_000),
        (Speeds::EDR, "EDR", 25_000_000_000),
        (Speeds::FDR, "FDR", 13_636_363_636),
        (Speeds::FDR10, "FDR10", 10_000_000_000),
        (Speeds::QDR, "QDR", 8_000_000_000),
        (Speeds::DDR, "DDR", 4_000_000_000),
        (Speeds::SDR, "SDR", 2_000_000_000),
    ];

    /// The speeds in both sets.
    #[must_use]
    pub const fn and(self, other: Speeds) -> Speeds {
        Speeds(self.0 & other.0)
    }

    /// The speeds in either set.
    #[must_use]
    pub const fn or(self, other: Speeds) -> Speeds {
        Speeds(self.0 | other.0)
    }

    /// All speeds of the specification up to the greatest of this set.
    #[must_use]
    pub const fn and_slower(self) -> Speeds {
        if self.0 == 0 {
            return Speeds::NONE;
        }
        let top = 15 - self.0.leading_zeros();
        Speeds(((2u32 << top) - 1) as u16 & Speeds::ALL.0 | self.0)
    }

    /// The greatest speed of the set; `NONE` if there is none.
    #[must_use]
    pub fn greatest(self) -> Speeds {
        Self::TABLE
            .iter()
            .find(|(s, ..)| self.0 & s.0 != 0)
            .map_or(Speeds::NONE, |(s, ..)| *s)
    }

    /// The smallest speed of the set; `NONE` if there is none.
    #[must_use]
    pub fn smallest(self) -> Speeds {
        Self::TABLE
            .iter()
            .rfind(|(s, ..)| self.0 & s.0 != 0)
            .map_or(Speeds::NONE, |(s, ..)| *s)
    }

    /// Data rate of one lane at the greatest speed, bits per second after line coding.
    pub fn lane_rate(self) -> u64 {
        Self::TABLE
            .iter()
            .find(|(s, ..)| self.0 & s.0 != 0)
            .map_or(0, |(.., r)| *r)
    }

    /// The speed with this name (`SDR` to `XDR`, any case).
    pub fn from_name(name: &str) -> Option<Speeds> {
        Self::TABLE
            .iter()
            .find(|(_, n, _)| n.eq_ignore_ascii_case(name))
            .map(|(s, ..)| *s)
    }

    /// The bits of PortInfo LinkSpeedSupported, -Enabled and -Active: SDR 1, DDR 2, QDR 4.
    pub const fn basic(self) -> u8 {
        self.0 as u8 & 7
    }

    /// The bits of PortInfo LinkSpeedExtSupported, -Enabled and -Active: FDR 1, EDR 2, HDR 4, NDR 8.
    pub const fn ext(self) -> u8 {
        (self.0 >> 4) as u8 & 0xf
    }

    /// The set with these [`Speeds::basic`] bits and [`Speeds::ext`] bits; the rest is taken from `self`.
    #[must_use]
    pub const fn with(self, basic: u8, ext: u8) -> Speeds {
        Speeds(self.0 & !0xf7 | (basic & 7) as u16 | ((ext & 0xf) as u16) << 4)
    }
}

impl fmt::Display for Speeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(
            f,
            Self::TABLE
                .iter()
                .rev()
                .filter(|(s, ..)| self.0 & s.0 != 0)
                .map(|(_, n, _)| (*n, "")),
        )
    }
}

/// Items with a unit behind each, `/` between; `none` for an empty list.
fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl Iterator<Item = (T, &'static str)>,
) -> fmt::Result {
    let mut first = true;
    for (item, unit) in items {
        let sep = if first { "" } else { "/" };
        write!(f, "{sep}{item}{unit}")?;
        first = false;
    }
    if first {
        f.write_str("none")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greatest_by_lanes_not_by_bit() {
        assert_eq!(Widths(0x13).greatest(), Widths::X4);
        assert_eq!(Widths(0x11).greatest(), Widths::X2);
        assert_eq!(Widths::ALL.lanes(), 12);
        assert_eq!(Widths::NONE.greatest(), Widths::NONE);
        assert_eq!(Widths::from_lanes(8), Some(Widths::X8));
        assert_eq!(Widths::from_lanes(3), None);
    }

    #[test]
    fn speeds_split_into_port_info_fields() {
        assert_eq!(Speeds::ALL.basic(), 7);
        assert_eq!(Speeds::ALL.ext(), 0xf);
        assert_eq!(Speeds::NDR.ext(), 8);
        assert_eq!(Speeds::XDR.with(1, 2), Speeds(0x121));
        assert_eq!(Speeds::ALL.greatest(), Speeds::XDR);
        assert_eq!(Speeds::EDR.and_slower(), Speeds(0x37));
        assert_eq!(Speeds::NONE.and_slower(), Speeds::NONE);
        assert_eq!(Speeds::from_name("hdr"), Some(Speeds::HDR));
    }

    #[test]
    fn names() {
        assert_eq!(Widths(0x13).to_string(), "1x/2x/4x");
        assert_eq!(Speeds(0x21).to_string(), "SDR/EDR");
        assert_eq!(Speeds::NONE.to_string(), "none");
    }
}
