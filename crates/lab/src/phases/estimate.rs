//! Estimates of the phases inside brokers without phase timestamps, with their error.
//!
//! Probes are single records of the same size to the same partition, once with acks=1 and once with acks=all.
//! A request with acks=1 is acknowledged when the record is published, one with acks=all when it is
//! committed.
//!
//! The cluster is otherwise idle, so the estimate contains no waits for other records, but a wake-up per
//! record, which a load makes cheaper. The error does not cover the difference to a cluster under load.
//!
//! Each quantile has an interval from the order of the values alone, for any distribution: the rank of a
//! quantile is binomial. With [`DEVIATIONS`] for each of two quantiles, their difference is within its
//! interval in 95 of 100 cases. Where too few values lie far out for an interval, there is no estimate (NaN).

#[cfg(test)]
mod tests;

use super::PerPhase;
use crate::latency::Latencies;

/// Standard deviations to either side: 97.5% of a normal distribution.
const DEVIATIONS: f64 = 2.24;

/// Estimated quantiles, those of reports.
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// Observations from outside.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    /// Requests with acks=1, from the socket until the response was read, in nanoseconds.
    pub leader: Vec<u64>,
    /// Requests with acks=all.
    pub all: Vec<u64>,
    /// For each record that a consumer alongside the load has read: from when the consumer first knew of a
    /// high watermark after the record until it had read the records before it.
    pub catch_up: Latencies,
    /// Time between two reads of the high watermark: the largest error of when it was passed.
    pub looks: Latencies,
}

/// A value and its possible error, in nanoseconds; NaN without an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Possible error to either side.
    pub error: f64,
}

impl Estimate {
    const NONE: Self = Self { value: f64::NAN, error: f64::NAN };
}

impl Probes {
    /// Adds the probes of another turn.
    pub fn add(&mut self, other: Self) {
        self.leader.extend(other.leader);
        self.all.extend(other.all);
        self.catch_up.add(&other.catch_up);
        self.looks.add(&other.looks);
    }

    /// The estimates of a phase for p50, p99, p99.9 and p99.99; `None` for a phase without probes.
    #[must_use]
    pub fn estimates(&self) -> PerPhase<Option<[Estimate; 4]>> {
        let mut of = PerPhase::default();
        let (leader, all) = (sorted(&self.leader), sorted(&self.all));
        if !leader.is_empty() && !all.is_empty() {
            // Includes the one-way delay of the response.
            *of.get_mut(super::PhaseName::Publish) = Some(QUANTILES.map(|q| publish(&leader, q)));
            *of.get_mut(super::PhaseName::Commit) =
                Some(QUANTILES.map(|q| difference(&all, &leader, q)));
        }
        if self.catch_up.count() > 0 {
            let nanos = |of: &Latencies, q| of.quantile(q).as_nanos() as f64;
            let estimate =
                |q| Estimate { value: nanos(&self.catch_up, q), error: nanos(&self.looks, q) };
            *of.get_mut(super::PhaseName::CatchUp) = Some(QUANTILES.map(estimate));
        }
        of
    }
}

fn sorted(values: &[u64]) -> Vec<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted
}

/// A quantile of sorted values, and its interval.
fn interval(sorted: &[u64], quantile: f64) -> Option<[f64; 3]> {
    let n = sorted.len() as f64;
    let at = |rank: f64| Some(*sorted.get((rank as usize).checked_sub(1)?)? as f64);
    let spread = DEVIATIONS * (n * quantile * (1.0 - quantile)).sqrt();
    let value = at((n * quantile).ceil().max(1.0))?;
    let high = at((n * quantile + spread).ceil() + 1.0)?;
    // No duration is negative.
    let low = at((n * quantile - spread).floor()).unwrap_or(0.0);
    Some([low, value, high])
}

fn publish(leader: &[u64], quantile: f64) -> Estimate {
    interval(leader, quantile).map_or(Estimate::NONE, |[low, value, high]| Estimate {
        value,
        error: (value - low).max(high - value),
    })
}

fn difference(all: &[u64], leader: &[u64], quantile: f64) -> Estimate {
    let (Some(all), Some(leader)) = (interval(all, quantile), interval(leader, quantile)) else {
        return Estimate::NONE;
    };
    let value = (all[1] - leader[1]).max(0.0);
    let (low, high) = ((all[0] - leader[2]).max(0.0), (all[2] - leader[0]).max(0.0));
    Estimate { value, error: (value - low).max(high - value) }
}
