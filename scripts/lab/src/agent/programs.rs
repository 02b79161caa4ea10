// SPDX-License-Identifier: GPL-2.0-or-later
//! Programs that the host asked to run: on pipes, or on a terminal.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::pty::{openpty, OpenptyResult, Winsize};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;

use super::port::Port;
use crate::proto::{Bytes, Command, Exit, Report, Size, Stream};

nix::ioctl_write_ptr_bad!(
    /// Sets the size of the terminal behind a file descriptor.
    set_window_size,
    nix::libc::TIOCSWINSZ,
    Winsize
);

/// A program that runs.
struct Program {
    group: Pid,
    input: Option<Sender<Vec<u8>>>,
    terminal: Option<OwnedFd>,
}

/// All programs that run.
pub(super) struct Programs {
    port: Arc<Port>,
    running: Arc<Mutex<HashMap<u64, Program>>>,
}

impl Programs {
    /// Nothing runs yet; reports go to `port`.
    pub(super) fn new(port: Arc<Port>) -> Self {
        Self {
            port,
            running: Arc::default(),
        }
    }

    /// Starts a program; its output and its end are reported by threads of its own.
    pub(super) fn start(&self, id: u64, command: Command) {
        let started = match command.tty {
            Some(size) => start_on_terminal(&command, size),
            None => start_on_pipes(&command),
        };
        let (mut child, program, outputs) = match started {
            Ok(started) => started,
            Err(error) => {
                let name = command.argv.first().map_or("", String::as_str);
                let error = format!("cannot start '{name}': {error}");
                report(&self.port, &Report::Failed { id, error });
                return;
            }
        };
        lock(&self.running).insert(id, program);
        let readers: Vec<_> = outputs
            .into_iter()
            .map(|(stream, source)| {
                let port = Arc::clone(&self.port);
                thread::spawn(move || forward(&port, id, stream, source))
            })
            .collect();
        let port = Arc::clone(&self.port);
        let running = Arc::clone(&self.running);
        thread::spawn(move || {
            let status = child.wait();
            // A daemon may have kept the pipes: what it writes later still is this program's output,
            // but nobody should wait for it.
            let pause = std::time::Duration::from_millis(5);
            for _ in 0..100 {
                if readers.iter().all(|reader| reader.is_finished()) {
                    break;
                }
                thread::sleep(pause);
            }
            lock(&running).remove(&id);
            let report_of_end = match status {
                Ok(status) => Report::Exited {
                    id,
                    exit: exit_of(status),
                },
                Err(error) => Report::Failed {
                    id,
                    error: error.to_string(),
                },
            };
            report(&port, &report_of_end);
        });
    }

    /// Gives input to a program; nothing is end of file.
    pub(super) fn input(&self, id: u64, data: Vec<u8>) {
        let mut running = lock(&self.running);
        let Some(program) = running.get_mut(&id) else {
            return;
        };
        if data.is_empty() {
            if program.terminal.is_none() {
                program.input = None;
            }
            return;
        }
        if let Some(input) = &program.input {
            if input.send(data).is_err() {
                program.input = None;
            }
        }
    }

    /// Changes the size of a program's terminal.
    pub(super) fn resize(&self, id: u64, size: Size) {
        if let Some(terminal) = lock(&self.running)
            .get(&id)
            .and_then(|program| program.terminal.as_ref())
        {
            let size = window(size);
            // SAFETY: the descriptor is an open terminal and `size` outlives the call, which reads it.
            let _ = unsafe { set_window_size(terminal.as_raw_fd(), &raw const size) };
        }
    }

    /// Signals a program and its children.
    pub(super) fn kill(&self, id: u64, signal: i32) {
        let running = lock(&self.running);
        if let (Some(program), Ok(signal)) = (running.get(&id), Signal::try_from(signal)) {
            let _ = killpg(program.group, signal);
        }
    }
}

type Started = (Child, Program, Vec<(Stream, File)>);

fn process(argv: &[String], command: &Command) -> io::Result<Process> {
    let Some((name, arguments)) = argv.split_first() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the command is empty",
        ));
    };
    let mut process = Process::new(name);
    process.args(arguments).envs(&command.env);
    if let Some(cwd) = &command.cwd {
        process.current_dir(cwd);
    }
    Ok(process)
}

fn start_on_pipes(command: &Command) -> io::Result<Started> {
    let mut process = process(&command.argv, command)?;
    let input = if command.stdin {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut child = process
        .process_group(0)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut outputs = Vec::new();
    if let Some(out) = child.stdout.take() {
        outputs.push((Stream::Out, File::from(OwnedFd::from(out))));
    }
    if let Some(err) = child.stderr.take() {
        outputs.push((Stream::Err, File::from(OwnedFd::from(err))));
    }
    let program = Program {
        group: group_of(&child),
        input: child
            .stdin
            .take()
            .map(|input| feed(File::from(OwnedFd::from(input)))),
        terminal: None,
    };
    Ok((child, program, outputs))
}

fn start_on_terminal(command: &Command, size: Size) -> io::Result<Started> {
    let OpenptyResult { master, slave } = openpty(&window(size), None)?;
    // setsid(1) makes the terminal the program's controlling one, and its session a group of its own.
    let mut argv = vec!["setsid".to_owned(), "--ctty".into(), "--wait".into()];
    argv.extend(command.argv.iter().cloned());
    let stdio = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(Stdio::from);
    let child = process(&argv, command)?
        .stdin(stdio(slave.as_fd())?)
        .stdout(stdio(slave.as_fd())?)
        .stderr(stdio(slave.as_fd())?)
        .spawn()?;
    let program = Program {
        group: group_of(&child),
        input: Some(feed(File::from(master.try_clone()?))),
        terminal: Some(master.try_clone()?),
    };
    Ok((child, program, vec![(Stream::Out, File::from(master))]))
}

/// Writes what is sent to a program that may read slowly or not at all.
fn feed(mut input: File) -> Sender<Vec<u8>> {
    let (sender, receiver) = channel::<Vec<u8>>();
    thread::spawn(move || {
        for data in receiver {
            if input.write_all(&data).is_err() {
                return;
            }
        }
    });
    sender
}

fn window(size: Size) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn forward(port: &Port, id: u64, stream: Stream, mut source: File) {
    let mut chunk = vec![0; 32 << 10];
    loop {
        match source.read(&mut chunk) {
            Ok(0) => return,
            Ok(n) => {
                let data = Bytes(chunk[..n].to_vec());
                report(port, &Report::Output { id, stream, data });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A terminal's last user has gone.
            Err(_) => return,
        }
    }
}

fn report(port: &Port, message: &Report) {
    if let Err(error) = port.send(message) {
        eprintln!("ochre-agent: cannot report to the host: {error}");
    }
}

/// A child that leads a process group.
fn group_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
