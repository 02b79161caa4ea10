// SPDX-License-Identifier: GPL-2.0-or-later

//! The properties of a device, checked.

use std::path::PathBuf;

/// Most ports that a device has.
pub const MAX_PORTS: usize = 2;

/// Signalling rate of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speed {
    /// 2.5 Gbit/s.
    Sdr,
    /// 5 Gbit/s.
    Ddr,
    /// 10 Gbit/s.
    Qdr,
    /// 14.0625 Gbit/s.
    Fdr,
    /// 25.78125 Gbit/s.
    Edr,
    /// 53.125 Gbit/s.
    Hdr,
    /// 106.25 Gbit/s.
    Ndr,
    /// 200 Gbit/s.
    Xdr,
}

/// A device's properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of ports, 1 or 2.
    pub ports: u8,
    /// Number of MSI-X vectors.
    pub vectors: u16,
    /// Whether ICRC and VCRC are computed and checked.
    pub crc: bool,
    /// Unix socket path of each port's link; none is a port without a cable.
    pub link: [Option<PathBuf>; MAX_PORTS],
    /// Node GUID.
    pub node_guid: u64,
    /// File that gets the packets, as ERF records.
    pub capture: Option<PathBuf>,
    /// Fastest lane speed.
    pub speed: Speed,
    /// Widest link, lanes: 1, 2, 4, 8 or 12.
    pub width: u8,
}

/// Parses a lane speed.
///
/// # Errors
/// A message that names the speeds there are.
pub fn speed(text: &str) -> Result<Speed, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "sdr" => Speed::Sdr,
        "ddr" => Speed::Ddr,
        "qdr" => Speed::Qdr,
        "fdr" => Speed::Fdr,
        "edr" => Speed::Edr,
        "hdr" => Speed::Hdr,
        "ndr" => Speed::Ndr,
        "xdr" => Speed::Xdr,
        _ => {
            return Err(format!(
                "speed is '{text}'; it can be sdr, ddr, qdr, fdr, edr, hdr, ndr or xdr"
            ))
        }
    })
}

/// Parses a link width, in lanes.
///
/// # Errors
/// A message that names the widths there are.
pub fn width(text: &str) -> Result<u8, String> {
    match text.to_ascii_lowercase().as_str() {
        "1x" | "1" => Ok(1),
        "2x" | "2" => Ok(2),
        "4x" | "4" => Ok(4),
        "8x" | "8" => Ok(8),
        "12x" | "12" => Ok(12),
        _ => Err(format!(
            "width is '{text}'; it can be 1x, 2x, 4x, 8x or 12x"
        )),
    }
}

/// Parses a node GUID: 16 hexadecimal digits, with or without `0x` and colons.
///
/// # Errors
/// A message that says what a GUID looks like.
pub fn guid(text: &str) -> Result<u64, String> {
    let digits: String = text
        .trim()
        .trim_start_matches("0x")
        .trim_start_matches("0X")
        .chars()
        .filter(|c| *c != ':')
        .collect();
    let value = if digits.len() == 16 {
        u64::from_str_radix(&digits, 16).ok()
    } else {
        None
    };
    match value {
        Some(0) => Err("node-guid is zero, which names no node".into()),
        Some(value) => Ok(value),
        None => Err(format!(
            "node-guid is '{text}'; it must be 16 hexadecimal digits, for example 0x0200c0ffee000001"
        )),
    }
}

/// A GUID for a device that was given none: locally administered, from the link's path and a number
/// that differs between the processes of a machine.
#[must_use]
pub fn default_guid(path: &str, process: u32) -> u64 {
    // FNV-1a; it spreads, and that is all that is asked of it.
    let hash = path
        .bytes()
        .chain(process.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    // EUI-64 with the local bit: 02-00-0c is the prefix of a made-up company.
    0x0200_0c00_0000_0000 | (hash & 0x0000_00ff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids() {
        assert_eq!(guid("0x0200c0ffee000001"), Ok(0x0200_c0ff_ee00_0001));
        assert_eq!(guid("02:00:c0:ff:ee:00:00:01"), Ok(0x0200_c0ff_ee00_0001));
        assert!(guid("0200c0ffee00000").is_err());
        assert!(guid("0200c0ffee00000g").is_err());
        assert!(guid("+200c0ffee000001").is_err());
        assert!(guid("0000000000000000").is_err());
    }

    #[test]
    fn default_guids_differ_by_path_and_process() {
        let one = default_guid("/a", 1);
        assert_ne!(one, default_guid("/b", 1));
        assert_ne!(one, default_guid("/a", 2));
        assert_eq!(one >> 40, 0x02_000c);
    }

    #[test]
    fn speeds_and_widths() {
        assert_eq!(speed("HDR"), Ok(Speed::Hdr));
        assert!(speed("qsfp").unwrap_err().contains("it can be sdr"));
        assert_eq!(width("4x"), Ok(4));
        assert!(width("3x").is_err());
    }
}
