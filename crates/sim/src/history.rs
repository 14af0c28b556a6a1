//! Records that a workload sent, their outcomes, and records that were read back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Identifies a record: its producer, and its number in the order of that producer's sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// Producer.
    pub producer: u32,
    /// Number of the send, from 0.
    pub number: u32,
}

/// Outcome of a record, as reported by the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the log.
    Acknowledged {
        /// When the acknowledgement reached the caller, in virtual time.
        at: Duration,
        /// Partition.
        partition: i32,
        /// Offset, if the client knows it.
        offset: Option<i64>,
    },
    /// It certainly is not in the log.
    NotWritten {
        /// Error of the client.
        error: String,
    },
    /// It may be in the log.
    MaybeWritten {
        /// Error of the client.
        error: String,
    },
    /// There was no outcome when the run ended.
    Pending,
}

/// One send.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The record.
    pub id: RecordId,
    /// When `send` was called, in virtual time.
    pub at: Duration,
    /// When the settings oblige the client to have reported an outcome: `max.block.ms` after the call, and after the
    /// client has accepted the record, `delivery.timeout.ms` later.
    pub due: Duration,
    /// When the outcome reached the caller.
    pub settled: Option<Duration>,
    /// Outcome of the record.
    pub outcome: Outcome,
}

/// A connection that a running client closed itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// When, in virtual time.
    pub at: Duration,
    /// Client.
    pub client: String,
    /// Broker, by address.
    pub broker: String,
    /// Key of the first API that it carried after ApiVersions.
    pub api: i16,
    /// Age of the oldest request without a response; `None` if every request had one.
    pub unanswered: Option<Duration>,
    /// For how long it carried nothing, if the client keeps another connection to the broker that began with the same
    /// API.
    pub spare_for: Option<Duration>,
    /// `request.timeout.ms` of the client.
    pub request_timeout: Duration,
}

/// Guarantees for a producer's records, from its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Acknowledged records stay at their offset (`acks=all`).
    pub durable: bool,
    /// No record is written twice (`enable.idempotence`).
    pub once: bool,
    /// Records of a partition keep their order (idempotence, or one request in flight).
    pub ordered: bool,
}

impl Promise {
    /// All guarantees.
    pub const FULL: Self = Self { durable: true, once: true, ordered: true };
}

/// A record that a consumer returned instead of the next one, or instead of none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// When, in virtual time.
    pub at: Duration,
    /// Partition.
    pub partition: i32,
    /// Offset of the next record; `None` while the partition is paused.
    pub expected: Option<i64>,
    /// Offset of the record.
    pub given: i64,
}

/// Records of a compacted topic.
#[derive(Clone, Debug, Default)]
pub struct Compacted {
    /// The key of each record sent to the topic.
    pub keys: BTreeMap<RecordId, u64>,
    /// Records sent without a value.
    pub tombstones: BTreeSet<RecordId>,
    /// Whether the cleaner must keep tombstones for longer than the run lasts.
    pub keeps_tombstones: bool,
    /// Whether readers get committed records only.
    pub transactional: bool,
    /// Records returned by the consumer that read the topic from its start to its end.
    pub viewed: Vec<ReadBack>,
    /// Offsets that the consumer passed without a record.
    pub skipped: Vec<Skipped>,
    /// Records of each broker's replicas at the end.
    pub replicas: BTreeMap<i32, Vec<ReadBack>>,
}

/// Offsets that a consumer passed without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Partition.
    pub partition: i32,
    /// The position.
    pub from: i64,
    /// Offset of the next record, or the end of the log.
    pub to: i64,
    /// When, in virtual time.
    pub at: Duration,
}

/// An out-of-range error for a position that the log has, or for another offset than the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedlessReset {
    /// When, in virtual time.
    pub at: Duration,
    /// Partition.
    pub partition: i32,
    /// Offset in the error.
    pub offset: i64,
}

/// A truncation that a consumer reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// When, in virtual time.
    pub at: Duration,
    /// Partition.
    pub partition: i32,
    /// Position in the error.
    pub offset: i64,
    /// Offset after the last record that the consumer had returned.
    pub expected: i64,
}

/// A partition that a consumer reads from another rack although its own rack has an in-sync replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAfar {
    /// Partition.
    pub partition: i32,
    /// Rack of the consumer.
    pub rack: &'static str,
    /// Broker that it reads from.
    pub from: Option<i32>,
}

/// A committed offset that is neither the last acknowledged one nor a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommittedElsewhere {
    /// When, in virtual time.
    pub at: Duration,
    /// Committed offset.
    pub committed: Option<i64>,
    /// The last offset whose commit was acknowledged.
    pub acknowledged: Option<i64>,
}

/// A commit that was dropped and not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedCommit {
    /// When it was dropped, in virtual time.
    pub at: Duration,
    /// Offset that it commits.
    pub offset: i64,
}

/// A batch sent to a broker that the client knew to be no longer the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleSend {
    /// When, in virtual time.
    pub at: Duration,
    /// Client.
    pub client: String,
    /// Partition of the topic.
    pub partition: i32,
    /// Broker that it was sent to.
    pub to: i32,
    /// Broker and leader epoch that a Metadata response had named.
    pub known: (i32, i32),
}

/// A producer that a broker or coordinator fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fencing {
    /// When, in virtual time.
    pub at: Duration,
    /// Producer.
    pub producer: u32,
    /// Whether another producer had taken the transactional id, or the transaction had exceeded its timeout.
    pub justified: bool,
    /// Error that the application received.
    pub error: String,
}

/// One record read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBack {
    /// Partition it was read from.
    pub partition: i32,
    /// Offset of the record.
    pub offset: i64,
    /// Id in its value; `None` for a record that no producer sent.
    pub id: Option<RecordId>,
}

/// The log of one replica at the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaLog {
    /// Broker.
    pub broker: i32,
    /// Partition.
    pub partition: i32,
    /// First offset.
    pub start_offset: i64,
    /// One entry per batch in order: base offset and a hash of everything that must be the same on all replicas.
    pub batches: Vec<(i64, u64)>,
    /// Offset after the last record.
    pub end_offset: i64,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Records whose sends were accepted.
    pub records: Vec<RecordId>,
    /// Outcome of the transaction.
    pub end: End,
}

/// What the application knows of a transaction's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The commit was acknowledged.
    Committed,
    /// It was never committed, or not before another producer had taken its place.
    Aborted,
    /// A commit was sent, and its outcome is unknown.
    Unknown,
}

/// The checker's input.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Keyless records that may change their partition before they are sent: their order within one is not promised.
    pub free: BTreeSet<RecordId>,
    /// Unsent batches that the producers moved to another partition, from one that they avoid.
    pub moved_batches: u64,
    /// Moves of transaction coordinators to another broker.
    pub moved_coordinators: u64,
    /// Every send, in the order of the calls of each producer.
    pub sent: Vec<Sent>,
    /// Every record of every partition, as the leaders have them at the end.
    pub read: Vec<ReadBack>,
    /// Records returned by a consumer that read every partition from its beginning during the run.
    pub consumed: Vec<ReadBack>,
    /// As [`Self::consumed`], of each further consumer.
    pub also_consumed: Vec<Vec<ReadBack>>,
    /// Records that consumers read from followers.
    pub read_near: u64,
    /// Partitions that a consumer read from another rack at the end.
    pub read_afar: Vec<ReadAfar>,
    /// The transactions.
    pub transactions: Vec<Transaction>,
    /// Records that a reader of committed records returned, if there are transactions.
    pub committed: Vec<ReadBack>,
    /// Committed copies of the first topic, if applications copy it.
    pub copies: Option<Vec<ReadBack>>,
    /// The replicas' logs.
    pub replicas: Vec<ReplicaLog>,
    /// The consumer group, if there is one.
    pub group: Option<GroupHistory>,
    /// Connections that running clients closed themselves.
    pub disconnects: Vec<Disconnect>,
    /// Begin and end of every fault. A fault without a duration begins and ends at once.
    pub faults: Vec<(Duration, Duration)>,
    /// Producers that were fenced.
    pub fencings: Vec<Fencing>,
    /// Promises to producers with weaker settings than `acks=all` and idempotence.
    pub promises: BTreeMap<u32, Promise>,
    /// Records sent to a topic that was deleted later.
    pub buried: BTreeSet<RecordId>,
    /// Records out of place.
    pub strays: Vec<Stray>,
    /// The compacted topic, if there is one.
    pub compacted: Option<Compacted>,
    /// Out-of-range errors without a reason.
    pub needless_resets: Vec<NeedlessReset>,
    /// Records without an outcome when a flush had ended that began after their sends.
    pub unflushed: Vec<RecordId>,
    /// Records with more than one outcome.
    pub twice: Vec<RecordId>,
    /// Errors of repeated commits that report neither outcome of the transaction.
    pub undecided: Vec<(u32, String)>,
    /// Committed offsets that no call explains.
    pub committed_elsewhere: Vec<CommittedElsewhere>,
    /// Dropped commits that were not carried out.
    pub dropped_commits: Vec<DroppedCommit>,
    /// First offsets of logs whose oldest records were deleted.
    pub starts: BTreeMap<i32, i64>,
    /// By partition, times at which a leader was elected that lacked records.
    pub unclean: BTreeMap<i32, Vec<Duration>>,
    /// Truncations that a consumer reported.
    pub truncations: Vec<Truncation>,
    /// If unclean elections are allowed: every record that a consumer returned, without those that its reports of
    /// truncations took back.
    pub view: Option<Vec<ReadBack>>,
    /// By producer, the number of retries, each record counted.
    pub retries: BTreeMap<u32, u64>,
    /// Produce requests to a previous leader.
    pub stale: Vec<StaleSend>,
    /// Disks that returned errors.
    pub disk_failures: Vec<DiskFailure>,
    /// Restarts of the controller.
    pub controller_restarts: Vec<ControllerRestart>,
    /// Brokers fenced by a controller that had been stuck itself, with the times.
    pub fenced_for_nothing: Vec<(i32, Duration)>,
    /// Syncs of the controller's journal that took long.
    pub stuck_syncs: usize,
}

/// A disk that returned errors.
#[derive(Clone, Copy, Debug)]
pub struct DiskFailure {
    /// Broker.
    pub broker: i32,
    /// When it returned the first error.
    pub failed: Duration,
    /// When the broker ended.
    pub ended: Option<Duration>,
}

/// A restart of the controller from its journal.
#[derive(Clone, Debug)]
pub struct ControllerRestart {
    /// Time of the restart.
    pub at: Duration,
    /// Error of the restart.
    pub error: Option<String>,
    /// Metadata before the crash that differs after it.
    pub lost: Option<String>,
    /// A producer id assigned before the crash and one assigned after it.
    pub producer_ids: Option<(i64, i64)>,
}

/// Partitions of each topic, at most: partition `p` of the topic with index `t` is `t * PLACES + p` in a history.
pub const PLACES: i32 = 1000;

impl History {
    pub(crate) fn promise(&self, id: RecordId) -> Promise {
        self.promises.get(&id.producer).copied().unwrap_or(Promise::FULL)
    }

    /// Records returned by one of the consumers.
    pub(crate) fn consumed_by(&mut self, consumer: usize) -> &mut Vec<ReadBack> {
        let Some(further) = consumer.checked_sub(1) else { return &mut self.consumed };
        let count = self.also_consumed.len().max(further + 1);
        self.also_consumed.resize_with(count, Vec::new);
        &mut self.also_consumed[further]
    }
}

/// History of a consumer group.
#[derive(Clone, Debug, Default)]
pub struct GroupHistory {
    /// Events of the members, in order.
    pub deeds: Vec<Deed>,
    /// Records written by the coordinators, in the order of their log.
    pub log: Vec<GroupRecord>,
    /// Begin and end of each fault that may have kept members from their coordinator.
    pub trouble: Vec<(Duration, Duration)>,
    /// Members with auto-commit.
    pub automatic: BTreeSet<u32>,
    /// The members with a `group.instance.id`.
    pub statics: BTreeSet<u32>,
}

/// One event of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// Virtual time of the event.
    pub at: Duration,
    /// Number of the member. A member that returns has another number.
    pub member: u32,
    /// The event.
    pub what: What,
}

/// The kinds of a [`Deed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// These partitions were assigned.
    Assigned(Vec<i32>),
    /// It revoked these partitions.
    Revoked(Vec<i32>),
    /// It was notified that it has lost these partitions.
    Lost(Vec<i32>),
    /// It polls: the records returned before are completed.
    Polls,
    /// Asks the queue of a partition for more: the records before are processed.
    Finishes(i32),
    /// It received the record of a partition at an offset.
    Given(i32, i64),
    /// It will not poll for longer than `max.poll.interval.ms`, or another member has taken its place.
    Neglects,
    /// Offsets that it committed were acknowledged.
    Committed(Vec<(i32, i64)>),
    /// It has ended, and with it its ownership of partitions.
    Ended,
}

/// A record of `__consumer_offsets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// When it was written, in milliseconds of virtual time.
    pub at_ms: i64,
    /// Contents of the record.
    pub what: Written,
}

/// The kinds of a [`GroupRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The offset of a partition was committed.
    Offset(i32, i64),
    /// A generation of the group: its members with their partitions.
    Generation(i32, BTreeMap<u32, Vec<i32>>),
}
