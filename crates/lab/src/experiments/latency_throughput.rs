//! The trade-off between latency and throughput: the same records at three rates, under settings for
//! batching, compression, requests in flight and security.
//!
//! Load is open loop, so a rate that cannot be kept shows as latency. Brokers and producer share the machine:
//! the bend of the curve is that of both together.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{
    Arm, Arms, ClusterKind, Condition, Experiment, Published, Sample, Setting, Testbed, Turn,
    check::{Order, read_back},
    durability::{KEYS, PARTITIONS, SIZE, SOURCE, TARGET_MS, WARMUP, quantile_ms},
    load::{Keys, Load},
    testbed::Needs,
};
use crate::{
    peers::Peer,
    perf::{Error, Result},
};

const REPLICAS: i16 = 3;
const RUN: Duration = Duration::from_secs(4);
/// Fewest records of a run.
const LEAST: f64 = 1_000.0;

/// Records per second: 2, 10 and 40 MB/s.
const RATES: [f64; 3] = [4_096.0, 20_480.0, 81_920.0];

/// Settings at the three rates.
struct Case {
    /// The arms' names at the rates.
    names: [&'static str; 3],
    about: &'static str,
    properties: &'static [(&'static str, &'static str)],
    sasl_ssl: bool,
}

const fn case(
    names: [&'static str; 3],
    about: &'static str,
    properties: &'static [(&'static str, &'static str)],
) -> Case {
    Case { names, about, properties, sasl_ssl: false }
}

static CASES: [Case; 8] = [
    case(["default-2", "default-10", "default-40"], "linger.ms=5, batch.size=16384", &[]),
    case(["linger-0-2", "linger-0-10", "linger-0-40"], "linger.ms=0", &[("linger.ms", "0")]),
    case(
        ["large-2", "large-10", "large-40"],
        "linger.ms=10, batch.size=131072",
        &[("linger.ms", "10"), ("batch.size", "131072"), ("batch.max.size", "131072")],
    ),
    case(["lz4-2", "lz4-10", "lz4-40"], "compression.type=lz4", &[("compression.type", "lz4")]),
    case(
        ["zstd-2", "zstd-10", "zstd-40"],
        "compression.type=zstd",
        &[("compression.type", "zstd")],
    ),
    case(
        ["in-flight-1-2", "in-flight-1-10", "in-flight-1-40"],
        "max.in.flight.requests.per.connection=1",
        &[("max.in.flight.requests.per.connection", "1")],
    ),
    Case {
        sasl_ssl: true,
        ..case(["sasl-ssl-2", "sasl-ssl-10", "sasl-ssl-40"], "SASL_SSL, PLAIN", &[])
    },
    Case {
        sasl_ssl: true,
        ..case(
            ["sasl-ssl-lz4-2", "sasl-ssl-lz4-10", "sasl-ssl-lz4-40"],
            "SASL_SSL, PLAIN, compression.type=lz4: the post's settings",
            &[("compression.type", "lz4")],
        )
    },
];

/// `latency-throughput`.
pub(super) struct LatencyThroughput;

impl Experiment for LatencyThroughput {
    fn name(&self) -> &'static str {
        "latency-throughput"
    }

    fn about(&self) -> &'static str {
        "batching, compression, requests in flight, SASL_SSL: where latency bends as the rate rises"
    }

    fn source(&self) -> &'static str {
        SOURCE
    }

    fn arms(&self, setting: &Setting) -> Vec<Arm> {
        // Secure listeners of other clusters have other certificates and users.
        let there = |case: &&Case| !case.sasl_ssl || setting.cluster == ClusterKind::Embedded;
        let arm = |case: &'static Case, name| Arm {
            name,
            about: case.about,
            properties: case.properties,
        };
        let arms = |case: &'static Case| case.names.map(|name| arm(case, name));
        CASES.iter().filter(there).flat_map(arms).collect()
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    /// The source describes the trade-off and gives no figures.
    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        Testbed::start(setting, &Needs { brokers: 3, ..Needs::default() })
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let (case, rate) = find(turn.arm.name)?;
        if !case.sasl_ssl {
            return measure(turn, self.name(), rate);
        }
        // A broker of the embedded cluster speaks one protocol.
        let needs = Needs { brokers: 3, sasl_ssl: true, ..Needs::default() };
        let secured = Testbed::start(turn.setting, &needs)?;
        measure(&Turn { testbed: &secured, ..*turn }, self.name(), rate)
    }

    fn admits(&self, arm: &Arm, _: Peer) -> Result<(), &'static str> {
        let secured = find(arm.name).is_ok_and(|(case, _)| case.sasl_ssl);
        (!secured)
            .then_some(())
            .ok_or("only Curtail is given the certificates and users of these brokers")
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        for case in &CASES {
            let seen = case.names.map(|name| Some(quantile_ms(arms.get(name)?, 0.99)));
            if let [Some(low), Some(middle), Some(high)] = seen {
                conditions.push(of_curve(case.about, [low, middle, high]));
            }
        }
        conditions
    }
}

fn find(arm: &str) -> Result<(&'static Case, f64)> {
    let found = CASES.iter().find_map(|case| {
        let at = case.names.iter().position(|name| *name == arm)?;
        Some((case, RATES[at]))
    });
    found.ok_or_else(|| Error::Options(format!("no arm {arm}")))
}

fn measure(turn: &Turn<'_>, experiment: &str, rate: f64) -> Result<Sample> {
    let topic = turn.topic(experiment);
    turn.testbed.create_topic(&topic, PARTITIONS, REPLICAS)?;
    let measured = RUN.mul_f64(turn.setting.scale).as_secs_f64().max(LEAST / rate);
    let load = Load {
        records: (rate * (WARMUP.as_secs_f64() + measured)) as u64,
        warmup: (rate * WARMUP.as_secs_f64()) as u64,
        rate,
        size: SIZE,
        keys: Keys::Cycle(KEYS),
        ..Load::new(turn, &topic)?
    };
    let (sent, ()) = turn.send(load, |_| Ok(()))?;
    let mut sample = sent.sample();
    sent.note_requests(&mut sample);
    read_back(&sent, Order::Sent, &mut sample)?;
    turn.testbed.delete_topic(&topic)?;
    Ok(sample)
}

/// MB/s of a rate.
fn mbps(rate: f64) -> f64 {
    rate * SIZE as f64 / (1024.0 * 1024.0)
}

/// Condition: the objective holds up to the middle rate; names the highest rate at which it holds.
fn of_curve(about: &str, p99_ms: [f64; 3]) -> Condition {
    let within = p99_ms.iter().take_while(|p99| **p99 < TARGET_MS).count();
    let bend = match within {
        0 => "nowhere".to_owned(),
        within => format!("up to {:.0} MB/s", mbps(RATES[within - 1])),
    };
    let [low, middle, high] = p99_ms;
    let [first, second, third] = RATES.map(mbps);
    Condition {
        text: format!(
            "{about}: p99 below {TARGET_MS:.0} ms {bend} ({low:.1}, {middle:.1} and {high:.1} ms at \
             {first:.0}, {second:.0} and {third:.0} MB/s)"
        ),
        held: within >= 2,
    }
}
