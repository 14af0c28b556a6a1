//! Contents of records: random upper-case letters, as those of Kafka's performance tools.

#[cfg(test)]
mod tests;

use rand::{RngCore, SeedableRng, rngs::SmallRng};

/// Letters from which values are cut, beyond the length of one value. The drivers under `peers/` use the same number and step.
///
/// With fewer, the values of one batch repeat, and a codec finds the repetitions: cut from 64 KiB, lz4 and snappy halved the
/// bytes of clients that compress.
const POOL: usize = 1 << 22;
/// Distance of two consecutive values. An odd step visits each position of the pool before it repeats one.
const STEP: u64 = 40_503;

/// Values of one size.
#[derive(Debug)]
pub(crate) struct Letters {
    pool: Vec<u8>,
    size: usize,
}

impl Letters {
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        let mut pool = vec![0; POOL + size];
        SmallRng::seed_from_u64(seed).fill_bytes(&mut pool);
        for letter in &mut pool {
            *letter = b'A' + *letter % 26;
        }
        Self { pool, size }
    }

    /// The value of record `index`.
    pub(crate) fn get(&self, index: u64) -> &[u8] {
        let at = position(index);
        &self.pool[at..at + self.size]
    }
}

fn position(index: u64) -> usize {
    (index.wrapping_mul(STEP) as usize) % POOL
}
