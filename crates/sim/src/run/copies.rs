//! Applications that copy the first topic exactly once: they read as members of a group, and each transaction has the
//! copies and the input offsets.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use curtail::{
    Consumer, ConsumerConfig, ConsumerRecord, Error, ProducerConfig, Record, TopicPartition,
    TransactionalProducer,
    config::{IsolationLevel, OffsetReset},
    transaction::OffsetAndMetadata,
};
use curtail_net::{Entropy, Env};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{Failure, Shared, Stage, TOPIC, members, mortal, reader};
use crate::{
    history::Fencing,
    net::{self, Client, HostNet},
    plan::{CopyEnd, CopyLife, CopyPlan, Host},
    readback,
    trace::now,
};

/// The topic that holds the copies. A copy has the partition of its original.
pub(super) const OUTPUT: &str = "copied";

const GROUP: &str = "copiers";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// `max.block.ms`.
const MAX_BLOCK: Duration = Duration::from_secs(3);
/// `transaction.timeout.ms`: the coordinator fences the producer of a transaction that takes longer.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(8);
/// Times that a call is repeated after a timeout, before the application starts again.
const PATIENCE: u32 = 8;
/// Of this many polls one is dropped before it may have ended.
const DROPPED: u64 = 8;

/// An application's run.
type Run = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Runs the applications with one `transactional.id`, until everything is copied.
pub(super) async fn run(shared: Shared, slot: u32) -> Result<(), Failure> {
    shared.reached(Stage::Running).await;
    let plan = shared.plan.copies.clone().ok_or("there are no copies")?;
    let lives = &plan.slots[slot as usize - 1];
    let mut zombies = JoinSet::new();
    let mut tenures = Tenures::default();
    for (index, life) in lives.iter().enumerate() {
        let last = index + 1 == lives.len();
        if !last && members::is_done(&shared) {
            continue;
        }
        sleep(life.rest).await;
        let tenure = tenures.begin();
        let (close, closing) = watch::channel(false);
        let app = Application {
            shared: shared.clone(),
            plan: plan.clone(),
            life: life.clone(),
            slot,
            entropy: shared.entropy.fork(),
            tenure: tenure.clone(),
        };
        let mut app: Run = Box::pin(app.run(closing));
        let enough = async {
            match last {
                true => members::wait_until_done(&shared).await,
                false => sleep(life.lasts).await,
            }
        };
        tokio::select! {
            biased;
            ended = &mut app => ended?,
            () = enough => match life.end {
                _ if last => finish(app, &close).await?,
                CopyEnd::Close => finish(app, &close).await?,
                CopyEnd::Crash { polls } => {
                    drop(mortal::for_polls(app, polls).await);
                    note(&shared, slot, "crashed");
                }
                CopyEnd::Zombie => {
                    tenure.superseded.store(true, Ordering::Relaxed);
                    note(&shared, slot, "becomes a zombie");
                    let shared = shared.clone();
                    zombies.spawn(async move {
                        let done = async {
                            members::wait_until_done(&shared).await;
                            close.send_replace(true);
                        };
                        tokio::join!(app, done).0
                    });
                }
            },
        }
    }
    while let Some(ended) = zombies.join_next().await {
        ended??;
    }
    shared.finished.send_modify(|finished| *finished += 1);
    Ok(())
}

async fn finish(app: Run, close: &watch::Sender<bool>) -> Result<(), Error> {
    close.send_replace(true);
    app.await
}

fn note(shared: &Shared, slot: u32, what: impl std::fmt::Display) {
    shared.fabric.trace().event(format_args!("copier-{slot}"), format_args!("{what}"));
}

/// The applications with one `transactional.id`, in order.
#[derive(Debug, Default)]
struct Tenures(Vec<Tenure>);

impl Tenures {
    /// Begins the next application's tenure.
    ///
    /// Every earlier application with an outstanding InitProducerId is a rival, not only the one directly before it:
    /// a zombie may wait for its coordinator while several others come and go.
    fn begin(&mut self) -> Tenure {
        let contested = self.0.iter().any(Tenure::is_outstanding);
        let tenure = Tenure { contested, superseded: Arc::default(), outstanding: Arc::default() };
        self.0.push(tenure.clone());
        tenure
    }
}

/// Whether anything but a defect may fence an application.
///
/// The coordinator fences all producers except the one whose InitProducerId it handled last (KIP-98), which need not
/// be the producer that began last.
#[derive(Clone, Debug)]
struct Tenure {
    /// An InitProducerId of an earlier application was outstanding at the start.
    contested: bool,
    /// The next application has the `transactional.id`: this one is a zombie.
    superseded: Arc<AtomicBool>,
    /// Producers whose InitProducerId the coordinator may still have to handle. A producer that is dropped before its
    /// response counts for good.
    outstanding: Arc<AtomicU32>,
}

impl Tenure {
    fn requests(&self) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
    }

    fn responded(&self) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_outstanding(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) > 0
    }

    fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Relaxed)
    }

    fn has_rival(&self) -> bool {
        self.contested || self.is_superseded() || self.is_outstanding()
    }
}

/// The consequence of an error.
#[derive(Debug)]
enum Setback {
    /// The transaction is aborted: the input is read again from the committed offsets.
    Rewind,
    /// The producer can do nothing more.
    Restart,
}

struct Application {
    shared: Shared,
    plan: CopyPlan,
    life: CopyLife,
    slot: u32,
    entropy: Entropy,
    tenure: Tenure,
}

impl Application {
    /// Starts again after each fatal error, until it is closed or superseded.
    async fn run(self, mut closing: watch::Receiver<bool>) -> Result<(), Error> {
        while !*closing.borrow_and_update() {
            if let Err(Setback::Restart) = self.live(&mut closing).await?
                && self.tenure.is_superseded()
            {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn live(
        &self,
        closing: &mut watch::Receiver<bool>,
    ) -> Result<Result<(), Setback>, Error> {
        let host = Host::Member(self.slot).name();
        let client = Client::new(format!("copier-{}", self.slot), REQUEST_TIMEOUT);
        let env = net::env(&self.shared.fabric, &host, self.entropy.fork());
        let env = net::observed(&self.shared.fabric, &host, &env, &client);
        let presence = client.present();
        let mut producer = TransactionalProducer::with_env(self.producer_config(), &env)?;
        let mut consumer = Consumer::with_env(self.consumer_config(), &env)?;
        consumer.subscribe([TOPIC])?;
        note(&self.shared, self.slot, "starts");
        if let Err(setback) = self.initialize(&mut producer).await {
            return Ok(Err(setback));
        }
        while !*closing.borrow_and_update() {
            let records = self.poll(&mut consumer).await;
            if records.is_empty() {
                self.note_positions(&consumer).await;
                continue;
            }
            match self.copy(&mut producer, &consumer, records).await {
                Ok(()) => {}
                Err(Setback::Rewind) => self.rewind(&mut consumer, closing).await,
                Err(Setback::Restart) => return Ok(Err(Setback::Restart)),
            }
        }
        drop(presence);
        note(&self.shared, self.slot, "closes");
        consumer.close().await;
        // A zombie is fenced when it closes.
        Ok(producer.close().await.map_err(|error| self.judge(&error, Duration::ZERO)))
    }

    async fn initialize(&self, producer: &mut TransactionalProducer) -> Result<(), Setback> {
        self.tenure.requests();
        for _ in 0..PATIENCE {
            match producer.init_transactions().await {
                Ok(()) => {
                    self.tenure.responded();
                    return Ok(());
                }
                Err(error) if error.is_fatal() => {
                    self.tenure.responded();
                    return Err(self.judge(&error, Duration::ZERO));
                }
                Err(error) => {
                    note(&self.shared, self.slot, format_args!("init failed: {error}"));
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        Err(Setback::Restart)
    }

    async fn poll(&self, consumer: &mut Consumer) -> Vec<ConsumerRecord> {
        let patience = match self.entropy.below(DROPPED) {
            0 => Duration::from_millis(self.entropy.below(30)),
            _ => Duration::from_secs(1),
        };
        match timeout(patience, consumer.poll(Duration::from_millis(200))).await {
            Ok(Ok(records)) => records.into_iter().collect(),
            Ok(Err(error)) => {
                note(&self.shared, self.slot, format_args!("poll failed: {error}"));
                sleep(Duration::from_millis(50)).await;
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// One transaction.
    async fn copy(
        &self,
        producer: &mut TransactionalProducer,
        consumer: &Consumer,
        records: Vec<ConsumerRecord>,
    ) -> Result<(), Setback> {
        let opened = now();
        match self.attempt(producer, consumer, records).await {
            Ok(next) => {
                self.note_next(next);
                Ok(())
            }
            Err(error) => match self.judge(&error, opened) {
                Setback::Rewind => self.abort(producer, opened).await,
                setback @ Setback::Restart => Err(setback),
            },
        }
    }

    /// Copies records and commits. Returns the offsets that are committed.
    async fn attempt(
        &self,
        producer: &mut TransactionalProducer,
        consumer: &Consumer,
        records: Vec<ConsumerRecord>,
    ) -> Result<BTreeMap<i32, i64>, Error> {
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        let transaction = producer.begin_transaction().await?;
        for record in &records {
            let at = record.partition();
            let copy = Record::to(OUTPUT).partition(at).value(record.value().unwrap_or_default());
            // A failed delivery also fails the commit.
            drop(transaction.send(copy).await?);
            next.insert(at, record.offset() + 1);
        }
        self.work().await;
        let group = consumer.group_metadata().ok_or(Error::IllegalState("there is no group"))?;
        let offsets = || {
            next.iter().map(|(&partition, &offset)| {
                (TopicPartition::new(TOPIC, partition), OffsetAndMetadata::new(offset))
            })
        };
        let mut tries = 0;
        while let Err(error) = transaction.send_offsets_to_transaction(offsets(), &group).await {
            tries += 1;
            if !matches!(error, Error::Timeout { .. }) || tries == PATIENCE {
                return Err(error);
            }
        }
        self.work().await;
        note(&self.shared, self.slot, format_args!("commits {next:?} as {group:?}"));
        let mut committed = transaction.commit().await;
        for _ in 0..PATIENCE {
            let Err(Error::Timeout { .. }) = committed else { break };
            committed = producer.commit_transaction().await;
        }
        committed.map(|()| next)
    }

    async fn work(&self) {
        let longest = self.life.work.as_micros() as u64;
        sleep(Duration::from_micros(self.entropy.below(longest + 1))).await;
    }

    /// Aborts. After a commit of unknown outcome there is no way back: the next producer completes the transaction.
    async fn abort(
        &self,
        producer: &mut TransactionalProducer,
        opened: Duration,
    ) -> Result<(), Setback> {
        for _ in 0..PATIENCE {
            match producer.abort_transaction().await {
                Ok(()) => return Err(Setback::Rewind),
                Err(Error::Timeout { .. }) => {}
                Err(error) => {
                    self.judge(&error, opened);
                    return Err(Setback::Restart);
                }
            }
        }
        Err(Setback::Restart)
    }

    /// Positions go back to the committed offsets.
    async fn rewind(&self, consumer: &mut Consumer, closing: &mut watch::Receiver<bool>) {
        while !*closing.borrow_and_update() {
            let assigned: Vec<TopicPartition> = consumer.assignment().into_iter().collect();
            let committed = match consumer.committed(&assigned).await {
                Ok(committed) => committed,
                Err(error) => {
                    note(&self.shared, self.slot, format_args!("committed failed: {error}"));
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            note(&self.shared, self.slot, format_args!("rewinds to {committed:?}"));
            for at in &assigned {
                let offset = committed
                    .get(at)
                    .and_then(Option::as_ref)
                    .map_or(0, |committed| committed.offset);
                // Fails for a partition that is no longer assigned.
                let _ = consumer.seek(at, offset);
            }
            return;
        }
    }

    /// The positions of an idle application are committed.
    async fn note_positions(&self, consumer: &Consumer) {
        let mut next = BTreeMap::new();
        for at in consumer.assignment() {
            let position = timeout(Duration::from_millis(20), consumer.position(&at)).await;
            if let Ok(Ok(position)) = position {
                next.insert(at.partition, position);
            }
        }
        self.note_next(next);
    }

    fn note_next(&self, next: BTreeMap<i32, i64>) {
        self.shared.given.update(|given| {
            let mut changed = false;
            for (partition, offset) in next {
                let known = given.entry(partition).or_default();
                changed |= offset > *known;
                *known = offset.max(*known);
            }
            changed
        });
    }

    fn judge(&self, error: &Error, opened: Duration) -> Setback {
        note(&self.shared, self.slot, format_args!("failed: {error}"));
        if error.is_fenced() {
            let at = now();
            let expired = at.saturating_sub(opened) >= TRANSACTION_TIMEOUT;
            let justified = expired || self.tenure.has_rival();
            let (producer, error) = (self.slot, error.report().to_string());
            let fencing = Fencing { at, producer, justified, error };
            self.shared.history.lock().fencings.push(fencing);
        }
        match error.is_fatal() {
            true => Setback::Restart,
            false => Setback::Rewind,
        }
    }

    fn producer_config(&self) -> ProducerConfig {
        let ms = Duration::from_millis;
        ProducerConfig::new(self.shared.cluster.bootstrap())
            .prefer_proven_partitions(self.shared.plan.prefers_proven_partitions())
            .separate_unproven_partitions(self.shared.plan.separates_unproven_partitions())
            .client_id(format!("copier-{}", self.slot))
            .transactional_id(format!("copier-{}", self.slot))
            .transaction_timeout(TRANSACTION_TIMEOUT)
            .max_block(MAX_BLOCK)
            // A batch fits into the smallest segment of any plan.
            .batch_size(1 << 10)
            .batch_max_size(2 << 10)
            .request_timeout(REQUEST_TIMEOUT)
            .delivery_timeout(ms(5000))
            .retry_backoff(ms(20), ms(500))
            .reconnect_backoff(ms(20), ms(500))
            .connection_setup_timeout(ms(1000))
            .metadata_max_age(Duration::from_secs(10))
    }

    fn consumer_config(&self) -> ConsumerConfig {
        let ms = Duration::from_millis;
        reader::config(&self.shared)
            .client_id(format!("copier-{}", self.slot))
            .group_id(GROUP)
            .partition_assignment_strategy([self.plan.assignor])
            .session_timeout(self.plan.session_timeout)
            .heartbeat_interval(ms(300))
            .max_poll_interval(self.plan.max_poll_interval)
            .max_poll_records(self.life.max_poll_records)
            .enable_auto_commit(false)
            .isolation_level(IsolationLevel::ReadCommitted)
            .auto_offset_reset(OffsetReset::Earliest)
            .default_api_timeout(ms(4000))
    }
}

/// Reads the copies with `isolation.level=read_committed` when all applications have ended.
pub(super) async fn read_back(shared: &Shared, env: &Env) -> Result<(), Failure> {
    let Some(plan) = &shared.plan.copies else { return Ok(()) };
    shared.note("waiting for the applications that copy");
    let slots = plan.slots.len();
    // The sender lives in `shared`.
    let _ = shared.finished.subscribe().wait_for(|finished| *finished >= slots).await;
    shared.note("reading the copies");
    let net = HostNet::new(&shared.fabric, &Host::Clients.name());
    let mut ends = Vec::new();
    for partition in 0..shared.plan.partitions {
        let (leader, _) = shared.cluster.leader(OUTPUT, partition).ok_or("no leader")?;
        let leader = shared.cluster.broker(leader).ok_or("no such broker")?.addr();
        let held = readback::over_the_wire(&net, leader, OUTPUT, partition).await?;
        ends.push(held.records.last().map_or(0, |last| last.offset + 1));
    }
    let copies = reader::committed(shared, env, OUTPUT, &ends).await?;
    shared.history.lock().copies = Some(copies);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initializing_zombie_is_the_rival_of_every_application_that_begins_meanwhile() {
        let mut tenures = Tenures::default();
        let zombie = tenures.begin();
        zombie.requests();
        for _ in 0..2 {
            let closed = tenures.begin();
            closed.requests();
            closed.responded();
            assert!(closed.has_rival());
        }
        let last = tenures.begin();
        zombie.responded();
        assert!(last.has_rival());
        assert!(!tenures.begin().has_rival());
    }

    #[test]
    fn a_producer_dropped_while_it_initializes_is_a_rival_for_good() {
        let mut tenures = Tenures::default();
        let first = tenures.begin();
        assert!(!first.has_rival());
        first.requests();
        // The application's next producer.
        first.requests();
        first.responded();
        assert!(first.has_rival());
        tenures.begin();
        assert!(tenures.begin().has_rival());
    }

    #[test]
    fn an_application_has_no_rival_until_the_next_one_supersedes_it() {
        let mut tenures = Tenures::default();
        let zombie = tenures.begin();
        zombie.requests();
        zombie.responded();
        assert!(!zombie.has_rival());
        zombie.superseded.store(true, Ordering::Relaxed);
        assert!(zombie.has_rival());
        assert!(!tenures.begin().has_rival());
    }
}
