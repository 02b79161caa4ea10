// SPDX-License-Identifier: GPL-2.0-or-later

//! A QEMU without a guest: the test is the CPU, by the qtest protocol, and the user, by QMP.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{json, Value};

use super::usage::{self, Usage};

/// How long anything in these tests may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A folder for sockets and captures, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ochre-qtest-{}-{count}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("cannot make a folder for the test");
        Folder(path)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The QEMU under test.
fn qemu() -> PathBuf {
    let path = match (
        std::env::var_os("OCHRE_QEMU"),
        std::env::var_os("OCHRE_CACHE"),
    ) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(cache)) => Path::new(&cache).join("qemu/build/qemu-system-x86_64"),
        (None, None) => panic!("no QEMU to test: run this by `make test`, or set OCHRE_QEMU"),
    };
    assert!(
        path.exists(),
        "{} is not there: run `make setup`",
        path.display()
    );
    path
}

fn command(folder: &Folder) -> Command {
    let mut command = Command::new(qemu());
    command
        .args(["-machine", "q35", "-accel", "qtest", "-m", "256M"])
        .args(["-nodefaults", "-display", "none"])
        .args(["-L", "/usr/share/seabios", "-L", "/usr/share/qemu"])
        .current_dir(&folder.0)
        .stdin(Stdio::null());
    command
}

/// Starts QEMU with arguments that it must refuse; gives what it says.
pub fn refused(arguments: &[&str]) -> String {
    let folder = Folder::new();
    let output = command(&folder)
        .args(arguments)
        .output()
        .expect("cannot run QEMU");
    assert!(!output.status.success(), "QEMU accepted {arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The connection that QEMU makes to one of the test's sockets.
fn accept(listener: &UnixListener, child: &mut Child) -> BufReader<UnixStream> {
    listener.set_nonblocking(true).expect("cannot poll");
    let start = Instant::now();
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).expect("cannot block");
            stream
                .set_read_timeout(Some(PATIENCE))
                .expect("cannot set a time limit");
            return BufReader::new(stream);
        }
        if let Ok(Some(status)) = child.try_wait() {
            panic!("QEMU ended at once: {status}");
        }
        assert!(start.elapsed() < PATIENCE, "QEMU does not connect");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A running QEMU.
pub struct Machine {
    child: Child,
    qtest: BufReader<UnixStream>,
    qmp: BufReader<UnixStream>,
    /// QMP events that nobody has waited for yet.
    events: Vec<Value>,
    folder: Folder,
}

impl Machine {
    /// Starts QEMU with further arguments.
    pub fn start(arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let listen = |name: &str| {
            UnixListener::bind(folder.path(name)).expect("cannot listen for the test's QEMU")
        };
        let (qtest, qmp) = (listen("qtest"), listen("qmp"));
        let mut command = command(&folder);
        usage::count_heap(&mut command, &folder.path("heap"));
        let mut child = command
            .args(["-qtest", "unix:qtest", "-qtest-log", "none"])
            .args(["-qmp", "unix:qmp,server=off"])
            .args(arguments)
            .spawn()
            .expect("cannot run QEMU");
        let (qtest, qmp) = (accept(&qtest, &mut child), accept(&qmp, &mut child));
        let mut machine = Machine {
            child,
            qtest,
            qmp,
            events: Vec::new(),
            folder,
        };
        machine.qmp_line();
        machine.qmp("qmp_capabilities", json!({})).expect("no QMP");
        machine
    }

    fn ask(&mut self, line: &str) -> String {
        let stream = self.qtest.get_mut();
        stream
            .write_all(format!("{line}\n").as_bytes())
            .expect("QEMU is gone");
        loop {
            let mut answer = String::new();
            self.qtest
                .read_line(&mut answer)
                .expect("QEMU does not answer");
            if answer.starts_with("IRQ ") {
                continue;
            }
            let answer = answer.trim();
            let rest = answer
                .strip_prefix("OK")
                .unwrap_or_else(|| panic!("qtest: {line}: {answer:?}"));
            return rest.trim().to_owned();
        }
    }

    fn ask_number(&mut self, line: &str) -> u64 {
        let answer = self.ask(line);
        u64::from_str_radix(answer.trim_start_matches("0x"), 16).expect("qtest gives no number")
    }

    /// Reads a word of 1, 2, 4 or 8 bytes at a physical address.
    pub fn load(&mut self, addr: u64, size: u32) -> u64 {
        let letter = Self::letter(size);
        self.ask_number(&format!("read{letter} {addr:#x}"))
    }

    /// Writes a word of 1, 2, 4 or 8 bytes at a physical address.
    pub fn store(&mut self, addr: u64, value: u64, size: u32) {
        let letter = Self::letter(size);
        self.ask(&format!("write{letter} {addr:#x} {value:#x}"));
    }

    fn letter(size: u32) -> char {
        match size {
            1 => 'b',
            2 => 'w',
            4 => 'l',
            _ => 'q',
        }
    }

    /// Reads bytes of memory.
    pub fn read(&mut self, addr: u64, len: usize) -> Vec<u8> {
        let answer = self.ask(&format!("read {addr:#x} {len:#x}"));
        let digits = answer.trim_start_matches("0x").as_bytes();
        digits
            .chunks(2)
            .map(|pair| {
                let text = std::str::from_utf8(pair).expect("not text");
                u8::from_str_radix(text, 16).expect("not hexadecimal")
            })
            .collect()
    }

    /// Writes bytes to memory.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        let mut request = format!("write {addr:#x} {:#x} 0x", bytes.len());
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(request, "{byte:02x}");
        }
        self.ask(&request);
    }

    /// Writes zeros to memory.
    pub fn zero(&mut self, addr: u64, len: usize) {
        self.ask(&format!("memset {addr:#x} {len:#x} 0"));
    }

    fn select(&mut self, bus: u8, slot: u8, offset: u32) {
        let address = 0x8000_0000 | u32::from(bus) << 16 | u32::from(slot) << 11 | (offset & 0xfc);
        self.ask(&format!("outl 0xcf8 {address:#x}"));
    }

    /// Reads 32 bits of a function's configuration space.
    pub fn config_load(&mut self, bus: u8, slot: u8, offset: u32) -> u32 {
        self.select(bus, slot, offset);
        self.ask_number("inl 0xcfc") as u32
    }

    /// Writes 32 bits of a function's configuration space.
    pub fn config_store(&mut self, bus: u8, slot: u8, offset: u32, value: u32) {
        self.select(bus, slot, offset);
        self.ask(&format!("outl 0xcfc {value:#x}"));
    }

    /// Offset of a capability in a function's configuration space.
    pub fn capability(&mut self, bus: u8, slot: u8, id: u8) -> Option<u32> {
        let mut at = self.config_load(bus, slot, 0x34) & 0xfc;
        while at != 0 {
            let head = self.config_load(bus, slot, at);
            if head as u8 == id {
                return Some(at);
            }
            at = (head >> 8) & 0xfc;
        }
        None
    }

    fn qmp_line(&mut self) -> Value {
        let mut line = String::new();
        self.qmp.read_line(&mut line).expect("QMP does not answer");
        serde_json::from_str(&line).expect("QMP says what is not JSON")
    }

    /// Runs a QMP command; gives its result, or the description of its error.
    pub fn qmp(&mut self, name: &str, arguments: Value) -> Result<Value, String> {
        let line = json!({ "execute": name, "arguments": arguments }).to_string();
        let stream = self.qmp.get_mut();
        stream
            .write_all(format!("{line}\n").as_bytes())
            .expect("QEMU is gone");
        loop {
            let answer = self.qmp_line();
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = answer.get("error") {
                return Err(error["desc"].as_str().unwrap_or_default().to_owned());
            }
            self.events.push(answer);
        }
    }

    /// Waits for a QMP event.
    pub fn qmp_event(&mut self, name: &str) {
        if let Some(index) = self.events.iter().position(|event| event["event"] == name) {
            self.events.remove(index);
            return;
        }
        while self.qmp_line()["event"] != name {}
    }

    /// Sets a property of a device that lives.
    pub fn qom_set(&mut self, id: &str, property: &str, value: Value) {
        let path = format!("/machine/peripheral/{id}");
        self.qmp(
            "qom-set",
            json!({ "path": path, "property": property, "value": value }),
        )
        .expect("qom-set failed");
    }

    /// Reads a property of a device that lives.
    pub fn qom_get(&mut self, id: &str, property: &str) -> Value {
        let path = format!("/machine/peripheral/{id}");
        self.qmp("qom-get", json!({ "path": path, "property": property }))
            .expect("qom-get failed")
    }

    /// What its QEMU takes of the host.
    fn usage(&self) -> Usage {
        Usage::of(self.child.id(), &self.folder.path("heap"))
    }

    /// What its QEMU takes of the host when it does nothing: what was given up a moment ago is freed by another thread.
    pub fn rest(&self) -> Usage {
        let (mut usage, mut since) = (self.usage(), Instant::now());
        while since.elapsed() < Duration::from_millis(200) {
            std::thread::sleep(Duration::from_millis(10));
            let now = self.usage();
            if now != usage {
                (usage, since) = (now, Instant::now());
            }
        }
        usage
    }

    /// Waits until its QEMU takes no more of the host than this.
    pub fn settle(&self, most: &Usage) -> Usage {
        let start = Instant::now();
        loop {
            let now = self.usage();
            if now.is_within(most) {
                return now;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "more than it may be:\n{now:?}\n{most:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends QEMU as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("cannot kill QEMU");
        self.child.wait().expect("cannot wait for QEMU");
    }

    /// Ends QEMU as a user would; it must end well.
    pub fn quit(mut self) {
        self.qmp("quit", json!({})).expect("quit failed");
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("cannot wait for QEMU") {
                assert!(status.success(), "QEMU ended with {status}");
                return;
            }
            assert!(start.elapsed() < PATIENCE, "QEMU does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
