// SPDX-License-Identifier: GPL-2.0-or-later

//! Work requests of the kernel.

use super::{
    bindings,
    Ah,
    Mr,
    Operations,
    QpType, //
};
use core::{
    marker::PhantomData,
    mem::size_of, //
};
use kernel::prelude::*;

/// A scatter/gather element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sge {
    /// Address under the key.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) length: u32,
    /// Key of the region.
    pub(crate) lkey: u32,
}

static_assert!(size_of::<Sge>() == size_of::<bindings::ib_sge>());

/// # Safety
///
/// `list` must be valid for `num` elements for `'a`.
unsafe fn sges<'a>(list: *const bindings::ib_sge, num: i32) -> &'a [Sge] {
    match usize::try_from(num) {
        // SAFETY: By the requirements of this function; the types have the same layout.
        Ok(num) if num > 0 => unsafe { core::slice::from_raw_parts(list.cast(), num) },
        _ => &[],
    }
}

/// Flags of a send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendFlags {
    /// Wait until all READs and atomics before it are done.
    pub(crate) fence: bool,
    /// Write a completion also on success.
    pub(crate) signaled: bool,
    /// Ask for a solicited event at the peer.
    pub(crate) solicited: bool,
    /// The elements name kernel memory that is copied while posting, see
    /// [`SendWr::copy_inline`].
    pub(crate) inline: bool,
}

/// Fast registration of a region: the pages come from the list of the region.
pub(crate) struct RegWr<'a, T: Operations> {
    /// The region.
    pub(crate) mr: &'a Mr<T>,
    /// The key that the region gets.
    pub(crate) key: u32,
    /// Rights, [`access`](super::access) bits.
    pub(crate) access: u32,
    /// Address of the first byte.
    pub(crate) iova: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// Size of the pages, bytes.
    pub(crate) page_size: u32,
}

/// What a send request asks for.
pub(crate) enum SendOp<'a, T: Operations> {
    /// SEND on a connection.
    Send,
    /// SEND with immediate data, in wire order.
    SendImm {
        /// Immediate data.
        imm: [u8; 4],
    },
    /// SEND that invalidates a key of the receiver.
    SendInvalidate {
        /// The key.
        rkey: u32,
    },
    /// SEND of a datagram.
    Datagram {
        /// Path to the peer.
        ah: &'a Ah<T>,
        /// QP number of the peer.
        remote_qpn: u32,
        /// Q_Key.
        remote_qkey: u32,
        /// Index of the P_Key; it counts only for the general services QP.
        pkey_index: u16,
        /// Immediate data, in wire order.
        imm: Option<[u8; 4]>,
    },
    /// RDMA WRITE.
    Write {
        /// Address at the peer.
        remote_addr: u64,
        /// Key of the peer.
        rkey: u32,
        /// Immediate data, in wire order.
        imm: Option<[u8; 4]>,
    },
    /// RDMA READ.
    Read {
        /// Address at the peer.
        remote_addr: u64,
        /// Key of the peer.
        rkey: u32,
    },
    /// Atomic compare-and-swap of 8 bytes.
    CompareSwap {
        /// Address at the peer.
        remote_addr: u64,
        /// Key of the peer.
        rkey: u32,
        /// Value to compare with.
        compare: u64,
        /// Value to be written.
        swap: u64,
    },
    /// Atomic fetch-and-add of 8 bytes.
    FetchAdd {
        /// Address at the peer.
        remote_addr: u64,
        /// Key of the peer.
        rkey: u32,
        /// Value to be added.
        add: u64,
    },
    /// Invalidation of an own key.
    LocalInvalidate {
        /// The key.
        rkey: u32,
    },
    /// Fast registration.
    Reg(RegWr<'a, T>),
}

/// A send request.
pub(crate) struct SendWr<'a, T: Operations> {
    raw: &'a bindings::ib_send_wr,
    qp_type: QpType,
    _ops: PhantomData<&'a T>,
}

impl<'a, T: Operations> SendWr<'a, T> {
    /// The identifier that the completion returns.
    pub(crate) fn wr_id(&self) -> u64 {
        // SAFETY: Both members of the union are 64 bits.
        unsafe { *self.raw.__bindgen_anon_1.wr_id }
    }

    /// The flags.
    pub(crate) fn flags(&self) -> SendFlags {
        let flags = self.raw.send_flags;
        SendFlags {
            fence: flags & bindings::ib_send_flags_IB_SEND_FENCE != 0,
            signaled: flags & bindings::ib_send_flags_IB_SEND_SIGNALED != 0,
            solicited: flags & bindings::ib_send_flags_IB_SEND_SOLICITED != 0,
            inline: flags & bindings::ib_send_flags_IB_SEND_INLINE != 0,
        }
    }

    /// The elements.
    pub(crate) fn sges(&self) -> &'a [Sge] {
        // SAFETY: The caller of `post_send` keeps the list valid.
        unsafe { sges(self.raw.sg_list, self.raw.num_sge) }
    }

    fn imm(&self) -> [u8; 4] {
        // SAFETY: Both members of the union are 32 bits.
        unsafe { *self.raw.ex.imm_data }.to_ne_bytes()
    }

    fn invalidate_rkey(&self) -> u32 {
        // SAFETY: Both members of the union are 32 bits.
        unsafe { *self.raw.ex.invalidate_rkey }
    }

    /// The request as the larger structure that it is the start of.
    ///
    /// # Safety
    ///
    /// The request must be the first field of a `W`.
    unsafe fn outer<W>(&self) -> &'a W {
        // SAFETY: By the requirements of this function.
        unsafe { &*core::ptr::from_ref(self.raw).cast() }
    }

    /// What is asked for. [`EINVAL`] where a QP of this type, or this device, does not do that.
    pub(crate) fn op(&self) -> Result<SendOp<'a, T>> {
        let opcode = self.raw.opcode;

        if self.qp_type.is_datagram() {
            return self.datagram();
        }

        Ok(match opcode {
            bindings::ib_wr_opcode_IB_WR_SEND => SendOp::Send,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => SendOp::SendImm { imm: self.imm() },
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => SendOp::SendInvalidate {
                rkey: self.invalidate_rkey(),
            },
            bindings::ib_wr_opcode_IB_WR_LOCAL_INV => SendOp::LocalInvalidate {
                rkey: self.invalidate_rkey(),
            },
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE
            | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM
            | bindings::ib_wr_opcode_IB_WR_RDMA_READ => {
                // SAFETY: The opcode says that it is a request of this kind.
                let wr = unsafe { self.outer::<bindings::ib_rdma_wr>() };
                let (remote_addr, rkey) = (wr.remote_addr, wr.rkey);
                match opcode {
                    bindings::ib_wr_opcode_IB_WR_RDMA_READ => SendOp::Read { remote_addr, rkey },
                    _ => SendOp::Write {
                        remote_addr,
                        rkey,
                        imm: (opcode == bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM)
                            .then(|| self.imm()),
                    },
                }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => {
                // SAFETY: The opcode says that it is a request of this kind.
                let wr = unsafe { self.outer::<bindings::ib_atomic_wr>() };
                SendOp::CompareSwap {
                    remote_addr: wr.remote_addr,
                    rkey: wr.rkey,
                    compare: wr.compare_add,
                    swap: wr.swap,
                }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => {
                // SAFETY: The opcode says that it is a request of this kind.
                let wr = unsafe { self.outer::<bindings::ib_atomic_wr>() };
                SendOp::FetchAdd {
                    remote_addr: wr.remote_addr,
                    rkey: wr.rkey,
                    add: wr.compare_add,
                }
            }
            bindings::ib_wr_opcode_IB_WR_REG_MR => {
                // SAFETY: The opcode says that it is a request of this kind.
                let wr = unsafe { self.outer::<bindings::ib_reg_wr>() };
                // SAFETY: The caller of `post_send` keeps the region, which is one of ours.
                let (mr, raw) = unsafe { (Mr::<T>::from_raw(wr.mr), &*wr.mr) };
                SendOp::Reg(RegWr {
                    mr,
                    key: wr.key,
                    access: wr.access as u32,
                    iova: raw.iova,
                    length: raw.length,
                    page_size: raw.page_size,
                })
            }
            _ => return Err(EINVAL),
        })
    }

    fn datagram(&self) -> Result<SendOp<'a, T>> {
        let imm = match self.raw.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND => None,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => Some(self.imm()),
            _ => return Err(EINVAL),
        };

        // SAFETY: Sends on a QP for datagrams are of this kind.
        let wr = unsafe { self.outer::<bindings::ib_ud_wr>() };
        if wr.ah.is_null() {
            return Err(EINVAL);
        }

        Ok(SendOp::Datagram {
            // SAFETY: The caller of `post_send` keeps the address handle, which is one of ours.
            ah: unsafe { Ah::<T>::from_raw(wr.ah) },
            remote_qpn: wr.remote_qpn,
            remote_qkey: wr.remote_qkey,
            pkey_index: wr.pkey_index,
            imm,
        })
    }

    /// Copies the data of an inline request, and returns how many bytes they are; [`EINVAL`] where
    /// the request is not inline or has more than `out` holds.
    pub(crate) fn copy_inline(&self, out: &mut [u8]) -> Result<usize> {
        if !self.flags().inline {
            return Err(EINVAL);
        }

        let mut done = 0;
        for sge in self.sges() {
            let len = sge.length as usize;
            let end = done + len;
            let to = out.get_mut(done..end).ok_or(EINVAL)?;
            // SAFETY: The elements of an inline request name kernel memory, which the caller of
            // `post_send` keeps; `to` has `len` bytes.
            unsafe {
                core::ptr::copy_nonoverlapping(sge.addr as *const u8, to.as_mut_ptr(), len);
            }
            done = end;
        }

        Ok(done)
    }
}

/// Send requests that are being posted.
pub(crate) struct SendWrs<'a, T: Operations> {
    current: *const bindings::ib_send_wr,
    next: *const bindings::ib_send_wr,
    qp_type: QpType,
    _requests: PhantomData<&'a T>,
}

impl<'a, T: Operations> SendWrs<'a, T> {
    /// # Safety
    ///
    /// `first` must be the start of a valid list of requests for a QP of type `qp_type`, which
    /// stays so for `'a`.
    pub(super) unsafe fn new(first: *const bindings::ib_send_wr, qp_type: QpType) -> Self {
        Self {
            current: first,
            next: first,
            qp_type,
            _requests: PhantomData,
        }
    }

    /// The request that is to blame for an error.
    pub(super) fn bad(&self) -> *const bindings::ib_send_wr {
        self.current
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> Option<SendWr<'a, T>> {
        // SAFETY: The list is valid.
        let raw = unsafe { self.next.as_ref() }?;
        self.current = raw;
        self.next = raw.next;
        Some(SendWr {
            raw,
            qp_type: self.qp_type,
            _ops: PhantomData,
        })
    }
}

/// A receive request.
pub(crate) struct RecvWr<'a>(&'a bindings::ib_recv_wr);

impl<'a> RecvWr<'a> {
    /// The identifier that the completion returns.
    pub(crate) fn wr_id(&self) -> u64 {
        // SAFETY: Both members of the union are 64 bits.
        unsafe { *self.0.__bindgen_anon_1.wr_id }
    }

    /// The elements.
    pub(crate) fn sges(&self) -> &'a [Sge] {
        // SAFETY: The caller of `post_recv` keeps the list valid.
        unsafe { sges(self.0.sg_list, self.0.num_sge) }
    }
}

/// Receive requests that are being posted.
pub(crate) struct RecvWrs<'a> {
    current: *const bindings::ib_recv_wr,
    next: *const bindings::ib_recv_wr,
    _requests: PhantomData<&'a ()>,
}

impl<'a> RecvWrs<'a> {
    /// # Safety
    ///
    /// `first` must be the start of a valid list of requests, which stays so for `'a`.
    pub(super) unsafe fn new(first: *const bindings::ib_recv_wr) -> Self {
        Self {
            current: first,
            next: first,
            _requests: PhantomData,
        }
    }

    /// The request that is to blame for an error.
    pub(super) fn bad(&self) -> *const bindings::ib_recv_wr {
        self.current
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> Option<RecvWr<'a>> {
        // SAFETY: The list is valid.
        let raw = unsafe { self.next.as_ref() }?;
        self.current = raw;
        self.next = raw.next;
        Some(RecvWr(raw))
    }
}

#[kunit_tests(ochre_wr)]
mod tests {
    use super::*;
    use crate::Ochre;
    use core::mem::ManuallyDrop;

    fn one<'a>(raw: &'a bindings::ib_send_wr, qp_type: QpType) -> Option<SendWr<'a, Ochre>> {
        // SAFETY: The list is one valid request.
        unsafe { SendWrs::new(raw, qp_type) }.next()
    }

    #[test]
    fn a_list_is_walked_to_its_end_and_the_last_one_is_to_blame() {
        let second = bindings::ib_recv_wr::default();
        let first = bindings::ib_recv_wr {
            next: (&raw const second).cast_mut(),
            ..bindings::ib_recv_wr::default()
        };
        // SAFETY: The list is valid.
        let mut list = unsafe { RecvWrs::new(&first) };
        assert!(core::ptr::eq(list.bad(), &first));
        assert!(list.next().is_some());
        assert!(core::ptr::eq(list.bad(), &first));
        assert!(list.next().is_some());
        assert!(core::ptr::eq(list.bad(), &second));
        assert!(list.next().is_none());
        assert!(core::ptr::eq(list.bad(), &second));
    }

    #[test]
    fn flags_are_told_apart() -> Result {
        let raw = bindings::ib_send_wr {
            send_flags: bindings::ib_send_flags_IB_SEND_SIGNALED
                | bindings::ib_send_flags_IB_SEND_INLINE,
            ..bindings::ib_send_wr::default()
        };
        let flags = one(&raw, QpType::Rc).ok_or(EINVAL)?.flags();
        let expected = SendFlags {
            fence: false,
            signaled: true,
            solicited: false,
            inline: true,
        };
        assert_eq!(flags, expected);
        Ok(())
    }

    #[test]
    fn a_write_is_read_from_the_larger_structure() -> Result {
        let mut write = bindings::ib_rdma_wr {
            remote_addr: 0x1234_5678_9abc_def0,
            rkey: 77,
            ..bindings::ib_rdma_wr::default()
        };
        write.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        write.wr.ex.imm_data = ManuallyDrop::new(u32::from_ne_bytes([1, 2, 3, 4]));
        // The whole structure lends the pointer, not only its first field.
        // SAFETY: A request of this kind begins with its common part.
        let raw = unsafe { &*(&raw const write).cast() };
        let op = one(raw, QpType::Rc).ok_or(EINVAL)?.op()?;
        assert!(matches!(
            op,
            SendOp::Write {
                remote_addr: 0x1234_5678_9abc_def0,
                rkey: 77,
                imm: Some([1, 2, 3, 4]),
            }
        ));
        Ok(())
    }

    #[test]
    fn an_atomic_is_read_from_the_larger_structure() -> Result {
        let mut atomic = bindings::ib_atomic_wr {
            remote_addr: 8,
            rkey: 9,
            compare_add: 10,
            swap: 11,
            ..bindings::ib_atomic_wr::default()
        };
        atomic.wr.opcode = bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP;
        // SAFETY: A request of this kind begins with its common part.
        let raw = unsafe { &*(&raw const atomic).cast() };
        let op = one(raw, QpType::Rc).ok_or(EINVAL)?.op()?;
        assert!(matches!(
            op,
            SendOp::CompareSwap {
                remote_addr: 8,
                rkey: 9,
                compare: 10,
                swap: 11,
            }
        ));
        Ok(())
    }

    #[test]
    fn a_datagram_needs_an_address_handle_and_is_a_send() -> Result {
        let mut datagram = bindings::ib_ud_wr::default();
        datagram.wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        // SAFETY: A request of this kind begins with its common part.
        let raw = unsafe { &*(&raw const datagram).cast() };
        assert!(one(raw, QpType::Gsi).ok_or(EINVAL)?.op().is_err());
        datagram.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        // SAFETY: As above.
        let raw = unsafe { &*(&raw const datagram).cast() };
        assert!(one(raw, QpType::Ud).ok_or(EINVAL)?.op().is_err());
        Ok(())
    }

    #[test]
    fn no_opcode_is_taken_for_another() -> Result {
        let raw = bindings::ib_send_wr {
            opcode: bindings::ib_wr_opcode_IB_WR_BIND_MW,
            ..bindings::ib_send_wr::default()
        };
        assert!(one(&raw, QpType::Rc).ok_or(EINVAL)?.op().is_err());
        Ok(())
    }

    #[test]
    fn inline_data_are_copied_piece_by_piece_as_far_as_there_is_room() -> Result {
        let (head, tail) = ([1u8, 2, 3], [4u8, 5]);
        let piece = |bytes: &[u8]| bindings::ib_sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        let mut list = [piece(&head), piece(&tail)];
        let raw = bindings::ib_send_wr {
            send_flags: bindings::ib_send_flags_IB_SEND_INLINE,
            sg_list: list.as_mut_ptr(),
            num_sge: 2,
            ..bindings::ib_send_wr::default()
        };
        let wr = one(&raw, QpType::Rc).ok_or(EINVAL)?;
        let mut room = [0; 5];
        assert_eq!(wr.copy_inline(&mut room), Ok(5));
        assert_eq!(room, [1, 2, 3, 4, 5]);
        assert_eq!(wr.copy_inline(&mut room[..4]), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn a_list_of_no_elements_may_be_null() -> Result {
        let mut raw = bindings::ib_send_wr::default();
        assert!(one(&raw, QpType::Rc).ok_or(EINVAL)?.sges().is_empty());
        raw.num_sge = -1;
        assert!(one(&raw, QpType::Rc).ok_or(EINVAL)?.sges().is_empty());
        Ok(())
    }
}
