//! Producers with every kind of settings: weaker promises, every codec, tiny and huge limits.

use std::time::Duration;

use curtail::config::{Acks, Codec};

use super::{
    BROKERS, Crash, Dice, Fault, FaultKind, Host, Plan, Tuning, scenario::fault, scenario::moves,
};

/// Draws the settings of every producer, and a limit of the brokers.
pub(super) fn tune(dice: &Dice, plan: &mut Plan) {
    plan.message_max_bytes = dice.one_of(&[700, 2000, 1_048_588, 1_048_588]);
    for producer in &mut plan.producers {
        let (acks, idempotence) = dice.one_of(&[
            (Acks::None, false),
            (Acks::Leader, false),
            (Acks::All, false),
            (Acks::All, true),
            (Acks::All, true),
        ]);
        producer.batch_size = dice.one_of(&[1, 100, 1024, 16 << 10, 1 << 20]);
        producer.batch_max_size = producer.batch_size * dice.one_of(&[1, 4]);
        producer.max_in_flight = dice.one_of(&[1, 2, 5]);
        producer.keyed = dice.one_of(&[50, 100]);
        producer.delivery_timeout =
            producer.request_timeout + Duration::from_millis(dice.one_of(&[0, 1, 50, 10_000]));
        producer.tuning = Tuning {
            acks,
            idempotence,
            codec: dice.one_of(&Codec::ALL),
            buffer_memory: producer.batch_size.max(dice.one_of(&[600, 4 << 10, 1 << 30])),
            max_request_size: dice.one_of(&[200, 2 << 10, 1 << 20]),
            impatient: dice.one_of(&[0, 10, 50]),
            topic: 0,
            one_by_one: false,
        };
    }
}

/// Brokers that die and freeze, leaders that move, and links that lose everything.
pub(super) fn faults(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let broker = dice.broker();
        let kind = match dice.between(0, 4) {
            0 | 1 => FaultKind::Kill { broker, disk: Crash::KeepsAll },
            2 => FaultKind::Freeze { broker },
            _ => super::fault(dice, dice.between(7, 9), partitions),
        };
        fault(dice.ms(100 + 500 * n, 600 + 500 * n), dice.ms(50, 2500), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(0, 4)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 6), partitions as u64, 300));
    if dice.between(0, 2) == 0 {
        // Longer than most delivery timeouts: whatever waits has to expire in time.
        let (at, lasts) = (dice.ms(200, 900), dice.ms(5000, 9000));
        let cut = |broker| FaultKind::Silence { between: Host::Broker(broker), and: Host::Clients };
        faults.extend((1..=BROKERS).map(|broker| fault(at, lasts, cut(broker))));
    }
    faults
}
