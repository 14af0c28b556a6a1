//! The engine of `curtail doctor`: does a cluster keep a declared latency at a declared throughput, where does the time
//! go, and which settings help.
//!
//! It writes to a topic of its own, at the throughput asked for and no longer than it was told, and deletes the topic
//! whatever happens. Latency is end to end and open loop: from the intended send time to the poll. What is recommended
//! has been run, in turn with what is set now, and was better by more than repeated rounds differ
//! (docs/decisions/0032-others-benchmarks-and-the-doctor.md).

mod candidates;
mod diagnosis;
mod look;
mod machine;
mod measure;
mod report;
mod sample;
#[cfg(test)]
mod tests;
pub mod units;

use std::time::Duration;

use curtail::{
    Acks, Admin, AdminConfig, ConsumerConfig, NewTopic, ProducerConfig, TopicDescription,
};
use tokio::runtime::Runtime;

pub use self::{
    candidates::Change,
    diagnosis::{Comparison, Finding, Limit, PhaseShare, Severity, Verdict},
    measure::Stop,
    report::{BrokerReport, Plan, Report, Tried},
    sample::{ClockOffset, Phase},
};
use self::{
    candidates::{Base, candidates, probe},
    diagnosis::{Load, Probes},
    look::Cluster,
    measure::Trial,
    sample::Sample,
};
use crate::{
    bench::unique,
    perf::{Error, Result, client_runtime},
};

/// What to examine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Settings of the producer, with `bootstrap.servers`.
    pub producer: ProducerConfig,
    /// Settings of the consumer. Those of a group are not used: the doctor joins none.
    pub consumer: ConsumerConfig,
    /// Settings of the admin client.
    pub admin: AdminConfig,
    /// The 99th percentile not to be exceeded, from the intended send time to the poll.
    pub target: Duration,
    /// Bytes of values a second.
    pub throughput: f64,
    /// Bytes of a value.
    pub record_size: usize,
    /// Partitions of the topic; three for each broker without this.
    pub partitions: Option<i32>,
    /// Replicas of the topic; the brokers' default without this.
    pub replication_factor: Option<i16>,
    /// How long to send, all runs together.
    pub duration: Duration,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// What will be done, before anything is.
    Plan(&'a Plan),
    /// The topic is there, and a run begins that does not count.
    WarmingUp,
    /// A run begins.
    Run {
        /// What is tried.
        what: &'a str,
        /// Runs before it.
        done: usize,
        /// Runs of this part.
        of: usize,
    },
}

/// How often each setting runs.
const ROUNDS: usize = 3;
/// The shortest run that says something.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest time that an option may name.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Records of one run that are kept in memory.
const MOST_RECORDS: f64 = 5e6;
/// What is left behind by a doctor that was killed goes away by itself.
const RETENTION_MS: &str = "3600000";

/// Examines a cluster, on this thread.
///
/// # Errors
/// [`Error::Interrupted`] after [`Stop::set`]; a cluster that cannot be reached, a topic that cannot be created, settings
/// that cannot be used. The topics are deleted then, too.
pub fn run(options: &Options, stop: &Stop, progress: &mut dyn FnMut(Event<'_>)) -> Result<Report> {
    let options = options.checked()?;
    let runtime = client_runtime()?;
    let admin = {
        let _context = runtime.enter();
        Admin::new(options.admin.clone())?
    };
    let cluster = runtime.block_on(look::look(&admin))?;
    let brokers = cluster.brokers.len();
    let partitions = options.partitions.unwrap_or(3 * i32::try_from(brokers).unwrap_or(1).max(1));
    let plan = Plan::new(&options, partitions, brokers, format!("curtail-doctor-{}", unique()));
    if plan.run_s * options.rate() > MOST_RECORDS {
        return Err(Error::Options(format!(
            "runs of {:.1} s at {:.0} records/s are too many records: use larger ones or a shorter --duration",
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
        (Err(error), Some(left)) => Err(Error::Unexpected(format!("{error}; {left}"))),
    }
}

impl Options {
    /// The options without what a doctor must not do with the user's settings.
    fn checked(&self) -> Result<Self> {
        let refuse = |text: &str| Err(Error::Options(text.into()));
        if self.record_size < measure::SMALLEST {
            return refuse("the record size must be at least 16 bytes");
        }
        if self.record_size > self.producer.max_request_size {
            return refuse("the record size must be at most the producer's max.request.size");
        }
        // Not a number is neither.
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
        if self.producer.acks == Acks::None {
            return refuse("acks=0 acknowledges nothing, so nothing can be measured: use 1 or all");
        }
        let mut options = self.clone();
        options.producer.transactional_id = None;
        options.consumer.group_id = None;
        options.consumer.group_instance_id = None;
        options.consumer.enable_auto_commit = false;
        Ok(options)
    }

    /// Records a second.
    fn rate(&self) -> f64 {
        self.throughput / self.record_size as f64
    }
}

/// One visit to a cluster.
struct Visit<'a> {
    options: &'a Options,
    stop: &'a Stop,
    progress: &'a mut dyn FnMut(Event<'_>),
    runtime: &'a Runtime,
    admin: &'a Admin,
    plan: &'a Plan,
    /// What was created and is to be deleted.
    topics: Vec<String>,
}

/// A topic and who leads its partitions.
#[derive(Clone, Debug)]
struct Ground {
    topic: String,
    leaders: Vec<i32>,
}

/// A setting and what its runs were like, beside those of the base in the same rounds.
struct Arm {
    change: Option<Change>,
    sample: Sample,
}

impl Visit<'_> {
    fn examine(&mut self, cluster: &Cluster) -> Result<Report> {
        let ground = self.topic(&self.plan.topic.clone(), self.plan.partitions)?;
        (self.progress)(Event::WarmingUp);
        // Brokers compile, open files and elect leaders in the first second: nobody's latency.
        self.run_once("nothing changed", None, &ground)?;
        let probe = probe(self.options.producer.acks);
        let mut first = self.rounds(&ground, std::slice::from_ref(&probe))?;
        let other = first.pop().map(|arm| arm.sample).unwrap_or_default();
        let mut base = first.pop().map(|arm| arm.sample).unwrap_or_default();
        let (leader, all) = match self.options.producer.acks {
            Acks::All => (&other, &base),
            _ => (&base, &other),
        };
        let probes = Probes { leader: &leader.request_us, all: &all.request_us };
        let phases = diagnosis::phases(&base, self.options.producer.acks, probes);
        let blamed = diagnosis::blame(&phases);
        let mut tried = vec![Tried::new(&probe, &base, &other)];
        let load = Load::of(&base, self.options.throughput, self.options.target);
        // What holds needs no changes, and no more load on somebody's cluster.
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
                arm.change.as_ref().map(|change| Tried::new(change, &again, &arm.sample))
            }));
            base.join(again);
        }
        let mut findings = cluster.findings();
        findings.extend(diagnosis::slow_brokers(&base.by_broker));
        findings.extend(diagnosis::clocks(&base.clocks));
        Ok(Report::new(self.options, self.plan, &base, phases, tried, findings))
    }

    /// Creates a topic of the doctor's own, and waits until every partition has a leader.
    fn topic(&mut self, name: &str, partitions: i32) -> Result<Ground> {
        self.stop.check()?;
        let new = NewTopic::new(name)
            .partitions(partitions)
            .replication_factor(self.options.replication_factor.unwrap_or(-1))
            // The brokers' clocks are to be seen.
            .config("message.timestamp.type", "LogAppendTime")
            .config("retention.ms", RETENTION_MS);
        // Created or not, who asked has to clean up.
        self.topics.push(name.to_owned());
        let created = self.runtime.block_on(self.admin.create_topics(&[new]))?;
        if let Some((_, Err(error))) = created.into_iter().next() {
            self.topics.pop();
            return Err(error.into());
        }
        let leaders = self.runtime.block_on(self.leaders(name, partitions))?;
        Ok(Ground { topic: name.to_owned(), leaders })
    }

    async fn leaders(&self, name: &str, partitions: i32) -> Result<Vec<i32>> {
        let limit = self.options.admin.common.default_api_timeout;
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            self.stop.check()?;
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

    /// The base and each change once a round, another one first each time. The base comes first in what is returned.
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
            let what = change.as_ref().map_or_else(|| "as it is set".to_owned(), Change::text);
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
            let why = sample.first_error.unwrap_or_else(|| "they were not read".to_owned());
            return Err(Error::Unexpected(format!("no record came through with {what}: {why}")));
        }
        Ok(sample)
    }

    /// Deletes what was created; says what is left if that fails.
    fn tidy_up(&self) -> Option<String> {
        let names: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        if names.is_empty() {
            return None;
        }
        let left = |error: &dyn std::fmt::Display| {
            format!("could not delete {}: {error}; delete it by hand", names.join(" and "))
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
