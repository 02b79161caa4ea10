// SPDX-License-Identifier: GPL-2.0-or-later
//! `ochre-hostile`: storms of nonsense, and attempts on what is not its own.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};

use ochre_hostile::objects::Loop;
use ochre_hostile::storm::{Peer, Storm, Tally};
use ochre_hostile::{doors, layouts};

const USAGE: &str = "\
usage: ochre-hostile storm SEED SECONDS [HOST]   rounds of nonsense, with another one at HOST; without HOST,
                                                waits for that one, which says how long
       ochre-hostile alone SEED ROUNDS          rounds of nonsense within this machine
       ochre-hostile limits                     attempts on what is not its own, one line each";

const TCP_PORT: u16 = 18602;
/// How long the other machine may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Connects to the other machine's program, or waits for it.
fn meet(host: Option<&str>) -> Result<TcpStream> {
    let Some(host) = host else {
        return Ok(TcpListener::bind(("0.0.0.0", TCP_PORT))?.accept()?.0);
    };
    let start = Instant::now();
    loop {
        match TcpStream::connect((host, TCP_PORT)) {
            Ok(stream) => return Ok(stream),
            Err(e) if start.elapsed() > PATIENCE => {
                return Err(e).with_context(|| format!("connecting to {host}"))
            }
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Tells the other side who we are and learns who it is.
fn exchange(stream: &mut TcpStream, own: Peer) -> Result<Peer> {
    stream.write_all(&own.to_bytes())?;
    let mut bytes = [0; Peer::SIZE];
    stream
        .read_exact(&mut bytes)
        .context("hearing of the peer")?;
    Ok(Peer::from_bytes(bytes))
}

/// Notes the seed in the kernel's log, for the case that the machine does not live to tell it.
fn note(seed: u64) {
    // Who may not write there does without.
    if let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") {
        let _ = writeln!(log, "ochre-hostile: round of seed {seed}");
    }
}

/// One round; `meet` gives the peer.
fn round(seed: u64, sum: &mut Tally, meet: impl FnOnce(Peer) -> Result<Peer>) -> Result<()> {
    note(seed);
    let mut storm = Storm::new(seed)?;
    let peer = meet(storm.as_peer()?)?;
    storm.connect(peer)?;
    storm.run()?;
    sum.add(&storm.end()?);
    Ok(())
}

/// What a run must have come to: all kinds of ends, and a device that works.
fn sum_up(rounds: u64, first: u64, sum: &Tally) -> Result<()> {
    println!(
        "{rounds} rounds from seed {first}: {} requests went well, {} failed, {} were flushed; {} restarts",
        sum.well, sum.failed, sum.flushed, sum.restarts
    );
    ensure!(
        sum.well > 0 && sum.failed > 0 && sum.flushed > 0,
        "this was no storm"
    );
    let mut after = Loop::new()?;
    after.check(*b"all well").context("after the storm")?;
    after.end().context("after the storm")
}

fn storm(seed: u64, seconds: u64, host: Option<&str>) -> Result<()> {
    let mut stream = meet(host)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let start = Instant::now();
    let mut sum = Tally::default();
    let mut rounds = 0;
    loop {
        // Who was given a host says whether there is another round.
        let mut more = [u8::from(start.elapsed().as_secs() < seconds)];
        if host.is_some() {
            stream.write_all(&more)?;
        } else {
            stream
                .read_exact(&mut more)
                .context("waiting for the peer")?;
        }
        if more == [0] {
            break;
        }
        let seed = seed + rounds;
        round(seed, &mut sum, |own| exchange(&mut stream, own))
            .with_context(|| format!("round of seed {seed}"))?;
        rounds += 1;
    }
    sum_up(rounds, seed, &sum)
}

fn alone(seed: u64, rounds: u64) -> Result<()> {
    let mut sum = Tally::default();
    for seed in seed..seed + rounds {
        let connect = |own: Peer| {
            Ok(Peer {
                qps: [own.qps[1], own.qps[0]],
                ..own
            })
        };
        round(seed, &mut sum, connect).with_context(|| format!("round of seed {seed}"))?;
    }
    sum_up(rounds, seed, &sum)
}

type Attempt = (&'static str, fn() -> Result<()>);

/// What is tried, one by one.
const LIMITS: &[Attempt] = &[
    (
        "no doorbell page can be mapped but the own one",
        doors::only_the_own_page,
    ),
    (
        "the page cannot be mapped longer, or privately",
        doors::only_as_it_is_meant,
    ),
    (
        "doorbells do not reach QPs of another process",
        doors::only_the_own_qps,
    ),
    (
        "CQs whose memory makes no sense are refused",
        layouts::of_cqs,
    ),
    (
        "QPs whose memory makes no sense are refused",
        layouts::of_qps,
    ),
];

fn limits() -> Result<()> {
    let mut bad = 0;
    for (what, attempt) in LIMITS {
        match attempt() {
            Ok(()) => println!("ok {what}"),
            Err(e) => {
                println!("not ok {what}: {e:#}");
                bad += 1;
            }
        }
    }
    ensure!(bad == 0, "{bad} attempts are not well");
    Ok(())
}

fn run(arguments: &[&str]) -> Result<()> {
    let number = |text: &str| {
        text.parse::<u64>()
            .with_context(|| format!("'{text}' is no number\n{USAGE}"))
    };
    match *arguments {
        ["storm", seed, seconds] => storm(number(seed)?, number(seconds)?, None),
        ["storm", seed, seconds, host] => storm(number(seed)?, number(seconds)?, Some(host)),
        ["alone", seed, rounds] => alone(number(seed)?, number(rounds)?),
        ["limits"] => limits(),
        ["victim"] => doors::victim(),
        _ => bail!("{USAGE}"),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ochre-hostile: {e:#}");
            ExitCode::FAILURE
        }
    }
}
