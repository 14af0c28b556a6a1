//! The perf tools' lines and figures, on the embedded cluster and on one that runs already.

use std::io::{BufRead as _, Read as _};

use crate::common::{self, Cluster, run};

fn json(path: &std::path::Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Every figure of a distribution, in order of size.
fn check_distribution(figures: &serde_json::Value) {
    let figure = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name}: {figures}"));
    let sorted = [figure("p50"), figure("p95"), figure("p99"), figure("p999"), figure("max")];
    assert!(sorted.is_sorted() && sorted[0] > 0.0, "{figures}");
    assert!(figure("avg") > 0.0 && figure("avg") <= figure("max"), "{figures}");
}

/// A value of the table that `--print-metrics` prints after everything else.
fn metric(out: &str, name: &str) -> f64 {
    let (_, table) = out.split_once("\n\nMetric Name").expect("a table of metrics");
    let rows: Vec<_> = table.lines().skip(1).map(|row| row.split_once(" : ").unwrap()).collect();
    assert!(rows.is_sorted_by_key(|(name, _)| name.trim_end()), "{table}");
    let found = rows.iter().find(|(known, _)| known.trim_end() == name);
    found.unwrap_or_else(|| panic!("no {name}: {table}")).1.parse().unwrap()
}

#[test]
fn end_to_end_starts_its_own_cluster_and_knows_every_phase() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let out =
        run(&["perf", "e2e", "--num-records", "1200", "--warmup-records", "100", "--json", path]);
    assert!(!out.err.contains('%'), "no progress in a pipe: {}", out.err);
    let out = out.ok();
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[0].starts_with("0\t") && lines[1].starts_with("1000\t"), "{out}");
    assert!(lines[2].starts_with("Avg latency: ") && lines[2].ends_with(" ms"), "{out}");
    assert!(
        lines[3].starts_with("Percentiles: 50th = ") && lines[3].contains(", 99.9th = "),
        "{out}"
    );
    let few = "p99.9 rests on the slowest 1 of 1100 records: it may be noise.";
    assert!(lines.contains(&few), "{out}");
    let report = json(file.path());
    assert_eq!(report["tool"], "e2e");
    assert_eq!(
        (report["client"].as_str(), report["records"].as_u64()),
        (Some("curtail"), Some(1100))
    );
    assert_eq!(report["record_size"], 128);
    assert_eq!(report["cpu_includes_brokers"], true);
    check_distribution(&report["latency_us"]);
    let phases = &report["phases_us"];
    let average =
        |name: &str| phases[name]["avg"].as_f64().unwrap_or_else(|| panic!("{name}: {phases}"));
    let sum: f64 =
        ["produce", "publish", "commit", "catch_up", "fetch"].into_iter().map(average).sum();
    let whole = report["latency_us"]["avg"].as_f64().unwrap();
    assert!((sum - whole).abs() < whole * 0.01, "the phases make up the latency: {sum} of {whole}");
}

#[test]
fn producing_at_a_rate_keeps_it_and_counts_from_the_intended_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let out = run(&[
        "perf",
        "produce",
        "--topic",
        "t",
        "--num-records",
        "3000",
        "--record-size",
        "200",
        "--throughput",
        "1000",
        "--warmup-records",
        "1000",
        "--reporting-interval",
        "500",
        "--producer-props",
        "linger.ms=0",
        "acks=1",
        "--json",
        path,
    ])
    .ok();
    assert!(
        out.contains(" ms avg latency, ") && out.contains(" ms max latency.\n"),
        "a window: {out}"
    );
    assert!(out.contains("\n3000 records sent, "), "{out}");
    assert!(out.contains("\n2000 steady state records sent, "), "{out}");
    assert!(out.contains("intended send time at 1000 records/sec"), "{out}");
    let report = json(file.path());
    assert_eq!((report["records"].as_u64(), report["errors"].as_u64()), (Some(2000), Some(0)));
    assert_eq!(report["record_size"], 200);
    let seconds = report["seconds"].as_f64().unwrap();
    assert!(seconds >= 1.99, "2000 records at 1000/s cannot be done in {seconds} s");
    check_distribution(&report["latency_us"]);
    check_distribution(&report["send_latency_us"]);
    let average = |name: &str| report[name]["avg"].as_f64().unwrap();
    assert!(average("latency_us") >= average("send_latency_us"), "a record is never sent early");
}

#[test]
fn producing_and_consuming_on_a_cluster_that_runs() {
    let cluster = Cluster::start(&["--partitions", "4"]);
    let bootstrap = cluster.bootstrap.as_str();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let common = ["--bootstrap-server", bootstrap, "--topic", "t", "--json", path];
    let produce = [&["perf", "produce", "--num-records", "50000"][..], &common].concat();
    let out =
        run(&[&produce[..], &["--print-metrics", "--command-property", "client.id=perf"]].concat());
    let out = out.ok();
    assert!(out.starts_with("50000 records sent, "));
    let name = "producer-metrics:record-send-total:{client-id=perf}";
    assert_eq!(metric(&out, name), 50_000.0);
    assert!(
        metric(&out, "producer-node-metrics:request-total:{client-id=perf, node-id=node-1}") > 0.0
    );
    let report = json(file.path());
    assert_eq!(report["cpu_includes_brokers"], false);
    assert!(report["target_rps"].is_null());
    assert!(report["cpu_us_per_record"].as_f64().unwrap() > 0.0);
    let consume = [&["perf", "consume", "--num-records", "50000"][..], &common].concat();
    let out =
        run(&[&consume[..], &["--print-metrics", "--command-property", "client.id=perf"]].concat());
    let out = out.ok();
    let name = "consumer-fetch-manager-metrics:records-consumed-total:{client-id=perf}";
    assert_eq!(metric(&out, name), 50_000.0);
    let out = run(&[&consume[..], &["--print-metrics=prometheus", "--hide-header"]].concat()).ok();
    let buffered = out.lines().filter(|line| {
        line.starts_with("curtail_consumer_phase_seconds_count") && line.contains("\"buffer\"")
    });
    let buffered: u64 =
        buffered.map(|line| line.split_once("} ").unwrap().1.parse::<u64>().unwrap()).sum();
    assert_eq!(buffered, 50_000, "each record has been in the buffer: {out}");
    let out = run(&consume).ok();
    assert!(!out.contains("Metric Name"), "{out}");
    let rows: Vec<Vec<_>> = out.lines().map(|line| line.split(", ").collect()).collect();
    assert_eq!(rows.len(), 2, "{out}");
    assert_eq!((rows[0].len(), rows[1].len()), (10, 10), "{out}");
    assert_eq!((rows[0][0], rows[0][9]), ("start.time", "fetch.nMsg.sec"));
    assert_eq!((rows[1][2], rows[1][4]), ("4.7684", "50000"));
    let report = json(file.path());
    assert_eq!(
        (report["tool"].as_str(), report["records"].as_u64()),
        (Some("consume"), Some(50_000))
    );
}

#[test]
fn producing_names_the_topic_that_it_leaves_also_if_records_failed() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    let create =
        ["topics", "create", "small", "-b", bootstrap, "--config", "max.message.bytes=200"];
    run(&create).ok();
    let produce = ["perf", "produce", "--bootstrap-server", bootstrap, "--topic", "small"];
    let out = run(&[&produce[..], &["--num-records", "2", "--record-size", "1000"]].concat());
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.err.contains("topic small keeps the records of this run\n"), "{out:?}");
    assert!(out.err.contains("2 records were not acknowledged; the first: "), "{out:?}");
    let out = run(&[&produce[..], &["--num-records", "20", "--record-size", "10"]].concat()).ok();
    let few = "p99.9 rests on the slowest 1 of 20 records: it may be noise.\n";
    assert!(out.contains(few), "{out}");
    for phase in ["\nproduce ", "\nacknowledge "] {
        assert!(out.contains(phase), "{out}");
    }
}

/// Runs `perf produce` in transactions and returns the offsets that readers of committed records see.
fn offsets_of_transactions(flags: &[&str]) -> Vec<i64> {
    const RECORDS: &str = "2000";
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    let common = ["--bootstrap-server", bootstrap, "--topic", "t", "--num-records", RECORDS];
    let produce = [&["perf", "produce", "--throughput", "5000"][..], &common, flags].concat();
    let out = run(&produce).ok();
    assert!(out.starts_with("2000 records sent, "), "{out}");
    // The markers follow the response to the last commit: wait for all records, not for the current end.
    let consume = ["consume", "-t", "t", "-b", bootstrap, "-c", RECORDS, "-f", "%o\\n"];
    let committed = run(&[&consume[..], &["-X", "isolation.level=read_committed"]].concat()).ok();
    committed.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn producing_in_transactions_commits_one_after_the_other() {
    // At this rate the run takes 0.4 s, several transactions of 20 ms, and each commit leaves a marker between the
    // records.
    let short = ["--transactional-id", "perf", "--transaction-duration-ms", "20"];
    let offsets = offsets_of_transactions(&short);
    let markers = offsets[offsets.len() - 1] - 1999;
    assert!(markers >= 2, "{markers} markers before the last record");
    let whole: Vec<i64> = (0..2000).collect();
    // By default a transaction takes 3 s, and a duration alone makes it transactions, too.
    for flags in [
        &["--command-property", "transactional.id=perf"][..],
        &["--transaction-duration-ms", "60000"],
    ] {
        assert_eq!(offsets_of_transactions(flags), whole, "{flags:?}");
    }
}

#[test]
fn consuming_starts_its_own_cluster_and_fills_it() {
    let out = run(&[
        "perf",
        "consume",
        "--num-records",
        "20000",
        "--record-size",
        "50",
        "--hide-header",
        "--show-detailed-stats",
        "--reporting-interval",
        "1",
    ])
    .ok();
    let row: Vec<_> = out.lines().last().unwrap().split(", ").collect();
    assert_eq!((row.len(), row[1]), (10, "0"), "{out}");
}

#[test]
fn a_consumer_without_records_ends_after_the_timeout() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    run(&["topics", "create", "t", "-b", &cluster.bootstrap]).ok();
    let out = run(&[
        "perf",
        "consume",
        "--bootstrap-server",
        &cluster.bootstrap,
        "--topic",
        "t",
        "--timeout",
        "50",
        "--num-records",
        "5",
    ]);
    assert!(out.err.contains("timeout (50 ms) exceeded"), "{out:?}");
    assert!(out.ok().lines().nth(1).unwrap().contains(", 0.0000, 0.0000, 0, "));
}

/// Names of the existing topics.
fn topics(bootstrap: &str) -> String {
    run(&["topics", "list", "-b", bootstrap]).ok()
}

#[test]
fn the_doctor_measures_tries_and_leaves_nothing_behind() {
    let cluster = Cluster::start(&["--brokers", "2"]);
    let bootstrap = cluster.bootstrap.as_str();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let doctor = ["doctor", "--bootstrap-server", bootstrap, "--duration", "1s", "--json", path];
    // One record per run, with a target of an hour: every candidate is tried once, on any machine.
    let easy = ["--target-p99", "1h", "--throughput", "16B/s", "--record-size", "16"];
    let out = run(&[&doctor[..], &easy].concat());
    let report = json(file.path());
    let holds = report["holds"].as_bool().unwrap();
    assert_eq!(out.code, Some(if holds { 0 } else { 2 }), "{out:?}");
    assert_eq!(report["tried"].as_array().unwrap()[0]["setting"], "acks=1");
    assert_eq!(report["tried"][0]["recommended"], false, "durability is not for sale: {report}");
    assert!(out.out.starts_with("This creates the topic curtail-doctor-"), "{}", out.out);

    // No cluster meets this target, so every candidate is tried.
    let hard =
        ["--target-p99", "1us", "--throughput", "200KB/s", "--command-property", "linger.ms=20"];
    let out = run(&[&doctor[..], &hard].concat());
    assert_eq!(out.code, Some(2), "{out:?}");
    assert!(out.out.contains("The target does NOT hold"), "{}", out.out);
    let report = json(file.path());
    check_distribution(&report["latency_us"]);
    assert_eq!((&report["errors"], &report["missing"]), (&0.into(), &0.into()), "{report}");
    let phases: Vec<_> = report["phases"].as_array().unwrap().iter().collect();
    let named: Vec<_> = phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(named, ["produce", "publish", "commit", "catch_up", "fetch"]);
    let sum: f64 = phases.iter().map(|phase| phase["us"].as_f64().unwrap()).sum();
    assert!(sum > 0.0 && named.contains(&report["blamed"].as_str().unwrap()), "{report}");
    let tried = report["tried"].as_array().unwrap();
    assert!(tried.len() > 3, "{tried:?}");
    for tried in tried {
        assert_eq!(tried["p99_us"].as_array().unwrap().len(), 3, "three rounds: {tried}");
        assert_eq!(tried["base_p99_us"].as_array().unwrap().len(), 3, "three rounds: {tried}");
        assert!(out.out.contains(tried["setting"].as_str().unwrap()), "{}", out.out);
    }
    let brokers = report["brokers"].as_array().unwrap();
    assert_eq!(brokers.len(), 2, "{report}");
    for broker in brokers {
        let clock = &broker["clock"];
        let (low, high) =
            (clock["at_least_ms"].as_f64().unwrap(), clock["at_most_ms"].as_f64().unwrap());
        assert!(low <= 1.0 && high >= -1.0, "it is this machine's clock: {broker}");
    }
    assert!(!topics(bootstrap).contains("curtail-doctor"), "both topics are gone");
}

#[test]
fn a_doctor_that_is_interrupted_or_fails_leaves_nothing_behind() {
    let cluster = Cluster::start(&["--brokers", "1"]);
    let bootstrap = cluster.bootstrap.as_str();
    let doctor = ["doctor", "--bootstrap-server", bootstrap, "--target-p99", "50ms"];
    let mut child = common::curtail()
        .args([&doctor[..], &["--throughput", "100KB/s", "--duration", "30m"]].concat())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // The topic exists now.
    while !line.starts_with("warming up") {
        line.clear();
        assert!(err.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    assert!(topics(bootstrap).contains("curtail-doctor-"));
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("curtail: interrupted"), "{rest}");
    assert!(!topics(bootstrap).contains("curtail-doctor"), "{rest}");

    let large = ["--throughput", "3MB/s", "--record-size", "2000000", "--duration", "10s"];
    let error = run(&[&doctor[..], &large].concat());
    assert!(error.code == Some(1) && error.err.contains("max.request.size"), "{error:?}");
    assert!(!topics(bootstrap).contains("curtail-doctor"));
}
