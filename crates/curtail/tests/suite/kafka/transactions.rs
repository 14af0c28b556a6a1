//! Kafka's own producer, consumer and tools in transactions with the embedded cluster, under both transaction
//! versions, and Kafka's log reader on the brokers' logs. This client takes no part.

use std::{path::Path, time::Duration};

use curtail_apache::Toolchain;
use curtail_cluster::{Cluster, ClusterConfig, Storage};
use curtail_net::Env;

const TOPIC: &str = "t";
const COUNTED: &str = "counted";
const PARTITIONS: i32 = 3;
const TRANSACTIONS: usize = 12;
const RECORDS: usize = 3000;
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/java/Transactions.java");

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn kafkas_clients_commit_and_abort() {
    let Some(toolchain) = curtail_apache::require_or_skip("kafkas_clients_commit_and_abort") else {
        return;
    };
    for version in [2, 1] {
        let directory = tempfile::tempdir().unwrap();
        let config = ClusterConfig {
            brokers: 3,
            transaction_version: version,
            storage: Storage::Dir(directory.path().to_owned()),
            // The tools' JVMs may keep a small machine busy: no broker is dead here.
            broker_session_timeout: Duration::from_secs(30),
            ..ClusterConfig::default()
        };
        let runtime = runtime();
        let cluster = runtime.block_on(Cluster::start(config, Env::real())).unwrap();
        cluster.create_topic(TOPIC, PARTITIONS, 3, &[]).unwrap();
        cluster.create_topic(COUNTED, 1, 3, &[]).unwrap();
        runtime.block_on(cluster.settled());
        let bootstrap = cluster.bootstrap();
        java_reads_what_java_commits(&toolchain, &bootstrap);
        performance_tool_commits(&toolchain, &bootstrap);
        let leaders: Vec<i32> =
            (0..PARTITIONS).map(|index| cluster.leader(TOPIC, index).unwrap().0).collect();
        runtime.block_on(cluster.shutdown());
        check_logs(&toolchain, directory.path(), &leaders);
    }
}

fn java_reads_what_java_commits(toolchain: &Toolchain, bootstrap: &str) {
    let (partitions, transactions) = (PARTITIONS.to_string(), TRANSACTIONS.to_string());
    // Java compiles a source file in place of a class.
    let output = toolchain
        .tool(PROGRAM)
        .short_lived()
        .args(&[bootstrap, TOPIC, &partitions, &transactions])
        .run()
        .unwrap();
    let printed = output.stdout.clone();
    assert!(output.success(), "{printed}{}", output.stderr);
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("fenced"));
    // The last transaction is aborted, together with its offset.
    assert_eq!(lines.next(), Some(format!("offset {}", TRANSACTIONS - 1).as_str()));
    let lines: Vec<&str> = lines.collect();
    for index in 0..PARTITIONS {
        let prefix = format!("{index}:");
        let found: Vec<&str> =
            lines.iter().filter_map(|line| line.strip_prefix(prefix.as_str())).collect();
        let committed = (0..TRANSACTIONS).filter(|t| t % 3 != 2).map(|t| format!("committed-{t}"));
        let expected: Vec<String> = committed
            .chain(["next".to_owned()])
            .flat_map(|what| [index, index + PARTITIONS].map(|n| format!("{what}-{n}")))
            .collect();
        assert_eq!(found, expected, "partition {index}");
    }
}

/// Returns a tool's output; it must succeed.
fn run(toolchain: &Toolchain, class: &str, args: &[&str]) -> String {
    let class = format!("org.apache.kafka.tools.{class}");
    let output = toolchain.tool(&class).short_lived().args(args).run().unwrap();
    assert!(output.success(), "{class}: {}{}", output.stdout, output.stderr);
    for bad in ["ERROR", "Exception", "ismatch", "not found"] {
        assert!(!output.stderr.contains(bad), "{class}: {}", output.stderr);
    }
    output.stdout
}

fn performance_tool_commits(toolchain: &Toolchain, bootstrap: &str) {
    let count = RECORDS.to_string();
    let at = ["--bootstrap-server", bootstrap, "--topic", COUNTED];
    let args = ["--num-records", &count, "--throughput", "10000", "--record-size", "100"];
    let txn = ["--transactional-id", "perf", "--transaction-duration-ms", "30"];
    let printed = run(toolchain, "ProducerPerformance", &[&at[..], &args, &txn].concat());
    assert!(printed.contains(&format!("{RECORDS} records sent")), "{printed}");
    let args = ["--partition", "0", "--offset", "earliest", "--max-messages", &count];
    let limits = ["--timeout-ms", "60000", "--isolation-level", "read_committed"];
    let printed = run(toolchain, "consumer.ConsoleConsumer", &[&at[..], &args, &limits].concat());
    assert_eq!(printed.lines().count(), RECORDS);
}

/// The files with this extension in a topic's partitions, on one broker.
fn files(data: &Path, topic: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data).unwrap() {
        let directory = entry.unwrap().path();
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        if name.rsplit_once('-').is_some_and(|(of, _)| of == topic) {
            let file = directory.join("00000000000000000000.log").with_extension(extension);
            if file.exists() {
                found.push(file.display().to_string());
            }
        }
    }
    found
}

/// Kafka's log reader accepts every broker's logs and indexes of aborted transactions, and finds the expected
/// records.
fn check_logs(toolchain: &Toolchain, root: &Path, leaders: &[i32]) {
    let aborted = TRANSACTIONS / 3 + 1;
    let broker = leaders[0];
    let data = root.join(format!("broker-{broker}"));
    let logs = files(&data, TOPIC, "log");
    let indexes = files(&data, TOPIC, "txnindex");
    assert_eq!((logs.len(), indexes.len()), (PARTITIONS as usize, PARTITIONS as usize));
    let all = [&logs[..], &indexes].concat().join(",");
    let printed = run(
        toolchain,
        "DumpLogSegments",
        &["--deep-iteration", "--print-data-log", "--files", &all],
    );
    let count = |what: &str| printed.lines().filter(|line| line.contains(what)).count();
    assert_eq!(count("endTxnMarker: ABORT"), aborted * PARTITIONS as usize, "{printed}");
    let committed = TRANSACTIONS - TRANSACTIONS / 3 + 1;
    assert_eq!(count("endTxnMarker: COMMIT"), committed * PARTITIONS as usize);
    assert_eq!(count("lastStableOffset: "), aborted * PARTITIONS as usize, "in the indexes");
    let batches = printed.lines().filter(|line| line.starts_with("baseOffset: "));
    for line in batches {
        assert!(line.ends_with(" isvalid: true"), "{line}");
    }
    let state = files(&data, "__transaction_state", "log").join(",");
    let decode = ["--transaction-log-decoder", "--files", &state];
    let printed = run(toolchain, "DumpLogSegments", &decode);
    // CompleteAbort and CompleteCommit.
    for (id, status) in [("java", 5), ("fenced", 4), ("perf", 4)] {
        let key = format!("\"transactionalId\":\"{id}\"");
        let last = printed.lines().rfind(|line| line.contains(&key)).unwrap_or_default();
        assert!(last.contains(&format!("\"transactionStatus\":{status}")), "{id}: {printed}");
    }
}
