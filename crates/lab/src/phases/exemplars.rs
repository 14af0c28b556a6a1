//! The slowest records, one by one.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{PhaseName, Phases, Times};

/// How many are kept.
const KEPT: usize = 20;

/// One record. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Its turn, from 0.
    pub round: u32,
    /// From the intended send time until it was read where something reads, until it was acknowledged otherwise.
    pub latency: u64,
    /// When it was meant to be sent, since the start of its turn.
    pub at: u64,
    /// Its partition.
    pub partition: i32,
    /// Its offset, if it is known.
    pub offset: Option<i64>,
    /// The broker that appended it; where brokers cannot be looked into, the one that led the partition after the run.
    pub leader: Option<i32>,
    /// Its phases, as far as they could be seen.
    pub phases: Times,
}

impl Exemplar {
    /// The phase to blame: the one that took longest beyond what it takes usually, which is the median of all records.
    #[must_use]
    pub fn blame(&self, usual: &Phases) -> Option<PhaseName> {
        let excess = |phase: PhaseName| {
            let took = (*self.phases.get(phase))?;
            let median = u64::try_from(usual.get(phase).quantile(0.5).as_nanos()).ok()?;
            Some((i128::from(took) - i128::from(median), phase))
        };
        // The earlier of two that are equally late: what follows may be late because of it.
        let phases = PhaseName::ALL.into_iter().filter_map(excess);
        phases.min_by_key(|(excess, phase)| (Reverse(*excess), *phase)).map(|(_, phase)| phase)
    }
}

/// The slowest records of many: twenty at most.
#[derive(Clone, Debug, Default)]
pub struct Exemplars(BinaryHeap<Reverse<BySlowness>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BySlowness(Exemplar);

impl Ord for BySlowness {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let place = |of: &Exemplar| (of.round, of.at, of.partition, of.offset);
        let key = |Self(of): &Self| (of.latency, Reverse(place(of)));
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for BySlowness {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Exemplars {
    /// Whether one of this latency would be kept.
    #[must_use]
    pub fn takes(&self, latency: u64) -> bool {
        let fastest = self.0.peek().map(|Reverse(BySlowness(fastest))| fastest.latency);
        self.0.len() < KEPT || fastest.is_some_and(|fastest| latency > fastest)
    }

    /// Says which turn the records are of.
    pub(crate) fn set_round(&mut self, round: u32) {
        let of_round = |Reverse(BySlowness(exemplar))| Exemplar { round, ..exemplar };
        let all: Vec<Exemplar> = self.0.drain().map(of_round).collect();
        all.into_iter().for_each(|exemplar| self.offer(exemplar));
    }

    /// Keeps the record if it is one of the slowest.
    pub fn offer(&mut self, exemplar: Exemplar) {
        self.0.push(Reverse(BySlowness(exemplar)));
        if self.0.len() > KEPT {
            self.0.pop();
        }
    }

    /// Adds those of another turn.
    pub fn add(&mut self, other: Self) {
        other.0.into_iter().for_each(|Reverse(BySlowness(exemplar))| self.offer(exemplar));
    }

    /// The records, slowest first.
    #[must_use]
    pub fn slowest_first(&self) -> Vec<Exemplar> {
        let mut all: Vec<BySlowness> = self.0.iter().map(|Reverse(of)| *of).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().map(|BySlowness(exemplar)| exemplar).collect()
    }
}
