//! The lists of metrics in docs/metrics.md.

use std::collections::BTreeSet;

use super::*;
use crate::{TopicPartition, documents};

/// Metrics of a consumer, with a value for everything that may be absent.
fn consumer() -> ConsumerMetrics {
    let stats = ConsumerStats::new(true);
    let group = GroupMetrics {
        since_rebalance: Some(Duration::ZERO),
        since_heartbeat: Some(Duration::ZERO),
        ..GroupMetrics::default()
    };
    ConsumerMetrics {
        client_id: "c".into(),
        taken: stats.started,
        period: Duration::ZERO,
        records_consumed_total: 0,
        bytes_consumed_total: 0,
        connection_creation_total: 0,
        poll_idle_time: Duration::ZERO,
        certificates_outdated: false,
        brokers: [(1, FetchMetrics::default())].into(),
        group: Some(group),
        partitions: [(
            TopicPartition::new("t", 0),
            PartitionLag { lag: Some(0), buffered_bytes: 0 },
        )]
        .into(),
    }
}

fn producer() -> ProducerMetrics {
    let stats = ProducerStats::new(true);
    stats.broker(1).request_built(1);
    metrics(&stats)
}

/// Names of a sample's labels, without the quantile.
fn labels(sample: &str) -> String {
    let (_, rest) = sample.split_once('{').expect("labels");
    let names = rest.split("=\"").filter_map(|part| part.rsplit([',', '"', '{']).next());
    let names = names.filter(|name| !name.starts_with('}') && *name != "quantile");
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn prometheus() -> String {
    let mut text = PrometheusText::default();
    let text = text.producer(&producer()).consumer(&consumer()).to_string();
    let mut table = "| family | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for family in text.split("# HELP ").skip(1) {
        let mut lines = family.lines();
        let (name, help) = lines.next().and_then(|line| line.split_once(' ')).expect("help");
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).expect("a type");
        let labels = labels(lines.next().expect("a sample"));
        table += &format!("| `{name}` | {kind} | {labels} | {} |\n", help.trim_end_matches('.'));
    }
    table
}

/// The suffixes of a distribution, and those of a counter.
const DISTRIBUTION: [&str; 6] = ["-avg", "-max", "-p50", "-p99", "-p999", "-p9999"];
const COUNTER: [&str; 2] = ["-rate", "-total"];

/// Removes the names that `suffixes` make of one stem, if all of them exist.
fn take_stems(names: &mut BTreeSet<String>, suffixes: &[&str]) -> Vec<String> {
    let stems: Vec<String> = names
        .iter()
        .filter_map(|name| name.strip_suffix(suffixes[0]).map(ToOwned::to_owned))
        .filter(|stem| suffixes.iter().all(|suffix| names.contains(&format!("{stem}{suffix}"))))
        .collect();
    names.retain(|name| {
        let has = |stem: &String| suffixes.iter().any(|suffix| *name == format!("{stem}{suffix}"));
        !stems.iter().any(has)
    });
    stems
}

fn named() -> String {
    let mut groups: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for metric in producer().named().into_iter().chain(consumer().named()) {
        let tags: Vec<_> = metric.tags.iter().map(|(tag, _)| format!("`{tag}`")).collect();
        groups.entry((metric.group, tags.join(", "))).or_default().insert(metric.name);
    }
    let mut list = String::new();
    for ((group, tags), mut names) in groups {
        list += &format!("`{group}`, by {tags}:\n\n");
        let kinds = [
            ("distributions", take_stems(&mut names, &DISTRIBUTION)),
            ("counters", take_stems(&mut names, &COUNTER)),
            ("values", names.into_iter().collect()),
        ];
        for (kind, names) in kinds {
            if names.is_empty() {
                continue;
            }
            list += &format!("- {kind}:");
            let mut width = list.lines().last().map_or(0, str::len);
            for (index, name) in names.iter().enumerate() {
                let text = format!(" `{name}`{}", if index + 1 < names.len() { "," } else { "" });
                if width + text.len() > 130 {
                    list += "\n ";
                    width = 1;
                }
                list += &text;
                width += text.len();
            }
            list.push('\n');
        }
        list.push('\n');
    }
    list.trim_end().to_owned() + "\n"
}

#[test]
fn page_of_metrics_lists_what_the_code_exports() {
    documents::check("metrics.md", &[("prometheus", prometheus()), ("names", named())]);
}
