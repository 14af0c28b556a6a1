//! Timelines of slow records: each request a record was in, what was in flight before it, the brokers' part, and leader changes.
//!
//! The client's part comes from its trace events (`curtail::TRACE_TARGET`), the brokers' part from the request log of Apache
//! Kafka. Both cost CPU time, so a run with timelines (`curtail lab run --why`) explains latencies and does not compare them.

#[cfg_attr(not(feature = "apache"), allow(dead_code, reason = "for Apache Kafka only"))]
mod broker;
mod client;
mod explain;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

pub(crate) use self::broker::Served;
#[cfg(feature = "apache")]
pub(crate) use self::broker::parse;
use self::client::{Collector, Traced};
use crate::perf::Result;

/// `client.id` of consumers in the producer's process, whose events belong to no record's timeline.
pub(crate) const READER: &str = "reader";

/// One line of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Milliseconds since the run's first record was due.
    pub at_ms: f64,
    /// The event.
    pub text: String,
}

/// The timeline of one of the slowest records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordTimeline {
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// From the intended send time until it was acknowledged.
    pub latency_ms: f64,
    /// Its events, by time.
    pub lines: Vec<Line>,
}

/// A record, by where it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    /// When it was meant to be sent and when its acknowledgement was read, since the run's first record was due.
    pub(crate) due: Duration,
    pub(crate) acknowledged: Duration,
}

/// Traces the clients of this process.
#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    collector: Collector,
    /// The same moment on both clocks.
    epoch: (Instant, SystemTime),
}

impl Tracer {
    /// Traces from now on.
    ///
    /// # Errors
    /// If the process has another `tracing` subscriber.
    pub(crate) fn install() -> Result<Self> {
        let collector = Collector::install()?;
        Ok(Self { collector, epoch: (Instant::now(), SystemTime::now()) })
    }

    /// Returns the events since the last call, for a run whose first record was due at `start`.
    pub(crate) fn take(
        &self,
        start: Instant,
        topics: Vec<String>,
        served: Vec<Served>,
    ) -> Timeline {
        let (instant, wall) = self.epoch;
        let start_wall = wall + start.saturating_duration_since(instant);
        Timeline { start, start_wall, topics, traced: self.collector.take(), served }
    }
}

/// The events of one run.
#[derive(Debug)]
pub(crate) struct Timeline {
    start: Instant,
    start_wall: SystemTime,
    /// Name and id of the topic.
    topics: Vec<String>,
    /// By time.
    traced: Vec<Traced>,
    served: Vec<Served>,
}

impl Timeline {
    /// Requests since the first record was due, by broker, kind and client, and refused batches by kind.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for served in self.served.iter().filter(|served| served.received() >= self.start_wall) {
            let from = if served.follower().is_some() { "followers" } else { &served.client };
            let name = format!("broker {}: {} from {from}", served.broker, served.api);
            *counts.entry(name).or_default() += 1;
        }
        let answered = self.traced.iter().filter(|event| event.get("event") == "answered");
        for refusal in answered.flat_map(explain::refusals) {
            *counts.entry(refusal).or_default() += 1;
        }
        counts
    }

    fn ms_of(&self, at: Instant) -> f64 {
        match at.checked_duration_since(self.start) {
            Some(after) => after.as_secs_f64() * 1000.0,
            None => self.start.saturating_duration_since(at).as_secs_f64() * -1000.0,
        }
    }

    fn ms_of_wall(&self, at: SystemTime) -> f64 {
        match at.duration_since(self.start_wall) {
            Ok(after) => after.as_secs_f64() * 1000.0,
            Err(before) => before.duration().as_secs_f64() * -1000.0,
        }
    }
}
