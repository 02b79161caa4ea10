// SPDX-License-Identifier: GPL-2.0-or-later
//! AETH syndromes: ACK credits, RNR NAK timers and NAK codes.

/// Why a responder refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN was missed; the requester goes back to the PSN of the NAK.
    PsnSequence = 0,
    /// Invalid request.
    InvalidRequest = 1,
    /// Remote access error.
    RemoteAccess = 2,
    /// Remote operational error.
    RemoteOperational = 3,
    /// Invalid reliable datagram request.
    InvalidRd = 4,
}

/// Decoded syndrome byte of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Acknowledge. The 5-bit credit code, see [`credits_from_code`]; 31 means that the
    /// responder gives no end-to-end credits.
    Ack {
        /// Credit code, 0 to 31.
        credits: u8,
    },
    /// Receiver not ready. The 5-bit timer code, see [`rnr_timer_ns`].
    RnrNak {
        /// Timer code, 0 to 31.
        timer: u8,
    },
    /// Negative acknowledge.
    Nak(NakCode),
    /// A reserved value.
    Reserved(u8),
}

impl Syndrome {
    /// ACK without end-to-end credits, as a responder with an SRQ sends it.
    pub const ACK_NO_CREDITS: Syndrome = Syndrome::Ack { credits: 31 };

    /// Decodes the byte; every value has a meaning.
    #[inline]
    pub const fn from_u8(v: u8) -> Self {
        match v >> 5 {
            0 => Syndrome::Ack { credits: v & 31 },
            1 => Syndrome::RnrNak { timer: v & 31 },
            3 => match v & 31 {
                0 => Syndrome::Nak(NakCode::PsnSequence),
                1 => Syndrome::Nak(NakCode::InvalidRequest),
                2 => Syndrome::Nak(NakCode::RemoteAccess),
                3 => Syndrome::Nak(NakCode::RemoteOperational),
                4 => Syndrome::Nak(NakCode::InvalidRd),
                _ => Syndrome::Reserved(v),
            },
            _ => Syndrome::Reserved(v),
        }
    }

    /// The byte.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & 31,
            Syndrome::RnrNak { timer } => 0x20 | timer & 31,
            Syndrome::Nak(code) => 0x60 | code as u8,
            Syndrome::Reserved(v) => v,
        }
    }
}

/// RNR NAK timer field to nanoseconds; only the low 5 bits of `code` count.
#[inline]
pub const fn rnr_timer_ns(code: u8) -> u64 {
    RNR_TIMER_10US[(code & 31) as usize] as u64 * 10_000
}

/// In units of 10 us. Code 0 is the longest.
const RNR_TIMER_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Receive work requests that an ACK credit code stands for; `None` for code 31 (no credits given).
#[inline]
pub const fn credits_from_code(code: u8) -> Option<u32> {
    let code = code & 31;
    if code == 31 {
        None
    } else {
        Some(CREDITS[code as usize] as u32)
    }
}

/// The largest credit code that stands for at most `credits` receive work requests, 0 to 30.
#[inline]
pub const fn code_from_credits(credits: u32) -> u8 {
    let mut code = 30;
    while CREDITS[code] as u32 > credits {
        code -= 1;
    }
    code as u8
}

const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// Local ACK time-out field to nanoseconds: 4.096 us * 2^code, `None` (no time-out) for code 0.
/// Only the low 5 bits of `code` count.
#[inline]
pub const fn ack_timeout_ns(code: u8) -> Option<u64> {
    let code = code & 31;
    if code == 0 {
        None
    } else {
        Some(4096 << code)
    }
}
