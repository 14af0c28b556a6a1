use super::*;
use crate::{
    experiments::{
        BrokerShare, Condition, Exemplar, FaultSpan, Modelled, Phase, PublishedFigure,
        PublishedLatency,
        compare::tests::{arm, report},
    },
    latency::Latencies,
    over_time::OverTime,
};

/// A report with every kind of figure.
fn full() -> Report {
    let mut arm = arm("<arm> & \"others\"", &[100.0, 110.0]);
    let (mut latencies, mut over_time) = (Latencies::default(), OverTime::default());
    for n in 1..=20_000u64 {
        latencies.record_nanos(n * 10_000);
        over_time.record(n * 1_000_000, n * 10_000);
    }
    arm.latency_us = latencies.summary();
    arm.latency_curve = latencies.curve();
    for round in &mut arm.rounds {
        round.over_time = over_time.summary();
        let what = "broker 2 <frozen>".to_owned();
        round.faults = vec![FaultSpan { from_ms: 5_000.0, until_ms: 9_000.0, what }];
    }
    let phase = Some(Phase { p50: 1_000.0, p99: 2_000.0, p999: 3_000.0, p9999: f64::NAN });
    arm.phases_us.produce = phase;
    arm.phases_us.commit = phase;
    arm.acknowledge_us = phase;
    arm.phases_estimated = true;
    arm.brokers = vec![
        BrokerShare { broker: 1, records: 15_000, bytes: 1_500 },
        BrokerShare { broker: 2, records: 5_000, bytes: 500 },
    ];
    arm.exemplars = vec![Exemplar {
        round: 0,
        at_ms: 5_000.0,
        partition: 3,
        offset: Some(17),
        latency_us: 200_000.0,
        leader: Some(2),
        phases_us: [("commit".to_owned(), 190_000.0)].into(),
        blame: Some("commit".into()),
    }];
    arm.extra = [("stall_ms".to_owned(), 1.5)].into();
    let mut report = report("x", vec![arm, crate::experiments::compare::tests::arm("b", &[9.0])]);
    report.command = "curtail lab run x --client 'a\u{1}b'".into();
    report.models = vec![Modelled::new("the network", [("delay", "1 ms".to_owned())])];
    report.conditions = vec![Condition { text: "p99 < 1 ms".into(), held: false }];
    report.published = vec![PublishedFigure {
        arm: "b".into(),
        source: "KIP-951".into(),
        latency_us: PublishedLatency { p99: Some(12_000.0), ..PublishedLatency::default() },
        throughput_mbps: None,
        note: "40,000,000 records".into(),
    }];
    report
}

#[test]
fn a_page_is_well_formed_and_complete() {
    let text = page(&[full(), report("y", vec![])]);
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&text, options).unwrap();
    let all = |name: &str| document.descendants().filter(|n| n.has_tag_name(name)).count();
    // Percentiles, two arms over time (one is empty), three percentiles of phases, brokers.
    assert_eq!(document.descendants().filter(|n| n.attribute("role") == Some("img")).count(), 6);
    assert_eq!((all("section"), all("details"), all("figure")), (2, 4, 4));
    let words: String =
        document.descendants().filter(roxmltree::Node::is_text).filter_map(|n| n.text()).collect();
    for said in [
        "NOT HELD: p99 < 1 ms",
        "Conditions of 1 of 2 experiments do not hold.",
        "The condition does not hold: p99 < 1 ms.",
        "commit: replication to the in-sync replicas",
        "Published figures",
        "p99.9 ms",
        "CPU us/record",
        "latency ms",
        "catch_up ms",
        "<arm> & \"others\"",
        "broker 2 <frozen> from 5 s to 9 s",
        "Not measured in this run: publish, catch_up, fetch.",
        "KIP-951: 40,000,000 records",
        "the network (delay 1 ms)",
        "are estimated from probes",
        "1 / 2 / 3 / –",
        "75.0%",
        "200",
        "to blame",
        "--client 'a\u{fffd}b'",
        "Ratio of each arm to <arm>",
    ] {
        assert!(words.contains(said), "{said}: {words}");
    }
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let text = page(&[full()]);
    for reference in ["http:", "https:", "//", "src=", "@import", "url("] {
        assert!(!text.contains(reference), "{reference}");
    }
}

#[test]
fn a_page_names_the_figures_that_are_missing() {
    let text = page(&[report("y", vec![arm("a", &[1.0])])]);
    for said in ["Phases: not measured.", "Single records: not measured.", "None."] {
        assert!(text.contains(said), "{said}");
    }
    assert!(!text.contains("<nav"), "one experiment needs no contents");
}
