//! Experiments: a workload, arms that switch a mechanism off, the published figures, and what must hold.
//!
//! Each file that implements [`Experiment`] is one experiment; [`all`] lists them. [`run`] starts the cluster, runs
//! the arms interleaved, and gives a [`Report`]: the figures beside the published ones, and which conditions held. Load
//! is open loop, latency counts from the intended send time, and what was acknowledged is compared with what the
//! topic holds afterwards.

mod acks;
mod bystanders;
mod catch_up;
mod check;
mod cold_start;
pub mod compare;
mod durability;
mod e2e;
pub mod export;
mod fetch_sessions;
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

use std::{fmt, path::PathBuf, time::Instant};

pub use check::Order;
pub(crate) use check::{Found, compare as findings, read as read_found};
pub(crate) use load::{Acknowledged, Fate, nanos};
pub use load::{Keys, Placement};
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
    When, Workload,
};

use curtail::Producer;

use self::{
    load::{Load, Senders, Sent},
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
    /// One in this process, in real time.
    Embedded,
    /// One in this process, in virtual time: the real client and the real brokers on a modelled network and modelled disks.
    Sim,
    /// A real Apache Kafka on this machine, started for the run.
    Apache,
    /// One that is there: `host:port`, one or more separated by commas. Nothing of it can be broken.
    Bootstrap(String),
}

impl ClusterKind {
    /// Whether the brokers, the clients and the load have one machine between them.
    #[must_use]
    pub fn shares_machine(&self) -> bool {
        match self {
            Self::Embedded | Self::Apache => true,
            // Its machines are its own.
            Self::Sim => false,
            Self::Bootstrap(servers) => servers.split(',').all(|server| {
                let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
                let host = host.rsplit('/').next().unwrap_or(host).trim();
                host == "localhost" || host == "[::1]" || host.starts_with("127.")
            }),
        }
    }

    /// What of the cluster is a model, whatever the experiment.
    fn models(&self) -> Vec<Modelled> {
        match self {
            Self::Embedded => vec![Modelled::new(
                "the brokers are Curtail's embedded cluster in the process of the client: real TCP, replication and \
                 log files, but not Apache Kafka",
                [],
            )],
            Self::Sim => vec![Modelled::new(
                "the clock: client and brokers are Curtail's own, in virtual time, in which processors cost nothing but what \
                 is said here",
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

/// How an experiment is to be run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where.
    pub cluster: ClusterKind,
    /// The arms to run; empty for all.
    pub arms: Vec<String>,
    /// How many times each arm runs; `None` for the experiment's own number.
    pub rounds: Option<u32>,
    /// The clients to run the arms with, at least one.
    pub clients: Vec<Client>,
    /// The project's folder `peers/`, which the drivers of other clients are built from; without it the one in the
    /// current directory or above it.
    pub peers: Option<PathBuf>,
    /// The length of the run as a part of the full one, above 0 and at most 1.
    pub scale: f64,
    /// Decides what is left to chance: payloads, and which broker is hit first.
    pub seed: u64,
    /// Whether a consumer reads beside every load, so that the phases of the way to a reader are known too. What it takes of
    /// the brokers and of the processor is part of what is measured.
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
            arms: Vec::new(),
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
            return Err(Error::Options("name at least one client, and each of them once".into()));
        }
        if self.rounds == Some(0) {
            return Err(Error::Options("the number of rounds must be at least 1".into()));
        }
        Ok(())
    }
}

/// One way to run a workload: what it is called, what it is for, and the client's settings for it.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Its name, as in `--arm`.
    pub name: &'static str,
    /// One line: which mechanism is on or off.
    pub about: &'static str,
    /// Properties of the client, on top of the experiment's own.
    pub properties: &'static [(&'static str, &'static str)],
}

/// One run of one arm, as the runner asks for it.
pub struct Turn<'a> {
    /// The cluster of the whole experiment.
    pub testbed: &'a Testbed,
    /// The arm to run.
    pub arm: &'a Arm,
    /// How many times each arm has run before.
    pub round: u32,
    /// Whether no turn came before, of any arm.
    pub is_first: bool,
    /// The whole setting.
    pub setting: &'a Setting,
    /// The driver of the client that is measured; `None` for Curtail.
    pub driver: Option<&'a Driver>,
    /// Who wants to know how far it is.
    told: Told<'a>,
}

impl Turn<'_> {
    /// A topic name that no other turn of this experiment uses.
    #[must_use]
    pub fn topic(&self, experiment: &str) -> String {
        let (arm, round) = (self.arm.name, self.round);
        match self.driver {
            None => format!("lab-{experiment}-{arm}-{round}"),
            Some(driver) => format!("lab-{experiment}-{arm}-{round}-{}", driver.peer().name()),
        }
    }

    /// Sends the load with the client that is measured, as [`Load::run_observed`]. What other clients do
    /// inside is not observed.
    ///
    /// # Errors
    /// As [`Load::run_observed`]; a client that lacks a setting of the load's.
    fn send<T: Send>(
        &self,
        load: Load,
        script: impl FnOnce(Instant) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        match self.driver {
            None => load.run_observed(self.testbed, self.observe(), script),
            Some(driver) => {
                self.testbed.begin_timeline()?;
                let topic = load.topic.clone();
                let brokers_here = self.setting.cluster == ClusterKind::Embedded;
                let (mut sent, scripted) = load.sent_by(driver, brokers_here, script)?;
                sent.observation.traced(self.testbed.timeline(&topic, sent.start)?);
                Ok((sent, scripted))
            }
        }
    }

    /// Sends the load with Curtail, as [`Load::run_observed_by`].
    ///
    /// # Errors
    /// As [`Load::run_observed_by`].
    fn send_by<T: Send>(
        &self,
        load: Load,
        senders: Senders,
        script: impl FnOnce(Instant, &[Producer]) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        load.run_observed_by(self.testbed, self.observe(), senders, script)
    }

    /// What is to be seen of a load, where the experiment has no consumers of its own.
    fn observe(&self) -> Observe {
        if self.setting.reader { Observe::PhasesWithReader } else { Observe::Phases }
    }

    /// A broker to hit: another one in each round.
    #[must_use]
    pub fn victim(&self) -> i32 {
        let ids = self.testbed.broker_ids();
        let at = self.setting.seed.wrapping_add(u64::from(self.round)) % ids.len().max(1) as u64;
        ids.get(at as usize).copied().unwrap_or(1)
    }
}

/// An experiment of the laboratory.
pub trait Experiment: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it shows, in one line.
    fn about(&self) -> &'static str;

    /// Where workload and published figures come from.
    fn source(&self) -> &'static str;

    /// The arms on this cluster, in the order in which they are shown.
    fn arms(&self, setting: &Setting) -> Vec<Arm>;

    /// How many times each arm runs.
    fn rounds(&self, setting: &Setting) -> u32;

    /// Figures that others have published, or that were measured of others here.
    fn published(&self, setting: &Setting) -> Vec<Published>;

    /// What is a model here, not the thing itself, with its parameters.
    fn models(&self, _setting: &Setting) -> Vec<Modelled> {
        Vec::new()
    }

    /// What the simulation is to do for an arm.
    ///
    /// # Errors
    /// An experiment that virtual time says nothing about.
    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let _ = (setting, arm);
        let name = self.name();
        let text = format!("{name} says nothing in virtual time; run it on `embedded` or `apache`");
        Err(Error::Options(text))
    }

    /// Starts the cluster that all turns share. The simulation starts its own.
    ///
    /// # Errors
    /// A cluster that does not start, or of which the experiment has no use.
    fn start(&self, setting: &Setting) -> Result<Testbed>;

    /// Runs one arm once. What it changes in the cluster it sets right again.
    ///
    /// # Errors
    /// What keeps the run from having a result. Records that were not acknowledged are a result.
    fn turn(&self, turn: &Turn<'_>) -> Result<Sample>;

    /// Whether another client can run this arm, and if not, why. Settings of the arm that a client lacks are found
    /// without this.
    ///
    /// # Errors
    /// Why not.
    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Err("only Curtail's client has the load of this experiment")
    }

    /// What must hold, of Curtail's arms that ran.
    fn conditions(&self, setting: &Setting, arms: &Arms<'_>) -> Vec<Condition>;
}

/// The samples of the arms that ran with Curtail's own client.
pub struct Arms<'a>(&'a [(Arm, Sample)]);

impl Arms<'_> {
    /// The sample of an arm, if it ran.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Sample> {
        self.0.iter().find(|(arm, _)| arm.name == name).map(|(_, sample)| sample)
    }

    /// For each arm that ran: nothing lost, duplicated or reordered, and no error surfaced.
    #[must_use]
    pub fn intact(&self) -> Vec<Condition> {
        self.intact_where(|_| true)
    }

    /// As [`Arms::intact`], for some of the arms.
    #[must_use]
    pub fn intact_where(&self, chosen: impl Fn(&Arm) -> bool) -> Vec<Condition> {
        let condition = |(arm, sample): &(Arm, Sample)| {
            let Sample { errors, lost, duplicated, reordered, .. } = sample;
            Condition {
                text: format!(
                    "{}: 0 lost, 0 duplicated, 0 reordered, no error ({lost}, {duplicated}, {reordered}, {errors})",
                    arm.name
                ),
                held: lost + duplicated + reordered + errors == 0,
            }
        };
        self.0.iter().filter(|(arm, _)| chosen(arm)).map(condition).collect()
    }
}

/// All experiments, in the order in which they are listed.
#[must_use]
pub fn all() -> Vec<&'static dyn Experiment> {
    vec![
        &leader_move::LeaderMove,
        &roll::Roll,
        &slow_broker::SlowBroker,
        &lost_leader::LostLeader(Fault::Killed),
        &lost_leader::LostLeader(Fault::Frozen),
        &bystanders::Bystanders,
        &cold_start::ColdStart,
        &metadata_churn::MetadataChurn,
        &fetch_sessions::FetchSessions,
        &stalled_partition::StalledPartition,
        &e2e::EndToEnd,
        &acks::Acks,
        &replication_factor::ReplicationFactor,
        &min_isr::MinIsr,
        &linger::Linger,
        &latency_throughput::LatencyThroughput,
        &micro_burst::MicroBurst,
        &catch_up::CatchUp,
        &head_of_line::HeadOfLine,
    ]
}

/// The experiment of that name.
///
/// # Errors
/// There is none; the message names those there are.
pub fn find(name: &str) -> Result<&'static dyn Experiment> {
    let all = all();
    if let Some(found) = all.iter().find(|experiment| experiment.name() == name) {
        return Ok(*found);
    }
    let names: Vec<_> = all.iter().map(|experiment| experiment.name()).collect();
    Err(Error::Options(format!("there is no experiment '{name}'; there are {}", names.join(", "))))
}
