//! Interceptors: the application's own code around every send and every acknowledgement (KIP-42).
//!
//! Acknowledgements are told on a task of their own, in the order of the outcomes, before the records' deliveries are
//! resolved: an interceptor may call the producer, because no lock of it is held. What waits for that task keeps its
//! part of `buffer.memory`, which bounds the queue.

use std::{
    borrow::Cow,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    delivery::{Acknowledged, BatchResult},
    memory::Reservation,
};
use crate::{Error, Header, Record, RecordMetadata, Result};

/// Code that sees, and may change, every record before it is sent, and sees what becomes of it.
///
/// As in the Java client, interceptors are called one after the other in the order in which they were given, each
/// with what the one before made of the record, and a panic is contained: it is logged, the record goes on as it was
/// before that call, and the next interceptor is called. They run where the producer works, so they should be quick.
///
/// ```
/// use curtail::{Error, OutgoingRecord, ProducerConfig, ProducerInterceptor, RecordMetadata};
///
/// struct Stamp;
///
/// impl ProducerInterceptor for Stamp {
///     fn on_send(&self, record: &mut OutgoingRecord<'_>) {
///         record.push_header("sent-by", b"billing");
///     }
///
///     fn on_acknowledgement(&self, topic: &str, outcome: Result<&RecordMetadata, &Error>) {
///         if let Err(error) = outcome {
///             eprintln!("{topic}: {error}");
///         }
///     }
/// }
///
/// let config = ProducerConfig::new("localhost:9092").interceptor(Stamp);
/// ```
pub trait ProducerInterceptor: Send + Sync + 'static {
    /// A record is about to be sent: called on the task that sends, before key and value decide the partition.
    fn on_send(&self, record: &mut OutgoingRecord<'_>) {
        let _ = record;
    }

    /// A record was acknowledged or has failed, or its send has. Called once for each record that `on_send` was
    /// called for, unless the runtime ends before.
    fn on_acknowledgement(&self, topic: &str, outcome: Result<&RecordMetadata, &Error>) {
        let _ = (topic, outcome);
    }
}

/// A record on its way through the interceptors. What is not replaced stays borrowed.
#[derive(Clone, Debug)]
pub struct OutgoingRecord<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Partition, where the sender chose one.
    pub partition: Option<i32>,
    /// Key.
    pub key: Option<Cow<'a, [u8]>>,
    /// Value.
    pub value: Option<Cow<'a, [u8]>>,
    /// Headers, in order.
    pub headers: Vec<OutgoingHeader<'a>>,
    /// Timestamp in milliseconds since 1970-01-01 UTC; `None` for the time of the send.
    pub timestamp: Option<i64>,
}

/// A header of an [`OutgoingRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingHeader<'a> {
    /// Its name; the same name may be there more than once.
    pub key: Cow<'a, str>,
    /// Its value.
    pub value: Option<Cow<'a, [u8]>>,
}

impl<'a> OutgoingRecord<'a> {
    /// Adds a header behind the others.
    pub fn push_header(&mut self, key: impl Into<Cow<'a, str>>, value: impl AsRef<[u8]>) {
        let value = Some(Cow::Owned(value.as_ref().to_vec()));
        self.headers.push(OutgoingHeader { key: key.into(), value });
    }

    fn of(record: &Record<'a>) -> Self {
        let header = |header: &Header<'a>| OutgoingHeader {
            key: header.key.into(),
            value: header.value.map(Cow::Borrowed),
        };
        Self {
            topic: record.topic.into(),
            partition: record.partition,
            key: record.key.map(Cow::Borrowed),
            value: record.value.map(Cow::Borrowed),
            headers: record.headers.iter().map(header).collect(),
            timestamp: record.timestamp,
        }
    }

    /// The headers as [`Record`] borrows them.
    pub(super) fn header_list(&self) -> Vec<Header<'_>> {
        self.headers
            .iter()
            .map(|header| Header { key: &header.key, value: header.value.as_deref() })
            .collect()
    }

    /// The record to send.
    pub(super) fn as_record<'b>(&'b self, headers: &'b [Header<'b>]) -> Record<'b> {
        Record {
            topic: &self.topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers,
            timestamp: self.timestamp,
        }
    }
}

/// The interceptors of a producer, in order. Cheap to clone.
#[derive(Clone, Default)]
pub struct Interceptors(Vec<Arc<dyn ProducerInterceptor>>);

impl fmt::Debug for Interceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interceptors({})", self.0.len())
    }
}

impl Interceptors {
    /// Adds one behind the others.
    pub fn push(&mut self, interceptor: impl ProducerInterceptor) {
        self.0.push(Arc::new(interceptor));
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The record as the interceptors want it sent.
    pub(super) fn on_send<'a>(&self, record: &Record<'a>) -> OutgoingRecord<'a> {
        let mut record = OutgoingRecord::of(record);
        for interceptor in &self.0 {
            let mut changed = record.clone();
            if contained("on_send", || interceptor.on_send(&mut changed)) {
                record = changed;
            }
        }
        record
    }

    /// Tells them what became of a record.
    pub(super) fn on_acknowledgement(&self, topic: &str, outcome: Result<&RecordMetadata, &Error>) {
        for interceptor in &self.0 {
            contained("on_acknowledgement", || interceptor.on_acknowledgement(topic, outcome));
        }
    }
}

/// Calls an interceptor; says whether it returned. What it shares with others may be half changed by a panic: that is
/// the interceptor's own business, the producer shares nothing with it.
fn contained(what: &str, call: impl FnOnce()) -> bool {
    let returned = catch_unwind(AssertUnwindSafe(call)).is_ok();
    if !returned {
        tracing::warn!("a producer interceptor panicked in {what}; the record goes on without it");
    }
    returned
}

/// What a batch needs so that interceptors hear of its records: their timestamps, and the way to the task.
#[derive(Debug)]
pub(super) struct Interception {
    timestamps: Mutex<Vec<i64>>,
    to: UnboundedSender<Outcome>,
}

impl Interception {
    pub(super) fn new(to: UnboundedSender<Outcome>) -> Self {
        Self { timestamps: Mutex::default(), to }
    }

    /// A record joins the batch.
    pub(super) fn joined(&self, timestamp: i64) {
        self.timestamps.lock().push(timestamp);
    }

    /// For the first so many records of the batch, which goes on without them.
    pub(super) fn split_off(&mut self, records: u32) -> Self {
        let timestamps = self.timestamps.get_mut();
        let rest = timestamps.split_off((records as usize).min(timestamps.len()));
        let first = std::mem::replace(timestamps, rest);
        Self { timestamps: Mutex::new(first), to: self.to.clone() }
    }

    /// Has the outcome told. If the task is gone, it is resolved without.
    pub(super) fn tell(
        self,
        result: Arc<BatchResult>,
        outcome: Result<Acknowledged>,
        memory: Option<Reservation>,
    ) {
        let timestamps = self.timestamps.into_inner();
        let outcome = Outcome { result, outcome: Some(outcome), timestamps, _memory: memory };
        // The outcome resolves itself when it is dropped.
        let _ = self.to.send(outcome);
    }
}

/// A batch's outcome on its way to the interceptors.
#[derive(Debug)]
pub(super) struct Outcome {
    result: Arc<BatchResult>,
    outcome: Option<Result<Acknowledged>>,
    timestamps: Vec<i64>,
    _memory: Option<Reservation>,
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            self.result.resolve(outcome);
        }
    }
}

/// Starts the task that tells outcomes; it ends when the producer and its last batch are gone.
pub(super) fn start(interceptors: Interceptors) -> UnboundedSender<Outcome> {
    let (to, outcomes) = unbounded_channel();
    tokio::spawn(tell_all(interceptors, outcomes));
    to
}

async fn tell_all(interceptors: Interceptors, mut outcomes: UnboundedReceiver<Outcome>) {
    while let Some(told) = outcomes.recv().await {
        let Some(outcome) = &told.outcome else { continue };
        for (index, timestamp) in (0u32..).zip(&told.timestamps) {
            let record = told.result.describe(outcome, index, *timestamp);
            interceptors.on_acknowledgement(told.result.topic(), record.as_ref());
        }
    }
}
