//! Interceptors: the application's code around the records that a consumer returns and the offsets that it commits
//! (KIP-42).

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{ConsumerRecord, TopicPartition, contained::contained, transaction::OffsetAndMetadata};

/// Code that sees, and may change or remove, the records that a consumer returns, and sees the offsets that it has
/// committed.
///
/// As in the Java client, interceptors are called in the order in which they were added, each with the records as
/// changed by the previous one. A panic is caught and logged, and the records continue as before that call.
///
/// ```
/// use curtail::{ConsumerConfig, ConsumerRecord, consumer::ConsumerInterceptor};
///
/// struct WithoutTests;
///
/// impl ConsumerInterceptor for WithoutTests {
///     fn on_consume(&self, records: &mut Vec<ConsumerRecord>) {
///         records.retain(|record| record.header("test").is_none());
///     }
/// }
///
/// let config = ConsumerConfig::new("localhost:9092").group_id("billing").interceptor(WithoutTests);
/// ```
pub trait ConsumerInterceptor: Send + Sync + 'static {
    /// Called with the records that [`Consumer::poll`](crate::Consumer::poll), a stream or a queue is about to return,
    /// on the calling task. A stream passes them one by one. A removed record counts as returned, so its offset is
    /// committed with the others. Not called for [`Consumer::poll_batch`](crate::Consumer::poll_batch).
    fn on_consume(&self, records: &mut Vec<ConsumerRecord>) {
        let _ = records;
    }

    /// Called when the coordinator has committed these offsets, before the commit's caller learns of it. Runs on the
    /// client's runtime, and with `curtail.io.thread` on that thread: it must not block.
    fn on_commit(&self, offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>) {
        let _ = offsets;
    }
}

/// The interceptors of a consumer, in order. Cheap to clone.
#[derive(Clone, Default)]
pub struct ConsumerInterceptors(Vec<Arc<dyn ConsumerInterceptor>>);

impl fmt::Debug for ConsumerInterceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConsumerInterceptors({})", self.0.len())
    }
}

impl ConsumerInterceptors {
    /// Appends an interceptor.
    pub fn push(&mut self, interceptor: impl ConsumerInterceptor) {
        self.0.push(Arc::new(interceptor));
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the records after all interceptors.
    pub(super) fn on_consume(&self, mut records: Vec<ConsumerRecord>) -> Vec<ConsumerRecord> {
        for interceptor in &self.0 {
            let mut changed = records.clone();
            if contained("consumer", "on_consume", || interceptor.on_consume(&mut changed)) {
                records = changed;
            }
        }
        records
    }

    /// As [`Self::on_consume`], for a record that is returned alone. `None` if it was removed.
    pub(super) fn on_consume_one(&self, record: ConsumerRecord) -> Option<ConsumerRecord> {
        match self.is_empty() {
            true => Some(record),
            false => self.on_consume(vec![record]).into_iter().next(),
        }
    }

    pub(super) fn on_commit(&self, offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>) {
        for interceptor in &self.0 {
            contained("consumer", "on_commit", || interceptor.on_commit(offsets));
        }
    }
}
