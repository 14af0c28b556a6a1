//! Unclean elections: a consumer whose records were lost reports it or resets, and never skips records (KIP-320).

use std::{collections::BTreeMap, time::Duration};

use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, ProducerConfig, Record, TopicPartition,
    TransactionalProducer, admin::Election, config::OffsetReset, transaction::OffsetAndMetadata,
};

use crate::common::{self, Backend};

const LIMIT: Duration = Duration::from_secs(60);
const TOPIC: &str = "truncated";
/// Records on both replicas, and where the new leader's log diverges.
const COMMON: i64 = 10;
/// Records that the consumer reads before the election.
const READ: i64 = 20;

fn at() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

fn consumer(backend: &Backend, reset: OffsetReset) -> Consumer {
    let config = ConsumerConfig::new(backend.bootstrap())
        .group_id("truncation")
        .auto_offset_reset(reset)
        .enable_auto_commit(false);
    let mut consumer = Consumer::new(config).unwrap();
    consumer.assign([at()]);
    consumer
}

async fn send(backend: &Backend, lineage: &str, count: i64) {
    let producer = common::producer(backend, &[("acks", "all"), ("linger.ms", "0")]);
    for n in 0..count {
        let value = format!("{lineage}-{n}");
        producer.send(Record::to(TOPIC).partition(0).value(&value)).await.unwrap().await.unwrap();
    }
}

/// Reads the next `count` records: offsets and values.
async fn read(consumer: &mut Consumer, count: i64) -> Vec<(i64, String)> {
    let mut read = Vec::new();
    while (read.len() as i64) < count {
        let records = consumer.poll(LIMIT).await.unwrap();
        assert!(!records.is_empty(), "only {read:?} within {LIMIT:?}");
        read.extend(records.into_iter().map(|record| {
            let value = String::from_utf8(record.value().unwrap().to_vec()).unwrap();
            (record.offset(), value)
        }));
    }
    read
}

fn numbered(lineage: &str, first: i64, count: i64) -> Vec<(i64, String)> {
    (0..count).map(|n| (first + n, format!("{lineage}-{n}"))).collect()
}

/// A partition with two replicas. The follower lacks the last records.
struct Scene {
    backend: Backend,
    leader: i32,
    follower: i32,
}

impl Scene {
    /// Writes [`COMMON`] records to two replicas, and [`READ`] to the leader.
    async fn set() -> Self {
        let backend = Backend::embedded(3).await;
        backend.create_topic(TOPIC, 1, 2).await;
        let Backend::Embedded(cluster) = &backend else { unreachable!("made above") };
        let (leader, _) = cluster.leader(TOPIC, 0).unwrap();
        let isr = cluster.isr(TOPIC, 0).unwrap();
        let follower = isr.into_iter().find(|id| *id != leader).unwrap();
        send(&backend, "common", COMMON).await;
        backend.kill(follower);
        cluster.wait_until(|c| c.isr(TOPIC, 0).is_some_and(|isr| isr.len() == 1)).await;
        send(&backend, "lost", READ - COMMON).await;
        Self { backend, leader, follower }
    }

    /// Elects the replica that lacks records, which then receives others at the same offsets.
    async fn elect_uncleanly(&self) {
        let Backend::Embedded(cluster) = &self.backend else { unreachable!("made above") };
        self.backend.kill(self.leader);
        cluster.wait_until(|c| c.leader(TOPIC, 0).is_none_or(|(id, _)| id != self.leader)).await;
        self.backend.restart(self.follower).await;
        let admin = Admin::new(AdminConfig::new(self.backend.bootstrap())).unwrap();
        let elected = admin.elect_leaders(Election::Unclean, &[at()]).await.unwrap();
        assert!(elected.iter().all(|(_, outcome)| outcome.is_ok()), "{elected:?}");
        cluster.wait_until(|c| c.leader(TOPIC, 0).is_some_and(|(id, _)| id == self.follower)).await;
        send(&self.backend, "new", 2 * READ).await;
    }
}

/// Reads and commits all records before the election.
async fn commit_all(scene: &Scene) {
    let mut consumer = consumer(&scene.backend, OffsetReset::Earliest);
    assert_eq!(read(&mut consumer, READ).await.last().unwrap().0, READ - 1);
    consumer.commit().await.unwrap();
    consumer.close().await;
}

#[tokio::test]
async fn restarted_consumer_resets_to_the_divergent_offset() {
    let scene = Scene::set().await;
    commit_all(&scene).await;
    scene.elect_uncleanly().await;
    let mut consumer = consumer(&scene.backend, OffsetReset::Earliest);
    let read = read(&mut consumer, 2 * READ).await;
    assert_eq!(read, numbered("new", COMMON, 2 * READ));
}

/// Checks that polls report the truncation until a seek, and returns the divergent position.
async fn reported(consumer: &mut Consumer) -> OffsetAndMetadata {
    let mut divergent = None;
    for _ in 0..2 {
        let error = consumer.poll(LIMIT).await.unwrap_err();
        let Error::LogTruncated { topic, partition: 0, offset: READ, leader_epoch, .. } = &error
        else {
            panic!("{error}")
        };
        let Error::LogTruncated { divergent_offset: Some(to), divergent_epoch, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((&**topic, *to, *divergent_epoch), (TOPIC, COMMON, Some(*leader_epoch)));
        let message = error.report().to_string();
        for part in ["truncated-0", "offset 20", "offset 10", "auto.offset.reset"] {
            assert!(message.contains(part), "{message}");
        }
        let epoch = *divergent_epoch;
        divergent = Some(OffsetAndMetadata { leader_epoch: epoch, ..OffsetAndMetadata::new(*to) });
    }
    divergent.unwrap()
}

#[tokio::test]
async fn restarted_consumer_without_a_policy_reports_the_truncation() {
    let scene = Scene::set().await;
    commit_all(&scene).await;
    scene.elect_uncleanly().await;
    let mut consumer = consumer(&scene.backend, OffsetReset::None);
    let divergent = reported(&mut consumer).await;
    assert_eq!(consumer.position(&at()).await.unwrap(), READ, "the position stays");
    consumer.seek_to(&at(), &divergent).unwrap();
    assert_eq!(read(&mut consumer, 2 * READ).await, numbered("new", COMMON, 2 * READ));
}

#[tokio::test]
async fn running_consumer_resets_to_the_divergent_offset() {
    let scene = Scene::set().await;
    let mut consumer = consumer(&scene.backend, OffsetReset::Latest);
    consumer.seek(&at(), 0).unwrap();
    read(&mut consumer, READ).await;
    scene.elect_uncleanly().await;
    assert_eq!(read(&mut consumer, 2 * READ).await, numbered("new", COMMON, 2 * READ));
}

#[tokio::test]
async fn running_consumer_without_a_policy_reports_the_truncation() {
    let scene = Scene::set().await;
    let mut consumer = consumer(&scene.backend, OffsetReset::None);
    consumer.seek(&at(), 0).unwrap();
    read(&mut consumer, READ).await;
    scene.elect_uncleanly().await;
    reported(&mut consumer).await;
}

#[tokio::test]
async fn seek_with_an_epoch_is_validated() {
    let scene = Scene::set().await;
    let mut consumer = consumer(&scene.backend, OffsetReset::Earliest);
    let mut next = None;
    while next.as_ref().is_none_or(|next: &OffsetAndMetadata| next.offset < READ) {
        next = consumer.poll(LIMIT).await.unwrap().next_offsets().remove(&at());
    }
    let next = next.unwrap();
    assert!(next.leader_epoch.is_some());
    scene.elect_uncleanly().await;
    for epoch in [next.leader_epoch, None] {
        let to = OffsetAndMetadata { leader_epoch: epoch, ..next.clone() };
        consumer.seek_to(&at(), &to).unwrap();
        let first = read(&mut consumer, 1).await.remove(0).0;
        // Without an epoch there is nothing to validate.
        assert_eq!(first, if epoch.is_some() { COMMON } else { READ });
    }
}

/// All kinds of commits: synchronous, asynchronous, automatic, and in a transaction.
#[tokio::test]
async fn commits_carry_the_leader_epoch() {
    let backend = Backend::embedded(1).await;
    backend.create_topic(TOPIC, 1, 1).await;
    send(&backend, "common", COMMON).await;
    let config = |group: &str, automatic: bool| {
        ConsumerConfig::new(backend.bootstrap())
            .group_id(group)
            .auto_offset_reset(OffsetReset::Earliest)
            .enable_auto_commit(automatic)
    };
    for group in ["sync", "async", "automatic", "transactional"] {
        let mut consumer = Consumer::new(config(group, group == "automatic")).unwrap();
        consumer.assign([at()]);
        let mut last = None;
        let mut next = BTreeMap::new();
        while last.is_none_or(|(offset, _)| offset < COMMON - 1) {
            let records = consumer.poll(LIMIT).await.unwrap();
            next = records.next_offsets();
            last = records.last().map(|record| (record.offset(), record.leader_epoch()));
        }
        match group {
            "sync" => consumer.commit().await.unwrap(),
            "async" => consumer.commit_nowait().unwrap().await.unwrap(),
            "transactional" => {
                let config = ProducerConfig::new(backend.bootstrap()).transactional_id(group);
                let mut producer = TransactionalProducer::new(config).unwrap();
                producer.init_transactions().await.unwrap();
                let transaction = producer.begin_transaction().await.unwrap();
                let metadata = consumer.group_metadata().unwrap();
                transaction.send_offsets_to_transaction(next, &metadata).await.unwrap();
                transaction.commit().await.unwrap();
            }
            _ => {}
        }
        consumer.close().await;
        let reader = Consumer::new(config(group, false)).unwrap();
        let committed = reader.committed(&[at()]).await.unwrap().remove(&at()).flatten().unwrap();
        let (_, epoch) = last.unwrap();
        assert!(epoch.is_some());
        assert_eq!((committed.offset, committed.leader_epoch), (COMMON, epoch), "{group}");
    }
}
