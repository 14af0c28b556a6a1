//! Three brokers in three zones: the bytes that cross zones and the latency, with and without `client.rack` of the
//! consumer (KIP-392) and `partitioner.rack.aware` of the producer (KIP-1123).
//!
//! The source runs its brokers in three availability zones, one replica of each partition in each. Here the producer
//! is in one zone and the consumer in another, and latencies end with the consumer's poll. Replication crosses zones
//! in every arm. A follower serves a record once it knows the new high watermark, which the leader's next response to
//! it carries: a fetch of the follower later, and after the leader's next record, if that is later.
//!
//! The delay between zones is larger than that within most regions, so that it exceeds the noise of one machine.

use std::time::{Duration, Instant};

use curtail_cluster::{ApiKey, Requests, Sender};

use super::{
    Arm, Arms, ClusterKind, Condition, Experiment, Figure, Model, Modelled, Published, Readers,
    Sample, Setting, Simulated, Testbed, Turn, Workload, Zones,
    check::Order,
    durability::{SOURCE, WARMUP, quantile_ms},
    load::{Load, Senders, with_properties},
    readers::{self, Expected, Reader, SharedOverTime, fetches::Fetches},
    testbed::Needs,
    workload::properties,
};
use crate::perf::{Error, Result};

/// The brokers' racks, in the order of their ids.
const RACKS: [&str; 3] = ["a", "b", "c"];
/// Zones of the clients.
const CLIENTS: Zones = Zones { producers: "a", readers: "b" };
/// Four partitions led in each zone.
const PARTITIONS: i32 = 12;
const REPLICAS: i16 = 3;
/// Records per second. An embedded broker that delays a response serves nothing else on that connection, so requests
/// must not arrive faster than their responses leave.
const RATE: f64 = 300.0;
const SIZE: usize = 500;
const RUN: Duration = Duration::from_secs(10);
/// Records of this time after the run are read and do not count: no later record tells followers of their commit.
const COOLDOWN: Duration = Duration::from_millis(200);

/// Additional one-way delay between two zones.
const DELAY: Duration = Duration::from_micros(2_500);
/// Smallest share that crosses zones without racks. Of three brokers, two are in another zone, but the partitioner
/// prefers leaders with short queues (KIP-794), which are nearby.
const CROSSES_PERCENT: f64 = 33.0;
/// Largest share that crosses zones with racks: the first fetches, until the leaders have named the replicas.
const NEAR_PERCENT: f64 = 1.0;

const FAR: &str = "far";
const NEAR_READS: &str = "near-reads";
const NEAR_WRITES: &str = "near-writes";
const NEAR: &str = "near";

type Properties = &'static [(&'static str, &'static str)];

/// The partitioner changes the partition after `batch.size`: here after each record or two, so that the records of a
/// short run spread evenly, too.
const PRODUCER: Properties = &[("linger.ms", "0"), ("batch.size", "600")];
const RACK_AWARE: Properties = &[("partitioner.rack.aware", "true"), ("client.rack", "a")];
const NEARBY: Properties = &[("client.rack", "b")];

/// An arm with the properties of each client, which differ in `client.rack`.
struct Case {
    name: &'static str,
    about: &'static str,
    producer: Properties,
    consumer: Properties,
}

const CASES: [Case; 4] = [
    Case { name: FAR, about: "no client has a rack", producer: &[], consumer: &[] },
    Case {
        name: NEAR_READS,
        about: "the consumer's client.rack: it reads from the replicas in its zone",
        producer: &[],
        consumer: NEARBY,
    },
    Case {
        name: NEAR_WRITES,
        about: "the producer's partitioner.rack.aware: it sends to the leaders in its zone",
        producer: RACK_AWARE,
        consumer: &[],
    },
    Case { name: NEAR, about: "both", producer: RACK_AWARE, consumer: NEARBY },
];

fn case_of(arm: &Arm) -> Result<&'static Case> {
    let case = CASES.iter().find(|case| case.name == arm.name);
    case.ok_or_else(|| Error::Options(format!("zones has no arm '{}'", arm.name)))
}

/// `zones`.
pub(super) struct ZoneDelays;

impl Experiment for ZoneDelays {
    fn name(&self) -> &'static str {
        "zones"
    }

    fn about(&self) -> &'static str {
        "three zones: latency and bytes that cross zones, with and without client.rack and partitioner.rack.aware"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        CASES
            .iter()
            .map(|case| Arm { name: case.name, about: case.about, properties: &[] })
            .collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    /// The source describes the set-up and gives no figures of other ones.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn models(&self, setting: &Setting) -> Vec<Modelled> {
        match setting.cluster {
            ClusterKind::Embedded => vec![Modelled::new(
                "the delay between zones: a broker waits before each response to another zone, as long as both ways take",
                [("delay", format!("{:?}", 2 * DELAY))],
            )],
            _ => Vec::new(),
        }
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let case = case_of(arm)?;
        let (warmup, records) = records(setting);
        let plain = Arm { properties: &[], ..*arm };
        Ok(Simulated::from(Workload {
            brokers: RACKS.len() as u32,
            broker_properties: broker_properties(),
            partitions: PARTITIONS,
            replicas: REPLICAS,
            properties: properties(&[PRODUCER, case.producer].concat(), &plain),
            records,
            warmup,
            rate: Some(RATE),
            size: SIZE,
            order: Order::Acknowledged,
            readers: Some(Readers {
                properties: properties(case.consumer, arm),
                cooldown: cooldown(),
                ..Readers::default()
            }),
            zones: Some(CLIENTS),
            model: Model { zones: DELAY, ..Model::default() },
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        if setting.cluster != ClusterKind::Embedded {
            let text = "zones needs a delay between brokers, which is available on `embedded` and `sim` only";
            return Err(Error::Options(text.into()));
        }
        let (brokers, properties) = (RACKS.len() as u32, broker_properties());
        Testbed::start(setting, &Needs { brokers, properties, faults: true, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let (case, testbed) = (case_of(turn.arm)?, turn.testbed);
        let topic = turn.topic(self.name());
        testbed.create_topic(&topic, PARTITIONS, REPLICAS)?;
        // A variant's properties are the consumer's.
        let plain = Arm { properties: &[], ..*turn.arm };
        let base = Load::new(&Turn { arm: &plain, ..*turn }, &topic)?;
        let (warmup, records) = records(turn.setting);
        let load = Load {
            config: with_properties(base.config.clone(), &[PRODUCER, case.producer].concat())?,
            records,
            warmup,
            rate: RATE,
            size: SIZE,
            ..base
        };
        let properties = [case.consumer, turn.arm.properties].concat();
        let config = readers::with_properties(testbed.consumer(), &properties)?;
        let over_time = SharedOverTime::default();
        let runtime = readers::runtime()?;
        let consumer = readers::one_at_end(&runtime, &config, &topic)?;
        testbed.delay(between_zones(), 2 * DELAY)?;
        let sent = turn.send_after(load, Senders::default(), |start: Instant, _| {
            let over_time = over_time.clone();
            let cooldown = cooldown();
            let expected =
                Expected { warmup, cooldown, over_time, ..Expected::new(start, RATE, records) };
            runtime.block_on(Reader::new(expected).run(consumer))
        });
        testbed.end_delays()?;
        let (sent, read) = sent?;
        let fetches = Fetches::of(std::slice::from_ref(&read));
        let mut sample = readers::sample(sent, Order::Acknowledged, vec![read], &over_time)?;
        note_across(&mut sample, CLIENTS, &fetches);
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        let (produced, consumed) = ("produced_across_percent", "consumed_across_percent");
        for figure in [produced, consumed] {
            let Some(sample) = arms.get(FAR) else { continue };
            let percent = sample.figure(figure);
            conditions.push(Condition {
                text: format!("{FAR}: {figure} at least {CROSSES_PERCENT} ({percent:.2})"),
                held: percent >= CROSSES_PERCENT,
            });
        }
        let near =
            [(NEAR_READS, consumed), (NEAR_WRITES, produced), (NEAR, consumed), (NEAR, produced)];
        for (arm, figure) in near {
            let Some(sample) = arms.get(arm) else { continue };
            let percent = sample.figure(figure);
            conditions.push(Condition {
                text: format!("{arm}: {figure} at most {NEAR_PERCENT} ({percent:.2})"),
                held: percent <= NEAR_PERCENT,
            });
        }
        if let (Some(far), Some(near)) = (arms.get(FAR), arms.get(NEAR_READS)) {
            let what = format!(
                "{NEAR_READS}: p50, compared with that of {FAR} plus a fetch of the follower and the leader's next record:"
            );
            let limit = quantile_ms(far, 0.5) + follower_ms();
            conditions.push(Condition::below_ms(&what, quantile_ms(near, 0.5), limit));
        }
        conditions
    }
}

/// A round trip between zones, and the mean time between two records of one leader, in milliseconds.
fn follower_ms() -> f64 {
    (2 * DELAY).as_secs_f64() * 1000.0 + 1000.0 * RACKS.len() as f64 / RATE
}

fn broker_properties() -> Vec<(&'static str, String)> {
    let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    vec![("broker.rack", RACKS.join(",")), ("replica.selector.class", selector.to_owned())]
}

/// The zone of a broker.
fn zone(broker: i32) -> Option<&'static str> {
    RACKS.get(usize::try_from(broker - 1).ok()?).copied()
}

/// Requests between zones, on the embedded cluster: of the producer, of the consumer, and of followers.
fn between_zones() -> Vec<Requests> {
    let brokers = || (1..).take(RACKS.len());
    let outside = |api, own| {
        let far = brokers().filter(move |broker| zone(*broker) != Some(own));
        far.map(move |broker| Requests::of(api).to_broker(broker))
    };
    let produced = outside(ApiKey::PRODUCE, CLIENTS.producers);
    let consumed = outside(ApiKey::FETCH, CLIENTS.readers);
    // No two brokers share a zone.
    let replicated = Requests::of(ApiKey::FETCH).from(Sender::Brokers);
    produced.chain(consumed).chain([replicated]).collect()
}

/// Adds the shares of produced values and of fetched bytes that crossed zones, in percent, by the brokers of the sample
/// and of the fetches.
pub(super) fn note_across(sample: &mut Sample, zones: Zones, fetches: &Fetches) {
    let produced = sample.brokers.iter().map(|(broker, (_, bytes))| (*broker, *bytes));
    let produced = percent_outside(zones.producers, produced);
    let consumed = fetches.brokers.iter().map(|(broker, fetched)| (*broker, fetched.bytes));
    let consumed = percent_outside(zones.readers, consumed);
    sample.note("produced_across_percent", Figure::Worst(produced));
    sample.note("consumed_across_percent", Figure::Worst(consumed));
}

/// Share of bytes at brokers outside a zone, in percent; NaN without bytes.
fn percent_outside(own: &str, bytes: impl Iterator<Item = (i32, u64)>) -> f64 {
    let (mut outside, mut all) = (0, 0);
    for (broker, bytes) in bytes {
        all += bytes;
        outside += if zone(broker) == Some(own) { 0 } else { bytes };
    }
    100.0 * outside as f64 / all as f64
}

/// Records due in this time.
fn due_in(time: Duration) -> u64 {
    (RATE * time.as_secs_f64()).ceil() as u64
}

fn cooldown() -> u64 {
    due_in(COOLDOWN)
}

/// Records of the warm-up, and of the whole load.
fn records(setting: &Setting) -> (u64, u64) {
    (due_in(WARMUP), due_in(WARMUP + RUN.mul_f64(setting.scale) + COOLDOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_brokers_in_other_zones_cross_zones() {
        let bytes = || [(1, 300), (2, 100), (3, 100)].into_iter();
        assert_eq!(percent_outside("a", bytes()), 40.0);
        assert_eq!(percent_outside("b", bytes()), 80.0);
        assert!(percent_outside("a", std::iter::empty()).is_nan());
    }

    #[test]
    fn only_requests_between_zones_are_delayed() {
        let delayed = between_zones();
        let of = |api, from| -> Vec<Option<i32>> {
            let all = delayed.iter().filter(|of| of.api == Some(api) && of.from == from);
            all.map(|of| of.broker).collect()
        };
        assert_eq!(of(ApiKey::PRODUCE, Sender::Clients), [Some(2), Some(3)]);
        assert_eq!(of(ApiKey::FETCH, Sender::Clients), [Some(1), Some(3)]);
        assert_eq!(of(ApiKey::FETCH, Sender::Brokers), [None]);
    }

    #[test]
    fn a_cluster_without_delays_between_brokers_is_refused() {
        let refused = ZoneDelays.start(&Setting::new(ClusterKind::Apache)).err().unwrap();
        assert!(refused.to_string().contains("on `embedded` and `sim` only"), "{refused}");
    }
}
