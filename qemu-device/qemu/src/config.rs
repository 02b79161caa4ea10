// SPDX-License-Identifier: GPL-2.0-or-later

//! The properties of a device, checked.

use std::io;
use std::path::PathBuf;

use ochre_link::{ParseError, RuleSet, Speeds, Widths};

/// Most ports that a device has.
pub const MAX_PORTS: usize = 2;

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
    /// Lane speeds supported: the fastest and all that are slower.
    pub speeds: Speeds,
    /// Link widths supported: the widest and all that are narrower.
    pub widths: Widths,
}

/// Parses the fastest lane speed.
///
/// # Errors
/// A message that names the speeds there are.
pub fn speeds(fastest: &str) -> Result<Speeds, String> {
    match Speeds::from_name(fastest) {
        Some(speed) if Speeds::ALL.and(speed) == speed => Ok(speed.and_slower()),
        _ => Err(format!(
            "speed is '{fastest}'; it can be sdr, ddr, qdr, fdr, edr, hdr, ndr or xdr"
        )),
    }
}

/// Parses the widest link.
///
/// # Errors
/// A message that names the widths there are.
pub fn widths(widest: &str) -> Result<Widths, String> {
    let lanes = widest
        .to_ascii_lowercase()
        .strip_suffix('x')
        .and_then(|digits| digits.parse().ok());
    let lanes = match lanes {
        Some(lanes) if Widths::from_lanes(lanes).is_some() => lanes,
        _ => {
            return Err(format!(
                "width is '{widest}'; it can be 1x, 2x, 4x, 8x or 12x"
            ))
        }
    };
    Ok((1..=lanes)
        .filter_map(Widths::from_lanes)
        .fold(Widths::NONE, Widths::or))
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
    let value = if digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
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

/// Most bytes of a file of rules for wire faults.
const RULES_MOST: u64 = 1 << 20;

/// Parses rules for wire faults: the rules themselves, or `@` and the path of a file that has them.
///
/// # Errors
/// A message that says what is wrong, where, and what would be right.
pub fn faults(text: &str) -> Result<RuleSet, String> {
    let Some(path) = text.strip_prefix('@') else {
        return text.parse().map_err(|error: ParseError| error.to_string());
    };
    // Anything but a file could block.
    let read = || {
        let about = std::fs::metadata(path)?;
        if !about.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        if about.len() > RULES_MOST {
            return Err(io::Error::other(format!(
                "it has {} bytes, at most {RULES_MOST} can be rules",
                about.len()
            )));
        }
        std::fs::read_to_string(path)
    };
    let rules = read().map_err(|error| format!("cannot read rules from {path}: {error}"))?;
    rules
        .parse()
        .map_err(|error: ParseError| format!("{path}: {error}"))
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
    fn faults_come_as_text_or_from_a_file() {
        assert_eq!(faults("drop vl=0; ecn").map(|set| set.rules.len()), Ok(2));
        assert!(faults("drp")
            .unwrap_err()
            .starts_with("line 1, column 1: `drp`"));
        let path = std::env::temp_dir().join(format!("ochre-faults-{}", std::process::id()));
        let at = format!("@{}", path.display());
        std::fs::write(&path, "# two lines\ndrop psn=1..\n").unwrap();
        let error = faults(&at).unwrap_err();
        assert!(error.contains(": line 2, column 13: "), "{error}");
        std::fs::write(&path, "seed 3\ndrop psn=1..9\n").unwrap();
        assert_eq!(faults(&at).map(|set| set.seed), Ok(3));
        std::fs::remove_file(&path).unwrap();
        assert!(faults(&at).unwrap_err().starts_with("cannot read rules"));
        assert!(faults("@/").unwrap_err().ends_with("it is not a file"));
    }

    #[test]
    fn speeds_and_widths() {
        assert_eq!(speeds("QDR"), Ok(Speeds(0x7)));
        assert_eq!(speeds("xdr"), Ok(Speeds::ALL));
        assert!(speeds("fdr10").is_err());
        assert!(speeds("qsfp").unwrap_err().contains("it can be sdr"));
        assert_eq!(widths("1x"), Ok(Widths::X1));
        assert_eq!(widths("4x"), Ok(Widths::X1.or(Widths::X2).or(Widths::X4)));
        assert!(widths("3x").is_err());
        assert!(widths("4").is_err());
    }
}
