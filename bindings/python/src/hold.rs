//! A consumer whose received offsets a transaction includes.
//!
//! While the transaction ends, the consumer returns no records: the outcome decides which record is the next. The hold
//! is a job of the consumer's task. Later calls wait in the task's queue, also after the program has stopped waiting. Only
//! the consumer's close ends the hold before that.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use curtail::{
    Error, ErrorCode, Result, TopicPartition,
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata},
};
use parking_lot::Mutex;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use crate::{
    closing::Closing,
    consumer::{Command, Job},
    progress::{Offsets, Progress},
};

/// Pause between lookups of committed offsets.
const BACKOFF: Duration = Duration::from_millis(100);

/// How a transaction has ended.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Committed,
    Aborted,
    /// Only the group's committed offsets show it.
    Unknown,
}

/// The offsets to commit, and the member that commits them.
pub(crate) type Input = (Offsets, ConsumerGroupMetadata);

/// A consumer that returns no records before it receives the outcome.
pub(crate) struct Hold {
    input: oneshot::Receiver<Result<Input>>,
    outcome: oneshot::Sender<Outcome>,
}

impl Hold {
    pub(crate) fn new(
        commands: &UnboundedSender<Command>,
        progress: &Arc<Mutex<Progress>>,
        closing: &Arc<Closing>,
    ) -> Self {
        let (reply, input) = oneshot::channel();
        let (outcome, ended) = oneshot::channel();
        // Under one lock: the task must not poll between the two.
        let mut locked = progress.lock();
        locked.holds += 1;
        let held = Held(progress.clone());
        let closing = closing.clone();
        let job: Job = Box::new(move |consumer| {
            Box::pin(async move {
                let _ = reply.send(held.input());
                tokio::select! {
                    biased;
                    // A closing consumer returns no records, so it needs no outcome. The outcome may need a broker.
                    () = closing.requested() => {}
                    () = held.settle(consumer, ended) => {}
                }
            })
        });
        let refused = commands.send(Command::Job(job));
        drop(locked);
        // The job of a closed consumer; its drop takes the lock.
        drop(refused);
        Self { input, outcome }
    }

    /// Waits for the offsets of the received records. Cancel safe.
    pub(crate) async fn input(&mut self) -> Result<Input> {
        (&mut self.input).await.unwrap_or(Err(Error::Closed))
    }

    /// Lets the consumer continue. Later calls of it see the outcome.
    pub(crate) fn release(self, outcome: Outcome) {
        let _ = self.outcome.send(outcome);
    }
}

/// The consumer's side of a hold.
struct Held(Arc<Mutex<Progress>>);

impl Held {
    /// The member is that of the last poll: a later one may have lost the partitions since.
    fn input(&self) -> Result<Input> {
        let progress = self.0.lock();
        if let Some(error) = &progress.failed {
            return Err(error.clone());
        }
        let Some(group) = progress.group.clone() else {
            return Ok((Offsets::new(), ConsumerGroupMetadata::new("")));
        };
        let refused = |reason: &str| {
            let group = group.group_id.as_str().into();
            let code = ErrorCode::ILLEGAL_GENERATION;
            Err(Error::CommitFailed { group, code, reason: reason.into() })
        };
        if progress.is_torn() {
            return refused("partitions of received records were revoked");
        }
        // In a transaction, brokers accept offsets without a member even while other members own the partitions.
        if progress.is_subscribed && group.member_id.is_empty() {
            return refused("the consumer is no longer a member of the group");
        }
        Ok((progress.offsets(), group))
    }

    /// Waits for the outcome, and moves the consumer to the first record that no transaction has committed.
    async fn settle(&self, consumer: &mut curtail::Consumer, ended: oneshot::Receiver<Outcome>) {
        let outcome = ended.await.unwrap_or(Outcome::Unknown);
        let first = self.0.lock().uncommitted();
        match outcome {
            Outcome::Committed => return self.0.lock().commit(),
            Outcome::Aborted => seek(consumer, &first),
            Outcome::Unknown => {
                let partitions: Vec<TopicPartition> = first.keys().cloned().collect();
                match committed(consumer, &partitions).await {
                    Ok(committed) => {
                        seek(consumer, &first);
                        for (at, offset) in committed {
                            if let Some(offset) = offset {
                                let _ = consumer.seek_to(&at, &offset);
                            }
                        }
                    }
                    // No position is right, so the consumer returns no more records.
                    Err(error) => self.0.lock().failed = Some(error),
                }
            }
        }
        self.0.lock().abort();
    }
}

/// Returns the committed offsets. A lookup that failed says nothing about them, so it is repeated.
async fn committed(
    consumer: &curtail::Consumer,
    partitions: &[TopicPartition],
) -> Result<BTreeMap<TopicPartition, Option<OffsetAndMetadata>>> {
    loop {
        match consumer.committed(partitions).await {
            Err(error) if error.is_retriable() => tokio::time::sleep(BACKOFF).await,
            committed => return committed,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().holds -= 1;
    }
}

fn seek(consumer: &mut curtail::Consumer, offsets: &BTreeMap<TopicPartition, i64>) {
    for (at, offset) in offsets {
        // A revoked partition continues at its committed offset, with its next owner.
        let _ = consumer.seek(at, *offset);
    }
}
