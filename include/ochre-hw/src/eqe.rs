// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Event queue entries.

use super::layout::Field;

hw_enum! {
    /// What has happened.
    pub enum EventType: u8 {
        /// An armed CQ has a completion; `number` is its number.
        CqCompletion = 0x01,
        /// A command with `cmd::SLOT_EVENT` is done; `number` is its token.
        CommandDone = 0x02,
        /// A CQ has overrun or cannot be written; `number` is its number.
        CqError = 0x03,
        /// A QP went to the error state with no request to blame; `number` is its number.
        QpFatal = 0x10,
        /// A QP's responder met an invalid request.
        QpRequestError = 0x11,
        /// A QP's responder met an access violation.
        QpAccessError = 0x12,
        /// The first packet came to a QP in RTR.
        QpCommEstablished = 0x13,
        /// A QP in SQD has nothing under way any more.
        QpSqDrained = 0x14,
        /// A port is active.
        PortActive = 0x20,
        /// A port is no longer active.
        PortError = 0x21,
        /// The subnet manager changed a port's LID.
        LidChange = 0x22,
        /// The subnet manager changed a port's P_Key table.
        PkeyChange = 0x23,
        /// A port has another master subnet manager.
        SmChange = 0x24,
        /// The subnet manager asks clients of a port to register anew.
        ClientReregister = 0x25,
        /// A port's GID table changed.
        GidChange = 0x26,
    }
}

/// [`Eqe::owner`]: the phase bit, as in a CQE.
pub const EQE_PHASE: u8 = 1 << 0;

hw_struct! {
    /// Event queue entry; the last 4 bytes are written last.
    pub struct Eqe, size 32 {
        /// An [`EventType`].
        0x00 => event: u8,
        /// Port, 1 or 2, for port events; else 0.
        0x01 => port: u8,
        /// Zero.
        0x02 => reserved0: [u8; 2],
        /// QP number, CQ number or token.
        0x04 => number: u32,
        /// Device clock when the event was written, ns.
        0x08 => timestamp: u64,
        /// Zero.
        0x10 => reserved1: [u8; 15],
        /// `EQE_PHASE`.
        0x1f => owner: u8,
    }
}
