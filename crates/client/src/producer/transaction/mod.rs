//! Transactions: records of several partitions and consumed offsets, all of them or none (KIP-98, KIP-447, KIP-890).

mod control;
mod driver;
mod offsets;
mod requests;
mod strays;

use curtail_net::Env;
use curtail_proto::{
    plant::{Plant, planted},
    transaction::{Busy, Machine, Protocol, Status},
};
use tokio::{task::AbortHandle, time::timeout_at};

use self::control::Limit;
pub use self::offsets::{ConsumerGroupMetadata, OffsetAndMetadata};
pub(in crate::producer) use self::{
    control::{Control, Enlisted},
    strays::{Stray, Strays},
};
use super::{Delivery, Producer};
use crate::{
    ConfigError, Error, ProducerConfig, ProducerMetrics, Record, Result, TopicPartition,
    runtime::within,
};

/// A producer whose records and offsets become visible together or not at all.
///
/// There is one open transaction at a time, and one live producer of a `transactional.id`: a newer one fences the
/// older ones, whose calls fail with [`Error::TransactionFatal`].
///
/// Errors are of three kinds (KIP-691, KIP-1050). [`Error::is_abortable`]: the transaction can only be aborted, and the
/// next one may succeed. [`Error::is_fatal`]: this producer can do nothing more; drop it, and make another one unless
/// it was fenced ([`Error::is_fenced`]). Of [`Error::Timeout`] nothing has to be thought: the same call may be made
/// again, and goes on where it was.
///
/// # Consume, transform, produce
///
/// Exactly once, with assigned partitions: the offsets are committed with the records made of what was read, so a
/// worker that starts again goes on where the last commit was, and readers with `isolation.level=read_committed` see
/// each result once.
///
/// ```no_run
/// use std::{collections::BTreeMap, time::Duration};
/// use curtail::{
///     Consumer, ConsumerConfig, ConsumerGroupMetadata, IsolationLevel, OffsetAndMetadata, ProducerConfig, Record,
///     TopicPartition, TransactionalProducer,
/// };
///
/// # async fn committed_offset(_: &TopicPartition) -> curtail::Result<i64> { Ok(0) }
/// # fn transform(value: &[u8]) -> Vec<u8> { value.to_vec() }
/// # async fn worker() -> curtail::Result<()> {
/// let orders = TopicPartition::new("orders", 0);
/// let mut consumer = Consumer::new(
///     ConsumerConfig::new("localhost:9092").isolation_level(IsolationLevel::ReadCommitted),
/// )?;
/// // One transactional.id for each input partition: whoever takes the partition over fences the one before.
/// let mut producer = TransactionalProducer::new(
///     ProducerConfig::new("localhost:9092").transactional_id("billing-orders-0"),
/// )?;
/// producer.init_transactions().await?;
///
/// let group = ConsumerGroupMetadata::new("billing");
/// consumer.assign([orders.clone()]);
/// consumer.seek(&orders, committed_offset(&orders).await?)?;
/// loop {
///     let records = consumer.poll(Duration::from_secs(1)).await?;
///     let transaction = producer.begin_transaction().await?;
///     let mut next = BTreeMap::new();
///     for record in records {
///         let invoice = transform(record.value().unwrap_or_default());
///         transaction.send(Record::to("invoices").value(&invoice)).await?;
///         next.insert(orders.clone(), OffsetAndMetadata::new(record.offset() + 1));
///     }
///     transaction.send_offsets_to_transaction(next.clone(), &group).await?;
///     match transaction.commit().await {
///         Ok(()) => {}
///         Err(error) if error.is_abortable() => {
///             producer.abort_transaction().await?;
///             consumer.seek(&orders, committed_offset(&orders).await?)?;
///         }
///         // Nobody knows yet: the same call leads to the same outcome.
///         Err(Error::Timeout { .. }) => producer.commit_transaction().await?,
///         Err(error) => return Err(error),
///     }
/// }
/// # }
/// # use curtail::Error;
/// ```
pub struct TransactionalProducer {
    inner: Producer,
    driver: Option<AbortHandle>,
    /// The end requested last, until a call has returned its outcome.
    unreported: Option<End>,
}

/// How a transaction is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
}

impl std::fmt::Debug for TransactionalProducer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = &self.inner.shared.config.transactional_id;
        f.debug_struct("TransactionalProducer")
            .field("transactional_id", id)
            .finish_non_exhaustive()
    }
}

impl Drop for TransactionalProducer {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

impl TransactionalProducer {
    /// A transactional producer in the real world. Nothing is connected before
    /// [`TransactionalProducer::init_transactions`].
    ///
    /// # Errors
    /// [`Error::Config`] for settings that cannot be used, or without `transactional.id`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(config: ProducerConfig) -> Result<Self> {
        Self::with_env(config, &Env::real())
    }

    /// A transactional producer on a network, clock and randomness of the caller's choosing.
    ///
    /// # Errors
    /// As [`TransactionalProducer::new`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_env(config: ProducerConfig, env: &Env) -> Result<Self> {
        if config.transactional_id.is_none() {
            return Err(ConfigError::Missing("transactional.id").into());
        }
        Ok(Self { inner: Producer::start(config, env)?, driver: None, unreported: None })
    }

    /// As [`Producer::metrics`].
    pub fn metrics(&self) -> ProducerMetrics {
        self.inner.metrics()
    }

    /// Takes the `transactional.id` over: earlier producers with it are fenced, a transaction they left open is
    /// aborted, and one that they were committing is finished. Once it has succeeded, calling it again does nothing.
    /// Bounded by `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::Timeout`]: call it again. [`Error::Broker`] if the coordinator refuses, such as for want of a right or
    /// for a `transaction.timeout.ms` above the brokers' `transaction.max.timeout.ms`; it may be called again.
    /// [`Error::TransactionFatal`] if not.
    ///
    /// # Cancel safety
    /// Cancel safe; what has begun goes on.
    pub async fn init_transactions(&mut self) -> Result<()> {
        let shared = self.inner.shared.clone();
        let control = self.control()?;
        if self.driver.is_none() {
            let runtime = shared.runtime.clone();
            let driver = runtime.spawn(driver::run(shared, control.clone()));
            self.driver = Some(driver.abort_handle());
        }
        let limit = self.limit("init_transactions (max.block.ms)");
        control.change(Machine::init);
        control
            .until_deadline(&limit, |machine| match machine.status() {
                Status::Busy(Busy::Initializing) => None,
                Status::New(_) | Status::Fatal(_) => {
                    Some(Err(control.out_of_place(machine.status())))
                }
                _ => Some(Ok(())),
            })
            .await?
    }

    /// Opens a transaction. One that was left without commit or abort is ended first: aborted, or committed if
    /// its commit had begun. Bounded by `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::IllegalState`] before [`TransactionalProducer::init_transactions`], [`Error::Timeout`], or
    /// [`Error::TransactionFatal`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn begin_transaction(&mut self) -> Result<Transaction<'_>> {
        let control = self.control()?;
        match control.look(|machine| machine.status()) {
            Status::Open | Status::Abortable(_) => self.abort_transaction().await?,
            Status::Busy(Busy::Aborting | Busy::Committing) => {
                let limit = self.limit("ending the transaction before (max.block.ms)");
                match self.ended(&limit).await {
                    // The commit failed, and nobody waited for its outcome.
                    Err(error) if error.is_abortable() => self.abort_transaction().await?,
                    ended => ended?,
                }
            }
            _ => {}
        }
        control.change(Machine::begin).map_err(|place| control.out_of_place(place.0))?;
        self.unreported = None;
        Ok(Transaction { producer: self })
    }

    /// Commits the transaction that was opened last, as [`Transaction::commit`]; for a call that has to be repeated.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    ///
    /// # Cancel safety
    /// Cancel safe; call it again.
    pub async fn commit_transaction(&mut self) -> Result<()> {
        let limit = self.limit("commit (max.block.ms)");
        let control = self.control()?;
        if self.has_ended(&control, End::Commit) {
            return Ok(());
        }
        if matches!(control.look(|machine| machine.status()), Status::Open) {
            self.flush(&limit).await?;
        }
        control.change(Machine::commit).map_err(|place| control.out_of_place(place.0))?;
        self.report(End::Commit, &limit).await
    }

    /// Aborts the transaction that was opened last, as [`Transaction::abort`]; for after a failed commit, or a call
    /// that has to be repeated.
    ///
    /// # Errors
    /// As [`Transaction::abort`].
    ///
    /// # Cancel safety
    /// Cancel safe; what has begun goes on.
    pub async fn abort_transaction(&mut self) -> Result<()> {
        let limit = self.limit("abort (max.block.ms)");
        let control = self.control()?;
        if self.has_ended(&control, End::Abort) {
            return Ok(());
        }
        control.change(Machine::abort).map_err(|place| control.out_of_place(place.0))?;
        self.report(End::Abort, &limit).await
    }

    /// Fetches the topics' metadata and connects to their leaders, as [`Producer::warm_up`].
    ///
    /// # Cancel safety
    /// Cancel safe; what has begun goes on.
    pub async fn warm_up(&self, topics: &[&str]) -> Result<()> {
        self.inner.warm_up(topics).await
    }

    /// Number of partitions of a topic, as [`Producer::partitions_for`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn partitions_for(&self, topic: &str) -> Result<usize> {
        self.inner.partitions_for(topic).await
    }

    /// Ends the producer. An open transaction is aborted; one that is being committed is waited for. Bounded by
    /// `max.block.ms`. A producer that is dropped instead leaves an open transaction to its timeout
    /// (`transaction.timeout.ms`), or to the next producer with its `transactional.id`.
    ///
    /// # Errors
    /// If the transaction could not be ended. The producer is closed all the same.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped close leaves the transaction as a dropped producer does.
    pub async fn close(mut self) -> Result<()> {
        let control = self.control()?;
        let ended = match control.look(|machine| machine.status()) {
            Status::Open | Status::Abortable(_) => self.abort_transaction().await,
            Status::Busy(Busy::Committing | Busy::Aborting) => {
                self.ended(&self.limit("close (max.block.ms)")).await
            }
            _ => Ok(()),
        };
        self.inner.shared.stop();
        ended
    }

    fn control(&self) -> Result<std::sync::Arc<Control>> {
        // There is one: the constructor has seen the transactional id.
        self.inner.shared.identity.control().cloned().ok_or(Error::Closed)
    }

    fn limit(&self, what: &'static str) -> Limit {
        Limit::new(what, self.inner.shared.config.max_block)
    }

    /// Waits until every record has its outcome or the transaction has failed.
    async fn flush(&self, limit: &Limit) -> Result<()> {
        let control = self.control()?;
        let failed = control.until(|machine| machine.stamps().is_none().then_some(()));
        let flushed = async {
            tokio::select! {
                biased;
                () = failed => {}
                _ = self.inner.flush() => {}
            }
        };
        let flushed = async { timeout_at(limit.deadline, flushed).await };
        if within(&self.inner.shared.runtime, flushed).await.is_err() {
            return Err(control.too_late(limit));
        }
        control.check_open()
    }

    /// Whether the transaction ended as requested after the call that requested it was dropped or timed out.
    fn has_ended(&mut self, control: &Control, end: End) -> bool {
        let ready = matches!(control.look(|machine| machine.status()), Status::Ready);
        let forgotten = end == End::Commit && planted(Plant::CommitForgotten);
        ready && !forgotten && self.unreported.take_if(|requested| *requested == end).is_some()
    }

    /// Waits until the transaction has ended. A repeated call finds the end if this one does not see it.
    async fn report(&mut self, end: End, limit: &Limit) -> Result<()> {
        self.unreported = Some(end);
        let ended = self.ended(limit).await;
        if !matches!(ended, Err(Error::Timeout { .. })) {
            self.unreported = None;
        }
        ended
    }

    /// Waits until the transaction has ended.
    async fn ended(&self, limit: &Limit) -> Result<()> {
        let control = self.control()?;
        control
            .until_deadline(limit, |machine| match machine.status() {
                Status::Busy(_) => None,
                Status::Ready => Some(Ok(())),
                status => Some(Err(control.out_of_place(status))),
            })
            .await?
    }
}

/// An open transaction. Dropped without [`Transaction::commit`] or [`Transaction::abort`], it is aborted at the next
/// [`TransactionalProducer::begin_transaction`] or [`TransactionalProducer::close`].
#[must_use = "a transaction that is dropped is aborted"]
#[derive(Debug)]
pub struct Transaction<'p> {
    producer: &'p mut TransactionalProducer,
}

impl Transaction<'_> {
    /// Appends a record, as [`Producer::send`]. What becomes of it alone is told by the [`Delivery`];
    /// [`Transaction::commit`] fails if any record did.
    ///
    /// # Errors
    /// As [`Producer::send`]; [`Error::TransactionAbortable`] or [`Error::TransactionFatal`] once the transaction has
    /// failed.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has not appended the record.
    pub async fn send(&self, record: Record<'_>) -> Result<Delivery> {
        self.producer.control()?.check_open()?;
        self.producer.inner.send(record).await
    }

    /// Appends a record if that needs no waiting, as [`Producer::try_send`].
    ///
    /// # Errors
    /// As [`Producer::try_send`] and [`Transaction::send`].
    pub fn try_send(&self, record: Record<'_>) -> Result<Delivery> {
        self.producer.control()?.check_open()?;
        self.producer.inner.try_send(record)
    }

    /// Sends everything appended so far without lingering and waits until all of it is acknowledged or the
    /// transaction has failed. Bounded by `delivery.timeout.ms`, like every record. A commit does it by itself.
    ///
    /// # Errors
    /// [`Error::TransactionAbortable`] or [`Error::TransactionFatal`] once the transaction has failed.
    ///
    /// # Cancel safety
    /// Cancel safe; what has begun goes on.
    pub async fn flush(&self) -> Result<()> {
        let longest = self.producer.inner.shared.config.delivery_timeout.saturating_mul(2);
        self.producer.flush(&Limit::new("flush (delivery.timeout.ms)", longest)).await
    }

    /// Makes the group's offsets part of the transaction: they are committed if it is (KIP-447). An offset is that of
    /// the next record to read. Bounded by `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::TransactionAbortable`] if the group refuses, such as for a member that is not part of its generation
    /// any more; [`Error::TransactionFatal`]; [`Error::Timeout`]: call it again.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have added the offsets; calling it again does no harm.
    pub async fn send_offsets_to_transaction(
        &self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
        group: &ConsumerGroupMetadata,
    ) -> Result<()> {
        let offsets = offsets::of_group(offsets, group)?;
        let limit = self.producer.limit("send_offsets_to_transaction (max.block.ms)");
        let control = self.producer.control()?;
        let ticket = control
            .change(|machine| machine.add_offsets(offsets))
            .map_err(|place| control.out_of_place(place.0))?;
        control
            .until_deadline(&limit, |machine| match machine.status() {
                Status::Open if machine.offsets_done() >= ticket => Some(Ok(())),
                Status::Open => None,
                status => Some(Err(control.out_of_place(status))),
            })
            .await?
    }

    /// Commits: waits until every record is written, then makes all of it and the offsets visible. Bounded by
    /// `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::TransactionAbortable`]: a record or the offsets could not be written; call
    /// [`TransactionalProducer::abort_transaction`]. [`Error::Timeout`]: nobody knows yet; call
    /// [`TransactionalProducer::commit_transaction`] until it succeeds, there is no way back.
    /// [`Error::TransactionFatal`] if the producer was fenced: the transaction was aborted, unless this commit was
    /// carried out before.
    ///
    /// # Cancel safety
    /// A dropped call leaves the transaction open while records are being written, and committing from then on;
    /// [`TransactionalProducer::commit_transaction`] goes on in either case.
    pub async fn commit(self) -> Result<()> {
        self.producer.commit_transaction().await
    }

    /// Aborts: records that were not sent fail, and nothing of the transaction becomes visible to readers with
    /// `isolation.level=read_committed`. Bounded by `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::Timeout`]: call [`TransactionalProducer::abort_transaction`]. [`Error::TransactionFatal`].
    ///
    /// # Cancel safety
    /// Cancel safe; the abort goes on.
    pub async fn abort(self) -> Result<()> {
        self.producer.abort_transaction().await
    }

    /// Whether the brokers add partitions to transactions by themselves (`transaction.version` 2 and later, KIP-890).
    #[must_use]
    pub fn is_version_2(&self) -> bool {
        let control = self.producer.control();
        control.is_ok_and(|control| control.look(|m| m.protocol()) == Protocol::V2)
    }
}
