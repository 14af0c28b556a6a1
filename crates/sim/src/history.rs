//! What a workload sent, what became of it, and what was read back.

use std::{collections::BTreeSet, time::Duration};

/// Names a record: which producer sent it, and its number in the order of that producer's sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// Producer.
    pub producer: u32,
    /// Number of the send, from 0.
    pub number: u32,
}

/// What the client said of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the log.
    Acknowledged {
        /// When the acknowledgement reached the caller, in virtual time.
        at: Duration,
        /// Partition.
        partition: i32,
        /// Offset, where the client knows it.
        offset: Option<i64>,
    },
    /// It certainly is not in the log.
    NotWritten {
        /// What the client said.
        error: String,
    },
    /// It may be in the log.
    MaybeWritten {
        /// What the client said.
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
    /// What became of it.
    pub outcome: Outcome,
}

/// One record read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBack {
    /// Partition it was read from.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// What it says it is; `None` for a record that no producer sent.
    pub id: Option<RecordId>,
}

/// The log of one replica at the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaLog {
    /// Broker.
    pub broker: i32,
    /// Partition.
    pub partition: i32,
    /// One entry per batch in order: base offset and a hash of everything that must be the same on all replicas.
    pub batches: Vec<(i64, u64)>,
    /// Offset behind the last record.
    pub end_offset: i64,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its records, as far as their sends were accepted.
    pub records: Vec<RecordId>,
    /// How it ended.
    pub end: End,
}

/// What is certain of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The commit was acknowledged.
    Committed,
    /// It was never committed, or not before somebody else had taken its place.
    Aborted,
    /// A commit was begun, and nobody said what became of it.
    Unknown,
}

/// Everything the checker looks at.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Records that belong to no partition until they are sent: their order within one is not promised.
    pub free: BTreeSet<RecordId>,
    /// Batches that the producers moved from a partition in trouble to another one.
    pub moved_batches: u64,
    /// Every send, in the order of the calls of each producer.
    pub sent: Vec<Sent>,
    /// Every record of every partition, as the leaders have them at the end.
    pub read: Vec<ReadBack>,
    /// What a consumer returned that read every partition from its beginning while all this went on.
    pub consumed: Vec<ReadBack>,
    /// The transactions.
    pub transactions: Vec<Transaction>,
    /// What a reader of committed records saw of every partition, where there are transactions.
    pub committed: Vec<ReadBack>,
    /// The replicas' logs.
    pub replicas: Vec<ReplicaLog>,
}
