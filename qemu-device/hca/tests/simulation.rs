// SPDX-License-Identifier: GPL-2.0-or-later
//! Two whole devices on a cable with and without faults, under random traffic that a plain model
//! checks. A failure prints its seed; `OCHRE_SEED=n cargo test --test simulation NAME` runs that one
//! again, the same to the last bit. `OCHRE_SOAK=n` lets each test go on with new seeds for n seconds.

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

use ochre_hw::doorbell;
use ochre_hw::verbs::{QpState, QpType};
use ochre_hw::wqe::SendOpcode;
use ochre_link::mem::{Faults, MemConfig};
use ochre_link::PortConfig;

use common::host::Pair;
use common::lane::{Lane, Mix};
use common::peers::{connected, End};
use common::rng::Rng;

/// What one run is like.
#[derive(Clone)]
struct Scenario {
    kind: QpType,
    faults: Faults,
    latency: Duration,
    connections: usize,
    messages: u64,
    opcodes: Vec<SendOpcode>,
    long: u64,
}

impl Scenario {
    fn rc(faults: Faults) -> Self {
        Scenario {
            kind: QpType::Rc,
            faults,
            latency: Duration::from_micros(2),
            connections: 1,
            messages: 400,
            opcodes: vec![
                SendOpcode::Send,
                SendOpcode::SendImm,
                SendOpcode::Write,
                SendOpcode::WriteImm,
                SendOpcode::Read,
                SendOpcode::CompareSwap,
                SendOpcode::FetchAdd,
            ],
            long: 2,
        }
    }
}

/// A pair of QPs with traffic in both directions.
struct Connection {
    ends: [End; 2],
    /// `lanes[n]` goes from end `n` to the other.
    lanes: [Lane; 2],
}

fn make_connection(pair: &mut Pair, scenario: &Scenario, rng: &mut Rng) -> Connection {
    let mtu_code = rng.pick(&[1u8, 2, 3, 4, 5]);
    let depth = rng.pick(&[1u8, 2, 4, 16]);
    // Most connections pass the end of the PSNs.
    let psn = (0xff_ffe0 + rng.below(64) as u32) & 0xff_ffff;
    let [a, b] = connected(pair, scenario.kind, rng, |attr| {
        attr.path_mtu = mtu_code;
        attr.sq_psn = psn;
        attr.rq_psn = psn;
        attr.max_rd_atomic = depth;
        attr.max_dest_rd_atomic = depth;
    });
    let mix = Mix {
        opcodes: scenario.opcodes.clone(),
        mtu: 128 << mtu_code,
        long: scenario.long,
        messages: scenario.messages,
    };
    let lanes = [
        Lane::new(rng.next(), mix.clone(), a.place.clone(), b.place.clone()),
        Lane::new(rng.next(), mix, b.place.clone(), a.place.clone()),
    ];
    Connection {
        ends: [a, b],
        lanes,
    }
}

/// One round of a connection's software; whether it found something.
fn round(pair: &mut Pair, c: &mut Connection) -> bool {
    let mut found = false;
    let Connection { ends, lanes } = c;
    for n in 0..2 {
        let end = &mut ends[n];
        while let Some(cqe) = end.send_cq.poll() {
            lanes[n].sent(&mut end.guest, &cqe);
            found = true;
        }
        while let Some(cqe) = end.recv_cq.poll() {
            lanes[1 - n].received(&mut end.guest, &cqe);
            found = true;
        }
        lanes[1 - n].post_receives(&mut end.guest);
        if lanes[n].post_sends(&mut end.guest) {
            found = true;
            let host = if n == 0 { &mut pair.a } else { &mut pair.b };
            if end.guest.wants_send_doorbell() {
                host.hca.doorbell(host.now, doorbell::SEND, end.number);
            }
        }
    }
    found
}

fn simulate(scenario: &Scenario, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut pair = Pair::with(
        MemConfig {
            latency: scenario.latency,
            seed: rng.next(),
            ..MemConfig::default()
        },
        PortConfig {
            // A lost packet takes its credits along until the next flow control packet.
            fc_refresh: Duration::from_micros(20),
            ..PortConfig::default()
        },
    );
    pair.bring_up();
    let mut connections: Vec<_> = (0..scenario.connections)
        .map(|_| make_connection(&mut pair, scenario, &mut rng))
        .collect();
    for host in [&mut pair.a, &mut pair.b] {
        let link = host.hca.link_mut(1).unwrap();
        link.cable_mut().set_faults(scenario.faults);
    }
    let mut quiet = 0;
    while !connections
        .iter()
        .all(|c| c.lanes.iter().all(Lane::is_done))
    {
        pair.a.now = pair.now;
        pair.b.now = pair.now;
        let mut found = false;
        for c in &mut connections {
            found |= round(&mut pair, c);
        }
        let busy = pair.a.poll() | pair.b.poll();
        if found || busy {
            quiet = 0;
            continue;
        }
        quiet += 1;
        let next = pair.next_time();
        let Some(next) = next.filter(|_| quiet < 100_000) else {
            let states: Vec<_> = connections
                .iter()
                .flat_map(|c| c.lanes.iter().map(Lane::state))
                .collect();
            panic!("nothing goes on any more at {}: {states:?}", pair.now);
        };
        pair.now = next.max(pair.now + Duration::from_nanos(1));
    }
    // What nobody acknowledges may still be under way.
    pair.run_for(Duration::from_millis(1));
    for c in &connections {
        for lane in &c.lanes {
            lane.check_memory();
        }
        for (host, end) in [(&mut pair.a, &c.ends[0]), (&mut pair.b, &c.ends[1])] {
            let state = host.query_qp(end.number).state;
            assert_eq!(state, QpState::Rts.raw());
        }
    }
    assert_eq!(pair.a.events(), []);
    assert_eq!(pair.b.events(), []);
}

/// Runs a scenario for some seeds, or for the one of `OCHRE_SEED`, or for all from the first one on
/// that the seconds of `OCHRE_SOAK` give time for.
fn run(scenario: &Scenario, seeds: std::ops::Range<u64>) {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        let number = value.parse::<u64>();
        Some(number.unwrap_or_else(|_| panic!("{name}={value} is no number")))
    };
    let soak = number("OCHRE_SOAK").map(Duration::from_secs);
    let seeds = match (number("OCHRE_SEED"), soak) {
        (Some(seed), None) => seed..seed + 1,
        (Some(seed), Some(_)) => seed..u64::MAX,
        (None, Some(_)) => seeds.start..u64::MAX,
        (None, None) => seeds,
    };
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let start = Instant::now();
    let mut told = start;
    for (done, seed) in seeds.enumerate() {
        let result = catch_unwind(AssertUnwindSafe(|| simulate(scenario, seed)));
        assert!(result.is_ok(), "{name} failed with OCHRE_SEED={seed}");
        let messages = (done as u64 + 1) * scenario.messages * 2 * scenario.connections as u64;
        let over = soak.is_some_and(|soak| start.elapsed() >= soak);
        if soak.is_some() && (over || told.elapsed() >= Duration::from_secs(10)) {
            told = Instant::now();
            let seconds = start.elapsed().as_secs();
            println!("  {name}: {seconds} s, {messages} messages, seeds up to {seed}");
        }
        if over {
            return;
        }
    }
}

/// A link that loses, repeats, delays and damages packets, each this often in a hundred.
fn bad_link(percent: u32) -> Faults {
    let ppm = percent * 10_000;
    Faults {
        drop_ppm: ppm,
        duplicate_ppm: ppm,
        corrupt_ppm: ppm,
        delay_ppm: ppm,
        delay: Duration::from_micros(50),
        data_only: true,
        // A request and its response are each hit so often at most: fewer than there are retries,
        // so that no connection may give up.
        most_hits: 2,
    }
}

#[test]
fn rc_on_a_clean_link() {
    run(&Scenario::rc(Faults::default()), 0..6);
}

#[test]
fn rc_on_a_bad_link() {
    run(&Scenario::rc(bad_link(1)), 100..108);
}

#[test]
fn rc_on_a_very_bad_link() {
    let scenario = Scenario {
        long: 0,
        messages: 200,
        ..Scenario::rc(bad_link(5))
    };
    run(&scenario, 200..206);
}

#[test]
fn many_connections_share_a_bad_link() {
    let scenario = Scenario {
        connections: 2,
        messages: 150,
        ..Scenario::rc(bad_link(1))
    };
    run(&scenario, 300..303);
}

#[test]
fn atomics_and_reads_on_a_link_that_loses_answers() {
    let scenario = Scenario {
        opcodes: vec![
            SendOpcode::Read,
            SendOpcode::CompareSwap,
            SendOpcode::FetchAdd,
        ],
        ..Scenario::rc(bad_link(4))
    };
    run(&scenario, 400..406);
}

#[test]
fn uc_on_a_clean_link() {
    let scenario = Scenario {
        kind: QpType::Uc,
        opcodes: vec![SendOpcode::Write],
        ..Scenario::rc(Faults::default())
    };
    run(&scenario, 500..503);
}
