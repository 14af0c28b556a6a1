//! Topics that grow, go, come back and come into being.

use std::time::Duration;

use super::{BROKERS, Dice, Fault, FaultKind, Plan, scenario::fault, scenario::moves};

/// A topic besides the first one.
#[derive(Clone, Debug)]
pub struct TopicPlan {
    /// Name.
    pub name: &'static str,
    /// Partitions; `None` for a topic that its first use creates.
    pub partitions: Option<i32>,
    /// Names and values of its settings.
    pub settings: Vec<(&'static str, String)>,
}

impl TopicPlan {
    /// A topic with the cluster's defaults.
    pub(super) fn new(name: &'static str, partitions: Option<i32>) -> Self {
        Self { name, partitions, settings: Vec::new() }
    }
}

/// Index of the topic that is deleted and created again.
const FLEETING: usize = 1;
/// Index of the topic that its first use creates.
const BY_USE: usize = 2;

/// Adds the topics, and a producer for each.
pub(super) fn prepare(dice: &Dice, plan: &mut Plan) {
    let partitions = dice.between(2, 6) as i32;
    plan.more_topics =
        vec![TopicPlan::new("fleeting", Some(partitions)), TopicPlan::new("by-use", None)];
    plan.producers.truncate(1);
    for topic in [FLEETING, BY_USE] {
        let mut producer = plan.producers[0].clone();
        producer.tuning.topic = topic;
        producer.keyed = dice.one_of(&[0, 50, 100]);
        plan.producers.push(producer);
    }
    for producer in &mut plan.producers {
        producer.delivery_timeout = producer.request_timeout + Duration::from_secs(20);
    }
}

/// The first topic grows while the metadata of one broker lags, and the second one is replaced.
pub(super) fn faults(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let mut to = partitions;
    let mut faults: Vec<Fault> = (0..dice.between(1, 4))
        .map(|n| {
            to += dice.between(1, 4) as i32;
            let kind = FaultKind::Grow { topic: 0, to };
            fault(dice.ms(50 + 400 * n, 450 + 400 * n), Duration::ZERO, kind)
        })
        .collect();
    for n in 0..dice.between(1, 2) {
        let kind = FaultKind::Recreate { topic: FLEETING, partitions: dice.between(1, 6) as i32 };
        faults.push(fault(dice.ms(100 + 1500 * n, 800 + 1500 * n), dice.ms(0, 500), kind));
    }
    for broker in 1..=BROKERS {
        let kind = match dice.between(0, 3) {
            0 => FaultKind::FrozenMetadata { broker },
            1 | 2 => FaultKind::LateMetadata { broker, by: dice.ms(50, 1500) },
            _ => continue,
        };
        faults.push(fault(dice.ms(0, 1000), dice.ms(300, 2500), kind));
    }
    faults.extend(moves(dice, dice.between(0, 8), partitions as u64, 200));
    faults
}
