//! The transactions of one transactional id, as its producer sees them (KIP-98, KIP-360, KIP-447, KIP-890).
//!
//! The machine holds the state of the transaction, decides the next request to a coordinator, and interprets its
//! response. It sends nothing: [`Machine::next`] returns one step at a time. The caller reports back with
//! [`Machine::found`], [`Machine::answered`] or [`Machine::drained`].
//!
//! ```text
//!   New ── init ──▶ Initializing ──▶ Ready ◀───────────────────────────┐
//!                                     │ begin                          │
//!                                     ▼                                │
//!                                   Open ── commit ──▶ Committing ─────┤
//!                                     │ a batch or a request fails     │
//!                                     ▼                                │
//!                                 Abortable ── abort ──▶ Draining ──▶ Aborting ──▶ Renewing
//!                                                                      (a new epoch)
//! ```
//!
//! From every state a fenced producer goes to `Fatal` and stays there.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use curtail_wire::ErrorCode;

use crate::{accumulator::ProducerIdentity, backoff::Backoff, metadata::Node};

mod answers;
#[cfg(test)]
mod tests;

pub use answers::{Reply, Severity, severity_of_batch};

/// Level of the feature `transaction.version` from which on transactions work as in KIP-890's second part.
const LEVEL_OF_V2: i16 = 2;

/// A partition: topic and index.
pub type Key = (Arc<str>, i32);

/// How the brokers run a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Partitions and groups are added to the transaction before they are written to.
    V1,
    /// The brokers add a partition when it is written to, and every transaction ends with a new epoch (KIP-890).
    V2,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its records become visible.
    Commit,
    /// Its records never become visible.
    Abort,
}

/// Receiver of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coordinator {
    /// The coordinator of the transactional id.
    Transaction,
    /// The coordinator of this consumer group.
    Group(Arc<str>),
}

/// Offsets of a group, to be committed with the transaction (KIP-447).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffsets {
    /// `group.id`.
    pub group: Arc<str>,
    /// Generation of the group, -1 without a group membership.
    pub generation: i32,
    /// Id of the member, empty without a group membership.
    pub member: Arc<str>,
    /// `group.instance.id`.
    pub instance: Option<Arc<str>>,
    /// Offsets to commit, by partition.
    pub offsets: Vec<(Key, CommittedOffset)>,
}

/// An offset to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the record before it, -1 if unknown.
    pub leader_epoch: i32,
    /// Text of the application's choice.
    pub metadata: Arc<str>,
}

/// A request to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// InitProducerId: the first identity, or the next epoch of this one.
    InitProducerId(Option<ProducerIdentity>),
    /// AddPartitionsToTxn.
    AddPartitions(Vec<Key>),
    /// AddOffsetsToTxn.
    AddOffsets(Arc<str>),
    /// TxnOffsetCommit.
    CommitOffsets(Arc<GroupOffsets>),
    /// EndTxn.
    End(Outcome),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until one of the calls changes that.
    Idle,
    /// Nothing before this time.
    Wait(Instant),
    /// Fail every batch that is not in flight, then call [`Machine::drained`].
    Drain {
        /// Also wait until the batches in flight have an outcome.
        wait_for_in_flight: bool,
    },
    /// Find the coordinator and report with [`Machine::found`].
    Find(Coordinator),
    /// Send this to the broker and report with [`Machine::answered`].
    Ask(Node, Coordinator, Request),
}

/// Why a transaction or the producer has failed. `E` is the caller's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason<E> {
    /// A coordinator refused a request.
    Refused {
        /// The request.
        request: &'static str,
        /// The partition or group that it concerned; empty for the transaction as a whole.
        about: String,
        /// The coordinator's error code.
        code: ErrorCode,
    },
    /// The caller reported this error.
    Reported(E),
}

/// State of the producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status<E> {
    /// [`Machine::init`] was not called, or failed with this.
    New(Option<Reason<E>>),
    /// No transaction is open.
    Ready,
    /// A transaction is open.
    Open,
    /// The open transaction can only be aborted.
    Abortable(Reason<E>),
    /// Initializing, committing or aborting.
    Busy(Busy),
    /// The producer has failed for good.
    Fatal(Reason<E>),
}

/// The operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// The identity is being requested.
    Initializing,
    /// The transaction is being committed; its outcome is fixed.
    Committing,
    /// The transaction is being aborted.
    Aborting,
}

#[derive(Debug)]
enum Phase<E> {
    New(Option<Reason<E>>),
    Initializing,
    Ready,
    Open,
    Abortable(Reason<E>),
    Committing,
    /// Aborting: batches that were not sent are taken back, and with version 1 those in flight must have an outcome.
    Draining,
    /// Aborting: EndTxn.
    Aborting,
    /// Aborting: the next epoch.
    Renewing,
    Fatal(Reason<E>),
}

/// A call that does not fit the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfPlace<E>(pub Status<E>);

/// The state of one transactional id.
#[derive(Debug)]
pub struct Machine<E> {
    phase: Phase<E>,
    identity: Option<ProducerIdentity>,
    /// `transaction.version` as last reported by the coordinator; the next transaction follows it.
    level: i16,
    protocol: Protocol,
    /// Counts transactions.
    serial: u64,
    /// Whether the coordinator must receive the end of this transaction: a partition or group was added, or may have
    /// been.
    started: bool,
    /// The transaction's sequences have a gap: the next one needs a new epoch (KIP-360).
    renew: bool,
    /// Whether the coordinator no longer knows the producer id: there is no transaction to end.
    unknown_to_coordinator: bool,
    /// Whether batches that are not in flight must fail.
    drain: bool,
    /// Partitions to add.
    to_add: BTreeSet<Key>,
    /// Partitions in a request without a response yet.
    adding: BTreeSet<Key>,
    /// A request to add some of `adding` may have been carried out, although no response said so.
    in_doubt: bool,
    /// The same for a request to add this group.
    group_in_doubt: Option<Arc<str>>,
    offsets: VecDeque<PendingOffsets>,
    offsets_taken: u64,
    offsets_done: u64,
    coordinators: BTreeMap<Coordinator, Node>,
    backoff: Backoff,
    failures: u32,
    not_before: Option<Instant>,
    /// Why the last request must be repeated.
    last: Option<Reason<E>>,
}

#[derive(Debug)]
struct PendingOffsets {
    ticket: u64,
    group_added: bool,
    offsets: Arc<GroupOffsets>,
}

impl<E: Clone> Machine<E> {
    /// Creates a producer without an identity. `backoff` is between repeated requests.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            phase: Phase::New(None),
            identity: None,
            level: 0,
            protocol: Protocol::V1,
            serial: 0,
            started: false,
            renew: false,
            unknown_to_coordinator: false,
            drain: false,
            to_add: BTreeSet::new(),
            adding: BTreeSet::new(),
            in_doubt: false,
            group_in_doubt: None,
            offsets: VecDeque::new(),
            offsets_taken: 0,
            offsets_done: 0,
            coordinators: BTreeMap::new(),
            backoff,
            failures: 0,
            not_before: None,
            last: None,
        }
    }

    /// State of the producer.
    pub fn status(&self) -> Status<E> {
        match &self.phase {
            Phase::New(why) => Status::New(why.clone()),
            Phase::Initializing => Status::Busy(Busy::Initializing),
            Phase::Ready => Status::Ready,
            Phase::Open => Status::Open,
            Phase::Abortable(why) => Status::Abortable(why.clone()),
            Phase::Committing => Status::Busy(Busy::Committing),
            Phase::Draining | Phase::Aborting | Phase::Renewing => Status::Busy(Busy::Aborting),
            Phase::Fatal(why) => Status::Fatal(why.clone()),
        }
    }

    /// The producer's identity, once it is initialized.
    pub fn identity(&self) -> Option<ProducerIdentity> {
        self.identity
    }

    /// How the open transaction is run.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Another broker has replaced the transaction's coordinator.
    pub fn coordinator_moved(&mut self, replaced: i32, to: Node) {
        if let Some(known) = self.coordinators.get_mut(&Coordinator::Transaction)
            && known.id == replaced
        {
            *known = to;
        }
    }

    /// Number of the open transaction or, without one, of the last.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Identity with which batches of the open transaction are stamped; `None` while none may leave.
    pub fn stamps(&self) -> Option<ProducerIdentity> {
        self.identity.filter(|_| matches!(self.phase, Phase::Open))
    }

    /// Why the last request must be repeated, if it must.
    pub fn last_problem(&self) -> Option<&Reason<E>> {
        self.last.as_ref()
    }

    /// Starts requesting the identity. Has no effect if that was done.
    pub fn init(&mut self) {
        if matches!(self.phase, Phase::New(_)) {
            self.phase = Phase::Initializing;
            self.repeat_at_once();
        }
    }

    /// Opens a transaction.
    ///
    /// # Errors
    /// Unless the producer is ready.
    pub fn begin(&mut self) -> Result<(), OutOfPlace<E>> {
        if !matches!(self.phase, Phase::Ready) {
            return Err(OutOfPlace(self.status()));
        }
        self.phase = Phase::Open;
        self.serial += 1;
        self.protocol = if self.level >= LEVEL_OF_V2 { Protocol::V2 } else { Protocol::V1 };
        self.repeat_at_once();
        Ok(())
    }

    /// Records that the open transaction writes to a partition. Returns whether it may do so already. If not,
    /// [`Machine::answered`] returns the partition once it may.
    pub fn enlist(&mut self, key: Key) -> bool {
        if !matches!(self.phase, Phase::Open) {
            return false;
        }
        match self.protocol {
            Protocol::V2 => self.started = true,
            Protocol::V1 => {
                self.to_add.insert(key);
            }
        }
        self.protocol == Protocol::V2
    }

    /// Adds a group's offsets to the open transaction, and returns the number to wait for in [`Machine::offsets_done`].
    ///
    /// # Errors
    /// Unless a transaction is open and has not failed.
    pub fn add_offsets(&mut self, offsets: GroupOffsets) -> Result<u64, OutOfPlace<E>> {
        if !matches!(self.phase, Phase::Open) {
            return Err(OutOfPlace(self.status()));
        }
        if offsets.offsets.is_empty() {
            return Ok(self.offsets_done);
        }
        self.offsets_taken += 1;
        let ticket = self.offsets_taken;
        let offsets = Arc::new(offsets);
        self.offsets.push_back(PendingOffsets { ticket, group_added: false, offsets });
        Ok(ticket)
    }

    /// Number of completed calls of [`Machine::add_offsets`].
    pub fn offsets_done(&self) -> u64 {
        self.offsets_done
    }

    /// Commits the open transaction. All its batches must have been written. From here on the outcome is fixed; the
    /// request is repeated until it has a response.
    ///
    /// # Errors
    /// Unless a transaction is open and has not failed.
    pub fn commit(&mut self) -> Result<(), OutOfPlace<E>> {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Committing;
                Ok(())
            }
            Phase::Committing => Ok(()),
            _ => Err(OutOfPlace(self.status())),
        }
    }

    /// Aborts the open transaction, also one that has failed.
    ///
    /// # Errors
    /// If no transaction is open, or its commit may be in flight.
    pub fn abort(&mut self) -> Result<(), OutOfPlace<E>> {
        match self.phase {
            Phase::Open | Phase::Abortable(_) => {
                self.phase = Phase::Draining;
                self.drain = true;
                self.to_add.clear();
                self.offsets.clear();
                self.offsets_done = self.offsets_taken;
                self.repeat_at_once();
                Ok(())
            }
            Phase::Draining | Phase::Aborting | Phase::Renewing => Ok(()),
            _ => Err(OutOfPlace(self.status())),
        }
    }

    /// Returns the next step.
    pub fn next(&mut self, now: Instant) -> Step {
        if self.drain {
            let aborting = matches!(self.phase, Phase::Draining);
            return Step::Drain { wait_for_in_flight: aborting && self.protocol == Protocol::V1 };
        }
        let Some((coordinator, request)) = self.next_request() else { return Step::Idle };
        if let Some(at) = self.not_before.filter(|&at| at > now) {
            return Step::Wait(at);
        }
        match self.coordinators.get(&coordinator) {
            Some(node) => Step::Ask(node.clone(), coordinator, request),
            None => Step::Find(coordinator),
        }
    }

    fn next_request(&mut self) -> Option<(Coordinator, Request)> {
        let request = match &self.phase {
            Phase::Initializing => Request::InitProducerId(None),
            Phase::Renewing => Request::InitProducerId(self.identity),
            Phase::Open => return self.next_of_open(),
            Phase::Committing => match self.next_of_open() {
                Some(next) => return Some(next),
                None if self.started => Request::End(Outcome::Commit),
                None => {
                    self.finish();
                    return None;
                }
            },
            // Additions in doubt must be settled before the end: the coordinator refuses to end a transaction that
            // has not begun for it.
            Phase::Aborting if !self.adding.is_empty() => {
                Request::AddPartitions(self.adding.iter().cloned().collect())
            }
            Phase::Aborting if self.group_in_doubt.is_some() => {
                Request::AddOffsets(self.group_in_doubt.clone().unwrap_or_default())
            }
            Phase::Aborting if self.started && !self.unknown_to_coordinator => {
                Request::End(Outcome::Abort)
            }
            Phase::Aborting if self.renew || self.unknown_to_coordinator => {
                self.phase = Phase::Renewing;
                Request::InitProducerId(self.identity)
            }
            Phase::Aborting => {
                self.finish();
                return None;
            }
            _ => return None,
        };
        Some((Coordinator::Transaction, request))
    }

    /// Returns the next request that adds to the transaction.
    fn next_of_open(&mut self) -> Option<(Coordinator, Request)> {
        self.adding.append(&mut self.to_add);
        if !self.adding.is_empty() {
            let partitions = self.adding.iter().cloned().collect();
            return Some((Coordinator::Transaction, Request::AddPartitions(partitions)));
        }
        let pending = self.offsets.front()?;
        let group = pending.offsets.group.clone();
        if self.protocol == Protocol::V1 && !pending.group_added {
            return Some((Coordinator::Transaction, Request::AddOffsets(group)));
        }
        // With version 2 this request adds the group, with or without a response.
        self.started = true;
        Some((Coordinator::Group(group), Request::CommitOffsets(pending.offsets.clone())))
    }

    /// Reports that every batch that was not in flight has failed. Batches in flight have their outcomes, if
    /// [`Step::Drain`] asked for that.
    pub fn drained(&mut self, waited: bool) {
        if !matches!(self.phase, Phase::Draining) {
            self.drain = false;
            return;
        }
        // The call to abort may have come while a failed transaction was drained.
        if self.protocol == Protocol::V1 && !waited {
            return;
        }
        self.drain = false;
        self.phase = Phase::Aborting;
        if !self.in_doubt {
            self.adding.clear();
        }
    }

    /// Whether a batch with this stamp belongs to the transaction that is open or ending. A batch of an earlier
    /// transaction does not affect this one.
    fn is_of_this_transaction(&self, stamped: Option<ProducerIdentity>) -> bool {
        stamped.is_none() || stamped == self.identity
    }

    /// Reports that a batch was not written, or that its outcome is unknown. `stamped` is the identity it was sent
    /// with, if it was sent.
    pub fn batch_failed(
        &mut self,
        stamped: Option<ProducerIdentity>,
        severity: Severity,
        cause: E,
    ) {
        if !self.is_of_this_transaction(stamped) {
            return;
        }
        if severity == Severity::Fatal {
            return self.fatal(Reason::Reported(cause));
        }
        // With version 2 the end of the transaction brings a new epoch in any case.
        let has_gap = self.protocol == Protocol::V1;
        match self.phase {
            Phase::Open => {
                self.renew |= has_gap;
                self.abortable(Reason::Reported(cause));
            }
            Phase::Abortable(_) | Phase::Draining => self.renew |= has_gap,
            _ => {}
        }
    }

    /// Marks the transaction as only abortable.
    fn abortable(&mut self, why: Reason<E>) {
        match self.phase {
            Phase::Open | Phase::Committing => {
                self.phase = Phase::Abortable(why);
                self.drain = true;
                self.offsets.clear();
                self.offsets_done = self.offsets_taken;
                self.to_add.clear();
            }
            // The coordinator cannot carry out this abort, because it knows no open transaction.
            Phase::Aborting => {
                self.adding.clear();
                self.group_in_doubt = None;
                self.unknown_to_coordinator = true;
                self.repeat_at_once();
            }
            _ => {}
        }
    }

    fn fatal(&mut self, why: Reason<E>) {
        if !matches!(self.phase, Phase::Fatal(_)) {
            self.phase = Phase::Fatal(why);
            self.drain = true;
        }
    }

    /// Resets the state after the end of the transaction.
    fn finish(&mut self) {
        self.phase = Phase::Ready;
        self.started = false;
        self.renew = false;
        self.unknown_to_coordinator = false;
        self.in_doubt = false;
        self.group_in_doubt = None;
        self.to_add.clear();
        self.adding.clear();
        self.repeat_at_once();
    }

    fn repeat_at_once(&mut self) {
        self.failures = 0;
        self.not_before = None;
        self.last = None;
    }
}
