// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket of a running lab: other processes run commands in its VMs and steer them.

use std::env;
use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use crate::cleanup;
use crate::exec::Event;
use crate::lab::{Lab, BOOT_LIMIT};
use crate::output::say;
use crate::paths;
use crate::proto::{write_frame, Bytes, Command, Exit, Reader, Size, Stream};

/// Names the control socket to programs that a lab starts.
pub const VARIABLE: &str = "OCHRE_LAB";

/// What a client asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Ask {
    /// Run a program; its output and its end are answered, and further asks feed it.
    Exec {
        /// The VM.
        vm: String,
        /// The program.
        command: Command,
    },
    /// Input for the program; nothing is end of file.
    Stdin {
        /// The input.
        data: Bytes,
    },
    /// The size of the program's terminal.
    Resize {
        /// The size.
        size: Size,
    },
    /// A command to QEMU.
    Qmp {
        /// The VM.
        vm: String,
        /// The command's name.
        name: String,
        /// Its arguments.
        arguments: Value,
    },
    /// Take the VM's power away.
    Cut {
        /// The VM.
        vm: String,
    },
    /// Boot the VM anew.
    Restart {
        /// The VM.
        vm: String,
    },
    /// Let the guest reboot and make its device usable again.
    Reboot {
        /// The VM.
        vm: String,
    },
    /// Make the device usable: load the modules and so on.
    Prepare {
        /// The VM.
        vm: String,
    },
    /// Take the HCA out of its slot.
    Unplug {
        /// The VM.
        vm: String,
    },
    /// Put the HCA into its slot.
    Plug {
        /// The VM.
        vm: String,
    },
    /// The kernel log from a record on.
    Dmesg {
        /// The VM.
        vm: String,
        /// Number of the first record.
        since: usize,
    },
    /// Names and states of the VMs, and process numbers of their QEMUs.
    List,
}

/// What the lab answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// Output of the program.
    Output {
        /// Where it was written.
        stream: Stream,
        /// What was written.
        data: Bytes,
    },
    /// The program's end.
    Exited {
        /// How.
        exit: Exit,
    },
    /// Done, with a result.
    Done {
        /// The result.
        value: Value,
    },
    /// Not done.
    Failed {
        /// Why.
        error: String,
    },
}

/// A lab that several threads use.
#[derive(Debug, Clone)]
pub struct Open {
    lab: Arc<RwLock<Lab>>,
    socket: PathBuf,
}

impl Open {
    /// Serves a lab on a socket of its own.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn new(lab: Lab) -> Result<Self> {
        let socket = paths::run_folder()?.join("control");
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let link = link_path(&lab.options.logs);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&socket, &link)
            .with_context(|| format!("cannot make {}", link.display()))?;
        let open = Self {
            lab: Arc::new(RwLock::new(lab)),
            socket,
        };
        let served = open.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let open = served.clone();
                thread::spawn(move || open.serve(stream));
            }
        });
        Ok(open)
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The lab, for looking at it and running programs.
    pub fn read(&self) -> RwLockReadGuard<'_, Lab> {
        self.lab.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lab, for changing it.
    pub fn write(&self) -> RwLockWriteGuard<'_, Lab> {
        self.lab.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: UnixStream) {
        let Ok(output) = stream.try_clone() else {
            return;
        };
        let output = Arc::new(Mutex::new(output));
        let mut reader = Reader::new(stream);
        while let Ok(Some(ask)) = reader.message() {
            let result = match ask {
                Ask::Exec { vm, command } => match self.exec(&vm, command, &mut reader, &output) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                },
                ask => self.answer(ask),
            };
            let answer = match result {
                Ok(value) => Answer::Done { value },
                Err(error) => Answer::Failed {
                    error: format!("{error:#}"),
                },
            };
            if send(&output, &answer).is_err() {
                return;
            }
        }
    }

    fn answer(&self, ask: Ask) -> Result<Value> {
        match ask {
            Ask::Exec { .. } | Ask::Stdin { .. } | Ask::Resize { .. } => {
                bail!("there is no program on this connection")
            }
            Ask::Qmp {
                vm,
                name,
                arguments,
            } => self.read().vm(&vm)?.qmp().command(&name, arguments),
            Ask::Cut { vm } => self.write().power_cut(&vm).map(|()| Value::Null),
            Ask::Restart { vm } => self.write().restart(&vm).map(|()| Value::Null),
            Ask::Reboot { vm } => {
                let lab = self.read();
                lab.vm(&vm)?.reboot(BOOT_LIMIT)?;
                lab.prepare(&vm)?;
                Ok(Value::Null)
            }
            Ask::Prepare { vm } => self.read().prepare(&vm).map(|()| Value::Null),
            Ask::Unplug { vm } => self.read().unplug(&vm).map(|()| Value::Null),
            Ask::Plug { vm } => self.read().plug(&vm).map(|()| Value::Null),
            Ask::Dmesg { vm, since } => {
                Ok(serde_json::to_value(self.read().vm(&vm)?.records(since))?)
            }
            Ask::List => {
                let lab = self.read();
                let vms: Vec<_> = lab
                    .vms
                    .iter()
                    .map(|vm| json!({"name": vm.name(), "alive": vm.alive(), "pid": vm.pid()}))
                    .collect();
                Ok(Value::from(vms))
            }
        }
    }

    fn exec(
        &self,
        vm: &str,
        command: Command,
        reader: &mut Reader<UnixStream>,
        output: &Arc<Mutex<UnixStream>>,
    ) -> Result<()> {
        let mut program = self.read().vm(vm)?.start_program(command, false)?;
        let handle = program.handle();
        let answers = Arc::clone(output);
        thread::spawn(move || loop {
            let answer = match program.event(Duration::from_secs(3600)) {
                Ok(Some(Event::Output(stream, bytes))) => Answer::Output {
                    stream,
                    data: Bytes(bytes),
                },
                Ok(Some(Event::Exited(exit))) => Answer::Exited { exit },
                Ok(Some(Event::Failed(error))) => Answer::Failed { error },
                Ok(None) => continue,
                Err(error) => Answer::Failed {
                    error: format!("{error:#}"),
                },
            };
            let last = !matches!(answer, Answer::Output { .. });
            if send(&answers, &answer).is_err() || last {
                if let Ok(stream) = answers.lock() {
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
                return;
            }
        });
        loop {
            match reader.message() {
                Ok(Some(Ask::Stdin { data })) => handle.input(&data.0),
                Ok(Some(Ask::Resize { size })) => handle.resize(size),
                Ok(Some(_)) => {}
                // The client has gone, and takes its program with it.
                Ok(None) | Err(_) => {
                    handle.kill(nix::libc::SIGKILL);
                    return Ok(());
                }
            }
        }
    }
}

fn send(stream: &Mutex<UnixStream>, answer: &Answer) -> io::Result<()> {
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    write_frame(&mut *stream, answer)
}

/// Where a lab with this folder of logs leaves a link to its control socket.
pub fn link_path(logs: &Path) -> PathBuf {
    logs.join("control")
}

/// Two shells side by side: in tmux, or in whatever terminals the user has.
///
/// # Errors
/// When the control socket or tmux fail.
pub fn pair(lab: Lab, subnet: bool) -> Result<i32> {
    if subnet {
        crate::demo::subnet::start(lab.vm("a")?)?;
    }
    let open = Open::new(lab)?;
    let program = env::current_exe().context("cannot find this program's own path")?;
    let shell = |vm: &str| {
        format!(
            "{VARIABLE}='{}' '{}' shell {vm}",
            open.socket().display(),
            program.display()
        )
    };
    let tmux = Process::new("tmux").arg("-V").output();
    if tmux.is_ok_and(|output| output.status.success()) && io::IsTerminal::is_terminal(&io::stdin())
    {
        let status = Process::new("tmux")
            .env_remove("TMUX")
            .arg("-S")
            .arg(open.socket().with_file_name("tmux"))
            .args(["new-session", &shell("a"), ";"])
            .args(["split-window", "-h", &shell("b"), ";"])
            .args(["set-option", "mouse", "on"])
            .status()
            .context("cannot start tmux")?;
        return Ok(status.code().unwrap_or(1));
    }
    say("no terminal for tmux here; in other terminals, run");
    for vm in ["a", "b"] {
        say(format!("    {}", shell(vm)));
    }
    say("and end this lab with Ctrl-C");
    while !cleanup::stopping() {
        thread::sleep(Duration::from_millis(500));
        if open.read().vms.iter().any(|vm| !vm.alive()) {
            bail!(
                "a VM is gone; the logs are in {}",
                open.read().options.logs.display()
            );
        }
    }
    Ok(0)
}
