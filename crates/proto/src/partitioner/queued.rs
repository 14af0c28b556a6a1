//! Java's choice among partitions: the fewer batches are queued for one, the more often it is chosen (KIP-794).

/// Returns the index of the chosen partition, given the number of queued batches of each: a weight is the largest number
/// plus one, minus the partition's own, as in Java's `BuiltInPartitioner.updatePartitionLoadStats`. `draw` is any random
/// number. Returns `None` without partitions.
pub fn by_queued_batches(queued: &[u32], draw: u64) -> Option<usize> {
    let most = queued.iter().max()?;
    let weight = |queued: &u32| u64::from(most - queued) + 1;
    let total: u64 = queued.iter().map(weight).sum();
    let mut rest = draw % total;
    queued.iter().position(|queued| {
        let weight = weight(queued);
        let is_drawn = rest < weight;
        rest = rest.saturating_sub(weight);
        is_drawn
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(queued: &[u32], draws: u64) -> Vec<u64> {
        let mut counts = vec![0; queued.len()];
        for draw in 0..draws {
            counts[by_queued_batches(queued, draw).expect("a partition")] += 1;
        }
        counts
    }

    /// The example in Java's `BuiltInPartitioner`, and the sizes of its test (`BuiltInPartitionerTest`).
    #[test]
    fn weights_are_javas() {
        for (queued, expected) in [
            (&[0, 3, 1][..], &[4, 1, 3][..]),
            (&[5, 0, 3, 0, 1], &[1, 6, 3, 6, 5]),
            (&[2, 2, 2], &[1, 1, 1]),
            (&[7], &[1]),
        ] {
            assert_eq!(frequencies(queued, expected.iter().sum()), expected, "{queued:?}");
        }
    }

    #[test]
    fn the_longest_queues_do_not_overflow() {
        let queued = [u32::MAX, 0, u32::MAX];
        assert_eq!(
            by_queued_batches(&queued, u64::MAX),
            by_queued_batches(&queued, u64::MAX % (u64::from(u32::MAX) + 3))
        );
    }

    #[test]
    fn none_is_chosen_from_none() {
        assert_eq!(by_queued_batches(&[], 7), None);
    }
}
