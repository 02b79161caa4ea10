// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::cable::MAX_FRAME;
use crate::shm::socket::new_memory;
use proptest::prelude::*;
use std::os::unix::fs::FileExt;

const SIZE: usize = 64 << 10;

/// Two ends of the same memory, and the memory as a file to spoil.
fn pair() -> (Rings, Rings, File) {
    let fd = new_memory(memory_bytes(SIZE)).unwrap();
    let other = fd.try_clone().unwrap();
    let file = File::from(fd.try_clone().unwrap());
    (
        Rings::map(fd, SIZE, true).unwrap(),
        Rings::map(other, SIZE, false).unwrap(),
        file,
    )
}

fn put(r: &mut Rings, frame: Frame, bytes: &[u8]) -> bool {
    let Some(slot) = r.reserve(frame, bytes.len()) else {
        return false;
    };
    slot.copy_from_slice(bytes);
    r.commit();
    true
}

fn take(r: &mut Rings) -> Option<(Frame, Vec<u8>)> {
    let (kind, len) = r.next()?;
    let b = r.current().to_vec();
    assert_eq!(b.len(), len);
    r.release();
    Some((kind, b))
}

#[test]
fn frames_pass_both_ways_after_a_flush() {
    let (mut a, mut b, _) = pair();
    assert!(put(&mut a, Frame::Data, b"there"));
    assert!(put(&mut b, Frame::Link, b"back"));
    assert_eq!(take(&mut b), None);
    a.flush();
    b.flush();
    assert_eq!(take(&mut b), Some((Frame::Data, b"there".to_vec())));
    assert_eq!(take(&mut a), Some((Frame::Link, b"back".to_vec())));
    assert_eq!(take(&mut a), None);
    a.reserve(Frame::Data, 4).unwrap().fill(1);
    a.mark_bad();
    a.commit();
    a.commit();
    a.flush();
    assert_eq!(take(&mut b), Some((Frame::BadData, vec![1; 4])));
    assert_eq!(take(&mut b), None);
}

#[test]
fn wakes_only_who_sleeps_and_wants_it() {
    let (mut a, mut b, _) = pair();
    put(&mut a, Frame::Data, b"x");
    assert!(!a.flush(), "nobody sleeps");
    assert!(!b.arm(Wake::Packets), "a frame is there");
    take(&mut b);
    assert!(b.arm(Wake::Packets));
    put(&mut a, Frame::Link, b"credit");
    assert!(!a.flush(), "link packets do not wake");
    put(&mut a, Frame::Training, b"ts");
    assert!(a.flush());
    put(&mut a, Frame::Data, b"y");
    assert!(!a.flush(), "woken already");
    while take(&mut b).is_some() {}
    assert!(b.arm(Wake::All));
    put(&mut a, Frame::Link, b"credit");
    assert!(a.flush());
    assert!(!a.flush(), "nothing new");
    while take(&mut b).is_some() {}
    assert!(b.arm(Wake::All));
    b.disarm();
    put(&mut a, Frame::Data, b"z");
    assert!(!a.flush(), "it looks by itself");
    assert!(!b.arm(Wake::All), "and has a frame");
}

#[test]
fn a_sender_without_space_sleeps_until_there_is_some() {
    let (mut a, mut b, _) = pair();
    let frame = [7; 4000];
    while put(&mut a, Frame::Data, &frame) {}
    a.flush();
    assert!(a.arm(Wake::Packets));
    let mut told = 0;
    for _ in 0..4 {
        b.next().unwrap();
        told += usize::from(b.release());
    }
    assert_eq!(told, 0);
    assert!(b.flush(), "the sender sleeps");
    assert!(put(&mut a, Frame::Data, &frame));
    a.flush();
    // Space that comes between the failure and going to sleep is not missed.
    while put(&mut a, Frame::Data, &frame) {}
    a.flush();
    while take(&mut b).is_some() {}
    b.flush();
    assert!(!a.arm(Wake::Packets));
}

#[test]
fn much_freed_space_asks_for_a_flush() {
    let (mut a, mut b, _) = pair();
    for _ in 0..5 {
        put(&mut a, Frame::Data, &[0; 4000]);
    }
    a.flush();
    let mut asked = Vec::new();
    for _ in 0..5 {
        b.next().unwrap();
        asked.push(b.release());
    }
    assert_eq!(asked, [false, false, false, false, true]);
}

/// Spoils the memory at `at` of the first direction and says what the second end makes of it.
fn spoil(at: usize, value: u64) -> Option<Broken> {
    let (mut a, mut b, file) = pair();
    for _ in 0..3 {
        put(&mut a, Frame::Data, &[1; 100]);
    }
    a.flush();
    file.write_all_at(&value.to_le_bytes(), at as u64).unwrap();
    while take(&mut b).is_some() {}
    b.arm(Wake::All);
    b.broken()
}

#[test]
fn impossible_indices_and_headers_break_the_ring() {
    assert_eq!(spoil(WAKE, u64::MAX), None);
    assert!(spoil(TAIL, 63).is_some());
    assert!(spoil(TAIL, SIZE as u64 + 64).is_some());
    assert!(spoil(TAIL, u64::MAX).is_some());
    // Nothing published is nothing to read.
    assert_eq!(spoil(TAIL, 0), None);
    for header in [0, 1 << 32, 5 << 32 | 1, 200 | 1 << 32, u64::MAX, 0xff << 32] {
        assert!(spoil(CONTROL + 256, header).is_some(), "{header:#x}");
    }
}

#[test]
fn impossible_space_breaks_the_ring() {
    for head in [64u64, 63, u64::MAX] {
        let (mut a, _b, file) = pair();
        // Not a byte was published.
        while put(&mut a, Frame::Data, &[0; MAX_FRAME]) {}
        file.write_all_at(&head.to_le_bytes(), HEAD as u64).unwrap();
        assert!(!put(&mut a, Frame::Data, &[0; MAX_FRAME]));
        assert!(a.broken().is_some());
        assert!(a.slot().is_empty());
        assert!(!a.flush());
        assert!(!a.arm(Wake::All));
    }
}

#[test]
fn a_header_that_changes_later_is_not_read_again() {
    let (mut a, mut b, file) = pair();
    put(&mut a, Frame::Data, &[1; 100]);
    a.flush();
    assert_eq!(b.next(), Some((Frame::Data, 100)));
    file.write_all_at(&u64::MAX.to_le_bytes(), CONTROL as u64)
        .unwrap();
    assert_eq!(b.next(), Some((Frame::Data, 100)));
    assert_eq!(b.current().len(), 100);
    b.release();
    assert_eq!(b.next(), None);
    assert_eq!(b.broken(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// Frames of all lengths come out as they went in, over many turns of the ring.
    #[test]
    fn any_traffic(lens in proptest::collection::vec((1usize..=MAX_FRAME, 0u8..4), 1..400)) {
        let (mut a, mut b, _) = pair();
        let mut sent = std::collections::VecDeque::new();
        for (n, (len, what)) in lens.into_iter().enumerate() {
            let frame = vec![n as u8; len];
            if put(&mut a, Frame::Data, &frame) {
                sent.push_back(frame);
            }
            if what & 1 != 0 {
                a.flush();
            }
            if what & 2 != 0 {
                for _ in 0..3 {
                    if let Some((_, got)) = take(&mut b) {
                        prop_assert_eq!(Some(got), sent.pop_front());
                    }
                }
                b.flush();
            }
        }
        a.flush();
        while let Some((_, got)) = take(&mut b) {
            prop_assert_eq!(Some(got), sent.pop_front());
        }
        prop_assert!(sent.is_empty());
        prop_assert_eq!(a.broken(), None);
        prop_assert_eq!(b.broken(), None);
    }

    /// No bytes in the memory make an end panic, hang or leave the mapping.
    #[test]
    fn any_memory(spoils in proptest::collection::vec((0usize..8, any::<u64>(), any::<bool>()), 1..100)) {
        let (mut a, mut b, file) = pair();
        for (what, value, small) in spoils {
            put(&mut a, Frame::Data, &[3; 1000]);
            a.flush();
            let at = match what {
                0 => TAIL,
                1 => HEAD,
                2 => WAKE,
                3 => SPACE,
                n => CONTROL + (n - 4) * 1024,
            };
            let value = if small { value & 0x1_ffff_ffc0 } else { value };
            for dir in [0, CONTROL + SIZE] {
                file.write_all_at(&value.to_le_bytes(), (dir + at) as u64).unwrap();
            }
            for _ in 0..2000 {
                if take(&mut b).is_none() {
                    break;
                }
            }
            b.flush();
            b.arm(Wake::All);
            a.next();
            a.release();
            a.arm(Wake::Packets);
        }
    }
}
