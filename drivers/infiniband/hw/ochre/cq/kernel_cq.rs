// SPDX-License-Identifier: GPL-2.0-or-later

//! Completion queues of the kernel: polling and arming.

use crate::{
    block::Block,
    hw::{
        cqe::{
            self,
            Cqe,
            CqeOpcode,
            CqeStatus, //
        },
        queue::{
            self,
            CqRecord, //
        },
    },
    queue::Side,
    rdma::{
        Hca,
        Qp,
        Wc,
        WcFlags,
        WcOpcode,
        WcSink,
        WcStatus, //
    },
    Ochre, //
};
use core::mem::offset_of;
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        barrier::{
            dma_mb,
            mb,
            Full,
            Read, //
        },
        SpinLockIrq, //
    }, //
};

/// The number of no queue pair: numbers have 24 bits.
const NO_QP: u32 = u32::MAX;

/// A queue pair whose completions come to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// Its number in completions, 0 or 1 for a special QP.
    pub(crate) wire_number: u32,
    /// Port of a special QP, else 0.
    pub(crate) port: u8,
    /// Its number in commands.
    pub(crate) number: u32,
}

struct State {
    /// Index of the next completion; it runs freely.
    consumer: u32,
    /// The last value that armed the queue.
    arm: u32,
    /// The queue pairs, in their order.
    members: KVec<Member>,
}

/// A completion queue of the kernel.
#[pin_data]
pub(crate) struct KernelCq {
    mem: Block,
    log_entries: u8,
    #[pin]
    state: SpinLockIrq<State>,
}

impl KernelCq {
    /// A queue of `1 << log_entries` completions in a zeroed buffer.
    pub(crate) fn new(mem: Block, log_entries: u8) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            mem,
            log_entries,
            state <- new_spinlock_irq!(State {
                consumer: 0,
                arm: 0,
                members: KVec::new(),
            }),
        })
    }

    /// From now on, completions of a queue pair may come.
    pub(crate) fn add(&self, member: Member) -> Result {
        let mut state = self.state.lock();
        match state.members.binary_search(&member) {
            // Sends and receives of a queue pair may complete in the same queue.
            Ok(_) => Ok(()),
            Err(index) => {
                state.members.reserve(1, GFP_ATOMIC)?;
                state
                    .members
                    .insert_within_capacity(index, member)
                    .map_err(|_| ENOMEM)
            }
        }
    }

    /// No completion of a queue pair is to be seen any more.
    pub(crate) fn remove(&self, member: &Member) {
        let mut state = self.state.lock();
        if let Ok(index) = state.members.binary_search(member) {
            // The index is in bounds.
            let _ = state.members.remove(index);
        }
        self.forget(&state, member);
    }

    /// Completions of a queue pair that have not been polled are not to be seen: it was reset.
    pub(crate) fn purge(&self, member: &Member) {
        let state = self.state.lock();
        self.forget(&state, member);
    }

    fn forget(&self, state: &State, member: &Member) {
        let mut index = state.consumer;
        while let Some(entry) = self.entry(index) {
            if is_of(&entry, member) {
                // The entry is in the memory, and the device has done with it.
                let _ = self
                    .mem
                    .store32(self.offset(index) + offset_of!(Cqe, qpn), NO_QP);
            }
            index = index.wrapping_add(1);
            if index.wrapping_sub(state.consumer) >> self.log_entries != 0 {
                break;
            }
        }
    }

    /// Where the entry of an index lies.
    fn offset(&self, index: u32) -> usize {
        let entry = index & ((1 << self.log_entries) - 1);
        CqRecord::SIZE + entry as usize * Cqe::SIZE
    }

    /// Whether the device has written the entry of an index.
    fn is_valid(&self, index: u32) -> bool {
        match self.mem.load8(self.offset(index) + offset_of!(Cqe, owner)) {
            Ok(owner) => is_written(owner, index, self.log_entries),
            Err(_) => false,
        }
    }

    /// The entry of an index, if the device has written it.
    fn entry(&self, index: u32) -> Option<Cqe> {
        if !self.is_valid(index) {
            return None;
        }
        // The device writes the owner last.
        dma_mb(Read);
        Some(Cqe::from_bytes(&self.mem.read(self.offset(index)).ok()?))
    }

    /// Hands completions over.
    pub(crate) fn poll(&self, hca: Hca<'_, Ochre>, out: &mut WcSink<'_, Ochre>) -> Result {
        let dead = hca.is_dead();
        let mut state = self.state.lock();
        let before = state.consumer;

        while !out.is_full() {
            let Some(entry) = self.entry(state.consumer) else {
                break;
            };
            state.consumer = state.consumer.wrapping_add(1);
            let Some(member) = find(&state.members, &entry) else {
                continue;
            };
            if let Some(qp) = hca.dev.qp(member.number) {
                complete(&qp, &entry, out)?;
            }
        }

        if state.consumer != before {
            // The entries are read before the device may write them again.
            mb(Full);
            self.mem
                .store32(offset_of!(CqRecord, consumer), state.consumer)?;
        }

        // A dead device completes nothing any more: what is outstanding is flushed here.
        if dead && !self.is_valid(state.consumer) {
            for member in state.members.iter() {
                if let Some(qp) = hca.dev.qp(member.number) {
                    self.flush(&qp, out)?;
                }
            }
        }
        Ok(())
    }

    fn flush(&self, qp: &Qp<Ochre>, out: &mut WcSink<'_, Ochre>) -> Result {
        for (side, opcode) in [(Side::Send, WcOpcode::Send), (Side::Recv, WcOpcode::Recv)] {
            if !core::ptr::eq(qp.kernel_cq(side)?, self) {
                continue;
            }
            while !out.is_full() {
                let Some(wr_id) = qp.queues()?.flush_one(side) else {
                    break;
                };
                out.push(
                    qp,
                    &Wc {
                        wr_id,
                        status: WcStatus::WrFlushErr,
                        opcode,
                        vendor_err: 0,
                        byte_len: 0,
                        with: WcFlags::None,
                        grh: false,
                        src_qp: 0,
                        slid: 0,
                        pkey_index: 0,
                        sl: 0,
                        dlid_path_bits: 0,
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Arms the queue. Gives whether there are completions already.
    pub(crate) fn arm(&self, solicited_only: bool) -> Result<bool> {
        let mut state = self.state.lock();
        state.arm = next_arm(state.arm, solicited_only);
        self.mem.store32(offset_of!(CqRecord, arm), state.arm)?;
        // The device must see this before the queue is looked at once more.
        mb(Full);
        Ok(self.is_valid(state.consumer))
    }
}

/// Whether an entry whose owner byte is `owner` is that of `index`, and not one of the pass before.
fn is_written(owner: u8, index: u32, log_entries: u8) -> bool {
    (owner & cqe::CQE_PHASE != 0) == ((index >> log_entries) & 1 == 0)
}

/// The value that arms a queue after `last` did: another one each time.
fn next_arm(last: u32, solicited_only: bool) -> u32 {
    let kind = if solicited_only {
        queue::CQ_ARM_SOLICITED
    } else {
        queue::CQ_ARM_NEXT
    };
    (last & !queue::CQ_ARM_KIND).wrapping_add(queue::CQ_ARM_STEP) | kind
}

/// The queue pair that an entry is of.
fn find(members: &[Member], entry: &Cqe) -> Option<Member> {
    let first = members.partition_point(|m| m.wire_number < entry.qpn);
    members[first..]
        .iter()
        .take_while(|m| m.wire_number == entry.qpn)
        .find(|m| is_of(entry, m))
        .copied()
}

/// Whether an entry is of a queue pair. Special QPs of two ports have the same numbers; an entry
/// that names no port is of the first that fits.
fn is_of(entry: &Cqe, member: &Member) -> bool {
    entry.qpn == member.wire_number
        && (member.port == 0 || entry.port == 0 || entry.port == member.port)
}

/// Hands an entry over as a completion.
fn complete(qp: &Qp<Ochre>, entry: &Cqe, out: &mut WcSink<'_, Ochre>) -> Result {
    let opcode = CqeOpcode::from_raw(entry.opcode);
    let side = match opcode {
        Some(opcode) if opcode.is_recv() => Side::Recv,
        _ => Side::Send,
    };
    qp.queues()?.complete(side, entry.wqe_index);

    let with = if entry.flags & cqe::CQE_IMM != 0 {
        WcFlags::Imm(entry.imm.to_le_bytes())
    } else if entry.flags & cqe::CQE_INVALIDATED != 0 {
        WcFlags::Invalidate(entry.imm)
    } else {
        WcFlags::None
    };
    out.push(
        qp,
        &Wc {
            wr_id: entry.wr_id,
            status: status(entry.status),
            opcode: match opcode {
                Some(CqeOpcode::Write) => WcOpcode::RdmaWrite,
                Some(CqeOpcode::Read) => WcOpcode::RdmaRead,
                Some(CqeOpcode::CompareSwap) => WcOpcode::CompSwap,
                Some(CqeOpcode::FetchAdd) => WcOpcode::FetchAdd,
                Some(CqeOpcode::Recv) => WcOpcode::Recv,
                Some(CqeOpcode::RecvWriteImm) => WcOpcode::RecvRdmaWithImm,
                Some(CqeOpcode::Send) | None => WcOpcode::Send,
            },
            vendor_err: entry.syndrome.into(),
            byte_len: entry.byte_len,
            with,
            grh: entry.flags & cqe::CQE_GRH != 0,
            src_qp: entry.src_qpn,
            slid: entry.slid,
            pkey_index: entry.pkey_index,
            sl: entry.sl,
            dlid_path_bits: entry.dlid_path_bits,
        },
    )
}

fn status(raw: u8) -> WcStatus {
    match CqeStatus::from_raw(raw) {
        Some(CqeStatus::Success) => WcStatus::Success,
        Some(CqeStatus::LocalLength) => WcStatus::LocLenErr,
        Some(CqeStatus::LocalQpOperation) => WcStatus::LocQpOpErr,
        Some(CqeStatus::LocalProtection) => WcStatus::LocProtErr,
        Some(CqeStatus::WorkRequestFlushed) => WcStatus::WrFlushErr,
        Some(CqeStatus::BadResponse) => WcStatus::BadRespErr,
        Some(CqeStatus::LocalAccess) => WcStatus::LocAccessErr,
        Some(CqeStatus::RemoteInvalidRequest) => WcStatus::RemInvReqErr,
        Some(CqeStatus::RemoteAccess) => WcStatus::RemAccessErr,
        Some(CqeStatus::RemoteOperation) => WcStatus::RemOpErr,
        Some(CqeStatus::RetryExceeded) => WcStatus::RetryExcErr,
        Some(CqeStatus::RnrRetryExceeded) => WcStatus::RnrRetryExcErr,
        Some(CqeStatus::General) | None => WcStatus::GeneralErr,
    }
}

#[kunit_tests(ochre_cq)]
mod tests {
    use super::*;

    const fn member(wire_number: u32, port: u8, number: u32) -> Member {
        Member {
            wire_number,
            port,
            number,
        }
    }

    /// Both special QPs of two ports, and two others, in their order.
    const MEMBERS: [Member; 6] = [
        member(0, 1, 0x10),
        member(0, 2, 0x12),
        member(1, 1, 0x11),
        member(1, 2, 0x13),
        member(0x40, 0, 0x40),
        member(0x41, 0, 0x41),
    ];

    fn found(qpn: u32, port: u8) -> Option<u32> {
        let entry = Cqe {
            qpn,
            port,
            ..Cqe::default()
        };
        find(&MEMBERS, &entry).map(|member| member.number)
    }

    #[test]
    fn members_are_found_by_number_and_special_ones_by_port_too() {
        assert_eq!(found(0x40, 0), Some(0x40));
        assert_eq!(found(0x41, 0), Some(0x41));
        assert_eq!(found(0, 1), Some(0x10));
        assert_eq!(found(0, 2), Some(0x12));
        assert_eq!(found(1, 2), Some(0x13));
        // Sends name no port.
        assert_eq!(found(1, 0), Some(0x11));
    }

    #[test]
    fn nobody_is_found_for_others() {
        assert_eq!(found(2, 0), None);
        assert_eq!(found(0x42, 0), None);
        assert_eq!(found(1, 3), None);
        assert_eq!(found(NO_QP, 0), None);
        assert!(find(&[], &Cqe::default()).is_none());
    }

    #[test]
    fn the_order_of_members_is_that_of_their_numbers_on_the_wire() {
        assert!(MEMBERS.is_sorted());
    }

    #[test]
    fn each_arming_has_another_value_of_its_kind() {
        let mut last = u32::MAX - 5;
        for solicited_only in [true, false, false, true] {
            let next = next_arm(last, solicited_only);
            assert!(next != last);
            assert!(next & !queue::CQ_ARM_KIND != last & !queue::CQ_ARM_KIND);
            assert_eq!(
                next & queue::CQ_ARM_KIND,
                if solicited_only {
                    queue::CQ_ARM_SOLICITED
                } else {
                    queue::CQ_ARM_NEXT
                }
            );
            last = next;
        }
    }

    #[test]
    fn the_phase_turns_with_each_pass() {
        for (index, phase) in [(0, true), (7, true), (8, false), (15, false), (16, true)] {
            assert_eq!(is_written(cqe::CQE_PHASE, index, 3), phase);
            assert_eq!(is_written(0, index, 3), !phase);
        }
        assert!(is_written(0, u32::MAX, 3));
    }

    #[test]
    fn statuses_are_those_of_the_verbs() {
        for raw in 0..=u8::MAX {
            let expected = match CqeStatus::from_raw(raw) {
                Some(_) => u32::from(raw),
                None => WcStatus::GeneralErr as u32,
            };
            assert_eq!(status(raw) as u32, expected);
        }
    }
}
