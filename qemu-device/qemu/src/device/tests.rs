// SPDX-License-Identifier: GPL-2.0-or-later

//! Two devices in this thread, without QEMU: who serves them, and who is woken for a packet.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::time::Instant;

use ochre_link::{PhysState, Seal};
use ochre_wire::{Lid, Lnh, Lrh, Sl, Vl};

use super::*;
use crate::abi::{UseMemory, Work};
use crate::config;

unsafe extern "C" fn ram_dirty(_: *mut c_void, _: u64, _: u64) {}
unsafe extern "C" fn with_memory(
    _: *mut c_void,
    _: u64,
    _: u64,
    _: bool,
    _: UseMemory,
    _: *mut c_void,
) -> i32 {
    -1
}
unsafe extern "C" fn burst(work: Work, context: *mut c_void) {
    // SAFETY: the core's work, with the context that came with it.
    unsafe { work(context) }
}
unsafe extern "C" fn raise(_: *mut c_void, _: u64) {}
unsafe extern "C" fn report(_: *mut c_void, _: *const c_char) {}

/// A device without memory.
fn core(link: &std::path::Path) -> Core {
    let host = Host {
        opaque: std::ptr::null_mut(),
        ram_dirty,
        with_memory,
        burst,
        raise,
        report,
    };
    let config = Config {
        ports: 1,
        vectors: 1,
        crc: true,
        link: [Some(link.to_owned()), None],
        node_guid: 1,
        capture: None,
        speeds: config::speeds("edr").unwrap(),
        widths: config::widths("4x").unwrap(),
    };
    let core = Core::new(config, host).unwrap();
    core.set_paused(false);
    core
}

/// Two devices whose link is up.
struct Pair {
    a: Core,
    b: Core,
    folder: PathBuf,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Does it until it has happened.
fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happens() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
    }
}

impl Pair {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ochre-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("link");
        let (a, b) = (core(&path), core(&path));
        let pair = Pair { a, b, folder };
        until("the link comes up", || {
            [&pair.a, &pair.b].map(|core| {
                core.serve();
                core.lock().hca.link(1).unwrap().phys_state() == PhysState::LinkUp
            }) == [true; 2]
        });
        until("both are asleep", || {
            [&pair.a, &pair.b].map(|core| core.serve() && core.lock().asleep) == [true; 2]
        });
        pair
    }

    /// Sends a packet from a to b, on the lane that a link has without a subnet manager.
    fn send(&self) {
        const BYTES: usize = 290;
        let mut state = self.a.lock();
        let link = state.hca.link_mut(1).unwrap();
        let slot = link.tx_begin(Vl::new(15), Lid::PERMISSIVE, BYTES).unwrap();
        slot.fill(0);
        Lrh {
            vl: Vl::new(15),
            lver: 0,
            sl: Sl::new(0),
            lnh: Lnh::Local,
            dlid: Lid::PERMISSIVE,
            pkt_len: (BYTES - 2) as u16 / 4,
            slid: Lid::PERMISSIVE,
        }
        .write(slot.first_chunk_mut().unwrap());
        link.tx_commit(Seal::Port);
        link.flush();
    }

    /// Packets that b has received.
    fn received(&self) -> u64 {
        let mut state = self.b.lock();
        state.hca.link_mut(1).unwrap().counters().rcv_pkts
    }

    /// Whether b's thread was woken for a packet since this was asked last.
    fn woken(&self) -> bool {
        self.b.wake.signal();
        let woken = self
            .b
            .poller
            .wait()
            .any(|token| Ready::from_token(token) == Ready::Data(1));
        self.b.wake.clear();
        let mut state = self.b.lock();
        state.hca.link_mut(1).unwrap().cable_mut().on_data();
        woken
    }

    /// A program on b polls until the device is left to it.
    fn poll(&self) {
        until("the device is left to who polls", || {
            self.b.doorbell(BUSY_POLL, doorbell::BUSY_POLL_ON.into(), 4);
            self.b.lock().busy.is_on()
        });
        self.woken();
    }
}

/// On the page of some program.
const BUSY_POLL: u64 = 3 * doorbell::PAGE_SIZE + doorbell::BUSY_POLL;

impl Core {
    /// What the service thread does where everything has happened at once.
    fn serve(&self) -> bool {
        self.round(&[Ready::Wake, Ready::Timer, Ready::Data(1), Ready::Control(1)])
    }
}

#[test]
fn a_packet_for_who_polls_wakes_nobody() {
    let pair = Pair::new("polls");
    pair.send();
    assert!(pair.woken(), "who sleeps is woken");
    assert_eq!(pair.received(), 0, "nobody has served it");
    until("asleep again", || pair.b.serve());

    pair.poll();
    for count in 1..=10 {
        pair.send();
        pair.b.doorbell(BUSY_POLL, doorbell::BUSY_POLL_ON.into(), 4);
        assert_eq!(pair.received(), 1 + count);
    }
    assert!(!pair.woken());
}

#[test]
fn who_stops_polling_is_woken_again() {
    let pair = Pair::new("stops");
    pair.poll();
    pair.b
        .doorbell(BUSY_POLL, doorbell::BUSY_POLL_OFF.into(), 4);
    pair.send();
    assert!(pair.woken(), "it has said that it stops");
    until("asleep again", || pair.b.serve());

    pair.poll();
    let due = pair.b.lock().busy.deadline().unwrap();
    assert!(pair.b.lock().timer <= due, "the service thread will look");
    pair.send();
    assert!(!pair.woken());
    std::thread::sleep(Duration::from_millis(2));
    until("the service thread takes over", || pair.b.serve());
    assert_eq!(pair.received(), 2);
    pair.send();
    assert!(pair.woken(), "it has stopped without a word");
}
