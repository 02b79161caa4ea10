// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands.

use ochre_hw::cmd::Status;

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("command refused: {status:?}, input byte {field}")]
pub struct CmdError {
    /// The status of the answer.
    pub status: Status,
    /// Byte of the input that was refused, at most 255.
    pub field: u8,
}

impl CmdError {
    /// `status`, for the field at byte `at` of the input.
    pub fn new(status: Status, at: usize) -> Self {
        CmdError {
            status,
            field: u8::try_from(at).unwrap_or(u8::MAX),
        }
    }

    /// A value that is not allowed, at byte `at` of the input.
    pub fn parameter(at: usize) -> Self {
        Self::new(Status::BadParameter, at)
    }

    /// No object with the number at byte `at` of the input.
    pub fn no_object(at: usize) -> Self {
        Self::new(Status::NoSuchObject, at)
    }
}
