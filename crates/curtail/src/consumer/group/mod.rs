//! The consumer's group: its membership, driven by a separate task, and the offsets it commits.
//!
//! Three sides meet here. The driver sends requests to the coordinator, whatever the application does. The
//! application's side runs in [`super::Consumer::poll`]. Only this side changes the assignment, so no partition is
//! revoked while its records are being returned. The commit task sends the offsets that the application's side has
//! queued, in that order.

mod attention;
mod commits;
mod committed;
mod driver;
mod handover;
mod listener;
mod requests;

/// Synchronisation of [`attention`]. Its loom test replaces it.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
}

use std::{collections::BTreeSet, sync::Arc};

use curtail_net::{Entropy, Env};
use curtail_proto::{
    assignor::Key,
    backoff::Backoff,
    membership::{Handover, Identity, Membership, Protocol, Reason, Settings},
    metadata::{Node, Snapshot},
};
use curtail_wire::{ErrorCode, Uuid};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::Instant,
};

use self::attention::Attention;
pub(super) use self::committed::place;
pub use self::{
    commits::PendingCommit,
    listener::{Rebalance, RebalanceListener},
};
use super::shared::Shared;
use crate::{
    ConsumerConfig, Error, Result, TopicPartition,
    config::GroupProtocol,
    conn::{Idle, connection_error},
    coordinator::{self, Coordinated},
    error::one_line,
    metrics::GroupStats,
    runtime::Runtime,
    span::Span,
    transaction::ConsumerGroupMetadata,
};

/// Selects the topics of a subscription by pattern.
type Pattern = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A consumer's group.
pub(super) struct Group {
    id: Arc<str>,
    /// `client.id`, for spans.
    client_id: Arc<str>,
    instance: Option<Arc<str>>,
    protocol: GroupProtocol,
    /// Innermost lock: while it is held, only the times in `stats` are locked, briefly.
    machine: Mutex<Membership<Error>>,
    pattern: Mutex<Option<Pattern>>,
    /// Wakes the driver.
    wake: Notify,
    /// Notified after every change of the machine.
    changed: watch::Sender<()>,
    attention: Attention,
    commits: commits::Queue,
    /// The group's metrics; their lock is taken inside the machine's.
    pub(super) stats: GroupStats,
    /// An idle connection for lookups.
    idle: Idle<i32>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Group {
    /// Creates the group that the settings name, if any.
    pub(super) fn of(config: &ConsumerConfig, env: &Env, runtime: &Runtime) -> Option<Arc<Self>> {
        let id = config.group_id.as_deref()?;
        let common = &config.common;
        let instance: Option<Arc<str>> = config.group_instance_id.as_deref().map(Arc::from);
        let rack = Some(common.client_rack.as_str()).filter(|rack| !rack.is_empty());
        let settings = Settings {
            instance: instance.clone(),
            max_poll_interval: config.max_poll_interval,
            protocol: protocol_of(config, env),
            rack: rack.map(Arc::from),
            backoff: Backoff { initial: common.retry_backoff, max: common.retry_backoff_max },
        };
        Some(Arc::new(Self {
            id: id.into(),
            client_id: common.client_id.as_str().into(),
            instance,
            protocol: config.group_protocol,
            machine: Mutex::new(Membership::new(settings, Instant::now().into_std())),
            pattern: Mutex::default(),
            wake: Notify::new(),
            changed: watch::Sender::new(()),
            attention: Attention::new(),
            commits: commits::Queue::default(),
            stats: GroupStats::default(),
            idle: Idle::new(runtime),
            tasks: Mutex::default(),
        }))
    }

    /// Starts the group's tasks; they end with [`Self::stop`].
    pub(super) fn start(self: &Arc<Self>, shared: &Arc<Shared>) {
        let driver = shared.runtime.spawn(driver::run(shared.clone(), self.clone()));
        let commits = shared.runtime.spawn(commits::run(shared.clone(), self.clone()));
        self.tasks.lock().extend([driver.abort_handle(), commits.abort_handle()]);
    }

    /// Ends the group's tasks without a request to the coordinator. Queued commits fail.
    pub(super) fn stop(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        self.commits.close();
    }

    /// Fails all queued and all later commits, which no task sends any longer.
    pub(super) fn cut_off(&self) {
        self.commits.close();
    }

    /// Whether the group depends on the topic's metadata.
    pub(super) fn follows(&self, topic: &str) -> bool {
        self.machine.lock().follows(topic)
    }

    /// Compares the partitions of the group's topics with those that they were assigned from.
    pub(super) fn look_at_topics(&self, snapshot: &Snapshot) {
        let led = self.look(|machine| Some((machine.led_topics()?, machine.follows_racks())));
        let Some((topics, with_racks)) = led else { return };
        // Not under the lock: a group may have hundreds of thousands of partitions.
        let known = topics.iter().filter_map(|topic| snapshot.topic(topic));
        let layouts = driver::layouts(snapshot, known, with_racks);
        self.change(|machine, now| machine.look_at_topics(&topics, &layouts, now));
    }

    /// Reads the machine.
    fn look<T>(&self, look: impl FnOnce(&mut Membership<Error>) -> T) -> T {
        look(&mut self.machine.lock())
    }

    /// Changes the machine, and wakes all that watch it.
    fn change<T>(&self, change: impl FnOnce(&mut Membership<Error>, std::time::Instant) -> T) -> T {
        let now = Instant::now();
        let mut machine = self.machine.lock();
        let result = change(&mut machine, now.into_std());
        let begun = || Span::rebalance(&self.client_id, &self.id);
        self.stats.is_at(machine.course(), now, begun);
        drop(machine);
        self.changed.send_replace(());
        self.wake.notify_one();
        result
    }

    /// Makes the next poll, or the one that waits, look at the group.
    pub(super) fn call_application(&self, shared: &Shared) {
        self.attention.call();
        shared.state.lock().wake_application();
    }

    /// Whether the application's side has work.
    pub(super) fn wants_attention(&self) -> bool {
        self.attention.is_called()
    }

    fn handover(&self) -> Option<Handover> {
        self.look(Membership::handover)
    }

    /// The subscribed topics.
    pub(super) fn topics(&self) -> BTreeSet<Arc<str>> {
        self.look(|machine| machine.topics().clone())
    }

    /// Returns the error of a member that cannot continue. After that the member may join again.
    fn complaint(&self) -> Option<Error> {
        if self.look(|machine| machine.failure().is_none()) {
            return None;
        }
        self.change(Membership::complaint).map(|reason| self.error_of(&reason))
    }

    fn error_of(&self, reason: &Reason<Error>) -> Error {
        match reason {
            Reason::Reported(error) => error.clone(),
            Reason::Refused(request, code, words) => {
                let said = words.as_deref().map(one_line).filter(|words| !words.is_empty());
                let said = said.unwrap_or_else(|| code.message().to_owned());
                let message = match self.advice(*code) {
                    Some(advice) => format!("{said} ({advice})"),
                    None => said,
                };
                self.refused_with(request, *code, message)
            }
        }
    }

    fn refused(&self, request: &str, code: ErrorCode) -> Error {
        self.refused_with(request, code, code.message().to_owned())
    }

    fn refused_with(&self, request: &str, code: ErrorCode, message: String) -> Error {
        let what = format!("{request} of group '{}'", self.id).into();
        Error::Broker { what, code, message: Some(message.into()) }
    }

    /// The setting to check.
    fn advice(&self, code: ErrorCode) -> Option<String> {
        let instance = self.instance.as_deref().unwrap_or_default();
        Some(match (code, self.protocol) {
            (ErrorCode::UNSUPPORTED_VERSION, GroupProtocol::Consumer) => {
                requests::NO_CONSUMER_PROTOCOL.to_owned()
            }
            (ErrorCode::UNSUPPORTED_ASSIGNOR, _) => {
                "group.remote.assignor must name one of the brokers' group.consumer.assignors"
                    .to_owned()
            }
            (ErrorCode::UNRELEASED_INSTANCE_ID, _) => {
                format!("another member uses group.instance.id={instance}")
            }
            (ErrorCode::FENCED_INSTANCE_ID, _) => {
                format!("another member has taken group.instance.id={instance}")
            }
            (ErrorCode::INVALID_REGULAR_EXPRESSION, _) => {
                "the subscribed pattern must have the syntax of RE2/J".to_owned()
            }
            (ErrorCode::GROUP_MAX_SIZE_REACHED, GroupProtocol::Consumer) => {
                "the group has reached the brokers' group.consumer.max.size".to_owned()
            }
            (ErrorCode::GROUP_MAX_SIZE_REACHED, GroupProtocol::Classic) => {
                "the group has reached the brokers' group.max.size".to_owned()
            }
            (ErrorCode::INCONSISTENT_GROUP_PROTOCOL, _) => {
                "group.protocol or partition.assignment.strategy does not match the other members"
                    .to_owned()
            }
            _ => return None,
        })
    }

    /// The identity for commits. Without a membership it names the group only.
    pub(super) fn metadata(&self) -> ConsumerGroupMetadata {
        let mut metadata = ConsumerGroupMetadata::new(&*self.id);
        metadata.group_instance_id = self.instance.as_deref().map(str::to_owned);
        if let Some(identity) = self.identity() {
            metadata.generation_id = identity.generation;
            metadata.member_id = identity.member.to_string();
        }
        metadata
    }

    /// The member id, or that of the last membership, for metrics. Java keeps that label, too.
    pub(super) fn last_member(&self) -> Option<Arc<str>> {
        self.look(|machine| machine.last_member())
    }

    fn identity(&self) -> Option<Identity> {
        self.look(|machine| machine.identity())
    }

    /// Returns the coordinator, after a lookup if it is unknown.
    async fn coordinator(&self, shared: &Shared) -> Result<Node> {
        if let Some(node) = self.look(|machine| machine.coordinator().cloned()) {
            return Ok(node);
        }
        let what = Coordinated::Group(&self.id);
        let found = coordinator::find(&shared.metadata, &shared.config.common, what).await?;
        let node = found.map_err(|code| self.refused("FindCoordinator", code))?;
        let unit = shared.env.entropy.unit();
        self.change(|machine, now| machine.found(Ok(node.clone()), now, unit));
        Ok(node)
    }

    /// Resolves once another broker than `node` is the coordinator.
    async fn moved_from(&self, shared: &Shared, node: &Node) -> Error {
        let what = Coordinated::Group(&self.id);
        let common = &shared.config.common;
        let successor = coordinator::successor(&shared.metadata, common, what, node.id).await;
        let reason = format!("no response, and broker {} is now the coordinator", successor.id);
        connection_error(&format!("{}:{}", node.host, node.port).into(), reason)
    }

    /// Waits until all queued commits have finished and a dynamic member has left the group.
    pub(super) async fn gone(&self) {
        self.commits.flushed().await;
        let mut changed = self.changed.subscribe();
        while self.look(|machine| machine.is_departing()) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

fn protocol_of(config: &ConsumerConfig, env: &Env) -> Protocol {
    match config.group_protocol {
        GroupProtocol::Classic => Protocol::Classic {
            heartbeat_interval: config.heartbeat_interval,
            assignors: config.partition_assignment_strategy.clone(),
        },
        GroupProtocol::Consumer => Protocol::Consumer {
            member: member_id(&env.entropy),
            assignor: config.group_remote_assignor.as_deref().map(Arc::from),
        },
    }
}

/// Returns a random id (RFC 9562, version 4) in Kafka's format. No id begins with a dash: tools would read it as an
/// option.
fn member_id(entropy: &Entropy) -> Arc<str> {
    loop {
        let (high, low) = (entropy.next_u64(), entropy.next_u64());
        let high = high & !0xf000 | 0x4000;
        let low = low & !(0b11 << 62) | 0b10 << 62;
        let bits = u128::from(high) << 64 | u128::from(low);
        let id = Uuid(bits.to_be_bytes()).to_string();
        if !id.starts_with('-') {
            return id.into();
        }
    }
}

fn partition(key: Key) -> TopicPartition {
    TopicPartition { topic: key.0, partition: key.1 }
}

fn key(partition: &TopicPartition) -> Key {
    (partition.topic.clone(), partition.partition)
}
