// SPDX-License-Identifier: GPL-2.0-or-later
//! Follows the kernel log.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use super::port::Port;
use crate::proto::{Record, Report};

/// Records sent in one message at most.
const BATCH: usize = 200;

/// Sends all records of the log, from the oldest kept one, as they appear.
pub(super) fn stream(port: &Port) -> io::Result<()> {
    let mut log = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open("/dev/kmsg")?;
    let mut record = vec![0; 8192];
    let mut records = Vec::new();
    loop {
        let drained = match log.read(&mut record) {
            Ok(n) => {
                records.extend(parse(&record[..n]));
                false
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            // The record was overwritten before it was read; the next read goes on behind it.
            Err(error) if error.raw_os_error() == Some(nix::libc::EPIPE) => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(error) => return Err(error),
        };
        if records.len() >= BATCH || (drained && !records.is_empty()) {
            port.send(&Report::Dmesg {
                records: std::mem::take(&mut records),
            })?;
        }
        if drained {
            let mut waiting = [PollFd::new(log.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Reads `priority,sequence,microseconds,flags;text` and leaves out the lines of variables below.
fn parse(bytes: &[u8]) -> Option<Record> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let usec = fields.nth(1)?.parse().ok()?;
    Some(Record {
        level: (priority & 7) as u8,
        usec,
        text: body.lines().next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_and_its_variables_are_not() {
        let record = parse(b"6,339,5140900,-;NET: registered\n SUBSYSTEM=net\n").unwrap();
        assert_eq!(
            record,
            Record {
                level: 6,
                usec: 5_140_900,
                text: "NET: registered".into()
            }
        );
    }

    #[test]
    fn the_facility_is_not_part_of_the_level() {
        assert_eq!(parse(b"30,1,2,-;from user space").unwrap().level, 6);
    }

    #[test]
    fn nonsense_is_no_record() {
        assert_eq!(parse(b"nothing of the kind"), None);
        assert_eq!(parse(b"6,1;short"), None);
    }
}
