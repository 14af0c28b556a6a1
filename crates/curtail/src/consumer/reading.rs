//! Takes buffered records for the application: of all partitions in turn, or of one.

use std::task::{Context, Poll, Waker};

use curtail_proto::position::Version;

use super::{
    claims::Claim,
    cursor::{Budget, Cursor, Decoding},
    records::RecordBatch,
    shared::{Next, Shared},
};
use crate::{ConsumerRecord, Error, Result, TopicPartition, config::BufferedPartitions};

/// The records being read. Their position is ahead of the one under the lock.
pub(super) struct Reading {
    source: Source,
    decoding: Decoding,
    cursor: Option<Cursor>,
    /// Damage found after records that were returned first.
    failure: Option<Damage>,
    /// Version of the position for which the last records of a claim were fetched.
    returned: Option<Version>,
    /// [`Shared::outside`] when the cursor was last compared with the state.
    seen: u64,
}

/// The partitions to read.
pub(super) enum Source {
    /// All that no queue has claimed, in turn.
    Turns,
    /// The one of this claim.
    Claimed(Claim),
}

/// Damage at a position. Void once the position's version changes.
struct Damage {
    at: TopicPartition,
    version: Version,
    error: Error,
}

impl Reading {
    pub(super) fn new(source: Source, decoding: Decoding) -> Self {
        Self { source, decoding, cursor: None, failure: None, returned: None, seen: 0 }
    }

    /// Returns up to `max` buffered records without waiting; at least one when ready. Otherwise the buffer keeps the
    /// waker. The records of a claim were fetched for one version of the position.
    pub(super) fn take_records(
        &mut self,
        shared: &Shared,
        cx: &Context<'_>,
        max: usize,
    ) -> Poll<Result<Vec<ConsumerRecord>>> {
        self.follow(shared);
        let (mut out, mut budget) = (Vec::new(), Budget::new(&self.decoding));
        loop {
            if !self.advance(shared, out.is_empty(), out.is_empty().then_some(cx.waker()))? {
                break;
            }
            let Some(cursor) = &mut self.cursor else { break };
            if let Source::Claimed(_) = self.source {
                if !out.is_empty() && self.returned != Some(cursor.version) {
                    break;
                }
                self.returned = Some(cursor.version);
            }
            match cursor.fill(&mut out, max, &mut budget, &self.decoding) {
                Ok(true) => break,
                Ok(false) => self.finish_cursor(shared),
                Err(error) if out.is_empty() => {
                    return Poll::Ready(Err(self.damaged(shared, error)));
                }
                Err(error) => {
                    // The records before the damage are returned first.
                    self.failure = self.give_up_cursor(shared).map(|(at, version)| Damage {
                        at,
                        version,
                        error,
                    });
                    break;
                }
            }
        }
        self.save_position(shared);
        if out.is_empty() { Poll::Pending } else { Poll::Ready(Ok(out)) }
    }

    /// Returns one record. The position is saved when the cursor is exhausted, or on demand.
    pub(super) fn take_one(
        &mut self,
        shared: &Shared,
        cx: &Context<'_>,
    ) -> Poll<Result<ConsumerRecord>> {
        self.follow(shared);
        while self.advance(shared, true, Some(cx.waker()))? {
            let Some(cursor) = &mut self.cursor else { break };
            match cursor.next_record(&self.decoding) {
                Ok(Some(record)) => {
                    cursor.stamp_first();
                    return Poll::Ready(Ok(record));
                }
                Ok(None) => self.finish_cursor(shared),
                Err(error) => return Poll::Ready(Err(self.damaged(shared, error))),
            }
        }
        Poll::Pending
    }

    /// Returns the next batch. All its records count as returned.
    pub(super) fn take_batch(
        &mut self,
        shared: &Shared,
        cx: &Context<'_>,
    ) -> Poll<Result<RecordBatch>> {
        self.follow(shared);
        while self.advance(shared, true, Some(cx.waker()))? {
            let Some(cursor) = &mut self.cursor else { break };
            match cursor.take_batch(&self.decoding) {
                Ok(Some(records)) => {
                    cursor.stamp_all();
                    let (topic, partition) = (cursor.at.topic.clone(), cursor.at.partition);
                    return Poll::Ready(Ok(RecordBatch { topic, partition, records }));
                }
                Ok(None) => self.finish_cursor(shared),
                Err(error) => return Poll::Ready(Err(self.damaged(shared, error))),
            }
        }
        Poll::Pending
    }

    /// Offset of the next record of the partition, if it is being read at this version.
    pub(super) fn next_offset(&self, at: &TopicPartition, version: Version) -> Option<i64> {
        let cursor = self.cursor.as_ref()?;
        (cursor.at == *at && cursor.version == version).then(|| cursor.next_offset())
    }

    pub(super) fn decoding(&self) -> Decoding {
        self.decoding
    }

    /// The partition whose records are being read.
    pub(super) fn partition(&self) -> Option<TopicPartition> {
        self.cursor.as_ref().map(|cursor| cursor.at.clone())
    }

    /// Whether records are being read.
    pub(super) fn has_records(&self) -> bool {
        self.cursor.is_some()
    }

    /// Version of the position for which the last records of a claim were fetched.
    pub(super) fn returned(&self) -> Option<Version> {
        self.returned
    }

    /// Records returned and not counted yet.
    pub(super) fn not_counted(&self) -> u64 {
        self.cursor.as_ref().map_or(0, Cursor::given)
    }

    /// Takes the records being read, if they are of this partition.
    pub(super) fn take_if_of(&mut self, at: &TopicPartition) -> Option<Cursor> {
        self.cursor.take_if(|cursor| cursor.at == *at)
    }

    /// Obeys a handle's calls since the last look: drops records of a partition that was sought, and sets aside the records
    /// of a partition that was paused.
    #[inline]
    fn follow(&mut self, shared: &Shared) {
        let now = shared.outside();
        if now != self.seen {
            self.seen = now;
            self.obey(shared);
        }
    }

    #[cold]
    fn obey(&mut self, shared: &Shared) {
        self.save_position(shared);
        self.drop_stale_cursor(shared);
        let mut state = shared.state.lock();
        let is_paused = |cursor: &mut Cursor| {
            state.partitions.get(&cursor.at).is_some_and(|assigned| assigned.paused)
        };
        if let Some(cursor) = self.cursor.take_if(is_paused) {
            let at = cursor.at.clone();
            state.pause(&at, Some(cursor), shared.config.prefetch_bytes);
        }
    }

    /// Ensures that there is a cursor. `false`: the buffer is empty, and it keeps the waker, if given.
    fn advance(&mut self, shared: &Shared, failures: bool, waker: Option<&Waker>) -> Result<bool> {
        if failures && let Some(damage) = self.failure.take() {
            return Err(damage.error);
        }
        if self.cursor.is_some() {
            return Ok(true);
        }
        let next = match &self.source {
            Source::Turns => shared.next(failures, waker),
            Source::Claimed(claim) => shared.next_of(claim, failures, waker),
        };
        match next {
            Next::Cursor(cursor) => {
                self.cursor = Some(cursor);
                Ok(true)
            }
            Next::Failure(error) => Err(error),
            Next::Nothing => Ok(false),
        }
    }

    /// Saves in the shared state the position after the last returned record.
    pub(super) fn save_position(&mut self, shared: &Shared) {
        let Some(cursor) = &mut self.cursor else { return };
        shared.stats.records.add(cursor.take_given());
        let state = &mut *shared.state.lock();
        let Some(assigned) = state.partitions.get_mut(&cursor.at) else { return };
        if assigned.consume(cursor.version, cursor.spot(), &mut state.versions) {
            state.buffer.clear(&mut assigned.queue);
            assigned.halted = false;
            state.touch(&cursor.at);
        }
    }

    fn finish_cursor(&mut self, shared: &Shared) {
        self.save_position(shared);
        if let Some(cursor) = self.cursor.take() {
            shared.stats.bytes.add(cursor.bytes() as u64);
        }
        if shared.config.buffered_partitions == BufferedPartitions::SkipAll {
            shared.state.lock().wake_lanes();
        }
    }

    /// Drops the rest of the cursor, to be fetched again under the version returned.
    fn give_up_cursor(&mut self, shared: &Shared) -> Option<(TopicPartition, Version)> {
        self.save_position(shared);
        let cursor = self.cursor.take()?;
        let mut state = shared.state.lock();
        shared.fetch_again(&mut state, &cursor.at);
        let version = state.partitions.get(&cursor.at)?.position.version();
        Some((cursor.at, version))
    }

    fn damaged(&mut self, shared: &Shared, error: Error) -> Error {
        self.give_up_cursor(shared);
        error
    }

    /// Drops the cursor, and unreported damage, if their partition was sought or unassigned.
    pub(super) fn drop_stale_cursor(&mut self, shared: &Shared) {
        let state = shared.state.lock();
        let stale = |at: &TopicPartition, version: Version| {
            let assigned = state.partitions.get(at);
            assigned.is_none_or(|assigned| assigned.position.version() != version)
        };
        self.cursor.take_if(|cursor| stale(&cursor.at, cursor.version));
        self.failure.take_if(|damage| stale(&damage.at, damage.version));
    }
}
