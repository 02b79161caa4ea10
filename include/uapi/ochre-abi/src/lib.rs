// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! What the Ochre kernel driver and its libibverbs provider say to each other: the Rust twin of
//! `include/uapi/rdma/ochre-abi.h`.
//!
//! The driver and the provider compile this file; a test compares it, field by field, with the
//! header. The numbers are in the byte order of the machine. Every field is an integer and there is
//! no padding, so that each structure may be copied from and to bytes.
// As a module of the kernel driver this file is not the root of a crate.
#![cfg_attr(not(CONFIG_RUST), no_std)]
#![forbid(unsafe_code)]

/// Version of these structures.
pub const UVERBS_ABI_VERSION: u32 = 1;

macro_rules! abi_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident, size $size:literal {
            $( $(#[$fmeta:meta])* $off:literal => $field:ident: $t:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
            /// Name, offset and size of each field, bytes.
            pub const FIELDS: &'static [(&'static str, usize, usize)] =
                &[ $( (stringify!($field), $off, core::mem::size_of::<$t>()), )* ];

            /// The size of the structure, bytes.
            pub const SIZE: usize = $size;

            /// Reads the structure from its bytes.
            pub fn from_bytes(bytes: &[u8; $size]) -> Self {
                Self { $( $field: {
                    let mut raw = [0; core::mem::size_of::<$t>()];
                    raw.copy_from_slice(&bytes[$off..$off + core::mem::size_of::<$t>()]);
                    <$t>::from_ne_bytes(raw)
                }, )* }
            }

            /// The structure as its bytes.
            pub fn to_bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $( bytes[$off..$off + core::mem::size_of::<$t>()]
                    .copy_from_slice(&self.$field.to_ne_bytes()); )*
                bytes
            }
        }
    };
}

abi_struct! {
    /// Request of alloc_ucontext: which interface the provider speaks.
    pub struct AllocUcontextReq, size 16 {
        /// Major version of `ochre-hw`; the driver refuses another one.
        0x00 => interface_major: u32,
        /// Minor version of `ochre-hw`.
        0x04 => interface_minor: u32,
        /// MBZ.
        0x08 => reserved: u64,
    }
}

abi_struct! {
    /// Response of alloc_ucontext.
    pub struct AllocUcontextResp, size 48 {
        /// Offset for mmap of the context's doorbell page.
        0x00 => doorbell_offset: u64,
        /// Length of the mapping, bytes.
        0x08 => doorbell_length: u32,
        /// Number of the doorbell page.
        0x0c => doorbell_page: u32,
        /// Most outstanding sends of a QP.
        0x10 => max_send_wr: u32,
        /// Most outstanding receives of a QP.
        0x14 => max_recv_wr: u32,
        /// Most scatter/gather elements of a work request.
        0x18 => max_sge: u32,
        /// Most bytes of inline data.
        0x1c => max_inline: u32,
        /// Most entries of a CQ.
        0x20 => max_cqe: u32,
        /// Minor version of the device's interface.
        0x24 => interface_minor: u32,
        /// Rate of the clock in completions, kHz.
        0x28 => clock_khz: u64,
    }
}

abi_struct! {
    /// Response of alloc_pd.
    pub struct AllocPdResp, size 8 {
        /// Number of the protection domain.
        0x00 => pdn: u32,
        /// Zero.
        0x04 => reserved: u32,
    }
}

abi_struct! {
    /// Request of create_cq: a buffer with a record, then the entries.
    pub struct CreateCqReq, size 24 {
        /// Address of the buffer, on 4096 bytes.
        0x00 => buf_addr: u64,
        /// Length, bytes, a multiple of 4096.
        0x08 => buf_len: u64,
        /// log2 of the number of entries.
        0x10 => log_entries: u32,
        /// MBZ.
        0x14 => reserved: u32,
    }
}

abi_struct! {
    /// Response of create_cq.
    pub struct CreateCqResp, size 8 {
        /// Number of the CQ.
        0x00 => cqn: u32,
        /// Zero.
        0x04 => reserved: u32,
    }
}

abi_struct! {
    /// Request of create_qp: a buffer with a record, the send slots and the receive slots.
    pub struct CreateQpReq, size 32 {
        /// Address of the buffer, on 4096 bytes.
        0x00 => buf_addr: u64,
        /// Length, bytes, a multiple of 4096.
        0x08 => buf_len: u64,
        /// Offset of the send queue, bytes.
        0x10 => sq_offset: u32,
        /// Offset of the receive queue, bytes.
        0x14 => rq_offset: u32,
        /// log2 of the number of send slots.
        0x18 => log_sq_slots: u8,
        /// log2 of the bytes of a send slot.
        0x19 => log_sq_stride: u8,
        /// log2 of the number of receive slots.
        0x1a => log_rq_slots: u8,
        /// log2 of the bytes of a receive slot.
        0x1b => log_rq_stride: u8,
        /// MBZ.
        0x1c => reserved: u32,
    }
}

abi_struct! {
    /// Response of create_qp.
    pub struct CreateQpResp, size 8 {
        /// Number of the QP.
        0x00 => qpn: u32,
        /// Zero.
        0x04 => reserved: u32,
    }
}

abi_struct! {
    /// Response of create_ah.
    pub struct CreateAhResp, size 8 {
        /// Number of the address handle.
        0x00 => ahn: u32,
        /// Zero.
        0x04 => reserved: u32,
    }
}
