//! Behaviour of consumer group members, on the embedded cluster and on Apache Kafka.

mod by_coordinator;
mod queues;

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use crate::common::{self, Backend};
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, ConsumerRecord, Error, ErrorCode, Producer,
    ProducerConfig, Record, TopicPartition, TransactionalProducer,
    config::GroupProtocol,
    consumer::{Rebalance, RebalanceListener},
    transaction::OffsetAndMetadata,
};
use futures_core::Stream as _;

/// Longest wait of a case.
const LIMIT: Duration = Duration::from_secs(60);
/// A poll of one of several consumers.
const LOOK: Duration = Duration::from_millis(20);

/// A cluster, and the protocol of the groups on it.
struct Bench<'a> {
    backend: &'a Backend,
    protocol: GroupProtocol,
}

impl std::ops::Deref for Bench<'_> {
    type Target = Backend;

    fn deref(&self) -> &Backend {
        self.backend
    }
}

use by_coordinator::{
    a_pattern_of_the_brokers_finds_topics, a_second_static_member_is_refused,
    coordinator_refusal_names_the_setting,
};
use queues::{
    a_handle_controls_a_consumer_that_is_polled,
    a_listener_runs_on_the_applications_runtime_while_handlers_end, a_member_chooses_how_it_leaves,
    a_panic_of_a_handler_waits_for_the_others_of_its_partition,
    a_pause_by_a_handle_returns_no_batch_twice, a_queue_commits_the_offset_that_it_was_sought_to,
    a_rebalance_is_enforced, a_revoked_partition_waits_for_its_unfinished_records,
    a_slow_queue_does_not_delay_the_others, all_queues_end_when_the_group_no_longer_waits_for_one,
    partitions_are_processed_in_parallel, processing_commits_only_what_precedes_a_failure,
    queues_of_a_member_that_does_not_poll_end, records_are_processed_in_the_order_of_their_keys,
    records_of_a_slow_last_handler_are_committed, topics_are_listed,
    unfinished_records_of_a_dropped_queue_are_read_again,
};

/// Settings that make coordinators act faster than by default.
const QUICK: [(&str, &str); 6] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "1000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "200"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.session.timeout.ms", "6000"),
];

fn apache(test: &str) -> Option<&'static Backend> {
    static BROKER: OnceLock<Option<Backend>> = OnceLock::new();
    BROKER
        .get_or_init(|| {
            Backend::apache_with(test, 1, |builder| {
                QUICK.iter().fold(builder, |builder, (name, value)| builder.property(*name, *value))
            })
        })
        .as_ref()
}

async fn embedded(brokers: u32) -> Backend {
    Backend::embedded_with(brokers, |config| {
        for (name, value) in QUICK {
            config.set(name, value).unwrap();
        }
    })
    .await
}

/// Runs each case on a cluster. Each case creates its own topics and groups.
macro_rules! cases {
    (embedded as $module:ident, $protocol:ident: $($case:ident),* $(,)?) => {
        mod $module {
            use super::*;

            $(#[tokio::test]
            async fn $case() {
                let backend = embedded(1).await;
                let bench = Bench { backend: &backend, protocol: GroupProtocol::$protocol };
                super::$case(&bench, stringify!($case)).await;
            })*
        }
    };
    (apache as $module:ident, $protocol:ident: $($case:ident),* $(,)?) => {
        mod $module {
            use super::*;

            $(#[tokio::test]
            async fn $case() {
                let Some(backend) = apache(stringify!($case)) else { return };
                let bench = Bench { backend, protocol: GroupProtocol::$protocol };
                let name = concat!(stringify!($module), "-", stringify!($case));
                super::$case(&bench, name).await;
            })*
        }
    };
}

mod measured;

macro_rules! classic_cases {
    ($($case:ident),* $(,)?) => {
        cases! { embedded as embedded, Classic: $($case),* }
        cases! { apache as apache, Classic: $($case),* }
    };
}

macro_rules! consumer_cases {
    ($($case:ident),* $(,)?) => {
        cases! { embedded as embedded_by_coordinator, Consumer: $($case),* }
        cases! { apache as apache_by_coordinator, Consumer: $($case),* }
    };
}

consumer_cases! {
    members_share_and_hand_over,
    partitions_of_a_killed_member_are_reassigned,
    static_member_restarts_without_a_rebalance,
    cooperative_members_move_only_what_they_must,
    commits_survive_a_restart,
    auto_commit_commits_positions,
    the_listener_commits_and_seeks,
    member_that_does_not_poll_loses_its_partitions,
    stream_that_is_kept_without_polling_loses_its_partitions,
    removed_member_cannot_commit,
    a_pattern_finds_topics,
    group_without_offsets_begins_where_the_reset_policy_says,
    partitions_assigned_by_hand_are_committed_too,
    new_partitions_are_assigned,
    offsets_go_with_a_transaction,
    a_pattern_of_the_brokers_finds_topics,
    a_second_static_member_is_refused,
    coordinator_refusal_names_the_setting,
    partitions_are_processed_in_parallel,
    a_slow_queue_does_not_delay_the_others,
    unfinished_records_of_a_dropped_queue_are_read_again,
    a_revoked_partition_waits_for_its_unfinished_records,
    all_queues_end_when_the_group_no_longer_waits_for_one,
    queues_of_a_member_that_does_not_poll_end,
    records_are_processed_in_the_order_of_their_keys,
    processing_commits_only_what_precedes_a_failure,
    records_of_a_slow_last_handler_are_committed,
    a_listener_runs_on_the_applications_runtime_while_handlers_end,
    a_queue_commits_the_offset_that_it_was_sought_to,
    a_handle_controls_a_consumer_that_is_polled,
    a_member_chooses_how_it_leaves,
}

classic_cases! {
    members_share_and_hand_over,
    partitions_of_a_killed_member_are_reassigned,
    static_member_restarts_without_a_rebalance,
    a_second_static_member_fences_the_first,
    cooperative_members_move_only_what_they_must,
    commits_survive_a_restart,
    auto_commit_commits_positions,
    the_listener_commits_and_seeks,
    member_that_does_not_poll_loses_its_partitions,
    stream_that_is_kept_without_polling_loses_its_partitions,
    removed_member_cannot_commit,
    a_pattern_finds_topics,
    group_without_offsets_begins_where_the_reset_policy_says,
    partitions_assigned_by_hand_are_committed_too,
    new_partitions_are_assigned,
    offsets_go_with_a_transaction,
    incompatible_member_joins_once_the_others_have_left,
    partitions_are_processed_in_parallel,
    a_slow_queue_does_not_delay_the_others,
    unfinished_records_of_a_dropped_queue_are_read_again,
    a_revoked_partition_waits_for_its_unfinished_records,
    all_queues_end_when_the_group_no_longer_waits_for_one,
    queues_of_a_member_that_does_not_poll_end,
    records_are_processed_in_the_order_of_their_keys,
    processing_commits_only_what_precedes_a_failure,
    records_of_a_slow_last_handler_are_committed,
    a_listener_runs_on_the_applications_runtime_while_handlers_end,
    a_queue_commits_the_offset_that_it_was_sought_to,
    a_handle_controls_a_consumer_that_is_polled,
    a_member_chooses_how_it_leaves,
    a_rebalance_is_enforced,
    a_panic_of_a_handler_waits_for_the_others_of_its_partition,
    a_pause_by_a_handle_returns_no_batch_twice,
    topics_are_listed,
}

/// A group continues when its coordinator has died or is unresponsive, with the same generation and all committed offsets.
async fn group_survives_the_loss_of_its_coordinator(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 2, 3).await;
    let producer = common::producer(backend, &[("acks", "all")]);
    produce(&producer, name, 2, 0..10).await;
    let patient: &[_] = match backend.protocol {
        GroupProtocol::Classic => &[("session.timeout.ms", "30000")],
        GroupProtocol::Consumer => &[],
    };
    let mut consumer = member(backend, name, patient);
    poll_until(&mut [&mut consumer], |_, records| records.len() == 20).await;
    consumer.commit().await.unwrap();
    let generation = consumer.group_metadata().unwrap().generation_id;
    for (round, hang) in [false, true].into_iter().enumerate() {
        let coordinator = coordinator(backend, name).await;
        if hang {
            backend.freeze(coordinator);
        } else {
            backend.kill(coordinator);
        }
        let begin = 10 * (round as u32 + 1);
        produce(&producer, name, 2, begin..begin + 10).await;
        poll_until(&mut [&mut consumer], |_, records| records.len() == 20).await;
        consumer.commit().await.unwrap();
        assert_eq!(consumer.group_metadata().unwrap().generation_id, generation);
        let committed = consumer.committed(&[at(name, 0), at(name, 1)]).await.unwrap();
        let is_expected = |committed: &Option<OffsetAndMetadata>| {
            let of = |at: &OffsetAndMetadata| (at.offset, at.leader_epoch.is_some());
            committed.as_ref().map(of) == Some((i64::from(begin) + 10, true))
        };
        assert!(committed.values().all(is_expected), "{committed:?}");
        if hang {
            backend.thaw(coordinator);
        } else {
            backend.restart(coordinator).await;
        }
    }
    consumer.close().await;
}

/// An application that commits faster than the coordinator responds keeps its membership in a rebalance, which does
/// not wait for later commits.
#[tokio::test]
async fn continuous_commits_do_not_delay_a_rebalance() {
    const OFFSET_COMMIT: i16 = 8;
    let name = "commits_without_end";
    let backend = embedded(1).await;
    backend.create_topic(name, 2, 1).await;
    produce(&common::producer(&backend, &[]), name, 2, 0..100).await;
    let properties = [
        ("max.poll.records", "1"),
        ("max.poll.interval.ms", "3000"),
        ("enable.auto.commit", "false"),
        ("partition.assignment.strategy", "cooperative-sticky"),
    ];
    let bench = &Bench { backend: &backend, protocol: GroupProtocol::Classic };
    let mut busy = member(bench, name, &properties);
    let notes = Notes::of(&mut busy);
    settle(&mut [&mut busy], &[2]).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("made so") };
    // Longer than heartbeat.interval.ms; a hundred commits are queued in that time.
    cluster.delay(None, Some(OFFSET_COMMIT), Duration::from_millis(250));
    let mut other = member(bench, name, &properties);
    let mut outcomes = Vec::new();
    let begun = Instant::now();
    while busy.assignment().len() != 1 || other.assignment().len() != 1 {
        assert!(begun.elapsed() < LIMIT, "{:?} {:?}", busy.assignment(), other.assignment());
        busy.poll(Duration::from_millis(2)).await.unwrap();
        outcomes.push(busy.commit_nowait().unwrap());
        other.poll(Duration::from_millis(2)).await.unwrap();
    }
    let told = notes.take();
    assert!(!told.iter().any(|event| matches!(event, Event::Lost(_))), "{told:?}");
    // Commits queued by the owner succeed, even if the partition was revoked since.
    for outcome in outcomes {
        outcome.await.unwrap();
    }
    busy.close().await;
    other.close().await;
}

/// The leader of the group's partition in Kafka's internal topic.
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
async fn group_survives_the_loss_of_its_coordinator_embedded() {
    let backend = &embedded(3).await;
    outlives_by_both_protocols(backend).await;
}

#[tokio::test]
async fn group_survives_the_loss_of_its_coordinator_apache() {
    let name = "group_survives_the_loss_of_its_coordinator_apache";
    let at_once = ("group.initial.rebalance.delay.ms", "0");
    let backend = Backend::apache_with(name, 3, |builder| builder.property(at_once.0, at_once.1));
    let Some(backend) = &backend else { return };
    outlives_by_both_protocols(backend).await;
}

async fn outlives_by_both_protocols(backend: &Backend) {
    for (protocol, name) in
        [(GroupProtocol::Classic, "outlives"), (GroupProtocol::Consumer, "outlives-by-coordinator")]
    {
        group_survives_the_loss_of_its_coordinator(&Bench { backend, protocol }, name).await;
    }
}

fn config(backend: &Bench<'_>, group: &str, properties: &[(&str, &str)]) -> ConsumerConfig {
    let mut config = ConsumerConfig::new(backend.bootstrap()).group_id(group);
    let short: &[_] = match backend.protocol {
        GroupProtocol::Classic => {
            &[("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "200")]
        }
        GroupProtocol::Consumer => &[("group.protocol", "consumer")],
    };
    let begin = ("auto.offset.reset", "earliest");
    for (name, value) in short.iter().chain([&begin]).chain(properties) {
        config.set(name, value).unwrap();
    }
    config
}

fn member(backend: &Bench<'_>, name: &str, properties: &[(&str, &str)]) -> Consumer {
    let mut consumer = Consumer::new(config(backend, name, properties)).unwrap();
    consumer.subscribe([name]).unwrap();
    consumer
}

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// Polls the consumers in turn until `done`, and returns the records read.
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

/// Polls until each consumer has its number of partitions.
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

/// The offsets read from each partition.
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

/// Records the listener's calls.
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

    /// Without rebalances that assigned no partition.
    fn take_changes(&self) -> Vec<Event> {
        let nothing = Event::Assigned(Vec::new());
        self.take().into_iter().filter(|event| *event != nothing).collect()
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

async fn members_share_and_hand_over(backend: &Bench<'_>, name: &str) {
    let (setting, strategies): (_, &[&str]) = match backend.protocol {
        GroupProtocol::Classic => (
            "partition.assignment.strategy",
            &["range", "roundrobin", "sticky", "cooperative-sticky"],
        ),
        GroupProtocol::Consumer => ("group.remote.assignor", &["uniform", "range"]),
    };
    for &strategy in strategies {
        let name = &format!("{name}-{strategy}");
        backend.create_topic(name, 4, 1).await;
        let producer = common::producer(backend, &[]);
        produce(&producer, name, 4, 0..10).await;
        let properties = [(setting, strategy)];
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
        // Positions are handed over with the partitions: no record is read twice or skipped.
        produce(&producer, name, 4, 20..21).await;
        read.extend(poll_until(&mut [&mut one], |_, records| records.len() >= 4).await);
        for (partition, mut offsets) in offsets(&read) {
            offsets.sort_unstable();
            assert_eq!(offsets, (0..21).collect::<Vec<_>>(), "{strategy}, partition {partition}");
        }
        one.close().await;
    }
}

async fn partitions_of_a_killed_member_are_reassigned(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 2, 1).await;
    let mut one = member(backend, name, &[]);
    let short: &[_] = match backend.protocol {
        GroupProtocol::Classic => &[("session.timeout.ms", "2000")],
        GroupProtocol::Consumer => &[],
    };
    let mut two = member(backend, name, short);
    settle(&mut [&mut one, &mut two], &[1, 1]).await;
    let killed = Instant::now();
    drop(two);
    settle(&mut [&mut one], &[2]).await;
    assert!(killed.elapsed() > Duration::from_secs(1), "reassigned before the session expired");
    one.close().await;
}

async fn static_member_restarts_without_a_rebalance(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 4, 1).await;
    let [mut one, mut two] =
        ["i1", "i2"].map(|instance| member(backend, name, &[("group.instance.id", instance)]));
    settle(&mut [&mut one, &mut two], &[2, 2]).await;
    // The leader, then the other member.
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

async fn a_second_static_member_fences_the_first(backend: &Bench<'_>, name: &str) {
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
    let failed = first.commit_offsets([(at(name, 0), OffsetAndMetadata::new(0))]).await;
    assert!(matches!(failed, Err(Error::CommitFailed { .. })), "{failed:?}");
    first.close().await;
    second.close().await;
}

async fn cooperative_members_move_only_what_they_must(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 4, 1).await;
    let properties: &[_] = match backend.protocol {
        GroupProtocol::Classic => &[("partition.assignment.strategy", "cooperative-sticky")],
        GroupProtocol::Consumer => &[],
    };
    let mut one = member(backend, name, properties);
    let notes = Notes::of(&mut one);
    settle(&mut [&mut one], &[4]).await;
    assert_eq!(notes.take_changes(), [Event::Assigned(vec![0, 1, 2, 3])]);
    let mut two = member(backend, name, properties);
    let notes_of_two = Notes::of(&mut two);
    settle(&mut [&mut one, &mut two], &[2, 2]).await;
    let kept: BTreeSet<i32> = one.assignment().iter().map(|at| at.partition).collect();
    let moved: Vec<i32> = (0..4).filter(|index| !kept.contains(index)).collect();
    assert_eq!(notes.take_changes(), [Event::Revoked(moved.clone())]);
    assert_eq!(notes_of_two.take_changes(), [Event::Assigned(moved)]);
    one.close().await;
    two.close().await;
}

async fn commits_survive_a_restart(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..10).await;
    let properties = [("enable.auto.commit", "false"), ("max.poll.records", "4")];
    let mut consumer = member(backend, name, &properties);
    let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    assert_eq!(offsets(&read)[&0], [0, 1, 2, 3]);
    consumer.commit().await.unwrap();
    let committed = consumer.committed(&[at(name, 0)]).await.unwrap();
    let expected = OffsetAndMetadata { leader_epoch: Some(0), ..OffsetAndMetadata::new(4) };
    assert_eq!(committed[&at(name, 0)], Some(expected));
    // These records are not committed.
    poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    consumer.close().await;

    let mut consumer = member(backend, name, &properties);
    let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    assert_eq!(offsets(&read)[&0], [4, 5, 6, 7]);
    let chosen =
        OffsetAndMetadata { offset: 6, leader_epoch: Some(0), metadata: "half way".into() };
    let pending = consumer.commit_offsets_nowait([(at(name, 0), chosen.clone())]).unwrap();
    pending.await.unwrap();
    let asked = [at(name, 0), at("elsewhere", 3)];
    let committed = consumer.committed(&asked).await.unwrap();
    assert_eq!(committed, [(at("elsewhere", 3), None), (at(name, 0), Some(chosen))].into());
    consumer.close().await;
}

async fn auto_commit_commits_positions(backend: &Bench<'_>, name: &str) {
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
    // Returned records count as processed at the next poll, not before. The initial position may be committed, as in
    // Java: if the first records took longer than an interval.
    let is_beginning = |offset: Option<i64>| offset.is_none_or(|offset| offset == 0);
    let given = Instant::now();
    while given.elapsed() < Duration::from_millis(300) {
        let offset = committed().await;
        assert!(is_beginning(offset), "{offset:?}");
    }
    let read = poll_until(&mut [&mut consumer], |_, records| !records.is_empty()).await;
    assert_eq!(read.len(), 4);
    let begun = Instant::now();
    while is_beginning(committed().await) {
        assert!(begun.elapsed() < LIMIT);
    }
    assert_eq!(committed().await, Some(4));
    consumer.close().await;
    assert_eq!(committed().await, Some(8), "closing commits the returned records");
    watcher.close().await;
}

/// Commits one record less than was returned, and begins at offset 5.
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

async fn the_listener_commits_and_seeks(backend: &Bench<'_>, name: &str) {
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

async fn member_that_does_not_poll_loses_its_partitions(backend: &Bench<'_>, name: &str) {
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
    // It learns of the loss when it polls, and rejoins.
    assert_eq!((idle.assignment(), notes.take()), (had, vec![]));
    settle(&mut [&mut idle, &mut busy], &[1, 1]).await;
    let told = notes.take();
    assert_eq!(told.first(), Some(&Event::Lost(gone)), "{told:?}");
    // A waiting poll counts as polling, however long it takes.
    let waited = Instant::now();
    while waited.elapsed() < Duration::from_millis(3000) {
        idle.poll(Duration::from_secs(3)).await.unwrap();
        busy.poll(LOOK).await.unwrap();
    }
    assert_eq!((idle.assignment().len(), notes.take()), (1, vec![]));
    idle.close().await;
    busy.close().await;
}

/// A dropped `next` leaves its waker behind, which must not count as polling.
async fn stream_that_is_kept_without_polling_loses_its_partitions(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 2, 1).await;
    // Automatic commits would take the waker.
    let properties = [("max.poll.interval.ms", "1500"), ("enable.auto.commit", "false")];
    let mut idle = member(backend, name, &properties);
    let mut busy = member(backend, name, &[]);
    settle(&mut [&mut idle, &mut busy], &[1, 1]).await;
    let mut stream = idle.stream();
    let next = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx));
    assert!(tokio::time::timeout(LOOK, next).await.is_err(), "the topic is empty");
    settle(&mut [&mut busy], &[2]).await;
    // The stream was kept until here.
    let next = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx));
    assert!(tokio::time::timeout(LOOK, next).await.is_err(), "the topic is empty");
    idle.close().await;
    busy.close().await;
}

async fn removed_member_cannot_commit(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..3).await;
    let properties = [("max.poll.interval.ms", "1000"), ("enable.auto.commit", "false")];
    let mut idle = member(backend, name, &properties);
    poll_until(&mut [&mut idle], |_, records| records.len() == 3).await;
    let mut other = member(backend, name, &[]);
    poll_until(&mut [&mut other], |_, records| records.len() == 3).await;
    let failed = idle.commit().await.unwrap_err();
    assert!(
        matches!(failed, Error::CommitFailed { code: ErrorCode::UNKNOWN_MEMBER_ID, .. }),
        "{failed}"
    );
    idle.close().await;
    other.close().await;
}

async fn a_pattern_finds_topics(backend: &Bench<'_>, name: &str) {
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
    // The group has committed by now, so Kafka's internal topic exists.
    consumer.commit().await.unwrap();
    consumer.subscribe_matching(|topic| topic == "__consumer_offsets").unwrap();
    settle(&mut [&mut consumer], &[0]).await;
    assert!(consumer.subscription().is_empty());
    consumer.close().await;
}

async fn group_without_offsets_begins_where_the_reset_policy_says(backend: &Bench<'_>, name: &str) {
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

async fn partitions_assigned_by_hand_are_committed_too(backend: &Bench<'_>, name: &str) {
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
    assert!(matches!(none.commit().await, Err(Error::IllegalState(_))));
    none.close().await;
}

async fn new_partitions_are_assigned(backend: &Bench<'_>, name: &str) {
    // The topic is created after the members.
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

async fn offsets_go_with_a_transaction(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 1, 1).await;
    produce(&common::producer(backend, &[]), name, 1, 0..3).await;
    let mut consumer = member(backend, name, &[("enable.auto.commit", "false")]);
    poll_until(&mut [&mut consumer], |_, records| records.len() == 3).await;
    let member = consumer.group_metadata().unwrap();
    assert!(member.generation_id > 0 && !member.member_id.is_empty(), "{member:?}");
    let producer = ProducerConfig::new(backend.bootstrap()).transactional_id(name);
    let mut producer = TransactionalProducer::new(producer).unwrap();
    producer.init_transactions().await.unwrap();
    let transaction = producer.begin_transaction().await.unwrap();
    let offsets = [(at(name, 0), OffsetAndMetadata::new(3))];
    transaction.send_offsets_to_transaction(offsets.clone(), &member).await.unwrap();
    transaction.commit().await.unwrap();
    let committed = consumer.committed(&[at(name, 0)]).await.unwrap();
    assert_eq!(committed[&at(name, 0)], Some(OffsetAndMetadata::new(3)));
    consumer.close().await;
    // A member that has left cannot commit.
    let transaction = producer.begin_transaction().await.unwrap();
    let refused = transaction.send_offsets_to_transaction(offsets, &member).await.unwrap_err();
    assert!(refused.is_abortable(), "{refused}");
    transaction.abort().await.unwrap();
    producer.close().await.unwrap();
}

async fn incompatible_member_joins_once_the_others_have_left(backend: &Bench<'_>, name: &str) {
    backend.create_topic(name, 1, 1).await;
    let of = |strategy| [("partition.assignment.strategy", strategy)];
    let mut one = member(backend, name, &of("range"));
    settle(&mut [&mut one], &[1]).await;
    let mut two = member(backend, name, &of("roundrobin"));
    for _ in 0..2 {
        let refused = tokio::time::timeout(LIMIT, two.poll(LIMIT)).await.unwrap().unwrap_err();
        let expected = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
        assert!(matches!(refused, Error::Broker { code, .. } if code == expected), "{refused}");
        assert!(refused.to_string().contains("partition.assignment.strategy"), "{refused}");
    }
    one.close().await;
    // The application has not subscribed again: every poll retries.
    let begun = Instant::now();
    while two.assignment().is_empty() {
        assert!(begun.elapsed() < LIMIT);
        let _ = two.poll(LOOK).await;
    }
    two.close().await;
}
