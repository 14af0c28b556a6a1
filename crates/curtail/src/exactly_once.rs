//! Consume, transform, produce: records and the offsets of their input in one transaction.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{sync::Notify, time::sleep};

use crate::{
    Consumer, Delivery, Error, Record, Result, TopicPartition, TransactionalProducer,
    config::IsolationLevel,
    consumer::Records,
    runtime::within,
    transaction::{ConsumerGroupMetadata, Transaction, Writer},
};

/// Longest wait for records before the next look at the group.
const POLL: Duration = Duration::from_secs(1);
/// Failures in a row after which the error is returned.
const ATTEMPTS: u32 = 10;

/// Reads records, and writes records made from them, exactly once: results and input offsets are committed in one
/// transaction.
///
/// Each [`Consumer::poll`] with records is one transaction. An aborted one has no effect: the consumer returns to the
/// first of its records, and they are read again. After a crash of the program or of brokers, a new program continues
/// after the last commit. Readers with `isolation.level=read_committed` see each result once.
///
/// The consumer needs a `group.id`, `enable.auto.commit=false` and `isolation.level=read_committed`. Each running
/// program needs a `transactional.id` that no other uses. The same one after a restart ends the transaction of the
/// crashed program at once, instead of after `transaction.timeout.ms`.
///
/// ```no_run
/// # async fn example() -> curtail::Result<()> {
/// use curtail::{
///     Consumer, ConsumerConfig, ProducerConfig, Record, TransactionalProducer,
///     config::IsolationLevel, transaction::ExactlyOnce,
/// };
///
/// let config = ConsumerConfig::new("localhost:9092")
///     .group_id("billing")
///     .isolation_level(IsolationLevel::ReadCommitted)
///     .enable_auto_commit(false);
/// let mut orders = Consumer::new(config)?;
/// orders.subscribe(["orders"])?;
/// let invoices = ProducerConfig::new("localhost:9092").transactional_id("billing-1");
/// let mut billing = ExactlyOnce::new(orders, TransactionalProducer::new(invoices)?)?;
///
/// let stop = async { drop(tokio::signal::ctrl_c().await) };
/// billing
///     .run(stop, |batch| async move {
///         for order in batch.records() {
///             let invoice = [b"invoice for ", order.value().unwrap_or_default()].concat();
///             // A record that cannot be written fails the commit.
///             drop(batch.send(Record::to("invoices").value(&invoice)).await?);
///         }
///         Ok::<(), curtail::Error>(())
///     })
///     .await?;
/// billing.close().await
/// # }
/// ```
#[derive(Debug)]
pub struct ExactlyOnce {
    consumer: Consumer,
    producer: TransactionalProducer,
}

/// The records of one transaction, and the way to send its results.
///
/// Sends are part of the transaction until the function that received the batch returns. Later sends
/// fail, and so do sends that wait for metadata or memory at that moment.
#[derive(Debug)]
pub struct Batch {
    records: Arc<Records>,
    writer: Writer,
    gate: Arc<Gate>,
}

/// The end of a transaction for the sends of its batch.
#[derive(Debug, Default)]
struct Gate {
    /// Read while a send is polled, and a poll appends a record or does not: none is appended once this is true.
    is_shut: RwLock<bool>,
    /// Wakes the sends that wait.
    shut: Notify,
}

/// Shuts the gate when it is dropped, also in a panic.
struct Shutting(Arc<Gate>);

impl Drop for Shutting {
    fn drop(&mut self) {
        *self.0.is_shut.write() = true;
        self.0.shut.notify_waiters();
    }
}

impl Batch {
    /// The records of one [`Consumer::poll`].
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Sends a result, as [`Transaction::send`].
    ///
    /// # Errors
    /// As [`Transaction::send`]; and [`Error::IllegalState`] once the function that received the batch has returned,
    /// also for a send that waits then. On any error the record was not appended.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has not appended the record.
    pub async fn send(&self, record: Record<'_>) -> Result<Delivery> {
        let mut shut = pin!(self.gate.shut.notified());
        // Registered before the first look.
        shut.as_mut().enable();
        let mut send = pin!(self.writer.send(record));
        poll_fn(|cx| {
            let _ = shut.as_mut().poll(cx);
            let is_shut = self.gate.is_shut.read();
            if *is_shut {
                return Poll::Ready(Err(Error::IllegalState("the batch's transaction has ended")));
            }
            send.as_mut().poll(cx)
        })
        .await
    }
}

/// A transaction that had no effect.
enum Failed<E> {
    /// Its records may succeed in another one.
    Retriable(E),
    Final(E),
}

impl ExactlyOnce {
    /// Combines a consumer, subscribed or with assigned partitions, and a producer. Sends no request yet.
    ///
    /// # Errors
    /// [`Error::IllegalState`] if the consumer's settings do not allow exactly-once processing.
    pub fn new(consumer: Consumer, producer: TransactionalProducer) -> Result<Self> {
        let config = consumer.config();
        if config.group_id.is_none() {
            return Err(Error::IllegalState("exactly once needs a consumer with a group.id"));
        }
        if config.enable_auto_commit {
            return Err(Error::IllegalState(
                "exactly once commits offsets in its transactions; set enable.auto.commit=false",
            ));
        }
        if config.isolation_level != IsolationLevel::ReadCommitted {
            return Err(Error::IllegalState(
                "exactly once must not read aborted records; set isolation.level=read_committed",
            ));
        }
        Ok(Self { consumer, producer })
    }

    /// Processes records until `stop` resolves. `transform` receives the records of one poll, and sends the results. Its
    /// side effects outside the transaction may happen more than once: a transaction that failed is aborted, and
    /// `transform` receives its records again.
    ///
    /// `stop` is observed between transactions.
    ///
    /// # Errors
    /// - The error of `transform`, if the transaction was intact. It is aborted.
    /// - The error of a transaction that had failed 10 times in a row.
    /// - [`Error::TransactionFatal`], for example if another program uses the `transactional.id`: create a new producer,
    ///   unless it was fenced ([`Error::is_fenced`]).
    /// - An error of [`Consumer::poll`] or [`TransactionalProducer::init_transactions`].
    ///
    /// After an error that is not fatal, `run` may be called again. It begins with the first record that was not
    /// committed.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped call may leave a transaction open, and the next call may skip its records. Use `stop`.
    pub async fn run<F, E>(
        &mut self,
        stop: impl Future<Output = ()>,
        mut transform: impl FnMut(Batch) -> F,
    ) -> Result<(), E>
    where
        F: Future<Output = Result<(), E>>,
        E: From<Error>,
    {
        let mut stop = pin!(stop);
        self.producer.init_transactions().await?;
        let mut failures = 0;
        loop {
            let records = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                polled = self.consumer.poll(POLL) => polled?,
            };
            if records.is_empty() {
                continue;
            }
            let records = Arc::new(records);
            let failed = match self.process(&records, &mut transform).await {
                Ok(()) => {
                    failures = 0;
                    continue;
                }
                Err(failed) => failed,
            };
            self.rewind(&records);
            failures += 1;
            match failed {
                Failed::Retriable(_) if failures < ATTEMPTS => {
                    let (runtime, pause) = self.consumer.pause_after(failures);
                    within(&runtime, async { sleep(pause).await }).await?;
                }
                Failed::Retriable(error) | Failed::Final(error) => return Err(error),
            }
        }
    }

    /// The consumer.
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// Returns the consumer and the producer.
    pub fn into_parts(self) -> (Consumer, TransactionalProducer) {
        (self.consumer, self.producer)
    }

    /// Closes the consumer and the producer.
    ///
    /// # Errors
    /// As [`TransactionalProducer::close`].
    ///
    /// # Cancel safety
    /// As [`TransactionalProducer::close`].
    pub async fn close(self) -> Result<()> {
        // The producer first: members that take over wait for the end of its transaction.
        let closed = self.producer.close().await;
        self.consumer.close().await;
        closed
    }

    /// Runs one transaction.
    async fn process<F, E>(
        &mut self,
        records: &Arc<Records>,
        transform: &mut impl FnMut(Batch) -> F,
    ) -> Result<(), Failed<E>>
    where
        F: Future<Output = Result<(), E>>,
        E: From<Error>,
    {
        let group = self.consumer.owner_metadata().map_err(Failed::of)?;
        let transaction = self.producer.begin_transaction().await.map_err(Failed::of)?;
        let gate = Arc::new(Gate::default());
        let shutting = Shutting(gate.clone());
        let writer = transaction.writer().map_err(Failed::of)?;
        let batch = Batch { records: records.clone(), writer, gate };
        let transformed = transform(batch).await;
        drop(shutting);
        if let Err(error) = transformed {
            let failed = match transaction.check_open() {
                Err(cause) if cause.is_abortable() => Failed::Retriable(error),
                _ => Failed::Final(error),
            };
            drop(transaction);
            self.abort().await.map_err(Failed::of)?;
            return Err(failed);
        }
        let committed = match offer(&transaction, records, &group).await {
            Ok(()) => transaction.commit().await,
            Err(error) => Err(error),
        };
        match self.settle(committed).await {
            Ok(()) => Ok(()),
            Err(error) => {
                if !error.is_fatal() {
                    self.abort().await.map_err(Failed::of)?;
                }
                Err(Failed::of(error))
            }
        }
    }

    /// Repeats a commit until its outcome is known: a transaction whose commit was requested cannot be aborted.
    async fn settle(&mut self, mut committed: Result<()>) -> Result<()> {
        while let Err(Error::Timeout { .. }) = committed {
            committed = self.producer.commit_transaction().await;
        }
        committed
    }

    /// Aborts the transaction. Repeats the call while the coordinator does not respond.
    async fn abort(&mut self) -> Result<()> {
        loop {
            match self.producer.abort_transaction().await {
                Err(Error::Timeout { .. }) => {}
                ended => return ended,
            }
        }
    }

    /// Moves the consumer back to the first of these records in each partition that it still has.
    fn rewind(&mut self, records: &Records) {
        let mut first = BTreeMap::<TopicPartition, i64>::new();
        for record in records {
            first.entry(record.topic_partition()).or_insert(record.offset());
        }
        for (at, offset) in first {
            // A partition that was revoked continues at its committed offset, with its next owner.
            let _ = self.consumer.seek(&at, offset);
        }
    }
}

/// Adds the offsets of the records to the transaction. A timeout is repeated: adding them twice is harmless.
async fn offer(
    transaction: &Transaction<'_>,
    records: &Records,
    group: &ConsumerGroupMetadata,
) -> Result<()> {
    loop {
        let next = records.next_offsets();
        match transaction.send_offsets_to_transaction(next, group).await {
            Err(Error::Timeout { .. }) => {}
            added => return added,
        }
    }
}

impl<E: From<Error>> Failed<E> {
    fn of(error: Error) -> Self {
        match error {
            Error::TransactionAbortable { .. }
            | Error::Timeout { .. }
            | Error::CommitFailed { .. } => Self::Retriable(error.into()),
            error => Self::Final(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConsumerConfig, ProducerConfig};

    /// Brokers accept transactional offsets without a member from any client, also while members own the partitions.
    #[tokio::test]
    async fn a_member_that_has_lost_its_membership_begins_no_transaction() {
        let config = ConsumerConfig::new("localhost:1")
            .group_id("g")
            .isolation_level(IsolationLevel::ReadCommitted)
            .enable_auto_commit(false);
        let mut consumer = Consumer::new(config).unwrap();
        consumer.subscribe(["t"]).unwrap();
        let config = ProducerConfig::new("localhost:1").transactional_id("t");
        let producer = TransactionalProducer::new(config).unwrap();
        let mut once = ExactlyOnce::new(consumer, producer).unwrap();
        let mut transform = async |_| -> Result<()> { unreachable!("no transaction") };
        let failed = once.process(&Arc::default(), &mut transform).await;
        let Err(Failed::Retriable(error)) = failed else { panic!("not retriable") };
        assert!(matches!(error, Error::CommitFailed { .. }), "{error}");
    }
}
