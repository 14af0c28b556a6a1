//! The transactions that a cleaning passes: which batches were aborted, and which markers are still needed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use curtail_wire::records::{Batch, EndTxnMarker, RecordError};

use crate::log::transactions::{AbortedEntry, LogBatch};

/// Kafka's CleanedTransactionMetadata.
pub(super) struct CleanedTransactions {
    /// Aborted transactions that begin later, by first offset.
    ahead: VecDeque<AbortedEntry>,
    /// By producer id, the aborted transaction passed now, and whether it has a batch.
    aborted: BTreeMap<i64, (AbortedEntry, bool)>,
    /// Producers with a batch of a committed transaction whose marker has not been passed.
    committed: BTreeSet<i64>,
    /// Aborted transactions with batches, whose markers have been passed.
    retained: Vec<AbortedEntry>,
}

impl CleanedTransactions {
    pub(super) fn new(mut aborted: Vec<AbortedEntry>) -> Self {
        aborted.sort_by_key(|entry| entry.first_offset);
        Self {
            ahead: aborted.into(),
            aborted: BTreeMap::new(),
            committed: BTreeSet::new(),
            retained: Vec::new(),
        }
    }

    /// Passes the next batch. Returns whether it can be discarded: its transaction was aborted, or it is a
    /// marker of a transaction without batches.
    pub(super) fn read(&mut self, batch: &Batch) -> Result<bool, RecordError> {
        let header = &batch.header;
        while let Some(entry) = self.ahead.front().copied()
            && entry.first_offset <= header.last_offset()
        {
            self.ahead.pop_front();
            self.aborted.entry(entry.producer_id).or_insert((entry, false));
        }
        if header.is_control() {
            return self.read_marker(batch);
        }
        if !header.is_transactional() {
            return Ok(false);
        }
        if let Some((_, has_batch)) = self.aborted.get_mut(&header.producer_id) {
            *has_batch = true;
            return Ok(true);
        }
        self.committed.insert(header.producer_id);
        Ok(false)
    }

    fn read_marker(&mut self, batch: &Batch) -> Result<bool, RecordError> {
        let id = batch.header.producer_id;
        if batch.header.record_count == 0 {
            // An earlier cleaning has removed the marker.
            return Ok(true);
        }
        Ok(match LogBatch::of(batch)?.end.map(|end| end.marker) {
            Some(EndTxnMarker::Abort) => match self.aborted.remove(&id) {
                Some((entry, true)) => {
                    self.retained.push(entry);
                    false
                }
                _ => true,
            },
            Some(EndTxnMarker::Commit) => !self.committed.remove(&id),
            None => false,
        })
    }

    /// Returns the aborted transactions that readers still need, with markers since the last call.
    pub(super) fn take_retained(&mut self) -> Vec<AbortedEntry> {
        std::mem::take(&mut self.retained)
    }
}
