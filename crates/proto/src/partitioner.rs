//! Where a record without a partition goes.
//!
//! Keyed records hash with murmur2 exactly as Java's, so that every client of a topic agrees. Keyless records stick
//! to one partition until about `batch.size` bytes went there and then move on to a random one: strictly uniform
//! by bytes, whatever the speed of the brokers (KIP-794).

use std::sync::atomic::{AtomicU64, Ordering};

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

/// The sticky choice of one topic, shared by every sender without a lock.
///
/// The partition and the bytes it has received since it was chosen live in one word, so that senders see both
/// change together.
#[derive(Debug)]
pub struct Sticky {
    /// Partition in the high half, bytes in the low half.
    state: AtomicU64,
    stickiness: u32,
}

impl Sticky {
    /// Starts at a random partition; `draw` is any random number. `stickiness` is `batch.size` in bytes.
    pub fn new(partitions: u32, stickiness: u32, draw: u64) -> Self {
        let first = draw % u64::from(partitions.max(1));
        Self { state: AtomicU64::new(first << 32), stickiness: stickiness.max(1) }
    }

    /// The partition for the next keyless record.
    pub fn current(&self) -> i32 {
        (self.state.load(Ordering::Relaxed) >> 32) as i32
    }

    /// Takes note of `bytes` sent to `partition`. `batch_complete` says whether the record filled a batch: the
    /// choice moves on at a batch's end, so that a switch does not cut batches short, and at the latest after
    /// twice the stickiness.
    ///
    /// `draw` is asked for a random number only when the choice moves on.
    pub fn sent(
        &self,
        partition: i32,
        bytes: u32,
        batch_complete: bool,
        partitions: u32,
        draw: impl FnOnce() -> u64,
    ) {
        let before = self.state.load(Ordering::Relaxed);
        if (before >> 32) as i32 != partition {
            return;
        }
        let produced = (before as u32).saturating_add(bytes);
        let due = produced >= self.stickiness && batch_complete
            || produced >= self.stickiness.saturating_mul(2);
        let after = if due {
            (draw() % u64::from(partitions.max(1))) << 32
        } else {
            before & !u64::from(u32::MAX) | u64::from(produced)
        };
        // A sender that loses the race has its bytes uncounted: at most one record's, and only under contention.
        let _ = self.state.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with `org.apache.kafka.common.utils.Utils.murmur2` of kafka-clients 4.3.0.
    #[test]
    fn murmur2_is_javas() {
        for (key, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, expected, "{key}");
        }
    }

    #[test]
    fn a_key_always_lands_in_range() {
        for n in 0..200u32 {
            assert!((0..7).contains(&partition_for_key(&n.to_be_bytes(), 7)));
        }
    }

    #[test]
    fn bytes_are_uniform_whatever_the_record_sizes() {
        let mut draws = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = || {
            draws ^= draws << 13;
            draws ^= draws >> 7;
            draws ^= draws << 17;
            draws
        };
        let sticky = Sticky::new(3, 1000, draw());
        let mut bytes = [0u64; 3];
        for n in 0..300_000u32 {
            let (partition, size) = (sticky.current(), 10 + n % 400);
            bytes[partition as usize] += u64::from(size);
            sticky.sent(partition, size, true, 3, &mut draw);
        }
        let mean = bytes.iter().sum::<u64>() as f64 / 3.0;
        for share in bytes {
            assert!((share as f64 / mean - 1.0).abs() < 0.03, "{bytes:?}");
        }
    }

    #[test]
    fn the_choice_moves_on_at_the_end_of_a_batch_or_after_twice_the_stickiness() {
        let sticky = Sticky::new(2, 100, 0);
        sticky.sent(0, 150, false, 2, || 1);
        assert_eq!(sticky.current(), 0);
        sticky.sent(0, 1, true, 2, || 1);
        assert_eq!(sticky.current(), 1);
        sticky.sent(1, 200, false, 2, || 0);
        assert_eq!(sticky.current(), 0);
    }
}
