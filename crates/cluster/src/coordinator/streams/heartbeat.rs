//! The heartbeat. With it a member joins with its topology, stays, revokes tasks and receives new ones.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use curtail_wire::{
    ErrorCode,
    cold::newer::streams::{Endpoint, EndpointPartitions, GroupStatus, Topology},
};

use super::{
    Draft, Moment, Refused, Status, Step, StreamsGroup, Topics,
    change::{Change, GroupValue},
    configure::{self, Configured},
    member::{Current, Member, Profile, Roles, tasks},
    reconcile::Towards,
};
use crate::{
    controller::TopicSpec,
    coordinator::{
        consumer::{LEFT, LEFT_FOR_NOW},
        epochs,
    },
};

/// A heartbeat. A field that is `None` has not changed since the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeat {
    pub(crate) member_id: String,
    /// 0 joins; [`LEFT`] leaves.
    pub(crate) epoch: i32,
    /// The epoch of the endpoints that the member knows.
    pub(crate) endpoint_epoch: i32,
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout_ms: Option<i32>,
    pub(crate) topology: Option<Topology>,
    pub(crate) owned: Option<Roles>,
    pub(crate) process_id: Option<String>,
    pub(crate) user_endpoint: Option<Endpoint>,
    pub(crate) client_tags: Option<BTreeMap<String, String>>,
    pub(crate) shutdown: bool,
}

impl Heartbeat {
    fn joins(&self) -> bool {
        self.epoch == 0
    }

    /// Returns the member's profile after this heartbeat.
    fn profile(&self, before: &Profile) -> Profile {
        let or = |new: &Option<String>, old: &Option<String>| new.clone().or_else(|| old.clone());
        let topology_epoch = self.topology.as_ref().map(|topology| topology.epoch);
        let tags = self.client_tags.as_ref();
        Profile {
            instance_id: before.instance_id.clone(),
            rack_id: or(&self.rack_id, &before.rack_id),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms.unwrap_or(before.rebalance_timeout_ms),
            topology_epoch: topology_epoch.unwrap_or(before.topology_epoch),
            process_id: self.process_id.clone().unwrap_or_else(|| before.process_id.clone()),
            user_endpoint: self.user_endpoint.clone().or_else(|| before.user_endpoint.clone()),
            client_tags: tags.unwrap_or(&before.client_tags).clone(),
        }
    }
}

/// The response to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Beat {
    pub(crate) epoch: i32,
    /// `None` if the member has left.
    pub(crate) heartbeat_interval: Option<Duration>,
    /// The member's tasks, if they have changed or the member joins.
    pub(crate) assignment: Option<Roles>,
    pub(crate) status: Vec<GroupStatus>,
    pub(crate) endpoint_epoch: i32,
    /// The partitions behind the endpoints, if the member does not know them.
    pub(crate) endpoints: Option<Vec<EndpointPartitions>>,
    /// Internal topics to create.
    pub(crate) missing: Vec<TopicSpec>,
}

/// The part of a target that a member takes a step towards.
struct Target {
    epoch: i32,
    roles: Roles,
    /// Whether the target is computed later.
    delayed: Option<GroupStatus>,
}

impl StreamsGroup {
    /// Handles a heartbeat. `is_new` tells whether the group is not stored yet.
    ///
    /// # Errors
    /// Nothing has changed. UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH tell the member to rejoin.
    pub(crate) fn heartbeat(
        &self,
        at: Moment,
        topics: &Topics<'_>,
        request: &Heartbeat,
        is_new: bool,
    ) -> Result<Step<Beat>, Refused> {
        if matches!(request.epoch, LEFT | LEFT_FOR_NOW) {
            return self.leave_by_heartbeat(request);
        }
        self.check_size(request)?;
        let id = request.member_id.as_str();
        let before = self.member(id, request)?;
        let mut draft = Draft::of(self);
        let mut bump = draft.update(id, before.as_deref(), request);
        let topology = draft.take_topology(request)?;
        let mut status = Vec::new();
        status.extend(draft.group.stale(id, &topology));
        let (hash, changed) = draft.check_topics(topics, &topology)?;
        bump |= changed;
        let configured = draft.group.configured.clone().unwrap_or_default();
        check_owned(request, &configured)?;
        draft.bump(bump, hash, validated(&topology, &configured));
        if self.is_empty() {
            draft.delay(at);
        }
        let target = draft.target(at, id);
        status.extend(target.delayed.clone());
        draft.reconcile(at, id, request, &target)?;
        draft.group.deadlines.extend(id, at.now + self.settings.session_timeout);
        if request.shutdown && draft.group.shutdown_by.is_none() {
            draft.group.shutdown_by = Some(id.into());
        }
        status.extend(configured.problem.clone());
        status.extend(draft.group.shutdown_status());
        let mut answer = draft.answer(topics, id, before.as_deref(), request);
        if is_new {
            // Kafka forgets the epoch with the group that was not stored yet.
            (draft.group.endpoint_epoch, answer.endpoint_epoch) = (0, 0);
        }
        answer.status = status;
        answer.missing = configured.missing.clone();
        Ok(draft.done(answer))
    }

    /// Kafka also refuses a member that joins again.
    fn check_size(&self, request: &Heartbeat) -> Result<(), Refused> {
        let max = self.settings.max_size;
        if !request.joins() || self.members.len() < max {
            return Ok(());
        }
        let reason = format!("the group has the most members it may have, {max}");
        Err(Refused::new(ErrorCode::GROUP_MAX_SIZE_REACHED, reason))
    }

    /// Returns the member as of before the heartbeat; `None` for a new one.
    fn member(&self, id: &str, request: &Heartbeat) -> Result<Option<Arc<Member>>, Refused> {
        match self.members.get(id) {
            Some(member) => check_epoch(&member.current, request).map(|()| Some(member.clone())),
            None if request.joins() => Ok(None),
            None => Err(ErrorCode::UNKNOWN_MEMBER_ID.into()),
        }
    }

    fn stale(&self, id: &str, topology: &Topology) -> Option<GroupStatus> {
        let own = self.members.get(id)?.profile.topology_epoch;
        let detail = format!(
            "The member has the topology of epoch {own}, the group has that of epoch {}.",
            topology.epoch
        );
        (own < topology.epoch).then(|| Status::StaleTopology.with(detail))
    }

    fn shutdown_status(&self) -> Option<GroupStatus> {
        let by = self.shutdown_by.as_ref()?;
        let detail = format!("Member {by} asked all members to shut down after a fatal error.");
        Some(Status::ShutdownApplication.with(detail))
    }
}

impl Draft {
    /// Updates the member's profile. Returns whether it has changed.
    fn update(&mut self, id: &str, before: Option<&Member>, request: &Heartbeat) -> bool {
        let new = Profile::default();
        let old = before.map_or(&new, |member| &member.profile);
        let profile = request.profile(old);
        let changed = before.is_none() || profile != *old;
        if changed {
            self.change(Change::Member(id.to_owned(), Some(profile)));
        }
        changed
    }

    /// Returns the group's topology, which is that of the first member.
    fn take_topology(&mut self, request: &Heartbeat) -> Result<Arc<Topology>, Refused> {
        let known = self.group.topology.clone();
        match (&request.topology, known) {
            (None, Some(known)) => Ok(known),
            (None, None) => {
                let reason = "the group has no topology";
                Err(Refused::new(ErrorCode::UNKNOWN_SERVER_ERROR, reason))
            }
            (Some(own), Some(known)) if own.epoch < known.epoch => Ok(known),
            (Some(own), Some(known)) if is_same(own, &known) => Ok(known),
            (Some(_), Some(_)) => {
                let reason = "the topology of a group cannot be changed; delete the group, or give the \
                              application another id";
                Err(Refused::new(ErrorCode::INVALID_REQUEST, reason))
            }
            (Some(own), None) => {
                let own = Arc::new(own.clone());
                self.change(Change::Topology(Some(Arc::clone(&own))));
                Ok(own)
            }
        }
    }

    /// Configures the topology for the present topics. Returns the hash of their metadata, and whether it has
    /// changed.
    fn check_topics(
        &mut self,
        topics: &Topics<'_>,
        topology: &Topology,
    ) -> Result<(i64, bool), Refused> {
        let group = &mut self.group;
        let version = Some(topics.image.version);
        let hash = match group.checked == version && group.configured.is_some() {
            true => group.value.metadata_hash,
            false => topics.hash(configure::required_topics(topology).into_iter()),
        };
        group.checked = version;
        let changed = hash != group.value.metadata_hash;
        if changed || group.configured.is_none() {
            let partitions = |topic: &str| topics.partitions_of(topic);
            group.configured = Some(Arc::new(configure::configure(topology, &partitions)?));
        }
        Ok((hash, changed))
    }

    /// Begins a new epoch if one is needed.
    fn bump(&mut self, needed: bool, metadata_hash: i64, validated_epoch: i32) {
        let configs = self.group.settings.of_assignment();
        let value = &self.group.value;
        if needed || validated_epoch != value.validated_epoch || configs != value.configs {
            let epoch = value.epoch + 1;
            let value = GroupValue { epoch, metadata_hash, validated_epoch, configs };
            self.change(Change::Group(Some(value)));
        }
    }

    /// Lets a group without members wait for more of them.
    fn delay(&mut self, at: Moment) {
        let delay = self.group.settings.initial_delay;
        if !delay.is_zero() && self.group.delayed_until.is_none() {
            self.group.delayed_until = Some(at.now + delay);
        }
    }

    fn target(&mut self, at: Moment, id: &str) -> Target {
        let delayed = |why: &str| Some(Status::AssignmentDelayed.with(why));
        if self.group.delayed_until.is_some() {
            let delayed = delayed("The new group waits for more members.");
            return Target { epoch: self.group.assignment_epoch, roles: Roles::default(), delayed };
        }
        let computed = self.assign(at);
        let delayed = match computed {
            true => None,
            false => delayed("The last assignment was computed a short time ago."),
        };
        Target { epoch: self.group.assignment_epoch, roles: self.group.target(id), delayed }
    }

    /// Takes one step of the member towards its part of the target.
    fn reconcile(
        &mut self,
        at: Moment,
        id: &str,
        request: &Heartbeat,
        target: &Target,
    ) -> Result<(), Refused> {
        let group = &self.group;
        let Some(member) = group.members.get(id).cloned() else { return Ok(()) };
        let process: Arc<str> = member.profile.process_id.as_str().into();
        let owner = |task: &str, at: i32| group.owners.get(&(task.into(), at));
        let is_copied =
            |task: &str, at: i32| group.copies.contains(&(task.into(), at, Arc::clone(&process)));
        let towards = Towards {
            epoch: target.epoch,
            target: &target.roles,
            owned: request.owned.as_ref(),
            is_active: &|task, at| owner(task, at).is_some(),
            is_copied: &is_copied,
            is_in_process: &|task, at| owner(task, at) == Some(&process) || is_copied(task, at),
        };
        let next = towards.step(&member.current)?;
        if next != member.current {
            self.change(Change::Current(id.to_owned(), Some(next)));
            if let Some(member) = self.group.members.get(id).cloned() {
                self.group.watch_rebalance(at.now, id, &member);
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        topics: &Topics<'_>,
        id: &str,
        before: Option<&Member>,
        request: &Heartbeat,
    ) -> Beat {
        let group = &mut self.group;
        let member = group.members.get(id).cloned().unwrap_or_default();
        let had = before.map(|member| &member.current.assigned);
        let tells = request.joins() || had != Some(&member.current.assigned);
        if tells && member.profile.user_endpoint.is_some() {
            group.endpoint_epoch += 1;
        }
        let knows = request.endpoint_epoch == group.endpoint_epoch;
        Beat {
            epoch: member.current.epoch,
            heartbeat_interval: Some(group.settings.heartbeat_interval),
            assignment: tells.then(|| member.current.assigned.roles()),
            endpoint_epoch: group.endpoint_epoch,
            endpoints: (!knows).then(|| group.endpoints(topics)),
            ..Beat::default()
        }
    }
}

fn check_epoch(member: &Current, request: &Heartbeat) -> Result<(), Refused> {
    let owned = request.owned.as_ref();
    epochs::check_heartbeat(request.epoch, member.epoch, member.previous_epoch, || {
        owned.is_some_and(|owned| owned.is_within(&member.assigned))
    })
}

/// Checks that the tasks that the member reports exist.
fn check_owned(request: &Heartbeat, configured: &Configured) -> Result<(), Refused> {
    let Some(owned) = request.owned.as_ref().filter(|_| configured.is_ready()) else {
        return Ok(());
    };
    for of in [&owned.active, &owned.standby, &owned.warmup] {
        if let Some(unknown) = of.keys().find(|id| !configured.subtopologies.contains_key(*id)) {
            let reason = format!("the topology has no subtopology {unknown}");
            return Err(Refused::new(ErrorCode::INVALID_REQUEST, reason));
        }
        for (subtopology, partition) in tasks(of) {
            let count = configured.subtopologies[subtopology].tasks;
            if !(0..count).contains(&partition) {
                let reason = format!(
                    "the subtopology {subtopology} has {count} tasks, not task {partition}"
                );
                return Err(Refused::new(ErrorCode::INVALID_REQUEST, reason));
            }
        }
    }
    Ok(())
}

/// Returns the epoch of a topology whose topics are valid.
fn validated(topology: &Topology, configured: &Configured) -> i32 {
    if configured.is_ready() { topology.epoch } else { -1 }
}

/// Returns whether two topologies are the same, in whatever order their subtopologies are.
fn is_same(one: &Topology, other: &Topology) -> bool {
    let by_id = |topology: &Topology| -> BTreeMap<String, _> {
        let subtopologies = topology.subtopologies.iter();
        subtopologies.map(|of| (of.subtopology_id.clone(), of.clone())).collect()
    };
    one.epoch == other.epoch && by_id(one) == by_id(other)
}
