//! Judges a history: what Curtail promises about acknowledged, failed and repeated records, and nothing else.
//!
//! Pure: it knows neither the network nor the client, so that hand-made histories test it.

mod copies;
mod disks;
mod groups;
mod liveness;
#[cfg(test)]
mod tests;
mod transactions;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use crate::history::{
    End, History, Outcome, PLACES, ReadBack, RecordId, ReplicaLog, Sent, StaleSend,
};

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
    /// An acknowledged record is in the log, but not where the acknowledgement said.
    Misplaced {
        /// The record.
        id: RecordId,
        /// Partition and offset it was acknowledged at.
        acknowledged: (i32, Option<i64>),
        /// Where it is.
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
    /// A record is in the log though the client said it certainly is not.
    WrittenAfterAll {
        /// The record.
        id: RecordId,
        /// What the client said.
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
        /// Its offset.
        offset: i64,
        /// An offset of the partition acknowledged before.
        before: i64,
    },
    /// A partition has a record that no producer sent, or one that was sent to no such place.
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
    /// The consumer was given something else than what comes next in the log: it skipped, repeated or made up a record.
    ConsumedDiffers {
        /// Partition.
        partition: i32,
        /// What it was given, and at which offset; nothing if it stopped early.
        given: Option<(i64, Option<RecordId>)>,
        /// What came next in the log.
        next: Option<(i64, Option<RecordId>)>,
    },
    /// Two replicas of a partition differ though nothing is going on any more.
    ReplicasDiffer {
        /// Partition.
        partition: i32,
        /// The brokers compared.
        brokers: (i32, i32),
        /// First offset at which they differ.
        offset: i64,
    },
    /// A reader of committed records saw another part of a transaction than its end allows.
    Torn {
        /// The transaction's first record.
        first: RecordId,
        /// How it ended.
        end: End,
        /// Records of it that were seen.
        visible: usize,
        /// Records that it has.
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
        /// Who had it, and who reads it, too.
        members: (u32, u32),
        /// When.
        at: Duration,
    },
    /// A member began with a partition that its last generation did not give it.
    NeverAssigned {
        /// Member.
        member: u32,
        /// Partition.
        partition: i32,
        /// When.
        at: Duration,
    },
    /// A generation of a group gives a partition to two members.
    AssignedTwice {
        /// The generation.
        generation: i32,
        /// Partition.
        partition: i32,
    },
    /// A member was given a record of a partition that it had let go of.
    GivenAfterAll {
        /// Member.
        member: u32,
        /// Partition.
        partition: i32,
        /// Offset of the record.
        offset: i64,
    },
    /// A member was given another record of its partition than the next one.
    GivenOutOfOrder {
        /// Member.
        member: u32,
        /// Partition.
        partition: i32,
        /// Offset of the next one.
        expected: i64,
        /// Offset of the one it was given.
        given: i64,
    },
    /// A member began to read a partition elsewhere than at the committed offset.
    BeganElsewhere {
        /// Member.
        member: u32,
        /// Partition.
        partition: i32,
        /// What was committed between its assignment and its first record.
        committed: Vec<i64>,
        /// Offset of its first record.
        given: i64,
    },
    /// A member was told that its partitions are lost, and nothing had happened.
    LostForNoReason {
        /// Member.
        member: u32,
        /// When.
        at: Duration,
    },
    /// An offset was committed before all records below it were given out.
    CommittedAhead {
        /// Partition.
        partition: i32,
        /// The offset.
        offset: i64,
        /// What may have been committed at most.
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
        /// What was committed.
        before: i64,
        /// What was committed after it.
        offset: i64,
    },
    /// An acknowledged commit is not in the log.
    CommitGone {
        /// Partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
    /// No member was given a record.
    NeverGiven {
        /// Partition.
        partition: i32,
        /// Offset of the record.
        offset: i64,
    },
    /// A record had no outcome when every limit was over.
    NoOutcome {
        /// The record.
        id: RecordId,
    },
    /// The outcome of a record came later than its settings allow.
    TooLate {
        /// The record.
        id: RecordId,
        /// When the outcome was due.
        due: Duration,
        /// When it came.
        settled: Duration,
    },
    /// Nothing was wrong and no record of the producer was before it, and yet a record took long, or expired.
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
    /// A flush ended before the outcome of a record that was sent before it.
    FlushedEarly {
        /// The record.
        id: RecordId,
    },
    /// A commit that was dropped and repeated failed in a way that leaves the transaction's outcome open.
    CommitUndecided {
        /// Producer.
        producer: u32,
        /// What the client said.
        error: String,
    },
    /// A batch was sent to a former leader.
    StaleLeader(StaleSend),
    /// A record failed because of its sequence number, although the brokers have lost nothing.
    SequenceRefused {
        /// The record.
        id: RecordId,
        /// What the client said.
        error: String,
    },
    /// A producer sent its records again far too often.
    RetryStorm {
        /// Producer.
        producer: u32,
        /// Records sent again, counted each time.
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
    /// A broker ran on after its disk had failed.
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
    /// The controller gave a producer id that is not above those before its crash.
    ProducerIdReused {
        /// Id given before.
        before: i64,
        /// Id given after the restart.
        after: i64,
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
        /// What was outstanding.
        outstanding: String,
    },
    /// The run itself failed.
    Broken {
        /// How.
        error: String,
    },
}

impl Violation {
    /// Name of the kind, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
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
            Self::FlushedEarly { .. } => "flushed-early",
            Self::CommitUndecided { .. } => "commit-undecided",
            Self::StaleLeader(_) => "stale-leader",
            Self::SequenceRefused { .. } => "sequence-refused",
            Self::RetryStorm { .. } => "retry-storm",
            Self::HandoverUncommitted { .. } => "handover-uncommitted",
            Self::FencedWithoutRival { .. } => "fenced-without-rival",
            Self::ServedOnFailedDisk { .. } => "served-on-failed-disk",
            Self::MetadataLost { .. } => "metadata-lost",
            Self::ProducerIdReused { .. } => "producer-id-reused",
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
            Self::Unknown { found } => write!(f, "nobody sent what is at {found:?}"),
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
            Self::FlushedEarly { id } => {
                write!(
                    f,
                    "a flush ended before the outcome of record {id}, which was sent before it"
                )
            }
            Self::CommitUndecided { producer, error } => {
                write!(f, "a repeated commit of producer {producer} has no outcome: {error}")
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

/// Every broken promise in a history, in a fixed order.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found: BTreeMap<RecordId, Vec<(i32, i64)>> = BTreeMap::new();
    let known: BTreeSet<RecordId> = history.sent.iter().map(|sent| sent.id).collect();
    let mut violations = Vec::new();
    for ReadBack { partition, offset, id } in &history.read {
        match id.filter(|id| known.contains(id)) {
            Some(id) => found.entry(id).or_default().push((*partition, *offset)),
            None => violations.push(Violation::Unknown { found: (*partition, *offset) }),
        }
    }
    let twice =
        |(id, copies): &(&RecordId, &Vec<_>)| copies.len() > 1 && history.promise(**id).once;
    for (id, copies) in found.iter().filter(twice) {
        violations.push(Violation::Duplicated { id: *id, copies: copies.clone() });
    }
    violations.extend(
        history
            .sent
            .iter()
            .filter_map(|sent| check_outcome(sent, found.get(&sent.id).map_or(&[], Vec::as_slice)))
            .filter(|violation| is_promised(history, violation)),
    );
    violations.extend(check_read_order(&history.read));
    violations.extend(check_producer_order(&found, history));
    violations.extend(check_offsets_advance(history));
    violations.extend(check_consumed(history));
    violations.extend(check_replicas(history));
    violations.extend(transactions::check(history));
    violations.extend(groups::check(history));
    violations.extend(copies::check(history));
    violations.extend(liveness::check(history));
    violations.extend(disks::check(history));
    violations.extend(history.stale.iter().cloned().map(Violation::StaleLeader));
    violations.extend(check_refusals(history));
    violations.extend(check_retries(history));
    violations.extend(history.strays.iter().map(|stray| Violation::Strayed {
        partition: stray.partition,
        expected: stray.expected,
        given: stray.given,
        at: stray.at,
    }));
    violations.extend(history.needless_resets.iter().map(|reset| Violation::OutOfRangeInLog {
        partition: reset.partition,
        offset: reset.offset,
        at: reset.at,
    }));
    violations.extend(history.unflushed.iter().map(|id| Violation::FlushedEarly { id: *id }));
    violations.extend(history.undecided.iter().map(|(producer, error)| {
        Violation::CommitUndecided { producer: *producer, error: error.clone() }
    }));
    violations
}

/// Whether the settings of the producer promise that this does not happen.
fn is_promised(history: &History, violation: &Violation) -> bool {
    match violation {
        Violation::Lost { id, acknowledged } => {
            is_durable(history, *id) && !is_deleted(history, *acknowledged)
        }
        Violation::Misplaced { id, .. } => is_durable(history, *id),
        _ => true,
    }
}

fn is_durable(history: &History, id: RecordId) -> bool {
    history.promise(id).durable && !history.buried.contains(&id)
}

/// Whether the record may have been deleted on request.
fn is_deleted(history: &History, (partition, offset): (i32, Option<i64>)) -> bool {
    let start = history.starts.get(&partition);
    start.is_some_and(|start| offset.is_none_or(|offset| offset < *start))
}

/// What the client said against where the record is.
fn check_outcome(sent: &Sent, copies: &[(i32, i64)]) -> Option<Violation> {
    let id = sent.id;
    match &sent.outcome {
        Outcome::Acknowledged { partition, offset, .. } => {
            let acknowledged = (*partition, *offset);
            let fits = |(at, of): &(i32, i64)| at == partition && offset.is_none_or(|o| o == *of);
            match copies.first() {
                None => Some(Violation::Lost { id, acknowledged }),
                Some(_) if copies.iter().any(fits) => None,
                Some(&found) => Some(Violation::Misplaced { id, acknowledged, found }),
            }
        }
        Outcome::NotWritten { error } => copies.first().map(|&found| Violation::WrittenAfterAll {
            id,
            error: error.clone(),
            found,
        }),
        Outcome::MaybeWritten { .. } => None,
        Outcome::Pending => Some(Violation::NoOutcome { id }),
    }
}

fn check_read_order(read: &[ReadBack]) -> Vec<Violation> {
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    let mut violations = Vec::new();
    for &ReadBack { partition, offset, .. } in read {
        if let Some(before) = last.insert(partition, offset)
            && before >= offset
        {
            violations.push(Violation::ReadOutOfOrder { partition, before, after: offset });
        }
    }
    violations
}

/// Brokers that have lost nothing refuse no sequence number for good, unless the topic was replaced.
fn check_refusals(history: &History) -> impl Iterator<Item = Violation> {
    const REFUSALS: [&str; 3] =
        ["OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH"];
    history.sent.iter().filter(|sent| !history.buried.contains(&sent.id)).filter_map(|sent| {
        // What may have been written may follow a lost batch, and then fails with the refusal that ended its wait.
        let Outcome::NotWritten { error } = &sent.outcome else { return None };
        // A rival or an abort explains what a transactional producer receives. A batch that waits for an earlier one may be
        // refused until it expires.
        let refused = history.transactions.is_empty()
            && !error.contains("delivery.timeout.ms")
            && REFUSALS.iter().any(|refusal| error.contains(refusal));
        refused.then(|| Violation::SequenceRefused { id: sent.id, error: error.clone() })
    })
}

/// Times that a record may be sent again on average.
const RETRIES: u64 = 12;
/// Times that the records of a producer may be sent again besides.
const RETRIES_MORE: u64 = 300;

/// Backoff and waiting for another leader bound how often records are sent again.
fn check_retries(history: &History) -> impl Iterator<Item = Violation> {
    history.retries.iter().filter_map(|(&producer, &retries)| {
        let records = history.sent.iter().filter(|sent| sent.id.producer == producer).count();
        let storm = retries > RETRIES * records as u64 + RETRIES_MORE;
        storm.then_some(Violation::RetryStorm { producer, retries, records })
    })
}

/// Records of a producer lie in each partition in the order of their sends, but for those that may change their
/// partition. A record with several copies counts
/// where it is first: the others are reported as such.
fn check_producer_order(
    found: &BTreeMap<RecordId, Vec<(i32, i64)>>,
    history: &History,
) -> Vec<Violation> {
    let is_bound = |id: &RecordId| !history.free.contains(id) && history.promise(*id).ordered;
    let mut last: BTreeMap<(u32, i32), (RecordId, i64)> = BTreeMap::new();
    let mut violations = Vec::new();
    for (id, copies) in found.iter().filter(|(id, _)| is_bound(id)) {
        let Some(&(partition, offset)) = copies.iter().min_by_key(|(_, offset)| *offset) else {
            continue;
        };
        let last = last.entry((id.producer, partition)).or_insert((*id, offset));
        if last.1 > offset {
            violations.push(Violation::Reordered { partition, first: *last, later: (*id, offset) });
        } else {
            *last = (*id, offset);
        }
    }
    violations
}

/// An acknowledged offset is above every offset of the partition that was acknowledged before the send began.
fn check_offsets_advance(history: &History) -> Vec<Violation> {
    let sent = &history.sent;
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Event {
        // At the same time, the send counts as begun before the acknowledgement came: that proves less.
        Begin(usize),
        Acknowledged(usize),
    }
    let mut events: Vec<(Duration, Event)> = Vec::new();
    for (index, record) in sent.iter().enumerate() {
        if !history.promise(record.id).durable || history.buried.contains(&record.id) {
            continue;
        }
        if let Outcome::Acknowledged { at, offset: Some(_), .. } = record.outcome {
            events.push((record.at, Event::Begin(index)));
            events.push((at, Event::Acknowledged(index)));
        }
    }
    events.sort();
    let mut highest: BTreeMap<i32, i64> = BTreeMap::new();
    let mut violations = Vec::new();
    for (_, event) in events {
        let (Event::Begin(index) | Event::Acknowledged(index)) = event;
        let Outcome::Acknowledged { partition, offset: Some(offset), .. } = sent[index].outcome
        else {
            continue;
        };
        let highest = highest.entry(partition).or_insert(-1);
        match event {
            Event::Begin(_) if offset <= *highest => violations.push(Violation::OffsetRegression {
                id: sent[index].id,
                partition,
                offset,
                before: *highest,
            }),
            Event::Begin(_) => {}
            Event::Acknowledged(_) => *highest = offset.max(*highest),
        }
    }
    violations
}

/// What is committed stays as it is: a consumer that starts at the beginning is given each partition's log, record for
/// record, whatever happens meanwhile.
fn check_consumed(history: &History) -> Vec<Violation> {
    type Log = BTreeMap<i32, Vec<(i64, Option<RecordId>)>>;
    let by_partition = |records: &[ReadBack]| -> Log {
        let mut logs = Log::new();
        // The consumer reads the first topic only.
        for record in records.iter().filter(|record| record.partition < PLACES) {
            logs.entry(record.partition).or_default().push((record.offset, record.id));
        }
        logs
    };
    let (log, given) = (by_partition(&history.read), by_partition(&history.consumed));
    let partitions: BTreeSet<i32> = log.keys().chain(given.keys()).copied().collect();
    let empty = Vec::new();
    let differs = |partition| {
        let log = log.get(&partition).unwrap_or(&empty);
        let given = given.get(&partition).unwrap_or(&empty);
        let at = (0..log.len().max(given.len())).find(|&at| log.get(at) != given.get(at))?;
        let (given, next) = (given.get(at).copied(), log.get(at).copied());
        Some(Violation::ConsumedDiffers { partition, given, next })
    };
    partitions.into_iter().filter_map(differs).collect()
}

/// At rest, every replica of a partition has the same batches.
fn check_replicas<'a>(history: &'a History) -> Vec<Violation> {
    let mut first: BTreeMap<i32, &'a ReplicaLog> = BTreeMap::new();
    let mut violations = Vec::new();
    for log in &history.replicas {
        let reference = *first.entry(log.partition).or_insert(log);
        // Followers delete old segments later.
        let start = reference.start_offset.max(log.start_offset);
        let from = |log: &'a ReplicaLog| log.batches.iter().filter(move |batch| batch.0 >= start);
        let differs = from(reference)
            .zip(from(log))
            .find(|(a, b)| a != b)
            .map(|(a, b)| a.0.min(b.0))
            .or_else(|| {
                (reference.end_offset != log.end_offset)
                    .then(|| reference.end_offset.min(log.end_offset))
            });
        if let Some(offset) = differs {
            violations.push(Violation::ReplicasDiffer {
                partition: log.partition,
                brokers: (reference.broker, log.broker),
                offset,
            });
        }
    }
    violations
}
