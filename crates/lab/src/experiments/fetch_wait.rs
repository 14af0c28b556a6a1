//! `fetch.min.bytes` and `fetch.max.wait.ms`: the latency that larger fetch responses cost, and the requests that
//! they save.
//!
//! A broker responds to a fetch when it has `fetch.min.bytes`, or after `fetch.max.wait.ms`. A trickle does not
//! fill a response in time, so the wait bounds its latency. At the steady rate a response fills within the default
//! wait, so the fill time bounds the latency. The consumer reads alongside the load; latencies end with the poll.
//!
//! The source states neither values nor figures. One broker serves all partitions, because the minimum applies to
//! each request, and a consumer has one in flight per broker.
//!
//! With another client, Curtail sends the load and the other client's consumer reads it.

use std::time::{Duration, Instant};

use curtail::ConsumerConfig;

use super::{
    Arm, Arms, Condition, Experiment, Published, Readers, Sample, Setting, Simulated, Testbed,
    Turn, Workload,
    catch_up::write_earlier,
    check::Order,
    durability::{SOURCE, TARGET_MS, WARMUP, quantile_ms},
    load::{Load, Senders, Sent, with_properties},
    readers::{
        self, Expected, Read, Reader, SharedOverTime, fetches::Fetches, followers::Followers,
    },
    testbed::Needs,
    workload::properties,
};
use crate::{
    cpu::CpuTime,
    peers::{Driver, Peer, driver::follow::Wanted},
    perf::Result,
};

const PARTITIONS: i32 = 12;
const SIZE: usize = 500;
/// Records per second: 100 KB/s.
const TRICKLE_RATE: f64 = 200.0;
/// Records per second: 2.5 MB/s.
const STEADY_RATE: f64 = 5_000.0;
const RUN: Duration = Duration::from_secs(10);
/// Records of this time after the run are read and do not count: no later record fills the last response.
const COOLDOWN: Duration = Duration::from_millis(200);
/// Records that another client's consumer reads before the load, as a warm-up.
const READ_FIRST: u64 = 10_000;

/// The larger `fetch.min.bytes`: 105 ms of values at the steady rate, 2.6 s of the trickle.
const MIN_BYTES: f64 = 262_144.0;
/// The default of `fetch.max.wait.ms`.
const LONG_MS: f64 = 500.0;
/// The smaller `fetch.max.wait.ms`.
const SHORT_MS: f64 = 50.0;
/// Bound of a timer's lateness and of sending and decoding a response of up to 256 KiB: 6 ms in an unoptimized build.
const MORE_MS: f64 = 10.0;
/// Largest ratio of the fetches per record with the larger minimum to those with the default.
const LARGE_FETCHES: f64 = 0.2;
/// Largest ratio of the fetches per record with a linger to those without.
const LINGER_FETCHES: f64 = 0.5;

const LARGE: &[(&str, &str)] = &[("fetch.min.bytes", "262144")];
const LARGE_SHORT: &[(&str, &str)] = &[("fetch.min.bytes", "262144"), ("fetch.max.wait.ms", "50")];

const TRICKLE: Arm =
    Arm { name: "trickle", about: "200 records/s, fetch.min.bytes=1 (default)", properties: &[] };
const TRICKLE_LARGE: Arm = Arm {
    name: "trickle-256k",
    about: "the same, fetch.min.bytes=262144, fetch.max.wait.ms=500 (default)",
    properties: LARGE,
};
const TRICKLE_SHORT: Arm = Arm {
    name: "trickle-256k-50",
    about: "the same, fetch.min.bytes=262144, fetch.max.wait.ms=50",
    properties: LARGE_SHORT,
};
const STEADY: Arm =
    Arm { name: "steady", about: "5,000 records/s, fetch.min.bytes=1 (default)", properties: &[] };
const STEADY_LARGE: Arm = Arm {
    name: "steady-256k",
    about: "the same, fetch.min.bytes=262144, fetch.max.wait.ms=500 (default)",
    properties: LARGE,
};
const STEADY_SHORT: Arm = Arm {
    name: "steady-256k-50",
    about: "the same, fetch.min.bytes=262144, fetch.max.wait.ms=50",
    properties: LARGE_SHORT,
};
const STEADY_LINGER: Arm = Arm {
    name: "steady-linger",
    about: "the same, fetch.min.bytes=1, and the producer's linger.ms=5",
    properties: &[("linger.ms", "5")],
};

/// `fetch-wait`.
pub(super) struct FetchWait;

impl Experiment for FetchWait {
    fn name(&self) -> &'static str {
        "fetch-wait"
    }

    fn about(&self) -> &'static str {
        "fetch.min.bytes and fetch.max.wait.ms: latency of a trickle and of a steady rate, and the fetch requests"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        let trickle = [TRICKLE, TRICKLE_LARGE, TRICKLE_SHORT];
        let steady = [STEADY, STEADY_LARGE, STEADY_SHORT, STEADY_LINGER];
        trickle.into_iter().chain(steady).collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    /// The source describes the effect and gives no figures.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let (warmup, records) = records(setting, arm);
        let cooldown = cooldown(arm);
        let Sides { producer, consumer } = Sides::of(arm);
        let plain = Arm { properties: &[], ..*arm };
        Ok(Simulated::from(Workload {
            brokers: 1,
            partitions: PARTITIONS,
            replicas: 1,
            properties: properties(&producer, &plain),
            records,
            warmup,
            rate: Some(rate(arm)),
            size: SIZE,
            order: Order::Acknowledged,
            readers: Some(Readers {
                properties: properties(&consumer, &plain),
                cooldown,
                fetches: true,
                ..Readers::default()
            }),
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 1, one_is_enough: true, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let topic = turn.topic(self.name());
        turn.testbed.create_topic(&topic, PARTITIONS, 1)?;
        let (warmup, records) = records(turn.setting, turn.arm);
        let plain = Arm { properties: &[], ..*turn.arm };
        let base = Load::new(&Turn { arm: &plain, ..*turn }, &topic)?;
        let load = Load {
            config: with_properties(base.config.clone(), &Sides::of(turn.arm).producer)?,
            records,
            warmup,
            rate: rate(turn.arm),
            size: SIZE,
            ..base
        };
        let over_time = SharedOverTime::default();
        let (sent, read, cpu) = match turn.driver {
            None => self::read(turn, load, &over_time)?,
            Some(driver) => read_by(driver, turn, load, &over_time)?,
        };
        let fetches = Fetches::of(&read);
        let mut sample = readers::sample(sent, Order::Acknowledged, read, &over_time)?;
        sample.cpu = sample.cpu + cpu;
        fetches.note(&mut sample);
        turn.testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, arm: &Arm, _: Peer) -> Result<(), &'static str> {
        match arm.name == STEADY_LINGER.name {
            true => Err("the arm is about the producer, which is Curtail's for every client"),
            false => Ok(()),
        }
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        // The longest time for which the broker holds a response back.
        let filled = MIN_BYTES / (STEADY_RATE * SIZE as f64) * 1000.0;
        let held_back = [
            (TRICKLE, TRICKLE_LARGE, LONG_MS),
            (TRICKLE, TRICKLE_SHORT, SHORT_MS),
            (STEADY, STEADY_LARGE, LONG_MS.min(filled)),
            (STEADY, STEADY_SHORT, SHORT_MS.min(filled)),
        ];
        for arm in [TRICKLE, STEADY] {
            let Some(sample) = arms.get(arm.name) else { continue };
            let what = format!("{}: p99", arm.name);
            conditions.push(Condition::below_ms(&what, quantile_ms(sample, 0.99), TARGET_MS));
        }
        for (default, large, wait) in held_back {
            let (Some(default), Some(sample)) = (arms.get(default.name), arms.get(large.name))
            else {
                continue;
            };
            let [less, more] = [default, sample].map(|sample| quantile_ms(sample, 0.5));
            conditions.push(Condition {
                text: format!(
                    "{}: records wait for the response (p50 {more:.1} and {less:.1} ms)",
                    large.name
                ),
                held: more > less,
            });
            let what = format!("{}: p99, compared with that of the default plus", large.name);
            let what = format!("{what} {wait:.0} ms and {MORE_MS:.0} ms for the response:");
            let limit = quantile_ms(default, 0.99) + wait + MORE_MS;
            conditions.push(Condition::below_ms(&what, quantile_ms(sample, 0.99), limit));
            conditions.push(fewer(large.name, default, sample, LARGE_FETCHES));
        }
        if let (Some(none), Some(linger)) = (arms.get(STEADY.name), arms.get(STEADY_LINGER.name)) {
            conditions.push(fewer(STEADY_LINGER.name, none, linger, LINGER_FETCHES));
        }
        conditions
    }
}

/// Requires at most this share of the default's fetches per record. A missing figure (NaN) does not hold.
fn fewer(arm: &str, default: &Sample, sample: &Sample, share: f64) -> Condition {
    let [many, few] = [default, sample].map(|sample| sample.figure("fetches_per_1000_records"));
    Condition {
        text: format!(
            "{arm}: at most {:.0}% of the default's fetches per 1,000 records ({few:.1} of {many:.1})",
            100.0 * share
        ),
        held: few <= share * many,
    }
}

/// An arm's properties, each for the client that has it.
struct Sides {
    producer: Vec<(&'static str, &'static str)>,
    consumer: Vec<(&'static str, &'static str)>,
}

impl Sides {
    /// Properties that consumers do not have are the producer's. Its `linger.ms` is 0 otherwise.
    fn of(arm: &Arm) -> Self {
        let is_consumers =
            |(name, value): &(&str, &str)| ConsumerConfig::default().set(name, value).is_ok();
        let (consumer, producer): (Vec<_>, Vec<_>) =
            arm.properties.iter().copied().partition(is_consumers);
        let producer = [("linger.ms", "0")].into_iter().chain(producer).collect();
        Self { producer, consumer }
    }
}

/// Reads with Curtail, whose CPU time is in the load's.
fn read(
    turn: &Turn<'_>,
    load: Load,
    over_time: &SharedOverTime,
) -> Result<(Sent, Vec<Read>, CpuTime)> {
    let config = turn.testbed.consumer();
    let config = readers::with_properties(config, &Sides::of(turn.arm).consumer)?;
    let runtime = readers::runtime()?;
    let consumer = readers::one_at_end(&runtime, &config, &load.topic)?;
    let expected = expected(turn.arm, &load, over_time);
    let (sent, read) = turn.send_after(load, Senders::default(), |start, _| {
        runtime.block_on(Reader::new(expected(start)).run(consumer))
    })?;
    Ok((sent, vec![read], CpuTime::default()))
}

/// Reads with another client, whose consumer has read other records as a warm-up.
fn read_by(
    driver: &Driver,
    turn: &Turn<'_>,
    load: Load,
    over_time: &SharedOverTime,
) -> Result<(Sent, Vec<Read>, CpuTime)> {
    write_earlier(&load, 0..PARTITIONS, READ_FIRST)?;
    let wanted = Wanted { consumers: 1, read_first: READ_FIRST, ..Wanted::default() };
    let followers = Followers::start(turn, driver, &load, wanted)?;
    let expected = expected(turn.arm, &load, over_time);
    let (sent, (read, cpu)) = turn.send_followed(load, Senders::default(), |start| {
        followers.begin(expected(start))?.join()
    })?;
    Ok((sent, read, cpu))
}

/// The records that the consumer expects, by the load's start.
fn expected(
    arm: &Arm,
    load: &Load,
    over_time: &SharedOverTime,
) -> impl Fn(Instant) -> Expected + Send + use<> {
    let (over_time, rate) = (over_time.clone(), load.rate);
    let (warmup, cooldown, records) = (load.warmup, cooldown(arm), load.records);
    move |start| Expected {
        warmup,
        cooldown,
        over_time: over_time.clone(),
        ..Expected::new(start, rate, records)
    }
}

/// Records per second.
fn rate(arm: &Arm) -> f64 {
    let trickles = [TRICKLE, TRICKLE_LARGE, TRICKLE_SHORT].iter().any(|of| of.name == arm.name);
    if trickles { TRICKLE_RATE } else { STEADY_RATE }
}

/// Records due in this time.
fn due_in(arm: &Arm, time: Duration) -> u64 {
    (rate(arm) * time.as_secs_f64()).ceil() as u64
}

fn cooldown(arm: &Arm) -> u64 {
    due_in(arm, COOLDOWN)
}

/// Records of the warm-up, and of the whole load.
fn records(setting: &Setting, arm: &Arm) -> (u64, u64) {
    let run = RUN.mul_f64(setting.scale);
    (due_in(arm, WARMUP), due_in(arm, WARMUP + run + COOLDOWN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::ClusterKind;

    #[test]
    fn each_property_goes_to_the_client_that_has_it() {
        let of = |arm: &Arm| {
            let Sides { producer, consumer } = Sides::of(arm);
            (producer, consumer)
        };
        assert_eq!(of(&STEADY), (vec![("linger.ms", "0")], vec![]));
        assert_eq!(of(&STEADY_SHORT), (vec![("linger.ms", "0")], LARGE_SHORT.to_vec()));
        let (producer, consumer) = of(&STEADY_LINGER);
        assert_eq!((producer.last(), consumer.len()), (Some(&("linger.ms", "5")), 0));
    }

    #[test]
    fn other_clients_run_the_arms_about_the_consumer() {
        let all = FetchWait.arms(&Setting::new(ClusterKind::Embedded));
        for peer in [Peer::Java, Peer::Librdkafka, Peer::FranzGo] {
            let admitted = |arm: &&Arm| {
                FetchWait.admits(arm, peer).is_ok() && peer.lacks(arm.properties).is_none()
            };
            let names: Vec<&str> = all.iter().filter(admitted).map(|arm| arm.name).collect();
            let trickle = ["trickle", "trickle-256k", "trickle-256k-50"];
            assert_eq!(
                names,
                [&trickle[..], &["steady", "steady-256k", "steady-256k-50"]].concat()
            );
        }
    }

    #[test]
    fn a_trickle_does_not_fill_a_response_within_the_wait_and_the_steady_rate_does() {
        let fills_ms = |arm: &Arm| MIN_BYTES / (rate(arm) * SIZE as f64) * 1000.0;
        assert!(fills_ms(&TRICKLE_LARGE) > 2.0 * LONG_MS, "{}", fills_ms(&TRICKLE_LARGE));
        let steady = fills_ms(&STEADY_LARGE);
        assert!(steady < LONG_MS && steady > 2.0 * SHORT_MS, "{steady}");
    }

    #[test]
    fn fetch_requests_that_were_not_counted_are_not_fewer() {
        let mut counted = Sample::default();
        counted.note("fetches_per_1000_records", crate::experiments::Figure::Worst(1.0));
        let few = Sample::default();
        assert!(!fewer("x", &counted, &few, LARGE_FETCHES).held);
        assert!(!fewer("x", &few, &counted, LARGE_FETCHES).held);
        assert!(fewer("x", &counted, &counted, 1.0).held);
    }
}
