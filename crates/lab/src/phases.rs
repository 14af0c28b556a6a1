//! Where the time of records goes, as *99th percentile latency at scale with Apache Kafka* divides it.

mod estimate;
mod exemplars;
#[cfg(test)]
mod tests;

pub use self::{
    estimate::{Estimate, Probes},
    exemplars::{Exemplar, Exemplars},
};

use crate::latency::Latencies;

/// A phase of a record's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PhaseName {
    /// From the intended send time until the first request with the record was handed to the socket.
    Produce,
    /// Until its leader had appended it; requests that failed are in here.
    Publish,
    /// Until the high watermark had passed it.
    Commit,
    /// Until the reader had read what was before it: until the poll of this partition before the one that gave it out.
    CatchUp,
    /// Until a poll gave it out.
    Fetch,
    /// From the last station that the acknowledgement waits for, as far as it is known (with acks=1 the append, with
    /// acks=all the commit, the socket where the brokers cannot be looked into), until it was read. It is beside the way
    /// to the reader, not a part of it.
    Acknowledge,
}

impl PhaseName {
    /// All of them, in the order in which a record passes them.
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
    /// That of a phase.
    pub fn get(&self, phase: PhaseName) -> &T {
        &self.0[phase as usize]
    }

    pub(crate) fn get_mut(&mut self, phase: PhaseName) -> &mut T {
        &mut self.0[phase as usize]
    }
}

/// How long each phase of one record took, in nanoseconds; `None` where it could not be seen.
pub type Times = PerPhase<Option<u64>>;

/// When a record passed its stations, in nanoseconds since one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stations {
    /// It was meant to be sent.
    pub(crate) due: u64,
    /// Its first request was handed to the socket.
    pub(crate) handed: u64,
    /// The leader had appended it.
    pub(crate) appended: Option<u64>,
    /// The high watermark had passed it.
    pub(crate) committed: Option<u64>,
    /// The acknowledgement was read, and whether it waits for the commit.
    pub(crate) acknowledged: Option<(u64, bool)>,
    /// The reader had read what was before it, and it.
    pub(crate) read: Option<(u64, u64)>,
}

impl Stations {
    /// How long the phases took. Each ends no earlier than the one before: together they make up the whole.
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

    /// From the intended send time to the last station that is known.
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
    /// The distribution of a phase; empty where it could not be seen.
    #[must_use]
    pub fn get(&self, phase: PhaseName) -> &Latencies {
        self.0.get(phase)
    }

    /// Adds those of a record.
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
