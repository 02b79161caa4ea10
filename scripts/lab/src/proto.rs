// SPDX-License-Identifier: GPL-2.0-or-later
//! Messages between the host, the guest's agent and the clients of a running lab.
//!
//! A frame is the four bytes `OCHR`, the length of the payload as a little-endian `u32`, and the
//! payload: one JSON object. The leading bytes let a reader find the next frame again after a
//! guest was reset in the middle of one.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// First bytes of every frame.
const MAGIC: [u8; 4] = *b"OCHR";

/// Largest payload of a frame, in bytes.
const MAX_PAYLOAD: usize = 4 << 20;

/// Name of the virtio-serial port that carries the agent's frames.
pub const AGENT_PORT: &str = "ochre.agent";

/// Tag under which a VM offers its guest `/usr` once more, to be cached.
pub const USR_TAG: &str = "ochre.usr";

/// Bytes of a program's input or output; base64 in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD
            .decode(text)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// The standard stream that a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output, or a terminal's only stream.
    Out,
    /// Standard error.
    Err,
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// A program to run in a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments; the program is looked up in the guest's `PATH`.
    pub argv: Vec<String>,
    /// Variables added to the agent's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Run it on a terminal of this size instead of pipes.
    #[serde(default)]
    pub tty: Option<Size>,
    /// Keep standard input open for [`Request::Stdin`]; else it reads end of file at once.
    #[serde(default)]
    pub stdin: bool,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// A signal of this number ended it.
    Signal(i32),
}

impl Exit {
    /// The code that a shell would show: 128 plus the number for a signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// Whether the program returned zero.
    pub fn ok(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// One record of the guest's kernel log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Severity, 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Time since the guest booted, in microseconds.
    pub usec: u64,
    /// The message, without its time.
    pub text: String,
}

/// What the host asks of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Request {
    /// Start a program; answers carry the same `id`.
    Exec {
        /// Chosen by the host, not in use.
        id: u64,
        /// What to run.
        command: Command,
    },
    /// Input for a program.
    Stdin {
        /// The program.
        id: u64,
        /// Its input; nothing means end of file.
        data: Bytes,
    },
    /// A new size for a program's terminal.
    Resize {
        /// The program.
        id: u64,
        /// The size.
        size: Size,
    },
    /// Send a signal to a program's process group.
    Kill {
        /// The program.
        id: u64,
        /// Signal number.
        signal: i32,
    },
    /// Sync and power the guest off.
    Poweroff,
    /// Restart the guest.
    Reboot,
}

/// What the agent tells the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Report {
    /// The agent has started.
    Ready {
        /// Kernel release of the guest.
        kernel: String,
        /// Time since the guest's kernel started, in milliseconds.
        uptime_ms: u64,
    },
    /// A piece of a program's output.
    Output {
        /// The program.
        id: u64,
        /// Where it was written.
        stream: Stream,
        /// What was written.
        data: Bytes,
    },
    /// A program ended and all its output was sent.
    Exited {
        /// The program.
        id: u64,
        /// How.
        exit: Exit,
    },
    /// A program could not be started.
    Failed {
        /// The program.
        id: u64,
        /// Why.
        error: String,
    },
    /// New records of the kernel log, oldest first.
    Dmesg {
        /// The records.
        records: Vec<Record>,
    },
}

/// Writes one frame.
///
/// # Errors
/// Those of `writer`, and `InvalidInput` for a message longer than a frame may be.
pub fn write_frame<T: Serialize>(writer: &mut impl Write, message: &T) -> io::Result<()> {
    let payload = serde_json::to_vec(message)?;
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|&n| n as usize <= MAX_PAYLOAD);
    let Some(length) = length else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "message of {} bytes, a frame holds {MAX_PAYLOAD}",
                payload.len()
            ),
        ));
    };
    let mut frame = Vec::with_capacity(payload.len() + 8);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&payload);
    writer.write_all(&frame)?;
    writer.flush()
}

/// Collects bytes and takes frames out of them.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Adds bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Drops what was collected: the sender started anew.
    pub fn reset(&mut self) {
        self.buffer.clear();
    }

    /// Takes the next whole message; bytes that belong to no frame are skipped.
    pub fn take<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            let start = self
                .buffer
                .windows(MAGIC.len())
                .position(|window| window == MAGIC);
            match start {
                Some(start) => drop(self.buffer.drain(..start)),
                None => {
                    // The last bytes may be the beginning of a frame's first four.
                    let keep = self.buffer.len().min(MAGIC.len() - 1);
                    self.buffer.drain(..self.buffer.len() - keep);
                    return None;
                }
            }
            let length = self.buffer.get(4..8)?;
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            if length > MAX_PAYLOAD {
                self.buffer.drain(..MAGIC.len());
                continue;
            }
            let payload = self.buffer.get(8..8 + length)?;
            let message = serde_json::from_slice(payload);
            match message {
                Ok(message) => {
                    self.buffer.drain(..8 + length);
                    return Some(message);
                }
                Err(_) => drop(self.buffer.drain(..MAGIC.len())),
            }
        }
    }
}

/// Reads messages from a blocking source until its end.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    decoder: Decoder,
}

impl<R: Read> Reader<R> {
    /// Reads frames from `source`.
    pub fn new(source: R) -> Self {
        Self {
            source,
            decoder: Decoder::default(),
        }
    }

    /// The next message, or nothing at the end of the source.
    ///
    /// # Errors
    /// Those of the source.
    pub fn message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            if let Some(message) = self.decoder.take() {
                return Ok(Some(message));
            }
            match self.source.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(n) => self.decoder.push(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Report {
        Report::Ready {
            kernel: "7.3.4".into(),
            uptime_ms: 1234,
        }
    }

    fn output() -> Report {
        Report::Output {
            id: 7,
            stream: Stream::Err,
            data: Bytes(vec![0, 255, b'\n']),
        }
    }

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &ready()).unwrap();
        write_frame(&mut bytes, &output()).unwrap();
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(part);
                while let Some(report) = decoder.take::<Report>() {
                    seen.push(report);
                }
            }
            assert_eq!(seen, [ready(), output()], "cut at {cut}");
        }
    }

    #[test]
    fn noise_between_frames_is_skipped() {
        let mut decoder = Decoder::default();
        decoder.push(b"garbage OCH");
        assert_eq!(decoder.take::<Report>(), None);
        let mut bytes = b"OCHR\xff\xff\xff\xff".to_vec();
        write_frame(&mut bytes, &ready()).unwrap();
        decoder.push(&bytes);
        assert_eq!(decoder.take(), Some(ready()));
        assert_eq!(decoder.take::<Report>(), None);
    }

    #[test]
    fn a_reset_forgets_half_a_frame() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &output()).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&bytes[..20]);
        decoder.reset();
        decoder.push(&bytes);
        assert_eq!(decoder.take(), Some(output()));
    }

    #[test]
    fn a_message_too_long_is_refused() {
        let report = Report::Failed {
            id: 1,
            error: "x".repeat(MAX_PAYLOAD),
        };
        let error = write_frame(&mut Vec::new(), &report).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_signal_shows_as_a_shell_shows_it() {
        assert_eq!(Exit::Signal(9).code(), 137);
        assert_eq!(Exit::Code(3).code(), 3);
        assert!(!Exit::Signal(0).ok());
    }
}
