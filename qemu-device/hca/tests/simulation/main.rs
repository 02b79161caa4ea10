// SPDX-License-Identifier: GPL-2.0-or-later
//! Two whole devices on cables with and without faults, under random traffic that a plain reference of
//! the verbs judges. All is drawn from a seed: a failure prints its own, and with it runs again, the same
//! to the last bit.
//!
//!     cargo test --profile checked -p ochre-hca --test simulation -- [NAME...] [--seed N] [--seconds N]
//!
//! - [`reference`]: what must come of requests. It knows no packets and nothing of the engine.
//! - [`lane`]: a program that sends in one direction of a connection. [`connection`]: both directions,
//!   and what software does to them in the middle of traffic. [`datagrams`]: programs that send
//!   datagrams to each other, and to [`groups`].
//! - [`completions`]: whose a completion is where queues share their CQs.
//! - [`runner`]: scenarios and seeds. [`tally`]: how many messages of each kind and size went.
//!
//! With `--seconds` each scenario goes on with new seeds for so long, from `--seed` on; `list` shows them.
#![allow(unreachable_pub)] // nothing of a test is for others

#[path = "../common/mod.rs"]
mod common;
mod completions;
mod connection;
mod datagrams;
mod groups;
mod lane;
mod reference;
mod runner;
mod tally;

use std::process::ExitCode;
use std::time::Duration;

use ochre_hw::verbs::QpType;
use ochre_hw::wqe::SendOpcode;
use ochre_link::mem::{Faults, MemConfig};
use ochre_link::PortConfig;

use common::pair::{Cabling, Pair};
use common::place::Room;
use common::rng::Rng;
use completions::Completions;
use connection::{Connection, Style};
use datagrams::{Refused, Station};
use groups::Group;
use lane::Mix;
use reference::datagram::Datagrams;
use runner::{Options, Scenario};
use tally::Tally;

/// Bytes of memory of a host.
const MEMORY: usize = 64 << 20;

/// Connections and the link they share.
#[derive(Clone)]
struct Traffic {
    style: Style,
    faults: Faults,
    latency: Duration,
    cabling: Cabling,
    connections: usize,
    /// The QPs of a host share their CQs.
    shares_cqs: bool,
}

impl Traffic {
    /// One reliable connection with `messages` in each direction.
    fn rc(faults: Faults, messages: u64) -> Self {
        Traffic {
            style: Style {
                kind: QpType::Rc,
                room: Room::LARGE,
                mix: Mix {
                    opcodes: SendOpcode::ALL
                        .iter()
                        .copied()
                        .filter(|o| *o != SendOpcode::SendInvalidate)
                        .collect(),
                    mtu: 0,
                    long: 5,
                    wrong: 0,
                    receives: 50,
                    ahead: false,
                    messages,
                },
                is_lossy: false,
                trouble: 0,
                rnr_retry: 7,
            },
            faults,
            latency: Duration::from_micros(2),
            cabling: Cabling::One,
            connections: 1,
            shares_cqs: false,
        }
    }

    /// Many connections with little memory each.
    fn many(mut self, connections: usize) -> Self {
        self.connections = connections;
        self.style.room = Room::SMALL;
        self
    }

    /// The same on unreliable connections.
    fn uc(mut self) -> Self {
        self.style.kind = QpType::Uc;
        self.style.mix.opcodes = vec![
            SendOpcode::Send,
            SendOpcode::SendImm,
            SendOpcode::Write,
            SendOpcode::WriteImm,
        ];
        self
    }

    fn simulate(&self, seed: u64) -> Tally {
        let mut rng = Rng::new(seed);
        let mut pair = make_pair(self.cabling, self.latency, &mut rng);
        let repeats = self.faults.duplicate_ppm > 0;
        let ports = self.cabling.ports();
        let cqs = self
            .shares_cqs
            .then(|| completions::shared(&mut pair, self.connections, &mut rng));
        let mut completions = Completions::default();
        let mut connections: Vec<_> = (0..self.connections)
            .map(|n| {
                let port = 1 + (n % usize::from(ports)) as u8;
                Connection::new(
                    &mut pair,
                    self.cabling,
                    port,
                    &self.style,
                    cqs.as_ref(),
                    &mut rng,
                    repeats,
                )
            })
            .collect();
        set_faults(&mut pair, self.faults);
        let mut quiet = 0;
        while !connections.iter().all(Connection::is_done) {
            let mut found = false;
            for c in &mut connections {
                found |= c.round(&mut pair, &mut completions);
            }
            let busy = pair.poll();
            found |= take_events(&mut pair, &mut connections);
            if found || busy {
                quiet = 0;
                continue;
            }
            quiet += 1;
            let deadlines = connections.iter().filter_map(Connection::deadline);
            let next = deadlines.chain(pair.next_time()).min();
            let Some(next) = next.filter(|_| quiet < 100_000) else {
                let states: Vec<_> = connections.iter().map(Connection::state).collect();
                panic!("nothing goes on any more at {}: {states:#?}", pair.now);
            };
            pair.pass_to(next);
        }
        // What nobody acknowledges may still be under way.
        pair.run_for(Duration::from_millis(1));
        let mut tally = Tally::default();
        for c in &mut connections {
            c.finish(&mut pair, &mut completions);
            tally += c.tally();
        }
        completions.finish();
        take_events(&mut pair, &mut connections);
        tally
    }
}

/// Programs that send datagrams over a link.
#[derive(Clone)]
struct DatagramTraffic {
    faults: Faults,
    /// Of each host.
    stations: usize,
    messages: u64,
}

impl DatagramTraffic {
    fn simulate(&self, seed: u64) -> Tally {
        let mut rng = Rng::new(seed);
        let mut pair = make_pair(Cabling::One, Duration::from_micros(2), &mut rng);
        let mtu_code = rng.pick(&[1u8, 3, 5]);
        for n in 0..2 {
            pair.host(n)
                .set_port_info(|info| info.neighbor_mtu = mtu_code);
        }
        // The upper half of the Q_Keys is for management.
        let qkeys = [0, 1].map(|_| rng.next() as u32 >> 1);
        let mut groups = Group::some();
        let mut stations: Vec<_> = (0..2 * self.stations)
            .map(|n| {
                let (qkey, mtu) = (rng.pick(&qkeys), 128 << mtu_code);
                Station::new(&mut pair, n % 2, qkey, mtu, &groups, &mut rng)
            })
            .collect();
        let peers: Vec<_> = stations.iter().map(Station::peer).collect();
        let mut network = Datagrams::new(self.faults.duplicate_ppm > 0);
        set_faults(&mut pair, self.faults);
        // The groups change between two halves.
        for messages in [self.messages / 2, self.messages - self.messages / 2] {
            for group in &mut groups {
                group.draw(&mut pair, &peers, &mut rng);
            }
            for station in &mut stations {
                station.go_on(messages);
            }
            while !stations.iter().all(Station::is_done) {
                let mut found = false;
                for station in &mut stations {
                    found |= station.round(&mut pair, &peers, &groups, &mut network);
                }
                if !(pair.poll() | found) {
                    let next = pair.next_time().expect("ports have deadlines");
                    pair.pass_to(next);
                }
            }
            pair.run_for(Duration::from_millis(1));
        }
        let mut tally = Tally::default();
        let mut refused = Refused::default();
        for station in &mut stations {
            station.take_completions(&mut pair, &mut network);
            tally += station.tally();
        }
        for n in 0..2 {
            refused.add(&mut pair, n);
            assert_eq!(pair.host(n).events(), []);
        }
        self.account(&network, &refused);
        tally
    }

    /// Whether what became of all datagrams fits together.
    fn account(&self, network: &Datagrams, refused: &Refused) {
        let sent = network.sent;
        let known = network.arrived + refused.dropped;
        if self.faults == Faults::default() {
            // Without faults each one is accounted for.
            assert_eq!(known, sent);
            assert_eq!(refused.violations, network.forbidden);
        } else {
            assert!(
                known * 10 >= sent * 9,
                "{known} datagrams of {sent} arrived"
            );
        }
    }
}

/// Two hosts with active ports.
fn make_pair(cabling: Cabling, latency: Duration, rng: &mut Rng) -> Pair {
    let cable = MemConfig {
        latency,
        seed: rng.next(),
        ..MemConfig::default()
    };
    let port = PortConfig {
        // A lost packet takes its credits along until the next flow control packet.
        fc_refresh: Duration::from_micros(20),
        ..PortConfig::default()
    };
    let mut pair = Pair::with_ports(cabling, cable, port, MEMORY);
    pair.bring_up();
    pair
}

fn set_faults(pair: &mut Pair, faults: Faults) {
    for host in [&mut pair.a, &mut pair.b] {
        for port in 1..=host.hca.ports() {
            let link = host.hca.link_mut(port).unwrap();
            link.cable_mut().set_faults(faults);
        }
    }
}

/// Hands each event to the connection that it is of; whether there was one.
fn take_events(pair: &mut Pair, connections: &mut [Connection]) -> bool {
    let mut any = false;
    for n in 0..2 {
        for (event, port, number) in pair.host(n).events() {
            any = true;
            let taken = connections.iter_mut().any(|c| c.event(n, event, number));
            assert!(taken, "{event:?} of port {port}, number {number:#x}");
        }
    }
    any
}

/// A link that loses, repeats, delays and damages packets, each this often in a thousand.
fn bad_link(permille: u32) -> Faults {
    let ppm = permille * 1000;
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

/// The same without delays, which would change the order.
fn losing_link(permille: u32) -> Faults {
    Faults {
        delay_ppm: 0,
        most_hits: 0,
        ..bad_link(permille)
    }
}

fn rc_on_a_clean_link() -> Traffic {
    Traffic::rc(Faults::default(), 2500)
}

fn rc_on_a_bad_link() -> Traffic {
    Traffic::rc(bad_link(10), 1500)
}

fn rc_on_a_very_bad_link() -> Traffic {
    let mut traffic = Traffic::rc(bad_link(50), 800);
    traffic.style.mix.long = 0;
    traffic
}

fn many_connections_share_a_bad_link() -> Traffic {
    Traffic::rc(bad_link(5), 400).many(16)
}

fn atomics_and_reads_on_a_link_that_loses_answers() -> Traffic {
    let mut traffic = Traffic::rc(bad_link(40), 1200);
    traffic.style.mix.opcodes = vec![
        SendOpcode::Read,
        SendOpcode::CompareSwap,
        SendOpcode::FetchAdd,
    ];
    traffic
}

fn receivers_are_slow() -> Traffic {
    let mut traffic = Traffic::rc(bad_link(5), 1200);
    traffic.style.mix.receives = 1;
    traffic.style.mix.opcodes = vec![
        SendOpcode::Send,
        SendOpcode::SendImm,
        SendOpcode::WriteImm,
        SendOpcode::Read,
    ];
    traffic
}

fn senders_give_up_on_slow_receivers() -> Traffic {
    let mut traffic = Traffic::rc(Faults::default(), 400).many(4);
    traffic.style.mix.receives = 2;
    traffic.style.rnr_retry = 2;
    traffic
}

fn wrong_requests_end_connections() -> Traffic {
    let mut traffic = Traffic::rc(bad_link(5), 1000).many(4);
    traffic.style.mix.wrong = 10;
    traffic
}

fn software_interferes() -> Traffic {
    let mut traffic = Traffic::rc(bad_link(5), 1000).many(6);
    traffic.style.trouble = 40;
    traffic.style.mix.wrong = 2;
    traffic
}

fn queues_share_cqs() -> Traffic {
    let mut traffic = software_interferes();
    traffic.shares_cqs = true;
    traffic
}

fn long_messages_are_cut_off() -> Traffic {
    let mut traffic = Traffic::rc(bad_link(1), 200);
    traffic.connections = 2;
    traffic.style.mix.long = 100;
    traffic.style.trouble = 200;
    traffic
}

fn two_ports() -> Traffic {
    let mut traffic = Traffic::rc(bad_link(5), 500).many(6);
    traffic.cabling = Cabling::Two;
    traffic
}

fn crossed_ports() -> Traffic {
    let mut traffic = two_ports();
    traffic.cabling = Cabling::Crossed;
    traffic
}

fn uc_on_a_clean_link() -> Traffic {
    let mut traffic = Traffic::rc(Faults::default(), 1500).uc();
    traffic.style.mix.ahead = true;
    traffic
}

fn uc_on_a_losing_link() -> Traffic {
    let mut traffic = Traffic::rc(losing_link(5), 2000).uc();
    traffic.style.is_lossy = true;
    traffic.style.room = Room::PLAIN;
    traffic.style.mix.long = 0;
    traffic
}

fn wrong_requests_on_unreliable_connections() -> Traffic {
    let mut traffic = uc_on_a_losing_link();
    traffic.style.mix.wrong = 10;
    traffic
}

fn software_interferes_with_unreliable_connections() -> Traffic {
    let mut traffic = wrong_requests_on_unreliable_connections().many(6);
    traffic.style.trouble = 40;
    traffic.style.mix.messages = 1000;
    traffic.shares_cqs = true;
    traffic
}

fn datagrams_on_a_clean_link() -> DatagramTraffic {
    DatagramTraffic {
        faults: Faults::default(),
        stations: 3,
        messages: 1000,
    }
}

fn datagrams_on_a_bad_link() -> DatagramTraffic {
    DatagramTraffic {
        faults: bad_link(20),
        ..datagrams_on_a_clean_link()
    }
}

fn scenarios() -> Vec<Scenario> {
    macro_rules! scenarios {
        ($($name:ident: $seeds:expr,)*) => {
            vec![$({
                let traffic = $name();
                Scenario {
                    name: stringify!($name),
                    seeds: $seeds,
                    run: Box::new(move |seed| traffic.simulate(seed)),
                }
            }),*]
        };
    }
    scenarios! {
        rc_on_a_clean_link: 0..4,
        rc_on_a_bad_link: 100..108,
        rc_on_a_very_bad_link: 200..206,
        many_connections_share_a_bad_link: 300..303,
        atomics_and_reads_on_a_link_that_loses_answers: 400..404,
        receivers_are_slow: 500..503,
        senders_give_up_on_slow_receivers: 600..602,
        wrong_requests_end_connections: 700..703,
        software_interferes: 800..803,
        queues_share_cqs: 850..854,
        long_messages_are_cut_off: 900..903,
        two_ports: 1000..1002,
        crossed_ports: 1100..1102,
        uc_on_a_clean_link: 1200..1203,
        uc_on_a_losing_link: 1300..1304,
        wrong_requests_on_unreliable_connections: 1350..1354,
        software_interferes_with_unreliable_connections: 1380..1383,
        datagrams_on_a_clean_link: 1400..1403,
        datagrams_on_a_bad_link: 1500..1503,
    }
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("list") {
        for scenario in scenarios() {
            println!("{}", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    match Options::parse(std::env::args().skip(1)) {
        Ok(options) => ExitCode::from(u8::from(!runner::run(&scenarios(), &options))),
        Err(e) => {
            eprintln!("simulation: {e}");
            ExitCode::from(2)
        }
    }
}
