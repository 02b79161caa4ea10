// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Two trainers on a wire, sequences as bytes.
struct Pair {
    t: [Trainer; 2],
    wire: [VecDeque<[u8; Sequence::LEN]>; 2],
    seen: [Vec<Outcome>; 2],
    now: Time,
    sent: usize,
}

impl Pair {
    fn new(a: (Widths, Speeds), b: (Widths, Speeds)) -> Self {
        Pair {
            t: [Trainer::new(a.0, a.1, 1), Trainer::new(b.0, b.1, 2)],
            wire: Default::default(),
            seen: Default::default(),
            now: Time::ZERO,
            sent: 0,
        }
    }

    fn same() -> Self {
        let r = (Widths::ALL, Speeds::ALL);
        let mut p = Self::new(r, r);
        p.plug(true);
        p
    }

    fn plug(&mut self, on: bool) {
        for i in 0..2 {
            self.wire[i].clear();
            let o = self.t[i].presence(on, self.now);
            self.seen[i].extend(o);
        }
    }

    /// Delivers until the wire is silent; `lose(n)` says whether the nth sequence gets lost.
    fn settle(&mut self, mut lose: impl FnMut(usize) -> bool) {
        for _ in 0..1000 {
            let mut quiet = true;
            for i in 0..2 {
                while let Some(s) = self.t[i].to_send() {
                    self.t[i].sent();
                    if !lose(self.sent) {
                        self.wire[1 - i].push_back(s.to_bytes());
                    }
                    self.sent += 1;
                    quiet = false;
                }
                if let Some(b) = self.wire[i].pop_front() {
                    let s = Sequence::read(&b).unwrap();
                    for o in self.t[i].on_sequence(s, self.now).into_iter().flatten() {
                        self.seen[i].push(o);
                    }
                    quiet = false;
                }
            }
            if quiet {
                return;
            }
        }
        panic!("the ports talk for ever");
    }

    fn wait(&mut self, d: Duration, mut lose: impl FnMut(usize) -> bool) {
        let end = self.now + d;
        loop {
            self.settle(&mut lose);
            let next = Time::earliest(self.t[0].next_deadline(), self.t[1].next_deadline());
            match next {
                Some(t) if t <= end => self.now = self.now.max(t),
                _ => break,
            }
            for i in 0..2 {
                let o = self.t[i].on_time(self.now);
                self.seen[i].extend(o);
            }
        }
        self.now = end;
    }

    fn phys(&self) -> [PhysState; 2] {
        [self.t[0].phys(), self.t[1].phys()]
    }
}

#[test]
fn comes_up_with_the_greatest_common_rate() {
    let mut p = Pair::new(
        (Widths(0x1f), Speeds::NDR.and_slower()),
        (Widths(0x13), Speeds::EDR.and_slower()),
    );
    assert_eq!(p.phys(), [PhysState::Polling; 2]);
    p.plug(true);
    p.settle(|_| false);
    assert_eq!(p.phys(), [PhysState::LinkUp; 2]);
    for i in 0..2 {
        assert_eq!(p.seen[i], [Outcome::Up]);
        assert_eq!(p.t[i].width_active, Widths::X4);
        assert_eq!(p.t[i].speed_active, Speeds::EDR);
        assert_eq!(p.t[i].next_deadline(), None, "an idle link needs no timer");
    }
}

#[test]
fn no_common_rate_is_told_once_and_stays_down() {
    let mut p = Pair::new((Widths::X1, Speeds::SDR), (Widths::X4, Speeds::SDR));
    p.plug(true);
    p.wait(Duration::from_secs(20), |_| false);
    assert_eq!(p.phys(), [PhysState::Polling; 2]);
    assert_eq!(p.seen[0], [Outcome::NoCommonRate(Widths::X4, Speeds::SDR)]);
    assert_eq!(p.seen[1], [Outcome::NoCommonRate(Widths::X1, Speeds::SDR)]);
    assert!(p.sent < 100, "{} sequences in 20 s", p.sent);
    // The subnet manager enables another width.
    p.t[0].widths = Widths::X4;
    let o = p.t[0].set_phys(PhysState::Polling, p.now);
    assert_eq!(o, None);
    p.wait(Duration::from_secs(3), |_| false);
    assert_eq!(p.phys(), [PhysState::LinkUp; 2]);
}

#[test]
fn a_peer_that_goes_and_comes_retrains() {
    let mut p = Pair::same();
    p.settle(|_| false);
    p.plug(false);
    assert_eq!(p.phys(), [PhysState::Polling; 2]);
    p.plug(true);
    p.settle(|_| false);
    for s in &p.seen {
        assert_eq!(*s, [Outcome::Up, Outcome::Lost, Outcome::Up]);
    }
}

#[test]
fn disabled_tells_the_peer_and_stays_silent() {
    let mut p = Pair::same();
    p.settle(|_| false);
    let o = p.t[0].set_phys(PhysState::Disabled, p.now);
    assert_eq!(o, Some(Outcome::Lost));
    p.wait(Duration::from_secs(5), |_| false);
    assert_eq!(p.phys(), [PhysState::Disabled, PhysState::Polling]);
    assert_eq!(p.seen[1], [Outcome::Up, Outcome::Lost]);
    assert_eq!(p.t[0].set_phys(PhysState::Polling, p.now), None);
    p.wait(Duration::from_secs(1), |_| false);
    assert_eq!(p.phys(), [PhysState::LinkUp; 2]);
}

#[test]
fn sleep_wakes_on_training() {
    let mut p = Pair::same();
    p.settle(|_| false);
    p.t[0].down_default = PhysState::Sleep;
    p.t[1].down_default = PhysState::Sleep;
    p.t[0].set_phys(PhysState::Sleep, p.now);
    p.wait(Duration::from_secs(3), |_| false);
    assert_eq!(p.phys(), [PhysState::Sleep; 2]);
    p.t[1].set_phys(PhysState::Polling, p.now);
    p.settle(|_| false);
    assert_eq!(p.phys(), [PhysState::LinkUp; 2]);
}

#[test]
fn recovery_keeps_the_link() {
    let mut p = Pair::same();
    p.settle(|_| false);
    let o = p.t[0].recover(p.now);
    assert_eq!(o, Some(Outcome::Recovering));
    assert_eq!(p.t[0].recover(p.now), None);
    p.settle(|_| false);
    assert_eq!(p.phys(), [PhysState::LinkUp; 2]);
    assert_eq!(p.seen[0], [Outcome::Up, Outcome::Recovered]);
    assert_eq!(
        p.seen[1],
        [Outcome::Up, Outcome::Recovering, Outcome::Recovered]
    );
}

#[test]
fn both_recover_at_once() {
    let mut p = Pair::same();
    p.settle(|_| false);
    p.t[0].recover(p.now);
    p.t[1].recover(p.now);
    p.settle(|_| false);
    assert_eq!(p.phys(), [PhysState::LinkUp; 2]);
    assert!(!p.seen.iter().flatten().any(|o| *o == Outcome::Lost));
}

#[test]
fn a_recovery_without_answer_gives_up() {
    let mut p = Pair::same();
    p.settle(|_| false);
    p.t[0].recover(p.now);
    p.wait(Duration::from_secs(1), |_| true);
    assert_eq!(p.seen[0], [Outcome::Up, Outcome::Lost]);
    assert_eq!(p.t[0].phys(), PhysState::Polling);
    // The other end learns of it by the new number.
    p.wait(Duration::from_secs(3), |_| false);
    assert_eq!(p.phys(), [PhysState::LinkUp; 2]);
    assert_eq!(p.seen[1], [Outcome::Up, Outcome::Lost, Outcome::Up]);
}

#[test]
fn damaged_sequences_are_not_read() {
    let p = Pair::same();
    let b = p.t[0].to_send().unwrap().to_bytes();
    for bit in 0..b.len() * 8 {
        let mut c = b;
        c[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Sequence::read(&c), None);
    }
    assert_eq!(Sequence::read(&b[..17]), None);
    assert_eq!(Sequence::read(&[]), None);
}

#[test]
fn numbers_differ_and_are_not_zero() {
    let mut t = Trainer::new(Widths::ALL, Speeds::ALL, 0);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        t.renumber();
        assert_ne!(t.number, 0);
        assert!(seen.insert(t.number));
    }
}

proptest! {
    /// Whatever is lost at first, the link comes up soon after losses end.
    #[test]
    fn comes_up_after_any_loss(lost in proptest::collection::vec(any::<bool>(), 0..40)) {
        let mut p = Pair::same();
        p.wait(Duration::from_secs(60), |n| lost.get(n).copied().unwrap_or(false));
        prop_assert_eq!(p.phys(), [PhysState::LinkUp; 2]);
    }

    /// No sequence of inputs makes a trainer panic or forget the rules.
    #[test]
    fn any_input(inputs in proptest::collection::vec((0u8..8, any::<u32>(), 0u32..4, 0u32..4), 0..200)) {
        let mut t = Trainer::new(Widths::ALL, Speeds::ALL, 7);
        let mut now = Time::ZERO;
        t.presence(true, now);
        let mut up = false;
        for (what, dt, number, echo) in inputs {
            now += Duration::from_micros(u64::from(dt % 2_000_000));
            let mut out = [None; 2];
            match what {
                0 => out[0] = t.presence(dt & 1 == 0, now),
                1 => out[0] = t.set_phys([PhysState::Sleep, PhysState::Polling, PhysState::Disabled][number as usize % 3], now),
                2 => out[0] = t.recover(now),
                3 => out[0] = t.on_time(now),
                _ => {
                    let s = Sequence {
                        kind: [Kind::Ts1, Kind::Ts2, Kind::Down][dt as usize % 3],
                        recovery: dt & 8 != 0,
                        ready: dt & 16 != 0,
                        widths: Widths((dt >> 8) as u8),
                        speeds: Speeds((dt >> 16) as u16),
                        number,
                        echo: if echo == 0 { t.number } else { echo },
                    };
                    out = t.on_sequence(s, now);
                }
            }
            for o in out.into_iter().flatten() {
                match o {
                    Outcome::Up => { prop_assert!(!up); up = true; }
                    Outcome::Lost => { prop_assert!(up); up = false; }
                    Outcome::Recovering | Outcome::Recovered => prop_assert!(up),
                    Outcome::NoCommonRate(..) => prop_assert!(!up),
                }
            }
            prop_assert_eq!(up, t.had_link());
            if up {
                prop_assert_ne!(t.width_active, Widths::NONE);
                prop_assert_ne!(t.speed_active, Speeds::NONE);
            }
            t.sent();
        }
    }
}
