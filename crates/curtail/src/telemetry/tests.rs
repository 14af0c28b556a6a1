use std::{collections::BTreeMap, sync::Arc, time::Duration};

use curtail_proto::telemetry::{Selector, Subscription};
use curtail_wire::{Uuid, compression::Codec};
use prost::Message as _;
use tokio::time::{Instant, sleep};

use self::decoded::{Data, MetricsData, Value, pairs};
use super::{
    Source,
    names::{is_counter, push_full_name},
    payload::{Ledger, Snapshot},
};
use crate::{
    TopicPartition,
    config::CommonConfig,
    metadata::{
        AutoCreate, MetadataHandle,
        tests::net::{Behaviour, Receiver, World},
    },
    metrics::{ConsumerMetrics, PartitionLag, ProducerMetrics, ProducerStats},
};

#[path = "../../../wire/src/otlp/decoded.rs"]
pub(crate) mod decoded;

fn subscription(metrics: &[&str], delta: bool) -> Subscription {
    Subscription {
        client_instance_id: Uuid([1; 16]),
        id: 1,
        interval: Duration::from_secs(10),
        codecs: vec![Codec::Zstd],
        max_bytes: 1 << 20,
        delta,
        metrics: Selector::new(metrics.iter().map(|&prefix| prefix.to_owned()).collect()),
    }
}

/// A producer's metrics this long after its creation.
fn producer(stats: &ProducerStats, seconds: u64) -> Snapshot {
    let period = Duration::from_secs(seconds);
    let metrics = ProducerMetrics {
        client_id: "c".into(),
        taken: stats.started + period,
        period,
        buffer_total_bytes: 100,
        buffer_available_bytes: 40,
        buffer_wait: stats.buffer_wait.snapshot(),
        window_wait: stats.window_wait.snapshot(),
        buffer_exhausted_total: 0,
        metadata_wait: stats.metadata_wait.snapshot(),
        flush_time: stats.flush_time.snapshot(),
        record_error_total: 0,
        leaderless_bytes: 0,
        certificates_outdated: false,
        brokers: stats.snapshot(),
    };
    Snapshot::Producer(metrics.into())
}

/// The first number of a metric, with its start and end in milliseconds since 1970.
fn number(data: &MetricsData, name: &str) -> (f64, u64, u64) {
    let metric = data.metrics().find(|metric| metric.name == name);
    let point = &metric.unwrap_or_else(|| panic!("no {name}")).points()[0];
    let Some(Value::AsDouble(value)) = point.value else { panic!("{point:?}") };
    (value, point.start_time_unix_nano / 1_000_000, point.time_unix_nano / 1_000_000)
}

const SENT: &str = "org.apache.kafka.producer.record.send.total";
const RATE: &str = "org.apache.kafka.producer.record.send.rate";

#[test]
fn names_are_those_of_the_kip_for_javas_metrics_and_others_have_a_separate_prefix() {
    for (group, name, expected) in [
        (
            "producer-metrics",
            "connection-creation-rate",
            "org.apache.kafka.producer.connection.creation.rate",
        ),
        (
            "producer-node-metrics",
            "request-latency-avg",
            "org.apache.kafka.producer.node.request.latency.avg",
        ),
        (
            "producer-metrics",
            "produce-throttle-time-max",
            "org.apache.kafka.producer.produce.throttle.time.max",
        ),
        ("producer-metrics", "record-queue-time-p99", "curtail.producer.record.queue.time.p99"),
        ("producer-node-metrics", "batch-size-avg", "curtail.producer.node.batch.size.avg"),
        ("producer-metrics", "queue-bytes", "curtail.producer.queue.bytes"),
        (
            "consumer-coordinator-metrics",
            "rebalance-rate-per-hour",
            "org.apache.kafka.consumer.coordinator.rebalance.rate.per.hour",
        ),
        (
            "consumer-coordinator-metrics",
            "assigned-partitions",
            "org.apache.kafka.consumer.coordinator.assigned.partitions",
        ),
        (
            "consumer-coordinator-metrics",
            "heartbeat-response-time-avg",
            "curtail.consumer.coordinator.heartbeat.response.time.avg",
        ),
        (
            "consumer-fetch-manager-metrics",
            "fetch-latency-max",
            "org.apache.kafka.consumer.fetch.manager.fetch.latency.max",
        ),
        (
            "consumer-node-metrics",
            "request-latency-max",
            "org.apache.kafka.consumer.node.request.latency.max",
        ),
        ("consumer-node-metrics", "fetch-size-max", "curtail.consumer.node.fetch.size.max"),
        (
            "consumer-metrics",
            "poll-idle-ratio-avg",
            "org.apache.kafka.consumer.poll.idle.ratio.avg",
        ),
    ] {
        let mut full_name = String::new();
        push_full_name(&mut full_name, group, name);
        assert_eq!(full_name, expected);
    }
    assert!(is_counter("rebalance-latency-total") && !is_counter("connection-count"));
}

#[test]
fn delta_temporality_sends_differences_and_the_other_one_totals() {
    for delta in [true, false] {
        let stats = ProducerStats::new(true);
        let asked = subscription(&["*"], delta);
        let mut ledger = Ledger::default();
        stats.broker(1).batch_acknowledged(Duration::from_millis(1), 10);
        let first = ledger.collect(producer(&stats, 5), &[], &asked, 105_000);
        let data = MetricsData::decode(&*first.payload).unwrap();
        assert_eq!(number(&data, SENT), (10.0, 100_000, 105_000));
        assert_eq!(number(&data, RATE), (2.0, 0, 105_000));
        ledger.sent(first);
        stats.broker(1).batch_acknowledged(Duration::from_millis(1), 4);
        let second = ledger.collect(producer(&stats, 7), &[], &asked, 107_000);
        let data = MetricsData::decode(&*second.payload).unwrap();
        let expected = if delta { (4.0, 105_000, 107_000) } else { (14.0, 100_000, 107_000) };
        assert_eq!(number(&data, SENT), expected);
        // Rates are those of the time since the last push in both.
        assert_eq!(number(&data, RATE).0, 2.0);
        let sum = data.metrics().find(|metric| metric.name == SENT).unwrap();
        let Some(Data::Sum(sum)) = &sum.data else { panic!("{sum:?}") };
        assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (2 - i32::from(delta), true));
    }
}

#[test]
fn push_that_was_refused_is_part_of_the_next_one() {
    let stats = ProducerStats::new(true);
    let asked = subscription(&[SENT], true);
    let ledger = Ledger::default();
    stats.broker(1).batch_acknowledged(Duration::from_millis(1), 10);
    let _refused = ledger.collect(producer(&stats, 5), &[], &asked, 105_000);
    let next = ledger.collect(producer(&stats, 9), &[], &asked, 109_000);
    let data = MetricsData::decode(&*next.payload).unwrap();
    assert_eq!(number(&data, SENT), (10.0, 100_000, 109_000));
}

#[test]
fn only_requested_metrics_are_sent_with_the_clients_attributes() {
    let stats = ProducerStats::new(true);
    stats.broker(2).request_built(10);
    let asked = subscription(&["org.apache.kafka.producer.node.", "curtail.producer.queue"], true);
    let attributes = [("client_rack", "r1".to_owned())];
    let collected = Ledger::default().collect(producer(&stats, 1), &attributes, &asked, 1000);
    let data = MetricsData::decode(&*collected.payload).unwrap();
    let mut nodes = BTreeMap::new();
    for metric in data.metrics() {
        assert!(asked.metrics.has(&metric.name), "{}", metric.name);
        for point in metric.points() {
            *nodes.entry(pairs(&point.attributes)).or_insert(0) += 1;
        }
    }
    let node = vec![("node_id".to_owned(), "node-2".to_owned())];
    assert_eq!(nodes[&vec![]], 1, "the client id is not an attribute: {nodes:?}");
    assert!(nodes[&node] > 5 && nodes.len() == 2, "{nodes:?}");
    let resource = data.resource_metrics[0].resource.as_ref().unwrap();
    assert_eq!(pairs(&resource.attributes), [("client_rack".to_owned(), "r1".to_owned())]);
    assert!(
        Ledger::default()
            .collect(producer(&stats, 1), &[], &subscription(&["x"], true), 1)
            .payload
            .is_empty()
    );
}

#[test]
fn payload_that_is_too_large_keeps_the_metrics_of_the_whole_client() {
    let lag = PartitionLag { lag: Some(1), buffered_bytes: 0 };
    let partitions = (0..20_000).map(|index| (TopicPartition::new("t", index), lag));
    let now = Instant::now();
    let metrics = ConsumerMetrics {
        client_id: "c".into(),
        taken: now,
        period: Duration::from_secs(1),
        records_consumed_total: 1,
        bytes_consumed_total: 1,
        connection_creation_total: 1,
        poll_idle_time: Duration::ZERO,
        certificates_outdated: false,
        brokers: BTreeMap::new(),
        group: None,
        partitions: partitions.collect(),
    };
    let asked = subscription(&["*"], true);
    let snapshot = Snapshot::Consumer(metrics.into());
    let collected = Ledger::default().collect(snapshot, &[], &asked, 1000);
    assert!(collected.payload.len() <= asked.max_bytes);
    assert!(collected.payload.len() > asked.max_bytes - 1000, "{}", collected.payload.len());
    let data = MetricsData::decode(&*collected.payload).unwrap();
    let total = "org.apache.kafka.consumer.fetch.manager.records.consumed.total";
    assert_eq!(number(&data, total).0, 1.0);
}

struct Client(ProducerStats);

impl Source for Client {
    fn snapshot(&self) -> Snapshot {
        producer(&self.0, self.0.started.elapsed().as_secs())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

#[tokio::test(start_paused = true)]
async fn push_without_a_connection_is_part_of_the_next_one() {
    let interval = Duration::from_secs(10);
    let world = World::new(&[1], &["t"]);
    *world.receiver.lock() = Some(Receiver { interval, ..Receiver::default() });
    let common = CommonConfig {
        bootstrap_servers: vec!["127.0.0.1:1".into()],
        // Each push opens a connection.
        connections_max_idle: Some(Duration::from_secs(1)),
        ..CommonConfig::default()
    };
    let metadata = MetadataHandle::start(&world.env(), &common, AutoCreate::Never).unwrap();
    let client = Arc::new(Client(ProducerStats::new(true)));
    let source: Arc<dyn Source> = client.clone();
    metadata.push_metrics(Arc::downgrade(&source));
    metadata.topic("t", Instant::now() + interval).await.unwrap();
    let received = || {
        let receiver = world.receiver.lock();
        let pushes = receiver.as_ref().unwrap().pushes.iter();
        let sent = pushes.map(|push| number(&MetricsData::decode(&*push.metrics).unwrap(), SENT).0);
        sent.sum::<f64>()
    };
    client.0.broker(1).batch_acknowledged(Duration::from_millis(1), 7);
    sleep(2 * interval).await;
    assert_eq!(received(), 7.0);
    world.set(1, Behaviour::Dead);
    client.0.broker(1).batch_acknowledged(Duration::from_millis(1), 3);
    sleep(2 * interval).await;
    world.set(1, Behaviour::Answers);
    sleep(10 * interval).await;
    assert_eq!(received(), 10.0);
}
