use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{claims::*, number::Unit, rows::*, store::Run, *};
use crate::experiments;

/// 2026-11-24T09:05:01Z.
const DATE: u64 = 1_795_511_101_000;

fn latency(ms: f64) -> Value {
    let us = ms * 1000.0;
    json!({"avg": us, "p50": us, "p95": us, "p99": us, "p999": us, "max": us})
}

/// An arm whose turns have these latencies in milliseconds, at every percentile.
fn arm(name: &str, client: &str, turns: &[f64], extra: &Value) -> Value {
    let round = |ms: &f64| {
        json!({"started_ms": 0, "records": 10_000, "errors": 0, "throughput_rps": 1.0, "throughput_mbps": 1.0,
               "cpu_us_per_record": 1.0, "latency_us": latency(*ms), "over_time": null, "faults": []})
    };
    let rounds: Vec<Value> = turns.iter().map(round).collect();
    json!({"name": name, "client": client, "records": 1_000, "errors": 0, "lost": 0, "duplicated": 0, "reordered": 0,
           "throughput_rps": 1.0, "throughput_mbps": 1.0, "cpu_us_per_record": 12.5,
           "latency_us": latency(turns.iter().copied().fold(0.0, f64::max)), "rounds": rounds, "extra": extra,
           "phases_us": {"produce": null, "publish": null, "commit": null, "catch_up": null, "fetch": null}})
}

fn report(experiment: &str, cluster: &str, day: u64, arms: &[Value]) -> Value {
    let started = if cluster == "sim" { 0 } else { DATE + day * 86_400_000 };
    json!({"experiment": experiment, "source": "a | source", "cluster": cluster, "scale": 1.0, "seed": 1,
           "command": format!("curtail lab run {experiment} --cluster {cluster} --json x.json --seed 1"),
           "environment": {"started_ms": started, "system": "linux", "processor": "AMD EPYC", "cores": 2,
               "memory_bytes": 25_276_514_304_u64, "shares_machine": true, "release_build": true, "load_before": 0.1,
               "load_after": 0.2, "busy_percent": null, "stolen_percent": null, "versions": {"Java": "17"},
               "commit": "0123456789ab"},
           "arms": arms, "published": [], "conditions": [{"text": "p99 < 5 ms", "held": false}]})
}

fn results(reports: &[Value]) -> Results {
    let mut results = Results::default();
    for report in reports {
        results.add("test", &report.to_string()).unwrap();
    }
    results
}

fn killed(day: u64, ours: &[f64], others: &[(&str, &[f64])]) -> Value {
    let mut arms = vec![arm("rf2-keyless", "curtail", ours, &json!({}))];
    arms.extend(others.iter().map(|(client, turns)| arm("rf2-keyless", client, turns, &json!({}))));
    report("killed-leader", "apache", day, &arms)
}

fn claim(metric: Metric, aim: Aim) -> Claim {
    let clusters = &Cluster::ALL;
    let (experiment, arm, sentence) = ("killed-leader", "rf2-keyless", "A broker is killed");
    Claim { experiment, clusters, arm, metric, aim, sentence, front: false }
}

fn apache(results: &Results) -> &[Run] {
    results.of(Cluster::Apache, "killed-leader")
}

#[test]
fn every_claim_names_an_experiment_and_its_arms() {
    use crate::{
        experiments::{ClusterKind, Setting},
        peers::{Client, Peer},
    };
    for claim in CLAIMS {
        let experiment = experiments::find(claim.experiment).unwrap();
        for cluster in claim.clusters {
            let kind = match cluster {
                Cluster::Apache => ClusterKind::Apache,
                Cluster::Embedded => ClusterKind::Embedded,
                Cluster::Sim => ClusterKind::Sim,
            };
            let mut setting = Setting::new(kind);
            if claim.aim == Aim::Others {
                // Some arms run only with other clients.
                setting.clients.push(Client::Peer(Peer::FranzGo));
            }
            let arms = experiment.arms(&setting);
            let has = |name: &str| arms.iter().any(|arm| arm.name == name);
            assert!(has(claim.arm), "{claim:?}");
            if let Aim::Arm { arm, .. } = claim.aim {
                assert!(has(arm), "{claim:?}");
            }
        }
    }
    assert!(CLAIMS.iter().filter(|claim| claim.front).count() <= 8);
    for picture in &PICTURE {
        let claimed = |claim: &Claim| {
            (claim.experiment, claim.arm, claim.metric)
                == (picture.experiment, picture.arm, Metric::P999)
        };
        assert!(CLAIMS.iter().any(claimed), "{}", picture.title);
    }
}

#[test]
fn a_row_has_the_spread_of_all_turns_and_counts_those_that_held() {
    let results = results(&[killed(0, &[50.0, 300.0], &[]), killed(1, &[40.0, 60.0, 70.0], &[])]);
    let claim = claim(Metric::P999, Aim::Limit(250.0));
    let row = row(&claim, Cluster::Apache, apache(&results)).unwrap();
    let ours = row.ours.unwrap();
    assert_eq!((ours.least, ours.median, ours.most, ours.count), (40.0, 60.0, 300.0, 5));
    assert_eq!((row.held, row.judged, row.turns, row.runs.len()), (4, 5, 5, 2));
    assert_eq!(row.is_held(), Some(false));
    assert!(row.other.is_none());
}

#[test]
fn the_best_other_client_is_that_of_the_same_runs() {
    let others: &[(&str, &[f64])] = &[("java", &[90.0, 80.0]), ("librdkafka", &[45.0, 400.0])];
    let results = results(&[killed(0, &[50.0, 60.0], others)]);
    let against = claim(Metric::P999, Aim::Others);
    let row = row(&against, Cluster::Apache, apache(&results)).unwrap();
    let other = row.other.as_ref().unwrap();
    assert_eq!((other.client, other.spread.median), ("java", 85.0));
    // In the first turn librdkafka was better than Curtail.
    assert_eq!((row.held, row.judged), (1, 2));
}

#[test]
fn the_load_that_costs_least_has_rows_of_its_own() {
    let others: &[(&str, &[f64])] = &[("curtail-completions", &[10.0]), ("java", &[80.0])];
    let results = results(&[killed(0, &[50.0], others)]);
    let against = claim(Metric::P999, Aim::Others);
    let rows: Vec<Row<'_>> = rows(&against, Cluster::Apache, apache(&results)).collect();
    let figures = |row: &Row<'_>| (row.client, row.ours.unwrap().median, row.is_held());
    let both = [("curtail", 50.0, Some(true)), ("curtail-completions", 10.0, Some(true))];
    assert_eq!(rows.iter().map(figures).collect::<Vec<_>>(), both);
    let best = rows.iter().map(|row| row.other.as_ref().unwrap().client);
    assert_eq!(best.collect::<Vec<_>>(), ["java", "java"]);
}

#[test]
fn a_removed_load_of_curtail_is_not_another_client() {
    let others: &[(&str, &[f64])] = &[("curtail-flush", &[10.0]), ("java", &[80.0])];
    let results = results(&[killed(0, &[50.0], others)]);
    let against = claim(Metric::P999, Aim::Others);
    let row = row(&against, Cluster::Apache, apache(&results)).unwrap();
    assert_eq!(row.other.as_ref().unwrap().client, "java");
    assert_eq!(row.is_held(), Some(true));
}

#[test]
fn without_another_client_a_comparison_is_not_judged() {
    let results = results(&[killed(0, &[50.0], &[])]);
    let against = claim(Metric::P999, Aim::Others);
    let row = row(&against, Cluster::Apache, apache(&results)).unwrap();
    assert_eq!((row.is_held(), row.judged, row.turns), (None, 0, 1));
}

#[test]
fn more_throughput_is_better() {
    let flat_out = |mb: f64| json!({"mb": mb, "s": 2.0});
    let arms = [
        arm("rf2-keyless", "curtail", &[1.0], &flat_out(200.0)),
        arm("rf2-keyless", "java", &[1.0], &flat_out(100.0)),
        arm("rf2-keyless", "franz-go", &[1.0], &flat_out(300.0)),
    ];
    let results = results(&[report("killed-leader", "apache", 0, &arms)]);
    let rate = Metric::Rate { amount: "mb", seconds: "s" };
    let claim = |aim| claim(rate, aim);
    let against = claim(Aim::Others);
    let held = |aim| row(&claim(aim), Cluster::Apache, apache(&results)).unwrap().is_held();
    assert_eq!(held(Aim::Others), Some(false));
    assert_eq!(held(Aim::Limit(100.0)), Some(true));
    assert_eq!(held(Aim::Limit(101.0)), Some(false));
    let best = row(&against, Cluster::Apache, apache(&results)).unwrap().other.unwrap();
    assert_eq!((best.client, best.spread.median), ("franz-go", 150.0));
}

#[test]
fn aims_relative_to_an_arm_are_judged_turn_by_turn() {
    let arms = [
        arm("rf2-keyless", "curtail", &[10.0, 50.0], &json!({"before_ms": 9.0})),
        arm("rf3", "curtail", &[20.0, 20.0], &json!({})),
    ];
    let results = results(&[report("killed-leader", "apache", 0, &arms)]);
    let held = |aim| {
        let claim = claim(Metric::P999, aim);
        let row = row(&claim, Cluster::Apache, apache(&results)).unwrap();
        (row.held, row.judged)
    };
    assert_eq!(held(Aim::Arm { arm: "rf3", factor: 1.0, plus: 0.0 }), (1, 2));
    assert_eq!(held(Aim::Arm { arm: "rf3", factor: 2.0, plus: 10.0 }), (2, 2));
    assert_eq!(held(Aim::Arm { arm: "missing", factor: 1.0, plus: 0.0 }), (0, 0));
    let words = "that before";
    assert_eq!(held(Aim::Noted { figure: "before_ms", words, factor: 2.0 }), (1, 2));
    assert_eq!(held(Aim::Noted { figure: "missing", words, factor: 2.0 }), (0, 0));
}

#[test]
fn a_figure_that_was_not_seen_is_not_held() {
    let arms = [arm("rf2-keyless", "curtail", &[1.0], &json!({"stall_ms": null}))];
    let results = results(&[report("killed-leader", "apache", 0, &arms)]);
    let claim = claim(Metric::Noted("stall_ms", "stall", Unit::Ms), Aim::Limit(5.0));
    let row = row(&claim, Cluster::Apache, apache(&results)).unwrap();
    assert_eq!((row.ours, row.is_held()), (None, Some(false)));
}

#[test]
fn shortened_runs_count_only_without_a_longer_one() {
    let mut short = killed(1, &[900.0], &[]);
    short["scale"] = json!(0.2);
    let claim = claim(Metric::P999, Aim::Limit(250.0));
    let median = |reports: &[Value]| {
        let results = results(reports);
        row(&claim, Cluster::Apache, apache(&results)).unwrap().ours.unwrap().median
    };
    assert_eq!(median(&[short.clone()]), 900.0);
    assert_eq!(median(&[short, killed(0, &[50.0], &[])]), 50.0);
}

#[test]
fn five_runs_of_each_arm_and_client_are_kept() {
    let mut reports = vec![killed(0, &[1.0], &[("java", &[2.0])])];
    reports.extend((1..=6).map(|day| killed(day, &[1.0], &[])));
    let results = results(&reports);
    let files: Vec<&str> = apache(&results).iter().map(|run| &*run.file).collect();
    let expected = [24, 26, 27, 28, 29, 30].map(|day| format!("2026-11-{day}T09-05-01Z.json"));
    // The run of the 24th is the only one with Java. Rows have the last five of Curtail.
    assert_eq!(files, expected);
    assert_eq!(last(apache(&results), "rf2-keyless").len(), 5);
}

#[test]
fn publishing_a_run_twice_keeps_it_once() {
    let results = results(&[killed(0, &[1.0], &[]), killed(0, &[1.0], &[])]);
    assert_eq!(apache(&results).len(), 1);
}

#[test]
fn a_new_run_changes_only_the_rows_of_its_experiment() {
    let slow = |ms| {
        report("slow-broker", "apache", 0, &[arm("default-2048", "curtail", &[ms], &json!({}))])
    };
    let page = |reports: &[Value]| results(reports).files()[Path::new("README.md")].clone();
    let before = page(&[killed(0, &[50.0], &[]), slow(7.0)]);
    let after = page(&[killed(0, &[50.0], &[]), slow(7.0), killed(1, &[60.0], &[])]);
    let changed = |text: &str, other: &str| {
        let new = text.lines().filter(|line| !other.contains(line)).map(str::to_owned);
        new.collect::<Vec<String>>()
    };
    assert!(!changed(&after, &before).is_empty());
    for line in changed(&after, &before).iter().chain(&changed(&before, &after)) {
        assert!(line.contains("killed"), "{line}");
    }
}

/// A text with plain spaces between figures and units.
fn plain(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

/// Results with three clients, and a run in virtual time.
fn shown() -> Results {
    let others: &[(&str, &[f64])] =
        &[("java", &[9100.0, 8900.0]), ("franz-go", &[11_300.0, 9900.0])];
    results(&[
        killed(0, &[51.2, 48.0], others),
        report("roll", "sim", 0, &[arm("few-all", "curtail", &[50.0], &json!({}))]),
    ])
}

#[test]
fn the_page_has_the_row_the_chart_and_the_run() {
    let files = shown().files();
    let page = plain(&files[Path::new("README.md")]);
    let path = "apache/killed-leader";
    for said in [
        "| A broker is killed; 2 replicas, keyless: p99.9 | 49.6 ms (48 to 51.2 ms) | java: 9 s (8.9 to 9.1 s) | \
         at most 250 ms | held, 2 of 2 | [2026-11-24](apache/killed-leader/README.md), 2 turns |",
        "[![killed-leader](apache/killed-leader/chart.svg)](apache/killed-leader/README.md)",
        "- [killed-leader](apache/killed-leader/README.md): 2026-11-24, commit 0123456789ab; 2 cores (AMD EPYC), 24 GiB; \
         0 of 1,000 records of Curtail lost, duplicated, reordered or refused; 0 of 1 conditions held; `curtail lab run killed-leader --cluster apache --seed 1`",
        "## Virtual time",
    ] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    let report = &files[&Path::new(path).join("README.md")];
    for said in [
        "# killed-leader, Apache Kafka: 1 of 1 claims held\n",
        "The condition does not hold: p99 &lt; 5 ms.",
        "| rf2-keyless | franz-go | 2 |",
        "- not held: p99 &lt; 5 ms",
        "(2026-11-24T09-05-01Z.json)",
    ] {
        assert!(report.contains(said), "{said}\n{report}");
    }
}

#[test]
fn charts_have_the_order_of_the_claims() {
    let moved = arm("6-partitions", "curtail", &[1.0], &json!({}));
    let shown = results(&[report("leader-move", "apache", 0, &[moved]), killed(0, &[1.0], &[])]);
    let page = &shown.files()[Path::new("README.md")];
    let chart = |name: &str| page.find(&format!("[![{name}]")).unwrap();
    assert!(chart("killed-leader") < chart("leader-move"), "{page}");
}

#[test]
fn the_report_counts_wrong_records_by_kind() {
    let mut lossy = arm("rf2-keyless", "curtail", &[1.0], &json!({}));
    lossy["lost"] = json!(2_000);
    lossy["reordered"] = json!(3);
    let other = arm("rf2-keyless", "java", &[1.0], &json!({}));
    let files = results(&[report("killed-leader", "apache", 0, &[lossy, other])]).files();
    let text = plain(&files[Path::new("apache/killed-leader/README.md")]);
    assert!(text.contains("| 12.5 us | 2,000 lost, 3 reordered |"), "{text}");
    assert!(text.contains("| 12.5 us | none |"), "{text}");
}

#[test]
fn arms_of_variants_are_explained_and_judged_by_no_claim() {
    let turns = |arm_name: &str, ms: f64| arm(arm_name, "curtail", &[ms], &json!({}));
    let mut variant = turns("rf2-keyless+now", 9.0);
    variant["lost"] = json!(2_000);
    let report = report("killed-leader", "apache", 0, &[turns("rf2-keyless", 1.0), variant]);
    let results = results(&[report]);
    let page = plain(&results.files()[Path::new("README.md")]);
    assert!(!page.contains("9 ms"), "{page}");
    assert!(page.contains("; 0 of "), "{page}");
    let text = plain(&results.files()[Path::new("apache/killed-leader/README.md")]);
    for said in [
        "| rf2-keyless+now | curtail |",
        "An arm that ends with `+NAME` also had the properties of `--variant NAME`",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[test]
fn a_report_without_a_judged_claim_counts_conditions() {
    let cold = arm("cold", "curtail", &[1.0], &json!({}));
    let files = results(&[report("cold-start", "apache", 0, &[cold])]).files();
    let text = &files[Path::new("apache/cold-start/README.md")];
    assert!(text.starts_with("# cold-start, Apache Kafka: 0 of 1 conditions held\n"), "{text}");
}

#[test]
fn published_figures_have_a_heading_and_typed_ones_are_left_out() {
    let mut known = killed(0, &[1.0], &[]);
    known["source"] = json!("KIP-951; peers measured on Apache Kafka 4.3");
    let figure = |source: &str| {
        json!({"arm": "java", "source": source, "note": "", "throughput_mbps": null,
            "latency_us": {"avg": null, "p50": null, "p95": null, "p99": null, "p999": 9_000.0, "max": null}})
    };
    let typed =
        ["measured on Apache Kafka 4.3, 2-core machine", "best peer, measured on Apache Kafka 4.3"];
    known["published"] = json!([figure("KIP-951"), figure(typed[0]), figure(typed[1])]);
    let files = results(&[known]).files();
    let text = &files[Path::new("apache/killed-leader/README.md")];
    let (measured, published) = text.split_once("\n### Published figures\n").unwrap();
    assert!(measured.contains("### Measured in this run"), "{text}");
    assert!(measured.contains("\nSource: KIP-951. Written by"), "{text}");
    assert!(published.starts_with("\n- java (KIP-951): p99.9 9 ms\n\n###"), "{text}");
    assert!(!text.contains("measured on"), "{text}");
}

#[test]
fn a_p999_of_few_records_is_marked_in_its_cell() {
    let cell = |records: u64, metric| {
        let mut run = killed(0, &[50.0, 60.0], &[]);
        run["arms"][0]["rounds"][1]["records"] = json!(records);
        let results = results(&[run]);
        let claim = claim(metric, Aim::Limit(250.0));
        page::ours(&row(&claim, Cluster::Apache, apache(&results)).unwrap())
    };
    let figures = "55 ms (50 to 60 ms)";
    assert_eq!(cell(6_300, Metric::P999), format!("{figures}; 6 records behind it"));
    assert_eq!(cell(600, Metric::P999), format!("{figures}; 1 record behind it"));
    assert_eq!(cell(10_000, Metric::P999), figures);
    assert_eq!(cell(600, Metric::P99), figures);
}

#[test]
fn arms_that_promise_no_delivery_are_named_beside_the_integrity() {
    let lossy = |name: &str| {
        let mut arm = arm(name, "curtail", &[1.0], &json!({}));
        arm["lost"] = json!(3);
        arm
    };
    let said = |arms: &[Value]| {
        let results = results(&[report("roll", "sim", 0, arms)]);
        page::integrity(Cluster::Sim, &results.of(Cluster::Sim, "roll")[0].report)
    };
    assert_eq!(
        said(&[lossy("few-1"), lossy("many-1-baseline")]),
        "0 of 2,000 records of Curtail lost, duplicated, reordered or refused (acks=1: lost records are allowed, 6 were)"
    );
    assert_eq!(
        said(&[lossy("few-all")]),
        "3 of 1,000 records of Curtail lost, duplicated, reordered or refused"
    );
}

#[test]
fn throughput_has_a_chart_of_its_own() {
    let mut ours = arm("backlog-100", "curtail", &[1.0], &json!({}));
    ours["rounds"][0]["throughput_mbps"] = json!(3.0);
    let other = arm("backlog-100", "java", &[1.0], &json!({}));
    let files = results(&[report("consume", "apache", 0, &[ours, other])]).files();
    let chart = &files[Path::new("apache/consume/chart.svg")];
    for said in ["throughput (more is better)", "3 MB/s", "3.0 times as much as java"] {
        assert!(chart.contains(said), "{said}: {chart}");
    }
    assert!(files[Path::new("README.md")].contains("(apache/consume/chart.svg)"));
}

#[test]
fn clusters_other_than_apache_kafka_are_folded() {
    let page = plain(&shown().files()[Path::new("README.md")]);
    let (open, folded) = page.split_once("\n## Virtual time\n").unwrap();
    assert!(open.contains("| A broker is killed; 2 replicas, keyless: p99.9 |"), "{page}");
    let summary = "1 claims: 0 held in every turn, 0 did not. 1 could not be judged: ";
    assert!(folded.starts_with(&format!("\n<details><summary>{summary}")), "{page}");
    assert_eq!(page.matches("<details>").count(), page.matches("</details>").count());
}

#[test]
fn pictures_are_well_formed_and_have_every_client() {
    let files = shown().files();
    for (path, clients) in [("faults.svg", 3), ("apache/killed-leader/chart.svg", 3)] {
        let text = &files[Path::new(path)];
        let document = roxmltree::Document::parse(text).unwrap();
        let bars = document
            .descendants()
            .filter(|node| matches!(node.attribute("class"), Some("ours" | "other")));
        assert_eq!(bars.count(), clients, "{path}");
        assert!(text.contains("prefers-color-scheme: dark") && !text.contains("href"), "{path}");
    }
    // Three of the four faults have no run.
    assert_eq!(files[Path::new("faults.svg")].matches(">no run on file<").count(), 3);
}

#[test]
fn the_readme_gets_picture_and_table_and_nothing_else_changes() {
    let results = shown();
    let text = "before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n";
    let new = results.readme("README.md", text).unwrap();
    assert!(new.starts_with("before\n<!-- results -->\n\n![p99.9 produce latency"), "{new}");
    assert!(new.contains("](docs/results/faults.svg)\n"), "{new}");
    let row = "keyless: p99.9](docs/results/apache/killed-leader/README.md) | 49.6 ms (48 to 51.2 ms) | \
               java: 9 s (8.9 to 9.1 s) | Apache Kafka |";
    assert!(plain(&new).contains(row), "{new}");
    assert!(new.ends_with("\n<!-- end of results -->\nafter\n") && !new.contains("old"), "{new}");
    assert_eq!(results.readme("README.md", &new).unwrap(), new);
    let error = results.readme("README.md", "no marks").err().unwrap();
    assert_eq!(error.to_string(), "README.md has no line <!-- results -->");
}

#[test]
fn the_readme_has_no_picture_without_another_client() {
    let text = "<!-- results -->\n<!-- end of results -->\n";
    let new = results(&[killed(0, &[50.0], &[])]).readme("README.md", text).unwrap();
    assert!(!new.contains("faults.svg") && new.contains("killed-leader"), "{new}");
}

#[test]
fn figures_in_cells_stay_on_one_line_with_their_units() {
    let cell = page::cell("20 s; at most 5 ms (1 s to 2.5 s), 1 MB/s a | b s");
    let bound = "20\u{a0}s; at most 5\u{a0}ms (1\u{a0}s to 2.5\u{a0}s), 1\u{a0}MB/s a \\| b s";
    assert_eq!(cell, bound);
}

#[test]
fn a_directory_is_read_as_it_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let saved = shown();
    saved.save(dir.path()).unwrap();
    let read = Results::read(dir.path()).unwrap();
    assert_eq!(read.files(), saved.files());
    assert!(read.differences(dir.path()).unwrap().is_empty());

    let page = dir.path().join("README.md");
    let text = fs::read_to_string(&page).unwrap();
    fs::write(&page, text.replace("held, 2\u{a0}of", "held, 3\u{a0}of")).unwrap();
    let stale = dir.path().join("apache/killed-leader/chart.svg");
    fs::remove_file(&stale).unwrap();
    let wrong = read.differences(dir.path()).unwrap();
    assert_eq!(wrong, [Path::new("README.md"), Path::new("apache/killed-leader/chart.svg")]);

    // What no run says disappears.
    let empty = Results::default();
    empty.save(dir.path()).unwrap();
    assert!(!dir.path().join("sim/roll/seed-1.json").exists() && !stale.exists());
    assert!(fs::read_to_string(&page).unwrap().contains("\n0 claims: "));
}

#[test]
fn crash_tests_are_a_row_of_their_own() {
    let kills = |lost: u64| {
        let reading = |lost: u64| json!({"by": "consumer", "records": 7, "lost": lost, "duplicated": 0, "reordered": 0});
        json!({"cluster": "apache", "seed": 1, "environment": report("roll", "apache", 0, &[])["environment"],
               "broker_kills": 100, "copy_broker_kills": 30, "copy_client_kills": 20, "copy_client_failures": 0,
               "topics": [{"topic": "keyed", "sent": 1234, "acknowledged": 1234, "failed": 0,
                           "readings": [reading(lost), reading(0)]}]})
    };
    for (lost, state) in [
        (0, "| 0 of 1,234 | none | none | held, 1 of 1 |"),
        (2, "| 2 of 1,234 | none | none | not held, 0 of 1 |"),
    ] {
        let text = serde_json::to_string_pretty(&kills(lost)).unwrap();
        let mut results = Results::default();
        results.add("kills.json", &text).unwrap();
        let page = plain(&results.files()[Path::new("README.md")]);
        assert!(page.contains("| 130 brokers and 20 clients killed: "), "{page}");
        assert!(page.contains(state), "{page}");
        assert!(page.contains("(apache/kills/README.md)"), "{page}");
        let report = plain(&results.files()[Path::new("apache/kills/README.md")]);
        let word = if lost == 0 { "held" } else { "not held" };
        for said in [
            format!("# Crash test, Apache Kafka: {word}\n"),
            format!("| keyed | 1,234 | 1,234 | 0 | - | consumer | 7 | {lost} | 0 | 0 |"),
            "(2026-11-24T09-05-01Z.json)".to_owned(),
        ] {
            assert!(report.contains(&said), "{said}\n{report}");
        }
    }
}

#[test]
fn runs_that_cannot_be_kept_are_refused_in_one_line() {
    let refused = |report: &Value| {
        let error = Results::default().add("x.json", &report.to_string()).err().unwrap();
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let good = killed(0, &[1.0], &[]);
    let with = |field: &str, value: Value| {
        let mut report = good.clone();
        report[field] = value;
        refused(&report)
    };
    assert!(
        with("experiment", json!("nothing"))
            .starts_with("x.json: unknown experiment 'nothing'; known are ")
    );
    assert_eq!(
        with("cluster", json!("host:9092")),
        "x.json: a run on host:9092; the page has runs on apache, embedded, sim"
    );
    assert!(
        with("arms", json!(3))
            .starts_with("x.json, line 1: not in the format of `curtail lab run --json`: ")
    );
    assert_eq!(
        with("command", json!("curtail lab run roll --cluster-property a=b")),
        "x.json: its brokers had other settings than those of the experiment"
    );
    let mut debug = good.clone();
    debug["environment"]["release_build"] = json!(false);
    assert_eq!(refused(&debug), "x.json: not a run of a release build");
    debug["environment"]["started_ms"] = json!(0);
    assert_eq!(refused(&debug), "x.json: the run has no date");
    let error = Results::default().add("x.json", " \n").err().unwrap();
    assert_eq!(error.to_string(), "x.json contains no experiment");
}

#[test]
fn a_directory_with_something_else_is_refused_in_one_line() {
    let refused = |path: &str, text: &str| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        let error = Results::read(dir.path()).err().unwrap().to_string();
        assert!(!error.contains('\n'), "{error}");
        error.replace(&*dir.path().to_string_lossy(), "DIR")
    };
    let good = killed(0, &[1.0], &[]).to_string();
    assert_eq!(
        refused("apache/roll/2026-11-24T09-05-01Z.json", &good),
        "DIR/apache/roll/2026-11-24T09-05-01Z.json: belongs in apache/killed-leader/2026-11-24T09-05-01Z.json"
    );
    assert_eq!(
        refused("else/x/y.json", &good),
        "DIR/else: unknown cluster; known are apache, embedded, sim"
    );
    let outside = refused("apache/killed-leader.json", &good);
    assert!(
        outside.starts_with("DIR/apache/killed-leader.json: not in an experiment's directory"),
        "{outside}"
    );
    let damaged = refused("apache/killed-leader/2026-11-24T09-05-01Z.json", &good[..40]);
    assert!(
        damaged.starts_with(
            "DIR/apache/killed-leader/2026-11-24T09-05-01Z.json, line 1: not in the format of `curtail lab run --json`: "
        ),
        "{damaged}"
    );
    let missing = Results::read(Path::new("/nonexistent")).err().unwrap().to_string();
    assert!(missing.starts_with("cannot read /nonexistent: "), "{missing}");
}
