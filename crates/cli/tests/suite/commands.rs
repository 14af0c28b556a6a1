//! Commands in normal operation.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    time::{Duration, Instant},
};

use crate::common::{self, Cluster, run, run_with_input};

#[test]
fn lines_become_records_and_records_lines() {
    let cluster = Cluster::start(&["--partitions", "2"]);
    let bootstrap = cluster.bootstrap.as_str();
    assert_eq!(bootstrap.split(',').count(), 3, "{bootstrap}");
    let produce =
        ["produce", "-t", "t", "-b", bootstrap, "-p", "1", "-K", ":", "-H", "a=1", "-H", "a=2"];
    let optional = [&produce[..], &["--optional-key"]].concat();
    run_with_input(&optional, b"k:v\nplain\n:\n").ok();
    let consume = ["consume", "-t", "t", "-e", "-b", bootstrap];
    let formatted = [&consume[..], &["-f", r"%t[%p]@%o %K:%k %S:%s %h\n"]].concat();
    assert_eq!(
        run(&formatted).ok(),
        "t[1]@0 1:k 1:v a=1,a=2\nt[1]@1 -1: 5:plain a=1,a=2\nt[1]@2 0: 0: a=1,a=2\n"
    );
    let with = |extra: &[&str]| run(&[&consume[..], extra].concat()).ok();
    assert_eq!(with(&["-c", "2"]), "v\nplain\n");
    assert_eq!(with(&["-c", "1", "--from-beginning"]), "v\n");
    let json: serde_json::Value = serde_json::from_str(&with(&["-c", "1", "-J"])).unwrap();
    assert_eq!((&json["key"], &json["payload"]), (&"k".into(), &"v".into()));
    assert_eq!(json["headers"], serde_json::json!(["a", "1", "a", "2"]));
    assert_eq!(with(&["-p", "1", "-o", "-1", "-K", "/"]), "/\n");
    assert_eq!(with(&["-p", "1", "-o", "1", "-Z", "-f", "%k %s;"]), "NULL plain; ;");
    assert_eq!(with(&["-p", "0"]), "");
    assert_eq!(with(&["-o", "end"]), "");
}

#[test]
fn a_file_is_sent_and_quiet_commands_print_no_messages() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a\nb\n").unwrap();
    let path = file.path().to_str().unwrap();
    let sent = run(&["produce", "-t", "t", "-b", bootstrap, "-q", "-l", path]);
    assert_eq!(sent.err, "", "although the brokers created the topic");
    sent.ok();
    let outside = ["-o", "9", "-X", "auto.offset.reset=earliest"];
    let consume = [&["consume", "-t", "t", "-e", "-b", bootstrap][..], &outside].concat();
    assert!(run(&consume).err.contains("outside the log"));
    let quiet = run(&[&consume[..], &["-q", "-u"]].concat());
    assert_eq!(quiet.err, "");
    assert_eq!(quiet.ok(), "a\nb\n");
}

#[test]
fn a_group_goes_on_where_it_was() {
    let cluster = Cluster::start(&["--partitions", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    let produce = ["produce", "-b", bootstrap, "-t"];
    for protocol in ["classic", "consumer"] {
        run_with_input(&[&produce[..], &[protocol]].concat(), b"a\nb\nc\n").ok();
        let consume =
            ["consume", "-t", protocol, "-b", bootstrap, "--group-protocol", protocol, "--group"];
        let with = |extra: &[&str]| run(&[&consume[..], &[protocol], extra].concat());
        assert_eq!(with(&["-c", "2"]).ok(), "a\nb\n");
        assert_eq!(with(&["-e"]).ok(), "c\n");
        run_with_input(&[&produce[..], &[protocol]].concat(), b"d\n").ok();
        assert_eq!(with(&["-e"]).ok(), "d\n");
        let other = [&consume[..], &["other", "-e", "-o", "end"]].concat();
        assert_eq!(run(&other).ok(), "");
        assert!(with(&["-o", "3"]).failed().contains("--offset"));
    }
}

#[test]
fn every_codec_is_read_back() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    let line = "compressible ".repeat(100);
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let produce = ["produce", "-t", codec, "-b", bootstrap, "-z", codec];
        run_with_input(&produce, format!("{line}\n{line}").as_bytes()).ok();
        let read = run(&["consume", "-t", codec, "-e", "-b", bootstrap]).ok();
        assert_eq!(read, format!("{line}\n{line}\n"), "{codec}");
    }
}

#[test]
fn topics_are_created_listed_described_and_deleted() {
    let cluster = Cluster::start(&[]);
    let bootstrap = cluster.bootstrap.as_str();
    let topics = |arguments: &[&str]| {
        run(&[&["topics"], arguments, &["--bootstrap-server", bootstrap]].concat())
    };
    let create = ["create", "b", "--partitions", "2", "--replication-factor", "3"];
    assert_eq!(topics(&create).ok(), "Created topic b.\n");
    assert_eq!(topics(&["create", "a"]).ok(), "Created topic a.\n");
    assert!(topics(&["create", "a"]).failed().contains("already exists"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "client.id=from-file\nbootstrap.servers=nowhere:1\n").unwrap();
    let path = file.path().to_str().unwrap();
    let settings = ["--config", "retention.ms=7000", "--config", "min.insync.replicas=2"];
    let create = [&["create", "c", "--command-config", path][..], &settings].concat();
    assert_eq!(topics(&create).ok(), "Created topic c.\n");
    let named = run(&["configs", "describe", "-t", "c", "-b", bootstrap, "-F", path]).ok();
    assert!(named.contains("retention.ms         7000"), "{named}");
    assert!(named.contains("min.insync.replicas  2"), "{named}");
    let described = topics(&["describe", "c"]).ok();
    let configs = "\tConfigs: min.insync.replicas=2,retention.ms=7000\n";
    assert!(described.contains(configs), "{described}");
    topics(&["delete", "c"]).ok();
    assert_eq!(topics(&["list"]).ok(), "a\nb\n");
    let described = topics(&["describe", "b"]).ok();
    let lines: Vec<_> = described.lines().collect();
    let (name, rest) = lines[0].split_once("\tTopicId: ").unwrap();
    let (id, rest) = rest.split_once('\t').unwrap();
    let header = (name, rest);
    assert_eq!(header, ("Topic: b", "PartitionCount: 2\tReplicationFactor: 3\tConfigs: "));
    assert_eq!(topics(&["describe", "--topic-id", id]).ok(), described);
    let unknown = topics(&["describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAABA"]).failed();
    assert!(unknown.starts_with("topic with id AAAAAAAAAAAAAAAAAAAABA: "), "{unknown}");
    let refused = topics(&["describe", "--topic-id", "b"]).failed();
    assert!(refused.contains("--topic-id"), "{refused}");
    assert_eq!(lines.len(), 3);
    assert!(lines[2].starts_with("\tTopic: b\tPartition: 1\tLeader: "), "{described}");
    assert_eq!(topics(&["delete", "b", "a"]).ok(), "Deleted topic b.\nDeleted topic a.\n");
    assert_eq!(topics(&["list"]).ok(), "");
}

#[test]
fn topics_that_exist_already_or_no_longer_are_left_out_on_request() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let topics = |arguments: &[&str]| {
        run(&[&["topics"], arguments, &["--bootstrap-server", &cluster.bootstrap]].concat())
    };
    topics(&["create", "a", "--partitions", "2"]).ok();
    let again = topics(&["create", "a", "b", "--if-not-exists"]);
    assert_eq!(again.err, "topic 'a' exists; nothing changed\n");
    assert_eq!(again.ok(), "Created topic b.\n");
    let deleted = topics(&["delete", "b", "c", "--if-exists"]);
    assert_eq!(deleted.err, "topic 'c' does not exist; nothing to delete\n");
    assert_eq!(deleted.ok(), "Deleted topic b.\n");
    let described = topics(&["describe", "a", "b", "--if-exists"]);
    assert_eq!(described.err, "topic 'b' does not exist; nothing to describe\n");
    assert_eq!(described.ok().lines().count(), 3);
    let altered = topics(&["alter", "b", "--partitions", "2", "--if-exists"]);
    assert_eq!(altered.err, "topic 'b' does not exist; nothing to alter\n");
    assert_eq!(altered.ok(), "");
    assert!(topics(&["delete", "b"]).failed().contains("does not exist"));
}

#[test]
fn partitions_are_selected_by_their_replicas_and_leaders() {
    let config = curtail_cluster::ClusterConfig {
        brokers: 2,
        broker_session_timeout: Duration::from_secs(1),
        broker_heartbeat_interval: Duration::from_millis(200),
        ..Default::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let start = curtail_cluster::Cluster::start(config, curtail_net::Env::real());
    let cluster = runtime.block_on(start).unwrap();
    let topics =
        |arguments: &[&str]| run(&[&["topics"], arguments, &["-b", &cluster.bootstrap()]].concat());
    let create = |name: &str, replicas: &str| {
        topics(&["create", name, "--partitions", "2", "--replication-factor", replicas]).ok();
    };
    create("two", "2");
    create("one", "1");
    let under_replicated = ["describe", "--under-replicated-partitions"];
    let unavailable = ["describe", "--unavailable-partitions"];
    let list = ["list", "--under-replicated-partitions"];
    for (arguments, none) in [
        (&under_replicated[..], "no under-replicated partitions\n"),
        (&unavailable, "no unavailable partitions\n"),
        (&list, "no under-replicated partitions\n"),
    ] {
        let said = topics(arguments);
        assert_eq!(said.err, none, "{arguments:?}");
        assert_eq!(said.ok(), "", "{arguments:?}");
    }
    cluster.kill(2);
    let deadline = Instant::now() + Duration::from_secs(60);
    let both = loop {
        let text = topics(&under_replicated).ok();
        if text.lines().count() == 2 && topics(&unavailable).ok().lines().count() == 1 {
            break text;
        }
        assert!(Instant::now() < deadline, "{text}");
    };
    for line in both.lines() {
        let (partition, isr) = line.split_once("\tIsr: ").unwrap();
        assert!(partition.starts_with("\tTopic: two\tPartition: ") && isr == "1", "{both}");
    }
    let one = topics(&unavailable).ok();
    assert!(one.starts_with("\tTopic: one\t") && one.contains("\tLeader: none\t"), "{one}");
    assert_eq!(topics(&list).ok(), "two\n");
    let json = topics(&[&unavailable[..], &["--json"]].concat()).ok();
    assert!(json.starts_with("[{") && json.matches("topic").count() == 1, "{json}");
    runtime.block_on(cluster.shutdown());
}

/// The input stays open, as in a terminal. Without the message the command would look as if it had no input.
#[test]
fn produce_says_once_why_records_are_not_acknowledged() {
    let mut config = curtail_cluster::ClusterConfig {
        brokers: 2,
        default_replication_factor: 2,
        broker_session_timeout: Duration::from_secs(1),
        broker_heartbeat_interval: Duration::from_millis(200),
        ..Default::default()
    };
    config.set("min.insync.replicas", "2").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let start = curtail_cluster::Cluster::start(config, curtail_net::Env::real());
    let cluster = runtime.block_on(start).unwrap();
    let bootstrap = cluster.bootstrap();
    run(&["topics", "create", "t", "-b", &bootstrap]).ok();
    cluster.kill(2);
    let shrunk = cluster.wait_until(|cluster| cluster.isr("t", 0) == Some(vec![1]));
    runtime.block_on(shrunk);
    let mut child = common::curtail()
        .args(["produce", "-t", "t", "-b", &bootstrap])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a\nb\n").unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let start = "2 records have waited 5s for the acknowledgement: t-0 has 1 in-sync replica, fewer than \
                 min.insync.replicas=2";
    assert!(line.starts_with(start), "{line}");
    assert!(line.contains(", broker 1 ") && line.ends_with("(delivery.timeout.ms)\n"), "{line}");
    runtime.block_on(cluster.restart(2)).unwrap();
    drop(input);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(child.wait().unwrap().success());
    assert_eq!(run(&["consume", "-t", "t", "-e", "-b", &bootstrap]).ok(), "a\nb\n");
    runtime.block_on(cluster.shutdown());
}

#[test]
fn a_cluster_keeps_its_data_and_stops_cleanly() {
    let data = tempfile::tempdir().unwrap();
    let arguments = ["--brokers", "2", "--data", data.path().to_str().unwrap()];
    for (round, signal) in ["-INT", "-TERM"].into_iter().enumerate() {
        let cluster = Cluster::start(&arguments);
        let line = format!("round {round}\n");
        run_with_input(&["produce", "-t", "t", "-b", &cluster.bootstrap], line.as_bytes()).ok();
        let stopped = cluster.stop(signal);
        assert_eq!(stopped.code, Some(0), "{stopped:?}");
        assert!(stopped.err.ends_with("stopped\n"), "{stopped:?}");
    }
    let cluster = Cluster::start(&arguments);
    let read = run(&["consume", "-t", "t", "-e", "-b", &cluster.bootstrap]).ok();
    assert_eq!(read, "round 0\nround 1\n");
}

#[test]
fn output_that_is_closed_early_is_no_error() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    run_with_input(&["produce", "-t", "t", "-b", bootstrap], &b"x\n".repeat(100_000)).ok();
    let mut child = common::curtail()
        .args(["consume", "-t", "t", "-b", bootstrap])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
