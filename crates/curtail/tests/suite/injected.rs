//! Faults of the embedded cluster, as applications see them through the client.

use std::time::Duration;

use curtail::{Consumer, ConsumerConfig, Record, TopicPartition};
use curtail_cluster::{
    ApiKey, Cluster, ClusterConfig, Cut, Disconnect, ErrorCode, Fault, Requests, When,
};

use crate::common::{Backend, producer, read_all, until};

async fn with_topic(brokers: u32) -> Backend {
    let shrinks_soon = |config: &mut ClusterConfig| {
        config.replica_lag_time_max = Duration::from_secs(1);
    };
    let backend = Backend::embedded_with(brokers, shrinks_soon).await;
    backend.create_topic("t", 1, brokers as i16).await;
    backend
}

fn cluster(backend: &Backend) -> &Cluster {
    let Backend::Embedded(cluster) = backend else { unreachable!("made so") };
    cluster
}

fn hits(cluster: &Cluster, name: &str) -> u64 {
    cluster.faults().into_iter().find(|fault| fault.name == name).expect("it is listed").hits
}

/// Each fault meets a record that the producer sends again, and none of them duplicates it.
#[tokio::test]
async fn records_are_written_once_whatever_happens_to_their_requests() {
    let backend = with_topic(1).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[("linger.ms", "0"), ("request.timeout.ms", "1000")]);
    producer.warm_up(&["t"]).await.unwrap();
    let produce = || Requests::of(ApiKey::PRODUCE);
    let partly = Disconnect { requests: produce().times(2), when: When::Response, after_bytes: 7 };
    let faults = [
        Fault::error(produce().times(2), ErrorCode::NOT_LEADER_OR_FOLLOWER),
        Fault::error(produce().times(2), ErrorCode::NOT_ENOUGH_REPLICAS),
        Fault::error(produce().times(1), ErrorCode::REQUEST_TIMED_OUT),
        Fault::disconnect(produce().times(2), When::Request),
        Fault::disconnect(produce().times(2), When::Response),
        Fault::Disconnect(partly),
        Fault::silence(produce().times(1)),
    ];
    for (fault, n) in faults.into_iter().zip(0_u8..) {
        let text = format!("{fault:?}");
        let name = cluster.inject(fault).unwrap();
        let sent = producer.send(Record::to("t").value(&[n])).await.unwrap().await.unwrap();
        assert_eq!(sent.offset, Some(i64::from(n)), "{text}");
        assert!(hits(cluster, &name) > 0, "{text}");
        cluster.lift(&name);
    }
    let read = read_all(&backend, "t", 1).await.remove(&0).unwrap();
    let values: Vec<u8> = read.iter().map(|record| record.value().unwrap()[0]).collect();
    assert_eq!(values, [0, 1, 2, 3, 4, 5, 6]);
}

/// A final error reaches the application under its name.
#[tokio::test]
async fn an_injected_final_error_fails_its_record_and_no_other() {
    let backend = with_topic(1).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[]);
    let once = Requests::of(ApiKey::PRODUCE).times(1);
    cluster.inject(Fault::error(once, ErrorCode::INVALID_TOPIC_EXCEPTION)).unwrap();
    let refused = producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::INVALID_TOPIC_EXCEPTION));
    producer.send(Record::to("t").value("b")).await.unwrap().await.unwrap();
}

fn member(backend: &Backend) -> Consumer {
    let mut config = ConsumerConfig::new(backend.bootstrap());
    for (name, value) in [
        ("group.id", "g"),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
        ("heartbeat.interval.ms", "100"),
        ("session.timeout.ms", "6000"),
    ] {
        config.set(name, value).unwrap();
    }
    Consumer::new(config).unwrap()
}

async fn next(consumer: &mut Consumer) -> Vec<i64> {
    loop {
        let records = consumer.poll(Duration::from_secs(30)).await.unwrap();
        let offsets: Vec<i64> = records.into_iter().map(|record| record.offset()).collect();
        if !offsets.is_empty() {
            return offsets;
        }
    }
}

#[tokio::test]
async fn a_group_outlasts_errors_of_its_coordinator() {
    let backend = with_topic(1).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[]);
    producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap();
    let mut names = Vec::new();
    for (api, code) in [
        (ApiKey::FIND_COORDINATOR, ErrorCode::COORDINATOR_NOT_AVAILABLE),
        (ApiKey::JOIN_GROUP, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey::SYNC_GROUP, ErrorCode::REBALANCE_IN_PROGRESS),
        (ApiKey::OFFSET_FETCH, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey::LIST_OFFSETS, ErrorCode::LEADER_NOT_AVAILABLE),
        (ApiKey::FETCH, ErrorCode::UNKNOWN_LEADER_EPOCH),
        (ApiKey::OFFSET_COMMIT, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
    ] {
        names.push(cluster.inject(Fault::error(Requests::of(api).times(1), code)).unwrap());
    }
    let mut consumer = member(&backend);
    consumer.subscribe(["t"]).unwrap();
    assert_eq!(next(&mut consumer).await, [0]);
    consumer.commit().await.unwrap();
    assert!(names.iter().all(|name| hits(cluster, name) == 1), "{:?}", cluster.faults());
    // The member joins again, and continues after its record.
    let again = Requests::of(ApiKey::HEARTBEAT).times(1);
    let name = cluster.inject(Fault::error(again, ErrorCode::UNKNOWN_MEMBER_ID)).unwrap();
    let joined = cluster.inject(Fault::error(
        Requests::of(ApiKey::JOIN_GROUP).times(1),
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
    ));
    let joined = joined.unwrap();
    producer.send(Record::to("t").value("b")).await.unwrap().await.unwrap();
    while hits(cluster, &name) + hits(cluster, &joined) < 2 {
        consumer.poll(Duration::from_millis(10)).await.unwrap();
    }
    drop(consumer);
    let mut consumer = member(&backend);
    consumer.subscribe(["t"]).unwrap();
    assert_eq!(next(&mut consumer).await, [1]);
    consumer.close().await;
}

/// The client works with the versions of old releases.
#[tokio::test]
async fn every_kafka_release_is_served() {
    let backend = with_topic(1).await;
    let cluster = cluster(&backend);
    for release in ["0.11", "1.0", "1.1", "2.0", "2.3", "2.4", "2.8", "3.0", "3.9", "4.0", "4.3"] {
        let name = cluster.inject(Fault::kafka_version(release.parse().unwrap())).unwrap();
        let producer = producer(&backend, &[]);
        let sent = producer.send(Record::to("t").value(release)).await.unwrap();
        let offset =
            sent.await.unwrap_or_else(|error| panic!("{release}: {error}")).offset.unwrap();
        let mut consumer = Consumer::new(ConsumerConfig::new(backend.bootstrap())).unwrap();
        consumer.assign([TopicPartition::new("t", 0)]);
        consumer.seek(&TopicPartition::new("t", 0), offset).unwrap();
        assert_eq!(next(&mut consumer).await, [offset], "{release}");
        consumer.close().await;
        cluster.lift(&name);
    }
}

/// Brokers that are cut from each other keep the client's records, once the in-sync replicas have shrunk.
#[tokio::test]
async fn a_producer_outlasts_a_cut_between_brokers() {
    let backend = with_topic(2).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[]);
    producer.warm_up(&["t"]).await.unwrap();
    let cut = Cut { between: [1, 2] };
    let name = cluster.inject(Fault::Cut(cut)).unwrap();
    producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap();
    assert_eq!(cluster.isr("t", 0).unwrap().len(), 1);
    cluster.lift(&name);
    until("the follower returns", || cluster.isr("t", 0).unwrap().len() == 2).await;
}
