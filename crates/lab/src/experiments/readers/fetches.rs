//! Fetch responses that consumers received during a load.

use std::collections::BTreeMap;

use curtail::metrics::{ConsumerMetrics, FetchMetrics};

use super::Read;
use crate::experiments::{Figure, Sample};

/// Responses of one broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::experiments) struct Fetched {
    pub(in crate::experiments) responses: u64,
    pub(in crate::experiments) bytes: u64,
}

/// Responses by broker. Empty for a client that does not report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::experiments) struct Fetches {
    pub(in crate::experiments) brokers: BTreeMap<i32, Fetched>,
    /// Records read, those of the warm-up included.
    records: u64,
}

impl Fetches {
    /// Fetches since an earlier snapshot of the same consumer, which has read this many records since.
    pub(super) fn since(earlier: &ConsumerMetrics, now: &ConsumerMetrics, records: u64) -> Self {
        let fetched = |(id, broker): (&i32, &FetchMetrics)| {
            (*id, Fetched { responses: broker.fetch_total, bytes: broker.fetch_size.sum() })
        };
        let brokers = now.since(earlier).brokers.iter().map(fetched).collect();
        Self { brokers, records }
    }

    /// Fetches of several consumers together.
    pub(in crate::experiments) fn of(read: &[Read]) -> Self {
        let mut sum = Self::default();
        for Self { brokers, records } in read.iter().map(|read| &read.fetches) {
            for (id, fetched) in brokers {
                let of = sum.brokers.entry(*id).or_default();
                of.responses += fetched.responses;
                of.bytes += fetched.bytes;
            }
            sum.records += records;
        }
        sum
    }

    /// Adds the number of responses, and that per 1,000 records, to the sample; nothing if it is unknown.
    pub(in crate::experiments) fn note(&self, sample: &mut Sample) {
        let responses: u64 = self.brokers.values().map(|fetched| fetched.responses).sum();
        if self.records == 0 || responses == 0 {
            return;
        }
        let responses = responses as f64;
        let per_1000 = 1000.0 * responses / self.records as f64;
        sample.note("fetches", Figure::Total(responses));
        sample.note("fetches_per_1000_records", Figure::Worst(per_1000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(broker: i32, responses: u64, bytes: u64, records: u64) -> Read {
        let brokers = [(broker, Fetched { responses, bytes })].into();
        Read { fetches: Fetches { brokers, records }, ..Read::default() }
    }

    #[test]
    fn fetches_of_all_consumers_count_per_1000_records_read() {
        let all = [read(1, 10, 1_000, 100), read(2, 5, 500, 100), read(1, 15, 2_000, 100)];
        let fetches = Fetches::of(&all);
        assert_eq!(fetches.brokers[&1], Fetched { responses: 25, bytes: 3_000 });
        let mut sample = Sample::default();
        fetches.note(&mut sample);
        assert_eq!(
            ["fetches", "fetches_per_1000_records"].map(|name| sample.figure(name)),
            [30.0, 100.0]
        );
    }

    #[test]
    fn a_client_without_fetch_metrics_has_no_fetch_figures() {
        let mut sample = Sample::default();
        Fetches::of(&[Read::default()]).note(&mut sample);
        assert!(sample.extra.is_empty(), "{:?}", sample.extra);
    }
}
