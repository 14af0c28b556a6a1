//! Transactional producers: commits, aborts, and zombies that go on after somebody else has taken their place.

use std::time::Duration;

use curtail::{Delivery, Env, Error, ProducerConfig, Record, Result, TransactionalProducer};
use tokio::{task::JoinSet, time::sleep};

use super::workload::{self, Work};
use crate::{
    history::{End, Outcome, RecordId, Transaction},
    payload,
    run::TOPIC,
};

/// Most records of a transaction.
const MOST_RECORDS: u64 = 8;
/// Different keys of a worker.
const KEYS: u64 = 7;
/// Times a call is made again after it took too long, before a new producer takes over.
const PATIENCE: u32 = 8;

/// How a transaction is meant to end.
#[derive(Clone, Copy, Debug)]
enum Intent {
    Commit,
    Abort,
    /// Another producer takes the transactional id over, and this one commits all the same.
    Zombie,
}

/// Runs transactions until the plan's records are sent; then makes sure that nothing is left open.
pub(super) async fn run(work: Work, env: Env) -> Result<(), Error> {
    let mut worker = Worker { outcomes: JoinSet::new(), number: 0, work, env };
    let mut producer = worker.take_over().await?;
    while worker.number < worker.work.plan.records {
        let intent = match worker.work.entropy.below(10) {
            0..=1 => Intent::Abort,
            2 => Intent::Zombie,
            _ => Intent::Commit,
        };
        producer = worker.transaction(producer, intent).await?;
    }
    drop(producer);
    // What a failed producer left open would hide everything behind it until its timeout.
    worker.take_over().await?.close().await?;
    while let Some(ended) = worker.outcomes.join_next().await {
        ended.map_err(|_| Error::Closed)?;
    }
    Ok(())
}

struct Worker {
    work: Work,
    env: Env,
    number: u32,
    outcomes: JoinSet<()>,
}

impl Worker {
    /// A new producer with the worker's transactional id; it fences the one before.
    async fn take_over(&self) -> Result<TransactionalProducer, Error> {
        loop {
            let mut producer = TransactionalProducer::with_env(self.config(), &self.env)?;
            for _ in 0..PATIENCE {
                match producer.init_transactions().await {
                    Ok(()) => return Ok(producer),
                    Err(error) if error.is_fatal() => break,
                    // The limit of the whole run ends this.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
        }
    }

    fn config(&self) -> ProducerConfig {
        self.work
            .config()
            .transactional_id(format!("transactional-{}", self.work.index))
            .transaction_timeout(Duration::from_secs(10))
            .max_block(Duration::from_secs(3))
    }

    /// One transaction. Gives the producer for the next one: the same, or its successor.
    async fn transaction(
        &mut self,
        mut producer: TransactionalProducer,
        intent: Intent,
    ) -> Result<TransactionalProducer, Error> {
        let mut sent = Vec::new();
        match producer.begin_transaction().await {
            Ok(transaction) => {
                for _ in 0..=self.work.entropy.below(MOST_RECORDS) {
                    self.pause().await;
                    let id = self.next_id();
                    let slot = self.work.begin(id);
                    let key = format!("key-{}", self.work.entropy.below(KEYS));
                    let value = payload::value(id);
                    let record = Record::to(TOPIC).key(&key).value(&value);
                    let delivery = transaction.send(record).await;
                    if self.note(slot, delivery) {
                        sent.push(id);
                    }
                }
            }
            Err(_) => return self.take_over().await,
        }
        let (end, next) = match intent {
            Intent::Commit => {
                let end = commit(&mut producer).await;
                let fine = end == End::Committed || abort(&mut producer).await;
                (end, if fine { producer } else { self.take_over().await? })
            }
            Intent::Abort => {
                let fine = abort(&mut producer).await;
                // It was never committed, whatever became of the abort.
                (End::Aborted, if fine { producer } else { self.take_over().await? })
            }
            Intent::Zombie => {
                let successor = self.take_over().await?;
                let end = match commit(&mut producer).await {
                    End::Committed => End::Committed,
                    // The commit began when somebody else had the transactional id.
                    End::Aborted | End::Unknown => End::Aborted,
                };
                (end, successor)
            }
        };
        let shared = &self.work.shared;
        let told = format_args!("transaction of {} ends as {end:?} ({intent:?})", self.work.index);
        shared.fabric.trace().event("clients", told);
        shared.history.lock().transactions.push(Transaction { records: sent, end });
        Ok(next)
    }

    async fn pause(&self) {
        let spread = 2 * self.work.plan.pause.as_micros() as u64;
        sleep(Duration::from_micros(self.work.entropy.below(spread + 1))).await;
    }

    fn next_id(&mut self) -> RecordId {
        let id = RecordId { producer: self.work.index, number: self.number };
        self.number += 1;
        id
    }

    /// Notes what a send came to; says whether the record is part of the transaction.
    fn note(&mut self, slot: usize, delivery: Result<Delivery>) -> bool {
        let shared = self.work.shared.clone();
        match delivery {
            Ok(delivery) => {
                self.outcomes.spawn(async move { workload::settle(&shared, slot, delivery.await) });
                true
            }
            Err(error) => {
                workload::note(&shared, slot, Outcome::NotWritten { error: error.to_string() });
                false
            }
        }
    }
}

/// Commits, and goes on while nobody knows.
async fn commit(producer: &mut TransactionalProducer) -> End {
    for _ in 0..PATIENCE {
        match producer.commit_transaction().await {
            Ok(()) => return End::Committed,
            Err(Error::Timeout { .. }) => {}
            Err(error) if error.is_abortable() => return End::Aborted,
            Err(_) => return End::Unknown,
        }
    }
    End::Unknown
}

/// Aborts; says whether the producer can go on.
async fn abort(producer: &mut TransactionalProducer) -> bool {
    for _ in 0..PATIENCE {
        match producer.abort_transaction().await {
            Ok(()) => return true,
            Err(Error::Timeout { .. }) => {}
            Err(_) => return false,
        }
    }
    false
}
