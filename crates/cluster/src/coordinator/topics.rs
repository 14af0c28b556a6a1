//! A group's view of the cluster's topics.

#[cfg(test)]
pub(crate) mod bench;

use std::collections::BTreeSet;

use curtail_wire::Uuid;
use twox_hash::XxHash3_64;

use crate::{
    config::ClusterConfig,
    image::{Image, TopicImage},
};

/// A version of the metadata.
#[derive(Clone, Copy)]
pub(crate) struct Topics<'a> {
    pub(crate) image: &'a Image,
    /// The source of the brokers' racks.
    pub(crate) config: &'a ClusterConfig,
}

impl Topics<'_> {
    /// Returns the ids of the topics that exist.
    pub(crate) fn ids<'n>(&self, names: impl Iterator<Item = &'n str>) -> BTreeSet<Uuid> {
        names.filter_map(|name| self.image.topic(name)).map(|topic| topic.id).collect()
    }

    /// Returns a topic's number of partitions; 0 if it does not exist.
    pub(crate) fn partitions(&self, id: &Uuid) -> i32 {
        let count = self.image.topic_by_id(id).map_or(0, |topic| topic.partitions.len());
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    /// Returns the number of partitions of a topic that exists.
    pub(crate) fn partitions_of(&self, name: &str) -> Option<i32> {
        let topic = self.image.topic(name)?;
        Some(i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX))
    }

    /// Returns the hash that Kafka stores of the topics' metadata (KIP-1101). It changes when a
    /// topic is created, deleted or grows, or when its replicas are in other racks. The names must
    /// be sorted.
    pub(crate) fn hash<'n>(&self, names: impl Iterator<Item = &'n str>) -> i64 {
        let topics = names.filter_map(|name| self.image.topic(name));
        let hashes: Vec<u8> =
            topics.flat_map(|topic| self.topic_hash(topic).to_le_bytes()).collect();
        if hashes.is_empty() { 0 } else { XxHash3_64::oneshot(&hashes).cast_signed() }
    }

    fn topic_hash(&self, topic: &TopicImage) -> u64 {
        // The version of the hashed format.
        let mut bytes = vec![0];
        let (high, low) = topic.id.0.split_at(8);
        bytes.extend(high.iter().rev().chain(low.iter().rev()));
        put_text(&mut bytes, &topic.name);
        put_number(&mut bytes, topic.partitions.len());
        for (index, partition) in topic.partitions.iter().enumerate() {
            put_number(&mut bytes, index);
            let racks = partition.replicas.iter().filter_map(|id| self.config.rack(*id));
            let mut racks: Vec<&str> = racks.collect();
            racks.sort_unstable();
            for rack in racks {
                put_number(&mut bytes, rack.encode_utf16().count());
                put_text(&mut bytes, rack);
            }
        }
        XxHash3_64::oneshot(&bytes)
    }
}

fn put_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend((number as u32).to_le_bytes());
}

/// Appends the text in Java's characters, followed by their number.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    put_number(bytes, text.encode_utf16().count());
}
