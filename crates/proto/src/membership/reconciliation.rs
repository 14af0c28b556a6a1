//! The consumer protocol (KIP-848): one request, in which the member says what has changed on its side, and in whose
//! answer the coordinator says what the member is to read. What was taken away is acknowledged when the application has
//! let go of it and its commits are answered; only then the coordinator gives it to others.

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

/// A ConsumerGroupHeartbeat to send. What is `None` has not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHeartbeat {
    /// The member.
    pub member: Arc<str>,
    /// Its epoch; 0 to join.
    pub epoch: i32,
    /// How long the coordinator waits for it to let go of partitions.
    pub rebalance_timeout: Option<Duration>,
    /// `client.rack`.
    pub rack: Option<Arc<str>>,
    /// `group.remote.assignor`.
    pub assignor: Option<Arc<str>>,
    /// Topics that it wants by name.
    pub topics: Option<Vec<Arc<str>>>,
    /// Topics that it wants by a regular expression; empty for none any more.
    pub pattern: Option<Arc<str>>,
    /// What it owns.
    pub owned: Option<TopicIds>,
}

impl GroupHeartbeat {
    /// The last one of a member, with the epoch that says how it leaves.
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

/// The answer to a ConsumerGroupHeartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReply {
    /// The member's epoch from now on.
    pub epoch: i32,
    /// When to beat again.
    pub interval: Duration,
    /// What the member is to read, if that has changed.
    pub assignment: Option<TopicIds>,
}

/// What a heartbeat tells of the member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    topics: BTreeSet<Arc<str>>,
    pattern: Option<Arc<str>>,
    owned: TopicIds,
    /// Assignments acknowledged. The coordinator may wait for a word even if nothing has changed that is owned: an offer
    /// was withdrawn before it was taken, or an answer was lost.
    acknowledged: u32,
}

/// Between what the coordinator wants and what the application does.
#[derive(Debug)]
pub(super) struct Reconciliation {
    /// The regular expression subscribed to.
    pub(super) pattern: Option<Arc<str>>,
    /// The coordinator was told one at some time.
    pattern_known: bool,
    /// What the heartbeat says that is under way.
    saying: Option<Told>,
    /// What the last one said that was answered.
    told: Option<Told>,
    /// The coordinator may count this member: it was asked to, and not told that the member leaves.
    met: bool,
    /// The epoch in which this membership began.
    since: i32,
    target: TopicIds,
    /// The target is new: the application hears of it even if it changes nothing.
    fresh: bool,
    /// An assignment was taken, or an offer withdrawn: the coordinator has to be told.
    owes_word: bool,
    acknowledged: u32,
    /// Names of topics in the target and of those owned.
    names: BTreeMap<Uuid, Arc<str>>,
    /// Not before this time names are asked for again.
    resolve_at: Instant,
    /// What the coordinator is told is owned: what the application reads, and what it has let go of while commits of it
    /// are under way.
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
            names: BTreeMap::new(),
            resolve_at: now,
            claimed: BTreeSet::new(),
        }
    }

    /// The epoch that says goodbye, if anybody has to be told.
    pub(super) fn farewell(&mut self, is_static: bool) -> Option<i32> {
        let epoch = if is_static { LEAVES_FOR_A_WHILE } else { LEAVES };
        std::mem::take(&mut self.met).then_some(epoch)
    }

    /// The member is none any more. It keeps what it is subscribed to.
    pub(super) fn forget(&mut self) {
        self.saying = None;
        self.told = None;
        self.since = -1;
        self.target.clear();
        self.fresh = false;
        self.owes_word = false;
        self.claimed.clear();
    }

    /// The application begins to take what was offered. From now on it counts as owned.
    pub(super) fn taken(&mut self, offer: &BTreeSet<Key>) {
        self.fresh = false;
        self.owes_word = true;
        self.claimed.extend(offer.iter().cloned());
    }

    /// Whether a heartbeat is under way that says what is owned. Nothing can be taken meanwhile: the coordinator may
    /// give to others what it is told that this member does not own.
    pub(super) fn is_claiming(&self) -> bool {
        self.saying.as_ref().is_some_and(|saying| self.claims_in(saying))
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

    /// What the coordinator wants, as far as the topics' names are known.
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

    /// What is claimed, by topic id. Of two topics of one name the one in the target is meant: the other was deleted.
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

    /// As [`Self::stay`]: beats at the interval, and at once when there is something to tell.
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

    /// A heartbeat: everything to join and after an error, and otherwise what has changed.
    pub(super) fn beat_group(&mut self, now: Instant) -> Step {
        let (Some(to_tell), Some(heartbeat)) = (self.to_tell(), self.group_heartbeat()) else {
            return Step::Idle;
        };
        let step = self.at_coordinator(now, |node| Step::GroupHeartbeat(node, heartbeat));
        if let (Step::GroupHeartbeat(..), Some(reconciliation)) = (&step, &mut self.reconciliation)
        {
            reconciliation.met = true;
            reconciliation.pattern_known |= to_tell.pattern.is_some();
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

    /// The answer to [`Step::GroupHeartbeat`].
    pub fn group_beaten(&mut self, reply: Result<GroupReply, Trouble<E>>, now: Instant, unit: f64) {
        let Some(reconciliation) = &mut self.reconciliation else { return };
        // Without that the membership which it was for has ended meanwhile.
        let Some(saying) = reconciliation.saying.take() else { return };
        reconciliation.told = None;
        self.beat_at = now;
        match reply {
            Ok(reply) if reply.epoch > JOINS => {
                reconciliation.told = Some(saying);
                self.counted(reply, now);
            }
            // The coordinator takes the member for gone: no answer to what it was asked.
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

    /// The outcome of [`Step::Resolve`]: names of the topics that are known.
    pub fn resolved(&mut self, names: impl IntoIterator<Item = (Uuid, Arc<str>)>, now: Instant) {
        let Some(reconciliation) = &mut self.reconciliation else { return };
        let target = &reconciliation.target;
        let wanted = names.into_iter().filter(|(id, _)| target.contains_key(id));
        reconciliation.names.extend(wanted.collect::<Vec<_>>());
        reconciliation.resolve_at = now.later(self.settings.backoff.max);
        self.look_at_target();
    }

    /// Something else is wanted, or has become known. What the application is doing it finishes first.
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

    /// What has been let go of is let go of, and every commit of it is answered. What comes next: more to let go of, or
    /// something to take.
    pub(super) fn reconcile(&mut self) {
        let Some(reconciliation) = &mut self.reconciliation else { return };
        // The membership may have ended while the application was taking something.
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
