//! Kafka Streams 4.3 as a streams group: a word count, exactly once, whose first instance is killed.

use std::{
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use curtail_apache::{ApacheCluster, Tool, Toolchain};
use curtail_cluster::{Cluster, ClusterConfig, Storage};
use curtail_net::Env;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/java/WordCount.java");
const APPLICATION: &str = "word-count";
/// Tasks of the word count: two subtopologies with a task for each partition of `lines`.
const TASKS: usize = 2 * PARTITIONS as usize;
const PARTITIONS: i32 = 2;
/// Limit on every wait: a JVM on a busy machine takes seconds to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running Java program; if dropped, it is killed.
struct Java {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Java {
    fn start(tool: &Tool<'_>) -> Self {
        let mut command = tool.command();
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { stdin: child.stdin.take(), child, lines }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until the program prints a line.
    fn await_line(&self, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("no line `{expected}`: {error}"));
            if line == expected {
                return;
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts words with two instances, and kills one while it counts.
fn count_words(toolchain: &Toolchain, bootstrap: &str, directory: &Path) {
    let streams = toolchain.streams().unwrap();
    let program = || toolchain.tool(PROGRAM).short_lived().jar(streams.clone());
    let counter = |name: &str| {
        let state = directory.join(name).display().to_string();
        Java::start(&program().args(&["count", bootstrap, APPLICATION, &state]))
    };
    let half = format!("tasks {}", TASKS / 2);
    let first = counter("first");
    first.await_line(&format!("tasks {TASKS}"));
    let second = counter("second");
    first.await_line(&half);
    second.await_line(&half);
    let mut driver = Java::start(&program().args(&["drive", bootstrap]));
    driver.say("300");
    driver.await_line("counted 300");
    // The first instance dies in the middle of transactions.
    driver.say("3000");
    first.kill();
    second.await_line(&format!("tasks {TASKS}"));
    driver.await_line("counted 3300");
    driver.say("100");
    driver.await_line("counted 3400");
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
    count_words(&toolchain, &bootstrap, directory.path());

    // Kafka's tool describes the group.
    let group = ["--bootstrap-server", &bootstrap, "--describe", "--group", APPLICATION];
    let class = "org.apache.kafka.tools.streams.StreamsGroupCommand";
    let described = run(&toolchain, class, &[&group[..], &["--state"]].concat());
    assert!(described.contains("Stable") || described.contains("Empty"), "{described}");
    let offsets = run(&toolchain, class, &[&group[..], &["--offsets"]].concat());
    assert!(offsets.contains("lines") && offsets.contains("word-count-words"), "{offsets}");
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
    count_words(&toolchain, &bootstrap, directory.path());
}
