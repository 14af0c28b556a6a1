//! What a lane does for each of its partitions.
//!
//! # Invariants
//! - A partition has one [`Duty`], so it is never looked up and fetched at once.
//! - The indexes follow the entries: only [`Partitions::put`] changes an entry's duty.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::{Interest, LookUp};
use crate::{
    TopicPartition,
    position::{FetchFrom, Version},
};

/// What the lane does for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Nothing before the time of review. Then it requests something for this version, if it is named.
    Wait(Option<Version>),
    /// Looks an offset up.
    LookUp(LookUp),
    /// Reads it: it is in the session.
    Read(Read),
    /// Keeps it out of the session while its records are buffered ([`super::Buffered::Omit`]).
    Omit,
}

/// A partition in the session, as the next request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) from: FetchFrom,
    pub(super) topic_id: curtail_wire::Uuid,
    pub(super) interest: Interest,
    /// End of the readable records, from the last response with records.
    pub(super) end: Option<i64>,
}

impl Read {
    /// Whether the broker is known to have more records.
    pub(super) fn has_more(&self) -> bool {
        self.end.is_some_and(|end| end > self.from.offset)
    }
}

/// A duty, and when to review it even without a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) review_at: Option<Instant>,
    pub(super) duty: Duty,
}

/// The partitions, with indexes for what a turn looks at. `H` is the caller's handle of a partition's buffered bytes.
#[derive(Debug)]
pub(super) struct Partitions<H> {
    entries: BTreeMap<TopicPartition, Entry>,
    lookups: BTreeSet<TopicPartition>,
    /// Paused partitions that are still in the session.
    paused: BTreeSet<TopicPartition>,
    timed: BTreeSet<(Instant, TopicPartition)>,
    /// Partitions, read or omitted, that may have records in the buffer.
    buffered: BTreeMap<TopicPartition, H>,
}

impl<H> Default for Partitions<H> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            lookups: BTreeSet::new(),
            paused: BTreeSet::new(),
            timed: BTreeSet::new(),
            buffered: BTreeMap::new(),
        }
    }
}

impl<H> Partitions<H> {
    /// Replaces a partition's entry, and returns how it was read before.
    pub(super) fn put(&mut self, at: &TopicPartition, entry: Option<Entry>) -> Option<Read> {
        let before = match entry {
            Some(entry) => self.entries.insert(at.clone(), entry),
            None => self.entries.remove(at),
        };
        let review_at = entry.and_then(|entry| entry.review_at);
        let reviewed_at = before.and_then(|before| before.review_at);
        if review_at != reviewed_at {
            if let Some(time) = reviewed_at {
                self.timed.remove(&(time, at.clone()));
            }
            self.timed.extend(review_at.map(|time| (time, at.clone())));
        }
        self.reindex(at, before.map(|before| before.duty), entry.map(|entry| entry.duty));
        match before?.duty {
            Duty::Read(read) => Some(read),
            _ => None,
        }
    }

    fn reindex(&mut self, at: &TopicPartition, before: Option<Duty>, now: Option<Duty>) {
        let is_lookup = |duty| matches!(duty, Some(Duty::LookUp(_)));
        let is_paused =
            |duty| matches!(duty, Some(Duty::Read(read)) if read.interest == Interest::Paused);
        mark(&mut self.lookups, at, is_lookup(before), is_lookup(now));
        mark(&mut self.paused, at, is_paused(before), is_paused(now));
        if !matches!(now, Some(Duty::Read(_) | Duty::Omit)) {
            self.buffered.remove(at);
        }
    }

    pub(super) fn entry(&self, at: &TopicPartition) -> Option<&Entry> {
        self.entries.get(at)
    }

    pub(super) fn read(&self, at: &TopicPartition) -> Option<&Read> {
        match &self.entries.get(at)?.duty {
            Duty::Read(read) => Some(read),
            _ => None,
        }
    }

    /// The name and the entry of a partition that is read. The name shares its topic with the entry.
    pub(super) fn named_read(&self, at: &TopicPartition) -> Option<(&TopicPartition, &Read)> {
        let (at, entry) = self.entries.get_key_value(at)?;
        match &entry.duty {
            Duty::Read(read) => Some((at, read)),
            _ => None,
        }
    }

    /// Sets the end of a partition's readable records.
    pub(super) fn set_end(&mut self, at: &TopicPartition, end: Option<i64>) {
        if let Some(Entry { duty: Duty::Read(read), .. }) = self.entries.get_mut(at) {
            read.end = end;
        }
    }

    /// Moves a partition that is read to another position.
    pub(super) fn advance(&mut self, at: &TopicPartition, from: FetchFrom) -> Option<Read> {
        let Some(Entry { duty: Duty::Read(read), .. }) = self.entries.get_mut(at) else {
            return None;
        };
        read.from = from;
        Some(*read)
    }

    pub(super) fn reads(&self) -> impl Iterator<Item = (&TopicPartition, &Read)> {
        self.entries.iter().filter_map(|(at, entry)| match &entry.duty {
            Duty::Read(read) => Some((at, read)),
            _ => None,
        })
    }

    pub(super) fn has_lookups(&self) -> bool {
        !self.lookups.is_empty()
    }

    pub(super) fn lookups(&self) -> BTreeMap<TopicPartition, LookUp> {
        let lookup = |at: &TopicPartition| match self.entries.get(at)?.duty {
            Duty::LookUp(lookup) => Some((at.clone(), lookup)),
            _ => None,
        };
        self.lookups.iter().filter_map(lookup).collect()
    }

    pub(super) fn paused(&self) -> &BTreeSet<TopicPartition> {
        &self.paused
    }

    /// Time of the next review.
    pub(super) fn next_review(&self) -> Option<Instant> {
        self.timed.first().map(|(at, _)| *at)
    }

    /// Partitions whose time of review has come.
    pub(super) fn due(&self, now: Instant) -> impl Iterator<Item = &TopicPartition> {
        self.timed.iter().take_while(move |(time, _)| *time <= now).map(|(_, at)| at)
    }

    /// Partitions that wait for their time of review to request something, in the order of these times.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Instant, &TopicPartition)> {
        self.timed.iter().filter_map(|(time, at)| match self.entries.get(at)?.duty {
            Duty::Wait(Some(_)) => Some((*time, at)),
            _ => None,
        })
    }

    /// Records that a partition that is read or omitted has records in the buffer.
    pub(super) fn hold(&mut self, at: &TopicPartition, held: impl FnOnce() -> H) {
        if matches!(self.entries.get(at), Some(Entry { duty: Duty::Read(_) | Duty::Omit, .. }))
            && !self.buffered.contains_key(at)
        {
            self.buffered.insert(at.clone(), held());
        }
    }

    /// Partitions with records in the buffer, after those without were removed.
    pub(super) fn buffered(
        &mut self,
        bytes_of: impl Fn(&H) -> usize,
    ) -> impl Iterator<Item = (&TopicPartition, usize, &Duty)> {
        // An omitted partition leaves the buffer's index with its review, see `drained`.
        let entries = &self.entries;
        self.buffered.retain(|at, held| {
            bytes_of(held) > 0 || matches!(entries.get(at), Some(Entry { duty: Duty::Omit, .. }))
        });
        self.buffered.iter().filter_map(move |(at, held)| {
            let entry = entries.get(at)?;
            Some((at, bytes_of(held), &entry.duty))
        })
    }

    /// Omitted partitions without records in the buffer.
    pub(super) fn drained(
        &self,
        bytes_of: impl Fn(&H) -> usize,
    ) -> impl Iterator<Item = &TopicPartition> {
        self.buffered
            .iter()
            .filter(move |(at, held)| bytes_of(held) == 0 && self.is_omitted(at))
            .map(|(at, _)| at)
    }

    fn is_omitted(&self, at: &TopicPartition) -> bool {
        matches!(self.entries.get(at), Some(Entry { duty: Duty::Omit, .. }))
    }
}

fn mark(set: &mut BTreeSet<TopicPartition>, at: &TopicPartition, before: bool, now: bool) {
    match (before, now) {
        (false, true) => {
            set.insert(at.clone());
        }
        (true, false) => {
            set.remove(at);
        }
        _ => {}
    }
}
