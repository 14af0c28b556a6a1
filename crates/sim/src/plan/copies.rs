//! Read-process-write: applications of one group copy a topic in transactions, crash and are replaced.

use std::time::Duration;

use curtail::config::Assignor;

use super::{Dice, Fault, FaultKind, Plan, TRANSACTION_LOG_PARTITIONS, groups, scenario::fault};

/// Applications at a time.
const SLOTS: u64 = 3;

/// The applications that copy the first topic.
#[derive(Clone, Debug)]
pub struct CopyPlan {
    /// `partition.assignment.strategy` of all members.
    pub assignor: Assignor,
    /// `session.timeout.ms`.
    pub session_timeout: Duration,
    /// `max.poll.interval.ms`.
    pub max_poll_interval: Duration,
    /// The applications with one `transactional.id`, in order. The last one stays until everything is copied.
    pub slots: Vec<Vec<CopyLife>>,
}

/// One run of an application.
#[derive(Clone, Debug)]
pub struct CopyLife {
    /// Pause before it begins.
    pub rest: Duration,
    /// How long it runs.
    pub lasts: Duration,
    /// How it ends, unless it is the last one.
    pub end: CopyEnd,
    /// `max.poll.records`.
    pub max_poll_records: usize,
    /// Longest time between two steps of a transaction.
    pub work: Duration,
}

/// How an application ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    /// It closes its clients.
    Close,
    /// The process ends at the await point reached after this many polls of its future.
    Crash {
        /// Polls.
        polls: u64,
    },
    /// It continues while the next application takes its `transactional.id`.
    Zombie,
}

/// Adds the applications, and two producers for their input.
pub(super) fn prepare(dice: &Dice, plan: &mut Plan) {
    use Assignor::{CooperativeSticky, Range, Sticky};
    plan.transaction_version = dice.one_of(&[1, 2]);
    plan.copies = Some(CopyPlan {
        assignor: dice.one_of(&[Range, Sticky, CooperativeSticky, CooperativeSticky]),
        session_timeout: dice.ms(1200, 2000),
        max_poll_interval: dice.ms(2000, 5000),
        slots: (0..dice.between(1, SLOTS)).map(|_| lives(dice)).collect(),
    });
    plan.producers.truncate(2);
    for producer in &mut plan.producers {
        producer.records = 150;
        producer.pause = dice.ms(8, 25);
    }
    plan.faults = faults(dice, plan);
}

fn lives(dice: &Dice) -> Vec<CopyLife> {
    let life = |_| CopyLife {
        rest: spread(dice, &[(0, 30), (0, 30), (100, 800)]),
        lasts: spread(dice, &[(10, 300), (300, 1500), (1500, 3000)]),
        end: match dice.between(0, 5) {
            0 => CopyEnd::Close,
            1 => CopyEnd::Zombie,
            _ => CopyEnd::Crash { polls: dice.between(0, 40) },
        },
        max_poll_records: dice.one_of(&[1, 5, 500]),
        work: Duration::from_millis(dice.one_of(&[0, 2, 20])),
    };
    let mut lives: Vec<CopyLife> = (0..dice.between(2, 6)).map(life).collect();
    // The last one copies the rest within the limit of a run, on the slowest network too.
    if let Some(last) = lives.last_mut() {
        last.max_poll_records = last.max_poll_records.max(20);
    }
    lives
}

fn spread(dice: &Dice, choices: &[(u64, u64)]) -> Duration {
    let (low, high) = dice.one_of(choices);
    dice.ms(low, high)
}

/// The troubles of a group; in addition, coordinators of transactions move.
fn faults(dice: &Dice, plan: &Plan) -> Vec<Fault> {
    let slots = plan.copies.as_ref().map_or(1, |copies| copies.slots.len());
    let mut faults = groups::faults(dice, plan.partitions, slots);
    let apart = dice.one_of(&[50, 200, 500]);
    let one = |n: u64| {
        let partition = dice.between(0, TRANSACTION_LOG_PARTITIONS as u64 - 1) as i32;
        let kind = FaultKind::MoveTransactions { partition, to: dice.broker() };
        fault(Duration::from_millis(200 + n * apart) + dice.ms(0, apart), Duration::ZERO, kind)
    };
    faults.extend((0..dice.between(0, 10)).map(one));
    faults
}
