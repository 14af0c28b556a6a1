//! One group of the streams protocol (KIP-1071), with the behaviour of Kafka's coordinator. Pure: the caller passes
//! in times and metadata, and stores the returned changes.
//!
//! An application of Kafka Streams consists of subtopologies, and a subtopology has one task for each partition of its
//! source topics. The coordinator decides which member runs which task. It is like a group of the consumer protocol
//! ([`super::consumer`]), with three epochs that follow each other and one step per heartbeat, except that:
//!
//! - A member's first heartbeat brings the topology. The group keeps the first one; it stays with the group.
//! - No task is assigned before all source topics and internal topics exist with suitable numbers of partitions
//!   ([`configure`]). The heartbeat's response names the internal topics to create.
//! - A task may have standby copies, which follow the changelogs of its state. A process has a task only once,
//!   because its members share the directory of the state.
//! - A new group waits for more members before its first assignment.
//!
//! As in Kafka 4.3 there are no static members, no regular expressions for source topics and no warmup tasks.

mod assignor;
mod change;
mod configure;
mod heartbeat;
mod leave;
mod member;
mod reconcile;
mod status;
mod target;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use curtail_wire::{
    ErrorCode,
    cold::newer::streams::{EndpointPartitions, SourcePartitions, Topology},
};
use imbl::{OrdMap, OrdSet};
use tokio::time::Instant;

use super::{
    deadlines::Deadlines,
    epochs,
    step::{self, Draft as AnyDraft, Moment, Refused},
    topics::Topics,
};

pub(crate) use self::{
    change::{Change, GroupValue},
    configure::{Configured, ConfiguredSubtopology, summary},
    heartbeat::{Beat, Heartbeat},
    member::{Current, Held, Member, MemberState, Profile, Roles, Tasks},
    status::Status,
};

/// The result of an operation on a group.
pub(crate) type Step<T> = step::Step<StreamsGroup, T>;
type Draft = AnyDraft<StreamsGroup>;

/// The setting that the assignor reads.
const STANDBYS: &str = "num.standby.replicas";

/// Settings of groups.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `group.streams.session.timeout.ms`.
    pub(crate) session_timeout: Duration,
    /// `group.streams.heartbeat.interval.ms`.
    pub(crate) heartbeat_interval: Duration,
    /// `group.streams.max.size`.
    pub(crate) max_size: usize,
    /// `group.streams.num.standby.replicas`.
    pub(crate) standbys: u32,
    /// `group.streams.initial.rebalance.delay.ms`.
    pub(crate) initial_delay: Duration,
    /// `group.streams.assignment.interval.ms`.
    pub(crate) assignment_interval: Duration,
}

impl Settings {
    /// Returns the settings that an assignment depends on, as the group's record stores them.
    fn of_assignment(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(STANDBYS.to_owned(), self.standbys.to_string())])
    }
}

/// The state of a group; the names are those that Kafka's tools show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamsState {
    Empty,
    /// Topics are missing or have wrong numbers of partitions.
    NotReady,
    /// The target does not belong to the group's epoch yet.
    Assigning,
    /// Some members have not reached the target yet.
    Reconciling,
    Stable,
}

impl StreamsState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::NotReady => "NotReady",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

/// A task: the id of its subtopology and the partition.
type Task = (Arc<str>, i32);

/// The state machine of one group; see the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct StreamsGroup {
    settings: Arc<Settings>,
    value: GroupValue,
    assignment_epoch: i32,
    /// When the target was computed, in ms since the Unix epoch; 0 if unknown.
    assignment_timestamp: i64,
    topology: Option<Arc<Topology>>,
    members: OrdMap<String, Arc<Member>>,
    targets: OrdMap<String, Arc<Roles>>,
    /// The processes that run active tasks.
    owners: OrdMap<Task, Arc<str>>,
    /// The processes that have standby and warmup tasks.
    copies: OrdSet<(Arc<str>, i32, Arc<str>)>,
    deadlines: Deadlines,
    /// Until when the group waits for more members.
    delayed_until: Option<Instant>,
    /// The topology with the topics of the checked metadata.
    configured: Option<Arc<Configured>>,
    /// The version of the metadata that this coordinator last compared with the hash.
    checked: Option<u64>,
    /// The member that asked all others to shut down. Not stored, as in Kafka.
    shutdown_by: Option<Arc<str>>,
    /// Grows when the partitions of endpoints change. Not stored, as in Kafka.
    endpoint_epoch: i32,
}

impl StreamsGroup {
    /// Creates a group without members. As in Kafka it begins in epoch 1, with a target of that epoch.
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        let value =
            GroupValue { epoch: 1, metadata_hash: 0, validated_epoch: 0, configs: BTreeMap::new() };
        Self {
            settings,
            value,
            assignment_epoch: 1,
            assignment_timestamp: 0,
            topology: None,
            members: OrdMap::new(),
            targets: OrdMap::new(),
            owners: OrdMap::new(),
            copies: OrdSet::new(),
            deadlines: Deadlines::default(),
            delayed_until: None,
            configured: None,
            checked: None,
            shutdown_by: None,
            endpoint_epoch: 0,
        }
    }

    /// Changes the settings; running sessions keep their deadlines.
    pub(crate) fn configure(&mut self, settings: &Arc<Settings>) {
        self.settings = Arc::clone(settings);
    }

    /// Starts the sessions of a loaded group's members.
    pub(crate) fn resume(&mut self, now: Instant) {
        let members: Vec<(String, Arc<Member>)> =
            self.members.iter().map(|(id, member)| (id.clone(), Arc::clone(member))).collect();
        for (id, member) in members {
            self.deadlines.extend(&id, now + self.settings.session_timeout);
            self.watch_rebalance(now, &id, &member);
        }
    }

    pub(crate) fn epoch(&self) -> i32 {
        self.value.epoch
    }

    pub(crate) fn assignment_epoch(&self) -> i32 {
        self.assignment_epoch
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn topology(&self) -> Option<&Topology> {
        self.topology.as_deref()
    }

    /// Returns the topology with the topics of the last checked metadata.
    pub(crate) fn configured(&self) -> Option<&Configured> {
        self.configured.as_deref()
    }

    /// Returns the members, ordered by id.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.members.iter().map(|(id, member)| (id.as_str(), member.as_ref()))
    }

    /// Returns a member's tasks in the target.
    pub(crate) fn target(&self, member_id: &str) -> Roles {
        self.targets.get(member_id).map(|target| Roles::clone(target)).unwrap_or_default()
    }

    pub(crate) fn state(&self) -> StreamsState {
        let validated = Some(self.value.validated_epoch);
        if self.members.is_empty() {
            StreamsState::Empty
        } else if self.topology().map(|topology| topology.epoch) != validated {
            StreamsState::NotReady
        } else if self.value.epoch > self.assignment_epoch {
            StreamsState::Assigning
        } else if self.is_reconciled() {
            StreamsState::Stable
        } else {
            StreamsState::Reconciling
        }
    }

    fn is_reconciled(&self) -> bool {
        self.members.values().all(|member| member.current.is_reconciled_to(self.assignment_epoch))
    }

    /// Returns the topics that the members read.
    pub(crate) fn sources(&self) -> BTreeSet<&str> {
        let topology = self.topology().filter(|_| !self.is_empty());
        let subtopologies = topology.into_iter().flat_map(|topology| &topology.subtopologies);
        let sources = subtopologies.flat_map(|subtopology| {
            let internal = subtopology.repartition_source_topics.iter().map(|topic| &topic.name);
            subtopology.source_topics.iter().chain(internal)
        });
        sources.map(String::as_str).collect()
    }

    /// Checks the committer of offsets and its partitions. A member in an earlier epoch may commit the offsets of the
    /// tasks it had then (KIP-1251).
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    pub(crate) fn may_commit<'t>(
        &self,
        member_id: &str,
        epoch: i32,
        of: impl IntoIterator<Item = (&'t str, i32)>,
    ) -> Result<(), ErrorCode> {
        if epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let current = &member.current;
        epochs::check_commit(epoch, current.epoch, || {
            let Some(topology) = self.topology() else { return false };
            of.into_iter().all(|(topic, partition)| {
                configure::reader_of(topology, topic)
                    .and_then(|reader| current.epoch_of(&reader.subtopology_id, partition))
                    .is_some_and(|since| epoch >= since)
            })
        })
    }

    /// Checks the sender of an offset lookup. A request without a member is allowed.
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    pub(crate) fn may_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        let known = |id: &str| self.members.get(id).map(|member| member.current.epoch);
        epochs::check_fetch(member_id, epoch, known)
    }

    /// Returns the changes that delete the group, which has no members.
    pub(crate) fn tombstones(&self) -> Vec<Change> {
        vec![Change::TargetEpoch(None), Change::Group(None), Change::Topology(None)]
    }

    /// Returns when [`StreamsGroup::expire`] is due next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.next().into_iter().chain(self.delayed_until).min()
    }

    /// Returns the partitions behind the endpoints of all members.
    fn endpoints(&self, topics: &Topics<'_>) -> Vec<EndpointPartitions> {
        let members = self.members.values().filter_map(|member| {
            let user_endpoint = member.profile.user_endpoint.clone()?;
            let roles = member.current.assigned.roles();
            Some(EndpointPartitions {
                user_endpoint,
                active_partitions: self.read_by(&roles.active, topics),
                standby_partitions: self.read_by(&roles.standby, topics),
            })
        });
        members.collect()
    }

    /// Returns the partitions that tasks read. As in Kafka, a topic with fewer partitions than there are tasks counts
    /// for the first tasks only.
    fn read_by(&self, tasks: &Tasks, topics: &Topics<'_>) -> Vec<SourcePartitions> {
        let mut read = Vec::new();
        for (subtopology, tasks) in tasks {
            let of = self.configured().and_then(|known| known.subtopologies.get(subtopology));
            for topic in of.into_iter().flat_map(ConfiguredSubtopology::sources) {
                let Some(count) = topics.partitions_of(topic) else { continue };
                let count = usize::try_from(count).unwrap_or(0);
                let partitions = tasks.iter().take(count).copied().collect();
                read.push(SourcePartitions { topic: topic.to_owned(), partitions });
            }
        }
        read
    }
}
