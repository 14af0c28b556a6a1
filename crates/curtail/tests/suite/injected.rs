//! Faults of the embedded cluster, as applications see them through the client.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use curtail::{Consumer, ConsumerConfig, Record, TopicPartition};
use curtail_cluster::{
    ApiKey, Cluster, ClusterConfig, CoordinatorKey, Cut, CutClients, Direction, Disconnect,
    ErrorCode, Fault, HandledRequest, Observer, OnBroker, Requests, SlowDisk, Time, When,
    WrongLeader,
};
use tokio::time::Instant;

use crate::common::{Backend, producer, read_all, read_past_damage, until};

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

/// Counts the connections that clients have opened since it observes.
#[derive(Default)]
struct Dials(AtomicUsize);

impl Observer for Dials {
    fn appended(&self, _: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {}

    fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {}

    fn handled(&self, request: &HandledRequest<'_>) {
        let is_first = request.api == ApiKey::API_VERSIONS;
        self.0.fetch_add(usize::from(is_first), Ordering::Relaxed);
    }
}

/// The broker applies the request, and the producer dials again, also without a response. Once the cut
/// ends, the record is there once.
#[tokio::test]
async fn a_producer_outlasts_a_cut_of_its_responses() {
    let backend = with_topic(1).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[("linger.ms", "0"), ("request.timeout.ms", "300")]);
    producer.warm_up(&["t"]).await.unwrap();
    let dials = Arc::new(Dials::default());
    cluster.observe(dials.clone());
    let cut = CutClients { direction: Direction::Out, ..CutClients::default() };
    let name = cluster.inject(Fault::CutClients(cut)).unwrap();
    let sent = producer.send(Record::to("t").value("a")).await.unwrap();
    until("the producer dials again", || dials.0.load(Ordering::Relaxed) > 1).await;
    cluster.lift(&name);
    assert_eq!(sent.await.unwrap().offset, Some(0));
    producer.send(Record::to("t").value("b")).await.unwrap().await.unwrap();
    assert_eq!(read_all(&backend, "t", 1).await[&0].len(), 2);
}

#[tokio::test]
async fn records_pass_a_slow_connection_and_a_slow_disk() {
    let backend = with_topic(1).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[("linger.ms", "0")]);
    producer.warm_up(&["t"]).await.unwrap();
    let slow = Duration::from_millis(300);
    let disk = SlowDisk { broker: 1, time: Time::Fixed(slow) };
    let value = vec![b'v'; 15_000];
    for (fault, n) in [Fault::throttle(50_000), Fault::SlowDisk(disk)].into_iter().zip(0..) {
        let name = cluster.inject(fault).unwrap();
        let begun = Instant::now();
        let sent = producer.send(Record::to("t").value(&value)).await.unwrap().await.unwrap();
        assert_eq!(sent.offset, Some(n));
        assert!(begun.elapsed() >= slow, "{:?}", begun.elapsed());
        cluster.lift(&name);
    }
}

/// Acknowledged records survive the broker whose disk is full, and the next ones go to another leader.
#[tokio::test]
async fn a_producer_outlasts_a_full_disk() {
    let backend = with_topic(3).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[("acks", "all")]);
    producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap();
    let broker = cluster.leader("t", 0).unwrap().0;
    cluster.inject(Fault::FullDisk(OnBroker { broker })).unwrap();
    let sent = producer.send(Record::to("t").value("b")).await.unwrap().await.unwrap();
    assert_eq!(sent.offset, Some(1));
    assert_ne!(cluster.leader("t", 0).unwrap().0, broker);
    assert!(!cluster.broker(broker).unwrap().is_up());
    cluster.lift_all();
    cluster.restart(broker).await.unwrap();
    until("the replica returns", || cluster.isr("t", 0).unwrap().len() == 3).await;
}

/// The client reports the damage, and reads the record when it arrives whole.
#[tokio::test]
async fn a_consumer_detects_a_damaged_batch() {
    let backend = with_topic(1).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[]);
    producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap();
    let name = cluster.inject(Fault::corrupt(Requests::all().on_topic("t").times(2))).unwrap();
    let (damaged, first) = read_past_damage(backend.bootstrap(), "t").await;
    assert_eq!((damaged, hits(cluster, &name)), (2, 2));
    assert_eq!(first, b"a");
}

/// As in Java, a hint counts if its epoch is later than the known one.
#[tokio::test]
async fn a_producer_ignores_hints_that_are_not_later() {
    let backend = with_topic(2).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[("linger.ms", "0")]);
    producer.warm_up(&["t"]).await.unwrap();
    let leader = cluster.leader("t", 0).unwrap().0;
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (hint, n) in [
        WrongLeader { leader: Some(3 - leader), ..WrongLeader::default() },
        WrongLeader { leader: Some(3 - leader), epoch_shift: -1, ..WrongLeader::default() },
        WrongLeader { leader: Some(9), address: Some(unused), ..WrongLeader::default() },
    ]
    .into_iter()
    .zip(0..)
    {
        let text = format!("{hint:?}");
        inject_hint(cluster, hint);
        let sent = producer.send(Record::to("t").value("a")).await.unwrap().await;
        let sent = sent.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((sent.offset, hits(cluster, "hint")), (Some(n), 1), "{text}");
        cluster.lift_all();
    }
}

/// Refuses the next Produce request with a wrong hint.
fn inject_hint(cluster: &Cluster, mut hint: WrongLeader) {
    let requests = Requests::of(ApiKey::PRODUCE).times(1);
    hint.requests = requests.clone();
    cluster.inject(Fault::WrongLeader(hint).named("hint")).unwrap();
    cluster.inject(Fault::error(requests, ErrorCode::NOT_LEADER_OR_FOLLOWER)).unwrap();
}

/// It follows a hint with a later epoch until the cluster has reached that epoch.
#[tokio::test]
async fn a_producer_recovers_from_a_later_hint_with_the_next_election() {
    let backend = with_topic(2).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[("linger.ms", "0")]);
    producer.warm_up(&["t"]).await.unwrap();
    let other = 3 - cluster.leader("t", 0).unwrap().0;
    let hint = WrongLeader { leader: Some(other), epoch_shift: 1, ..WrongLeader::default() };
    inject_hint(cluster, hint);
    let sent = producer.send(Record::to("t").value("a")).await.unwrap();
    until("the hint was given", || hits(cluster, "hint") == 1).await;
    cluster.move_leader("t", 0, other).unwrap();
    assert_eq!(sent.await.unwrap().offset, Some(0));
}

#[tokio::test]
async fn a_producer_outlasts_brokers_that_forget_it() {
    let backend = with_topic(2).await;
    let cluster = cluster(&backend);
    let producer = producer(&backend, &[]);
    for n in 0..3 {
        let sent = producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap();
        assert_eq!(sent.offset, Some(n));
        assert_eq!(cluster.expire_producer_ids("t", 0), Some(1));
    }
}

#[tokio::test]
async fn a_group_follows_its_coordinator() {
    let backend = with_topic(2).await;
    let cluster = cluster(&backend);
    let group = CoordinatorKey::Group("g".to_owned());
    assert_eq!(
        cluster.move_coordinator(&group, 1).unwrap_err().to_string(),
        "__consumer_offsets does not exist until a client asks for a coordinator"
    );
    let producer = producer(&backend, &[]);
    let mut consumer = member(&backend);
    consumer.subscribe(["t"]).unwrap();
    for (broker, n) in [(1, 0), (2, 1), (1, 2)] {
        producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap();
        assert_eq!(next(&mut consumer).await, [n]);
        consumer.commit().await.unwrap();
        cluster.move_coordinator(&group, broker).unwrap();
    }
    consumer.close().await;
}
