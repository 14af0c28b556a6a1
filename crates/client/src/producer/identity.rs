//! Who the producer is to the brokers: the one place that knows its id and epoch.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use curtail_proto::{
    accumulator::{Batch, Idempotence, ProducerIdentity},
    classify::Sequenced,
};

use super::{
    demand::Demand,
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
    /// Given when the producer starts. Each partition counts epochs of its own from there (decision 0004).
    Idempotent(Given),
    /// Given by the coordinator of the transactional id, with one epoch for all partitions (decision 0012).
    Transactional(Arc<Control>),
}

/// Of an idempotent producer without a transactional id.
pub(super) struct Given {
    newest: ArcSwapOption<ProducerIdentity>,
    demand: Demand,
}

impl Given {
    fn new() -> Self {
        Self { newest: ArcSwapOption::empty(), demand: Demand::new() }
    }

    fn stamps(&self) -> Idempotence {
        self.newest
            .load()
            .as_deref()
            .map_or(Idempotence::Pending, |&newest| Idempotence::As(newest))
    }
}

impl Identity {
    pub(super) fn new(config: &ProducerConfig) -> Self {
        match &config.transactional_id {
            Some(id) => Self::Transactional(Control::new(id, config)),
            None if config.idempotence => Self::Idempotent(Given::new()),
            None => Self::None,
        }
    }

    /// Whether batches carry a sequence, and who may change their epoch.
    pub(super) fn sequenced(&self) -> Sequenced {
        match self {
            Self::None => Sequenced::Not,
            Self::Idempotent(_) => Sequenced::Idempotent,
            Self::Transactional(_) => Sequenced::Transactional,
        }
    }

    /// How the next batch of the partition is numbered. In a transaction this is where a partition joins it: the
    /// partition has something to send.
    pub(super) fn stamps(&self, partition: &Partition, state: &mut PartitionState) -> Idempotence {
        match self {
            Self::None => Idempotence::Off,
            Self::Idempotent(given) => given.stamps(),
            Self::Transactional(_) if state.queue.is_drained() => Idempotence::Pending,
            Self::Transactional(control) => control.stamps(partition, state),
        }
    }

    /// Whether an id that is asked for as soon as the producer starts has not arrived.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Idempotent(given) if given.newest.load().is_none())
    }

    /// Takes an id that was asked for.
    pub(super) fn arrived(&self, identity: ProducerIdentity) {
        if let Self::Idempotent(given) = self {
            // First: a partition that sees the id may have exhausted it.
            given.demand.arrived(identity.id);
            given.newest.store(Some(Arc::new(identity)));
        }
    }

    /// A partition has used up the epochs of an id. If that is no longer the newest, there is one already.
    pub(super) fn is_spent(&self, id: i64) {
        if let Self::Idempotent(given) = self {
            given.demand.spent(id);
        }
    }

    /// Ends when another id has to be asked for: one was given, and its epochs are used up. Cancel safe.
    pub(super) async fn until_another_is_needed(&self) {
        match self {
            Self::Idempotent(given) => given.demand.until_spent().await,
            Self::None | Self::Transactional(_) => std::future::pending().await,
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
