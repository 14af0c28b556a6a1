//! Latencies over time: one distribution for each slot of a run.

#[cfg(test)]
mod tests;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Initial width of a slot.
const FINEST: Duration = Duration::from_millis(25);
/// Most slots. A longer run merges pairs of slots.
const MOST: usize = 480;
/// Smallest distinguishable latency difference, in nanoseconds.
const RESOLUTION: u64 = 500;
/// Upper bound of latencies, in nanoseconds: a day.
const LONGEST: u64 = 24 * 3600 * 1_000_000_000;

/// Latencies by the due time of their records.
///
/// Memory is bounded for any length of a run: 480 slots of 25 ms for 12 s, of 50 ms for 24 s and so on.
/// Values are exact to two significant digits and half a microsecond; maxima and means are exact.
#[derive(Clone, Debug)]
pub struct OverTime {
    width: u64,
    slots: Vec<Option<Distribution>>,
}

impl Default for OverTime {
    fn default() -> Self {
        Self { width: FINEST.as_nanos() as u64, slots: Vec::new() }
    }
}

/// The latencies of one slot.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u32>,
    max: u64,
    sum: u128,
}

impl Default for Distribution {
    fn default() -> Self {
        // Two digits, and an upper bound of at least twice the lower one, are always valid.
        let histogram = Histogram::new_with_bounds(RESOLUTION, 1 << 20, 2);
        let mut histogram = histogram.unwrap_or_else(|_| unreachable!());
        histogram.auto(true);
        Self { histogram, max: 0, sum: 0 }
    }
}

impl Distribution {
    /// Adds a latency in nanoseconds.
    fn record(&mut self, latency: u64) {
        // The histogram resizes up to this bound.
        let _ = self.histogram.record(latency.min(LONGEST));
        self.max = self.max.max(latency);
        self.sum += u128::from(latency);
    }

    /// Adds all latencies of `other`.
    pub fn add(&mut self, other: &Self) {
        // The histogram resizes up to this bound.
        let _ = self.histogram.add(&other.histogram);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// Number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that a share of `quantile` (0 to 1) of all does not exceed; zero if empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.histogram.value_at_quantile(quantile).min(self.max))
    }

    /// The mean; zero if empty.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.sum / u128::from(self.count().max(1))) as u64)
    }

    /// The longest; zero if empty.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Sum of all latencies, in nanoseconds.
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u32> {
        &self.histogram
    }
}

impl OverTime {
    /// Adds a record's latency; `due` counts from the due time of the run's first record. Both in
    /// nanoseconds.
    pub fn record(&mut self, due: u64, latency: u64) {
        self.slot(due).record(latency);
    }

    /// Adds all latencies of `other`, whose run began at the same time.
    pub fn add(&mut self, other: &Self) {
        self.add_later(other, Duration::ZERO);
    }

    /// Adds all latencies of `other`, whose run began `later`.
    pub fn add_later(&mut self, other: &Self, later: Duration) {
        while self.width < other.width {
            self.coarsen();
        }
        for (from, distribution) in other.iter() {
            self.slot((later + from).as_nanos() as u64).add(distribution);
        }
    }

    fn slot(&mut self, at: u64) -> &mut Distribution {
        while at / self.width >= MOST as u64 {
            self.coarsen();
        }
        let at = (at / self.width) as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, None);
        }
        self.slots[at].get_or_insert_default()
    }

    fn coarsen(&mut self) {
        self.width *= 2;
        let halves = std::mem::take(&mut self.slots);
        let mut halves = halves.into_iter();
        while let Some(first) = halves.next() {
            let second = halves.next().flatten();
            self.slots.push(match (first, second) {
                (Some(mut first), Some(second)) => {
                    first.add(&second);
                    Some(first)
                }
                (first, second) => first.or(second),
            });
        }
    }

    /// Width of a slot.
    #[must_use]
    pub fn width(&self) -> Duration {
        Duration::from_nanos(self.width)
    }

    /// The slots in which a record was due, each with its start.
    pub fn iter(&self) -> impl Iterator<Item = (Duration, &Distribution)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, slot)| {
            Some((Duration::from_nanos(self.width * at as u64), slot.as_ref()?))
        })
    }

    /// The figures of a report; `None` without a record.
    #[must_use]
    pub fn summary(&self) -> Option<OverTimeReport> {
        let slots: Vec<Slot> = self.iter().map(|(from, slot)| Slot::new(from, slot)).collect();
        let slot_ms = self.width as f64 / 1e6;
        (!slots.is_empty()).then_some(OverTimeReport { slot_ms, slots })
    }
}

/// Latencies of an [`OverTime`] as figures, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverTimeReport {
    /// Width of a slot, in milliseconds.
    pub slot_ms: f64,
    /// The slots in which a record was due.
    pub slots: Vec<Slot>,
}

/// The records that were due in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Start of the slot, in milliseconds since the run's first record was due.
    pub from_ms: f64,
    /// Number of records.
    pub records: u64,
    /// Median latency in microseconds.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl Slot {
    fn new(from: Duration, slot: &Distribution) -> Self {
        let micros = |duration: Duration| duration.as_nanos() as f64 / 1000.0;
        Self {
            from_ms: micros(from) / 1000.0,
            records: slot.count(),
            p50: micros(slot.quantile(0.5)),
            p99: micros(slot.quantile(0.99)),
            max: micros(slot.max()),
        }
    }
}
