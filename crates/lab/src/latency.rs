//! Latencies: nanoseconds internally, microseconds in reports.

#[cfg(test)]
mod tests;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Upper bound of latencies: a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A distribution of latencies, exact to three significant digits from 1 ns to a day.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// Exact sum: the histogram's mean is that of its buckets.
    sum: u128,
}

impl Default for Latencies {
    fn default() -> Self {
        // Three digits and an upper bound above 2 are always valid.
        let histogram = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3);
        Self { histogram: histogram.unwrap_or_else(|_| unreachable!()), sum: 0 }
    }
}

impl Latencies {
    /// Adds a latency.
    pub fn record(&mut self, latency: Duration) {
        self.record_nanos(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds a latency in nanoseconds.
    pub fn record_nanos(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos);
        self.sum += u128::from(nanos);
    }

    /// Adds latencies in nanoseconds, for input whose neighbours are similar. Consecutive ones in the same
    /// bucket are counted together: a comparison per value replaces a histogram update.
    pub fn record_alike(&mut self, nanos: impl Iterator<Item = u64>) {
        let (mut low, mut high, mut count) = (1, 0, 0);
        for value in nanos {
            self.sum += u128::from(value);
            if value < low || value > high {
                self.histogram.saturating_record_n(low, count);
                low = self.histogram.lowest_equivalent(value);
                high = self.histogram.highest_equivalent(value);
                count = 0;
            }
            count += 1;
        }
        self.histogram.saturating_record_n(low, count);
    }

    /// Adds `count` equal latencies, in nanoseconds.
    pub fn record_many(&mut self, nanos: u64, count: u64) {
        self.histogram.saturating_record_n(nanos, count);
        self.sum += u128::from(nanos) * u128::from(count);
    }

    /// Adds all latencies of `other`.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so nothing is out of range.
        let _ = self.histogram.add(&other.histogram);
        self.sum += other.sum;
    }

    /// Number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The mean; zero if empty.
    #[must_use]
    pub fn mean(&self) -> Duration {
        match self.count() {
            0 => Duration::ZERO,
            count => Duration::from_nanos((self.sum / u128::from(count)) as u64),
        }
    }

    /// The longest; zero if empty.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.histogram.max())
    }

    /// The latency that a share of `quantile` (0 to 1) of all does not exceed; zero if empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let latency = self.histogram.value_at_quantile(quantile);
        Duration::from_nanos(latency.min(self.histogram.max()))
    }

    /// Percentiles from 0 to 100 with their latencies, closer together near 100.
    #[must_use]
    pub fn percentiles(&self) -> Vec<(f64, Duration)> {
        let steps = self.histogram.iter_quantiles(100);
        let step = |step: hdrhistogram::iterators::IterationValue<u64>| {
            let latency = step.value_iterated_to().min(self.histogram.max());
            (step.percentile(), Duration::from_nanos(latency))
        };
        steps.map(step).collect()
    }

    /// The distribution as a curve for a logarithmic axis. Quantiles are in twentieths of a nine, up to as
    /// many nines as the number of records resolves (at most five). The last point is the longest latency.
    #[must_use]
    pub fn curve(&self) -> Vec<Point> {
        if self.count() == 0 {
            return Vec::new();
        }
        let nines = (self.count() as f64).log10().min(5.0);
        let steps = (nines * 20.0).floor() as u32;
        let point = |quantile| Point { quantile, us: micros(self.quantile(quantile)) };
        // Nine digits survive writing and reading.
        let rounded = |quantile: f64| (quantile * 1e9).round() / 1e9;
        let quantiles = (0..=steps).map(|step| rounded(1.0 - 10f64.powf(-f64::from(step) / 20.0)));
        quantiles.chain([1.0]).map(point).collect()
    }

    /// The figures of a report.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            avg: micros(self.mean()),
            p50: micros(self.quantile(0.5)),
            p95: micros(self.quantile(0.95)),
            p99: micros(self.quantile(0.99)),
            p999: micros(self.quantile(0.999)),
            max: micros(self.max()),
        }
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Share of all latencies up to `us`, from 0 to 1.
    pub quantile: f64,
    /// Latency in microseconds.
    pub us: f64,
}

/// A distribution in figures, all in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Mean.
    pub avg: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

/// Fewest records beyond a percentile that make it stable.
const STABLE: u64 = 10;

/// Returns the number of records beyond the 99.9th percentile of `records`, at least 1.
#[must_use]
pub fn behind_p999(records: u64) -> u64 {
    (records / 1000).max(1)
}

/// Whether too few records lie beyond the 99.9th percentile of `records` for it to be stable.
#[must_use]
pub fn is_few_behind_p999(records: u64) -> bool {
    records > 0 && behind_p999(records) < STABLE
}

/// Warns of a 99.9th percentile of few records; `None` for enough of them, and for none. `what` names the percentile.
#[must_use]
pub fn few_behind_p999(what: &str, records: u64) -> Option<String> {
    let slowest = behind_p999(records);
    is_few_behind_p999(records).then(|| {
        format!("{what} rests on the slowest {slowest} of {records} records: it may be noise.")
    })
}
