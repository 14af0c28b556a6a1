//! Deterministic mutations for the short run.

use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom as _};

/// Longest input that mutations produce.
const LONGEST: usize = 16 * 1024;

/// Lengths and counts that decoders have to refuse or survive.
const EXTREMES: [&[u8]; 9] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x80, 0, 0, 0],
    &[0, 0x10, 0, 0],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0x80, 0x80, 0x40],
    &[0x7f, 0xff],
    &[0xff],
    &[0],
];

/// A source of inputs: the same seed gives the same inputs.
#[derive(Debug)]
pub struct Mutator {
    random: SmallRng,
    seeds: Vec<Vec<u8>>,
}

impl Mutator {
    /// Mutates these seeds, and makes arbitrary inputs.
    #[must_use]
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), seeds }
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        if self.seeds.is_empty() || self.random.random_ratio(1, 4) {
            return self.arbitrary();
        }
        let mut input = self.seeds.choose(&mut self.random).cloned().unwrap_or_default();
        for _ in 0..self.random.random_range(1..=4) {
            self.mutate(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    /// Arbitrary bytes, mostly small, as lengths and choices are.
    fn arbitrary(&mut self) -> Vec<u8> {
        let length = self.random.random_range(0..600);
        let small = self.random.random_range(1..=255u8);
        (0..length).map(|_| self.random.random_range(0..=small)).collect()
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.random.random_range(0..=input.len());
        match self.random.random_range(0..7) {
            0 if at < input.len() => input[at] ^= 1 << self.random.random_range(0..8),
            1 if at < input.len() => input[at] = self.random.random(),
            2 => input.insert(at, self.random.random()),
            3 => {
                let end = input.len().min(at + self.random.random_range(1..8));
                input.drain(at..end);
            }
            4 => {
                let extreme = EXTREMES.choose(&mut self.random).copied().unwrap_or_default();
                let end = input.len().min(at + extreme.len());
                input.splice(at..end, extreme.iter().copied());
            }
            5 => {
                // Repeats a part: a second element, topic or batch.
                let end = input.len().min(at + self.random.random_range(1..64));
                let part = input[at..end].to_vec();
                input.splice(end..end, part);
            }
            _ => {
                let other = self.seeds.choose(&mut self.random).cloned().unwrap_or_default();
                let from = self.random.random_range(0..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}
