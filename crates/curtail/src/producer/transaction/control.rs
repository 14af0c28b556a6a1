//! The transaction machine and its lock, which is innermost: no other lock is taken while it is held.

use std::sync::Arc;

use curtail_proto::{
    accumulator::{Idempotence, ProducerIdentity},
    backoff::Backoff,
    later::Later,
    transaction::{Machine, Protocol, Reason, Status, severity_of_batch},
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};

use super::{
    super::partition::{Partition, PartitionState},
    Strays, Succession,
};
use crate::{
    Error, ProducerConfig, Result,
    runtime::{Runtime, within},
};

/// The last transaction that wrote to the partition, and whether the coordinator knows of it. Guarded by the
/// partition's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::producer) struct Enlisted(
    /// Twice the serial number of the last transaction that wrote to the partition, plus one if the coordinator knows
    /// of it. Packed, because every partition has one.
    u64,
);

impl Enlisted {
    fn new(serial: u64, added: bool) -> Self {
        Self(serial << 1 | u64::from(added))
    }

    fn serial(self) -> u64 {
        self.0 >> 1
    }

    fn is_added(self) -> bool {
        self.0 & 1 == 1
    }
}

/// State shared by the calls, the lanes and the driver of a transactional producer.
pub(in crate::producer) struct Control {
    id: Arc<str>,
    machine: Mutex<Machine<Error>>,
    /// Wakes the driver.
    wake: Notify,
    /// Notified after every change of the machine.
    changed: watch::Sender<()>,
    /// The producer's runtime; callers may be outside it.
    runtime: Runtime,
    pub(in crate::producer) strays: Strays,
    pub(in crate::producer) succession: Succession,
}

impl Control {
    pub(in crate::producer) fn new(
        id: &str,
        config: &ProducerConfig,
        runtime: Runtime,
    ) -> Arc<Self> {
        let common = &config.common;
        let backoff = Backoff { initial: common.retry_backoff, max: common.retry_backoff_max };
        Arc::new(Self {
            id: id.into(),
            machine: Mutex::new(Machine::new(backoff)),
            wake: Notify::new(),
            changed: watch::Sender::new(()),
            runtime,
            strays: Strays::new(),
            succession: Succession::default(),
        })
    }

    /// `transactional.id`.
    pub(in crate::producer) fn id(&self) -> &str {
        &self.id
    }

    /// Whether partitions are added to a transaction before they are written to.
    pub(in crate::producer) fn adds_partitions(&self) -> bool {
        self.machine.lock().protocol() == Protocol::V1
    }

    /// Returns the numbering of the partition's next batch, and adds the partition to the transaction. All queued
    /// batches belong to the open transaction, because they have their outcomes before the next one begins.
    pub(in crate::producer) fn stamps(
        &self,
        partition: &Partition,
        state: &mut PartitionState,
    ) -> Idempotence {
        let mut machine = self.machine.lock();
        let Some(identity) = machine.stamps() else { return Idempotence::Pending };
        let serial = machine.serial();
        if state.enlisted.serial() != serial {
            let added = machine.enlist((partition.topic.clone(), partition.index));
            state.enlisted = Enlisted::new(serial, added);
            if !added {
                drop(machine);
                self.wake.notify_one();
            }
        }
        if state.enlisted.is_added() {
            Idempotence::Transaction(identity)
        } else {
            Idempotence::Pending
        }
    }

    /// Records that the coordinator knows of the partition. `serial` is the transaction that added it.
    pub(super) fn added(&self, state: &mut PartitionState, serial: u64) {
        if state.enlisted.serial() == serial {
            state.enlisted = Enlisted::new(serial, true);
        }
    }

    /// Records that a batch fails.
    pub(in crate::producer) fn batch_fails(
        &self,
        stamped: Option<ProducerIdentity>,
        cause: &Error,
    ) {
        let severity = severity_of_batch(code_of(cause));
        self.change(|machine| machine.batch_failed(stamped, severity, cause.clone()));
    }

    /// Reads the machine.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Machine<Error>) -> T) -> T {
        look(&mut self.machine.lock())
    }

    /// Changes the machine, and wakes the driver and all waiting calls.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Machine<Error>) -> T) -> T {
        let result = change(&mut self.machine.lock());
        self.announce();
        self.wake.notify_one();
        result
    }

    /// Makes waiting calls look again.
    pub(super) fn announce(&self) {
        self.changed.send_replace(());
    }

    /// Waits for the next change that concerns the driver.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Waits until `look` returns a value.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn until<T>(&self, mut look: impl FnMut(&Machine<Error>) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let seen = look(&self.machine.lock());
            if let Some(seen) = seen {
                return seen;
            }
            // `self` owns the sender, so the wait cannot fail.
            let _ = changed.changed().await;
        }
    }

    /// As [`Control::until`], up to the deadline of `limit`. The error names the last problem with a coordinator.
    pub(super) async fn until_deadline<T>(
        &self,
        limit: &Limit,
        look: impl FnMut(&Machine<Error>) -> Option<T>,
    ) -> Result<T> {
        let seen = async { timeout_at(limit.deadline, self.until(look)).await };
        match within(&self.runtime, seen).await? {
            Ok(seen) => Ok(seen),
            Err(_) => Err(self.too_late(limit)),
        }
    }

    pub(super) fn too_late(&self, limit: &Limit) -> Error {
        let last = self.machine.lock().last_problem().cloned();
        let last = last.map(|reason| Arc::new(self.describe(reason)));
        Error::Timeout { what: limit.what, limit: limit.limit, last }
    }

    /// Fails unless a transaction is open and intact.
    pub(super) fn check_open(&self) -> Result<()> {
        let machine = self.machine.lock();
        if machine.stamps().is_some() {
            return Ok(());
        }
        let status = machine.status();
        drop(machine);
        Err(self.out_of_place(status))
    }

    /// The error for records that were not sent.
    pub(super) fn end_of_transaction(&self) -> Error {
        match self.look(|machine| machine.status()) {
            status @ (Status::Abortable(_) | Status::Fatal(_)) => self.out_of_place(status),
            _ => Error::TransactionAborted,
        }
    }

    /// The error for a call that does not fit this state.
    pub(super) fn out_of_place(&self, status: Status<Error>) -> Error {
        match status {
            Status::New(Some(reason)) => self.describe(reason),
            Status::New(None) => {
                Error::IllegalState("call init_transactions before the first transaction")
            }
            Status::Ready | Status::Open => Error::IllegalState("no transaction is open"),
            Status::Busy(_) => Error::IllegalState(
                "the transaction is being committed or aborted; repeat that call until it succeeds",
            ),
            Status::Abortable(reason) => {
                Error::TransactionAbortable { cause: Arc::new(self.describe(reason)) }
            }
            Status::Fatal(reason) => {
                Error::TransactionFatal { cause: Arc::new(self.describe(reason)) }
            }
        }
    }

    fn describe(&self, reason: Reason<Error>) -> Error {
        match reason {
            Reason::Reported(error) => error,
            Reason::Refused { request, about, code } => {
                let what = match about.as_str() {
                    "" => format!("{request} of transactional.id '{}'", self.id),
                    about => format!("{request} of transactional.id '{}' for {about}", self.id),
                };
                // Coordinators have two codes for this; Java merges them, too.
                let code = match code {
                    ErrorCode::INVALID_PRODUCER_EPOCH => ErrorCode::PRODUCER_FENCED,
                    code => code,
                };
                Error::Broker { what: what.into(), code, message: Some(code.message().into()) }
            }
        }
    }
}

use curtail_wire::ErrorCode;

/// The broker's code in an error, if there is one.
fn code_of(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::Broker { code, .. } => Some(*code),
        _ => None,
    }
}

/// The deadline of a call, and its name.
pub(super) struct Limit {
    pub(super) what: &'static str,
    pub(super) limit: std::time::Duration,
    pub(super) deadline: Instant,
}

impl Limit {
    pub(super) fn new(what: &'static str, limit: std::time::Duration) -> Self {
        Self { what, limit, deadline: Instant::now().later(limit) }
    }
}
