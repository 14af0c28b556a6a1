//! Producer ids that brokers forget, and producer epochs that run out.

use std::time::Duration;

use super::{BROKERS, Crash, Dice, Fault, FaultKind, Plan, scenario::fault, scenario::moves};

/// Bursts of records of each producer.
const BURSTS: u32 = 3;
/// Records of a burst.
const BURST: u32 = 120;

/// How brokers number and forget producers.
#[derive(Clone, Debug)]
pub struct IdPlan {
    /// `producer.id.expiration.ms`. Longer than any batch is retried: a broker that forgets a batch sooner takes a retry
    /// for a new batch, as Apache Kafka does.
    pub expiration: Duration,
    /// Epoch of each new producer id.
    pub first_epoch: i16,
    /// Pause of the producers between two bursts.
    pub rest: Duration,
    /// Records of a burst.
    pub burst: u32,
    /// Whether the producers are transactional.
    pub transactional: bool,
}

/// Draws the ids and the faults.
pub(super) fn prepare(dice: &Dice, plan: &mut Plan) {
    let expiration = Duration::from_secs(8);
    // Some pauses are too short for any broker to forget, or end when brokers forget.
    let rest = expiration + dice.ms(0, 2500) - Duration::from_millis(dice.one_of(&[0, 0, 3000]));
    let first_epoch = dice.one_of(&[0, i16::MAX - 3, i16::MAX - 1, i16::MAX - 1, i16::MAX]);
    let transactional = dice.between(0, 3) == 0;
    plan.transaction_version = dice.one_of(&[1, 2]);
    plan.ids = Some(IdPlan {
        expiration,
        // The coordinator keeps the last epoch of a transactional id for itself.
        first_epoch: if transactional { first_epoch.min(i16::MAX - 2) } else { first_epoch },
        rest,
        burst: if transactional { BURST / 4 } else { BURST },
        transactional,
    });
    plan.producers.truncate(2);
    for producer in &mut plan.producers {
        producer.records = BURSTS * if transactional { BURST / 4 } else { BURST };
        producer.request_timeout = dice.ms(1200, 1800);
        producer.delivery_timeout = producer.request_timeout + dice.ms(0, 1200);
        producer.keyed = dice.one_of(&[50, 100]);
        producer.batch_size = dice.one_of(&[256, 1024]);
        producer.batch_max_size = producer.batch_size;
    }
    plan.faults = (0..BURSTS).flat_map(|n| faults(dice, plan.partitions, rest * n)).collect();
}

/// Faults around a burst: replicas that are out of sync when it begins, leaders that move, a broker that is slow.
fn faults(dice: &Dice, partitions: i32, burst: Duration) -> Vec<Fault> {
    let mut faults = moves(dice, dice.between(0, 5), partitions as u64, 80);
    faults.iter_mut().for_each(|fault| fault.at += burst);
    let broker = dice.broker();
    let others = [1 + broker % BROKERS, 1 + (broker + 1) % BROKERS];
    match dice.between(0, 4) {
        // Fewer than `min.insync.replicas` remain, and more come back while the records wait.
        0 | 1 => {
            let begin = burst.saturating_sub(dice.ms(0, 2500));
            let end = burst + dice.ms(100, 2500);
            for broker in others {
                let kind = match dice.between(0, 1) {
                    0 => FaultKind::Freeze { broker },
                    _ => FaultKind::Kill { broker, disk: Crash::KeepsAll },
                };
                faults.push(fault(begin, end - begin, kind));
            }
        }
        2 => {
            let kind = FaultKind::Kill { broker, disk: Crash::KeepsAll };
            faults.push(fault(burst + dice.ms(0, 500), dice.ms(50, 2000), kind));
        }
        3 => {
            let kind = FaultKind::SlowAnswers { broker, api: 0, by: dice.ms(50, 2500) };
            faults.push(fault(burst, dice.ms(300, 2000), kind));
        }
        _ => {}
    }
    faults
}
