// SPDX-License-Identifier: GPL-2.0-or-later
//! The programs of the demonstration: single ones, and pairs of a server and a client.

use std::time::Duration;

use anyhow::{bail, Context, Result};

use super::figures::{self, Figures};
use super::report::Program;
use crate::device::Kind;
use crate::exec::Finished;
use crate::lab::{run, shell, start};
use crate::patience;
use crate::vm::Vm;

/// How long a pair of programs may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a program alone may take.
const SINGLE_LIMIT: Duration = Duration::from_secs(20);

/// TCP port of the handshakes of the pingpong and perftest programs.
const PORT: u16 = 18515;

/// How to read what a pair of programs prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `ibv_*_pingpong`.
    Pingpong,
    /// perftest.
    Perftest,
}

/// A server and a client with the same arguments.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// How to read its output.
    pub style: Style,
}

impl Pair {
    fn new(style: Style, kind: &Kind, words: &str) -> Self {
        let mut argv: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        argv.extend(["-d".to_owned(), kind.device().to_owned()]);
        match (kind, style) {
            (Kind::Rxe, Style::Pingpong) => argv.extend(["-g".into(), "1".into()]),
            (Kind::Rxe, Style::Perftest) => argv.extend(["-x".into(), "1".into()]),
            _ => {}
        }
        if style == Style::Perftest {
            // No warning about the processor's clock.
            argv.push("-F".into());
        }
        Self { argv, style }
    }

    /// A pingpong program with these arguments.
    pub fn pingpong(kind: &Kind, words: &str) -> Self {
        Self::new(Style::Pingpong, kind, words)
    }

    /// A perftest program with these arguments.
    pub fn perftest(kind: &Kind, words: &str) -> Self {
        Self::new(Style::Perftest, kind, words)
    }
}

/// The pairs that the demonstration runs, in order.
pub fn pairs(kind: &Kind) -> Vec<Pair> {
    let mut all = Vec::new();
    for transport in ["rc", "uc", "ud"] {
        for flags in ["-c", "-c -e"] {
            all.push(Pair::pingpong(
                kind,
                &format!("ibv_{transport}_pingpong {flags}"),
            ));
        }
    }
    // Software RoCE needs a hundred times longer for as many bytes.
    let (small, large) = match kind {
        Kind::Rxe => (100, 8),
        _ => (4000, 500),
    };
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        all.push(Pair::perftest(
            kind,
            &format!("{program} -s 65536 -n {small}"),
        ));
        all.push(Pair::perftest(
            kind,
            &format!("{program} -s 1048576 -n {large}"),
        ));
    }
    for words in ["ib_send_lat -s 2", "ib_write_lat -s 2", "ib_atomic_lat"] {
        all.push(Pair::perftest(kind, &format!("{words} -n 1000")));
    }
    all
}

/// Runs a program alone; it must return zero and print `needle`.
///
/// # Errors
/// When it cannot be run; a failure of its own is in the result.
pub fn single(vm: &Vm, words: &str, needle: &str) -> Result<(Program, Finished)> {
    let argv: Vec<&str> = words.split_whitespace().collect();
    let finished = run(vm, &argv, SINGLE_LIMIT)?;
    let program = Program {
        name: argv.first().copied().unwrap_or_default().to_owned(),
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        ok: finished.exit.ok() && finished.out.contains(needle),
        figures: Figures::new(),
    };
    Ok((program, finished))
}

/// Runs a pair: `server` first, then `client` against it. The error of a pair that failed tells what
/// both sides said.
///
/// # Errors
/// When either side fails, prints no figures, or found wrong data.
pub fn pair(server: &Vm, client: &Vm, pair: &Pair) -> Result<Program> {
    let argv: Vec<&str> = pair.argv.iter().map(String::as_str).collect();
    let serving = start(server, &argv, false)?;
    // TCP port in hexadecimal as the kernel lists sockets, state 0A is listening.
    let listening = format!(
        "n=0; until grep -qi ':{PORT:04x} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6; do \
         n=$((n + 1)); [ $n -lt {} ] || exit 1; sleep 0.02; done",
        200 * patience::factor()
    );
    let waited = shell(server, &listening, false)?.wait(LIMIT)?;
    if !waited.exit.ok() {
        serving.kill(nix::libc::SIGTERM);
        let finished = serving.wait(LIMIT)?;
        bail!(
            "{} in VM {} did not listen: {}",
            pair.argv.join(" "),
            server.name(),
            said(&finished)
        );
    }
    let mut argv = argv;
    argv.push(server.name());
    let client_side = start(client, &argv, false)?.wait(LIMIT);
    let client_side = match client_side {
        Ok(finished) => finished,
        Err(error) => {
            serving.kill(nix::libc::SIGKILL);
            let server_side = serving.wait(LIMIT).map(|finished| said(&finished));
            return Err(error.context(format!(
                "the server said: {}",
                server_side.unwrap_or_else(|error| error.to_string())
            )));
        }
    };
    if !client_side.exit.ok() {
        serving.kill(nix::libc::SIGTERM);
    }
    let server_side = serving.wait(LIMIT)?;
    let figures = match pair.style {
        Style::Pingpong => figures::pingpong(&client_side.out),
        Style::Perftest => figures::perftest(&client_side.out),
    };
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    check(&server_side, "server")
        .and_then(|()| check(&client_side, "client"))
        .with_context(|| argv.join(" "))?;
    let Some(figures) = figures else {
        bail!(
            "{} printed no figures: {}",
            argv.join(" "),
            said(&client_side)
        );
    };
    Ok(Program {
        name: argv.first().cloned().unwrap_or_default(),
        argv,
        ok: true,
        figures,
    })
}

/// The pingpong programs return zero even if they found wrong data.
fn check(finished: &Finished, side: &str) -> Result<()> {
    if !finished.exit.ok() {
        bail!("the {side} failed ({}): {}", finished.exit, said(finished));
    }
    if finished.out.contains("invalid data") {
        bail!("the {side} received wrong data: {}", said(finished));
    }
    Ok(())
}

/// The last lines of what a program said, on one line.
fn said(finished: &Finished) -> String {
    let text = format!("{}\n{}", finished.out, finished.err);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let tail = lines.len().saturating_sub(6);
    lines[tail..].join(" / ")
}
