//! Plans with one kind of fault each. [`Plan::from_seed`] mixes all kinds. Here a seed decides only the details, so
//! that a few seeds reach cases that the mixture reaches rarely.

use std::{fmt, str::FromStr, time::Duration};

use curtail_net::Entropy;

use super::{
    BROKERS, Crash, Dice, Fault, FaultKind, GroupPlan, Host, Plan, TRANSACTION_LOG_PARTITIONS,
    compaction, copies, disks as faulty, gaps, groups, producer_ids, racks, settings, topics,
    unclean,
};

/// Key of the Produce API.
const PRODUCE: i16 = 0;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// The leaders of a few partitions move repeatedly, each before the last move has reached every broker, with five
    /// requests in flight.
    OverlappingMoves,
    /// Brokers freeze, for longer than the cluster needs to notice or shorter, and respond late to earlier requests.
    /// `request.timeout.ms` is long, so that silence alone does not close a connection.
    FrozenBrokers,
    /// Brokers die and return, some before the cluster has noticed.
    Restarts,
    /// Leaders move while brokers receive no metadata.
    StaleMetadata,
    /// Mostly records without a key, while brokers die, freeze and cannot be reached.
    Keyless,
    /// One broker always responds late to produce requests.
    SlowBroker,
    /// Transactions of either `transaction.version`, with aborts and zombies, while brokers die and freeze, and
    /// leaders and coordinators move.
    Transactions,
    /// A consumer group whose members join, leave, die and stall, while its coordinators and the leaders do the same.
    Groups,
    /// Partitions are added, a topic is deleted and created again, and a topic is created by its first use, while brokers
    /// have old metadata.
    Topics,
    /// Producers with `acks` 0, 1 and all, without idempotence, with every codec and with extreme limits; some sends are
    /// dropped.
    Settings,
    /// A consumer seeks, pauses and resumes at random.
    Seeks,
    /// Connections of the clients break after a number of bytes.
    Resets,
    /// Links between brokers lose everything, several at a time, some in one direction only.
    Cuts,
    /// The clocks of the hosts jump and drift.
    Clocks,
    /// Disks run full, and machines lose unsynced data.
    Disks,
    /// Producers with one record at a time and quiet periods: only its own wake-up gets a record sent.
    Sparse,
    /// Machines die and keep any part of their unsynced data.
    TornDisks,
    /// Disks return errors, and appends take long.
    FailingDisks,
    /// Bits of logs flip while they are replicated.
    Corruption,
    /// The controller crashes and restarts from its journal.
    Controller,
    /// Applications read a topic as members of a group and write its records to another topic in transactions. They crash
    /// and are replaced, while brokers die and coordinators of groups and transactions move.
    Copies,
    /// Producers rest until brokers have forgotten them, and their epochs run out, while replicas are out of sync and leaders
    /// move.
    ProducerIds,
    /// Old records of a topic are deleted while a consumer seeks, pauses and resets in it.
    Gaps,
    /// Futures are dropped at any await point: send, flush, commit, abort and begin of producers, poll of a
    /// consumer. Producers are transactional with every other seed.
    Dropped,
    /// A replica that lacks records is elected in a topic that allows it, while a consumer reads on.
    Unclean,
    /// Consumers read from the followers in their racks, which lag, move and die.
    Racks,
    /// Retention deletes old records of a topic while a consumer seeks, pauses and resets in it.
    Retention,
    /// Syncs of the controller's journal and of logs take long or do not return, and all machines lose power during one.
    StuckSyncs,
    /// Brokers compact a topic while a consumer seeks in its gaps, brokers die and leaders move. Producers are
    /// transactional with half of the seeds.
    Compaction,
}

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 29] = [
        Self::OverlappingMoves,
        Self::FrozenBrokers,
        Self::Restarts,
        Self::StaleMetadata,
        Self::Keyless,
        Self::SlowBroker,
        Self::Transactions,
        Self::Groups,
        Self::Topics,
        Self::Settings,
        Self::Seeks,
        Self::Resets,
        Self::Cuts,
        Self::Clocks,
        Self::Disks,
        Self::Sparse,
        Self::TornDisks,
        Self::FailingDisks,
        Self::Corruption,
        Self::Controller,
        Self::Copies,
        Self::ProducerIds,
        Self::Gaps,
        Self::Dropped,
        Self::Unclean,
        Self::Racks,
        Self::Retention,
        Self::StuckSyncs,
        Self::Compaction,
    ];

    /// Name on the command line.
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
            Self::Topics => "topics",
            Self::Settings => "settings",
            Self::Seeks => "seeks",
            Self::Resets => "resets",
            Self::Cuts => "cuts",
            Self::Clocks => "clocks",
            Self::Disks => "disks",
            Self::Sparse => "sparse",
            Self::TornDisks => "torn-disks",
            Self::FailingDisks => "failing-disks",
            Self::Corruption => "corruption",
            Self::Controller => "controller",
            Self::Copies => "copies",
            Self::ProducerIds => "producer-ids",
            Self::Gaps => "gaps",
            Self::Dropped => "dropped",
            Self::Unclean => "unclean",
            Self::Racks => "racks",
            Self::Retention => "retention",
            Self::StuckSyncs => "stuck-syncs",
            Self::Compaction => "compaction",
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
    /// The plan of a seed for one scenario.
    pub fn of(scenario: Scenario, seed: u64) -> Self {
        let dice = Dice(Entropy::from_seed(seed ^ 0x5ce0_a210));
        let mut plan = Self { scenario: Some(scenario), ..Self::from_seed(seed) };
        // As busy as possible, so that each fault finds requests in flight.
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
            Scenario::Topics => topics::faults(&dice, plan.partitions),
            Scenario::Settings => settings::faults(&dice, plan.partitions),
            Scenario::Seeks => seeks(&dice, plan.partitions),
            Scenario::Resets => resets(&dice, plan.partitions),
            Scenario::Cuts => cuts(&dice),
            Scenario::Clocks => clocks(&dice, plan.partitions),
            Scenario::Disks => disks(&dice, plan.partitions),
            Scenario::Sparse => moves(&dice, dice.one_of(&[0, 0, 3]), plan.partitions as u64, 800),
            Scenario::TornDisks => faulty::torn(&dice, plan.partitions),
            Scenario::FailingDisks => faulty::failing(&dice, plan.partitions),
            Scenario::Corruption => faulty::corruption(&dice),
            Scenario::StuckSyncs => faulty::stuck(&dice, plan.partitions),
            Scenario::Controller => faulty::controller(&dice, plan.partitions),
            Scenario::Gaps | Scenario::Retention => gaps::faults(&dice, plan.partitions),
            Scenario::Compaction => compaction::faults(&dice),
            Scenario::Dropped => dropped(&dice, plan.partitions),
            Scenario::Unclean => unclean::faults(&dice, plan.partitions),
            Scenario::Racks => racks::faults(&dice, plan.partitions),
            // Drawn together with their topics and settings.
            Scenario::Copies | Scenario::ProducerIds => Vec::new(),
        };
        match scenario {
            Scenario::Groups => plan.producers.truncate(2),
            Scenario::Transactions => plan.transaction_version = dice.one_of(&[1, 2]),
            Scenario::Topics => topics::prepare(&dice, &mut plan),
            Scenario::Settings => settings::tune(&dice, &mut plan),
            Scenario::TornDisks
            | Scenario::FailingDisks
            | Scenario::Corruption
            | Scenario::StuckSyncs => {
                faulty::prepare(&dice, &mut plan);
            }
            Scenario::Copies => copies::prepare(&dice, &mut plan),
            Scenario::ProducerIds => producer_ids::prepare(&dice, &mut plan),
            Scenario::Gaps => gaps::prepare(&dice, &mut plan),
            Scenario::Retention => gaps::retain(&dice, &mut plan),
            Scenario::Compaction => compaction::prepare(&dice, &mut plan),
            Scenario::Unclean => unclean::prepare(&dice, &mut plan),
            Scenario::Dropped => {
                plan.transaction_version = dice.one_of(&[1, 2]);
                plan.dropped = dice.one_of(&[10, 30, 60]);
            }
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
                Scenario::Dropped => {
                    producer.records = 150;
                    producer.batch_size = dice.one_of(&[100, 300]);
                    producer.batch_max_size = producer.batch_size;
                    // Room for a few batches: sends wait for memory.
                    producer.tuning.buffer_memory = dice.one_of(&[600, 1200, 4 << 10]);
                }
                Scenario::Groups => {
                    producer.records = 150;
                    producer.pause = dice.ms(10, 30);
                }
                Scenario::Keyless => producer.keyed = dice.one_of(&[0, 10, 50]),
                Scenario::Sparse => {
                    producer.records = 20;
                    producer.pause = dice.ms(20, 200);
                    producer.linger = dice.ms(0, 20);
                    producer.tuning.one_by_one = true;
                }
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
    // Often enough that a coordinator moves while it decides a transaction, or while the previous one still writes
    // markers.
    let apart = dice.one_of(&[50, 200, 500]);
    let coordinator = |n: u64| {
        let partition = dice.between(0, TRANSACTION_LOG_PARTITIONS as u64 - 1) as i32;
        let kind = FaultKind::MoveTransactions { partition, to: dice.broker() };
        fault(Duration::from_millis(200 + n * apart) + dice.ms(0, apart), Duration::ZERO, kind)
    };
    faults.extend((0..10).map(coordinator));
    faults
}

fn seeks(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let mut faults = moves(dice, dice.between(0, 10), partitions as u64, 250);
    let one = |n: u64| {
        let kind = super::fault(dice, dice.one_of(&[0, 2, 5, 7, 8]), partitions);
        fault(dice.ms(100 + 700 * n, 700 + 700 * n), dice.ms(100, 2000), kind)
    };
    faults.extend((0..dice.between(0, 3)).map(one));
    faults
}

/// Buffer memory is small and faults delay metadata, so that calls wait.
fn dropped(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let kind = super::fault(dice, dice.one_of(&[0, 2, 5, 7, 8]), partitions);
        fault(dice.ms(100 + 600 * n, 700 + 600 * n), dice.ms(50, 2000), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(0, 3)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 6), partitions as u64, 300));
    let coordinator = |n: u64| {
        let kind = FaultKind::MoveCoordinator { to: dice.broker() };
        fault(dice.ms(200 + 400 * n, 600 + 400 * n), Duration::ZERO, kind)
    };
    faults.extend((0..dice.between(0, 4)).map(coordinator));
    faults
}

fn resets(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let mut faults = moves(dice, dice.between(0, 6), partitions as u64, 400);
    let after = dice.one_of(&[600, 2000, 20_000]);
    faults.push(fault(dice.ms(0, 300), dice.ms(1000, 3000), FaultKind::Resets { after }));
    faults
}

/// Only links between brokers fail: clients see nothing but the effects on brokers.
fn cuts(dice: &Dice) -> Vec<Fault> {
    let one = |n: u64| {
        let from = dice.broker();
        let to = 1 + (from - 1 + dice.between(1, 2) as i32) % BROKERS;
        let (from, to) = (Host::Broker(from), Host::Broker(to));
        let kind = match dice.between(0, 6) {
            0 | 1 => FaultKind::Silence { between: from, and: to },
            2 => FaultKind::CutOffController { broker: dice.broker() },
            _ => FaultKind::OneWay { from, to },
        };
        fault(dice.ms(100 + 200 * n, 600 + 200 * n), dice.ms(300, 4000), kind)
    };
    (0..dice.between(2, 8)).map(one).collect()
}

fn clocks(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let host = dice.one_of(&[Host::Clients, Host::Broker(1), Host::Broker(2), Host::Broker(3)]);
        let far = dice.one_of(&[50, 5000, 3_600_000, 864_000_000]);
        let by_ms = dice.between(0, 2 * far) as i64 - far as i64;
        let kind = match dice.between(0, 2) {
            0 => FaultKind::ClockDrift { host, by_ms: dice.between(0, 1800) as i64 - 900 },
            _ => FaultKind::ClockJump { host, by_ms },
        };
        fault(dice.ms(50 + 150 * n, 300 + 150 * n), Duration::ZERO, kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(3, 12)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 6), partitions as u64, 400));
    let broker = dice.broker();
    let kill = FaultKind::Kill { broker, disk: Crash::KeepsAll };
    faults.push(fault(dice.ms(500, 1500), dice.ms(50, 2000), kill));
    faults
}

fn disks(dice: &Dice, partitions: i32) -> Vec<Fault> {
    let one = |n: u64| {
        let broker = dice.broker();
        let kind = match dice.between(0, 3) {
            0 => FaultKind::Kill { broker, disk: Crash::LosesUnsynced },
            _ => FaultKind::DiskFull { broker, room: dice.one_of(&[0, 100, 3000]) },
        };
        fault(dice.ms(100 + 700 * n, 700 + 700 * n), dice.ms(100, 2500), kind)
    };
    let mut faults: Vec<Fault> = (0..dice.between(1, 4)).map(one).collect();
    faults.extend(moves(dice, dice.between(0, 6), partitions as u64, 400));
    faults
}
