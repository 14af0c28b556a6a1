//! Faults on request: named, listed and lifted while the cluster runs.
//!
//! - [`Fault`]: the kinds, and the requests or the broker that each concerns. Its JSON is that of
//!   the control endpoint.
//! - `kinds`: the fields of each kind. `check`: what the cluster cannot do, and what a proxy cannot.
//! - `rules`: a machine that decides what happens to a request. It has no clock and no sockets, and
//!   its random numbers come from the seed of each fault.
//! - `registry`: the names, and what a fault of a broker changes when it begins and ends.
//! - `links`: connections between brokers that can be cut. `lines`: connections to a broker that can
//!   be slow or cut.
//! - `content`: damage to records, and wrong leaders.
//! - `release`: the versions of the APIs in Kafka's releases.
//!
//! # Locks
//! `Faults::state`, then a broker's gate, its mailbox, `Links` or `Lines`.

mod check;
mod content;
mod kinds;
mod lines;
mod links;
mod registry;
mod release;
mod rules;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use curtail_wire::{ApiKey, ErrorCode};
use serde::{Deserialize, Serialize};

pub(crate) use check::has_errors;
pub(crate) use content::{damaged, first_batch_end, names_leader};
pub use kinds::{
    Corrupt, Cut, CutClients, Delay, DelayMetadata, Direction, Disconnect, InjectedError,
    KafkaVersion, OnBroker, Silence, SlowDisk, Throttle, Time, When, WrongLeader,
};
pub(crate) use lines::{Line, LineSocket, Lines};
pub(crate) use links::{Links, cuttable};
pub(crate) use registry::{Changes, Faults};
pub use release::KafkaRelease;
pub(crate) use rules::{Fate, Item, Request, Then};
pub use text::ParseFaultError;

/// Client ids of requests between brokers.
pub(crate) const FETCHER_ID: &str = "replica-fetcher";
/// See [`FETCHER_ID`].
pub(crate) const BROKER_ID: &str = "broker";

/// A fault that stays until it is lifted.
///
/// A fault is injected with [`crate::ClusterHandle::inject`]. As JSON it is an object with a `kind`,
/// for example `{"kind": "delay", "requests": {"api": "Produce"}, "time": "20ms"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// Responses are late.
    Delay(Delay),
    /// Requests are refused with an error code, and not applied. Refused records of a transaction
    /// are not appended and its refused offsets not committed, but their partitions may have joined
    /// the transaction before.
    Error(InjectedError),
    /// Requests are applied, and their connection never sends another byte. It stays open.
    Silence(Silence),
    /// The connection of a request closes.
    Disconnect(Disconnect),
    /// The first batch of a partition in a Fetch response arrives damaged: a bit is not as its CRC
    /// says. The log stays intact.
    Corrupt(Corrupt),
    /// Responses that name the leader of a refused partition (KIP-951) name a wrong one: Produce from
    /// version 10 and Fetch from 16, with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, also if
    /// [`Fault::Error`] injects it.
    WrongLeader(WrongLeader),
    /// Connections to brokers transfer a limited number of bytes per second, as over a slow network.
    Throttle(Throttle),
    /// Clients are offered the API versions of an earlier Kafka release.
    KafkaVersion(KafkaVersion),
    /// A broker does not run, as after SIGSTOP. Its connections stay open.
    Freeze(OnBroker),
    /// A broker keeps its current metadata.
    FreezeMetadata(OnBroker),
    /// Metadata changes reach a broker later.
    DelayMetadata(DelayMetadata),
    /// A broker's disk takes this time for each append of a batch, one after the other: of clients,
    /// of followers, and of coordinators.
    SlowDisk(SlowDisk),
    /// A broker's disk has no space left. As in Kafka, the broker ends with its first failed append,
    /// and its leaderships move. It can be restarted once the fault is lifted. A restart before that
    /// fails with its first write.
    FullDisk(OnBroker),
    /// A broker and the controller are disconnected. Clients and other brokers reach the broker.
    CutOff(OnBroker),
    /// Two brokers are disconnected from each other. Bytes wait in both directions, as if packets
    /// were lost.
    Cut(Cut),
    /// Brokers and clients are disconnected, in one direction or both. Connections stay open, and
    /// bytes wait as if packets were lost. A new connection opens, and its first request waits.
    CutClients(CutClients),
}

/// The requests that a fault concerns: they match every given field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requests {
    /// The broker that receives them; every broker if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<i32>,
    /// The API; every API if absent.
    #[serde(skip_serializing_if = "Option::is_none", with = "text::api")]
    pub api: Option<ApiKey>,
    /// A topic in the request that its handler serves, of an API with parts by topic or partition:
    /// those whose errors can be injected, other than for whole requests. The API must be given,
    /// except for [`Fault::Corrupt`] and [`Fault::WrongLeader`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// A partition of the topic, of an API with parts by partition; every one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// The client id, with `*` at the end for every id that begins so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The sender.
    #[serde(skip_serializing_if = "Sender::is_default")]
    pub from: Sender,
    /// How many of them; without limit if absent. An error counts the partitions, topics or requests
    /// that it refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The share of them, from 0 to 1; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

impl Requests {
    /// All requests of clients.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// All requests of clients to an API.
    #[must_use]
    pub fn of(api: ApiKey) -> Self {
        Self { api: Some(api), ..Self::default() }
    }

    /// Only those to a broker.
    #[must_use]
    pub fn to_broker(self, broker: i32) -> Self {
        Self { broker: Some(broker), ..self }
    }

    /// Only those with this topic.
    #[must_use]
    pub fn on_topic(self, topic: impl Into<String>) -> Self {
        Self { topic: Some(topic.into()), ..self }
    }

    /// Only those with this partition.
    #[must_use]
    pub fn on_partition(self, topic: impl Into<String>, partition: i32) -> Self {
        Self { partition: Some(partition), ..self.on_topic(topic) }
    }

    /// Only those with this client id, with `*` at the end for every id that begins so.
    #[must_use]
    pub fn by_client(self, client_id: impl Into<String>) -> Self {
        Self { client_id: Some(client_id.into()), ..self }
    }

    /// Only those of a sender.
    #[must_use]
    pub fn from(self, from: Sender) -> Self {
        Self { from, ..self }
    }

    /// Only the first of them.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Only a share of them, from 0 to 1.
    #[must_use]
    pub fn at_rate(self, rate: f64) -> Self {
        Self { rate: Some(rate), ..self }
    }
}

/// The sender of a request. Brokers have the client ids `broker` and `replica-fetcher`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sender {
    /// Clients, and not the brokers.
    #[default]
    Clients,
    /// The other brokers: followers, and coordinators that write markers or verify transactions.
    Brokers,
    /// Clients and brokers.
    All,
}

impl Sender {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Fault {
    /// Delays responses.
    #[must_use]
    pub fn delay(requests: Requests, time: Time) -> Self {
        Self::Delay(Delay { requests, time })
    }

    /// Refuses requests to one API with an error code.
    #[must_use]
    pub fn error(requests: Requests, code: ErrorCode) -> Self {
        Self::Error(InjectedError { requests, code })
    }

    /// Silences the connections of requests.
    #[must_use]
    pub fn silence(requests: Requests) -> Self {
        Self::Silence(Silence { requests })
    }

    /// Closes the connections of requests.
    #[must_use]
    pub fn disconnect(requests: Requests, when: When) -> Self {
        Self::Disconnect(Disconnect { requests, when, after_bytes: 0 })
    }

    /// Damages batches in responses to Fetch.
    #[must_use]
    pub fn corrupt(requests: Requests) -> Self {
        Self::Corrupt(Corrupt { requests })
    }

    /// Limits the bytes per second of each connection of clients, in each direction.
    #[must_use]
    pub fn throttle(bytes_per_second: u64) -> Self {
        let (broker, client_id) = (None, None);
        let (from, direction) = (Sender::Clients, Direction::Both);
        Self::Throttle(Throttle { broker, client_id, from, direction, bytes_per_second })
    }

    /// Offers clients the API versions of an earlier Kafka release.
    #[must_use]
    pub fn kafka_version(release: KafkaRelease) -> Self {
        Self::KafkaVersion(KafkaVersion { release, broker: None, client_id: None })
    }

    /// Gives the fault a name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Injection {
        Injection { name: Some(name.into()), ..self.into() }
    }

    /// The kind, as in JSON.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Delay(_) => "delay",
            Self::Error(_) => "error",
            Self::Silence(_) => "silence",
            Self::Disconnect(_) => "disconnect",
            Self::Corrupt(_) => "corrupt",
            Self::WrongLeader(_) => "wrong-leader",
            Self::Throttle(_) => "throttle",
            Self::KafkaVersion(_) => "kafka-version",
            Self::Freeze(_) => "freeze",
            Self::FreezeMetadata(_) => "freeze-metadata",
            Self::DelayMetadata(_) => "delay-metadata",
            Self::SlowDisk(_) => "slow-disk",
            Self::FullDisk(_) => "full-disk",
            Self::CutOff(_) => "cut-off",
            Self::Cut(_) => "cut",
            Self::CutClients(_) => "cut-clients",
        }
    }

    /// The requests that the fault concerns, if it concerns requests.
    fn requests(&self) -> Option<&Requests> {
        match self {
            Self::Delay(delay) => Some(&delay.requests),
            Self::Error(error) => Some(&error.requests),
            Self::Silence(silence) => Some(&silence.requests),
            Self::Disconnect(disconnect) => Some(&disconnect.requests),
            Self::Corrupt(corrupt) => Some(&corrupt.requests),
            Self::WrongLeader(wrong) => Some(&wrong.requests),
            _ => None,
        }
    }

    /// The brokers that the fault names.
    fn brokers(&self) -> Vec<i32> {
        match self {
            Self::Throttle(throttle) => throttle.broker.into_iter().collect(),
            Self::KafkaVersion(version) => version.broker.into_iter().collect(),
            Self::Freeze(on) | Self::FreezeMetadata(on) | Self::FullDisk(on) | Self::CutOff(on) => {
                vec![on.broker]
            }
            Self::SlowDisk(disk) => vec![disk.broker],
            Self::DelayMetadata(delay) => vec![delay.broker],
            Self::Cut(cut) => cut.between.to_vec(),
            Self::CutClients(cut) => cut.broker.into_iter().collect(),
            _ => self.requests().and_then(|requests| requests.broker).into_iter().collect(),
        }
    }
}

/// A fault to inject, with its name and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// Letters, digits, `.`, `_` and `-`, at most 64; the cluster chooses a name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Decides the fault's random choices; the cluster chooses a seed if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The fault.
    pub fault: Fault,
}

impl Injection {
    /// Sets the seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }
}

impl From<Fault> for Injection {
    fn from(fault: Fault) -> Self {
        Self { name: None, seed: None, fault }
    }
}

/// A fault that has been injected and not lifted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActiveFault {
    /// The name of the fault.
    pub name: String,
    /// The seed of its random choices.
    pub seed: u64,
    /// How many requests, topics, partitions or appends it has affected. 0 for faults of
    /// connections, and for faults of brokers other than [`Fault::SlowDisk`].
    pub hits: u64,
    /// The fault.
    pub fault: Fault,
}

/// Why a fault could not be injected or lifted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// The fault contradicts itself, or the cluster cannot do it.
    #[error("{0}")]
    Invalid(String),
    /// No broker has this id.
    #[error("the cluster has no broker {0}")]
    NoSuchBroker(i32),
    /// Another fault has the name.
    #[error("a fault named '{0}' exists; lift it first or choose another name")]
    NameTaken(String),
    /// The name has characters that are not allowed, or is too long.
    #[error("'{0}' is no name of a fault: use letters, digits, '.', '_' and '-', at most 64")]
    BadName(String),
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clients => "clients",
            Self::Brokers => "brokers",
            Self::All => "all",
        })
    }
}
