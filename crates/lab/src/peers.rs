//! Other clients under the laboratory's load: their list, the build and run of their drivers, and their
//! results.
//!
//! A driver is a small program in the project's folder `peers/`, one per client, all with the same command
//! line. It is built on demand from the project's checkout. Its command `load` writes the outcome of each
//! record (`fates`), so latency, stalls and lost records are found in the same way as for Curtail.

mod build;
pub(crate) mod driver;
pub(crate) mod fates;
#[cfg(test)]
mod tests;

use std::{fmt, path::Path, str::FromStr};

pub use self::build::Checkout;
pub use self::driver::Driver;
use crate::perf::{Error, Result};

/// A client of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// This project's client in an ordinary program: one delivery awaited for each record.
    Curtail,
    /// This project's client in the way that costs least: outcomes received by batch.
    CurtailCompletions,
    /// Another client.
    Peer(Peer),
}

/// Another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Apache Kafka's Java client, in the release of the brokers that the laboratory starts.
    Java,
    /// The last Java client before KAFKA-17182: buffered partitions leave the fetch session.
    Java39,
    /// The last Java client before KIP-951 (leader discovery).
    Java36,
    /// The last Java client before KIP-794 (uniform sticky partitioner).
    Java32,
    /// The Java client of KAFKA-16259 (mutable metadata cache).
    Java28,
    /// librdkafka, through the crate `rdkafka`.
    Librdkafka,
    /// franz-go.
    FranzGo,
    /// Confluent's port of the Java client to Rust, the crate `confluent-kafka`.
    ConfluentRust,
    /// The crate `krafka`.
    Krafka,
}

impl Peer {
    /// All other clients.
    pub const ALL: [Self; 9] = [
        Self::Java,
        Self::Java39,
        Self::Java36,
        Self::Java32,
        Self::Java28,
        Self::Librdkafka,
        Self::FranzGo,
        Self::ConfluentRust,
        Self::Krafka,
    ];

    /// Name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Java39 => "java-3.9",
            Self::Java36 => "java-3.6",
            Self::Java32 => "java-3.2",
            Self::Java28 => "java-2.8",
            Self::Librdkafka => "librdkafka",
            Self::FranzGo => "franz-go",
            Self::ConfluentRust => "confluent-rust",
            Self::Krafka => "krafka",
        }
    }

    /// The release of kafka-clients, for Java clients.
    const fn kafka_clients(self) -> Option<&'static str> {
        match self {
            Self::Java => Some("4.3.0"),
            Self::Java39 => Some("3.9.1"),
            Self::Java36 => Some("3.6.2"),
            Self::Java32 => Some("3.2.3"),
            Self::Java28 => Some("2.8.2"),
            Self::Librdkafka | Self::FranzGo | Self::ConfluentRust | Self::Krafka => None,
        }
    }

    /// Whether its partitioner is that of before KIP-794: keyless records change the partition with every
    /// batch.
    #[must_use]
    pub const fn sticks_by_batch(self) -> bool {
        matches!(self, Self::Java32 | Self::Java28)
    }

    /// Whether its driver supports the load of `metadata-churn`.
    #[must_use]
    pub const fn has_churn(self) -> bool {
        self.kafka_clients().is_some()
    }

    /// Whether the client supports this setting. Settings specific to Curtail have no equivalent elsewhere.
    #[must_use]
    pub fn takes(self, name: &str, value: &str) -> bool {
        if name.starts_with("curtail.") || name == "batch.max.size" {
            return false;
        }
        match self {
            Self::Java => true,
            Self::Java39 | Self::Java36 | Self::Java32 | Self::Java28 => {
                let since = SINCE.iter().find(|(later, _)| *later == name);
                since.is_none_or(|(_, since)| {
                    self.kafka_clients().is_some_and(|version| minor(version) >= minor(since))
                })
            }
            Self::ConfluentRust => (name, value) != ("group.protocol", "classic"),
            Self::Librdkafka => LIBRDKAFKA.contains(&name),
            Self::Krafka => {
                KRAFKA.contains(&name) || (name, value) == ("group.protocol", "classic")
            }
            Self::FranzGo => {
                FRANZ_GO.contains(&name) || (name, value) == ("group.protocol", "classic")
            }
        }
    }

    /// The first of these settings that the client lacks, in words.
    pub(crate) fn lacks<N: AsRef<str>, V: AsRef<str>>(
        self,
        properties: &[(N, V)],
    ) -> Option<String> {
        let lacking = |(name, value): &&(N, V)| !self.takes(name.as_ref(), value.as_ref());
        let (name, value) = properties.iter().find(lacking)?;
        Some(format!("it does not support {}={}", name.as_ref(), value.as_ref()))
    }
}

/// Settings that the Java client lacks before these releases.
const SINCE: &[(&str, &str)] = &[
    ("partitioner.adaptive.partitioning.enable", "3.3"),
    ("partitioner.availability.timeout.ms", "3.3"),
    ("partitioner.ignore.keys", "3.3"),
    ("group.protocol", "3.7"),
    ("group.remote.assignor", "3.7"),
    ("retry.backoff.max.ms", "3.7"),
    ("compression.gzip.level", "3.8"),
    ("compression.lz4.level", "3.8"),
    ("compression.zstd.level", "3.8"),
    ("metadata.recovery.strategy", "3.8"),
    ("metadata.recovery.rebootstrap.trigger.ms", "4.0"),
    ("partitioner.rack.aware", "4.2"),
];

/// Settings that the drivers map to these clients' own names.
const LIBRDKAFKA: &[&str] = &[
    "acks",
    "batch.size",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.protocol",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "request.timeout.ms",
];
const FRANZ_GO: &[&str] = &[
    "acks",
    "batch.size",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
];

const KRAFKA: &[&str] = &[
    "acks",
    "batch.size",
    "client.rack",
    "delivery.timeout.ms",
    "enable.idempotence",
    "fetch.max.wait.ms",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "request.timeout.ms",
];

/// The first two numbers of a version.
fn minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

impl Client {
    /// Name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Curtail => "curtail",
            Self::CurtailCompletions => "curtail-completions",
            Self::Peer(peer) => peer.name(),
        }
    }

    /// The other client, if it is one.
    #[must_use]
    pub const fn peer(self) -> Option<Peer> {
        match self {
            Self::Curtail | Self::CurtailCompletions => None,
            Self::Peer(peer) => Some(peer),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Client {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let ours = [Self::Curtail, Self::CurtailCompletions];
        let all = ours.into_iter().chain(Peer::ALL.map(Self::Peer));
        let names: Vec<&str> = all.clone().map(Self::name).collect();
        all.into_iter().find(|client| client.name() == name).ok_or_else(|| {
            Error::Options(format!("unknown client '{name}'; known are {}", names.join(", ")))
        })
    }
}

/// Builds the drivers of all these clients except Curtail, if necessary.
///
/// # Errors
/// No checkout of the project to build from, a missing tool, a failed build.
pub(crate) fn drivers(
    clients: &[Client],
    folder: Option<&Path>,
    progress: &mut dyn FnMut(Peer),
) -> Result<Vec<Driver>> {
    let peers: Vec<Peer> = clients.iter().filter_map(|client| client.peer()).collect();
    if peers.is_empty() {
        return Ok(Vec::new());
    }
    let checkout = Checkout::find(folder)?;
    let built = peers.into_iter().map(|peer| {
        progress(peer);
        checkout.build(peer)
    });
    built.collect()
}
