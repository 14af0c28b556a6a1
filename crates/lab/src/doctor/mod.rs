//! The engine of `curtail doctor`: does a cluster keep a declared latency at a declared throughput, where does the time
//! go, and which settings help.
//!
//! The doctor writes to a separate topic, at the requested throughput and for at most the given time, and
//! always deletes the topic. Latency is end to end and open loop: from the intended send time to the poll.
//!
//! Every recommended setting has been run in turn with the current one and was better by more than repeated
//! rounds differ (docs/decisions/0032-others-benchmarks-and-the-doctor.md).

mod candidates;
mod diagnosis;
mod look;
mod machine;
mod measure;
mod report;
mod sample;
pub mod settings;
mod stop;
#[cfg(test)]
mod tests;
mod text;
pub mod units;

use std::time::Duration;

use curtail::{
    Admin, AdminConfig, ConsumerConfig, ProducerConfig,
    admin::{NewTopic, TopicDescription},
    config::Acks,
};
use tokio::runtime::Runtime;

pub use self::{
    candidates::Change,
    diagnosis::{Comparison, Finding, Limit, PhaseShare, Severity, Verdict},
    report::{BrokerReport, Plan, Report, Tried},
    sample::{ClockOffset, Phase},
    stop::Stop,
    text::{Asked, text},
};
use self::{
    candidates::{Base, candidates, probe},
    diagnosis::{Load, Probes},
    look::Cluster,
    measure::Trial,
    sample::Sample,
};
use crate::{
    error::{Error, Result},
    setup::{client_runtime, unique},
};

/// Options of an examination.
#[derive(Clone, Debug)]
pub struct Options {
    /// Settings of the producer, with `bootstrap.servers`.
    pub producer: ProducerConfig,
    /// Settings of the consumer. The doctor joins no group, so group settings are ignored.
    pub consumer: ConsumerConfig,
    /// Settings of the admin client.
    pub admin: AdminConfig,
    /// Target of the 99th percentile, from the intended send time to the poll.
    pub target: Duration,
    /// Bytes of values per second.
    pub throughput: f64,
    /// Bytes of a value.
    pub record_size: usize,
    /// Partitions of the topic; `None` for three per broker.
    pub partitions: Option<i32>,
    /// Replicas of the topic; `None` for the brokers' default.
    pub replication_factor: Option<i16>,
    /// Total sending time of all runs.
    pub duration: Duration,
}

/// Progress of an examination.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The plan, before anything is created.
    Plan(&'a Plan),
    /// The topic exists, and a warm-up run begins.
    WarmingUp,
    /// A run begins.
    Run {
        /// The setting that runs.
        what: &'a str,
        /// Number of earlier runs in this part.
        done: usize,
        /// Number of runs in this part.
        of: usize,
    },
}

/// Runs of each setting.
const ROUNDS: usize = 3;
/// Shortest run with a meaningful result.
const SHORTEST: Duration = Duration::from_millis(200);
/// Longest time that an option accepts.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Most records of one run that are kept in memory.
const MOST_RECORDS: f64 = 5e6;
/// Retention of the topic: records of a doctor that was killed expire.
const RETENTION_MS: &str = "3600000";

/// Examines a cluster, on this thread.
///
/// # Errors
/// [`Error::Interrupted`] after [`Stop::set`]; an unreachable cluster, a topic that cannot be created,
/// unusable settings. The topics are deleted in each case.
pub fn run(options: &Options, stop: &Stop, progress: &mut dyn FnMut(Event<'_>)) -> Result<Report> {
    let options = options.checked()?;
    let runtime = client_runtime()?;
    let admin = {
        let _context = runtime.enter();
        Admin::new(options.admin.clone())?
    };
    let cluster = runtime.block_on(stop.unless_set(look::look(&admin)))?;
    let brokers = cluster.brokers.len();
    let partitions = options.partitions.unwrap_or(3 * i32::try_from(brokers).unwrap_or(1).max(1));
    let plan = Plan::new(&options, partitions, brokers, format!("curtail-doctor-{}", unique()));
    if plan.run_s * options.rate() > MOST_RECORDS {
        return Err(Error::Options(format!(
            "runs of {:.1} s at {:.0} records/s are too many records: use larger ones or a shorter duration",
            plan.run_s,
            options.rate()
        )));
    }
    stop.check()?;
    progress(Event::Plan(&plan));
    let mut visit = Visit {
        options: &options,
        stop,
        progress,
        runtime: &runtime,
        admin: &admin,
        plan: &plan,
        topics: Vec::new(),
    };
    let examined = visit.examine(&cluster);
    let left = visit.tidy_up();
    match (examined, left) {
        (Ok(report), None) => Ok(report),
        (Ok(mut report), Some(left)) => {
            report.findings.push(Finding::warning(left));
            Ok(report)
        }
        (Err(error), None) => Err(error),
        (Err(error), Some(left)) => {
            Err(Error::Unexpected(format!("{}; {left}", curtail::error::Report::new(&error))))
        }
    }
}

impl Options {
    /// The options without user settings that a doctor must not apply.
    fn checked(&self) -> Result<Self> {
        let refuse = |text: &str| Err(Error::Options(text.into()));
        if self.record_size < measure::SMALLEST {
            return refuse("the record size must be at least 16 bytes");
        }
        if self.record_size > self.producer.get_max_request_size() {
            return refuse("the record size must be at most the producer's max.request.size");
        }
        // NaN fails this comparison, too.
        let at_least_one = self.throughput >= self.record_size as f64;
        if !at_least_one || self.throughput.is_infinite() {
            return refuse("the throughput must be at least one record a second, and finite");
        }
        for (name, time) in [("target", self.target), ("duration", self.duration)] {
            if time.is_zero() || time > LONGEST {
                return Err(Error::Options(format!("the {name} must be above 0 and at most 24 h")));
            }
        }
        if self.partitions.is_some_and(|count| count < 1) {
            return refuse("the number of partitions must be above 0");
        }
        if self.producer.get_acks() == Acks::None {
            return refuse("acks=0 acknowledges nothing, so nothing can be measured: use 1 or all");
        }
        let mut options = self.clone();
        options.producer.unset("transactional.id")?;
        options.consumer.unset("group.id")?;
        options.consumer.unset("group.instance.id")?;
        options.consumer = options.consumer.enable_auto_commit(false);
        Ok(options)
    }

    /// Records per second.
    fn rate(&self) -> f64 {
        self.throughput / self.record_size as f64
    }
}

/// State of one examination.
struct Visit<'a> {
    options: &'a Options,
    stop: &'a Stop,
    progress: &'a mut dyn FnMut(Event<'_>),
    runtime: &'a Runtime,
    admin: &'a Admin,
    plan: &'a Plan,
    /// Topics that were created and must be deleted.
    topics: Vec<String>,
}

/// A topic and the leaders of its partitions.
#[derive(Clone, Debug)]
struct Ground {
    topic: String,
    leaders: Vec<i32>,
}

/// Runs of a setting, and those of the base in the same rounds.
struct Arm {
    change: Option<Change>,
    sample: Sample,
}

impl Visit<'_> {
    fn examine(&mut self, cluster: &Cluster) -> Result<Report> {
        let ground = self.topic(&self.plan.topic.clone(), self.plan.partitions)?;
        (self.progress)(Event::WarmingUp);
        // In the first second brokers compile, open files and elect leaders. No record of the workload pays
        // for that.
        self.run_once("the current settings", None, &ground)?;
        let probe = probe(self.options.producer.get_acks());
        let mut first = self.rounds(&ground, std::slice::from_ref(&probe))?;
        let other = first.pop().map(|arm| arm.sample).unwrap_or_default();
        let mut base = first.pop().map(|arm| arm.sample).unwrap_or_default();
        let (leader, all) = match self.options.producer.get_acks() {
            Acks::All => (&other, &base),
            _ => (&base, &other),
        };
        let probes = Probes { leader: &leader.request_us, all: &all.request_us };
        let phases = diagnosis::phases(&base, self.options.producer.get_acks(), probes);
        let blamed = diagnosis::blame(&phases);
        let mut tried = vec![Tried::new(&probe, &base, &other, self.options)];
        let load = Load::of(&base, self.options.throughput, self.options.target);
        // A target that holds needs no changes, and the cluster no more load.
        if load.missed || !load.is_reached() {
            let now = Base::of(
                &self.options.producer,
                &self.options.consumer,
                self.plan.partitions,
                self.options.throughput,
            );
            let changes = candidates(&now, blamed);
            let mut arms = self.rounds(&ground, &changes)?.into_iter();
            let again = arms.next().map(|arm| arm.sample).unwrap_or_default();
            tried.extend(arms.filter_map(|arm| {
                arm.change
                    .as_ref()
                    .map(|change| Tried::new(change, &again, &arm.sample, self.options))
            }));
            base.join(again);
        }
        let mut findings = cluster.findings();
        findings.extend(diagnosis::slow_brokers(&base.by_broker));
        findings.extend(diagnosis::clocks(&base.clocks));
        Ok(Report::new(self.options, self.plan, &base, phases, tried, findings))
    }

    /// Creates a separate topic and waits until every partition has a leader.
    fn topic(&mut self, name: &str, partitions: i32) -> Result<Ground> {
        self.stop.check()?;
        let new = NewTopic::new(name)
            .partitions(partitions)
            .replication_factor(self.options.replication_factor.unwrap_or(-1))
            // LogAppendTime reveals the brokers' clocks.
            .config("message.timestamp.type", "LogAppendTime")
            .config("retention.ms", RETENTION_MS);
        // Clean up even if the request failed: the topic may exist.
        self.topics.push(name.to_owned());
        // A stop does not interrupt it: the deletion might overtake it.
        let created = self.runtime.block_on(self.admin.create_topics(&[new]))?;
        if let Some((_, Err(error))) = created.into_iter().next() {
            self.topics.pop();
            return Err(error.into());
        }
        let leaders =
            self.runtime.block_on(self.stop.unless_set(self.leaders(name, partitions)))?;
        Ok(Ground { topic: name.to_owned(), leaders })
    }

    async fn leaders(&self, name: &str, partitions: i32) -> Result<Vec<i32>> {
        let limit = self.options.admin.get_default_api_timeout();
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let described = self.admin.describe_topics(&[name]).await?;
            if let Some((_, Ok(TopicDescription { partitions: all, .. }))) = described.first() {
                let leaders: Vec<i32> = all.iter().filter_map(|at| at.leader).collect();
                if leaders.len() == partitions as usize {
                    return Ok(leaders);
                }
            }
            if tokio::time::Instant::now() > deadline {
                return Err(Error::Unexpected(format!(
                    "the partitions of topic '{name}' have no leaders after {limit:?}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs the base and each change once per round, starting with another one each time. The base comes
    /// first in the result.
    fn rounds(&mut self, ground: &Ground, changes: &[Change]) -> Result<Vec<Arm>> {
        let wide = changes.iter().find_map(|change| match change {
            Change::Partitions(count) => Some(*count),
            _ => None,
        });
        let wide = match wide {
            Some(count) => Some(self.topic(&format!("{}-wide", self.plan.topic), count)?),
            None => None,
        };
        let mut arms: Vec<Arm> = std::iter::once(None)
            .chain(changes.iter().cloned().map(Some))
            .map(|change| Arm { change, sample: Sample::default() })
            .collect();
        let of = ROUNDS * arms.len();
        for done in 0..of {
            let at = (done / arms.len() + done % arms.len()) % arms.len();
            let change = arms[at].change.clone();
            let what = change.as_ref().map_or_else(|| "current settings".to_owned(), Change::text);
            (self.progress)(Event::Run { what: &what, done, of });
            let ground = match (&change, &wide) {
                (Some(Change::Partitions(_)), Some(wide)) => wide,
                _ => ground,
            };
            let sample = self.run_once(&what, change.as_ref(), ground)?;
            arms[at].sample.join(sample);
        }
        Ok(arms)
    }

    fn run_once(&self, what: &str, change: Option<&Change>, ground: &Ground) -> Result<Sample> {
        let Options { mut producer, mut consumer, record_size, .. } = self.options.clone();
        let mut consumers = 1;
        match change {
            Some(Change::Producer(name, value)) => producer.set(name, value)?,
            Some(Change::Consumer(name, value)) => consumer.set(name, value)?,
            Some(Change::Consumers(count)) => consumers = *count,
            Some(Change::Partitions(_)) | None => {}
        }
        let trial = Trial {
            producer,
            consumer,
            consumers,
            topic: &ground.topic,
            leaders: &ground.leaders,
            rate: self.options.rate(),
            size: record_size,
            length: Duration::from_secs_f64(self.plan.run_s),
            stop: self.stop,
        };
        let sample = trial.run()?;
        if sample.end_to_end.count() == 0 {
            let why = sample.first_error.unwrap_or_else(|| "no record was read".to_owned());
            return Err(Error::Unexpected(format!("no record was delivered with {what}: {why}")));
        }
        Ok(sample)
    }

    /// Deletes the created topics; returns a message that names those left if that fails.
    fn tidy_up(&self) -> Option<String> {
        let names: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        if names.is_empty() {
            return None;
        }
        let left = |error: &curtail::Error| {
            let (names, why) = (names.join(" and "), error.report());
            format!("could not delete {names}: {why}; delete it manually")
        };
        match self.runtime.block_on(self.admin.delete_topics(&names)) {
            Ok(deleted) => deleted
                .into_iter()
                .filter_map(|(_, deleted)| deleted.err())
                .find(|error| !matches!(error, curtail::Error::UnknownTopic(_)))
                .map(|error| left(&error)),
            Err(error) => Some(left(&error)),
        }
    }
}
