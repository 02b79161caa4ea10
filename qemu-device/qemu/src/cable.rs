// SPDX-License-Identifier: GPL-2.0-or-later

//! The socket at the back of a port: a cable is plugged into it, or none.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ochre_link::cable::Wake;
use ochre_link::{Cable, CableError, Frame, Presence, ShmCable, ShmConfig, Time};

use crate::wake::Poller;

/// What the service thread does about a readable descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The device itself was signalled.
    Wake,
    /// The timer has gone off.
    Timer,
    /// The peer at a port (from 1) has woken this end.
    Data(usize),
    /// The connection at a port (from 1) needs attention.
    Control(usize),
}

impl Ready {
    /// The token for a poller.
    pub fn token(self) -> u64 {
        match self {
            Ready::Wake => 0,
            Ready::Timer => 1,
            Ready::Data(port) => port as u64 * 2,
            Ready::Control(port) => port as u64 * 2 + 1,
        }
    }

    /// What a token stands for.
    pub fn from_token(token: u64) -> Self {
        match token {
            0 => Ready::Wake,
            1 => Ready::Timer,
            even if even % 2 == 0 => Ready::Data(even as usize / 2),
            odd => Ready::Control(odd as usize / 2),
        }
    }
}

/// A port's socket.
///
/// Pulling the cable ends the connection, as the peer sees at once; putting it back makes a new one.
pub struct Socket {
    /// Port, from 1.
    port: usize,
    /// None: the port was given no link.
    config: Option<ShmConfig>,
    poller: Arc<Poller>,
    cable: Option<ShmCable>,
    /// What the port was told last, and what of the cable that was: another cable counts its
    /// connections anew, and the port must see each one as new.
    told: Presence,
    inner: Presence,
}

impl Socket {
    /// A socket with the cable plugged, if there is one.
    pub fn new(
        port: usize,
        config: Option<ShmConfig>,
        poller: Arc<Poller>,
    ) -> Result<Self, String> {
        let mut socket = Socket {
            port,
            config,
            poller,
            cable: None,
            told: Presence::default(),
            inner: Presence::default(),
        };
        socket.plug()?;
        Ok(socket)
    }

    /// Whether the cable is plugged. Without a link there is none.
    pub fn is_plugged(&self) -> bool {
        self.cable.is_some()
    }

    /// Puts the cable in, if it is out.
    pub fn plug(&mut self) -> Result<(), String> {
        let Some(config) = &self.config else {
            return Ok(());
        };
        if self.cable.is_some() {
            return Ok(());
        }
        let cable = ShmCable::new(config.clone()).map_err(|error| error.to_string())?;
        self.watch(&cable)
            .map_err(|error| format!("cannot watch the link: {error}"))?;
        self.cable = Some(cable);
        Ok(())
    }

    /// Pulls the cable.
    pub fn pull(&mut self) {
        if let Some(cable) = self.cable.take() {
            // The peer holds the same eventfd, so that closing it here would not end its watch.
            self.poller.remove(cable.data_fd().as_raw_fd());
            self.poller.remove(cable.control_fd().as_raw_fd());
        }
    }

    fn watch(&self, cable: &ShmCable) -> io::Result<()> {
        let (data, control) = (Ready::Data(self.port), Ready::Control(self.port));
        self.poller.add(cable.data_fd().as_raw_fd(), data.token())?;
        self.poller
            .add(cable.control_fd().as_raw_fd(), control.token())
    }

    /// Takes the peer's wake-up in.
    pub fn on_data(&mut self) {
        if let Some(cable) = &mut self.cable {
            cable.on_data();
        }
    }

    /// Goes on with the connection.
    pub fn on_control(&mut self, now: Time) {
        if let Some(cable) = &mut self.cable {
            cable.on_control(now);
        }
    }

    /// The last problem of the connection.
    pub fn take_error(&mut self) -> Option<String> {
        let error = self.cable.as_mut()?.take_error()?;
        Some(error.to_string())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.pull();
    }
}

impl Cable for Socket {
    fn poll(&mut self, now: Time) {
        let inner = match &mut self.cable {
            Some(cable) => {
                cable.poll(now);
                cable.presence()
            }
            None => Presence::default(),
        };
        if inner != self.inner || inner.up != self.told.up {
            if inner.up {
                self.told.generation = self.told.generation.wrapping_add(1);
            }
            self.told.up = inner.up;
            self.inner = inner;
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.cable.as_ref().and_then(Cable::next_deadline)
    }

    fn presence(&self) -> Presence {
        self.told
    }

    #[inline]
    fn tx_reserve(&mut self, frame: Frame, bytes: usize) -> Result<&mut [u8], CableError> {
        match &mut self.cable {
            Some(cable) => cable.tx_reserve(frame, bytes),
            None => Err(CableError::Down),
        }
    }

    #[inline]
    fn tx_slot(&mut self) -> &mut [u8] {
        match &mut self.cable {
            Some(cable) => cable.tx_slot(),
            None => &mut [],
        }
    }

    #[inline]
    fn tx_commit(&mut self) {
        if let Some(cable) = &mut self.cable {
            cable.tx_commit();
        }
    }

    #[inline]
    fn tx_mark_bad(&mut self) {
        if let Some(cable) = &mut self.cable {
            cable.tx_mark_bad();
        }
    }

    #[inline]
    fn rx_next(&mut self) -> Option<(Frame, usize)> {
        self.cable.as_mut().and_then(Cable::rx_next)
    }

    #[inline]
    fn rx_bytes(&self) -> &[u8] {
        self.cable.as_ref().map_or(&[], Cable::rx_bytes)
    }

    #[inline]
    fn rx_release(&mut self) {
        if let Some(cable) = &mut self.cable {
            cable.rx_release();
        }
    }

    #[inline]
    fn flush(&mut self) {
        if let Some(cable) = &mut self.cable {
            cable.flush();
        }
    }

    #[inline]
    fn arm(&mut self, wake: Wake) -> bool {
        match &mut self.cable {
            Some(cable) => cable.arm(wake),
            None => true,
        }
    }

    fn disarm(&mut self) {
        if let Some(cable) = &mut self.cable {
            cable.disarm();
        }
    }

    fn take_symbol_errors(&mut self) -> u32 {
        self.cable.as_mut().map_or(0, Cable::take_symbol_errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        for ready in [
            Ready::Wake,
            Ready::Timer,
            Ready::Data(1),
            Ready::Control(1),
            Ready::Data(2),
            Ready::Control(2),
        ] {
            assert_eq!(Ready::from_token(ready.token()), ready);
        }
    }

    #[test]
    fn a_port_without_a_link_is_down_and_lets_sleep() {
        let poller = Arc::new(Poller::new().unwrap());
        let mut socket = Socket::new(1, None, poller).unwrap();
        socket.poll(Time::ZERO);
        assert!(!socket.presence().up);
        assert!(!socket.is_plugged());
        assert!(matches!(
            socket.tx_reserve(Frame::Data, 64),
            Err(CableError::Down)
        ));
        assert!(socket.arm(Wake::All));
    }
}
