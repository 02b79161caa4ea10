// SPDX-License-Identifier: GPL-2.0-or-later

//! What the user sets and asks while the device lives: its properties.

use super::Core;
use crate::config;

impl Core {
    /// How many objects of each kind there are now, as text.
    pub fn objects(&self) -> String {
        let state = self.lock();
        let o = state.hca.objects();
        format!(
            "eqs={} cqs={} pds={} mrs={} qps={} ahs={} mcast={}",
            o.eqs, o.cqs, o.pds, o.mrs, o.qps, o.ahs, o.mcast_attachments
        )
    }

    /// Sets how fast a port (from 0) drains, bytes per second; 0 is unlimited.
    pub fn set_drain(&self, index: usize, rate: u64) {
        let mut state = self.lock();
        if let Some(drain) = state.drain.get_mut(index) {
            *drain = rate;
        }
        if let Some(link) = state.hca.link_mut(index + 1) {
            link.set_drain_rate(Some(rate).filter(|rate| *rate != 0));
        }
        self.release(state, true);
    }

    /// How fast a port (from 0) drains.
    pub fn drain(&self, index: usize) -> u64 {
        self.lock().drain.get(index).copied().unwrap_or(0)
    }

    /// Sets the rules for wire faults of a port (from 0).
    ///
    /// # Errors
    /// A message for the user; the former rules then stay.
    pub fn set_faults(&self, index: usize, text: &str) -> Result<(), String> {
        let rules = config::faults(text)?;
        let mut state = self.lock();
        let result = match state.hca.link_mut(index + 1) {
            Some(link) => {
                link.set_faults(rules);
                Ok(())
            }
            None => Err("the device has no such port; add ports=2".into()),
        };
        self.release(state, true);
        result
    }

    /// The rules for wire faults of a port (from 0), and how often each has acted.
    pub fn faults(&self, index: usize) -> String {
        let state = self.lock();
        let link = state.hca.link(index + 1);
        link.map_or(String::new(), |link| link.faults().to_string())
    }

    /// Puts the cable of a port (from 0) in, or pulls it.
    pub fn set_plugged(&self, index: usize, plugged: bool) {
        let mut state = self.lock();
        let mut result = Ok(());
        if let Some(link) = state.hca.link_mut(index + 1) {
            if plugged {
                result = link.cable_mut().plug();
            } else {
                link.cable_mut().pull();
            }
        }
        self.release(state, true);
        if let Err(message) = result {
            self.report(&message);
        }
    }

    /// Whether the cable of a port (from 0) is plugged.
    pub fn plugged(&self, index: usize) -> bool {
        let state = self.lock();
        state
            .hca
            .link(index + 1)
            .is_some_and(|link| link.cable().is_plugged())
    }

    /// Turns writing to the capture file on or off, if there is one.
    pub fn set_capturing(&self, capturing: bool) {
        let mut state = self.lock();
        state.set_taps(capturing);
        drop(state);
        self.flush_capture();
    }

    /// Writes out what the capture has buffered.
    pub fn flush_capture(&self) {
        if let Some(capture) = &self.lock().capture {
            capture.flush();
        }
    }
}
