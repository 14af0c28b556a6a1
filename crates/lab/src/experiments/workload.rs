//! An experiment as data, for the runner in virtual time, which has no threads to wait with.

use std::{ops::Range, time::Duration};

use super::{Arm, Keys, Modelled, Order, Placement, Setting, Windows};

/// Work of the simulation.
#[derive(Clone, Debug)]
pub enum Simulated {
    /// Open loop: each record is sent when it is due.
    Load(Box<Workload>),
    /// Closed loop: the next record is sent once the previous one has been read.
    ClosedLoop(Box<ClosedLoop>),
}

impl From<Workload> for Simulated {
    fn from(workload: Workload) -> Self {
        Self::Load(Box::new(workload))
    }
}

impl Simulated {
    /// Parts of the simulation that are models, for the report.
    #[must_use]
    pub fn models(&self) -> Vec<Modelled> {
        match self {
            Self::Load(workload) => workload.models(),
            Self::ClosedLoop(closed) => closed.model.describe(),
        }
    }
}

/// One record at a time from a producer to a consumer on the same machine, on a cluster at rest.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    /// Brokers of the cluster.
    pub brokers: u32,
    /// Partitions of the topic.
    pub partitions: i32,
    /// Replicas of each.
    pub replicas: i16,
    /// The producer's settings by Kafka's names; later ones win.
    pub producer: Vec<(&'static str, String)>,
    /// The consumer's settings. It reads all partitions; with `group.id` it is the only member of its group.
    pub consumer: Vec<(&'static str, String)>,
    /// Records that are measured, after the warm-up.
    pub records: u64,
    /// Records of the warm-up.
    pub warmup: u64,
    /// Bytes of a value.
    pub size: usize,
    /// The modelled network, brokers and disks.
    pub model: Model,
}

/// A load on one topic, and what happens to the cluster during it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Brokers of the cluster.
    pub brokers: u32,
    /// Broker settings by Kafka's names, over the defaults of Apache Kafka.
    pub broker_properties: Vec<(&'static str, String)>,
    /// Partitions of the topic.
    pub partitions: i32,
    /// Replicas of each.
    pub replicas: i16,
    /// Settings of the topic by Kafka's names.
    pub topic_properties: Vec<(&'static str, String)>,
    /// Producers, which share the load evenly.
    pub producers: u32,
    /// Machines they are spread over.
    pub client_hosts: u32,
    /// The producers' settings by Kafka's names; later ones win.
    pub properties: Vec<(&'static str, String)>,
    /// Records of all producers together; an upper bound with [`End::Script`].
    pub records: u64,
    /// Records at the start that are sent and checked but not measured.
    pub warmup: u64,
    /// Records per second of all producers together, above 0; `None` for as fast as possible.
    pub rate: Option<f64>,
    /// Bytes of a value, at least 8.
    pub size: usize,
    /// Records due at the same time, at least 1. All are due when the first of them would be due alone.
    pub burst: u64,
    /// Load records that one sent record stands for, at least 1.
    ///
    /// The sent record is as large as all of them and is sent when the last of them is due. The latency of
    /// each counts from its own due time.
    pub bundle: u32,
    /// Keys.
    pub keys: Keys,
    /// The component that chooses the partitions of keyless records.
    pub placement: Placement,
    /// Target partitions.
    pub sent_to: SentTo,
    /// The order that the check of the topic requires.
    pub order: Order,
    /// Which records count.
    pub measured: Measured,
    /// Consumers that run alongside the load and read every record.
    pub readers: Option<Readers>,
    /// Zones of producers and consumers, if any.
    pub zones: Option<Zones>,
    /// Number of lookups of unknown topics by the first producer, evenly spread over the load.
    pub lookups: u32,
    /// Script: acts and their times.
    pub script: Vec<(When, Act)>,
    /// What ends the load.
    pub end: End,
    /// Records sent a second time, undisturbed and as fast as possible, to a separate topic. Only their
    /// throughput counts.
    pub flat_out: Option<u64>,
    /// The modelled network, brokers and disks.
    pub model: Model,
}

/// No records yet: one broker, one producer of keyless records for all partitions, and an empty script.
impl Default for Workload {
    fn default() -> Self {
        Self {
            brokers: 1,
            broker_properties: Vec::new(),
            partitions: 1,
            replicas: 1,
            topic_properties: Vec::new(),
            producers: 1,
            client_hosts: 1,
            properties: Vec::new(),
            records: 0,
            warmup: 0,
            rate: None,
            size: 8,
            burst: 1,
            bundle: 1,
            keys: Keys::None,
            placement: Placement::Producer,
            sent_to: SentTo::All,
            order: Order::Sent,
            measured: Measured::All,
            readers: None,
            zones: None,
            lookups: 0,
            script: Vec::new(),
            end: End::Records,
            flat_out: None,
            model: Model::default(),
        }
    }
}

impl Workload {
    /// Parts of the workload that are models, for the report.
    #[must_use]
    pub fn models(&self) -> Vec<Modelled> {
        let mut models = self.model.describe();
        if let Some(Readers { work: (shortest, longest), .. }) = self.readers
            && !longest.is_zero()
        {
            models.push(Modelled::new(
                "the application's work after each non-empty poll",
                [("at least", format!("{shortest:?}")), ("at most", format!("{longest:?}"))],
            ));
        }
        if self.bundle > 1 {
            models.push(Modelled::new(
                "the load: one sent record stands for several, has their size, and is sent when the last of them is due",
                [("records in one", self.bundle.to_string())],
            ));
        }
        models
    }
}

/// Target partitions of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentTo {
    /// To all, as keys or [`Workload::placement`] say.
    All,
    /// In turn to the partitions that a broker does not lead when the load begins.
    NotLedBy(i32),
    /// In turn to the partitions that a broker leads or has no replica of when the load begins.
    WithoutOrLedBy(i32),
    /// In turn to each partition.
    Each,
    /// All to one leader other than `follower`.
    ///
    /// Records go in turn to this leader's partitions without a replica on `follower`, and one record in
    /// `one_of` to a partition that `follower` replicates.
    Beside {
        /// Id of the following broker.
        follower: i32,
        /// Interval, in records, between those to the partition that `follower` replicates.
        one_of: usize,
        /// Whether a second producer sends these records.
        apart: bool,
    },
}

/// Records that count, of those after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// All of them.
    All,
    /// Records due while a broker is impaired, to partitions without a replica on it.
    ///
    /// Records due earlier and records to other partitions are reported separately.
    Bystanders {
        /// Id of the impaired broker.
        broker: i32,
        /// The periods in which it is impaired.
        windows: Windows,
    },
    /// Records to partitions without a replica on a broker. The others are reported separately.
    Without {
        /// Id of that broker.
        broker: i32,
    },
}

/// Zones of a load's clients. Brokers are in the zones that `broker.rack` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Zone of all producers.
    pub producers: &'static str,
    /// Zone of all consumers.
    pub readers: &'static str,
}

/// Consumers without a group.
///
/// Each is assigned every partition, is at its end before the first record is due, and has its own machine.
#[derive(Clone, Debug)]
pub struct Readers {
    /// Number of consumers.
    pub count: u32,
    /// Their settings by Kafka's names; later ones win.
    pub properties: Vec<(&'static str, String)>,
    /// Shortest and longest time that the application takes after a non-empty poll. The distribution is
    /// uniform.
    pub work: (Duration, Duration),
    /// Use of their latencies.
    pub latency: ReaderLatency,
    /// Records of an earlier load to read first, if the load ends with its records.
    pub backlog: Option<Backlog>,
    /// The partition whose records do not count in the latencies, if any.
    pub apart: Option<i32>,
    /// Records at the end of the load that they read and that do not count in the latencies.
    pub cooldown: u64,
    /// Whether the number of their fetches is reported, if the load ends with its records.
    pub fetches: bool,
}

/// One consumer that does nothing with the records and whose latencies count.
impl Default for Readers {
    fn default() -> Self {
        Self {
            count: 1,
            properties: Vec::new(),
            work: (Duration::ZERO, Duration::ZERO),
            latency: ReaderLatency::Measured,
            backlog: None,
            apart: None,
            cooldown: 0,
            fetches: false,
        }
    }
}

/// Records before the end of some partitions. Consumers begin to read them when the first new record is due.
#[derive(Clone, Debug)]
pub struct Backlog {
    /// Records of all these partitions together.
    pub records: u64,
    /// Partitions that hold them, evenly.
    pub partitions: Range<i32>,
}

/// Use of the latencies that end with the poll that returns the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderLatency {
    /// They are the latencies of the arm, instead of those until the acknowledgement.
    Measured,
    /// Their 99th percentile is reported as a separate figure.
    Beside,
}

/// What ends a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of its records have been sent.
    Records,
    /// Its script has ended, which must happen before all records have been sent.
    Script,
}

/// Time of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This long after the first record was due, or at the end of the previous act if that is later.
    At(Duration),
    /// This long after the end of the previous act.
    After(Duration),
}

/// Something that happens to the cluster. The runner repairs whatever is still broken before it reads the
/// topic back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Moves the leadership of each partition to its next in-sync replica.
    RotateLeaders,
    /// Delays a broker's responses to produce requests from now on.
    Slow {
        /// Id of the broker.
        broker: i32,
        /// Additional delay.
        by: Duration,
    },
    /// Kills a broker (SIGKILL).
    Kill {
        /// The broker's id.
        broker: i32,
    },
    /// Freezes a broker (SIGSTOP).
    Freeze {
        /// The broker's id.
        broker: i32,
    },
    /// Resumes a frozen broker (SIGCONT).
    Thaw {
        /// The broker's id.
        broker: i32,
    },
    /// Shuts a broker down (SIGTERM). Ends when it has moved its leaders and exited.
    Stop {
        /// The broker's id.
        broker: i32,
    },
    /// Starts a broker that was killed or stopped. Ends when it serves requests.
    Restart {
        /// The broker's id.
        broker: i32,
    },
    /// Waits until every broker knows a leader for each partition, with all replicas in sync.
    AwaitInSync,
    /// Reads the fetch session counters of the brokers.
    CountSessions,
    /// Does nothing; the load continues.
    GoOn,
}

/// Modelled times. Client and brokers are the real code; beyond these times CPU work costs no time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Network: shortest one-way delay between two machines.
    pub latency: Duration,
    /// Network: largest additional delay, uniformly distributed.
    pub jitter: Duration,
    /// Network: additional one-way delay between two zones.
    pub zones: Duration,
    /// Network: bytes per second of each machine, in each direction.
    pub bandwidth: u64,
    /// Network: bytes in flight or unread in one direction of a connection.
    pub socket_buffer: usize,
    /// Broker: time for a produce request, or for a follower's fetch response with records, one at a time.
    pub request: Duration,
    /// Broker: additional time per batch in it.
    pub append: Duration,
    /// Broker: bytes written per second.
    pub disk_bandwidth: u64,
    /// Metadata: shortest and longest delay from the controller to a broker. Each broker has its own fixed
    /// delay in between.
    pub propagation: (Duration, Duration),
}

impl Default for Model {
    /// Machines of the size behind the published figures (`m5.xlarge`, `r5.xlarge`): up to 10 Gbit/s of
    /// network, four CPUs that share 0.1 ms per request, and a page cache before the disk.
    ///
    /// The metadata delay is that of Apache Kafka 4.3 on an idle machine: 54 to 129 ms.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(250),
            jitter: Duration::from_micros(100),
            zones: Duration::ZERO,
            bandwidth: 1_250_000_000,
            socket_buffer: 4 << 20,
            request: Duration::from_micros(25),
            append: Duration::from_micros(5),
            disk_bandwidth: 500_000_000,
            propagation: (Duration::from_millis(54), Duration::from_millis(129)),
        }
    }
}

impl Model {
    fn describe(&self) -> Vec<Modelled> {
        let Self { latency, jitter, zones, bandwidth, socket_buffer, .. } = self;
        let Self { request, append, disk_bandwidth, .. } = self;
        let (shortest, longest) = &self.propagation;
        let time = |duration: &Duration| format!("{duration:?}");
        let between = (!zones.is_zero()).then(|| ("more between zones", time(zones)));
        let network = [
            ("one-way delay, at least", time(latency)),
            ("additional delay, at most", time(jitter)),
            ("each machine, each direction", format!("{bandwidth} bytes/s")),
            ("socket buffers", format!("{socket_buffer} bytes")),
        ];
        vec![
            Modelled::new("the network", network.into_iter().chain(between)),
            Modelled::new(
                "a broker's time for writing, one request at a time",
                [
                    ("a request", time(request)),
                    ("a batch of it", time(append)),
                    ("its bytes", format!("{disk_bandwidth} bytes/s")),
                ],
            ),
            Modelled::new(
                "metadata delay from the controller to a broker, fixed for each broker",
                [("at least", time(shortest)), ("at most", time(longest))],
            ),
        ]
    }
}

/// An experiment's client settings, followed by those of an arm.
pub(super) fn properties(own: &[(&'static str, &str)], arm: &Arm) -> Vec<(&'static str, String)> {
    own.iter().chain(arm.properties).map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// The broker that the script hits. It changes with the seed, as it changes with the round in real time.
pub(super) fn victim(setting: &Setting) -> i32 {
    1 + (setting.seed % 3) as i32
}

/// Freezes a broker once per `period`, each time too briefly for the controller to fence it.
pub(super) fn falter(
    broker: i32,
    run: Duration,
    period: Duration,
    frozen: Duration,
) -> Vec<(When, Act)> {
    let pauses = (run.as_nanos().div_ceil(period.as_nanos())) as u32;
    let pause = |at: Duration| {
        let thaw = (When::At(at + frozen), Act::Thaw { broker });
        [(When::At(at), Act::Freeze { broker }), thaw]
    };
    (0..pauses).flat_map(|number| pause(period * number)).collect()
}
