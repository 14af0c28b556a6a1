//! Sequences and epochs: the place of each batch in them, and how a partition goes on after one that was lost.

#[cfg(test)]
mod tests;

use bytes::BytesMut;
use curtail_wire::records::{ProducerStamp, mark_transactional, stamp};

use super::{Batch, Idempotence, Incarnation, PartitionQueue, ProducerIdentity};
use crate::plant::{Plant, planted};

/// Where the partition's sequence stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    pub(super) id: i64,
    pub(super) epoch: i16,
    pub(super) next_sequence: i32,
    /// Whether a sequence was lost, so that the next epoch begins when nothing is in flight.
    pub(super) has_gap: bool,
    /// The topic whose brokers know the producer id, because a batch was written there under it. A producer id or a topic
    /// that is new is unknown; a new epoch is known as soon as the id is.
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

/// A producer id of which a partition has used up the epochs: brokers refuse a lower one than the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpentId(pub(super) i64);

impl<C> PartitionQueue<C> {
    /// Gives a batch its place in the sequence. A batch sent before keeps the one it has.
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

    /// Whether a sequence was lost under this identity, so that what follows it can never be written.
    pub(super) fn has_gap_under(&self, identity: ProducerIdentity) -> bool {
        self.numbering.is_some_and(|n| n.identity() == identity && n.has_gap)
    }

    /// Whether the next batch comes after a sequence that is lost, or had it itself, and so has to wait for the next epoch.
    /// Under this epoch the broker may refuse it; and each further batch whose outcome is open delays the next epoch.
    pub(super) fn waits_for_next_epoch(&self) -> bool {
        self.numbering.is_some_and(|numbering| numbering.has_gap)
            && self.work.as_ref().is_some_and(|work| {
                work.again.front().is_none_or(|batch| batch.order >= work.gap_at)
            })
    }

    /// After a lost sequence and with nothing in flight, numbers start over in the next epoch. For a producer
    /// without a transactional id the client bumps the epoch itself (KIP-360), and brokers keep the state of each
    /// partition apart, so this concerns the partition alone.
    ///
    /// What was sent before the lost batch may be in the log: it is sent again under the old epoch first, which tells.
    ///
    /// # Errors
    /// The id has no next epoch, and `newest` is still this id.
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

/// Sequences wrap from `i32::MAX` to 0.
pub(super) fn sequence_after(base: i32, records: u32) -> i32 {
    ((i64::from(base) + i64::from(records)) % (i64::from(i32::MAX) + 1)) as i32
}
