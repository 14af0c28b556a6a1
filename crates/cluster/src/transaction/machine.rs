//! The state machine of one transactional id. Pure: the caller passes in the time and new producer
//! ids. Every operation returns the new state, which the coordinator stores first.
//!
//! States, transitions and errors are Kafka's (KIP-98, KIP-360, KIP-890). With transaction version
//! 2 every end of a transaction bumps the producer's epoch, which distinguishes requests for an
//! earlier transaction.

use std::collections::BTreeSet;

use curtail_wire::{ErrorCode, records::EndTxnMarker};

/// The last epoch of a producer id. Only a fence may use it, so that a fence is always possible.
const LAST_EPOCH: i16 = i16::MAX;
/// The epoch before a transactional id's first one.
const NO_EPOCH: i16 = -1;
/// No producer id.
pub(super) const NO_ID: i64 = -1;

/// The phase of a transactional id. [`Phase::id`] is its number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No transaction yet in this epoch.
    Empty,
    /// A transaction has partitions.
    Ongoing,
    /// The decision to commit is final.
    PrepareCommit,
    /// The decision to abort is final.
    PrepareAbort,
    /// Every partition has its commit marker.
    CompleteCommit,
    /// Every partition has its abort marker.
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

    /// Returns its name in Kafka.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(phase, ..)| *phase == self).map_or("", |(.., name)| name)
    }

    /// Returns whether Kafka has a state of this name. Kafka never writes its last two states.
    pub(crate) fn is_name(name: &str) -> bool {
        Self::ALL.into_iter().any(|(.., known)| known == name)
            || matches!(name, "Dead" | "PrepareEpochFence")
    }

    /// Returns the decided outcome while some partitions may lack their markers.
    pub(super) fn ending(self) -> Option<EndTxnMarker> {
        match self {
            Self::PrepareCommit => Some(EndTxnMarker::Commit),
            Self::PrepareAbort => Some(EndTxnMarker::Abort),
            _ => None,
        }
    }
}

/// Whether every transaction bumps the producer's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// Versions 0 and 1: many transactions share an epoch.
    #[default]
    One,
    /// Version 2 (KIP-890).
    Two,
}

/// A producer's id and epoch, as in its requests.
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
    /// The id before the last rotation; -1 for none.
    pub(super) previous_id: i64,
    /// The id after the ending transaction if the epochs of the current one are exhausted; -1 if
    /// the id stays.
    pub(super) next_id: i64,
    /// The producer's previous epoch; -1 for none. Not in the log.
    pub(super) last_epoch: i16,
    pub(crate) timeout_ms: i32,
    pub(crate) phase: Phase,
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// When the transaction got its first partition; -1 without one.
    pub(crate) started_ms: i64,
    pub(super) updated_ms: i64,
    /// The version of the end of its last transaction.
    pub(super) version: Version,
}

/// The result of InitProducerId.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Init {
    /// The producer continues with this id and epoch.
    Ready(Txn),
    /// An open transaction is aborted first; the producer must retry.
    Fenced(Txn),
}

/// The result of EndTxn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The end is decided, and the markers must be written.
    Decided(Txn),
    /// The same end was completed before.
    Done,
}

fn exhausted(epoch: i16) -> bool {
    epoch >= LAST_EPOCH - 1
}

impl Txn {
    /// Creates an unused id; its first epoch comes from [`Txn::init`].
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

    /// Handles InitProducerId. `expected` is the id and epoch of a producer that recovers from an
    /// error (KIP-360).
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
            // The response to an earlier attempt was lost.
            Some(expected) if expected.epoch == self.last_epoch => {}
            Some(_) => return Err(ErrorCode::PRODUCER_FENCED),
        }
        Ok(Init::Ready(next))
    }

    /// Aborts the open transaction and fences its producer: for a new producer, or after a timeout.
    /// With version 2 the epoch increases by two, because its own EndTxn would increase the
    /// producer's epoch by one.
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

    /// Returns whether the open transaction has exceeded its producer's timeout.
    pub(super) fn timed_out(&self, now_ms: i64) -> bool {
        self.phase == Phase::Ongoing
            && now_ms.saturating_sub(self.started_ms) > i64::from(self.timeout_ms)
    }

    /// Returns whether the id has no open transaction and has not changed since `until`, in ms since
    /// the Unix epoch.
    pub(super) fn expired(&self, until: i64) -> bool {
        let settled =
            matches!(self.phase, Phase::Empty | Phase::CompleteCommit | Phase::CompleteAbort);
        settled && self.updated_ms <= until
    }

    /// Refuses while a decided end is incomplete; the caller retries once every partition has its
    /// marker.
    ///
    /// The response of EndTxn precedes that, so the producer may already have the next epoch or id.
    /// Its requests can be checked only when these are current. Before, its own transaction would
    /// fence it (KAFKA-18464, KAFKA-18575).
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

    /// Handles AddPartitionsToTxn. Returns `None` if the transaction already has all partitions.
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

    /// Checks that a producer may write to a partition: its open transaction contains the
    /// partition.
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

    /// Handles EndTxn.
    pub(super) fn end(
        &self,
        producer: ProducerEpoch,
        result: EndTxnMarker,
        client: Version,
        now_ms: i64,
        new_id: impl FnOnce() -> i64,
    ) -> Result<End, ErrorCode> {
        // With version 2 the epoch distinguishes a repeated end from the end of a transaction
        // without partitions. The latter cannot be committed but may be aborted.
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

    /// Returns whether an EndTxn is a retry of the completed one, whose resulting epoch is the
    /// current one.
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

    /// Returns the producer after the decided end is complete, for the response of EndTxn.
    pub(super) fn producer_after(&self) -> ProducerEpoch {
        match self.next_id {
            NO_ID => self.producer,
            id => ProducerEpoch { id, epoch: 0 },
        }
    }

    /// Completes the end after every partition has its marker; `None` if no end was decided.
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
