// SPDX-License-Identifier: GPL-2.0-or-later
//! A link in shared memory whose peer means harm: what it says in the handshake, and what it writes
//! into the rings at any time.

use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ochre_link::cable::MAX_FRAME;
use ochre_link::{Cable, Frame, ShmCable, ShmConfig, Time, Wake};
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags, SealFlags};
use rustix::net::{
    accept, bind, listen, sendmsg, socket, AddressFamily, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType,
};

use crate::bytes::{put_piece, Bytes};
use crate::note;

/// Bytes of a ring, the least there is; of a direction's control words; of all memory of a link.
pub(super) const RING: u64 = 64 << 10;
const CONTROL: u64 = 4096;
pub(super) const MEMORY: u64 = 2 * (CONTROL + RING);
/// Most steps of an input.
const STEPS: usize = 256;
/// The handshake is an honest one.
const HONEST: u8 = 0;
const PUT: u8 = 0;
const TAKE: u8 = 1;
const WORD: u8 = 2;
const ANY: u8 = 3;

/// A folder that goes away.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(target: &str) -> Self {
        static N: AtomicU32 = AtomicU32::new(0);
        let (process, n) = (std::process::id(), N.fetch_add(1, Ordering::Relaxed));
        let name = format!("ochre-fuzz-{target}-{process}-{n}");
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).expect("a temporary folder");
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is a temporary one; nothing depends on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The peer: it listens, and owns the memory.
struct Rogue {
    listener: OwnedFd,
    connection: Option<OwnedFd>,
    memory: File,
    wake: OwnedFd,
    /// Where its next frame goes.
    tail: u64,
}

impl Rogue {
    fn new(path: &PathBuf) -> std::io::Result<Self> {
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 1)?;
        let memory = memfd_create("rings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, MEMORY)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK)?;
        Ok(Rogue {
            listener,
            connection: None,
            memory: File::from(memory),
            wake: eventfd(0, EventfdFlags::NONBLOCK)?,
            tail: 0,
        })
    }

    /// Answers a connection that is there, with these bytes.
    fn answer(&mut self, hello: &[u8]) -> std::io::Result<()> {
        let connection = accept(&self.listener)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [self.wake.as_fd(), self.memory.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let hello = [IoSlice::new(hello)];
        sendmsg(&connection, &hello, &mut control, SendFlags::NOSIGNAL)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let room = MEMORY.saturating_sub(at) as usize;
        let bytes = &bytes[..bytes.len().min(room)];
        self.memory
            .write_all_at(bytes, at)
            .expect("inside the memory");
    }

    /// Sends a frame as an honest end does, but for what the caller makes of it.
    fn put(&mut self, kind: u8, bytes: &[u8]) {
        let stride = (8 + bytes.len() as u64).next_multiple_of(64);
        if self.tail % RING + stride > RING {
            return;
        }
        let at = CONTROL + self.tail % RING;
        let header = bytes.len() as u64 | u64::from(kind) << 32;
        self.write(at, &header.to_le_bytes());
        self.write(at + 8, bytes);
        self.tail += stride;
        self.write(0, &self.tail.to_le_bytes());
    }
}

/// The hello of an end with rings of this size, version 1 and CRCs.
pub(super) fn hello() -> Vec<u8> {
    let mut hello = b"OchreLnk".to_vec();
    hello.extend([1, 0, 1, 0, 0, 0, 0, 0]);
    hello.extend(RING.to_le_bytes());
    hello.extend([0; 8]);
    hello
}

/// Takes what the cable has received, at most as much as fits into a ring.
fn take(cable: &mut ShmCable) {
    for _ in 0..RING / 64 + 1 {
        let Some((frame, len)) = cable.rx_next() else {
            return;
        };
        assert!((1..=MAX_FRAME).contains(&len), "a frame of {len} bytes");
        assert_eq!(cable.rx_bytes().len(), len);
        note((frame as u8, len % 64 == 0));
        cable.rx_release();
    }
}

pub(super) fn run(input: &[u8]) {
    let folder = Folder::new("rings");
    let path = folder.0.join("link");
    let mut rogue = Rogue::new(&path).expect("sockets and memory");
    let config = ShmConfig {
        ring_bytes: RING as usize,
        ..ShmConfig::new(path)
    };
    let mut cable = ShmCable::new(config).expect("a good configuration");
    let mut now = Time::ZERO;
    cable.poll(now);
    let mut input = Bytes::new(input);
    if input.u8() == HONEST {
        rogue.answer(&hello()).expect("it has connected");
        cable.on_control(now);
        assert!(cable.presence().up, "an honest hello is taken");
    } else {
        let words = input.piece();
        rogue
            .answer(&words[..words.len().min(256)])
            .expect("it has connected");
        cable.on_control(now);
        note(cable.presence().up);
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let verb = input.u8();
        match verb % 7 {
            PUT => rogue.put(verb / 7 % 5, input.piece()),
            TAKE => take(&mut cable),
            // A control word of either direction, or anything anywhere.
            WORD => {
                let (word, value) = (u64::from(input.u8() % 8), input.u64());
                let at = word % 4 * 128 + word / 4 * (CONTROL + RING);
                rogue.write(at, &value.to_le_bytes());
            }
            ANY => {
                let (at, bytes) = (u64::from(input.u32()) % MEMORY, input.piece());
                rogue.write(at, bytes);
            }
            4 => {
                let len = usize::from(input.u16());
                match cable.tx_reserve(Frame::Data, len) {
                    Ok(slot) => {
                        assert_eq!(slot.len(), len);
                        slot.fill(3);
                        cable.tx_commit();
                    }
                    Err(e) => note(std::mem::discriminant(&e)),
                }
            }
            5 => {
                note(cable.arm(Wake::All));
                cable.flush();
            }
            _ => {
                now += Duration::from_millis(input.u8().into());
                cable.on_data();
                cable.on_control(now);
                cable.poll(now);
            }
        }
    }
    take(&mut cable);
    cable.flush();
    cable.arm(Wake::Packets);
    cable.poll(now);
    let error = cable.take_error().map(|e| e.to_string());
    let words = error.as_ref().map(|e| e.len());
    note((cable.presence().up, words));
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut good = Vec::new();
    for kind in 1..5 {
        good.push(kind * 7 + PUT);
        put_piece(&mut good, &[7; 100]);
        good.extend([TAKE, 4, 50, 0, 5]);
    }
    let honest = |steps: &[&[u8]]| {
        let mut seed = vec![HONEST];
        steps.iter().for_each(|step| seed.extend(*step));
        seed
    };
    let mut seeds = vec![honest(&[&good])];
    for word in 0..8u8 {
        for value in [0, 1, 64, 65, RING, RING + 64, u64::MAX] {
            let mut spoil = vec![WORD, word];
            spoil.extend(value.to_le_bytes());
            seeds.push(honest(&[&good, &spoil, &good]));
        }
    }
    // Headers of the next record.
    for header in [0, 100 | 1 << 32, 0xff << 32, 5000 | 1 << 32, 1 << 63] {
        let mut spoil = vec![7 + PUT];
        put_piece(&mut spoil, &[7; 100]);
        spoil.push(ANY);
        spoil.extend((CONTROL as u32 + 4 * 128).to_le_bytes());
        put_piece(&mut spoil, &u64::to_le_bytes(header));
        seeds.push(honest(&[&good, &spoil, &good]));
    }
    let mut refusal = vec![1];
    put_piece(&mut refusal, b"OchreNo!because");
    seeds.push(refusal);
    let mut strange = vec![1];
    put_piece(&mut strange, &hello());
    strange.extend(&good);
    seeds.push(strange);
    seeds
}
