//! Routing of keyless records: away from unhealthy partitions and from slow brokers.
//!
//! A review ([`review()`]) determines the usable partitions, and moves batches out of those that are no longer usable.
//! The choice among the usable partitions ([`next`]) reads each broker's load without a lock, in time proportional to
//! the number of brokers. Only the trial of a broker looks into two partitions. Senders request a choice, holding no
//! partition's lock, when the sticky choice moves, or when a batch would be opened at a broker that has become slow.

mod review;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use curtail_proto::{
    accumulator::Batch,
    partitioner::{
        Candidate, LOOKS, Next, Role, Rule, Standing, Tests, by_queued_batches, choose, is_late,
        pick,
    },
};
use tokio::time::Instant;

pub(super) use self::review::{Reviewed, is_stuck, review};
use super::{
    delivery::Completion,
    lane::Lane,
    memory::NOWHERE,
    partition::{Partition, PartitionState, StateGuard},
    shared::{Shared, resubmit},
    standing::{Slot, Trial},
    topic::TopicState,
};
use crate::{
    ProducerConfig,
    config::{Acks, PartitionerLoad},
};

/// Number of choices after which a record or a batch stays where it is: every partition seems unhealthy.
pub(super) const TRIES: u32 = 3;

/// Distribution policy for a producer's keyless records.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) rule: Rule,
    /// `curtail.route.around.trouble`.
    pub(super) around_trouble: bool,
    /// Whether batches move. Batches of a transaction do not: an abort would overlook one that is between two
    /// partitions.
    moves: bool,
    /// Whether a partition acknowledges only when its in-sync replicas do.
    needs_replicas: bool,
    /// Whether partitions with an acknowledged batch are preferred.
    pub(super) prefers_proven: bool,
    /// Whether there are side lanes. Without followers to wait for, nothing would be gained.
    pub(super) separates: bool,
    /// Whether keyless records try new leaders on the side lane (`curtail.separate.unproven.partitions`).
    pub(super) separates_new_leaders: bool,
    /// `client.rack`, with `partitioner.rack.aware`.
    rack: Option<String>,
}

/// The routing of one producer.
#[derive(Debug)]
pub(super) struct Routing {
    pub(super) policy: Policy,
    pub(super) counters: Counters,
}

impl Routing {
    pub(super) fn of(config: &ProducerConfig) -> Self {
        Self { policy: Policy::of(config), counters: Counters::default() }
    }
}

impl Policy {
    /// Whether a connection is closed if its broker waits for an unreachable replica and so delays other partitions.
    pub(super) fn gives_up_what_waits(&self) -> bool {
        self.around_trouble && self.needs_replicas
    }

    /// Whether what is queued behind a batch that tries the partition's leader should move.
    pub(super) fn leaves_trials(&self, partition: &Partition) -> bool {
        self.moves && self.prefers_proven && !partition.standing.is_proven()
    }

    /// Whether batches that no broker has written may move to other partitions.
    pub(super) fn moves(&self) -> bool {
        self.moves
    }

    fn of(config: &ProducerConfig) -> Self {
        let availability = config.partitioner_availability_timeout;
        let availability_timeout = (!availability.is_zero()).then_some(availability);
        let rule = match (config.partitioner_adaptive, config.partitioner_load) {
            (false, _) => Rule::Uniform,
            (true, PartitionerLoad::Wait) => Rule::Adaptive { availability_timeout },
            (true, PartitionerLoad::QueuedBatches) => Rule::QueuedBatches { availability_timeout },
        };
        let rack = &config.common.client_rack;
        Self {
            rule,
            around_trouble: config.route_around_trouble,
            moves: config.route_around_trouble && config.transactional_id.is_none(),
            needs_replicas: config.acks == Acks::All,
            prefers_proven: config.prefer_proven_partitions
                && matches!(rule, Rule::Adaptive { .. })
                && config.acks != Acks::None,
            separates: config.acks == Acks::All,
            separates_new_leaders: config.separate_unproven_partitions && config.acks == Acks::All,
            rack: (config.partitioner_rack_aware && !rack.is_empty()).then(|| rack.clone()),
        }
    }
}

/// The usable partitions of a topic, by the lane of their leader. A review replaces it as a whole.
#[derive(Default)]
pub(super) struct Routes {
    by_lane: Box<[Route]>,
    /// Number of partitions that are avoided because of trouble.
    avoided: usize,
}

impl Routes {
    /// Creates a broker's route, and keeps its current trial.
    fn carry_on(&self, lane: Option<Arc<Lane>>, partitions: Vec<u32>) -> Route {
        let broker = lane.as_ref().map_or(NOWHERE, |lane| lane.broker);
        let former = self.by_lane.iter().find(|route| route.broker() == broker);
        let trial = former.map_or_else(Trial::default, |route| route.trial.carry_on());
        let pioneer = former.map_or_else(Slot::default, |route| route.pioneer.carry_on());
        let home = former.map_or_else(Slot::default, |route| route.home.carry_on());
        Route { lane, partitions: partitions.into(), trial, pioneer, home }
    }

    /// Whether partitions are avoided because of trouble.
    pub(super) fn avoid_some(&self) -> bool {
        self.avoided > 0
    }

    /// Whether a partition of any broker is under trial. Each trial delays what its broker was sent after it, so trials
    /// at all brokers at once would leave no fast one.
    fn are_trying(&self, topic: &TopicState, now: Duration) -> bool {
        let trials = self.by_lane.iter().filter_map(|route| route.trial.partition(now));
        trials.into_iter().any(|index| !topic.is_proven(index))
    }

    fn homes<'a>(&'a self, topic: &TopicState) -> Vec<Home<'a>> {
        let home = |route: &'a Route| {
            Some(Home { route, lane: route.lane.as_ref()?, partition: route.home(topic)? })
        };
        self.by_lane.iter().filter_map(home).collect()
    }
}

struct Route {
    /// The main lane; `None` for partitions without a leader, which are usable only if no partition has one.
    lane: Option<Arc<Lane>>,
    /// In ascending order.
    partitions: Box<[u32]>,
    trial: Trial,
    /// The partition that receives all records while none is proven.
    pioneer: Slot,
    /// The partition that was proven first, which may have a backlog. It may be in doubt again.
    home: Slot,
}

/// A broker with a proven partition.
struct Home<'a> {
    route: &'a Route,
    lane: &'a Lane,
    partition: u32,
}

/// Purpose of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Records to come. The choice may be a single record that tests a broker or a partition.
    Coming { probe_due: bool },
    /// Records that exist, which should not wait for a test.
    Waiting,
}

/// Counters of a producer's choices.
#[derive(Debug, Default)]
pub(super) struct Counters {
    choices: AtomicU64,
    past_slow: AtomicU64,
    past_trouble: AtomicU64,
    probes: AtomicU64,
    moved_batches: AtomicU64,
    moved_records: AtomicU64,
    behind_newer: AtomicU64,
}

/// Routing of keyless records, counted since the producer's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoutingMetrics {
    /// Number of choices of a partition for later keyless records.
    pub choices: u64,
    /// Choices that avoided a broker because its responses are slower than others'.
    pub choices_past_slow: u64,
    /// Choices that avoided a partition because it cannot be expected to acknowledge.
    pub choices_past_trouble: u64,
    /// Records sent to a slow broker to test whether it still is slow.
    pub probes: u64,
    /// Batches that no broker had written, and that moved from an unhealthy partition to another one.
    pub moved_batches: u64,
    /// Records in these batches.
    pub moved_records: u64,
    /// Records placed again after newer ones of their partition had been sent, so that they are written after these.
    pub records_behind_newer: u64,
}

impl Counters {
    pub(super) fn read(&self) -> RoutingMetrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RoutingMetrics {
            choices: read(&self.choices),
            choices_past_slow: read(&self.past_slow),
            choices_past_trouble: read(&self.past_trouble),
            probes: read(&self.probes),
            moved_batches: read(&self.moved_batches),
            moved_records: read(&self.moved_records),
            records_behind_newer: read(&self.behind_newer),
        }
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Brokers at which one search has found no acceptable partition.
#[derive(Debug, Default)]
pub(super) struct Passed(Vec<i32>);

impl Passed {
    fn add(&mut self, broker: i32) {
        self.0.push(broker);
    }
}

/// Chooses the partition for later keyless records.
pub(super) fn next(shared: &Shared, topic: &TopicState, probe_due: bool) -> Next {
    next_past(shared, topic, Purpose::Coming { probe_due }, &Passed::default())
}

/// As [`next`], without these brokers if there are others.
///
/// A broker that refuses batches responds at once, and so looks fast. Only the backoff of its partitions shows the
/// refusals.
fn next_past(shared: &Shared, topic: &TopicState, purpose: Purpose, passed: &Passed) -> Next {
    let routes = topic.routes.load();
    let now = shared.age(Instant::now());
    let mut candidates: Vec<Candidate> =
        routes.by_lane.iter().map(|route| route.candidate(now)).collect();
    let is_passed = |route: &Route| passed.0.contains(&route.broker());
    if !routes.by_lane.iter().all(is_passed) {
        for (candidate, route) in candidates.iter_mut().zip(&routes.by_lane) {
            candidate.partitions = if is_passed(route) { 0 } else { candidate.partitions };
        }
    }
    let draw = shared.env.entropy.next_u64();
    count(&shared.routing.counters.choices, 1);
    if let Rule::QueuedBatches { availability_timeout } = shared.routing.policy.rule
        && let Some(next) = by_queue(topic, &routes, &candidates, availability_timeout, draw)
    {
        return next;
    }
    if shared.routing.policy.prefers_proven {
        let due = keep_to_proven(topic, &routes, &mut candidates, now);
        let due = due.filter(|_| purpose != Purpose::Waiting);
        if let Some(next) = due.and_then(|route| route.try_one(topic, draw, now)) {
            return next;
        }
    }
    let probe_due = purpose == Purpose::Coming { probe_due: true };
    let Some(chosen) = choose(&candidates, shared.routing.policy.rule, probe_due, draw) else {
        // Not reviewed yet.
        let partition = draw.checked_rem(topic.form.count as u64).unwrap_or(0) as u32;
        return Next { partition, probe: false };
    };
    topic
        .best_ns
        .store(u64::try_from(chosen.best.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    if candidates.iter().any(|candidate| is_late(candidate.wait, chosen.best)) {
        count(&shared.routing.counters.past_slow, 1);
    }
    if routes.avoided > 0 {
        count(&shared.routing.counters.past_trouble, 1);
    }
    count(&shared.routing.counters.probes, u64::from(chosen.probe));
    let route = &routes.by_lane[chosen.candidate];
    if chosen.probe || !shared.routing.policy.prefers_proven {
        return Next { partition: route.partitions[chosen.nth as usize], probe: chosen.probe };
    }
    let purpose = if routes.are_trying(topic, now) { Purpose::Waiting } else { purpose };
    route.pick(topic, chosen.nth as usize, purpose, now)
}

/// Java's choice. Takes the lock of each usable partition, one after the other. Returns `None` if no broker is available.
fn by_queue(
    topic: &TopicState,
    routes: &Routes,
    candidates: &[Candidate],
    availability_timeout: Option<Duration>,
    draw: u64,
) -> Option<Next> {
    let usable = routes.by_lane.iter().zip(candidates).filter(|(_, candidate)| {
        candidate.partitions > 0 && candidate.is_available(availability_timeout)
    });
    let partitions: Vec<u32> =
        usable.flat_map(|(route, _)| route.partitions.iter().copied()).collect();
    let queued = |&index: &u32| {
        let state = topic.partitions[index as usize].state.lock();
        u32::try_from(state.queue.waiting_batches()).unwrap_or(u32::MAX)
    };
    let queued: Vec<u32> = partitions.iter().map(queued).collect();
    let partition = partitions[by_queued_batches(&queued, draw)?];
    Some(Next { partition, probe: false })
}

/// Leaves out the brokers without a proven partition if another one has some. Returns one of them if it is time to try
/// it with one record.
///
/// After all leaders have moved, some brokers acknowledge within milliseconds, and others only after
/// `replica.fetch.backoff.ms` (decision 0053). Records that wait for a broker of the second kind could be with one of
/// the first.
fn keep_to_proven<'a>(
    topic: &TopicState,
    routes: &'a Routes,
    candidates: &mut [Candidate],
    now: Duration,
) -> Option<&'a Route> {
    let usable = candidates.iter_mut().zip(&routes.by_lane).filter(|(c, _)| c.partitions > 0);
    let (proven, unproven): (Vec<_>, Vec<_>) =
        usable.partition(|(_, route)| route.home(topic).is_some());
    if proven.is_empty() {
        return None;
    }
    let mut due = None;
    for (candidate, route) in unproven {
        candidate.partitions = 0;
        if route.trial.partition(now).is_none() {
            due = Some(route);
        }
    }
    due
}

impl Route {
    fn broker(&self) -> i32 {
        self.lane.as_ref().map_or(NOWHERE, |lane| lane.broker)
    }

    /// Whether the broker leads this usable partition.
    fn leads(&self, index: u32) -> bool {
        self.partitions.binary_search(&index).is_ok()
    }

    /// Returns a proven partition, if one is known.
    fn home(&self, topic: &TopicState) -> Option<u32> {
        let is_proven = |index: &u32| topic.is_proven(*index);
        let first = self.partitions.iter().take(LOOKS);
        self.remembered(topic).or_else(|| first.copied().find(is_proven))
    }

    /// Returns the partition in the slot `home`, if that still is a proven one of this broker.
    fn remembered(&self, topic: &TopicState) -> Option<u32> {
        self.home.get().filter(|&index| self.leads(index) && topic.is_proven(index))
    }

    /// Remembers a newly proven partition, unless an earlier one still serves.
    fn remember(&self, topic: &TopicState, proven: u32) {
        if self.remembered(topic).is_none() {
            self.home.set(proven);
        }
    }

    /// Returns a random one of the proven partitions, of which there must be one.
    fn proven(&self, shared: &Shared, topic: &TopicState, now: Duration) -> u32 {
        let nth = shared.env.entropy.next_u64() % self.partitions.len() as u64;
        self.pick(topic, nth as usize, Purpose::Waiting, now).partition
    }

    /// Begins a trial of the broker: with one record, or with batches that one of its partitions has already.
    fn try_one(&self, topic: &TopicState, draw: u64, now: Duration) -> Option<Next> {
        let nth = draw.checked_rem(self.partitions.len() as u64)?;
        let drawn = self.partitions[nth as usize];
        let has_batches = |index: &u32| {
            self.leads(*index) && !topic.partitions[*index as usize].state.lock().queue.is_drained()
        };
        let tests = self.trial.last().into_iter().chain([drawn]).find(has_batches);
        self.trial.begin(tests.unwrap_or(drawn), now);
        tests.is_none().then_some(Next { partition: drawn, probe: true })
    }

    /// Returns the `nth` partition if it is proven; otherwise a proven one, or the one under trial.
    fn pick(&self, topic: &TopicState, nth: usize, purpose: Purpose, now: Duration) -> Next {
        let standing = |index: u32| topic.partitions[index as usize].standing.at(now);
        let is_open = |index: &u32| standing(*index) != Standing::Proven && self.leads(*index);
        let trial = self.trial.partition(now).filter(is_open);
        let tests = Tests { home: self.home(topic), trial, may_begin: purpose != Purpose::Waiting };
        let picked = pick(&self.partitions, nth, tests, standing);
        let Some(mut picked) = picked else { return Next { partition: 0, probe: false } };
        match picked.as_what {
            Role::Home => {}
            Role::Trial => self.trial.begin(picked.partition, now),
            Role::TrialForWant => match self.pioneer.get().filter(is_open) {
                Some(pioneer) => picked.partition = pioneer,
                None => self.pioneer.set(picked.partition),
            },
        }
        Next { partition: picked.partition, probe: picked.as_what == Role::Trial }
    }

    /// What an unproven partition of this broker keeps.
    fn unproven_keeps(&self, index: u32, has_sent: bool, now: Duration) -> Keeps {
        if self.pioneer.get() == Some(index) {
            return Keeps::All;
        }
        match self.trial.partition(now) == Some(index) {
            true if has_sent => Keeps::Sent,
            true => Keeps::All,
            false => Keeps::None,
        }
    }

    fn candidate(&self, now: Duration) -> Candidate {
        let partitions = self.partitions.len() as u32;
        let Some(lane) = &self.lane else {
            return Candidate { partitions, ..Candidate::default() };
        };
        Candidate {
            partitions,
            wait: lane.expected_wait(now),
            unanswered: lane.gate.unanswered(now),
            busy: lane.gate.is_busy(),
        }
    }
}

/// The keyless records that a partition keeps while there are better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    All,
    /// Records that were sent and so try its leader. Others would wait behind them for the outcome.
    ///
    /// **Was a bug:** a trial began with a batch in flight, and the batches queued behind it stayed with it, for seconds.
    Sent,
    /// Others are healthier, a batch of this one came back, or its leader has acknowledged nothing yet, and this partition
    /// is neither the pioneer nor under trial.
    None,
}

fn keeps(
    shared: &Shared,
    topic: &TopicState,
    partition: &Partition,
    state: &PartitionState,
) -> Keeps {
    if state.is_avoided() {
        return Keeps::None;
    }
    if !shared.routing.policy.prefers_proven {
        return if state.queue.is_doubtful() { Keeps::None } else { Keeps::All };
    }
    if partition.standing.is_proven() {
        return Keeps::All;
    }
    let routes = topic.routes.load();
    let route = routes.by_lane.iter().find(|route| route.broker() == state.account());
    let (index, now) = (partition.index as u32, shared.age(Instant::now()));
    route.map_or(Keeps::None, |route| route.unproven_keeps(index, state.queue.has_sent(), now))
}

/// Whether keyless records should go elsewhere.
pub(super) fn avoids(
    shared: &Shared,
    topic: &TopicState,
    partition: &Partition,
    state: &PartitionState,
) -> bool {
    keeps(shared, topic, partition, state) != Keeps::All
}

/// Handles a newly proven partition. Batches of its broker's pioneer can move, and so can those of pioneers of brokers
/// without a proven partition. Backlogs are shared with its broker.
pub(super) fn proved(shared: &Shared, topic: &TopicState, partition: &Partition) {
    let routes = topic.routes.load();
    let account = partition.state.lock().account();
    let now = shared.age(Instant::now());
    let mut pioneers = Vec::new();
    for route in &routes.by_lane {
        let is_own = route.broker() == account;
        if is_own {
            route.remember(topic, partition.index as u32);
        } else if route.home(topic).is_some() {
            continue;
        }
        let Some(pioneer) = route.pioneer.take() else { continue };
        let Some(pioneer) = topic.partitions.get(pioneer as usize) else { continue };
        if pioneer.standing.is_proven() {
            continue;
        }
        // A partition under trial keeps what it has; a pioneer has more than a trial needs.
        route.trial.end(pioneer.index as u32);
        pioneers.push((route, pioneer));
    }
    evacuate(shared, topic, pioneers.iter().map(|(_, pioneer)| *pioneer));
    for (route, pioneer) in pioneers {
        if route.broker() != account && !pioneer.state.lock().queue.is_idle() {
            // What it has sent already is the trial.
            route.trial.begin(pioneer.index as u32, now);
        }
    }
    share_backlogs(shared, topic, &routes, now);
}

/// Moves batches from the homes of slow brokers, so that all brokers with a proven partition hold about as much.
///
/// The first partition that is proven after all leaders have moved gets everything that waits. A request carries one
/// batch of a partition, so that backlog drains slowly, while other brokers that acknowledge by now have little to do.
fn share_backlogs(shared: &Shared, topic: &TopicState, routes: &Routes, now: Duration) {
    if !shared.routing.policy.moves {
        return;
    }
    let homes = routes.homes(topic);
    let wait = |home: &Home<'_>| home.lane.expected_wait(now);
    let Some(best) = homes.iter().map(wait).min() else { return };
    for home in homes.iter().filter(|home| is_late(wait(home), best)) {
        share_backlog(shared, topic, home, &homes, now);
    }
}

fn share_backlog(
    shared: &Shared,
    topic: &TopicState,
    from: &Home<'_>,
    homes: &[Home<'_>],
    now: Duration,
) {
    let partition = |index: u32| &topic.partitions[index as usize];
    let movable = partition(from.partition).state.lock().queue.take_movable(&shared.policy);
    for batch in movable {
        let least = homes.iter().min_by_key(|home| home.lane.gate.held());
        let to = least.filter(|to| to.lane.broker != from.lane.broker);
        if to.is_some() {
            count_moved(shared, &batch);
        }
        let to = to.map_or(from.partition, |to| to.route.proven(shared, topic, now));
        settle_in(shared, partition(to).state.lock(), partition(to), batch);
    }
}

/// Handles a batch that came back: another partition now tests whether the broker acknowledges.
pub(super) fn refused(topic: &TopicState, partition: &Partition) {
    for route in &topic.routes.load().by_lane {
        route.pioneer.clear(partition.index as u32);
    }
}

/// Moves the choice away from `partition` if there is a better one, and avoids all brokers that this search has
/// passed. Returns whether the choice has moved.
pub(super) fn leave(
    shared: &Shared,
    topic: &TopicState,
    partition: &Partition,
    passed: &mut Passed,
) -> bool {
    let index = partition.index as u32;
    passed.add(partition.state.lock().account());
    topic.sticky.leave(index, |_| next_past(shared, topic, Purpose::Waiting, passed));
    topic.sticky.current() != index
}

/// As [`admits`], for a topic by its name.
pub(super) fn has_room(shared: &Shared, topic: &str) -> bool {
    shared.topics.load().get(topic).is_some_and(|topic| admits(shared, topic))
}

/// Whether the window of some broker of the topic admits a record.
pub(super) fn admits(shared: &Shared, topic: &TopicState) -> bool {
    let routes = topic.routes.load();
    let lanes = routes.by_lane.iter().filter_map(|route| route.lane.as_ref());
    let mut gates = lanes.filter_map(|lane| lane.gate.if_bounded());
    gates.any(|gate| gate.admits(|| shared.age(Instant::now())))
}

/// Whether the leader of a partition has become so slow that the next batch of keyless records should be opened
/// elsewhere. Open batches are not cut short.
pub(super) fn is_slow(
    shared: &Shared,
    topic: &TopicState,
    state: &PartitionState,
    now: Instant,
) -> bool {
    let goes_by_wait = matches!(shared.routing.policy.rule, Rule::Adaptive { .. });
    if !goes_by_wait || topic.sticky.is_probing() {
        return false;
    }
    let best = Duration::from_nanos(topic.best_ns.load(Ordering::Relaxed));
    state.lane.as_ref().is_some_and(|lane| is_late(lane.expected_wait(shared.age(now)), best))
}

/// Moves batches that no broker has written, and that are bound to no partition, away from unhealthy partitions. The
/// caller holds no lock except that of the lanes.
pub(super) fn evacuate<'a>(
    shared: &Shared,
    topic: &TopicState,
    partitions: impl IntoIterator<Item = &'a Arc<Partition>>,
) {
    if !shared.routing.policy.moves {
        return;
    }
    let ends = topic.kept.ends();
    let leaves = |keeps| !shared.routing.policy.prefers_proven || keeps != Keeps::All;
    for partition in move_out(shared, topic, partitions, leaves) {
        keep(shared, topic, partition, ends);
    }
}

/// Keeps records in a partition where they may wait for long, after a search for a better one that began at `ends`.
/// The caller holds no lock except that of the lanes.
pub(super) fn keep(shared: &Shared, topic: &TopicState, partition: &Partition, ends: u64) {
    if shared.routing.policy.moves && topic.kept.keep(partition.index as u32, ends) {
        reconsider(shared, topic);
    }
}

/// Handles the end of a broker's trouble: moves kept records for which there was no better place. The caller holds no
/// lock except that of the lanes.
pub(super) fn reconsider(shared: &Shared, topic: &TopicState) {
    loop {
        let kept = topic.kept.take();
        let ends = topic.kept.ends();
        let partitions = kept.into_iter().filter_map(|index| topic.partitions.get(index as usize));
        let mut has_more = false;
        for partition in move_out(shared, topic, partitions, |keeps| keeps != Keeps::All) {
            has_more |= topic.kept.keep(partition.index as u32, ends);
        }
        if !has_more {
            return;
        }
    }
}

/// Outcome for a movable batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    Yes,
    No,
}

/// Moves what these partitions do not keep. Returns those for whose batches there was no better place.
///
/// The oldest batch of all goes first. Otherwise an idle connection would take a newer one, and the older ones of other
/// partitions would be written behind it.
fn move_out<'a>(
    shared: &Shared,
    topic: &TopicState,
    partitions: impl IntoIterator<Item = &'a Arc<Partition>>,
    leaves: impl Fn(Keeps) -> bool,
) -> Vec<&'a Arc<Partition>> {
    let mut movable = Vec::new();
    for partition in partitions {
        let mut state = partition.state.lock();
        let batches = match keeps(shared, topic, partition, &state) {
            keeps if !leaves(keeps) => continue,
            Keeps::Sent => state.queue.take_unsent(&shared.policy),
            Keeps::All | Keeps::None => state.queue.take_movable(&shared.policy),
        };
        movable.extend(batches.into_iter().map(|batch| (partition, batch)));
    }
    movable.sort_by_key(|(_, batch)| batch.created);
    let mut left = Vec::new();
    for (partition, batch) in movable {
        if place(shared, topic, partition, batch) == Moved::No {
            left.push(partition);
        }
    }
    left.sort_unstable_by_key(|partition| partition.index);
    left.dedup_by_key(|partition| partition.index);
    left
}

fn place(
    shared: &Shared,
    topic: &TopicState,
    from: &Arc<Partition>,
    batch: Batch<Completion>,
) -> Moved {
    let begun = shared.age(Instant::from_std(batch.created));
    let (mut passed, mut behind_newer) = (Passed::default(), None);
    for _ in 0..TRIES {
        let index = next_past(shared, topic, Purpose::Waiting, &passed).partition;
        let Some(partition) = topic.current().get(index as usize) else { break };
        let state = partition.state.lock();
        if Arc::ptr_eq(partition, from) || avoids(shared, topic, partition, &state) {
            passed.add(state.account());
        } else if state.has_sent_newer(begun) {
            behind_newer = Some(partition);
        } else {
            move_in(shared, state, partition, batch);
            return Moved::Yes;
        }
    }
    if let Some(partition) = behind_newer {
        let state = partition.state.lock();
        if !avoids(shared, topic, partition, &state) {
            move_in(shared, state, partition, batch);
            return Moved::Yes;
        }
    }
    // No better place exists, or none was found: the batch stays.
    settle_in(shared, from.state.lock(), from, batch);
    Moved::No
}

fn move_in(
    shared: &Shared,
    state: StateGuard<'_>,
    partition: &Arc<Partition>,
    batch: Batch<Completion>,
) {
    count_moved(shared, &batch);
    settle_in(shared, state, partition, batch);
}

fn count_moved(shared: &Shared, batch: &Batch<Completion>) {
    count(&shared.routing.counters.moved_batches, 1);
    count(&shared.routing.counters.moved_records, u64::from(batch.records));
}

fn settle_in(
    shared: &Shared,
    mut state: StateGuard<'_>,
    partition: &Arc<Partition>,
    mut batch: Batch<Completion>,
) {
    batch.completion.moved_to(partition.index, state.account());
    batch.completion.set_parked(state.is_parked());
    if state.has_sent_newer(shared.age(Instant::from_std(batch.created))) {
        count(&shared.routing.counters.behind_newer, u64::from(batch.records));
    }
    shared.keeps_deadline_of(&batch, &state);
    state.wake(&shared.awake);
    state.queue.adopt(batch);
    resubmit(state, partition);
}

impl Shared {
    /// Time since the producer's start.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }
}
