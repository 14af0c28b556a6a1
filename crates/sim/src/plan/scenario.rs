//! Plans that look at one kind of trouble closely. [`Plan::from_seed`] mixes everything; here a seed decides the
//! details of trouble that is known, so that a few seeds reach what the mixture reaches rarely.

use std::{fmt, str::FromStr, time::Duration};

use curtail_net::Entropy;

use super::{
    BROKERS, Crash, Dice, Fault, FaultKind, GroupPlan, Plan, TRANSACTION_LOG_PARTITIONS, groups,
};

/// Key of the Produce API.
const PRODUCE: i16 = 0;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// The leaders of a few partitions move again and again, the next move before the last one has reached everybody,
    /// with five requests in flight.
    OverlappingMoves,
    /// Brokers stop without a word, for longer than the cluster needs to notice or shorter, and answer late what they
    /// were asked before. Requests may wait for long, so that silence alone does not close a connection.
    FrozenBrokers,
    /// Brokers die and come back, some before anybody has noticed.
    Restarts,
    /// Leaders move while brokers do not hear of it.
    StaleMetadata,
    /// Mostly records without a key, while brokers die, freeze and cannot be reached.
    Keyless,
    /// One broker answers produce requests late all the time.
    SlowBroker,
    /// Transactions of either `transaction.version`, with aborts and zombies, while brokers die and freeze, and partitions
    /// and coordinators go to others.
    Transactions,
    /// A consumer group whose members join, leave, die and stall, while its coordinators and the leaders do the same.
    Groups,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::OverlappingMoves,
        Self::FrozenBrokers,
        Self::Restarts,
        Self::StaleMetadata,
        Self::Keyless,
        Self::SlowBroker,
        Self::Transactions,
        Self::Groups,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OverlappingMoves => "overlapping-moves",
            Self::FrozenBrokers => "frozen-brokers",
            Self::Restarts => "restarts",
            Self::StaleMetadata => "stale-metadata",
            Self::Keyless => "keyless",
            Self::SlowBroker => "slow-broker",
            Self::Transactions => "transactions",
            Self::Groups => "groups",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no scenario '{name}'; there are {names}")
        })
    }
}

impl Plan {
    /// The plan of a seed for one kind of trouble.
    pub fn of(scenario: Scenario, seed: u64) -> Self {
        let dice = Dice(Entropy::from_seed(seed ^ 0x5ce0_a210));
        let mut plan = Self { scenario: Some(scenario), ..Self::from_seed(seed) };
        // As busy as it gets: there is always something in flight to be caught by the trouble.
        for producer in &mut plan.producers {
            producer.pause = Duration::from_millis(dice.one_of(&[2, 4]));
            producer.records = 500;
            producer.max_in_flight = 5;
        }
        plan.group = (scenario == Scenario::Groups).then(|| GroupPlan::new(&dice));
        let slots = plan.group.as_ref().map_or(0, |group| group.slots.len());
        plan.faults = match scenario {
            Scenario::OverlappingMoves => overlapping_moves(&dice, plan.partitions),
            Scenario::FrozenBrokers => frozen_brokers(&dice),
            Scenario::Restarts => restarts(&dice),
            Scenario::StaleMetadata => stale_metadata(&dice, plan.partitions),
            Scenario::Keyless => keyless(&dice),
            Scenario::SlowBroker => slow_broker(&dice, plan.partitions),
            Scenario::Transactions => transactions(&dice, plan.partitions),
            Scenario::Groups => groups::faults(&dice, plan.partitions, slots),
        };
        match scenario {
            Scenario::Groups => plan.producers.truncate(2),
            Scenario::Transactions => plan.transaction_version = dice.one_of(&[1, 2]),
            _ => {}
        }
        plan.faults.sort_by_key(|fault| fault.at);
        for producer in &mut plan.producers {
            match scenario {
                Scenario::FrozenBrokers => {
                    producer.request_timeout = dice.ms(6000, 10_000);
                    producer.delivery_timeout = producer.request_timeout + dice.ms(100, 10_000);
                }
                Scenario::Transactions => producer.records = 150,
                Scenario::Groups => {
                    producer.records = 150;
                    producer.pause = dice.ms(10, 30);
                }
                Scenario::Keyless => producer.keyed = dice.one_of(&[0, 10, 50]),
                _ => {}
            }
        }
        plan
    }
}

pub(super) fn fault(at: Duration, lasts: Duration, kind: FaultKind) -> Fault {
    Fault { at, lasts, kind }
}

pub(super) fn moves(dice: &Dice, count: u64, partitions: u64, apart: u64) -> Vec<Fault> {
    let one = |n: u64| {
        let partition = dice.between(0, partitions - 1) as i32;
        let kind = FaultKind::MoveLeader { partition, to: dice.broker() };
        fault(Duration::from_millis(100 + n * apart) + dice.ms(0, apart), Duration::ZERO, kind)
    };
    (0..count).map(one).collect()
}

fn overlapping_moves(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let apart = dice.one_of(&[10, 30, 60]);
    let mut faults = moves(dice, 30, partitions.min(2) as u64, apart);
    let all_the_time = Duration::from_millis(2500);
    let late = FaultKind::LateMetadata { broker: dice.broker(), by: dice.ms(10, 300) };
    faults.push(fault(Duration::ZERO, all_the_time, late));
    let slow = FaultKind::SlowAnswers { broker: dice.broker(), api: PRODUCE, by: dice.ms(5, 100) };
    faults.push(fault(Duration::ZERO, all_the_time, slow));
    faults
}

fn frozen_brokers(dice: &Dice) -> Vec<Fault> {
    let mut freeze = |n: u64| {
        let lasts = dice.one_of(&[(100, 1200), (1800, 3000), (3000, 5000)]);
        let kind = FaultKind::Freeze { broker: dice.broker() };
        fault(dice.ms(100 + 400 * n, 500 + 400 * n), dice.ms(lasts.0, lasts.1), kind)
    };
    (0..3).map(&mut freeze).collect()
}

fn restarts(dice: &Dice) -> Vec<Fault> {
    let one = |n: u64| {
        let lasts = dice.one_of(&[(10, 100), (100, 500), (1600, 2500)]);
        let disk = dice.one_of(&[Crash::KeepsAll, Crash::KeepsAll, Crash::LosesUnsynced]);
        let kind = FaultKind::Kill { broker: dice.broker(), disk };
        fault(dice.ms(100 + 300 * n, 400 + 300 * n), dice.ms(lasts.0, lasts.1), kind)
    };
    (0..6).map(one).collect()
}

fn stale_metadata(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let mut faults = moves(dice, 12, partitions as u64, 100);
    for broker in 1..=BROKERS {
        let kind = match dice.between(0, 2) {
            0 => FaultKind::LateMetadata { broker, by: dice.ms(100, 2000) },
            _ => FaultKind::FrozenMetadata { broker },
        };
        faults.push(fault(dice.ms(0, 800), dice.ms(500, 2500), kind));
    }
    faults
}

fn keyless(dice: &Dice) -> Vec<Fault> {
    let one = |n: u64| {
        let kind = super::fault(dice, dice.one_of(&[0, 2, 2, 7, 8]), 1);
        fault(dice.ms(100 + 300 * n, 500 + 300 * n), dice.ms(200, 3000), kind)
    };
    (0..4).map(one).collect()
}

fn slow_broker(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let by = dice.one_of(&[(15, 30), (50, 200), (200, 800)]);
    let slow =
        FaultKind::SlowAnswers { broker: dice.broker(), api: PRODUCE, by: dice.ms(by.0, by.1) };
    let mut faults = moves(dice, dice.between(0, 3), partitions as u64, 500);
    faults.push(fault(Duration::ZERO, Duration::from_millis(2500), slow));
    faults
}

fn transactions(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let kind = match dice.between(0, 2) {
            0 => FaultKind::Freeze { broker: dice.broker() },
            _ => FaultKind::Kill { broker: dice.broker(), disk: Crash::KeepsAll },
        };
        let lasts = dice.one_of(&[(100, 500), (1600, 2500)]);
        fault(dice.ms(200 + 1200 * n, 1200 + 1200 * n), dice.ms(lasts.0, lasts.1), kind)
    };
    let mut faults: Vec<Fault> = (0..3).map(one).collect();
    faults.extend(moves(dice, 6, partitions as u64, 500));
    // Often enough that a coordinator goes while it decides, or while the one before still tells of its decisions.
    let apart = dice.one_of(&[50, 200, 500]);
    let coordinator = |n: u64| {
        let partition = dice.between(0, TRANSACTION_LOG_PARTITIONS as u64 - 1) as i32;
        let kind = FaultKind::MoveTransactions { partition, to: dice.broker() };
        fault(Duration::from_millis(200 + n * apart) + dice.ms(0, apart), Duration::ZERO, kind)
    };
    faults.extend((0..10).map(coordinator));
    faults
}
