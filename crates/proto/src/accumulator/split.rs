//! Splits a batch: because it is too large for its topic (KAFKA-3995), or because one record is enough to try a leader.

use bytes::Bytes;
use curtail_wire::records::{
    self, BatchBuilder, DecompressLimit, Header, ProducerStamp, RecordData, RecordError,
    mark_transactional, stamp,
};

#[cfg(doc)]
use super::Take;
use super::{Batch, BatchPolicy, Order, PartitionQueue, numbering::sequence_after};

#[cfg(test)]
mod tests;

/// A batch's records in smaller batches, in order.
#[derive(Debug)]
pub struct Parts {
    parts: Vec<Part>,
    /// Upper bound on a part with several records, in bytes before compression.
    target: usize,
}

#[derive(Debug)]
struct Part {
    payload: Vec<u8>,
    records: u32,
}

/// Size of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Records in it.
    pub records: u32,
    /// Encoded bytes.
    pub bytes: usize,
}

impl Parts {
    /// Encodes the records of a batch again, in parts of `batch.size`, or of half the batch if it is no larger than
    /// that. A batch with several records gets several parts. Refused parts are split again, so that they fit any
    /// limit or hold a single record.
    ///
    /// # Errors
    /// The batch is not as this client encoded it.
    pub fn of<C>(batch: &Batch<C>, policy: &BatchPolicy) -> Result<Self, RecordError> {
        let whole = records::Batch::parse(batch.payload.clone())?;
        let mut sizing = BatchBuilder::new(Vec::new());
        each_record(&whole, |record| {
            sizing.append(record);
        })?;
        let size = sizing.len();
        let target = if size > policy.batch_size { policy.batch_size } else { size / 2 };
        let is_full = |part: &BatchBuilder, next: &RecordData<'_>| part.size_with(next) > target;
        Ok(Self { parts: encode(&whole, policy, is_full)?, target })
    }

    /// Splits a batch into its first record and the rest.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn first_alone<C>(batch: &Batch<C>, policy: &BatchPolicy) -> Result<Self, RecordError> {
        let whole = records::Batch::parse(batch.payload.clone())?;
        let mut is_first = true;
        let parts = encode(&whole, policy, |_, _| std::mem::take(&mut is_first))?;
        Ok(Self { parts, target: usize::MAX })
    }

    /// Returns the size of each part.
    pub fn shares(&self) -> impl ExactSizeIterator<Item = Share> + '_ {
        self.parts.iter().map(|part| Share { records: part.records, bytes: part.payload.len() })
    }
}

/// Encodes the records again. `is_full` says whether a part with records in it ends before the next record.
fn encode(
    whole: &records::Batch,
    policy: &BatchPolicy,
    mut is_full: impl FnMut(&BatchBuilder, &RecordData<'_>) -> bool,
) -> Result<Vec<Part>, RecordError> {
    let mut parts = Vec::new();
    let mut builder = BatchBuilder::new(Vec::new());
    let mut complete = |builder: BatchBuilder| {
        let records = builder.count();
        // Sealing cannot fail, as when the batch was sealed first.
        let sealed = builder.seal(&policy.compression, &mut Vec::new());
        let mut payload = sealed.expect("a valid compression level and a batch below 2 GiB");
        if whole.header.is_transactional() {
            mark_transactional(&mut payload);
        }
        parts.push(Part { payload, records });
    };
    each_record(whole, |record| {
        if builder.count() > 0 && is_full(&builder, record) {
            complete(std::mem::replace(&mut builder, BatchBuilder::new(Vec::new())));
        }
        builder.append(record);
    })?;
    complete(builder);
    Ok(parts)
}

fn each_record(
    batch: &records::Batch,
    mut each: impl FnMut(&RecordData<'_>),
) -> Result<(), RecordError> {
    let mut records = batch.records(&DecompressLimit::default())?;
    while let Some(record) = records.next_ref() {
        let record = record?;
        let headers: Vec<Header<'_>> =
            record.headers.map(|(key, value)| Header { key, value }).collect();
        each(&RecordData {
            key: record.key,
            value: record.value,
            headers: &headers,
            timestamp: record.timestamp,
        });
    }
    Ok(())
}

impl<C> PartitionQueue<C> {
    /// Reports the outcome of a batch in flight: it was refused for its size.
    ///
    /// The parts take its place, each with the sequence of its first record, and count as never sent. `divide` makes
    /// a handle for each of them. From here on no batch grows beyond their size. A returned batch must fail, as in
    /// [`Self::retry`].
    #[must_use]
    pub fn split(
        &mut self,
        batch: Batch<C>,
        parts: Parts,
        divide: impl FnOnce(C) -> Vec<C>,
    ) -> Option<Batch<C>> {
        let Some(work) = &mut self.work else { return Some(batch) };
        work.landed(batch.order);
        if work.has_no_way_back(&batch, self.numbering) {
            return Some(batch);
        }
        work.largest = work.largest.min(parts.target);
        let mut before = 0;
        for (part, completion) in parts.parts.into_iter().zip(divide(batch.completion)) {
            let Part { mut payload, records } = part;
            let own = batch.stamp.map(|stamp| behind(stamp, before));
            if let Some(own) = own {
                stamp(&mut payload, own);
            }
            work.comes_back(Batch {
                payload: Bytes::from(payload),
                records,
                created: batch.created,
                attempts: 0,
                first_taken: batch.first_taken,
                completion,
                order: Order { record: batch.order.record + before, ..batch.order },
                bound: batch.bound,
                stamp: own,
                sent: batch.sent,
                outcome_unknown: batch.outcome_unknown,
            });
            before += records;
        }
        None
    }
}

impl<C> PartitionQueue<C> {
    /// Puts back a batch that no broker has written ([`Take::Trial`]), as separate batches that are next in the queue.
    /// `divide` makes a handle for each of them.
    pub fn put_back(&mut self, batch: Batch<C>, parts: Parts, divide: impl FnOnce(C) -> Vec<C>) {
        let Batch { created, attempts, first_taken, completion, bound, .. } = batch;
        let parts = parts.parts.into_iter().zip(divide(completion));
        let parts = parts.map(|(part, completion)| {
            let (payload, records) = (Bytes::from(part.payload), part.records);
            let part = Batch::never_taken(payload, records, created, completion, bound);
            // It counts as never taken if brokers have refused it, too.
            Batch { attempts, first_taken, ..part }
        });
        let sealed = &mut self.work().sealed;
        let behind = std::mem::take(sealed);
        sealed.extend(parts.chain(behind));
    }
}

/// Returns the stamp of a part that begins `records` after the start of its batch.
fn behind(stamp: ProducerStamp, records: u32) -> ProducerStamp {
    if stamp == ProducerStamp::NONE {
        return stamp;
    }
    ProducerStamp { base_sequence: sequence_after(stamp.base_sequence, records), ..stamp }
}
