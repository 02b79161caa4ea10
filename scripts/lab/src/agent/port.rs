// SPDX-License-Identifier: GPL-2.0-or-later
//! The virtio-serial port to the host.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::proto::{write_frame, AGENT_PORT};

/// The port, open both ways; a port of this kind can be opened only once.
#[derive(Debug)]
pub(super) struct Port {
    input: File,
    output: Mutex<File>,
}

impl Port {
    /// Finds the port by its name and opens it.
    pub(super) fn open() -> io::Result<Self> {
        // The port's name arrives a moment after its device.
        let mut path = find()?;
        for _ in 0..100 {
            if path.is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
            path = find()?;
        }
        let Some(path) = path else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("no virtio-serial port is named {AGENT_PORT}"),
            ));
        };
        let input = OpenOptions::new().read(true).write(true).open(&path)?;
        let output = Mutex::new(input.try_clone()?);
        Ok(Self { input, output })
    }

    /// Sends one message.
    pub(super) fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        write_frame(&mut *output, message)
    }

    /// Waits for bytes from the host; zero means that the host has not opened its end.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.input).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

fn find() -> io::Result<Option<PathBuf>> {
    let ports = match fs::read_dir("/sys/class/virtio-ports") {
        Ok(ports) => ports,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for port in ports {
        let port = port?;
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim() == AGENT_PORT {
            return Ok(Some(PathBuf::from("/dev").join(port.file_name())));
        }
    }
    Ok(None)
}
