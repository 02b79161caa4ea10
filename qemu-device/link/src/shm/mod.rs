// SPDX-License-Identifier: GPL-2.0-or-later
//! A cable between two processes: rings in shared memory, set up over a Unix socket.
//!
//! The first end to come listens on the socket, the other connects. After the handshake the socket
//! only shows whether the peer lives: frames go through the rings, and an eventfd wakes an end that
//! sleeps. When the peer dies or hangs up, the cable is down, and the end that had connected tries
//! anew, so that it becomes the listener itself if need be.
//!
//! A peer can break only its own link: sizes are sealed, indices checked, descriptors verified. One
//! thing is left to its good will: an eventfd belongs to both processes, and one that makes its own
//! blocking again and fills its counter can make this end wait in a wake-up.

mod hello;
mod ring;
mod socket;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::epoll;

use crate::cable::{Cable, CableError, Frame, Presence, Wake, MAX_FRAME};
use crate::time::Time;

use hello::{Hello, Message};
use ring::Rings;
use socket::{Connect, Listener, Received};

/// Before the next attempt when another end is about to listen.
const RETRY_SOON: Duration = Duration::from_millis(10);
/// Before the next attempt after a failure.
const RETRY_LATER: Duration = Duration::from_secs(1);
/// Time that the peer has for its hello.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Sizes of a ring.
const RING_LEAST: usize = 64 << 10;
const RING_MOST: usize = 64 << 20;

/// How an end is made; both ends must agree on all but the path's spelling.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// Socket path, at most 107 bytes. The first end to come listens there (a file `<path>.lock`
    /// beside it tells who), the other connects.
    pub path: PathBuf,
    /// Bytes of the ring of one direction, a power of two from 64 KiB to 64 MiB.
    pub ring_bytes: usize,
    /// Whether packets carry CRCs, see [`crate::PortConfig::crc`].
    pub crc: bool,
}

impl ShmConfig {
    /// Rings of 4 MiB at `path`, with CRCs.
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
    /// The two ends do not agree, or the peer is not what it should be; this end tries again after a
    /// while.
    #[error("link {path}: {what}", path = .path.display())]
    Mismatch {
        /// Socket path.
        path: PathBuf,
        /// What differs, ours and theirs.
        what: String,
    },
    /// A system call failed; this end tries again after a while.
    #[error("link {path}: cannot {what}: {source}", path = .path.display())]
    System {
        /// Socket path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

/// A connection.
struct Connection {
    socket: OwnedFd,
    /// This end listened: the memory is its own.
    first: bool,
    /// The memory, until the peer's hello has come.
    memory: Option<OwnedFd>,
    give_up_at: Option<Time>,
}

/// What a working connection has.
struct Line {
    rings: Rings,
    /// Wakes the peer.
    peer: OwnedFd,
}

/// One end of a cable in shared memory.
///
/// Two descriptors, the same for the life of the cable whatever the peer does, are to be watched for
/// reading: [`ShmCable::data_fd`] with [`ShmCable::on_data`], [`ShmCable::control_fd`] with
/// [`ShmCable::on_control`]; after either the port is polled.
pub struct ShmCable {
    config: ShmConfig,
    eventfd: OwnedFd,
    epoll: OwnedFd,
    listener: Option<Listener>,
    connection: Option<Connection>,
    line: Option<Line>,
    generation: u32,
    retry_at: Option<Time>,
    now: Time,
    error: Option<ShmError>,
}

impl ShmCable {
    /// An end without a peer yet; the first [`Cable::poll`] starts to look for it. Fails if the
    /// configuration is bad or descriptors cannot be made.
    pub fn new(config: ShmConfig) -> Result<Self, ShmError> {
        let ring = config.ring_bytes;
        if !ring.is_power_of_two() || !(RING_LEAST..=RING_MOST).contains(&ring) {
            return Err(ShmError::Config(format!(
                "ring of {ring} bytes, expected a power of two from {RING_LEAST} to {RING_MOST}"
            )));
        }
        if socket::check_path(&config.path).is_err() || config.path.as_os_str().is_empty() {
            return Err(ShmError::Config(format!(
                "link path {:?} cannot be a socket address, expected 1 to 107 bytes",
                config.path
            )));
        }
        let system = |what| {
            let path = config.path.clone();
            move |source: io::Error| ShmError::System { path, what, source }
        };
        let eventfd = socket::new_eventfd().map_err(system("make an eventfd"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| system("make an epoll descriptor")(e.into()))?;
        Ok(ShmCable {
            config,
            eventfd,
            epoll,
            listener: None,
            connection: None,
            line: None,
            generation: 0,
            retry_at: Some(Time::ZERO),
            now: Time::ZERO,
            error: None,
        })
    }

    /// Readable when the peer has woken this end.
    pub fn data_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    /// Readable when the connection needs attention.
    pub fn control_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Takes the wake-up in.
    pub fn on_data(&mut self) {
        socket::reset(&self.eventfd);
    }

    /// Goes on with the connection; never blocks.
    pub fn on_control(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.accept();
        self.receive();
    }

    /// The last problem not yet taken, for a message to the user.
    pub fn take_error(&mut self) -> Option<ShmError> {
        self.error.take()
    }

    fn fail(&mut self, what: &'static str, source: io::Error) {
        self.error = Some(ShmError::System {
            path: self.config.path.clone(),
            what,
            source,
        });
    }

    fn mismatch(&mut self, what: String) {
        self.error = Some(ShmError::Mismatch {
            path: self.config.path.clone(),
            what,
        });
    }

    fn watch(&mut self, socket: &OwnedFd) -> bool {
        let data = epoll::EventData::new_u64(0);
        match epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN) {
            Ok(()) => true,
            Err(e) => {
                self.fail("watch a socket", e.into());
                false
            }
        }
    }

    /// Looks for a listener, or becomes one.
    fn look_for_peer(&mut self) {
        self.retry_at = None;
        match socket::connect_to(&self.config.path) {
            Ok(Connect::Peer(socket)) => self.greet(socket, false),
            Ok(Connect::Busy) => self.retry_at = Some(self.now + RETRY_SOON),
            Ok(Connect::Nobody) => self.listen(),
            Err(e) => {
                self.fail("connect", e);
                self.retry_at = Some(self.now + RETRY_LATER);
            }
        }
    }

    fn listen(&mut self) {
        match Listener::new(&self.config.path) {
            Ok(Some(listener)) => {
                let data = epoll::EventData::new_u64(1);
                match epoll::add(&self.epoll, listener.fd(), data, epoll::EventFlags::IN) {
                    Ok(()) => self.listener = Some(listener),
                    Err(e) => {
                        self.fail("watch a socket", e.into());
                        self.retry_at = Some(self.now + RETRY_LATER);
                    }
                }
            }
            Ok(None) => self.retry_at = Some(self.now + RETRY_SOON),
            Err(e) => {
                self.fail("listen", e);
                self.retry_at = Some(self.now + RETRY_LATER);
            }
        }
    }

    /// Takes connections that have come: the first becomes the peer, others are told so.
    fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok(Some(socket)) if self.connection.is_none() => self.greet(socket, true),
                Ok(Some(socket)) => {
                    let why = hello::refusal("this end of the link has a peer already");
                    // Whether it hears the reason is its business.
                    let _ = socket::send(&socket, &why, &[]);
                }
                Ok(None) => break,
                Err(e) => {
                    self.fail("accept a connection", e);
                    break;
                }
            }
        }
    }

    /// Sends the hello on a new connection.
    fn greet(&mut self, socket: OwnedFd, first: bool) {
        let mut memory = None;
        if first {
            match socket::new_memory(ring::memory_bytes(self.config.ring_bytes)) {
                Ok(m) => memory = Some(m),
                Err(e) => return self.fail("make shared memory", e),
            }
        }
        let mut fds = vec![self.eventfd.as_fd()];
        fds.extend(memory.as_ref().map(|m| m.as_fd()));
        let hello = Hello::of(&self.config).to_bytes();
        match socket::send(&socket, &hello, &fds) {
            Ok(()) => {}
            // It has hung up already; its reason may wait to be read.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) => {}
            Err(e) => {
                self.fail("send a hello", e);
                self.retry_unless_listening();
                return;
            }
        }
        if !self.watch(&socket) {
            self.retry_unless_listening();
            return;
        }
        self.connection = Some(Connection {
            socket,
            first,
            memory,
            give_up_at: Some(self.now + HELLO_LIMIT),
        });
        // The peer's hello may be there already.
        self.receive();
    }

    fn retry_unless_listening(&mut self) {
        if self.listener.is_none() {
            self.retry_at = Some(self.now + RETRY_LATER);
        }
    }

    /// Reads what the peer says.
    fn receive(&mut self) {
        while let Some(connection) = &self.connection {
            match socket::receive(&connection.socket) {
                Ok(Received::Nothing) => break,
                Ok(Received::Closed) => {
                    let was_up = self.line.is_some();
                    self.hang_up();
                    if self.listener.is_none() {
                        // A peer that had worked has gone: its place may be free at once.
                        let wait = if was_up { Duration::ZERO } else { RETRY_LATER };
                        self.retry_at = Some(self.now + wait);
                    }
                }
                Ok(Received::Message(bytes, fds)) => {
                    if let Err(why) = self.message(&bytes, fds) {
                        self.refuse(why);
                    }
                }
                Err(e) => {
                    self.fail("read from the peer", e);
                    self.hang_up();
                    self.retry_unless_listening();
                }
            }
        }
    }

    /// Handles a message; an error is a reason to refuse the peer.
    fn message(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), String> {
        if self.line.is_some() {
            return Err("the peer spoke after the handshake".to_owned());
        }
        let peer = match hello::read(bytes) {
            Message::Hello(peer) => peer,
            Message::Refusal(why) => {
                return Err(format!("the peer refuses the connection: {why}"));
            }
            Message::Unknown => {
                return Err("what answers there is no end of a link".to_owned());
            }
        };
        if let Some(what) = Hello::of(&self.config).differs(&peer) {
            return Err(what);
        }
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let first = connection.first;
        let ring_bytes = self.config.ring_bytes;
        let mut fds = fds.into_iter();
        let eventfd = fds.next().ok_or("the peer sent no eventfd")?;
        socket::check_eventfd(&eventfd)?;
        let memory = match connection.memory.take() {
            Some(memory) => memory,
            None => {
                let memory = fds.next().ok_or("the peer sent no memory")?;
                socket::check_memory(&memory, ring::memory_bytes(ring_bytes))?;
                memory
            }
        };
        connection.give_up_at = None;
        let rings = Rings::map(memory, ring_bytes, first)
            .map_err(|e| format!("cannot map the shared memory: {e}"))?;
        self.line = Some(Line {
            rings,
            peer: eventfd,
        });
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// Tells the peer why it is not wanted, and the user too.
    fn refuse(&mut self, why: String) {
        if let Some(connection) = &self.connection {
            let _ = socket::send(&connection.socket, &hello::refusal(&why), &[]);
        }
        self.mismatch(why);
        self.hang_up();
        self.retry_unless_listening();
    }

    fn hang_up(&mut self) {
        self.line = None;
        if let Some(connection) = self.connection.take() {
            // The peer may hold a copy, so closing alone might not end the watch.
            let _ = epoll::delete(&self.epoll, &connection.socket);
        }
    }

    /// Drops a peer that has left the rules of the rings.
    #[cold]
    fn look_at_broken(&mut self) {
        let broken = self.line.as_ref().and_then(|l| l.rings.broken());
        if let Some(broken) = broken {
            self.refuse(format!("the peer {} in the ring", broken.0));
        }
    }

    fn rings(&mut self) -> Option<&mut Rings> {
        self.line.as_mut().map(|l| &mut l.rings)
    }
}

impl Cable for ShmCable {
    fn poll(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self
            .line
            .as_ref()
            .is_some_and(|l| l.rings.broken().is_some())
        {
            self.look_at_broken();
        }
        if self.retry_at.is_some_and(|t| now >= t) && self.connection.is_none() {
            self.look_for_peer();
        }
        let late = self.connection.as_ref().and_then(|c| c.give_up_at);
        if late.is_some_and(|t| now >= t) {
            self.refuse("the peer does not answer".to_owned());
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let hello = self.connection.as_ref().and_then(|c| c.give_up_at);
        Time::earliest(self.retry_at, hello)
    }

    fn presence(&self) -> Presence {
        Presence {
            up: self.line.is_some(),
            generation: self.generation,
        }
    }

    #[inline]
    fn tx_reserve(&mut self, frame: Frame, bytes: usize) -> Result<&mut [u8], CableError> {
        if bytes == 0 || bytes > MAX_FRAME {
            return Err(CableError::Length(bytes));
        }
        let rings = self.rings().ok_or(CableError::Down)?;
        rings.reserve(frame, bytes).ok_or(CableError::Full)
    }

    #[inline]
    fn tx_slot(&mut self) -> &mut [u8] {
        self.rings().map_or(&mut [], Rings::slot)
    }

    #[inline]
    fn tx_commit(&mut self) {
        if let Some(rings) = self.rings() {
            rings.commit();
        }
    }

    #[inline]
    fn tx_mark_bad(&mut self) {
        if let Some(rings) = self.rings() {
            rings.mark_bad();
        }
    }

    #[inline]
    fn rx_next(&mut self) -> Option<(Frame, usize)> {
        self.rings()?.next()
    }

    #[inline]
    fn rx_bytes(&self) -> &[u8] {
        self.line.as_ref().map_or(&[], |l| l.rings.current())
    }

    #[inline]
    fn rx_release(&mut self) {
        if self.rings().is_some_and(Rings::release) {
            self.flush();
        }
    }

    #[inline]
    fn flush(&mut self) {
        if let Some(line) = &mut self.line {
            if line.rings.flush() {
                socket::signal(&line.peer);
            }
        }
    }

    fn arm(&mut self, wake: Wake) -> bool {
        self.flush();
        self.rings().is_none_or(|r| r.arm(wake))
    }

    fn disarm(&mut self) {
        if let Some(rings) = self.rings() {
            rings.disarm();
        }
    }
}
