// SPDX-License-Identifier: GPL-2.0-or-later
//! A checker of captures: reads the file that a port's tap writes and holds every packet in it to the
//! rules of its format.
//!
//! - [`check`]: a whole file, record by record.
//! - [`packet`]: what makes one packet well-formed.

#![forbid(unsafe_code)]

pub mod packet;
mod record;

use std::collections::BTreeMap;
use std::io::{self, Read};

use record::{Content, Next, Records};

/// Faults that are kept with their position; further ones are only counted.
const KEPT: usize = 20;

/// Why there is nothing to check.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The file cannot be read.
    #[error("cannot read the capture: {0}")]
    Io(#[from] io::Error),
    /// The file is not a capture of a port.
    #[error("{0}; expected a little-endian pcap file with nanoseconds and link type 197 (ERF)")]
    Format(String),
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Record of the file, counted from 1 as packet analysers do.
    pub record: u64,
    /// Where the record begins in the file, bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// What was found in a capture.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Data packets.
    pub packets: u64,
    /// Link packets.
    pub link_packets: u64,
    /// Bytes of all packets, LRH to VCRC.
    pub bytes: u64,
    /// Data packets by the name of their opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Number of faults.
    pub faults: u64,
    /// The first of them.
    pub first: Vec<Fault>,
}

impl Report {
    /// Whether there were packets, and no faults.
    pub fn is_well(&self) -> bool {
        self.packets > 0 && self.faults == 0
    }

    fn fault(&mut self, record: u64, offset: u64, what: String) {
        self.faults += 1;
        if self.first.len() < KEPT {
            self.first.push(Fault {
                record,
                offset,
                what,
            });
        }
    }
}

/// Reads a capture to its end and checks every record in it.
///
/// A record whose lengths contradict each other ends the check, because nothing says where the next
/// one begins; that, and a file that ends inside a record, are faults.
pub fn check(input: impl Read) -> Result<Report, CheckError> {
    let mut records = Records::open(input)?;
    let mut report = Report::default();
    loop {
        let (number, offset) = (records.number(), records.offset());
        match records.next()? {
            Next::End => return Ok(report),
            Next::Broken(what) => {
                report.fault(number, offset, what);
                return Ok(report);
            }
            Next::Record(Content::Data, bytes) => {
                report.packets += 1;
                report.bytes += bytes.len() as u64;
                match packet::check_data(bytes) {
                    Ok(opcode) => {
                        let name = format!("{:?} {:?}", opcode.transport, opcode.op);
                        *report.opcodes.entry(name).or_default() += 1;
                    }
                    Err(e) => report.fault(number, offset, e.to_string()),
                }
            }
            Next::Record(Content::Link, bytes) => {
                report.link_packets += 1;
                if let Err(e) = packet::check_link(bytes) {
                    report.fault(number, offset, e.to_string());
                }
            }
        }
    }
}
