//! The broken promises that the checker reports, and their messages.

use std::{fmt, time::Duration};

use crate::history::{CommittedElsewhere, DroppedCommit, End, ReadAfar, RecordId, StaleSend};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An acknowledged record is nowhere.
    Lost {
        /// The record.
        id: RecordId,
        /// Partition and offset it was acknowledged at.
        acknowledged: (i32, Option<i64>),
    },
    /// An acknowledged record is in the log, but at another place than acknowledged.
    Misplaced {
        /// The record.
        id: RecordId,
        /// Partition and offset it was acknowledged at.
        acknowledged: (i32, Option<i64>),
        /// Its partition and offset in the log.
        found: (i32, i64),
    },
    /// A record is in the log more than once.
    Duplicated {
        /// The record.
        id: RecordId,
        /// Partition and offset of each copy.
        copies: Vec<(i32, i64)>,
    },
    /// Two records of one producer are in a partition in another order than they were sent.
    Reordered {
        /// Partition.
        partition: i32,
        /// The record sent first, and its offset.
        first: (RecordId, i64),
        /// The record sent later, and its lower offset.
        later: (RecordId, i64),
    },
    /// A record is in the log though the client reported that it certainly is not.
    WrittenAfterAll {
        /// The record.
        id: RecordId,
        /// Error of the client.
        error: String,
        /// Partition and offset.
        found: (i32, i64),
    },
    /// A record was acknowledged at an offset that is not above one acknowledged before it was sent.
    OffsetRegression {
        /// The record.
        id: RecordId,
        /// Partition.
        partition: i32,
        /// Offset of the record.
        offset: i64,
        /// An offset of the partition acknowledged before.
        before: i64,
    },
    /// A partition has a record that no producer sent, or that was sent elsewhere.
    Unknown {
        /// Partition and offset.
        found: (i32, i64),
    },
    /// Offsets read from a partition do not ascend.
    ReadOutOfOrder {
        /// Partition.
        partition: i32,
        /// Offset read first.
        before: i64,
        /// Offset read right after it.
        after: i64,
    },
    /// The consumer returned another record than the next one in the log: it skipped, duplicated or invented a record.
    ConsumedDiffers {
        /// Partition.
        partition: i32,
        /// Returned record, with its offset; `None` if the consumer stopped early.
        given: Option<(i64, Option<RecordId>)>,
        /// The next record in the log.
        next: Option<(i64, Option<RecordId>)>,
    },
    /// Two replicas of a partition differ at rest.
    ReplicasDiffer {
        /// Partition.
        partition: i32,
        /// The brokers compared.
        brokers: (i32, i32),
        /// First offset at which they differ.
        offset: i64,
    },
    /// A reader of committed records saw another part of a transaction than its outcome allows.
    Torn {
        /// The transaction's first record.
        first: RecordId,
        /// How it ended.
        end: End,
        /// Records of it that were seen.
        visible: usize,
        /// Records in the transaction.
        of: usize,
    },
    /// A reader of committed records saw a record more than once.
    CommittedTwice {
        /// The record.
        id: RecordId,
    },
    /// Two members of the newest generation of a group read the same partition.
    ReadByTwo {
        /// Partition.
        partition: i32,
        /// The first reader, and the second one.
        members: (u32, u32),
        /// Time of the violation.
        at: Duration,
    },
    /// A member began to read a partition that its last generation did not assign to it.
    NeverAssigned {
        /// Member.
        member: u32,
        /// Partition.
        partition: i32,
        /// Time of the violation.
        at: Duration,
    },
    /// A generation of a group assigns a partition to two members.
    AssignedTwice {
        /// The generation.
        generation: i32,
        /// Partition.
        partition: i32,
    },
    /// A member returned a record of a partition that it had revoked.
    GivenAfterAll {
        /// Member.
        member: u32,
        /// Partition.
        partition: i32,
        /// Offset of the record.
        offset: i64,
    },
    /// A member returned another record of its partition than the next one.
    GivenOutOfOrder {
        /// Member.
        member: u32,
        /// Partition.
        partition: i32,
        /// Offset of the next record.
        expected: i64,
        /// Offset of the returned record.
        given: i64,
    },
    /// A member began to read a partition elsewhere than at the committed offset.
    BeganElsewhere {
        /// Member.
        member: u32,
        /// Partition.
        partition: i32,
        /// Offsets that were the committed one between its assignment and its first record.
        committed: Vec<i64>,
        /// Offset of its first record.
        given: i64,
    },
    /// A member was notified that its partitions are lost, without a reason.
    LostForNoReason {
        /// Member.
        member: u32,
        /// When.
        at: Duration,
    },
    /// An offset was committed before all records below it were returned.
    CommittedAhead {
        /// Partition.
        partition: i32,
        /// The offset.
        offset: i64,
        /// Highest offset that may have been committed.
        given: i64,
    },
    /// An offset was committed while the group had no members.
    CommittedByNobody {
        /// Partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
    /// A commit went below one of an earlier generation.
    SetBack {
        /// Partition.
        partition: i32,
        /// The committed offset before.
        before: i64,
        /// The later, lower one.
        offset: i64,
    },
    /// An acknowledged commit is not in the log.
    CommitGone {
        /// Partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
    /// No member returned a record.
    NeverGiven {
        /// Partition.
        partition: i32,
        /// Offset of the record.
        offset: i64,
    },
    /// A record had no outcome after the last timeout.
    NoOutcome {
        /// The record.
        id: RecordId,
    },
    /// The outcome of a record came later than its settings allow.
    TooLate {
        /// The record.
        id: RecordId,
        /// Time when the outcome was due.
        due: Duration,
        /// Time of the outcome.
        settled: Duration,
    },
    /// A record took long, or expired, without a fault and with no record of the producer before it.
    Sluggish {
        /// The record.
        id: RecordId,
        /// From the call to the outcome.
        took: Duration,
    },
    /// A client closed a healthy connection.
    NeedlessDisconnect {
        /// Client and broker.
        between: (String, String),
        /// When.
        at: Duration,
        /// Age of the oldest request without a response.
        unanswered: Option<Duration>,
    },
    /// A consumer returned a record out of place: of a paused partition, or another one than comes next after a seek.
    Strayed {
        /// Partition.
        partition: i32,
        /// Offset of the next record; `None` while the partition is paused.
        expected: Option<i64>,
        /// Offset of the record.
        given: i64,
        /// When.
        at: Duration,
    },
    /// A consumer reported a position as out of range that the log has, or another offset than its position.
    OutOfRangeInLog {
        /// Partition.
        partition: i32,
        /// Offset in the error.
        offset: i64,
        /// When.
        at: Duration,
    },
    /// A consumer reported a truncation without an unclean election, or at another offset than its position.
    TruncatedForNoReason {
        /// Partition.
        partition: i32,
        /// Offset in the error.
        offset: i64,
        /// Offset after the last record that the consumer had returned.
        expected: i64,
        /// When.
        at: Duration,
    },
    /// A consumer that takes back what it reports as truncated has other records than the log.
    TruncatedSilently {
        /// Partition.
        partition: i32,
        /// Record and offset that the consumer has; nothing if it stopped early.
        given: Option<(i64, Option<RecordId>)>,
        /// Record and offset in the log.
        next: Option<(i64, Option<RecordId>)>,
    },
    /// A consumer reads from another rack although its own rack has an in-sync replica.
    ReadAfar(ReadAfar),
    /// A flush ended before the outcome of a record that was sent before it.
    FlushedEarly {
        /// The record.
        id: RecordId,
    },
    /// A record had more than one outcome.
    ReportedTwice {
        /// The record.
        id: RecordId,
    },
    /// A commit that was dropped and repeated failed with an error that leaves the transaction's outcome open.
    CommitUndecided {
        /// Producer.
        producer: u32,
        /// Error of the client.
        error: String,
    },
    /// The committed offset is neither the last acknowledged one nor a later one.
    CommittedElsewhere(CommittedElsewhere),
    /// A commit whose call was dropped was not carried out.
    CommitDropped(DroppedCommit),
    /// A batch was sent to a previous leader.
    StaleLeader(StaleSend),
    /// A record failed because of its sequence number, although the brokers have lost nothing.
    SequenceRefused {
        /// The record.
        id: RecordId,
        /// Error of the client.
        error: String,
    },
    /// A producer retried its records far too often.
    RetryStorm {
        /// Producer.
        producer: u32,
        /// Retries, counted per record.
        retries: u64,
        /// Records that it sent.
        records: usize,
    },
    /// A member released a partition in a poll, and another member began before its position.
    HandoverUncommitted {
        /// The previous owner and the new one.
        members: (u32, u32),
        /// Partition.
        partition: i32,
        /// Position of the previous owner.
        position: i64,
        /// First offset of the other one.
        given: i64,
    },
    /// A producer without a rival was fenced.
    FencedWithoutRival {
        /// Producer.
        producer: u32,
        /// When.
        at: Duration,
        /// Error that the application received.
        error: String,
    },
    /// A broker continued after its disk had failed.
    ServedOnFailedDisk {
        /// Broker.
        broker: i32,
        /// When the disk returned the first error.
        failed: Duration,
        /// When the broker ended, if it did.
        ended: Option<Duration>,
    },
    /// The controller restarted without an acknowledged change.
    MetadataLost {
        /// When.
        at: Duration,
        /// What differs, or why it did not restart.
        what: String,
    },
    /// The controller assigned a producer id that is not above those before its crash.
    ProducerIdReused {
        /// Id given before.
        before: i64,
        /// Id given after the restart.
        after: i64,
    },
    /// The controller fenced a live broker because it had been stuck itself.
    FencedForNothing {
        /// Broker.
        broker: i32,
        /// When.
        at: Duration,
    },
    /// A record of the input is not in the committed output.
    NotCopied {
        /// The record.
        id: RecordId,
        /// Partition of the record.
        partition: i32,
    },
    /// A record of the input is in the committed output more than once.
    CopiedTwice {
        /// The record.
        id: RecordId,
        /// Partition and offset of each copy.
        copies: Vec<(i32, i64)>,
    },
    /// Two records of a partition were copied in the wrong order.
    CopiedOutOfOrder {
        /// Partition.
        partition: i32,
        /// The first one in the input.
        first: RecordId,
        /// The later one in the input, which is first in the output.
        later: RecordId,
    },
    /// The run did not end within its limits.
    Hang {
        /// Unfinished work at the end.
        outstanding: String,
    },
    /// Compaction has removed the newest record of a key.
    CompactedAway {
        /// Broker whose replica lacks it; `None` if the consumer lacks it.
        broker: Option<i32>,
        /// The record.
        id: RecordId,
        /// Its partition and offset.
        found: (i32, i64),
    },
    /// A replica has a record that a tombstone has deleted, and the tombstone is gone.
    Resurrected {
        /// Broker of the replica.
        broker: i32,
        /// The record.
        id: RecordId,
        /// The tombstone.
        tombstone: RecordId,
    },
    /// The run itself failed.
    Broken {
        /// The error.
        error: String,
    },
}

impl Violation {
    /// Name of the kind, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::CompactedAway { .. } => "compacted-away",
            Self::Resurrected { .. } => "resurrected",
            Self::Lost { .. } => "lost",
            Self::Misplaced { .. } => "misplaced",
            Self::Duplicated { .. } => "duplicated",
            Self::Reordered { .. } => "reordered",
            Self::WrittenAfterAll { .. } => "written-after-all",
            Self::OffsetRegression { .. } => "offset-regression",
            Self::Unknown { .. } => "unknown-record",
            Self::ReadOutOfOrder { .. } => "read-out-of-order",
            Self::ConsumedDiffers { .. } => "consumed-differs",
            Self::ReplicasDiffer { .. } => "replicas-differ",
            Self::Torn { .. } => "torn-transaction",
            Self::CommittedTwice { .. } => "committed-twice",
            Self::ReadByTwo { .. } => "read-by-two",
            Self::NeverAssigned { .. } => "never-assigned",
            Self::AssignedTwice { .. } => "assigned-twice",
            Self::GivenAfterAll { .. } => "given-after-all",
            Self::GivenOutOfOrder { .. } => "given-out-of-order",
            Self::BeganElsewhere { .. } => "began-elsewhere",
            Self::LostForNoReason { .. } => "lost-for-no-reason",
            Self::CommittedAhead { .. } => "committed-ahead",
            Self::CommittedByNobody { .. } => "committed-by-nobody",
            Self::SetBack { .. } => "set-back",
            Self::CommitGone { .. } => "commit-gone",
            Self::NeverGiven { .. } => "never-given",
            Self::NoOutcome { .. } => "no-outcome",
            Self::TooLate { .. } => "too-late",
            Self::Sluggish { .. } => "sluggish",
            Self::NeedlessDisconnect { .. } => "needless-disconnect",
            Self::Strayed { .. } => "strayed",
            Self::OutOfRangeInLog { .. } => "out-of-range-in-log",
            Self::TruncatedForNoReason { .. } => "truncated-for-no-reason",
            Self::TruncatedSilently { .. } => "truncated-silently",
            Self::ReadAfar(_) => "read-afar",
            Self::FlushedEarly { .. } => "flushed-early",
            Self::ReportedTwice { .. } => "reported-twice",
            Self::CommitUndecided { .. } => "commit-undecided",
            Self::CommittedElsewhere(_) => "committed-elsewhere",
            Self::CommitDropped(_) => "commit-dropped",
            Self::StaleLeader(_) => "stale-leader",
            Self::SequenceRefused { .. } => "sequence-refused",
            Self::RetryStorm { .. } => "retry-storm",
            Self::HandoverUncommitted { .. } => "handover-uncommitted",
            Self::FencedWithoutRival { .. } => "fenced-without-rival",
            Self::ServedOnFailedDisk { .. } => "served-on-failed-disk",
            Self::MetadataLost { .. } => "metadata-lost",
            Self::ProducerIdReused { .. } => "producer-id-reused",
            Self::FencedForNothing { .. } => "fenced-for-nothing",
            Self::NotCopied { .. } => "not-copied",
            Self::CopiedTwice { .. } => "copied-twice",
            Self::CopiedOutOfOrder { .. } => "copied-out-of-order",
            Self::Hang { .. } => "hang",
            Self::Broken { .. } => "broken",
        }
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.producer, self.number)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind())?;
        match self {
            Self::Lost { id, acknowledged: (partition, offset) } => {
                write!(
                    f,
                    "record {id}, acknowledged in partition {partition} at {offset:?}, is not in the log"
                )
            }
            Self::Misplaced { id, acknowledged: (partition, offset), found } => {
                write!(
                    f,
                    "record {id}, acknowledged in partition {partition} at {offset:?}, is at {found:?}"
                )
            }
            Self::Duplicated { id, copies } => write!(f, "record {id} is at {copies:?}"),
            Self::Reordered { partition, first, later } => write!(
                f,
                "in partition {partition} record {} is at {}, but {}, sent later, at {}",
                first.0, first.1, later.0, later.1
            ),
            Self::WrittenAfterAll { id, error, found } => {
                write!(f, "record {id} is at {found:?} though the client said: {error}")
            }
            Self::OffsetRegression { id, partition, offset, before } => write!(
                f,
                "record {id} was acknowledged in partition {partition} at {offset}, \
                 and {before} before it was sent"
            ),
            Self::Unknown { found } => write!(f, "no producer sent the record at {found:?}"),
            Self::ReadOutOfOrder { partition, before, after } => {
                write!(f, "partition {partition} returned offset {after} after {before}")
            }
            Self::ConsumedDiffers { partition, given, next } => {
                write!(
                    f,
                    "from partition {partition} the consumer was given {given:?} where {next:?} came next"
                )
            }
            Self::ReplicasDiffer { partition, brokers, offset } => {
                write!(
                    f,
                    "partition {partition} differs on brokers {brokers:?} from offset {offset}"
                )
            }
            Self::Torn { first, end, visible, of } => write!(
                f,
                "of the {of} records of the transaction that begins with {first} and ended as {end:?}, \
                 {visible} are visible to a reader of committed records"
            ),
            Self::CommittedTwice { id } => {
                write!(f, "a reader of committed records saw record {id} more than once")
            }
            Self::ReadByTwo { partition, members, at } => {
                write!(
                    f,
                    "members {members:?} of one generation both read partition {partition} at {at:?}"
                )
            }
            Self::NeverAssigned { member, partition, at } => {
                write!(
                    f,
                    "member {member} began with partition {partition}, which it was not given, at {at:?}"
                )
            }
            Self::AssignedTwice { generation, partition } => {
                write!(f, "generation {generation} gives partition {partition} to two members")
            }
            Self::GivenAfterAll { member, partition, offset } => write!(
                f,
                "member {member} was given offset {offset} of partition {partition}, which it does not have"
            ),
            Self::GivenOutOfOrder { member, partition, expected, given } => write!(
                f,
                "member {member} was given offset {given} of partition {partition} instead of {expected}"
            ),
            Self::BeganElsewhere { member, partition, committed, given } => write!(
                f,
                "member {member} began at offset {given} of partition {partition}; committed: {committed:?}"
            ),
            Self::LostForNoReason { member, at } => {
                write!(f, "member {member} lost its partitions at {at:?} for no reason")
            }
            Self::CommittedAhead { partition, offset, given } => write!(
                f,
                "{offset} was committed for partition {partition} when {given} was the most there was"
            ),
            Self::CommittedByNobody { partition, offset } => write!(
                f,
                "{offset} was committed for partition {partition} while the group had no members"
            ),
            Self::SetBack { partition, before, offset } => write!(
                f,
                "partition {partition} was committed at {offset} after {before} in an earlier generation"
            ),
            Self::CommitGone { partition, offset } => write!(
                f,
                "the commit of {offset} for partition {partition} was acknowledged and is not in the log"
            ),
            Self::NeverGiven { partition, offset } => {
                write!(f, "offset {offset} of partition {partition} was given to nobody")
            }
            Self::Resurrected { broker, id, tombstone } => {
                write!(
                    f,
                    "the replica on broker {broker} has record {id}, which the removed tombstone {tombstone} deleted"
                )
            }
            Self::CompactedAway { broker, id, found: (partition, offset) } => {
                let lacks = match broker {
                    Some(broker) => format!("the replica on broker {broker}"),
                    None => "the consumer".to_owned(),
                };
                write!(
                    f,
                    "{lacks} lacks record {id}, the newest of its key, at {partition} {offset}"
                )
            }
            Self::NoOutcome { id } => write!(f, "record {id} has no outcome"),
            Self::TooLate { id, due, settled } => {
                write!(f, "the outcome of record {id} was due at {due:?} and came at {settled:?}")
            }
            Self::NeedlessDisconnect { between: (client, broker), at, unanswered } => write!(
                f,
                "{client} closed its connection to {broker} at {at:?}; oldest unanswered request: {unanswered:?}"
            ),
            Self::StaleLeader(StaleSend { at, client, partition, to, known }) => write!(
                f,
                "{client} sent a batch of partition {partition} to broker {to} at {at:?}; leader and epoch: {known:?}"
            ),
            Self::SequenceRefused { id, error } => write!(f, "record {id} failed: {error}"),
            Self::Sluggish { id, took } => {
                write!(f, "record {id} had its outcome after {took:?}, with nothing before it")
            }
            Self::RetryStorm { producer, retries, records } => {
                write!(f, "producer {producer} sent {records} records, and {retries} times again")
            }
            Self::HandoverUncommitted { members, partition, position, given } => write!(
                f,
                "of members {members:?} the second began at {given} of partition {partition}, the first was at {position}"
            ),
            Self::Strayed { partition, expected, given, at } => write!(
                f,
                "the consumer returned offset {given} of partition {partition} at {at:?}; next: {expected:?}"
            ),
            Self::OutOfRangeInLog { partition, offset, at } => write!(
                f,
                "the consumer reported offset {offset} of partition {partition} as out of range at {at:?}"
            ),
            Self::TruncatedForNoReason { partition, offset, expected, at } => write!(
                f,
                "the consumer reported a truncation of partition {partition} before {offset} at {at:?}; position: {expected}"
            ),
            Self::TruncatedSilently { partition, given, next } => write!(
                f,
                "of partition {partition} the consumer has {given:?} where the log has {next:?}, and reported no truncation"
            ),
            Self::ReadAfar(ReadAfar { partition, rack, from }) => {
                write!(f, "the consumer in rack {rack} reads partition {partition} from {from:?}")
            }
            Self::FlushedEarly { id } => {
                write!(
                    f,
                    "a flush ended before the outcome of record {id}, which was sent before it"
                )
            }
            Self::ReportedTwice { id } => write!(f, "record {id} had more than one outcome"),
            Self::CommitUndecided { producer, error } => {
                write!(f, "a repeated commit of producer {producer} has no outcome: {error}")
            }
            Self::CommittedElsewhere(CommittedElsewhere { at, committed, acknowledged }) => write!(
                f,
                "{committed:?} is committed at {at:?}; the last acknowledged commit: {acknowledged:?}"
            ),
            Self::CommitDropped(DroppedCommit { at, offset }) => {
                write!(f, "the commit of {offset}, dropped at {at:?}, was not carried out")
            }
            Self::FencedWithoutRival { producer, at, error } => {
                write!(f, "producer {producer} has no rival and was fenced at {at:?}: {error}")
            }
            Self::ServedOnFailedDisk { broker, failed, ended } => write!(
                f,
                "the disk of broker {broker} failed at {failed:?}, and the broker ended at {ended:?}"
            ),
            Self::MetadataLost { at, what } => {
                write!(f, "the controller restarted at {at:?} without a change: {what}")
            }
            Self::ProducerIdReused { before, after } => {
                write!(f, "producer id {before} was given before a restart, and {after} after it")
            }
            Self::FencedForNothing { broker, at } => {
                write!(
                    f,
                    "the controller was stuck until {at:?} and fenced broker {broker}, which was not"
                )
            }
            Self::NotCopied { id, partition } => {
                write!(f, "record {id} of partition {partition} is not in the committed output")
            }
            Self::CopiedTwice { id, copies } => {
                write!(f, "record {id} is in the committed output at {copies:?}")
            }
            Self::CopiedOutOfOrder { partition, first, later } => {
                write!(f, "partition {partition} was copied with {later} before {first}")
            }
            Self::Hang { outstanding } => write!(f, "{outstanding}"),
            Self::Broken { error } => write!(f, "{error}"),
        }
    }
}
