// SPDX-License-Identifier: GPL-2.0-or-later
//! The system calls of the handshake: the socket, its lock file, descriptors passed along.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{
    fcntl_add_seals, fcntl_get_seals, fcntl_setfl, flock, fstat, ftruncate, memfd_create,
    FlockOperation, MemfdFlags, OFlags, SealFlags,
};
use rustix::io::Errno;
use rustix::net::{
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with, AddressFamily,
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::hello::MESSAGE_MOST;

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Checks that the path fits a socket address.
pub(super) fn check_path(path: &Path) -> Result<(), Errno> {
    SocketAddrUnix::new(path).map(drop)
}

/// What an attempt to connect found.
pub(super) enum Connect {
    /// A listener.
    Peer(OwnedFd),
    /// Nobody listens.
    Nobody,
    /// A listener too busy to answer now.
    Busy,
}

pub(super) fn connect_to(path: &Path) -> io::Result<Connect> {
    let socket = new_socket()?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(Connect::Peer(socket)),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(Connect::Nobody),
        Err(Errno::AGAIN) => Ok(Connect::Busy),
        Err(e) => Err(e.into()),
    }
}

/// A listening socket and the lock that says whose the path is. Dropping it removes both files.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Listener {
    /// Listens on `path`, in place of a socket that a dead process left there. `None`: another
    /// process is about to.
    pub(super) fn new(path: &Path) -> io::Result<Option<Self>> {
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let Some(lock) = lock(&lock_path)? else {
            return Ok(None);
        };
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is a file that is not a socket",
                ))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let socket = new_socket()?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, 4)?;
        Ok(Some(Listener {
            socket,
            path: path.to_owned(),
            lock_path,
            _lock: lock,
        }))
    }

    /// The next connection, if there is one.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The lock is still held, so that these are ours; nothing can be done about a failure.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// Takes the lock file; `None` if somebody else has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    // Its owner may have removed it between opening and locking.
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(now) if (now.dev(), now.ino()) == (ours.dev(), ours.ino()) => Ok(Some(file)),
        _ => Ok(None),
    }
}

/// Sends a message with descriptors. Messages are small enough never to wait.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// What was found on a connection.
pub(super) enum Received {
    /// A message and its descriptors.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The peer has hung up.
    Closed,
}

pub(super) fn receive(socket: &OwnedFd) -> io::Result<Received> {
    // A peer that hangs up without reading shows as an error once; its last words come after it.
    match receive_once(socket) {
        Err(Errno::CONNRESET | Errno::PIPE) => match receive_once(socket) {
            Err(Errno::CONNRESET | Errno::PIPE) => Ok(Received::Closed),
            other => Ok(other?),
        },
        other => Ok(other?),
    }
}

fn receive_once(socket: &OwnedFd) -> Result<Received, Errno> {
    let mut bytes = vec![0; MESSAGE_MOST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    );
    match result {
        Ok(m) if m.bytes == 0 => Ok(Received::Closed),
        Ok(m) => {
            bytes.truncate(m.bytes);
            let mut fds = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    fds.extend(rights);
                }
            }
            Ok(Received::Message(bytes, fds))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
        Err(e) => Err(e),
    }
}

/// An eventfd that never blocks.
pub(super) fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}

/// Wakes whoever watches the eventfd. A full counter wakes as well, and a dead peer is noticed on the
/// socket, so errors do not matter.
pub(super) fn signal(eventfd: &OwnedFd) {
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}

/// Resets an eventfd.
pub(super) fn reset(eventfd: &OwnedFd) {
    let _ = rustix::io::read(eventfd, &mut [0u8; 8]);
}

/// Checks that a descriptor of the peer is an eventfd, and that writing to it does not block.
pub(super) fn check_eventfd(fd: &OwnedFd) -> Result<(), String> {
    use std::os::fd::AsRawFd;
    let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .map_err(|e| format!("cannot look at the peer's eventfd: {e}"))?;
    if link.as_os_str() != "anon_inode:[eventfd]" {
        return Err(format!(
            "the peer sent {} in place of an eventfd",
            link.display()
        ));
    }
    fcntl_setfl(fd, OFlags::NONBLOCK | OFlags::RDWR)
        .map_err(|e| format!("cannot set the peer's eventfd up: {e}"))
}

/// Memory for sharing whose size is fixed for good: access to it can never fail.
pub(super) fn new_memory(bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(
        "ochre-link",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    ftruncate(&fd, bytes as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Checks that memory of the peer has the right size and cannot lose it.
pub(super) fn check_memory(fd: &OwnedFd, bytes: usize) -> Result<(), String> {
    let size = fstat(fd)
        .map_err(|e| format!("cannot look at the peer's memory: {e}"))?
        .st_size;
    if size != bytes as i64 {
        return Err(format!(
            "the peer's memory has {size} bytes, expected {bytes}"
        ));
    }
    let seals =
        fcntl_get_seals(fd).map_err(|e| format!("the peer's memory is no memory file: {e}"))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err("the peer's memory is not sealed against shrinking".to_owned());
    }
    Ok(())
}
