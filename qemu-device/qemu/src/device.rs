// SPDX-License-Identifier: GPL-2.0-or-later

//! The device: firmware under a lock, and the thread that serves it.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ochre_hw::{doorbell, regs};

use crate::abi::{Host, Ram};
use crate::config::Config;
use crate::ram::GuestMemory;
use crate::wake::{Event, Poller};

/// Doorbell pages: one for the kernel, the others for user contexts.
pub const DOORBELL_PAGES: u32 = 512;
/// Size of the doorbell BAR, bytes.
pub const DOORBELL_BAR_SIZE: u64 = DOORBELL_PAGES as u64 * doorbell::PAGE_SIZE;

#[derive(Debug)]
struct State {
    memory: GuestMemory,
}

/// A device.
#[derive(Debug)]
pub struct Core {
    config: Config,
    state: Mutex<State>,
    wake: Event,
    poller: Poller,
    stop: AtomicBool,
}

impl Core {
    /// Makes a device.
    pub fn new(config: Config, host: Host) -> Result<Self, String> {
        let wake = Event::new().map_err(|e| e.to_string())?;
        let poller = Poller::new().map_err(|e| e.to_string())?;
        poller.add(wake.as_raw_fd(), 0).map_err(|e| e.to_string())?;
        Ok(Core {
            config,
            state: Mutex::new(State {
                memory: GuestMemory::new(host),
            }),
            wake,
            poller,
            stop: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn service(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            self.poller.wait().count();
            self.wake.clear();
        }
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake.signal();
    }

    pub fn reset(&self) {}

    /// # Safety
    /// As the ABI says.
    pub unsafe fn set_ram(&self, ranges: Vec<Ram>) {
        let state = self.lock();
        // SAFETY: under the lock.
        unsafe { state.memory.replace(ranges) };
    }

    pub fn reg_read(&self, offset: u64, _size: u32) -> u64 {
        match offset {
            regs::MAGIC => u64::from(regs::MAGIC_VALUE),
            regs::NUM_PORTS => u64::from(self.config.ports),
            _ => 0,
        }
    }

    pub fn reg_write(&self, _offset: u64, _value: u64, _size: u32) {}
    pub fn doorbell(&self, _offset: u64, _value: u64, _size: u32) {}
    pub fn set_drain(&self, _port: usize, _rate: u64) {}
    pub fn drain(&self, _port: usize) -> u64 {
        0
    }
    pub fn set_plugged(&self, _port: usize, _plugged: bool) {}
    pub fn plugged(&self, _port: usize) -> bool {
        true
    }
}
