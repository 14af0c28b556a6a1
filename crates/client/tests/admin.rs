//! The admin client, on the embedded cluster and on Apache Kafka.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Backend;
use curtail::{Admin, AdminConfig, Error, ErrorCode, NewTopic, Record, TopicPartition};

async fn topics_come_and_go(backend: Backend, replicas: i16) {
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let wanted = [
        NewTopic::new("three").partitions(3).replication_factor(replicas),
        NewTopic::new("settings").partitions(1).config("retention.ms", "3600000"),
        NewTopic::new("no/such/name"),
        NewTopic::new("too-many").replication_factor(77),
    ];
    let created = admin.create_topics(&wanted).await.unwrap();
    let names: Vec<&str> = created.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["three", "settings", "no/such/name", "too-many"]);
    assert!(created[0].1.is_ok() && created[1].1.is_ok(), "{created:?}");
    let code = |at: usize| match &created[at].1 {
        Err(Error::Broker { code, .. }) => *code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(2), ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(code(3), ErrorCode::INVALID_REPLICATION_FACTOR);
    for (_, result) in &created[2..] {
        let text = result.as_ref().unwrap_err().to_string();
        assert!(!text.contains('\n'), "{text:?}");
    }
    let again = admin.create_topics(&wanted[..1]).await.unwrap();
    let Err(Error::Broker { code, .. }) = &again[0].1 else { panic!("{again:?}") };
    assert_eq!(*code, ErrorCode::TOPIC_ALREADY_EXISTS);

    // A broker may learn of a topic a moment after the controller.
    let described = loop {
        let mut all = admin.describe_topics(&["three", "missing"]).await.unwrap();
        let missing = all.remove(1).1;
        assert!(matches!(missing, Err(Error::UnknownTopic(_))), "{missing:?}");
        match all.remove(0).1 {
            Ok(topic) if topic.partitions.iter().all(|p| p.leader.is_some()) => break topic,
            Ok(_) | Err(Error::UnknownTopic(_)) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(described.partitions.len(), 3);
    assert!(described.id.is_some());
    for (index, partition) in described.partitions.iter().enumerate() {
        assert_eq!(partition.partition, index as i32);
        assert_eq!(partition.replicas.len(), replicas as usize);
        assert!(partition.leader.is_some_and(|leader| partition.replicas.contains(&leader)));
    }
    let listed: Vec<String> =
        admin.list_topics().await.unwrap().into_iter().map(|t| t.name).collect();
    assert_eq!(listed, ["settings", "three"]);

    let deleted = admin.delete_topics(&["settings", "missing"]).await.unwrap();
    assert!(deleted[0].1.is_ok(), "{deleted:?}");
    assert!(matches!(deleted[1].1, Err(Error::UnknownTopic(_))), "{deleted:?}");
}

async fn the_cluster_is_described(backend: Backend, brokers: usize) {
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let cluster = admin.describe_cluster().await.unwrap();
    assert_eq!(cluster.brokers.len(), brokers);
    assert!(cluster.cluster_id.is_some() && cluster.controller.is_some());
    for broker in &cluster.brokers {
        let address = format!("{}:{}", broker.host, broker.port);
        assert!(backend.bootstrap().contains(&address), "{address}");
    }
}

async fn records_are_deleted(backend: Backend) {
    backend.create_topic("cut", 2, 1).await;
    let producer = common::producer(&backend, &[]);
    let mut last = Vec::new();
    for _ in 0..10 {
        let record = Record::to("cut").partition(0).value("x");
        last.push(producer.send(record).await.unwrap());
    }
    for delivery in last {
        delivery.await.unwrap();
    }
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    let at = |partition| TopicPartition::new("cut", partition);
    let cut = admin.delete_records(&[(at(0), 4), (at(1), 0), (at(7), 0)]).await.unwrap();
    assert_eq!(cut[0].1.as_ref().unwrap(), &4);
    assert_eq!(cut[1].1.as_ref().unwrap(), &0);
    assert!(matches!(cut[2].1, Err(Error::UnknownPartition { partitions: 2, .. })), "{cut:?}");
    let beyond = admin.delete_records(&[(at(0), 99)]).await.unwrap();
    let Err(Error::Broker { code, .. }) = &beyond[0].1 else { panic!("{beyond:?}") };
    assert_eq!(*code, ErrorCode::OFFSET_OUT_OF_RANGE);
    let all = admin.delete_records(&[(at(0), -1)]).await.unwrap();
    assert_eq!(all[0].1.as_ref().unwrap(), &10);
}

#[tokio::test]
async fn topics_come_and_go_embedded() {
    topics_come_and_go(Backend::embedded(3).await, 3).await;
}

#[tokio::test]
async fn topics_come_and_go_apache() {
    let Some(backend) = Backend::apache("topics_come_and_go_apache", 1) else { return };
    topics_come_and_go(backend, 1).await;
}

#[tokio::test]
async fn the_cluster_is_described_embedded() {
    the_cluster_is_described(Backend::embedded(3).await, 3).await;
}

#[tokio::test]
async fn the_cluster_and_deleted_records_apache() {
    let name = "the_cluster_and_deleted_records_apache";
    let Some(backend) = Backend::apache(name, 1) else { return };
    let admin = Admin::new(AdminConfig::new(backend.bootstrap())).unwrap();
    assert_eq!(admin.describe_cluster().await.unwrap().brokers.len(), 1);
    records_are_deleted(backend).await;
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let admin = Admin::new(AdminConfig::new("127.0.0.1:1")).unwrap();
    let error = admin.list_topics().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1") && !text.contains('\n'), "{text}");
}
