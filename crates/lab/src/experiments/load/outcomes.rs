//! How a load learns the outcomes of its records.

use std::time::Instant;

use curtail::{
    Delivery, Error as ClientError, Producer, Record,
    producer::{CompletionSink, Completions, Timing},
};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    runtime::Runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use super::{Acknowledged, Fate, nanos};
use crate::perf::{Result, application_runtime, client_runtime};

/// What a load awaits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Awaits {
    /// Each delivery on its own, in another task, as most applications do. A record is acknowledged when its delivery
    /// has resolved there.
    #[default]
    EachDelivery,
    /// Runs of completions, in another task, which costs least. A record is acknowledged when its run has arrived there.
    Completions,
    /// Only a flush after the last record, for a load that compares deliveries. A record is acknowledged when its response
    /// was read.
    Flush,
}

impl Awaits {
    /// The client's runtime.
    pub(super) fn runtime(self) -> Result<Runtime> {
        match self {
            Self::EachDelivery | Self::Completions => application_runtime(),
            Self::Flush => client_runtime(),
        }
    }
}

/// A record that was passed to the producer: when, in nanoseconds since the start, and its delivery.
type Handed = (u64, Result<Delivery, ClientError>);

/// The records that were sent, by number.
pub(super) enum Outcomes {
    Awaited { hand: UnboundedSender<Handed>, fates: JoinHandle<Fates> },
    Tagged { sink: CompletionSink, sent: Fates, received: JoinHandle<Received> },
    Kept(Vec<Handed>),
}

impl Outcomes {
    /// Must be called in the runtime that awaits them.
    pub(super) fn new(awaits: Awaits, producer: &Producer, start: Instant, most: usize) -> Self {
        match awaits {
            Awaits::EachDelivery => {
                let (hand, handed) = unbounded_channel();
                Self::Awaited { hand, fates: tokio::spawn(await_each(handed, start)) }
            }
            Awaits::Completions => {
                let (sink, completions) = producer.completions();
                let received = tokio::spawn(receive(completions, start));
                Self::Tagged { sink, sent: Fates::with_capacity(most), received }
            }
            Awaits::Flush => Self::Kept(Vec::with_capacity(most)),
        }
    }

    /// Sends the next record, at this time in nanoseconds since the start.
    ///
    /// # Errors
    /// Errors that every later record would have, too. Others are the record's outcome.
    pub(super) async fn send(
        &mut self,
        producer: &Producer,
        record: Record<'_>,
        sent: u64,
    ) -> Result<(), ClientError> {
        if let Self::Tagged { sink, sent: fates, .. } = self {
            let number = fates.add_sent(sent);
            let result = producer.send_tagged(record, number as u64, sink).await;
            return result.or_else(|error| fates.refuse(error));
        }
        let delivery = match producer.send(record).await {
            Err(error) if ends_load(&error) => return Err(error),
            delivery => delivery,
        };
        match self {
            // The other end waits until this one is dropped.
            Self::Awaited { hand, .. } => drop(hand.send((sent, delivery))),
            Self::Kept(kept) => kept.push((sent, delivery)),
            Self::Tagged { .. } => {}
        }
        Ok(())
    }

    /// The deliveries, unless another task learns the outcomes.
    pub(super) fn kept(&self) -> Option<&[Handed]> {
        match self {
            Self::Kept(kept) => Some(kept),
            Self::Awaited { .. } | Self::Tagged { .. } => None,
        }
    }

    /// Waits for the outcomes. Kept deliveries must have theirs: the producers were flushed.
    pub(super) async fn fates(self, start: Instant) -> Fates {
        match self {
            Self::Awaited { hand, fates } => {
                drop(hand);
                joined(fates).await
            }
            Self::Tagged { sink, mut sent, received } => {
                drop(sink);
                sent.merge(joined(received).await);
                sent
            }
            Self::Kept(kept) => {
                let mut fates = Fates::default();
                for (sent, delivery) in kept {
                    let number = fates.add_sent(sent);
                    fates.settle(number, delivery.and_then(|delivery| read(&delivery, start)));
                }
                fates
            }
        }
    }
}

async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn ends_load(error: &ClientError) -> bool {
    matches!(error, ClientError::Closed | ClientError::RecordTooLarge { .. })
}

/// Outcomes of the records of a load, by number.
#[derive(Debug, Default)]
pub(super) struct Fates {
    pub(super) all: Vec<Fate>,
    pub(super) first_error: Option<String>,
}

impl Fates {
    fn with_capacity(most: usize) -> Self {
        Self { all: Vec::with_capacity(most), first_error: None }
    }

    fn add_sent(&mut self, sent: u64) -> usize {
        self.all.push(Fate { sent, acknowledged: None });
        self.all.len() - 1
    }

    fn settle(&mut self, number: usize, outcome: Result<Acknowledged, ClientError>) {
        match outcome {
            Ok(acknowledged) => self.all[number].acknowledged = Some(acknowledged),
            Err(error) => self.note(&error),
        }
    }

    /// The producer did not take a record.
    fn refuse(&mut self, error: ClientError) -> Result<(), ClientError> {
        if ends_load(&error) {
            return Err(error);
        }
        self.note(&error);
        Ok(())
    }

    fn note(&mut self, error: &ClientError) {
        self.first_error.get_or_insert_with(|| error.report().to_string());
    }

    fn merge(&mut self, received: Received) {
        for (fate, acknowledged) in self.all.iter_mut().zip(received.by_number) {
            fate.acknowledged = acknowledged;
        }
        self.first_error = self.first_error.take().or(received.first_error);
    }
}

/// What the receiver of tagged records has seen, by number.
#[derive(Debug, Default)]
pub(super) struct Received {
    by_number: Vec<Option<Acknowledged>>,
    first_error: Option<String>,
}

/// The outcome of a delivery that has one, as of the time of the response.
fn read(delivery: &Delivery, start: Instant) -> Result<Acknowledged, ClientError> {
    let closed = || ClientError::Closed;
    let metadata = delivery.outcome().ok_or_else(closed)??;
    let timing = delivery.timing().ok_or_else(closed)?;
    let at = timing.acknowledged.into_std();
    Ok(placed((metadata.partition, metadata.offset), &timing, at, start))
}

/// The acknowledgement of a record, which the application received at `at`.
fn placed(
    (partition, offset): (i32, Option<i64>),
    timing: &Timing,
    at: Instant,
    start: Instant,
) -> Acknowledged {
    let since = |at: Instant| nanos(at.saturating_duration_since(start));
    let written = Some(since(timing.first_written.into_std()));
    Acknowledged { partition, offset, written, at: since(at) }
}

/// Awaits deliveries as they come, until the sender has ended and all have resolved.
async fn await_each(mut handed: UnboundedReceiver<Handed>, start: Instant) -> Fates {
    let mut fates = Fates::default();
    let mut waiting = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !waiting.is_empty() {
        tokio::select! {
            next = handed.recv(), if is_open => match next {
                Some((sent, Ok(delivery))) => {
                    waiting.push(outcome(fates.add_sent(sent), delivery, start));
                }
                Some((sent, Err(error))) => {
                    let number = fates.add_sent(sent);
                    fates.settle(number, Err(error));
                }
                None => is_open = false,
            },
            Some((number, outcome)) = waiting.next() => fates.settle(number, outcome),
        }
    }
    fates
}

async fn outcome(
    number: usize,
    mut delivery: Delivery,
    start: Instant,
) -> (usize, Result<Acknowledged, ClientError>) {
    let resolved = (&mut delivery).await;
    let at = Instant::now();
    let timing = || delivery.timing().ok_or(ClientError::Closed);
    let acknowledged = resolved.and_then(|metadata| {
        Ok(placed((metadata.partition, metadata.offset), &timing()?, at, start))
    });
    (number, acknowledged)
}

/// Receives the outcomes of tagged records until the sender has ended. A tag is the record's number.
async fn receive(mut completions: Completions, start: Instant) -> Received {
    let mut received = Received::default();
    while let Some(run) = completions.next().await {
        let at = Instant::now();
        let batch = match run.outcome() {
            Ok(batch) => batch,
            Err(error) => {
                received.first_error.get_or_insert_with(|| error.report().to_string());
                continue;
            }
        };
        for (number, offset) in run.records() {
            let number = number as usize;
            if number >= received.by_number.len() {
                received.by_number.resize(number + 1, None);
            }
            let place = (batch.partition, offset);
            received.by_number[number] = Some(placed(place, &batch.timing, at, start));
        }
    }
    received
}
