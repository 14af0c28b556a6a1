//! The kinds of faults and their fields.

use std::{net::SocketAddr, time::Duration};

use curtail_wire::ErrorCode;
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Fault;
use super::{KafkaRelease, Requests, Sender, lines::Way, text};

/// See [`Fault::Delay`]. Of several delays of a request, the one that was injected last applies.
/// Later responses on the same connection wait, too. Lifting the fault does not shorten delays in
/// progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// The requests.
    #[serde(default)]
    pub requests: Requests,
    /// How late the response is.
    pub time: Time,
}

/// See [`Fault::Error`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectedError {
    /// The requests. The API must be given. Of a request, the topics and partitions that match are
    /// refused.
    pub requests: Requests,
    /// The error.
    #[serde(with = "text::code")]
    pub code: ErrorCode,
}

/// See [`Fault::Silence`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Silence {
    /// The requests.
    pub requests: Requests,
}

/// See [`Fault::Disconnect`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disconnect {
    /// The requests.
    pub requests: Requests,
    /// When the connection closes.
    pub when: When,
    /// Bytes of the response that are still written; only with [`When::Response`].
    pub after_bytes: u64,
}

/// The point of a request at which its connection closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Before the request is applied.
    Request,
    /// After the request was applied, while its response is written.
    #[default]
    Response,
}

/// See [`Fault::Corrupt`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Corrupt {
    /// The requests. Their API is Fetch, also if absent. `times` and `rate` count partitions with
    /// records.
    pub requests: Requests,
}

/// See [`Fault::WrongLeader`]. At least one of `leader`, `epoch_shift` and `address` must be given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WrongLeader {
    /// The requests. Their API is Produce or Fetch, both if absent. `times` and `rate` count
    /// partitions that are refused.
    pub requests: Requests,
    /// The leader to name, also one that is no broker; the right one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<i32>,
    /// Added to the leader epoch: -1 names the previous one.
    #[serde(skip_serializing_if = "is_zero")]
    pub epoch_shift: i32,
    /// The address to name for the leader; the right one if absent.
    #[serde(skip_serializing_if = "Option::is_none", with = "text::address")]
    pub address: Option<SocketAddr>,
}

fn is_zero(shift: &i32) -> bool {
    *shift == 0
}

/// See [`Fault::Throttle`]. Of several throttles of a connection, the one that was injected last
/// applies. A connection is slow from its first request on, which tells the client id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// The broker; every broker if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<i32>,
    /// The client id, with `*` at the end for every id that begins so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The sender of the connection's requests.
    #[serde(default, skip_serializing_if = "Sender::is_default")]
    pub from: Sender,
    /// The slow directions.
    #[serde(default)]
    pub direction: Direction,
    /// Bytes per second of each connection and direction, at least 1.
    pub bytes_per_second: u64,
}

/// See [`Fault::CutClients`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CutClients {
    /// The broker; every broker if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<i32>,
    /// The client id, with `*` at the end for every id that begins so; every client if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The directions without bytes.
    pub direction: Direction,
}

/// A direction of a connection, seen from the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the broker: requests.
    In,
    /// From the broker: responses.
    Out,
    /// In and out.
    #[default]
    Both,
}

impl Direction {
    pub(super) fn has(self, way: Way) -> bool {
        match self {
            Self::In => way == Way::In,
            Self::Out => way == Way::Out,
            Self::Both => true,
        }
    }
}

/// See [`Fault::KafkaVersion`]. Requests in other versions close their connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaVersion {
    /// The release. The oldest versions stay those of the embedded cluster.
    pub release: KafkaRelease,
    /// The broker; every broker if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<i32>,
    /// The client id, with `*` at the end for every id that begins so; every client if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

/// A broker that a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnBroker {
    /// The id of the broker.
    pub broker: i32,
}

/// See [`Fault::DelayMetadata`]. Of several delays of a broker, the one that was injected last
/// applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayMetadata {
    /// The id of the broker.
    pub broker: i32,
    /// The propagation delay of later changes.
    #[serde(with = "text::duration")]
    pub time: Duration,
}

/// See [`Fault::SlowDisk`]. Of several of a broker, the one that was injected last applies. Lifting
/// the fault does not shorten the append in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowDisk {
    /// The id of the broker.
    pub broker: i32,
    /// How long the disk is busy with one append.
    pub time: Time,
}

/// See [`Fault::Cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// The ids of the two brokers.
    pub between: [i32; 2],
}

/// A time, or a distribution of times. As text it is `20ms`, `uniform(10ms, 50ms)` or
/// `exponential(20ms)`, with the units `us`, `ms` and `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Time {
    /// Always the same.
    Fixed(Duration),
    /// Between two times, each equally likely.
    Uniform(Duration, Duration),
    /// Exponentially distributed, with this mean.
    Exponential(Duration),
}
