//! State of the cluster: its partitions and the brokers' settings.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use curtail::{
    Admin,
    admin::{ConfigEntry, ConfigResource, ConfigSource, PartitionDescription},
};

use super::diagnosis::Finding;
use crate::error::Result;

/// The state that was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    /// Live brokers with their settings; no settings if they could not be read.
    pub(super) brokers: BTreeMap<i32, Settings>,
    pub(super) topics: Vec<Topic>,
    /// Parts that could not be read, and why.
    pub(super) unseen: Vec<String>,
}

/// Settings by name, each with whether it was set explicitly.
pub(super) type Settings = BTreeMap<String, Setting>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) value: String,
    pub(super) is_default: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) partitions: Vec<PartitionDescription>,
    pub(super) min_in_sync: Option<usize>,
}

/// Topics whose settings are read, a limit that keeps the responses of a large cluster small.
const TOPICS: usize = 200;

/// Reads the state. A part that the user is not authorized to read is no error.
///
/// # Errors
/// An unreachable cluster.
pub(super) async fn look(admin: &Admin) -> Result<Cluster> {
    let described = admin.describe_cluster().await?;
    let mut cluster = Cluster::default();
    let ids: Vec<i32> = described.brokers.iter().map(|broker| broker.id).collect();
    cluster.brokers = ids.iter().map(|id| (*id, Settings::new())).collect();
    let resources: Vec<_> = ids.iter().map(|id| ConfigResource::Broker(*id)).collect();
    match admin.describe_configs(&resources).await {
        Ok(all) => {
            for (resource, entries) in all {
                match (resource, entries) {
                    (ConfigResource::Broker(id), Ok(entries)) => {
                        cluster.brokers.insert(id, settings(entries));
                    }
                    (resource, Err(error)) => {
                        cluster.unseen.push(format!("{resource}: {}", error.report()));
                    }
                    _ => {}
                }
            }
        }
        Err(error) => cluster.unseen.push(format!("the brokers' settings: {}", error.report())),
    }
    if let Err(error) = topics(admin, &mut cluster).await {
        cluster.unseen.push(format!("topics: {}", error.report()));
    }
    Ok(cluster)
}

async fn topics(admin: &Admin, cluster: &mut Cluster) -> curtail::Result<()> {
    let listed = admin.list_topics().await?;
    let names: Vec<&str> = listed.iter().map(|topic| topic.name.as_str()).collect();
    for (name, described) in admin.describe_topics(&names).await? {
        match described {
            Ok(topic) => {
                cluster.topics.push(Topic {
                    name,
                    partitions: topic.partitions,
                    min_in_sync: None,
                });
            }
            Err(error) => cluster.unseen.push(error.report().to_string()),
        }
    }
    let asked: Vec<_> =
        names.iter().take(TOPICS).map(|name| ConfigResource::Topic((*name).to_owned())).collect();
    for (resource, entries) in admin.describe_configs(&asked).await? {
        let ConfigResource::Topic(name) = &resource else { continue };
        match entries {
            Ok(entries) => {
                let found = entries.iter().find(|entry| entry.name == "min.insync.replicas");
                let value = found.and_then(|entry| entry.value.as_ref()?.parse().ok());
                if let Some(topic) = cluster.topics.iter_mut().find(|topic| topic.name == *name) {
                    topic.min_in_sync = value;
                }
            }
            Err(error) => cluster.unseen.push(format!("{resource}: {}", error.report())),
        }
    }
    if names.len() > TOPICS {
        let rest = names.len() - TOPICS;
        cluster
            .unseen
            .push(format!("the settings of {rest} topics: only the first {TOPICS} were read"));
    }
    Ok(())
}

fn settings(entries: Vec<ConfigEntry>) -> Settings {
    let setting = |entry: ConfigEntry| {
        let is_default = entry.source == ConfigSource::Default;
        Some((entry.name, Setting { value: entry.value?, is_default }))
    };
    entries.into_iter().filter_map(setting).collect()
}

impl Cluster {
    /// Everything that stands out.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut all = Vec::new();
        all.extend(self.replicas());
        all.extend(self.leaders());
        all.extend(self.settings());
        all.extend(self.unseen.iter().map(|text| Finding::note(format!("not examined: {text}"))));
        all
    }

    fn partitions(&self) -> impl Iterator<Item = (&Topic, &PartitionDescription)> {
        self.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |at| (topic, at)))
    }

    /// Partitions without a leader, with replicas out of sync, or at their `min.insync.replicas`.
    fn replicas(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let named = |is: &dyn Fn(&PartitionDescription) -> bool| {
            let found = self.partitions().filter(|(_, at)| is(at));
            found.map(|(topic, at)| format!("{}-{}", topic.name, at.partition)).collect::<Vec<_>>()
        };
        let leaderless = named(&|at| at.leader.is_none());
        if !leaderless.is_empty() {
            findings.push(Finding::warning(format!("without a leader: {}", listed(&leaderless))));
        }
        let under = named(&|at| at.isr.len() < at.replicas.len());
        if !under.is_empty() {
            findings.push(Finding::warning(format!(
                "under-replicated, so fewer failures are tolerated: {}",
                listed(&under)
            )));
        }
        let strict: Vec<String> = self
            .topics
            .iter()
            .filter(|topic| {
                let replicas = topic.partitions.first().map_or(0, |at| at.replicas.len());
                replicas > 1 && topic.min_in_sync.is_some_and(|min| min >= replicas)
            })
            .map(|topic| topic.name.clone())
            .collect();
        if !strict.is_empty() {
            findings.push(Finding::warning(format!(
                "min.insync.replicas is as high as the replication factor, so acks=all fails while any replica is down: {}",
                listed(&strict)
            )));
        }
        findings
    }

    /// Leaders that are unevenly spread or not on their preferred replica.
    fn leaders(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut leads: BTreeMap<i32, usize> = self.brokers.keys().map(|id| (*id, 0)).collect();
        for leader in self.partitions().filter_map(|(_, at)| at.leader) {
            *leads.entry(leader).or_default() += 1;
        }
        let all: usize = leads.values().sum();
        let (fewest, most) = (leads.values().min(), leads.values().max());
        if let (Some(&fewest), Some(&most)) = (fewest, most) {
            let even = all as f64 / leads.len() as f64;
            if most as f64 > even * UNEVEN && most - fewest > FEW_LEADERS {
                let shares: Vec<String> =
                    leads.iter().map(|(id, count)| format!("{count} on broker {id}")).collect();
                findings.push(Finding::warning(format!(
                    "leaders are unevenly spread: {}",
                    shares.join(", ")
                )));
            }
        }
        let moved = self
            .partitions()
            .filter(|(_, at)| at.leader.is_some() && at.leader != at.replicas.first().copied())
            .count();
        if moved > FEW_LEADERS && moved * 10 > all {
            findings.push(Finding::note(format!(
                "{moved} of {all} partitions are not led by their preferred replica: `curtail elect` moves them back"
            )));
        }
        findings
    }

    /// Settings of brokers that cost latency, and settings that differ between brokers.
    fn settings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for rule in RULES {
            let odd: Vec<String> = self
                .brokers
                .iter()
                .filter_map(|(id, settings)| {
                    let setting = settings.get(rule.name)?;
                    let odd = !setting.is_default && (rule.is_odd)(&setting.value);
                    odd.then(|| format!("{}={} on broker {id}", rule.name, setting.value))
                })
                .collect();
            if !odd.is_empty() {
                findings.push(Finding::warning(format!("{}: {}", listed(&odd), rule.why)));
            }
        }
        for name in ALIKE {
            let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for (id, settings) in &self.brokers {
                if let Some(setting) = settings.get(*name) {
                    values.entry(&setting.value).or_default().push(id.to_string());
                }
            }
            if values.len() > 1 {
                let each: Vec<String> = values
                    .iter()
                    .map(|(value, ids)| format!("{value} on {}", ids.join(", ")))
                    .collect();
                findings.push(Finding::note(format!(
                    "{name} differs between brokers: {}",
                    each.join("; ")
                )));
            }
        }
        findings
    }
}

/// A broker that leads this many times its even share is a finding.
const UNEVEN: f64 = 1.5;
/// Differences of at most this many leaders are none.
const FEW_LEADERS: usize = 2;
/// More names than this are only counted.
const NAMES: usize = 5;

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => shown,
        rest => format!("{shown} and {rest} more"),
    }
}

/// A broker setting that costs latency if it is set to an odd value.
struct Rule {
    name: &'static str,
    is_odd: fn(&str) -> bool,
    why: &'static str,
}

fn below(value: &str, limit: i64) -> bool {
    value.parse::<i64>().is_ok_and(|value| value >= 0 && value < limit)
}

fn above(value: &str, limit: i64) -> bool {
    value.parse::<i64>().is_ok_and(|value| value > limit)
}

/// Rules for unusual broker settings. Kafka's defaults break none: 3 network threads, 8 I/O threads, no flushing by
/// the broker.
const RULES: &[Rule] = &[
    Rule {
        name: "log.flush.interval.messages",
        is_odd: |value| below(value, 1_000_000),
        why: "after this many messages the broker flushes to disk and waits; replication already protects records",
    },
    Rule {
        name: "log.flush.interval.ms",
        is_odd: |value| below(value, 60_000),
        why: "at this interval the broker flushes to disk and waits; replication already protects records",
    },
    Rule {
        name: "num.network.threads",
        is_odd: |value| below(value, 3),
        why: "fewer than Kafka's default of 3: requests may wait for a thread that reads them",
    },
    Rule {
        name: "num.io.threads",
        is_odd: |value| below(value, 8),
        why: "fewer than Kafka's default of 8: requests may wait for a thread that handles them",
    },
    Rule {
        name: "replica.fetch.wait.max.ms",
        is_odd: |value| above(value, 500),
        why: "with replica.fetch.min.bytes above 1, a follower's fetch may delay acks=all by this time",
    },
    Rule {
        name: "replica.fetch.min.bytes",
        is_odd: |value| above(value, 1),
        why: "a follower's fetch waits for this many bytes, and acks=all waits for the follower",
    },
    Rule {
        name: "queued.max.requests",
        is_odd: |value| below(value, 100),
        why: "network threads stop reading when this few requests are queued",
    },
    Rule {
        name: "compression.type",
        is_odd: |value| value != "producer",
        why: "the broker recompresses every batch",
    },
    Rule {
        name: "unclean.leader.election.enable",
        is_odd: |value| value == "true",
        why: "a replica that misses acknowledged records may become leader",
    },
    Rule {
        name: "auto.leader.rebalance.enable",
        is_odd: |value| value == "false",
        why: "leaders do not return to their preferred replicas automatically after a restart",
    },
    Rule {
        name: "socket.send.buffer.bytes",
        is_odd: |value| below(value, 65_536),
        why: "small for a link with a long round-trip time",
    },
    Rule {
        name: "socket.receive.buffer.bytes",
        is_odd: |value| below(value, 65_536),
        why: "small for a link with a long round-trip time",
    },
];

/// Settings that should be the same on every broker.
const ALIKE: &[&str] = &[
    "num.network.threads",
    "num.io.threads",
    "num.replica.fetchers",
    "replica.fetch.min.bytes",
    "replica.fetch.wait.max.ms",
    "replica.lag.time.max.ms",
    "log.flush.interval.messages",
    "compression.type",
    "queued.max.requests",
];
