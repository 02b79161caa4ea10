// SPDX-License-Identifier: GPL-2.0-or-later
//! Credits of one data lane, in blocks of 64 bytes, as flow control packets carry them.
//!
//! The sender counts all blocks it sent (FCTBS, 12 bits). The receiver keeps the same count (ABR): it
//! adds what arrives, and takes over FCTBS of each flow control packet, which repairs the count after
//! a loss. It tells how far the sender may go (FCCL): ABR plus the free buffer, at most 2048 blocks.
//! A packet of n blocks may go if `(FCCL - (FCTBS + n)) mod 4096 <= 2048`.
//!
//! When flow control packets are sent: on a real link for each lane within 65536 symbol times,
//! whether something changed or not, because a link may lose them. A cable between processes loses
//! nothing, and every packet may wake somebody; so here they are sent
//!
//! - when the link comes up and when the port state changes;
//! - when a quarter of the lane's buffer can be given back;
//! - at once, in answer to a flow control packet of a sender that has run out;
//! - by a sender without credits, after 1 ms and then at doubling distances up to 64 ms;
//! - on an idle link every `fc_refresh` (1 s) instead of every 65536 symbol times.
//!
//! The last but one makes good any loss.

/// Bytes of a block.
pub const BLOCK: usize = ochre_wire::FlowControl::BLOCK;
/// Most blocks a receiver may offer.
pub const MAX_BLOCKS: u16 = 2048;

const MASK: u16 = 0xfff;

/// Blocks of a packet of `bytes` bytes, LRH to VCRC.
#[inline]
pub const fn blocks(bytes: usize) -> u16 {
    bytes.div_ceil(BLOCK) as u16
}

/// What a sender knows of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCredits {
    fctbs: u16,
    limit: Option<u16>,
}

impl TxCredits {
    /// Blocks sent since the link came up, modulo 4096.
    #[inline]
    pub fn fctbs(&self) -> u16 {
        self.fctbs
    }

    /// Blocks that may be sent now, 0 to 2048.
    #[inline]
    pub fn available(&self) -> u16 {
        match self.limit {
            Some(limit) => {
                let n = limit.wrapping_sub(self.fctbs) & MASK;
                if n <= MAX_BLOCKS {
                    n
                } else {
                    0
                }
            }
            None => 0,
        }
    }

    /// Whether a packet of `n` blocks may be sent.
    #[inline]
    pub fn allows(&self, n: u16) -> bool {
        n <= self.available()
    }

    /// Counts a packet of `n` blocks sent.
    #[inline]
    pub fn sent(&mut self, n: u16) {
        self.fctbs = self.fctbs.wrapping_add(n) & MASK;
    }

    /// Takes the limit of a flow control packet over.
    #[inline]
    pub fn update(&mut self, fccl: u16) {
        self.limit = Some(fccl & MASK);
    }
}

/// No buffer for a packet: the sender went beyond its credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

/// What a receiver knows of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxCredits {
    abr: u16,
    capacity: u16,
    used: u16,
    told: u16,
}

impl RxCredits {
    /// A lane with a buffer of `bytes` bytes, of which at most 2048 blocks count.
    pub fn new(bytes: usize) -> Self {
        RxCredits {
            abr: 0,
            capacity: (bytes / BLOCK).min(MAX_BLOCKS as usize) as u16,
            used: 0,
            told: 0,
        }
    }

    /// Blocks in the buffer.
    #[inline]
    pub fn used(&self) -> u16 {
        self.used
    }

    /// Counts a packet of `n` blocks that arrived. On an overrun the count of arrivals still
    /// advances, and the packet is not in the buffer.
    #[inline]
    pub fn received(&mut self, n: u16) -> Result<(), Overrun> {
        self.abr = self.abr.wrapping_add(n) & MASK;
        if self.used + n > self.capacity {
            return Err(Overrun);
        }
        self.used += n;
        Ok(())
    }

    /// A packet of `n` blocks will arrive that the sender has not counted.
    #[inline]
    pub fn unsent(&mut self, n: u16) {
        self.abr = self.abr.wrapping_sub(n) & MASK;
    }

    /// Counts a packet of `n` blocks taken out of the buffer.
    #[inline]
    pub fn released(&mut self, n: u16) {
        self.used = self.used.saturating_sub(n);
    }

    /// Takes the count of a flow control packet over. Returns whether the sender cannot send a packet
    /// of `most` blocks with what it was told so far.
    #[inline]
    pub fn update(&mut self, fctbs: u16, most: u16) -> bool {
        self.abr = fctbs & MASK;
        let left = self.told.wrapping_sub(self.abr) & MASK;
        left < most || left > MAX_BLOCKS
    }

    /// The limit to tell the sender now.
    #[inline]
    pub fn fccl(&self) -> u16 {
        (self.abr + (self.capacity - self.used)) & MASK
    }

    /// Whether the limit has moved on so far that the sender should hear of it.
    #[inline]
    pub fn due(&self) -> bool {
        let gain = self.fccl().wrapping_sub(self.told) & MASK;
        gain >= (self.capacity / 4).max(1) && gain <= MAX_BLOCKS
    }

    /// The limit told last.
    #[inline]
    pub fn told(&self) -> u16 {
        self.told
    }

    /// Notes that the limit was sent, and returns it.
    #[inline]
    pub fn tell(&mut self) -> u16 {
        self.told = self.fccl();
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_round_up() {
        assert_eq!(blocks(1), 1);
        assert_eq!(blocks(64), 1);
        assert_eq!(blocks(65), 2);
        assert_eq!(blocks(4096 + 26), 65);
    }

    #[test]
    fn nothing_without_a_limit() {
        let tx = TxCredits::default();
        assert_eq!(tx.available(), 0);
        assert!(!tx.allows(1));
    }

    #[test]
    fn the_rule_of_the_specification_at_the_wrap() {
        let mut tx = TxCredits::default();
        for start in 0..4096u16 {
            tx.fctbs = start;
            tx.update((start + 2048) & MASK);
            assert_eq!(tx.available(), 2048);
            tx.update(start);
            assert_eq!(tx.available(), 0);
            // A limit behind the count, as after a shrunken buffer, allows nothing.
            tx.update(start.wrapping_sub(1) & MASK);
            assert_eq!(tx.available(), 0);
            for n in [1, 65, 2048] {
                tx.update((start + n) & MASK);
                let cr = |m: u16| (start + m) & MASK;
                let rule = |m: u16| ((start + n) & MASK).wrapping_sub(cr(m)) & MASK <= MAX_BLOCKS;
                for m in [1, n - 1, n, n + 1] {
                    if m > 0 && m <= MAX_BLOCKS {
                        assert_eq!(tx.allows(m), rule(m), "start {start} limit +{n} packet {m}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_full_buffer_gives_nothing_and_overruns() {
        let mut rx = RxCredits::new(8 << 10);
        assert_eq!(rx.tell(), 128);
        rx.received(100).unwrap();
        assert_eq!(rx.received(29), Err(Overrun));
        assert_eq!(rx.used(), 100);
        rx.received(28).unwrap();
        assert_eq!(rx.fccl(), (rx.abr) & MASK);
        rx.released(128);
        assert!(rx.due());
    }

    #[test]
    fn the_largest_buffer_is_2048_blocks() {
        let mut rx = RxCredits::new(1 << 20);
        assert_eq!(rx.tell(), 2048);
        rx.received(2048).unwrap();
        assert_eq!(rx.received(1), Err(Overrun));
    }

    #[test]
    fn a_starved_sender_is_seen() {
        let mut rx = RxCredits::new(8 << 10);
        rx.tell();
        assert!(!rx.update(0, 66));
        assert!(!rx.update(62, 66));
        assert!(rx.update(63, 66));
        assert!(rx.update(128, 66));
    }

    proptest! {
        /// Sender and receiver agree for any traffic over many wraps; a lost packet costs credits
        /// only until the next flow control packet.
        #[test]
        fn agree(steps in proptest::collection::vec((1u16..70, any::<bool>(), 0u8..16), 1..2000),
                 buffer in 8usize..160) {
            let mut tx = TxCredits::default();
            let mut rx = RxCredits::new(buffer << 10);
            let mut held = std::collections::VecDeque::new();
            tx.update(rx.tell());
            for (n, release, loss) in steps {
                if tx.allows(n) {
                    tx.sent(n);
                    if loss != 0 {
                        prop_assert_eq!(rx.received(n), Ok(()));
                        held.push_back(n);
                    }
                }
                if release {
                    if let Some(n) = held.pop_front() {
                        rx.released(n);
                    }
                }
                if rx.due() {
                    tx.update(rx.tell());
                }
                if loss == 0 {
                    rx.update(tx.fctbs(), 66);
                    tx.update(rx.tell());
                }
                let in_buffer: u16 = held.iter().sum();
                prop_assert_eq!(in_buffer, rx.used());
                prop_assert!(tx.available() <= rx.capacity - rx.used);
            }
            for n in held {
                rx.released(n);
            }
            tx.update(rx.tell());
            prop_assert_eq!(tx.available(), rx.capacity);
        }
    }
}
