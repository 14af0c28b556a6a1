//! How a load learns the outcomes of its records.

use std::time::Instant;

use curtail::{Delivery, Error as ClientError, RecordMetadata, Timing};
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
    /// Only a flush after the last record, which costs least. A record is acknowledged when its response was read.
    Flush,
}

impl Awaits {
    /// The client's runtime.
    pub(super) fn runtime(self) -> Result<Runtime> {
        match self {
            Self::EachDelivery => application_runtime(),
            Self::Flush => client_runtime(),
        }
    }
}

/// A record that was passed to the producer: when, in nanoseconds since the start, and its delivery.
type Handed = (u64, Result<Delivery, ClientError>);

/// The records that were sent, by number.
pub(super) enum Deliveries {
    Awaited { hand: UnboundedSender<Handed>, fates: JoinHandle<Fates> },
    Kept(Vec<Handed>),
}

impl Deliveries {
    /// Must be called in the runtime that awaits them.
    pub(super) fn new(awaits: Awaits, start: Instant, most: usize) -> Self {
        match awaits {
            Awaits::EachDelivery => {
                let (hand, handed) = unbounded_channel();
                Self::Awaited { hand, fates: tokio::spawn(await_each(handed, start)) }
            }
            Awaits::Flush => Self::Kept(Vec::with_capacity(most)),
        }
    }

    pub(super) fn push(&mut self, sent: u64, delivery: Result<Delivery, ClientError>) {
        match self {
            // The other end waits until this one is dropped.
            Self::Awaited { hand, .. } => drop(hand.send((sent, delivery))),
            Self::Kept(kept) => kept.push((sent, delivery)),
        }
    }

    /// The deliveries, unless another task awaits them.
    pub(super) fn kept(&self) -> Option<&[Handed]> {
        match self {
            Self::Awaited { .. } => None,
            Self::Kept(kept) => Some(kept),
        }
    }

    /// Waits for the outcomes. Kept deliveries must have theirs: the producers were flushed.
    pub(super) async fn fates(self, start: Instant) -> Fates {
        match self {
            Self::Awaited { hand, fates } => {
                drop(hand);
                fates.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
            }
            Self::Kept(kept) => {
                let mut fates = Fates::default();
                for (sent, delivery) in kept {
                    let outcome = delivery.and_then(|delivery| {
                        let outcome = delivery.outcome().unwrap_or(Err(ClientError::Closed))?;
                        let timing = delivery.timing().ok_or(ClientError::Closed)?;
                        Ok((outcome, timing, timing.acknowledged.into_std()))
                    });
                    let number = fates.add_sent(sent);
                    fates.settle(number, outcome, start);
                }
                fates
            }
        }
    }
}

/// Outcomes of the records of a load, by number.
#[derive(Debug, Default)]
pub(super) struct Fates {
    pub(super) all: Vec<Fate>,
    pub(super) first_error: Option<String>,
}

/// An acknowledged record, with the time at which the application learned of it.
type Outcome = Result<(RecordMetadata, Timing, Instant), ClientError>;

impl Fates {
    fn add_sent(&mut self, sent: u64) -> usize {
        self.all.push(Fate { sent, acknowledged: None });
        self.all.len() - 1
    }

    fn settle(&mut self, number: usize, outcome: Outcome, start: Instant) {
        let since = |at: Instant| nanos(at.saturating_duration_since(start));
        match outcome {
            Ok((metadata, timing, at)) => {
                self.all[number].acknowledged = Some(Acknowledged {
                    partition: metadata.partition,
                    offset: metadata.offset,
                    written: Some(since(timing.first_written.into_std())),
                    at: since(at),
                });
            }
            Err(error) => {
                self.first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

/// Awaits deliveries as they come, until the sender has ended and all have resolved.
async fn await_each(mut handed: UnboundedReceiver<Handed>, start: Instant) -> Fates {
    let mut fates = Fates::default();
    let mut waiting = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !waiting.is_empty() {
        tokio::select! {
            next = handed.recv(), if is_open => match next {
                Some((sent, Ok(delivery))) => waiting.push(outcome(fates.add_sent(sent), delivery)),
                Some((sent, Err(error))) => {
                    let number = fates.add_sent(sent);
                    fates.settle(number, Err(error), start);
                }
                None => is_open = false,
            },
            Some((number, outcome)) = waiting.next() => fates.settle(number, outcome, start),
        }
    }
    fates
}

async fn outcome(number: usize, mut delivery: Delivery) -> (usize, Outcome) {
    let resolved = (&mut delivery).await;
    let at = Instant::now();
    let timing = || delivery.timing().ok_or(ClientError::Closed);
    (number, resolved.and_then(|metadata| Ok((metadata, timing()?, at))))
}
