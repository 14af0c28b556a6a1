//! Topics, their partitions and records.

use std::time::SystemTime;

use curtail::{
    ConsumerRecord, Error, ErrorCode, Record, Uuid,
    admin::{Mode, NewPartitions, NewTopic, OffsetSpec, TopicDescription},
    config::IsolationLevel,
};

use super::{Backend, admin, at, code, common, only, until};

/// Returns a topic once all its partitions have leaders.
pub(super) async fn described(
    backend: &Backend,
    name: &str,
    partitions: usize,
) -> TopicDescription {
    let admin = admin(backend);
    let ready = |found: &Result<TopicDescription, Error>| match found {
        Ok(topic) => {
            topic.partitions.len() == partitions
                && topic.partitions.iter().all(|p| p.leader.is_some())
        }
        Err(Error::UnknownTopic(_)) => false,
        Err(other) => panic!("{other}"),
    };
    let ask = async || only(admin.describe_topics(&[name]).await.unwrap());
    until(ask, ready).await.unwrap()
}

/// A timestamp within `retention.ms`, in milliseconds.
fn recent() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap() - 60_000
}

/// Writes records with timestamps to partition 0, one batch each.
async fn fill(backend: &Backend, topic: &str, timestamps: &[i64]) {
    let producer = common::producer(backend, &[]);
    for timestamp in timestamps {
        let record = Record::to(topic).partition(0).value("x").timestamp(*timestamp);
        producer.send(record).await.unwrap().await.unwrap();
    }
    producer.close().await.unwrap();
}

pub(super) async fn come_and_go(backend: &Backend) {
    let admin = admin(backend);
    let wanted = [
        NewTopic::new("three").partitions(3).replication_factor(3),
        NewTopic::new("settings").partitions(1).config("retention.ms", "3600000"),
        NewTopic::new("no/such/name"),
        NewTopic::new("too-many").replication_factor(77),
    ];
    let created = admin.create_topics(&wanted).await.unwrap();
    let names: Vec<&str> = created.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["three", "settings", "no/such/name", "too-many"]);
    assert!(created[0].1.is_ok() && created[1].1.is_ok(), "{created:?}");
    assert_eq!(code(&created[2].1), ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(code(&created[3].1), ErrorCode::INVALID_REPLICATION_FACTOR);
    let again = admin.create_topics(&wanted[..1]).await.unwrap();
    assert_eq!(code(&only(again)), ErrorCode::TOPIC_ALREADY_EXISTS);

    let missing = only(admin.describe_topics(&["missing"]).await.unwrap());
    assert!(matches!(missing, Err(Error::UnknownTopic(_))), "{missing:?}");
    let described = described(backend, "three", 3).await;
    assert!(described.id.is_some());
    for (index, partition) in described.partitions.iter().enumerate() {
        assert_eq!(partition.partition, index as i32);
        assert_eq!(partition.replicas.len(), 3);
        assert!(partition.leader.is_some_and(|leader| partition.replicas.contains(&leader)));
    }
    let ask = async || admin.list_topics().await.unwrap();
    let listed = until(ask, |listed| listed.len() == 2).await;
    let names: Vec<&str> = listed.iter().map(|topic| topic.name.as_str()).collect();
    assert_eq!(names, ["settings", "three"]);

    let deleted = admin.delete_topics(&["settings", "missing"]).await.unwrap();
    assert!(deleted[0].1.is_ok(), "{deleted:?}");
    assert!(matches!(deleted[1].1, Err(Error::UnknownTopic(_))), "{deleted:?}");

    let id = described.id.unwrap();
    let ask = async || only(admin.describe_topics_by_id(&[id]).await.unwrap());
    let by_id = until(ask, Result::is_ok).await.unwrap();
    assert_eq!((by_id.name.as_str(), by_id.id, by_id.partitions.len()), ("three", Some(id), 3));
    let absent = Uuid([7; 16]);
    let unknown = only(admin.describe_topics_by_id(&[absent]).await.unwrap());
    assert_eq!(code(&unknown), ErrorCode::UNKNOWN_TOPIC_ID);
    let deleted = admin.delete_topics_by_id(&[absent, id]).await.unwrap();
    assert_eq!((deleted[0].0, code(&deleted[0].1)), (absent, ErrorCode::UNKNOWN_TOPIC_ID));
    assert!(deleted[1].0 == id && deleted[1].1.is_ok(), "{deleted:?}");
    // The next topic of this name is another one.
    let again = NewTopic::new("three").partitions(1);
    until(
        async || only(admin.create_topics(std::slice::from_ref(&again)).await.unwrap()),
        Result::is_ok,
    )
    .await
    .unwrap();
    let gone = only(admin.delete_topics_by_id(&[id]).await.unwrap());
    assert_eq!(code(&gone), ErrorCode::UNKNOWN_TOPIC_ID);
    let successor = super::topics::described(backend, "three", 1).await.id.unwrap();
    assert_ne!(successor, id);
    // Repeated ids have one result, and zero is no id.
    let ids = [successor, Uuid::ZERO, successor];
    let ask = async || admin.describe_topics_by_id(&ids).await.unwrap();
    let found = until(ask, |found| found[0].1.is_ok()).await;
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids[..2]);
    assert_eq!(code(&found[1].1), ErrorCode::UNKNOWN_TOPIC_ID);
    let zero = only(admin.delete_topics_by_id(&[Uuid::ZERO]).await.unwrap());
    assert_eq!(code(&zero), ErrorCode::UNKNOWN_TOPIC_ID);
}

pub(super) async fn the_cluster_is_described(backend: &Backend) {
    let cluster = admin(backend).describe_cluster().await.unwrap();
    assert_eq!(cluster.brokers.len(), 3);
    assert!(cluster.cluster_id.is_some() && cluster.controller.is_some());
    for broker in &cluster.brokers {
        let address = format!("{}:{}", broker.host, broker.port);
        assert!(backend.bootstrap().contains(&address), "{address}");
    }
}

pub(super) async fn records_are_deleted(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("cut", 2, 3).await;
    fill(backend, "cut", &[recent(); 10]).await;
    let cut = [(at("cut", 0), 4), (at("cut", 1), 0), (at("cut", 7), 0), (at("none", 0), 0)];
    let cut = admin.delete_records(&cut).await.unwrap();
    assert_eq!(cut[0].1.as_ref().unwrap(), &4);
    assert_eq!(cut[1].1.as_ref().unwrap(), &0);
    assert!(matches!(cut[2].1, Err(Error::UnknownPartition { partitions: 2, .. })), "{cut:?}");
    assert!(matches!(cut[3].1, Err(Error::UnknownTopic(_))), "{cut:?}");
    let beyond = admin.delete_records(&[(at("cut", 0), 99)]).await.unwrap();
    assert_eq!(code(&only(beyond)), ErrorCode::OFFSET_OUT_OF_RANGE);

    // Every replica has deleted the records: the next leader begins there, too.
    let leader = described(backend, "cut", 2).await.partitions[0].leader.unwrap();
    backend.kill(leader);
    let first = (at("cut", 0), OffsetSpec::Earliest);
    let found = admin.list_offsets(&[first], IsolationLevel::ReadUncommitted).await.unwrap();
    assert_eq!(only(found).unwrap().offset, Some(4));
    // A restart does not change that.
    backend.restart(leader).await;
    let ask = async || described(backend, "cut", 2).await;
    until(ask, |topic| topic.partitions[0].isr.contains(&leader)).await;
    let records = common::read_all(backend, "cut", 2).await;
    let offsets: Vec<i64> = records[&0].iter().map(ConsumerRecord::offset).collect();
    assert_eq!(offsets, [4, 5, 6, 7, 8, 9]);
    let all = admin.delete_records(&[(at("cut", 0), -1)]).await.unwrap();
    assert_eq!(only(all).unwrap(), 10);
}

pub(super) async fn offsets_are_listed(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("times", 2, 3).await;
    let begin = recent();
    let newest_time = begin + 3000;
    fill(backend, "times", &[begin + 1000, newest_time, begin + 2000]).await;
    let list = async |spec| {
        let wanted = [(at("times", 0), spec)];
        let listed = admin.list_offsets(&wanted, IsolationLevel::ReadCommitted).await.unwrap();
        only(listed).unwrap()
    };
    assert_eq!(list(OffsetSpec::Earliest).await.offset, Some(0));
    assert_eq!(list(OffsetSpec::Latest).await.offset, Some(3));
    let newest = list(OffsetSpec::MaxTimestamp).await;
    assert_eq!((newest.offset, newest.timestamp), (Some(1), Some(newest_time)));
    let found = list(OffsetSpec::Timestamp(begin + 1500)).await;
    assert_eq!((found.offset, found.timestamp), (Some(1), Some(newest_time)));
    assert_eq!(list(OffsetSpec::Timestamp(newest_time + 1)).await.offset, None);
    assert_eq!(list(OffsetSpec::EarliestLocal).await.offset, Some(0));
    assert_eq!(list(OffsetSpec::LatestTiered).await.offset, None);

    let several = [
        (at("times", 1), OffsetSpec::Latest),
        (at("times", 5), OffsetSpec::Latest),
        (at("times", 0), OffsetSpec::Latest),
    ];
    let listed = admin.list_offsets(&several, IsolationLevel::ReadUncommitted).await.unwrap();
    let keys: Vec<_> = listed.iter().map(|(at, _)| at.partition).collect();
    assert_eq!(keys, [1, 5, 0], "in the order asked");
    assert_eq!(listed[0].1.as_ref().unwrap().offset, Some(0));
    assert!(matches!(listed[1].1, Err(Error::UnknownPartition { .. })), "{listed:?}");
    assert_eq!(listed[2].1.as_ref().unwrap().offset, Some(3));
}

pub(super) async fn partitions_are_added(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("growing", 2, 3).await;
    let grow =
        async |new: NewPartitions, mode| only(admin.create_partitions(&[new], mode).await.unwrap());
    let to = |total| NewPartitions::new("growing", total);
    grow(to(4), Mode::Validate).await.unwrap();
    assert_eq!(described(backend, "growing", 2).await.partitions.len(), 2);
    assert_eq!(code(&grow(to(2), Mode::Apply).await), ErrorCode::INVALID_PARTITIONS);
    assert_eq!(code(&grow(to(1), Mode::Apply).await), ErrorCode::INVALID_PARTITIONS);
    let narrow = to(3).replicas([vec![1, 2]]);
    assert_eq!(code(&grow(narrow, Mode::Apply).await), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    let few = to(4).replicas([vec![1, 2, 3]]);
    assert_eq!(code(&grow(few, Mode::Apply).await), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    let unknown = grow(NewPartitions::new("missing", 3), Mode::Apply).await;
    assert!(matches!(unknown, Err(Error::UnknownTopic(_))), "{unknown:?}");

    grow(to(4).replicas([vec![3, 1, 2], vec![2, 3, 1]]), Mode::Apply).await.unwrap();
    grow(to(6), Mode::Apply).await.unwrap();
    let grown = described(backend, "growing", 6).await;
    assert_eq!(grown.partitions[2].replicas, [3, 1, 2]);
    assert_eq!(grown.partitions[3].replicas, [2, 3, 1]);
    assert_eq!(grown.partitions[5].replicas.len(), 3);
    let producer = common::producer(backend, &[]);
    let sent = producer.send(Record::to("growing").partition(5).value("x")).await.unwrap();
    assert_eq!(sent.await.unwrap().offset, Some(0));
}
