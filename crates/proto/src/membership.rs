//! One member of a consumer group: of the classic protocol (KIP-62, KIP-394, KIP-345, KIP-429), where the members
//! assign, or of the consumer protocol (KIP-848), where the coordinator does ([`reconciliation`]).
//!
//! The machine knows what to ask of the coordinator next ([`Membership::next`]) and what the answers mean, and what the
//! application has to do with its partitions ([`Membership::handover`]). Partitions change hands on the application's
//! side only: the coordinator is told that one is free after the application has let go of it.
//!
//! ```text
//!   Out ── subscribe ──▶ Yielding ──▶ Flushing ──▶ Joining ──▶ Assigning ──▶ Syncing ──▶ Offered ──▶ Settled
//!                           ▲  what it owns         (the leader only)        the application takes it │
//!                           └─────────── a rebalance, other topics, a lost membership ────────────────┘
//! ```
//!
//! Under the consumer protocol there is no rebalance to go through: a member joins with a heartbeat and every answer may
//! bring another assignment.
//!
//! ```text
//!   Out ── subscribe ──▶ Flushing ──▶ Joining ──▶ Settled ◀──────────── the application takes it ── Offered
//!                           ▲                        │ what is to be given up                           ▲
//!                           │ lost                   ▼                                                  │ what is new
//!                        Yielding ◀───────────── Yielding ── the application lets go ──▶ Flushing ──────┘
//! ```
//!
//! While the application has something to do (`Yielding`, `Offered`) the member goes on beating. What it has begun to do
//! it finishes: whatever happens meanwhile counts afterwards. An offer that it has not
//! taken yet is dropped when the next rebalance begins: nobody else was given those partitions.

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

/// What a member is configured with.
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
    /// Between repeated requests.
    pub backoff: Backoff,
}

/// Who assigns.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// The leader of the members.
    Classic {
        /// `heartbeat.interval.ms`.
        heartbeat_interval: Duration,
        /// `partition.assignment.strategy`, the preferred one first; at least one.
        assignors: Vec<Assignor>,
    },
    /// The coordinator.
    Consumer {
        /// Id of the member as long as it lives, whatever group it comes back to.
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

    /// The id of a member that no coordinator has given one.
    fn own_id(&self) -> Arc<str> {
        match self {
            Self::Classic { .. } => Arc::default(),
            Self::Consumer { member, .. } => member.clone(),
        }
    }

    /// The interval before the coordinator has named one.
    fn heartbeat_interval(&self) -> Duration {
        match self {
            Self::Classic { heartbeat_interval, .. } => *heartbeat_interval,
            Self::Consumer { .. } => Duration::ZERO,
        }
    }
}

/// Who a member is to its coordinator.
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
    /// Empty for a member that is new.
    pub member: Arc<str>,
    /// What to tell each assignor, by its name.
    pub protocols: Vec<(&'static str, Bytes)>,
}

/// A SyncGroup to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The member.
    pub identity: Identity,
    /// The assignor that the group has chosen.
    pub protocol: Assignor,
    /// From the leader: everybody's assignment.
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
    /// Wait until commits that were handed over are answered, and report with [`Membership::flushed`]; look again at
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
    /// Find out what these topics are called, not beyond this time, and report with [`Membership::resolved`].
    Resolve(Vec<Uuid>, Instant),
    /// Tell this broker that the member has gone, and report with [`Membership::left`].
    Leave(Node, Identity),
}

/// What the application has to do with its partitions, to be reported with [`Membership::handed_over`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Let go of these before the member joins again.
    Revoke(Vec<Key>),
    /// Forget these: others may be reading them already.
    Lose(Vec<Key>),
    /// Let go of some and begin with others.
    Adopt {
        /// To let go of, first.
        revoked: Vec<Key>,
        /// To begin with; empty if there is nothing new.
        added: Vec<Key>,
    },
}

/// Under whom offsets can be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Under this identity.
    Member(Identity),
    /// A rebalance is under way: later.
    Rebalancing,
    /// Not at all.
    Outside,
}

/// How far a member is, for who measures it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Course {
    /// It wants nothing.
    #[default]
    Outside,
    /// On its way to an assignment.
    Rebalancing,
    /// On its way too, after its membership has ended: the application has still to hear of it.
    Losing,
    /// It reads what it was given.
    Settled,
    /// It can do nothing more.
    Failed,
}

/// Why the member can do nothing more. `E` is the caller's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason<E> {
    /// The coordinator refused this request for good, perhaps with words of its own.
    Refused(&'static str, ErrorCode, Option<Arc<str>>),
    /// What the caller reported.
    Reported(E),
}

#[derive(Debug)]
enum Phase<E> {
    /// Wants nothing.
    Out,
    /// The application has to let go of what is named.
    Yielding(Letting, Vec<Key>),
    Flushing {
        until: Instant,
    },
    Joining,
    Assigning(Assignor, Arc<[Member]>),
    Syncing(Sync),
    /// The application has to take these.
    Offered(BTreeSet<Key>),
    Settled,
    /// Nothing more, once the application has let go of these.
    Failed(Vec<Key>, Reason<E>, Hearing),
}

/// Whether the application knows of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    Unheard,
    Heard,
}

/// What the application is doing. Until it is done nothing may change what it was told to do: whatever would is put off.
#[derive(Debug)]
enum Handing<E> {
    Nothing,
    UnderWay,
    /// The membership has ended meanwhile.
    ThenLost,
    /// And it cannot be had again.
    ThenFailed(Reason<E>),
}

/// How the application lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letting {
    /// In time.
    Revoked,
    /// Too late.
    Lost,
}

/// What a leader's assignment was made of.
#[derive(Debug, Default)]
struct Leadership {
    /// Topics that some member wants.
    wanted: BTreeSet<Arc<str>>,
    /// Their partitions then.
    counts: Topics,
    /// The coordinator has the assignment already.
    in_force: bool,
}

/// The state of one member.
#[derive(Debug)]
pub struct Membership<E> {
    settings: Settings,
    phase: Phase<E>,
    /// What the application wants to read.
    topics: BTreeSet<Arc<str>>,
    /// What the coordinator was told that it wants.
    joined_for: BTreeSet<Arc<str>>,
    /// What the application reads.
    owned: BTreeSet<Key>,
    /// What a static member has lost and not been given again. Others may not know that it is free.
    missed: BTreeSet<Key>,
    /// What the coordinator gave last, and in which generation.
    given: Option<(Partitions, i32)>,
    member: Arc<str>,
    generation: i32,
    leading: Option<Leadership>,
    /// Under the consumer protocol: between what the coordinator wants and what the application does.
    reconciliation: Option<Reconciliation>,
    coordinator: Option<Node>,
    /// To be told of the end of this membership.
    departure: Option<Identity>,
    /// Join again as soon as the application has nothing to do.
    rejoin: bool,
    handing: Handing<E>,
    beat_at: Instant,
    polled: Instant,
    failures: u32,
    not_before: Option<Instant>,
}

impl<E: Clone> Membership<E> {
    /// A member of nothing.
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
            rejoin: false,
            handing: Handing::Nothing,
            beat_at: now,
            polled: now,
            failures: 0,
            not_before: None,
        }
    }

    /// What the application reads, or is to let go of.
    pub fn owned(&self) -> &BTreeSet<Key> {
        &self.owned
    }

    /// What the application wants to read.
    pub fn topics(&self) -> &BTreeSet<Arc<str>> {
        &self.topics
    }

    /// The coordinator, if one is known.
    pub fn coordinator(&self) -> Option<&Node> {
        self.coordinator.as_ref()
    }

    /// Topics whose metadata the member has to follow: what it wants and, as the leader, what any member wants.
    pub fn follows(&self, topic: &str) -> bool {
        self.topics.contains(topic)
            || self.leading.as_ref().is_some_and(|leading| leading.wanted.contains(topic))
    }

    /// Why the member can do nothing more.
    pub fn failure(&self) -> Option<&Reason<E>> {
        match &self.phase {
            Phase::Failed(_, reason, _) => Some(reason),
            _ => None,
        }
    }

    /// What to tell an application that polls: why the member can do nothing more. What somebody can mend meanwhile,
    /// such as a missing right, is tried again with the poll after the one that was told.
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

    /// Whether the member reads what it was given and no rebalance is known to be under way.
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Settled) && !self.rejoin
    }

    /// How far the member is.
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

    /// Under whom offsets can be committed now.
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

    /// Who the member is to its coordinator, also while a rebalance is under way.
    pub fn identity(&self) -> Option<Identity> {
        let known = self.generation >= 0 && !self.member.is_empty();
        known.then(|| Identity { generation: self.generation, member: self.member.clone() })
    }

    /// The application wants to read these topics, and no others. A member that has failed tries anew.
    pub fn subscribe(&mut self, topics: BTreeSet<Arc<str>>, now: Instant) {
        self.want(topics, None, now);
    }

    /// The application wants to read the topics that this regular expression means to the coordinator. Of the consumer
    /// protocol only.
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
            // The difference is seen when what is under way has come to its end.
            _ => {}
        }
    }

    /// The application wants nothing more and reads nothing more. A dynamic member says goodbye; a static one keeps its
    /// place until its session ends.
    pub fn leave(&mut self) {
        self.depart();
        self.handing = Handing::Nothing;
        self.phase = Phase::Out;
        self.topics.clear();
        self.owned.clear();
        self.missed.clear();
        self.given = None;
        self.rejoin = false;
    }

    fn depart(&mut self) {
        let is_static = self.settings.instance.is_some();
        let generation = match &mut self.reconciliation {
            Some(reconciliation) => reconciliation.farewell(is_static),
            None => (!is_static && !self.member.is_empty()).then_some(self.generation),
        };
        if let Some(generation) = generation {
            self.departure = Some(Identity { generation, member: self.member.clone() });
            self.retry_at_once();
        }
        self.forget_membership();
    }

    /// Whether the member is on its way through a rebalance, which may take long. It is not any more when the application
    /// has left meanwhile.
    pub fn awaits_group(&self) -> bool {
        let assigns = self.reconciliation.is_none();
        assigns && matches!(self.phase, Phase::Joining | Phase::Assigning(..) | Phase::Syncing(_))
    }

    /// Whether the coordinator has still to be told that the member has gone.
    pub fn is_departing(&self) -> bool {
        self.departure.is_some()
    }

    /// The application has asked for records, or is waiting for some.
    pub fn polled(&mut self, now: Instant) {
        self.polled = self.polled.max(now);
    }

    /// The partitions of topics may have changed. A leader asks for a rebalance if those that it has assigned did.
    pub fn look_at_topics(&mut self, count_of: impl Fn(&str) -> Option<i32>, now: Instant) {
        let Some(leading) = &self.leading else { return };
        if matches!(self.phase, Phase::Assigning(..)) {
            return;
        }
        let changed = leading.wanted.iter().any(|topic| {
            // A topic that is not known now has perhaps only been forgotten for a moment.
            count_of(topic).is_some_and(|count| leading.counts.get(topic) != Some(&count))
        });
        if changed {
            self.ask_to_rejoin(now);
        }
    }

    /// Whether the application has something to do.
    pub fn wants_application(&self) -> bool {
        matches!(self.handing, Handing::Nothing) && self.due().is_some()
    }

    /// What the application has to do. It is to do it and then call [`Self::handed_over`], whatever happens meanwhile.
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

    /// The application has done it.
    pub fn handed_over(&mut self, now: Instant) {
        // Only an application that polls does it.
        self.polled(now);
        let meanwhile = std::mem::replace(&mut self.handing, Handing::Nothing);
        self.hand_over(now);
        match meanwhile {
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
                // A static member that comes back is given what it was last given, without a rebalance (KIP-345). What
                // it still had to let go of then is nobody's: cooperatively, it would have asked for a rebalance after it
                // had let go.
                let cooperative = self.rebalance() == Rebalance::Cooperative;
                let missed = std::mem::take(&mut self.missed);
                let gave_up = gave_up || cooperative && !missed.is_subset(&offer);
                self.owned = offer;
                self.phase = Phase::Settled;
                if self.reconciliation.is_some() {
                    return self.reconcile();
                }
                // What it gave up can be handed out in the next rebalance.
                if gave_up || self.rejoin || self.topics != self.joined_for {
                    self.begin(now);
                }
            }
            _ => {}
        }
    }

    /// Begins a rebalance on this side: first the application lets go of what the protocol asks for.
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
            // Commits of what was given up in the last handover may be under way.
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
            // These lead to a new generation, or have seen what is new.
            Phase::Assigning(..) | Phase::Syncing(_) => self.rejoin = true,
            _ => {}
        }
    }

    /// The coordinator does not count this member any more: what it owns may belong to others.
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

    /// What to do now.
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
                self.at_coordinator(now, |node| Step::Join(node, join))
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

    /// Stays in the group: beats, as long as the application polls.
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

    /// The application has not polled for `max.poll.interval.ms`: its partitions go to others, and it joins again when
    /// it polls again. A static member of the classic protocol only stops beating, as in the Java client.
    fn neglected(&mut self, now: Instant) -> Step {
        self.depart();
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
