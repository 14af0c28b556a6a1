//! The verbs of Kafka's tools that look into a cluster: offsets, transactions, log directories, quorum, features, brokers.

use std::collections::BTreeSet;

use curtail::{ProducerConfig, Record, blocking::TransactionalProducer};
use curtail_apache::ApacheCluster;
use serde_json::{Value, json};

use crate::{
    admin::{At, Bench},
    common::run,
};

#[test]
fn offsets_are_listed_by_topic_partition_and_time() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "u.v", "u-v", "--partitions", "2"]).ok();
    bench.produce("t", b"a\nb\nc\n");
    let lines = |arguments: &[&str]| bench.run(&[&["get-offsets"], arguments].concat()).ok();
    let all = "t:0:3\nt:1:0\nu-v:0:0\nu-v:1:0\nu.v:0:0\nu.v:1:0\n";
    assert_eq!(lines(&[]), all);
    assert_eq!(lines(&["t"]), "t:0:3\nt:1:0\n");
    assert_eq!(lines(&["--topic", "t", "--partitions", "0", "--time", "-2"]), "t:0:0\n");
    assert_eq!(lines(&["--topic", "t|u.*", "--partitions", "1"]), "t:1:0\nu-v:1:0\nu.v:1:0\n");
    assert_eq!(lines(&["u.v"]), "u.v:0:0\nu.v:1:0\n", "a name is no expression");
    assert_eq!(lines(&["--topic-partitions", "t:0,u.v:1-"]), "t:0:3\nu.v:1:0\n");
    assert_eq!(lines(&["--topic-partitions", ":-1"]), "t:0:3\nu-v:0:0\nu.v:0:0\n");
    let future = bench.run(&["get-offsets", "t", "--time", "2999-01-01T00:00:00Z"]);
    assert_eq!(future.err, "no such record in t-0, t-1\n");
    assert_eq!(future.ok(), "");
    bench.run(&["topics", "create", "single", "--partitions", "1"]).ok();
    bench.produce("single", b"a\n");
    assert_eq!(lines(&["single"]), "single:0:1\n");
    assert_eq!(lines(&["single", "--time", "max-timestamp"]), "single:0:0\n");
    assert_eq!(lines(&["single", "--time", "-3"]), "single:0:0\n");
    // kcat -Q.
    let query = ["-Q", "-t", "t:0:0", "-t", "t:1:-1", "-b", &bench.0.bootstrap];
    assert_eq!(run(&query).ok(), "t:0:0\nt:1:0\n");
    let found = bench.json(&["get-offsets", "t", "--partitions", "0", "--time", "0"]);
    assert_eq!((&found[0]["offset"], found[0]["timestamp"].is_i64()), (&json!(0), true));
    let ends = bench.json(&["get-offsets", "t", "--partitions", "0"]);
    let end = json!([{"topic": "t", "partition": 0, "offset": 3, "timestamp": null}]);
    assert_eq!(ends, end);

    let failed = |arguments: &[&str]| bench.run(&[&["get-offsets"], arguments].concat()).failed();
    assert_eq!(failed(&["tt"]), "topic 'tt' does not exist; did you mean 't'?");
    let unmatched = "no topic or partition matches 'x.*y'; `curtail topics describe` prints them";
    assert_eq!(failed(&["x.*y"]), unmatched);
    assert_eq!(
        failed(&["t", "--partitions", "7"]),
        "topic 't' has no partition 7; its partitions are 0 to 1"
    );
    assert!(failed(&["t", "--time", "soon"]).contains("expected latest, earliest"));
    assert!(failed(&["--topic-partitions", "t:x"]).contains("expected TOPIC, TOPIC:0"));
}

#[test]
fn internal_topics_are_left_out_of_offsets_on_request() {
    let bench = Bench::start();
    bench.produce("t", b"a\n");
    bench.run(&["consume", "-t", "t", "--group", "g", "-c", "1"]).ok();
    let topics = |extra: &[&str]| {
        let listed = bench.json(&[&["get-offsets"], extra].concat());
        let names = listed.as_array().unwrap().iter().map(|row| row["topic"].as_str().unwrap());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let both: BTreeSet<_> = ["__consumer_offsets", "t"].map(str::to_owned).into();
    assert_eq!(topics(&[]), both);
    assert_eq!(topics(&["--exclude-internal-topics"]), ["t".to_owned()].into());
}

#[test]
fn open_transactions_are_described_and_aborted() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "1"]).ok();
    bench.produce("t", b"before\n");
    assert_eq!(bench.json(&["transactions", "list"]), json!([]));
    let config = ProducerConfig::new(&bench.0.bootstrap).transactional_id("pay");
    let mut producer = TransactionalProducer::new(config).unwrap();
    producer.init_transactions().unwrap();
    let transaction = producer.begin_transaction().unwrap();
    transaction.send(Record::to("t").value(b"open")).unwrap().wait().unwrap();

    let listed = bench.json(&["transactions", "list", "--state", "Ongoing"]);
    assert_eq!(
        (&listed[0]["transactional_id"], &listed[0]["state"]),
        (&json!("pay"), &json!("Ongoing"))
    );
    assert_eq!(bench.json(&["transactions", "list", "--duration-filter", "3600000"]), json!([]));
    let described = &bench.json(&["transactions", "describe", "pay"])[0];
    assert_eq!(
        (&described["state"], &described["partitions"]),
        (&json!("Ongoing"), &json!(["t-0"]))
    );
    assert!(described["duration_ms"].is_i64() && described["timeout_ms"] == 60_000, "{described}");
    let producers =
        bench.json(&["transactions", "describe-producers", "--topic", "t", "--partition", "0"]);
    let open: Vec<&Value> = producers
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| !row["transaction_start"].is_null())
        .collect();
    assert_eq!((open.len(), &open[0]["transaction_start"]), (1, &json!(1)), "{producers}");
    assert_eq!(open[0]["producer_id"], listed[0]["producer_id"]);
    // Its coordinator knows it.
    for search in [&["t"][..], &["--broker-id", "1"]] {
        let find = ["transactions", "find-hanging", "--max-transaction-timeout", "0"];
        let found = bench.run(&[&find[..], search].concat());
        assert_eq!(found.err, "no hanging transactions\n");
        assert_eq!(found.ok(), "");
    }

    let abort = ["transactions", "abort", "--topic", "t", "--partition", "0", "--start-offset"];
    let refused = bench.run(&[&abort[..], &["0"]].concat()).failed();
    assert!(refused.starts_with("no open transaction of t-0 begins at offset 0; "), "{refused}");
    let said = bench.run(&[&abort[..], &["1"]].concat()).ok();
    let id = &listed[0]["producer_id"];
    assert_eq!(said, format!("Aborted the transaction of producer {id} in t-0.\n"));
    let committed = ["consume", "-t", "t", "-e", "-X", "isolation.level=read_committed"];
    assert_eq!(bench.run(&committed).ok(), "before\n", "readers pass it");
    let fenced = bench.run(&["transactions", "force-terminate", "pay"]).ok();
    assert!(fenced.starts_with("Fenced the producers of pay before epoch "), "{fenced}");
    assert!(transaction.commit().is_err());
}

#[test]
fn mistakes_about_transactions_are_one_line() {
    let bench = Bench::start();
    let failed = |arguments: &[&str]| bench.run(&[&["transactions"], arguments].concat()).failed();
    let missing = failed(&["describe", "nobody"]);
    assert!(
        missing.ends_with("; `curtail transactions list` prints the transactional ids"),
        "{missing}"
    );
    assert_eq!(failed(&["force-terminate", "nobody"]), missing);
    assert_eq!(bench.json(&["transactions", "list"]), json!([]), "it was not created");
    assert!(failed(&["describe"]).ends_with("--transactional-id payments-1"));
    assert!(failed(&["list", "--state", "Open"]).contains("'Open' for --state: expected Ongoing,"));
    assert!(failed(&["describe-producers"]).ends_with("--topic payments:0"));
    assert!(failed(&["find-hanging"]).ends_with("--topic payments or --broker-id 1"));
    assert_eq!(
        failed(&["find-hanging", "--broker-id", "9"]),
        "broker 9 is not live; the live brokers are 1, 2, 3"
    );
    assert!(failed(&["abort", "t", "--start-offset", "0"]).ends_with("--topic payments:0"));
    assert!(failed(&["abort", "t:0"]).starts_with("missing --start-offset"));
    for topic in [&["t:0"][..], &["--topic", "t:0"]] {
        let two = [&["abort", "--partition", "3", "--start-offset", "0"], topic].concat();
        assert_eq!(failed(&two), "--partition cannot be combined with a partition of the topic");
    }
}

#[test]
fn log_directories_are_described() {
    let bench = Bench::start();
    bench.run(&["topics", "create", "t", "--partitions", "1"]).ok();
    bench.run(&["topics", "create", "u", "--partitions", "1"]).ok();
    bench.produce("t", b"a\n");
    let with = |extra: &[&str]| bench.json(&[&["log-dirs", "describe"], extra].concat());
    let rows = with(&["t", "--broker-list", "1,2"]);
    let row = &rows[0];
    assert_eq!(
        (&row["broker"], &row["topic"], &row["partition"], &row["future"]),
        (&json!(1), &json!("t"), &json!(0), &json!(false))
    );
    assert!(row["size"].as_i64() > Some(0) && row["log_dir"].is_string(), "{row}");
    assert_eq!(rows.as_array().unwrap().len(), 2);
    assert_eq!(with(&["--topic-list", "t,u"]).as_array().unwrap().len(), 6, "three brokers");
    let summary = with(&["--summary"]);
    assert_eq!((summary.as_array().unwrap().len(), &summary[2]["replicas"]), (3, &json!(2)));
    let failed = |extra: &[&str]| bench.run(&[&["log-dirs", "describe"], extra].concat()).failed();
    assert_eq!(
        failed(&["--broker-list", "7,8"]),
        "no live broker 7, 8; the live brokers are 1,2,3"
    );
    assert!(failed(&["missing"]).starts_with("topic 'missing' does not exist"));
}

#[test]
fn the_metadata_quorum_is_described() {
    let bench = Bench::start();
    let status = bench.run(&["quorum", "describe", "--status"]).ok();
    let names: Vec<&str> = status.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "ClusterId",
            "LeaderId",
            "LeaderEpoch",
            "HighWatermark",
            "MaxFollowerLag",
            "MaxFollowerLagTimeMs",
            "CurrentVoters",
            "CurrentObservers"
        ]
    );
    let json = bench.json(&["quorum", "describe"]);
    assert_eq!((&json["max_follower_lag"], &json["observers"]), (&json!(0), &json!([2, 3])));
    let replicas = bench.json(&["quorum", "describe", "--replication"]);
    let status: Vec<&str> =
        replicas.as_array().unwrap().iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(status, ["Leader", "Observer", "Observer"]);
    assert_eq!(replicas[0]["lag"], 0);
    let both = bench.run(&["quorum", "describe", "--status", "--replication"]).failed();
    assert!(both.contains("cannot be used with"), "{both}");
}

#[test]
fn levels_of_features_are_described() {
    let bench = Bench::start();
    let rows = bench.json(&["features", "describe"]);
    let row = rows.as_array().unwrap().iter().find(|row| row["feature"] == "transaction.version");
    assert_eq!(
        (&row.unwrap()["supported_max"], &row.unwrap()["finalized"]),
        (&json!(2), &json!(2))
    );
    // The embedded cluster accepts its present levels only.
    let same = ["features", "upgrade", "--feature", "transaction.version=2"];
    assert_eq!(bench.run(&same).ok(), "transaction.version was set to 2.\n");
    let failed = |arguments: &[&str]| bench.run(&[&["features"], arguments].concat()).failed();
    assert!(failed(&["disable", "transaction.version"]).contains("INVALID_UPDATE_VERSION"));
    assert!(failed(&["upgrade", "transaction.version=9"]).contains("versions 0-2"));
    assert!(failed(&["upgrade", "transaction.version"]).contains("expected NAME=LEVEL"));
    assert!(failed(&["upgrade"]).contains("--feature transaction.version"));
}

/// The commands as they are on a real broker, and the changes that the embedded cluster refuses.
#[test]
fn clusters_are_described_and_features_changed_apache() {
    let name = "clusters_are_described_and_features_changed_apache";
    let Some(toolchain) = curtail_apache::require_or_skip(name) else { return };
    let cluster = ApacheCluster::builder().toolchain(toolchain).short_lived().start().unwrap();
    let bootstrap = cluster.bootstrap();
    let with = |arguments: &[&str]| run(&[arguments, &["-b", &bootstrap]].concat());
    let rows = |arguments: &[&str]| -> Vec<Value> {
        let text = with(&[arguments, &["--json"]].concat()).ok();
        serde_json::from_str(&text).unwrap()
    };
    with(&["topics", "create", "t", "--partitions", "1"]).ok();
    At(&bootstrap).until_printed(&["topics", "list"], |found| *found == json!(["t"]));
    assert_eq!(with(&["get-offsets", "t"]).ok(), "t:0:0\n");
    assert_eq!(rows(&["log-dirs", "describe", "t"]).len(), 1);
    assert!(rows(&["log-dirs", "describe", "--summary"])[0]["total_bytes"].as_i64() > Some(0));
    assert_eq!(rows(&["quorum", "describe", "--replication"])[0]["status"], "Leader");
    assert!(with(&["quorum", "describe"]).ok().contains("\nMaxFollowerLag:         0\n"));
    assert_eq!(rows(&["brokers", "list"])[0]["id"], 1);
    assert_eq!(rows(&["transactions", "list"]).len(), 0);
    assert_eq!(rows(&["transactions", "find-hanging", "t"]).len(), 0);

    let level = || {
        let all = rows(&["features", "describe"]);
        all.iter().find(|row| row["feature"] == "transaction.version").unwrap()["finalized"].clone()
    };
    assert_eq!(level(), 2);
    let downgrade = ["features", "downgrade", "--feature", "transaction.version=1"];
    let said = with(&[&downgrade[..], &["--dry-run"]].concat()).ok();
    assert_eq!(said, "transaction.version can be set to 1.\n");
    assert_eq!(with(&downgrade).ok(), "transaction.version was set to 1.\n");
    assert!(with(&["features", "upgrade", "transaction.version=99"]).failed().contains("99"));
}

#[test]
fn brokers_and_the_cluster_id_are_printed() {
    let bench = Bench::start();
    let brokers = bench.json(&["brokers", "list"]);
    let port = bench.0.bootstrap.split(',').next().unwrap().rsplit(':').next().unwrap();
    let first = json!({
        "id": 1,
        "host": "127.0.0.1",
        "port": port.parse::<u16>().unwrap(),
        "rack": null,
    });
    assert_eq!((brokers.as_array().unwrap().len(), &brokers[0]), (3, &first));
    assert_eq!(bench.json(&["brokers", "list-endpoints"]), brokers);
    let id = bench.json(&["brokers", "cluster-id"])["cluster_id"].as_str().unwrap().to_owned();
    assert_eq!(bench.run(&["brokers", "cluster-id"]).ok(), format!("Cluster ID: {id}\n"));
    let cluster = bench.json(&["cluster", "describe"]);
    assert_eq!((&cluster["cluster_id"], &cluster["brokers"]), (&json!(id), &brokers));
    let controller = cluster["controller"].as_i64().unwrap();
    let described = bench.run(&["cluster", "describe"]).ok();
    let mut lines = described.lines();
    assert_eq!(lines.next(), Some(&*format!("Cluster ID: {id}")));
    assert_eq!(lines.next(), Some(&*format!("Controller: {controller}")));
    assert_eq!(
        lines.collect::<Vec<_>>(),
        bench.run(&["brokers", "list"]).ok().lines().collect::<Vec<_>>()
    );
    for flag in ["--id", "-i"] {
        let unknown = bench.run(&["brokers", "unregister", flag, "9"]).failed();
        assert!(unknown.contains("broker 9"), "{unknown}");
    }
    assert!(bench.run(&["brokers", "unregister"]).failed().starts_with("missing"));
}
