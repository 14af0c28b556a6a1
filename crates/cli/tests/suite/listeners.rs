//! `curtail cluster` with several listeners, with a `server.properties`, and with the environment of
//! Kafka's images.

use std::{fs, net::TcpListener, path::PathBuf};

use serde_json::Value;

use crate::common::{Cluster, curtail, run, run_with_input};

/// `config/server.properties` of Apache Kafka 4, without its comments.
const QUICK_START: &str = "\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:PORT,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:PORT,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=4
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
";

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn file(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("server.properties");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_server_properties_of_kafka_starts_a_broker() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    let path = file(&directory, &QUICK_START.replace("PORT", &port));
    let path = path.to_str().unwrap();
    let open = run(&["cluster", "--brokers", "1", "--config", path]).failed();
    let said = "listening on every address with PLAINTEXT: anyone who reaches it can read and write all records; set \
                PLAINTEXT:SASL_SSL in listener.security.protocol.map with --user-file, listen on localhost, or add \
                --insecure";
    assert_eq!(open, said);
    let mut command = curtail();
    command.args(["cluster", "--brokers", "1", "--insecure", "--config", path]);
    let cluster = Cluster::spawn(command);
    let bootstrap = cluster.bootstrap.as_str();
    assert_eq!(bootstrap, format!("localhost:{port}"));
    run(&["topics", "create", "t", "-b", bootstrap]).ok();
    let topics = run(&["topics", "describe", "t", "--json", "-b", bootstrap]).ok();
    let partitions: Vec<Value> = serde_json::from_str(&topics).unwrap();
    assert_eq!(partitions.len(), 4, "{topics}");
    let said = cluster.stop("-TERM").err;
    let expected = "without effect here: controller.quorum.bootstrap.servers, log.dirs (use --data DIR), node.id, \
                    num.io.threads, num.network.threads, num.recovery.threads.per.data.dir, process.roles, \
                    share.coordinator.state.topic.min.isr, share.coordinator.state.topic.replication.factor, \
                    socket.receive.buffer.bytes, socket.send.buffer.bytes\n";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn wrong_files_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    for (text, said) in [
        ("num.partition=1", "has no property 'num.partition'; did you mean 'num.partitions'?"),
        ("num.partitions=0", "num.partitions=0: expected a count, at least 1"),
        (
            "log.cleanup.policy=shrink",
            "Invalid value shrink for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
        ("log.retention.hours=0", "expected a time above 0, or -1 for no limit"),
        ("process.roles=controller", "process.roles: these settings are those of a controller"),
        ("group.share.heartbeat.interval.ms=1", "the embedded cluster has no share groups"),
        ("listeners=localhost:9092", "listeners=localhost:9092: expected NAME://host:port"),
        ("a=\\\\uzzzz", ""),
    ] {
        let path = file(&directory, text);
        let error = run(&["cluster", "--config", path.to_str().unwrap()]).failed();
        assert!(error.contains(path.to_str().unwrap()) && error.contains(said), "{error}");
    }
    let path = file(&directory, "listeners=A://localhost:1");
    let error = run(&["cluster", "--config", path.to_str().unwrap()]).failed();
    assert!(error.contains("add A:PROTOCOL to listener.security.protocol.map"), "{error}");
    let error = run(&["cluster", "--config", "/no/such/file"]).failed();
    assert!(error.contains("/no/such/file"), "{error}");
}

/// A client enters through each listener with that listener's security.
#[test]
fn clients_enter_through_listeners_with_different_security() {
    let data = tempfile::tempdir().unwrap();
    let mut command = curtail();
    let listeners = "listeners=INTERNAL://127.0.0.1:0,EXTERNAL://localhost:0";
    let protocols = "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL";
    command.args(["cluster", "--json", "--user", "alice:secret", "--data"]).arg(data.path());
    command.args(["--property", listeners, "--property", protocols]);
    let cluster = Cluster::spawn(command);
    // The only line of --json.
    let started: Value = serde_json::from_str(&cluster.bootstrap).unwrap();
    let internal = started["bootstrap_servers"].as_str().unwrap();
    assert_eq!(started["listeners"]["INTERNAL"], internal);
    let external = started["listeners"]["EXTERNAL"].as_str().unwrap();
    assert!(external.split(',').all(|server| server.starts_with("localhost:")), "{external}");
    assert_eq!(external.split(',').count(), 3);
    let file = data.path().join("client-alice.properties");
    let file = file.to_str().unwrap();
    assert!(fs::read_to_string(file).unwrap().contains(&format!("bootstrap.servers={external}\n")));
    run(&["topics", "create", "t", "--partitions", "6", "--command-config", file]).ok();
    let produce = ["produce", "-t", "t", "--command-config", file];
    let text: String = (0..60).map(|n| format!("{n}\n")).collect();
    run_with_input(&produce, text.as_bytes()).ok();
    let read = run(&["consume", "-t", "t", "-e", "-b", internal]).ok();
    assert_eq!(read.lines().count(), 60);
    let short = ["-X", "default.api.timeout.ms=5000", "-X", "request.timeout.ms=2000"];
    let refused = run(&[&["topics", "list", "-b", external][..], &short].concat());
    let refused = refused.failed();
    assert!(
        refused.contains("TLS") && refused.contains("security.protocol=PLAINTEXT"),
        "{refused}"
    );
}

#[test]
fn variables_of_kafkas_images_configure_the_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "num.partitions=2\nmessage.max.bytes=5000\n");
    let port = free_port();
    let mut command = curtail();
    command.args(["cluster", "--env", "--insecure", "--config"]).arg(&path);
    command.args(["--property", "message.max.bytes=6000"]);
    for (name, value) in [
        ("KAFKA_HEAP_OPTS", "-Xmx1G"),
        ("KAFKA_LOG_RETENTION_HOURS", "25"),
        ("KAFKA_NODE_ID", "1"),
        ("KAFKA_PROCESS_ROLES", "broker,controller"),
        ("KAFKA_NUM_PARTITIONS", "3"),
        ("KAFKA_MESSAGE_MAX_BYTES", "7000"),
    ] {
        command.env(name, value);
    }
    command.env("KAFKA_ADVERTISED_LISTENERS", format!("PLAINTEXT://localhost:{port}"));
    let cluster = Cluster::spawn(command);
    let bootstrap = cluster.bootstrap.as_str();
    assert_eq!(bootstrap, format!("localhost:{port}"));
    let described = run(&["configs", "describe", "--broker", "1", "--json", "-b", bootstrap]).ok();
    assert!(described.contains("6000"), "{described}");
    run(&["topics", "create", "t", "-b", bootstrap]).ok();
    let topics = run(&["topics", "describe", "t", "--json", "-b", bootstrap]).ok();
    let partitions: Vec<Value> = serde_json::from_str(&topics).unwrap();
    assert_eq!(partitions.len(), 3, "{topics}");
    let all = ["configs", "describe", "--topic", "t", "--all", "--json", "-b", bootstrap];
    let described = run(&all).ok();
    assert!(described.contains("90000000"), "{described}");
    let said = cluster.stop("-TERM").err;
    assert!(said.contains("without effect here: node.id, process.roles\n"), "{said}");
}

/// Kafka's images format their storage with this id, and do not start on that of another.
#[test]
fn the_cluster_id_of_the_environment_is_that_of_the_directory() {
    let data = tempfile::tempdir().unwrap();
    let with_id = |id: &str| {
        let mut command = curtail();
        command.args(["cluster", "--env", "--port", "0", "--data"]).arg(data.path());
        command.env("CLUSTER_ID", id);
        command
    };
    for id in ["5L6g3nShT-eMCtK--X86sw", ""] {
        Cluster::spawn(with_id(id)).stop("-TERM");
    }
    let output = with_id("MkU3OEVBNTcwNTJENDM2Qk").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    let said = "it belongs to the cluster with the id 5L6g3nShT-eMCtK--X86sw, not MkU3OEVBNTcwNTJENDM2Qk; use that id, \
                or choose another directory\n";
    assert!(error.ends_with(said) && error.lines().count() == 1, "{error}");
}

#[test]
fn a_mistyped_variable_is_refused_and_an_unread_one_is_mentioned() {
    let mut command = curtail();
    command.args(["cluster", "--env"]).env("KAFKA_NUM_PARTITION", "3");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "curtail: KAFKA_NUM_PARTITION: the embedded cluster has no property 'num.partition'; did you mean \
         KAFKA_NUM_PARTITIONS?\n"
    );
    let mut command = curtail();
    command.args(["cluster", "--port", "0", "--brokers", "1"]);
    command.env("KAFKA_NUM_PARTITIONS", "3").env("KAFKA_NUM_PARTITION", "3");
    let said = Cluster::spawn(command).stop("-TERM").err;
    let note = "KAFKA_NUM_PARTITIONS of the environment is not read; --env reads it\n";
    assert!(said.contains(note), "{said}");
}

#[test]
fn ports_that_meet_are_refused_with_advice() {
    let listeners = "listeners=PLAINTEXT://localhost:19092,SSL://localhost:19093";
    let error = run(&["cluster", "--property", listeners]).failed();
    assert!(error.contains("have the same port, 19093; each further broker takes"), "{error}");
    let error = run(&["cluster", "--property", listeners, "--port", "1"]).failed();
    assert!(error.contains("--port and --property listeners both say"), "{error}");
}
