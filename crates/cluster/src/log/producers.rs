//! What a log remembers of idempotent producers (KIP-98), to refuse what is out of order and to recognise what
//! it has already.
//!
//! The rules are those of Kafka's broker: a batch equal in sequence numbers to one of the last five of its
//! producer and epoch is a duplicate; anything else must continue the sequence, or start a new epoch at 0. A
//! duplicate older than the five cannot be told from a gap and is out of order (DUPLICATE_SEQUENCE_NUMBER is
//! no longer sent by brokers).

use std::collections::{BTreeMap, VecDeque};

use curtail_wire::ErrorCode;
use curtail_wire::records::BatchHeader;

use super::AppendError;

/// Batches remembered for each producer: as many as a producer may have in flight.
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
        // Wrapped inside of the batch: sequences are counted modulo 2^31.
        if base < 0 { (base + (1 << 31)) as i32 } else { base as i32 }
    }
}

/// One producer, by the epoch of its latest batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Producer {
    epoch: i16,
    batches: VecDeque<BatchMeta>,
    last_timestamp: i64,
}

/// All producers known to a log, by their id.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Producers {
    by_id: BTreeMap<i64, Producer>,
}

impl Producers {
    /// Decides whether a client's batch may be appended: `Some` is the earlier append of the same batch.
    pub(super) fn check(&self, header: &BatchHeader) -> Result<Option<BatchMeta>, AppendError> {
        if header.producer_id < 0 {
            return Ok(None);
        }
        let Some(producer) = self.by_id.get(&header.producer_id) else { return Ok(None) };
        if let Some(earlier) = producer.find_duplicate(header) {
            return Ok(Some(earlier));
        }
        if header.producer_epoch < producer.epoch {
            return Err(AppendError::new(
                ErrorCode::INVALID_PRODUCER_EPOCH,
                format!(
                    "epoch {} of producer {} is older than its latest, {}",
                    header.producer_epoch, header.producer_id, producer.epoch
                ),
            ));
        }
        let last = producer.batches.back().map_or(NO_SEQUENCE, |batch| batch.last_sequence);
        let expected = match (header.producer_epoch > producer.epoch, last) {
            (true, _) | (false, i32::MAX) => 0,
            (false, last) => last + 1,
        };
        if header.base_sequence == expected {
            return Ok(None);
        }
        Err(AppendError::new(
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
            format!(
                "sequence {} of producer {} epoch {} where {expected} comes next",
                header.base_sequence, header.producer_id, header.producer_epoch
            ),
        ))
    }

    /// Takes note of an appended batch, whose offsets are final.
    pub(super) fn update(&mut self, header: &BatchHeader) {
        if header.producer_id < 0 {
            return;
        }
        let producer = self.by_id.entry(header.producer_id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            batches: VecDeque::with_capacity(WINDOW),
            last_timestamp: header.max_timestamp,
        });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        producer.last_timestamp = header.max_timestamp;
        // Markers carry no sequence numbers.
        if header.is_control() || header.base_sequence < 0 {
            return;
        }
        if producer.batches.len() == WINDOW {
            producer.batches.pop_front();
        }
        producer.batches.push_back(BatchMeta {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        });
    }

    /// Forgets producers that have been silent for `after_ms`; returns how many.
    pub(super) fn expire(&mut self, now_ms: i64, after_ms: i64) -> usize {
        let before = self.by_id.len();
        self.by_id.retain(|_, producer| now_ms.saturating_sub(producer.last_timestamp) < after_ms);
        before - self.by_id.len()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Encodes the last batch of every producer as Kafka does (its ProducerSnapshot, version 1).
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
            // No coordinator epoch and no open transaction.
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            out.extend_from_slice(&(-1_i64).to_be_bytes());
        }
        let crc = crc32c::crc32c(&out[SNAPSHOT_HEAD..]);
        out[2..SNAPSHOT_HEAD].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Decodes a snapshot; `None` when it is damaged or of another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
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
        let by_id = entries.chunks(SNAPSHOT_ENTRY).map(decode_entry).collect::<Option<_>>()?;
        Some(Self { by_id })
    }
}

fn decode_entry(bytes: &[u8]) -> Option<(i64, Producer)> {
    let (id, rest) = bytes.split_first_chunk()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let (last_sequence, rest) = rest.split_first_chunk()?;
    let (last_offset, rest) = rest.split_first_chunk()?;
    let (offset_delta, rest) = rest.split_first_chunk()?;
    let (timestamp, _) = rest.split_first_chunk()?;
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
    };
    Some((i64::from_be_bytes(*id), producer))
}

impl Producer {
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
