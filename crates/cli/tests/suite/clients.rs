//! Quotas and SCRAM credentials in `curtail configs`, as in kafka-configs.

use curtail_apache::ApacheCluster;
use serde_json::{Value, json};

use crate::{
    admin::{At, Bench},
    common::run,
};

/// Resource, name and value of each row.
fn rows(found: &Value) -> Vec<String> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let line = |row: &Value| {
        format!("{} {}={}", text(row, "resource"), text(row, "name"), text(row, "value"))
    };
    found.as_array().unwrap().iter().map(line).collect()
}

#[test]
fn quotas_of_users_clients_and_addresses_are_changed_and_printed() {
    let bench = Bench::start();
    let alter = |extra: &[&str]| bench.run(&[&["configs", "alter"], extra].concat());
    let described = |of: &[&str]| rows(&bench.json(&[&["configs", "describe"], of].concat()));
    let rates = ["--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048"];
    let said = alter(&[&rates[..], &["--user", "alice"]].concat()).ok();
    assert_eq!(said, "Changed quotas of user 'alice'.\n");
    let alice = ["user 'alice' consumer_byte_rate=2048", "user 'alice' producer_byte_rate=1024"];
    assert_eq!(described(&["--user", "alice"]), alice);
    let pair = ["--user", "alice", "--client", "app"];
    let said = alter(&[&pair[..], &["--add", "producer_byte_rate=50"]].concat()).ok();
    assert_eq!(said, "Changed quotas of user 'alice', client-id 'app'.\n");
    assert_eq!(described(&pair), ["user 'alice', client-id 'app' producer_byte_rate=50"]);
    assert_eq!(described(&["--user", "alice"]), alice, "without those of a client");
    alter(&["--client-defaults", "--add", "producer_byte_rate=7"]).ok();
    assert_eq!(described(&["--client-defaults"]), ["default client-id producer_byte_rate=7"]);
    assert_eq!(described(&["--all-quotas"]).len(), 4);
    // The embedded cluster has quotas of users and clients only.
    let ip = ["--ip", "127.0.0.1", "--add", "connection_creation_rate=9"];
    assert!(alter(&ip).failed().contains("Quotas for \"ip\" are not supported"));

    let delete = ["--user", "alice", "--delete-config", "consumer_byte_rate"];
    let said = alter(&[&delete[..], &["--dry-run"]].concat()).ok();
    assert_eq!(said, "Would change quotas of user 'alice'.\n");
    assert_eq!(described(&["--user", "alice"]), alice);
    alter(&delete).ok();
    assert_eq!(described(&["--user", "alice"]), alice[1..]);
    assert_eq!(
        alter(&delete).failed(),
        "user 'alice' has no quota consumer_byte_rate; `curtail configs describe` prints those it has"
    );
    let none = bench.run(&["configs", "describe", "--user", "nobody"]);
    assert_eq!(none.err, "no quotas and no SCRAM credentials\n");
    assert_eq!(none.ok(), "");
}

#[test]
fn scram_credentials_are_changed_and_printed_without_secrets() {
    let bench = Bench::start();
    let alter =
        |extra: &[&str]| bench.run(&[&["configs", "alter", "--user", "alice"], extra].concat());
    let described = || rows(&bench.json(&["configs", "describe", "--user", "alice"]));
    let both = "SCRAM-SHA-256=[iterations=8192,password=hunter2],SCRAM-SHA-512=[password=hunter2]";
    let said = alter(&["--add-config", both]).ok();
    let changed =
        ["SCRAM-SHA-256", "SCRAM-SHA-512"].map(|name| format!("Changed {name} of user 'alice'.\n"));
    assert_eq!(said, changed.concat());
    let expected = [
        "user 'alice' SCRAM-SHA-256=iterations=8192",
        "user 'alice' SCRAM-SHA-512=iterations=4096",
    ];
    assert_eq!(described(), expected);
    alter(&["--delete-config", "SCRAM-SHA-256", "--add", "producer_byte_rate=5"]).ok();
    assert_eq!(described(), ["user 'alice' producer_byte_rate=5", expected[1]]);

    let wrong = alter(&["--add", "SCRAM-SHA-512=hunter2"]).failed();
    assert!(
        wrong.contains("SCRAM-SHA-512=[password=SECRET]") && !wrong.contains("hunter2"),
        "{wrong}"
    );
    let dry = alter(&["--add", "SCRAM-SHA-512=[password=hunter2]", "--dry-run"]).failed();
    assert!(dry.ends_with("leave out --dry-run"), "{dry}");
}

#[test]
fn mistakes_about_quotas_are_one_line() {
    for (command, expected) in [
        (
            "configs alter --user a --topic t --add x=1",
            "--user, --client and --ip cannot be combined with topics, brokers, groups or client metrics",
        ),
        (
            "configs describe --ip 1.2.3.4 --client app",
            "--ip cannot be combined with --user or --client",
        ),
        (
            "configs alter --user a",
            "no change given; use for example --add producer_byte_rate=1048576 or --delete producer_byte_rate",
        ),
        (
            "configs alter --user a --add producer_byte_rate=fast",
            "producer_byte_rate: expected a number, as quotas are",
        ),
        ("configs alter --user a --append x=1", "quotas are numbers; use --add or --delete"),
        (
            "configs describe --all-quotas --user a",
            "--all-quotas cannot be combined with users, clients, addresses or other resources",
        ),
        (
            "configs describe --all-quotas t",
            "--all-quotas cannot be combined with users, clients, addresses or other resources",
        ),
        (
            "configs alter --client a --add SCRAM-SHA-256=[password=x]",
            "SCRAM credentials belong to users; use --user NAME",
        ),
        (
            "configs describe",
            "no resource given; use --topic, --broker, --all-brokers, --group, --client-metrics, --user, --client or --ip",
        ),
    ] {
        // Nothing listens there: each mistake is found before a connection.
        let words: Vec<&str> = command.split(' ').chain(["-b", "127.0.0.1:1"]).collect();
        assert_eq!(run(&words).failed(), expected, "{command}");
    }
}

#[test]
fn names_are_given_bare_or_by_flag() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "1"]).ok();
    bench.produce("t", b"a\nb\n");
    bench.run(&["consume", "t", "--group", "g", "-c", "2"]).ok();
    let same = |bare: &[&str], flagged: &[&str]| {
        let said = bench.run(bare).ok();
        assert_eq!(said, bench.run(flagged).ok(), "{bare:?}");
        said
    };
    same(&["configs", "describe", "t", "--all"], &["configs", "describe", "--topic", "t", "--all"]);
    same(
        &["configs", "alter", "t", "--add", "retention.ms=9"],
        &["configs", "alter", "-t", "t", "--add", "retention.ms=9"],
    );
    same(&["elect", "t:0"], &["elect", "--topic", "t:0"]);
    let reset = ["groups", "offsets", "reset", "-t", "t", "--to-earliest"];
    same(&[&reset[..], &["g"]].concat(), &[&reset[..], &["--group", "g"]].concat());
    let delete = ["groups", "offsets", "delete", "-t", "t"];
    let said = bench.run(&[&delete[..], &["g"]].concat()).ok();
    assert_eq!(said, "Deleted offset 2 of t-0 in group g.\n");
    same(
        &["topics", "delete-records", "t", "--before", "0:1"],
        &["topics", "delete-records", "-t", "t", "--before", "0:1"],
    );
    let no_group = "no group given; use for example --group billing";
    assert_eq!(bench.run(&reset).failed(), no_group);
    assert_eq!(bench.run(&delete).failed(), no_group);
    let no_topic = "no topic given; use for example --topic payments";
    assert_eq!(bench.run(&["topics", "delete-records", "--before", "0:1"]).failed(), no_topic);
    assert_eq!(bench.run(&["consume"]).failed(), no_topic);
    let both = bench.run(&[&delete[..], &["g", "--group", "g"]].concat()).failed();
    assert!(both.contains("cannot be used with"), "{both}");
}

#[test]
fn metadata_are_printed_as_by_kcat() {
    let bench = Bench::start();
    bench
        .run(&["topics", "create", "t", "u", "--partitions", "1", "--replication-factor", "1"])
        .ok();
    let found = bench.json(&["metadata", "t"]);
    let leader = found["topics"][0]["partitions"][0]["leader"].as_i64().unwrap();
    let partition = json!({
        "partition": 0,
        "leader": leader,
        "replicas": [{"id": leader}],
        "isrs": [{"id": leader}],
    });
    assert_eq!(found["topics"], json!([{"topic": "t", "partitions": [partition]}]));
    assert_eq!(
        (found["brokers"].as_array().unwrap().len(), &found["brokers"][1]["id"]),
        (3, &json!(2))
    );
    // kcat -L and kcat -L -J.
    let list = |extra: &[&str]| run(&[&["-L", "-b", &bench.0.bootstrap], extra].concat()).ok();
    let text = list(&["-t", "t"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["Metadata for t:", " 3 brokers:"]);
    let partition = format!("    partition 0, leader {leader}, replicas: {leader}, isrs: {leader}");
    assert_eq!(lines[5..], [" 1 topics:", "  topic \"t\" with 1 partitions:", &partition]);
    assert_eq!(text.matches("(controller)").count(), 1, "{text}");
    assert!(
        list(&[]).starts_with("Metadata for all topics:\n") && list(&[]).contains("\n 2 topics:\n")
    );
    assert_eq!(serde_json::from_str::<Value>(&list(&["-t", "t", "-J"])).unwrap(), found);
    let missing = bench.run(&["metadata", "tt"]).failed();
    assert_eq!(missing, "topic 'tt' does not exist; did you mean 't'?");
}

#[test]
fn several_topics_are_consumed_alone_and_in_a_group() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "a", "b", "c", "--partitions", "1"]).ok();
    for topic in ["a", "b", "c"] {
        bench.produce(topic, format!("{topic}1\n{topic}2\n").as_bytes());
    }
    let read = |arguments: &[&str]| {
        let text = bench.run(&[arguments, &["-e", "-f", r"%t:%o:%s\n"]].concat()).ok();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let both = ["a:0:a1", "a:1:a2", "c:0:c1", "c:1:c2"];
    assert_eq!(read(&["consume", "a", "c"]), both);
    assert_eq!(read(&["-C", "-t", "a", "-t", "c", "-p", "0", "-o", "1"]), [both[1], both[3]]);
    for protocol in ["classic", "consumer"] {
        let group = ["--group", protocol, "--group-protocol", protocol];
        assert_eq!(read(&[&["consume", "-t", "a", "c"], &group[..]].concat()), both);
        assert_eq!(read(&[&["consume", "a", "c"], &group[..]].concat()), [""; 0]);
        assert_eq!(read(&[&["consume", "b"], &group[..]].concat()), ["b:0:b1", "b:1:b2"]);
    }
    let missing = bench.run(&["consume", "a", "bb"]).failed();
    assert_eq!(missing, "topic 'bb' does not exist; did you mean 'b'?");
}

/// Such a group may be an application's, whose offsets would change.
#[test]
fn a_group_of_a_file_has_no_commits_of_consume_without_the_group_flag() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "1"]).ok();
    bench.produce("t", b"a\nb\n");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client.properties");
    std::fs::write(&path, "group.id=billing\n").unwrap();
    let read = ["consume", "t", "-e", "--command-config", path.to_str().unwrap()];
    assert_eq!(bench.run(&read).ok(), "a\nb\n");
    assert_eq!(bench.json(&["groups", "list"]), json!([]));
}

/// The quotas that the embedded cluster lacks.
#[test]
fn quotas_of_addresses_and_fractions_apache() {
    let name = "quotas_of_addresses_and_fractions_apache";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let cluster = ApacheCluster::builder().toolchain(toolchain).short_lived().start().unwrap();
    let at = At(&cluster.bootstrap());
    let until = |of: &[&str], expected: &[&str]| {
        let describe = [&["configs", "describe"], of].concat();
        at.until_printed(&describe, |found| rows(found) == expected);
    };
    let alter = |extra: &[&str]| at.run(&[&["configs", "alter"], extra].concat()).ok();
    let pair = ["--user", "alice", "--client", "app"];
    alter(&[&pair[..], &["--add-config", "request_percentage=12.5"]].concat());
    until(&pair, &["user 'alice', client-id 'app' request_percentage=12.5"]);
    let ip = ["--ip", "192.0.2.1"];
    alter(&[&ip[..], &["--add", "connection_creation_rate=9"]].concat());
    until(&ip, &["ip '192.0.2.1' connection_creation_rate=9"]);
    alter(&["--ip-defaults", "--add", "connection_creation_rate=1000"]);
    until(&["--ip-defaults"], &["default ip connection_creation_rate=1000"]);
    alter(&[&ip[..], &["--delete-config", "connection_creation_rate"]].concat());
    until(&ip, &[]);
    let both = "SCRAM-SHA-256=[password=hunter2],SCRAM-SHA-512=[iterations=8192,password=hunter2]";
    alter(&["--user", "alice", "--add-config", both]);
    let credentials = [
        "user 'alice' SCRAM-SHA-256=iterations=4096",
        "user 'alice' SCRAM-SHA-512=iterations=8192",
    ];
    until(&["--user", "alice"], &credentials);
}
