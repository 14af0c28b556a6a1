//! The members of a consumer group: when each one joins and leaves, and how they read.

use std::time::Duration;

use curtail::config::Assignor;

use super::{
    BROKERS, Crash, Dice, Fault, FaultKind, Host,
    scenario::{fault, moves},
};

/// Members at a time.
const SLOTS: u64 = 4;
/// Keys of the APIs to which a slow coordinator responds late: Fetch, OffsetCommit, OffsetFetch, FindCoordinator,
/// JoinGroup, Heartbeat, SyncGroup.
const APIS: [i16; 7] = [1, 8, 9, 10, 11, 12, 14];

/// A group that reads the topic while it is being written.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// `partition.assignment.strategy` of all members.
    pub assignors: Vec<Assignor>,
    /// `session.timeout.ms`.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`.
    pub max_poll_interval: Duration,
    /// The members of each place, one after the other. The last one stays until everything is read.
    pub slots: Vec<SlotPlan>,
    /// A bug to plant in the members.
    pub bug: Option<MemberBug>,
}

/// A place in the group, with its successive members.
#[derive(Clone, Debug)]
pub struct SlotPlan {
    /// Whether they have a `group.instance.id`.
    pub is_static: bool,
    /// At least one.
    pub lives: Vec<LifePlan>,
}

/// One member.
#[derive(Clone, Debug)]
pub struct LifePlan {
    /// Pause before it begins.
    pub rest: Duration,
    /// Duration of the membership.
    pub lasts: Duration,
    /// How it ends, unless it is the last one.
    pub end: LifeEnd,
    /// When it commits.
    pub commits: Commits,
    /// `max.poll.records`.
    pub max_poll_records: usize,
    /// Longest time for which the application works on the records of a poll.
    pub work: Duration,
    /// Start and duration of a time without polls; the start counts from the member's start.
    pub stall: Option<(Duration, Duration)>,
    /// Whether a task reads each partition, from its queue.
    pub queues: bool,
}

/// How a member ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeEnd {
    /// It leaves the group.
    Close,
    /// It dies.
    Kill,
    /// It stays, but the next one has its `group.instance.id`.
    Replaced,
}

/// When a member commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    /// Auto-commit, at this interval.
    Auto(Duration),
    /// With `commit`, after some polls.
    Sync,
    /// With `commit_nowait`, after some polls.
    Async,
}

/// A bug that a member's application may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberBug {
    /// It commits an offset beyond the records it received.
    CommitAhead,
    /// It works on records of partitions that it has revoked.
    ReadOn,
    /// It skips the record that it should return next.
    Skip,
}

impl GroupPlan {
    pub(super) fn new(dice: &Dice) -> Self {
        use Assignor::{CooperativeSticky, Range, RoundRobin, Sticky};
        let strategies: [&[Assignor]; 7] = [
            &[Range],
            &[RoundRobin],
            &[Sticky],
            &[CooperativeSticky],
            &[CooperativeSticky],
            &[Range, CooperativeSticky],
            &[CooperativeSticky, Range],
        ];
        Self {
            assignors: dice.one_of(&strategies).to_vec(),
            session_timeout: dice.ms(1200, 2000),
            heartbeat_interval: dice.ms(150, 400),
            max_poll_interval: dice.ms(1200, 2500),
            slots: (0..dice.between(2, SLOTS)).map(|_| slot(dice)).collect(),
            bug: None,
        }
    }
}

fn slot(dice: &Dice) -> SlotPlan {
    let is_static = dice.between(0, 3) == 0;
    let lives = (0..dice.between(1, 4)).map(|_| life(dice, is_static)).collect();
    SlotPlan { is_static, lives }
}

fn life(dice: &Dice, is_static: bool) -> LifePlan {
    let end = match dice.between(0, if is_static { 3 } else { 2 }) {
        0 => LifeEnd::Kill,
        3 => LifeEnd::Replaced,
        _ => LifeEnd::Close,
    };
    let commits = match dice.between(0, 3) {
        0 => Commits::Sync,
        1 => Commits::Async,
        _ => Commits::Auto(dice.ms(20, 800)),
    };
    let stalls = dice.one_of(&[(0, 0), (0, 0), (100, 1200), (2000, 5000)]);
    LifePlan {
        rest: dice.one_of(&[(0, 30), (100, 800), (1500, 3000)]).in_ms(dice),
        lasts: dice.one_of(&[(10, 300), (300, 2500), (300, 2500)]).in_ms(dice),
        end,
        commits,
        max_poll_records: dice.one_of(&[1, 5, 500]),
        work: dice.one_of(&[0, 1, 20]).in_ms(dice),
        stall: (stalls.1 > 0).then(|| (dice.ms(50, 1500), stalls.in_ms(dice))),
        // Queues commit automatically. Half of those members have them, without another throw of the dice.
        queues: matches!(commits, Commits::Auto(interval) if interval.as_millis() % 2 == 0),
    }
}

trait InMs {
    fn in_ms(self, dice: &Dice) -> Duration;
}

impl InMs for (u64, u64) {
    fn in_ms(self, dice: &Dice) -> Duration {
        dice.ms(self.0, self.1)
    }
}

impl InMs for u64 {
    fn in_ms(self, _: &Dice) -> Duration {
        Duration::from_millis(self)
    }
}

/// Faults of the cluster and of the members' links while the group reads. Some runs have none: then no member may
/// lose its membership.
pub(super) fn faults(dice: &Dice, partitions: i32, slots: usize) -> Vec<Fault> {
    if dice.between(0, 3) == 0 {
        return Vec::new();
    }
    let one = |n: u64| {
        let lasts = dice.one_of(&[(50, 500), (500, 2000), (2000, 4000)]);
        fault(
            dice.ms(100 + 600 * n, 800 + 600 * n),
            dice.ms(lasts.0, lasts.1),
            trouble(dice, slots),
        )
    };
    let mut faults: Vec<Fault> = (0..dice.between(2, 6)).map(one).collect();
    // Shorter than the time until connections fail: in-flight requests arrive after the session has expired.
    let cut_off = |_| {
        let lasts = dice.one_of(&[(1300, 1950), (1300, 1950), (2000, 4000)]).in_ms(dice);
        let member = dice.between(1, slots as u64) as u32;
        fault(dice.ms(200, 4000), lasts, FaultKind::CutOff { member })
    };
    faults.extend((0..dice.between(0, 2)).map(cut_off));
    faults.extend(moves(dice, dice.between(0, 4), partitions as u64, 700));
    faults
}

fn trouble(dice: &Dice, slots: usize) -> FaultKind {
    let broker = dice.broker();
    let member = Host::Member(dice.between(1, slots as u64) as u32);
    match dice.between(0, 10) {
        0 | 1 => FaultKind::Kill { broker, disk: Crash::KeepsAll },
        2 => FaultKind::Freeze { broker },
        3 | 4 => FaultKind::MoveCoordinator { to: broker },
        5 => FaultKind::LateMetadata { broker, by: dice.ms(10, 1500) },
        6 => FaultKind::FrozenMetadata { broker },
        7 => FaultKind::SlowAnswers { broker, api: dice.one_of(&APIS), by: dice.ms(10, 2500) },
        8 => FaultKind::Silence { between: Host::Broker(broker), and: member },
        9 => FaultKind::OneWay { from: Host::Broker(broker), to: member },
        _ => FaultKind::OneWay { from: member, to: Host::Broker(1 + broker % BROKERS) },
    }
}
