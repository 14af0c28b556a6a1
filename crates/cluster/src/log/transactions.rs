//! The transactions in a log (KIP-98): the open ones, the last stable offset, and the aborted ones.

use std::collections::BTreeMap;

use curtail_wire::records::{
    Batch, BatchHeader, ControlRecord, DecompressLimit, EndTxnMarker, RecordError,
};

use super::index::Entry;

/// The marker of a control batch, which ends a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EndTxn {
    pub(super) marker: EndTxnMarker,
    pub(super) coordinator_epoch: i32,
}

/// The part of a batch that the state of producers and transactions depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogBatch {
    pub(super) header: BatchHeader,
    /// The marker of a control batch that ends a transaction.
    pub(super) end: Option<EndTxn>,
}

impl LogBatch {
    /// Parses a control batch, whose checksum has been verified. For other batches the header
    /// suffices.
    pub(super) fn of(batch: &Batch) -> Result<Self, RecordError> {
        let header = batch.header;
        if !header.is_control() {
            return Ok(Self { header, end: None });
        }
        let limit = DecompressLimit::default();
        let mut records = batch.records(&limit)?;
        // Compaction leaves control batches without records.
        let Some(record) = records.next_ref() else { return Ok(Self { header, end: None }) };
        let record = record?;
        let end = match ControlRecord::parse(record.key, record.value)? {
            ControlRecord::EndTxn { marker, coordinator_epoch } => {
                Some(EndTxn { marker, coordinator_epoch })
            }
            ControlRecord::LeaderChange | ControlRecord::Other(_) => None,
        };
        Ok(Self { header, end })
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        self.header.size_in_bytes()
    }
}

/// A transaction that a marker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompletedTxn {
    pub(super) producer_id: i64,
    pub(super) first_offset: i64,
    /// Offset of the marker.
    pub(super) last_offset: i64,
    pub(super) marker: EndTxnMarker,
}

/// The transactions that are still unstable for some readers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Transactions {
    /// Open transactions: producer ids by first offset.
    open: BTreeMap<i64, i64>,
    /// Ended transactions whose marker is not known to be committed: offsets of markers by first
    /// offset.
    ended: BTreeMap<i64, i64>,
}

impl Transactions {
    pub(super) fn begin(&mut self, first_offset: i64, producer_id: i64) {
        self.open.insert(first_offset, producer_id);
    }

    /// Records a transaction's end. Returns the last stable offset that follows once the marker is
    /// committed.
    pub(super) fn complete(&mut self, txn: &CompletedTxn) -> i64 {
        self.open.remove(&txn.first_offset);
        self.ended.insert(txn.first_offset, txn.last_offset);
        self.open.first_key_value().map_or(txn.last_offset + 1, |(first, _)| *first)
    }

    /// Whether a transaction is open.
    pub(super) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Records that everything below `high_watermark` is committed.
    pub(super) fn committed_to(&mut self, high_watermark: i64) {
        self.ended.retain(|_, marker| *marker >= high_watermark);
    }

    /// Returns the first offset in an open transaction, or in one whose marker is not known to be
    /// committed.
    pub(super) fn first_unstable(&self) -> Option<i64> {
        let first = |map: &BTreeMap<i64, i64>| map.first_key_value().map(|(first, _)| *first);
        match (first(&self.open), first(&self.ended)) {
            (Some(open), Some(ended)) => Some(open.min(ended)),
            (open, ended) => open.or(ended),
        }
    }
}

/// An entry of a segment's index of aborted transactions (`.txnindex`), in Kafka's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AbortedEntry {
    pub(super) producer_id: i64,
    pub(super) first_offset: i64,
    /// Offset of the marker.
    pub(super) last_offset: i64,
    /// The last stable offset after the abort: later entries begin at or after it.
    pub(super) last_stable_offset: i64,
}

impl AbortedEntry {
    const VERSION: i16 = 0;
}

impl Entry for AbortedEntry {
    const SIZE: usize = 2 + 4 * 8;
    const MAY_BE_MISSING: bool = true;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&Self::VERSION.to_be_bytes());
        for number in
            [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset]
        {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (producer_id, rest) = rest.split_first_chunk()?;
        let (first_offset, rest) = rest.split_first_chunk()?;
        let (last_offset, rest) = rest.split_first_chunk()?;
        let (last_stable_offset, _) = rest.split_first_chunk()?;
        (i16::from_be_bytes(*version) == Self::VERSION).then_some(Self {
            producer_id: i64::from_be_bytes(*producer_id),
            first_offset: i64::from_be_bytes(*first_offset),
            last_offset: i64::from_be_bytes(*last_offset),
            last_stable_offset: i64::from_be_bytes(*last_stable_offset),
        })
    }

    fn precedes(self, next: Self) -> bool {
        self.last_offset < next.last_offset
    }
}

/// A proof that the coordinator has verified the partition as part of a producer's transaction. It
/// is valid until the producer's next append or marker (KIP-890).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerificationGuard(u64);

#[derive(Debug)]
struct Verification {
    guard: u64,
    epoch: i16,
    /// The sequence number that must come first. If a later batch were appended before an earlier
    /// one, the earlier one would always be refused.
    lowest_sequence: i32,
    begun_ms: i64,
}

/// The verifications in progress, by producer id.
#[derive(Debug, Default)]
pub(super) struct Verifications {
    last: u64,
    by_producer: BTreeMap<i64, Verification>,
}

impl Verifications {
    /// Begins or joins the verification of a producer's first batch in a transaction.
    pub(super) fn begin(&mut self, header: &BatchHeader, now_ms: i64) -> VerificationGuard {
        let (epoch, sequence) = (header.producer_epoch, header.base_sequence);
        let entry = self.by_producer.entry(header.producer_id).or_insert_with(|| {
            self.last += 1;
            let guard = self.last;
            Verification { guard, epoch, lowest_sequence: sequence, begun_ms: now_ms }
        });
        if epoch > entry.epoch {
            (entry.epoch, entry.lowest_sequence) = (epoch, sequence);
        } else if epoch == entry.epoch {
            entry.lowest_sequence = entry.lowest_sequence.min(sequence);
        }
        VerificationGuard(entry.guard)
    }

    pub(super) fn holds(&self, producer_id: i64, guard: Option<VerificationGuard>) -> bool {
        let known = self.by_producer.get(&producer_id).map(|entry| entry.guard);
        known.is_some() && known == guard.map(|guard| guard.0)
    }

    /// Returns the lowest sequence number seen in the verification in progress.
    pub(super) fn lowest_sequence(&self, producer_id: i64) -> Option<i32> {
        self.by_producer.get(&producer_id).map(|entry| entry.lowest_sequence)
    }

    pub(super) fn end(&mut self, producer_id: i64) {
        self.by_producer.remove(&producer_id);
    }

    pub(super) fn expire(&mut self, now_ms: i64, after_ms: i64) {
        self.by_producer.retain(|_, entry| now_ms.saturating_sub(entry.begun_ms) < after_ms);
    }

    pub(super) fn clear(&mut self) {
        self.by_producer.clear();
    }
}
