// SPDX-License-Identifier: GPL-2.0-or-later
//! Tables of objects, found by number in constant time.

use std::collections::VecDeque;

/// Free numbers that are kept back before one is used again, so that what still names a destroyed
/// object (a packet under way, a queued doorbell) does not meet its successor.
const QUARANTINE: usize = 256;

/// Objects by number, from `first` on.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Option<Box<T>>>,
    free: VecDeque<u32>,
    first: u32,
    max: u32,
    used: u32,
}

impl<T> Table<T> {
    /// An empty table for at most `max` objects, numbered from `first`.
    pub fn new(first: u32, max: u32) -> Self {
        Table {
            slots: Vec::new(),
            free: VecDeque::new(),
            first,
            max,
            used: 0,
        }
    }

    /// The number that the next [`Table::insert`] gives, or `None` where the table is full.
    pub fn next_number(&self) -> Option<u32> {
        let fresh = self.slots.len() as u32;
        if fresh < self.max && self.free.len() < QUARANTINE {
            Some(self.first + fresh)
        } else {
            self.free.front().copied().or({
                if fresh < self.max {
                    Some(self.first + fresh)
                } else {
                    None
                }
            })
        }
    }

    /// Adds an object and gives its number; gives it back where the table is full.
    pub fn insert(&mut self, value: T) -> Result<u32, T> {
        let Some(number) = self.next_number() else {
            return Err(value);
        };
        if self.free.front() == Some(&number) {
            self.free.pop_front();
        }
        let index = (number - self.first) as usize;
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(Box::new(value));
        self.used += 1;
        Ok(number)
    }

    fn index(&self, number: u32) -> Option<usize> {
        number.checked_sub(self.first).map(|i| i as usize)
    }

    /// The object with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(self.index(number)?)?.as_deref()
    }

    /// The object with this number, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number)?;
        self.slots.get_mut(index)?.as_deref_mut()
    }

    /// Takes an object out; its number is free again.
    pub fn remove(&mut self, number: u32) -> Option<Box<T>> {
        let index = self.index(number)?;
        let value = self.slots.get_mut(index)?.take()?;
        self.free.push_back(number);
        self.used -= 1;
        Some(value)
    }

    /// Objects in the table.
    pub fn len(&self) -> u32 {
        self.used
    }

    /// Whether the table holds nothing.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Most objects that the table takes.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// All objects with their numbers, in the order of the numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let first = self.first;
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(i, slot)| Some((first + i as u32, slot.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_late() {
        let mut t = Table::new(2, 1000);
        assert_eq!(t.insert('a'), Ok(2));
        assert_eq!(t.insert('b'), Ok(3));
        assert_eq!(t.remove(2).as_deref(), Some(&'a'));
        assert_eq!(t.get(2), None);
        assert_eq!(t.remove(2), None);
        assert_eq!(t.insert('c'), Ok(4));
        assert_eq!(t.len(), 2);
        for _ in 0..10_000 {
            let n = t.insert('d').unwrap();
            assert_eq!(t.remove(n).as_deref(), Some(&'d'));
        }
        assert!(t.slots.len() < 300);
    }

    #[test]
    fn full_is_full() {
        let mut t = Table::new(0, 2);
        assert_eq!(t.insert(1), Ok(0));
        assert_eq!(t.insert(2), Ok(1));
        assert_eq!(t.insert(3), Err(3));
        t.remove(0);
        assert_eq!(t.insert(4), Ok(0));
        assert_eq!(t.iter().collect::<Vec<_>>(), [(0, &4), (1, &2)]);
    }
}
