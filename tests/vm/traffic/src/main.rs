// SPDX-License-Identifier: GPL-2.0-or-later
//! Traffic for the tests of the life cycle: two of these, one in each VM, send to each other and check what
//! arrives, until they are told to stop or something ends them.
//!
//! The last line of output says how it ended. Exit code 0: by SIGTERM at either end, which the other learns by a
//! goodbye. 3: by an error that the specification gives to a QP or a program whose peer or device has gone.
//! 1: anything else, wrong data above all.

mod ffi;
mod peer;
mod stream;
mod verbs;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{bail, Result};
use clap::Parser;

use peer::Peer;
use stream::{End, Stream};

/// Send to a peer and check what it sends.
#[derive(Debug, Parser)]
#[command(name = "ochre-traffic")]
struct Arguments {
    /// RDMA device
    device: String,
    /// The other end, which waits for us; without it, wait for it
    #[arg(long, value_name = "HOST")]
    connect: Option<String>,
    /// TCP port of the handshake
    #[arg(long, default_value_t = 18600)]
    tcp: u16,
    /// Bytes of a message, a multiple of 8
    #[arg(long, default_value_t = 8192)]
    size: usize,
    /// Least time between two groups of requests, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pace: u64,
    /// Local ACK time-out: 4.096 us * 2^N
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=31))]
    timeout: u8,
    /// Retries after a time-out
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=7))]
    retries: u8,
}

fn run(arguments: &Arguments) -> Result<End> {
    if arguments.size % 8 != 0 || !(16..=1 << 20).contains(&arguments.size) {
        bail!(
            "--size is {}; it can be a multiple of 8 from 16 to 1048576",
            arguments.size
        );
    }
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))?;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let seed = clock ^ u64::from(std::process::id()) << 40;
    let pace = Duration::from_millis(arguments.pace);
    let mut stream = Stream::new(&arguments.device, arguments.size, seed, pace)?;
    let mut peer = match &arguments.connect {
        Some(host) => Peer::connect(host, arguments.tcp)?,
        None => Peer::listen(arguments.tcp)?,
    };
    let theirs = peer.exchange(&stream.ends()?)?;
    stream.connect(theirs, arguments.timeout, arguments.retries)?;
    peer.meet()?;
    drop(peer);
    println!("connected");
    let end = stream.run(&stop, |stream| {
        let (sent, received) = stream.progress();
        println!("groups {sent} {received}");
    });
    let (sent, received) = stream.progress();
    println!("groups {sent} {received}");
    end
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(end) => {
            println!("ended: {end:?}");
            ExitCode::from(if end == End::Stopped { 0 } else { 3 })
        }
        Err(error) => {
            println!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
