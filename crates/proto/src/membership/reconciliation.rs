//! The consumer protocol (KIP-848), which needs one request: ConsumerGroupHeartbeat.
//!
//! The heartbeat reports the member's changes, and its response carries the member's target assignment. The member
//! acknowledges a revocation after the application has revoked the partitions and their commits have a response. Only
//! then does the coordinator assign them to other members.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use curtail_wire::Uuid;

use super::{Handing, Identity, Key, Letting, Membership, Phase, Protocol, Step, Trouble};
use crate::later::Later;

/// Partitions by topic id.
pub type TopicIds = BTreeMap<Uuid, BTreeSet<i32>>;

/// Epoch of a member that joins.
const JOINS: i32 = 0;
/// Epoch of a member that leaves.
const LEAVES: i32 = -1;
/// Epoch of a static member that leaves and keeps its place.
const LEAVES_FOR_A_WHILE: i32 = -2;

/// A ConsumerGroupHeartbeat to send. A field that is `None` has not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHeartbeat {
    /// The member.
    pub member: Arc<str>,
    /// Its epoch; 0 to join.
    pub epoch: i32,
    /// How long the coordinator waits for the member to revoke partitions.
    pub rebalance_timeout: Option<Duration>,
    /// `client.rack`.
    pub rack: Option<Arc<str>>,
    /// `group.remote.assignor`.
    pub assignor: Option<Arc<str>>,
    /// Topics subscribed to by name.
    pub topics: Option<Vec<Arc<str>>>,
    /// Topics subscribed to by a regular expression; empty to end that subscription.
    pub pattern: Option<Arc<str>>,
    /// Partitions that it owns.
    pub owned: Option<TopicIds>,
}

impl GroupHeartbeat {
    /// The last heartbeat of a member, with the epoch that states how it leaves.
    #[must_use]
    pub fn farewell(identity: &Identity) -> Self {
        Self {
            member: identity.member.clone(),
            epoch: identity.generation,
            rebalance_timeout: None,
            rack: None,
            assignor: None,
            topics: None,
            pattern: None,
            owned: None,
        }
    }
}

/// The response to a ConsumerGroupHeartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReply {
    /// The member's epoch from now on.
    pub epoch: i32,
    /// Time until the next heartbeat.
    pub interval: Duration,
    /// The member's target assignment, if it has changed.
    pub assignment: Option<TopicIds>,
}

/// The member's state as reported in a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    topics: BTreeSet<Arc<str>>,
    pattern: Option<Arc<str>>,
    owned: TopicIds,
    /// Assignments acknowledged. The coordinator may wait for an acknowledgement even if the owned partitions have not
    /// changed: an offer was withdrawn before it was taken, or a response was lost.
    acknowledged: u32,
}

/// The state between the coordinator's target and the application's partitions.
#[derive(Debug)]
pub(super) struct Reconciliation {
    /// The regular expression subscribed to.
    pub(super) pattern: Option<Arc<str>>,
    /// Whether the coordinator has ever been sent a pattern.
    pattern_known: bool,
    /// Contents of the heartbeat in flight.
    saying: Option<Told>,
    /// Contents of the last heartbeat with a response.
    told: Option<Told>,
    /// Whether the coordinator may count this member: it received a join and no leave.
    met: bool,
    /// The epoch in which this membership began.
    since: i32,
    target: TopicIds,
    /// Whether the target is new: the application is notified even if it changes nothing.
    fresh: bool,
    /// Whether an acknowledgement is due: an assignment was taken, or an offer withdrawn.
    owes_word: bool,
    acknowledged: u32,
    /// Whether a heartbeat with owned partitions was sent, and none has had a response without an error since.
    claiming: bool,
    /// Names of the topics in the target and of the owned topics.
    names: BTreeMap<Uuid, Arc<str>>,
    /// Earliest time of the next request for topic names.
    resolve_at: Instant,
    /// Partitions reported as owned: the application's, and revoked ones with commits in flight.
    claimed: BTreeSet<Key>,
}

impl Reconciliation {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pattern: None,
            pattern_known: false,
            saying: None,
            told: None,
            met: false,
            since: -1,
            target: TopicIds::new(),
            fresh: false,
            owes_word: false,
            acknowledged: 0,
            claiming: false,
            names: BTreeMap::new(),
            resolve_at: now,
            claimed: BTreeSet::new(),
        }
    }

    /// Returns the epoch with which to leave, if the coordinator may count this member and must know. A dynamic member
    /// that keeps its place sends nothing.
    pub(super) fn farewell(&mut self, is_static: bool, leaves: bool) -> Option<i32> {
        let met = std::mem::take(&mut self.met);
        match (leaves, is_static) {
            (true, _) => met.then_some(LEAVES),
            (false, true) => met.then_some(LEAVES_FOR_A_WHILE),
            (false, false) => None,
        }
    }

    /// Ends the membership and keeps the subscription.
    pub(super) fn forget(&mut self) {
        self.saying = None;
        self.told = None;
        self.since = -1;
        self.target.clear();
        self.fresh = false;
        self.owes_word = false;
        self.claiming = false;
        self.claimed.clear();
    }

    /// Counts the offer as owned from now on, because the application begins to take it.
    pub(super) fn taken(&mut self, offer: &BTreeSet<Key>) {
        self.fresh = false;
        self.owes_word = true;
        self.claimed.extend(offer.iter().cloned());
    }

    /// Whether the coordinator may have acted on a heartbeat with owned partitions whose result is unknown. Until a
    /// response without an error the application must not take any: the coordinator may have assigned to others the
    /// partitions that were not reported as owned. An error proves nothing. Kafka's `CoordinatorRuntime` returns one when
    /// an append times out, and does not revert the append.
    pub(super) fn is_claiming(&self) -> bool {
        self.claiming
    }

    fn claims_in(&self, to_tell: &Told) -> bool {
        self.told.as_ref().is_none_or(|told| {
            (&told.owned, told.acknowledged) != (&to_tell.owned, to_tell.acknowledged)
        })
    }

    /// Whether this membership began in this epoch or earlier.
    pub(super) fn was_member_in(&self, epoch: i32) -> bool {
        self.since >= 0 && epoch >= self.since
    }

    fn unresolved(&self) -> Vec<Uuid> {
        self.target.keys().filter(|id| !self.names.contains_key(*id)).copied().collect()
    }

    /// The coordinator's target, as far as the topics' names are known.
    fn resolved(&self) -> BTreeSet<Key> {
        let known = self.target.iter().filter_map(|(id, partitions)| {
            let name = self.names.get(id)?;
            Some(partitions.iter().map(|index| (name.clone(), *index)))
        });
        known.flatten().collect()
    }

    fn aim(&mut self, target: TopicIds) {
        let shrinks = self.target.iter().any(|(id, partitions)| {
            target.get(id).is_none_or(|wanted| !partitions.is_subset(wanted))
        });
        self.owes_word |= shrinks;
        self.fresh = true;
        self.target = target;
    }

    fn claim(&mut self, owned: &BTreeSet<Key>) {
        self.claimed.clone_from(owned);
        let target = &self.target;
        let topics: BTreeSet<&Arc<str>> = owned.iter().map(|(topic, _)| topic).collect();
        self.names.retain(|id, name| target.contains_key(id) || topics.contains(name));
    }

    /// The reported partitions, by topic id. Of two topics of one name it reports the one in the target: the other was
    /// deleted.
    fn claims(&self) -> TopicIds {
        let mut ids: BTreeMap<&Arc<str>, Uuid> = BTreeMap::new();
        for (id, name) in &self.names {
            if self.target.contains_key(id) || !ids.contains_key(name) {
                ids.insert(name, *id);
            }
        }
        let mut claims = TopicIds::new();
        for (topic, index) in &self.claimed {
            if let Some(id) = ids.get(topic) {
                claims.entry(*id).or_default().insert(*index);
            }
        }
        claims
    }
}

impl<E: Clone> Membership<E> {
    fn to_tell(&self) -> Option<Told> {
        let reconciliation = self.reconciliation.as_ref()?;
        Some(Told {
            topics: self.topics.clone(),
            pattern: reconciliation.pattern.clone(),
            owned: reconciliation.claims(),
            acknowledged: reconciliation.acknowledged,
        })
    }

    /// As [`Self::stay`]: sends a heartbeat at the interval, and at once when there is a change to report.
    pub(super) fn stay_in_group(&mut self, now: Instant, poll_by: Instant) -> Step {
        let to_tell = self.to_tell();
        let Some(reconciliation) = &self.reconciliation else { return Step::Idle };
        if now >= self.beat_at || reconciliation.told != to_tell {
            return match self.beat_group(now) {
                Step::Wait(at) => Step::Wait(at.min(poll_by)),
                step => step,
            };
        }
        let until = self.beat_at.min(poll_by);
        let unresolved = reconciliation.unresolved();
        if unresolved.is_empty() {
            return Step::Wait(until);
        }
        if now < reconciliation.resolve_at {
            return Step::Wait(until.min(reconciliation.resolve_at));
        }
        Step::Resolve(unresolved, until)
    }

    /// Sends a heartbeat: with all fields to join and after an error, otherwise with the changes.
    pub(super) fn beat_group(&mut self, now: Instant) -> Step {
        let (Some(to_tell), Some(heartbeat)) = (self.to_tell(), self.group_heartbeat()) else {
            return Step::Idle;
        };
        let step = self.at_coordinator(now, |node| Step::GroupHeartbeat(node, heartbeat));
        if let (Step::GroupHeartbeat(..), Some(reconciliation)) = (&step, &mut self.reconciliation)
        {
            reconciliation.met = true;
            reconciliation.pattern_known |= to_tell.pattern.is_some();
            reconciliation.claiming |= reconciliation.claims_in(&to_tell);
            reconciliation.saying = Some(to_tell);
        }
        step
    }

    fn group_heartbeat(&self) -> Option<GroupHeartbeat> {
        let to_tell = self.to_tell()?;
        let reconciliation = self.reconciliation.as_ref()?;
        let Protocol::Consumer { member, assignor } = &self.settings.protocol else { return None };
        let told = reconciliation.told.as_ref();
        let is_new = |changed: fn(&Told, &Told) -> bool| told.is_none_or(|t| changed(t, &to_tell));
        let pattern = match &to_tell.pattern {
            Some(pattern) => Some(pattern.clone()),
            None => reconciliation.pattern_known.then(Arc::default),
        };
        Some(GroupHeartbeat {
            member: member.clone(),
            epoch: self.generation.max(JOINS),
            rebalance_timeout: told.is_none().then_some(self.settings.max_poll_interval),
            rack: self.settings.rack.clone().filter(|_| told.is_none()),
            assignor: assignor.clone().filter(|_| told.is_none()),
            topics: is_new(|a, b| a.topics != b.topics)
                .then(|| to_tell.topics.iter().cloned().collect()),
            pattern: pattern.filter(|_| is_new(|a, b| a.pattern != b.pattern)),
            owned: reconciliation.claims_in(&to_tell).then_some(to_tell.owned),
        })
    }

    /// Reports the response to [`Step::GroupHeartbeat`].
    pub fn group_beaten(&mut self, reply: Result<GroupReply, Trouble<E>>, now: Instant, unit: f64) {
        let Some(reconciliation) = &mut self.reconciliation else { return };
        // Without `saying`, the membership of that heartbeat has ended since.
        let Some(saying) = reconciliation.saying.take() else { return };
        reconciliation.told = None;
        self.beat_at = now;
        match reply {
            Ok(reply) if reply.epoch > JOINS => {
                reconciliation.told = Some(saying);
                reconciliation.claiming = false;
                self.counted(reply, now);
            }
            // The coordinator takes the member for gone: this is no response to the request.
            Ok(_) => self.failed_once(now, unit),
            Err(trouble) => self.handle("ConsumerGroupHeartbeat", trouble, now, unit),
        }
    }

    fn counted(&mut self, reply: GroupReply, now: Instant) {
        self.retry_at_once();
        self.beat_at = now.later(reply.interval.max(Duration::from_millis(1)));
        self.generation = reply.epoch;
        let Some(reconciliation) = &mut self.reconciliation else { return };
        if let Phase::Joining = self.phase {
            reconciliation.since = reply.epoch;
            self.phase = Phase::Settled;
        }
        if let Some(assignment) = reply.assignment {
            reconciliation.resolve_at = now;
            reconciliation.aim(assignment);
            self.look_at_target();
        }
    }

    /// Reports the outcome of [`Step::Resolve`]: the names of the known topics.
    pub fn resolved(&mut self, names: impl IntoIterator<Item = (Uuid, Arc<str>)>, now: Instant) {
        let Some(reconciliation) = &mut self.reconciliation else { return };
        let target = &reconciliation.target;
        let wanted = names.into_iter().filter(|(id, _)| target.contains_key(id));
        reconciliation.names.extend(wanted.collect::<Vec<_>>());
        reconciliation.resolve_at = now.later(self.settings.backoff.max);
        self.look_at_target();
    }

    /// Handles a new target or new topic names. A handover in progress ends first.
    fn look_at_target(&mut self) {
        let at_rest = matches!(self.handing, Handing::Nothing);
        let ready = matches!(
            self.phase,
            Phase::Settled | Phase::Offered(_) | Phase::Yielding(Letting::Revoked, _)
        );
        if at_rest && ready {
            self.reconcile();
        }
    }

    /// Continues after a revocation whose commits all have a response: with another revocation or an offer.
    pub(super) fn reconcile(&mut self) {
        let Some(reconciliation) = &mut self.reconciliation else { return };
        // The membership may have ended during the handover.
        if self.generation < 0 {
            return;
        }
        reconciliation.claim(&self.owned);
        let wanted = reconciliation.resolved();
        let gone: Vec<Key> = self.owned.difference(&wanted).cloned().collect();
        if !gone.is_empty() {
            self.phase = Phase::Yielding(Letting::Revoked, gone);
            return;
        }
        if std::mem::take(&mut reconciliation.owes_word) {
            reconciliation.acknowledged = reconciliation.acknowledged.wrapping_add(1);
        }
        let news = reconciliation.fresh || wanted != self.owned;
        self.phase = if news { Phase::Offered(wanted) } else { Phase::Settled };
    }
}
