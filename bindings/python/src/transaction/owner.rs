//! The task that owns a transactional producer.
//!
//! # Invariants
//! - The end of a transaction continues when the program stops waiting for it, and the consumer waits for its outcome.
//! - A commit that timed out is repeated, because it cannot be withdrawn. Only the producer's close ends that.

use std::{sync::Arc, time::Duration};

use curtail::{
    Error, Result, TopicPartition,
    producer::{CompletionSink, Completions},
    transaction::{ConsumerGroupMetadata, OffsetAndMetadata, Transaction},
};
use pyo3::prelude::*;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

use super::{feed::Feed, is_open_ended};
use crate::{
    closing::Closing,
    hold::{Hold, Outcome},
    port::{Home, Pending, Port, Waiting, none, signalled},
    stage::Stage,
    tree,
};

type Offsets = Vec<(TopicPartition, OffsetAndMetadata)>;

/// Converts a sink and its receiver into the result of a call.
type Make =
    Box<dyn FnOnce(Python<'_>, (CompletionSink, Completions)) -> PyResult<Py<PyAny>> + Send>;

pub(super) enum Command {
    Init(Waiting),
    WarmUp(Waiting, Vec<String>),
    PartitionsFor(Waiting, String),
    ClientInstanceId(Waiting, Duration),
    Begin(Waiting, Arc<Stage>),
    /// With the signal that the earlier records are appended.
    Flush(Waiting, oneshot::Receiver<()>),
    Offsets(Waiting, Offsets, ConsumerGroupMetadata),
    /// With the conversion of a sink and its receiver.
    Bulk(Waiting, Make),
    End(End),
    Close,
    Abandon,
}

/// The requested end of a transaction.
pub(super) struct End {
    pub(super) pending: Pending,
    pub(super) hold: Option<Hold>,
    pub(super) commit: bool,
}

pub(super) struct Owner {
    producer: curtail::TransactionalProducer,
    commands: UnboundedReceiver<Command>,
    closing: Arc<Closing>,
    home: Home,
}

impl Owner {
    pub(super) fn new(
        producer: curtail::TransactionalProducer,
        commands: UnboundedReceiver<Command>,
        closing: Arc<Closing>,
        home: Home,
    ) -> Self {
        Self { producer, commands, closing, home }
    }

    /// Serves commands until the client is closed.
    pub(super) async fn run(mut self) {
        while let Some(command) = self.commands.recv().await {
            let mut next = Some(command);
            while let Some(command) = next.take() {
                match command {
                    Command::Begin(waiting, stage) => next = self.transaction(waiting, stage).await,
                    Command::Close => return self.closing.end(self.producer.close().await),
                    Command::Abandon => return self.closing.end(Ok(())),
                    command => self.idle(command).await,
                }
            }
        }
    }

    /// Serves a command outside a transaction.
    async fn idle(&mut self, command: Command) {
        let producer = &mut self.producer;
        match command {
            Command::Init(waiting) => waiting.run(producer.init_transactions(), none).await,
            Command::WarmUp(waiting, topics) => {
                let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
                waiting.run(producer.warm_up(&topics), none).await;
            }
            Command::PartitionsFor(waiting, topic) => {
                let convert =
                    |py: Python<'_>, count: usize| Ok(count.into_pyobject(py)?.into_any().unbind());
                waiting.run(producer.partitions_for(&topic), convert).await;
            }
            Command::ClientInstanceId(waiting, limit) => {
                waiting.run(producer.client_instance_id(limit), tree::uuid).await;
            }
            // Of a transaction that did not begin: the program has stopped waiting.
            _ => {}
        }
    }

    /// Serves one transaction, until it ends. Returns a command for which there is none.
    async fn transaction(&mut self, waiting: Waiting, stage: Arc<Stage>) -> Option<Command> {
        let mut feed = Feed::new(stage);
        let transaction = begin(&mut self.producer, waiting, self.home).await?;
        let End { pending, mut hold, commit } =
            match serve(&mut self.commands, &mut feed, &transaction).await? {
                Command::End(end) => end,
                other => return Some(other),
            };
        let prepared = match commit {
            true => prepare(&mut feed, &transaction, hold.as_mut(), &self.closing).await,
            false => Err(Error::TransactionAborted),
        };
        drop(feed);
        let committed = match prepared {
            Ok(()) => {
                let committed = transaction.commit().await;
                self.repeat(committed).await
            }
            Err(error) => Err(error),
        };
        self.settle(committed, hold, pending, commit).await;
        None
    }

    /// Repeats a commit until its outcome is known.
    async fn repeat(&mut self, mut committed: Result<()>) -> Result<()> {
        while is_open_ended(&committed) && !self.closing.is_requested() {
            tokio::task::yield_now().await;
            committed = self.producer.commit_transaction().await;
        }
        committed
    }

    /// Aborts a transaction that was not committed, and reports the outcome to the consumer and the program.
    async fn settle(
        &mut self,
        committed: Result<()>,
        hold: Option<Hold>,
        pending: Pending,
        commit: bool,
    ) {
        let outcome = match &committed {
            Ok(()) => Outcome::Committed,
            Err(error) if error.is_fatal() || is_open_ended(&committed) => Outcome::Unknown,
            Err(_) => Outcome::Aborted,
        };
        // The consumer need not wait for an abort.
        if let Some(hold) = hold {
            hold.release(outcome);
        }
        let result = match (outcome, committed) {
            (Outcome::Aborted, Err(error)) => match self.producer.abort_transaction().await {
                Err(failed) if failed.is_fatal() || !commit => Err(failed),
                // The next transaction ends this one, if the abort timed out.
                _ if commit => Err(error),
                _ => Ok(()),
            },
            (_, committed) => committed,
        };
        pending.settle(result, none);
    }
}

/// Begins a transaction, until the program stops waiting.
async fn begin(
    producer: &mut curtail::TransactionalProducer,
    waiting: Waiting,
    home: Home,
) -> Option<Transaction<'_>> {
    let Waiting { pending, cancelled } = waiting;
    let begun = async move {
        producer.init_transactions().await?;
        producer.begin_transaction().await
    };
    let begun = tokio::select! {
        biased;
        () = signalled(cancelled) => return None,
        begun = begun => begun,
    };
    match begun {
        Ok(transaction) => {
            let pair = transaction.completions();
            pending.settle(Ok(()), move |py, ()| {
                Port::current(py, home)?.get().outlet(py, || pair)?;
                Ok(py.None())
            });
            Some(transaction)
        }
        Err(error) => {
            pending.settle(Err::<(), _>(error), none);
            None
        }
    }
}

/// Serves the commands of an open transaction. Returns the one that ends it; `None` without the client.
async fn serve(
    commands: &mut UnboundedReceiver<Command>,
    feed: &mut Feed,
    transaction: &Transaction<'_>,
) -> Option<Command> {
    loop {
        let command = tokio::select! {
            biased;
            command = commands.recv() => command?,
            never = feed.run(transaction) => match never {},
        };
        match command {
            Command::Init(waiting) => waiting.pending.settle(Ok(()), none),
            Command::WarmUp(waiting, _) | Command::PartitionsFor(waiting, _) => {
                let wrong = Error::IllegalState("call it before the transaction, or after it");
                waiting.pending.settle(Err::<(), _>(wrong), none);
            }
            Command::Flush(waiting, appended) => {
                let flushed = async {
                    // Fails only with the stage, and then the flush fails too.
                    let _ = beside(feed, transaction, appended).await;
                    beside(feed, transaction, transaction.flush()).await
                };
                waiting.run(flushed, none).await;
            }
            Command::Offsets(waiting, offsets, group) => {
                let added = transaction.send_offsets_to_transaction(offsets, &group);
                waiting.run(beside(feed, transaction, added), none).await;
            }
            Command::Bulk(waiting, make) => {
                waiting.pending.settle(Ok(transaction.completions()), make);
            }
            end => return Some(end),
        }
    }
}

/// Appends records while other work of the transaction waits.
async fn beside<T>(
    feed: &mut Feed,
    transaction: &Transaction<'_>,
    work: impl Future<Output = T>,
) -> T {
    tokio::select! {
        biased;
        done = work => done,
        never = feed.run(transaction) => match never {},
    }
}

/// Appends the last records, and adds the offsets of the consumer.
async fn prepare(
    feed: &mut Feed,
    transaction: &Transaction<'_>,
    hold: Option<&mut Hold>,
    closing: &Closing,
) -> Result<()> {
    feed.drain(transaction).await?;
    let Some(hold) = hold else { return Ok(()) };
    let (offsets, group) = hold.input().await?;
    if offsets.is_empty() {
        return match feed.has_records() {
            true => Err(Error::IllegalState(
                "results of no records: an aborted transaction rewinds the consumer, so poll again",
            )),
            false => Ok(()),
        };
    }
    loop {
        let added = transaction.send_offsets_to_transaction(offsets.clone(), &group).await;
        // Adding them twice is harmless.
        if !is_open_ended(&added) || closing.is_requested() {
            return added;
        }
        tokio::task::yield_now().await;
    }
}
