//! A topic as the producer sees it: its partitions and the choice among them.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use curtail_proto::{
    accumulator::Incarnation,
    metadata::Topic,
    partitioner::{Sticky, partition_for_key},
};
use curtail_wire::Uuid;
use parking_lot::Mutex;

use super::{partition::Partition, partitioner::TopicPartitions, routing::Routes};
use crate::{Error, ProducerConfig, Record, Result};

/// Which topic has a name, and how many partitions it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Zero where the brokers have none.
    pub(super) id: Uuid,
    /// Changes when the topic is deleted and created again.
    pub(super) incarnation: Incarnation,
    /// Number of partitions.
    pub(super) count: usize,
}

impl Form {
    /// The form of `topic`, where it had the form `known` before.
    ///
    /// The partitions of one topic id never become fewer. Without ids a smaller topic is another one of that name.
    pub(super) fn of(topic: &Topic, known: Option<Self>) -> Self {
        let (id, count) = (topic.id, topic.leaders.len());
        let Some(known) = known else { return Self { id, incarnation: Incarnation::FIRST, count } };
        let is_smaller = id == Uuid::ZERO && count < known.count;
        if known.id != id || is_smaller {
            return Self { id, incarnation: known.incarnation.next(), count };
        }
        Self { count: count.max(known.count), ..known }
    }
}

/// One topic. Immutable but for the choice: when partitions are added or the topic is created again, a new state replaces
/// it and shares its partitions.
pub(super) struct TopicState {
    pub(super) name: Arc<str>,
    pub(super) form: Form,
    /// Every partition that a topic of this name has had, for as long as the producer lives: they hold records and
    /// sequence numbers. Those beyond the count have no leader.
    pub(super) partitions: Box<[Arc<Partition>]>,
    pub(super) sticky: Sticky,
    pub(super) routes: ArcSwap<Routes>,
    /// What the best broker's records had to expect at the last choice, in nanoseconds.
    pub(super) best_ns: AtomicU64,
    pub(super) door: Door,
    pub(super) kept: Kept,
}

/// Partitions in trouble that keyless records stay in because there was no better one.
///
/// Whoever looks for a better one takes the number of [`Self::ends`] before. A trouble that ends after that is either
/// seen by [`Self::keep`], or sees what was kept: nothing stays once there is a better place.
#[derive(Debug, Default)]
pub(super) struct Kept {
    ends: AtomicU64,
    partitions: Mutex<BTreeSet<u32>>,
}

impl Kept {
    /// How often a trouble has ended. One relaxed load on the append path.
    pub(super) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// Records stay here. Says whether a trouble has ended since there were `ends`, so that they may not have to.
    pub(super) fn keep(&self, index: u32, ends: u64) -> bool {
        let mut partitions = self.partitions.lock();
        partitions.insert(index);
        self.ends() != ends
    }

    /// A trouble has ended: where to look for what may go elsewhere now.
    pub(super) fn take(&self) -> BTreeSet<u32> {
        let mut partitions = self.partitions.lock();
        self.ends.fetch_add(1, Ordering::Relaxed);
        std::mem::take(&mut partitions)
    }
}

/// Whether records may enter the topic, and whether any have. One relaxed load on the append path.
///
/// Closed while records of the topic wait for its metadata, so that no later one gets ahead of them; and when the
/// topic has been idle for `metadata.max.idle.ms`, so that whoever needs it again has its metadata fetched first.
/// Partitions stay: they hold the producer's sequence numbers.
#[derive(Debug)]
pub(super) struct Door(AtomicU8);

impl Door {
    const UNUSED: u8 = 0;
    const USED: u8 = 1;
    const CLOSED: u8 = 2;

    /// A closed one.
    fn new() -> Self {
        Self(AtomicU8::new(Self::CLOSED))
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::CLOSED
    }

    /// A record wants in.
    pub(super) fn enter(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Self::USED => true,
            Self::UNUSED => self.swap(Self::UNUSED, Self::USED) || self.is_open(),
            _ => false,
        }
    }

    pub(super) fn open(&self) {
        self.swap(Self::CLOSED, Self::UNUSED);
    }

    /// Closes it, unless it was used since [`Self::was_used`].
    pub(super) fn close(&self) -> bool {
        self.swap(Self::UNUSED, Self::CLOSED) || !self.is_open()
    }

    /// Whether a record has entered since the last time this was asked.
    pub(super) fn was_used(&self) -> bool {
        self.swap(Self::USED, Self::UNUSED)
    }

    fn swap(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// How a record came to its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The caller, the key or the application's partitioner said so: it is written there or nowhere.
    Fixed,
    /// The sticky partitioner did, and wants to know what was sent. Another partition is as good.
    Sticky,
}

impl TopicState {
    pub(super) fn new(
        name: Arc<str>,
        form: Form,
        partitions: Box<[Arc<Partition>]>,
        stickiness: usize,
        draw: u64,
    ) -> Self {
        let first = draw.checked_rem(form.count as u64).unwrap_or(0) as u32;
        let stickiness = u32::try_from(stickiness).unwrap_or(u32::MAX);
        Self {
            name,
            form,
            partitions,
            sticky: Sticky::new(first, stickiness),
            routes: ArcSwap::default(),
            best_ns: AtomicU64::new(0),
            door: Door::new(),
            kept: Kept::default(),
        }
    }

    /// The partitions that the topic has now.
    pub(super) fn current(&self) -> &[Arc<Partition>] {
        self.partitions.get(..self.form.count).unwrap_or(&self.partitions)
    }

    /// Partitions that a previous topic of this name had.
    pub(super) fn vanished(&self) -> &[Arc<Partition>] {
        self.partitions.get(self.form.count..).unwrap_or_default()
    }

    /// The record's partition.
    pub(super) fn pick(
        &self,
        record: &Record<'_>,
        config: &ProducerConfig,
    ) -> Result<(&Arc<Partition>, Choice)> {
        let count = self.form.count;
        let (index, choice) = match (record.partition, &config.partitioner, record.key) {
            (Some(index), ..) => (index, Choice::Fixed),
            (None, Some(custom), _) => match custom.partition(record, &TopicPartitions::of(self)) {
                Some(index) => (index, Choice::Fixed),
                None => (self.sticky.current() as i32, Choice::Sticky),
            },
            (None, None, Some(key)) if !config.partitioner_ignore_keys => {
                (partition_for_key(key, count as u32), Choice::Fixed)
            }
            _ => (self.sticky.current() as i32, Choice::Sticky),
        };
        let partition = usize::try_from(index).ok().and_then(|i| self.current().get(i));
        match partition {
            Some(partition) => Ok((partition, choice)),
            None => Err(Error::UnknownPartition {
                topic: self.name.clone(),
                partition: index,
                partitions: count,
            }),
        }
    }
}
