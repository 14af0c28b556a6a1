//! Keyless records and unavailable brokers, against the embedded cluster. Each of three brokers has one partition
//! without replicas, so records for a dead broker wait indefinitely.

use std::time::{Duration, Instant};

use crate::common::{Backend, producer, read_all, until};
use curtail::{
    Delivery, Error, Producer, ProducerConfig, Record, RecordMetadata,
    metrics::BrokerMetrics,
    producer::{Partitioner, TopicPartitions},
};
use curtail_cluster::Cluster;
use tokio::{task::JoinSet, time::timeout};

const TOPIC: &str = "routed";
const OTHER: &str = "other";

async fn three_brokers() -> Backend {
    let backend = Backend::embedded(3).await;
    backend.create_topic(TOPIC, 3, 1).await;
    backend
}

/// The API key of Produce.
const PRODUCE: i16 = 0;

/// The API key of Fetch, which followers send.
const FETCH: i16 = 1;

/// Longer than any test.
const PATIENT: Duration = Duration::from_secs(600);

/// Three brokers that stay in the cluster and in sync, whatever they do.
async fn patient_brokers() -> Backend {
    Backend::embedded_with(3, |config| {
        config.broker_session_timeout = PATIENT;
        config.replica_lag_time_max = PATIENT;
    })
    .await
}

/// Each record is a batch, which waits for its broker. Moves of leaders are learned from metadata.
const PATIENT_BATCHES: [(&str, &str); 5] = [
    ("batch.size", "1"),
    ("delivery.timeout.ms", "120000"),
    ("request.timeout.ms", "100000"),
    ("metadata.max.age.ms", "100"),
    ("curtail.suspicion.enable", "false"),
];

/// The leader of a partition.
fn leader(backend: &Backend, partition: i32) -> i32 {
    let Backend::Embedded(cluster) = backend else { unreachable!("embedded") };
    cluster.leader(TOPIC, partition).expect("a leader").0
}

async fn acknowledged(delivery: Delivery) -> RecordMetadata {
    let limit = Duration::from_secs(60);
    timeout(limit, delivery).await.expect("no record waits").expect("written")
}

/// Sends a record to each of the first partitions, so that every broker is connected and known.
async fn greet(producer: &Producer, partitions: i32) {
    producer.warm_up(&[TOPIC]).await.expect("the leaders answer");
    for partition in 0..partitions {
        let record = Record::to(TOPIC).partition(partition).value("hello");
        acknowledged(producer.send(record).await.expect("sent")).await;
    }
}

async fn send_keyless(producer: &Producer, records: u32) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    for _ in 0..records {
        let record = Record::to(TOPIC).value("keyless");
        deliveries.push(producer.send(record).await.expect("there is room"));
    }
    deliveries
}

/// Number of records without an outcome.
fn outstanding(deliveries: &[Delivery]) -> usize {
    deliveries.iter().filter(|delivery| delivery.outcome().is_none()).count()
}

/// Whether a record that this broker refuses is back in its queue. A refusal is counted just before that, so this
/// waits for the second.
fn is_refused_again(producer: &Producer, broker: i32) -> bool {
    producer.metrics().brokers.get(&broker).is_some_and(|broker| broker.record_retry_total > 1)
}

/// Awaits a delivery on a separate task, with the record's number.
fn watch(done: &mut JoinSet<(u32, RecordMetadata)>, number: u32, delivery: Delivery) {
    done.spawn(async move { (number, acknowledged(delivery).await) });
}

/// Records of 120 that a broker acknowledges which is slow by `delay`, one of three, with each record awaited.
async fn records_at_a_slow_broker(load: &str, delay: Duration) -> usize {
    let backend = three_brokers().await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let slow = leader(&backend, 0);
    cluster.delay(Some(slow), Some(PRODUCE), delay);
    let producer = producer(
        &backend,
        &[
            ("curtail.partitioner.load", load),
            ("linger.ms", "0"),
            // The choice moves on after every record.
            ("batch.size", "1"),
        ],
    );
    greet(&producer, 3).await;
    let mut at_slow = 0;
    for _ in 0..120 {
        let record = Record::to(TOPIC).value("keyless");
        let written = acknowledged(producer.send(record).await.expect("sent")).await;
        at_slow += usize::from(written.partition == 0);
    }
    at_slow
}

/// KIP-794: the queue of a broker that is slow and has little to do does not grow, so Java's weights leave it its third.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_broker_keeps_its_share_by_queued_batches_and_not_by_wait() {
    assert!(records_at_a_slow_broker("queued-batches", Duration::from_millis(20)).await > 12);
    // Longer than the pauses of a busy machine.
    assert!(records_at_a_slow_broker("wait", Duration::from_millis(200)).await < 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_avoid_a_dead_broker_and_bound_records_wait() {
    const RECORDS: u32 = 1500;
    let backend = three_brokers().await;
    let properties = [
        ("linger.ms", "20"),
        ("delivery.timeout.ms", "120000"),
        ("batch.max.size", "16384"),
        ("max.in.flight.requests.per.connection", "2"),
    ];
    let producer = producer(&backend, &properties);
    greet(&producer, 3).await;
    let dead = leader(&backend, 0);
    backend.kill(dead);
    let bound = Record::to(TOPIC).partition(0).value("bound");
    let bound = producer.send(bound).await.expect("there is room");
    let mut free = JoinSet::new();
    for n in 0..RECORDS {
        let value = [&n.to_be_bytes()[..], &[b'x'; 1000]].concat();
        let delivery = producer.send(Record::to(TOPIC).value(&value)).await.expect("there is room");
        watch(&mut free, n, delivery);
    }
    // While the broker is down, most keyless records must be acknowledged. The rest are two batches of 16 records,
    // which may have been sent before its end was known, and the batch of the bound record. If keyless records waited
    // for the broker, they would be a third.
    for _ in 0..RECORDS - 100 {
        free.join_next().await.expect("more records").expect("acknowledged");
    }
    assert!(bound.outcome().is_none(), "a bound record does not move");
    backend.restart(dead).await;
    assert_eq!(acknowledged(bound).await.partition, 0);
    while let Some(done) = free.join_next().await {
        done.expect("acknowledged");
    }
    producer.close().await.expect("closed");
    let mut numbers: Vec<Vec<u8>> = read_all(&backend, TOPIC, 3)
        .await
        .into_values()
        .flatten()
        .filter_map(|record| record.value().filter(|value| value.len() == 1004).map(<[u8]>::to_vec))
        .collect();
    numbers.sort();
    let numbers: Vec<&[u8]> = numbers.iter().map(|value| &value[..4]).collect();
    let sent: Vec<[u8; 4]> = (0..RECORDS).map(u32::to_be_bytes).collect();
    assert_eq!(numbers, sent, "every record is there once");
}

/// With acks=all a leader waits for an unresponsive replica, and serves no other request of the connection in that
/// time. The cluster keeps the replica in sync for longer than the test takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_avoid_partitions_with_an_unresponsive_replica() {
    const RECORDS: u32 = 1500;
    let backend = patient_brokers().await;
    backend.create_topic(TOPIC, 12, 2).await;
    let properties = [
        ("linger.ms", "20"),
        ("delivery.timeout.ms", "120000"),
        ("request.timeout.ms", "100000"),
        ("batch.max.size", "16384"),
        ("max.in.flight.requests.per.connection", "2"),
    ];
    let producer = producer(&backend, &properties);
    greet(&producer, 3).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let hung = leader(&backend, 0);
    cluster.freeze(hung);
    let mut free = JoinSet::new();
    for n in 0..RECORDS {
        let value = [&n.to_be_bytes()[..], &[b'x'; 1000]].concat();
        let delivery = producer.send(Record::to(TOPIC).value(&value)).await.expect("there is room");
        watch(&mut free, n, delivery);
    }
    // A third of the partitions have no replica on the unresponsive broker. Records sent to the others before that
    // was known wait: two requests with up to four batches of 16 records each on every connection. The rest go to
    // that third.
    for _ in 0..RECORDS - 400 {
        free.join_next().await.expect("more records").expect("acknowledged");
    }
    cluster.thaw(hung);
    while let Some(done) = free.join_next().await {
        done.expect("acknowledged");
    }
    producer.close().await.expect("closed");
    let read = read_all(&backend, TOPIC, 12).await;
    let mut numbers: Vec<[u8; 4]> = read
        .into_values()
        .flatten()
        .filter_map(|record| {
            record.value().filter(|value| value.len() == 1004)?.first_chunk().copied()
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(
        numbers,
        (0..RECORDS).map(u32::to_be_bytes).collect::<Vec<_>>(),
        "each is there once"
    );
}

/// A broker that refuses responds at once and so looks fast, but its partitions still wait for another attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_avoid_a_broker_that_refuses() {
    const RECORDS: u32 = 1000;
    let backend = Backend::embedded_with(3, |config| config.broker_session_timeout = PATIENT).await;
    backend.create_topic(TOPIC, 6, 3).await;
    // Each record is a batch, and the next one goes to another partition.
    let properties = [("batch.size", "1"), ("delivery.timeout.ms", "120000")];
    let producer = producer(&backend, &properties);
    greet(&producer, 3).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let (former, refuses) = (leader(&backend, 0), leader(&backend, 1));
    let third = (0..3).map(|p| leader(&backend, p)).find(|id| ![former, refuses].contains(id));
    let third = third.expect("each of three brokers leads one of the first partitions");
    let led_by =
        |broker| (0..6).filter(move |&p| cluster.leader(TOPIC, p).map(|l| l.0) == Some(broker));
    for partition in led_by(refuses).collect::<Vec<_>>() {
        cluster.move_leader(TOPIC, partition, third).expect("moved");
    }
    cluster.settled().await;
    // The broker never learns that it leads this partition. The previous leader must know, or it would accept the
    // bound record.
    cluster.freeze_metadata(refuses, true);
    cluster.move_leader(TOPIC, 0, refuses).expect("moved");
    cluster.settled().await;
    let bound = Record::to(TOPIC).partition(0).value("bound");
    let bound = producer.send(bound).await.expect("there is room");
    until("the bound record is refused again", || is_refused_again(&producer, refuses)).await;
    for _ in 0..RECORDS {
        let delivery =
            producer.send(Record::to(TOPIC).value("keyless")).await.expect("there is room");
        assert_ne!(acknowledged(delivery).await.partition, 0);
    }
    assert!(bound.outcome().is_none(), "a bound record does not move");
    cluster.freeze_metadata(refuses, false);
    assert_eq!(acknowledged(bound).await.partition, 0);
    producer.close().await.expect("closed");
}

/// For two partitions with two replicas each on three brokers: the broker that has both, and the other one of each.
fn shared_broker_and_others(cluster: &Cluster) -> (i32, [i32; 2]) {
    let replicas = [0, 1].map(|index| cluster.isr(TOPIC, index).expect("replicas"));
    let is_shared = |id: &&i32| replicas.iter().all(|of| of.contains(id));
    let shared = *replicas[0].iter().find(is_shared).expect("two of three brokers each");
    let others = [0, 1].map(|n: usize| *replicas[n].iter().find(|id| !is_shared(id)).expect("two"));
    (shared, others)
}

/// Two partitions on two brokers. The leaders of `unaware` partitions do not know that they lead, and refuse records
/// for them.
struct Two {
    backend: Backend,
    producer: Producer,
    leaders: [i32; 2],
    bound: Vec<Delivery>,
}

impl Two {
    async fn of_which(unaware: &[i32]) -> Self {
        let backend =
            Backend::embedded_with(3, |config| config.broker_session_timeout = PATIENT).await;
        backend.create_topic(TOPIC, 2, 2).await;
        // Each record is a batch, and the next one goes to another partition.
        let properties = [
            ("batch.size", "1"),
            ("delivery.timeout.ms", "120000"),
            ("request.timeout.ms", "100000"),
        ];
        let producer = producer(&backend, &properties);
        greet(&producer, 2).await;
        let mut two = Self { leaders: [0; 2], backend, producer, bound: Vec::new() };
        two.move_to_brokers_of_which(unaware).await;
        two
    }

    fn cluster(&self) -> &Cluster {
        let Backend::Embedded(cluster) = &self.backend else { unreachable!("embedded") };
        cluster
    }

    /// Moves both leaders to the broker that has replicas of both partitions, then each to one of the other brokers.
    /// Brokers of `unaware` partitions have frozen metadata. Returns once those refuse a record repeatedly.
    async fn move_to_brokers_of_which(&mut self, unaware: &[i32]) {
        let (former, leaders) = shared_broker_and_others(self.cluster());
        self.leaders = leaders;
        for partition in 0..2 {
            self.cluster().move_leader(TOPIC, partition, former).expect("moved");
        }
        self.cluster().settled().await;
        for (partition, to) in (0..).zip(self.leaders) {
            self.cluster().freeze_metadata(to, unaware.contains(&partition));
            self.cluster().move_leader(TOPIC, partition, to).expect("moved");
        }
        self.cluster().settled().await;
        for &partition in unaware {
            let record = Record::to(TOPIC).partition(partition).value("bound");
            self.bound.push(self.producer.send(record).await.expect("there is room"));
        }
        let is_back =
            |&partition: &i32| is_refused_again(&self.producer, self.leaders[partition as usize]);
        until("each is refused again", || unaware.iter().all(is_back)).await;
    }

    /// Ends all trouble.
    async fn recovers(self) {
        for id in self.leaders {
            self.cluster().freeze_metadata(id, false);
            self.cluster().thaw(id);
        }
        for delivery in self.bound {
            acknowledged(delivery).await;
        }
        self.producer.close().await.expect("closed");
    }
}

/// While every broker refuses, keyless records wait. The first broker that accepts records receives all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_leave_a_refusing_broker_once_another_accepts() {
    let two = Two::of_which(&[0, 1]).await;
    let keyless = send_keyless(&two.producer, 100).await;
    assert!(
        keyless.iter().all(|delivery| delivery.outcome().is_none()),
        "no broker accepts records"
    );
    two.cluster().freeze_metadata(two.leaders[1], false);
    for delivery in keyless {
        assert_eq!(acknowledged(delivery).await.partition, 1);
    }
    assert!(two.bound[0].outcome().is_none(), "a bound record does not move");
    two.recovers().await;
}

/// Batches sent to the previous leader after a refused batch follow it to the next leader. They do not wait for the
/// previous leader's responses, which must first complete another partition's request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_after_a_refused_one_do_not_wait_for_another_partition() {
    let backend = patient_brokers().await;
    backend.create_topic(TOPIC, 2, 2).await;
    // Each record is a batch and is sent at once, however many requests the broker has not served yet.
    let properties = [
        ("batch.size", "1"),
        ("request.timeout.ms", "100000"),
        ("delivery.timeout.ms", "120000"),
        ("curtail.suspicion.enable", "false"),
        ("curtail.latency.target.ms", "0"),
    ];
    let producer = producer(&backend, &properties);
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let (former, [next, frozen]) = shared_broker_and_others(cluster);
    for partition in 0..2 {
        cluster.move_leader(TOPIC, partition, former).expect("moved");
    }
    cluster.settled().await;
    greet(&producer, 2).await;
    cluster.freeze(former);
    cluster.freeze(frozen);
    let mut sent = Vec::new();
    for (requests, partition) in (1..).zip([0, 1, 0]) {
        let record = Record::to(TOPIC).partition(partition).value("bound");
        sent.push(producer.send(record).await.expect("there is room"));
        let in_flight = || producer.metrics().brokers.get(&former).map(|b| b.requests_in_flight);
        until("a separate request", || in_flight() == Some(requests)).await;
    }
    cluster.move_leader(TOPIC, 0, next).expect("moved");
    cluster.thaw(former);
    let (behind, waits) = (sent.pop().expect("three"), sent.remove(1));
    assert_eq!(acknowledged(sent.remove(0)).await.partition, 0);
    assert_eq!(acknowledged(behind).await.partition, 0);
    assert!(waits.outcome().is_none(), "its replica is frozen");
    cluster.thaw(frozen);
    acknowledged(waits).await;
    producer.close().await.expect("closed");
    let read = read_all(&backend, TOPIC, 2).await;
    assert_eq!((read[&0].len(), read[&1].len()), (3, 2), "each is there once");
}

/// A new leader whose followers do not fetch yet acknowledges no record. One batch detects that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_batch_of_keyless_records_tries_a_new_leader() {
    const RECORDS: u32 = 50;
    let backend = patient_brokers().await;
    backend.create_topic(TOPIC, 2, 2).await;
    // Each record is a batch, and the next one goes to another partition, however slow the brokers.
    let properties = [
        ("batch.size", "1"),
        ("partitioner.adaptive.partitioning.enable", "false"),
        ("metadata.max.age.ms", "100"),
        ("curtail.suspicion.enable", "false"),
    ];
    let producer = producer(&backend, &properties);
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let (former, [next, other]) = shared_broker_and_others(cluster);
    cluster.move_leader(TOPIC, 0, former).expect("moved");
    cluster.move_leader(TOPIC, 1, other).expect("moved");
    cluster.settled().await;
    greet(&producer, 2).await;
    cluster.move_leader(TOPIC, 0, next).expect("moved");
    let connections = || producer.metrics().brokers.get(&next).map(|b| b.connection_count);
    until("the producer knows the new leader", || connections() == Some(1)).await;
    cluster.settled().await;
    cluster.delay(Some(next), Some(FETCH), PATIENT);
    let deliveries = send_keyless(&producer, RECORDS).await;
    let waiting = || outstanding(&deliveries);
    until("at most one record waits for the new leader", || waiting() <= 1).await;
}

/// While no new leader acknowledges, every broker has a share of the records. They leave a broker that still does not
/// acknowledge for the first one that does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_leave_unproven_brokers_for_the_first_that_acknowledges() {
    const RECORDS: u32 = 50;
    let backend = patient_brokers().await;
    backend.create_topic(TOPIC, 2, 2).await;
    let producer = producer(&backend, &PATIENT_BATCHES);
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let (former, next) = shared_broker_and_others(cluster);
    for partition in 0..2 {
        cluster.move_leader(TOPIC, partition, former).expect("moved");
    }
    cluster.settled().await;
    greet(&producer, 2).await;
    for (partition, leader) in (0..).zip(next) {
        cluster.move_leader(TOPIC, partition, leader).expect("moved");
    }
    let gauge = |of: fn(&BrokerMetrics) -> u64| {
        let brokers = producer.metrics().brokers;
        next.map(|id| brokers.get(&id).map_or(0, of))
    };
    until("the producer knows the new leaders", || gauge(|b| b.connection_count) == [1, 1]).await;
    cluster.settled().await;
    cluster.delay(Some(next[0]), Some(FETCH), PATIENT);
    cluster.freeze(next[1]);
    let deliveries = send_keyless(&producer, RECORDS).await;
    until("both are tried", || gauge(|b| b.requests_in_flight as u64) == [1, 1]).await;
    assert!(deliveries.iter().all(|delivery| delivery.outcome().is_none()), "neither acknowledges");
    cluster.thaw(next[1]);
    let waiting = || outstanding(&deliveries);
    // One record tried the broker before, and one may try it now.
    until("at most two records wait for the other broker", || waiting() <= 2).await;
}

/// As above, where one of the brokers has been under trial since before the other one's leader moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_leave_a_broker_under_trial_for_the_first_that_acknowledges() {
    const RECORDS: u32 = 50;
    let backend = patient_brokers().await;
    backend.create_topic(TOPIC, 2, 2).await;
    let producer = producer(&backend, &PATIENT_BATCHES);
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let (former, [tried, other]) = shared_broker_and_others(cluster);
    cluster.move_leader(TOPIC, 0, former).expect("moved");
    cluster.move_leader(TOPIC, 1, other).expect("moved");
    cluster.settled().await;
    greet(&producer, 2).await;
    cluster.move_leader(TOPIC, 0, tried).expect("moved");
    let broker = |id: i32| producer.metrics().brokers.get(&id).cloned();
    let connections = || broker(tried).map(|b| b.connection_count);
    until("the producer knows the new leader", || connections() == Some(1)).await;
    cluster.settled().await;
    cluster.delay(Some(tried), Some(FETCH), PATIENT);
    let mut deliveries = send_keyless(&producer, 5).await;
    let is_busy = |id: i32| broker(id).is_some_and(|b| b.requests_in_flight > 0);
    until("one record tries the new leader", || is_busy(tried)).await;

    cluster.freeze(former);
    cluster.move_leader(TOPIC, 1, former).expect("moved");
    deliveries.extend(send_keyless(&producer, RECORDS).await);
    // Records that come before the producer knows this new leader have no other choice than the broker under trial.
    let holds = |id: i32| broker(id).is_some_and(|b| b.queue_bytes > 0 || b.requests_in_flight > 0);
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    let both_hold_some = async {
        while !(holds(former) && holds(tried)) {
            pace.tick().await;
            deliveries.extend(send_keyless(&producer, 1).await);
        }
    };
    tokio::time::timeout(PATIENT / 10, both_hold_some).await.expect("both have records");
    cluster.thaw(former);
    let waiting = || outstanding(&deliveries);
    // One record tried the broker before. A second later another one may.
    until("at most two records wait for the broker", || waiting() <= 2).await;
}

/// The first partition that is proven has everything that waits. A broker that acknowledges later takes its share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_shared_with_a_broker_that_is_proven_later() {
    const RECORDS: u32 = 60;
    let backend = patient_brokers().await;
    backend.create_topic(TOPIC, 2, 1).await;
    backend.create_topic(OTHER, 3, 1).await;
    let properties = [
        // Each record is a batch.
        ("batch.size", "1"),
        // A request in flight is all that a broker is sent, so what waits for it counts.
        ("max.in.flight.requests.per.connection", "1"),
        ("delivery.timeout.ms", "120000"),
        ("request.timeout.ms", "100000"),
        ("curtail.suspicion.enable", "false"),
    ];
    let producer = producer(&backend, &properties);
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let [first, second] = [0, 1].map(|partition| leader(&backend, partition));
    assert_ne!(first, second);
    let leads_other = |&partition: &i32| {
        let (leader, _) = cluster.leader(OTHER, partition).expect("a leader");
        leader != first && leader != second
    };
    let third = (0..3).find(leads_other).expect("a partition of the third broker");
    let record = Record::to(OTHER).partition(third).value("the producer has its id");
    acknowledged(producer.send(record).await.expect("sent")).await;
    producer.partitions_for(TOPIC).await.expect("partitions");
    let gauge = |broker: i32, of: fn(&BrokerMetrics) -> u64| {
        producer.metrics().brokers.get(&broker).map_or(0, of)
    };
    let is_connected = |broker| gauge(broker, |b| b.connection_count) == 1;
    until("both are connected", || is_connected(first) && is_connected(second)).await;
    cluster.freeze(second);
    let frozen = Instant::now();
    let in_flight = |broker| gauge(broker, |b| b.requests_in_flight as u64);
    let mut tries = send_keyless(&producer, 20).await;
    loop {
        until("one broker has acknowledged all but the record that tries the other", || {
            outstanding(&tries) as u64 == in_flight(second)
        })
        .await;
        if in_flight(second) == 1 {
            break;
        }
        // It has taken all before the other was sent one. Then a later record tries that.
        tries.append(&mut send_keyless(&producer, 1).await);
    }
    cluster.freeze(first);
    let backlog = send_keyless(&producer, RECORDS).await;
    assert_eq!(outstanding(&backlog), RECORDS as usize, "both are frozen");
    // The second broker's response time will count from the first try. It must not look slower than the first broker.
    let (sent, until_sent) = (Instant::now(), frozen.elapsed());
    until("the backlog has waited for as long as the try", || sent.elapsed() >= until_sent).await;
    cluster.thaw(second);
    let most = RECORDS as usize * 2 / 3;
    until("the second broker takes its share", || outstanding(&backlog) <= most).await;
}

/// Two partitions of one broker. Keyless records are sent when they are flushed, and stay with one of the partitions
/// until then, however slow the brokers.
struct Gathering {
    backend: Backend,
    producer: Producer,
    /// The broker of both.
    former: i32,
    /// The partition of the keyless records.
    chosen: i32,
    /// The other broker with a replica of it.
    next: i32,
}

impl Gathering {
    async fn with(more: &[(&str, &str)]) -> Self {
        let backend = patient_brokers().await;
        backend.create_topic(TOPIC, 2, 2).await;
        let properties = [
            ("linger.ms", "80000"),
            ("delivery.timeout.ms", "120000"),
            ("partitioner.adaptive.partitioning.enable", "false"),
            ("curtail.suspicion.enable", "false"),
        ];
        let producer = producer(&backend, &[&properties, more].concat());
        let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
        let (former, others) = shared_broker_and_others(cluster);
        for partition in 0..2 {
            cluster.move_leader(TOPIC, partition, former).expect("moved");
        }
        cluster.settled().await;
        for partition in 0..2 {
            let record = Record::to(TOPIC).partition(partition).value("hello");
            drop(producer.send(record).await.expect("there is room"));
        }
        let first = send_keyless(&producer, 1).await.pop().expect("one");
        producer.flush().await.expect("acknowledged");
        let chosen = acknowledged(first).await.partition;
        Self { backend, producer, former, chosen, next: others[chosen as usize] }
    }

    fn move_leader(&self) -> &Cluster {
        let Backend::Embedded(cluster) = &self.backend else { unreachable!("embedded") };
        cluster.move_leader(TOPIC, self.chosen, self.next).expect("moved");
        cluster
    }
}

/// One record detects whether a new leader acknowledges: the rest of its batch need not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_record_of_a_batch_tries_a_new_leader() {
    let gathering = Gathering::with(&[("metadata.max.age.ms", "100")]).await;
    let (producer, next) = (&gathering.producer, gathering.next);
    let deliveries = send_keyless(producer, 20).await;
    let cluster = gathering.move_leader();
    let connections = || producer.metrics().brokers.get(&next).map(|b| b.connection_count);
    until("the producer knows the new leader", || connections() > Some(0)).await;
    cluster.settled().await;
    cluster.delay(Some(next), Some(FETCH), PATIENT);
    let flushed = tokio::spawn({
        let producer = producer.clone();
        async move { producer.flush().await }
    });
    let waiting = || outstanding(&deliveries);
    until("one record waits for the new leader", || waiting() == 1).await;
    assert!(!flushed.is_finished(), "that record is not acknowledged");
    flushed.abort();
}

/// A broker that no longer leads refuses a batch before it appends it. The batch need not wait for the new leader, which
/// acknowledges nothing yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_batch_of_keyless_records_goes_to_another_partition() {
    let gathering = Gathering::with(&[]).await;
    let (producer, other) = (&gathering.producer, 1 - gathering.chosen);
    let cluster = gathering.move_leader();
    cluster.settled().await;
    cluster.delay(Some(gathering.next), Some(FETCH), PATIENT);
    let deliveries = send_keyless(producer, 20).await;
    producer.flush().await.expect("acknowledged without the new leader");
    for delivery in deliveries {
        assert_eq!(acknowledged(delivery).await.partition, other);
    }
    assert_eq!(producer.metrics().brokers[&gathering.former].batch_refused_total, 1);
    producer.clone().close().await.expect("closed");
}

/// Keyless batches in flight behind a refused one wait for their own refusals, which leave them free to move with it. Taken
/// back, they might have been written, and would have to wait for the new leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_batches_after_a_refused_one_move_with_it() {
    let gathering = Gathering::with(&[("curtail.latency.target.ms", "0")]).await;
    let (producer, former) = (&gathering.producer, gathering.former);
    let other = 1 - gathering.chosen;
    let Backend::Embedded(cluster) = &gathering.backend else { unreachable!("embedded") };
    // The broker serves the requests of a connection one by one: each bound record waits for this replica, and what was
    // sent after it waits for the record.
    let replica_of_other = 6 - former - gathering.next;
    cluster.freeze(replica_of_other);
    cluster.freeze_metadata(replica_of_other, true);
    let mut keyless = Vec::new();
    for requests in 1..=4 {
        if requests % 2 == 1 {
            let record = Record::to(TOPIC).partition(other).value("bound");
            drop(producer.send(record).await.expect("there is room"));
        } else {
            keyless.extend(send_keyless(producer, 1).await);
        }
        let flushing = producer.clone();
        tokio::spawn(async move { flushing.flush().await });
        let in_flight = || producer.metrics().brokers.get(&former).map(|b| b.requests_in_flight);
        until("a separate request", || in_flight() == Some(requests)).await;
    }
    cluster.delay(Some(gathering.next), Some(FETCH), PATIENT);
    gathering.move_leader();
    cluster.settled().await;
    cluster.freeze_metadata(replica_of_other, false);
    // The second bound record, and so the last batch, waits for at least one more fetch.
    cluster.delay(Some(former), Some(FETCH), Duration::from_millis(100));
    cluster.thaw(replica_of_other);
    for delivery in keyless {
        assert_eq!(acknowledged(delivery).await.partition, other);
    }
}

/// Keyless records stay with an unresponsive broker only while the others refuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_records_leave_an_unresponsive_broker_once_another_accepts() {
    const RECORDS: u32 = 100;
    const IN_FLIGHT: u32 = 5;
    let two = Two::of_which(&[1]).await;
    two.cluster().freeze(two.leaders[0]);
    let keyless = send_keyless(&two.producer, RECORDS).await;
    until("the broker is suspected", || two.producer.routing_metrics().choices_past_trouble > 0)
        .await;
    assert!(
        keyless.iter().all(|delivery| delivery.outcome().is_none()),
        "no broker accepts records"
    );
    two.cluster().freeze_metadata(two.leaders[1], false);
    let mut free = JoinSet::new();
    for (n, delivery) in (0..).zip(keyless) {
        watch(&mut free, n, delivery);
    }
    for _ in 0..RECORDS - IN_FLIGHT {
        let (_, taken) = free.join_next().await.expect("more records").expect("acknowledged");
        assert_eq!(taken.partition, 1);
    }
    two.recovers().await;
    while let Some(done) = free.join_next().await {
        done.expect("acknowledged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unresponsive_broker_does_not_take_the_memory_of_the_others() {
    let backend = three_brokers().await;
    let properties = [("buffer.memory", "1048576"), ("delivery.timeout.ms", "120000")];
    let producer = producer(&backend, &properties);
    greet(&producer, 3).await;
    let Backend::Embedded(cluster) = &backend else { unreachable!("embedded") };
    let hung = leader(&backend, 0);
    cluster.freeze(hung);
    let value = [b'x'; 1000];
    let mut waiting = Vec::new();
    let refused = loop {
        match producer.try_send(Record::to(TOPIC).partition(0).value(&value)) {
            Ok(delivery) => waiting.push(delivery),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::BufferFull { .. }), "{refused}");
    assert!(producer.available_memory() >= 300_000, "{}", producer.available_memory());
    for partition in [1, 2, 1, 2] {
        let record = Record::to(TOPIC).partition(partition).value(&value);
        acknowledged(producer.try_send(record).expect("there is room for others")).await;
    }
    cluster.thaw(hung);
    for delivery in waiting {
        acknowledged(delivery).await;
    }
    producer.close().await.expect("closed");
}

/// No record waits for the dead broker, so only its trouble makes the producer ask whether the cluster has removed
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_used_again_once_the_cluster_has_removed_a_dead_broker() {
    let backend = Backend::embedded(3).await;
    backend.create_topic(TOPIC, 6, 3).await;
    // Each record is a batch, and the next one goes to another partition.
    let properties = [("linger.ms", "0"), ("batch.size", "1"), ("metadata.max.age.ms", "300000")];
    let producer = producer(&backend, &properties);
    greet(&producer, 3).await;
    let dead = leader(&backend, 0);
    backend.kill(dead);
    // The broker is known to be down before any record is sent.
    let is_gone = || producer.metrics().brokers.get(&dead).is_none_or(|b| b.connection_count == 0);
    until("the connection is closed", is_gone).await;
    let used_again = async {
        let mut used = std::collections::BTreeSet::new();
        while used.len() < 6 {
            let record = Record::to(TOPIC).value("keyless");
            used.insert(acknowledged(producer.send(record).await.expect("sent")).await.partition);
        }
    };
    timeout(Duration::from_secs(60), used_again).await.expect("every partition is used again");
}

/// Uses the last partition for all records.
#[derive(Debug)]
struct Last;

impl Partitioner for Last {
    fn partition(&self, _: &Record<'_>, partitions: &TopicPartitions<'_>) -> Option<i32> {
        assert!(partitions.has_leader(0) && !partitions.has_leader(3));
        Some(partitions.count() as i32 - 1)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_partitioner_decides() {
    let backend = three_brokers().await;
    let config = ProducerConfig::new(backend.bootstrap()).partitioner(Last);
    let own = Producer::new(config).expect("a usable configuration");
    for _ in 0..5 {
        let record = Record::to(TOPIC).key("key").value("own");
        assert_eq!(acknowledged(own.send(record).await.expect("sent")).await.partition, 2);
    }
    let class = "org.apache.kafka.clients.producer.RoundRobinPartitioner";
    let in_turn = producer(&backend, &[("partitioner.class", class)]);
    for n in 0..6 {
        let record = Record::to(TOPIC).key("key").value("in turn");
        assert_eq!(acknowledged(in_turn.send(record).await.expect("sent")).await.partition, n % 3);
    }
    let records = |producer: &Producer| -> Vec<u64> {
        producer.partition_metrics(TOPIC).iter().map(|partition| partition.records).collect()
    };
    assert_eq!((records(&own), records(&in_turn)), (vec![0, 0, 5], vec![2, 2, 2]));
}
