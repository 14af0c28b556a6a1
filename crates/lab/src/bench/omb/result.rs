//! The result under the benchmark's own names, with one value per period and for the whole run: publish and
//! end-to-end latencies in milliseconds, publish delays in microseconds.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Driver, Workload};
use crate::latency::Latencies;

/// Percentiles of a result, by name suffix.
const PERCENTILES: [(&str, f64); 7] = [
    ("50pct", 0.5),
    ("75pct", 0.75),
    ("95pct", 0.95),
    ("99pct", 0.99),
    ("999pct", 0.999),
    ("9999pct", 0.9999),
    ("99999pct", 0.99999),
];

/// Unit of a latency.
#[derive(Clone, Copy)]
enum Unit {
    Millis,
    Micros,
}

impl Unit {
    fn of(self, latency: Duration) -> Value {
        let micros = latency.as_micros() as u64;
        match self {
            Self::Millis => json!(micros as f64 / 1000.0),
            Self::Micros => json!(micros),
        }
    }

    fn mean(self, latency: Duration) -> Value {
        match self {
            Self::Millis => self.of(latency),
            Self::Micros => json!(latency.as_nanos() as f64 / 1000.0),
        }
    }
}

/// Figures of one period, or of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    pub(super) elapsed: Duration,
    pub(super) published: u64,
    pub(super) errors: u64,
    pub(super) received: u64,
    /// Lag at the end: records published but not received.
    pub(super) backlog: u64,
    pub(super) publish: Latencies,
    pub(super) delay: Latencies,
    pub(super) end_to_end: Latencies,
}

/// A result that grows period by period.
pub(super) struct Results {
    fields: Map<String, Value>,
    whole: Period,
}

impl Results {
    pub(super) fn new(workload: &Workload, driver: &Driver) -> Self {
        let head = json!({
            "workload": workload.name,
            "driver": driver.name,
            "messageSize": workload.message_size,
            "topics": workload.topics,
            "partitions": workload.partitions_per_topic,
            "producersPerTopic": workload.producers_per_topic,
            "consumersPerTopic": workload.consumer_per_subscription,
        });
        let fields = match head {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Self { fields, whole: Period::default() }
    }

    fn push(&mut self, name: String, value: Value) {
        let list = self.fields.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.push(value);
        }
    }

    /// Adds a period.
    pub(super) fn add(&mut self, period: &Period) {
        let seconds = period.elapsed.as_secs_f64().max(1e-9);
        let rate = |count: u64| json!(count as f64 / seconds);
        self.push("publishRate".into(), rate(period.published));
        self.push("publishErrorRate".into(), rate(period.errors));
        self.push("consumeRate".into(), rate(period.received));
        self.push("backlog".into(), json!(period.backlog));
        for (name, unit, latency) in latencies(period) {
            for (end, value) in values(latency, unit) {
                self.push(format!("{name}{end}"), value);
            }
        }
        self.whole.published += period.published;
        self.whole.errors += period.errors;
        self.whole.received += period.received;
        self.whole.publish.add(&period.publish);
        self.whole.delay.add(&period.delay);
        self.whole.end_to_end.add(&period.end_to_end);
    }

    /// The sum of all periods.
    pub(super) fn whole(&self) -> &Period {
        &self.whole
    }

    /// Returns the result.
    pub(super) fn finish(mut self) -> Value {
        for (name, unit, latency) in latencies(&self.whole) {
            let mut capital = name.to_owned();
            capital[..1].make_ascii_uppercase();
            for (end, value) in values(latency, unit) {
                self.fields.insert(format!("aggregated{capital}{end}"), value);
            }
            let quantiles = latency
                .percentiles()
                .into_iter()
                .map(|(percentile, latency)| (percentile.to_string(), unit.of(latency)));
            self.fields.insert(
                format!("aggregated{capital}Quantiles"),
                Value::Object(quantiles.collect()),
            );
        }
        Value::Object(self.fields)
    }
}

fn latencies(period: &Period) -> [(&'static str, Unit, &Latencies); 3] {
    [
        ("publishLatency", Unit::Millis, &period.publish),
        ("publishDelayLatency", Unit::Micros, &period.delay),
        ("endToEndLatency", Unit::Millis, &period.end_to_end),
    ]
}

fn values(latency: &Latencies, unit: Unit) -> Vec<(&'static str, Value)> {
    let mut values = vec![("Avg", unit.mean(latency.mean()))];
    let at = |(end, quantile): (&'static str, f64)| (end, unit.of(latency.quantile(quantile)));
    values.extend(PERCENTILES.into_iter().map(at));
    values.push(("Max", unit.of(latency.max())));
    values
}
