//! Who the producer is to the brokers: the one place that knows its id and epoch.

use std::sync::{Arc, OnceLock};

use curtail_proto::accumulator::{Batch, Idempotence, ProducerIdentity};

use super::{
    partition::{Partition, PartitionState},
    transaction::Control,
};
use crate::{Error, ProducerConfig};

/// The highest version of Produce in which a partition has to be added to a transaction first (KIP-890).
const LAST_PRODUCE_OF_V1: i16 = 11;

/// The producer's id and epoch.
pub(super) enum Identity {
    /// `enable.idempotence=false`: it has none.
    None,
    /// Given once. Each partition counts epochs of its own from there (decision 0004).
    Idempotent(OnceLock<ProducerIdentity>),
    /// Given by the coordinator of the transactional id, with one epoch for all partitions (decision 0012).
    Transactional(Arc<Control>),
}

impl Identity {
    pub(super) fn new(config: &ProducerConfig) -> Self {
        match &config.transactional_id {
            Some(id) => Self::Transactional(Control::new(id, config)),
            None if config.idempotence => Self::Idempotent(OnceLock::new()),
            None => Self::None,
        }
    }

    /// How the next batch of the partition is numbered. In a transaction this is where a partition joins it: the
    /// partition has something to send.
    pub(super) fn stamps(&self, partition: &Partition, state: &mut PartitionState) -> Idempotence {
        match self {
            Self::None => Idempotence::Off,
            Self::Idempotent(identity) => {
                identity.get().map_or(Idempotence::Pending, |&identity| Idempotence::As(identity))
            }
            Self::Transactional(_) if state.queue.is_drained() => Idempotence::Pending,
            Self::Transactional(control) => control.stamps(partition, state),
        }
    }

    /// Whether batches of any partition may have to wait for the producer's id, or for a coordinator.
    pub(super) fn may_hold_back(&self) -> bool {
        match self {
            Self::None => false,
            Self::Idempotent(identity) => identity.get().is_none(),
            Self::Transactional(_) => true,
        }
    }

    /// Whether an id that is asked for as soon as the producer starts has not arrived.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Idempotent(identity) if identity.get().is_none())
    }

    /// Takes the id that was asked for when the producer started.
    pub(super) fn arrived(&self, identity: ProducerIdentity) {
        if let Self::Idempotent(place) = self {
            // It is asked for once, and so arrives once.
            let _ = place.set(identity);
        }
    }

    /// The control of transactions, for a transactional producer.
    pub(super) fn control(&self) -> Option<&Arc<Control>> {
        match self {
            Self::Transactional(control) => Some(control),
            Self::None | Self::Idempotent(_) => None,
        }
    }

    /// For the head of a produce request: the transactional id, and the version where this side speaks `version`.
    pub(super) fn head(&self, version: i16) -> (Option<&str>, i16) {
        match self {
            Self::Transactional(control) if control.adds_partitions() => {
                (Some(control.id()), version.min(LAST_PRODUCE_OF_V1))
            }
            Self::Transactional(control) => (Some(control.id()), version),
            Self::None | Self::Idempotent(_) => (None, version),
        }
    }

    /// Takes note, before anything else happens to its partition, that a batch fails.
    pub(super) fn batch_fails<C>(&self, batch: &Batch<C>, cause: &Error) {
        if let Self::Transactional(control) = self {
            control.batch_fails(batch.producer(), cause);
        }
    }
}
