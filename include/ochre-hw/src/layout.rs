// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! How structures of the contract are declared: one line per field, with its byte offset.

/// A value that can stand in a structure of the contract.
pub trait Field: Copy {
    /// Reads the value from the first bytes of `bytes`, little-endian.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the value to the first bytes of `bytes`, little-endian.
    fn put(self, bytes: &mut [u8]);
}

macro_rules! int_field {
    ($($t:ty),*) => {$(
        impl Field for $t {
            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                let mut raw = [0; core::mem::size_of::<$t>()];
                raw.copy_from_slice(&bytes[..core::mem::size_of::<$t>()]);
                <$t>::from_le_bytes(raw)
            }
            #[inline(always)]
            fn put(self, bytes: &mut [u8]) {
                bytes[..core::mem::size_of::<$t>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
int_field!(u8, u16, u32, u64);

impl<const N: usize> Field for [u8; N] {
    #[inline(always)]
    fn get(bytes: &[u8]) -> Self {
        let mut raw = [0; N];
        raw.copy_from_slice(&bytes[..N]);
        raw
    }
    #[inline(always)]
    fn put(self, bytes: &mut [u8]) {
        bytes[..N].copy_from_slice(&self);
    }
}

/// Declares a `repr(C)` structure of the contract. The module that uses it imports [`Field`].
///
/// Each field stands behind its byte offset, and the structure behind its size; a declaration whose
/// offsets are not what the compiler lays out, or that leaves an unnamed gap, does not compile. A
/// field may itself be a structure of the contract.
macro_rules! hw_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident, size $size:literal {
            $( $(#[$fmeta:meta])* $off:literal => $field:ident: $t:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $t, )*
        }

        const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            $( assert!(core::mem::offset_of!($name, $field) == $off); )*
            // No gap: the sizes of the fields add up to the size of the whole.
            assert!(0 $( + core::mem::size_of::<$t>() )* == $size);
        };

        impl $name {
            /// The size of the structure in memory, bytes.
            pub const SIZE: usize = $size;

            /// Reads the structure from its bytes in memory.
            #[inline]
            pub fn from_bytes(bytes: &[u8; $size]) -> Self {
                Self { $( $field: <$t as Field>::get(&bytes[$off..]), )* }
            }

            /// The structure as its bytes in memory.
            #[inline]
            pub fn to_bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $( Field::put(self.$field, &mut bytes[$off..]); )*
                bytes
            }
        }

        impl Default for $name {
            /// Every byte zero.
            #[inline]
            fn default() -> Self {
                Self::from_bytes(&[0; $size])
            }
        }

        impl Field for $name {
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                Self { $( $field: <$t as Field>::get(&bytes[$off..]), )* }
            }
            #[inline]
            fn put(self, bytes: &mut [u8]) {
                bytes[..$size].copy_from_slice(&self.to_bytes());
            }
        }
    };
}

/// Declares an enumeration of the contract with the conversion from its raw value.
macro_rules! hw_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $raw:ty {
            $( $(#[$vmeta:meta])* $variant:ident = $value:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[repr($raw)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$vmeta])* $variant = $value, )*
        }

        impl $name {
            /// Every value, in the order of the declaration.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            /// The variant for a raw value, or `None` where the contract gives it no meaning.
            #[inline]
            pub const fn from_raw(raw: $raw) -> Option<Self> {
                match raw {
                    $( $value => Some(Self::$variant), )*
                    _ => None,
                }
            }

            /// The raw value.
            #[inline]
            pub const fn raw(self) -> $raw {
                self as $raw
            }
        }
    };
}
