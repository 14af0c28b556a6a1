//! Log compaction, by the rules of Apache Kafka's LogCleaner.
//!
//! A [`Cleaning`] of a log compares the records of its closed segments and writes segments without the
//! records that a newer one of the same key replaces. It works on files that no longer change, so that the
//! log serves appends and reads at the same time. [`PartitionLog::swap`] then exchanges the segments.
//!
//! # Invariants
//! - Nothing at or above the last stable offset is compared or removed, nor in the active segment.
//! - A batch keeps its offsets and sequence numbers. The last batch of each active producer stays, if
//!   necessary without records.
//! - All records that are compared are durable before one of them goes.
//! - The last batch of each new segment stays too. Segments therefore follow each other without gaps, and
//!   recovery still notices a lost one.
//! - A corrupt batch ends the cleaning: a rewritten one would have a valid checksum.

mod filter;
mod keys;
mod swap;
mod transactions;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use curtail_wire::{
    Report,
    records::{Batch, CompactError},
};

use self::filter::Writer;
use self::keys::NewestOffsets;
pub use self::swap::Cleaned;
use self::transactions::CleanedTransactions;
use super::producers::LastBatches;
use super::segment::{Segment, scan};
use super::transactions::AbortedEntry;
use super::{LogConfig, LogError, PartitionLog};
use crate::config::Plant;
use crate::disk::{Disk, DiskFile};

/// The extension of a segment that is being written.
pub(super) const CLEANED: &str = "cleaned";

/// Bytes of log per [`Cleaning::step`], approximately.
const STEP_BYTES: u64 = 1 << 20;

/// Settings of compaction. The defaults are Kafka's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compaction {
    /// `min.cleanable.dirty.ratio`: a log is cleaned if its uncompared part is larger than this.
    pub min_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: records stay at least for this long.
    pub min_lag_ms: i64,
    /// `max.compaction.lag.ms`: records older than this are compared, whatever the ratio.
    pub max_lag_ms: i64,
    /// `delete.retention.ms`: how long a tombstone or a marker stays after the first cleaning that could
    /// have removed it.
    pub delete_retention_ms: i64,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            min_dirty_ratio: 0.5,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
            delete_retention_ms: 24 * 3600 * 1000,
        }
    }
}

/// A closed segment to read.
struct Source {
    base_offset: i64,
    /// Base offset of the next segment.
    end_offset: i64,
    size: u64,
    file: Box<dyn DiskFile>,
    path: PathBuf,
}

/// The result of [`Cleaning::step`].
pub enum Step {
    /// There is more to read.
    More,
    /// A segment to exchange with [`PartitionLog::swap`].
    Swap(Box<Cleaned>),
    /// All is read; [`PartitionLog::finish_cleaning`] completes the cleaning.
    Done,
}

enum Phase {
    /// Compares the keys of a source, from a position on.
    Compare {
        at: usize,
        position: u64,
    },
    /// Chooses the next sources to write.
    Choose {
        at: usize,
    },
    /// Writes a segment from the sources up to `to`.
    Write {
        at: usize,
        to: usize,
        position: u64,
        writer: Box<Writer>,
    },
    Done,
}

/// One cleaning of a log, in steps. If it is dropped, the log is as before.
pub struct Cleaning {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    config: LogConfig,
    now_ms: i64,
    sources: Vec<Source>,
    first_dirty: i64,
    producers: LastBatches,
    newest: NewestOffsets,
    compared: CleanedTransactions,
    written: CleanedTransactions,
    phase: Phase,
    version: u64,
}

impl PartitionLog {
    /// Begins to compact the log if the part that no cleaning has compared is large or old enough. Nothing
    /// from `last_stable` on is touched.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails.
    pub fn clean(&self, now_ms: i64, last_stable: i64) -> Result<Option<Cleaning>, LogError> {
        self.check_online()?;
        if !self.config.compacted {
            return Ok(None);
        }
        let first_dirty = self.cleaned_to.clamp(self.start_offset, self.end_offset);
        let closed = self.cleanable(first_dirty, now_ms, last_stable);
        let is_clean = |pair: &&[Segment]| pair[1].base_offset <= first_dirty;
        let clean = self.segments.windows(2).take(closed.len()).filter(is_clean).count();
        let dirty = &closed[clean..];
        let bytes = |segments: &[Segment]| segments.iter().map(Segment::size).sum::<u64>();
        let dirty_bytes = bytes(dirty);
        let ratio = dirty_bytes as f64 / bytes(closed) as f64;
        let Compaction { min_dirty_ratio, max_lag_ms, .. } = self.config.compaction;
        let first_timestamps = dirty.iter().filter_map(Segment::first_timestamp);
        let oldest = first_timestamps.filter(|timestamp| *timestamp > 0).min();
        let is_late = oldest.is_some_and(|oldest| oldest < now_ms.saturating_sub(max_lag_ms));
        if dirty_bytes == 0 || !(is_late || ratio > min_dirty_ratio) {
            return Ok(None);
        }
        self.begin_cleaning(closed.len(), first_dirty, now_ms).map(Some)
    }

    /// Returns the closed segments that may be cleaned: segments that end at or before the last stable offset,
    /// and before the first dirty one that is younger than `min.compaction.lag.ms`.
    fn cleanable(&self, first_dirty: i64, now_ms: i64, last_stable: i64) -> &[Segment] {
        let last_stable = match self.config.plant {
            Some(Plant::CompactUnstable) => i64::MAX,
            _ => last_stable,
        };
        let closed = self.segments.windows(2);
        let lag = self.config.compaction.min_lag_ms;
        let may = |pair: &[Segment]| {
            let is_young = lag > 0
                && pair[1].base_offset > first_dirty
                && pair[0].marks.max_timestamp > now_ms.saturating_sub(lag);
            pair[1].base_offset <= last_stable && !is_young
        };
        &self.segments[..closed.take_while(|pair| may(pair)).count()]
    }

    fn begin_cleaning(
        &self,
        count: usize,
        first_dirty: i64,
        now_ms: i64,
    ) -> Result<Cleaning, LogError> {
        let mut sources = Vec::with_capacity(count);
        for pair in self.segments.windows(2).take(count) {
            let path = pair[0].path.clone();
            // A separate handle: the log may remove its own while the cleaning reads.
            let file = self.disk.open_append(&path).map_err(|e| LogError::io(&path, e))?;
            let (base_offset, end_offset) = (pair[0].base_offset, pair[1].base_offset);
            sources.push(Source { base_offset, end_offset, size: pair[0].size(), file, path });
        }
        let indexes = self.segments.iter().map(|segment| segment.marks.aborted.entries());
        let aborted: Vec<AbortedEntry> = indexes.flatten().copied().collect();
        let since_dirty = aborted.iter().filter(|entry| entry.last_offset >= first_dirty);
        let compared = CleanedTransactions::new(since_dirty.copied().collect());
        Ok(Cleaning {
            disk: Arc::clone(&self.disk),
            dir: self.dir.clone(),
            config: self.config.clone(),
            now_ms,
            sources,
            first_dirty,
            producers: self.producers.last_batches(),
            newest: NewestOffsets::default(),
            compared,
            written: CleanedTransactions::new(aborted),
            phase: Phase::Compare { at: 0, position: 0 },
            version: self.version,
        })
    }
}

impl Cleaning {
    /// Reads and writes about a megabyte.
    ///
    /// # Errors
    /// [`LogError`] if the disk fails or a batch is corrupt. The log is unchanged.
    pub fn step(&mut self) -> Result<Step, LogError> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Compare { at, position } => self.phase = self.compare(at, position)?,
            Phase::Choose { at } => self.phase = self.choose(at)?,
            Phase::Write { at, to, position, writer } => {
                return self.write(at, to, position, writer);
            }
            Phase::Done => return Ok(Step::Done),
        }
        Ok(Step::More)
    }

    /// Continues with this version of the log after a swap.
    pub fn swapped(&mut self, version: u64) {
        self.version = version;
    }

    /// Collects the newest offset of each key from a part of a source.
    fn compare(&mut self, at: usize, position: u64) -> Result<Phase, LogError> {
        let Some(source) = self.sources.get(at) else { return Ok(Phase::Choose { at: 0 }) };
        if source.end_offset <= self.first_dirty {
            return Ok(Phase::Compare { at: at + 1, position: 0 });
        }
        let (newest, transactions) = (&mut self.newest, &mut self.compared);
        let first_dirty = self.first_dirty;
        let mut full = None;
        let position = source.read(position, |batch| {
            if newest.is_full() {
                full = Some(batch.header.base_offset);
                return Ok(ControlFlow::Break(()));
            }
            let is_discarded = transactions.read(batch)?;
            if !batch.header.is_control() && !is_discarded {
                newest.add(batch, first_dirty)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(to) = full {
            newest.end_at(to);
            return Ok(Phase::Choose { at: 0 });
        }
        if position < source.size {
            return Ok(Phase::Compare { at, position });
        }
        self.newest.end_at(source.end_offset);
        Ok(Phase::Compare { at: at + 1, position: 0 })
    }

    /// Chooses sources that fit into one segment.
    fn choose(&mut self, at: usize) -> Result<Phase, LogError> {
        if at == 0 {
            self.sync_sources()?;
        }
        let compared = self.newest.end();
        let rest = self.sources.get(at..).unwrap_or_default();
        let rest = &rest[..rest.partition_point(|source| source.base_offset < compared)];
        let Some(first) = rest.first() else { return Ok(Phase::Done) };
        let limit = self.config.segment_bytes.min(i32::MAX as u64);
        let mut size = 0;
        let fits = |source: &&Source| {
            size += source.size;
            let is_near = source.end_offset - first.base_offset <= i64::from(i32::MAX);
            source.base_offset == first.base_offset || size <= limit && is_near
        };
        let count = rest.iter().take_while(fits).count();
        let replaced = rest[..count].iter().map(|source| source.base_offset).collect();
        let end = rest[count - 1].end_offset;
        let writer = Writer::create(self.disk.as_ref(), &self.dir, replaced, end)?;
        Ok(Phase::Write { at, to: at + count, position: 0, writer: Box::new(writer) })
    }

    /// Makes all sources durable: a crash must not lose the record for which another one goes.
    fn sync_sources(&mut self) -> Result<(), LogError> {
        for source in &mut self.sources {
            source.file.sync().map_err(|error| LogError::io(&source.path, error))?;
        }
        self.disk.sync_dir(&self.dir).map_err(|source| LogError::io(&self.dir, source))
    }

    /// Writes the records that stay from a part of a source.
    fn write(
        &mut self,
        at: usize,
        to: usize,
        position: u64,
        mut writer: Box<Writer>,
    ) -> Result<Step, LogError> {
        let source = &self.sources[at];
        let rules = filter::Rules {
            newest: &self.newest,
            producers: &self.producers,
            now_ms: self.now_ms,
            delete_retention_ms: self.config.compaction.delete_retention_ms,
            plant: self.config.plant,
            index_interval: self.config.index_interval_bytes,
        };
        let transactions = &mut self.written;
        let position = source.read(position, |batch| {
            let can_discard = transactions.read(batch)?;
            writer.filter(batch, can_discard, &rules)?;
            Ok(ControlFlow::Continue(()))
        });
        let position = position.and_then(|position| writer.flush().map(|()| position));
        let position = position.inspect_err(|_| writer.discard(self.disk.as_ref()))?;
        if position < source.size || at + 1 < to {
            let (at, position) = if position < source.size { (at, position) } else { (at + 1, 0) };
            self.phase = Phase::Write { at, to, position, writer };
            return Ok(Step::More);
        }
        self.phase = Phase::Choose { at: to };
        let aborted = transactions.take_retained();
        let cleaned = writer.finish(aborted, self.version, self.disk.as_ref())?;
        Ok(cleaned.map_or(Step::More, |cleaned| Step::Swap(Box::new(cleaned))))
    }

    /// Everything below this offset has been compared.
    pub(super) fn end(&self) -> i64 {
        self.newest.end().max(self.first_dirty)
    }
}

impl Source {
    /// Visits batches from `position` on, about [`STEP_BYTES`]. Returns the position after them.
    fn read(
        &self,
        position: u64,
        mut visit: impl FnMut(&Batch) -> Result<ControlFlow<()>, CompactError>,
    ) -> Result<u64, LogError> {
        let mut outcome = Ok(());
        let mut broken = false;
        let mut expected = self.base_offset;
        let end = scan(self.file.as_ref(), position, |at, batch| {
            if at >= self.size || at - position >= STEP_BYTES {
                return ControlFlow::Break(());
            }
            let header = &batch.header;
            if header.base_offset < expected || header.last_offset() >= self.end_offset {
                let offset = header.base_offset;
                let reason = format!("a batch with offset {offset} is out of place");
                outcome = Err(reason);
                return ControlFlow::Break(());
            }
            expected = header.last_offset() + 1;
            match batch.verify_crc().map_err(Into::into).and_then(|()| visit(batch)) {
                Ok(flow) => {
                    broken |= flow.is_break();
                    flow
                }
                Err(error) => {
                    outcome = Err(Report::new(&error).to_string());
                    ControlFlow::Break(())
                }
            }
        })
        .map_err(|source| LogError::io(&self.path, source))?;
        if let Err(reason) = outcome {
            return Err(LogError::invalid(&self.path, reason));
        }
        if end == position && position < self.size && !broken {
            return Err(LogError::invalid(&self.path, "a batch is cut off"));
        }
        Ok(end)
    }
}
