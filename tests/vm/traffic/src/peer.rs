// SPDX-License-Identifier: GPL-2.0-or-later
//! The handshake of two ends over TCP; afterwards the connection is not needed any more.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

/// How long the other end may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What an end tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) lid: u16,
    pub(crate) mtu: u32,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) seed: u64,
    pub(crate) slots: u64,
    pub(crate) counter: u64,
    pub(crate) rkey: u32,
    pub(crate) size: u64,
}

impl Ends {
    fn line(&self) -> String {
        format!(
            "{} {} {} {} {} {} {} {} {}\n",
            self.lid,
            self.mtu,
            self.qpn,
            self.psn,
            self.seed,
            self.slots,
            self.counter,
            self.rkey,
            self.size
        )
    }

    fn parse(line: &str) -> Result<Self> {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .with_context(|| format!("the peer said '{line}'"))?;
        let [lid, mtu, qpn, psn, seed, slots, counter, rkey, size] = numbers[..] else {
            bail!("the peer said '{line}', expected 9 numbers");
        };
        Ok(Ends {
            lid: lid.try_into()?,
            mtu: mtu.try_into()?,
            qpn: qpn.try_into()?,
            psn: psn.try_into()?,
            seed,
            slots,
            counter,
            rkey: rkey.try_into()?,
            size,
        })
    }
}

/// The connection to the other end.
pub(crate) struct Peer(BufReader<TcpStream>);

impl Peer {
    /// Waits for the other end on a port.
    pub(crate) fn listen(port: u16) -> Result<Self> {
        let listener =
            TcpListener::bind(("0.0.0.0", port)).with_context(|| format!("listening on {port}"))?;
        listener.set_nonblocking(true)?;
        let end = Instant::now() + PATIENCE;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Self::new(stream);
                }
                Err(error) if Instant::now() >= end => return Err(error).context("no peer came"),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Connects to the other end, which may not listen yet.
    pub(crate) fn connect(host: &str, port: u16) -> Result<Self> {
        let end = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect((host, port)) {
                Ok(stream) => return Self::new(stream),
                Err(error) if Instant::now() >= end => {
                    return Err(error).with_context(|| format!("connecting to {host}"))
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Peer(BufReader::new(stream)))
    }

    fn exchange_lines(&mut self, own: &str) -> Result<String> {
        self.0.get_mut().write_all(own.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line).context("the peer is silent")?;
        Ok(line)
    }

    /// Tells the other end and hears it.
    pub(crate) fn exchange(&mut self, own: &Ends) -> Result<Ends> {
        let line = self.exchange_lines(&own.line())?;
        Ends::parse(&line)
    }

    /// Waits until the other end has come as far.
    pub(crate) fn meet(&mut self) -> Result<()> {
        match self.exchange_lines("go\n")?.as_str() {
            "go\n" => Ok(()),
            other => bail!("the peer said '{other}', expected 'go'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_survive_the_way() {
        let ends = Ends {
            lid: 1,
            mtu: 5,
            qpn: 0x17,
            psn: 0xff_ffff,
            seed: u64::MAX,
            slots: 1 << 47,
            counter: 8,
            rkey: u32::MAX,
            size: 8192,
        };
        assert_eq!(Ends::parse(&ends.line()).unwrap(), ends);
        assert!(Ends::parse("1 2 3").is_err());
        assert!(Ends::parse("70000 5 1 1 1 1 1 1 1").is_err());
    }
}
