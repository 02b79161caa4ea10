// SPDX-License-Identifier: GPL-2.0-or-later
//! A cable between two processes: rings in shared memory, set up over a Unix socket.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use crate::cable::{Cable, CableError, Frame, Presence};
use crate::time::Time;

/// How an end is made; both ends must agree on all but the path's spelling.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// Socket path. The first end to come listens there (a file `<path>.lock` beside it tells who),
    /// the other connects.
    pub path: PathBuf,
    /// Bytes of the ring of one direction, a power of two from 64 KiB to 64 MiB.
    pub ring_bytes: usize,
    /// Whether packets carry CRCs, see [`crate::PortConfig::crc`].
    pub crc: bool,
}

impl ShmConfig {
    /// Rings of the default size at `path`, with CRCs.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        ShmConfig {
            path: path.into(),
            ring_bytes: 4 << 20,
            crc: true,
        }
    }
}

/// Why an end cannot be made or connected. The text says what was wrong and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The configuration is out of range.
    #[error("{0}")]
    Config(String),
    /// The two ends do not agree; this end tries again after a while.
    #[error("link {path}: {what}", path = .path.display())]
    Mismatch {
        /// Socket path.
        path: PathBuf,
        /// What differs, ours and theirs.
        what: String,
    },
    /// A system call failed.
    #[error("link {path}: cannot {what}: {source}", path = .path.display())]
    System {
        /// Socket path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The error.
        source: std::io::Error,
    },
}

/// One end of a cable in shared memory.
///
/// Two descriptors, the same for the life of the cable whatever the peer does, are to be watched for
/// reading: [`ShmCable::data_fd`] with [`ShmCable::on_data`], [`ShmCable::control_fd`] with
/// [`ShmCable::on_control`]; after either the port is polled.
pub struct ShmCable {}

impl ShmCable {
    /// An end without a peer yet; the first [`Cable::poll`] starts to look for it. Fails if the
    /// configuration is bad or descriptors cannot be made.
    pub fn new(config: ShmConfig) -> Result<Self, ShmError> {
        let _ = config;
        unimplemented!()
    }

    /// Readable when the peer has woken this end.
    pub fn data_fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// Readable when the connection needs attention.
    pub fn control_fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// Takes the wake-up in.
    pub fn on_data(&mut self) {
        unimplemented!()
    }

    /// Goes on with the connection; never blocks.
    pub fn on_control(&mut self, now: Time) {
        let _ = now;
        unimplemented!()
    }

    /// The last problem not yet taken, for a message to the user.
    pub fn take_error(&mut self) -> Option<ShmError> {
        unimplemented!()
    }
}

impl Cable for ShmCable {
    fn poll(&mut self, _now: Time) {
        unimplemented!()
    }
    fn next_deadline(&self) -> Option<Time> {
        unimplemented!()
    }
    fn presence(&self) -> Presence {
        unimplemented!()
    }
    fn tx_reserve(&mut self, _frame: Frame, _bytes: usize) -> Result<&mut [u8], CableError> {
        unimplemented!()
    }
    fn tx_slot(&mut self) -> &mut [u8] {
        unimplemented!()
    }
    fn tx_commit(&mut self) {
        unimplemented!()
    }
    fn tx_mark_bad(&mut self) {
        unimplemented!()
    }
    fn rx_next(&mut self) -> Option<(Frame, usize)> {
        unimplemented!()
    }
    fn rx_bytes(&self) -> &[u8] {
        unimplemented!()
    }
    fn rx_release(&mut self) {
        unimplemented!()
    }
    fn flush(&mut self) {
        unimplemented!()
    }
    fn arm(&mut self, _wake: crate::cable::Wake) -> bool {
        unimplemented!()
    }
}
