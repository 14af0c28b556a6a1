//! More consumers than a broker has slots for fetch sessions: the number of evictions.

use std::time::Duration;

use curtail::{ConsumerConfig, ProducerConfig};

use super::{
    Act, Arm, Arms, ClusterKind, Condition, Experiment, Figure, Modelled, Published,
    PublishedLatency, Readers, Sample, Setting, Simulated, Testbed, Turn, When, Workload,
    check::Order,
    load::{Keys, Load, sleep_until},
    phases::Observe,
    readers::{self, Expected, SharedOverTime, Work},
    testbed::{Needs, Sessions},
    workload::properties,
};
use crate::perf::{Error, Result};

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

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        ARMS.to_vec()
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
        let config = ConsumerConfig::new(testbed.bootstrap());
        let config = readers::with_properties(config, turn.arm.properties)?;
        let runtime = readers::runtime()?;
        let consumers = readers::at_end(&runtime, &config, &topic, CONSUMERS)?;
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
        let (sent, (before, after, read)) =
            load.run_observed(testbed, Observe::Phases, |start| {
                let expected = Expected {
                    warmup: skipped,
                    work: Work::Sleep(WORK),
                    over_time: over_time.clone(),
                    ..Expected::new(start, RATE, records)
                };
                let reading = readers::read(&runtime, consumers, &expected);
                sleep_until(start, warmup);
                let before = testbed.fetch_sessions()?;
                sleep_until(start, warmup + measured);
                let after = testbed.fetch_sessions()?;
                Ok((before, after, readers::join(&runtime, reading)?))
            })?;
        let mut sample = readers::sample(sent, Order::Sent, read, &over_time)?;
        note_sessions(&mut sample, before, after, measured);
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        if let Some(sample) = arms.get(CREDIT.name) {
            let seen = sample.figure("evictions_per_s");
            conditions.push(Condition {
                text: format!("credit: no evictions once all have started ({seen:.2}/s)"),
                held: seen == 0.0,
            });
        }
        conditions
    }
}

/// Adds the counters from the beginning and the end of the measured part.
pub(super) fn note_sessions(
    sample: &mut Sample,
    before: Sessions,
    after: Sessions,
    measured: Duration,
) {
    let evictions = after.evictions.saturating_sub(before.evictions) as f64;
    sample.note("evictions_per_s", Figure::Worst(evictions / measured.as_secs_f64()));
    sample.note("evictions_at_start", Figure::Worst(before.evictions as f64));
    // At the end of the measured part the first consumers may already have left.
    sample.note("sessions", Figure::Worst(before.sessions as f64));
    sample.note("partitions_in_sessions", Figure::Worst(before.partitions as f64));
}
