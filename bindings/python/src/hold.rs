//! A consumer whose received offsets a transaction includes.
//!
//! While the transaction ends, the consumer returns no records: the outcome decides which record is the next. The hold
//! is a job of the consumer's task. Later calls wait in the task's queue, also after the program has stopped waiting.

use std::{collections::BTreeMap, sync::Arc};

use curtail::{Error, ErrorCode, Result, TopicPartition, transaction::ConsumerGroupMetadata};
use parking_lot::Mutex;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use crate::{
    consumer::{Command, Job},
    progress::{Offsets, Progress},
};

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
    ) -> Self {
        let (reply, input) = oneshot::channel();
        let (outcome, ended) = oneshot::channel();
        // Under one lock: the task must not poll between the two.
        let mut locked = progress.lock();
        locked.holds += 1;
        let held = Held(progress.clone());
        let job: Job = Box::new(move |consumer| {
            Box::pin(async move {
                let _ = reply.send(held.input());
                held.settle(consumer, ended.await.unwrap_or(Outcome::Unknown)).await;
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

    async fn settle(&self, consumer: &mut curtail::Consumer, outcome: Outcome) {
        let first = self.0.lock().uncommitted();
        match outcome {
            Outcome::Committed => return self.0.lock().commit(),
            Outcome::Aborted => seek(consumer, &first),
            Outcome::Unknown => {
                let partitions: Vec<TopicPartition> = first.keys().cloned().collect();
                let committed = consumer.committed(&partitions).await.unwrap_or_default();
                seek(consumer, &first);
                for (at, offset) in committed {
                    if let Some(offset) = offset {
                        let _ = consumer.seek_to(&at, &offset);
                    }
                }
            }
        }
        self.0.lock().abort();
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
