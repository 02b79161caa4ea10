// SPDX-License-Identifier: GPL-2.0-or-later
//! Talks to a lab that runs in another process, by its control socket.

use std::env;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{anyhow, bail, Context, Result};
use clap::Subcommand;
use serde_json::Value;

use crate::control::{link_path, Answer, Ask, VARIABLE};
use crate::dmesg;
use crate::paths;
use crate::proto::{write_frame, Bytes, Command, Exit, Reader, Record, Size, Stream};
use crate::shell::{self, Remote};

/// What a client can do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run a command in a VM of a running lab
    Exec {
        /// The VM
        vm: String,
        /// Feed our standard input to it
        #[arg(short, long)]
        interactive: bool,
        /// The command
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// A shell in a VM of a running lab
    Shell {
        /// The VM
        vm: String,
    },
    /// Give a QMP command to the QEMU of a VM and print its answer
    Qmp {
        /// The VM
        vm: String,
        /// The command
        name: String,
        /// Its arguments, as a JSON object
        #[arg(default_value = "{}")]
        arguments: String,
    },
    /// Cut the power of a VM
    Cut {
        /// The VM
        vm: String,
    },
    /// Boot a VM anew
    Restart {
        /// The VM
        vm: String,
    },
    /// Let a guest reboot, and make its device usable again
    Reboot {
        /// The VM
        vm: String,
    },
    /// Load the modules of a guest and wait for its device
    Prepare {
        /// The VM
        vm: String,
    },
    /// Take the HCA of a VM out of its slot
    Unplug {
        /// The VM
        vm: String,
    },
    /// Put the HCA of a VM back into its slot
    Plug {
        /// The VM
        vm: String,
    },
    /// Print the kernel log of a VM
    Dmesg {
        /// The VM
        vm: String,
        /// Only what tells of a fault in the kernel; the exit code is 1 if there is any
        #[arg(long)]
        faults: bool,
    },
    /// List the VMs of a running lab
    List,
}

fn connect() -> Result<UnixStream> {
    let socket = match env::var_os(VARIABLE) {
        Some(socket) => socket.into(),
        None => link_path(&paths::build("lab")?),
    };
    // The link itself may be too long a path for a socket.
    let socket = std::fs::read_link(&socket).unwrap_or(socket);
    UnixStream::connect(&socket).with_context(|| {
        format!(
            "no lab answers at {}; start one with 'make pair', or set {VARIABLE}",
            socket.display()
        )
    })
}

/// Does what the command line asks; returns the exit code.
///
/// # Errors
/// When no lab answers, or it refuses.
pub fn run(action: Action) -> Result<i32> {
    let ask = match action {
        Action::Exec {
            vm,
            interactive,
            command,
        } => {
            return exec(
                &vm,
                Command {
                    argv: command,
                    stdin: interactive,
                    ..Command::default()
                },
            );
        }
        Action::Shell { vm } => return exec(&vm, shell::command()),
        Action::Qmp {
            vm,
            name,
            arguments,
        } => Ask::Qmp {
            vm,
            name,
            arguments: serde_json::from_str(&arguments)
                .with_context(|| format!("'{arguments}' is not a JSON object"))?,
        },
        Action::Cut { vm } => Ask::Cut { vm },
        Action::Restart { vm } => Ask::Restart { vm },
        Action::Reboot { vm } => Ask::Reboot { vm },
        Action::Prepare { vm } => Ask::Prepare { vm },
        Action::Unplug { vm } => Ask::Unplug { vm },
        Action::Plug { vm } => Ask::Plug { vm },
        Action::Dmesg { vm, faults } => return log(vm, faults),
        Action::List => Ask::List,
    };
    let value = ask_once(&ask)?;
    if value != Value::Null && value != Value::Object(serde_json::Map::new()) {
        println!("{value}");
    }
    Ok(0)
}

/// Prints the kernel log, or only the faults in it; returns the exit code.
fn log(vm: String, faults: bool) -> Result<i32> {
    let value = ask_once(&Ask::Dmesg { vm, since: 0 })?;
    let records = serde_json::from_value::<Vec<Record>>(value)?;
    let shown: Vec<&Record> = if faults {
        dmesg::splats(&records)
    } else {
        records.iter().collect()
    };
    for record in &shown {
        println!(
            "[{:5}.{:06}] {}",
            record.usec / 1_000_000,
            record.usec % 1_000_000,
            record.text
        );
    }
    Ok(i32::from(faults && !shown.is_empty()))
}

fn ask_once(ask: &Ask) -> Result<Value> {
    let mut stream = connect()?;
    write_frame(&mut stream, ask).context("cannot reach the lab")?;
    match Reader::new(stream).message()? {
        Some(Answer::Done { value }) => Ok(value),
        Some(Answer::Failed { error }) => bail!("{error}"),
        Some(answer) => bail!("unexpected answer of the lab: {answer:?}"),
        None => bail!("the lab has ended"),
    }
}

#[derive(Clone)]
struct Connection(Arc<Mutex<UnixStream>>);

impl Connection {
    fn send(&self, ask: &Ask) {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = write_frame(&mut *stream, ask);
    }
}

impl Remote for Connection {
    fn input(&self, bytes: &[u8]) {
        self.send(&Ask::Stdin {
            data: Bytes(bytes.to_vec()),
        });
    }

    fn resize(&self, size: Size) {
        self.send(&Ask::Resize { size });
    }
}

fn exec(vm: &str, command: Command) -> Result<i32> {
    let terminal = command.tty.is_some();
    let stdin = command.stdin;
    let stream = connect()?;
    let connection = Connection(Arc::new(Mutex::new(stream.try_clone()?)));
    connection.send(&Ask::Exec {
        vm: vm.to_owned(),
        command,
    });
    let mut reader = Reader::new(stream);
    let mut next = move || -> Result<std::result::Result<(Stream, Vec<u8>), Exit>> {
        match reader.message()? {
            Some(Answer::Output { stream, data }) => Ok(Ok((stream, data.0))),
            Some(Answer::Exited { exit }) => Ok(Err(exit)),
            Some(Answer::Failed { error }) => Err(anyhow!(error)),
            Some(answer) => bail!("unexpected answer of the lab: {answer:?}"),
            None => bail!("the lab has ended"),
        }
    };
    if terminal {
        return shell::attach(&connection, move || Ok(next()?.map(|(_, bytes)| bytes)));
    }
    if stdin {
        let connection = connection.clone();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = io::stdin().read(&mut chunk) {
                connection.input(&chunk[..n]);
            }
            connection.input(&[]);
        });
    }
    loop {
        match next()? {
            Ok((Stream::Out, bytes)) => {
                io::stdout().write_all(&bytes)?;
                io::stdout().flush()?;
            }
            Ok((Stream::Err, bytes)) => io::stderr().write_all(&bytes)?,
            Err(exit) => return Ok(exit.code()),
        }
    }
}
