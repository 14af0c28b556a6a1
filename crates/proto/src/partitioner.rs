//! The partition of a record that names none.
//!
//! Keyed records are hashed with murmur2 exactly as in the Java client, so that all clients of a topic agree. Keyless
//! records stick to one partition for about `batch.size` bytes ([`Sticky`]). Then they move on to a random partition
//! among those whose brokers respond about as fast as the fastest ([`choose`]; KIP-794).

mod choice;
mod queued;
mod sticky;
#[cfg(test)]
mod tests;
mod trials;

/// Synchronisation of [`sticky`]. Its loom test replaces it.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

pub use choice::{Candidate, Chosen, Rule, choose, is_late};
pub use queued::by_queued_batches;
pub use sticky::{Next, PROBE_EVERY, Sticky};
pub use trials::{LOOKS, Picked, Role, Standing, Tests, pick};

/// Java's `Utils.murmur2`.
pub fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;

    let mut h = SEED ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> R;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = words.remainder();
    for (shift, &byte) in tail.iter().enumerate().rev() {
        h ^= u32::from(byte) << (8 * shift);
    }
    if !tail.is_empty() {
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

/// The partition of a key among `partitions`, as Java's `BuiltInPartitioner.partitionForKey`.
pub fn partition_for_key(key: &[u8], partitions: u32) -> i32 {
    ((murmur2(key) & 0x7fff_ffff) % partitions.max(1)) as i32
}
