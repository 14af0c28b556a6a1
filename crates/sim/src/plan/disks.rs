//! Plans in which disks fail and the controller crashes.

use super::{
    BROKERS, Crash, Dice, DiskError, Fault, FaultKind, IntoMs as _, Plan, Scenario,
    scenario::{fault, moves},
};

/// Machines die and keep any part of their unsynced data.
pub(super) fn torn(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let kind = FaultKind::Kill { broker: dice.broker(), disk: Crash::Torn };
        fault(dice.ms(200 + 500 * n, 700 + 500 * n), dice.ms(20, 2000), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(2, 5)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 6), partitions as u64, 400));
    faults
}

/// The controller crashes and restarts from its journal, while brokers die and leaders move.
pub(super) fn controller(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let crash = |n: u64| {
        let kind = FaultKind::CrashController { grow: dice.between(0, 1) == 0 };
        fault(dice.ms(100 + 600 * n, 600 + 600 * n), dice.ms(0, 1500), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(1, 4)).map(crash).collect();
    for n in 0..dice.between(0, 2) {
        let disk = dice.one_of(&[Crash::KeepsAll, Crash::Torn]);
        let kind = FaultKind::Kill { broker: dice.broker(), disk };
        faults.push(fault(dice.ms(100 + 700 * n, 900 + 700 * n), dice.ms(20, 2500), kind));
    }
    faults.extend(moves(dice, dice.between(0, 10), partitions as u64, 200));
    faults
}

/// Disks return errors, and appends take long.
pub(super) fn failing(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let broker = dice.broker();
        let kind = match dice.between(0, 4) {
            0 => FaultKind::SlowDisk { broker, by: dice.one_of(&[20, 200, 3000]).into_ms() },
            1 => FaultKind::DiskFails { broker, operation: DiskError::Read },
            2 => FaultKind::DiskFails { broker, operation: DiskError::Sync },
            _ => FaultKind::DiskFails { broker, operation: DiskError::Append },
        };
        fault(dice.ms(100 + 500 * n, 700 + 500 * n), dice.ms(300, 2500), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(1, 4)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 6), partitions as u64, 400));
    faults
}

/// Syncs of the controller's journal and of logs take long, return only when the fault ends, or never return.
pub(super) fn stuck(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let broker = dice.broker();
        let kind = match dice.between(0, 5) {
            0 | 1 => FaultKind::StuckDisk { broker },
            2 => FaultKind::SlowDisk { broker, by: dice.one_of(&[20, 200, 3000]).into_ms() },
            3 => FaultKind::Kill { broker, disk: Crash::KeepsAll },
            _ => FaultKind::StuckJournal { power: dice.between(0, 1) == 0 },
        };
        fault(dice.ms(100 + 900 * n, 700 + 900 * n), dice.ms(100, 3000), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(1, 3)).map(one).collect();
    let kind = FaultKind::StuckJournal { power: dice.between(0, 1) == 0 };
    faults.push(fault(dice.ms(300, 2500), dice.ms(500, 4000), kind));
    faults.extend(moves(dice, dice.between(0, 6), partitions as u64, 400));
    faults
}

/// Bytes of a broker's logs decay while another broker replicates them.
pub(super) fn corruption(dice: &Dice) -> Vec<Fault> {
    let one = |n: u64| {
        let broker = dice.broker();
        let follower = 1 + (broker - 1 + dice.between(1, 2) as i32) % BROKERS;
        let kind = FaultKind::Corrupt { broker, follower };
        fault(dice.ms(500 + 1500 * n, 1200 + 1500 * n), dice.ms(200, 1500), kind)
    };
    (0..dice.between(1, 2)).map(one).collect()
}

/// Settings of the brokers that make their disks matter.
pub(super) fn prepare(dice: &Dice, plan: &mut Plan) {
    plan.segment_bytes = dice.one_of(&[2 << 10, 8 << 10, 1 << 30]);
    plan.flush_each = plan.scenario == Some(Scenario::StuckSyncs) || dice.between(0, 2) == 0;
    plan.tail_cache_bytes = dice.one_of(&[0, 0, 4096]);
}
