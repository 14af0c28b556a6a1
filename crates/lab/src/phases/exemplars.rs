//! The slowest records, one by one.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{PhaseName, Phases, Times};

/// Number of records kept.
const KEPT: usize = 20;

/// One record. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Its turn, from 0.
    pub round: u32,
    /// From the intended send time until it was read, or acknowledged if there is no reader.
    pub latency: u64,
    /// Intended send time, since the start of its turn.
    pub at: u64,
    /// Partition of the record.
    pub partition: i32,
    /// Its offset, if it is known.
    pub offset: Option<i64>,
    /// The broker that appended it; without phase timestamps inside brokers, the leader after the run.
    pub leader: Option<i32>,
    /// The observed phases.
    pub phases: Times,
}

impl Exemplar {
    /// The phase to blame: the one that exceeds its median over all records by most.
    #[must_use]
    pub fn blame(&self, usual: &Phases) -> Option<PhaseName> {
        let excess = |phase: PhaseName| {
            let took = (*self.phases.get(phase))?;
            let median = u64::try_from(usual.get(phase).quantile(0.5).as_nanos()).ok()?;
            Some((i128::from(took) - i128::from(median), phase))
        };
        // The earlier of two equal ones, which may have delayed the later one.
        let phases = PhaseName::ALL.into_iter().filter_map(excess);
        phases.min_by_key(|(excess, phase)| (Reverse(*excess), *phase)).map(|(_, phase)| phase)
    }
}

/// The slowest records of many: at most twenty.
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
    /// Whether a record of this latency would be kept.
    #[must_use]
    pub fn takes(&self, latency: u64) -> bool {
        let fastest = self.0.peek().map(|Reverse(BySlowness(fastest))| fastest.latency);
        self.0.len() < KEPT || fastest.is_some_and(|fastest| latency > fastest)
    }

    /// Sets the turn of the records.
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

    /// Adds the exemplars of another turn.
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
