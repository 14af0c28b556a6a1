//! The records of a consumer that the program has received, and the offsets after them.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use curtail::{
    ConsumerRecord, Error, TopicPartition,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};

use crate::{
    arrow::{Columns, Layout, RecordBatch},
    records::{Record, Records, Rows},
};

/// Offsets by partition.
pub(crate) type Offsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

/// Records of a poll that the program receives.
struct Chunk {
    records: Arc<Rows>,
    /// Index of the next record to return.
    next: usize,
    /// Index after the last record of the chunk.
    end: usize,
    /// Index of the first record that no transaction has committed.
    from: usize,
}

impl Chunk {
    fn new(rows: Rows) -> Self {
        let end = rows.len();
        Self { records: Arc::new(rows), next: 0, end, from: 0 }
    }

    fn is_of(&self, (records, range): &Span) -> bool {
        Arc::ptr_eq(&self.records, records) && (self.next..self.end) == *range
    }
}

/// The columns of the oldest chunk.
struct Built {
    span: Span,
    columns: Columns,
    layout: Layout,
}

/// Records with their range.
pub(crate) type Span = (Arc<Rows>, Range<usize>);

/// What the program has received.
#[derive(Default)]
pub(crate) struct Progress {
    /// Polled records that the program has not received.
    chunks: VecDeque<Chunk>,
    /// For the program's next call, unless another call takes the records.
    built: Option<Built>,
    /// The offsets after the records that it has received.
    pub(crate) received: Offsets,
    /// The first record of each partition that it has received since a transaction was committed, or aborted.
    uncommitted: BTreeMap<TopicPartition, i64>,
    /// Whether partitions of such records were revoked. The results of these records must not be committed.
    is_torn: bool,
    /// The member that the last poll was made by.
    pub(crate) group: Option<ConsumerGroupMetadata>,
    /// Whether the group assigns the partitions.
    pub(crate) is_subscribed: bool,
    /// Transactions that end. Their outcome decides which record is the next.
    pub(crate) holds: usize,
    /// The records of the last poll, or the last record of an iteration.
    pub(crate) last: Option<Span>,
    /// Why the position is unknown. Every poll returns it.
    pub(crate) failed: Option<Error>,
}

impl Progress {
    pub(crate) fn push(&mut self, rows: Rows) {
        self.chunks.push_back(Chunk::new(rows));
    }

    /// Number of records that the program has not received.
    pub(crate) fn waiting(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.end - chunk.next).sum()
    }

    /// Makes one chunk of the oldest records, at most `most`, and returns them.
    pub(crate) fn join(&mut self, most: usize) -> Option<Span> {
        self.count();
        let mut left = most.min(self.waiting());
        if left == 0 {
            return None;
        }
        if self.chunks.front().is_none_or(|chunk| chunk.end - chunk.next < left) {
            let (mut records, mut batches) = (Vec::with_capacity(left), Vec::new());
            while let Some(chunk) = self.chunks.front_mut().filter(|_| left > 0) {
                let taken = left.min(chunk.end - chunk.next);
                records.extend_from_slice(&chunk.records[chunk.next..chunk.next + taken]);
                batches.extend_from_slice(chunk.records.batches());
                chunk.next += taken;
                chunk.from = chunk.next;
                left -= taken;
                if chunk.next == chunk.end {
                    self.chunks.pop_front();
                }
            }
            self.chunks.push_front(Chunk::new(Rows::new(records, batches)));
        }
        let front = self.chunks.front_mut()?;
        if front.end - front.next > most {
            let rest = front.next + most;
            let chunk = Chunk {
                records: front.records.clone(),
                next: rest,
                end: std::mem::replace(&mut front.end, rest),
                from: rest,
            };
            self.chunks.insert(1, chunk);
        }
        let front = self.chunks.front()?;
        Some((front.records.clone(), front.next..front.end))
    }

    /// Keeps columns of the oldest chunk for the program.
    pub(crate) fn keep_columns(&mut self, span: Span, columns: Columns, layout: Layout) {
        self.built = Some(Built { span, columns, layout });
    }

    /// Returns the oldest chunk as columns. `None` if other calls have changed the chunk since they were built.
    pub(crate) fn take_batch(&mut self) -> Option<RecordBatch> {
        let Built { span, columns, layout } = self.built.take()?;
        if !self.chunks.front().is_some_and(|chunk| chunk.is_of(&span)) {
            return None;
        }
        self.take()?;
        Some(RecordBatch::new(span.0, span.1, columns, layout))
    }

    /// Whether records can be taken.
    pub(crate) fn has_records(&self) -> bool {
        self.holds == 0 && !self.chunks.is_empty()
    }

    /// Returns the rest of the oldest chunk.
    pub(crate) fn take(&mut self) -> Option<Records> {
        if self.holds > 0 {
            return None;
        }
        let Chunk { records, next, end, from } = self.chunks.pop_front()?;
        let range = next..end;
        self.receive(&records[from..end]);
        self.last = Some((records.clone(), range.clone()));
        Some(Records::new(records, range))
    }

    /// Returns the next record.
    pub(crate) fn next(&mut self) -> Option<Record> {
        if self.holds > 0 {
            return None;
        }
        let chunk = self.chunks.front_mut()?;
        let records = chunk.records.clone();
        let (index, from, end) = (chunk.next, chunk.from, chunk.end);
        chunk.next += 1;
        if chunk.next == end {
            self.chunks.pop_front();
            self.receive(&records[from..end]);
        }
        self.last = Some((records.clone(), index..index + 1));
        Some(Record::new(records, index))
    }

    /// Counts records that the program receives.
    fn receive(&mut self, records: &[ConsumerRecord]) {
        self.received.extend(next_offsets(records));
        merge_first(&mut self.uncommitted, records);
    }

    /// Counts the records of chunks that are being iterated.
    fn count(&mut self) {
        self.received = self.offsets();
        self.uncommitted = self.uncommitted();
        for chunk in &mut self.chunks {
            chunk.from = chunk.next;
        }
    }

    /// The offsets after the records received, those of a chunk that is being iterated included.
    pub(crate) fn offsets(&self) -> Offsets {
        let mut offsets = self.received.clone();
        for chunk in &self.chunks {
            offsets.extend(next_offsets(&chunk.records[chunk.from..chunk.next]));
        }
        offsets
    }

    /// The first record of each partition that was received and that no transaction has committed.
    pub(crate) fn uncommitted(&self) -> BTreeMap<TopicPartition, i64> {
        let mut first = self.uncommitted.clone();
        for chunk in &self.chunks {
            merge_first(&mut first, &chunk.records[chunk.from..chunk.next]);
        }
        first
    }

    /// Whether partitions were revoked whose records the program has received, and that no transaction has committed.
    pub(crate) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Counts received records before these offsets as committed, by the consumer: an abort does not return them again.
    pub(crate) fn commit_before(&mut self, offsets: &Offsets) {
        self.count();
        for (at, to) in offsets {
            let Some(first) = self.uncommitted.get_mut(at) else { continue };
            *first = to.offset.max(*first);
            let first = *first;
            if self.received.get(at).is_some_and(|next| next.offset <= first) {
                self.uncommitted.remove(at);
            }
        }
    }

    /// Counts the received records as committed by a transaction.
    pub(crate) fn commit(&mut self) {
        self.received.clear();
        self.uncommitted.clear();
        for chunk in &mut self.chunks {
            chunk.from = chunk.next;
        }
    }

    /// Forgets the received records that no transaction has committed: the consumer returns them again.
    pub(crate) fn abort(&mut self) {
        let first = self.uncommitted();
        self.forget(|at| first.contains_key(at));
        self.received.retain(|at, _| !first.contains_key(at));
        self.uncommitted.clear();
        self.is_torn = false;
        self.last = None;
    }

    /// The first record of each partition that the program has not received.
    pub(crate) fn first_unreceived(&self) -> BTreeMap<TopicPartition, i64> {
        let mut first = BTreeMap::new();
        for chunk in &self.chunks {
            merge_first(&mut first, &chunk.records[chunk.next..chunk.end]);
        }
        first
    }

    /// Drops the records of these partitions that the program has not received.
    pub(crate) fn forget(&mut self, is_of: impl Fn(&TopicPartition) -> bool) {
        self.count();
        self.built = None;
        let chunks = std::mem::take(&mut self.chunks).into_iter().filter_map(|chunk| {
            let rest = &chunk.records[chunk.next..chunk.end];
            if !rest.iter().any(|record| is_of(&record.topic_partition())) {
                return Some(chunk);
            }
            let kept: Vec<ConsumerRecord> =
                rest.iter().filter(|record| !is_of(&record.topic_partition())).cloned().collect();
            let batches = chunk.records.batches().to_vec();
            (!kept.is_empty()).then(|| Chunk::new(Rows::new(kept, batches)))
        });
        self.chunks = chunks.collect();
    }

    /// Forgets these partitions: the consumer no longer has them.
    pub(crate) fn revoke(&mut self, is_of: impl Fn(&TopicPartition) -> bool) {
        self.forget(&is_of);
        self.received.retain(|at, _| !is_of(at));
        let before = self.uncommitted.len();
        self.uncommitted.retain(|at, _| !is_of(at));
        self.is_torn |= self.uncommitted.len() < before;
    }
}

/// The offsets after the last record of each partition.
fn next_offsets(records: &[ConsumerRecord]) -> Offsets {
    let mut next = Offsets::new();
    for_each_run(records.iter().rev(), |record| {
        next.entry(record.topic_partition()).or_insert_with(|| record.next_offset());
    });
    next
}

/// Lowers the first offset of each partition to that of these records: a seek back returns earlier records later.
fn merge_first(first: &mut BTreeMap<TopicPartition, i64>, records: &[ConsumerRecord]) {
    for_each_run(records.iter(), |record| {
        let lowest = first.entry(record.topic_partition()).or_insert(record.offset());
        *lowest = record.offset().min(*lowest);
    });
}

/// Calls with the first record of each run of a partition's records. A partition's records are adjacent.
fn for_each_run<'a>(
    records: impl Iterator<Item = &'a ConsumerRecord>,
    mut each: impl FnMut(&'a ConsumerRecord),
) {
    let mut last: Option<&ConsumerRecord> = None;
    for record in records {
        let is_same = |last: &ConsumerRecord| {
            last.partition() == record.partition() && last.topic() == record.topic()
        };
        if !last.is_some_and(is_same) {
            each(record);
        }
        last = Some(record);
    }
}
