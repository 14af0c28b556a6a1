use std::time::Duration;

use super::{
    Driver, KeyDistributor, Workload,
    rate::{FIRST, RateController},
    result::{Period, Results},
};

const WORKLOAD: &str = "
name: 1 topic / 16 partitions / 1kb
topics: 1
partitionsPerTopic: 16
keyDistributor: KEY_ROUND_ROBIN
messageSize: 1024
useRandomizedPayloads: true
randomBytesRatio: 0.5
randomizedPayloadPoolSize: 1000
subscriptionsPerTopic: 1
consumerPerSubscription: 2
producersPerTopic: 1
producerRate: 50000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
";

fn refused(text: &str) -> String {
    Workload::parse(text).map(drop).unwrap_err().to_string()
}

#[test]
fn a_workload_is_read() {
    let workload = Workload::parse(WORKLOAD).unwrap();
    assert_eq!(workload.name, "1 topic / 16 partitions / 1kb");
    assert_eq!(workload.key_distributor, KeyDistributor::KeyRoundRobin);
    assert_eq!(workload.duration(), Duration::from_secs(900));
    assert_eq!(workload.warmup(), Duration::from_secs(60), "their default");
    assert_eq!(workload.producer_rate, 50_000.0);
}

#[test]
fn the_error_of_a_workload_names_the_field() {
    let changed = |from: &str, to: &str| refused(&WORKLOAD.replace(from, to));
    for (from, to, word) in [
        ("topics: 1", "topics: 0", "topics"),
        ("messageSize: 1024", "messageSize: many", "line"),
        ("messageSize: 1024\n", "", "messageSize"),
        ("keyDistributor: KEY_ROUND_ROBIN", "keyDistributor: ZIPF", "ZIPF"),
        ("randomBytesRatio: 0.5", "randomBytesRatio: 1.5", "randomBytesRatio"),
        (
            "randomizedPayloadPoolSize: 1000",
            "randomizedPayloadPoolSize: 0",
            "randomizedPayloadPoolSize",
        ),
        ("consumerBacklogSizeGB: 0", "backlogDrainRatio: 2", "backlogDrainRatio"),
        ("testDurationMinutes: 15", "testDurationMinutes: 0", "testDurationMinutes"),
        ("producerRate: 50000", "producerRate: -1", "producerRate"),
        ("consumerPerSubscription: 2\n", "consumerPerSubscription: 2\ncolor: red\n", "color"),
    ] {
        let error = changed(from, to);
        assert!(error.contains(word), "{to}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(refused("topics: [").lines().count() == 1);
}

#[test]
fn a_backlog_is_built_and_drained() {
    let workload = Workload::parse(&WORKLOAD.replace("SizeGB: 0", "SizeGB: 0.5")).unwrap();
    let mut backlog = workload.backlog().unwrap();
    let steps = [
        (0, true, false),
        (524_287, true, false),
        (524_288, false, false),
        (300_000, false, false),
        (1000, false, true),
        (900_000, false, false),
    ];
    for (behind, building, drained) in steps {
        assert_eq!((backlog.tell(behind), backlog.is_building()), (drained, building), "{behind}");
    }
    assert!(backlog.is_drained());
    assert_eq!(Workload::parse(WORKLOAD).unwrap().backlog(), None);
    let both = WORKLOAD
        .replace("SizeGB: 0", "SizeGB: 1")
        .replace("producerRate: 50000", "producerRate: 0");
    assert!(refused(&both).contains("producerRate 0"), "{}", refused(&both));
}

#[test]
fn a_driver_is_properties() {
    let driver = Driver::parse(
        "name: Kafka\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n\
         replicationFactor: 3\nreset: true\ntopicConfig: |\n  min.insync.replicas=2\n\
         commonConfig: |\n  bootstrap.servers=localhost:9092\nproducerConfig: |\n  acks=all\n  linger.ms=1\n\
         consumerConfig: |\n  auto.offset.reset=earliest\n",
    )
    .unwrap();
    assert_eq!((driver.replication_factor, driver.bootstrap()), (3, Some("localhost:9092")));
    assert_eq!(driver.producer[1], ("linger.ms".into(), "1".into()));
    assert_eq!(driver.topic, [("min.insync.replicas".to_owned(), "2".to_owned())]);
    let error = Driver::parse("driverClass: a.PulsarBenchmarkDriver").map(drop).unwrap_err();
    assert!(error.to_string().contains("PulsarBenchmarkDriver"), "{error}");
}

/// A cluster that accepts 37,000 records a second, at any offered rate.
#[test]
fn the_rate_converges_to_the_highest_sustainable_one() {
    let (mut controller, mut rate) = (RateController::new(), FIRST);
    let (mut published, mut offered) = (0.0, 0.0);
    let mut rates = Vec::new();
    for _ in 0..60 {
        offered += rate * 3.0;
        let before: f64 = published;
        published = (before + 37_000.0 * 3.0).min(offered);
        // A new rate begins without the records that could not be sent at the previous one.
        offered = published;
        rate = controller.next(rate, Duration::from_secs(3), published as u64, published as u64, 1);
        rates.push(rate);
    }
    let (early, late) = rates.split_at(30);
    assert!(early[0] == 20_000.0, "{rates:?}");
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((20_000.0..=50_000.0).contains(&mean), "{rates:?}");
    assert!(rates.iter().all(|rate| *rate <= 80_000.0), "{rates:?}");
}

#[test]
fn unread_records_slow_producers_down() {
    let mut controller = RateController::new();
    let next = controller.next(10_000.0, Duration::from_secs(1), 10_000, 5_000, 1);
    assert!(next < 10_000.0, "{next}");
    let mut controller = RateController::new();
    let next = controller.next(10_000.0, Duration::from_secs(1), 10_000, 20_000, 2);
    assert_eq!(next, 20_000.0, "two subscriptions read everything twice");
}

#[test]
fn a_result_has_the_benchmarks_names_and_units() {
    let mut results = Results::new(&Workload::parse(WORKLOAD).unwrap(), &Driver::default());
    let mut period =
        Period { elapsed: Duration::from_secs(10), published: 1000, ..Period::default() };
    period.publish.record(Duration::from_millis(2));
    period.delay.record(Duration::from_micros(30));
    period.end_to_end.record(Duration::from_millis(5));
    results.add(&period);
    results.add(&period);
    let json = results.finish();
    assert_eq!(json["publishRate"].as_array().unwrap().len(), 2);
    assert_eq!(json["publishRate"][0], 100.0);
    for name in ["publishLatency", "publishDelayLatency", "endToEndLatency"] {
        let capital = name[..1].to_uppercase() + &name[1..];
        for end in
            ["Avg", "50pct", "75pct", "95pct", "99pct", "999pct", "9999pct", "99999pct", "Max"]
        {
            assert_eq!(json[format!("{name}{end}")].as_array().unwrap().len(), 2, "{name}{end}");
            assert!(json[format!("aggregated{capital}{end}")].is_number(), "{name}{end}");
        }
        assert!(json[format!("aggregated{capital}Quantiles")]["100"].is_number(), "{name}");
    }
    let near = |name: &str, expected: f64| {
        let value = json[name].as_f64().unwrap();
        assert!((value - expected).abs() < expected / 500.0, "{name} {value}");
    };
    near("aggregatedPublishLatency50pct", 2.0);
    near("aggregatedPublishDelayLatency50pct", 30.0);
    near("aggregatedEndToEndLatencyMax", 5.0);
}
