//! What the members of a consumer group must do, on the embedded cluster and on Apache Kafka.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use common::Backend;
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, ConsumerRecord, Error, ErrorCode,
    OffsetAndMetadata, Producer, Rebalance, RebalanceListener, Record, TopicPartition,
};

/// How long a case may wait for what must come.
const LIMIT: Duration = Duration::from_secs(60);
/// A look at one consumer of several.
const LOOK: Duration = Duration::from_millis(20);

fn apache(test: &str) -> Option<&'static Backend> {
    static BROKER: OnceLock<Option<Backend>> = OnceLock::new();
    BROKER
        .get_or_init(|| {
            Backend::apache_with(test, 1, |builder| {
                let builder = builder.property("group.initial.rebalance.delay.ms", "0");
                builder.property("group.min.session.timeout.ms", "1000")
            })
        })
        .as_ref()
}

async fn embedded(brokers: u32) -> Backend {
    Backend::embedded_with(brokers, |config| {
        config.group_min_session_timeout = Duration::from_secs(1);
    })
    .await
}

/// Runs each case on both clusters. Cases make topics and groups of their own.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&super::embedded(1).await, stringify!($case)).await;
            })*
        }

        mod apache {
            $(#[tokio::test]
            async fn $case() {
                let Some(backend) = super::apache(stringify!($case)) else { return };
                super::$case(backend, stringify!($case)).await;
            })*
        }
    };
}

on_both! {
    members_share_and_hand_over,
    a_killed_members_partitions_come_back,
    a_static_member_comes_back_unnoticed,
    a_second_static_member_fences_the_first,
    cooperative_members_move_only_what_they_must,
    commits_survive_a_restart,
    positions_are_committed_without_being_asked,
    the_listener_commits_and_seeks,
    who_does_not_poll_loses_its_partitions,
    who_was_given_up_cannot_commit,
    a_pattern_finds_topics,
    a_group_without_offsets_begins_where_the_policy_says,
    partitions_assigned_by_hand_are_committed_too,
    new_partitions_are_shared_out,
}

/// A group goes on when its coordinator has died or hangs: with the same generation, and with everything committed.
async fn a_group_outlives_its_coordinator(backend: Backend, name: &str) {
    backend.create_topic(name, 2, 3).await;
    let producer = common::producer(&backend, &[("acks", "all")]);
    produce(&producer, name, 2, 0..10).await;
    let mut consumer = member(&backend, name, &[("session.timeout.ms", "30000")]);
    poll_until(&mut [&mut consumer], |_, records| records.len() == 20).await;
    consumer.commit_sync().await.unwrap();
    let generation = consumer.group_metadata().unwrap().generation_id;
    for (round, hang) in [false, true].into_iter().enumerate() {
        let coordinator = coordinator(&backend, name).await;
        if hang {
            backend.freeze(coordinator);
        } else {
            backend.kill(coordinator);
        }
        let begin = 10 * (round as u32 + 1);
        produce(&producer, name, 2, begin..begin + 10).await;
        poll_until(&mut [&mut consumer], |_, records| records.len() == 20).await;
        consumer.commit_sync().await.unwrap();
        assert_eq!(consumer.group_metadata().unwrap().generation_id, generation);
        let committed = consumer.committed(&[at(name, 0), at(name, 1)]).await.unwrap();
        let expected = Some(OffsetAndMetadata::new(i64::from(begin) + 10));
        assert!(committed.values().all(|committed| *committed == expected), "{committed:?}");
        if hang {
            backend.thaw(coordinator);
        } else {
            backend.restart(coordinator).await;
        }
    }
    consumer.close().await;
}

/// The leader of the group's partition in Kafka's own topic.
async fn coordinator(backend: &Backend, group: &str) -> i32 {
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let topic = "__consumer_offsets";
    let described = admin.describe_topics(&[topic]).await.unwrap().remove(0).1.unwrap();
    // As java.lang.String hashes, without the sign.
    let hash = group.bytes().fold(0i32, |hash, b| hash.wrapping_mul(31).wrapping_add(b.into()));
    let index = (hash & i32::MAX) as usize % described.partitions.len();
    described.partitions[index].leader.unwrap()
}

#[tokio::test]
async fn a_group_outlives_its_coordinator_embedded() {
    a_group_outlives_its_coordinator(embedded(3).await, "outlives").await;
}

#[tokio::test]
async fn a_group_outlives_its_coordinator_apache() {
    let name = "a_group_outlives_its_coordinator_apache";
    let at_once = ("group.initial.rebalance.delay.ms", "0");
    let backend = Backend::apache_with(name, 3, |builder| builder.property(at_once.0, at_once.1));
    let Some(backend) = backend else { return };
    a_group_outlives_its_coordinator(backend, "outlives").await;
}

fn config(backend: &Backend, group: &str, properties: &[(&str, &str)]) -> ConsumerConfig {
    let mut config = ConsumerConfig::new(backend.bootstrap()).group_id(group);
    let short = [
        ("auto.offset.reset", "earliest"),
        ("session.timeout.ms", "6000"),
        ("heartbeat.interval.ms", "200"),
    ];
    for (name, value) in short.iter().chain(properties) {
        config.set(name, value).unwrap();
    }
    config
}

fn member(backend: &Backend, name: &str, properties: &[(&str, &str)]) -> Consumer {
    let mut consumer = Consumer::new(config(backend, name, properties)).unwrap();
    consumer.subscribe([name]).unwrap();
    consumer
}

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// Polls the consumers in turn until `done`, and gives what they read.
async fn poll_until(
    consumers: &mut [&mut Consumer],
    mut done: impl FnMut(&[&mut Consumer], &[ConsumerRecord]) -> bool,
) -> Vec<ConsumerRecord> {
    let begun = Instant::now();
    let mut records = Vec::new();
    while !done(consumers, &records) {
        let assigned: Vec<_> = consumers.iter().map(|consumer| consumer.assignment()).collect();
        assert!(begun.elapsed() < LIMIT, "{} records, {assigned:?}", records.len());
        for consumer in consumers.iter_mut() {
            records.extend(consumer.poll(LOOK).await.unwrap());
        }
    }
    records
}

/// Polls until each consumer has so many partitions.
async fn settle(consumers: &mut [&mut Consumer], counts: &[usize]) -> Vec<ConsumerRecord> {
    poll_until(consumers, |consumers, _| {
        consumers.iter().zip(counts).all(|(consumer, count)| consumer.assignment().len() == *count)
    })
    .await
}

async fn produce(producer: &Producer, topic: &str, partitions: i32, values: std::ops::Range<u32>) {
    let mut sent = Vec::new();
    for value in values {
        for partition in 0..partitions {
            let value = value.to_string();
            let record = Record::to(topic).partition(partition).value(&value);
            sent.push(producer.send(record).await.unwrap());
        }
    }
    for delivery in sent {
        delivery.await.unwrap();
    }
}

/// The offsets read of each partition.
fn offsets(records: &[ConsumerRecord]) -> BTreeMap<i32, Vec<i64>> {
    let mut offsets: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for record in records {
        offsets.entry(record.partition()).or_default().push(record.offset());
    }
    offsets
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Assigned(Vec<i32>),
    Revoked(Vec<i32>),
    Lost(Vec<i32>),
}

/// Notes what it is told.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Event>>>);

impl Notes {
    fn of(consumer: &mut Consumer) -> Self {
        let notes = Self::default();
        consumer.set_rebalance_listener(notes.clone());
        notes
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn note(&self, event: fn(Vec<i32>) -> Event, partitions: &[TopicPartition]) {
        let indexes = partitions.iter().map(|at| at.partition).collect();
        self.0.lock().unwrap().push(event(indexes));
    }
}

impl RebalanceListener for Notes {
    fn on_partitions_assigned(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        self.note(Event::Assigned, partitions);
    }

    fn on_partitions_revoked(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        self.note(Event::Revoked, partitions);
    }

    fn on_partitions_lost(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
        self.note(Event::Lost, partitions);
    }
}

async fn members_share_and_hand_over(backend: &Backend, name: &str) {
    for strategy in ["range", "roundrobin", "sticky", "cooperative-sticky"] {
        let name = &format!("{name}-{strategy}");
        backend.create_topic(name, 4, 1).await;
        let producer = common::producer(backend, &[]);
        produce(&producer, name, 4, 0..10).await;
        let properties = [("partition.assignment.strategy", strategy)];
        let mut one = member(backend, name, &properties);
        let mut read = settle(&mut [&mut one], &[4]).await;
        let mut two = member(backend, name, &properties);
        read.extend(settle(&mut [&mut one, &mut two], &[2, 2]).await);
        assert!(one.assignment().is_disjoint(&two.assignment()));
        produce(&producer, name, 4, 10..20).await;
        let mut more =
            poll_until(&mut [&mut one, &mut two], |_, records| read.len() + records.len() >= 80)
                .await;
        read.append(&mut more);
        two.close().await;
        settle(&mut [&mut one], &[4]).await;
        // Positions are handed over with the partitions: nothing is read twice, and nothing is left out.
        produce(&producer, name, 4, 20..21).await;
        read.extend(poll_until(&mut [&mut one], |_, records| records.len() >= 4).await);
        for (partition, mut offsets) in offsets(&read) {
            offsets.sort_unstable();
            assert_eq!(offsets, (0..21).collect::<Vec<_>>(), "{strategy}, partition {partition}");
        }
        one.close().await;
    }
}

async fn a_killed_members_partitions_come_back(backend: &Backend, name: &str) {
    backend.create_topic(name, 2, 1).await;
    let mut one = member(backend, name, &[]);
    let mut two = member(backend, name, &[("session.timeout.ms", "2000")]);
    settle(&mut [&mut one, &mut two], &[1, 1]).await;
    let killed = Instant::now();
    drop(two);
    settle(&mut [&mut one], &[2]).await;
    assert!(killed.elapsed() > Duration::from_secs(1), "nobody told that it had gone");
    one.close().await;
}

async fn a_static_member_comes_back_unnoticed(backend: &Backend, name: &str) {
    backend.create_topic(name, 4, 1).await;
    let [mut one, mut two] =
        ["i1", "i2"].map(|instance| member(backend, name, &[("group.instance.id", instance)]));
    settle(&mut [&mut one, &mut two], &[2, 2]).await;
    // The leader, and the other.
    for restarted in ["i1", "i2"] {
        let (before, notes) = (two.assignment(), Notes::of(&mut two));
        let generation = two.group_metadata().unwrap().generation_id;
        let had = one.assignment();
        one.close().await;
        one = member(backend, name, &[("group.instance.id", restarted)]);
        settle(&mut [&mut one, &mut two], &[2, 2]).await;
        assert_eq!((one.assignment(), two.assignment()), (had, before));
        for consumer in [&one, &two] {
            assert_eq!(consumer.group_metadata().unwrap().generation_id, generation);
        }
        assert_eq!(notes.take(), []);
        std::mem::swap(&mut one, &mut two);
    }
    one.close().await;
    two.close().await;
}

async fn a_second_static_member_fences_the_first(backend: &Backend, name: &str) {
    backend.create_topic(name, 2, 1).await;
    let properties = [("group.instance.id", "only")];
    let mut first = member(backend, name, &properties);
    settle(&mut [&mut first], &[2]).await;
    let notes = Notes::of(&mut first);
    let mut second = member(backend, name, &properties);
    settle(&mut [&mut second], &[2]).await;
    for _ in 0..2 {
        let fenced = tokio::time::timeout(LIMIT, first.poll(LIMIT)).await.unwrap().unwrap_err();
        assert!(fenced.is_fenced(), "{fenced}");
    }
    assert_eq!(notes.take(), [Event::Lost(vec![0, 1])]);
    assert!(first.assignment().is_empty());
    let failed = first.commit_sync_offsets([(at(name, 0), OffsetAndMetadata::new(0))]).await;
    assert!(matches!(failed, Err(Error::CommitFailed { .. })), "{failed:?}");
    first.close().await;
    second.close().await;
}

async fn cooperative_members_move_only_what_they_must(backend: &Backend, name: &str) {
    backend.create_topic(name, 4, 1).await;
    let properties = [("partition.assignment.strategy", "cooperative-sticky")];
    let mut one = member(backend, name, &properties);
    let notes = Notes::of(&mut one);
    settle(&mut [&mut one], &[4]).await;
    assert_eq!(notes.take(), [Event::Assigned(vec![0, 1, 2, 3])]);
    let mut two = member(backend, name, &properties);
    let notes_of_two = Notes::of(&mut two);
    settle(&mut [&mut one, &mut two], &[2, 2]).await;
    let kept: BTreeSet<i32> = one.assignment().iter().map(|at| at.partition).collect();
    let moved: Vec<i32> = (0..4).filter(|index| !kept.contains(index)).collect();
    let told: Vec<Event> =
        notes.take().into_iter().filter(|event| *event != Event::Assigned(vec![])).collect();
    assert_eq!(told, [Event::Revoked(moved.clone())]);
    let told: Vec<Event> =
        notes_of_two.take().into_iter().filter(|event| *event != Event::Assigned(vec![])).collect();
    assert_eq!(told, [Event::Assigned(moved)]);
    one.close().await;
    two.close().await;
}

async fn commits_survive_a_restart(backend: &Backend, name: &str) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..10).await;
    let properties = [("enable.auto.commit", "false"), ("max.poll.records", "4")];
    let mut consumer = member(backend, name, &properties);
    let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    assert_eq!(offsets(&read)[&0], [0, 1, 2, 3]);
    consumer.commit_sync().await.unwrap();
    let committed = consumer.committed(&[at(name, 0)]).await.unwrap();
    assert_eq!(committed[&at(name, 0)], Some(OffsetAndMetadata::new(4)));
    // These are not committed.
    poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    consumer.close().await;

    let mut consumer = member(backend, name, &properties);
    let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    assert_eq!(offsets(&read)[&0], [4, 5, 6, 7]);
    let chosen =
        OffsetAndMetadata { offset: 6, leader_epoch: Some(0), metadata: "half way".into() };
    let pending = consumer.commit_async_offsets([(at(name, 0), chosen.clone())]).unwrap();
    pending.await.unwrap();
    let asked = [at(name, 0), at("elsewhere", 3)];
    let committed = consumer.committed(&asked).await.unwrap();
    assert_eq!(committed, [(at("elsewhere", 3), None), (at(name, 0), Some(chosen))].into());
    consumer.close().await;
}

async fn positions_are_committed_without_being_asked(backend: &Backend, name: &str) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..10).await;
    let properties = [("auto.commit.interval.ms", "50"), ("max.poll.records", "4")];
    let mut consumer = member(backend, name, &properties);
    let watcher = Consumer::new(config(backend, name, &[])).unwrap();
    let committed = async || {
        let offsets = watcher.committed(&[at(name, 0)]).await.unwrap();
        offsets[&at(name, 0)].as_ref().map(|committed| committed.offset)
    };
    let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    assert_eq!(read.len(), 4);
    // What was given out counts as done with when the application polls again, not before.
    let given = Instant::now();
    while given.elapsed() < Duration::from_millis(300) {
        assert_eq!(committed().await, None);
    }
    let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    assert_eq!(read.len(), 4);
    let begun = Instant::now();
    while committed().await.is_none() {
        assert!(begun.elapsed() < LIMIT);
    }
    assert_eq!(committed().await, Some(4));
    consumer.close().await;
    assert_eq!(committed().await, Some(8), "closing commits what was given out");
    watcher.close().await;
}

/// Commits one less than was given out, and begins at 5.
struct Careful;

impl RebalanceListener for Careful {
    fn on_partitions_assigned(
        &mut self,
        rebalance: &mut Rebalance<'_>,
        partitions: &[TopicPartition],
    ) {
        for at in partitions {
            rebalance.seek(at, 5).unwrap();
        }
    }

    fn on_partitions_revoked(
        &mut self,
        rebalance: &mut Rebalance<'_>,
        partitions: &[TopicPartition],
    ) {
        for at in partitions {
            let offset = rebalance.position(at).unwrap() - 1;
            let metadata = "revoked".into();
            rebalance.commit(at, OffsetAndMetadata { offset, leader_epoch: None, metadata });
        }
    }
}

async fn the_listener_commits_and_seeks(backend: &Backend, name: &str) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..10).await;
    let mut consumer = member(backend, name, &[("enable.auto.commit", "false")]);
    consumer.set_rebalance_listener(Careful);
    let read = poll_until(&mut [&mut consumer], |_, records| records.len() >= 5).await;
    assert_eq!(offsets(&read)[&0], [5, 6, 7, 8, 9]);
    consumer.unsubscribe();
    assert!(consumer.assignment().is_empty());
    consumer.close().await;
    let watcher = Consumer::new(config(backend, name, &[])).unwrap();
    let committed = watcher.committed(&[at(name, 0)]).await.unwrap();
    let committed = committed[&at(name, 0)].clone().unwrap();
    assert_eq!((committed.offset, &*committed.metadata), (9, "revoked"));
    watcher.close().await;
}

async fn who_does_not_poll_loses_its_partitions(backend: &Backend, name: &str) {
    backend.create_topic(name, 2, 1).await;
    produce(&common::producer(backend, &[]), name, 2, 0..3).await;
    let mut idle = member(backend, name, &[("max.poll.interval.ms", "1500")]);
    let notes = Notes::of(&mut idle);
    let mut busy = member(backend, name, &[]);
    settle(&mut [&mut idle, &mut busy], &[1, 1]).await;
    let had = idle.assignment();
    notes.take();
    settle(&mut [&mut busy], &[2]).await;
    let mut gone: Vec<i32> = had.iter().map(|at| at.partition).collect();
    gone.sort_unstable();
    // It hears of it when it polls, and joins again.
    assert_eq!((idle.assignment(), notes.take()), (had, vec![]));
    settle(&mut [&mut idle, &mut busy], &[1, 1]).await;
    let told = notes.take();
    assert_eq!(told.first(), Some(&Event::Lost(gone)), "{told:?}");
    // A poll that waits is polling, however long it takes.
    let waited = Instant::now();
    while waited.elapsed() < Duration::from_millis(3000) {
        idle.poll(Duration::from_secs(3)).await.unwrap();
        busy.poll(LOOK).await.unwrap();
    }
    assert_eq!((idle.assignment().len(), notes.take()), (1, vec![]));
    idle.close().await;
    busy.close().await;
}

async fn who_was_given_up_cannot_commit(backend: &Backend, name: &str) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..3).await;
    let properties = [("max.poll.interval.ms", "1000"), ("enable.auto.commit", "false")];
    let mut idle = member(backend, name, &properties);
    poll_until(&mut [&mut idle], |_, records| records.len() == 3).await;
    let mut other = member(backend, name, &[]);
    poll_until(&mut [&mut other], |_, records| records.len() == 3).await;
    let failed = idle.commit_sync().await.unwrap_err();
    assert!(
        matches!(failed, Error::CommitFailed { code: ErrorCode::UNKNOWN_MEMBER_ID, .. }),
        "{failed}"
    );
    idle.close().await;
    other.close().await;
}

async fn a_pattern_finds_topics(backend: &Backend, name: &str) {
    let topic = |suffix: &str| format!("{name}-{suffix}");
    backend.create_topic(&topic("a"), 1, 1).await;
    backend.create_topic(&format!("not-{name}"), 1, 1).await;
    let properties = [("metadata.max.age.ms", "200")];
    let mut consumer = Consumer::new(config(backend, name, &properties)).unwrap();
    let prefix = format!("{name}-");
    consumer.subscribe_matching(move |topic| topic.starts_with(&prefix)).unwrap();
    settle(&mut [&mut consumer], &[1]).await;
    assert_eq!(consumer.subscription(), [topic("a")].into());
    backend.create_topic(&topic("b"), 2, 1).await;
    settle(&mut [&mut consumer], &[3]).await;
    assert_eq!(consumer.subscription(), [topic("a"), topic("b")].into());
    // The group has committed something by now, so Kafka's own topic is there.
    consumer.commit_sync().await.unwrap();
    consumer.subscribe_matching(|topic| topic == "__consumer_offsets").unwrap();
    settle(&mut [&mut consumer], &[0]).await;
    assert!(consumer.subscription().is_empty());
    consumer.close().await;
}

async fn a_group_without_offsets_begins_where_the_policy_says(backend: &Backend, name: &str) {
    backend.create_topic(name, 1, 1).await;
    let producer = common::producer(backend, &[]);
    let old = Record::to(name).partition(0).value("old").timestamp(1_000);
    producer.send(old).await.unwrap().await.unwrap();
    produce(&producer, name, 1, 0..2).await;
    for (policy, begin) in [("earliest", 0), ("by_duration:PT1H", 1), ("latest", 3)] {
        let group = format!("{name}-{policy}");
        let reset = [("auto.offset.reset", policy)];
        let mut consumer = Consumer::new(config(backend, &group, &reset)).unwrap();
        consumer.subscribe([name]).unwrap();
        if policy == "latest" {
            settle(&mut [&mut consumer], &[1]).await;
            assert_eq!(consumer.position(&at(name, 0)).await.unwrap(), begin);
        } else {
            let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
            assert_eq!(read[0].offset(), begin, "{policy}");
        }
        consumer.close().await;
    }
    let mut consumer =
        Consumer::new(config(backend, name, &[("auto.offset.reset", "none")])).unwrap();
    consumer.subscribe([name]).unwrap();
    let begun = Instant::now();
    let error = loop {
        match consumer.poll(LOOK).await {
            Ok(records) => assert!(records.is_empty()),
            Err(error) => break error,
        }
        assert!(begun.elapsed() < LIMIT);
    };
    assert!(matches!(error, Error::OffsetOutOfRange { offset: -1, .. }), "{error}");
    consumer.close().await;
}

async fn partitions_assigned_by_hand_are_committed_too(backend: &Backend, name: &str) {
    backend.create_topic(name, 2, 1).await;
    produce(&common::producer(backend, &[]), name, 2, 0..5).await;
    for expected in [vec![0, 1, 2, 3, 4], vec![]] {
        let mut consumer = Consumer::new(config(backend, name, &[])).unwrap();
        consumer.assign([at(name, 1)]);
        assert_eq!(consumer.position(&at(name, 1)).await.unwrap(), 5 - expected.len() as i64);
        if !expected.is_empty() {
            let read = poll_until(&mut [&mut consumer], |_, records| records.len() == 5).await;
            assert_eq!(offsets(&read)[&1], expected);
        }
        consumer.close().await;
    }
    let mut none = ConsumerConfig::new(backend.bootstrap());
    none.set("auto.offset.reset", "earliest").unwrap();
    let mut none = Consumer::new(none).unwrap();
    assert!(matches!(none.subscribe([name]), Err(Error::IllegalState(_))));
    assert!(matches!(none.commit_sync().await, Err(Error::IllegalState(_))));
    none.close().await;
}

async fn new_partitions_are_shared_out(backend: &Backend, name: &str) {
    // The topic comes after the members.
    let properties = [("metadata.max.age.ms", "200"), ("allow.auto.create.topics", "false")];
    let mut one = member(backend, name, &properties);
    let mut two = member(backend, name, &properties);
    for consumer in [&mut one, &mut two] {
        consumer.poll(LOOK).await.unwrap();
    }
    backend.create_topic(name, 2, 1).await;
    settle(&mut [&mut one, &mut two], &[1, 1]).await;
    one.close().await;
    two.close().await;
}
