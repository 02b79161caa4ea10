// SPDX-License-Identifier: GPL-2.0-or-later
//! The socket of a link in shared memory: whoever comes to it, or waits there, says anything at any
//! time and passes any descriptors. The link is up only after a good hello, and keeps no descriptor.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ochre_link::{Cable, ShmCable, ShmConfig, Time};
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags, SealFlags};
use rustix::net::{
    accept_with, bind, connect, listen, recv, sendmsg, socket_with, socketpair, AddressFamily,
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};

use super::rings::{hello, Folder, MEMORY, RING};
use crate::bytes::{put_piece, Bytes};
use crate::note;

/// Most steps of an input.
const STEPS: usize = 64;
/// Most descriptors with a message.
const FDS: usize = 4;
const SAY: u8 = 0;
const COME: u8 = 1;
const WAIT: u8 = 2;
const LEAVE: u8 = 3;
const LISTEN: u8 = 4;

/// A kind of descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Eventfd,
    /// Memory as it must be.
    Memory,
    /// Memory that may shrink.
    Unsealed,
    /// Memory of another size.
    Small,
    Device,
    /// One end of a pair, whose other end tells when it is closed.
    Socket,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::Eventfd,
        Kind::Memory,
        Kind::Unsealed,
        Kind::Small,
        Kind::Device,
        Kind::Socket,
    ];

    /// The descriptor, and the other end of a pair.
    fn open(self, ends: &mut Vec<OwnedFd>) -> std::io::Result<OwnedFd> {
        let memory = |bytes, seals| {
            let fd = memfd_create("hello", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&fd, bytes)?;
            fcntl_add_seals(&fd, seals)?;
            Ok(fd)
        };
        match self {
            Kind::Eventfd => Ok(eventfd(0, EventfdFlags::CLOEXEC)?),
            Kind::Memory => memory(MEMORY, SealFlags::SHRINK),
            Kind::Unsealed => memory(MEMORY, SealFlags::GROW),
            Kind::Small => memory(MEMORY / 2, SealFlags::SHRINK),
            Kind::Device => Ok(File::open("/dev/zero")?.into()),
            Kind::Socket => {
                let (there, here) = socketpair(
                    AddressFamily::UNIX,
                    SocketType::SEQPACKET,
                    SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
                    None,
                )?;
                ends.push(here);
                Ok(there)
            }
        }
    }
}

fn new_socket() -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = AddressFamily::UNIX;
    Ok(socket_with(family, SocketType::SEQPACKET, flags, None)?)
}

/// Somebody at the socket.
struct Stranger {
    path: PathBuf,
    listener: Option<OwnedFd>,
    connection: Option<OwnedFd>,
    /// A hello that must be taken was said on some connection.
    was_good: bool,
    /// Other ends of what was passed.
    ends: Vec<OwnedFd>,
}

impl Stranger {
    /// Waits at the path for the link.
    fn listen(&mut self) -> std::io::Result<()> {
        let listener = new_socket()?;
        bind(&listener, &SocketAddrUnix::new(&self.path)?)?;
        listen(&listener, 1)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Connects to the link, or takes its connection, where there is one.
    fn come(&mut self) {
        if let Some(listener) = &self.listener {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            if let Ok(connection) = accept_with(listener, flags) {
                self.connection = Some(connection);
            }
            return;
        }
        let connection = new_socket().expect("a socket");
        let address = SocketAddrUnix::new(&self.path).expect("a short path");
        if connect(&connection, &address).is_ok() {
            self.connection = Some(connection);
        }
    }

    fn say(&mut self, bytes: &[u8], kinds: &[Kind]) {
        let Some(connection) = &self.connection else {
            return;
        };
        let opened: Vec<_> = kinds
            .iter()
            .map(|kind| kind.open(&mut self.ends).expect("a descriptor"))
            .collect();
        let fds: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let sent = sendmsg(
            connection,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        // The end that listens brings the memory.
        let is_good = is_hello(bytes)
            && kinds.first() == Some(&Kind::Eventfd)
            && (self.listener.is_none() || kinds.get(1) == Some(&Kind::Memory));
        self.was_good |= sent.is_ok() && is_good;
        // What it says is read, so that it may always say more.
        let mut words = [0; 512];
        while recv(connection, &mut words, RecvFlags::DONTWAIT).is_ok_and(|(n, _)| n > 0) {
            note(words[..8].to_vec());
        }
    }
}

/// Whether this is a hello that fits the link's: magic, version, CRCs and size of the rings.
fn is_hello(bytes: &[u8]) -> bool {
    bytes.len() >= 32
        && bytes[..10] == hello()[..10]
        && bytes[10] & 1 == 1
        && bytes[16..24] == RING.to_le_bytes()
}

/// Gives the other ends of what was passed; all else is closed.
fn talk(path: &Path, mut input: Bytes<'_>) -> Vec<OwnedFd> {
    let mut stranger = Stranger {
        path: path.to_owned(),
        listener: None,
        connection: None,
        was_good: false,
        ends: Vec::new(),
    };
    if input.u8() == LISTEN {
        stranger.listen().expect("the path is free");
    }
    let config = ShmConfig {
        ring_bytes: RING as usize,
        ..ShmConfig::new(path)
    };
    let mut cable = ShmCable::new(config).expect("a good configuration");
    let mut now = Time::ZERO;
    cable.poll(now);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        match input.u8() % 4 {
            SAY => {
                let count = usize::from(input.u8()) % (FDS + 1);
                let kinds: Vec<_> = (0..count)
                    .map(|_| Kind::ALL[usize::from(input.u8()) % Kind::ALL.len()])
                    .collect();
                let words = input.piece();
                stranger.say(&words[..words.len().min(300)], &kinds);
            }
            COME => stranger.come(),
            WAIT => now += Duration::from_millis(u64::from(input.u8()) * 16),
            LEAVE => stranger.connection = None,
            _ => unreachable!("a remainder"),
        }
        cable.on_control(now);
        cable.poll(now);
        let is_up = cable.presence().up;
        assert!(!is_up || stranger.was_good, "up without a good hello");
        note((is_up, stranger.was_good));
        if let Some(error) = cable.take_error() {
            note(error.to_string().len());
        }
    }
    stranger.ends
}

pub(super) fn run(input: &[u8]) {
    let folder = Folder::new("handshake");
    let ends = talk(&folder.0.join("link"), Bytes::new(input));
    for end in ends {
        let closed = recv(&end, &mut [0; 8], RecvFlags::DONTWAIT).is_ok_and(|(n, _)| n == 0);
        assert!(closed, "a descriptor is kept");
    }
}

/// Something said, with descriptors.
fn say(bytes: &[u8], kinds: &[Kind]) -> Vec<u8> {
    let mut step = vec![SAY, kinds.len() as u8];
    for kind in kinds {
        let index = Kind::ALL.iter().position(|k| k == kind);
        step.push(index.unwrap_or(0) as u8);
    }
    put_piece(&mut step, bytes);
    step
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let good = hello();
    let mut long = good.clone();
    long.extend([1; 300]);
    for first in [COME, LISTEN] {
        let talk = |steps: &[&[u8]]| {
            let mut seed = vec![first, COME];
            steps.iter().for_each(|step| seed.extend(*step));
            seed
        };
        for kinds in [
            &[][..],
            &[Kind::Eventfd],
            &[Kind::Memory],
            &[Kind::Eventfd, Kind::Memory],
            &[Kind::Eventfd, Kind::Unsealed],
            &[Kind::Eventfd, Kind::Small],
            &[Kind::Eventfd, Kind::Device],
            &[Kind::Socket, Kind::Memory],
            &[Kind::Eventfd, Kind::Memory, Kind::Socket, Kind::Device],
        ] {
            seeds.push(talk(&[&say(&good, kinds)]));
        }
        let both = [Kind::Eventfd, Kind::Memory];
        seeds.push(talk(&[&say(&long, &both), &say(b"more", &[]), &[LEAVE]]));
        seeds.push(talk(&[&say(b"OchreNo!because", &[]), &[WAIT, 255, COME]]));
        seeds.push(talk(&[&[WAIT, 255, WAIT, 255, LEAVE, COME]]));
        for at in [0, 8, 10, 16] {
            let mut wrong = good.clone();
            wrong[at] ^= 3;
            seeds.push(talk(&[&say(&wrong, &both), &[COME], &say(&good, &both)]));
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::take_notes;

    #[test]
    fn good_hellos_bring_the_link_up() {
        for first in [COME, LISTEN] {
            let mut input = vec![first, COME];
            input.extend(say(&hello(), &[Kind::Eventfd, Kind::Memory]));
            take_notes();
            run(&input);
            let notes = take_notes();
            note((true, true));
            assert!(notes.contains(&take_notes()[0]), "first step {first}");
        }
    }
}
