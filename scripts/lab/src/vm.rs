// SPDX-License-Identifier: GPL-2.0-or-later
//! One virtual machine: booted, watched, ended.

mod watch;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Error, Result};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use serde_json::{json, Value};

use crate::cleanup;
use crate::exec::{Event, Program};
use crate::launch::{self, Config};
use crate::patience;
use crate::proto::{write_frame, Command, Record, Report, Request};
use crate::qmp::Qmp;
use watch::{accept, follow_agent, follow_console, follow_guard, last_lines};

/// Where a VM stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready { kernel: String, uptime_ms: u64 },
    Dead(String),
}

#[derive(Debug)]
struct State {
    phase: Phase,
    boots: u64,
    resets: u64,
    next_id: u64,
    programs: HashMap<u64, Sender<Event>>,
    records: Vec<Record>,
    events: Vec<(String, Value)>,
    qemu_pid: Option<i32>,
    qemu_end: Option<String>,
    closing: bool,
}

/// What the threads that watch a VM share with its users.
#[derive(Debug)]
pub struct Shared {
    /// The VM's name.
    pub name: String,
    console: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    agent: Mutex<Option<UnixStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Sends a request to the agent; one to a dead VM is lost.
    pub(crate) fn request(&self, request: &Request) {
        if let Some(agent) = lock(&self.agent).as_mut() {
            let _ = write_frame(agent, request);
        }
    }

    /// Forgets a program whose events nobody wants.
    pub(crate) fn forget(&self, id: u64) {
        lock(&self.state).programs.remove(&id);
    }

    /// Why the VM does not answer, and where its log is.
    pub(crate) fn obituary(&self) -> Error {
        // The last word on how QEMU ended comes a moment after its connections break.
        let end = Instant::now() + Duration::from_millis(300);
        let mut state = lock(&self.state);
        while state.qemu_end.is_none() && Instant::now() < end {
            state = self
                .changed
                .wait_timeout(state, Duration::from_millis(20))
                .map_or_else(|error| error.into_inner().0, |(state, _)| state);
        }
        let reason = match &state.phase {
            Phase::Dead(reason) => reason.clone(),
            _ => "its guest was reset".to_owned(),
        };
        let qemu = match &state.qemu_end {
            Some(end) => format!(" (QEMU ended with {end})"),
            None => String::new(),
        };
        drop(state);
        let tail = last_lines(&self.console, 12);
        anyhow!(
            "VM {} is gone: {reason}{qemu}; its console is in {}, which ends with:\n{tail}",
            self.name,
            self.console.display()
        )
    }

    fn die(&self, reason: &str) {
        let mut state = lock(&self.state);
        if !matches!(state.phase, Phase::Dead(_)) {
            state.phase = Phase::Dead(reason.to_owned());
        }
        state.programs.clear();
        drop(state);
        *lock(&self.agent) = None;
        self.changed.notify_all();
    }

    fn is_dead(&self) -> bool {
        matches!(lock(&self.state).phase, Phase::Dead(_))
    }

    /// Waits until `done` finds what it looks for.
    fn wait<T>(&self, limit: Duration, mut done: impl FnMut(&State) -> Option<T>) -> Option<T> {
        let end = Instant::now() + patience::of(limit);
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = done(&state) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            state = self
                .changed
                .wait_timeout(state, left)
                .map_or_else(|error| error.into_inner().0, |(state, _)| state);
        }
    }

    fn handle(&self, report: Report, log: &mut File) {
        let mut state = lock(&self.state);
        match report {
            Report::Ready { kernel, uptime_ms } => {
                if !matches!(state.phase, Phase::Dead(_)) {
                    state.phase = Phase::Ready { kernel, uptime_ms };
                    state.boots += 1;
                }
            }
            Report::Output { id, stream, data } => {
                if let Some(program) = state.programs.get(&id) {
                    let _ = program.send(Event::Output(stream, data.0));
                }
            }
            Report::Exited { id, exit } => {
                if let Some(program) = state.programs.remove(&id) {
                    let _ = program.send(Event::Exited(exit));
                }
            }
            Report::Failed { id, error } => {
                if let Some(program) = state.programs.remove(&id) {
                    let _ = program.send(Event::Failed(error));
                }
            }
            Report::Dmesg { records } => {
                for record in &records {
                    let _ = writeln!(
                        log,
                        "<{}>[{:5}.{:06}] {}",
                        record.level,
                        record.usec / 1_000_000,
                        record.usec % 1_000_000,
                        record.text
                    );
                }
                state.records.extend(records);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn event(&self, name: &str, data: &Value) {
        let mut state = lock(&self.state);
        state.events.push((name.to_owned(), data.clone()));
        if name == "RESET" {
            state.resets += 1;
            if !matches!(state.phase, Phase::Dead(_)) {
                state.phase = Phase::Starting;
            }
            state.programs.clear();
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// A running virtual machine; dropping it ends it.
#[derive(Debug)]
pub struct Vm {
    /// How it was started.
    pub config: Config,
    shared: Arc<Shared>,
    qmp: Qmp,
    child: Child,
    group: i32,
}

impl Vm {
    /// Starts a VM; `run` is a folder for its sockets and `logs` one for its logs. The guest boots on
    /// when this returns: wait for it with [`Self::wait_ready`].
    ///
    /// # Errors
    /// When QEMU does not start; the message holds what it said.
    pub fn start(config: Config, run: &Path, logs: &Path) -> Result<Self> {
        let name = config.name.clone();
        let _ = fs::remove_dir_all(run);
        fs::create_dir_all(run).with_context(|| format!("cannot make {}", run.display()))?;
        let listen = |socket: &str| {
            let path = run.join(socket);
            UnixListener::bind(&path)
                .with_context(|| format!("cannot listen on {}", path.display()))
        };
        let (guard, agent, qmp) = (listen("guard")?, listen("agent")?, listen("qmp")?);
        let console = logs.join(format!("{name}.console.log"));
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("cannot write {}", path.display()))
        };
        let console_log = create(&console)?;
        let dmesg_log = create(&logs.join(format!("{name}.dmesg.log")))?;

        let shared = Arc::new(Shared {
            name,
            console,
            state: Mutex::new(State {
                phase: Phase::Starting,
                boots: 0,
                resets: 0,
                next_id: 1,
                programs: HashMap::new(),
                records: Vec::new(),
                events: Vec::new(),
                qemu_pid: None,
                qemu_end: None,
                closing: false,
            }),
            changed: Condvar::new(),
            agent: Mutex::new(None),
        });

        // A pipe, since QEMU would truncate a file that is its standard output.
        let (output, input) = pipe2(OFlag::O_CLOEXEC).context("cannot make a pipe")?;
        let output = File::from(output);
        let mut child = launch::command(&config, run)?
            .stdin(Stdio::null())
            .stdout(input.try_clone().context("cannot make a pipe")?)
            .stderr(input)
            .process_group(0)
            .spawn()
            .context("cannot start virtme-run; is virtme-ng installed here?")?;
        let group = i32::try_from(child.id()).context("a process number out of range")?;
        cleanup::add_group(group);

        {
            let shared = Arc::clone(&shared);
            thread::spawn(move || follow_console(&shared, output, console_log));
        }
        {
            let shared = Arc::clone(&shared);
            thread::spawn(move || follow_guard(&shared, &guard));
        }
        {
            let shared = Arc::clone(&shared);
            thread::spawn(move || follow_agent(&shared, &agent, dmesg_log));
        }
        let connected = accept(&qmp, &shared)
            .ok_or_else(|| shared.obituary())
            .and_then(|stream| {
                let shared = Arc::clone(&shared);
                Qmp::new(stream, move |name, data| shared.event(name, data))
            });
        let qmp = match connected {
            Ok(qmp) => qmp,
            Err(error) => {
                let obituary = shared.obituary();
                cleanup::end_group(group);
                let _ = child.wait();
                return Err(if shared.is_dead() { obituary } else { error });
            }
        };
        Ok(Self {
            config,
            shared,
            qmp,
            child,
            group,
        })
    }

    /// The VM's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The process group of the VM's processes on the host.
    pub fn group(&self) -> i32 {
        self.group
    }

    /// Process number of its QEMU, once that runs.
    pub fn pid(&self) -> Option<i32> {
        lock(&self.shared.state).qemu_pid
    }

    /// How often the guest has come up.
    pub fn boots(&self) -> u64 {
        lock(&self.shared.state).boots
    }

    /// Waits until the guest has come up for the `boots`-th time; returns its kernel's release and the
    /// guest's uptime then, in milliseconds.
    ///
    /// # Errors
    /// The VM died, or did not come up within `limit`.
    pub fn wait_ready(&self, boots: u64, limit: Duration) -> Result<(String, u64)> {
        let found = self.shared.wait(limit, |state| match &state.phase {
            Phase::Ready { kernel, uptime_ms } if state.boots >= boots => {
                Some(Ok((kernel.clone(), *uptime_ms)))
            }
            Phase::Dead(_) => Some(Err(())),
            _ => None,
        });
        match found {
            Some(Ok(ready)) => Ok(ready),
            Some(Err(())) => Err(self.shared.obituary()),
            None => bail!(
                "VM {} did not come up within {} s; its console is in {}, which ends with:\n{}",
                self.name(),
                patience::of(limit).as_secs(),
                self.shared.console.display(),
                last_lines(&self.shared.console, 12)
            ),
        }
    }

    /// The connection to QEMU.
    pub fn qmp(&self) -> &Qmp {
        &self.qmp
    }

    /// Waits for an event of QEMU whose data satisfies `wanted`, from the `since`-th event on.
    ///
    /// # Errors
    /// It did not come within `limit`.
    pub fn wait_event(
        &self,
        since: usize,
        name: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        self.shared
            .wait(limit, |state| {
                state.events[since..]
                    .iter()
                    .any(|(event, data)| event == name && wanted(data))
                    .then_some(())
            })
            .ok_or_else(|| {
                anyhow!(
                    "VM {}: no event {name} of QEMU within {} s",
                    self.name(),
                    patience::of(limit).as_secs()
                )
            })
    }

    /// Events of QEMU so far.
    pub fn events(&self) -> usize {
        lock(&self.shared.state).events.len()
    }

    /// Starts a program; its output is printed with the VM's name if `print`.
    ///
    /// # Errors
    /// When the VM is dead or not up.
    pub fn start_program(&self, command: Command, print: bool) -> Result<Program> {
        let (sender, events) = channel();
        let name = command.argv.first().cloned().unwrap_or_default();
        let mut state = lock(&self.shared.state);
        match &state.phase {
            Phase::Ready { .. } => {}
            Phase::Starting => bail!("VM {}: its guest is not up", self.name()),
            Phase::Dead(_) => {
                drop(state);
                return Err(self.shared.obituary());
            }
        }
        let id = state.next_id;
        state.next_id += 1;
        state.programs.insert(id, sender);
        drop(state);
        let program = Program::new(id, &name, Arc::clone(&self.shared), events, print);
        self.shared.request(&Request::Exec { id, command });
        Ok(program)
    }

    /// The guest's kernel log, from the record of number `since` on.
    pub fn records(&self, since: usize) -> Vec<Record> {
        let state = lock(&self.shared.state);
        state.records.get(since..).unwrap_or_default().to_vec()
    }

    /// Waits for a record of the kernel log, from number `since` on.
    ///
    /// # Errors
    /// It did not come within `limit`.
    pub fn wait_record(
        &self,
        since: usize,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<()> {
        self.shared
            .wait(limit, |state| {
                let records = state.records.get(since..).unwrap_or_default();
                records
                    .iter()
                    .any(|record| wanted(&record.text))
                    .then_some(())
            })
            .ok_or_else(|| {
                anyhow!(
                    "VM {}: the kernel did not log {what} within {} s",
                    self.name(),
                    patience::of(limit).as_secs()
                )
            })
    }

    /// Whether the VM still runs.
    pub fn alive(&self) -> bool {
        !self.shared.is_dead()
    }

    /// The file with the guest's serial console.
    pub fn console(&self) -> &Path {
        &self.shared.console
    }

    /// Restarts the guest as its own `reboot` would, and waits until it is up again.
    ///
    /// # Errors
    /// When the guest does not come back within `limit`.
    pub fn reboot(&self, limit: Duration) -> Result<()> {
        self.qmp.command("set-action", json!({"reboot": "reset"}))?;
        let boots = self.boots();
        self.shared.request(&Request::Reboot);
        self.wait_ready(boots + 1, limit)?;
        self.qmp
            .command("set-action", json!({"reboot": "shutdown"}))?;
        Ok(())
    }

    /// Kills QEMU, as if the machine had lost its power.
    pub fn power_cut(&mut self) {
        lock(&self.shared.state).closing = true;
        self.shared.die("its power was cut");
        cleanup::end_group(self.group);
        let _ = self.child.wait();
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if self.alive() {
            lock(&self.shared.state).closing = true;
            let _ = self.qmp.command("quit", json!({}));
            let end = Instant::now() + Duration::from_secs(3);
            while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(10));
            }
        }
        cleanup::end_group(self.group);
        let _ = self.child.wait();
    }
}
