//! Choices drawn from a fuzz input.

/// Reads choices from the front of an input. An exhausted input returns zeros.
///
/// Choices take whole bytes, so that a mutation of one byte changes one choice.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether every byte has been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `bound`, which is at most 256; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()).checked_rem(bound).unwrap_or(0)
    }

    /// Whether the next byte is odd.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Picks an element of `choices`.
    ///
    /// # Panics
    /// If there are no choices.
    pub fn pick<'b, T>(&mut self, choices: &'b [T]) -> &'b T {
        &choices[self.below(choices.len())]
    }

    /// A big-endian number of two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A big-endian number of four bytes.
    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A big-endian number of eight bytes.
    pub fn i64(&mut self) -> i64 {
        let mut bytes = [0; 8];
        bytes.fill_with(|| self.byte());
        i64::from_be_bytes(bytes)
    }

    /// A number that is mostly small, and otherwise extreme or arbitrary.
    pub fn number(&mut self) -> i64 {
        match self.byte() {
            small @ 0..=199 => i64::from(small),
            200..=209 => -1,
            210..=219 => i64::from(i32::MAX),
            220..=229 => i64::MAX,
            230..=239 => i64::MIN,
            _ => self.i64(),
        }
    }

    /// As [`Self::number`], clamped to 32 bits.
    pub fn number_i32(&mut self) -> i32 {
        self.number().clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    }

    /// Up to `count` bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A section whose length is in the two bytes before it.
    pub fn section(&mut self) -> &'a [u8] {
        let length = usize::from(self.u16());
        self.take(length)
    }

    /// All bytes not read yet.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
