// SPDX-License-Identifier: GPL-2.0-or-later
//! Splits an input into numbers and pieces, and puts one together.

/// An input that is read from its start; behind its end there are zeros.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// All of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Bytes(input)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `len` bytes, or what is left.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (piece, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        piece
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let piece = self.take(N);
        array[..piece.len()].copy_from_slice(piece);
        array
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes, little-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes, little-endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes, little-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A piece that has its length, two bytes, in front.
    pub fn piece(&mut self) -> &'a [u8] {
        let len = self.u16();
        self.take(len.into())
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Appends a piece with its length in front, as [`Bytes::piece`] reads it.
pub fn put_piece(out: &mut Vec<u8>, piece: &[u8]) {
    let len = piece.len().min(usize::from(u16::MAX));
    out.extend((len as u16).to_le_bytes());
    out.extend(&piece[..len]);
}
