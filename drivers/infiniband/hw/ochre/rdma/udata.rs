// SPDX-License-Identifier: GPL-2.0-or-later

//! Requests of the user-space provider, and answers to them.

use super::{
    bindings,
    Operations,
    UContext, //
};
use core::ffi::c_int;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// What the provider sent with a system call, and room for the answer; empty where the kernel
/// itself calls.
///
/// Requests and answers are the bytes of the structures of the ABI. Each operation that gets one
/// reads the request or says [`Udata::no_input`], and answers or says [`Udata::no_response`], so
/// that old and new providers and drivers understand each other: a request may be longer when the
/// rest is zero, an answer is cut or filled with zeros to the size of the provider's structure.
pub(crate) struct Udata<'a, T: Operations> {
    raw: *mut bindings::ib_udata,
    context: Option<&'a UContext<T>>,
}

impl<'a, T: Operations> Udata<'a, T> {
    /// # Safety
    ///
    /// `raw` must be null or the data of a system call that lasts for `'a`, and that has no context
    /// or one that is initialised.
    pub(super) unsafe fn new(raw: *mut bindings::ib_udata) -> Self {
        // SAFETY: By the requirements of this function.
        let context = unsafe { bindings::ochre_udata_context(raw) };
        Self {
            raw,
            context: if context.is_null() {
                None
            } else {
                // SAFETY: The context is initialised, and lives as long as the system call.
                Some(unsafe { UContext::<T>::from_raw(context) })
            },
        }
    }

    /// # Safety
    ///
    /// As [`Udata::new`], but the context is only being made.
    pub(super) unsafe fn without_context(raw: *mut bindings::ib_udata) -> Self {
        Self { raw, context: None }
    }

    /// Whether a process asks, not the kernel.
    pub(crate) fn is_user(&self) -> bool {
        !self.raw.is_null()
    }

    /// The context of the process, [`None`] where the kernel asks.
    pub(crate) fn context(&self) -> Option<&'a UContext<T>> {
        self.context
    }

    /// Copies a request of at least `min` and at most `N` bytes that mean something.
    ///
    /// Errors: [`EINVAL`] where the request is shorter than `min` or the kernel asks,
    /// [`EOPNOTSUPP`] where it has a rest that is not zero, [`EFAULT`].
    pub(crate) fn read<const N: usize>(&self, min: usize) -> Result<[u8; N]> {
        if self.raw.is_null() || min > N {
            return Err(EINVAL);
        }

        let mut request = [0u8; N];
        // SAFETY: `raw` is valid; the call writes at most `N` bytes.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(self.raw, request.as_mut_ptr().cast(), N, min)
        })?;

        Ok(request)
    }

    /// Checks that the provider sent nothing that means something.
    pub(crate) fn no_input(&self) -> Result {
        // SAFETY: `raw` is valid or null.
        to_result(unsafe { bindings::ochre_udata_in_empty(self.raw) } as c_int)
    }

    /// Answers; does nothing where the kernel asked.
    pub(crate) fn respond(&self, answer: &[u8]) -> Result {
        if self.raw.is_null() {
            return Ok(());
        }

        // SAFETY: `raw` is valid; the answer is read only.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.raw, answer.as_ptr().cast(), answer.len())
        })
    }

    /// Answers with zeros.
    pub(crate) fn no_response(&self) -> Result {
        // SAFETY: `raw` is valid or null.
        to_result(unsafe { bindings::ochre_respond_empty_udata(self.raw) } as c_int)
    }
}
