//! The plan of a seed: the network, the workload and the faults of one run. Pure.

mod compaction;
mod copies;
mod disks;
mod gaps;
mod groups;
mod producer_ids;
mod racks;
mod scenario;
mod settings;
mod topics;
mod unclean;

use std::time::Duration;

use curtail::config::{Acks, Codec};
use curtail_cluster::Plant;
use curtail_net::Entropy;

pub use self::{
    compaction::{COMPACTED, CompactionPlan},
    copies::{CopyEnd, CopyLife, CopyPlan},
    gaps::{GapPlan, Retention, SHRINKING},
    groups::{Commits, GroupPlan, LifeEnd, LifePlan, MemberBug, SlotPlan},
    producer_ids::IdPlan,
    racks::RACKS,
    scenario::Scenario,
    topics::TopicPlan,
    unclean::LOSING,
};

/// Brokers of every simulated cluster.
pub const BROKERS: i32 = 3;

/// Partitions of the transaction coordinators' log: each has a separate coordinator.
pub const TRANSACTION_LOG_PARTITIONS: i32 = 3;

/// All choices made before a run begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its seed; the run draws from it too.
    pub seed: u64,
    /// The requested scenario; `None` for the mixture.
    pub scenario: Option<Scenario>,
    /// Shortest and longest latency of a message.
    pub latency: (Duration, Duration),
    /// Average number of writes for each one that is taken only in part; 0 for none.
    pub short_writes: u64,
    /// Partitions of the topic.
    pub partitions: i32,
    /// `segment.bytes` of the brokers' logs.
    pub segment_bytes: u64,
    /// `transaction.version` of the cluster: 1, or 2 with an epoch for each transaction (KIP-890).
    pub transaction_version: i16,
    /// The producers.
    pub producers: Vec<ProducerPlan>,
    /// The faults, by time of beginning.
    pub faults: Vec<Fault>,
    /// Topics besides the first one, whose partitions are [`Self::partitions`].
    pub more_topics: Vec<TopicPlan>,
    /// `message.max.bytes` of the brokers.
    pub message_max_bytes: usize,
    /// Whether the brokers sync every append (`log.flush.interval.messages` 1).
    pub flush_each: bool,
    /// Bytes of each log that the brokers keep in memory.
    pub tail_cache_bytes: usize,
    /// A bug to plant in the brokers.
    pub plant: Option<Plant>,
    /// A bug to plant in the client.
    #[cfg(feature = "plants")]
    pub client_plant: Option<curtail::plant::Plant>,
    /// A consumer group, if there is one.
    pub group: Option<GroupPlan>,
    /// Applications that copy the first topic, if there are any.
    pub copies: Option<CopyPlan>,
    /// How brokers number and forget producers, if not by default.
    pub ids: Option<IdPlan>,
    /// Deletions of old records, if there are any.
    pub gaps: Option<GapPlan>,
    /// A compacted topic, if there is one.
    pub compaction: Option<CompactionPlan>,
    /// Of 100 calls of the producers, how many are dropped at one of their await points.
    pub dropped: u64,
}

/// Settings and workload of one producer.
#[derive(Clone, Debug)]
pub struct ProducerPlan {
    /// Records to send.
    pub records: u32,
    /// Mean pause between two sends.
    pub pause: Duration,
    /// Of 100 records, how many have a key.
    pub keyed: u64,
    /// `linger.ms`.
    pub linger: Duration,
    /// `batch.size` in bytes.
    pub batch_size: usize,
    /// `batch.max.size`.
    pub batch_max_size: usize,
    /// `max.in.flight.requests.per.connection`.
    pub max_in_flight: usize,
    /// `request.timeout.ms`.
    pub request_timeout: Duration,
    /// `delivery.timeout.ms`.
    pub delivery_timeout: Duration,
    /// `curtail.route.around.trouble`.
    pub route_around_trouble: bool,
    /// The rest of its settings.
    pub tuning: Tuning,
}

/// Settings of a producer that the mixture does not vary.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// `acks`.
    pub acks: Acks,
    /// `enable.idempotence`.
    pub idempotence: bool,
    /// `compression.type`.
    pub codec: Codec,
    /// `buffer.memory` in bytes.
    pub buffer_memory: usize,
    /// `max.request.size` in bytes.
    pub max_request_size: usize,
    /// Of 100 sends, how many are dropped soon if they have not appended their record by then.
    pub impatient: u64,
    /// Index of the topic that it sends to; 0 for the first one.
    pub topic: usize,
    /// Whether each record waits for the outcome of the one before.
    pub one_by_one: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            acks: Acks::All,
            idempotence: true,
            codec: Codec::None,
            buffer_memory: 32 << 20,
            max_request_size: 1 << 20,
            impatient: 0,
            topic: 0,
            one_by_one: false,
        }
    }
}

/// One fault, which is undone some time after its start.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Start, counted from the start of the workload.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The broker's process dies and restarts.
    Kill {
        /// Which one.
        broker: i32,
        /// Fate of unsynced data.
        disk: Crash,
    },
    /// The broker stops responding without closing connections, and resumes.
    Freeze {
        /// Which one.
        broker: i32,
    },
    /// Another replica becomes the leader of a partition.
    MoveLeader {
        /// Which one.
        partition: i32,
        /// The new leader, if it is in sync.
        to: i32,
    },
    /// Another broker becomes the coordinator of the consumer groups.
    MoveCoordinator {
        /// The new one, if it is in sync.
        to: i32,
    },
    /// Another broker becomes the coordinator of the transactions in one partition of their log.
    MoveTransactions {
        /// Which partition.
        partition: i32,
        /// The new coordinator, if it is in sync.
        to: i32,
    },
    /// Metadata reaches the broker late.
    LateMetadata {
        /// Which one.
        broker: i32,
        /// How late.
        by: Duration,
    },
    /// Metadata does not reach the broker.
    FrozenMetadata {
        /// Which one.
        broker: i32,
    },
    /// The broker's responses to one API are delayed.
    SlowAnswers {
        /// Which one.
        broker: i32,
        /// Key of the API: 0 for Produce, 1 for Fetch, 3 for Metadata.
        api: i16,
        /// Delay of each response.
        by: Duration,
    },
    /// A link carries nothing. Connections over it fail after two seconds; before that, nothing is lost.
    Silence {
        /// One end.
        between: Host,
        /// The other end.
        and: Host,
    },
    /// The link between a member of the group and its coordinator is silent, as with [`Self::Silence`].
    CutOff {
        /// Place of the member.
        member: u32,
    },
    /// A topic gets more partitions.
    Grow {
        /// Index of the topic.
        topic: usize,
        /// Partitions that it has then, if that is more.
        to: i32,
    },
    /// A topic is deleted, and created with the same name at the end.
    Recreate {
        /// Index of the topic.
        topic: usize,
        /// Partitions of its successor.
        partitions: i32,
    },
    /// The disk of a broker has room for only a few more bytes.
    DiskFull {
        /// Which one.
        broker: i32,
        /// Bytes that still fit.
        room: u64,
    },
    /// Operations of a broker's disk return errors.
    DiskFails {
        /// Which one.
        broker: i32,
        /// Which operations.
        operation: DiskError,
    },
    /// Appends to a broker's disk are delayed.
    SlowDisk {
        /// Which one.
        broker: i32,
        /// Delay of each append.
        by: Duration,
    },
    /// Appends to a broker's disk wait until the end.
    StuckDisk {
        /// Which one.
        broker: i32,
    },
    /// A sync of the controller's journal does not return until the end. It blocks the cluster's process.
    StuckJournal {
        /// Whether all machines lose power at the end, so that it never returns. Only with [`Plan::flush_each`]: otherwise
        /// Kafka itself loses records.
        power: bool,
    },
    /// Bits of a broker's logs flip, and a follower that has lost a part of its logs replicates them.
    Corrupt {
        /// Broker whose logs decay.
        broker: i32,
        /// The follower.
        follower: i32,
    },
    /// The controller crashes, and restarts from its journal at the end.
    CrashController {
        /// Whether partitions and a topic are added just before.
        grow: bool,
    },
    /// The broker and the controller cannot reach each other.
    CutOffController {
        /// Which one.
        broker: i32,
    },
    /// Connections that the clients open break after a number of bytes in one direction.
    Resets {
        /// Most bytes that one of them carries.
        after: u64,
    },
    /// The clock of a host jumps.
    ClockJump {
        /// Which one.
        host: Host,
        /// By how many milliseconds.
        by_ms: i64,
    },
    /// The clock of a host runs too fast or too slow from now on.
    ClockDrift {
        /// Which one.
        host: Host,
        /// By how many milliseconds in each second.
        by_ms: i64,
    },
    /// A replica falls out of sync, then all others die. It is elected if unclean elections are allowed; the others
    /// return.
    Unclean {
        /// The broker that is elected.
        survivor: i32,
        /// Whether it lives and cannot reach the others; otherwise it is dead until they are.
        isolated: bool,
    },
    /// A link loses everything in one direction.
    OneWay {
        /// Sender of the lost messages.
        from: Host,
        /// Receiver that they do not reach.
        to: Host,
    },
}

/// What a crash does to a broker's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The operating system survives and keeps all data that the broker wrote.
    KeepsAll,
    /// The machine dies and loses a part of the unsynced data. It happens only while every partition has all its
    /// replicas in sync; otherwise Kafka itself, which does not sync before it acknowledges, would lose records.
    LosesUnsynced,
    /// As [`Self::LosesUnsynced`], at the worst moment: any unsynced page and any unsynced change of a directory may
    /// be lost.
    Torn,
}

impl Crash {
    /// Whether the broker has lost data.
    pub(crate) fn forgets(self) -> bool {
        self != Self::KeepsAll
    }
}

/// Operations of a disk that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// Appending, truncating and replacing files.
    Append,
    /// Making appended bytes or names durable.
    Sync,
    /// Reading.
    Read,
}

/// A host of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A broker, by its id.
    Broker(i32),
    /// The host of the producers.
    Clients,
    /// The host of a place in the consumer group, from 1.
    Member(u32),
}

impl Host {
    /// Name of the host on the network.
    pub fn name(self) -> String {
        match self {
            Self::Broker(id) => format!("broker-{id}"),
            Self::Clients => "clients".into(),
            Self::Member(slot) => format!("member-{slot}"),
        }
    }
}

struct Dice(Entropy);

impl Dice {
    fn between(&self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    fn ms(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.0.below(choices.len() as u64) as usize]
    }

    fn broker(&self) -> i32 {
        self.between(1, BROKERS as u64) as i32
    }
}

impl Plan {
    /// `curtail.prefer.proven.partitions` of the producers: on in three seeds of four.
    pub fn prefers_proven_partitions(&self) -> bool {
        self.seed % 4 != 3
    }

    /// `curtail.separate.unproven.partitions` of the producers: on in seven seeds of eight.
    pub fn separates_unproven_partitions(&self) -> bool {
        self.seed % 8 != 5
    }

    /// `curtail.move.refused.batches` of the producers: on in seven seeds of eight.
    pub fn moves_refused_batches(&self) -> bool {
        self.seed % 8 != 6
    }

    /// The plan of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let dice = Dice(Entropy::from_seed(seed));
        let slowest = dice.one_of(&[2, 5, 20, 50]);
        let partitions = dice.between(4, 6) as i32;
        let mut plan = Self {
            seed,
            scenario: None,
            latency: (dice.ms(0, 1), Duration::from_millis(slowest)),
            short_writes: dice.one_of(&[0, 2, 10]),
            partitions,
            segment_bytes: dice.one_of(&[4 << 10, 32 << 10, 1 << 30]),
            transaction_version: 2,
            producers: (0..dice.between(1, 3)).map(|_| producer(&dice)).collect(),
            faults: Vec::new(),
            more_topics: Vec::new(),
            message_max_bytes: 1_048_588,
            flush_each: false,
            tail_cache_bytes: 1 << 20,
            plant: None,
            #[cfg(feature = "plants")]
            client_plant: None,
            group: None,
            copies: None,
            ids: None,
            gaps: None,
            compaction: None,
            dropped: 0,
        };
        plan.faults = faults(&dice, plan.workload(), partitions);
        plan
    }

    /// The same run on brokers with a bug.
    #[must_use]
    pub fn with_plant(mut self, plant: Plant) -> Self {
        self.plant = Some(plant);
        self
    }

    /// The same run with a client that has a bug.
    #[cfg(feature = "plants")]
    #[must_use]
    pub fn with_client_plant(mut self, plant: curtail::plant::Plant) -> Self {
        self.client_plant = Some(plant);
        self
    }

    /// The same run with members that have a bug.
    #[must_use]
    pub fn with_bug(mut self, bug: MemberBug) -> Self {
        if let Some(group) = &mut self.group {
            group.bug = Some(bug);
        }
        self
    }

    /// Whether the producers are transactional.
    pub fn is_transactional(&self) -> bool {
        self.scenario == Some(Scenario::Transactions)
            || self.scenario == Some(Scenario::Dropped) && self.seed.is_multiple_of(2)
            || self.ids.as_ref().is_some_and(|ids| ids.transactional)
            || self.compaction.is_some_and(|compaction| compaction.transactional)
    }

    /// Approximate duration of the sends.
    pub fn workload(&self) -> Duration {
        self.producers.iter().map(|p| p.pause * p.records).max().unwrap_or_default()
    }

    /// Time when every fault has ended.
    pub fn quiet_from(&self) -> Duration {
        self.faults.iter().map(|fault| fault.at + fault.lasts).max().unwrap_or_default()
    }
}

fn producer(dice: &Dice) -> ProducerPlan {
    let pause = dice.one_of(&[2, 10, 30]);
    let request_timeout = dice.ms(1500, 3000);
    let batch_size = dice.one_of(&[256, 1024, 16 << 10]);
    ProducerPlan {
        records: (dice.between(3000, 6000) / pause).min(800) as u32,
        pause: Duration::from_millis(pause),
        keyed: dice.one_of(&[0, 50, 100]),
        linger: dice.one_of(&[0, 0, 5, 20]).into_ms(),
        batch_size,
        batch_max_size: batch_size * dice.one_of(&[1, 2, 4]),
        max_in_flight: dice.one_of(&[1, 2, 5, 5, 5]),
        request_timeout,
        delivery_timeout: request_timeout + dice.one_of(&[100, 2000, 20_000]).into_ms(),
        route_around_trouble: dice.one_of(&[true, true, false]),
        tuning: Tuning::default(),
    }
}

trait IntoMs {
    fn into_ms(self) -> Duration;
}

impl IntoMs for u64 {
    fn into_ms(self) -> Duration {
        Duration::from_millis(self)
    }
}

fn faults(dice: &Dice, workload: Duration, partitions: i32) -> Vec<Fault> {
    let count = dice.between(2, 8);
    let end = workload.as_millis() as u64;
    // Some runs have one kind of fault often, others a mixture.
    let only = (dice.0.below(3) == 0).then(|| dice.0.below(KINDS));
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| {
            let at = dice.ms(100, end.max(200));
            let lasts = dice.one_of(&[(50, 500), (500, 2500), (2500, 5000)]);
            let kind = only.unwrap_or_else(|| dice.0.below(KINDS));
            Fault { at, lasts: dice.ms(lasts.0, lasts.1), kind: fault(dice, kind, partitions) }
        })
        .collect();
    if dice.0.below(4) == 0 {
        // A storm of leader moves.
        faults.extend((0..30).map(|n| Fault {
            at: Duration::from_millis(end / 3 + 50 * n),
            lasts: Duration::ZERO,
            kind: fault(dice, MOVE_LEADER, partitions),
        }));
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

const KINDS: u64 = 10;
const MOVE_LEADER: u64 = 3;

fn fault(dice: &Dice, kind: u64, partitions: i32) -> FaultKind {
    let broker = dice.broker();
    match kind {
        0 => FaultKind::Kill { broker, disk: Crash::KeepsAll },
        1 => FaultKind::Kill { broker, disk: Crash::LosesUnsynced },
        2 => FaultKind::Freeze { broker },
        MOVE_LEADER | 4 => {
            let partition = dice.between(0, partitions as u64 - 1) as i32;
            FaultKind::MoveLeader { partition, to: broker }
        }
        5 => FaultKind::LateMetadata { broker, by: dice.ms(10, 2000) },
        6 => FaultKind::FrozenMetadata { broker },
        7 => {
            let api = dice.one_of(&[0, 0, 1, 3]);
            FaultKind::SlowAnswers { broker, api, by: dice.ms(10, 3000) }
        }
        8 => {
            let (between, and) = link(dice, broker);
            FaultKind::Silence { between, and }
        }
        _ => {
            let (from, to) = link(dice, broker);
            FaultKind::OneWay { from, to }
        }
    }
}

/// A broker's link to another broker or to the clients, in either direction.
fn link(dice: &Dice, broker: i32) -> (Host, Host) {
    let other = match dice.0.below(2) {
        0 => Host::Clients,
        _ => Host::Broker(1 + (broker - 1 + dice.between(1, 2) as i32) % BROKERS),
    };
    match dice.0.below(2) {
        0 => (Host::Broker(broker), other),
        _ => (other, Host::Broker(broker)),
    }
}
