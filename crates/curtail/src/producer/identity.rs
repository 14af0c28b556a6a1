//! The producer's identity for the brokers: the only place that knows its id and epoch.

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
use crate::{Error, ProducerConfig, runtime::Runtime};

/// Last version of Produce for which a partition must first be added to a transaction (KIP-890).
const LAST_PRODUCE_OF_V1: i16 = 11;

/// The producer's id and epoch.
pub(super) enum Identity {
    /// `enable.idempotence=false`: no id.
    None,
    /// Requested when the producer starts. Each partition counts its own epochs from there (decision 0004).
    Idempotent(Given),
    /// Assigned by the coordinator of the transactional id, with one epoch for all partitions (decision 0012).
    Transactional(Arc<Control>),
}

/// Identity of an idempotent producer without a transactional id.
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
    pub(super) fn new(config: &ProducerConfig, runtime: &Runtime) -> Self {
        match &config.transactional_id {
            Some(id) => Self::Transactional(Control::new(id, config, runtime.clone())),
            None if config.idempotence => Self::Idempotent(Given::new()),
            None => Self::None,
        }
    }

    /// Whether batches carry sequence numbers, and how their epoch may change.
    pub(super) fn sequenced(&self) -> Sequenced {
        match self {
            Self::None => Sequenced::Not,
            Self::Idempotent(_) => Sequenced::Idempotent,
            Self::Transactional(_) => Sequenced::Transactional,
        }
    }

    /// Returns the numbering of the partition's next batch. In a transaction this adds the partition, which has
    /// records to send.
    pub(super) fn stamps(&self, partition: &Partition, state: &mut PartitionState) -> Idempotence {
        match self {
            Self::None => Idempotence::Off,
            Self::Idempotent(given) => given.stamps(),
            Self::Transactional(_) if state.queue.is_drained() => Idempotence::Pending,
            Self::Transactional(control) => control.stamps(partition, state),
        }
    }

    /// Whether the id requested at the producer's start has not arrived.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Idempotent(given) if given.newest.load().is_none())
    }

    /// Stores a requested id.
    pub(super) fn arrived(&self, identity: ProducerIdentity) {
        if let Self::Idempotent(given) = self {
            // First: a partition that sees the id may exhaust its epochs.
            given.demand.arrived(identity.id);
            given.newest.store(Some(Arc::new(identity)));
        }
    }

    /// Records that a partition has exhausted the epochs of an id. Ignored unless it is the newest id.
    pub(super) fn is_spent(&self, id: i64) {
        if let Self::Idempotent(given) = self {
            given.demand.spent(id);
        }
    }

    /// Resolves when a new id is needed, because a partition has exhausted the epochs of the newest. Cancel safe.
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

    /// Returns the transactional id and version for a produce request, if this side supports `version`.
    pub(super) fn head(&self, version: i16) -> (Option<&str>, i16) {
        match self {
            Self::Transactional(control) if control.adds_partitions() => {
                (Some(control.id()), version.min(LAST_PRODUCE_OF_V1))
            }
            Self::Transactional(control) => (Some(control.id()), version),
            Self::None | Self::Idempotent(_) => (None, version),
        }
    }

    /// Records that a batch fails, before any other change to its partition.
    pub(super) fn batch_fails<C>(&self, batch: &Batch<C>, cause: &Error) {
        if let Self::Transactional(control) = self {
            control.batch_fails(batch.producer(), cause);
        }
    }
}
