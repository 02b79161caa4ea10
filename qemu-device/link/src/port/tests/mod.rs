// SPDX-License-Identifier: GPL-2.0-or-later

mod damage;
mod faults;
mod flow;
mod states;

use core::time::Duration;

use ochre_wire::{Lid, Lnh, Lrh, Mtu, Sl, Vl};

use super::*;
use crate::mem::{Faults, MemCable, MemConfig};

const LIDS: [Lid; 2] = [Lid(1), Lid(2)];

/// Two ports on a cable, and the packets that each has received.
struct Pair {
    p: [Port<MemCable>; 2],
    got: [Vec<Vec<u8>>; 2],
    events: [Vec<PortEvent>; 2],
    now: Time,
    polls: usize,
}

impl Pair {
    fn new(config: PortConfig, mem: MemConfig) -> Self {
        let (a, b) = MemCable::pair(mem);
        let other = PortConfig {
            seed: config.seed + 1,
            ..config.clone()
        };
        Pair {
            p: [Port::new(config, a), Port::new(other, b)],
            got: Default::default(),
            events: Default::default(),
            now: Time::ZERO,
            polls: 0,
        }
    }

    /// A pair that has trained, with LIDs, and Active.
    fn active(config: PortConfig, mem: MemConfig) -> Self {
        let mut pair = Pair::new(config, mem);
        pair.run(Duration::from_secs(20));
        pair.activate();
        pair
    }

    fn activate(&mut self) {
        for (p, lid) in self.p.iter_mut().zip(LIDS) {
            p.set_lid(lid, 0);
            p.set_mtu(Mtu::Mtu4096);
            p.set_operational_vls(15);
            p.set_state(PortState::Armed).unwrap();
        }
        for i in 0..2 {
            self.p[i].set_state(PortState::Active).unwrap();
        }
        self.run(Duration::from_millis(100));
        assert_eq!(self.states(), [PortState::Active; 2]);
    }

    fn states(&self) -> [PortState; 2] {
        [self.p[0].state(), self.p[1].state()]
    }

    /// One round of both owners at the present time; whether anything happened.
    fn round(&mut self) -> bool {
        let mut busy = false;
        for i in 0..2 {
            let p = &mut self.p[i];
            p.poll(self.now);
            self.polls += 1;
            while let Some(e) = p.poll_event() {
                self.events[i].push(e);
            }
            while let Some(r) = p.rx() {
                let b = p.rx_bytes().to_vec();
                assert_eq!(b.len(), r.len);
                assert_eq!(b[0] >> 4, r.vl.get());
                self.got[i].push(b);
                p.rx_done();
                busy = true;
            }
            p.flush();
        }
        for p in &mut self.p {
            busy |= !p.arm();
        }
        busy
    }

    /// Lets `d` pass, from deadline to deadline.
    fn run(&mut self, d: Duration) {
        let end = self.now + d;
        loop {
            let mut n = 0;
            while self.round() {
                n += 1;
                assert!(n < 100_000, "never quiet");
            }
            let next = Time::earliest(self.p[0].next_deadline(), self.p[1].next_deadline());
            match next {
                Some(t) if t <= end => self.now = t.max(self.now + Duration::from_nanos(1)),
                _ => break,
            }
        }
        self.now = end;
        self.p.iter_mut().for_each(|p| p.poll(end));
    }

    /// Sends from port `i` to `dlid`.
    fn send(&mut self, i: usize, vl: Vl, dlid: Lid, payload: &[u8]) -> Result<(), TxStall> {
        send(&mut self.p[i], vl, LIDS[i], dlid, payload)
    }

    fn counters(&mut self, i: usize) -> Counters {
        *self.p[i].counters()
    }
}

/// Sends a packet: LRH, 12 bytes in place of a BTH, payload, 4 bytes in place of an ICRC, VCRC.
fn send<C: Cable>(
    p: &mut Port<C>,
    vl: Vl,
    slid: Lid,
    dlid: Lid,
    payload: &[u8],
) -> Result<(), TxStall> {
    let bytes = 8 + 12 + payload.len() + 6;
    let slot = p.tx_begin(vl, dlid, bytes)?;
    assert_eq!(slot.len(), bytes);
    let lrh = Lrh {
        vl,
        lver: 0,
        sl: Sl::new(0),
        lnh: Lnh::Local,
        dlid,
        pkt_len: ((bytes - 2) / 4) as u16,
        slid,
    };
    slot.fill(0);
    lrh.write(slot.first_chunk_mut().unwrap());
    slot[20..20 + payload.len()].copy_from_slice(payload);
    p.tx_commit(Seal::Port);
    Ok(())
}

fn fifteen_lanes() -> PortConfig {
    PortConfig {
        data_vls: 15,
        ..PortConfig::default()
    }
}

/// The first payload bytes of packets as a number.
fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[20..24].try_into().unwrap())
}
