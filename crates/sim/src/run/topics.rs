//! The topics of a run.

use super::{Shared, TOPIC};
use crate::{history::PLACES, plan::BROKERS};

/// One partition of one topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Index of the topic.
    pub(crate) topic: usize,
    pub(crate) name: &'static str,
    pub(crate) partition: i32,
}

impl Place {
    /// Its number in a history.
    pub(crate) fn number(self) -> i32 {
        self.topic as i32 * PLACES + self.partition
    }
}

impl Shared {
    /// Names of the topics, by index.
    fn topics(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let more = self.plan.more_topics.iter().map(|topic| topic.name);
        std::iter::once(TOPIC).chain(more).enumerate()
    }

    pub(crate) fn topic(&self, index: usize) -> &'static str {
        self.topics().nth(index).map_or(TOPIC, |(_, name)| name)
    }

    /// Every partition that there is now.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.topics().flat_map(|(topic, name)| self.places_of(topic, name)).collect()
    }

    fn places_of(&self, topic: usize, name: &'static str) -> impl Iterator<Item = Place> + use<> {
        let count = self.cluster.partitions(name).unwrap_or(0) as i32;
        (0..count).map(move |partition| Place { topic, name, partition })
    }

    /// Partitions of the first topic.
    pub(crate) fn partitions(&self) -> i32 {
        self.cluster.partitions(TOPIC).unwrap_or(0) as i32
    }

    /// The end of a partition's log, once everything has been read back.
    pub(crate) fn end_of(&self, place: Place) -> i64 {
        let history = self.history.lock();
        let number = place.number();
        let read = history.read.iter().rev().find(|record| record.partition == number);
        let start = history.starts.get(&number).copied().unwrap_or(0);
        read.map_or(start, |record| record.offset + 1)
    }

    /// Whether every partition has all its replicas in sync and a leader.
    pub(crate) fn is_whole(&self) -> bool {
        self.places().into_iter().all(|Place { name, partition, .. }| {
            let isr = self.cluster.isr(name, partition);
            self.cluster.leader(name, partition).is_some()
                && isr.is_some_and(|isr| isr.len() == BROKERS as usize)
        })
    }
}
