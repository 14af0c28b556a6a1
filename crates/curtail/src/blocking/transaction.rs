//! Transactions for plain threads.

use std::time::Duration;

use super::{Completions, Delivery, Runtime};
use crate::{
    ProducerConfig, Record, Result, TopicPartition, Uuid,
    metrics::ProducerMetrics,
    producer::CompletionSink,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};

/// [`crate::TransactionalProducer`] for plain threads.
///
/// ```no_run
/// use curtail::{Error, ProducerConfig, Record, blocking::TransactionalProducer};
///
/// # fn main() -> curtail::Result<()> {
/// let config = ProducerConfig::new("localhost:9092").transactional_id("transfers-0");
/// let mut producer = TransactionalProducer::new(config)?;
/// producer.init_transactions()?;
///
/// let transaction = producer.begin_transaction()?;
/// transaction.send(Record::to("accounts").key("7").value("-42.00"))?;
/// transaction.send(Record::to("accounts").key("8").value("+42.00"))?;
/// match transaction.commit() {
///     Ok(()) => {}
///     Err(error) if error.is_abortable() => producer.abort_transaction()?,
///     // The outcome is unknown. Repeat the call to learn it.
///     Err(Error::Timeout { .. }) => producer.commit_transaction()?,
///     Err(error) => return Err(error),
/// }
/// producer.close()
/// # }
/// ```
#[derive(Debug)]
pub struct TransactionalProducer {
    // Before the runtime: its tasks must end while the runtime still runs.
    inner: crate::TransactionalProducer,
    runtime: Runtime,
}

impl TransactionalProducer {
    /// Creates a transactional producer with its own runtime. Connects to nothing yet.
    ///
    /// # Errors
    /// As [`crate::TransactionalProducer::new`]; inside an async context; if the system cannot start a thread.
    pub fn new(config: ProducerConfig) -> Result<Self> {
        let runtime = Runtime::start()?;
        let entered = runtime.enter();
        let inner = crate::TransactionalProducer::new(config)?;
        drop(entered);
        Ok(Self { inner, runtime })
    }

    /// Creates a sink for [`Transaction::send_tagged`], and the receiver of its outcomes, as
    /// [`crate::TransactionalProducer::completions`]. A thread that sends must not be the only one to receive.
    ///
    /// ```no_run
    /// # fn example(mut producer: curtail::blocking::TransactionalProducer) -> curtail::Result<()> {
    /// use std::thread;
    /// use curtail::Record;
    ///
    /// let (sink, completions) = producer.completions();
    /// let receiving = thread::spawn(move || -> curtail::Result<usize> {
    ///     let mut written = 0;
    ///     for run in completions {
    ///         let run = run?;
    ///         written += if run.outcome().is_ok() { run.tags().len() } else { 0 };
    ///     }
    ///     Ok(written)
    /// });
    /// let transaction = producer.begin_transaction()?;
    /// for (tag, amount) in (0..).zip(["-42.00", "+42.00"]) {
    ///     transaction.send_tagged(Record::to("accounts").value(amount), tag, &sink)?;
    /// }
    /// drop(sink);
    /// transaction.commit()?;
    /// println!("{} records", receiving.join().expect("the thread does not panic")?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "without the receiver, outcomes are discarded"]
    pub fn completions(&self) -> (CompletionSink, Completions) {
        Completions::with(&self.runtime, self.inner.completions())
    }

    /// As [`crate::TransactionalProducer::init_transactions`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn init_transactions(&mut self) -> Result<()> {
        self.runtime.block_on(self.inner.init_transactions())?
    }

    /// As [`crate::TransactionalProducer::begin_transaction`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn begin_transaction(&mut self) -> Result<Transaction<'_>> {
        let Self { inner, runtime } = self;
        let inner = runtime.block_on(inner.begin_transaction())??;
        Ok(Transaction { inner, runtime })
    }

    /// As [`crate::TransactionalProducer::commit_transaction`], to repeat a commit.
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn commit_transaction(&mut self) -> Result<()> {
        self.runtime.block_on(self.inner.commit_transaction())?
    }

    /// As [`crate::TransactionalProducer::abort_transaction`], after a failed commit or to repeat an abort.
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn abort_transaction(&mut self) -> Result<()> {
        self.runtime.block_on(self.inner.abort_transaction())?
    }

    /// As [`crate::TransactionalProducer::client_instance_id`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn client_instance_id(&self, timeout: Duration) -> Result<Uuid> {
        self.runtime.block_on(self.inner.client_instance_id(timeout))?
    }

    /// As [`crate::TransactionalProducer::metrics`].
    pub fn metrics(&self) -> ProducerMetrics {
        self.inner.metrics()
    }

    /// As [`crate::TransactionalProducer::warm_up`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn warm_up(&self, topics: &[&str]) -> Result<()> {
        self.runtime.block_on(self.inner.warm_up(topics))?
    }

    /// As [`crate::TransactionalProducer::partitions_for`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn partitions_for(&self, topic: &str) -> Result<usize> {
        self.runtime.block_on(self.inner.partitions_for(topic))?
    }

    /// As [`crate::TransactionalProducer::close`].
    ///
    /// # Errors
    /// As the async method, and inside an async context. Then an open transaction ends with its timeout.
    pub fn close(self) -> Result<()> {
        self.runtime.block_on(self.inner.close())?
    }
}

/// [`crate::transaction::Transaction`] for plain threads. If it is dropped without [`Transaction::commit`] or
/// [`Transaction::abort`], the next [`TransactionalProducer::begin_transaction`] or [`TransactionalProducer::close`]
/// aborts it. Threads may share it to send.
#[must_use = "a transaction that is dropped is aborted"]
#[derive(Debug)]
pub struct Transaction<'p> {
    inner: crate::transaction::Transaction<'p>,
    runtime: &'p Runtime,
}

impl Transaction<'_> {
    /// As [`crate::transaction::Transaction::send`]: returns when the record is in its batch, after
    /// `max.block.ms` at the latest.
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn send(&self, record: Record<'_>) -> Result<Delivery> {
        Delivery::of_send(self.runtime, self.inner.send(record))
    }

    /// As [`crate::transaction::Transaction::try_send`]: never blocks, and so may be called anywhere.
    ///
    /// # Errors
    /// As the async method.
    pub fn try_send(&self, record: Record<'_>) -> Result<Delivery> {
        Delivery::of_try_send(self.runtime, || self.inner.try_send(record))
    }

    /// As [`TransactionalProducer::completions`].
    #[must_use = "without the receiver, outcomes are discarded"]
    pub fn completions(&self) -> (CompletionSink, Completions) {
        Completions::with(self.runtime, self.inner.completions())
    }

    /// As [`crate::transaction::Transaction::send_tagged`]: returns when the record is in its batch, after
    /// `max.block.ms` at the latest.
    ///
    /// # Errors
    /// As the async method, and inside an async context. On any error the sink receives nothing.
    pub fn send_tagged(&self, record: Record<'_>, tag: u64, sink: &CompletionSink) -> Result<()> {
        self.runtime.complete(self.inner.send_tagged(record, tag, sink))
    }

    /// As [`crate::transaction::Transaction::try_send_tagged`]: never blocks, and so may be called anywhere.
    ///
    /// # Errors
    /// As the async method. On any error the sink receives nothing.
    pub fn try_send_tagged(
        &self,
        record: Record<'_>,
        tag: u64,
        sink: &CompletionSink,
    ) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.try_send_tagged(record, tag, sink)
    }

    /// As [`crate::transaction::Transaction::flush`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn flush(&self) -> Result<()> {
        self.runtime.block_on(self.inner.flush())?
    }

    /// As [`crate::transaction::Transaction::send_offsets_to_transaction`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn send_offsets_to_transaction(
        &self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
        group: &ConsumerGroupMetadata,
    ) -> Result<()> {
        self.runtime.block_on(self.inner.send_offsets_to_transaction(offsets, group))?
    }

    /// As [`crate::transaction::Transaction::commit`].
    ///
    /// # Errors
    /// As the async method, and inside an async context. Then the transaction stays open.
    pub fn commit(self) -> Result<()> {
        self.runtime.block_on(self.inner.commit())?
    }

    /// As [`crate::transaction::Transaction::abort`].
    ///
    /// # Errors
    /// As the async method, and inside an async context. Then the transaction stays open.
    pub fn abort(self) -> Result<()> {
        self.runtime.block_on(self.inner.abort())?
    }

    /// As [`crate::transaction::Transaction::is_version_2`].
    #[must_use]
    pub fn is_version_2(&self) -> bool {
        self.inner.is_version_2()
    }
}
