//! Reports of `curtail lab kills --json`, as far as the page needs them.

use serde::Deserialize;

use super::{
    Cluster, date,
    number::thousands,
    page::{cell, commit, escaped, machine},
    store::KillsRun,
};
use crate::experiments::Environment;

/// Directory of these reports, next to those of the experiments.
pub(super) const NAME: &str = "kills";

#[derive(Debug, Deserialize)]
pub(super) struct Kills {
    pub(super) cluster: String,
    pub(super) environment: Environment,
    pub(super) broker_kills: u64,
    pub(super) copy_broker_kills: u64,
    pub(super) copy_client_kills: u64,
    pub(super) copy_client_failures: u64,
    pub(super) topics: Vec<Topic>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Topic {
    topic: String,
    sent: u64,
    acknowledged: u64,
    failed: u64,
    first_error: Option<String>,
    slowest_ms: Option<f64>,
    readings: Vec<Reading>,
}

#[derive(Debug, Deserialize)]
struct Reading {
    by: String,
    records: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
}

impl Kills {
    /// Whether no record was lost, duplicated, reordered or refused, and no process ended without being killed.
    pub(super) fn held(&self) -> bool {
        self.violations() == 0 && self.copy_client_failures == 0
    }

    /// The faults in words.
    pub(super) fn faults(&self) -> String {
        let brokers = self.broker_kills + self.copy_broker_kills;
        format!("{brokers} brokers and {} clients killed", self.copy_client_kills)
    }

    /// Records acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.topics.iter().map(|topic| topic.acknowledged).sum()
    }

    /// Records lost, duplicated, reordered or refused. Each reading of a topic has its own count; the largest one counts.
    pub(super) fn violations(&self) -> u64 {
        let of_reading = |reading: &Reading| reading.lost + reading.duplicated + reading.reordered;
        let of_topic =
            |topic: &Topic| topic.failed + topic.readings.iter().map(of_reading).max().unwrap_or(0);
        self.topics.iter().map(of_topic).sum()
    }
}

/// The report of these crash tests, oldest first.
pub(super) fn report(cluster: Cluster, runs: &[KillsRun]) -> String {
    let Some(newest) = runs.last() else { return String::new() };
    let kills = &newest.kills;
    let state = if kills.held() { "held" } else { "not held" };
    let environment = &kills.environment;
    let versions = environment.versions.iter().map(|(name, version)| format!("{name} {version}"));
    let mut text = format!(
        "# Crash test, {}: {state}\n\n\
         {}, each with kill -9; {} of {} acknowledged records lost, duplicated, reordered or refused.\n\n\
         Written by `curtail lab publish` from a run of `curtail lab kills`.\n\n\
         ## Run of {}\n\n\
         - {}; {}; {}\n\
         - {} brokers were killed one after the other under a load of keyed and keyless records, acks=all.\n\
         - {} brokers and {} processes were killed during an exactly-once copy; {} processes ended without being killed.\n\
         - [JSON]({})\n\n\
         Each reading is compared with what was acknowledged. A lost record is not where it was acknowledged.\n\n\
         | topic | sent | acknowledged | refused | slowest, s | read by | records | lost | duplicated | reordered |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        cluster.title(),
        kills.faults(),
        thousands(kills.violations() as i64),
        thousands(kills.acknowledged() as i64),
        date::day(environment.started_ms),
        commit(environment),
        machine(environment),
        versions.collect::<Vec<_>>().join(", "),
        kills.broker_kills,
        kills.copy_broker_kills,
        kills.copy_client_kills,
        kills.copy_client_failures,
        newest.file,
    );
    for topic in &kills.topics {
        text.extend(topic.readings.iter().map(|reading| topic.line(reading)));
    }
    for topic in &kills.topics {
        if let Some(error) = &topic.first_error {
            text += &format!("\nFirst error of {}: {}\n", topic.topic, escaped(error));
        }
    }
    if runs.len() > 1 {
        text += "\n## Earlier runs\n\n";
        for run in runs.iter().rev().skip(1) {
            let (day, kills) = (date::day(run.kills.environment.started_ms), &run.kills);
            let state = if kills.held() { "held" } else { "not held" };
            text += &format!("- [{day}]({}): {state}; {}\n", run.file, kills.faults());
        }
    }
    text
}

impl Topic {
    fn line(&self, reading: &Reading) -> String {
        let count = |count: u64| thousands(count as i64);
        let slowest =
            self.slowest_ms.map_or_else(|| "-".to_owned(), |ms| format!("{:.1}", ms / 1000.0));
        let cells = [
            self.topic.clone(),
            count(self.sent),
            count(self.acknowledged),
            count(self.failed),
            slowest,
            reading.by.clone(),
            count(reading.records),
            count(reading.lost),
            count(reading.duplicated),
            count(reading.reordered),
        ];
        format!("| {} |\n", cells.map(|text| cell(&text)).join(" | "))
    }
}
