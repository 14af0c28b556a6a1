//! The states of one transactional id. Pure: the time and new producer ids are passed in, and every operation returns
//! what the id becomes, for the coordinator to write down first.
//!
//! Kafka's states, transitions and errors (KIP-98, KIP-360, KIP-890). With transaction version 2 every end of a
//! transaction gives the producer a new epoch, and what comes from an older one is told from it.

use std::collections::BTreeSet;

use curtail_wire::{ErrorCode, records::EndTxnMarker};

/// The last epoch of a producer id: only a fence may use it, so that one is always left.
const LAST_EPOCH: i16 = i16::MAX;
/// Before a transactional id's first epoch.
const NO_EPOCH: i16 = -1;
/// No producer id.
pub(super) const NO_ID: i64 = -1;

/// Where a transactional id is. [`Phase::id`] is its number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No transaction yet in this epoch.
    Empty,
    /// A transaction has partitions.
    Ongoing,
    /// It will be committed, whatever happens.
    PrepareCommit,
    /// It will be aborted, whatever happens.
    PrepareAbort,
    /// Every partition knows that it is committed.
    CompleteCommit,
    /// Every partition knows that it is aborted.
    CompleteAbort,
}

impl Phase {
    const ALL: [(Self, i8, &'static str); 6] = [
        (Self::Empty, 0, "Empty"),
        (Self::Ongoing, 1, "Ongoing"),
        (Self::PrepareCommit, 2, "PrepareCommit"),
        (Self::PrepareAbort, 3, "PrepareAbort"),
        (Self::CompleteCommit, 4, "CompleteCommit"),
        (Self::CompleteAbort, 5, "CompleteAbort"),
    ];

    pub(super) fn id(self) -> i8 {
        Self::ALL.into_iter().find(|(phase, ..)| *phase == self).map_or(0, |(_, id, _)| id)
    }

    pub(super) fn of_id(id: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| *known == id).map(|(phase, ..)| phase)
    }

    /// Kafka's name for it.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(phase, ..)| *phase == self).map_or("", |(.., name)| name)
    }

    /// Whether Kafka has a state of this name. The last two of its states are never written.
    pub(crate) fn is_name(name: &str) -> bool {
        Self::ALL.into_iter().any(|(.., known)| known == name)
            || matches!(name, "Dead" | "PrepareEpochFence")
    }

    /// How the transaction ends, once that is decided and before all partitions know.
    pub(super) fn ending(self) -> Option<EndTxnMarker> {
        match self {
            Self::PrepareCommit => Some(EndTxnMarker::Commit),
            Self::PrepareAbort => Some(EndTxnMarker::Abort),
            _ => None,
        }
    }
}

/// Whether a producer gets a new epoch with every transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// Versions 0 and 1: one epoch for many transactions.
    #[default]
    One,
    /// Version 2 (KIP-890).
    Two,
}

/// A producer as it names itself in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProducerEpoch {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// A topic's name and a partition's index.
pub(crate) type TopicPartition = (String, i32);

/// A transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Txn {
    pub(crate) producer: ProducerEpoch,
    /// The id before the last rotation, -1 for none.
    pub(super) previous_id: i64,
    /// The id after the transaction that ends, where its epochs are used up; -1 for the same.
    pub(super) next_id: i64,
    /// The epoch before the last one given to the producer, -1 for none. Not in the log.
    pub(super) last_epoch: i16,
    pub(crate) timeout_ms: i32,
    pub(crate) phase: Phase,
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// When the transaction got its first partition, -1 without one.
    pub(crate) started_ms: i64,
    pub(super) updated_ms: i64,
    /// The version its last transaction ended with.
    pub(super) version: Version,
}

/// What InitProducerId comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Init {
    /// The producer goes on with the id and epoch of this.
    Ready(Txn),
    /// An open transaction is aborted first; the producer comes again.
    Fenced(Txn),
}

/// What EndTxn comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The end is decided, and the partitions must be told.
    Decided(Txn),
    /// It had been decided and done before.
    Done,
}

fn exhausted(epoch: i16) -> bool {
    epoch >= LAST_EPOCH - 1
}

impl Txn {
    /// An id that has never been used; its first epoch comes from [`Txn::init`].
    pub(super) fn new(producer_id: i64, timeout_ms: i32, now_ms: i64) -> Self {
        Self {
            producer: ProducerEpoch { id: producer_id, epoch: NO_EPOCH },
            previous_id: NO_ID,
            next_id: NO_ID,
            last_epoch: NO_EPOCH,
            timeout_ms,
            phase: Phase::Empty,
            partitions: BTreeSet::new(),
            started_ms: -1,
            updated_ms: now_ms,
            version: Version::One,
        }
    }

    /// InitProducerId. `expected` is what a producer that recovers from an error believes to have (KIP-360).
    pub(super) fn init(
        &self,
        expected: Option<ProducerEpoch>,
        timeout_ms: i32,
        now_ms: i64,
        server: Version,
        new_id: impl FnOnce() -> i64,
    ) -> Result<Init, ErrorCode> {
        let known = |expected: ProducerEpoch| {
            self.producer.epoch == NO_EPOCH
                || expected.id == self.producer.id
                || (expected.id == self.previous_id && exhausted(expected.epoch))
        };
        self.check_settled()?;
        if !expected.is_none_or(known) {
            return Err(ErrorCode::PRODUCER_FENCED);
        }
        if self.phase == Phase::Ongoing {
            return self.fence(now_ms, server).map(Init::Fenced);
        }
        let current = self.producer.epoch;
        let mut next = Self {
            timeout_ms,
            phase: Phase::Empty,
            partitions: BTreeSet::new(),
            started_ms: -1,
            updated_ms: now_ms,
            next_id: NO_ID,
            version: Version::One,
            ..self.clone()
        };
        match expected {
            expected if exhausted(current) && expected.is_none_or(|e| e.epoch == current) => {
                next.previous_id = self.producer.id;
                next.producer = ProducerEpoch { id: new_id(), epoch: 0 };
                next.last_epoch = if expected.is_some() { current } else { NO_EPOCH };
            }
            None => {
                next.producer.epoch = current + 1;
                next.last_epoch = NO_EPOCH;
            }
            Some(expected) if current == NO_EPOCH || expected.epoch == current => {
                next.producer.epoch = current + 1;
                next.last_epoch = current;
            }
            // The answer to an earlier try was lost.
            Some(expected) if expected.epoch == self.last_epoch => {}
            Some(_) => return Err(ErrorCode::PRODUCER_FENCED),
        }
        Ok(Init::Ready(next))
    }

    /// Aborts the open transaction and leaves its producer behind: for a new producer, or because it took too long.
    /// With version 2 by two epochs, as one more than the producer's is what its own EndTxn would lead to.
    pub(super) fn fence(&self, now_ms: i64, server: Version) -> Result<Self, ErrorCode> {
        let by = if server == Version::Two { 2 } else { 1 };
        let epoch = self.producer.epoch.checked_add(by).unwrap_or(LAST_EPOCH);
        Ok(Self {
            producer: ProducerEpoch { epoch, ..self.producer },
            last_epoch: NO_EPOCH,
            phase: Phase::PrepareAbort,
            updated_ms: now_ms,
            version: server,
            next_id: NO_ID,
            ..self.clone()
        })
    }

    /// Whether the open transaction has taken longer than its producer wanted.
    pub(super) fn timed_out(&self, now_ms: i64) -> bool {
        self.phase == Phase::Ongoing
            && now_ms.saturating_sub(self.started_ms) > i64::from(self.timeout_ms)
    }

    /// Refuses while a decided end is incomplete: the caller asks again once every partition has its marker.
    ///
    /// EndTxn is answered before that, so the producer may already have the next epoch, or the next id. What it sends is
    /// judged only when those are current: before, it would be fenced by its own transaction (KAFKA-18464, KAFKA-18575).
    fn check_settled(&self) -> Result<(), ErrorCode> {
        match self.phase.ending() {
            Some(_) => Err(ErrorCode::CONCURRENT_TRANSACTIONS),
            None => Ok(()),
        }
    }

    fn check_current(&self, producer: ProducerEpoch) -> Result<(), ErrorCode> {
        if producer.id != self.producer.id {
            return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
        }
        if producer.epoch != self.producer.epoch {
            return Err(ErrorCode::PRODUCER_FENCED);
        }
        Ok(())
    }

    /// AddPartitionsToTxn: `None` when the transaction has them all.
    pub(super) fn add(
        &self,
        producer: ProducerEpoch,
        partitions: &BTreeSet<TopicPartition>,
        now_ms: i64,
    ) -> Result<Option<Self>, ErrorCode> {
        self.check_settled()?;
        self.check_current(producer)?;
        let ongoing = self.phase == Phase::Ongoing;
        if ongoing && partitions.is_subset(&self.partitions) {
            return Ok(None);
        }
        let mut next = self.clone();
        next.phase = Phase::Ongoing;
        next.partitions.extend(partitions.iter().cloned());
        next.updated_ms = now_ms;
        if !ongoing {
            next.started_ms = now_ms;
        }
        Ok(Some(next))
    }

    /// Whether a producer may write to a partition: it has been added to its open transaction.
    pub(super) fn verify(
        &self,
        producer: ProducerEpoch,
        partition: &TopicPartition,
    ) -> Result<(), ErrorCode> {
        self.check_current(producer)?;
        self.check_settled()?;
        let open = self.phase == Phase::Ongoing && self.partitions.contains(partition);
        if open { Ok(()) } else { Err(ErrorCode::TRANSACTION_ABORTABLE) }
    }

    /// EndTxn.
    pub(super) fn end(
        &self,
        producer: ProducerEpoch,
        result: EndTxnMarker,
        client: Version,
        now_ms: i64,
        new_id: impl FnOnce() -> i64,
    ) -> Result<End, ErrorCode> {
        // With version 2 the epoch tells a repeated end from that of a transaction without any partition, which is
        // nothing to commit but may be aborted.
        let repeated = match client {
            Version::One => {
                self.check_current(producer)?;
                self.check_settled()?;
                true
            }
            Version::Two => {
                self.check_settled()?;
                let again = self.is_repeated(producer);
                if !again {
                    self.check_current(producer)?;
                }
                again
            }
        };
        match (self.phase, result) {
            (Phase::Ongoing, _) => Ok(End::Decided(self.decide(result, client, now_ms, new_id))),
            (Phase::CompleteCommit, EndTxnMarker::Commit)
            | (Phase::CompleteAbort, EndTxnMarker::Abort)
                if repeated =>
            {
                Ok(End::Done)
            }
            (Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort, EndTxnMarker::Abort)
                if client == Version::Two && !repeated =>
            {
                let begun = Self { started_ms: now_ms, ..self.clone() };
                Ok(End::Decided(begun.decide(result, client, now_ms, new_id)))
            }
            _ => Err(ErrorCode::INVALID_TXN_STATE),
        }
    }

    /// Whether an EndTxn is a retry of the one that completed: the epoch it led to is the current one.
    fn is_repeated(&self, producer: ProducerEpoch) -> bool {
        let complete = matches!(self.phase, Phase::CompleteCommit | Phase::CompleteAbort);
        if self.version != Version::Two || !complete {
            return false;
        }
        let bumped = producer.id == self.producer.id
            && producer.epoch.checked_add(1) == Some(self.producer.epoch)
            // Only a fence leads to the last epoch.
            && self.producer.epoch < LAST_EPOCH;
        let rotated = producer.id == self.previous_id
            && producer.epoch == LAST_EPOCH - 1
            && self.producer.epoch == 0;
        bumped || rotated
    }

    fn decide(
        &self,
        result: EndTxnMarker,
        client: Version,
        now_ms: i64,
        new_id: impl FnOnce() -> i64,
    ) -> Self {
        let mut next = self.clone();
        next.phase = match result {
            EndTxnMarker::Commit => Phase::PrepareCommit,
            EndTxnMarker::Abort => Phase::PrepareAbort,
        };
        next.version = client;
        next.updated_ms = now_ms;
        if client == Version::Two {
            next.next_id = if exhausted(self.producer.epoch) { new_id() } else { NO_ID };
            next.last_epoch = self.producer.epoch;
            next.producer.epoch = self.producer.epoch.saturating_add(1);
        }
        next
    }

    /// The producer once the decided end is complete: what EndTxn answers.
    pub(super) fn producer_after(&self) -> ProducerEpoch {
        match self.next_id {
            NO_ID => self.producer,
            id => ProducerEpoch { id, epoch: 0 },
        }
    }

    /// Every partition knows the end; `None` when none had been decided.
    pub(super) fn complete(&self, now_ms: i64) -> Option<Self> {
        let phase = match self.phase.ending()? {
            EndTxnMarker::Commit => Phase::CompleteCommit,
            EndTxnMarker::Abort => Phase::CompleteAbort,
        };
        Some(Self {
            producer: self.producer_after(),
            previous_id: self.producer.id,
            next_id: NO_ID,
            phase,
            partitions: BTreeSet::new(),
            updated_ms: now_ms,
            ..self.clone()
        })
    }
}
