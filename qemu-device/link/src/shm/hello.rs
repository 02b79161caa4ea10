// SPDX-License-Identifier: GPL-2.0-or-later
//! What two ends tell each other before they share memory.
//!
//! Both send a hello at once, with the eventfd that wakes them; the end that listened adds the
//! memory. Each compares the other's hello with its own. An end that does not want the other says why
//! in a refusal and hangs up.

use super::ShmConfig;

/// Version of the hello and of the layout of the rings.
const VERSION: u16 = 1;
const HELLO_MAGIC: [u8; 8] = *b"OchreLnk";
const REFUSAL_MAGIC: [u8; 8] = *b"OchreNo!";

/// Bytes of a hello: magic (8), version (2), flags (2, bit 0 CRCs), zero (4), ring size (8), zero (8);
/// numbers are little-endian.
pub(super) const HELLO_LEN: usize = 32;
/// Most bytes of any message.
pub(super) const MESSAGE_MOST: usize = 256;

const FLAG_CRC: u16 = 1;

/// A message of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The other end and what it wants.
    Hello(Hello),
    /// The other end does not want this one.
    Refusal(String),
    /// Bytes that no version of this program sends.
    Unknown,
}

/// What one end wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    version: u16,
    crc: bool,
    ring_bytes: u64,
}

impl Hello {
    pub(super) fn of(config: &ShmConfig) -> Self {
        Hello {
            version: VERSION,
            crc: config.crc,
            ring_bytes: config.ring_bytes as u64,
        }
    }

    pub(super) fn to_bytes(self) -> [u8; HELLO_LEN] {
        let mut b = [0; HELLO_LEN];
        b[..8].copy_from_slice(&HELLO_MAGIC);
        b[8..10].copy_from_slice(&self.version.to_le_bytes());
        b[10..12].copy_from_slice(&(u16::from(self.crc) * FLAG_CRC).to_le_bytes());
        b[16..24].copy_from_slice(&self.ring_bytes.to_le_bytes());
        b
    }

    /// What differs from `peer`; `None` if the two fit.
    pub(super) fn differs(&self, peer: &Hello) -> Option<String> {
        if self.version != peer.version {
            return Some(format!(
                "this end speaks version {} of the link protocol, the peer version {}; use the same \
                 build of the device on both sides",
                self.version, peer.version
            ));
        }
        if self.crc != peer.crc {
            let on = |crc| if crc { "on" } else { "off" };
            return Some(format!(
                "CRCs are {} here and {} at the peer; set them alike",
                on(self.crc),
                on(peer.crc)
            ));
        }
        (self.ring_bytes != peer.ring_bytes).then(|| {
            format!(
                "rings have {} bytes here and {} at the peer; set them alike",
                self.ring_bytes, peer.ring_bytes
            )
        })
    }
}

/// A refusal with its reason, cut to what fits.
pub(super) fn refusal(why: &str) -> Vec<u8> {
    let mut b = REFUSAL_MAGIC.to_vec();
    b.extend_from_slice(why.as_bytes());
    b.truncate(MESSAGE_MOST);
    b
}

/// Reads a message.
pub(super) fn read(b: &[u8]) -> Message {
    let u16_at = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
    let Some((magic, rest)) = b.split_first_chunk::<8>() else {
        return Message::Unknown;
    };
    if *magic == REFUSAL_MAGIC {
        let text: String = String::from_utf8_lossy(rest)
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        return Message::Refusal(text);
    }
    // A later version may add to the end; its version comes first in all of them.
    if *magic != HELLO_MAGIC || b.len() < HELLO_LEN {
        return Message::Unknown;
    }
    let mut ring = [0; 8];
    ring.copy_from_slice(&b[16..24]);
    Message::Hello(Hello {
        version: u16_at(8),
        crc: u16_at(10) & FLAG_CRC != 0,
        ring_bytes: u64::from_le_bytes(ring),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello::of(&ShmConfig::new("x"))
    }

    #[test]
    fn round_trip() {
        for crc in [true, false] {
            let h = Hello { crc, ..hello() };
            assert_eq!(read(&h.to_bytes()), Message::Hello(h));
        }
        assert_eq!(
            read(&refusal("no\nway")),
            Message::Refusal("noway".to_owned())
        );
        assert!(refusal(&"x".repeat(1000)).len() <= MESSAGE_MOST);
    }

    #[test]
    fn noise_is_unknown() {
        for b in [&b""[..], b"GET / HTTP/1.1\r\n", b"OchreLnk", &[0; 64]] {
            assert_eq!(read(b), Message::Unknown);
        }
    }

    #[test]
    fn every_difference_is_named() {
        let h = hello();
        assert_eq!(h.differs(&h), None);
        let cases = [
            (
                Hello { version: 2, ..h },
                "version 1 of the link protocol, the peer version 2",
            ),
            (
                Hello { crc: false, ..h },
                "CRCs are on here and off at the peer",
            ),
            (
                Hello {
                    ring_bytes: 65536,
                    ..h
                },
                "and 65536 at the peer",
            ),
        ];
        for (peer, text) in cases {
            let why = h.differs(&peer).unwrap();
            assert!(why.contains(text), "{why}");
        }
    }
}
