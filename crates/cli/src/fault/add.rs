//! `curtail fault add`: flags as the JSON of a fault.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Endpoint;

/// Arguments of every `curtail fault add`.
#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(super) endpoint: Endpoint,
    /// Name of the fault [default: its kind and a number].
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Seed of its random choices [default: chosen and listed].
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
}

/// The requests that a fault concerns.
#[derive(Debug, Args)]
pub(crate) struct Requests {
    /// Only requests to this broker.
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    /// Only requests to this API, such as Produce.
    #[arg(long, value_name = "API")]
    api: Option<String>,
    /// Only requests with this topic. The API must be given, except for corrupt and wrong-leader.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only requests with this partition of the topic.
    #[arg(long, value_name = "N", requires = "topic")]
    partition: Option<i32>,
    /// Only requests of this client id; a * at its end stands for any text.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Sender: clients, brokers or all [default: clients].
    #[arg(long, value_name = "SENDER")]
    from: Option<String>,
    /// Only the first N of them.
    #[arg(long, value_name = "N")]
    times: Option<u64>,
    /// Only this share of them, from 0 to 1.
    #[arg(long, value_name = "SHARE")]
    rate: Option<f64>,
}

impl Requests {
    fn json(&self) -> Value {
        let Self { broker, api, topic, partition, client_id, from, times, rate } = self;
        object([
            ("broker", json!(broker)),
            ("api", json!(api)),
            ("topic", json!(topic)),
            ("partition", json!(partition)),
            ("client_id", json!(client_id)),
            ("from", json!(from)),
            ("times", json!(times)),
            ("rate", json!(rate)),
        ])
    }
}

/// The connections that a fault concerns, and their direction.
#[derive(Debug, Args)]
pub(crate) struct Connections {
    /// Only connections to this broker.
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    /// Only connections of this client id; a * at its end stands for any text.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Direction: in (requests), out (responses) or both [default: both].
    #[arg(long, value_name = "DIRECTION")]
    direction: Option<String>,
}

impl Connections {
    fn fields(&self) -> [(&'static str, Value); 3] {
        let Self { broker, client_id, direction } = self;
        [
            ("broker", json!(broker)),
            ("client_id", json!(client_id)),
            ("direction", json!(direction)),
        ]
    }
}

/// An object of the fields that have a value.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let given = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(given.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// The kinds of `curtail fault add`.
#[derive(Debug, Subcommand)]
pub(crate) enum Add {
    /// Delays responses.
    Delay {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        requests: Requests,
        /// How late: 20ms, "uniform(10ms, 50ms)" or "exponential(20ms)".
        #[arg(long, value_name = "TIME")]
        time: String,
    },
    /// Refuses requests to an API with an error code.
    Error {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        requests: Requests,
        /// The error, such as NOT_LEADER_OR_FOLLOWER.
        #[arg(long, value_name = "ERROR")]
        code: String,
    },
    /// Applies requests, and never writes to their connections again.
    Silence {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        requests: Requests,
    },
    /// Closes the connections of requests.
    Disconnect {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        requests: Requests,
        /// When: request (it is not applied) or response [default: response].
        #[arg(long, value_name = "WHEN")]
        when: Option<String>,
        /// Bytes of the response that are still written.
        #[arg(long, value_name = "N")]
        after_bytes: Option<u64>,
    },
    /// Damages the first batch of partitions in responses to Fetch. The log stays intact.
    Corrupt {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        requests: Requests,
    },
    /// Names a wrong leader in responses that refuse a partition and name its leader.
    WrongLeader {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        requests: Requests,
        /// The leader to name, also an id that is no broker's.
        #[arg(long, value_name = "ID", allow_hyphen_values = true)]
        leader: Option<i32>,
        /// Added to the leader epoch, such as -1.
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        epoch_shift: Option<i32>,
        /// The address to name for the leader.
        #[arg(long, value_name = "IP:PORT")]
        address: Option<String>,
    },
    /// Limits the bytes per second of connections, like a slow network.
    Throttle {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        connections: Connections,
        /// Sender of their requests: clients, brokers or all [default: clients].
        #[arg(long, value_name = "SENDER")]
        from: Option<String>,
        /// Bytes per second of each connection and direction.
        #[arg(value_name = "BYTES_PER_SECOND")]
        bytes_per_second: u64,
    },
    /// Offers clients the API versions of an earlier Kafka release, from 0.11 to 4.3.
    KafkaVersion {
        #[command(flatten)]
        common: Common,
        /// The release, such as 2.8.
        #[arg(value_name = "RELEASE")]
        release: String,
        /// Only at this broker.
        #[arg(long, value_name = "ID")]
        broker: Option<i32>,
        /// Only for this client id; a * at its end stands for any text.
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
    },
    /// Freezes a broker, like SIGSTOP.
    Freeze(BrokerFault),
    /// Keeps a broker at its current metadata.
    FreezeMetadata(BrokerFault),
    /// Delays metadata changes to a broker.
    DelayMetadata {
        #[command(flatten)]
        common: Common,
        /// The broker's id.
        #[arg(value_name = "BROKER")]
        broker: i32,
        /// How late: 20ms, 2s.
        #[arg(long, value_name = "TIME")]
        time: String,
    },
    /// Makes each append of a broker take time.
    SlowDisk {
        #[command(flatten)]
        common: Common,
        /// The broker's id.
        #[arg(value_name = "BROKER")]
        broker: i32,
        /// How long: 20ms, "uniform(10ms, 50ms)" or "exponential(20ms)".
        #[arg(long, value_name = "TIME")]
        time: String,
    },
    /// Leaves a broker's disk no space: the broker ends with its next append.
    FullDisk(BrokerFault),
    /// Disconnects a broker from the controller.
    CutOff(BrokerFault),
    /// Disconnects two brokers from each other.
    Cut {
        #[command(flatten)]
        common: Common,
        /// Their ids.
        #[arg(value_name = "BROKER", num_args = 2, required = true)]
        between: Vec<i32>,
    },
    /// Disconnects brokers and clients, in one direction or both.
    CutClients {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        connections: Connections,
    },
}

/// A fault of a broker.
#[derive(Debug, Args)]
pub(crate) struct BrokerFault {
    #[command(flatten)]
    common: Common,
    /// The broker's id.
    #[arg(value_name = "BROKER")]
    broker: i32,
}

impl Add {
    /// The fault as JSON, which the endpoint checks.
    pub(super) fn fault(&self) -> (&Common, Value) {
        match self {
            Self::Delay { common, requests, time } => {
                (common, json!({"kind": "delay", "requests": requests.json(), "time": time}))
            }
            Self::Error { common, requests, code } => {
                (common, json!({"kind": "error", "requests": requests.json(), "code": code}))
            }
            Self::Silence { common, requests } => {
                (common, json!({"kind": "silence", "requests": requests.json()}))
            }
            Self::Disconnect { common, requests, when, after_bytes } => {
                let fields = [
                    ("kind", json!("disconnect")),
                    ("requests", requests.json()),
                    ("when", json!(when)),
                    ("after_bytes", json!(after_bytes)),
                ];
                (common, object(fields))
            }
            Self::Corrupt { common, requests } => {
                (common, json!({"kind": "corrupt", "requests": requests.json()}))
            }
            Self::WrongLeader { common, requests, leader, epoch_shift, address } => {
                let fields = [
                    ("kind", json!("wrong-leader")),
                    ("requests", requests.json()),
                    ("leader", json!(leader)),
                    ("epoch_shift", json!(epoch_shift)),
                    ("address", json!(address)),
                ];
                (common, object(fields))
            }
            Self::Throttle { common, connections, from, bytes_per_second } => {
                let [broker, client_id, direction] = connections.fields();
                let rate = ("bytes_per_second", json!(bytes_per_second));
                let kind = ("kind", json!("throttle"));
                let fields = [kind, broker, client_id, ("from", json!(from)), direction, rate];
                (common, object(fields))
            }
            Self::KafkaVersion { common, release, broker, client_id } => {
                let fields = [
                    ("kind", json!("kafka-version")),
                    ("release", json!(release)),
                    ("broker", json!(broker)),
                    ("client_id", json!(client_id)),
                ];
                (common, object(fields))
            }
            Self::Freeze(on) => (&on.common, json!({"kind": "freeze", "broker": on.broker})),
            Self::FreezeMetadata(on) => {
                (&on.common, json!({"kind": "freeze-metadata", "broker": on.broker}))
            }
            Self::DelayMetadata { common, broker, time } => {
                (common, json!({"kind": "delay-metadata", "broker": broker, "time": time}))
            }
            Self::SlowDisk { common, broker, time } => {
                (common, json!({"kind": "slow-disk", "broker": broker, "time": time}))
            }
            Self::FullDisk(on) => (&on.common, json!({"kind": "full-disk", "broker": on.broker})),
            Self::CutOff(on) => (&on.common, json!({"kind": "cut-off", "broker": on.broker})),
            Self::CutClients { common, connections } => {
                let [broker, client_id, direction] = connections.fields();
                let kind = ("kind", json!("cut-clients"));
                (common, object([kind, broker, client_id, direction]))
            }
            Self::Cut { common, between } => (common, json!({"kind": "cut", "between": between})),
        }
    }
}
