//! The producer for plain threads.

use std::time::Duration;

use tokio::time::timeout;

use super::{Completions, Runtime};
use crate::{
    ProducerConfig, Record, RecordMetadata, Result, Uuid,
    consumer::BatchMetadata,
    metrics::ProducerMetrics,
    producer::{CompletionSink, Timing},
};

/// [`crate::Producer`] for plain threads. Clones share one producer and may be used from any number of threads.
#[derive(Clone, Debug)]
pub struct Producer {
    // Before the runtime: its tasks must end while the runtime still runs.
    inner: crate::Producer,
    runtime: Runtime,
}

impl Producer {
    /// Creates a producer with its own runtime. Connects to nothing yet.
    ///
    /// # Errors
    /// As [`crate::Producer::new`]; inside an async context; if the system cannot start a thread.
    pub fn new(config: ProducerConfig) -> Result<Self> {
        let runtime = Runtime::start()?;
        let entered = runtime.enter();
        let inner = crate::Producer::new(config)?;
        drop(entered);
        Ok(Self { inner, runtime })
    }

    /// As [`crate::Producer::connect`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn connect(&self) -> Result<()> {
        self.runtime.block_on(self.inner.connect())?
    }

    /// As [`crate::Producer::warm_up`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn warm_up(&self, topics: &[&str]) -> Result<()> {
        self.runtime.block_on(self.inner.warm_up(topics))?
    }

    /// As [`crate::Producer::send`]: returns when the record is in its batch, after `max.block.ms` at the latest.
    /// Most sends do not block.
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn send(&self, record: Record<'_>) -> Result<Delivery> {
        Delivery::of_send(&self.runtime, self.inner.send(record))
    }

    /// As [`crate::Producer::try_send`]: never blocks, and so may be called anywhere.
    ///
    /// # Errors
    /// As the async method.
    pub fn try_send(&self, record: Record<'_>) -> Result<Delivery> {
        Delivery::of_try_send(&self.runtime, || self.inner.try_send(record))
    }

    /// Creates a sink for [`Producer::send_tagged`], and the receiver of its outcomes, as
    /// [`crate::Producer::completions`].
    ///
    /// A thread that sends must not be the only one to receive: a run holds `buffer.memory` until it is dropped.
    ///
    /// ```no_run
    /// # fn example(producer: curtail::blocking::Producer, payments: Vec<(u64, String)>) -> curtail::Result<()> {
    /// use std::thread;
    /// use curtail::Record;
    ///
    /// let (sink, completions) = producer.completions();
    /// let receiving = thread::spawn(move || -> curtail::Result<()> {
    ///     for run in completions {
    ///         let run = run?;
    ///         match run.outcome() {
    ///             Ok(batch) => println!("partition {}: {} payments", batch.partition, run.tags().len()),
    ///             Err(error) => eprintln!("payments {:?} failed: {}", run.tags(), error.report()),
    ///         }
    ///     }
    ///     Ok(())
    /// });
    /// for (id, amount) in &payments {
    ///     producer.send_tagged(Record::to("payments").value(amount), *id, &sink)?;
    /// }
    /// // The receiver ends after the last sink and its last record.
    /// drop(sink);
    /// receiving.join().expect("the thread does not panic")
    /// # }
    /// ```
    #[must_use = "without the receiver, outcomes are discarded"]
    pub fn completions(&self) -> (CompletionSink, Completions) {
        Completions::with(&self.runtime, self.inner.completions())
    }

    /// As [`crate::Producer::send_tagged`]: returns when the record is in its batch, after `max.block.ms` at the
    /// latest. Most sends do not block.
    ///
    /// # Errors
    /// As the async method, and inside an async context. On any error the sink receives nothing.
    pub fn send_tagged(&self, record: Record<'_>, tag: u64, sink: &CompletionSink) -> Result<()> {
        self.runtime.complete(self.inner.send_tagged(record, tag, sink))
    }

    /// As [`crate::Producer::try_send_tagged`]: never blocks, and so may be called anywhere.
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

    /// As [`crate::Producer::flush`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn flush(&self) -> Result<()> {
        self.runtime.block_on(self.inner.flush())?
    }

    /// As [`crate::Producer::close`].
    ///
    /// # Errors
    /// As the async method, and inside an async context. Then nothing is flushed.
    pub fn close(self) -> Result<()> {
        self.runtime.block_on(self.inner.close())?
    }

    /// As [`crate::Producer::partitions_for`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn partitions_for(&self, topic: &str) -> Result<usize> {
        self.runtime.block_on(self.inner.partitions_for(topic))?
    }

    /// As [`crate::Producer::available_memory`].
    pub fn available_memory(&self) -> usize {
        self.inner.available_memory()
    }

    /// As [`crate::Producer::client_instance_id`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn client_instance_id(&self, timeout: Duration) -> Result<Uuid> {
        self.runtime.block_on(self.inner.client_instance_id(timeout))?
    }

    /// As [`crate::Producer::metrics`].
    pub fn metrics(&self) -> ProducerMetrics {
        self.inner.metrics()
    }

    /// Runs async code with the underlying producer, for functions that this type lacks.
    ///
    /// ```no_run
    /// # fn example(producer: curtail::blocking::Producer) -> curtail::Result<()> {
    /// producer.run(async |producer| producer.warm_up(&["payments", "refunds"]).await)?
    /// # }
    /// ```
    ///
    /// # Errors
    /// Inside an async context.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&crate::Producer) -> T) -> Result<T> {
        self.runtime.block_on(work(&self.inner))
    }
}

/// The acknowledgement of one record. Dropping it does not cancel the record.
#[derive(Debug)]
#[must_use = "only the delivery reports a record that failed; await it, or drop it to ignore failures"]
pub struct Delivery {
    inner: crate::Delivery,
    runtime: Runtime,
}

impl Delivery {
    pub(super) fn of_send(
        runtime: &Runtime,
        send: impl Future<Output = Result<crate::Delivery>>,
    ) -> Result<Self> {
        runtime.complete(send).map(|inner| Self { inner, runtime: runtime.clone() })
    }

    pub(super) fn of_try_send(
        runtime: &Runtime,
        try_send: impl FnOnce() -> Result<crate::Delivery>,
    ) -> Result<Self> {
        let _entered = runtime.enter();
        let inner = try_send()?;
        Ok(Self { inner, runtime: runtime.clone() })
    }

    /// Waits for the outcome, up to about `delivery.timeout.ms`.
    ///
    /// # Errors
    /// [`crate::Error::NotAcknowledged`], which reports whether the record may have been written. Also inside an
    /// async context, where the outcome stays unknown.
    pub fn wait(mut self) -> Result<RecordMetadata> {
        if let Some(outcome) = self.inner.outcome() {
            return outcome;
        }
        self.runtime.block_on(&mut self.inner)?
    }

    /// Waits for the outcome for up to `limit`; `None` if it is still unknown.
    ///
    /// # Errors
    /// As [`Delivery::wait`].
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<Option<RecordMetadata>> {
        // The timer must be created inside the runtime.
        let waited = self.runtime.block_on(async { timeout(limit, &mut self.inner).await })?;
        waited.ok().transpose()
    }

    /// As [`crate::Delivery::outcome`].
    pub fn outcome(&self) -> Option<Result<RecordMetadata>> {
        self.inner.outcome()
    }

    /// As [`crate::Delivery::batch_outcome`].
    pub fn batch_outcome(&self) -> Option<Result<BatchMetadata>> {
        self.inner.batch_outcome()
    }

    /// As [`crate::Delivery::timing`].
    pub fn timing(&self) -> Option<Timing> {
        self.inner.timing()
    }
}
