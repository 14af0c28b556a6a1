//! Interceptors: the application's code around every send and every acknowledgement (KIP-42).
//!
//! A separate task reports acknowledgements, in the order of the outcomes, before the records' deliveries resolve. An
//! interceptor may call the producer, because no lock is held. Unreported outcomes keep their part of
//! `buffer.memory`, which bounds the queue.

use std::{borrow::Cow, fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::{
    delivery::{Ending, Placement},
    mailbox::{Receiver, Sender, mailbox},
    memory::Reservation,
};
use crate::{Error, Header, Record, RecordMetadata, contained::contained};

/// Code that sees, and may change, every record before it is sent, and receives the record's outcome.
///
/// As in the Java client, interceptors are called in the order in which they were added, each with the record as
/// changed by the previous one. A panic is caught and logged; the record continues as before that call, with the next
/// interceptor. [`Self::on_send`] runs on the sending task, [`Self::on_acknowledgement`] on the runtime on which the
/// producer was made. Acknowledgements wait for it, so it should be quick.
///
/// ```
/// use curtail::producer::{OutgoingRecord, ProducerInterceptor};
/// use curtail::{Error, ProducerConfig, RecordMetadata};
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
///             eprintln!("{topic}: {}", error.report());
///         }
///     }
/// }
///
/// let config = ProducerConfig::new("localhost:9092").interceptor(Stamp);
/// ```
pub trait ProducerInterceptor: Send + Sync + 'static {
    /// Called before a record is sent, on the sending task, before key and value decide the partition.
    fn on_send(&self, record: &mut OutgoingRecord<'_>) {
        let _ = record;
    }

    /// Called when a record was acknowledged, or it or its send has failed. Called once for each record passed to
    /// `on_send`, unless the runtime on which the producer was made ends first.
    fn on_acknowledgement(&self, topic: &str, outcome: Result<&RecordMetadata, &Error>) {
        let _ = (topic, outcome);
    }
}

/// A record passing through the interceptors. Fields that are not replaced stay borrowed.
#[derive(Clone, Debug)]
pub struct OutgoingRecord<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Partition, if the sender chose one.
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
    /// Name of the header; names may repeat.
    pub key: Cow<'a, str>,
    /// Value of the header.
    pub value: Option<Cow<'a, [u8]>>,
}

impl<'a> OutgoingRecord<'a> {
    /// Appends a header.
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

    /// Returns the headers as [`Record`] borrows them.
    pub(super) fn header_list(&self) -> Vec<Header<'_>> {
        self.headers
            .iter()
            .map(|header| Header { key: &header.key, value: header.value.as_deref() })
            .collect()
    }

    /// Returns the record to send.
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
    /// Appends an interceptor.
    pub fn push(&mut self, interceptor: impl ProducerInterceptor) {
        self.0.push(Arc::new(interceptor));
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the record after all interceptors.
    pub(super) fn on_send<'a>(&self, record: &Record<'a>) -> OutgoingRecord<'a> {
        let mut record = OutgoingRecord::of(record);
        for interceptor in &self.0 {
            let mut changed = record.clone();
            if contained("producer", "on_send", || interceptor.on_send(&mut changed)) {
                record = changed;
            }
        }
        record
    }

    /// Passes a record's outcome to all interceptors.
    pub(super) fn on_acknowledgement(&self, topic: &str, outcome: Result<&RecordMetadata, &Error>) {
        for interceptor in &self.0 {
            contained("producer", "on_acknowledgement", || {
                interceptor.on_acknowledgement(topic, outcome);
            });
        }
    }
}

/// A batch's data for interceptors: its records' timestamps, and the mailbox of the task.
#[derive(Debug)]
pub(super) struct Interception {
    timestamps: Mutex<Vec<i64>>,
    to: Sender<Outcome>,
}

impl Interception {
    pub(super) fn new(to: Sender<Outcome>) -> Self {
        Self { timestamps: Mutex::default(), to }
    }

    /// Records that a record joins the batch.
    pub(super) fn joined(&self, timestamp: i64) {
        self.timestamps.lock().push(timestamp);
    }

    /// Splits off the first `records` records of the batch.
    pub(super) fn split_off(&mut self, records: u32) -> Self {
        let timestamps = self.timestamps.get_mut();
        let rest = timestamps.split_off((records as usize).min(timestamps.len()));
        let first = std::mem::replace(timestamps, rest);
        Self { timestamps: Mutex::new(first), to: self.to.clone() }
    }

    /// Sends the outcome to the task. Without the task, the outcome is reported immediately.
    pub(super) fn tell(self, mut ending: Ending) {
        ending.leave_window();
        let batch =
            Outcome::Batch { ending: Some(ending), timestamps: self.timestamps.into_inner() };
        // If the receiver is gone, the outcome is dropped, which reports it.
        self.to.send(batch);
    }
}

/// An outcome in the mailbox of the interceptors. Dropping it reports it.
#[derive(Debug)]
pub(super) enum Outcome {
    Batch {
        /// `None` only while it is dropped.
        ending: Option<Ending>,
        timestamps: Vec<i64>,
    },
    /// A record that failed before it was in a batch.
    Record(Option<Failed>),
}

/// A record that fails with this error.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) placement: Placement,
    pub(super) error: Error,
    pub(super) memory: Option<Reservation>,
}

impl Failed {
    pub(super) fn report(self) {
        self.placement.fail(self.error, self.memory);
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        match self {
            Self::Batch { ending, .. } => ending.take().into_iter().for_each(Ending::report),
            Self::Record(failed) => failed.take().into_iter().for_each(Failed::report),
        }
    }
}

/// Starts the reporting task. It ends when the producer and its last batch are gone.
pub(super) fn start(interceptors: Interceptors, on: &Handle) -> Sender<Outcome> {
    let (to, outcomes) = mailbox();
    on.spawn(tell_all(interceptors, outcomes));
    to
}

async fn tell_all(interceptors: Interceptors, mut outcomes: Receiver<Outcome>) {
    while let Some(told) = outcomes.recv().await {
        match &told {
            Outcome::Batch { ending: Some(Ending { result, outcome, .. }), timestamps } => {
                for (index, timestamp) in (0u32..).zip(timestamps) {
                    let record = result.describe(outcome, index, *timestamp);
                    interceptors.on_acknowledgement(result.topic(), record.as_ref());
                }
            }
            Outcome::Record(Some(Failed { placement, error, .. })) => {
                interceptors.on_acknowledgement(placement.ticket().topic(), Err(error));
            }
            Outcome::Batch { ending: None, .. } | Outcome::Record(None) => {}
        }
    }
}
