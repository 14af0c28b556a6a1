use std::time::Duration;

use super::{
    Bench, Kind, omb,
    trogdor::{Task, Throttle, Transactions, topics},
};

fn task(text: &str) -> Task {
    match Bench::parse(text, None).unwrap().0 {
        Kind::Trogdor(task) => *task,
        Kind::Omb(..) => panic!("a workload"),
    }
}

fn refused(text: &str) -> String {
    Bench::parse(text, None).map(drop).unwrap_err().to_string()
}

#[test]
fn a_produce_bench_is_read_with_comments() {
    let text = r#"
        // A comment, with a "quote
        {
          "class": "org.apache.kafka.trogdor.workload.ProduceBenchSpec",
          "startMs": 0, "durationMs": 10000000, "producerNode": "node0",
          "bootstrapServers": "localhost:9092",
          "targetMessagesPerSec": 100, "maxMessages": 500,
          "transactionGenerator": { "type": "uniform", "messagesPerTransaction": 50 },
          "producerConf": { "acks": "all", "linger.ms": 5, "enable.idempotence": true },
          "activeTopics": { "foo[1-3]": { "numPartitions": 3, "replicationFactor": 1 } },
          "inactiveTopics": { "bar": {} },
          "skipFlush": true
        }"#;
    let Task::Produce(spec) = task(text) else { panic!("another class") };
    assert_eq!(spec.bootstrap_servers.as_deref(), Some("localhost:9092"));
    assert_eq!((spec.target_messages_per_sec, spec.max_messages), (100, 500));
    let transactions = Transactions::Uniform { messages_per_transaction: 50 };
    assert_eq!(spec.transaction_generator, Some(transactions));
    assert_eq!(spec.producer_conf["linger.ms"], "5");
    assert_eq!(spec.producer_conf["enable.idempotence"], "true");
    assert!(spec.skip_flush && !spec.use_configured_partitioner);
    let active = topics(&spec.active_topics).unwrap();
    let shape: Vec<_> =
        active.iter().map(|(name, t)| (name.as_str(), t.partitions(), t.replicas())).collect();
    assert_eq!(shape, [("foo1", 3, 1), ("foo2", 3, 1), ("foo3", 3, 1)]);
    let bar = &topics(&spec.inactive_topics).unwrap()["bar"];
    assert_eq!((bar.partitions(), bar.replicas()), (1, 3), "Trogdor's defaults");
}

#[test]
fn the_error_of_a_task_names_the_field() {
    let with = |rest: &str| format!("{{\"durationMs\": 1, \"maxMessages\": 1, {rest}}}");
    for (text, word) in [
        (
            with(r#""class": "org.apache.kafka.trogdor.workload.ConnectionStressSpec""#),
            "ConnectionStressSpec",
        ),
        (with(r#""class": "ProduceBenchSpec", "messages": 1"#), "`messages`"),
        (
            with(r#""class": "ProduceBenchSpec", "producerConf": {"acks": []}"#),
            "acks: expected a text",
        ),
        (with(r#""class": "ProduceBenchSpec", "keyGenerator": {"type": "zipf"}"#), "`zipf`"),
        (with(r#""class": "ProduceBenchSpec", "transactionGenerator": {"type": "x"}"#), "`x`"),
        (with(r#""class": "ConsumeBenchSpec", "recordProcessor": {"type": "count"}"#), "`count`"),
        (
            r#"{"class": "ConsumeBenchSpec", "durationMs": 0, "maxMessages": 1}"#.to_owned(),
            "durationMs",
        ),
        (
            r#"{"class": "ConsumeBenchSpec", "durationMs": 1, "maxMessages": 0}"#.to_owned(),
            "maxMessages",
        ),
        (
            r#"{"class": "RoundTripWorkloadSpec", "durationMs": 1}"#.to_owned(),
            "targetMessagesPerSec",
        ),
        (r#"{"durationMs": 1}"#.to_owned(), "`class`"),
        ("{\n\n\"class\": }".to_owned(), "line 3"),
    ] {
        let error = refused(&text);
        assert!(error.contains(word), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let driver = Some(omb::Driver::default());
    let error = Bench::parse("{}", driver).map(drop).unwrap_err().to_string();
    assert!(error.contains("driver"), "{error}");
}

#[test]
fn replicas_cannot_be_placed_by_hand() {
    let text = r#"{"class": "ProduceBenchSpec", "durationMs": 1, "maxMessages": 1,
        "activeTopics": {"foo": {"partitionAssignments": {"0": [1, 2]}}}}"#;
    let Task::Produce(spec) = task(text) else { panic!("another class") };
    let error = topics(&spec.active_topics).unwrap_err().to_string();
    assert!(error.contains("'foo': partitionAssignments is not supported"), "{error}");
}

#[test]
fn messages_come_in_bursts() {
    for (per_second, index, ms, begins) in [
        (100, 0, 0, true),
        (100, 9, 0, false),
        (100, 10, 100, true),
        (100, 25, 200, false),
        (1, 3, 300, true),
        (19, 1, 100, true),
        (-1, 2, 200, true),
    ] {
        let throttle = Throttle::new(per_second);
        assert_eq!(throttle.due(index), Duration::from_millis(ms), "{per_second} {index}");
        assert_eq!(throttle.begins_period(index), begins, "{per_second} {index}");
    }
}
