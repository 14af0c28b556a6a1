//! Which replicas a partition's acknowledgements wait for.

use curtail_wire::metadata::MetadataTopic;

/// The in-sync replicas of a topic's partitions, in two arrays: 4 bytes per partition and 4 bytes per replica,
/// because there are hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InSync {
    /// For each partition, the index in `replicas` at which its replicas end.
    ends: Box<[u32]>,
    replicas: Box<[i32]>,
}

impl InSync {
    pub(super) fn of(answered: &MetadataTopic) -> Self {
        let count = answered.partitions.len();
        let mut by_index = vec![&[][..]; count];
        for partition in &answered.partitions {
            // Partition indexes are dense in Kafka; one beyond the count is garbage.
            let slot = usize::try_from(partition.index).ok().and_then(|i| by_index.get_mut(i));
            if let Some(slot) = slot {
                *slot = &partition.isr;
            }
        }
        let ends = by_index.iter().scan(0u32, |end, isr| {
            *end = end.saturating_add(u32::try_from(isr.len()).unwrap_or(u32::MAX));
            Some(*end)
        });
        let ends = ends.collect();
        Self { ends, replicas: by_index.concat().into() }
    }

    /// The in-sync replicas of a partition; none when unknown.
    pub fn of_partition(&self, index: usize) -> &[i32] {
        let begin = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let range = self.ends.get(index).map(|&end| begin.unwrap_or(0) as usize..end as usize);
        range.and_then(|range| self.replicas.get(range)).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use curtail_wire::metadata::MetadataPartition;

    use super::*;

    #[test]
    fn each_partition_has_its_own() {
        let partition = |index, isr: &[i32]| MetadataPartition {
            index,
            isr: isr.to_vec(),
            ..MetadataPartition::default()
        };
        let topic = MetadataTopic {
            partitions: vec![partition(2, &[3]), partition(0, &[1, 2]), partition(9, &[4])],
            ..MetadataTopic::default()
        };
        let in_sync = InSync::of(&topic);
        let all: Vec<_> = (0..4).map(|index| in_sync.of_partition(index)).collect();
        assert_eq!(all, [&[1, 2][..], &[], &[3], &[]]);
    }
}
