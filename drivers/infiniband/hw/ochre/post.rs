// SPDX-License-Identifier: GPL-2.0-or-later

//! Posting work requests of the kernel.

use crate::{
    hw::{
        queue::MAX_INLINE,
        wqe::{
            AtomicSegment,
            RecvWqe,
            SendOpcode,
            SendWqe,
            Sge as HwSge,
            SEND_FENCE,
            SEND_INLINE,
            SEND_SIGNALED,
            SEND_SOLICITED, //
        },
    },
    qp::Qp,
    queue::{
        Batch,
        Side,
        Slot, //
    },
    rdma::{
        Hca,
        QpPrivate,
        QpState,
        QpType,
        RecvWr,
        RecvWrs,
        SendOp,
        SendWr,
        SendWrs,
        Sge, //
    },
    Ochre, //
};
use kernel::prelude::*;

/// Posts send requests.
pub(crate) fn send(hca: Hca<'_, Ochre>, qp: &Qp, wrs: &mut SendWrs<'_, Ochre>) -> Result {
    let queues = qp.queues()?;
    if hca.is_dead() && matches!(qp.qp_type(), QpType::Smi | QpType::Gsi) {
        // A MAD that is flushed is sent again and again; one that cannot be sent is given up.
        return Err(EIO);
    }
    let posted = queues.post(Side::Send, |batch| {
        while let Some(wr) = wrs.next() {
            if matches!(qp.state(), QpState::Reset | QpState::Init | QpState::Rtr) {
                return Err(EINVAL);
            }
            send_one(qp, batch, &wr)?;
        }
        Ok(())
    });
    if posted.wake {
        hca.doorbells.ring_send(qp.number());
    }
    flush_if_dead(hca, qp, Side::Send);
    posted.result
}

/// Posts receive requests.
pub(crate) fn recv(hca: Hca<'_, Ochre>, qp: &Qp, wrs: &mut RecvWrs<'_>) -> Result {
    let queues = qp.queues()?;
    let posted = queues.post(Side::Recv, |batch| {
        while let Some(wr) = wrs.next() {
            if qp.state() == QpState::Reset {
                return Err(EINVAL);
            }
            recv_one(qp, batch, &wr)?;
        }
        Ok(())
    });
    if posted.wake {
        hca.doorbells.ring_recv(qp.number());
    }
    flush_if_dead(hca, qp, Side::Recv);
    posted.result
}

/// Requests that are posted to a dead device are flushed by whoever polls the completion queue.
fn flush_if_dead(hca: Hca<'_, Ochre>, qp: &Qp, side: Side) {
    if hca.is_dead() {
        hca.dev.cq_completion(qp.cqn(side));
    }
}

/// The header of a send, as far as its operation makes it, and the operands of an atomic.
fn header(qp_type: QpType, op: &SendOp<'_, Ochre>) -> Result<(SendWqe, Option<AtomicSegment>)> {
    let imm = |imm: &Option<[u8; 4]>| u32::from_le_bytes(imm.unwrap_or_default());
    let rdma = |opcode: SendOpcode, remote_addr: u64, rkey: u32| SendWqe {
        opcode: opcode.raw(),
        remote: remote_addr,
        key: rkey,
        ..SendWqe::default()
    };
    let mut atomic = None;

    let header = match *op {
        SendOp::Send => rdma(SendOpcode::Send, 0, 0),
        SendOp::SendImm { imm } => SendWqe {
            imm: u32::from_le_bytes(imm),
            ..rdma(SendOpcode::SendImm, 0, 0)
        },
        SendOp::SendInvalidate { rkey } => SendWqe {
            imm: rkey,
            ..rdma(SendOpcode::SendInvalidate, 0, 0)
        },
        SendOp::Datagram {
            ah,
            remote_qpn,
            remote_qkey,
            pkey_index,
            imm: data,
        } => {
            let opcode = match data {
                Some(_) => SendOpcode::SendImm,
                None => SendOpcode::Send,
            };
            let remote = u64::from(ah.number()) | u64::from(remote_qpn) << 32;
            SendWqe {
                imm: imm(&data),
                pkey_index: match qp_type {
                    QpType::Gsi => pkey_index,
                    _ => 0,
                },
                ..rdma(opcode, remote, remote_qkey)
            }
        }
        SendOp::Write {
            remote_addr,
            rkey,
            imm: data,
        } => {
            let opcode = match data {
                Some(_) => SendOpcode::WriteImm,
                None => SendOpcode::Write,
            };
            SendWqe {
                imm: imm(&data),
                ..rdma(opcode, remote_addr, rkey)
            }
        }
        SendOp::Read { remote_addr, rkey } => rdma(SendOpcode::Read, remote_addr, rkey),
        SendOp::CompareSwap {
            remote_addr,
            rkey,
            compare,
            swap,
        } => {
            atomic = Some(AtomicSegment {
                swap_or_add: swap,
                compare,
            });
            rdma(SendOpcode::CompareSwap, remote_addr, rkey)
        }
        SendOp::FetchAdd {
            remote_addr,
            rkey,
            add,
        } => {
            atomic = Some(AtomicSegment {
                swap_or_add: add,
                compare: 0,
            });
            rdma(SendOpcode::FetchAdd, remote_addr, rkey)
        }
        // The device does not register and invalidate regions by work requests.
        SendOp::LocalInvalidate { .. } | SendOp::Reg(_) => return Err(EINVAL),
    };
    Ok((header, atomic))
}

fn send_one(qp: &Qp, batch: &mut Batch<'_>, wr: &SendWr<'_, Ochre>) -> Result {
    let mut slot = batch.slot()?;
    let (mut header, atomic) = header(qp.qp_type(), &wr.op()?)?;
    let flags = wr.flags();
    header.wr_id = wr.wr_id();
    for (flag, bit) in [
        (flags.signaled || qp.signal_all(), SEND_SIGNALED),
        (flags.solicited, SEND_SOLICITED),
        (flags.fence, SEND_FENCE),
        (flags.inline, SEND_INLINE),
    ] {
        if flag {
            header.flags |= bit;
        }
    }

    slot.skip(SendWqe::SIZE);
    if let Some(atomic) = &atomic {
        slot.atomic(atomic)?;
    }
    if flags.inline {
        if atomic.is_some() || header.opcode == SendOpcode::Read.raw() {
            return Err(EINVAL);
        }
        header.inline_len = inline(&mut slot, wr)?;
    } else {
        header.num_sge = sges(&mut slot, wr.sges(), qp.caps().max_send_sge)?;
    }
    slot.send_header(&header)?;
    batch.push();
    Ok(())
}

/// Copies the data of an inline request; gives their length.
fn inline(slot: &mut Slot<'_>, wr: &SendWr<'_, Ochre>) -> Result<u16> {
    let mut data = [0; MAX_INLINE as usize];
    let len = wr.copy_inline(&mut data)?;

    slot.data(&data[..len])?;
    Ok(len as u16)
}

/// Copies scatter/gather elements; gives their number.
fn sges(slot: &mut Slot<'_>, sges: &[Sge], max: u32) -> Result<u8> {
    if sges.len() > max as usize {
        return Err(EINVAL);
    }
    for sge in sges {
        slot.sge(&HwSge {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        })?;
    }
    u8::try_from(sges.len()).map_err(|_| EINVAL)
}

fn recv_one(qp: &Qp, batch: &mut Batch<'_>, wr: &RecvWr<'_>) -> Result {
    let mut slot = batch.slot()?;

    slot.skip(RecvWqe::SIZE);
    let num_sge = sges(&mut slot, wr.sges(), qp.caps().max_recv_sge)?;
    slot.recv_header(&RecvWqe {
        wr_id: wr.wr_id(),
        num_sge: num_sge.into(),
        ..RecvWqe::default()
    })?;
    batch.push();
    Ok(())
}

#[kunit_tests(ochre_post)]
mod tests {
    use super::*;

    fn rc(op: &SendOp<'_, Ochre>) -> Result<(SendWqe, Option<AtomicSegment>)> {
        header(QpType::Rc, op)
    }

    /// Address and key at the peer that the tests use.
    const REMOTE: u64 = 0x1122_3344_5566_7788;
    const KEY: u32 = 0x99aa_bbcc;

    #[test]
    fn sends_name_no_memory_of_the_peer() -> Result {
        let (send, atomic) = rc(&SendOp::Send)?;
        let expected = SendWqe {
            opcode: SendOpcode::Send.raw(),
            ..SendWqe::default()
        };
        assert!(send == expected);
        assert!(atomic.is_none());
        Ok(())
    }

    #[test]
    fn immediate_data_keep_their_bytes() -> Result {
        let imm = [1, 2, 3, 4];
        for op in [
            SendOp::SendImm { imm },
            SendOp::Write {
                remote_addr: REMOTE,
                rkey: KEY,
                imm: Some(imm),
            },
        ] {
            let (header, _) = rc(&op)?;
            let at = core::mem::offset_of!(SendWqe, imm);
            assert_eq!(header.to_bytes()[at..][..4], imm);
        }
        Ok(())
    }

    #[test]
    fn writes_and_reads_carry_address_and_key() -> Result {
        let (write, _) = rc(&SendOp::Write {
            remote_addr: REMOTE,
            rkey: KEY,
            imm: None,
        })?;
        let (read, _) = rc(&SendOp::Read {
            remote_addr: REMOTE,
            rkey: KEY,
        })?;
        assert_eq!((write.remote, write.key), (REMOTE, KEY));
        assert_eq!((read.remote, read.key), (REMOTE, KEY));
        assert_eq!(write.opcode, SendOpcode::Write.raw());
        assert_eq!(read.opcode, SendOpcode::Read.raw());
        Ok(())
    }

    #[test]
    fn atomics_have_their_operands() -> Result {
        let (swap, operands) = rc(&SendOp::CompareSwap {
            remote_addr: REMOTE,
            rkey: KEY,
            compare: 5,
            swap: 6,
        })?;
        let expected = AtomicSegment {
            swap_or_add: 6,
            compare: 5,
        };
        assert_eq!(swap.opcode, SendOpcode::CompareSwap.raw());
        assert!(operands == Some(expected));

        let (add, operands) = rc(&SendOp::FetchAdd {
            remote_addr: REMOTE,
            rkey: KEY,
            add: 7,
        })?;
        let expected = AtomicSegment {
            swap_or_add: 7,
            compare: 0,
        };
        assert_eq!(add.opcode, SendOpcode::FetchAdd.raw());
        assert!(operands == Some(expected));
        Ok(())
    }

    #[test]
    fn what_the_device_does_not_do_is_refused() {
        assert_eq!(
            rc(&SendOp::LocalInvalidate { rkey: KEY }).err(),
            Some(EINVAL)
        );
    }
}
