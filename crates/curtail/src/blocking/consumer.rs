//! The consumer for plain threads.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_core::Stream as _;

use super::Runtime;
use crate::{
    ConsumerConfig, ConsumerRecord, Result, TopicPartition, Uuid,
    consumer::{
        CloseOptions, ConsumerHandle, OffsetAndTimestamp, PartitionInfo, RebalanceListener,
        RecordBatch, RecordStream, Records,
    },
    metrics::ConsumerMetrics,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};

/// [`crate::Consumer`] for plain threads. It fetches ahead between the calls.
#[derive(Debug)]
pub struct Consumer {
    // Before the runtime: its tasks must end while the runtime still runs.
    inner: crate::Consumer,
    runtime: Runtime,
}

impl Consumer {
    /// Creates a consumer with its own runtime and without an assignment.
    ///
    /// # Errors
    /// As [`crate::Consumer::new`]; inside an async context; if the system cannot start a thread.
    pub fn new(config: ConsumerConfig) -> Result<Self> {
        let runtime = Runtime::start()?;
        let entered = runtime.enter();
        let inner = crate::Consumer::new(config)?;
        drop(entered);
        Ok(Self { inner, runtime })
    }

    /// As [`crate::Consumer::connect`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn connect(&self) -> Result<()> {
        self.runtime.block_on(self.inner.connect())?
    }

    /// As [`crate::Consumer::assign`].
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = TopicPartition>) {
        let _entered = self.runtime.enter();
        self.inner.assign(partitions);
    }

    /// As [`crate::Consumer::subscribe`].
    ///
    /// # Errors
    /// As the async method.
    pub fn subscribe<T: AsRef<str>>(&mut self, topics: impl IntoIterator<Item = T>) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.subscribe(topics)
    }

    /// As [`crate::Consumer::subscribe_matching`].
    ///
    /// # Errors
    /// As the async method.
    pub fn subscribe_matching(
        &mut self,
        matches: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.subscribe_matching(matches)
    }

    /// As [`crate::Consumer::subscribe_pattern`].
    ///
    /// # Errors
    /// As the async method.
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.subscribe_pattern(pattern)
    }

    /// As [`crate::Consumer::unsubscribe`].
    pub fn unsubscribe(&mut self) {
        let _entered = self.runtime.enter();
        self.inner.unsubscribe();
    }

    /// As [`crate::Consumer::subscription`].
    pub fn subscription(&self) -> BTreeSet<String> {
        self.inner.subscription()
    }

    /// As [`crate::Consumer::set_rebalance_listener`].
    pub fn set_rebalance_listener(&mut self, listener: impl RebalanceListener) {
        self.inner.set_rebalance_listener(listener);
    }

    /// As [`crate::Consumer::group_metadata`].
    pub fn group_metadata(&self) -> Option<ConsumerGroupMetadata> {
        self.inner.group_metadata()
    }

    /// As [`crate::Consumer::client_instance_id`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn client_instance_id(&self, timeout: Duration) -> Result<Uuid> {
        self.runtime.block_on(self.inner.client_instance_id(timeout))?
    }

    /// As [`crate::Consumer::metrics`].
    pub fn metrics(&self) -> ConsumerMetrics {
        self.inner.metrics()
    }

    /// As [`crate::Consumer::commit`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn commit(&mut self) -> Result<()> {
        self.runtime.block_on(self.inner.commit())?
    }

    /// As [`crate::Consumer::commit_offsets`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn commit_offsets(
        &mut self,
        offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
    ) -> Result<()> {
        self.runtime.block_on(self.inner.commit_offsets(offsets))?
    }

    /// As [`crate::Consumer::commit_nowait`], but without the outcome.
    ///
    /// # Errors
    /// As the async method.
    pub fn commit_nowait(&mut self) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.commit_nowait().map(drop)
    }

    /// As [`crate::Consumer::committed`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndMetadata>>> {
        self.runtime.block_on(self.inner.committed(partitions))?
    }

    /// As [`crate::Consumer::assignment`].
    pub fn assignment(&self) -> BTreeSet<TopicPartition> {
        self.inner.assignment()
    }

    /// As [`crate::Consumer::seek`].
    ///
    /// # Errors
    /// As the async method.
    pub fn seek(&mut self, partition: &TopicPartition, offset: i64) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.seek(partition, offset)
    }

    /// As [`crate::Consumer::seek_to`].
    ///
    /// # Errors
    /// As [`crate::Consumer::seek_to`].
    pub fn seek_to(&mut self, partition: &TopicPartition, to: &OffsetAndMetadata) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.seek_to(partition, to)
    }

    /// As [`crate::Consumer::seek_to_beginning`].
    ///
    /// # Errors
    /// As the async method.
    pub fn seek_to_beginning<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.seek_to_beginning(partitions)
    }

    /// As [`crate::Consumer::seek_to_end`].
    ///
    /// # Errors
    /// As the async method.
    pub fn seek_to_end<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.seek_to_end(partitions)
    }

    /// As [`crate::Consumer::seek_to_timestamp`].
    ///
    /// # Errors
    /// As the async method.
    pub fn seek_to_timestamp(&mut self, partition: &TopicPartition, timestamp: i64) -> Result<()> {
        let _entered = self.runtime.enter();
        self.inner.seek_to_timestamp(partition, timestamp)
    }

    /// As [`crate::Consumer::pause`].
    pub fn pause<'a>(&mut self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        let _entered = self.runtime.enter();
        self.inner.pause(partitions);
    }

    /// As [`crate::Consumer::resume`].
    pub fn resume<'a>(&mut self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        let _entered = self.runtime.enter();
        self.inner.resume(partitions);
    }

    /// As [`crate::Consumer::paused`].
    pub fn paused(&self) -> BTreeSet<TopicPartition> {
        self.inner.paused()
    }

    /// As [`crate::Consumer::handle`].
    pub fn handle(&self) -> ConsumerHandle {
        self.inner.handle()
    }

    /// As [`crate::Consumer::enforce_rebalance`].
    ///
    /// # Errors
    /// As the async method.
    pub fn enforce_rebalance(&mut self) -> Result<()> {
        self.inner.enforce_rebalance()
    }

    /// As [`crate::Consumer::position`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn position(&self, partition: &TopicPartition) -> Result<i64> {
        self.runtime.block_on(self.inner.position(partition))?
    }

    /// As [`crate::Consumer::high_watermark`].
    pub fn high_watermark(&self, partition: &TopicPartition) -> Option<i64> {
        self.inner.high_watermark(partition)
    }

    /// As [`crate::Consumer::poll`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn poll(&mut self, timeout: Duration) -> Result<Records> {
        self.runtime.block_on(self.inner.poll(timeout))?
    }

    /// As [`crate::Consumer::poll_batch`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn poll_batch(&mut self, timeout: Duration) -> Result<Option<RecordBatch>> {
        self.runtime.block_on(self.inner.poll_batch(timeout))?
    }

    /// Iterates over the records. It waits for each record and never ends. Dropping the iterator leaves the remaining
    /// records in the consumer.
    pub fn iter(&mut self) -> Iter<'_> {
        Iter { stream: self.inner.stream(), runtime: &self.runtime }
    }

    /// As [`crate::Consumer::beginning_offsets`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn beginning_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, i64>> {
        self.runtime.block_on(self.inner.beginning_offsets(partitions))?
    }

    /// As [`crate::Consumer::end_offsets`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn end_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, i64>> {
        self.runtime.block_on(self.inner.end_offsets(partitions))?
    }

    /// As [`crate::Consumer::offsets_for_times`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn offsets_for_times(
        &self,
        times: impl IntoIterator<Item = (TopicPartition, i64)>,
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>> {
        self.runtime.block_on(self.inner.offsets_for_times(times))?
    }

    /// As [`crate::Consumer::partitions_for`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn partitions_for(&self, topic: &str) -> Result<Vec<PartitionInfo>> {
        self.runtime.block_on(self.inner.partitions_for(topic))?
    }

    /// As [`crate::Consumer::list_topics`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn list_topics(&self) -> Result<BTreeMap<Arc<str>, Vec<PartitionInfo>>> {
        self.runtime.block_on(self.inner.list_topics())?
    }

    /// As [`crate::Consumer::close_with`].
    ///
    /// # Errors
    /// Inside an async context. The consumer is then dropped without requests to the brokers.
    pub fn close_with(self, options: CloseOptions) -> Result<()> {
        self.runtime.block_on(async {
            self.inner.close_with(options).await;
        })
    }

    /// As [`crate::Consumer::close`].
    ///
    /// # Errors
    /// Inside an async context. The consumer is then dropped without requests to the brokers.
    pub fn close(self) -> Result<()> {
        self.runtime.block_on(async {
            self.inner.close().await;
        })
    }

    /// Runs async code with the underlying consumer, for functions that this type lacks.
    ///
    /// # Errors
    /// Inside an async context.
    pub fn run<T>(&mut self, work: impl AsyncFnOnce(&mut crate::Consumer) -> T) -> Result<T> {
        self.runtime.block_on(work(&mut self.inner))
    }
}

/// Records one by one; see [`Consumer::iter`].
#[derive(Debug)]
pub struct Iter<'a> {
    stream: RecordStream<'a>,
    runtime: &'a Runtime,
}

impl Iterator for Iter<'_> {
    type Item = Result<ConsumerRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        let stream = &mut self.stream;
        let next = poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx));
        match self.runtime.block_on(next) {
            Ok(record) => record,
            Err(error) => Some(Err(error)),
        }
    }
}
