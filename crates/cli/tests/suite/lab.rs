//! The experiments, at a size that shows their structure and no figure.

use std::io::Write as _;

use crate::common::{Cluster, run};
use serde_json::Value;

/// Runs one experiment small with Curtail; checks its report, and that the exit code says what the conditions say.
fn report(arguments: &[&str]) -> Value {
    report_of(&["curtail"], arguments)
}

/// As [`report`], with these clients in turn in each arm.
fn report_of(clients: &[&str], arguments: &[&str]) -> Value {
    let list = clients.join(",");
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut all = vec!["lab", "run", "--scale", "0.01", "--json", file.path().to_str().unwrap()];
    all.extend(["--client", &list]);
    all.extend(arguments);
    let out = run(&all);
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(text.lines().count(), 1, "one line for the experiment: {text} {out:?}");
    let report: Value = serde_json::from_str(&text).unwrap();
    check_shape(&report, clients);
    let conditions = report["conditions"].as_array().unwrap();
    let held = conditions.iter().all(|condition| condition["held"].as_bool().unwrap());
    assert_eq!(out.code, Some(if held { 0 } else { 2 }), "{out:?}");
    let mut intact = 0;
    for condition in conditions {
        let text = condition["text"].as_str().unwrap();
        match is_intact(text) {
            // Arms without loss share a line.
            true => intact += 1,
            false => assert!(out.out.contains(text), "{text}: {}", out.out),
        }
    }
    if intact > 0 {
        let arms = if intact == 1 { "arm" } else { "arms" };
        let line = format!("({intact} {arms})\n");
        let line = format!("\nheld: no record lost, duplicated or reordered, and no error {line}");
        assert!(out.out.contains(&line), "{line}: {}", out.out);
    }
    assert!(out.out.starts_with(&conclusion(conditions)), "{}", out.out);
    report
}

/// The sentence that opens the text of a report.
fn conclusion(conditions: &[Value]) -> String {
    let failed = conditions.iter().filter(|condition| condition["held"] == false).count();
    match (conditions.len(), failed) {
        (0, _) => "No condition was set.\n".to_owned(),
        (1, 0) => "The condition holds.\n".to_owned(),
        (1, _) => "The condition does not hold: ".to_owned(),
        (all, 0) => format!("All {all} conditions hold.\n"),
        (all, failed) => format!("{failed} of {all} conditions do not hold, first "),
    }
}

/// Whether a condition says that an arm lost, duplicated and reordered nothing, and holds.
fn is_intact(condition: &str) -> bool {
    condition.ends_with(": 0 lost, 0 duplicated, 0 reordered, no error (0, 0, 0, 0)")
}

fn check_shape(report: &Value, clients: &[&str]) {
    assert_eq!(report["cluster"], "embedded");
    assert_eq!(report["scale"], 0.01);
    assert!(report["seed"].is_u64() && report["source"].is_string(), "{report}");
    let environment = &report["environment"];
    assert!(environment["cores"].as_u64().unwrap() > 0, "{environment}");
    assert_eq!(environment["shares_machine"], true);
    assert!(environment["versions"]["Curtail"].is_string(), "{environment}");
    assert!(report["models"][0]["what"].is_string(), "{report}");
    for (arm, client) in report["arms"].as_array().unwrap().iter().zip(clients.iter().cycle()) {
        assert_eq!(arm["client"], *client);
        assert!(arm["records"].as_u64().unwrap() > 0, "{arm}");
        for nothing in ["errors", "lost", "duplicated", "reordered"] {
            assert_eq!(arm[nothing], 0, "{arm}");
        }
        for figure in ["throughput_rps", "throughput_mbps", "cpu_us_per_record"] {
            assert!(arm[figure].as_f64().unwrap() > 0.0, "{figure}: {arm}");
        }
        let latency = |name: &str| arm["latency_us"][name].as_f64().unwrap();
        let sorted = ["p50", "p95", "p99", "p999", "max"].map(latency);
        assert!(sorted.is_sorted() && sorted[0] > 0.0 && latency("avg") > 0.0, "{arm}");
        check_phases(arm);
        assert!(arm["extra"].is_object(), "{arm}");
        assert!(arm["latency_curve"].as_array().is_some_and(|curve| !curve.is_empty()), "{arm}");
        assert_eq!(arm["latency_curve"].as_array().unwrap().last().unwrap()["quantile"], 1.0);
        let records = |of: &Value| of["records"].as_u64().unwrap();
        let all = |of: &Value| of.as_array().unwrap().iter().map(records).sum::<u64>();
        assert_eq!(all(&arm["rounds"]), arm["records"].as_u64().unwrap(), "{arm}");
        assert!(all(&arm["rounds"][0]["over_time"]["slots"]) > 0, "{arm}");
        assert!(all(&arm["brokers"]) > 0, "{arm}");
    }
    for published in report["published"].as_array().unwrap() {
        assert!(published["arm"].is_string() && published["source"].is_string(), "{published}");
        assert!(published["latency_us"].is_object() && published["note"].is_string());
        assert!(published.get("throughput_mbps").is_some(), "{published}");
    }
}

/// The phases of every record are known up to the commit, and after it where a consumer reads.
fn check_phases(arm: &Value) {
    let phases = &arm["phases_us"];
    for name in ["produce", "publish", "commit"] {
        let figures = ["p50", "p99", "p999", "p9999"].map(|p| phases[name][p].as_f64().unwrap());
        assert!(figures.is_sorted(), "{arm}");
    }
    assert!(phases["publish"]["p50"].as_f64().unwrap() > 0.0, "{arm}");
    let is_read = phases["fetch"].is_object();
    assert_eq!(phases["catch_up"].is_object(), is_read, "{arm}");
    assert_eq!(arm["phases_estimated"], false);
    let exemplars = arm["exemplars"].as_array().unwrap();
    assert_eq!(exemplars.len() as u64, arm["records"].as_u64().unwrap().min(20), "{arm}");
    let latency = |exemplar: &Value| exemplar["latency_us"].as_f64().unwrap();
    assert!(exemplars.is_sorted_by(|a, b| latency(a) >= latency(b)), "{arm}");
    for exemplar in exemplars {
        assert!(exemplar["leader"].is_i64() && exemplar["offset"].is_i64(), "{exemplar}");
        let phase = |name: &str| exemplar["phases_us"][name].as_f64().unwrap();
        assert!(phase(exemplar["blame"].as_str().unwrap()) > 0.0, "{exemplar}");
        // The phases up to the reader, or up to the acknowledgement.
        let mut sum: f64 = ["produce", "publish", "commit"].map(phase).iter().sum();
        let rest = if is_read { &["catch_up", "fetch"][..] } else { &["acknowledge"] };
        sum += rest.iter().copied().map(phase).sum::<f64>();
        assert!((sum - latency(exemplar)).abs() < 0.01, "{exemplar}");
    }
}

fn arms(report: &Value) -> Vec<&str> {
    report["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect()
}

#[test]
fn leaders_move_in_every_arm_and_nothing_is_lost() {
    let report = report(&["leader-move"]);
    assert_eq!(arms(&report), ["hints", "refresh", "baseline", "default"]);
    assert_eq!(report["arms"][0]["extra"]["leaders_moved"], 100.0);
    assert_eq!(report["published"].as_array().unwrap().len(), 9);
}

#[test]
fn producers_and_consumers_run_as_fast_as_possible() {
    let report = report(&["produce"]);
    assert_eq!(arms(&report), ["max-100", "max-1000", "rate-10000"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    run(&["lab", "run", "consume", "--scale", "0.001", "--rounds", "1", "--json", path]).ok();
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(file.path()).unwrap()).unwrap();
    assert_eq!(arms(&report), ["backlog-100", "backlog-1000"]);
    for (arm, (records, bytes)) in
        report["arms"].as_array().unwrap().iter().zip([(10_000, 100), (2_000, 1000)])
    {
        assert_eq!(arm["records"], records);
        let [rps, mbps] = ["throughput_rps", "throughput_mbps"].map(|of| arm[of].as_f64().unwrap());
        let ratio = mbps * 1024.0 * 1024.0 / rps;
        assert!((ratio - f64::from(bytes)).abs() < 0.5, "{ratio} bytes a record: {arm}");
    }
}

#[test]
fn a_load_that_receives_completions_has_separate_figures() {
    let report = report_of(&["curtail", "curtail-completions"], &["acks", "--arm", "all"]);
    assert_eq!(arms(&report), ["all", "all"]);
    let out = run(&["lab", "run", "metadata-churn", "--client", "curtail-completions"]);
    let reason = "it does not differ from curtail here";
    assert!(out.code == Some(1) && out.err.contains(reason), "{out:?}");
}

#[test]
fn a_killed_and_a_frozen_leader_lose_nothing() {
    for experiment in ["killed-leader", "frozen-leader"] {
        for arm in ["rf2-keyless", "rf3"] {
            let report = report(&[experiment, "--arm", arm]);
            assert_eq!(arms(&report), [arm]);
            let extra = &report["arms"][0]["extra"];
            assert!(extra["election_all_brokers_ms"].as_f64().unwrap() > 0.0, "{extra}");
            assert!(extra["stall_ms"].as_f64().unwrap() > 0.0, "{extra}");
        }
    }
}

#[test]
fn every_broker_is_restarted_and_a_reader_misses_nothing() {
    let report = report(&["roll", "--arm", "few-all"]);
    let extra = &report["arms"][0]["extra"];
    assert!(extra["rolled_s"].as_f64().unwrap() > 0.0, "{extra}");
    assert!(extra["e2e_p99_ms"].as_f64().unwrap() > 0.0, "{extra}");
}

#[test]
fn a_slow_broker_loses_nothing_and_every_byte_is_accounted_for() {
    let report = report(&["slow-broker", "--seed", "7"]);
    assert_eq!(report["seed"], 7);
    for arm in report["arms"].as_array().unwrap() {
        let bytes = |broker: &str| arm["extra"][broker].as_f64().unwrap();
        let sum: f64 =
            ["broker_1_bytes", "broker_2_bytes", "broker_3_bytes"].map(bytes).iter().sum();
        assert_eq!(sum, arm["records"].as_f64().unwrap() * 512.0, "{arm}");
    }
}

#[test]
fn phases_of_a_cluster_that_cannot_be_looked_into_are_estimated() {
    let cluster = Cluster::start(&[]);
    let at = cluster.bootstrap.as_str();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = ["--arm", "warm-up", "--scale", "0.05", "--reader", "--cluster", at];
    let out = run(&[&["lab", "run", "cold-start", "--json", path][..], &arguments].concat());
    let report: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let arm = &report["arms"][0];
    assert_eq!(arm["phases_estimated"], true, "{out:?}");
    let (phases, errors) = (&arm["phases_us"], &arm["error_us"]);
    for estimated in ["publish", "commit", "catch_up"] {
        assert!(phases[estimated]["p50"].is_f64() && errors[estimated]["p50"].is_f64(), "{arm}");
    }
    // Measured phases have no error, and phases with too few probes have no figure.
    assert!(phases["produce"]["p9999"].is_f64() && errors["produce"].is_null(), "{arm}");
    assert!(phases["commit"]["p999"].is_null() && phases["fetch"].is_null(), "{arm}");
    assert!(arm["exemplars"][0]["leader"].is_i64(), "{arm}");
    let left = run(&["topics", "list", "--bootstrap-server", at]).ok();
    assert!(!left.contains("probes"), "{left}");
}

/// A cold start with and without warming up writes every kind of file; pages and comparisons made from them
/// later are equal.
#[test]
fn a_run_writes_a_page_and_export_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let (page, omb, hdr) = (path("page.html"), path("omb.json"), path("latency.hlog"));
    let report = report(&["cold-start", "--reader", "--html", &page, "--omb", &omb, "--hdr", &hdr]);
    assert_eq!(arms(&report), ["warm-up", "cold"]);
    let command = report["command"].as_str().unwrap();
    assert_eq!(command, "curtail lab run --scale 0.01 --client curtail cold-start --reader");
    assert_eq!(report["arms"][0]["rounds"][0]["faults"][0]["from_ms"], 0.0);
    for arm in report["arms"].as_array().unwrap() {
        assert!(arm["phases_us"]["fetch"]["p50"].as_f64().unwrap() > 0.0, "{arm}");
    }

    let html = text("page.html");
    check_page(&html);
    let words = words(&html);
    for said in [command, "share one machine", "without warm_up at 0 s", "broker 3"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let mut intact = 0;
    for condition in report["conditions"].as_array().unwrap() {
        let text = condition["text"].as_str().unwrap();
        if is_intact(text) {
            intact += 1;
            continue;
        }
        let word = if condition["held"] == true { "held" } else { "NOT HELD" };
        let said = format!("{word}: {text}");
        assert!(words.contains(&said), "{said}: {words}");
    }
    let said =
        format!("held: no record lost, duplicated or reordered, and no error ({intact} arms)");
    assert!(intact == 2 && words.contains(&said), "{said}: {words}");
    std::fs::write(path("run.json"), report.to_string()).unwrap();
    let again = path("again.html");
    run(&["lab", "report", &path("run.json"), "--html", &again]).ok();
    assert_eq!(text("again.html"), html, "the same page from the figures");

    for arm in ["warm-up", "cold"] {
        let result: Value =
            serde_json::from_str(&text(&format!("omb-cold-start-{arm}-curtail.json"))).unwrap();
        let slowest = result["aggregatedPublishLatencyMax"].as_f64().unwrap();
        assert!(slowest > 0.0 && result["publishRate"][0].as_f64().unwrap() > 0.0, "{result}");
        assert!(text("latency.hlog").contains(&format!("\nTag=cold-start.{arm}.curtail,")));
    }
    assert!(!std::path::Path::new(&omb).exists(), "there are two arms");

    let out = run(&["lab", "compare", &path("run.json"), &path("run.json")]).ok();
    assert!(out.contains("1.00x"), "{out}");
    let again =
        "each arm ran once, so no difference can be judged; run: curtail lab run --scale 0.01 ";
    assert!(out.contains(again) && out.ends_with(" --rounds 5 --json FILE\n"), "{out}");
    let other = path("other.json");
    std::fs::write(&other, report.to_string().replace("cold-start", "e2e")).unwrap();
    let failed = run(&["lab", "compare", &path("run.json"), &other]).failed();
    assert!(failed.ends_with("the first has cold-start, the second e2e"), "{failed}");
    let failed = run(&["lab", "compare", &path("run.json"), &page]).failed();
    assert!(failed.contains("line 1: not in the format of `curtail lab run --json`"), "{failed}");
    open_in_browser(&html, directory.path());
}

/// A page is well-formed and needs nothing from elsewhere.
fn check_page(html: &str) {
    parsed(html, |document| {
        assert!(document.descendants().filter(|n| n.attribute("role") == Some("img")).count() > 3);
        for node in document.descendants().filter(roxmltree::Node::is_element) {
            assert!(!["link", "img", "iframe", "object"].contains(&node.tag_name().name()));
            for attribute in node.attributes() {
                let elsewhere = ["src", "href", "data"].contains(&attribute.name())
                    && !attribute.value().starts_with('#');
                assert!(!elsewhere, "{attribute:?}");
            }
            if ["style", "script"].contains(&node.tag_name().name()) {
                let text = node.text().unwrap_or_default();
                assert!(!text.contains("url(") && !text.contains("import"), "{text}");
            }
        }
    });
}

fn words(html: &str) -> String {
    parsed(html, |document| {
        document.descendants().filter(roxmltree::Node::is_text).filter_map(|n| n.text()).collect()
    })
}

fn parsed<T>(html: &str, look: impl FnOnce(&roxmltree::Document<'_>) -> T) -> T {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    look(&roxmltree::Document::parse_with_options(html, options).unwrap())
}

/// Opens the page in headless Chromium. Without Chromium the test is skipped, or fails if `CURTAIL_TEST_BROWSER=required`.
/// Only the error that is planted in a copy may be reported.
fn open_in_browser(html: &str, directory: &std::path::Path) {
    let copy = directory.join("planted.html");
    let planted = "<script>console.error('planted')</script></body>";
    std::fs::write(&copy, html.replace("</body>", planted)).unwrap();
    let profile = format!("--user-data-dir={}", directory.join("profile").display());
    let page = format!("file://{}", copy.display());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
        "--dump-dom",
        &profile,
        &page,
    ];
    // A hanging browser is ended; a missing one gives 127.
    let start = |browser: &str| {
        let mut command = std::process::Command::new("timeout");
        command.args(["--kill-after=5", "120", browser]).args(arguments);
        command.stdin(std::process::Stdio::null()).output().ok()
    };
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let started = browsers.into_iter().filter_map(start).find(|out| out.status.code() != Some(127));
    // Written to standard error itself: the test runner discards the captured output of a test that passes.
    // If standard error is closed, only this line is lost.
    let skipped = |why: &str| {
        let required = std::env::var("CURTAIL_TEST_BROWSER").as_deref() == Ok("required");
        assert!(!required, "the page in a browser: {why}");
        let _ = writeln!(std::io::stderr(), "skipped: the page in a browser: {why}");
    };
    let Some(out) = started else { return skipped("there is no Chromium") };
    let (dom, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        return skipped(&format!("Chromium does not run here: {said}"));
    }
    let complaints: Vec<_> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(matches!(complaints[..], [line] if line.contains("planted")), "{said}");
    assert_eq!(dom.matches("<svg").count(), html.matches("<svg").count(), "all of it is shown");
}

#[test]
fn a_stalled_partition_is_read_in_the_end() {
    let report = report(&["stalled-partition", "--arm", "credit"]);
    assert!(report["arms"][0]["extra"]["drained_p99_ms"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn no_session_is_evicted_and_every_consumer_reads_everything() {
    let report = report(&["fetch-sessions", "--arm", "credit"]);
    let extra = &report["arms"][0]["extra"];
    assert_eq!(extra["sessions"], 16.0, "{extra}");
    assert_eq!(extra["partitions_in_sessions"], 16.0 * 12.0, "{extra}");
    assert_eq!(extra["evictions_per_s"], 0.0, "{extra}");
    assert!(report["arms"][0]["phases_us"]["fetch"].is_object(), "{report}");
}

#[test]
fn the_list_names_every_experiment() {
    let out = run(&["lab", "list"]).ok();
    let names = [
        "leader-move",
        "roll",
        "slow-broker",
        "killed-leader",
        "frozen-leader",
        "bystanders",
        "cold-start",
        "metadata-churn",
        "fetch-sessions",
        "stalled-partition",
        "e2e",
        "produce",
        "consume",
        "acks",
        "replication-factor",
        "min-isr",
        "linger",
        "latency-throughput",
        "micro-burst",
        "catch-up",
        "fetch-wait",
        "zones",
        "head-of-line",
    ];
    for name in names {
        assert_eq!(out.lines().filter(|line| line.starts_with(name)).count(), 1, "{out}");
    }
}

#[test]
fn a_wrong_name_arm_scale_or_cluster_is_one_line() {
    let failed = |arguments: &[&str]| run(&[&["lab", "run"], arguments].concat()).failed();
    assert!(failed(&["leader-moves"]).contains("known are leader-move, "), "no such experiment");
    let line = failed(&["leader-move", "--arm", "hint"]);
    assert!(line.contains("has no arm 'hint'; it has hints, refresh, baseline, default"), "{line}");
    assert!(failed(&["cold-start", "--scale", "0"]).contains("scale"), "no length");
    assert!(failed(&["cold-start", "--cluster", "x"]).contains("host:port"), "no cluster");
    let out = run(&["lab", "run", "killed-leader", "--cluster", "127.0.0.1:1"]);
    assert!(out.code == Some(1) && out.err.contains("kills or freezes brokers"), "{out:?}");
    assert!(failed(&["cold-start", "--json", "/nowhere/x"]).contains("cannot write"), "no file");
    let line = failed(&["cold-start", "--client", "curtail,kafkajs"]);
    assert!(
        line.contains("unknown client 'kafkajs'; known are curtail, curtail-completions, java, "),
        "{line}"
    );
    let out = run(&["lab", "run", "fetch-sessions", "--arm", "omit", "--client", "franz-go"]);
    assert!(out.code == Some(1) && out.err.contains("no arm of fetch-sessions can"), "{out:?}");
}

/// Runs a benchmark from its text on an embedded cluster; returns its status.
fn bench(text: &str) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let json = tempfile::NamedTempFile::new().unwrap();
    let path = json.path().to_str().unwrap();
    let out = run(&["lab", "bench", file.path().to_str().unwrap(), "--json", path]);
    let explained = out.err.clone();
    let status: Value = serde_json::from_str(&out.ok()).unwrap();
    let whole: Value =
        serde_json::from_str(&std::fs::read_to_string(json.path()).unwrap()).unwrap();
    assert_eq!(whole["status"], status);
    if let Some(measured) = whole["from_intended"]["measured"].as_str() {
        assert!(explained.contains(measured), "{explained}");
        assert!(whole["from_intended"]["p99"].as_f64() >= whole["from_send"]["p99"].as_f64());
    }
    status
}

#[test]
fn trogdors_tasks_run_and_give_their_status() {
    let status = bench(
        r#"// In transactions of ten; the last five are never committed.
        {
          "class": "org.apache.kafka.trogdor.workload.ProduceBenchSpec",
          "durationMs": 10000000, "targetMessagesPerSec": 1000, "maxMessages": 45,
          "transactionGenerator": { "type": "uniform", "messagesPerTransaction": 10 },
          "activeTopics": { "foo[1-2]": { "numPartitions": 3, "replicationFactor": 1 } },
          "inactiveTopics": { "bar": { "numPartitions": 1, "replicationFactor": 1 } }
        }"#,
    );
    assert_eq!((&status["totalSent"], &status["transactionsCommitted"]), (&45.into(), &4.into()));
    for name in ["averageLatencyMs", "p50LatencyMs", "p95LatencyMs", "p99LatencyMs"] {
        assert!(status[name].is_number(), "{status}");
    }
    assert_eq!(status.as_object().unwrap().len(), 6, "{status}");

    let status = bench(
        r#"{
          "class": "org.apache.kafka.trogdor.workload.ConsumeBenchSpec",
          "durationMs": 10000000, "threadsPerWorker": 2, "maxMessages": 50,
          "recordProcessor": { "type": "timestamp", "histogramMaxMs": 100000, "histogramMinMs": 0,
            "histogramStepMs": 1 },
          "activeTopics": ["foo[1-2]:[0-1]", "bar"]
        }"#,
    );
    assert_eq!(status.as_object().unwrap().len(), 2, "two consumers: {status}");
    for consumer in status.as_object().unwrap().values() {
        assert_eq!(consumer["totalMessagesReceived"], 50, "{status}");
        assert_eq!(consumer["totalBytesReceived"], 50 * 512, "{status}");
        assert_eq!(consumer["averageMessageSizeBytes"], 512, "{status}");
        assert_eq!(consumer["assignedPartitions"].as_array().unwrap().len(), 7, "{status}");
        assert!(consumer["recordProcessorStatus"]["p99LatencyMs"].is_u64(), "{status}");
    }

    let status = bench(
        r#"{
          "class": "org.apache.kafka.trogdor.workload.ConsumeBenchSpec",
          "durationMs": 10000000, "threadsPerWorker": 2, "maxMessages": 50, "consumerGroup": "cg",
          "activeTopics": ["foo[1-2]"]
        }"#,
    );
    let received = |consumer: &Value| consumer["totalMessagesReceived"].as_u64().unwrap();
    assert!(status.as_object().unwrap().values().map(received).sum::<u64>() >= 50, "{status}");

    let status = bench(
        r#"{
          "class": "org.apache.kafka.trogdor.workload.RoundTripWorkloadSpec",
          "durationMs": 10000000, "targetMessagesPerSec": 1000, "maxMessages": 150,
          "activeTopics": { "round_trip_topic[0-1]": { "numPartitions": 2, "replicationFactor": 3 } }
        }"#,
    );
    assert_eq!(status, serde_json::json!({ "totalUniqueSent": 150, "totalReceived": 150 }));
}

#[test]
fn a_workload_of_the_openmessaging_benchmark_runs() {
    let workload = |rate: u32, more: &str| {
        format!(
            "name: small\ntopics: 1\npartitionsPerTopic: 2\nkeyDistributor: KEY_ROUND_ROBIN\nmessageSize: 100\n\
             subscriptionsPerTopic: 1\nconsumerPerSubscription: 2\nproducersPerTopic: 2\nproducerRate: {rate}\n\
             warmupDurationMinutes: 0\ntestDurationMinutes: 0.01\n{more}"
        )
    };
    // A backlog of 53 records is below the number in flight, so it counts as drained at once.
    for (rate, more) in [(200, "consumerBacklogSizeGB: 0.000005\n"), (0, "")] {
        let result = bench(&workload(rate, more));
        assert_eq!((&result["workload"], &result["partitions"]), (&"small".into(), &2.into()));
        assert!(result["publishRate"][0].as_f64().unwrap() > 0.0, "{result}");
        for name in ["consumeRate", "backlog", "publishLatency99pct", "endToEndLatencyMax"] {
            assert!(!result[name].as_array().unwrap().is_empty(), "{name}: {result}");
        }
        assert!(result["aggregatedPublishLatency999pct"].as_f64().unwrap() > 0.0, "{result}");
    }
}

#[test]
fn a_wrong_benchmark_is_one_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (text, word) in [
        (
            r#"{"class": "org.apache.kafka.trogdor.workload.ExternalCommandSpec"}"#,
            "ExternalCommandSpec",
        ),
        ("topics: [1", path),
        ("name: x\ntopics: many", "line"),
        ("", "end of input"),
    ] {
        std::fs::write(file.path(), text).unwrap();
        let error = run(&["lab", "bench", path]).failed();
        assert!(error.contains(word) && error.contains(path), "{text}: {error}");
    }
    let error = run(&["lab", "bench", "no-such-file.json"]).failed();
    assert!(error.contains("cannot read no-such-file.json"), "{error}");
}

#[test]
fn an_experiment_runs_on_an_existing_cluster_with_sasl() {
    let data = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&[
        "--security-protocol",
        "SASL_PLAINTEXT",
        "--user",
        "alice:hunter22:PLAIN",
        "--data",
        data.path().to_str().unwrap(),
    ]);
    let file = data.path().join("client-alice.properties");
    let at = ["cold-start", "--cluster", &cluster.bootstrap, "--rounds", "1"];
    let properties = curtail::config::load_properties(&file).unwrap();
    let security = properties.iter().filter(|(name, _)| name != "bootstrap.servers");
    let pairs: Vec<String> =
        security.map(|(name, value)| format!("--property={name}={value}")).collect();
    let by_name: Vec<&str> = pairs.iter().map(String::as_str).collect();
    let by_file = ["--command-config", file.to_str().unwrap()];
    for flags in [&by_file[..], &by_name] {
        let json = tempfile::NamedTempFile::new().unwrap();
        let to = ["lab", "run", "--scale", "0.01", "--json", json.path().to_str().unwrap()];
        let ran = run(&[&to, &at[..], flags].concat());
        // The figures of so short a run may miss a condition.
        assert!(matches!(ran.code, Some(0 | 2)), "{ran:?}");
        let text = std::fs::read_to_string(json.path()).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["cluster"], *cluster.bootstrap, "{text}");
        assert!(report["arms"].as_array().unwrap().iter().all(|arm| arm["errors"] == 0), "{text}");
        assert!(!text.contains("hunter22"), "{text}");
    }
    let refused = |flags: &[&str]| run(&[&["lab", "run", "cold-start"], flags].concat()).failed();
    let embedded = refused(&by_file);
    assert!(embedded.ends_with("use --cluster host:port"), "{embedded}");
    let other = refused(&["--cluster", "h:1", "-X", "linger.ms=5"]);
    assert!(other.starts_with("--property linger.ms: it is no security setting"), "{other}");
}
