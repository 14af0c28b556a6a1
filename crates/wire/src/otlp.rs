//! `MetricsData` of OpenTelemetry's protocol (OTLP 1), in protobuf: the payload of PushTelemetry (KIP-714).
//!
//! Only what a client's metrics need is written: gauges and sums with one number each (decision 0127). As in Java's clients
//! each number is a separate metric. Field numbers are those of `metrics.proto`, `resource.proto` and `common.proto` of
//! opentelemetry-proto 1.

#[cfg(test)]
pub mod decoded;
#[cfg(test)]
mod tests;

use crate::varint;

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
        resource.message(1, |resource| resource.attributes(1, shared.iter().copied()));
        // The lengths of the two messages around the metrics, with their tags.
        let around = resource.0.len() + 4 * varint::MAX_LEN_32;
        let room = limit.saturating_sub(around).min(i32::MAX as usize);
        Self { resource, metrics: Message::default(), time_ns, room, count: 0, is_full: false }
    }

    /// Encodes a number. The first one with which the payload would exceed its limit makes it full: neither that nor a later
    /// one is encoded.
    pub fn push(&mut self, number: &Number) {
        if self.is_full {
            return;
        }
        let before = self.metrics.0.len();
        self.metrics.message(2, |metric| metric.number(number, self.time_ns));
        if self.metrics.0.len() > self.room {
            self.metrics.0.truncate(before);
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
        let Self { mut resource, metrics, count, .. } = self;
        if count == 0 {
            return (Vec::new(), 0);
        }
        let mut data = Message::default();
        data.message(1, |of_resource| {
            of_resource.0.append(&mut resource.0);
            of_resource.bytes(2, &metrics.0);
        });
        (data.0, count)
    }
}

/// A protobuf message under construction.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, value: u64) {
        let mut bytes = [0; varint::MAX_LEN_64];
        let len = varint::put_u64(&mut bytes, value);
        self.0.extend_from_slice(&bytes[..len]);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// Writes `KeyValue`s with texts.
    fn attributes<'a>(&mut self, field: u32, attributes: impl Iterator<Item = (&'a str, &'a str)>) {
        for (key, value) in attributes {
            self.message(field, |pair| {
                pair.bytes(1, key.as_bytes());
                pair.message(2, |any| any.bytes(1, value.as_bytes()));
            });
        }
    }

    /// Writes the fields of a `Metric`.
    fn number(&mut self, number: &Number, time_ns: u64) {
        const GAUGE: u32 = 5;
        const SUM: u32 = 7;
        self.bytes(1, number.name.as_bytes());
        let (field, temporality) = match number.kind {
            Kind::Gauge => (GAUGE, None),
            Kind::Delta => (SUM, Some(1)),
            Kind::Cumulative => (SUM, Some(2)),
        };
        self.message(field, |data| {
            data.message(1, |point| {
                if temporality.is_some() {
                    point.fixed64(2, number.start_ns);
                }
                point.fixed64(3, time_ns);
                point.fixed64(4, number.value.to_bits());
                let pairs = number.attributes.iter().map(|(key, value)| (&**key, &**value));
                point.attributes(7, pairs);
            });
            if let Some(temporality) = temporality {
                data.uint(2, temporality);
                // Monotonic: the counter never decreases.
                data.uint(3, 1);
            }
        });
    }
}
