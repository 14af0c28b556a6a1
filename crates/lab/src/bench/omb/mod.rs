//! Workloads of the OpenMessaging Benchmark, run with one client of each kind as their local worker does.

mod backlog;
mod rate;
mod result;
mod run;
#[cfg(test)]
mod tests;

use std::time::Duration;

use curtail::config::parse_properties;
use serde::{Deserialize, de::DeserializeOwned, de::IgnoredAny};

use self::backlog::Backlog;
pub(super) use self::run::run;
use super::refuse;
use crate::perf::{Error, Result};

/// Key distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum KeyDistributor {
    /// No keys.
    #[default]
    NoKey,
    /// `KEYS` keys in turn.
    KeyRoundRobin,
    /// A random one of `KEYS` keys.
    RandomNano,
}

/// A workload. Durations in minutes, and the backlog's size, may be fractions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Workload {
    #[serde(default)]
    pub(super) name: String,
    pub(super) topics: u32,
    pub(super) partitions_per_topic: i32,
    #[serde(default)]
    pub(super) key_distributor: KeyDistributor,
    pub(super) message_size: usize,
    #[serde(default)]
    pub(super) payload_file: Option<String>,
    #[serde(default)]
    pub(super) use_randomized_payloads: bool,
    #[serde(default)]
    pub(super) random_bytes_ratio: f64,
    #[serde(default)]
    pub(super) randomized_payload_pool_size: u32,
    pub(super) subscriptions_per_topic: u32,
    pub(super) consumer_per_subscription: u32,
    pub(super) producers_per_topic: u32,
    pub(super) producer_rate: f64,
    #[serde(default, rename = "consumerBacklogSizeGB")]
    consumer_backlog_size_gb: f64,
    #[serde(default = "one")]
    backlog_drain_ratio: f64,
    pub(super) test_duration_minutes: f64,
    #[serde(default = "one")]
    pub(super) warmup_duration_minutes: f64,
}

/// Bytes.
const GB: f64 = (1_u64 << 30) as f64;

fn one() -> f64 {
    1.0
}

impl Workload {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let workload: Self = yaml(text)?;
        workload.check()?;
        Ok(workload)
    }

    fn check(&self) -> Result<()> {
        let counts = [
            ("topics", u64::from(self.topics)),
            ("partitionsPerTopic", u64::try_from(self.partitions_per_topic).unwrap_or(0)),
            ("producersPerTopic", u64::from(self.producers_per_topic)),
            ("messageSize", self.message_size as u64),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return refuse(format!("{name} must be above 0"));
        }
        if !(self.producer_rate.is_finite() && self.producer_rate >= 0.0) {
            return refuse("producerRate must be above 0, or 0 to find the highest one");
        }
        if self.producer_rate == 0.0
            && self.subscriptions_per_topic * self.consumer_per_subscription == 0
        {
            return refuse(
                "producerRate 0 finds the highest rate that consumers keep up with: it needs consumers",
            );
        }
        self.check_backlog()?;
        if self.use_randomized_payloads {
            if !(0.0..=1.0).contains(&self.random_bytes_ratio) {
                return refuse("randomBytesRatio must be between 0 and 1");
            }
            if self.randomized_payload_pool_size == 0 {
                return refuse("useRandomizedPayloads needs a randomizedPayloadPoolSize above 0");
            }
        }
        minutes("testDurationMinutes", self.test_duration_minutes)?;
        if self.test_duration_minutes == 0.0 {
            return refuse("testDurationMinutes must be above 0");
        }
        minutes("warmupDurationMinutes", self.warmup_duration_minutes).map(drop)
    }

    fn check_backlog(&self) -> Result<()> {
        if !(0.0..=1e6).contains(&self.consumer_backlog_size_gb) {
            return refuse("consumerBacklogSizeGB must be from 0 to 1000000");
        }
        if !(0.0..=1.0).contains(&self.backlog_drain_ratio) {
            return refuse("backlogDrainRatio must be between 0 and 1");
        }
        if self.consumer_backlog_size_gb > 0.0 {
            if self.producer_rate == 0.0 {
                return refuse("producerRate 0 cannot be combined with a backlog: give a rate");
            }
            if self.subscriptions_per_topic * self.consumer_per_subscription == 0 {
                return refuse("a backlog needs consumers that drain it");
            }
        }
        Ok(())
    }

    /// The backlog to build and drain, if any.
    fn backlog(&self) -> Option<Backlog> {
        let bytes = self.consumer_backlog_size_gb * GB;
        let records = (bytes / self.message_size as f64) as u64;
        (records > 0).then(|| Backlog::new(records, self.backlog_drain_ratio))
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.test_duration_minutes * 60.0)
    }

    pub(super) fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup_duration_minutes * 60.0)
    }
}

fn minutes(name: &str, value: f64) -> Result<f64> {
    if (0.0..=1e6).contains(&value) {
        return Ok(value);
    }
    refuse(format!("{name} must be from 0 to 1000000"))
}

/// A driver for Kafka: settings of topics and clients, as texts of properties.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct DriverFile {
    name: String,
    driver_class: String,
    replication_factor: Option<i16>,
    /// In the original it deletes every topic of the cluster; here only topics of the run are deleted.
    #[serde(rename = "reset")]
    _reset: Option<IgnoredAny>,
    topic_config: String,
    common_config: String,
    producer_config: String,
    consumer_config: String,
}

/// A driver with its properties parsed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Driver {
    pub(super) name: String,
    /// -1 for the brokers' default.
    pub(super) replication_factor: i16,
    pub(super) topic: Vec<(String, String)>,
    pub(super) common: Vec<(String, String)>,
    pub(super) producer: Vec<(String, String)>,
    pub(super) consumer: Vec<(String, String)>,
}

impl Default for Driver {
    fn default() -> Self {
        let none = Vec::new;
        Self {
            name: "curtail".into(),
            replication_factor: -1,
            topic: none(),
            common: none(),
            producer: none(),
            consumer: none(),
        }
    }
}

impl Driver {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let file: DriverFile = yaml(text)?;
        let class = file.driver_class.rsplit('.').next().unwrap_or_default();
        if !class.is_empty() && class != "KafkaBenchmarkDriver" {
            return refuse(format!(
                "driverClass '{}' is not supported; supported is KafkaBenchmarkDriver",
                file.driver_class
            ));
        }
        let properties = |name: &str, text: &str| {
            parse_properties(text).map_err(|error| Error::Options(format!("{name}: {error}")))
        };
        Ok(Self {
            name: if file.name.is_empty() { "Kafka".into() } else { file.name },
            replication_factor: file.replication_factor.unwrap_or(-1),
            topic: properties("topicConfig", &file.topic_config)?,
            common: properties("commonConfig", &file.common_config)?,
            producer: properties("producerConfig", &file.producer_config)?,
            consumer: properties("consumerConfig", &file.consumer_config)?,
        })
    }

    /// `bootstrap.servers` in the common properties.
    pub(super) fn bootstrap(&self) -> Option<&str> {
        let named = self.common.iter().rfind(|(name, _)| name == "bootstrap.servers");
        named.map(|(_, servers)| servers.as_str())
    }
}

fn yaml<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_saphyr::from_str(text).map_err(|error| {
        let said = error.to_string();
        let first = said.lines().find(|line| !line.trim().is_empty());
        let first = first.unwrap_or("no YAML").trim();
        Error::Options(first.strip_prefix("error: ").unwrap_or(first).to_owned())
    })
}
