// SPDX-License-Identifier: GPL-2.0-or-later
//! Capture of packets in ERF records that packet analysers read.
//!
//! The file is a pcap file with nanosecond times and link type 197 (ERF). Each record has an ERF
//! header of type 21 (InfiniBand) or 25 (InfiniBand link packet) and the bytes as they are on the
//! cable, from LRH to VCRC or LPCRC (link packets are padded with zeros to 8 bytes, without which
//! analysers take them for cut off). The ERF interface tells port and direction: 0 and 1 are sent and
//! received on the first port, 2 and 3 on the second. A packet that turns around inside a port shows
//! once as sent and once as received.

use core::time::Duration;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::time::Time;

/// Link type of ERF records in a pcap file.
const LINKTYPE_ERF: u32 = 197;
/// pcap with nanoseconds, in the byte order of the writer (here little-endian).
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const SNAPLEN: u32 = 65535;
const ERF_HEADER: usize = 16;
const ERF_INFINIBAND: u8 = 21;
const ERF_INFINIBAND_LINK: u8 = 25;
/// Records may have different lengths.
const ERF_FLAG_VARYING: u8 = 0x04;
/// Bytes of a recorded link packet.
const LINK_RECORD: usize = 8;
/// Least time between two flushes of an idle port.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
const BUFFER: usize = 256 << 10;

/// A capture file, shared by the ports of a device.
#[derive(Clone)]
pub struct Capture(Arc<Mutex<Inner>>);

struct Inner {
    out: BufWriter<Box<dyn Write + Send>>,
    flushed: Time,
    error: Option<io::Error>,
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent = 0,
    Received = 1,
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Data = ERF_INFINIBAND as isize,
    Link = ERF_INFINIBAND_LINK as isize,
}

impl Capture {
    /// Starts a file on `out` with its header.
    ///
    /// Records are buffered; [`Capture::flush`] writes them out, and so does dropping the last clone.
    /// A write that fails ends the capture, never the traffic; [`Capture::take_error`] has the reason.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(BUFFER, Box::new(out) as Box<dyn Write + Send>);
        let mut h = [0; 24];
        h[0..4].copy_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
        h[4..6].copy_from_slice(&2u16.to_le_bytes());
        h[6..8].copy_from_slice(&4u16.to_le_bytes());
        h[16..20].copy_from_slice(&SNAPLEN.to_le_bytes());
        h[20..24].copy_from_slice(&LINKTYPE_ERF.to_le_bytes());
        out.write_all(&h)?;
        out.flush()?;
        Ok(Capture(Arc::new(Mutex::new(Inner {
            out,
            flushed: Time::ZERO,
            error: None,
        }))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes buffered records out.
    pub fn flush(&self) {
        let mut inner = self.lock();
        if inner.error.is_none() {
            inner.error = inner.out.flush().err();
        }
    }

    /// Writes buffered records out if that was not done lately.
    pub(crate) fn flush_if_old(&self, now: Time) {
        let mut inner = self.lock();
        if now.since(inner.flushed) >= FLUSH_EVERY && inner.error.is_none() {
            inner.flushed = now;
            inner.error = inner.out.flush().err();
        }
    }

    /// Why the capture has ended, if it has. Told once; the capture stays ended.
    pub fn take_error(&self) -> Option<io::Error> {
        let mut inner = self.lock();
        let kind = inner.error.as_ref()?.kind();
        inner.error.replace(io::Error::from(kind))
    }

    fn record(&self, ns: u64, content: Content, interface: u8, packet: &[u8]) {
        let mut inner = self.lock();
        if inner.error.is_some() {
            return;
        }
        let mut h = [0; 16 + ERF_HEADER];
        let (sec, nsec) = ((ns / 1_000_000_000) as u32, (ns % 1_000_000_000) as u32);
        let len = packet.len().min(SNAPLEN as usize - ERF_HEADER);
        let pad = match content {
            Content::Link => LINK_RECORD.saturating_sub(len),
            Content::Data => 0,
        };
        let whole = (ERF_HEADER + len + pad) as u16;
        h[0..4].copy_from_slice(&sec.to_le_bytes());
        h[4..8].copy_from_slice(&nsec.to_le_bytes());
        h[8..12].copy_from_slice(&u32::from(whole).to_le_bytes());
        h[12..16].copy_from_slice(&u32::from(whole).to_le_bytes());
        // ERF: seconds and a binary fraction of 32 bits, little-endian; the rest is big-endian.
        let fraction = (u64::from(nsec) << 32) / 1_000_000_000;
        h[16..24].copy_from_slice(&(u64::from(sec) << 32 | fraction).to_le_bytes());
        h[24] = content as u8;
        h[25] = ERF_FLAG_VARYING | interface & 3;
        h[26..28].copy_from_slice(&whole.to_be_bytes());
        h[30..32].copy_from_slice(&((len + pad) as u16).to_be_bytes());
        let out = &mut inner.out;
        let result = out
            .write_all(&h)
            .and_then(|()| out.write_all(packet.get(..len).unwrap_or_default()))
            .and_then(|()| out.write_all([0; LINK_RECORD].get(..pad).unwrap_or_default()));
        inner.error = result.err();
    }
}

/// The tap of one port.
#[derive(Clone)]
pub struct Tap {
    /// Where to.
    pub capture: Capture,
    /// Number of the port within the capture, 0 or 1.
    pub port: u8,
    /// Link packets too.
    pub link_packets: bool,
    /// Wall-clock time of [`Time::ZERO`], nanoseconds since 1970.
    pub epoch_ns: u64,
}

impl Tap {
    pub(crate) fn record(&self, now: Time, content: Content, direction: Direction, packet: &[u8]) {
        if content == Content::Link && !self.link_packets {
            return;
        }
        let interface = (self.port & 1) << 1 | direction as u8;
        let ns = self.epoch_ns.saturating_add(now.as_nanos());
        self.capture.record(ns, content, interface, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in memory that the test keeps hold of.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, b: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(b);
            Ok(b.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, b: &[u8]) -> io::Result<usize> {
            if b.len() == 24 {
                return Ok(24);
            }
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_of_a_record() {
        let file = Shared::default();
        let tap = Tap {
            capture: Capture::new(file.clone()).unwrap(),
            port: 1,
            link_packets: false,
            epoch_ns: 1_700_000_000_000_000_000,
        };
        let now = Time(500_000_000);
        tap.record(now, Content::Data, Direction::Received, b"packet");
        tap.record(now, Content::Link, Direction::Received, b"linkpk");
        tap.capture.flush();
        let b = file.0.lock().unwrap().clone();
        assert_eq!(b.len(), 24 + 16 + 16 + 6);
        assert_eq!(b[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
        assert_eq!(b[20..24], 197u32.to_le_bytes());
        let r = &b[24..];
        assert_eq!(r[0..4], 1_700_000_000u32.to_le_bytes());
        assert_eq!(r[4..8], 500_000_000u32.to_le_bytes());
        assert_eq!(r[8..12], 22u32.to_le_bytes());
        // Half a second is the top bit of the fraction.
        assert_eq!(r[16..24], (1_700_000_000u64 << 32 | 1 << 31).to_le_bytes());
        assert_eq!(r[24..32], [21, 4 | 3, 0, 22, 0, 0, 0, 6]);
        assert_eq!(&r[32..], b"packet");
    }

    #[test]
    fn link_packets_are_padded() {
        let file = Shared::default();
        let tap = Tap {
            capture: Capture::new(file.clone()).unwrap(),
            port: 0,
            link_packets: true,
            epoch_ns: 0,
        };
        tap.record(Time::ZERO, Content::Link, Direction::Sent, b"linkpk");
        drop(tap);
        let b = file.0.lock().unwrap().clone();
        assert_eq!(b[24 + 8..24 + 12], 24u32.to_le_bytes());
        assert_eq!(b[24 + 24..24 + 32], [25, 4, 0, 24, 0, 0, 0, 8]);
        assert_eq!(&b[24 + 32..], b"linkpk\0\0");
    }

    #[test]
    fn a_full_disk_ends_the_capture_only() {
        let capture = Capture::new(Full).unwrap();
        for _ in 0..100 {
            capture.record(0, Content::Data, 0, &[0; 4096]);
        }
        capture.flush();
        let e = capture.take_error().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::StorageFull);
    }
}
