//! The administrator's commands on an embedded cluster, and those for ACLs and replicas on Apache Kafka, too.

use std::time::{Duration, Instant};

use crate::common::{Cluster, Run, run, run_with_input};
use curtail_apache::ApacheCluster;
use serde_json::{Value, json};

const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

pub(crate) struct Bench(pub(crate) Cluster);

impl Bench {
    pub(crate) fn start() -> Self {
        Self(Cluster::start(&["--partitions", "2"]))
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        run(&[arguments, &["--bootstrap-server", &self.0.bootstrap]].concat())
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat()).ok()).unwrap()
    }

    /// Puts lines into partition 0.
    pub(crate) fn produce(&self, topic: &str, lines: &[u8]) {
        let arguments = ["produce", "-t", topic, "-p", "0", "-b", &self.0.bootstrap];
        run_with_input(&arguments, lines).ok();
    }
}

/// The commands on any cluster.
pub(crate) struct At<'a>(pub(crate) &'a str);

impl At<'_> {
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        run(&[arguments, &["--bootstrap-server", self.0]].concat())
    }

    /// Repeats the command until it prints this number of rows.
    fn until_count(&self, arguments: &[&str], expected: usize) {
        self.until_printed(arguments, |found| found.as_array().map(Vec::len) == Some(expected));
    }

    /// Repeats the command until it prints this: changes reach brokers with a delay.
    fn until(&self, arguments: &[&str], expected: &Value) {
        self.until_printed(arguments, |found| found == expected);
    }

    pub(crate) fn until_printed(&self, arguments: &[&str], expected: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let arguments = [arguments, &["--json"]].concat();
        loop {
            let found: Value = serde_json::from_str(&self.run(&arguments).ok()).unwrap();
            if expected(&found) {
                return;
            }
            assert!(Instant::now() < deadline, "{arguments:?}: {found}");
        }
    }
}

#[test]
fn topics_grow_and_lose_records() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "2"]).ok();
    bench.produce("t", b"a\nb\nc\n");
    let grow = ["topics", "alter", "t", "--partitions", "4"];
    let said = bench.run(&[&grow[..], &["--dry-run"]].concat()).ok();
    assert_eq!(said, "Topic t would have 4 partitions.\n");
    assert_eq!(bench.run(&grow).ok(), "Topic t has 4 partitions.\n");
    assert!(bench.run(&grow).failed().contains("already has 4"));
    let described = bench.json(&["topics", "describe", "t"]);
    assert_eq!(described.as_array().unwrap().len(), 4);
    assert_eq!(described[3]["partition"], 3);
    assert_eq!(bench.json(&["topics", "list"]), json!(["t"]));

    let delete = ["topics", "delete-records", "--topic", "t", "--before"];
    let said = bench.run(&[&delete[..], &["0:2"]].concat()).ok();
    assert_eq!(said, "TOPIC  PARTITION  LOG-START-OFFSET\nt      0          2\n");
    let read = bench.run(&["consume", "-t", "t", "-o", "beginning", "-e"]).ok();
    assert_eq!(read, "c\n");
    let all = bench.json(&[&delete[..], &["0:-1"]].concat());
    assert_eq!(all, json!([{"topic": "t", "partition": 0, "log_start_offset": 3}]));
    assert!(bench.run(&[&delete[..], &["0:9"]].concat()).failed().contains("OFFSET_OUT_OF_RANGE"));
    let refused = bench.run(&[&delete[..], &["9:0"]].concat()).failed();
    assert!(refused.contains("no partition 9"), "{refused}");
}

#[test]
fn subscriptions_to_client_metrics_are_changed_and_printed() {
    let bench = Bench::start();
    let alter = ["configs", "alter", "--client-metrics", "s"];
    let with = |extra: &[&str]| bench.run(&[&alter[..], extra].concat());
    let changed = "Changed settings of client metrics 's'.\n";
    assert_eq!(with(&["--add", "metrics=[a.,b.],interval.ms=1000"]).ok(), changed);
    assert!(with(&["--add", "interval.ms=1"]).failed().contains("between 100 and 3600000"));
    let described = bench.json(&["configs", "describe", "--client-metrics", "s"]);
    let entry = |name: &str, value: &str| {
        json!({
            "resource": "client metrics 's'",
            "name": name,
            "value": value,
            "source": "DYNAMIC_CLIENT_METRICS_CONFIG",
        })
    };
    assert_eq!(described, json!([entry("interval.ms", "1000"), entry("metrics", "a.,b.")]));
    with(&["--delete", "interval.ms,metrics"]).ok();
    assert_eq!(bench.json(&["configs", "describe", "--client-metrics", "s"]), json!([]));
}

#[test]
fn settings_are_changed_and_printed() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t"]).ok();
    let alter = ["configs", "alter", "--topic", "t"];
    let with = |extra: &[&str]| bench.run(&[&alter[..], extra].concat());
    assert!(with(&[]).failed().contains("--add retention.ms=3600000"));
    assert!(with(&["--add", "retention.mss=1"]).failed().contains("retention.mss"));
    let unknown = "topic 't' has no setting retention.mss; `curtail configs describe --all` prints those it has";
    assert_eq!(with(&["--delete", "retention.mss"]).failed(), unknown);
    assert_eq!(with(&["--add", "retention.ms=7000"]).ok(), "Changed settings of topic 't'.\n");
    let described = bench.json(&["configs", "describe", "--topic", "t"]);
    let entry = json!([{
        "resource": "topic 't'",
        "name": "retention.ms",
        "value": "7000",
        "source": "DYNAMIC_TOPIC_CONFIG",
    }]);
    assert_eq!(described, entry);
    with(&["--delete", "retention.ms"]).ok();
    assert_eq!(bench.json(&["configs", "describe", "--topic", "t"]), json!([]));
    with(&["--add-config", "retention.ms=7000,cleanup.policy=[compact,delete],segment.ms=9000"])
        .ok();
    let values = || {
        let described = bench.json(&["configs", "describe", "--topic", "t"]);
        let entries = described.as_array().unwrap().iter();
        let pair = |entry: &Value| format!("{}={}", entry["name"], entry["value"]).replace('"', "");
        entries.map(pair).collect::<Vec<_>>()
    };
    let three = ["cleanup.policy=compact,delete", "retention.ms=7000", "segment.ms=9000"];
    assert_eq!(values(), three);
    with(&["--delete-config", "retention.ms,segment.ms"]).ok();
    assert_eq!(values(), three[..1]);
    let all = bench.run(&["configs", "describe", "--broker", "2", "--all"]).ok();
    assert!(all.contains("broker 2  num.partitions"), "{all}");
    assert!(bench.run(&["configs", "describe"]).failed().contains("--topic, --broker"));
    let missing = bench.run(&["configs", "describe", "--topic", "missing"]);
    assert!(missing.err.contains("'missing' does not exist"), "{missing:?}");
    assert_eq!(missing.code, Some(1));
}

#[test]
fn groups_are_printed_and_reset() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "1"]).ok();
    bench.produce("t", b"a\nb\nc\n");
    bench.run(&["consume", "-t", "t", "--group", "g", "-c", "2"]).ok();
    let listed = bench.json(&["groups", "list"]);
    assert_eq!((&listed[0]["group"], &listed[0]["kind"]), (&json!("g"), &json!("classic")));
    let described = bench.run(&["groups", "describe", "g"]).ok();
    let header = "GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID";
    let row = "g      t      0          2               3               1    -            -     -";
    assert_eq!(described, format!("{header}\n{row}\n"));
    let state = bench.json(&["groups", "describe", "g", "--state"]);
    assert_eq!((&state[0]["state"], &state[0]["members"]), (&json!("Empty"), &json!(0)));

    let reset = ["groups", "offsets", "reset", "--group", "g"];
    let with = |extra: &[&str]| bench.run(&[&reset[..], extra].concat());
    let current = || bench.json(&["groups", "describe", "g"])[0]["current_offset"].clone();
    let planned = with(&["--all-topics", "--to-earliest"]);
    assert!(planned.err.contains("--execute"), "{planned:?}");
    assert_eq!(planned.ok(), "GROUP  TOPIC  PARTITION  NEW-OFFSET\ng      t      0          0\n");
    assert_eq!(current(), 2);
    let cases: [(&[&str], i64); 9] = [
        (&["--to-earliest"], 0),
        (&["--to-offset", "2"], 2),
        (&["--shift-by", "-1"], 1),
        (&["--shift-by", "9"], 3),
        (&["--to-datetime", "2001-01-01T00:00:00.000"], 0),
        (&["--to-datetime", "2999-01-01T00:00:00Z"], 3),
        (&["--to-offset", "1"], 1),
        (&["--to-current"], 1),
        (&["--to-latest"], 3),
    ];
    for (to, expected) in cases {
        with(&[to, &["--topic", "t:0", "--execute"]].concat()).ok();
        assert_eq!(current(), expected, "{to:?}");
    }
    for (to, expected) in [("PT1H", 0), ("PT0S", 3)] {
        with(&["--by-duration", to, "--topic", "t", "--execute"]).ok();
        assert_eq!(current(), expected, "{to}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let from_file = |text: &str, extra: &[&str]| {
        std::fs::write(file.path(), text).unwrap();
        with(&[&["--from-file", file.path().to_str().unwrap()], extra].concat())
    };
    from_file("t,0,1\n", &["--execute"]).ok();
    assert_eq!(current(), 1);
    from_file("t,0,99\n", &["--execute"]).ok();
    assert_eq!(current(), 3, "the log end offset");
    let refused = from_file("t,0\n", &[]).failed();
    assert!(
        refused.ends_with(", line 1: expected TOPIC,PARTITION,OFFSET, for example payments,0,42")
    );
    assert!(from_file("t,0,1\n", &["--topic", "t"]).failed().contains("cannot be used with"));
    assert!(with(&["--topic", "t"]).failed().contains("--to-earliest"));
    assert!(with(&["--topic", "t", "--to-datetime", "soon"]).failed().contains("2026-01-31"));
    let missing = with(&["--topic", "missing", "--to-latest"]).failed();
    assert!(missing.contains("'missing' does not exist"), "{missing}");

    let forget = ["groups", "offsets", "delete", "--group", "g", "--topic"];
    let unknown = bench.run(&[&forget[..], &["t:7"]].concat());
    assert_eq!(unknown.out, "", "nothing was deleted");
    assert_eq!(unknown.failed(), "topic 't' has no partition 7; its only partition is 0");
    let unknown = bench.run(&[&forget[..], &["missing:0"]].concat()).failed();
    assert_eq!(unknown, "topic 'missing' does not exist; `curtail topics list` prints the topics");
    assert_eq!(current(), 3);
    let forget = [&forget[..], &["t"]].concat();
    assert_eq!(bench.run(&forget).ok(), "Deleted offset 3 of t-0 in group g.\n");
    let again = bench.run(&forget);
    assert_eq!(again.err, "group 'g' has no offset for t-0; nothing deleted\n");
    assert_eq!(again.ok(), "");
    assert_eq!(bench.run(&["groups", "delete", "g"]).ok(), "Deleted group g.\n");
    let gone = bench.run(&["groups", "describe", "g"]).failed();
    assert!(gone.starts_with("group 'g' does not exist; "), "{gone}");
    assert_eq!(bench.json(&["groups", "list"]), json!([]));
    assert!(bench.run(&["groups", "delete"]).failed().ends_with("--group billing"));
    assert!(
        bench.run(&["groups", "describe"]).failed().ends_with("--group billing or --all-groups")
    );
}

/// A commit for a mistyped group would create it, and the right one would stay as it is.
#[test]
fn offsets_of_a_group_that_does_not_exist_are_neither_planned_nor_deleted() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "1"]).ok();
    bench.produce("t", b"a\n");
    let reset = |group: &str, extra: &[&str]| {
        let reset = ["groups", "offsets", "reset", "--topic", "t", "--to-latest", "--group", group];
        bench.run(&[&reset[..], extra].concat())
    };
    for extra in [&[][..], &["--execute"]] {
        let refused = reset("billing", extra);
        assert_eq!(refused.out, "");
        let expected = "group 'billing' does not exist; `curtail groups list` prints the groups; --create \
                        creates a new group";
        assert_eq!(refused.failed(), expected);
    }
    assert!(reset("billing", &["--create"]).err.starts_with("dry run"));
    assert_eq!(bench.json(&["groups", "list"]), json!([]));
    reset("billing", &["--create", "--execute"]).ok();
    reset("billing", &["--execute"]).ok();
    reset("audit", &["--create", "--execute"]).ok();
    assert_eq!(
        reset("biling", &[]).failed(),
        "group 'biling' does not exist; did you mean 'billing'? --create creates a new group"
    );
    let delete = ["groups", "offsets", "delete", "--topic", "t", "--group", "biling"];
    let refused = bench.run(&delete).failed();
    assert_eq!(refused, "group 'biling' does not exist; did you mean 'billing'?");
    let all = bench.json(&["groups", "describe", "--all-groups"]);
    assert_eq!((&all[0]["group"], &all[1]["group"]), (&json!("audit"), &json!("billing")));
    assert_eq!(bench.json(&["groups", "list", "--all-groups"]).as_array().unwrap().len(), 2);
}

#[test]
fn leaders_are_elected() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "2"]).ok();
    let said = bench.run(&["elect", "--topic", "t:1"]).ok();
    assert_eq!(said, "Nothing changed for t-1: its preferred replica already leads.\n");
    let said = bench.run(&["elect", "--all-topics", "--election-type", "UNCLEAN"]).ok();
    assert_eq!(
        said,
        "Nothing changed for t-0: it has a leader.\nNothing changed for t-1: it has a leader.\n"
    );
    let replicas = bench.json(&["topics", "describe", "t"])[0]["replicas"].clone();
    let mut rotated: Vec<Value> = replicas.as_array().unwrap().clone();
    rotated.rotate_left(1);
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = json!({"topic": "t", "partition": 0, "replicas": rotated});
    std::fs::write(file.path(), json!({"version": 1, "partitions": [line]}).to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    bench.run(&["reassign", "execute", "--reassignment-json-file", path]).ok();
    let said = bench.run(&["elect", "--topic", "t:0"]).ok();
    assert_eq!(said, "Elected the leader of t-0.\n");
    assert!(bench.run(&["elect"]).failed().contains("--topic payments:0,1"));
}

#[test]
fn a_file_that_is_no_reassignment_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let execute = ["reassign", "execute", "--reassignment-json-file", path];
    for text in ["", "{}", r#"{"version": 1, "partitions": []}"#] {
        std::fs::write(path, text).unwrap();
        let said = run(&execute).failed();
        assert!(said.contains(path) && said.contains(r#""replicas": [1, 2, 3]"#), "{said}");
    }
}

/// As Kafka's tool. Otherwise a file of a later format, or one of two contradicting lines, would be carried out.
#[test]
fn a_reassignment_of_another_version_or_with_a_partition_twice_is_refused() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "2"]).ok();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let with = |command: &str, content: Value| {
        std::fs::write(file.path(), content.to_string()).unwrap();
        bench.run(&["reassign", command, "--reassignment-json-file", path])
    };
    let line =
        |partition: i32, to: i32| json!({"topic": "t", "partition": partition, "replicas": [to]});
    for command in ["execute", "cancel"] {
        let refused = with(command, json!({"version": 2, "partitions": [line(0, 1)]})).failed();
        assert_eq!(refused, format!("{path} has version 2; the only supported version is 1"));
    }
    let lines = [line(1, 1), line(0, 1), line(1, 2), line(1, 3)];
    let refused = with("execute", json!({"version": 1, "partitions": lines})).failed();
    assert_eq!(refused, format!("{path} lists more than once: t-1"));
    assert_eq!(bench.json(&["reassign", "list"]), json!([]));
    // A file without a version has the first one.
    let said = with("execute", json!({"partitions": [line(0, 1), line(1, 1)]})).ok();
    assert!(said.ends_with("Started the reassignment of t-1.\n"), "{said}");
}

/// ACLs can be added and removed, and apply to the names that they match.
fn rules_are_kept(at: &At<'_>) {
    let who = ["--principal", "User:alice", "--operation", "read", "--operation", "write"];
    let about = ["--topic", "led", "--pattern", "prefixed"];
    let said = at.run(&[&["acls", "add"][..], &about, &who].concat()).ok();
    assert_eq!(said.lines().count(), 2, "{said}");
    let rule = |operation: &str| {
        json!({
            "resource": "topic",
            "name": "led",
            "pattern": "prefixed",
            "principal": "User:alice",
            "host": "*",
            "operation": operation,
            "permission": "allow",
        })
    };
    at.until(&["acls", "list", "--topic", "ledger"], &json!([rule("read"), rule("write")]));
    let both = json!([rule("read"), rule("write")]);
    for (list, listed) in [
        (&["--topic", "ledger", "--pattern", "any"][..], json!([])),
        (&["--topic", "led", "--pattern", "any"], both.clone()),
        (&["--topic", "led", "--pattern", "literal"], json!([])),
        (&["--topic", "led", "--pattern", "prefixed"], both.clone()),
        (&["--pattern", "prefixed"], both),
        (&["--pattern", "literal"], json!([])),
        (&["--principal", "User:bob"], json!([])),
    ] {
        at.until(&[&["acls", "list"][..], list].concat(), &listed);
    }
    at.run(&[&["acls", "remove"][..], &about, &who].concat()).ok();
    at.until(&["acls", "list"], &json!([]));
    let again = at.run(&[&["acls", "remove"][..], &about, &who].concat()).failed();
    assert!(again.contains("no such ACL"), "{again}");
    at.run(&["acls", "add", "--principal", "User:bob", "--producer", "--topic", "t"]).ok();
    at.run(&[
        "acls",
        "add",
        "--principal",
        "User:bob",
        "--deny",
        "--operation",
        "read",
        "--group",
        "g",
    ])
    .ok();
    let carol = ["--principal", "User:carol", "--consumer", "--topic", "t", "--group", "g"];
    at.run(&[&["acls", "add"][..], &carol].concat()).ok();
    at.until_count(&["acls", "list"], 4 + 3);
    let removed = at.run(&["acls", "remove", "--principal", "User:bob"]).ok();
    assert_eq!(removed.lines().count(), 4, "{removed}");
    assert!(removed.contains("Removed: deny User:bob from * to read group 'g' (literal).\n"));
    at.until_count(&["acls", "list", "--principal", "User:carol"], 3);
    at.run(&[&["acls", "remove"][..], &carol].concat()).ok();
    at.until(&["acls", "list"], &json!([]));
    assert!(at.run(&[&["acls", "add"][..], &who].concat()).failed().contains("--topic"));
}

/// A partition goes where the file says, if it can.
fn replicas_are_moved(at: &At<'_>, to: &[i32]) {
    at.run(&["topics", "create", "moved", "--partitions", "1", "--replication-factor", "1"]).ok();
    at.until(&["topics", "list"], &json!(["moved"]));
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let with = |command: &str, replicas: &[i32]| {
        let line = json!({"topic": "moved", "partition": 0, "replicas": replicas});
        let wanted = json!({"version": 1, "partitions": [line]});
        std::fs::write(file.path(), wanted.to_string()).unwrap();
        at.run(&["reassign", command, "--reassignment-json-file", path])
    };
    let said = with("execute", to).ok();
    assert!(said.contains("Started the reassignment of moved-0."), "{said}");
    at.until(&["reassign", "list"], &json!([]));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let described = at.run(&["topics", "describe", "moved", "--json"]).ok();
        let described: Value = serde_json::from_str(&described).unwrap();
        if described[0]["replicas"] == json!(to) {
            break;
        }
        assert!(Instant::now() < deadline, "{described}");
    }
    let refused = with("execute", &[77]).failed();
    assert!(refused.contains("INVALID_REPLICA_ASSIGNMENT"), "{refused}");
    let refused = with("cancel", to).failed();
    assert!(refused.contains("NO_REASSIGNMENT_IN_PROGRESS"), "{refused}");
}

#[test]
fn rules_and_replicas_embedded() {
    let authorizer = format!("authorizer.class.name={AUTHORIZER}");
    let super_users = "super.users=User:ANONYMOUS";
    let cluster = Cluster::start(&["--property", &authorizer, "--property", super_users]);
    let at = At(&cluster.bootstrap);
    rules_are_kept(&at);
    replicas_are_moved(&at, &[3, 2]);
}

#[test]
fn a_missing_permission_to_list_acls_names_no_producer() {
    let authorizer = format!("authorizer.class.name={AUTHORIZER}");
    let cluster = Cluster::start(&["--brokers", "1", "--property", &authorizer]);
    let refused = At(&cluster.bootstrap).run(&["acls", "list"]).failed();
    assert!(refused.contains("CLUSTER_AUTHORIZATION_FAILED"), "{refused}");
    assert!(refused.contains("DESCRIBE") && !refused.contains("IDEMPOTENT_WRITE"), "{refused}");
    assert!(!refused.contains(".;") && !refused.contains(": ;"), "{refused}");
}

/// One broker: the protocol is Kafka's, and where replicas can go is the cluster's matter.
#[test]
fn rules_and_replicas_apache() {
    let name = "rules_and_replicas_apache";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let cluster = ApacheCluster::builder()
        .toolchain(toolchain)
        .short_lived()
        .property("authorizer.class.name", AUTHORIZER)
        .property("super.users", "User:ANONYMOUS")
        .start()
        .unwrap();
    let bootstrap = cluster.bootstrap();
    let at = At(&bootstrap);
    rules_are_kept(&at);
    replicas_are_moved(&at, &[1]);
}
