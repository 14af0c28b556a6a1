//! A compacted topic, whose logs are cleaned often, while a consumer seeks in its gaps.

use std::time::Duration;

use super::{
    Crash, Dice, Fault, FaultKind, Plan, TopicPlan,
    scenario::{fault, moves},
};

/// Index of the compacted topic.
pub const COMPACTED: usize = 1;

/// Behaviour of the cleaners, the producer and the consumer.
#[derive(Clone, Copy, Debug)]
pub struct CompactionPlan {
    /// Different keys.
    pub keys: u64,
    /// Percentage of tombstones.
    pub tombstones: u64,
    /// `delete.retention.ms`.
    pub delete_retention: Duration,
    /// `log.cleaner.backoff.ms`.
    pub backoff: Duration,
    /// Whether the producers are transactional, and the consumer reads committed records.
    pub transactional: bool,
    /// `max.partition.fetch.bytes` of the consumer. A small one fetches single batches.
    pub fetch_bytes: i32,
}

/// Adds the topic, and a producer for it.
pub(super) fn prepare(dice: &Dice, plan: &mut Plan) {
    let mut topic = TopicPlan::new("compacted", Some(dice.between(1, 2) as i32));
    // Longer than any fault: a replica that misses a marker would keep its transaction open, and one that misses a
    // tombstone would keep what it deletes.
    let delete_retention = Duration::from_secs(dice.one_of(&[6, 3600]));
    let settings = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", dice.one_of(&["0", "0.2", "0.5"])),
        ("min.compaction.lag.ms", dice.one_of(&["0", "0", "200"])),
    ];
    topic.settings = settings.map(|(name, value)| (name, value.to_owned())).into();
    let retention_ms = delete_retention.as_millis().to_string();
    topic.settings.push(("delete.retention.ms", retention_ms));
    plan.more_topics = vec![topic];
    plan.compaction = Some(CompactionPlan {
        keys: dice.one_of(&[3, 20, 100]),
        tombstones: dice.one_of(&[0, 10, 40]),
        delete_retention,
        backoff: dice.ms(50, 400),
        transactional: dice.between(0, 1) == 0,
        fetch_bytes: dice.one_of(&[1, 600, 1 << 20]),
    });
    plan.segment_bytes = dice.one_of(&[1 << 10, 2 << 10, 4 << 10]);
    plan.tail_cache_bytes = dice.one_of(&[0, 2000, 1 << 20]);
    plan.producers.truncate(1);
    let mut producer = plan.producers[0].clone();
    producer.tuning.topic = COMPACTED;
    producer.keyed = 100;
    producer.batch_size = dice.one_of(&[100, 300, 900]);
    producer.batch_max_size = producer.batch_size;
    plan.producers.push(producer);
    // Other scenarios cover the first topic.
    plan.producers[0].records = 60;
}

/// Brokers die, some with their machines, freeze and respond late, and leaders of the compacted topic move.
pub(super) fn faults(dice: &Dice) -> Vec<Fault> {
    let one = |n: u64| {
        let broker = dice.broker();
        let kind = match dice.between(0, 4) {
            0 => FaultKind::Kill { broker, disk: Crash::KeepsAll },
            1 => FaultKind::Kill { broker, disk: Crash::LosesUnsynced },
            2 => FaultKind::Kill { broker, disk: Crash::Torn },
            3 => FaultKind::Freeze { broker },
            _ => super::fault(dice, 7, 1),
        };
        fault(dice.ms(100 + 500 * n, 600 + 500 * n), dice.ms(50, 2000), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(0, 4)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 8), 2, 250));
    faults
}
