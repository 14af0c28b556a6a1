//! The numbers of `java.util.Random`: a 48-bit linear congruential generator, as specified in its
//! documentation.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: i64) -> Self {
        Self((seed as u64 ^ MULTIPLIER) & MASK)
    }

    fn next(&mut self, bits: u32) -> i32 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        // The cast keeps the low 32 bits, as Java's does.
        (self.0 >> (48 - bits)) as i32
    }

    /// `nextBytes`.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(4) {
            let number = self.next(32).to_le_bytes();
            piece.copy_from_slice(&number[..piece.len()]);
        }
    }

    /// `nextInt(100)`: redraws in the incomplete last hundred below 2^31.
    pub(super) fn below_hundred(&mut self) -> u32 {
        loop {
            let bits = self.next(31);
            let value = bits % 100;
            if bits.checked_sub(value).and_then(|base| base.checked_add(99)).is_some() {
                return value.unsigned_abs();
            }
        }
    }

    fn double(&mut self) -> f64 {
        let high = i64::from(self.next(26)) << 27;
        (high + i64::from(self.next(27))) as f64 / (1_u64 << 53) as f64
    }

    /// The first number of `nextGaussian`: the polar method of Box, Muller and Marsaglia.
    pub(super) fn gaussian(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.double() - 1.0, 2.0 * self.double() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }
}
