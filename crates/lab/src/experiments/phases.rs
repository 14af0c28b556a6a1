//! Observations of each record of a load: by its producer, inside the brokers, and by a reader.

mod journal;
mod probes;
mod tail;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use curtail::{Producer, admin::PartitionDescription, config::Acks};
#[cfg(feature = "sim")]
use curtail_cluster::ClusterHandle;

pub(super) use self::probes::Prober;
use self::{
    journal::{Journal, Journals},
    tail::{Reading, Tail},
};
use super::{
    Sample, Testbed,
    load::{Acknowledged, Load, Senders, Sent, nanos},
    readers::Readings,
};
use crate::{
    perf::Result,
    phases::{Exemplar, Probes, Stations},
    timeline::{Place, RecordTimeline, Timeline},
};

/// Maximum number of partitions per run whose slowest record gets a timeline.
const TIMELINES: usize = 5;

/// Extent of the observations of a load's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observe {
    /// Phases up to the commit, and the acknowledgement.
    Phases,
    /// Phases up to the poll as well.
    ///
    /// A consumer of every partition, from their ends on, runs alongside the load. The measured CPU time and
    /// broker load include it.
    PhasesWithReader,
}

/// Observations of a load other than its acknowledgements: a few numbers per record.
#[derive(Debug, Default)]
pub(super) struct Observation {
    /// Phase timestamps inside the brokers, if they are embedded.
    journals: Option<Journals>,
    /// Leaders by partition, for brokers without phase timestamps.
    leaders: BTreeMap<i32, i32>,
    /// Readings by record number.
    readings: Readings,
    /// Probes from outside, for brokers without phase timestamps.
    probes: Probes,
    /// Trace, with `--why`.
    timeline: Option<Timeline>,
}

impl Load {
    /// As [`Load::run`]. [`Sent::sample`] then reports the phases of every record.
    ///
    /// # Errors
    /// As [`Load::run`], and errors of the reader.
    pub(super) fn run_observed<T: Send>(
        self,
        testbed: &Testbed,
        observe: Observe,
        script: impl FnOnce(Instant) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        self.run_observed_by(testbed, observe, Senders::default(), |start, _| script(start))
    }

    /// As [`Load::run_observed`], with other senders. A load whose end is not known in advance has no reader.
    ///
    /// # Errors
    /// As [`Load::run_observed`].
    pub(super) fn run_observed_by<T: Send>(
        self,
        testbed: &Testbed,
        observe: Observe,
        senders: Senders,
        script: impl FnOnce(Instant, &[Producer]) -> Result<T> + Send,
    ) -> Result<(Sent, T)> {
        let ready = self.ready(&senders)?;
        let tail = match observe {
            Observe::PhasesWithReader if !senders.end_with_script => Some(Tail::at_end(&self)?),
            Observe::Phases | Observe::PhasesWithReader => None,
        };
        let watch = Watch::begin(testbed, &self)?;
        let (records, topic) = (self.records, self.topic.clone());
        testbed.begin_timeline()?;
        let (mut sent, (scripted, reading)) = ready.run(self, senders, |start, producers| {
            let reading = tail.map(|tail| tail.begin(start, records));
            Ok((script(start, producers)?, reading))
        })?;
        sent.observation.timeline = testbed.timeline(&topic, sent.start)?;
        watch.end(&mut sent, reading)?;
        Ok((sent, scripted))
    }
}

/// Source of the brokers' phases.
enum Watch<'a> {
    /// Phase timestamps inside embedded brokers.
    Inside { testbed: &'a Testbed, journal: Arc<Journal> },
    /// Probes of brokers that can only be observed from outside.
    Outside { testbed: &'a Testbed, prober: Box<Prober<'a>>, before: Box<Probes> },
}

impl<'a> Watch<'a> {
    fn begin(testbed: &'a Testbed, load: &Load) -> Result<Self> {
        // Each batch has at least one record. A batch truncated from its leader's log is appended again.
        let limit = usize::try_from(load.records.saturating_mul(2)).unwrap_or(usize::MAX);
        let journal = Arc::new(Journal::new(&load.topic, limit));
        if testbed.observe(journal.clone()) {
            return Ok(Self::Inside { testbed, journal });
        }
        let prober = Box::new(Prober::new(testbed, &load.config, &load.topic, load.size)?);
        let before = Box::new(prober.before()?);
        Ok(Self::Outside { testbed, prober, before })
    }

    fn end(mut self, sent: &mut Sent, reading: Option<Reading>) -> Result<()> {
        let read = reading.map(Reading::end).transpose()?;
        let observation = &mut sent.observation;
        match &mut self {
            Self::Inside { journal, .. } => observation.journals = Some(journal.take(sent.start)),
            Self::Outside { testbed, prober, before } => {
                observation.probes = std::mem::take(&mut **before);
                observation.probes.add(prober.after()?);
                let described = testbed.describe(&sent.load.topic)?;
                let leads = |p: &PartitionDescription| Some((p.partition, p.leader?));
                observation.leaders = described.partitions.iter().filter_map(leads).collect();
                if let Some(read) = &read {
                    observation.probes.catch_up.add(&read.catch_up);
                    observation.probes.looks.add(&read.looks);
                }
            }
        }
        if let Some(read) = read {
            observation.readings = read.readings;
        }
        Ok(())
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Self::Inside { testbed, .. } = self {
            testbed.stop_observing();
        }
    }
}

/// Observation of the simulation's brokers.
#[cfg(feature = "sim")]
pub(super) struct Inside(Arc<Journal>);

#[cfg(feature = "sim")]
impl Inside {
    /// Begins to observe a load of this number of records.
    pub(super) fn begin(cluster: &ClusterHandle, topic: &str, records: u64) -> Self {
        let limit = usize::try_from(records.saturating_mul(2)).unwrap_or(usize::MAX);
        let journal = Arc::new(Journal::new(topic, limit));
        cluster.observe(journal.clone());
        Self(journal)
    }

    /// Returns the observations, with times since `start`.
    pub(super) fn end(self, start: Instant) -> Observation {
        Observation { journals: Some(self.0.take(start)), ..Observation::default() }
    }
}

/// Place and phase timestamps of a record.
pub(super) struct Way {
    pub(super) stations: Stations,
    pub(super) offset: Option<i64>,
    pub(super) leader: Option<i32>,
}

impl Observation {
    /// Adds the readings of a consumer.
    pub(super) fn read_by(&mut self, readings: Readings) {
        self.readings = readings;
    }

    /// Adds the brokers' trace of a load that another client sent.
    pub(super) fn traced(&mut self, timeline: Option<Timeline>) {
        self.timeline = timeline;
    }

    /// Adds timelines of the slowest records to a sample, one per batch.
    pub(super) fn explain(&self, sample: &mut Sample) {
        let Some(timeline) = &self.timeline else { return };
        sample.requests_served = timeline.requests();
        let mut explained = BTreeSet::new();
        for slow in sample.exemplars.slowest_first() {
            let Some(offset) = slow.offset else { continue };
            if explained.len() >= TIMELINES || !explained.insert(slow.partition) {
                continue;
            }
            let due = Duration::from_nanos(slow.at);
            let acknowledged = due + Duration::from_nanos(slow.latency);
            let place = Place { partition: slow.partition, offset, due, acknowledged };
            let lines = timeline.explain(place);
            if !lines.is_empty() {
                let latency_ms = slow.latency as f64 / 1e6;
                sample.timelines.push(RecordTimeline {
                    partition: slow.partition,
                    offset,
                    latency_ms,
                    lines,
                });
            }
        }
    }

    /// The probes from outside.
    pub(super) fn probes(&self) -> Probes {
        self.probes.clone()
    }

    /// Adds the phases of one record.
    pub(super) fn note(
        &self,
        index: usize,
        due: u64,
        acknowledged: &Acknowledged,
        acks: Acks,
        sample: &mut Sample,
    ) {
        let Some(way) = self.way(index, due, acknowledged, acks) else { return };
        let (latency, phases) = (way.stations.whole(), way.stations.times());
        sample.phases.record(&phases);
        if !sample.exemplars.takes(latency) {
            return;
        }
        let (partition, offset, leader) = (acknowledged.partition, way.offset, way.leader);
        let round = 0;
        sample.exemplars.offer(Exemplar {
            round,
            latency,
            at: due,
            partition,
            offset,
            leader,
            phases,
        });
    }

    /// The phase timestamps of a record that was due at `due`, in nanoseconds since the start.
    ///
    /// `None` if the client does not report when it handed the record to the socket.
    pub(super) fn way(
        &self,
        index: usize,
        due: u64,
        acknowledged: &Acknowledged,
        acks: Acks,
    ) -> Option<Way> {
        let partition = acknowledged.partition;
        let reading = self.readings.get(index).copied().flatten();
        let reading = reading.filter(|reading| reading.partition == partition);
        let offset = acknowledged.offset.or(reading.map(|reading| reading.offset));
        let entry = self.journals.as_ref().zip(offset).and_then(|(j, at)| j.find(partition, at));
        let stations = Stations {
            due,
            handed: acknowledged.written?,
            appended: entry.map(|entry| entry.appended),
            committed: entry.and_then(|entry| entry.committed),
            // With acks=0 the write to the socket is the last phase timestamp.
            acknowledged: (acks != Acks::None).then_some((acknowledged.at, acks == Acks::All)),
            read: reading.map(|reading| (reading.caught_up, reading.read)),
        };
        let leader = entry.map(|entry| entry.leader);
        let leader = leader.or_else(|| self.leaders.get(&partition).copied());
        Some(Way { stations, offset, leader })
    }
}

/// Nanoseconds from `start` to `at`; 0 if `at` is earlier.
fn since(start: Instant, at: Instant) -> u64 {
    nanos(at.saturating_duration_since(start))
}
