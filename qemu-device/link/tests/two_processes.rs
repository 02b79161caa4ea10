// SPDX-License-Identifier: GPL-2.0-or-later
//! Two processes on one cable: this program and itself, started again as the peer.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ochre_link::{Cable, Frame, ShmCable, ShmConfig, Time, Wake};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

const RING: usize = 64 << 10;
const LIMIT: Duration = Duration::from_secs(20);

fn config(path: &Path, ring_bytes: usize, crc: bool) -> ShmConfig {
    ShmConfig {
        path: path.to_owned(),
        ring_bytes,
        crc,
    }
}

struct End {
    cable: ShmCable,
    start: Instant,
}

impl End {
    fn new(config: ShmConfig) -> Self {
        End {
            cable: ShmCable::new(config).expect("the configuration is good"),
            start: Instant::now(),
        }
    }

    /// Sleeps until something happens, at most 50 ms, and takes it in.
    fn step(&mut self) {
        if self.cable.arm(Wake::All) {
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            let mut fds = [
                PollFd::from_borrowed_fd(self.cable.data_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.cable.control_fd(), PollFlags::IN),
            ];
            poll(&mut fds, Some(&wait)).expect("poll");
        }
        let now = Time::from_nanos(self.start.elapsed().as_nanos() as u64);
        self.cable.on_data();
        self.cable.on_control(now);
        self.cable.poll(now);
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut ShmCable) -> bool) {
        let end = Instant::now() + LIMIT;
        while !done(&mut self.cable) {
            assert!(Instant::now() < end, "{what}: did not happen");
            self.step();
        }
    }
}

/// The peer: sends every frame back until it is killed, or tells its first problem and ends.
fn peer(path: &Path, ring: usize, crc: bool) {
    let mut e = End::new(config(path, ring, crc));
    loop {
        e.step();
        if let Some(error) = e.cable.take_error() {
            println!("{error}");
            return;
        }
        while let Some((frame, len)) = e.cable.rx_next() {
            let bytes = e.cable.rx_bytes().to_vec();
            match e.cable.tx_reserve(frame, len) {
                Ok(slot) => slot.copy_from_slice(&bytes),
                Err(_) => break,
            }
            e.cable.tx_commit();
            e.cable.rx_release();
        }
        e.cable.flush();
    }
}

/// The peer as a process; killed when dropped.
struct Peer(Child);

impl Peer {
    fn start(path: &Path, ring: usize, crc: bool) -> Self {
        let me = std::env::current_exe().expect("own path");
        let child = Command::new(me)
            .args(["--peer", &path.display().to_string(), &ring.to_string()])
            .arg(if crc { "on" } else { "off" })
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the peer");
        Peer(child)
    }

    /// What it said before it ended by itself.
    fn said(mut self) -> String {
        let mut text = String::new();
        if let Some(out) = &mut self.0.stdout {
            out.read_to_string(&mut text).expect("read from the peer");
        }
        text
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first frames take every length there and back.
fn echo(e: &mut End) {
    for n in 0..2000usize {
        let len = 1 + n * 37 % 4222;
        let slot = e.cable.tx_reserve(Frame::Data, len).expect("space");
        slot.fill(n as u8);
        e.cable.tx_commit();
        e.cable.flush();
        e.until("echo", |c| c.rx_next().is_some());
        assert_eq!(e.cable.rx_next(), Some((Frame::Data, len)));
        assert!(e.cable.rx_bytes().iter().all(|b| *b == n as u8));
        e.cable.rx_release();
    }
}

fn frames_pass_and_death_is_noticed(path: &Path) {
    let mut e = End::new(config(path, RING, true));
    for generation in 1..4 {
        let peer = Peer::start(path, RING, true);
        e.until("connect", |c| c.presence().up);
        assert_eq!(e.cable.presence().generation, generation);
        echo(&mut e);
        drop(peer);
        let killed = Instant::now();
        e.until("notice the death", |c| !c.presence().up);
        assert!(killed.elapsed() < Duration::from_secs(2));
        assert!(e.cable.tx_reserve(Frame::Data, 1).is_err());
    }
}

fn mismatch_is_told_on_both_sides(path: &Path) {
    for (ring, crc, here, there) in [
        (
            2 * RING,
            true,
            "65536 bytes here and 131072",
            "131072 bytes here and 65536",
        ),
        (
            RING,
            false,
            "CRCs are on here and off",
            "CRCs are off here and on",
        ),
    ] {
        let mut e = End::new(config(path, RING, true));
        let peer = Peer::start(path, ring, crc);
        let mut heard = None;
        e.until("mismatch", |c| {
            heard = heard.take().or(c.take_error());
            heard.is_some()
        });
        let heard = heard.map(|e| e.to_string()).unwrap_or_default();
        assert!(heard.contains(here), "{heard}");
        let said = peer.said();
        assert!(said.contains(there), "{said}");
        assert!(!e.cable.presence().up);
    }
}

type Test = fn(&Path);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, path, ring, crc] = args.as_slice() {
        if flag == "--peer" {
            let ring = ring.parse().expect("a number");
            peer(Path::new(path), ring, crc == "on");
            return ExitCode::SUCCESS;
        }
    }
    let dir: PathBuf = std::env::temp_dir().join(format!("ochre-link-two-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder for the sockets");
    let tests: [(&str, Test); 2] = [
        (
            "frames_pass_and_death_is_noticed",
            frames_pass_and_death_is_noticed,
        ),
        (
            "mismatch_is_told_on_both_sides",
            mismatch_is_told_on_both_sides,
        ),
    ];
    let mut failed = 0;
    for (name, test) in tests {
        // Panics abort under this profile; the name says where.
        print!("test {name} ... ");
        let path = dir.join(name.split('_').next().unwrap_or(name));
        let ok = std::panic::catch_unwind(|| test(&path)).is_ok();
        println!("{}", if ok { "ok" } else { "FAILED" });
        failed += usize::from(!ok);
    }
    println!("\n{} passed, {failed} failed", tests.len() - failed);
    // Left over only by a failure.
    let _ = std::fs::remove_dir_all(&dir);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
