//! Administration: topics, settings, groups, offsets, replicas, transactions, users and ACLs.
//!
//! [`Admin`] makes the calls; the other types are what they take and return.

// Each call sends its requests over connections that are kept for later calls. `rounds` sends a call to many brokers and
// retries.

mod acls;
mod brokers;
mod configs;
mod describe;
mod groups;
mod leaders;
mod members;
mod offsets;
mod quotas;
mod rounds;
mod scram;
mod telemetry;
mod topics;
mod transactions;
mod types;

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use curtail_net::Env;
use curtail_proto::{backoff::Backoff, later::Later};
use curtail_wire::{
    ErrorCode, Uuid,
    cold::{StrBytes, messages::TopicName},
};
use tokio::time::{Instant, sleep, timeout_at};

pub use self::{
    acls::{
        Acl, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource,
    },
    brokers::{
        FeatureUpdate, Features, LogDir, LogDirMove, LogDirReplica, QuorumDescription,
        QuorumReplica,
    },
    configs::{
        ConfigChange, ConfigEntry, ConfigResource, ConfigResourceKind, ConfigSource, ConfigSynonym,
    },
    groups::{
        GroupDescription, GroupKind, GroupListing, GroupOffsets, GroupState, MemberDescription,
    },
    leaders::{Elected, Election, OngoingReassignment, Reassignment},
    members::GroupMember,
    offsets::{ListedOffset, OffsetSpec},
    quotas::{QuotaChange, QuotaEntity, QuotaFilter, QuotaMatch, Quotas},
    scram::{ScramChange, ScramCredential, ScramMechanism},
    transactions::{
        AbortTransaction, FencedProducer, ProducerState, TransactionDescription, TransactionFilter,
        TransactionListing,
    },
    types::{
        BrokerDescription, ClusterDescription, Mode, NewPartitions, NewTopic, PartitionDescription,
        TopicDescription, TopicListing,
    },
};
use crate::{
    AdminConfig, Error, Result, TopicPartition,
    conn::{Connection, Idle, connection_error},
    error::one_line,
    metadata::{AutoCreate, MetadataHandle},
    runtime::within,
};

/// Administers a cluster: topics, settings, groups, offsets, replicas, transactions, users and ACLs. Clones share
/// connections.
///
/// Every call is retried within `default.api.timeout.ms` after retriable errors, such as a controller that moves. A
/// call for many items returns a result for each ([`Each`]), and sends one request to each broker. A changing call
/// that fails may still have been carried out.
///
/// When the tokio runtime on which it was made ends, calls return [`Error::Closed`] instead of waiting. With
/// `curtail.io.thread` it uses a thread of the process, which does not end.
#[derive(Clone)]
pub struct Admin {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    config: AdminConfig,
    metadata: MetadataHandle,
    /// Idle connections: to brokers by id, and to any broker. A connection in use is not among them, so a dropped call
    /// closes it.
    idle: Idle<Target>,
    /// Once a broker has assigned it.
    client_instance_id: OnceLock<Uuid>,
}

/// The receiver of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Any,
    Broker(i32),
}

/// A result for each requested item, in the order requested.
pub type Each<K, T> = Vec<(K, Result<T>)>;

/// A call of [`Admin`], to be awaited. Nothing is sent before its first poll, and `default.api.timeout.ms` begins then.
// Boxed: the compiler would generate the calls again in each crate that awaits them.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

impl Admin {
    /// Creates an admin client. Sends no request yet.
    ///
    /// # Errors
    /// [`Error::Config`] if the settings contradict each other. [`Error::Thread`] if `curtail.io.thread` is set and no thread
    /// can be started.
    ///
    /// # Panics
    /// Outside a tokio runtime, unless `curtail.io.thread` is set.
    pub fn new(config: AdminConfig) -> Result<Self> {
        Self::with_env(config, &Env::real())
    }

    /// As [`Admin::new`], with the caller's network, clock and randomness.
    ///
    /// # Errors
    /// [`Error::Config`] if the settings contradict each other. [`Error::Thread`] if `curtail.io.thread` is set and no thread
    /// can be started.
    ///
    /// # Panics
    /// Outside a tokio runtime, unless `curtail.io.thread` is set.
    pub fn with_env(config: AdminConfig, env: &Env) -> Result<Self> {
        config.validate()?;
        let metadata = MetadataHandle::start(env, &config.common, AutoCreate::Never)?;
        let idle = Idle::new(metadata.runtime());
        let client_instance_id = OnceLock::new();
        let shared = Shared { env: env.clone(), config, metadata, idle, client_instance_id };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns an idle or new connection to one broker or to any. `brokers` has the addresses.
    async fn connection(
        &self,
        target: Target,
        brokers: &[BrokerDescription],
    ) -> Result<Connection> {
        if let Some(connection) = self.shared.idle.take(&target) {
            return Ok(connection);
        }
        match target {
            Target::Any => self.shared.metadata.connect_any().await,
            Target::Broker(id) => {
                let Some(broker) = brokers.iter().find(|broker| broker.id == id) else {
                    let broker = format!("broker {id}").into();
                    return Err(connection_error(&broker, rounds::not_live(brokers)));
                };
                let common = &self.shared.config.common;
                Connection::open(&self.shared.env, common, &broker.host, broker.port).await
            }
        }
    }

    /// Keeps a connection whose last request succeeded.
    fn keep(&self, target: Target, connection: Connection) {
        self.shared.idle.put(target, connection);
    }

    fn attempts(&self, what: &'static str) -> Attempts<'_> {
        self.attempts_within(what, self.shared.config.common.default_api_timeout)
    }

    fn attempts_within(&self, what: &'static str, limit: Duration) -> Attempts<'_> {
        let deadline = Instant::now().later(limit);
        Attempts { shared: &self.shared, what, limit, deadline, failures: 0, last: None }
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let servers = &self.shared.config.common.bootstrap_servers;
        f.debug_struct("Admin").field("bootstrap_servers", servers).finish_non_exhaustive()
    }
}

/// The attempts of one call.
struct Attempts<'a> {
    shared: &'a Shared,
    what: &'static str,
    limit: Duration,
    deadline: Instant,
    failures: u32,
    last: Option<Arc<Error>>,
}

impl Attempts<'_> {
    /// Time for the broker to process the request, in milliseconds.
    fn timeout_ms(&self) -> i32 {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let most = left.min(self.shared.config.common.request_timeout);
        i32::try_from(most.as_millis()).unwrap_or(i32::MAX)
    }

    /// Makes one attempt, which the deadline ends.
    async fn run<T>(&self, attempt: Call<'_, T>) -> Result<T> {
        // The timer starts inside the runtime.
        let attempt = async { timeout_at(self.deadline, attempt).await };
        match within(self.shared.metadata.runtime(), attempt).await? {
            Ok(result) => result,
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Waits before the next attempt. Returns `error` if another attempt cannot help or comes too late.
    async fn again(&mut self, error: Error) -> Result<()> {
        if !passes(&error) {
            return Err(error);
        }
        // The broker may have closed a kept connection. The next attempt uses a new one.
        self.shared.idle.clear();
        let common = &self.shared.config.common;
        let backoff = Backoff { initial: common.retry_backoff, max: common.retry_backoff_max };
        self.failures += 1;
        let pause = backoff.after(self.failures, self.shared.env.entropy.unit());
        // An unreachable cluster is reported at once: a wait of a minute would only hide a wrong address.
        if matches!(error, Error::Unreachable { .. })
            || Instant::now().later(pause) >= self.deadline
        {
            return Err(error);
        }
        self.last = Some(Arc::new(error));
        within(self.shared.metadata.runtime(), async { sleep(pause).await }).await
    }

    fn timed_out(&self) -> Error {
        Error::Timeout { what: self.what, limit: self.limit, last: self.last.clone() }
    }
}

/// Whether the same call may succeed later.
fn passes(error: &Error) -> bool {
    match error {
        Error::Connection { .. } | Error::Unreachable { .. } => true,
        // Retriable for a producer whose broker does not know a new topic yet. Here it says that there is no such topic.
        Error::Broker { code: ErrorCode::UNKNOWN_TOPIC_ID, .. } => false,
        Error::Broker { code, .. } => code.is_retriable(),
        _ => false,
    }
}

/// The error of one topic, with the broker's message if there is one.
fn topic_error(name: &str, code: ErrorCode, message: Option<&str>) -> Error {
    if code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
        return Error::UnknownTopic(name.into());
    }
    broker_error(&format!("topic '{name}'"), code, message)
}

fn id_error(id: Uuid, code: ErrorCode, message: Option<&str>) -> Error {
    broker_error(&format!("topic with id {id}"), code, message)
}

fn broker_error(what: &str, code: ErrorCode, message: Option<&str>) -> Error {
    let message = message.unwrap_or_else(|| code.message());
    Error::Broker { what: what.into(), code, message: Some(one_line(message).into()) }
}

/// The error of one partition, with the broker's message if there is one.
fn partition_result(at: &TopicPartition, code: i16, message: Option<&str>) -> Result<()> {
    ErrorCode(code).ok().map_err(|code| broker_error(&at.to_string(), code, message))
}

/// Partitions by topic, as in requests.
fn topics_of<T>(
    partitions: &[TopicPartition],
    mut one: impl FnMut(i32, &TopicPartition) -> T,
) -> Vec<(TopicName, Vec<T>)> {
    let mut topics: BTreeMap<&str, Vec<T>> = BTreeMap::new();
    for at in partitions {
        topics.entry(&at.topic).or_default().push(one(at.partition, at));
    }
    topics.into_iter().map(|(name, parts)| (text(name).into(), parts)).collect()
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}
