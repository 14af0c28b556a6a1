//! A topic that allows unclean elections, and faults that force them.

use super::{
    Dice, Fault, FaultKind, Plan, TopicPlan,
    scenario::{fault, moves},
};

/// Index of the topic that may lose records.
pub const LOSING: usize = 1;

/// Adds the topic, and a producer for it. The first topic does not allow unclean elections.
pub(super) fn prepare(dice: &Dice, plan: &mut Plan) {
    let mut topic = TopicPlan::new("losing", Some(dice.between(1, 3) as i32));
    topic.settings = vec![
        ("unclean.leader.election.enable", "true".into()),
        // With one in-sync replica the elected leader acknowledges records before the others return.
        ("min.insync.replicas", dice.between(1, 2).to_string()),
    ];
    plan.more_topics = vec![topic];
    plan.producers.truncate(1);
    let mut producer = plan.producers[0].clone();
    producer.tuning.topic = LOSING;
    producer.keyed = dice.one_of(&[0, 50, 100]);
    producer.route_around_trouble = false;
    plan.producers.push(producer);
    for producer in &mut plan.producers {
        // The workload outlasts the elections.
        producer.records = 300;
        producer.pause = dice.ms(10, 30);
    }
}

/// One or two elections, while leaders of the first topic move.
pub(super) fn faults(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let isolated = dice.between(0, 1) == 0;
        let kind = FaultKind::Unclean { survivor: dice.broker(), isolated };
        fault(dice.ms(100 + 2000 * n, 1200 + 2000 * n), dice.ms(50, 1500), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(1, 2)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 4), partitions as u64, 800));
    faults
}
