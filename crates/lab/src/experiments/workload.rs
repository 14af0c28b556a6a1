//! What an experiment does, as data: for a runner in virtual time, which has no threads to wait with.

use std::{ops::Range, time::Duration};

use super::{Arm, Keys, Modelled, Order, Placement, Setting, Windows};

/// What the simulation is to do.
#[derive(Clone, Debug)]
pub enum Simulated {
    /// Records come when they are due.
    Load(Box<Workload>),
    /// The next record comes when the one before has been read.
    ClosedLoop(ClosedLoop),
}

impl From<Workload> for Simulated {
    fn from(workload: Workload) -> Self {
        Self::Load(Box::new(workload))
    }
}

impl Simulated {
    /// What a report has to say of the model.
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
    /// Those of the consumer, which has all partitions; with `group.id` as the only member of its group.
    pub consumer: Vec<(&'static str, String)>,
    /// Records that are measured.
    pub records: u64,
    /// Records before them.
    pub warmup: u64,
    /// Bytes of a value.
    pub size: usize,
    /// What is a model.
    pub model: Model,
}

/// A load on one topic, and what happens to the cluster meanwhile.
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
    /// Records of all producers together, or how many at most ([`Workload::end`]).
    pub records: u64,
    /// How many of them at the start are sent and checked but not measured.
    pub warmup: u64,
    /// Records a second of all producers together, above 0; `None` for as many as they get rid of.
    pub rate: Option<f64>,
    /// Bytes of a value, at least 8.
    pub size: usize,
    /// How many records are due at the same moment, at least 1: the first of them when it would be due alone.
    pub burst: u64,
    /// How many records one record of the load stands for, at least 1: it is as large as all of them, is sent when the last of
    /// them is due, and the latency of each counts from when it was due itself.
    pub bundle: u32,
    /// Keys.
    pub keys: Keys,
    /// Who chooses the partitions of records without a key.
    pub placement: Placement,
    /// Which partitions they go to.
    pub sent_to: SentTo,
    /// Which order the topic must have.
    pub order: Order,
    /// Which records count.
    pub measured: Measured,
    /// Consumers beside the load, each of which reads every record.
    pub readers: Option<Readers>,
    /// How often the first producer is asked about a topic that it does not know, evenly over the load.
    pub lookups: u32,
    /// What happens when.
    pub script: Vec<(When, Act)>,
    /// What ends the load.
    pub end: End,
    /// So many records are sent again to a topic of their own, as fast as possible, undisturbed, for their throughput alone.
    pub flat_out: Option<u64>,
    /// What is a model.
    pub model: Model,
}

/// No records yet, on a cluster of one broker, from one producer without keys to all partitions; nothing happens meanwhile.
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
            lookups: 0,
            script: Vec::new(),
            end: End::Records,
            flat_out: None,
            model: Model::default(),
        }
    }
}

impl Workload {
    /// What a report has to say of the model.
    #[must_use]
    pub fn models(&self) -> Vec<Modelled> {
        let mut models = self.model.describe();
        if let Some(Readers { work: (shortest, longest), .. }) = self.readers
            && !longest.is_zero()
        {
            models.push(Modelled::new(
                "what a consumer's application does after each poll that gave something",
                [("at least", format!("{shortest:?}")), ("at most", format!("{longest:?}"))],
            ));
        }
        if self.bundle > 1 {
            models.push(Modelled::new(
                "the load: several records are sent as one that is as large, when the last of them is due",
                [("records in one", self.bundle.to_string())],
            ));
        }
        models
    }
}

/// Which partitions records go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentTo {
    /// To all, as keys or [`Workload::placement`] say.
    All,
    /// In turn to those that a broker does not lead when the load begins.
    NotLedBy(i32),
    /// In turn to those that a broker has no copy of when the load begins, and to those that it leads.
    WithoutOrLedBy(i32),
    /// In turn to each of them.
    Each,
    /// All to one other broker: in turn to those of its partitions that `follower` has no copy of, and one record in so many to one
    /// that it follows.
    Beside {
        /// The id of the broker that follows.
        follower: i32,
        /// One record in so many.
        one_of: usize,
        /// Whether a second producer sends that one.
        apart: bool,
    },
}

/// Which records count, of those behind the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// All of them.
    All,
    /// Those that are due while a broker is in trouble, to partitions that it has no copy of; beside them those before, and
    /// those to other partitions.
    Bystanders {
        /// Its id.
        broker: i32,
        /// When it is.
        windows: Windows,
    },
    /// Those to partitions that a broker has no copy of, and the others beside them.
    Without {
        /// Its id.
        broker: i32,
    },
}

/// Consumers without a group: each is assigned every partition, is at its end before the first record is due, and has a
/// machine of its own.
#[derive(Clone, Debug)]
pub struct Readers {
    /// How many.
    pub count: u32,
    /// Their settings by Kafka's names; later ones win.
    pub properties: Vec<(&'static str, String)>,
    /// How long the application takes after each poll that gave something: the shortest and the longest time, each one in
    /// between as likely as any other.
    pub work: (Duration, Duration),
    /// What becomes of their latencies.
    pub latency: ReaderLatency,
    /// What they have to read before, where the load ends with its records.
    pub backlog: Option<Backlog>,
    /// The partition whose records have no place in the latencies, if any.
    pub apart: Option<i32>,
}

/// One that does nothing with the records, and whose latencies count.
impl Default for Readers {
    fn default() -> Self {
        Self {
            count: 1,
            properties: Vec::new(),
            work: (Duration::ZERO, Duration::ZERO),
            latency: ReaderLatency::Measured,
            backlog: None,
            apart: None,
        }
    }
}

/// Records in front of the end of some partitions, which consumers begin to read when the first new record is due.
#[derive(Clone, Debug)]
pub struct Backlog {
    /// How many, all partitions together.
    pub records: u64,
    /// Where they are, evenly.
    pub partitions: Range<i32>,
}

/// What becomes of the latencies until polls gave the records out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderLatency {
    /// They are the latencies of the arm, in place of those until the acknowledgement.
    Measured,
    /// Their 99th percentile is a figure of its own.
    Beside,
}

/// What ends a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of its records have been sent.
    Records,
    /// Its script is over; that is to be before all records have been sent.
    Script,
}

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after the first record was due, if what comes before it in the script is over by then.
    At(Duration),
    /// So long after what comes before it in the script was over.
    After(Duration),
}

/// Something that happens to the cluster. What is broken at the end is set right before the topic is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Each partition is led by the next one of its in-sync replicas.
    RotateLeaders,
    /// A broker's answers to produce requests are so much later from now on.
    Slow {
        /// Its id.
        broker: i32,
        /// How much later.
        by: Duration,
    },
    /// kill -9
    Kill {
        /// The broker's id.
        broker: i32,
    },
    /// SIGSTOP
    Freeze {
        /// The broker's id.
        broker: i32,
    },
    /// SIGCONT
    Thaw {
        /// The broker's id.
        broker: i32,
    },
    /// SIGTERM, which is over when the broker has handed everything over and is gone.
    Stop {
        /// The broker's id.
        broker: i32,
    },
    /// A broker that was killed or stopped is started, which is over when it serves.
    Restart {
        /// The broker's id.
        broker: i32,
    },
    /// Nothing, until every broker knows each partition to have a leader and all its replicas in sync.
    AwaitInSync,
    /// The brokers are asked for what they count of their fetch sessions.
    CountSessions,
    /// Nothing: the load goes on.
    GoOn,
}

/// What takes time in the simulation, and how much. Client and brokers are the real ones; beyond this processors cost no time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Network: the shortest way from one machine to another.
    pub latency: Duration,
    /// Network: so much longer at most, each length as likely as any other.
    pub jitter: Duration,
    /// Network: bytes a second of each machine, in each direction.
    pub bandwidth: u64,
    /// Network: bytes under way and unread in one direction of a connection.
    pub socket_buffer: usize,
    /// Broker: what it needs for a request that writes, or a follower for an answer with something to write, one at a time.
    pub request: Duration,
    /// Broker: what it needs for each batch of it.
    pub append: Duration,
    /// Broker: bytes that it writes a second.
    pub disk_bandwidth: u64,
    /// Metadata: the shortest and the longest time from the controller to a broker; each broker has its own in between.
    pub propagation: (Duration, Duration),
}

impl Default for Model {
    /// Machines of the size that the published figures are from (`m5.xlarge`, `r5.xlarge`): up to 10 Gbit/s of network, four
    /// processors that share a tenth of a millisecond for a request, a page cache before the disk. Metadata takes as long as on Apache Kafka 4.3 on an idle machine: 54 to 129 ms.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(250),
            jitter: Duration::from_micros(100),
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
        let Self { latency, jitter, bandwidth, socket_buffer, .. } = self;
        let Self { request, append, disk_bandwidth, .. } = self;
        let (shortest, longest) = &self.propagation;
        let time = |duration: &Duration| format!("{duration:?}");
        vec![
            Modelled::new(
                "the network",
                [
                    ("one way at least", time(latency)),
                    ("longer by at most", time(jitter)),
                    ("each machine, each direction", format!("{bandwidth} bytes/s")),
                    ("socket buffers", format!("{socket_buffer} bytes")),
                ],
            ),
            Modelled::new(
                "what a broker's writing takes, one request at a time",
                [
                    ("a request", time(request)),
                    ("a batch of it", time(append)),
                    ("its bytes", format!("{disk_bandwidth} bytes/s")),
                ],
            ),
            Modelled::new(
                "how long metadata is under way to a broker, each broker having a time of its own",
                [("at least", time(shortest)), ("at most", time(longest))],
            ),
        ]
    }
}

/// An experiment's settings of the client, and over them those of an arm.
pub(super) fn properties(own: &[(&'static str, &str)], arm: &Arm) -> Vec<(&'static str, String)> {
    own.iter().chain(arm.properties).map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// The broker that something happens to: another one with each seed, as in each round of the others.
pub(super) fn victim(setting: &Setting) -> i32 {
    1 + (setting.seed % 3) as i32
}

/// A broker hangs again and again, from one `period` to the next for a time too short for anybody to call it dead.
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
