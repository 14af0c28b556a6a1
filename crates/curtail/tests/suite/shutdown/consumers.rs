//! Consumers: no call waits for a runtime that has ended, and a commit covers only what was returned.

use std::{collections::BTreeMap, future::poll_fn, pin::Pin};

use super::{Doomed, HOUR, HOUR_MS, Rig, Steps, Trap, Trouble, rounds};
use crate::common;
use curtail::{
    Consumer, ConsumerConfig, ConsumerRecord, Record, TopicPartition,
    consumer::{PendingCommit, Rebalance, RebalanceListener},
};
use curtail_net::Entropy;
use futures_core::Stream as _;

const FETCH: i16 = 1;
const METADATA: i16 = 3;
const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;
const FIND_COORDINATOR: i16 = 10;
const JOIN_GROUP: i16 = 11;

const PARTITIONS: i32 = 2;
/// Records of each partition.
const RECORDS: i64 = 60;

#[test]
fn every_call_ends_when_the_consumers_runtime_shuts_down() {
    rounds(round);
}

/// Shuts the runtime down inside a rebalance.
struct Shuts(Doomed);

impl RebalanceListener for Shuts {
    fn on_partitions_assigned(&mut self, _: &mut Rebalance<'_>, _: &[TopicPartition]) {
        self.0.end();
    }
}

/// What the application has seen.
#[derive(Default)]
struct Seen {
    /// Offset after the last record, by partition.
    next: BTreeMap<i32, i64>,
    /// `next` at the last commit that succeeded.
    committed: BTreeMap<i32, i64>,
    pending: Vec<PendingCommit>,
}

impl Seen {
    fn record(&mut self, record: &ConsumerRecord) {
        let next = self.next.entry(record.partition()).or_default();
        assert_eq!(record.offset(), *next, "partition {}", record.partition());
        *next += 1;
    }
}

fn all(topic: &str) -> Vec<TopicPartition> {
    (0..PARTITIONS).map(|index| TopicPartition::new(topic, index)).collect()
}

fn fill(rig: &Rig, topic: &str) {
    rig.create_topic(topic, PARTITIONS);
    rig.runtime.block_on(async {
        let producer = common::producer(&rig.backend, &[]);
        for n in 0..RECORDS {
            let value = n.to_string();
            for partition in 0..PARTITIONS {
                let record = Record::to(topic).partition(partition).value(&value);
                drop(producer.send(record).await.expect("sent"));
            }
        }
        producer.close().await.expect("written");
    });
}

fn round(rig: &Rig, seed: u64, steps: Steps) {
    let draw = Entropy::from_seed(seed);
    let topic = format!("shutdown-{seed}");
    fill(rig, &topic);
    let mut trap = Trap::set(&draw, steps);
    let apis = [FETCH, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP];
    let (trouble, trouble_at) = (Trouble::draw(&draw, &apis), draw.below(60));
    let mut config = ConsumerConfig::new(rig.backend.bootstrap()).group_id(&topic);
    let (protocol, auto_commit) = (["classic", "consumer"], ["true", "false"]);
    let max_records = (1 + draw.below(20)).to_string();
    for (name, value) in [
        ("default.api.timeout.ms", HOUR_MS),
        ("request.timeout.ms", HOUR_MS),
        ("auto.offset.reset", "earliest"),
        ("group.protocol", protocol[draw.below(2) as usize]),
        ("enable.auto.commit", auto_commit[draw.below(2) as usize]),
        ("max.poll.records", &max_records),
    ] {
        config.set(name, value).expect("a known property");
    }
    let entered = trap.doomed.0.handle.enter();
    let mut consumer = Consumer::new(config).expect("usable");
    drop(entered);
    match draw.below(4) {
        0 => consumer.assign(all(&topic)),
        1 => {
            consumer.set_rebalance_listener(Shuts(trap.doomed.clone()));
            consumer.subscribe([&topic]).expect("subscribed");
        }
        _ => consumer.subscribe([&topic]).expect("subscribed"),
    }

    let mut seen = Seen::default();
    for n in 0..50 {
        if n == trouble_at {
            rig.trouble(trouble);
        }
        call(&mut trap, &mut consumer, &topic, draw.below(12), &mut seen);
    }
    trap.shut();
    for which in 0..12 {
        call(&mut trap, &mut consumer, &topic, which, &mut seen);
    }
    for pending in std::mem::take(&mut seen.pending) {
        drop(trap.run("a pending commit", pending));
    }
    trap.run("close", consumer.close());
    trap.steps.enter("the verdict".into());
    rig.no_trouble();
    verdict(rig, &topic, &seen);
}

fn call(trap: &mut Trap, consumer: &mut Consumer, topic: &str, which: u64, seen: &mut Seen) {
    let all = all(topic);
    match which {
        0 | 1 => {
            if trap.run("commit", consumer.commit()).is_ok() {
                seen.committed = seen.next.clone();
            }
        }
        2 => seen.pending.extend(trap.now("commit_nowait", || consumer.commit_nowait())),
        3 => drop(trap.run("position", consumer.position(&all[0]))),
        4 => drop(trap.run("committed", consumer.committed(&all))),
        5 => drop(trap.run("end_offsets", consumer.end_offsets(&all))),
        6 => drop(trap.run("partitions_for", consumer.partitions_for(topic))),
        7 => {
            let mut stream = consumer.stream();
            let next = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx));
            if let Some(Ok(record)) = trap.run("a stream", next) {
                seen.record(&record);
            }
        }
        _ => {
            let records = trap.run("poll", consumer.poll(HOUR));
            for record in records.into_iter().flatten() {
                seen.record(&record);
            }
        }
    }
}

fn verdict(rig: &Rig, topic: &str, seen: &Seen) {
    let committed = rig.runtime.block_on(async {
        let config = ConsumerConfig::new(rig.backend.bootstrap()).group_id(topic);
        let consumer = Consumer::new(config).expect("usable");
        consumer.committed(&all(topic)).await.expect("committed offsets")
    });
    for (at, committed) in committed {
        let committed = committed.map_or(0, |committed| committed.offset);
        let returned = seen.next.get(&at.partition).copied().unwrap_or(0);
        let promised = seen.committed.get(&at.partition).copied().unwrap_or(0);
        assert!(committed <= returned, "{at}: {committed} committed, {returned} returned");
        assert!(committed >= promised, "{at}: {committed} committed, {promised} promised");
    }
}
