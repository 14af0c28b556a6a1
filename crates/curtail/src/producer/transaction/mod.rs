//! Transactions: records of several partitions and consumed offsets, committed all or none (KIP-98, KIP-447,
//! KIP-890).

mod control;
mod driver;
mod offsets;
mod requests;
mod strays;
mod succession;

use std::time::Duration;

use curtail_net::Env;
use curtail_proto::{
    plant::{Plant, planted},
    transaction::{Busy, Machine, Protocol, Status},
};
use curtail_wire::Uuid;
use tokio::{task::AbortHandle, time::timeout_at};

use self::control::Limit;
pub use self::offsets::{ConsumerGroupMetadata, OffsetAndMetadata};
pub(in crate::producer) use self::{
    control::{Control, Enlisted},
    strays::{Stray, Strays},
    succession::{Succession, look_for_successor},
};
use super::{CompletionSink, Completions, Delivery, Producer};
use crate::{
    ConfigError, Error, ProducerConfig, Record, Result, TopicPartition, metrics::ProducerMetrics,
    runtime::within, span::Span,
};

/// A producer whose records and offsets become visible together or not at all.
///
/// One transaction is open at a time, and each `transactional.id` has one live producer. A newer producer fences the
/// older ones, whose calls fail with [`Error::TransactionFatal`].
///
/// Errors are of three kinds (KIP-691, KIP-1050):
/// - [`Error::is_abortable`]: abort the transaction. The next one may succeed.
/// - [`Error::is_fatal`]: this producer is unusable. Drop it, and create another one unless it was fenced
///   ([`Error::is_fenced`]).
/// - [`Error::Timeout`]: the outcome is open. Repeat the same call, which continues where it was.
///
/// When the tokio runtime on which it was made ends, without `curtail.io.thread`, calls return [`Error::Closed`] instead of waiting. A commit in
/// progress may have been carried out. An open transaction ends as with a dropped producer.
///
/// # Consume, transform, produce
///
/// Exactly once, with partitions assigned by the application. The offsets are committed together with the records
/// made from the input. A restarted worker therefore continues after the last commit, and readers with
/// `isolation.level=read_committed` see each result once.
///
/// ```no_run
/// use std::{collections::BTreeMap, time::Duration};
/// use curtail::{
///     Consumer, ConsumerConfig, ProducerConfig, Record, TopicPartition, TransactionalProducer,
///     config::IsolationLevel,
///     transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
/// };
///
/// # async fn committed_offset(_: &TopicPartition) -> curtail::Result<i64> { Ok(0) }
/// # fn transform(value: &[u8]) -> Vec<u8> { value.to_vec() }
/// # async fn worker() -> curtail::Result<()> {
/// let orders = TopicPartition::new("orders", 0);
/// let mut consumer = Consumer::new(
///     ConsumerConfig::new("localhost:9092").isolation_level(IsolationLevel::ReadCommitted),
/// )?;
/// // One transactional.id per input partition: the next worker of the partition fences this one.
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
///         // The outcome is unknown. Repeat the call to learn it.
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
    /// The last requested end, until a call has returned its outcome.
    unreported: Option<End>,
    /// The span of the transaction, until its end is known.
    span: Span,
}

/// The requested end of a transaction.
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
    /// Creates a transactional producer. Connects to nothing before [`TransactionalProducer::init_transactions`].
    ///
    /// # Errors
    /// [`Error::Config`] for invalid settings, or without `transactional.id`. [`Error::Thread`] as for [`Producer::new`].
    ///
    /// # Panics
    /// Outside a tokio runtime, unless `curtail.io.thread` is set.
    pub fn new(config: ProducerConfig) -> Result<Self> {
        Self::with_env(config, &Env::real())
    }

    /// As [`TransactionalProducer::new`], with the caller's network, clock and randomness.
    ///
    /// # Errors
    /// As [`TransactionalProducer::new`].
    ///
    /// # Panics
    /// Outside a tokio runtime, unless `curtail.io.thread` is set.
    pub fn with_env(config: ProducerConfig, env: &Env) -> Result<Self> {
        if config.transactional_id.is_none() {
            return Err(ConfigError::Missing("transactional.id").into());
        }
        Ok(Self {
            inner: Producer::start(config, env)?,
            driver: None,
            unreported: None,
            span: Span::NONE,
        })
    }

    /// As [`Producer::metrics`].
    pub fn metrics(&self) -> ProducerMetrics {
        self.inner.metrics()
    }

    /// As [`Producer::client_instance_id`].
    ///
    /// # Errors
    /// As [`Producer::client_instance_id`].
    pub async fn client_instance_id(&self, timeout: Duration) -> Result<Uuid> {
        self.inner.client_instance_id(timeout).await
    }

    /// Returns a function for other tasks, which returns the metrics also while a transaction borrows the producer. It
    /// returns `None` some time after the producer is closed.
    ///
    /// ```
    /// # fn example(producer: &curtail::TransactionalProducer) {
    /// let metrics = producer.metrics_reader();
    /// tokio::spawn(async move { metrics().map(|metrics| metrics.record_error_total) });
    /// # }
    /// ```
    pub fn metrics_reader(
        &self,
    ) -> impl Fn() -> Option<ProducerMetrics> + Send + Sync + Clone + 'static + use<> {
        let shared = std::sync::Arc::downgrade(&self.inner.shared);
        move || Some(shared.upgrade()?.metrics())
    }

    /// Creates a sink for [`Transaction::send_tagged`], and the receiver of its outcomes, as [`Producer::completions`].
    ///
    /// An outcome reports whether the record was written. Only [`Transaction::commit`] makes a written record visible,
    /// so a record of an aborted transaction may have an offset. A record that the abort keeps from being written has
    /// the error [`Error::NotAcknowledged`].
    ///
    /// A sink may serve any number of transactions. When [`Transaction::commit`] or [`Transaction::flush`] succeeds,
    /// the runs of all records sent before have arrived. After a failed commit or an abort, some runs may arrive later.
    /// With a sink for each transaction, its receiver ends after the last of them:
    ///
    /// ```no_run
    /// # async fn example(mut producer: curtail::TransactionalProducer) -> curtail::Result<()> {
    /// use curtail::Record;
    ///
    /// let (sink, mut completions) = producer.completions();
    /// let receiving = tokio::spawn(async move {
    ///     let (mut written, mut failed) = (0, 0);
    ///     while let Some(run) = completions.next().await {
    ///         match run.outcome() {
    ///             Ok(_) => written += run.tags().len(),
    ///             Err(_) => failed += run.tags().len(),
    ///         }
    ///     }
    ///     (written, failed)
    /// });
    /// let transaction = producer.begin_transaction().await?;
    /// for (tag, amount) in (0..).zip(["-42.00", "+42.00"]) {
    ///     transaction.send_tagged(Record::to("accounts").value(amount), tag, &sink).await?;
    /// }
    /// drop(sink);
    /// let committed = transaction.commit().await;
    /// if committed.as_ref().is_err_and(curtail::Error::is_abortable) {
    ///     producer.abort_transaction().await?;
    /// }
    /// let (written, failed) = receiving.await.expect("the task does not panic");
    /// println!("{written} records written, {failed} not; committed: {}", committed.is_ok());
    /// committed
    /// # }
    /// ```
    #[must_use = "without the receiver, outcomes are discarded"]
    pub fn completions(&self) -> (CompletionSink, Completions) {
        self.inner.completions()
    }

    /// Takes over the `transactional.id`: fences earlier producers with it, aborts the transaction that they left
    /// open, and completes the one that they were committing. After success, another call does nothing. Limited by
    /// `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::Timeout`]: call again. [`Error::Broker`]: the coordinator refuses, for example for lack of an ACL
    /// permission, or because `transaction.timeout.ms` exceeds the brokers' `transaction.max.timeout.ms`. Calling
    /// again is allowed. [`Error::TransactionFatal`] if it is not.
    ///
    /// # Cancel safety
    /// Cancel safe; requests in progress continue.
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

    /// Begins a transaction. First ends one that was left without commit or abort: commits it if its commit had
    /// begun, and otherwise aborts it. Limited by `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::IllegalState`] before [`TransactionalProducer::init_transactions`], [`Error::Timeout`], or
    /// [`Error::TransactionFatal`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn begin_transaction(&mut self) -> Result<Transaction<'_>> {
        let control = self.control()?;
        self.inner.shared.runtime.check()?;
        match control.look(|machine| machine.status()) {
            Status::Open | Status::Abortable(_) => self.abort_transaction().await?,
            Status::Busy(Busy::Aborting | Busy::Committing) => {
                let limit = self.limit("ending the previous transaction (max.block.ms)");
                match self.ended(&limit).await {
                    // The commit failed, and no call has returned its outcome.
                    Err(error) if error.is_abortable() => self.abort_transaction().await?,
                    ended => ended?,
                }
            }
            _ => {}
        }
        control.change(Machine::begin).map_err(|place| control.out_of_place(place.0))?;
        self.unreported = None;
        let config = &self.inner.shared.config;
        self.span = Span::transaction(&config.common.client_id, config.transactional_id.as_deref());
        Ok(Transaction { producer: self })
    }

    /// Commits the latest transaction, as [`Transaction::commit`]. Use it to repeat a commit.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    ///
    /// # Cancel safety
    /// Cancel safe; call again.
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

    /// Aborts the latest transaction, as [`Transaction::abort`]. Use it after a failed commit, or to repeat an abort.
    ///
    /// # Errors
    /// As [`Transaction::abort`].
    ///
    /// # Cancel safety
    /// Cancel safe; requests in progress continue.
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
    /// Cancel safe; requests in progress continue.
    pub async fn warm_up(&self, topics: &[&str]) -> Result<()> {
        self.inner.warm_up(topics).await
    }

    /// Returns the number of partitions of a topic, as [`Producer::partitions_for`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn partitions_for(&self, topic: &str) -> Result<usize> {
        self.inner.partitions_for(topic).await
    }

    /// Closes the producer. Aborts an open transaction, and waits for one that is being committed. Limited by
    /// `max.block.ms`. If the producer is dropped instead, an open transaction ends with its timeout
    /// (`transaction.timeout.ms`), or with the next producer of its `transactional.id`.
    ///
    /// # Errors
    /// If the transaction could not be ended. The producer is still closed.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped close leaves the transaction like a dropped producer.
    pub async fn close(mut self) -> Result<()> {
        let control = self.control()?;
        let ended = match control.look(|machine| machine.status()) {
            Status::Open | Status::Abortable(_) => self.abort_transaction().await,
            Status::Busy(Busy::Committing | Busy::Aborting) => {
                self.ended(&self.limit("close (max.block.ms)")).await
            }
            _ => Ok(()),
        };
        self.inner.shared.metadata.close_telemetry(Duration::MAX).await;
        self.inner.shared.stop();
        ended
    }

    fn control(&self) -> Result<std::sync::Arc<Control>> {
        // Always present: the constructor requires a transactional id.
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
        if within(&self.inner.shared.runtime, flushed).await?.is_err() {
            return Err(control.too_late(limit));
        }
        control.check_open()
    }

    /// Whether the transaction ended as requested after the requesting call was dropped or timed out.
    fn has_ended(&mut self, control: &Control, end: End) -> bool {
        let ready = matches!(control.look(|machine| machine.status()), Status::Ready);
        let forgotten = end == End::Commit && planted(Plant::CommitForgotten);
        let has_ended =
            ready && !forgotten && self.unreported.take_if(|requested| *requested == end).is_some();
        if has_ended {
            self.span = Span::NONE;
        }
        has_ended
    }

    /// Waits for the end of the transaction. If this call does not see it, a repeated call does.
    async fn report(&mut self, end: End, limit: &Limit) -> Result<()> {
        self.unreported = Some(end);
        let ended = self.ended(limit).await;
        if !matches!(ended, Err(Error::Timeout { .. })) {
            self.unreported = None;
        }
        self.span.end_of(&ended);
        // After a failed commit the transaction can still be aborted.
        if !matches!(ended, Err(Error::Timeout { .. } | Error::TransactionAbortable { .. })) {
            self.span = Span::NONE;
        }
        ended
    }

    /// Waits for the end of the transaction.
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

/// An open transaction. If it is dropped without [`Transaction::commit`] or [`Transaction::abort`], the next
/// [`TransactionalProducer::begin_transaction`] or [`TransactionalProducer::close`] aborts it.
#[must_use = "a transaction that is dropped is aborted"]
#[derive(Debug)]
pub struct Transaction<'p> {
    producer: &'p mut TransactionalProducer,
}

/// Sends records of the transaction that is open.
pub(crate) struct Writer {
    producer: Producer,
    control: std::sync::Arc<Control>,
}

impl Writer {
    pub(crate) async fn send(&self, record: Record<'_>) -> Result<Delivery> {
        self.control.check_open()?;
        self.producer.send(record).await
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Transaction<'_> {
    /// Appends a record, as [`Producer::send`]. The [`Delivery`] reports the record's own outcome;
    /// [`Transaction::commit`] fails if any record failed.
    ///
    /// # Errors
    /// As [`Producer::send`]; [`Error::TransactionAbortable`] or [`Error::TransactionFatal`] once the transaction has
    /// failed.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has not appended the record.
    pub async fn send(&self, record: Record<'_>) -> Result<Delivery> {
        self.open()?.send(record).await
    }

    /// Appends a record if that needs no wait, as [`Producer::try_send`].
    ///
    /// # Errors
    /// As [`Producer::try_send`] and [`Transaction::send`].
    pub fn try_send(&self, record: Record<'_>) -> Result<Delivery> {
        self.open()?.try_send(record)
    }

    /// As [`TransactionalProducer::completions`].
    #[must_use = "without the receiver, outcomes are discarded"]
    pub fn completions(&self) -> (CompletionSink, Completions) {
        self.producer.completions()
    }

    /// Appends a record, as [`Transaction::send`]. Its outcome goes to the receiver of `sink`, with `tag`, as with
    /// [`Producer::send_tagged`]. [`Transaction::commit`] fails if any record failed.
    ///
    /// # Errors
    /// As [`Transaction::send`]. On any error the record was not appended, and the sink receives nothing.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has not appended the record.
    pub async fn send_tagged(
        &self,
        record: Record<'_>,
        tag: u64,
        sink: &CompletionSink,
    ) -> Result<()> {
        self.open()?.send_tagged(record, tag, sink).await
    }

    /// Appends a record if that needs no wait, as [`Transaction::try_send`]. Its outcome goes to the receiver of
    /// `sink`, with `tag`.
    ///
    /// # Errors
    /// As [`Transaction::try_send`]. On any error the sink receives nothing.
    pub fn try_send_tagged(
        &self,
        record: Record<'_>,
        tag: u64,
        sink: &CompletionSink,
    ) -> Result<()> {
        self.open()?.try_send_tagged(record, tag, sink)
    }

    /// Returns a value that sends records of this transaction, for code that cannot borrow it.
    pub(crate) fn writer(&self) -> Result<Writer> {
        Ok(Writer { producer: self.producer.inner.clone(), control: self.producer.control()? })
    }

    /// Returns the error of a transaction that has failed.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.open().map(drop)
    }

    /// The producer, while the transaction is open and intact.
    fn open(&self) -> Result<&Producer> {
        self.producer.control()?.check_open()?;
        Ok(&self.producer.inner)
    }

    /// Sends all appended records without lingering. Waits until all are acknowledged or the transaction has failed.
    /// Limited by `delivery.timeout.ms`, like every record. A commit flushes automatically.
    ///
    /// # Errors
    /// [`Error::TransactionAbortable`] or [`Error::TransactionFatal`] once the transaction has failed.
    ///
    /// # Cancel safety
    /// Cancel safe; requests in progress continue.
    pub async fn flush(&self) -> Result<()> {
        let longest = self.producer.inner.shared.config.delivery_timeout.saturating_mul(2);
        self.producer.flush(&Limit::new("flush (delivery.timeout.ms)", longest)).await
    }

    /// Adds the group's offsets to the transaction, to be committed with it (KIP-447). An offset is that of the next
    /// record to read. Limited by `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::TransactionAbortable`] if the group refuses, for example because the member is no longer in its
    /// generation; [`Error::TransactionFatal`]; [`Error::Timeout`]: call again.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have added the offsets. Calling again is harmless.
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

    /// Commits: waits until every record is written, then makes the records and the offsets visible. Limited by
    /// `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::TransactionAbortable`]: a record or the offsets could not be written; call
    /// [`TransactionalProducer::abort_transaction`]. [`Error::Timeout`]: the outcome is unknown; call
    /// [`TransactionalProducer::commit_transaction`] until it succeeds, because an abort is no longer possible.
    /// [`Error::TransactionFatal`] if the producer was fenced: the transaction was aborted, unless this commit had
    /// been completed before.
    ///
    /// # Cancel safety
    /// If records are still being written, a dropped call leaves the transaction open. After that, it leaves the
    /// transaction committing. [`TransactionalProducer::commit_transaction`] continues in either case.
    pub async fn commit(self) -> Result<()> {
        self.producer.commit_transaction().await
    }

    /// Aborts: unsent records fail, and readers with `isolation.level=read_committed` never see the others. Limited
    /// by `max.block.ms`.
    ///
    /// # Errors
    /// [`Error::Timeout`]: call [`TransactionalProducer::abort_transaction`]. [`Error::TransactionFatal`].
    ///
    /// # Cancel safety
    /// Cancel safe; the abort continues.
    pub async fn abort(self) -> Result<()> {
        self.producer.abort_transaction().await
    }

    /// Whether the brokers add partitions to transactions automatically (`transaction.version` 2 and later, KIP-890).
    #[must_use]
    pub fn is_version_2(&self) -> bool {
        let control = self.producer.control();
        control.is_ok_and(|control| control.look(|m| m.protocol()) == Protocol::V2)
    }
}
