// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! What the contract promises beyond the offsets, which the declarations themselves pin.

use ochre_hw::cmd::port::{Counter, QueryCountersOut, COUNTER_SLOTS};
use ochre_hw::cmd::{CmdSlot, Opcode, OWNER_DEVICE};
use ochre_hw::cqe::{Cqe, CqeOpcode, CqeStatus};
use ochre_hw::queue::{
    CqRecord, MemDesc, QpLayout, QpRecord, QpSizes, MAX_INLINE, MAX_LOG_RQ_STRIDE,
    MAX_LOG_SQ_STRIDE, MAX_LOG_WR, MAX_SGE, MIN_LOG_SQ_STRIDE,
};
use ochre_hw::wqe::{SendWqe, Sge};

#[test]
fn numbers_are_little_endian_and_stand_where_the_manual_says() {
    let wqe = SendWqe {
        opcode: 0x11,
        flags: 0x22,
        num_sge: 0x33,
        reserved: 0,
        imm: 0x4444_5555,
        wr_id: 0x0102_0304_0506_0708,
        remote: 0x1112_1314_1516_1718,
        key: 0x2122_2324,
        inline_len: 0x3132,
        pkey_index: 0x4142,
    };
    let bytes = wqe.to_bytes();
    assert_eq!(&bytes[..4], [0x11, 0x22, 0x33, 0]);
    assert_eq!(&bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(
        &bytes[0x18..],
        [0x24, 0x23, 0x22, 0x21, 0x32, 0x31, 0x42, 0x41]
    );
    assert_eq!(SendWqe::from_bytes(&bytes), wqe);
}

#[test]
fn structures_inside_structures_keep_their_place() {
    let mem = MemDesc {
        addr: 0x1000,
        num_pages: 2,
        page_shift: 12,
        ..MemDesc::default()
    };
    let cmd = ochre_hw::cmd::mem::CreateMr {
        mem,
        length: 5,
        ..Default::default()
    };
    let bytes = cmd.to_bytes();
    assert_eq!(bytes[..16], mem.to_bytes());
    assert_eq!(bytes[0x18], 5);
}

#[test]
fn what_the_device_writes_last_is_at_the_end() {
    let cqe = Cqe {
        owner: 1,
        ..Cqe::default()
    };
    assert_eq!(cqe.to_bytes()[Cqe::SIZE - 1], 1);
    let slot = CmdSlot {
        owner: OWNER_DEVICE,
        ..CmdSlot::default()
    };
    assert_eq!(slot.to_bytes()[CmdSlot::SIZE - 1], OWNER_DEVICE);
}

#[test]
fn the_two_sides_of_a_qp_record_do_not_share_a_cache_line() {
    assert_eq!(core::mem::offset_of!(QpRecord, sq_need_wake) % 64, 0);
    assert!(core::mem::offset_of!(QpRecord, sq_need_wake) >= 64);
    assert_eq!(CqRecord::SIZE % 64, 0);
}

#[test]
fn raw_values_come_back_as_what_they_were() {
    for op in Opcode::ALL {
        assert_eq!(Opcode::from_raw(op.raw()), Some(*op));
    }
    assert_eq!(Opcode::from_raw(0), None);
    for status in CqeStatus::ALL {
        assert_eq!(CqeStatus::from_raw(status.raw()), Some(*status));
    }
    assert_eq!(CqeStatus::from_raw(3), None);
    assert!(CqeOpcode::Recv.is_recv() && !CqeOpcode::Read.is_recv());
}

#[test]
fn a_layout_holds_what_was_asked_and_nothing_overlaps() {
    for send_wr in [0, 1, 3, 128, 1 << MAX_LOG_WR] {
        for send_sge in [0, 1, 2, 3, 7, MAX_SGE] {
            for inline_data in [0, 1, 28, 64, 100, MAX_INLINE] {
                for recv_sge in [0, 1, 5, MAX_SGE] {
                    let asked = QpSizes {
                        send_wr,
                        send_sge,
                        inline_data,
                        recv_wr: 77,
                        recv_sge,
                    };
                    let l = QpLayout::new(&asked).unwrap();
                    let got = l.sizes();
                    assert!(
                        got.send_wr >= send_wr && got.recv_wr >= 77,
                        "{asked:?} {got:?}"
                    );
                    assert!(
                        got.send_sge >= send_sge && got.recv_sge >= recv_sge,
                        "{asked:?} {got:?}"
                    );
                    assert!(got.inline_data >= inline_data, "{asked:?} {got:?}");
                    assert!((MIN_LOG_SQ_STRIDE..=MAX_LOG_SQ_STRIDE).contains(&l.log_sq_stride));
                    assert!(l.log_rq_stride <= MAX_LOG_RQ_STRIDE);
                    assert!(l.sq_offset as usize >= QpRecord::SIZE);
                    assert!(l.rq_offset >= l.sq_offset + (1 << (l.log_sq_slots + l.log_sq_stride)));
                    assert!(l.bytes >= l.rq_offset + (1 << (l.log_rq_slots + l.log_rq_stride)));
                    assert_eq!(l.bytes % 4096, 0);
                    // What a layout has room for can be asked for again.
                    assert!(QpLayout::new(&got).is_some(), "{got:?}");
                }
            }
        }
    }
}

#[test]
fn a_slot_holds_an_atomic_and_beyond_the_limits_there_is_no_layout() {
    let l = QpLayout::new(&QpSizes::default()).unwrap();
    assert!(1usize << l.log_sq_stride >= SendWqe::SIZE + 16 + Sge::SIZE);
    for beyond in [
        QpSizes {
            send_wr: (1 << MAX_LOG_WR) + 1,
            ..QpSizes::default()
        },
        QpSizes {
            recv_wr: u32::MAX,
            ..QpSizes::default()
        },
        QpSizes {
            send_sge: MAX_SGE + 1,
            ..QpSizes::default()
        },
        QpSizes {
            recv_sge: u32::MAX,
            ..QpSizes::default()
        },
        QpSizes {
            inline_data: MAX_INLINE + 1,
            ..QpSizes::default()
        },
    ] {
        assert_eq!(QpLayout::new(&beyond), None, "{beyond:?}");
    }
}

#[test]
fn counters_have_a_place_and_a_name_of_their_own() {
    let mut out = QueryCountersOut::default();
    for (i, counter) in Counter::ALL.iter().enumerate() {
        assert!((counter.raw() as usize) < COUNTER_SLOTS);
        out.set_value(*counter, i as u64 + 1);
    }
    for (i, counter) in Counter::ALL.iter().enumerate() {
        assert_eq!(out.value(*counter), i as u64 + 1);
        assert!(Counter::ALL[..i].iter().all(|c| c.name() != counter.name()));
    }
}
