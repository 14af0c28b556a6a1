//! `MetricsData` of OpenTelemetry's protocol (OTLP 1), in protobuf: the payload of PushTelemetry (KIP-714).
//!
//! Only what a client's metrics need is written: gauges and sums with one number each (decision 0127). As in Java's clients
//! each number is a separate metric. Field numbers are those of `metrics.proto`, `resource.proto` and `common.proto` of
//! opentelemetry-proto 1.

#[cfg(test)]
pub mod decoded;
#[cfg(test)]
mod tests;

use crate::{protobuf::Message, varint};

/// How a number relates to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A current value.
    Gauge,
    /// A counter, as the difference since the start time.
    Delta,
    /// A counter, as its total since the start time.
    Cumulative,
}

/// A number with its name and attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// Name of the metric.
    pub name: String,
    /// Attributes that distinguish numbers of the same name.
    pub attributes: Vec<(String, String)>,
    /// The value.
    pub value: f64,
    /// How it relates to time.
    pub kind: Kind,
    /// For a counter, the start of its time, in nanoseconds since 1970-01-01 UTC.
    pub start_ns: u64,
}

/// A payload under construction.
#[derive(Debug)]
pub struct MetricsData {
    resource: Message,
    metrics: Message,
    time_ns: u64,
    /// The limit of `metrics`, in bytes.
    room: usize,
    count: usize,
    is_full: bool,
}

impl MetricsData {
    /// Begins a payload of numbers as of `time_ns`, in nanoseconds since 1970-01-01 UTC, with attributes that all of them
    /// share, of at most `limit` bytes.
    #[must_use]
    pub fn new(shared: &[(&str, &str)], time_ns: u64, limit: usize) -> Self {
        let mut resource = Message::default();
        resource.message(1, |resource| attributes(resource, 1, shared.iter().copied()));
        // The lengths of the two messages around the metrics, with their tags.
        let around = resource.len() + 4 * varint::MAX_LEN_32;
        let room = limit.saturating_sub(around).min(i32::MAX as usize);
        Self { resource, metrics: Message::default(), time_ns, room, count: 0, is_full: false }
    }

    /// Encodes a number. The first one with which the payload would exceed its limit makes it full: neither that nor a later
    /// one is encoded.
    pub fn push(&mut self, number: &Number) {
        if self.is_full {
            return;
        }
        let before = self.metrics.len();
        self.metrics.message(2, |metric| put_number(metric, number, self.time_ns));
        if self.metrics.len() > self.room {
            self.metrics.truncate(before);
            self.is_full = true;
        } else {
            self.count += 1;
        }
    }

    /// Whether a number did not fit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the payload and how many numbers it has; without any it is empty.
    #[must_use]
    pub fn finish(self) -> (Vec<u8>, usize) {
        let Self { resource, metrics, count, .. } = self;
        if count == 0 {
            return (Vec::new(), 0);
        }
        let mut data = Message::default();
        data.message(1, |of_resource| {
            of_resource.append(&resource);
            of_resource.bytes(2, metrics.as_bytes());
        });
        (data.into_bytes(), count)
    }
}

/// Writes `KeyValue`s with texts.
pub fn attributes<'a>(
    message: &mut Message,
    field: u32,
    attributes: impl Iterator<Item = (&'a str, &'a str)>,
) {
    for (key, value) in attributes {
        message.message(field, |pair| {
            pair.text(1, key);
            pair.message(2, |any| any.text(1, value));
        });
    }
}

/// Writes the fields of a `Metric`.
fn put_number(metric: &mut Message, number: &Number, time_ns: u64) {
    const GAUGE: u32 = 5;
    const SUM: u32 = 7;
    metric.text(1, &number.name);
    let (field, temporality) = match number.kind {
        Kind::Gauge => (GAUGE, None),
        Kind::Delta => (SUM, Some(1)),
        Kind::Cumulative => (SUM, Some(2)),
    };
    metric.message(field, |data| {
        data.message(1, |point| {
            let start_ns = temporality.map(|_| number.start_ns);
            let pairs = number.attributes.iter().map(|(key, value)| (&**key, &**value));
            number_point(point, pairs, start_ns, time_ns, number.value);
        });
        if let Some(temporality) = temporality {
            data.uint(2, temporality);
            // Monotonic: the counter never decreases.
            data.uint(3, 1);
        }
    });
}

/// Writes the fields of a `NumberDataPoint`.
pub fn number_point<'a>(
    point: &mut Message,
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
    start_ns: Option<u64>,
    time_ns: u64,
    value: f64,
) {
    if let Some(start_ns) = start_ns {
        point.fixed64(2, start_ns);
    }
    point.fixed64(3, time_ns);
    point.double(4, value);
    attributes(point, 7, pairs);
}
