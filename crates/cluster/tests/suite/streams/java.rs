//! Kafka Streams 4.3 as a streams group: a word count, exactly once, whose first instance is killed.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use curtail_apache::{ApacheCluster, Program, Tool, Toolchain};
use curtail_cluster::{Cluster, ClusterConfig, Storage};
use curtail_net::Env;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/java/WordCount.java");
const APPLICATION: &str = "word-count";
/// Tasks of the word count: two subtopologies with a task for each partition of `lines`.
const TASKS: usize = 2 * PARTITIONS as usize;
const PARTITIONS: i32 = 2;
/// Limit on every wait: a JVM on a busy machine takes seconds to start.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(tool: &Tool<'_>) -> Program {
    Program::start(tool.command().stdin(Stdio::piped())).unwrap()
}

/// Waits until the program prints a line.
fn await_line(program: &Program, expected: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = program.lines.recv_timeout(left);
        let line = line.unwrap_or_else(|error| panic!("no line `{expected}`: {error}"));
        if line == expected {
            return;
        }
    }
}

/// Counts words with two instances, and kills one while it counts. Returns the other.
fn count_words(toolchain: &Toolchain, bootstrap: &str, directory: &Path) -> Program {
    let streams = toolchain.streams().unwrap();
    let program = || toolchain.tool(PROGRAM).short_lived().jar(streams.clone());
    let counter = |name: &str| {
        let state = directory.join(name).display().to_string();
        start(&program().args(&["count", bootstrap, APPLICATION, &state]))
    };
    let half = format!("tasks {}", TASKS / 2);
    let first = counter("first");
    await_line(&first, &format!("tasks {TASKS}"));
    let second = counter("second");
    await_line(&first, &half);
    await_line(&second, &half);
    let mut driver = start(&program().args(&["drive", bootstrap]));
    driver.say("300").unwrap();
    await_line(&driver, "counted 300");
    // The first instance dies in the middle of transactions.
    driver.say("3000").unwrap();
    drop(first);
    await_line(&second, &format!("tasks {TASKS}"));
    await_line(&driver, "counted 3300");
    driver.say("100").unwrap();
    await_line(&driver, "counted 3400");
    second
}

/// Returns a tool's output; it must succeed.
fn run(toolchain: &Toolchain, class: &str, args: &[&str]) -> String {
    let streams = toolchain.streams().unwrap();
    let output = toolchain.tool(class).short_lived().jar(streams).args(args).run().unwrap();
    assert!(output.success(), "{class}: {}{}", output.stdout, output.stderr);
    output.stdout
}

#[test]
fn kafka_streams_counts_words_exactly_once() {
    let name = "kafka_streams_counts_words_exactly_once";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let directory = tempfile::tempdir().unwrap();
    let config = ClusterConfig {
        storage: Storage::Dir(directory.path().join("cluster")),
        // The JVMs may keep a small machine busy: no broker is dead here.
        broker_session_timeout: Duration::from_secs(30),
        group_streams_min_session_timeout: Duration::from_secs(1),
        group_streams_session_timeout: Duration::from_secs(6),
        group_streams_min_heartbeat_interval: Duration::from_millis(1),
        group_streams_heartbeat_interval: Duration::from_millis(200),
        group_streams_initial_rebalance_delay: Duration::ZERO,
        ..ClusterConfig::default()
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cluster = runtime.block_on(Cluster::start(config, Env::real())).unwrap();
    for topic in ["lines", "totals"] {
        cluster.create_topic(topic, PARTITIONS, 1, &[]).unwrap();
    }
    runtime.block_on(cluster.settled());
    let bootstrap = cluster.bootstrap();
    let counter = count_words(&toolchain, &bootstrap, directory.path());

    // Kafka's tool describes the group. It lists the offsets of members' tasks only.
    let group = ["--bootstrap-server", &bootstrap, "--describe", "--group", APPLICATION];
    let class = "org.apache.kafka.tools.streams.StreamsGroupCommand";
    let described = run(&toolchain, class, &[&group[..], &["--state"]].concat());
    assert!(described.contains("Stable") || described.contains("Empty"), "{described}");
    let offsets = run(&toolchain, class, &[&group[..], &["--offsets"]].concat());
    assert!(offsets.contains("lines") && offsets.contains("word-count-words"), "{offsets}");
    drop(counter);
    runtime.block_on(cluster.shutdown());
    check_records(&toolchain, &directory.path().join("cluster"));
}

/// Kafka's log reader decodes all records of the group.
fn check_records(toolchain: &Toolchain, root: &Path) {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(root.join("broker-1")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("__consumer_offsets-") {
            logs.push(path.join("00000000000000000000.log").display().to_string());
        }
    }
    let class = "org.apache.kafka.tools.DumpLogSegments";
    let dumped = run(toolchain, class, &["--offsets-decoder", "--files", &logs.join(",")]);
    for kind in [17, 19, 20, 21, 22, 23] {
        let key = format!("\"type\":\"{kind}\"");
        assert!(dumped.contains(&key), "no record of type {kind}: {dumped}");
    }
    // DumpLogSegments says this of a record that it cannot decode.
    assert!(!dumped.contains(", skipping."), "{dumped}");
}

#[test]
fn kafka_streams_counts_words_on_apache_kafka_alike() {
    let name = "kafka_streams_counts_words_on_apache_kafka_alike";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let directory = tempfile::tempdir().unwrap();
    let cluster = ApacheCluster::builder()
        .toolchain(toolchain.clone())
        .short_lived()
        .property("num.partitions", PARTITIONS.to_string())
        .property("group.streams.min.session.timeout.ms", "1000")
        .property("group.streams.session.timeout.ms", "6000")
        .property("group.streams.min.heartbeat.interval.ms", "1")
        .property("group.streams.heartbeat.interval.ms", "200")
        .property("group.streams.initial.rebalance.delay.ms", "0")
        .start()
        .unwrap();
    let bootstrap = cluster.bootstrap();
    let create = |topic: &str| {
        let args = ["--bootstrap-server", &bootstrap, "--create", "--topic", topic];
        run(&toolchain, "org.apache.kafka.tools.TopicCommand", &args);
    };
    ["lines", "totals"].into_iter().for_each(create);
    drop(count_words(&toolchain, &bootstrap, directory.path()));
}
