//! The host of the producers: sends, notes every outcome, and reads everything back.

use std::time::Duration;

use curtail::{
    Delivery, Error, Producer, ProducerConfig, Record, RecordMetadata,
    config::Acks,
    producer::{CompletionSink, Completions},
};
use curtail_net::{Entropy, Env};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Failure, Shared, Stage, TOPIC, commits, compaction, copies, gaps, mortal,
    reader::{self, Role},
    topics::Place,
    transactions, unclean, wanderer,
};
use crate::{
    history::{Outcome, PLACES, Promise, ReadBack, RecordId, Sent},
    net::{self, Client, HostNet},
    payload,
    plan::{COMPACTED, Host, ProducerPlan, RACKS, Scenario, Tuning},
    readback,
    trace::now,
};

/// Different keys of a producer.
const KEYS: u64 = 7;
/// `max.block.ms`: how long a send may wait before the client has accepted the record.
const MAX_BLOCK: Duration = Duration::from_secs(20);
/// Time for followers to get everything that the leaders have. It is longer than any delay of a response, and than
/// the lag that an in-sync follower may have.
const SETTLE: Duration = Duration::from_secs(4);

/// Runs the producers, with a consumer alongside, then reads all partitions.
pub(super) async fn run(shared: Shared) -> Result<(), Failure> {
    shared.reached(Stage::Running).await;
    let env = net::env(&shared.fabric, &Host::Clients.name(), shared.entropy.fork());
    let rack = (shared.plan.scenario == Some(Scenario::Racks)).then_some(RACKS[0]);
    let consumer = tokio::spawn(reader::follow(shared.clone(), env, Role { number: 0, rack }));
    let others = RACKS[1..].iter().enumerate().filter(|_| rack.is_some()).map(|(index, rack)| {
        let env = net::env(&shared.fabric, &Host::Clients.name(), shared.entropy.fork());
        let role = Role { number: index + 1, rack: Some(rack) };
        tokio::spawn(reader::follow(shared.clone(), env, role))
    });
    let others: Vec<_> = others.collect();
    // The markers of transactions are gaps in the log.
    let wanders = match shared.plan.scenario {
        Some(Scenario::Seeks) => true,
        Some(Scenario::Dropped) => !shared.plan.is_transactional(),
        _ => false,
    };
    let wanderer = wanders.then(|| {
        let entropy = shared.entropy.fork();
        let env = net::env(&shared.fabric, &Host::Clients.name(), entropy.fork());
        tokio::spawn(wanderer::run(shared.clone(), env, entropy))
    });
    let committer = (shared.plan.dropped > 0).then(|| {
        let entropy = shared.entropy.fork();
        let env = net::env(&shared.fabric, &Host::Clients.name(), entropy.fork());
        tokio::spawn(commits::run(shared.clone(), env, entropy))
    });
    let truncated = (shared.plan.scenario == Some(Scenario::Unclean)).then(|| {
        let entropy = shared.entropy.fork();
        let env = net::env(&shared.fabric, &Host::Clients.name(), entropy.fork());
        tokio::spawn(unclean::follow(shared.clone(), env, entropy))
    });
    let deletions = gaps::Deletions::default();
    let (deleter, seeker) = match shared.plan.gaps {
        None => (None, None),
        Some(plan) => {
            let host = Host::Clients.name();
            let spawn = || {
                let entropy = shared.entropy.fork();
                (net::env(&shared.fabric, &host, entropy.fork()), entropy)
            };
            let (env, entropy) = spawn();
            let deleting = gaps::delete(shared.clone(), plan, env, entropy, deletions.clone());
            let (env, entropy) = spawn();
            let seeking = gaps::seek(shared.clone(), plan, env, entropy, deletions.clone());
            let deleting = plan.retention.is_none().then(|| tokio::spawn(deleting));
            (deleting, Some(tokio::spawn(seeking)))
        }
    };
    let skimmer = shared.plan.compaction.map(|plan| {
        let entropy = shared.entropy.fork();
        let env = net::env(&shared.fabric, &Host::Clients.name(), entropy.fork());
        tokio::spawn(compaction::read(shared.clone(), plan, env, entropy))
    });
    let mut producers = JoinSet::new();
    for (index, plan) in shared.plan.producers.clone().into_iter().enumerate() {
        let entropy = shared.entropy.fork();
        let env = net::env(&shared.fabric, &Host::Clients.name(), entropy.fork());
        let work = Work { shared: shared.clone(), index: index as u32, plan, entropy };
        if shared.plan.is_transactional() {
            producers.spawn(transactions::run(work, env));
        } else {
            producers.spawn(work.run(env));
        }
    }
    shared.note("sending, or waiting for outcomes");
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    shared.note("waiting for the faults to end");
    shared.reached(Stage::Healed).await;
    if let Some(deleter) = deleter {
        shared.note("waiting for the deletions to end");
        deleter.await?.map_err(|error| format!("the deletions failed: {error}"))?;
    }
    if let Some(committer) = committer {
        shared.note("waiting for the consumer that commits");
        let consumer = committer
            .await?
            .map_err(|error| format!("the consumer that commits failed: {error}"))?;
        consumer.close().await;
    }
    shared.note("waiting for every replica to be in sync");
    shared.cluster.wait_until(|_| shared.is_whole()).await;
    sleep(SETTLE).await;
    // A follower that lagged because of a delayed response may have had to leave the ISR and join again.
    shared.cluster.wait_until(|_| shared.is_whole()).await;
    shared.note("reading back");
    let read = read_everything(&shared).await?;
    if shared.plan.is_transactional() {
        shared.note("reading what is committed");
        let env = net::env(&shared.fabric, &Host::Clients.name(), shared.entropy.fork());
        let committed = reader::committed(&shared, &env, TOPIC, &read).await?;
        shared.history.lock().committed = committed;
        if shared.plan.compaction.is_some() {
            read_compacted(&shared, &env).await?;
        }
    }
    if shared.plan.gaps.is_some() {
        deletions.judge(&shared);
    }
    shared.ends.announce(read);
    if let Some(wanderer) = wanderer {
        shared.note("waiting for the consumer that seeks");
        wanderer.await?.map_err(|error| format!("the consumer that seeks failed: {error}"))?;
    }
    shared.note("waiting for the consumer to read everything");
    for consumer in std::iter::once(consumer).chain(others) {
        consumer.await?.map_err(|error| format!("the consumer failed: {error}"))?;
    }
    if let Some(truncated) = truncated {
        shared.note("waiting for the consumer that reports truncations");
        let consumer = truncated
            .await?
            .map_err(|error| format!("the consumer that reports truncations failed: {error}"))?;
        consumer.close().await;
    }
    if let Some(seeker) = seeker {
        shared.note("waiting for the consumer that seeks past deletions");
        let consumer =
            seeker.await?.map_err(|error| format!("the consumer that seeks failed: {error}"))?;
        consumer.close().await;
    }
    if let Some(skimmer) = skimmer {
        shared.note("waiting for the consumer of the compacted topic");
        let consumer = skimmer
            .await?
            .map_err(|error| format!("the consumer of the compacted topic failed: {error}"))?;
        consumer.close().await;
    }
    if shared.plan.copies.is_some() {
        let env = net::env(&shared.fabric, &Host::Clients.name(), shared.entropy.fork());
        copies::read_back(&shared, &env).await?;
    }
    shared.stage.set(Stage::Done);
    Ok(())
}

/// One producer's work.
pub(super) struct Work {
    pub(super) shared: Shared,
    pub(super) index: u32,
    pub(super) plan: ProducerPlan,
    pub(super) entropy: Entropy,
}

impl Work {
    async fn run(self, env: Env) -> Result<(), Error> {
        self.promise();
        let client = Client::new(format!("producer-{}", self.index), self.plan.request_timeout);
        let env = net::observed(&self.shared.fabric, &Host::Clients.name(), &env, &client);
        let producer = Producer::with_env(self.config(), &env)?;
        let mut outcomes = JoinSet::new();
        let (sink, completions) = producer.completions();
        let (shared, topic) = (self.shared.clone(), self.plan.tuning.topic);
        let tagged = tokio::spawn(settle_runs(shared, topic, completions));
        for number in 0..self.plan.records {
            let spread = 2 * self.plan.pause.as_micros() as u64;
            sleep(Duration::from_micros(self.entropy.below(spread + 1))).await;
            self.rest(number).await;
            let id = RecordId { producer: self.index, number };
            let slot = self.begin(id);
            // By number: a draw would change all later draws of the seed.
            let is_tagged = number % 2 == 1 && !self.plan.tuning.one_by_one;
            let sink = is_tagged.then_some((&sink, slot as u64));
            let sent = match self.is_impatient() {
                false => match self.or_drop(self.send(&producer, id, sink)).await {
                    Some(sent) => sent,
                    // A dropped send has not appended its record.
                    None => Err(Error::IllegalState("the send was dropped")),
                },
                true => {
                    let patience = Duration::from_millis(self.entropy.below(3));
                    // A dropped send has not appended its record.
                    let dropped = Error::IllegalState("the send was dropped");
                    timeout(patience, self.send(&producer, id, sink)).await.unwrap_or(Err(dropped))
                }
            };
            match sent {
                Ok(None) => self.accepted(slot),
                Ok(Some(delivery)) => {
                    self.accepted(slot);
                    let shared = self.shared.clone();
                    let topic = self.plan.tuning.topic;
                    outcomes.spawn(async move {
                        settle(&shared, slot, topic, placed(delivery.await));
                    });
                }
                // Nothing was sent.
                Err(error) => {
                    note(
                        &self.shared,
                        slot,
                        Outcome::NotWritten { error: error.report().to_string() },
                    );
                }
            }
            if self.shared.plan.dropped > 0 && self.entropy.below(10) == 0 {
                self.flush(&producer).await?;
            }
            while self.plan.tuning.one_by_one
                && let Some(ended) = outcomes.join_next().await
            {
                ended.map_err(|_| Error::Closed)?;
            }
        }
        producer.flush().await?;
        let moved = producer.routing_metrics().moved_batches;
        let retries = producer.metrics().brokers.values().map(|of| of.record_retry_total).sum();
        {
            let mut history = self.shared.history.lock();
            history.moved_batches += moved;
            history.retries.insert(self.index, retries);
        }
        while let Some(ended) = outcomes.join_next().await {
            ended.map_err(|_| Error::Closed)?;
        }
        drop(sink);
        tagged.await.map_err(|_| Error::Closed)?;
        client.leave();
        producer.close().await
    }

    /// Awaits a call, or drops it at one of its await points.
    pub(super) async fn or_drop<F: Future>(&self, call: F) -> Option<F::Output> {
        let share = self.shared.plan.dropped;
        let polls = match share > 0 && self.entropy.below(100) < share {
            true => 1 + self.entropy.below(4),
            false => u64::MAX,
        };
        mortal::for_polls(call, polls).await
    }

    /// Flushes. Then every record sent before must have its outcome.
    async fn flush(&self, producer: &Producer) -> Result<(), Error> {
        let before: Vec<usize> = {
            let history = self.shared.history.lock();
            let sent = history.sent.iter().enumerate();
            sent.filter(|(_, sent)| sent.id.producer == self.index && sent.settled.is_none())
                .map(|(slot, _)| slot)
                .collect()
        };
        let Some(flushed) = self.or_drop(producer.flush()).await else { return Ok(()) };
        flushed?;
        // The tasks that wait for outcomes run before the clock advances.
        sleep(Duration::from_millis(1)).await;
        let mut history = self.shared.history.lock();
        let open = before.into_iter().map(|slot| &history.sent[slot]);
        let open: Vec<_> = open.filter(|sent| sent.settled.is_none()).map(|sent| sent.id).collect();
        history.unflushed.extend(open);
        Ok(())
    }

    /// Waits between two bursts.
    pub(super) async fn rest(&self, number: u32) {
        let Some(ids) = &self.shared.plan.ids else { return };
        if number > 0 && number.is_multiple_of(ids.burst) {
            sleep(ids.rest).await;
        }
    }

    pub(super) fn config(&self) -> ProducerConfig {
        let plan = &self.plan;
        let ms = Duration::from_millis;
        ProducerConfig::new(self.shared.cluster.bootstrap())
            .prefer_proven_partitions(self.shared.plan.prefers_proven_partitions())
            .separate_unproven_partitions(self.shared.plan.separates_unproven_partitions())
            .move_refused_batches(self.shared.plan.moves_refused_batches())
            .client_id(format!("producer-{}", self.index))
            .linger(plan.linger)
            .batch_size(plan.batch_size)
            .batch_max_size(plan.batch_max_size)
            .route_around_trouble(plan.route_around_trouble)
            .max_in_flight(plan.max_in_flight)
            .request_timeout(plan.request_timeout)
            .delivery_timeout(self.delivery_timeout())
            .retry_backoff(ms(20), ms(500))
            .reconnect_backoff(ms(20), ms(500))
            .connection_setup_timeout(ms(1000))
            .metadata_max_age(Duration::from_secs(10))
            .max_block(MAX_BLOCK)
            .acks(plan.tuning.acks)
            .idempotence(plan.tuning.idempotence)
            .compression(plan.tuning.codec)
            .buffer_memory(plan.tuning.buffer_memory)
            .max_request_size(plan.tuning.max_request_size)
    }

    fn is_impatient(&self) -> bool {
        let share = self.plan.tuning.impatient;
        share > 0 && self.entropy.below(100) < share
    }

    /// Records the promises of the settings.
    fn promise(&self) {
        let Tuning { acks, idempotence, .. } = self.plan.tuning;
        let promise = Promise {
            durable: acks == Acks::All,
            once: idempotence,
            ordered: idempotence || self.plan.max_in_flight == 1,
        };
        self.shared.history.lock().promises.insert(self.index, promise);
    }

    fn delivery_timeout(&self) -> Duration {
        self.plan.linger + self.plan.delivery_timeout
    }

    /// Records the send before it happens: a record without any later event counts.
    pub(super) fn begin(&self, id: RecordId) -> usize {
        let mut history = self.shared.history.lock();
        let (at, outcome) = (now(), Outcome::Pending);
        history.sent.push(Sent { id, at, due: at + MAX_BLOCK, settled: None, outcome });
        history.sent.len() - 1
    }

    /// The client has accepted the record: its delivery timeout begins.
    pub(super) fn accepted(&self, slot: usize) {
        self.shared.history.lock().sent[slot].due = now() + self.delivery_timeout();
    }

    /// Returns the key of a record.
    pub(super) fn key(&self, id: RecordId) -> String {
        let is_compacted = self.plan.tuning.topic == COMPACTED;
        let compaction = self.shared.plan.compaction.filter(|_| is_compacted);
        let key = self.entropy.below(compaction.map_or(KEYS, |compaction| compaction.keys));
        if let (true, Some(compacted)) = (is_compacted, &mut self.shared.history.lock().compacted) {
            compacted.keys.insert(id, key);
        }
        format!("key-{key}")
    }

    /// Whether the record is sent without a value.
    pub(super) fn is_tombstone(&self, id: RecordId) -> bool {
        let Some(compaction) = self.shared.plan.compaction else { return false };
        if self.plan.tuning.topic != COMPACTED || self.entropy.below(100) >= compaction.tombstones {
            return false;
        }
        if let Some(compacted) = &mut self.shared.history.lock().compacted {
            compacted.tombstones.insert(id);
        }
        true
    }

    /// Sends a record: with a delivery, or by its tag.
    async fn send(
        &self,
        producer: &Producer,
        id: RecordId,
        tagged: Option<(&CompletionSink, u64)>,
    ) -> Result<Option<Delivery>, Error> {
        let (value, is_tombstone) = (payload::value(id), self.is_tombstone(id));
        let headers = payload::headers(&value);
        let record = Record::to(self.shared.topic(self.plan.tuning.topic));
        let record = payload::filled(record, &value, &headers, is_tombstone);
        if self.entropy.below(100) < self.plan.keyed {
            let key = self.key(id);
            return send(producer, record.key(&key), tagged).await;
        }
        if self.plan.route_around_trouble {
            self.shared.history.lock().free.insert(id);
        }
        send(producer, record, tagged).await
    }
}

async fn send(
    producer: &Producer,
    record: Record<'_>,
    tagged: Option<(&CompletionSink, u64)>,
) -> Result<Option<Delivery>, Error> {
    match tagged {
        Some((sink, tag)) => producer.send_tagged(record, tag, sink).await.map(|()| None),
        None => producer.send(record).await.map(Some),
    }
}

/// Notes the outcomes of the tagged records. A tag is the record's slot in the history.
async fn settle_runs(shared: Shared, topic: usize, mut completions: Completions) {
    while let Some(run) = completions.next().await {
        let partition = run.outcome().map(|batch| batch.partition).map_err(Clone::clone);
        for (slot, offset) in run.records() {
            let outcome = partition.clone().map(|partition| (partition, offset));
            settle(&shared, slot as usize, topic, outcome);
        }
    }
}

/// Partition and offset of a record that was written.
pub(super) fn placed(outcome: Result<RecordMetadata, Error>) -> Result<(i32, Option<i64>), Error> {
    outcome.map(|written| (written.partition, written.offset))
}

pub(super) fn settle(
    shared: &Shared,
    slot: usize,
    topic: usize,
    outcome: Result<(i32, Option<i64>), Error>,
) {
    let outcome = match outcome {
        Ok((partition, offset)) => Outcome::Acknowledged {
            at: now(),
            partition: partition + topic as i32 * PLACES,
            offset,
        },
        Err(error) => {
            let error_text = error.report().to_string();
            match error {
                Error::NotAcknowledged { may_have_been_written: false, .. } => {
                    Outcome::NotWritten { error: error_text }
                }
                _ => Outcome::MaybeWritten { error: error_text },
            }
        }
    };
    note(shared, slot, outcome);
}

pub(super) fn note(shared: &Shared, slot: usize, outcome: Outcome) {
    let mut history = shared.history.lock();
    let sent = &mut history.sent[slot];
    let (id, had_outcome) = (sent.id, sent.settled.is_some());
    shared.fabric.trace().event(Host::Clients.name(), format_args!("{} {outcome:?}", sent.id));
    sent.settled = Some(now());
    sent.outcome = outcome;
    if had_outcome {
        history.twice.push(id);
    }
}

/// Reads the committed records of the compacted topic.
async fn read_compacted(shared: &Shared, env: &Env) -> Result<(), Failure> {
    let places = shared.places().into_iter().filter(|place| place.topic == COMPACTED);
    let ends: Vec<i64> = places.map(|place| shared.end_of(place)).collect();
    let mut read = reader::committed(shared, env, shared.topic(COMPACTED), &ends).await?;
    read.iter_mut().for_each(|record| record.partition += COMPACTED as i32 * PLACES);
    shared.history.lock().committed.extend(read);
    Ok(())
}

/// Reads all partitions from their leaders. Returns their end offsets.
async fn read_everything(shared: &Shared) -> Result<Vec<i64>, Failure> {
    let net = HostNet::new(&shared.fabric, &Host::Clients.name());
    let mut everything: Vec<ReadBack> = Vec::new();
    let mut ends = Vec::new();
    for place in shared.places() {
        let Place { topic, name, partition } = place;
        let (leader, _) = shared.cluster.leader(name, partition).ok_or("no leader")?;
        let leader = shared.cluster.broker(leader).ok_or("no such broker")?.addr();
        let readback::Held { start, records: mut read } =
            readback::over_the_wire(&net, leader, name, partition).await?;
        if start > 0 {
            shared.history.lock().starts.insert(place.number(), start);
        }
        if topic == 0 {
            ends.push(read.last().map_or(0, |last| last.offset + 1));
        }
        read.iter_mut().for_each(|record| record.partition = place.number());
        everything.extend(read);
    }
    shared.history.lock().read = everything;
    Ok(ends)
}
