//! Consumers that read from the followers in their racks.

use super::{
    Crash, Dice, Fault, FaultKind, Host, IntoMs as _,
    scenario::{fault, moves},
};

/// Racks of the brokers, by id; each has a consumer.
pub const RACKS: [&str; 3] = ["near", "far", "farther"];

/// Key of Fetch: followers replicate late, and consumers wait.
const FETCH: i16 = 1;

/// Followers lag, move, die and cannot be reached, while leaders move.
pub(super) fn faults(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let broker = dice.broker();
        let kind = match dice.between(0, 6) {
            0 | 1 => {
                let disk = dice.one_of(&[Crash::KeepsAll, Crash::KeepsAll, Crash::LosesUnsynced]);
                FaultKind::Kill { broker, disk }
            }
            2 => FaultKind::Freeze { broker },
            3 => {
                let by = dice.one_of(&[20, 200, 1800]).into_ms();
                FaultKind::SlowAnswers { broker, api: FETCH, by }
            }
            4 => FaultKind::Silence { between: Host::Broker(broker), and: Host::Clients },
            5 => super::fault(dice, 9, partitions),
            _ => FaultKind::LateMetadata { broker, by: dice.ms(50, 1500) },
        };
        fault(dice.ms(100 + 300 * n, 500 + 300 * n), dice.ms(50, 3000), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(2, 6)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 8), partitions as u64, 250));
    faults
}
