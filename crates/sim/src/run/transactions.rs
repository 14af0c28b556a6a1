//! Transactional producers: commits, aborts, and zombies that continue after another producer has taken their place.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use curtail::{Delivery, Env, Error, ProducerConfig, Record, Result, TransactionalProducer};
use tokio::{task::JoinSet, time::sleep};

use super::workload::{self, Work};
use crate::{
    history::{End, Fencing, Outcome, RecordId, Transaction},
    net::{self, Client, Presence},
    payload,
    plan::Host,
    run::Shared,
    trace::now,
};

/// `max.block.ms`.
const MAX_BLOCK: Duration = Duration::from_secs(3);
/// Most records of a transaction.
const MOST_RECORDS: u64 = 8;
/// Times a call is made again after it took too long, before a new producer takes over.
const PATIENCE: u32 = 8;

/// `transaction.timeout.ms`: the coordinator fences the producer of a transaction that takes longer.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);

/// A producer, which counts as present until it is dropped or closed.
struct Held {
    presence: Presence,
    producer: TransactionalProducer,
    tenure: Tenure,
}

/// Whether anything but a defect may fence a producer.
#[derive(Clone)]
struct Tenure {
    shared: Shared,
    index: u32,
    /// Another producer may have taken the transactional id.
    rival: Arc<AtomicBool>,
    /// When the transaction began.
    opened: Duration,
}

impl Tenure {
    fn rival_comes(&self) {
        self.rival.store(true, Ordering::Relaxed);
    }

    fn note(&self, error: &Error) {
        if !error.is_fenced() {
            return;
        }
        let at = now();
        let expired = at.saturating_sub(self.opened) >= TRANSACTION_TIMEOUT;
        let justified = expired || self.rival.load(Ordering::Relaxed);
        let error = error.report().to_string();
        self.shared.fabric.trace().event("clients", format_args!("fenced {justified} {error}"));
        let fencing = Fencing { at, producer: self.index, justified, error };
        self.shared.history.lock().fencings.push(fencing);
    }
}

/// How a transaction is meant to end.
#[derive(Clone, Copy, Debug)]
enum Intent {
    Commit,
    Abort,
    /// Another producer takes the transactional id over, and this one still commits.
    Zombie,
}

/// Runs transactions until the plan's records are sent; then makes sure that nothing is left open.
pub(super) async fn run(work: Work, env: Env) -> Result<(), Error> {
    let mut worker = Worker { outcomes: JoinSet::new(), number: 0, rests: 0, work, env };
    let mut producer = worker.take_over().await?;
    while worker.number < worker.work.plan.records {
        worker.rest().await;
        let intent = match worker.work.entropy.below(10) {
            0..=1 => Intent::Abort,
            2 => Intent::Zombie,
            _ => Intent::Commit,
        };
        producer = worker.transaction(producer, intent).await?;
    }
    // A transaction left open by a failed producer would hide all later records until its timeout.
    let Held { presence, producer, .. } = worker.succeed(producer).await?;
    drop(presence);
    producer.close().await?;
    while let Some(ended) = worker.outcomes.join_next().await {
        ended.map_err(|_| Error::Closed)?;
    }
    Ok(())
}

struct Worker {
    work: Work,
    env: Env,
    number: u32,
    /// Pauses between bursts so far.
    rests: u32,
    outcomes: JoinSet<()>,
}

impl Worker {
    /// Replaces a producer that has failed for good.
    async fn succeed(&self, former: Held) -> Result<Held, Error> {
        let Held { presence, producer, tenure } = former;
        drop((presence, producer));
        tenure.rival_comes();
        self.take_over().await
    }

    /// Starts a new producer with the worker's transactional id; it fences the previous one.
    async fn take_over(&self) -> Result<Held, Error> {
        let shared = &self.work.shared;
        let mut abandoned = false;
        loop {
            let name = format!("transactional-{}", self.work.index);
            let client = Client::new(name, self.work.plan.request_timeout);
            let env = net::observed(&shared.fabric, &Host::Clients.name(), &self.env, &client);
            let mut producer = TransactionalProducer::with_env(self.config(), &env)?;
            // A late InitProducerId of an abandoned producer fences this one.
            let rival = Arc::new(AtomicBool::new(abandoned));
            let (index, opened) = (self.work.index, now());
            let tenure = Tenure { shared: shared.clone(), index, rival, opened };
            let presence = client.present();
            for _ in 0..PATIENCE {
                match producer.init_transactions().await {
                    Ok(()) => return Ok(Held { presence, producer, tenure }),
                    Err(error) if error.is_fatal() => {
                        tenure.note(&error);
                        break;
                    }
                    // The limit of the whole run ends this.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
            drop(presence);
            abandoned = true;
        }
    }

    fn config(&self) -> ProducerConfig {
        self.work
            .config()
            .transactional_id(format!("transactional-{}", self.work.index))
            .transaction_timeout(TRANSACTION_TIMEOUT)
            .max_block(MAX_BLOCK)
    }

    /// Runs one transaction. Returns the producer for the next one: the same, or its successor.
    async fn transaction(&mut self, mut held: Held, intent: Intent) -> Result<Held, Error> {
        let mut sent = Vec::new();
        held.tenure.opened = now();
        if self.work.shared.plan.dropped > 0 && self.work.entropy.below(10) == 0 {
            // Whether it has begun or not, the next one begins another transaction.
            drop(self.work.or_drop(held.producer.begin_transaction()).await);
        }
        match held.producer.begin_transaction().await {
            Ok(transaction) => {
                for _ in 0..=self.work.entropy.below(MOST_RECORDS) {
                    self.pause().await;
                    let id = self.next_id();
                    let slot = self.work.begin(id);
                    let key = self.work.key(id);
                    let is_tombstone = self.work.is_tombstone(id);
                    let value = payload::value(id);
                    let headers = payload::headers(&value);
                    let topic = self.work.shared.topic(self.work.plan.tuning.topic);
                    let record = Record::to(topic).key(&key);
                    let record = payload::filled(record, &value, &headers, is_tombstone);
                    let dropped = Error::IllegalState("the send was dropped");
                    let delivery = self.work.or_drop(transaction.send(record)).await;
                    let delivery = delivery.unwrap_or(Err(dropped));
                    if self.note(slot, delivery, &held.tenure) {
                        sent.push(id);
                    }
                }
            }
            Err(error) => {
                held.tenure.note(&error);
                return self.succeed(held).await;
            }
        }
        let (end, next) = match intent {
            Intent::Commit => {
                let end = commit(&self.work, &mut held).await;
                let fine = end == End::Committed || abort(&self.work, &mut held).await;
                (end, if fine { held } else { self.succeed(held).await? })
            }
            Intent::Abort => {
                let fine = abort(&self.work, &mut held).await;
                // It was never committed, with any outcome of the abort.
                (End::Aborted, if fine { held } else { self.succeed(held).await? })
            }
            Intent::Zombie => {
                held.tenure.rival_comes();
                let successor = self.take_over().await?;
                let end = match commit(&self.work, &mut held).await {
                    End::Committed => End::Committed,
                    // The commit began when another producer had the transactional id.
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

    /// Rests before a transaction whose first record begins a burst, or follows its begin.
    async fn rest(&mut self) {
        let burst = self.work.shared.plan.ids.as_ref().map_or(u32::MAX, |ids| ids.burst);
        if self.number / burst > self.rests {
            self.rests += 1;
            self.work.rest(burst).await;
        }
    }

    fn next_id(&mut self) -> RecordId {
        let id = RecordId { producer: self.work.index, number: self.number };
        self.number += 1;
        id
    }

    /// Records the result of a send. Returns whether the record is part of the transaction.
    fn note(&mut self, slot: usize, delivery: Result<Delivery>, tenure: &Tenure) -> bool {
        let shared = self.work.shared.clone();
        match delivery {
            Ok(delivery) => {
                self.work.accepted(slot);
                let tenure = tenure.clone();
                let topic = self.work.plan.tuning.topic;
                self.outcomes.spawn(async move {
                    let outcome = delivery.await;
                    if let Err(error) = &outcome {
                        tenure.note(error);
                    }
                    workload::settle(&shared, slot, topic, workload::placed(outcome));
                });
                true
            }
            Err(error) => {
                tenure.note(&error);
                workload::note(
                    &shared,
                    slot,
                    Outcome::NotWritten { error: error.report().to_string() },
                );
                false
            }
        }
    }
}

/// Commits, and repeats the commit while its outcome is unknown.
async fn commit(work: &Work, held: &mut Held) -> End {
    let mut repeated = false;
    for _ in 0..PATIENCE {
        let Some(ended) = work.or_drop(held.producer.commit_transaction()).await else {
            repeated = true;
            // The dropped commit may complete before it is retried.
            sleep(Duration::from_millis(work.entropy.below(100))).await;
            continue;
        };
        match ended {
            Ok(()) => return End::Committed,
            Err(Error::Timeout { .. }) => repeated = true,
            // The transaction was open and is not: it was committed or aborted, and the error does not say which.
            Err(error @ Error::IllegalState(_)) if repeated => {
                let undecided = (work.index, error.report().to_string());
                work.shared.history.lock().undecided.push(undecided);
                return End::Unknown;
            }
            Err(error) if error.is_abortable() => return End::Aborted,
            Err(error) => {
                held.tenure.note(&error);
                return End::Unknown;
            }
        }
    }
    End::Unknown
}

/// Aborts. Returns whether the producer can continue.
async fn abort(work: &Work, held: &mut Held) -> bool {
    for _ in 0..PATIENCE {
        let Some(ended) = work.or_drop(held.producer.abort_transaction()).await else { continue };
        match ended {
            Ok(()) => return true,
            Err(Error::Timeout { .. }) => {}
            Err(error) => {
                held.tenure.note(&error);
                return false;
            }
        }
    }
    false
}
