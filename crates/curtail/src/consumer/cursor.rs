//! Fetched records, decoded on demand: checksum, decompression and parsing wait for the application's poll.

use std::collections::BTreeSet;

use bytes::Bytes;
use curtail_proto::{
    plant::{Plant, planted},
    position::{Spot, Version},
};
use curtail_wire::{
    Report,
    fetch::AbortedTransaction,
    records::{
        self, Batch, Batches, ControlRecord, DecompressLimit, EndTxnMarker, RecordError,
        Records as BatchRecords,
    },
};

use super::credit::Lease;
use crate::{ConsumerRecord, Error, TopicPartition, error::BatchProblem, metrics::Arrival};

/// Settings for reading batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoding {
    /// `check.crcs`.
    pub(super) check_crcs: bool,
    /// Bytes one batch may decompress to.
    pub(super) limit: DecompressLimit,
}

/// Decompressed bytes that one poll may keep in memory. Records share the memory of their batch.
///
/// A poll with records opens no further batch once it has spent the budget, so it holds at most the budget and its last
/// batch. A batch that an earlier poll left open counts (decision 0056).
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new(decoding: &Decoding) -> Self {
        Self(decoding.limit.max_bytes)
    }
}

/// The records of one partition in one response, read up to `next`.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The partition.
    pub(super) at: TopicPartition,
    /// Version of the position that was fetched.
    pub(super) version: Version,
    /// Offset of the next record to return; earlier records are skipped.
    next: i64,
    /// Leader epoch of the last record passed; -1 if unknown.
    epoch: i32,
    batches: Batches,
    open: Option<Open>,
    aborted: Option<Aborted>,
    lease: Lease,
    /// Arrival of the response; `None` without phase timestamps.
    arrival: Option<Arrival>,
    /// Records returned and not counted yet.
    given: u64,
}

/// The batch being read.
#[derive(Debug)]
struct Open {
    records: BatchRecords,
    /// Decompressed bytes that the current poll's budget has not counted.
    uncounted: usize,
    /// Records not read yet.
    left: u64,
    base_offset: i64,
    last_offset: i64,
    epoch: i32,
}

impl Cursor {
    /// Creates a cursor on `records`, from offset `first`; the first batch may begin earlier. `aborted` is given for
    /// `read_committed` only.
    pub(super) fn new(
        at: TopicPartition,
        version: Version,
        first: i64,
        records: Bytes,
        aborted: Option<Vec<AbortedTransaction>>,
        lease: Lease,
    ) -> Self {
        Self {
            at,
            version,
            next: first,
            epoch: -1,
            batches: records::batches(records),
            open: None,
            aborted: aborted.map(Aborted::new),
            lease,
            arrival: None,
            given: 0,
        }
    }

    /// Sets the arrival time of the response.
    pub(super) fn arrived(mut self, arrival: Option<Arrival>) -> Self {
        self.arrival = arrival;
        self
    }

    /// Offset of the next record to return.
    pub(super) fn next_offset(&self) -> i64 {
        self.next
    }

    /// Offset of the next record to return, and the leader epoch before it.
    pub(super) fn spot(&self) -> Spot {
        Spot { offset: self.next, epoch: self.epoch }
    }

    /// Bytes of the response that it accounts for.
    pub(super) fn bytes(&self) -> usize {
        self.lease.bytes()
    }

    /// Records returned and not counted yet.
    pub(super) fn given(&self) -> u64 {
        self.given
    }

    /// Returns the number of records returned since the previous call.
    pub(super) fn take_given(&mut self) -> u64 {
        self.stamp_all();
        if let Some(arrival) = &mut self.arrival {
            arrival.noted = 0;
        }
        std::mem::take(&mut self.given)
    }

    /// Records the wait of all returned records.
    pub(super) fn stamp_all(&mut self) {
        if let Some(arrival) = &mut self.arrival {
            arrival.gave(self.given);
        }
    }

    /// Records the time of the first returned record. The number of records follows when the cursor ends.
    #[inline]
    pub(super) fn stamp_first(&mut self) {
        if let Some(arrival) = &mut self.arrival {
            arrival.begin();
        }
    }

    /// Frees its part of the lane's share early.
    pub(super) fn give_share_back(&mut self) {
        self.lease.give_share_back();
    }

    /// Appends records to `out` until it holds `max`, or until it holds some and the budget is spent. `false`: the
    /// cursor is exhausted. After an error the cursor is unusable.
    pub(super) fn fill(
        &mut self,
        out: &mut Vec<ConsumerRecord>,
        max: usize,
        budget: &mut Budget,
        decoding: &Decoding,
    ) -> Result<bool, Error> {
        if let Some(open) = &mut self.open {
            open.uncounted = open.records.decompressed_memory();
        }
        while out.len() < max {
            if budget.0 == 0 && !out.is_empty() && self.open.as_ref().is_none_or(|o| o.left == 0) {
                return Ok(true);
            }
            match self.next_record(decoding)? {
                Some(record) => out.push(record),
                None => return Ok(false),
            }
            if let Some(open) = &mut self.open {
                budget.0 = budget.0.saturating_sub(std::mem::take(&mut open.uncounted));
            }
        }
        Ok(true)
    }

    /// Returns the next record; `None` when the cursor is exhausted. After an error the cursor is unusable.
    #[inline]
    pub(super) fn next_record(
        &mut self,
        decoding: &Decoding,
    ) -> Result<Option<ConsumerRecord>, Error> {
        loop {
            if self.open.is_none() && !self.open_next(decoding)? {
                return Ok(None);
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            let is_skipped = planted(Plant::CompressedTailSkipped)
                && open.left == 1
                && open.records.decompressed_memory() > 0;
            let next = if is_skipped { None } else { open.records.next() };
            open.left = open.left.saturating_sub(1);
            match next {
                Some(Ok(record)) if record.offset < self.next => {}
                Some(Ok(record)) => {
                    self.next = record.offset + 1;
                    self.epoch = open.epoch;
                    self.given += 1;
                    return Ok(Some(ConsumerRecord {
                        topic: self.at.topic.clone(),
                        partition: self.at.partition,
                        leader_epoch: open.epoch,
                        offset: record.offset,
                        timestamp: record.timestamp,
                        timestamp_type: open.records.batch_header().timestamp_type(),
                        key: record.key,
                        value: record.value,
                        headers: record.headers,
                    }));
                }
                Some(Err(error)) => {
                    let (base, last) = (open.base_offset, open.last_offset);
                    return Err(self.damaged(base, self.behind(base, last), &error));
                }
                None => {
                    self.next = self.next.max(open.last_offset + 1);
                    self.epoch = open.epoch;
                    self.open = None;
                }
            }
        }
    }

    /// Returns the rest of the current batch, or the next batch; `None` at the end. All its records count as
    /// returned.
    pub(super) fn take_batch(
        &mut self,
        decoding: &Decoding,
    ) -> Result<Option<BatchRecords>, Error> {
        if self.open.is_none() && !self.open_next(decoding)? {
            return Ok(None);
        }
        let Some(Open { mut records, mut left, base_offset, last_offset, epoch, .. }) =
            self.open.take()
        else {
            return Ok(None);
        };
        // Applies only after a seek into a batch.
        if self.next > base_offset {
            let mut probe = records.clone();
            while let Some(Ok(record)) = probe.next_ref()
                && record.offset < self.next
            {
                records = probe.clone();
                left = left.saturating_sub(1);
            }
        }
        self.next = self.next.max(last_offset + 1);
        self.epoch = epoch;
        self.given += left;
        Ok(Some(records))
    }

    /// Opens the next batch with records for the application.
    fn open_next(&mut self, decoding: &Decoding) -> Result<bool, Error> {
        loop {
            let batch = match self.batches.next() {
                Some(Ok(batch)) => batch,
                Some(Err(error)) => {
                    let behind = self.batches.offset_behind_next().filter(|&next| next > self.next);
                    return Err(self.damaged(self.next, behind, &error));
                }
                None => return Ok(false),
            };
            let base = batch.header.base_offset;
            let last_offset = batch.header.last_offset();
            if last_offset < self.next {
                continue;
            }
            // The checksum does not cover the base offset, and no position follows the largest offset.
            if last_offset == i64::MAX {
                let delta = batch.header.last_offset_delta;
                let error = RecordError::LastOffset { base_offset: base, delta };
                return Err(self.damaged(self.next, self.behind(base, last_offset), &error));
            }
            match self.open_batch(&batch, decoding) {
                Ok(Some(records)) => {
                    let left = u64::try_from(batch.header.record_count).unwrap_or(0);
                    let epoch = batch.header.partition_leader_epoch;
                    let uncounted = records.decompressed_memory();
                    let base_offset = base;
                    self.open =
                        Some(Open { records, uncounted, left, base_offset, last_offset, epoch });
                    return Ok(true);
                }
                Ok(None) => {
                    self.next = last_offset + 1;
                    self.epoch = batch.header.partition_leader_epoch;
                }
                Err(error) => {
                    let behind = self.behind(base, last_offset);
                    // The position is already after this batch, whatever its damaged header claims.
                    if behind.is_none_or(|next| next > self.next) {
                        return Err(self.damaged(base, behind, &error));
                    }
                }
            }
        }
    }

    /// Returns the batch's records; `None` for markers and for records of an aborted transaction.
    fn open_batch(
        &mut self,
        batch: &Batch,
        decoding: &Decoding,
    ) -> Result<Option<BatchRecords>, RecordError> {
        if decoding.check_crcs {
            batch.verify_crc()?;
        }
        if let Some(aborted) = &mut self.aborted
            && aborted.hides(batch, decoding)?
        {
            return Ok(None);
        }
        if batch.header.is_control() {
            return Ok(None);
        }
        batch.records(&decoding.limit).map(Some)
    }

    /// Returns the offset at which to continue after the damaged batch that was opened last. Its header gives that
    /// offset, limited to the base offset of the following batch, because the header may be the damaged part.
    fn behind(&self, base: i64, last: i64) -> Option<i64> {
        let mut rest = self.batches.clone();
        let following = rest.next().and_then(Result::ok).map(|batch| batch.header.base_offset);
        let following = following.filter(|&next| next > base);
        last.checked_add(1).into_iter().chain(following).min()
    }

    fn damaged(&self, offset: i64, next_offset: Option<i64>, error: &RecordError) -> Error {
        corrupt(&self.at, offset, next_offset, error)
    }
}

/// The error for a batch that cannot be read.
pub(super) fn corrupt(
    at: &TopicPartition,
    offset: i64,
    next_offset: Option<i64>,
    error: &RecordError,
) -> Error {
    let problem = BatchProblem::of(error);
    let (advice, next_offset) = match problem {
        BatchProblem::TooLarge => (" (curtail.decompressed.batch.max.bytes)", next_offset),
        // The batch is intact, so the error must not advise to skip it.
        BatchProblem::MissingCodec => ("", None),
        _ => ("", next_offset),
    };
    let reason = format!("{}{advice}", Report::new(error)).into();
    let (topic, partition) = (at.topic.clone(), at.partition);
    Error::Corrupt { topic, partition, offset, next_offset, problem, reason }
}

/// Producers whose records are aborted at the batch being read.
#[derive(Debug)]
struct Aborted {
    /// Transactions that begin later, sorted by first offset, the next one last.
    ahead: Vec<AbortedTransaction>,
    open: BTreeSet<i64>,
}

impl Aborted {
    fn new(mut transactions: Vec<AbortedTransaction>) -> Self {
        if !planted(Plant::AbortedUnsorted) {
            transactions.sort_by_key(|t| std::cmp::Reverse(t.first_offset));
        }
        Self { ahead: transactions, open: BTreeSet::new() }
    }

    /// Whether the batch's records are aborted. Batches must be passed in log order.
    fn hides(&mut self, batch: &Batch, decoding: &Decoding) -> Result<bool, RecordError> {
        let header = &batch.header;
        while let Some(next) = self.ahead.pop_if(|t| t.first_offset <= header.last_offset()) {
            self.open.insert(next.producer_id);
        }
        if !header.is_transactional() {
            return Ok(false);
        }
        if !header.is_control() {
            return Ok(self.open.contains(&header.producer_id));
        }
        if let Some(record) = batch.records(&decoding.limit)?.next().transpose()? {
            let marker = ControlRecord::parse(record.key.as_deref(), record.value.as_deref())?;
            if matches!(marker, ControlRecord::EndTxn { marker: EndTxnMarker::Abort, .. }) {
                self.open.remove(&header.producer_id);
            }
        }
        Ok(true)
    }
}
