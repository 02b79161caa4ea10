// SPDX-License-Identifier: GPL-2.0-or-later
//! Arbitration between virtual lanes: the weights tables of high and low priority.

use ochre_wire::Vl;

/// Most entries of a table.
pub const MAX_ENTRIES: usize = 64;

/// An entry of a VLArbitrationTable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Data lane; VL15 or a lane that is not operational is skipped.
    pub vl: Vl,
    /// Units of 64 bytes that the lane may send in its turn, rounded up to whole packets; 0 skips
    /// the entry.
    pub weight: u8,
}

/// The entries of one priority and whose turn it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    entries: Vec<Entry>,
    at: usize,
    left: i32,
}

impl Table {
    fn set(&mut self, entries: &[Entry]) {
        self.entries = entries.iter().take(MAX_ENTRIES).copied().collect();
        self.at = 0;
        self.left = self.entries.first().map_or(0, |e| weight(*e));
    }

    /// Lanes with a chance in this table.
    fn lanes(&self) -> u16 {
        self.entries
            .iter()
            .filter(|e| e.weight != 0 && !e.vl.is_management())
            .fold(0, |m, e| m | 1 << e.vl.get())
    }

    /// The lane of `ready` whose turn it is; moves on to it.
    fn pick(&mut self, ready: u16) -> Option<Vl> {
        let n = self.entries.len();
        for i in 0..=n {
            let entry = *self.entries.get(self.at)?;
            if i > 0 {
                self.left = weight(entry);
            }
            let usable = !entry.vl.is_management() && ready & 1 << entry.vl.get() != 0;
            if usable && self.left > 0 {
                return Some(entry.vl);
            }
            self.at = (self.at + 1) % n;
        }
        None
    }
}

fn weight(e: Entry) -> i32 {
    i32::from(e.weight) * 64
}

/// VLArbitrationTable of a port with its VLHighLimit, and the state of the arbitration.
///
/// VL15 goes before all data lanes. The high priority table goes before the low one until it has sent
/// its limit; then a low priority packet gets its chance. Lanes in no table come last, lowest first,
/// so that a table that forgets a lane does not stop it for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlArbitration {
    high: Table,
    low: Table,
    high_limit: u8,
    high_left: i64,
    high_turn: bool,
}

impl Default for VlArbitration {
    /// All data lanes alike, in the low priority table.
    fn default() -> Self {
        let mut low = Table::default();
        let entries: Vec<Entry> = (0..15)
            .map(|v| Entry {
                vl: Vl::new(v),
                weight: 64,
            })
            .collect();
        low.set(&entries);
        VlArbitration {
            high: Table::default(),
            low,
            high_limit: 0,
            high_left: 1,
            high_turn: false,
        }
    }
}

impl VlArbitration {
    /// High priority table.
    pub fn high(&self) -> &[Entry] {
        &self.high.entries
    }

    /// Low priority table.
    pub fn low(&self) -> &[Entry] {
        &self.low.entries
    }

    /// Sets the high priority table; entries after the 64th are left out.
    pub fn set_high(&mut self, entries: &[Entry]) {
        self.high.set(entries);
    }

    /// Sets the low priority table; entries after the 64th are left out.
    pub fn set_low(&mut self, entries: &[Entry]) {
        self.low.set(entries);
    }

    /// VLHighLimit: units of 4096 bytes of high priority that may pass before a low priority packet
    /// gets its chance; 0 is one packet, 255 is no limit.
    pub fn high_limit(&self) -> u8 {
        self.high_limit
    }

    /// Sets VLHighLimit.
    pub fn set_high_limit(&mut self, limit: u8) {
        self.high_limit = limit;
        self.refill();
    }

    fn refill(&mut self) {
        self.high_left = (i64::from(self.high_limit) * 4096).max(1);
    }

    /// The lane of `ready` (bit n: lane n has a packet and credits) whose turn it is.
    pub fn pick(&mut self, ready: u16) -> Option<Vl> {
        if ready & 1 << 15 != 0 {
            return Some(Vl::VL15);
        }
        // The table of one lane, which most ports have, needs no turn.
        if ready.is_power_of_two() && self.high.entries.is_empty() {
            return Some(Vl::new(ready.trailing_zeros() as u8));
        }
        let low_waits = ready & self.low.lanes() != 0;
        if !low_waits {
            self.refill();
        }
        if self.high_limit == 255 || self.high_left > 0 || !low_waits {
            if let Some(vl) = self.high.pick(ready) {
                self.high_turn = true;
                return Some(vl);
            }
        }
        self.high_turn = false;
        self.low
            .pick(ready)
            .or_else(|| (ready != 0).then(|| Vl::new(ready.trailing_zeros() as u8)))
    }

    /// Charges a packet of `bytes` bytes on `vl`, which is the lane that was picked last, to its turn.
    pub fn charge(&mut self, vl: Vl, bytes: usize) {
        if vl.is_management() {
            return;
        }
        let table = if self.high_turn {
            self.high_left = self.high_left.saturating_sub(bytes as i64);
            &mut self.high
        } else {
            &mut self.low
        };
        if table.entries.get(table.at).is_some_and(|e| e.vl == vl) {
            // An owner that does not ask whose turn it is charges on and on.
            table.left = table.left.saturating_sub(bytes as i32);
        }
        if !self.high_turn {
            self.refill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(vl: u8, weight: u8) -> Entry {
        Entry {
            vl: Vl::new(vl),
            weight,
        }
    }

    /// Bytes of each lane after `n` packets of `bytes` bytes, all lanes of `ready` always ready.
    fn run(a: &mut VlArbitration, ready: u16, bytes: usize, n: usize) -> [usize; 16] {
        let mut sum = [0; 16];
        for _ in 0..n {
            let vl = a.pick(ready).unwrap();
            a.charge(vl, bytes);
            sum[vl.index()] += bytes;
        }
        sum
    }

    #[test]
    fn management_first() {
        let mut a = VlArbitration::default();
        assert_eq!(a.pick(0x8001), Some(Vl::VL15));
        assert_eq!(a.pick(0), None);
        assert_eq!(a.pick(1), Some(Vl::VL0));
    }

    #[test]
    fn low_table_shares_by_weight() {
        let mut a = VlArbitration::default();
        a.set_low(&[entry(0, 32), entry(1, 64), entry(2, 0), entry(0, 32)]);
        let s = run(&mut a, 0b111, 256, 4000);
        assert_eq!(s[2], 0);
        assert_eq!(s[0], s[1]);
    }

    #[test]
    fn high_goes_first_within_its_limit() {
        let mut a = VlArbitration::default();
        a.set_high(&[entry(1, 255)]);
        a.set_low(&[entry(0, 255)]);
        a.set_high_limit(3);
        let s = run(&mut a, 0b11, 4096, 4000);
        assert_eq!(s[1], 3 * s[0]);

        a.set_high_limit(0);
        let s = run(&mut a, 0b11, 4096, 4000);
        assert_eq!(s[1], s[0]);

        a.set_high_limit(255);
        let s = run(&mut a, 0b11, 4096, 1000);
        assert_eq!(s[0], 0);
    }

    #[test]
    fn an_idle_high_lane_does_not_hold_low_back() {
        let mut a = VlArbitration::default();
        a.set_high(&[entry(1, 1)]);
        a.set_low(&[entry(0, 1)]);
        let s = run(&mut a, 0b01, 512, 100);
        assert_eq!(s[0], 51200);
        let s = run(&mut a, 0b10, 512, 100);
        assert_eq!(s[1], 51200);
    }

    #[test]
    fn a_lane_in_no_table_still_moves() {
        let mut a = VlArbitration::default();
        a.set_low(&[entry(0, 1)]);
        assert_eq!(a.pick(0b100), Some(Vl::new(2)));
        a.set_low(&[]);
        a.set_high(&[]);
        assert_eq!(a.pick(0b110), Some(Vl::new(1)));
        a.set_low(&[entry(0, 0), entry(15, 9)]);
        assert_eq!(a.pick(0b1), Some(Vl::VL0));
    }

    #[test]
    fn tables_are_cut_at_64() {
        let mut a = VlArbitration::default();
        a.set_high(&[entry(0, 1); 100]);
        assert_eq!(a.high().len(), 64);
    }
}
