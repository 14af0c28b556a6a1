//! Apache Kafka's own tools against the clusters started here.

use std::time::Instant;

use curtail_apache::{ApacheCluster, require_or_skip};

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const DUMP: &str = "org.apache.kafka.tools.DumpLogSegments";

#[track_caller]
fn run(cluster: &ApacheCluster, class: &str, args: &[&str], stdin: &[u8]) -> String {
    let output = cluster.run_tool(class, args, stdin).expect("the tool runs");
    assert!(output.success(), "{class} {args:?}: {}{}", output.stdout, output.stderr);
    output.stdout
}

fn create(cluster: &ApacheCluster, topic: &str, partitions: &str, copies: &str) {
    let bootstrap = cluster.bootstrap();
    let at = ["--bootstrap-server", &bootstrap, "--create", "--topic", topic];
    let shape = ["--partitions", partitions, "--replication-factor", copies];
    run(cluster, TOPICS, &[&at[..], &shape[..]].concat(), b"");
}

fn consume(cluster: &ApacheCluster, topic: &str, count: &str) -> String {
    let bootstrap = cluster.bootstrap();
    let at = ["--bootstrap-server", &bootstrap, "--topic", topic, "--from-beginning"];
    let until = ["--max-messages", count, "--timeout-ms", "60000"];
    run(cluster, CONSUMER, &[&at[..], &until[..]].concat(), b"")
}

#[test]
fn one_broker_takes_and_gives_back_records() {
    let Some(toolchain) = require_or_skip("one_broker_takes_and_gives_back_records") else {
        return;
    };
    let cluster = ApacheCluster::builder().toolchain(toolchain).start().unwrap();
    let bootstrap = cluster.bootstrap();
    create(&cluster, "lines", "1", "1");
    let to = ["--bootstrap-server", &bootstrap, "--topic", "lines"];
    run(&cluster, PRODUCER, &to, b"first\nsecond\nthird\n");
    assert_eq!(consume(&cluster, "lines", "3"), "first\nsecond\nthird\n");

    let segment = cluster.data_dir(0).join("lines-0/00000000000000000000.log");
    let segment = segment.display().to_string();
    let dump = run(&cluster, DUMP, &["--deep-iteration", "--files", &segment], b"");
    assert_eq!(dump.matches("| offset: ").count(), 3, "{dump}");

    let directory = cluster.directory().to_owned();
    let pid = cluster.broker(0).pid().expect("it runs");
    drop(cluster);
    assert!(!directory.exists(), "the files are removed");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the broker is gone");
}

#[test]
fn three_brokers_survive_a_kill_a_freeze_and_a_restart() {
    let name = "three_brokers_survive_a_kill_a_freeze_and_a_restart";
    let Some(toolchain) = require_or_skip(name) else { return };
    let cluster = ApacheCluster::builder()
        .toolchain(toolchain)
        .brokers(3)
        .short_lived()
        .property("min.insync.replicas", "2")
        .start()
        .unwrap();
    create(&cluster, "lines", "3", "3");
    let bootstrap = cluster.bootstrap();
    let to = ["--bootstrap-server", &bootstrap, "--topic", "lines"];
    run(&cluster, PRODUCER, &to, b"one\n");

    cluster.kill(2).unwrap();
    assert!(cluster.broker(2).pid().is_none());
    assert!(cluster.kill(2).is_err(), "it is not running");
    run(&cluster, PRODUCER, &to, b"two\n");
    cluster.restart(2).unwrap();

    cluster.terminate(1).unwrap();
    run(&cluster, PRODUCER, &to, b"three\n");
    cluster.restart(1).unwrap();

    cluster.freeze(0).unwrap();
    let state = std::fs::read_to_string(format!(
        "/proc/{}/stat",
        cluster.broker(0).pid().expect("it runs")
    ));
    assert!(state.unwrap().contains(") T "), "the broker is stopped");
    cluster.thaw(0).unwrap();

    let mut lines: Vec<String> =
        consume(&cluster, "lines", "3").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["one", "three", "two"]);
}

#[test]
fn a_tool_that_does_not_end_is_killed_at_its_limit() {
    let Some(toolchain) = require_or_skip("a_tool_that_does_not_end_is_killed_at_its_limit") else {
        return;
    };
    let limit = std::time::Duration::from_secs(3);
    let begun = Instant::now();
    // No process listens at this port: the tool retries for a minute.
    let result = toolchain
        .tool(TOPICS)
        .args(&["--bootstrap-server", "127.0.0.1:1", "--list"])
        .limit(limit)
        .run();
    let error = result.expect_err("it cannot end in time").to_string();
    assert!(error.contains("TopicCommand did not end within 3s"), "{error}");
    assert!(begun.elapsed() >= limit);
}

#[test]
fn a_broker_that_cannot_start_shows_its_log() {
    let Some(toolchain) = require_or_skip("a_broker_that_cannot_start_shows_its_log") else {
        return;
    };
    let result = ApacheCluster::builder()
        .toolchain(toolchain.clone())
        .property("num.io.threads", "none")
        .start();
    let error = result.expect_err("not a number").to_string();
    assert!(error.contains("num.io.threads"), "{error}");
    let result = ApacheCluster::builder().toolchain(toolchain).brokers(2).start();
    assert!(result.expect_err("not 2").to_string().contains("1 or 3"));
}
