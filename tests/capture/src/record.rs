// SPDX-License-Identifier: GPL-2.0-or-later
//! The records of a capture file: pcap records that hold ERF records.

use std::io::{self, Read};

use crate::CheckError;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ERF: u32 = 197;
const PCAP_HEADER: usize = 16;
const ERF_HEADER: usize = 16;
const ERF_INFINIBAND: u8 = 21;
const ERF_INFINIBAND_LINK: u8 = 25;
/// Most bytes of a record, by the file's own header.
const SNAPLEN: u32 = 65535;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Data,
    Link,
}

/// What comes next in the file.
pub(crate) enum Next<'a> {
    Record(Content, &'a [u8]),
    /// The file does not go on sensibly; the text says why.
    Broken(String),
    End,
}

/// A file, read record by record.
pub(crate) struct Records<R> {
    input: R,
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// Reads until the buffer is full or the file ends; gives what was read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match input.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(have)
}

fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

impl<R: Read> Records<R> {
    /// Reads the header of the file.
    pub(crate) fn open(mut input: R) -> Result<Self, CheckError> {
        let mut h = [0; 24];
        let have = fill(&mut input, &mut h)?;
        if have < h.len() {
            let what = format!("the file has {have} bytes, too few for a header");
            return Err(CheckError::Format(what));
        }
        let (magic, link) = (le32(&h, 0), le32(&h, 20));
        if magic != MAGIC_NANOSECONDS {
            let what = format!("the file begins with {magic:#010x}");
            return Err(CheckError::Format(what));
        }
        if link != LINKTYPE_ERF {
            return Err(CheckError::Format(format!("the link type is {link}")));
        }
        Ok(Records {
            input,
            number: 1,
            offset: h.len() as u64,
            bytes: Vec::new(),
        })
    }

    /// Number of the next record, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Where the next record begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads a record.
    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        let mut h = [0; PCAP_HEADER];
        match fill(&mut self.input, &mut h)? {
            0 => return Ok(Next::End),
            PCAP_HEADER => {}
            have => {
                let what = format!("the file ends after {have} bytes of a record header");
                return Ok(Next::Broken(what));
            }
        }
        let (nanoseconds, kept, whole) = (le32(&h, 4), le32(&h, 8), le32(&h, 12));
        if nanoseconds >= 1_000_000_000 {
            let what = format!("a time with {nanoseconds} nanoseconds");
            return Ok(Next::Broken(what));
        }
        if kept != whole || kept < ERF_HEADER as u32 || kept > SNAPLEN {
            let what = format!("a record keeps {kept} bytes of {whole}");
            return Ok(Next::Broken(what));
        }
        self.bytes.resize(kept as usize, 0);
        let have = fill(&mut self.input, &mut self.bytes)?;
        if have < self.bytes.len() {
            let what = format!("the file ends after {have} of {kept} bytes of a record");
            return Ok(Next::Broken(what));
        }
        self.number += 1;
        self.offset += (PCAP_HEADER + self.bytes.len()) as u64;
        let (erf, packet) = self.bytes.split_at(ERF_HEADER);
        // The top bit of the type tells of extension headers, which no tap writes.
        let content = match erf[8] {
            ERF_INFINIBAND => Content::Data,
            ERF_INFINIBAND_LINK => Content::Link,
            other => return Ok(Next::Broken(format!("ERF type {other}, expected 21 or 25"))),
        };
        let (record, wire) = (u32::from(be16(erf, 10)), usize::from(be16(erf, 14)));
        if record != kept || wire != packet.len() {
            let what = format!(
                "ERF says {record} bytes of record and {wire} of packet, there are {kept} and {}",
                packet.len()
            );
            return Ok(Next::Broken(what));
        }
        Ok(Next::Record(content, packet))
    }
}
