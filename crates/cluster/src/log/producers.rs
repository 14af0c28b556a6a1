//! The state of idempotent and transactional producers in a log (KIP-98). It detects duplicates and
//! refuses batches out of order or outside a transaction.
//!
//! The rules are those of Kafka's broker:
//!
//! - A batch with the sequence numbers of one of the last five batches of its producer and epoch is
//!   a duplicate. Any other batch must continue the sequence, or start a new epoch at 0.
//! - A duplicate older than the five is indistinguishable from a gap, so it is out of order.
//!   Brokers no longer send DUPLICATE_SEQUENCE_NUMBER.
//! - A transactional batch begins a transaction only after verification with the coordinator
//!   (KIP-890). Until the marker that ends the transaction, the producer appends nothing else.
//! - A marker with a higher epoch fences the previous epoch and restarts the sequence. A marker
//!   from an older coordinator is refused.

use std::collections::{BTreeMap, VecDeque};

use curtail_wire::ErrorCode;
use curtail_wire::records::BatchHeader;

use super::files::{SnapshotBatch, SnapshotProducer};
use super::transactions::{CompletedTxn, EndTxn, LogBatch, Transactions, Verifications};
use super::{AppendError, VerificationGuard};

/// Batches kept per producer: as many as a producer may have in flight.
const WINDOW: usize = 5;

const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_HEAD: usize = 6;
const SNAPSHOT_ENTRY: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;
const NO_SEQUENCE: i32 = -1;

/// A batch that a producer has appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchMeta {
    last_sequence: i32,
    pub(super) last_offset: i64,
    offset_delta: i32,
    pub(super) timestamp: i64,
}

impl BatchMeta {
    pub(super) fn base_offset(self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }

    fn base_sequence(self) -> i32 {
        let base = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        // Wrapped within the batch: sequence numbers count modulo 2^31.
        if base < 0 { (base + (1 << 31)) as i32 } else { base as i32 }
    }
}

/// One producer, with the epoch of its latest batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Producer {
    epoch: i16,
    batches: VecDeque<BatchMeta>,
    last_timestamp: i64,
    /// The epoch of the coordinator that sent the last marker; -1 before the first one.
    coordinator_epoch: i32,
    /// First offset of the open transaction.
    open_since: Option<i64>,
}

/// All producers of a log, by id, and their transactions.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Producers {
    by_id: BTreeMap<i64, Producer>,
    pub(super) transactions: Transactions,
}

/// The state of a producer in [`super::PartitionLog::active_producers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveProducer {
    /// The producer id.
    pub id: i64,
    /// The epoch of its last batch or marker.
    pub epoch: i16,
    /// The last sequence number in that epoch; -1 for none.
    pub last_sequence: i32,
    /// Timestamp of its last batch or marker in ms.
    pub last_timestamp: i64,
    /// Epoch of the coordinator that sent the last marker; -1 for none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction; -1 for none.
    pub open_since: i64,
}

/// The last batch of a producer. Compaction keeps it, so that the producer's state is not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastBatch {
    pub(super) epoch: i16,
    /// Last offset of the batch; `None` if the producer has only ended transactions in this epoch.
    pub(super) last_offset: Option<i64>,
}

/// The last batches by producer id.
pub(super) type LastBatches = BTreeMap<i64, LastBatch>;

/// The sender of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A producer: its batches have sequence numbers.
    Client,
    /// A coordinator, on behalf of a transaction: its batches have no sequence numbers.
    Coordinator,
}

impl Producers {
    /// Decides whether a batch may be appended. `Some` is the earlier append of the same batch.
    pub(super) fn check(
        &self,
        header: &BatchHeader,
        origin: Origin,
        guard: Option<VerificationGuard>,
        verifications: &Verifications,
    ) -> Result<Option<BatchMeta>, AppendError> {
        let id = header.producer_id;
        if id < 0 {
            return Ok(None);
        }
        let producer = self.by_id.get(&id);
        let earlier = producer.and_then(|producer| producer.find_duplicate(header));
        if origin == Origin::Client && earlier.is_some() {
            return Ok(earlier);
        }
        if header.is_transactional()
            && !self.has_open(id, header.producer_epoch)
            && !verifications.holds(id, guard)
        {
            let message = format!("producer {id} has no transaction with this partition");
            return Err(AppendError::new(ErrorCode::INVALID_TXN_STATE, message));
        }
        if let Some(producer) = producer {
            producer.check_epoch(id, header.producer_epoch)?;
        }
        if origin == Origin::Client {
            if let Some(lowest) = verifications.lowest_sequence(id)
                && header.base_sequence > lowest
            {
                return Err(out_of_order(header, lowest));
            }
            if let Some(producer) = producer {
                producer.check_sequence(header)?;
            }
        }
        if !header.is_transactional() && producer.is_some_and(|p| p.open_since.is_some()) {
            let message = format!("producer {id} has an open transaction, and this is not of it");
            return Err(AppendError::new(ErrorCode::INVALID_TXN_STATE, message));
        }
        Ok(None)
    }

    /// Returns whether a producer has an open transaction in this epoch.
    pub(super) fn has_open(&self, id: i64, epoch: i16) -> bool {
        self.by_id.get(&id).is_some_and(|p| p.epoch == epoch && p.open_since.is_some())
    }

    /// Decides whether a marker may be appended. With `bumped` each transaction has a separate
    /// epoch, and its marker the next one (KIP-890). A marker with the epoch of an open transaction
    /// therefore belongs to an earlier one.
    pub(super) fn check_marker(
        &self,
        id: i64,
        epoch: i16,
        coordinator_epoch: i32,
        bumped: bool,
    ) -> Result<(), AppendError> {
        let Some(producer) = self.by_id.get(&id) else { return Ok(()) };
        producer.check_epoch(id, epoch)?;
        if bumped && self.has_open(id, epoch) {
            let message = format!("a marker of producer {id} came after the transaction's end");
            return Err(AppendError::new(ErrorCode::INVALID_PRODUCER_EPOCH, message));
        }
        if coordinator_epoch < producer.coordinator_epoch {
            let message = format!(
                "coordinator epoch {coordinator_epoch} is older than {} for producer {id}",
                producer.coordinator_epoch
            );
            return Err(AppendError::new(ErrorCode::TRANSACTION_COORDINATOR_FENCED, message));
        }
        Ok(())
    }

    /// Updates the state with an appended batch, whose offsets are final. Returns the transaction
    /// that it ends, and the resulting last stable offset.
    pub(super) fn update(&mut self, batch: &LogBatch) -> Option<(CompletedTxn, i64)> {
        let header = &batch.header;
        let id = header.producer_id;
        if id < 0 {
            return None;
        }
        let producer = self.by_id.entry(id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            batches: VecDeque::with_capacity(WINDOW),
            last_timestamp: header.max_timestamp,
            coordinator_epoch: -1,
            open_since: None,
        });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        producer.last_timestamp = header.max_timestamp;
        if let Some(EndTxn { marker, coordinator_epoch }) = batch.end {
            producer.coordinator_epoch = coordinator_epoch;
            let first_offset = producer.open_since.take()?;
            let last_offset = header.base_offset;
            let txn = CompletedTxn { producer_id: id, first_offset, last_offset, marker };
            let last_stable = self.transactions.complete(&txn);
            return Some((txn, last_stable));
        }
        if header.is_control() {
            return None;
        }
        if header.is_transactional() && producer.open_since.is_none() {
            producer.open_since = Some(header.base_offset);
            self.transactions.begin(header.base_offset, id);
        }
        // Batches from coordinators have no sequence numbers.
        if header.base_sequence >= 0 {
            producer.remember(header);
        }
        None
    }

    /// Returns the state of each producer.
    pub(super) fn active(&self) -> impl Iterator<Item = ActiveProducer> {
        self.by_id.iter().map(|(id, p)| ActiveProducer {
            id: *id,
            epoch: p.epoch,
            last_sequence: p.last_sequence(),
            last_timestamp: p.last_timestamp,
            coordinator_epoch: p.coordinator_epoch,
            open_since: p.open_since.unwrap_or(-1),
        })
    }

    /// Returns the last batch of each producer.
    pub(super) fn last_batches(&self) -> LastBatches {
        let last = |producer: &Producer| LastBatch {
            epoch: producer.epoch,
            last_offset: producer.batches.back().map(|batch| batch.last_offset),
        };
        self.by_id.iter().map(|(id, producer)| (*id, last(producer))).collect()
    }

    /// Removes producers that have been inactive for `after_ms` outside a transaction. Returns
    /// their number.
    pub(super) fn expire(&mut self, now_ms: i64, after_ms: i64) -> usize {
        let before = self.by_id.len();
        let recent = |p: &Producer| now_ms.saturating_sub(p.last_timestamp) < after_ms;
        self.by_id.retain(|_, producer| producer.open_since.is_some() || recent(producer));
        before - self.by_id.len()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Encodes the last batch and the open transaction of every producer in Kafka's format
    /// (ProducerSnapshot, version 1).
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SNAPSHOT_HEAD + 4 + self.by_id.len() * SNAPSHOT_ENTRY);
        out.extend_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.by_id.len() as u32).to_be_bytes());
        for (id, producer) in &self.by_id {
            let none =
                BatchMeta { last_sequence: -1, last_offset: -1, offset_delta: 0, timestamp: -1 };
            let last = producer.batches.back().copied().unwrap_or(none);
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&producer.epoch.to_be_bytes());
            out.extend_from_slice(&last.last_sequence.to_be_bytes());
            out.extend_from_slice(&last.last_offset.to_be_bytes());
            out.extend_from_slice(&last.offset_delta.to_be_bytes());
            out.extend_from_slice(&producer.last_timestamp.to_be_bytes());
            out.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
            out.extend_from_slice(&producer.open_since.unwrap_or(-1).to_be_bytes());
        }
        let crc = crc32c::crc32c(&out[SNAPSHOT_HEAD..]);
        out[2..SNAPSHOT_HEAD].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Decodes a snapshot; `None` if it is damaged or of another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let by_id: BTreeMap<i64, Producer> = decode_entries(bytes)?.into_iter().collect();
        let mut transactions = Transactions::default();
        for (id, producer) in &by_id {
            if let Some(first) = producer.open_since {
                transactions.begin(first, *id);
            }
        }
        Some(Self { by_id, transactions })
    }
}

/// The producers of a snapshot in their order there; `None` if it is damaged or of another version.
pub(super) fn decode_snapshot(bytes: &[u8]) -> Option<Vec<SnapshotProducer>> {
    let one = |(id, producer): (i64, Producer)| SnapshotProducer {
        id,
        epoch: producer.epoch,
        coordinator_epoch: producer.coordinator_epoch,
        open_since: producer.open_since,
        last_timestamp: producer.last_timestamp,
        last_batch: producer.batches.back().map(|batch| SnapshotBatch {
            first_sequence: batch.base_sequence(),
            last_sequence: batch.last_sequence,
            last_offset: batch.last_offset,
            offset_delta: batch.offset_delta,
            timestamp: batch.timestamp,
        }),
    };
    Some(decode_entries(bytes)?.into_iter().map(one).collect())
}

fn decode_entries(bytes: &[u8]) -> Option<Vec<(i64, Producer)>> {
    let (version, rest) = bytes.split_first_chunk()?;
    let (crc, body) = rest.split_first_chunk()?;
    if i16::from_be_bytes(*version) != SNAPSHOT_VERSION
        || u32::from_be_bytes(*crc) != crc32c::crc32c(body)
    {
        return None;
    }
    let (count, entries) = body.split_first_chunk()?;
    if u32::from_be_bytes(*count) as usize * SNAPSHOT_ENTRY != entries.len() {
        return None;
    }
    entries.chunks(SNAPSHOT_ENTRY).map(decode_entry).collect()
}

fn decode_entry(bytes: &[u8]) -> Option<(i64, Producer)> {
    let (id, rest) = bytes.split_first_chunk()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let (last_sequence, rest) = rest.split_first_chunk()?;
    let (last_offset, rest) = rest.split_first_chunk()?;
    let (offset_delta, rest) = rest.split_first_chunk()?;
    let (timestamp, rest) = rest.split_first_chunk()?;
    let (coordinator_epoch, rest) = rest.split_first_chunk()?;
    let (open_since, _) = rest.split_first_chunk()?;
    let open_since = i64::from_be_bytes(*open_since);
    let last = BatchMeta {
        last_sequence: i32::from_be_bytes(*last_sequence),
        last_offset: i64::from_be_bytes(*last_offset),
        offset_delta: i32::from_be_bytes(*offset_delta),
        timestamp: i64::from_be_bytes(*timestamp),
    };
    let producer = Producer {
        epoch: i16::from_be_bytes(*epoch),
        batches: (last.last_offset >= 0).then_some(last).into_iter().collect(),
        last_timestamp: last.timestamp,
        coordinator_epoch: i32::from_be_bytes(*coordinator_epoch),
        open_since: (open_since >= 0).then_some(open_since),
    };
    Some((i64::from_be_bytes(*id), producer))
}

fn out_of_order(header: &BatchHeader, expected: i32) -> AppendError {
    AppendError::new(
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        format!(
            "sequence {} of producer {} epoch {}, expected {expected}",
            header.base_sequence, header.producer_id, header.producer_epoch
        ),
    )
}

impl Producer {
    fn last_sequence(&self) -> i32 {
        self.batches.back().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    fn check_epoch(&self, id: i64, epoch: i16) -> Result<(), AppendError> {
        if epoch >= self.epoch {
            return Ok(());
        }
        let message =
            format!("epoch {epoch} of producer {id} is older than its latest, {}", self.epoch);
        Err(AppendError::new(ErrorCode::INVALID_PRODUCER_EPOCH, message))
    }

    fn check_sequence(&self, header: &BatchHeader) -> Result<(), AppendError> {
        let expected = match (header.producer_epoch > self.epoch, self.last_sequence()) {
            (true, _) | (false, i32::MAX) => 0,
            (false, last) => last + 1,
        };
        if header.base_sequence == expected {
            return Ok(());
        }
        Err(out_of_order(header, expected))
    }

    fn remember(&mut self, header: &BatchHeader) {
        if self.batches.len() == WINDOW {
            self.batches.pop_front();
        }
        self.batches.push_back(BatchMeta {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        });
    }

    fn find_duplicate(&self, header: &BatchHeader) -> Option<BatchMeta> {
        if header.producer_epoch != self.epoch {
            return None;
        }
        let same = |batch: &&BatchMeta| {
            batch.base_sequence() == header.base_sequence
                && batch.last_sequence == header.last_sequence()
        };
        self.batches.iter().find(same).copied()
    }
}
