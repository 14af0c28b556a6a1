//! Replicas of a topic's partitions.

use curtail_wire::metadata::{MetadataPartition, MetadataTopic};

/// Broker ids for each partition of a topic, in two arrays: 4 bytes per partition and 4 bytes per replica, because
/// there are hundreds of thousands. Empty if no partition has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    /// For each partition, the index in `ids` at which its replicas end.
    ends: Box<[u32]>,
    ids: Box<[i32]>,
}

impl Replicas {
    /// The replicas that acknowledgements wait for.
    pub(super) fn in_sync(answered: &MetadataTopic) -> Self {
        Self::of(answered, |partition| partition.isr.iter().copied())
    }

    /// The replicas that are not in sync. Usually there are none, so that they cost no memory.
    pub(super) fn lagging(answered: &MetadataTopic) -> Self {
        Self::of(answered, |partition| {
            let lags = |id: &&i32| !partition.isr.contains(id);
            partition.replicas.iter().filter(lags).copied()
        })
    }

    /// Copies replicas from the response straight into the two arrays: every client does this for every response.
    fn of<'a, R>(answered: &'a MetadataTopic, replicas: impl Fn(&'a MetadataPartition) -> R) -> Self
    where
        R: Iterator<Item = i32>,
    {
        let mut by_index = vec![None; answered.partitions.len()];
        for partition in &answered.partitions {
            // Partition indexes are dense in Kafka; one beyond the count is garbage.
            let slot = usize::try_from(partition.index).ok().and_then(|i| by_index.get_mut(i));
            if let Some(slot) = slot {
                *slot = Some(partition);
            }
        }
        let of_index =
            || by_index.iter().map(|partition| partition.iter().copied().flat_map(&replicas));
        let count = of_index().map(Iterator::count).sum();
        if count == 0 {
            return Self::default();
        }
        let mut ids = Vec::with_capacity(count);
        let ends = of_index().map(|replicas| {
            ids.extend(replicas);
            u32::try_from(ids.len()).unwrap_or(u32::MAX)
        });
        Self { ends: ends.collect(), ids: ids.into() }
    }

    /// The replicas of a partition; none when unknown.
    pub fn of_partition(&self, index: usize) -> &[i32] {
        let begin = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let range = self.ends.get(index).map(|&end| begin.unwrap_or(0) as usize..end as usize);
        range.and_then(|range| self.ids.get(range)).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_its_own() {
        let partition = |index, isr: &[i32], replicas: &[i32]| MetadataPartition {
            index,
            isr: isr.to_vec(),
            replicas: replicas.to_vec(),
            ..MetadataPartition::default()
        };
        let partitions = vec![
            partition(2, &[3], &[3, 5, 6]),
            partition(0, &[1, 2], &[2, 1]),
            partition(9, &[4], &[4, 5]),
        ];
        let topic = MetadataTopic { partitions, ..MetadataTopic::default() };
        let all = |replicas: &Replicas| -> Vec<Vec<i32>> {
            (0..4).map(|index| replicas.of_partition(index).to_vec()).collect()
        };
        assert_eq!(all(&Replicas::in_sync(&topic)), [&[1, 2][..], &[], &[3], &[]]);
        assert_eq!(all(&Replicas::lagging(&topic)), [&[][..], &[], &[5, 6], &[]]);
    }

    #[test]
    fn partitions_whose_replicas_are_in_sync_have_no_lagging_ones() {
        let partition =
            MetadataPartition { isr: vec![1, 2], replicas: vec![1, 2], ..Default::default() };
        let topic = MetadataTopic { partitions: vec![partition; 3], ..MetadataTopic::default() };
        assert_eq!(Replicas::lagging(&topic), Replicas::default());
    }
}
