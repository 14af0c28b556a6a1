//! Phases of a record's latency, as divided in *99th percentile latency at scale with Apache Kafka*.

mod estimate;
mod exemplars;
#[cfg(test)]
mod tests;

pub use self::{
    estimate::{Estimate, Probes},
    exemplars::{Exemplar, Exemplars},
};

use crate::latency::Latencies;
pub use crate::text::meaning;

/// A phase of a record's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PhaseName {
    /// From the intended send time until the first request with the record was handed to the socket.
    Produce,
    /// Until its leader had appended it, failed requests included.
    Publish,
    /// Until the high watermark had passed it.
    Commit,
    /// Until the reader had read the records before it: until the partition's poll before the one that
    /// returned it.
    CatchUp,
    /// Until a poll returned it.
    Fetch,
    /// From the last known phase timestamp that the acknowledgement waits for until the acknowledgement was
    /// read.
    ///
    /// That timestamp is the append with acks=1 and the commit with acks=all; without timestamps inside the
    /// brokers it is the write to the socket. This phase overlaps the phases of the reader.
    Acknowledge,
}

impl PhaseName {
    /// All phases, in the order in which a record passes them.
    pub const ALL: [Self; 6] =
        [Self::Produce, Self::Publish, Self::Commit, Self::CatchUp, Self::Fetch, Self::Acknowledge];

    /// The name in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Publish => "publish",
            Self::Commit => "commit",
            Self::CatchUp => "catch_up",
            Self::Fetch => "fetch",
            Self::Acknowledge => "acknowledge",
        }
    }
}

/// One value for each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerPhase<T>([T; 6]);

impl<T> PerPhase<T> {
    /// The value of a phase.
    pub fn get(&self, phase: PhaseName) -> &T {
        &self.0[phase as usize]
    }

    pub(crate) fn get_mut(&mut self, phase: PhaseName) -> &mut T {
        &mut self.0[phase as usize]
    }
}

/// Duration of each phase of one record, in nanoseconds; `None` if it was not observed.
pub type Times = PerPhase<Option<u64>>;

/// Phase timestamps of a record, in nanoseconds since a common start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stations {
    /// Intended send time.
    pub(crate) due: u64,
    /// When its first request was handed to the socket.
    pub(crate) handed: u64,
    /// When the leader had appended it.
    pub(crate) appended: Option<u64>,
    /// When the high watermark had passed it.
    pub(crate) committed: Option<u64>,
    /// When the acknowledgement was read, and whether it waits for the commit.
    pub(crate) acknowledged: Option<(u64, bool)>,
    /// When the reader had read the records before it, and when it read this one.
    pub(crate) read: Option<(u64, u64)>,
}

impl Stations {
    /// Durations of the phases. None ends before the previous one, so that they add up to the whole.
    pub(crate) fn times(&self) -> Times {
        let mut times = Times::default();
        let handed = self.handed.max(self.due);
        *times.get_mut(PhaseName::Produce) = Some(handed - self.due);
        let appended = self.appended.map(|at| at.max(handed));
        *times.get_mut(PhaseName::Publish) = appended.map(|at| at - handed);
        let committed = appended.zip(self.committed).map(|(before, at)| at.max(before));
        *times.get_mut(PhaseName::Commit) = committed.zip(appended).map(|(at, before)| at - before);
        if let (Some(committed), Some((caught_up, read))) = (committed, self.read) {
            let caught_up = caught_up.clamp(committed, read.max(committed));
            *times.get_mut(PhaseName::CatchUp) = Some(caught_up - committed);
            *times.get_mut(PhaseName::Fetch) = Some(read.saturating_sub(caught_up));
        }
        *times.get_mut(PhaseName::Acknowledge) = self.acknowledged.map(|(at, of_commit)| {
            let known = if of_commit { committed.or(appended) } else { appended };
            at.saturating_sub(known.unwrap_or(handed))
        });
        times
    }

    /// Time from the intended send to the last known phase timestamp.
    pub(crate) fn whole(&self) -> u64 {
        let acknowledged = self.acknowledged.map(|(at, _)| at);
        let last = self.read.map(|(_, at)| at).or(acknowledged).unwrap_or(self.handed);
        last.saturating_sub(self.due)
    }
}

/// The phases of many records.
#[derive(Clone, Debug, Default)]
pub struct Phases(PerPhase<Latencies>);

impl Phases {
    /// The distribution of a phase; empty if it was not observed.
    #[must_use]
    pub fn get(&self, phase: PhaseName) -> &Latencies {
        self.0.get(phase)
    }

    /// Adds the phases of a record.
    pub fn record(&mut self, times: &Times) {
        for phase in PhaseName::ALL {
            if let Some(nanos) = *times.get(phase) {
                self.0.get_mut(phase).record_nanos(nanos);
            }
        }
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        for phase in PhaseName::ALL {
            self.0.get_mut(phase).add(other.get(phase));
        }
    }
}
