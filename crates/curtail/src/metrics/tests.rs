mod page;

use super::*;

fn metrics(stats: &ProducerStats) -> ProducerMetrics {
    ProducerMetrics {
        client_id: "c".into(),
        taken: stats.started + Duration::from_secs(2),
        period: Duration::from_secs(2),
        buffer_total_bytes: 100,
        buffer_available_bytes: 40,
        buffer_wait: stats.buffer_wait.snapshot(),
        window_wait: stats.window_wait.snapshot(),
        buffer_exhausted_total: stats.buffer_exhausted.get(),
        metadata_wait: stats.metadata_wait.snapshot(),
        flush_time: stats.flush_time.snapshot(),
        record_error_total: stats.record_errors.get(),
        leaderless_bytes: 0,
        certificates_outdated: false,
        brokers: stats.snapshot(),
    }
}

fn value(metrics: &ProducerMetrics, group: &str, name: &str) -> f64 {
    let named = metrics.named();
    let mut found = named.iter().filter(|m| m.group == group && m.name == name);
    let value = found.next().unwrap_or_else(|| panic!("no {name}")).value;
    assert!(group != "producer-metrics" || found.next().is_none(), "{name} twice");
    value
}

#[test]
fn names_and_units_are_kafkas() {
    let stats = ProducerStats::new(true);
    let (one, two) = (stats.broker(1), stats.broker(2));
    one.batch_taken(Duration::from_millis(3), 500, 10);
    two.batch_taken(Duration::from_millis(5), 1500, 30);
    one.request_built(600);
    one.answered(Duration::from_millis(8), 50);
    one.batch_acknowledged(Duration::from_millis(11), 10);
    two.batch_refused();
    two.batch_failed(30);
    stats.record_errors.add(31);
    one.connected();
    two.connected();
    two.disconnected();
    let metrics = metrics(&stats);
    let whole = |name| value(&metrics, "producer-metrics", name);
    assert!((whole("record-queue-time-avg") - 4.0).abs() < 0.1);
    assert_eq!(whole("record-queue-time-max"), 5.0);
    assert_eq!(whole("record-queue-time-p9999"), 5.0);
    assert!((whole("batch-size-avg") - 1000.0).abs() < 20.0);
    assert_eq!(whole("request-latency-max"), 8.0);
    assert_eq!(whole("record-send-total"), 10.0);
    assert_eq!(whole("record-send-rate"), 5.0);
    assert_eq!(whole("record-error-total"), 31.0);
    assert_eq!(whole("connection-count"), 1.0);
    assert_eq!(whole("outgoing-byte-total"), 600.0);
    assert_eq!(whole("buffer-available-bytes"), 40.0);
    assert_eq!(value(&metrics, "producer-node-metrics", "record-send-total"), 10.0);
    assert_eq!(metrics.brokers[&2].record_error_total, 30);
    assert!(metrics.named().iter().all(|metric| metric.value.is_finite()));
}

#[test]
fn a_period_has_only_what_happened_in_it() {
    let stats = ProducerStats::new(true);
    stats.broker(1).batch_acknowledged(Duration::from_secs(1), 5);
    let before = metrics(&stats);
    stats.broker(1).batch_acknowledged(Duration::from_millis(1), 2);
    stats.broker(3).batch_acknowledged(Duration::from_millis(1), 1);
    let mut after = metrics(&stats);
    after.taken += Duration::from_secs(1);
    let period = after.since(&before);
    assert_eq!(period.period, Duration::from_secs(1));
    assert_eq!(period.brokers[&1].record_send_total, 2);
    assert_eq!(period.brokers[&3].record_send_total, 1);
    assert!(period.all_brokers().delivery_time.max() < 1_100_000);
    assert_eq!(period.all_brokers().delivery_time.count(), 3);
}

#[test]
fn tasks_that_record_at_once_lose_nothing() {
    let stats = BrokerStats::new(true);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..10_000 {
                    stats.batch_acknowledged(Duration::from_nanos(n), 1);
                }
            });
        }
    });
    let metrics = stats.snapshot();
    assert_eq!((metrics.delivery_time.count(), metrics.record_send_total), (40_000, 40_000));
}

#[test]
fn without_phase_stamps_only_times_are_missing() {
    let stats = BrokerStats::new(false);
    stats.batch_taken(Duration::from_millis(3), 500, 10);
    stats.drained(Duration::from_millis(1));
    stats.answered(Duration::from_millis(8), 50);
    stats.batch_acknowledged(Duration::from_millis(11), 10);
    let metrics = stats.snapshot();
    assert!(metrics.phases().iter().all(|(_, phase)| phase.count() == 0));
    assert_eq!((metrics.batch_size.count(), metrics.record_send_total), (1, 10));
}

type Wants = fn(&str) -> bool;

/// A list with room for `room` metrics, of names that it wants.
struct Small {
    wants: Wants,
    room: usize,
    asked: usize,
}

impl Sink for Small {
    fn wants(&mut self, _: &'static str, name: &str) -> bool {
        self.asked += 1;
        self.room > 0 && (self.wants)(name)
    }

    fn add(&mut self, _: NamedMetric) {
        self.room -= 1;
    }

    fn is_full(&self) -> bool {
        self.room == 0
    }
}

#[test]
fn partitions_are_listed_only_while_the_list_has_room_for_their_metrics() {
    let lag = PartitionLag { lag: Some(1), buffered_bytes: 0 };
    let partitions = (0..20_000).map(|index| (crate::TopicPartition::new("t", index), lag));
    let metrics = ConsumerMetrics {
        client_id: "c".into(),
        taken: Instant::now(),
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
    let cases: [(Wants, usize, usize); 3] =
        [(|_| false, usize::MAX, 2), (|_| true, 10, 20), (|name| name == "records-lag", 10, 30)];
    for (wants, room, most) in cases {
        let mut list = Small { wants, room, asked: 0 };
        metrics.list_partitions(&mut list);
        assert!(list.asked <= most, "{}", list.asked);
    }
}
