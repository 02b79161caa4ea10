// SPDX-License-Identifier: GPL-2.0-or-later
//! Pages, regions and scatter/gather lists over memory whose pages lie in any order.

use ochre_hw::cmd::Status;
use ochre_hw::queue::{MemDesc, MEM_INDIRECT};
use ochre_hw::verbs::access;
use ochre_hw::wqe::Sge;

use super::{
    gather, scatter, MemError, Mr, MrTable, PageBudget, PageList, QueueMem, SgData, Target,
};
use crate::memory::Memory;
use crate::seams::{Dma, DmaError};

const PD: u32 = 4;
const IOVA: u64 = 0x7f00_0000_0f00;

fn budget() -> PageBudget {
    PageBudget::new(1 << 20)
}

/// A list of pages of 4 KiB at `list`.
fn pages(m: &Memory, list: u64, pages: &[u64]) -> PageList {
    for (i, page) in pages.iter().enumerate() {
        m.write(list + i as u64 * 8, &page.to_le_bytes()).unwrap();
    }
    let desc = MemDesc {
        addr: list,
        num_pages: pages.len() as u32,
        page_shift: 12,
        flags: MEM_INDIRECT,
        ..MemDesc::default()
    };
    PageList::load(m, &desc, 0, &budget()).unwrap()
}

/// A region of 3 pages, the second and third in a row; it begins 0xf00 bytes into the first.
fn region(m: &Memory, access: u32) -> Mr {
    Mr {
        pd: PD,
        access,
        target: Target::Pages {
            iova: IOVA,
            length: 0x2100,
            pages: pages(m, 0, &[0x9000, 0x4000, 0x5000]),
            first: 0xf00,
        },
    }
}

#[test]
fn runs_end_where_pages_do_not_follow_each_other() {
    let m = Memory::new(64 << 10);
    let p = pages(&m, 0, &[0x9000, 0x4000, 0x5000, 0x6000]);
    assert_eq!(p.len(), 0x4000);
    assert_eq!(p.resolve(0, 0x4000), Some((0x9000, 0x1000)));
    assert_eq!(p.resolve(0xfff, 2), Some((0x9fff, 1)));
    assert_eq!(p.resolve(0x1000, 0x3000), Some((0x4000, 0x3000)));
    assert_eq!(p.resolve(0x1800, 0x1000), Some((0x4800, 0x1000)));
    assert_eq!(p.resolve(0x3fff, 1), Some((0x6fff, 1)));
    assert_eq!(p.resolve(0x3fff, 2), None);
    assert_eq!(p.resolve(u64::MAX, 2), None);
    assert_eq!(p.resolve(0, 0), None);
}

#[test]
fn long_lists_are_read_whole() {
    let m = Memory::new(64 << 10);
    // More than one piece of the list, the last page out of order.
    let mut list: Vec<u64> = (1..=1299).map(|n| n << 12).collect();
    list.push(0);
    let p = pages(&m, 0x4000, &list);
    assert_eq!(p.resolve(1298 << 12, 0x2000), Some((1299 << 12, 0x1000)));
    assert_eq!(p.resolve(1299 << 12, 0x1000), Some((0, 0x1000)));
    let beyond = MemDesc {
        addr: 0xf000,
        num_pages: 1024,
        page_shift: 12,
        flags: MEM_INDIRECT,
        ..MemDesc::default()
    };
    let error = PageList::load(&m, &beyond, 0x10, &budget()).unwrap_err();
    assert_eq!((error.status, error.field), (Status::DmaError, 0x10));
}

#[test]
fn bytes_go_where_the_pages_are() {
    let m = Memory::new(64 << 10);
    let mr = region(&m, access::REGION);
    let data: Vec<u8> = (0..0x2100u32).map(|i| (i * 7 >> 3) as u8).collect();
    mr.write(&m, IOVA, &data).unwrap();
    assert_eq!(m.bytes::<0x100>(0x9f00).unwrap(), data[..0x100]);
    assert_eq!(m.bytes::<0x1000>(0x4000).unwrap(), data[0x100..0x1100]);
    assert_eq!(m.bytes::<0x1000>(0x5000).unwrap(), data[0x1100..]);
    let mut back = vec![0; 0x1234];
    mr.read(&m, IOVA + 0x80, &mut back).unwrap();
    assert_eq!(back, data[0x80..0x80 + 0x1234]);
    assert_eq!(mr.word(IOVA + 0x100), Ok(0x4000));
    assert_eq!(
        mr.word(IOVA + 0xfc),
        Err(DmaError {
            addr: IOVA + 0xfc,
            len: 8
        })
    );
}

#[test]
fn accesses_are_checked_in_order() {
    let m = Memory::new(64 << 10);
    let mut mrs = MrTable::new(4);
    let key = mrs.insert(region(&m, access::REMOTE_READ)).unwrap();
    let check = |key, pd, va, len, need| mrs.check(key, pd, va, len, need).map(|_| ());
    let (end, read) = (IOVA + 0x2100, access::REMOTE_READ);
    assert_eq!(check(key, PD, IOVA, 0x2100, read), Ok(()));
    assert_eq!(check(key, PD, end - 1, 1, read), Ok(()));
    assert_eq!(check(key, PD, end, 0, read), Ok(()));
    let range = |addr, len| Err(MemError::Range { addr, len });
    assert_eq!(check(key, PD, end, 1, read), range(end, 1));
    assert_eq!(check(key, PD, IOVA - 1, 1, read), range(IOVA - 1, 1));
    assert_eq!(check(key, PD, IOVA, u64::MAX, read), range(IOVA, u64::MAX));
    assert_eq!(check(key, PD, u64::MAX, 2, read), range(u64::MAX, 2));
    // Everything wrong at once: key, then domain, then right, then range.
    let write = access::REMOTE_WRITE;
    assert_eq!(check(key ^ 1, 9, 0, 1, write), Err(MemError::Key(key ^ 1)));
    let domain = MemError::Pd {
        region: PD,
        access: 9,
    };
    assert_eq!(check(key, 9, 0, 1, write), Err(domain));
    assert_eq!(check(key, PD, 0, 1, write), Err(MemError::Access(write)));
    for key in [0, u32::MAX, key + 0x100] {
        assert_eq!(check(key, PD, IOVA, 1, 0), Err(MemError::Key(key)));
    }
}

#[test]
fn a_key_does_not_come_back_soon() {
    let m = Memory::new(4096);
    let mut mrs = MrTable::new(1);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..255 {
        let key = mrs.insert(region(&m, 0)).unwrap();
        assert!(key & 0xff != 0 && seen.insert(key));
        assert!(mrs.insert(region(&m, 0)).is_err(), "full");
        assert!(mrs.remove(key).is_some());
        assert!(mrs.get(key).is_none() && mrs.remove(key).is_none());
    }
    assert!(mrs.is_empty());
}

#[test]
fn lists_of_elements_are_one_stream() {
    let m = Memory::new(64 << 10);
    let mut mrs = MrTable::new(4);
    let key = mrs.insert(region(&m, access::LOCAL_WRITE)).unwrap();
    let sges: Vec<u8> = [(0x10, 5), (0x2000, 0), (0xff, 3), (0x20ff, 1)]
        .iter()
        .flat_map(|&(at, length)| {
            Sge {
                addr: IOVA + at,
                length,
                lkey: key,
            }
            .to_bytes()
        })
        .collect();
    let data = SgData::Elements(&sges);
    assert_eq!(data.len(), 9);
    scatter(&m, &mrs, PD, data, 0, b"abcd").unwrap();
    scatter(&m, &mrs, PD, data, 4, b"efghi").unwrap();
    assert_eq!(&m.bytes::<5>(0x9f10).unwrap(), b"abcde");
    assert_eq!(&m.bytes::<1>(0x9fff).unwrap(), b"f");
    assert_eq!(&m.bytes::<2>(0x4000).unwrap(), b"gh");
    assert_eq!(&m.bytes::<1>(0x5fff).unwrap(), b"i");
    let mut out = [0; 5];
    gather(&m, &mrs, PD, data, 3, &mut out).unwrap();
    assert_eq!(&out, b"defgh");
    let too_long = MemError::Range { addr: 5, len: 5 };
    assert_eq!(gather(&m, &mrs, PD, data, 5, &mut out), Err(too_long));
    assert_eq!(scatter(&m, &mrs, PD, data, 5, b"12345"), Err(too_long));
    let mut none = [];
    assert_eq!(gather(&m, &mrs, PD, data, 9, &mut none), Ok(()));
    let inline = SgData::Inline(b"inline");
    gather(&m, &mrs, PD, inline, 1, &mut out).unwrap();
    assert_eq!(&out, b"nline");
    let too_long = MemError::Range { addr: 2, len: 5 };
    assert_eq!(gather(&m, &mrs, PD, inline, 2, &mut out), Err(too_long));
}

#[test]
fn a_piece_may_be_all_of_the_memory() {
    let m = Memory::new(4096);
    let all = Mr {
        pd: PD,
        access: access::LOCAL_WRITE,
        target: Target::WholeMemory,
    };
    let mut mrs = MrTable::new(1);
    let key = mrs.insert(all).unwrap();
    let mr = mrs.check(key, PD, 100, 8, access::LOCAL_WRITE).unwrap();
    mr.write(&m, 100, b"anywhere").unwrap();
    assert_eq!(&m.bytes::<8>(100).unwrap(), b"anywhere");
    assert!(mr.write(&m, 4090, b"anywhere").is_err());
    assert!(mrs.check(key, PD, u64::MAX, 2, 0).is_err());
}

#[test]
fn entries_of_a_queue_stay_in_their_page() {
    let m = Memory::new(64 << 10);
    let q = QueueMem::new(pages(&m, 0, &[0x9000, 0x4000]));
    q.store_u32(&m, 0xffc, 7).unwrap();
    assert_eq!(m.load_u32(0x9ffc), Ok(7));
    q.publish(&m, 0x1000, &[5; 64]).unwrap();
    assert_eq!(m.bytes::<64>(0x4000).unwrap(), [5; 64]);
    assert!(q.publish(&m, 0xff8, &[5; 64]).is_err());
    assert!(q.load_u32(&m, 0x2000).is_err());
    // A slot may cross; it is read in two pieces.
    m.write(0x9ff0, &[1; 16]).unwrap();
    let mut slot = [0; 32];
    q.read(&m, 0xff0, &mut slot).unwrap();
    assert_eq!((slot[15], slot[16]), (1, 5));
    assert!(q.read(&m, 0x1ff0, &mut slot).is_err());
}

#[test]
fn lists_count_against_the_budget_while_they_live() {
    let m = Memory::new(4096);
    m.write(8, &0x5000u64.to_le_bytes()).unwrap();
    let desc = MemDesc {
        addr: 0,
        num_pages: 3,
        page_shift: 12,
        flags: MEM_INDIRECT,
        ..MemDesc::default()
    };
    let budget = PageBudget::new(7);
    let load = || PageList::load(&m, &desc, 0, &budget);
    let (first, second) = (load().unwrap(), load().unwrap());
    assert_eq!(budget.used(), 6);
    let error = load().unwrap_err();
    assert_eq!((error.status, error.field), (Status::NoResources, 8));
    drop(first);
    assert_eq!(budget.used(), 3);
    assert!(load().is_ok());
    drop(second);
    // What is one block needs no list.
    m.write(0, &[0; 24]).unwrap();
    for (i, page) in [0x1000u64, 0x2000, 0x3000].iter().enumerate() {
        m.write(i as u64 * 8, &page.to_le_bytes()).unwrap();
    }
    let block = load().unwrap();
    assert_eq!((budget.used(), block.len()), (0, 0x3000));
}
