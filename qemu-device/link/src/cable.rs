// SPDX-License-Identifier: GPL-2.0-or-later
//! What a port asks of the thing that carries its bytes.

use crate::time::Time;

/// What a frame on a cable is: the delimiters around it, which real links send as symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Frame {
    /// A data packet, LRH to VCRC, that ended well.
    Data = 1,
    /// A data packet whose sender marked it as bad at its end.
    BadData = 2,
    /// A link packet of 6 bytes.
    Link = 3,
    /// A training sequence, see [`crate::training`].
    Training = 4,
}

impl Frame {
    /// The frame with this code.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Frame::Data,
            2 => Frame::BadData,
            3 => Frame::Link,
            4 => Frame::Training,
            _ => return None,
        })
    }
}

/// Whether there is somebody at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// A peer is connected.
    pub up: bool,
    /// Counts connections: a value not seen before means a new peer and empty rings.
    pub generation: u32,
}

/// What wakes a sleeping end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Wake {
    /// All frames but link packets, which are taken in at the next occasion.
    Packets = 1,
    /// Every frame; for an end that waits for credits.
    All = 2,
}

/// Why a frame cannot be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CableError {
    /// No space; the cable wakes this end when there is.
    #[error("cable has no space for the frame")]
    Full,
    /// No peer.
    #[error("cable has no peer")]
    Down,
    /// Empty, or longer than [`MAX_FRAME`].
    #[error("frame of {0} bytes, expected 1 to {MAX_FRAME}")]
    Length(usize),
}

/// Most bytes of a frame.
pub const MAX_FRAME: usize = 4096 + MAX_OVERHEAD;
/// Most bytes of a data packet besides its payload, all headers and CRCs.
pub const MAX_OVERHEAD: usize = 126;

/// One end of a full-duplex point-to-point carrier of frames.
///
/// Frames are built and read in place. They arrive whole and in order on a faultless cable; a cable
/// with faults may lose, repeat, delay or damage them. What the bytes hold is not the cable's business.
/// No method blocks or panics, whatever the peer does.
pub trait Cable {
    /// Does what is due at `now`: connects, delivers what has arrived by then.
    fn poll(&mut self, now: Time);

    /// When [`Cable::poll`] has to be called even if nothing arrives.
    fn next_deadline(&self) -> Option<Time>;

    /// Whether there is a peer, as of the last [`Cable::poll`].
    fn presence(&self) -> Presence;

    /// A slot of exactly `bytes` bytes for the next frame. Its content is undefined. A reservation
    /// that was not committed is given up.
    fn tx_reserve(&mut self, frame: Frame, bytes: usize) -> Result<&mut [u8], CableError>;

    /// The slot reserved last and not yet committed; empty if there is none.
    fn tx_slot(&mut self) -> &mut [u8];

    /// Queues the reserved frame. The peer sees it after [`Cable::flush`]. Without a reservation
    /// nothing happens.
    fn tx_commit(&mut self);

    /// Marks the reserved frame as bad at its end ([`Frame::BadData`]).
    fn tx_mark_bad(&mut self);

    /// Kind and length of the oldest frame received; stays the same until [`Cable::rx_release`].
    fn rx_next(&mut self) -> Option<(Frame, usize)>;

    /// The bytes of the frame that [`Cable::rx_next`] announced; empty if there is none.
    fn rx_bytes(&self) -> &[u8];

    /// Gives back the frame that [`Cable::rx_next`] announced.
    fn rx_release(&mut self);

    /// Makes all committed frames and released space visible to the peer, and wakes it if it sleeps
    /// and waits for that.
    fn flush(&mut self);

    /// To be called before sleeping: flushes and asks for a wake-up on the next frame that `wake`
    /// names (and for space, if a reservation failed). `false`: there is something to do already, do
    /// not sleep.
    fn arm(&mut self, wake: Wake) -> bool;

    /// Takes the request of [`Cable::arm`] back: this end looks by itself.
    fn disarm(&mut self) {}

    /// Symbol errors seen since the last call.
    fn take_symbol_errors(&mut self) -> u32 {
        0
    }
}
