//! The experiments, at a size that shows their structure and no figure.

use crate::common::{Cluster, run};
use serde_json::Value;

/// Runs one experiment small; checks its report, and that the exit code says what the conditions say.
fn report(arguments: &[&str]) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut all = vec!["lab", "run", "--scale", "0.01", "--json", file.path().to_str().unwrap()];
    all.extend(arguments);
    let out = run(&all);
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(text.lines().count(), 1, "one line for the experiment: {text} {out:?}");
    let report: Value = serde_json::from_str(&text).unwrap();
    check_shape(&report);
    let conditions = report["conditions"].as_array().unwrap();
    let held = conditions.iter().all(|condition| condition["held"].as_bool().unwrap());
    assert_eq!(out.code, Some(if held { 0 } else { 2 }), "{out:?}");
    for condition in conditions {
        assert!(out.out.contains(condition["text"].as_str().unwrap()), "{}", out.out);
    }
    report
}

fn check_shape(report: &Value) {
    assert_eq!(report["cluster"], "embedded");
    assert_eq!(report["scale"], 0.01);
    assert!(report["seed"].is_u64() && report["source"].is_string(), "{report}");
    for arm in report["arms"].as_array().unwrap() {
        assert_eq!(arm["client"], "curtail");
        assert!(arm["records"].as_u64().unwrap() > 0, "{arm}");
        for nothing in ["errors", "lost", "duplicated", "reordered"] {
            assert_eq!(arm[nothing], 0, "{arm}");
        }
        for figure in ["throughput_rps", "throughput_mbps", "cpu_us_per_record"] {
            assert!(arm[figure].as_f64().unwrap() > 0.0, "{figure}: {arm}");
        }
        let latency = |name: &str| arm["latency_us"][name].as_f64().unwrap();
        let sorted = ["p50", "p95", "p99", "p999", "max"].map(latency);
        assert!(sorted.is_sorted() && sorted[0] > 0.0 && latency("avg") > 0.0, "{arm}");
        check_phases(arm);
        assert!(arm["extra"].is_object(), "{arm}");
    }
    for published in report["published"].as_array().unwrap() {
        assert!(published["arm"].is_string() && published["source"].is_string(), "{published}");
        assert!(published["latency_us"].is_object() && published["note"].is_string());
        assert!(published.get("throughput_mbps").is_some(), "{published}");
    }
}

/// Up to the commit the phases of every record are known, and behind it where something reads.
fn check_phases(arm: &Value) {
    let phases = &arm["phases_us"];
    for name in ["produce", "publish", "commit"] {
        let figures = ["p50", "p99", "p999", "p9999"].map(|p| phases[name][p].as_f64().unwrap());
        assert!(figures.is_sorted(), "{arm}");
    }
    assert!(phases["publish"]["p50"].as_f64().unwrap() > 0.0, "{arm}");
    let is_read = phases["fetch"].is_object();
    assert_eq!(phases["catch_up"].is_object(), is_read, "{arm}");
    assert_eq!(arm["phases_estimated"], false);
    let exemplars = arm["exemplars"].as_array().unwrap();
    assert_eq!(exemplars.len() as u64, arm["records"].as_u64().unwrap().min(20), "{arm}");
    let latency = |exemplar: &Value| exemplar["latency_us"].as_f64().unwrap();
    assert!(exemplars.is_sorted_by(|a, b| latency(a) >= latency(b)), "{arm}");
    for exemplar in exemplars {
        assert!(exemplar["leader"].is_i64() && exemplar["offset"].is_i64(), "{exemplar}");
        let phase = |name: &str| exemplar["phases_us"][name].as_f64().unwrap();
        assert!(phase(exemplar["blame"].as_str().unwrap()) > 0.0, "{exemplar}");
        // The way to the reader, and to the acknowledgement.
        let mut sum: f64 = ["produce", "publish", "commit"].map(phase).iter().sum();
        let rest = if is_read { &["catch_up", "fetch"][..] } else { &["acknowledge"] };
        sum += rest.iter().copied().map(phase).sum::<f64>();
        assert!((sum - latency(exemplar)).abs() < 0.01, "{exemplar}");
    }
}

fn arms(report: &Value) -> Vec<&str> {
    report["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect()
}

#[test]
fn leaders_move_in_every_arm_and_nothing_is_lost() {
    let report = report(&["leader-move"]);
    assert_eq!(arms(&report), ["hints", "refresh", "baseline", "default"]);
    assert_eq!(report["arms"][0]["extra"]["leaders_moved"], 100.0);
    assert_eq!(report["published"].as_array().unwrap().len(), 9);
}

#[test]
fn a_killed_and_a_frozen_leader_lose_nothing() {
    for experiment in ["killed-leader", "frozen-leader"] {
        for arm in ["rf2-keyless", "rf3"] {
            let report = report(&[experiment, "--arm", arm]);
            assert_eq!(arms(&report), [arm]);
            let extra = &report["arms"][0]["extra"];
            assert!(extra["election_all_brokers_ms"].as_f64().unwrap() > 0.0, "{extra}");
            assert!(extra["stall_ms"].as_f64().unwrap() > 0.0, "{extra}");
        }
    }
}

#[test]
fn a_slow_broker_loses_nothing_and_every_byte_is_accounted_for() {
    let report = report(&["slow-broker", "--seed", "7"]);
    assert_eq!(report["seed"], 7);
    for arm in report["arms"].as_array().unwrap() {
        let bytes = |broker: &str| arm["extra"][broker].as_f64().unwrap();
        let sum: f64 =
            ["broker_1_bytes", "broker_2_bytes", "broker_3_bytes"].map(bytes).iter().sum();
        assert_eq!(sum, arm["records"].as_f64().unwrap() * 512.0, "{arm}");
    }
}

#[test]
fn a_cold_start_is_measured_with_and_without_warming_up() {
    let report = report(&["cold-start", "--reader"]);
    assert_eq!(arms(&report), ["warm-up", "cold"]);
    for arm in report["arms"].as_array().unwrap() {
        assert!(arm["phases_us"]["fetch"]["p50"].as_f64().unwrap() > 0.0, "{arm}");
    }
}

#[test]
fn phases_of_a_cluster_that_cannot_be_looked_into_are_estimated() {
    let cluster = Cluster::start(&[]);
    let at = cluster.bootstrap.as_str();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = ["--arm", "warm-up", "--scale", "0.05", "--reader", "--cluster", at];
    let out = run(&[&["lab", "run", "cold-start", "--json", path][..], &arguments].concat());
    let report: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let arm = &report["arms"][0];
    assert_eq!(arm["phases_estimated"], true, "{out:?}");
    let (phases, errors) = (&arm["phases_us"], &arm["error_us"]);
    for estimated in ["publish", "commit", "catch_up"] {
        assert!(phases[estimated]["p50"].is_f64() && errors[estimated]["p50"].is_f64(), "{arm}");
    }
    // What was seen has no error, and of what was not seen enough there is no figure.
    assert!(phases["produce"]["p9999"].is_f64() && errors["produce"].is_null(), "{arm}");
    assert!(phases["commit"]["p999"].is_null() && phases["fetch"].is_null(), "{arm}");
    assert!(arm["exemplars"][0]["leader"].is_i64(), "{arm}");
    let left = run(&["topics", "list", "--bootstrap-server", at]).ok();
    assert!(!left.contains("probes"), "{left}");
}

#[test]
fn a_stalled_partition_is_read_in_the_end() {
    assert_eq!(arms(&report(&["stalled-partition"])), ["stalled", "drained"]);
}

#[test]
fn no_session_is_evicted_and_every_consumer_reads_everything() {
    let report = report(&["fetch-sessions", "--arm", "credit"]);
    let extra = &report["arms"][0]["extra"];
    assert_eq!(extra["sessions"], 16.0, "{extra}");
    assert_eq!(extra["partitions_in_sessions"], 16.0 * 12.0, "{extra}");
    assert_eq!(extra["evictions_per_s"], 0.0, "{extra}");
    assert!(report["arms"][0]["phases_us"]["fetch"].is_object(), "{report}");
}

#[test]
fn the_list_names_what_can_be_run() {
    let out = run(&["lab", "list"]).ok();
    let names = [
        "leader-move",
        "slow-broker",
        "killed-leader",
        "frozen-leader",
        "cold-start",
        "metadata-churn",
        "fetch-sessions",
        "stalled-partition",
        "e2e",
    ];
    for name in names {
        assert_eq!(out.lines().filter(|line| line.starts_with(name)).count(), 1, "{out}");
    }
}

#[test]
fn a_wrong_name_arm_scale_or_cluster_is_one_line() {
    let failed = |arguments: &[&str]| run(&[&["lab", "run"], arguments].concat()).failed();
    assert!(failed(&["leader-moves"]).contains("there are leader-move, "), "no such experiment");
    let line = failed(&["leader-move", "--arm", "hint"]);
    assert!(line.contains("has no arm 'hint'; it has hints, refresh, baseline, default"), "{line}");
    assert!(failed(&["cold-start", "--scale", "0"]).contains("scale"), "no length");
    assert!(failed(&["cold-start", "--cluster", "x"]).contains("host:port"), "no cluster");
    let out = run(&["lab", "run", "killed-leader", "--cluster", "127.0.0.1:1"]);
    assert!(out.code == Some(1) && out.err.contains("breaks its cluster"), "{out:?}");
    assert!(failed(&["cold-start", "--json", "/nowhere/x"]).contains("cannot write"), "no file");
    let line = failed(&["cold-start", "--client", "curtail,kafkajs"]);
    assert!(line.contains("no client 'kafkajs'; there are curtail, java, "), "{line}");
    let out = run(&["lab", "run", "fetch-sessions", "--arm", "omit", "--client", "franz-go"]);
    assert!(out.code == Some(1) && out.err.contains("no arm of fetch-sessions can"), "{out:?}");
}

/// Runs a benchmark from its text on an embedded cluster; returns its status.
fn bench(text: &str) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let json = tempfile::NamedTempFile::new().unwrap();
    let path = json.path().to_str().unwrap();
    let out = run(&["lab", "bench", file.path().to_str().unwrap(), "--json", path]);
    let explained = out.err.clone();
    let status: Value = serde_json::from_str(&out.ok()).unwrap();
    let whole: Value =
        serde_json::from_str(&std::fs::read_to_string(json.path()).unwrap()).unwrap();
    assert_eq!(whole["status"], status);
    if let Some(measured) = whole["from_intended"]["measured"].as_str() {
        assert!(explained.contains(measured), "{explained}");
        assert!(whole["from_intended"]["p99"].as_f64() >= whole["from_send"]["p99"].as_f64());
    }
    status
}

#[test]
fn trogdors_tasks_run_and_give_their_status() {
    let status = bench(
        r#"// In transactions of ten; the last five are never committed.
        {
          "class": "org.apache.kafka.trogdor.workload.ProduceBenchSpec",
          "durationMs": 10000000, "targetMessagesPerSec": 1000, "maxMessages": 45,
          "transactionGenerator": { "type": "uniform", "messagesPerTransaction": 10 },
          "activeTopics": { "foo[1-2]": { "numPartitions": 3, "replicationFactor": 1 } },
          "inactiveTopics": { "bar": { "numPartitions": 1, "replicationFactor": 1 } }
        }"#,
    );
    assert_eq!((&status["totalSent"], &status["transactionsCommitted"]), (&45.into(), &4.into()));
    for name in ["averageLatencyMs", "p50LatencyMs", "p95LatencyMs", "p99LatencyMs"] {
        assert!(status[name].is_number(), "{status}");
    }
    assert_eq!(status.as_object().unwrap().len(), 6, "{status}");

    let status = bench(
        r#"{
          "class": "org.apache.kafka.trogdor.workload.ConsumeBenchSpec",
          "durationMs": 10000000, "threadsPerWorker": 2, "maxMessages": 50,
          "recordProcessor": { "type": "timestamp", "histogramMaxMs": 100000, "histogramMinMs": 0,
            "histogramStepMs": 1 },
          "activeTopics": ["foo[1-2]:[0-1]", "bar"]
        }"#,
    );
    assert_eq!(status.as_object().unwrap().len(), 2, "two consumers: {status}");
    for consumer in status.as_object().unwrap().values() {
        assert_eq!(consumer["totalMessagesReceived"], 50, "{status}");
        assert_eq!(consumer["totalBytesReceived"], 50 * 512, "{status}");
        assert_eq!(consumer["averageMessageSizeBytes"], 512, "{status}");
        assert_eq!(consumer["assignedPartitions"].as_array().unwrap().len(), 7, "{status}");
        assert!(consumer["recordProcessorStatus"]["p99LatencyMs"].is_u64(), "{status}");
    }

    let status = bench(
        r#"{
          "class": "org.apache.kafka.trogdor.workload.ConsumeBenchSpec",
          "durationMs": 10000000, "threadsPerWorker": 2, "maxMessages": 50, "consumerGroup": "cg",
          "activeTopics": ["foo[1-2]"]
        }"#,
    );
    let received = |consumer: &Value| consumer["totalMessagesReceived"].as_u64().unwrap();
    assert!(status.as_object().unwrap().values().map(received).sum::<u64>() >= 50, "{status}");

    let status = bench(
        r#"{
          "class": "org.apache.kafka.trogdor.workload.RoundTripWorkloadSpec",
          "durationMs": 10000000, "targetMessagesPerSec": 1000, "maxMessages": 150,
          "activeTopics": { "round_trip_topic[0-1]": { "numPartitions": 2, "replicationFactor": 3 } }
        }"#,
    );
    assert_eq!(status, serde_json::json!({ "totalUniqueSent": 150, "totalReceived": 150 }));
}

#[test]
fn a_workload_of_the_openmessaging_benchmark_runs() {
    let workload = |rate: u32, more: &str| {
        format!(
            "name: small\ntopics: 1\npartitionsPerTopic: 2\nkeyDistributor: KEY_ROUND_ROBIN\nmessageSize: 100\n\
             subscriptionsPerTopic: 1\nconsumerPerSubscription: 2\nproducersPerTopic: 2\nproducerRate: {rate}\n\
             warmupDurationMinutes: 0\ntestDurationMinutes: 0.01\n{more}"
        )
    };
    // A backlog of 53 records, which are always under way, is drained as soon as it is there.
    for (rate, more) in [(200, "consumerBacklogSizeGB: 0.000005\n"), (0, "")] {
        let result = bench(&workload(rate, more));
        assert_eq!((&result["workload"], &result["partitions"]), (&"small".into(), &2.into()));
        assert!(result["publishRate"][0].as_f64().unwrap() > 0.0, "{result}");
        for name in ["consumeRate", "backlog", "publishLatency99pct", "endToEndLatencyMax"] {
            assert!(!result[name].as_array().unwrap().is_empty(), "{name}: {result}");
        }
        assert!(result["aggregatedPublishLatency999pct"].as_f64().unwrap() > 0.0, "{result}");
    }
}

#[test]
fn a_wrong_benchmark_is_one_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (text, word) in [
        (
            r#"{"class": "org.apache.kafka.trogdor.workload.ExternalCommandSpec"}"#,
            "ExternalCommandSpec",
        ),
        ("topics: [1", path),
        ("name: x\ntopics: many", "line"),
        ("", "end of input"),
    ] {
        std::fs::write(file.path(), text).unwrap();
        let error = run(&["lab", "bench", path]).failed();
        assert!(error.contains(word) && error.contains(path), "{text}: {error}");
    }
    let error = run(&["lab", "bench", "no-such-file.json"]).failed();
    assert!(error.contains("cannot read no-such-file.json"), "{error}");
}
