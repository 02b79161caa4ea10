// SPDX-License-Identifier: GPL-2.0-or-later
//! Attribute layouts written as tables: one line per field gives its name, type and place.

use crate::bytes::{be16, be32, be64, bytes, put, put16, put32, put64};
use crate::types::{Gid, Guid, Lid, PKey, QKey};

/// A field of whole bytes, big-endian, at a byte offset.
pub(crate) trait Field: Sized {
    fn get(b: &[u8], at: usize) -> Self;
    fn put(self, b: &mut [u8], at: usize);
}

macro_rules! field {
    ($t:ty, $b:ident, $at:ident, $get:expr, $v:ident, $put:expr) => {
        impl Field for $t {
            #[inline]
            fn get($b: &[u8], $at: usize) -> Self {
                $get
            }
            #[inline]
            fn put(self, $b: &mut [u8], $at: usize) {
                let $v = self;
                $put
            }
        }
    };
}

field!(u8, b, at, b[at], v, b[at] = v);
field!(u16, b, at, be16(b, at), v, put16(b, at, v));
field!(u32, b, at, be32(b, at), v, put32(b, at, v));
field!(u64, b, at, be64(b, at), v, put64(b, at, v));
field!(Lid, b, at, Lid(be16(b, at)), v, put16(b, at, v.0));
field!(PKey, b, at, PKey(be16(b, at)), v, put16(b, at, v.0));
field!(QKey, b, at, QKey(be32(b, at)), v, put32(b, at, v.0));
field!(Guid, b, at, Guid(be64(b, at)), v, put64(b, at, v.0));
field!(Gid, b, at, Gid(bytes(b, at)), v, put(b, at, &v.0));

/// A field of up to 8 bits inside one byte.
pub(crate) trait Bits: Sized {
    fn from_bits(v: u8) -> Self;
    fn to_bits(self) -> u8;
}

impl Bits for u8 {
    #[inline]
    fn from_bits(v: u8) -> Self {
        v
    }
    #[inline]
    fn to_bits(self) -> u8 {
        self
    }
}

impl Bits for bool {
    #[inline]
    fn from_bits(v: u8) -> Self {
        v != 0
    }
    #[inline]
    fn to_bits(self) -> u8 {
        u8::from(self)
    }
}

#[inline]
pub(crate) fn get_bits<T: Bits>(b: &[u8], at: usize, shift: u32, width: u32) -> T {
    T::from_bits(b[at] >> shift & mask(width))
}

#[inline]
pub(crate) fn put_bits<T: Bits>(v: T, b: &mut [u8], at: usize, shift: u32, width: u32) {
    let m = mask(width);
    b[at] = b[at] & !(m << shift) | (v.to_bits() & m) << shift;
}

const fn mask(width: u32) -> u8 {
    (0xff_u16 >> (8 - width)) as u8
}

/// A field of `width` (up to 32) bits at bit `shift` of a big-endian 32-bit word.
#[inline]
pub(crate) fn get_word(b: &[u8], at: usize, shift: u32, width: u32) -> u32 {
    be32(b, at) >> shift & word_mask(width)
}

#[inline]
pub(crate) fn put_word(v: u32, b: &mut [u8], at: usize, shift: u32, width: u32) {
    let m = word_mask(width);
    put32(b, at, be32(b, at) & !(m << shift) | (v & m) << shift);
}

const fn word_mask(width: u32) -> u32 {
    (0xffff_ffff_u64 >> (32 - width)) as u32
}

/// Declares an attribute struct with `read` and `write`.
///
/// Each field is `name: type = place`, the place one of `at(byte)` for whole bytes,
/// `bits(byte, shift, width)` for bits of one byte, `word(byte, shift, width)` for bits of a
/// 32-bit word.
macro_rules! attribute {
    ($(#[$meta:meta])* $name:ident[$len:literal] {
        $($(#[$fmeta:meta])* $field:ident: $ty:ty = $how:ident($($place:tt)*),)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
        }

        impl $name {
            /// Bytes of attribute data.
            pub const LEN: usize = $len;

            /// Reads the attribute. Reserved bits are ignored.
            pub fn read(data: &[u8; $len]) -> Self {
                $name {
                    $($field: attribute!(@get $how data, $($place)*),)*
                }
            }

            /// Writes the attribute. Reserved bits become zero; values wider than their field are
            /// cut to it.
            pub fn write(&self, data: &mut [u8; $len]) {
                data.fill(0);
                $(attribute!(@put $how self.$field, data, $($place)*);)*
            }
        }
    };
    (@get at $b:ident, $at:literal) => { $crate::mad::fields::Field::get($b, $at) };
    (@get bits $b:ident, $at:literal, $shift:literal, $width:literal) => {
        $crate::mad::fields::get_bits($b, $at, $shift, $width)
    };
    (@get word $b:ident, $at:literal, $shift:literal, $width:literal) => {
        $crate::mad::fields::get_word($b, $at, $shift, $width)
    };
    (@put at $v:expr, $b:ident, $at:literal) => {
        $crate::mad::fields::Field::put($v, $b, $at)
    };
    (@put bits $v:expr, $b:ident, $at:literal, $shift:literal, $width:literal) => {
        $crate::mad::fields::put_bits($v, $b, $at, $shift, $width)
    };
    (@put word $v:expr, $b:ident, $at:literal, $shift:literal, $width:literal) => {
        $crate::mad::fields::put_word($v, $b, $at, $shift, $width)
    };
}

pub(crate) use attribute;
