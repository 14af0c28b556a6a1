//! Sequences and epochs: each batch's sequence, and how a partition continues after a lost batch.

#[cfg(test)]
mod tests;

use bytes::BytesMut;
use curtail_wire::records::{ProducerStamp, mark_transactional, stamp};

use super::{Batch, Idempotence, Incarnation, PartitionQueue, ProducerIdentity};
use crate::plant::{Plant, planted};

/// The partition's position in its sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    pub(super) id: i64,
    pub(super) epoch: i16,
    pub(super) next_sequence: i32,
    /// Whether a sequence was lost, so that the next epoch begins when nothing is in flight.
    pub(super) has_gap: bool,
    /// The topic whose brokers know the producer id, because a batch was written there under it. A new producer id or
    /// topic is unknown; a new epoch is known as soon as the id is.
    pub(super) known_in: Option<Incarnation>,
}

impl Numbering {
    pub(super) fn new(identity: ProducerIdentity) -> Self {
        let ProducerIdentity { id, epoch } = identity;
        Self { id, epoch, next_sequence: 0, has_gap: false, known_in: None }
    }

    pub(super) fn identity(&self) -> ProducerIdentity {
        ProducerIdentity { id: self.id, epoch: self.epoch }
    }
}

/// A producer id whose epochs this partition has exhausted: brokers refuse a lower epoch than the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpentId(pub(super) i64);

impl<C> PartitionQueue<C> {
    /// Assigns the batch its sequence. A batch sent before keeps its sequence.
    pub(super) fn number(&mut self, batch: &mut Batch<C>, idempotence: Idempotence) {
        let renumbers = batch.outcome_unknown && planted(Plant::DoubtfulRenumbered);
        if batch.stamp.is_some() && !renumbers {
            return;
        }
        let new = match idempotence {
            Idempotence::As(identity) | Idempotence::Transaction(identity) => {
                let fresh = Numbering::new(identity);
                let numbering = self.numbering.get_or_insert(fresh);
                let is_transactional = matches!(idempotence, Idempotence::Transaction(_));
                if is_transactional && numbering.identity() != identity {
                    let known_in = numbering.known_in.filter(|_| numbering.id == identity.id);
                    *numbering = Numbering { known_in, ..fresh };
                }
                let base_sequence = numbering.next_sequence;
                numbering.next_sequence = sequence_after(base_sequence, batch.records);
                ProducerStamp {
                    producer_id: numbering.id,
                    producer_epoch: numbering.epoch,
                    base_sequence,
                }
            }
            Idempotence::Off | Idempotence::Pending => ProducerStamp::NONE,
        };
        // A buffer that a socket still holds is copied, never changed under it (compare CVE-2026-35554).
        let payload = std::mem::take(&mut batch.payload);
        let mut bytes = payload.try_into_mut().unwrap_or_else(|held| BytesMut::from(&held[..]));
        if matches!(idempotence, Idempotence::Transaction(_)) {
            mark_transactional(&mut bytes);
        }
        stamp(&mut bytes, new);
        batch.payload = bytes.freeze();
        batch.stamp = Some(new);
    }

    /// Whether a sequence was lost under this identity, so that no later batch can be written.
    pub(super) fn has_gap_under(&self, identity: ProducerIdentity) -> bool {
        self.numbering.is_some_and(|n| n.identity() == identity && n.has_gap)
    }

    /// Whether the next batch must wait for the next epoch, because its sequence or an earlier one is lost. The
    /// broker may refuse it under this epoch, and each further batch without an outcome delays the next epoch.
    pub(super) fn waits_for_next_epoch(&self) -> bool {
        self.numbering.is_some_and(|numbering| numbering.has_gap)
            && self.work.as_ref().is_some_and(|work| {
                work.again.front().is_none_or(|batch| batch.order >= work.gap_at)
            })
    }

    /// Restarts the sequence in the next epoch, after a lost sequence and with no batch in flight.
    ///
    /// For a producer without a transactional id the client bumps the epoch itself (KIP-360). Brokers keep the state
    /// of each partition apart, so this concerns the partition alone.
    ///
    /// Batches sent before the lost one may be in the log. They are retried under the old epoch first; the response
    /// shows their outcome.
    ///
    /// # Errors
    /// The id's epochs are exhausted, and `newest` is still this id.
    pub(super) fn begin_next_epoch(&mut self, newest: ProducerIdentity) -> Result<(), SpentId> {
        let (Some(numbering), Some(work)) = (&mut self.numbering, &mut self.work) else {
            return Ok(());
        };
        let gap_at = work.gap_at;
        let precedes = |batch: &Batch<C>| batch.order < gap_at;
        if !numbering.has_gap
            || !work.in_flight.is_empty()
            || work.again.front().is_some_and(precedes)
        {
            return Ok(());
        }
        *numbering = match numbering.epoch.checked_add(1) {
            Some(epoch) => Numbering { epoch, next_sequence: 0, has_gap: false, ..*numbering },
            None if planted(Plant::EpochReused) => {
                Numbering { next_sequence: 0, has_gap: false, ..*numbering }
            }
            None if newest.id != numbering.id => Numbering::new(newest),
            None => return Err(SpentId(numbering.id)),
        };
        for batch in &mut work.again {
            batch.stamp = None;
        }
        Ok(())
    }
}

/// Takes back the sequence of a batch that no broker has written. Returns false, without effect, if a later batch has a
/// sequence.
pub(super) fn take_back<C>(numbering: &mut Option<Numbering>, batch: &Batch<C>) -> bool {
    let (Some(numbering), Some((_, first))) = (numbering, batch.first_sequence()) else {
        return true;
    };
    let is_last = batch.producer() == Some(numbering.identity())
        && sequence_after(first, batch.records) == numbering.next_sequence;
    if is_last {
        numbering.next_sequence = first;
    }
    is_last
}

/// Returns the sequence after a batch. Sequences wrap from `i32::MAX` to 0.
pub(super) fn sequence_after(base: i32, records: u32) -> i32 {
    ((i64::from(base) + i64::from(records)) % (i64::from(i32::MAX) + 1)) as i32
}
