//! A topic whose oldest records are deleted, on request or by retention, while a consumer seeks in it.

use std::time::Duration;

use super::{
    Crash, Dice, Fault, FaultKind, IntoMs as _, Plan, TopicPlan,
    scenario::{fault, moves},
};

/// Index of the topic whose records are deleted.
pub const SHRINKING: usize = 1;

/// Behaviour of the consumer and of the deletions.
#[derive(Clone, Copy, Debug)]
pub struct GapPlan {
    /// Whether `auto.offset.reset` is `earliest`; otherwise it is `none`.
    pub resets: bool,
    /// Longest pause between two deletions, in milliseconds.
    pub apart: u64,
    /// Retention by the brokers; `None` if only requests delete.
    pub retention: Option<Retention>,
}

/// Records of a log that the brokers keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Records of this age or younger (`retention.ms`).
    Age(Duration),
    /// At least this number of bytes (`retention.bytes`).
    Bytes(u64),
}

impl Retention {
    fn setting(self) -> (&'static str, String) {
        match self {
            Self::Age(age) => ("retention.ms", age.as_millis().to_string()),
            Self::Bytes(bytes) => ("retention.bytes", bytes.to_string()),
        }
    }
}

/// Adds the topic, and a producer for it.
pub(super) fn prepare(dice: &Dice, plan: &mut Plan) {
    let partitions = dice.between(1, 3) as i32;
    plan.more_topics = vec![TopicPlan::new("shrinking", Some(partitions))];
    let (resets, apart) = (dice.between(0, 1) == 0, dice.one_of(&[50, 200, 500]));
    plan.gaps = Some(GapPlan { resets, apart, retention: None });
    plan.segment_bytes = dice.one_of(&[2 << 10, 8 << 10, 1 << 30]);
    plan.producers.truncate(1);
    let mut producer = plan.producers[0].clone();
    producer.tuning.topic = SHRINKING;
    producer.keyed = dice.one_of(&[0, 50, 100]);
    plan.producers.push(producer);
    // Other scenarios cover the first topic.
    plan.producers[0].records = 100;
}

/// As [`prepare`], but retention deletes instead of requests.
pub(super) fn retain(dice: &Dice, plan: &mut Plan) {
    prepare(dice, plan);
    let retention = match dice.between(0, 1) {
        0 => Retention::Age(dice.one_of(&[300, 1000, 2500]).into_ms()),
        _ => Retention::Bytes(dice.one_of(&[1000, 5000, 20_000])),
    };
    plan.more_topics[0].settings.push(retention.setting());
    plan.gaps = plan.gaps.map(|gaps| GapPlan { retention: Some(retention), ..gaps });
    plan.segment_bytes = dice.one_of(&[1 << 10, 4 << 10]);
}

/// Brokers die, freeze and respond late, so that deletions reach replicas at different times.
pub(super) fn faults(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let broker = dice.broker();
        let kind = match dice.between(0, 3) {
            0 | 1 => FaultKind::Kill { broker, disk: Crash::KeepsAll },
            2 => FaultKind::Freeze { broker },
            _ => super::fault(dice, 7, partitions),
        };
        fault(dice.ms(100 + 600 * n, 700 + 600 * n), dice.ms(50, 2000), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(0, 3)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 4), partitions as u64, 400));
    faults
}
