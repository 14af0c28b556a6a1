//! Experiments: a workload, arms that switch a mechanism off, the published figures, and conditions.
//!
//! Each file that implements [`Experiment`] is one experiment; [`all`] lists them. [`run`] starts the
//! cluster, runs the arms interleaved, and returns a [`Report`] with the measured and published figures and
//! the conditions. Load is open loop, and latency counts from the intended send time. Acknowledged records
//! are compared with the content of the topic afterwards.

mod acks;
mod bystanders;
mod catch_up;
mod check;
mod cold_start;
pub mod compare;
mod consume;
mod durability;
mod e2e;
pub mod export;
mod fetch_sessions;
mod fetch_wait;
mod head_of_line;
mod latency_throughput;
mod leader_move;
mod linger;
mod load;
mod lost_leader;
mod metadata_churn;
mod micro_burst;
mod min_isr;
mod observer;
mod phases;
mod preferred_return;
mod produce;
mod readers;
mod replication_factor;
mod report;
mod roll;
mod runner;
mod sample;
mod slow_broker;
mod stalled_partition;
mod testbed;
#[cfg(feature = "sim")]
mod virtual_time;
mod windows;
mod workload;
mod zones;

use std::{fmt, path::PathBuf, time::Instant};

pub use check::Order;
pub(crate) use check::{Found, compare as findings, read as read_found};
pub(crate) use load::{Acknowledged, Fate, nanos};
pub use load::{Awaits, Keys, Placement};
pub(crate) use report::Machine;
pub use report::{
    ArmReport, BrokerShare, Condition, Environment, Exemplar, FaultSpan, LatencyUntil, Modelled,
    PHASES, Phase, PhasesReport, Published, PublishedFigure, PublishedLatency, Report, RoundReport,
};
use runner::Told;
pub use runner::{Event, run};
pub use sample::{Figure, Sample};
pub use testbed::Testbed;
pub(crate) use testbed::{KafkaTool, Needs, versions};
pub use windows::Windows;
pub use workload::{
    Act, Backlog, ClosedLoop, End, Measured, Model, ReaderLatency, Readers, SentTo, Simulated,
    When, Workload, Zones,
};

use curtail::{ConfigError, ConsumerConfig, Producer, ProducerConfig, security::SecurityConfig};

use self::{
    load::{Load, Senders, Sent, WarmUp},
    lost_leader::Fault,
    phases::Observe,
};
use crate::{
    peers::{Client, Driver, Peer},
    perf::{Error, Result},
};

/// Which cluster an experiment runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterKind {
    /// An embedded cluster in this process, in real time.
    Embedded,
    /// A simulation in this process, in virtual time: the real client and brokers on a modelled network and
    /// disks.
    Sim,
    /// A real Apache Kafka on this machine, started for the run.
    Apache,
    /// An existing cluster: `host:port`, one or more separated by commas. No faults are injected into it.
    Bootstrap(String),
}

impl ClusterKind {
    /// Whether brokers, clients and load share one machine.
    #[must_use]
    pub fn shares_machine(&self) -> bool {
        match self {
            Self::Embedded | Self::Apache => true,
            // Each simulated node has its own machine.
            Self::Sim => false,
            Self::Bootstrap(servers) => servers.split(',').all(|server| {
                let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
                let host = host.rsplit('/').next().unwrap_or(host).trim();
                host == "localhost" || host == "[::1]" || host.starts_with("127.")
            }),
        }
    }

    /// Modelled parts of the cluster, for any experiment.
    fn models(&self) -> Vec<Modelled> {
        match self {
            Self::Embedded => vec![Modelled::new(
                "the brokers: Curtail's embedded cluster in the client's process, with real TCP, replication and log \
                 files, but not Apache Kafka",
                [],
            )],
            Self::Sim => vec![Modelled::new(
                "the clock: Curtail's client and brokers run in virtual time, in which CPU work costs no time except where \
                 stated here",
                [],
            )],
            Self::Apache | Self::Bootstrap(_) => Vec::new(),
        }
    }
}

impl fmt::Display for ClusterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::Sim => f.write_str("sim"),
            Self::Apache => f.write_str("apache"),
            Self::Bootstrap(servers) => f.write_str(servers),
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The cluster.
    pub cluster: ClusterKind,
    /// Settings of the brokers, by Kafka's names, over those of the experiment. Not for an existing cluster, and not in
    /// virtual time.
    pub cluster_properties: Vec<(String, String)>,
    /// Security settings of Curtail's clients, for an existing cluster.
    pub security: Option<SecurityConfig>,
    /// The arms to run; empty for all.
    pub arms: Vec<String>,
    /// Each arm also runs with these changes, in turn with the unchanged one.
    pub variants: Vec<Variant>,
    /// How many times each arm runs; `None` for the experiment's own number.
    pub rounds: Option<u32>,
    /// The clients to run the arms with, at least one.
    pub clients: Vec<Client>,
    /// The project's folder `peers/`, which the drivers of other clients are built from; `None` for the one
    /// in the current directory or above it.
    pub peers: Option<PathBuf>,
    /// Length of the run as a part of the full one, above 0 and at most 1.
    pub scale: f64,
    /// Seed for payloads and for the first broker that a fault hits.
    pub seed: u64,
    /// Whether a consumer runs alongside every load, so that the phases up to the poll are measured too. The
    /// measured CPU time and broker load include it.
    pub reader: bool,
    /// Whether the slowest records get a timeline ([`crate::timeline`]). It costs CPU time in client and brokers.
    pub why: bool,
}

impl Setting {
    /// Every arm with Curtail at full length on this cluster, without a reader or timelines.
    #[must_use]
    pub fn new(cluster: ClusterKind) -> Self {
        Self {
            cluster,
            cluster_properties: Vec::new(),
            security: None,
            arms: Vec::new(),
            variants: Vec::new(),
            rounds: None,
            clients: vec![Client::Curtail],
            peers: None,
            scale: 1.0,
            seed: 1,
            reader: false,
            why: false,
        }
    }

    fn check(&self) -> Result<()> {
        if !(self.scale > 0.0 && self.scale <= 1.0) {
            return Err(Error::Options("the scale must be above 0 and at most 1".into()));
        }
        let twice = |at: usize| self.clients[..at].contains(&self.clients[at]);
        if self.clients.is_empty() || (0..self.clients.len()).any(twice) {
            return Err(Error::Options("name at least one client, each only once".into()));
        }
        if self.cluster == ClusterKind::Sim && !self.cluster_properties.is_empty() {
            let text = "the simulation takes no broker properties; use embedded or apache";
            return Err(Error::Options(text.into()));
        }
        if self.security.is_some() {
            if !matches!(self.cluster, ClusterKind::Bootstrap(_)) {
                let text = "security settings are for an existing cluster; use --cluster host:port";
                return Err(Error::Options(text.into()));
            }
            if self.clients.iter().any(|client| matches!(client, Client::Peer(_))) {
                let text = "security settings are for Curtail's clients; leave out others";
                return Err(Error::Options(text.into()));
            }
        }
        if self.rounds == Some(0) {
            return Err(Error::Options("the number of rounds must be at least 1".into()));
        }
        for (at, variant) in self.variants.iter().enumerate() {
            variant.check()?;
            if self.variants[..at].iter().any(|other| other.name == variant.name) {
                let text = format!("two variants have the name '{}'", variant.name);
                return Err(Error::Options(text));
            }
        }
        Ok(())
    }
}

/// A change of every arm: client properties over those of the arm. It shows what a setting does in an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name: letters, digits and hyphens, because topics are named after it.
    pub name: String,
    /// The properties.
    pub properties: Vec<(String, String)>,
}

impl Variant {
    fn check(&self) -> Result<()> {
        let may_have = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(may_have) {
            let text = format!("variant '{}': a name has letters, digits and hyphens", self.name);
            return Err(Error::Options(text));
        }
        for (name, value) in &self.properties {
            let of_producer = ProducerConfig::default().set(name, value).err();
            let of_consumer = ConsumerConfig::default().set(name, value).err();
            if let (Some(of_producer), Some(of_consumer)) = (of_producer, of_consumer) {
                let is_known = matches!(of_consumer, ConfigError::Invalid { .. });
                let error = if is_known { of_consumer } else { of_producer };
                return Err(Error::Options(format!("variant '{}': {error}", self.name)));
            }
        }
        Ok(())
    }
}

/// An arm: one way to run a workload, with the client's settings.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Name, as in `--arm`.
    pub name: &'static str,
    /// One line: the mechanism that is on or off.
    pub about: &'static str,
    /// Properties of the client, after the experiment's own.
    pub properties: &'static [(&'static str, &'static str)],
}

/// One turn: a run of one arm.
pub struct Turn<'a> {
    /// The cluster of the whole experiment.
    pub testbed: &'a Testbed,
    /// The arm of this turn, with the properties of the variant.
    pub arm: &'a Arm,
    /// The variant of the arm.
    pub variant: Option<&'a str>,
    /// Earlier turns of this arm.
    pub round: u32,
    /// Whether no turn came before, of any arm.
    pub is_first: bool,
    /// The whole setting.
    pub setting: &'a Setting,
    /// The driver of the measured client; `None` for Curtail.
    pub driver: Option<&'a Driver>,
    /// With Curtail: what its load awaits.
    pub awaits: Awaits,
    /// Receives progress events.
    told: Told<'a>,
}

impl Arm {
    /// The arm with a variant's properties. They live as long as the process, like the options that name them.
    fn with(&self, variant: &Variant) -> Self {
        let leak = |text: &String| -> &'static str { text.clone().leak() };
        let more = variant.properties.iter().map(|(name, value)| (leak(name), leak(value)));
        let all: Vec<(&str, &str)> = self.properties.iter().copied().chain(more).collect();
        Self { properties: all.leak(), ..*self }
    }
}

impl Turn<'_> {
    /// A topic name that no other turn of this experiment uses.
    #[must_use]
    pub fn topic(&self, experiment: &str) -> String {
        let client = match self.driver {
            None => (self.awaits == Awaits::Completions).then_some("completions"),
            Some(driver) => Some(driver.peer().name()),
        };
        let mut name = format!("lab-{experiment}-{}-{}", self.arm.name, self.round);
        for part in [client, self.variant].into_iter().flatten() {
            name.push('-');
            name.push_str(part);
        }
        name
    }

    /// Sends the load with the measured client after a warm-up with records, as [`Load::run_observed_by`]. Other clients are
    /// not observed inside.
    ///
    /// # Errors
    /// As [`Load::run_observed_by`]; a client that lacks a setting of the load.
    fn send<T: Send>(
        &self,
        load: Load,
        script: impl FnOnce(Instant) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        self.send_by(load, Senders::default(), script)
    }

    /// As [`Turn::send`], with other senders.
    ///
    /// # Errors
    /// As [`Turn::send`].
    fn send_by<T: Send>(
        &self,
        load: Load,
        senders: Senders,
        script: impl FnOnce(Instant) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        let load = Load { warm_up: WarmUp::Records, ..load };
        self.send_after(load, senders, |start, _| script(start))
    }

    /// As [`Turn::send_by`], after the load's own warm-up. The script also receives Curtail's producers, and none of other
    /// clients.
    ///
    /// # Errors
    /// As [`Turn::send`].
    fn send_after<T: Send>(
        &self,
        load: Load,
        senders: Senders,
        script: impl FnOnce(Instant, &[Producer]) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        match self.driver {
            None => load.run_observed_by(self.testbed, self.observe(), senders, script),
            Some(driver) => {
                self.testbed.begin_timeline()?;
                let topic = load.topic.clone();
                let brokers_here = self.setting.cluster == ClusterKind::Embedded;
                let script = |start| script(start, &[]);
                let (mut sent, scripted) = load.sent_by(driver, senders, brokers_here, script)?;
                sent.observation.traced(self.testbed.timeline(&topic, sent.start)?);
                Ok((sent, scripted))
            }
        }
    }

    /// Sends the load with Curtail while another client's consumers read it. As for all other clients, the records have no
    /// phases: they would be those of Curtail's producer.
    ///
    /// # Errors
    /// As [`Load::run_by`].
    fn send_followed<T: Send>(
        &self,
        load: Load,
        senders: Senders,
        script: impl FnOnce(Instant) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        self.testbed.begin_timeline()?;
        let topic = load.topic.clone();
        let (mut sent, scripted) = load.run_by(senders, |start, _| script(start))?;
        for acknowledged in sent.fates.iter_mut().filter_map(|fate| fate.acknowledged.as_mut()) {
            acknowledged.written = None;
        }
        sent.observation.traced(self.testbed.timeline(&topic, sent.start)?);
        Ok((sent, scripted))
    }

    /// Whether other clients take part. Their drivers cannot end a load early.
    fn has_others(&self) -> bool {
        self.setting.clients.iter().any(|client| client.peer().is_some())
    }

    /// The observations of a load, for experiments without their own consumers.
    fn observe(&self) -> Observe {
        if self.setting.reader { Observe::PhasesWithReader } else { Observe::Phases }
    }

    /// The broker that a fault hits, another one in each round.
    #[must_use]
    pub fn victim(&self) -> i32 {
        let ids = self.testbed.broker_ids();
        let at = self.setting.seed.wrapping_add(u64::from(self.round)) % ids.len().max(1) as u64;
        ids.get(at as usize).copied().unwrap_or(1)
    }
}

/// An experiment of the laboratory.
pub trait Experiment: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// Subject, in one line.
    fn about(&self) -> &'static str;

    /// Source of the workload and of the published figures.
    fn source(&self) -> &'static str;

    /// The arms on this cluster, in display order.
    fn arms(&self, setting: &Setting) -> Vec<Arm>;

    /// Number of turns of each arm.
    fn rounds(&self, setting: &Setting) -> u32;

    /// Figures that a document has published: a KIP, an issue, a pull request or an article.
    fn published(&self, setting: &Setting) -> Vec<Published>;

    /// Modelled parts of the experiment, with their parameters.
    fn models(&self, _setting: &Setting) -> Vec<Modelled> {
        Vec::new()
    }

    /// The simulation of an arm.
    ///
    /// # Errors
    /// An experiment that is not available in virtual time.
    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let _ = (setting, arm);
        let name = self.name();
        let text =
            format!("{name} is not available in virtual time; run it on `embedded` or `apache`");
        Err(Error::Options(text))
    }

    /// Starts the cluster that all turns share. The simulation starts its own.
    ///
    /// # Errors
    /// A cluster that does not start or does not suit the experiment.
    fn start(&self, setting: &Setting) -> Result<Testbed>;

    /// Runs one arm once and undoes its changes of the cluster.
    ///
    /// # Errors
    /// Anything that prevents a result. Records that were not acknowledged are a result.
    fn turn(&self, turn: &Turn<'_>) -> Result<Sample>;

    /// Checks that another client can run this arm. Settings that the client lacks are checked elsewhere.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Err("only Curtail supports the load of this experiment")
    }

    /// Whether the figures of this arm depend on what Curtail's load awaits. If not,
    /// [`Client::CurtailCompletions`] is refused.
    fn awaits_deliveries(&self, _: &Arm) -> bool {
        true
    }

    /// The conditions, on Curtail's arms that ran.
    fn conditions(&self, setting: &Setting, arms: &Arms<'_>) -> Vec<Condition>;
}

/// Samples of the arms that ran with Curtail.
pub struct Arms<'a>(&'a [(Arm, Sample)]);

impl Arms<'_> {
    /// The sample of an arm, if it ran.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Sample> {
        self.0.iter().find(|(arm, _)| arm.name == name).map(|(_, sample)| sample)
    }

    /// Conditions of each arm that ran: no record lost, duplicated or reordered, and no error.
    #[must_use]
    pub fn intact(&self) -> Vec<Condition> {
        self.intact_where(|_| true)
    }

    /// As [`Arms::intact`], for the chosen arms.
    #[must_use]
    pub fn intact_where(&self, chosen: impl Fn(&Arm) -> bool) -> Vec<Condition> {
        let condition = |(arm, sample): &(Arm, Sample)| {
            let Sample { errors, lost, duplicated, reordered, .. } = sample;
            Condition {
                text: format!(
                    "{}: {} ({lost}, {duplicated}, {reordered}, {errors})",
                    arm.name,
                    Condition::INTEGRITY
                ),
                held: lost + duplicated + reordered + errors == 0,
            }
        };
        self.0.iter().filter(|(arm, _)| chosen(arm)).map(condition).collect()
    }
}

/// All experiments, in display order.
#[must_use]
pub fn all() -> Vec<&'static dyn Experiment> {
    vec![
        &leader_move::LeaderMove,
        &roll::Roll,
        &preferred_return::PreferredReturn,
        &slow_broker::SlowBroker,
        &lost_leader::LostLeader(Fault::Killed),
        &lost_leader::LostLeader(Fault::Frozen),
        &bystanders::Bystanders,
        &cold_start::ColdStart,
        &metadata_churn::MetadataChurn,
        &fetch_sessions::FetchSessions,
        &stalled_partition::StalledPartition,
        &e2e::EndToEnd,
        &produce::Produce,
        &consume::Consume,
        &acks::Acks,
        &replication_factor::ReplicationFactor,
        &min_isr::MinIsr,
        &linger::Linger,
        &latency_throughput::LatencyThroughput,
        &micro_burst::MicroBurst,
        &catch_up::CatchUp,
        &fetch_wait::FetchWait,
        &zones::ZoneDelays,
        &head_of_line::HeadOfLine,
    ]
}

/// The experiment of this name.
///
/// # Errors
/// An unknown name; the message lists the known ones.
pub fn find(name: &str) -> Result<&'static dyn Experiment> {
    let all = all();
    if let Some(found) = all.iter().find(|experiment| experiment.name() == name) {
        return Ok(*found);
    }
    let names: Vec<_> = all.iter().map(|experiment| experiment.name()).collect();
    Err(Error::Options(format!("unknown experiment '{name}'; known are {}", names.join(", "))))
}
