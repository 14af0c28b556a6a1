//! One member of a consumer group, of either protocol.
//!
//! In the classic protocol (KIP-62, KIP-394, KIP-345, KIP-429) the leading member assigns the partitions. In the
//! consumer protocol (KIP-848) the coordinator does (the module `reconciliation`).
//!
//! The machine decides the next request to the coordinator ([`Membership::next`]), applies its responses, and tells the
//! application which partitions to revoke or adopt ([`Membership::handover`]). The coordinator learns that a partition
//! is free only after the application has revoked it.
//!
//! ```text
//!   Out ── subscribe ──▶ Yielding ──▶ Flushing ──▶ Joining ──▶ Assigning ──▶ Syncing ──▶ Offered ──▶ Settled
//!                           ▲  owned partitions     (the leader only)        the application takes it │
//!                           └─────────── a rebalance, other topics, a lost membership ────────────────┘
//! ```
//!
//! Under the consumer protocol no rebalance has phases: a member joins with a heartbeat, and any response may
//! bring another assignment.
//!
//! ```text
//!   Out ── subscribe ──▶ Flushing ──▶ Joining ──▶ Settled ◀──────────── the application takes it ── Offered
//!                           ▲                        │ partitions to revoke                             ▲
//!                           │ lost                   ▼                                                  │ additions
//!                        Yielding ◀───────────── Yielding ── the application revokes ──▶ Flushing ──────┘
//! ```
//!
//! The member continues its heartbeats during a handover (`Yielding`, `Offered`). The application finishes a handover
//! that it has begun; events in that time apply afterwards. An offer that the application has not taken yet is
//! dropped when the next rebalance begins: no other member was assigned those partitions.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    consumer_protocol::{self, Partitions, Subscription},
};

use crate::{
    assignor::{self, Assignments, Assignor, Key, Member, Rebalance, Topics},
    backoff::Backoff,
    later::Later,
    metadata::Node,
};

mod answers;
mod reconciliation;
#[cfg(test)]
mod tests;

pub use answers::{JoinReply, Trouble};
use reconciliation::Reconciliation;
pub use reconciliation::{GroupHeartbeat, GroupReply, TopicIds};

/// Configuration of a member.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `group.instance.id`: a static member keeps its place over a restart.
    pub instance: Option<Arc<str>>,
    /// `max.poll.interval.ms`, which is also how long a rebalance waits for this member.
    pub max_poll_interval: Duration,
    /// `group.protocol`.
    pub protocol: Protocol,
    /// `client.rack`.
    pub rack: Option<Arc<str>>,
    /// Backoff between repeated requests.
    pub backoff: Backoff,
}

/// The group protocol, which decides whether a member or the coordinator assigns the partitions.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// The group's leader assigns.
    Classic {
        /// `heartbeat.interval.ms`.
        heartbeat_interval: Duration,
        /// `partition.assignment.strategy`, the preferred one first; at least one.
        assignors: Vec<Assignor>,
    },
    /// The coordinator assigns.
    Consumer {
        /// Id of the member for its whole life, in any group it joins.
        member: Arc<str>,
        /// `group.remote.assignor`; the coordinator's choice without it.
        assignor: Option<Arc<str>>,
    },
}

impl Protocol {
    fn assignors(&self) -> &[Assignor] {
        match self {
            Self::Classic { assignors, .. } => assignors,
            Self::Consumer { .. } => &[],
        }
    }

    /// The id of a member before a coordinator assigns one.
    fn own_id(&self) -> Arc<str> {
        match self {
            Self::Classic { .. } => Arc::default(),
            Self::Consumer { member, .. } => member.clone(),
        }
    }

    /// The heartbeat interval before the coordinator has set one.
    fn heartbeat_interval(&self) -> Duration {
        match self {
            Self::Classic { heartbeat_interval, .. } => *heartbeat_interval,
            Self::Consumer { .. } => Duration::ZERO,
        }
    }
}

/// A member's identity at its coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Generation of the group, or epoch of the member.
    pub generation: i32,
    /// Id of the member.
    pub member: Arc<str>,
}

/// A JoinGroup to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Empty for a new member.
    pub member: Arc<str>,
    /// Metadata for each assignor, by its name.
    pub protocols: Vec<(&'static str, Bytes)>,
}

/// A SyncGroup to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The member.
    pub identity: Identity,
    /// The assignor that the group has chosen.
    pub protocol: Assignor,
    /// Assignments of all members, if this member is the leader.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until one of the calls changes that.
    Idle,
    /// Nothing before this time.
    Wait(Instant),
    /// Find the coordinator and report with [`Membership::found`].
    Find,
    /// Wait until all commits handed over have a response, and report with [`Membership::flushed`]; look again at
    /// this time.
    Flush(Instant),
    /// Ask this broker to join, and report with [`Membership::joined`].
    Join(Node, Join),
    /// Run the assignor over these members with the partitions of all their topics, and report with
    /// [`Membership::assigned`].
    Assign(Assignor, Arc<[Member]>),
    /// Ask this broker for the assignment, and report with [`Membership::synced`].
    Sync(Node, Sync),
    /// Tell this broker that the member is alive, and report with [`Membership::beaten`].
    Heartbeat(Node, Identity),
    /// As [`Step::Heartbeat`] under the consumer protocol, to be reported with [`Membership::group_beaten`].
    GroupHeartbeat(Node, GroupHeartbeat),
    /// Resolve the names of these topics, not beyond this time, and report with [`Membership::resolved`].
    Resolve(Vec<Uuid>, Instant),
    /// Tell this broker that the member has left, and report with [`Membership::left`].
    Leave(Node, Identity),
}

/// Partitions that the application must revoke or adopt, to be reported with [`Membership::handed_over`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Revoke these before the member joins again.
    Revoke(Vec<Key>),
    /// Forget these: other members may already read them.
    Lose(Vec<Key>),
    /// Revoke some and begin with others.
    Adopt {
        /// To revoke first.
        revoked: Vec<Key>,
        /// To begin with; may be empty.
        added: Vec<Key>,
    },
}

/// Whether a member that unsubscribes leaves its group at once, or keeps its place until its session expires (KIP-1092).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Departure {
    /// A dynamic member leaves, and a static one keeps its place.
    #[default]
    ByKind,
    /// It leaves.
    Leave,
    /// It keeps its place.
    Remain,
}

/// Identity under which offsets can be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Under this identity.
    Member(Identity),
    /// Not during this rebalance, only after it.
    Rebalancing,
    /// Not at all: the member is in no group.
    Outside,
}

/// Progress of a member, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Course {
    /// It is not subscribed.
    #[default]
    Outside,
    /// It waits for an assignment.
    Rebalancing,
    /// Its membership has ended, and the application has not been notified yet.
    Losing,
    /// It reads its assignment.
    Settled,
    /// It has failed.
    Failed,
}

/// Why the member has failed. `E` is the caller's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason<E> {
    /// The coordinator refused this request for good, perhaps with a message.
    Refused(&'static str, ErrorCode, Option<Arc<str>>),
    /// The caller reported this error.
    Reported(E),
}

#[derive(Debug)]
enum Phase<E> {
    /// Not subscribed.
    Out,
    /// The application must revoke these partitions.
    Yielding(Letting, Vec<Key>),
    Flushing {
        until: Instant,
    },
    Joining,
    Assigning(Assignor, Arc<[Member]>),
    Syncing(Sync),
    /// The application must adopt these partitions.
    Offered(BTreeSet<Key>),
    Settled,
    /// Failed, once the application has forgotten these partitions.
    Failed(Vec<Key>, Reason<E>, Hearing),
}

/// Whether the application was notified of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    Unheard,
    Heard,
}

/// State of the application's handover. An event that would change a handover in progress is deferred until it ends.
#[derive(Debug)]
enum Handing<E> {
    Nothing,
    UnderWay,
    /// The membership has ended during the handover.
    ThenLost,
    /// The member has failed during the handover.
    ThenFailed(Reason<E>),
}

/// How the application loses partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letting {
    /// In time: other members do not own them yet.
    Revoked,
    /// Too late: other members may already own them.
    Lost,
}

/// Input of the last assignment that this member made as the leader.
#[derive(Debug, Default)]
struct Leadership {
    /// Topics that any member subscribes to.
    wanted: Arc<BTreeSet<Arc<str>>>,
    /// Their partitions at that time, with racks if this member has one.
    layouts: Topics,
    /// Whether the coordinator has the assignment already.
    in_force: bool,
}

/// The state of one member.
#[derive(Debug)]
pub struct Membership<E> {
    settings: Settings,
    phase: Phase<E>,
    /// Topics that the application subscribes to.
    topics: BTreeSet<Arc<str>>,
    /// Topics of the last JoinGroup.
    joined_for: BTreeSet<Arc<str>>,
    /// Partitions that the application reads.
    owned: BTreeSet<Key>,
    /// Partitions that a static member has lost and not received again. Other members may not know that they are free.
    missed: BTreeSet<Key>,
    /// Last assignment from the coordinator, with its generation.
    given: Option<(Partitions, i32)>,
    member: Arc<str>,
    generation: i32,
    leading: Option<Leadership>,
    /// The state between the coordinator's target and the application's partitions; consumer protocol only.
    reconciliation: Option<Reconciliation>,
    coordinator: Option<Node>,
    /// Identity of a membership whose end the coordinator has not been told yet.
    departure: Option<Identity>,
    /// Whether a dynamic member's JoinGroup without an id is in flight. Once the coordinator has assigned an id, the group
    /// waits for that id's next JoinGroup, or for its departure (KIP-394).
    introduces: bool,
    /// Id of the last membership that has ended.
    last_member: Option<Arc<str>>,
    /// Whether to join again as soon as no handover is due.
    rejoin: bool,
    handing: Handing<E>,
    beat_at: Instant,
    polled: Instant,
    failures: u32,
    not_before: Option<Instant>,
}

impl<E: Clone> Membership<E> {
    /// Creates a member of no group.
    pub fn new(settings: Settings, now: Instant) -> Self {
        let (member, reconciliation) = match &settings.protocol {
            Protocol::Classic { .. } => (Arc::default(), None),
            Protocol::Consumer { member, .. } => (member.clone(), Some(Reconciliation::new(now))),
        };
        Self {
            settings,
            phase: Phase::Out,
            topics: BTreeSet::new(),
            joined_for: BTreeSet::new(),
            owned: BTreeSet::new(),
            missed: BTreeSet::new(),
            given: None,
            member,
            generation: -1,
            leading: None,
            reconciliation,
            coordinator: None,
            departure: None,
            introduces: false,
            last_member: None,
            rejoin: false,
            handing: Handing::Nothing,
            beat_at: now,
            polled: now,
            failures: 0,
            not_before: None,
        }
    }

    /// Partitions that the application reads or must revoke.
    pub fn owned(&self) -> &BTreeSet<Key> {
        &self.owned
    }

    /// Topics that the application subscribes to.
    pub fn topics(&self) -> &BTreeSet<Arc<str>> {
        &self.topics
    }

    /// The coordinator, if one is known.
    pub fn coordinator(&self) -> Option<&Node> {
        self.coordinator.as_ref()
    }

    /// Whether the member needs this topic's metadata: it subscribes to it or, as the leader, any member does.
    pub fn follows(&self, topic: &str) -> bool {
        self.topics.contains(topic)
            || self.leading.as_ref().is_some_and(|leading| leading.wanted.contains(topic))
    }

    /// Why the member has failed.
    pub fn failure(&self) -> Option<&Reason<E>> {
        match &self.phase {
            Phase::Failed(_, reason, _) => Some(reason),
            _ => None,
        }
    }

    /// Returns the error for an application that polls: why the member has failed. If an operator can fix the cause,
    /// such as a missing ACL permission, the poll after the one that returned the error retries.
    pub fn complaint(&mut self, now: Instant) -> Option<Reason<E>> {
        let lasts = match &mut self.phase {
            Phase::Failed(_, reason, hearing @ Hearing::Unheard) => {
                *hearing = Hearing::Heard;
                return Some(reason.clone());
            }
            Phase::Failed(_, reason, Hearing::Heard) => reason.lasts(&self.settings.protocol),
            _ => return None,
        };
        if !lasts {
            self.lose_membership(now);
        }
        self.failure().cloned()
    }

    /// Whether the member reads its assignment and no rebalance is known to be in progress.
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Settled) && !self.rejoin
    }

    /// Progress of the member.
    pub fn course(&self) -> Course {
        match self.phase {
            Phase::Out => Course::Outside,
            Phase::Failed(..) => Course::Failed,
            Phase::Yielding(Letting::Lost, _) => Course::Losing,
            Phase::Settled if !self.rejoin => Course::Settled,
            Phase::Settled
            | Phase::Yielding(Letting::Revoked, _)
            | Phase::Flushing { .. }
            | Phase::Joining
            | Phase::Assigning(..)
            | Phase::Syncing(_)
            | Phase::Offered(_) => Course::Rebalancing,
        }
    }

    /// Identity under which offsets can be committed now.
    pub fn standing(&self) -> Standing {
        match self.phase {
            Phase::Out | Phase::Failed(..) | Phase::Yielding(Letting::Lost, _) => Standing::Outside,
            Phase::Joining | Phase::Assigning(..) | Phase::Syncing(_) => Standing::Rebalancing,
            Phase::Yielding(Letting::Revoked, _)
            | Phase::Flushing { .. }
            | Phase::Offered(_)
            | Phase::Settled => match self.identity() {
                Some(identity) => Standing::Member(identity),
                None => Standing::Outside,
            },
        }
    }

    /// The member's identity at its coordinator, including during a rebalance.
    pub fn identity(&self) -> Option<Identity> {
        let known = self.generation >= 0 && !self.member.is_empty();
        known.then(|| Identity { generation: self.generation, member: self.member.clone() })
    }

    /// The member's id at its coordinator, or that of its last membership.
    pub fn last_member(&self) -> Option<Arc<str>> {
        self.identity().map(|identity| identity.member).or_else(|| self.last_member.clone())
    }

    /// Subscribes to these topics only. A member that has failed retries.
    pub fn subscribe(&mut self, topics: BTreeSet<Arc<str>>, now: Instant) {
        self.want(topics, None, now);
    }

    /// Subscribes to the topics that match this regular expression on the coordinator. Consumer protocol only.
    pub fn subscribe_pattern(&mut self, pattern: Arc<str>, now: Instant) {
        self.want(BTreeSet::new(), Some(pattern), now);
    }

    fn want(&mut self, topics: BTreeSet<Arc<str>>, pattern: Option<Arc<str>>, now: Instant) {
        self.topics = topics;
        if let Some(reconciliation) = &mut self.reconciliation {
            reconciliation.pattern = pattern;
        }
        match self.phase {
            Phase::Out => {
                self.polled = now;
                self.retry_at_once();
                self.begin(now);
            }
            Phase::Failed(..) => {
                self.polled = now;
                self.retry_at_once();
                self.lose_membership(now);
            }
            Phase::Settled if self.reconciliation.is_none() && self.topics != self.joined_for => {
                self.begin(now);
            }
            // The difference is noticed at the end of the phase in progress.
            _ => {}
        }
    }

    /// Unsubscribes.
    pub fn leave(&mut self, departure: Departure) {
        self.depart(departure);
        self.handing = Handing::Nothing;
        self.phase = Phase::Out;
        self.topics.clear();
        self.owned.clear();
        self.missed.clear();
        self.given = None;
        self.rejoin = false;
    }

    fn depart(&mut self, departure: Departure) {
        let is_static = self.settings.instance.is_some();
        let leaves = match departure {
            Departure::ByKind => !is_static,
            Departure::Leave => true,
            Departure::Remain => false,
        };
        let generation = match &mut self.reconciliation {
            Some(reconciliation) => reconciliation.farewell(is_static, leaves),
            None => (leaves && !self.member.is_empty()).then_some(self.generation),
        };
        if let Some(generation) = generation {
            self.dismiss(Identity { generation, member: self.member.clone() });
        }
        self.introduces &= leaves;
        self.forget_membership();
    }

    /// Ends a membership at the coordinator.
    fn dismiss(&mut self, identity: Identity) {
        self.departure = Some(identity);
        self.retry_at_once();
    }

    /// Requests a rebalance of a settled member of the classic protocol.
    pub fn enforce_rebalance(&mut self, now: Instant) {
        if self.reconciliation.is_none() {
            self.ask_to_rejoin(now);
        }
    }

    /// Whether the member waits for other members in a rebalance, which may take long. Returns false once the
    /// application has left.
    pub fn awaits_group(&self) -> bool {
        let assigns = self.reconciliation.is_none();
        assigns && matches!(self.phase, Phase::Joining | Phase::Assigning(..) | Phase::Syncing(_))
    }

    /// Whether the coordinator must still be told that the member has left.
    pub fn is_departing(&self) -> bool {
        self.departure.is_some() || (self.introduces && matches!(self.phase, Phase::Out))
    }

    /// Whether a response may have the id with which a member that has left must leave.
    pub fn awaits_id(&self) -> bool {
        self.introduces
    }

    /// Reports that the application polls, or waits in a poll.
    pub fn polled(&mut self, now: Instant) {
        self.polled = self.polled.max(now);
    }

    /// Topics to compare with [`Self::look_at_topics`], if this member is the leader and has made its assignment.
    pub fn led_topics(&self) -> Option<Arc<BTreeSet<Arc<str>>>> {
        let assigns = matches!(self.phase, Phase::Assigning(..));
        self.leading.as_ref().filter(|_| !assigns).map(|leading| leading.wanted.clone())
    }

    /// Whether [`Self::look_at_topics`] needs the racks of partitions. As in the Java client, a leader without a rack does
    /// not request a rebalance because of them.
    pub fn follows_racks(&self) -> bool {
        self.settings.rack.is_some()
    }

    /// Reports the partitions of [`Self::led_topics`]. A leader requests a rebalance if an assigned topic's number of
    /// partitions changed, or their racks.
    pub fn look_at_topics(
        &mut self,
        topics: &Arc<BTreeSet<Arc<str>>>,
        layouts: &Topics,
        now: Instant,
    ) {
        let Some(leading) = &self.leading else { return };
        // The layouts may be older than a new leadership's assignment.
        if matches!(self.phase, Phase::Assigning(..)) || !Arc::ptr_eq(topics, &leading.wanted) {
            return;
        }
        // A topic that is unknown now may only be missing for a moment.
        let changed = |(topic, layout)| leading.layouts.get(topic) != Some(layout);
        if layouts.iter().any(changed) {
            self.ask_to_rejoin(now);
        }
    }

    /// Whether a handover is due.
    pub fn wants_application(&self) -> bool {
        matches!(self.handing, Handing::Nothing) && self.due().is_some()
    }

    /// Partitions that are lost: other members may already read them.
    pub fn lost(&self) -> Vec<Key> {
        match &self.phase {
            _ if self.has_ended_in_handover() => self.owned.iter().cloned().collect(),
            Phase::Yielding(Letting::Lost, keys) | Phase::Failed(keys, ..) => keys.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether the membership has ended since the handover in progress began. A revocation then comes too late, and all
    /// other partitions are lost with the next handover.
    pub fn has_ended_in_handover(&self) -> bool {
        matches!(self.handing, Handing::ThenLost | Handing::ThenFailed(_))
    }

    /// Starts the handover that is due. The application must finish it and call [`Self::handed_over`], whatever happens
    /// until then.
    pub fn handover(&mut self) -> Option<Handover> {
        let due = self.due();
        if due.is_some() {
            self.handing = Handing::UnderWay;
            if let Phase::Offered(offer) = &self.phase
                && let Some(reconciliation) = &mut self.reconciliation
            {
                reconciliation.taken(offer);
            }
        }
        due
    }

    fn due(&self) -> Option<Handover> {
        match &self.phase {
            Phase::Yielding(Letting::Revoked, keys) => Some(Handover::Revoke(keys.clone())),
            Phase::Yielding(Letting::Lost, keys) => Some(Handover::Lose(keys.clone())),
            Phase::Failed(keys, ..) if !keys.is_empty() => Some(Handover::Lose(keys.clone())),
            Phase::Offered(_)
                if self.reconciliation.as_ref().is_some_and(Reconciliation::is_claiming) =>
            {
                None
            }
            Phase::Offered(offer) => Some(Handover::Adopt {
                revoked: self.owned.difference(offer).cloned().collect(),
                added: offer.difference(&self.owned).cloned().collect(),
            }),
            _ => None,
        }
    }

    /// Reports the end of the handover.
    pub fn handed_over(&mut self, now: Instant) {
        // Only an application that polls performs a handover.
        self.polled(now);
        let ended = std::mem::replace(&mut self.handing, Handing::Nothing);
        self.hand_over(now);
        match ended {
            Handing::Nothing | Handing::UnderWay => {}
            Handing::ThenLost => self.lose_owned(now),
            Handing::ThenFailed(reason) => self.fail(reason),
        }
    }

    fn hand_over(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Yielding(letting, keys) => {
                for key in std::mem::take(keys) {
                    self.owned.remove(&key);
                    if *letting == Letting::Lost && self.settings.instance.is_some() {
                        self.missed.insert(key);
                    }
                }
                let until = match letting {
                    Letting::Revoked => now.later(self.settings.max_poll_interval),
                    Letting::Lost => now,
                };
                self.phase = Phase::Flushing { until };
            }
            Phase::Failed(keys, ..) => {
                keys.clear();
                self.owned.clear();
            }
            Phase::Offered(offer) => {
                let offer = std::mem::take(offer);
                let gave_up = !self.owned.is_subset(&offer);
                // A returning static member receives its last assignment, without a rebalance (KIP-345). Partitions
                // that it still had to revoke then belong to no member: in the cooperative protocol it would have
                // requested a rebalance after the revocation.
                let cooperative = self.rebalance() == Rebalance::Cooperative;
                let missed = std::mem::take(&mut self.missed);
                let gave_up = gave_up || cooperative && !missed.is_subset(&offer);
                self.owned = offer;
                self.phase = Phase::Settled;
                if self.reconciliation.is_some() {
                    return self.reconcile();
                }
                // The next rebalance can assign the partitions that were revoked.
                if gave_up || self.rejoin || self.topics != self.joined_for {
                    self.begin(now);
                }
            }
            _ => {}
        }
    }

    /// Begins a rebalance on this side. The application first revokes what the protocol requires.
    fn begin(&mut self, now: Instant) {
        self.rejoin = false;
        let yields: Vec<Key> = match self.rebalance() {
            Rebalance::Eager => self.owned.iter().cloned().collect(),
            Rebalance::Cooperative => self
                .owned
                .iter()
                .filter(|(topic, _)| !self.topics.contains(topic))
                .cloned()
                .collect(),
        };
        self.phase = match yields.is_empty() {
            // Commits of partitions revoked in the last handover may be in flight.
            true => Phase::Flushing { until: now.later(self.settings.max_poll_interval) },
            false => Phase::Yielding(Letting::Revoked, yields),
        };
    }

    fn rebalance(&self) -> Rebalance {
        match &self.settings.protocol {
            Protocol::Classic { assignors, .. } => Assignor::rebalance(assignors),
            Protocol::Consumer { .. } => Rebalance::Cooperative,
        }
    }

    fn ask_to_rejoin(&mut self, now: Instant) {
        match self.phase {
            Phase::Offered(_) if !matches!(self.handing, Handing::Nothing) => self.rejoin = true,
            Phase::Settled | Phase::Offered(_) => self.begin(now),
            // These phases lead to a new generation, or have seen the change.
            Phase::Assigning(..) | Phase::Syncing(_) => self.rejoin = true,
            _ => {}
        }
    }

    /// Handles a membership that the coordinator has ended: the owned partitions may belong to other members.
    fn lose_membership(&mut self, now: Instant) {
        self.forget_membership();
        match self.handing {
            Handing::Nothing => self.lose_owned(now),
            Handing::UnderWay => self.handing = Handing::ThenLost,
            Handing::ThenLost | Handing::ThenFailed(_) => {}
        }
    }

    fn lose_owned(&mut self, now: Instant) {
        self.rejoin = false;
        self.phase = match self.owned.is_empty() {
            true => Phase::Flushing { until: now },
            false => Phase::Yielding(Letting::Lost, self.owned.iter().cloned().collect()),
        };
    }

    fn forget_membership(&mut self) {
        self.last_member = self.last_member();
        self.member = self.settings.protocol.own_id();
        self.generation = -1;
        self.leading = None;
        if let Some(reconciliation) = &mut self.reconciliation {
            reconciliation.forget();
        }
    }

    fn fail(&mut self, reason: Reason<E>) {
        self.forget_membership();
        if !matches!(self.handing, Handing::Nothing) {
            self.handing = Handing::ThenFailed(reason);
            return;
        }
        let owned = self.owned.iter().cloned().collect();
        self.phase = Phase::Failed(owned, reason, Hearing::Unheard);
    }

    fn retry_at_once(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    fn failed_once(&mut self, now: Instant, unit: f64) {
        self.failures += 1;
        self.not_before = Some(now.later(self.settings.backoff.after(self.failures, unit)));
    }

    /// Returns the next step.
    pub fn next(&mut self, now: Instant) -> Step {
        if let Some(identity) = self.departure.clone() {
            return self.at_coordinator(now, |node| Step::Leave(node, identity));
        }
        if let Phase::Flushing { until } = self.phase
            && now >= until
        {
            self.flushed();
        }
        match &self.phase {
            Phase::Out | Phase::Failed(..) => Step::Idle,
            Phase::Joining if self.reconciliation.is_some() => self.beat_group(now),
            Phase::Joining => {
                self.joined_for.clone_from(&self.topics);
                let join = Join { member: self.member.clone(), protocols: self.protocols() };
                let introduces = join.member.is_empty() && self.settings.instance.is_none();
                let step = self.at_coordinator(now, |node| Step::Join(node, join));
                self.introduces = introduces && matches!(step, Step::Join(..));
                step
            }
            Phase::Assigning(assignor, members) => Step::Assign(*assignor, members.clone()),
            Phase::Syncing(sync) => {
                let sync = sync.clone();
                self.at_coordinator(now, |node| Step::Sync(node, sync))
            }
            Phase::Flushing { until } => {
                let until = *until;
                match self.stay(now) {
                    Step::Wait(at) => Step::Flush(at.min(until)),
                    Step::Idle => Step::Flush(until),
                    step => step,
                }
            }
            Phase::Yielding(..) | Phase::Offered(_) | Phase::Settled => self.stay(now),
        }
    }

    fn at_coordinator(&self, now: Instant, step: impl FnOnce(Node) -> Step) -> Step {
        if let Some(at) = self.not_before.filter(|at| *at > now) {
            return Step::Wait(at);
        }
        match &self.coordinator {
            Some(node) => step(node.clone()),
            None => Step::Find,
        }
    }

    /// Stays in the group: sends heartbeats as long as the application polls.
    fn stay(&mut self, now: Instant) -> Step {
        let Some(identity) = self.identity() else { return Step::Idle };
        let poll_by = self.polled.later(self.settings.max_poll_interval);
        if now >= poll_by {
            return self.neglected(now);
        }
        if self.reconciliation.is_some() {
            return self.stay_in_group(now, poll_by);
        }
        if now < self.beat_at {
            return Step::Wait(self.beat_at.min(poll_by));
        }
        match self.at_coordinator(now, |node| Step::Heartbeat(node, identity)) {
            Step::Wait(at) => Step::Wait(at.min(poll_by)),
            step => step,
        }
    }

    /// Leaves because the application has not polled for `max.poll.interval.ms`. Its partitions go to other members,
    /// and it joins again at the next poll. A static member of the classic protocol only stops its heartbeats, as in
    /// the Java client.
    fn neglected(&mut self, now: Instant) -> Step {
        self.depart(Departure::ByKind);
        if matches!(self.handing, Handing::Nothing) {
            self.rejoin = false;
            self.phase = Phase::Yielding(Letting::Lost, self.owned.iter().cloned().collect());
        } else {
            self.handing = Handing::ThenLost;
        }
        self.next(now)
    }

    fn protocols(&self) -> Vec<(&'static str, Bytes)> {
        let given = self.given.as_ref().map(|(partitions, generation)| (partitions, *generation));
        let one = |assignor: &Assignor| {
            let subscription = Subscription {
                topics: self.topics.iter().cloned().collect(),
                user_data: assignor.user_data(given),
                owned: assignor::by_topic(&self.owned),
                generation: given.map_or(-1, |(_, generation)| generation),
                rack: self.settings.rack.clone(),
            };
            (assignor.name(), subscription.encode(consumer_protocol::VERSION))
        };
        self.settings.protocol.assignors().iter().map(one).collect()
    }
}
