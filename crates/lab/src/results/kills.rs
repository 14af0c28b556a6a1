//! Reports of `curtail lab kills --json`, as far as the page needs them.

use serde::Deserialize;

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
    pub(super) acknowledged: u64,
    pub(super) failed: u64,
    readings: Vec<Reading>,
}

#[derive(Debug, Deserialize)]
struct Reading {
    lost: u64,
    duplicated: u64,
    reordered: u64,
}

impl Kills {
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
