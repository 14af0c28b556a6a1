//! Cache of the newest batches of a log.

use std::collections::VecDeque;

use bytes::Bytes;
use curtail_wire::records::BatchHeader;

use super::transactions::LogBatch;

#[derive(Debug)]
struct Cached {
    base_offset: i64,
    last_offset: i64,
    bytes: Bytes,
}

/// The last batches of a log, all of them up to its end.
#[derive(Debug)]
pub(super) struct TailCache {
    batches: VecDeque<Cached>,
    bytes: usize,
    limit: usize,
}

impl TailCache {
    pub(super) fn new(limit: usize) -> Self {
        Self { batches: VecDeque::new(), bytes: 0, limit }
    }

    /// Adds the next batch of the log. `bytes` should not share memory with anything larger.
    pub(super) fn push(&mut self, header: &BatchHeader, bytes: Bytes) {
        self.bytes += bytes.len();
        self.batches.push_back(Cached {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            bytes,
        });
        while self.bytes > self.limit {
            let Some(dropped) = self.batches.pop_front() else { break };
            self.bytes -= dropped.bytes.len();
        }
    }

    /// Adds copies of the last of these batches, as many as fit. `bytes` is part of a larger
    /// buffer, which must not be kept alive.
    pub(super) fn extend_copied(&mut self, appended: &[LogBatch], bytes: &[u8]) {
        let mut rest = bytes;
        for LogBatch { header, .. } in appended {
            let (batch, behind) = rest.split_at(header.size_in_bytes());
            if rest.len() <= self.limit {
                self.push(header, Bytes::copy_from_slice(batch));
            } else {
                self.clear();
            }
            rest = behind;
        }
    }

    fn clear(&mut self) {
        self.batches.clear();
        self.bytes = 0;
    }

    /// Removes the batches that contain `offset` or follow it.
    pub(super) fn truncate_to(&mut self, offset: i64) {
        let keep = self.batches.partition_point(|batch| batch.last_offset < offset);
        let dropped: usize = self.batches.drain(keep..).map(|batch| batch.bytes.len()).sum();
        self.bytes -= dropped;
    }

    /// Removes the batches that end before `offset`.
    pub(super) fn drop_before(&mut self, offset: i64) {
        let dropped = self.batches.partition_point(|batch| batch.last_offset < offset);
        self.bytes -= self.batches.drain(..dropped).map(|batch| batch.bytes.len()).sum::<usize>();
    }

    /// Returns the batches starting with the first one that ends at or after `from`, as
    /// [`super::PartitionLog::read`] does. `None` if some of them are not cached.
    pub(super) fn read(
        &self,
        from: i64,
        max_bytes: usize,
        up_to: i64,
        min_one_batch: bool,
    ) -> Option<Bytes> {
        if self.batches.front()?.base_offset > from {
            return None;
        }
        let first = self.batches.partition_point(|batch| batch.last_offset < from);
        let wanted = self.batches.range(first..).take_while(|batch| batch.last_offset < up_to);
        let mut count = 0;
        let mut size = 0_usize;
        for batch in wanted {
            let larger = size + batch.bytes.len();
            if larger > max_bytes && !(count == 0 && min_one_batch) {
                break;
            }
            size = larger;
            count += 1;
        }
        match count {
            0 => Some(Bytes::new()),
            1 => Some(self.batches[first].bytes.clone()),
            _ => {
                let mut joined = Vec::with_capacity(size);
                let parts = self.batches.range(first..first + count);
                parts.for_each(|batch| joined.extend_from_slice(&batch.bytes));
                Some(joined.into())
            }
        }
    }
}
