// SPDX-License-Identifier: GPL-2.0-or-later
//! QEMU's machine protocol: commands to a running QEMU, and its events.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, Context, Result};
use serde_json::{json, Value};

use crate::patience;

/// How long QEMU may take to answer; it is busy with the guest at times.
const LIMIT: Duration = Duration::from_secs(20);

/// A connection to one QEMU.
#[derive(Debug)]
pub struct Qmp {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    stream: UnixStream,
    answers: Receiver<Value>,
    next_id: u64,
}

impl Qmp {
    /// Takes over a fresh connection; `on_event` is called with the name and the data of each event.
    ///
    /// # Errors
    /// When QEMU does not greet or does not accept the negotiation.
    pub fn new(
        stream: UnixStream,
        mut on_event: impl FnMut(&str, &Value) + Send + 'static,
    ) -> Result<Self> {
        let mut lines = BufReader::new(stream.try_clone().context("QMP connection")?).lines();
        let greeting = lines
            .next()
            .transpose()
            .context("QMP greeting")?
            .ok_or_else(|| anyhow!("QEMU closed its QMP connection before greeting"))?;
        if !greeting.contains("\"QMP\"") {
            bail!("QMP: unexpected greeting '{greeting}'");
        }
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in lines {
                let Ok(line) = line else { return };
                let Ok(message) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                if let Some(event) = message["event"].as_str() {
                    on_event(event, &message["data"]);
                } else if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let qmp = Self {
            inner: Mutex::new(Inner {
                stream,
                answers,
                next_id: 1,
            }),
        };
        qmp.command("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns what it returns.
    ///
    /// # Errors
    /// QEMU's own words when it refuses, or when it has gone.
    pub fn command(&self, name: &str, arguments: Value) -> Result<Value> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let id = inner.next_id;
        inner.next_id += 1;
        let mut text = json!({"execute": name, "arguments": arguments, "id": id}).to_string();
        text.push('\n');
        inner
            .stream
            .write_all(text.as_bytes())
            .with_context(|| format!("QMP {name}"))?;
        let limit = patience::of(LIMIT);
        loop {
            let answer = match inner.answers.recv_timeout(limit) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("QMP {name}: no answer within {} s", limit.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("QMP {name}: QEMU has gone"),
            };
            if answer["id"].as_u64() != Some(id) {
                continue;
            }
            if let Some(error) = answer["error"]["desc"].as_str() {
                bail!("QMP {name}: {error}");
            }
            return Ok(answer["return"].clone());
        }
    }

    /// Sets a property of a device.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn set(&self, device: &str, property: &str, value: impl Into<Value>) -> Result<()> {
        let arguments = json!({
            "path": format!("/machine/peripheral/{device}"),
            "property": property,
            "value": value.into(),
        });
        self.command("qom-set", arguments).map(drop)
    }

    /// Reads a property of a device.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn get(&self, device: &str, property: &str) -> Result<Value> {
        let arguments = json!({
            "path": format!("/machine/peripheral/{device}"),
            "property": property,
        });
        self.command("qom-get", arguments)
    }
}
