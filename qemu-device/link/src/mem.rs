// SPDX-License-Identifier: GPL-2.0-or-later
//! A cable inside one thread, deterministic, with latency and seeded faults.

use core::time::Duration;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use ochre_wire::Headers;

use crate::cable::{Cable, CableError, Frame, Presence, Wake, MAX_FRAME};
use crate::time::Time;

/// Faults of one direction. Rates are in frames of a million; the draw is seeded, so that the same
/// traffic meets the same faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Frames lost.
    pub drop_ppm: u32,
    /// Frames delivered twice.
    pub duplicate_ppm: u32,
    /// Frames with one bit wrong.
    pub corrupt_ppm: u32,
    /// Frames delayed by [`Faults::delay`], so that later ones overtake them.
    pub delay_ppm: u32,
    /// The delay.
    pub delay: Duration,
    /// Training sequences and link packets are spared.
    pub data_only: bool,
    /// The same data packet, sent again and again, is lost, damaged or delayed at most this often;
    /// 0 is no limit. With a limit below its number of retries a connection always gets through.
    pub most_hits: u32,
}

impl Faults {
    fn any(&self) -> bool {
        self.drop_ppm | self.duplicate_ppm | self.corrupt_ppm | self.delay_ppm != 0
    }
}

/// How a pair of ends is made.
#[derive(Clone, Debug)]
pub struct MemConfig {
    /// Bytes in flight and unread, each direction; each frame takes its length and 64 more.
    pub capacity: usize,
    /// Time from flush to arrival.
    pub latency: Duration,
    /// Faults from the first end to the second and back.
    pub faults: [Faults; 2],
    /// Seed of the faults.
    pub seed: u64,
}

impl Default for MemConfig {
    fn default() -> Self {
        MemConfig {
            capacity: 1 << 20,
            latency: Duration::ZERO,
            faults: [Faults::default(); 2],
            seed: 1,
        }
    }
}

/// Bytes that each frame counts besides its own.
const PER_FRAME: usize = 64;

struct Flying {
    due: Time,
    kind: Frame,
    bytes: Vec<u8>,
}

/// One direction.
#[derive(Default)]
struct Lane {
    /// By arrival time; frames of the same time in the order of sending.
    flying: VecDeque<Flying>,
    used: usize,
    spare: Vec<Vec<u8>>,
}

impl Lane {
    fn insert(&mut self, f: Flying) {
        self.used += f.bytes.len() + PER_FRAME;
        // Almost always the last one.
        let mut at = self.flying.len();
        while at > 0 && self.flying[at - 1].due > f.due {
            at -= 1;
        }
        if at == self.flying.len() {
            self.flying.push_back(f);
        } else {
            self.flying.insert(at, f);
        }
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
}

struct Shared {
    lanes: [Lane; 2],
    plugged: bool,
    generation: u32,
}

/// One end of a cable inside this thread.
///
/// A frame is on its way when its sender flushes, and arrives at the sender's time plus the latency;
/// the receiver sees it when it is polled at that time or later. [`Cable::arm`] tells whether there is
/// something now; nobody is woken, the embedder steps the ends by their deadlines.
pub struct MemCable {
    shared: Rc<RefCell<Shared>>,
    end: usize,
    config: MemConfig,
    now: Time,
    rng: u64,
    /// How often packets were hit, by what makes them the same.
    hits: HashMap<[u8; 7], u32>,
    seen: Presence,
    open: Option<(Frame, Vec<u8>)>,
    queued: Vec<(Frame, Vec<u8>)>,
    queued_bytes: usize,
    current: Option<(Frame, Vec<u8>)>,
}

impl MemCable {
    /// Two connected ends, for one thread.
    pub fn pair(config: MemConfig) -> (MemCable, MemCable) {
        let shared = Rc::new(RefCell::new(Shared {
            lanes: Default::default(),
            plugged: true,
            generation: 1,
        }));
        let end = |end: usize| MemCable {
            shared: Rc::clone(&shared),
            end,
            config: config.clone(),
            now: Time::ZERO,
            rng: config.seed ^ (end as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95),
            hits: HashMap::new(),
            seen: Presence::default(),
            open: None,
            queued: Vec::new(),
            queued_bytes: 0,
            current: None,
        };
        (end(0), end(1))
    }

    /// Pulls the cable out (frames in flight are lost) or plugs it in again; both ends see it when
    /// they are polled.
    pub fn plug(&mut self, plugged: bool) {
        let mut s = self.shared.borrow_mut();
        if plugged && !s.plugged {
            s.generation = s.generation.wrapping_add(1);
        }
        s.plugged = plugged;
        s.lanes = Default::default();
    }

    /// Other faults for what this end sends from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.config.faults[self.end] = faults;
    }

    /// When the next frame for this end arrives, which may be in the past.
    pub fn next_arrival(&self) -> Option<Time> {
        self.shared.borrow().lanes[1 - self.end]
            .flying
            .front()
            .map(|f| f.due)
    }

    /// A draw with probability `ppm` in a million.
    fn draw(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.random() % 1_000_000 < u64::from(ppm)
    }

    /// xorshift64*
    fn random(&mut self) -> u64 {
        self.rng = self.rng.max(1);
        self.rng ^= self.rng >> 12;
        self.rng ^= self.rng << 25;
        self.rng ^= self.rng >> 27;
        self.rng.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Whether a packet may be hit once more; counts it.
    fn may_hit(&mut self, kind: Frame, bytes: &[u8]) -> bool {
        let most = self.config.faults[self.end].most_hits;
        if most == 0 || kind != Frame::Data {
            return true;
        }
        // Destination QP and PSN of the BTH, and whether it is a response: requests and responses
        // to the same QP count apart.
        let Ok(headers) = Headers::parse(bytes, bytes.len()) else {
            return true;
        };
        let bth = headers.bth();
        let [_, q0, q1, q2] = bth.dest_qp.get().to_be_bytes();
        let [_, p0, p1, p2] = bth.psn.get().to_be_bytes();
        let response = u8::from(bth.opcode.op.is_response());
        let hits = self.hits.entry([q0, q1, q2, p0, p1, p2, response]);
        let hits = hits.or_default();
        *hits += 1;
        *hits <= most
    }

    /// Puts a frame on its way, with the faults of this direction.
    fn send(&mut self, kind: Frame, mut bytes: Vec<u8>) {
        let f = self.config.faults[self.end];
        let mut due = self.now + self.config.latency;
        let mut twice = false;
        let spared = f.data_only && !matches!(kind, Frame::Data | Frame::BadData);
        if f.any() && !spared {
            if self.draw(f.drop_ppm) && self.may_hit(kind, &bytes) {
                return;
            }
            if self.draw(f.corrupt_ppm) && self.may_hit(kind, &bytes) {
                let bit = self.random() as usize % (bytes.len() * 8).max(1);
                if let Some(b) = bytes.get_mut(bit / 8) {
                    *b ^= 1 << (bit % 8);
                }
            }
            if self.draw(f.delay_ppm) && self.may_hit(kind, &bytes) {
                due += f.delay;
            }
            twice = self.draw(f.duplicate_ppm);
        }
        let end = self.end;
        let mut s = self.shared.borrow_mut();
        let lane = &mut s.lanes[end];
        if twice {
            let mut copy = lane.buffer();
            copy.clear();
            copy.extend_from_slice(&bytes);
            lane.insert(Flying {
                due,
                kind,
                bytes: copy,
            });
        }
        lane.insert(Flying { due, kind, bytes });
    }
}

impl Cable for MemCable {
    fn poll(&mut self, now: Time) {
        self.now = self.now.max(now);
        let (up, generation) = {
            let s = self.shared.borrow();
            (s.plugged, s.generation)
        };
        if (Presence { up, generation }) != self.seen {
            self.open = None;
            self.queued.clear();
            self.queued_bytes = 0;
            self.current = None;
            self.seen = Presence { up, generation };
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next_arrival().filter(|t| *t > self.now)
    }

    fn presence(&self) -> Presence {
        self.seen
    }

    #[inline]
    fn tx_reserve(&mut self, frame: Frame, bytes: usize) -> Result<&mut [u8], CableError> {
        self.open = None;
        if bytes == 0 || bytes > MAX_FRAME {
            return Err(CableError::Length(bytes));
        }
        if !self.seen.up {
            return Err(CableError::Down);
        }
        let mut buffer = {
            let mut s = self.shared.borrow_mut();
            let lane = &mut s.lanes[self.end];
            let used = lane.used + self.queued_bytes;
            if used + bytes + PER_FRAME > self.config.capacity {
                return Err(CableError::Full);
            }
            lane.buffer()
        };
        buffer.resize(bytes, 0);
        Ok(&mut self.open.insert((frame, buffer)).1)
    }

    fn tx_slot(&mut self) -> &mut [u8] {
        self.open.as_mut().map_or(&mut [], |(_, b)| b)
    }

    fn tx_commit(&mut self) {
        if let Some(open) = self.open.take() {
            self.queued_bytes += open.1.len() + PER_FRAME;
            self.queued.push(open);
        }
    }

    fn tx_mark_bad(&mut self) {
        if let Some((kind, _)) = &mut self.open {
            *kind = Frame::BadData;
        }
    }

    fn rx_next(&mut self) -> Option<(Frame, usize)> {
        if self.current.is_none() {
            let now = self.now;
            let mut s = self.shared.borrow_mut();
            if !s.plugged || s.generation != self.seen.generation {
                return None;
            }
            let lane = &mut s.lanes[1 - self.end];
            if lane.flying.front().is_some_and(|f| f.due <= now) {
                if let Some(f) = lane.flying.pop_front() {
                    lane.used = lane.used.saturating_sub(f.bytes.len() + PER_FRAME);
                    self.current = Some((f.kind, f.bytes));
                }
            }
        }
        self.current.as_ref().map(|(k, b)| (*k, b.len()))
    }

    fn rx_bytes(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(_, b)| b)
    }

    fn rx_release(&mut self) {
        if let Some((_, bytes)) = self.current.take() {
            let end = self.end;
            let mut s = self.shared.borrow_mut();
            let spare = &mut s.lanes[1 - end].spare;
            if spare.len() < 64 {
                spare.push(bytes);
            }
        }
    }

    fn flush(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        let mut queued = core::mem::take(&mut self.queued);
        for (kind, bytes) in queued.drain(..) {
            self.send(kind, bytes);
        }
        self.queued = queued;
        self.queued_bytes = 0;
    }

    fn arm(&mut self, _wake: Wake) -> bool {
        self.flush();
        let now = self.now;
        self.current.is_none() && self.next_arrival().is_none_or(|t| t > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(faults: Faults, latency: Duration) -> (MemCable, MemCable) {
        let (mut a, mut b) = MemCable::pair(MemConfig {
            faults: [faults, Faults::default()],
            latency,
            seed: 42,
            ..MemConfig::default()
        });
        a.poll(Time::ZERO);
        b.poll(Time::ZERO);
        (a, b)
    }

    fn put(c: &mut MemCable, n: u32) {
        let slot = c.tx_reserve(Frame::Data, 4).unwrap();
        slot.copy_from_slice(&n.to_be_bytes());
        c.tx_commit();
    }

    fn take(c: &mut MemCable) -> Option<u32> {
        c.rx_next()?;
        let b = c.rx_bytes().try_into().ok()?;
        c.rx_release();
        Some(u32::from_be_bytes(b))
    }

    #[test]
    fn arrives_after_the_latency() {
        let (mut a, mut b) = pair(Faults::default(), Duration::from_micros(5));
        put(&mut a, 7);
        assert_eq!(b.next_deadline(), None);
        a.flush();
        assert_eq!(b.next_deadline(), Some(Time::from_micros(5)));
        assert!(b.arm(Wake::All));
        assert_eq!(take(&mut b), None);
        b.poll(Time::from_micros(5));
        assert!(!b.arm(Wake::All));
        assert_eq!(take(&mut b), Some(7));
    }

    #[test]
    fn a_full_cable_takes_no_more() {
        let (mut a, mut b) = pair(Faults::default(), Duration::ZERO);
        let mut n = 0;
        while a.tx_reserve(Frame::Data, 1000).is_ok() {
            a.tx_commit();
            n += 1;
        }
        assert_eq!(n, (1 << 20) / 1064);
        a.flush();
        assert_eq!(a.tx_reserve(Frame::Data, 1000), Err(CableError::Full));
        b.rx_next();
        b.rx_release();
        assert!(a.tx_reserve(Frame::Data, 1000).is_ok());
        assert!(matches!(
            a.tx_reserve(Frame::Data, 0),
            Err(CableError::Length(0))
        ));
    }

    #[test]
    fn faults_come_at_their_rates_and_repeat() {
        let faults = Faults {
            drop_ppm: 100_000,
            duplicate_ppm: 50_000,
            corrupt_ppm: 20_000,
            delay_ppm: 30_000,
            delay: Duration::from_micros(3),
            data_only: false,
            most_hits: 0,
        };
        let run = || {
            let (mut a, mut b) = pair(faults, Duration::ZERO);
            let mut got = Vec::new();
            for n in 0..10_000 {
                a.poll(Time::from_micros(u64::from(n)));
                put(&mut a, n);
                a.flush();
                b.poll(Time::from_micros(u64::from(n)));
                while let Some(v) = take(&mut b) {
                    got.push(v);
                }
            }
            got
        };
        let got = run();
        assert_eq!(got, run());
        // 9000 arrive, 5 % of them twice; the last few may still fly.
        assert!((9300..9600).contains(&got.len()), "{}", got.len());
        let damaged = got.iter().filter(|v| **v >= 10_000).count();
        assert!((100..300).contains(&damaged), "{damaged}");
        let late = got
            .windows(2)
            .filter(|w| w[1] < w[0] && w[0] < 10_000)
            .count();
        assert!((150..450).contains(&late), "{late}");
    }

    #[test]
    fn a_packet_sent_again_is_hit_so_often_and_no_more() {
        let faults = Faults {
            drop_ppm: 1_000_000,
            most_hits: 2,
            ..Faults::default()
        };
        let (mut a, mut b) = pair(faults, Duration::ZERO);
        let packet = |psn| {
            let build = ochre_wire::Build {
                vl: ochre_wire::Vl::VL0,
                sl: ochre_wire::Sl::new(0),
                slid: ochre_wire::Lid(1),
                dlid: ochre_wire::Lid(2),
                grh: None,
                bth: ochre_wire::Bth::new(
                    ochre_wire::Opcode::rc(ochre_wire::Operation::SendOnly),
                    ochre_wire::PKey::DEFAULT,
                    ochre_wire::Qpn::new(7),
                    ochre_wire::Psn::new(psn),
                ),
                ext: ochre_wire::Ext::default(),
            };
            let mut out = [0; ochre_wire::MAX_PACKET];
            let len = build.write_packet(b"data", &mut out).unwrap();
            out[..len].to_vec()
        };
        let mut arrived = Vec::new();
        for psn in [1, 1, 2, 1, 2, 2] {
            let bytes = packet(psn);
            let slot = a.tx_reserve(Frame::Data, bytes.len()).unwrap();
            slot.copy_from_slice(&bytes);
            a.tx_commit();
            a.flush();
            b.poll(Time::ZERO);
            arrived.push(b.rx_next().is_some());
            b.rx_release();
        }
        // The third time of each.
        assert_eq!(arrived, [false, false, false, true, false, true]);
    }

    #[test]
    fn data_only_faults_spare_the_rest() {
        let faults = Faults {
            drop_ppm: 1_000_000,
            data_only: true,
            ..Faults::default()
        };
        let (mut a, mut b) = pair(faults, Duration::ZERO);
        put(&mut a, 1);
        a.tx_reserve(Frame::Link, 6).unwrap();
        a.tx_commit();
        a.flush();
        assert_eq!(b.rx_next(), Some((Frame::Link, 6)));
        b.rx_release();
        assert_eq!(b.rx_next(), None);
    }

    #[test]
    fn pulling_the_cable_loses_what_flies() {
        let (mut a, mut b) = pair(Faults::default(), Duration::ZERO);
        put(&mut a, 1);
        a.flush();
        b.plug(false);
        b.plug(true);
        assert_eq!(take(&mut b), None);
        a.poll(Time(1));
        b.poll(Time(1));
        assert_eq!(a.presence(), b.presence());
        assert_eq!(a.presence().generation, 2);
        put(&mut a, 2);
        a.flush();
        assert_eq!(take(&mut b), Some(2));
        a.plug(false);
        a.poll(Time(2));
        assert!(!a.presence().up);
        assert_eq!(a.tx_reserve(Frame::Data, 4), Err(CableError::Down));
    }
}
