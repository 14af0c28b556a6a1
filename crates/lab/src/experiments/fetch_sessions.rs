//! More consumers than a broker has slots for fetch sessions: the number of evictions.
//!
//! With another client, Curtail sends the load and the other client's consumers read it. The broker counts the evictions, so
//! the client need not report them. A client without fetch sessions (KIP-227) has none that could be evicted.

use std::time::Duration;

use curtail::{Consumer, ConsumerConfig, ProducerConfig};
use tokio::{runtime::Runtime, task::JoinHandle};

use super::{
    Act, Arm, Arms, ClusterKind, Condition, Experiment, Figure, Modelled, Published,
    PublishedLatency, Readers, Sample, Setting, Simulated, Testbed, Turn, When, Workload,
    check::Order,
    load::{Keys, Load, Senders, sleep_until},
    phases::Observe,
    readers::{
        self, Expected, Read, SharedOverTime, Work,
        followers::{Followers, Following},
    },
    testbed::{Needs, Sessions},
    workload::properties,
};
use crate::{
    cpu::CpuTime,
    peers::{Peer, driver::follow::Wanted},
    perf::{Error, Result},
};

/// Slots of each broker: two in each of Kafka's eight shards.
const SLOTS: usize = 16;
/// Consumers, each of which reads every partition.
const CONSUMERS: usize = 24;
/// Partitions per broker.
const PARTITIONS: i32 = 12;
/// Records per second per broker.
const RATE: f64 = 200.0;
const SIZE: usize = 128;
const KEYS: Keys = Keys::Cycle(1_000);
const MEASURED: Duration = Duration::from_secs(60);
/// The application's work with the records of a poll.
const WORK: Duration = Duration::from_millis(5);
/// Additional time of that work with a timer that ends on a full millisecond.
///
/// Where CPU work costs no time, a consumer would begin its work at the end of a millisecond, be back exactly
/// with the next record, and stay in step with the records.
const TICK: Duration = Duration::from_millis(1);
/// On Apache Kafka this is not configurable: two minutes.
const EVICTION_MS: u64 = 2_000;

const CREDIT: Arm = Arm {
    name: "credit",
    about: "buffered partitions stay in the session; those without credit are not fetched",
    properties: &[("curtail.buffered.partitions", "credit")],
};
const ARMS: [Arm; 4] = [
    CREDIT,
    Arm {
        name: "omit",
        about: "buffered partitions leave the session: option 1 of the pull request",
        properties: &[("curtail.buffered.partitions", "omit")],
    },
    Arm {
        name: "skip-all",
        about: "no fetch while anything is buffered: option 2",
        properties: &[("curtail.buffered.partitions", "skip-all")],
    },
    Arm {
        name: "skip-broker",
        about: "no fetch from a broker while anything of it is buffered: option 4, which was taken",
        properties: &[("curtail.buffered.partitions", "skip-broker")],
    },
];

/// Only with other clients, which lack the settings of the other arms.
const DEFAULT: Arm = Arm {
    name: "default",
    about: "each client's default handling of buffered partitions; Curtail's is that of credit",
    properties: &[],
};

fn slots() -> (&'static str, String) {
    ("max.incremental.fetch.session.cache.slots", SLOTS.to_string())
}

/// `fetch-sessions`.
pub(super) struct FetchSessions;

impl FetchSessions {
    /// Until every session is old enough for an eviction, and the first evictions have happened.
    fn warmup(setting: &Setting) -> Duration {
        match setting.cluster {
            ClusterKind::Embedded => Duration::from_millis(3 * EVICTION_MS),
            _ => Duration::from_secs(150),
        }
    }
}

impl Experiment for FetchSessions {
    fn name(&self) -> &'static str {
        "fetch-sessions"
    }

    fn about(&self) -> &'static str {
        "24 consumers of brokers with 16 session slots: evictions, by the handling of buffered partitions"
    }

    fn source(&self) -> &'static str {
        "KAFKA-17182, pull request 18795"
    }

    fn arms(&self, setting: &Setting) -> Vec<Arm> {
        let others = setting.clients.iter().any(|client| client.peer().is_some());
        others.then_some(DEFAULT).into_iter().chain(ARMS).collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        let published = |arm, note| Published {
            arm,
            source: "pull request 18795",
            latency_us: PublishedLatency::default(),
            throughput_mbps: None,
            note,
        };
        vec![
            published("skip-all", "0.14 evictions/s (ClassicKafkaConsumer)"),
            published("omit", "1.48 evictions/s (AsyncKafkaConsumer without the fix)"),
            published("skip-broker", "0.22 evictions/s (AsyncKafkaConsumer with it)"),
        ]
    }

    fn models(&self, setting: &Setting) -> Vec<Modelled> {
        if setting.cluster != ClusterKind::Embedded {
            return Vec::new();
        }
        let what = "sessions may be evicted sooner than on Apache Kafka, where it takes 120,000 ms";
        let after = "min.incremental.fetch.session.eviction.ms";
        vec![Modelled::new(what, [(after, EVICTION_MS.to_string())])]
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let warmup = Self::warmup(setting);
        let measured = MEASURED.mul_f64(setting.scale);
        Ok(Simulated::from(Workload {
            brokers: 1,
            broker_properties: vec![slots()],
            partitions: PARTITIONS,
            replicas: 1,
            properties: vec![("linger.ms", "0".into())],
            records: (RATE * (warmup + measured).as_secs_f64()).ceil() as u64,
            warmup: (RATE * warmup.as_secs_f64()) as u64,
            rate: Some(RATE),
            size: SIZE,
            keys: KEYS,
            order: Order::Sent,
            readers: Some(Readers {
                count: CONSUMERS as u32,
                properties: properties(&[], arm),
                work: (WORK, WORK + TICK),
                ..Readers::default()
            }),
            script: vec![
                (When::At(warmup), Act::CountSessions),
                (When::At(warmup + measured), Act::CountSessions),
            ],
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        if matches!(setting.cluster, ClusterKind::Bootstrap(_)) {
            let text = "the fetch session counters of an existing cluster are not available";
            return Err(Error::Options(text.into()));
        }
        let mut properties = vec![slots()];
        if setting.cluster == ClusterKind::Embedded {
            properties.push(("min.incremental.fetch.session.eviction.ms", EVICTION_MS.to_string()));
        }
        let needs = Needs { brokers: 1, properties, one_is_enough: true, ..Needs::default() };
        Testbed::start(setting, &needs)
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        let testbed = turn.testbed;
        testbed.create_topic(&topic, PARTITIONS, 1)?;
        let warmup = Self::warmup(turn.setting);
        let measured = MEASURED.mul_f64(turn.setting.scale);
        // The arm's properties are the consumers'.
        let plain = Arm { properties: &[], ..*turn.arm };
        let load = Load {
            config: ProducerConfig::new(testbed.bootstrap()).linger(Duration::ZERO),
            records: (RATE * (warmup + measured).as_secs_f64()).ceil() as u64,
            warmup: (RATE * warmup.as_secs_f64()) as u64,
            rate: RATE,
            size: SIZE,
            keys: KEYS,
            ..Load::new(&Turn { arm: &plain, ..*turn }, &topic)?
        };
        let (records, skipped) = (load.records, load.warmup);
        let over_time = SharedOverTime::default();
        let earlier = testbed.fetch_sessions()?;
        let consumers = Consumers::start(turn, &load)?;
        let script = |start| {
            let expected = Expected {
                warmup: skipped,
                work: Work::Sleep(WORK),
                over_time: over_time.clone(),
                ..Expected::new(start, RATE, records)
            };
            let reading = consumers.begin(expected)?;
            sleep_until(start, warmup);
            let before = testbed.fetch_sessions()?;
            sleep_until(start, warmup + measured);
            let after = testbed.fetch_sessions()?;
            Ok((before, after, reading.join()?))
        };
        let (sent, (before, after, (read, cpu))) = match turn.driver {
            None => load.run_observed(testbed, Observe::Phases, script)?,
            Some(_) => turn.send_followed(load, Senders::default(), script)?,
        };
        let mut sample = readers::sample(sent, Order::Sent, read, &over_time)?;
        sample.cpu = sample.cpu + cpu;
        note_sessions(&mut sample, earlier, before, after, measured);
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        for arm in [CREDIT, DEFAULT] {
            let Some(sample) = arms.get(arm.name) else { continue };
            let seen = sample.figure("evictions_per_s");
            conditions.push(Condition {
                text: format!("{}: no evictions once all have started ({seen:.2}/s)", arm.name),
                held: seen == 0.0,
            });
        }
        conditions
    }
}

/// The measured client's consumers, each at the end of every partition.
enum Consumers {
    Curtail(Runtime, Vec<Consumer>),
    Others(Followers),
}

/// The same while they read.
enum Reading {
    Curtail(Runtime, Vec<JoinHandle<Result<Read>>>),
    Others(Box<Following>),
}

impl Consumers {
    fn start(turn: &Turn<'_>, load: &Load) -> Result<Self> {
        let Some(driver) = turn.driver else {
            let config = ConsumerConfig::new(turn.testbed.bootstrap());
            let config = readers::with_properties(config, turn.arm.properties)?;
            let runtime = readers::runtime()?;
            let consumers = readers::at_end(&runtime, &config, &load.topic, CONSUMERS)?;
            return Ok(Self::Curtail(runtime, consumers));
        };
        let wanted = Wanted { consumers: CONSUMERS, work: WORK, ..Default::default() };
        Ok(Self::Others(Followers::start(turn, driver, load, wanted)?))
    }

    fn begin(self, expected: Expected) -> Result<Reading> {
        match self {
            Self::Curtail(runtime, consumers) => {
                let reading = readers::read(&runtime, consumers, &expected);
                Ok(Reading::Curtail(runtime, reading))
            }
            Self::Others(followers) => Ok(Reading::Others(Box::new(followers.begin(expected)?))),
        }
    }
}

impl Reading {
    /// What each consumer has read, and the CPU time of those in another process.
    fn join(self) -> Result<(Vec<Read>, CpuTime)> {
        match self {
            Self::Curtail(runtime, reading) => {
                Ok((readers::join(&runtime, reading)?, CpuTime::default()))
            }
            Self::Others(following) => following.join(),
        }
    }
}

/// Adds the counters from the beginning and the end of the measured part, in relation to those before the consumers started.
pub(super) fn note_sessions(
    sample: &mut Sample,
    earlier: Sessions,
    before: Sessions,
    after: Sessions,
    measured: Duration,
) {
    let evictions =
        |from: Sessions, to: Sessions| to.evictions.saturating_sub(from.evictions) as f64;
    let per_second = evictions(before, after) / measured.as_secs_f64();
    sample.note("evictions_per_s", Figure::Worst(per_second));
    sample.note("evictions_at_start", Figure::Worst(evictions(earlier, before)));
    // At the end of the measured part the first consumers may already have left.
    sample.note("sessions", Figure::Worst(before.sessions as f64));
    sample.note("partitions_in_sessions", Figure::Worst(before.partitions as f64));
    if earlier.sessions > 0 {
        // A broker keeps a session that its consumer has not closed until another one needs the slot.
        sample.note("sessions_of_earlier_turns", Figure::Worst(earlier.sessions as f64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Client;

    fn arms(clients: &[Client]) -> Vec<&'static str> {
        let setting = Setting { clients: clients.to_vec(), ..Setting::new(ClusterKind::Apache) };
        FetchSessions.arms(&setting).iter().map(|arm| arm.name).collect()
    }

    #[test]
    fn the_default_arm_runs_only_with_other_clients() {
        let ours = ["credit", "omit", "skip-all", "skip-broker"];
        assert_eq!(arms(&[Client::Curtail]), ours);
        let with_others = [&["default"][..], &ours].concat();
        assert_eq!(arms(&[Client::Curtail, Client::Peer(Peer::FranzGo)]), with_others);
    }

    #[test]
    fn sessions_and_evictions_of_earlier_turns_are_apart() {
        let sessions = |sessions, evictions| Sessions { sessions, partitions: 0, evictions };
        let mut sample = Sample::default();
        let length = Duration::from_secs(4);
        note_sessions(&mut sample, sessions(8, 20), sessions(16, 25), sessions(16, 27), length);
        let figures =
            ["evictions_per_s", "evictions_at_start", "sessions", "sessions_of_earlier_turns"];
        assert_eq!(figures.map(|name| sample.figure(name)), [0.5, 5.0, 16.0, 8.0]);
        let mut sample = Sample::default();
        note_sessions(&mut sample, sessions(0, 0), sessions(1, 0), sessions(1, 0), length);
        assert!(!sample.extra.contains_key("sessions_of_earlier_turns"));
    }

    #[test]
    fn other_clients_run_only_the_default_arm() {
        for peer in Peer::ALL {
            assert_eq!(FetchSessions.admits(&DEFAULT, peer), Ok(()));
            assert_eq!(peer.lacks(DEFAULT.properties), None);
            for arm in ARMS {
                let expected =
                    format!("it does not support curtail.buffered.partitions={}", arm.name);
                assert_eq!(peer.lacks(arm.properties), Some(expected));
            }
        }
    }
}
