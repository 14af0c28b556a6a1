//! `curtail dump-log`: the contents of a broker's log files, printed as kafka-dump-log prints them.

mod quorum;
mod segment;

use std::{
    fmt::Display,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use curtail_cluster::log::{
    LogError,
    files::{
        IndexedOffset, SegmentFile, base_offset, offset_index, producer_snapshot, time_index,
        transaction_index,
    },
};

use crate::{failure::Failure, output};

/// Arguments of `curtail dump-log`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("any").args(["bare", "flagged"]).required(true).multiple(true))]
pub(crate) struct Arguments {
    /// Files of a log: segments (.log), indexes (.index, .timeindex, .txnindex), snapshots of producers (.snapshot) and of
    /// the cluster's metadata (.checkpoint).
    #[arg(value_name = "FILE")]
    bare: Vec<PathBuf>,
    /// Files, separated by commas. May be given several times.
    #[arg(long = "files", value_name = "FILE,...", value_delimiter = ',')]
    flagged: Vec<PathBuf>,
    /// Print keys and values of records as text, and a line for each record.
    #[arg(long)]
    print_data_log: bool,
    /// Print a line for each record.
    #[arg(long)]
    deep_iteration: bool,
    /// Leave out offset, timestamp, sizes and header names of records.
    #[arg(long)]
    skip_record_metadata: bool,
    /// Compare indexes with their segment, and print only differences.
    #[arg(long, conflicts_with = "index_sanity_check")]
    verify_index_only: bool,
    /// Check only whether a broker would accept the indexes when it starts.
    #[arg(long)]
    index_sanity_check: bool,
    /// Read only the first N bytes of each segment. 2147483647 is no limit, as for Kafka's tool.
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
}

impl Arguments {
    fn limit(&self) -> Option<u64> {
        self.max_bytes.filter(|bytes| *bytes != i32::MAX as u64)
    }
}

/// Runs `curtail dump-log`.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut dump = Dump { arguments, out: BufWriter::new(io::stdout().lock()), findings: 0 };
    let mut failed = Vec::new();
    for path in arguments.bare.iter().chain(&arguments.flagged) {
        match dump.file(path) {
            Err(closed @ Failure::OutputClosed) => return Err(closed),
            done => failed.extend(done.err()),
        }
    }
    dump.out.flush()?;
    if dump.findings > 0 {
        failed.push(Failure::new(format_args!("problems found: {}", dump.findings)));
    }
    Failure::all(failed)
}

/// The output of one run.
struct Dump<'a> {
    arguments: &'a Arguments,
    out: BufWriter<io::StdoutLock<'static>>,
    /// Damaged parts of files, and differences between indexes and their segments.
    findings: u64,
}

impl Dump<'_> {
    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        writeln!(self.out, "Dumping {}", path.display())?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("log") => {
                writeln!(self.out, "Log starting offset: {}", base_offset(path, "log")?)?;
                self.segment(path)
            }
            Some("checkpoint") => {
                writeln!(self.out, "{}", segment::snapshot_title(path)?)?;
                self.segment(path)
            }
            Some("index") => self.offset_index(path),
            Some("timeindex") => self.time_index(path),
            Some("txnindex") => self.transaction_index(path),
            Some("snapshot") => self.producer_snapshot(path),
            _ => Err(Failure::new(format_args!(
                "{}: not one of .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint",
                path.display()
            ))),
        }
    }

    /// Reports a finding on standard error, after the lines so far.
    fn find(&mut self, text: impl Display) -> Result<(), Failure> {
        self.findings += 1;
        self.out.flush()?;
        output::note(text);
        Ok(())
    }

    fn offset_index(&mut self, path: &Path) -> Result<(), Failure> {
        let base = base_offset(path, "index")?;
        let entries = offset_index(path)?;
        let Some(last) = entries.last() else {
            return Ok(writeln!(self.out, "{} is empty.", path.display())?);
        };
        if self.arguments.index_sanity_check {
            return self.sane(path, is_near(base, last.offset));
        }
        let mut segment = SegmentFile::open(&path.with_extension("log"), u64::MAX)?;
        let used = in_use(entries, |entry| entry.offset > base);
        for IndexedOffset { offset, position } in used {
            segment.seek(position.into())?;
            let found = match segment.next_batch() {
                // The first batch is never in the index: these are the zeros of an index without entries.
                _ if (offset, position) == (base, 0) => None,
                Ok(Some(found)) if found.batch.header.last_offset() == offset => None,
                Ok(Some(found)) => Some(format!("has offset {}", found.batch.header.last_offset())),
                Ok(None) => Some("ends".to_owned()),
                Err(LogError::Invalid { .. }) => Some("has no batch".to_owned()),
                Err(error) => return Err(error.into()),
            };
            if let Some(found) = found {
                self.find(format_args!(
                    "{}: offset {offset} at position {position}, where the segment {found}",
                    path.display()
                ))?;
            }
            if !self.arguments.verify_index_only {
                writeln!(self.out, "offset: {offset} position: {position}")?;
            }
        }
        Ok(())
    }

    fn time_index(&mut self, path: &Path) -> Result<(), Failure> {
        let base = base_offset(path, "timeindex")?;
        let entries = time_index(path)?;
        if self.arguments.index_sanity_check {
            let ends = entries.first().zip(entries.last());
            let sane = ends.is_none_or(|(first, last)| {
                last.timestamp >= first.timestamp && is_near(base, last.offset)
            });
            return self.sane(path, sane);
        }
        let stamps = segment::largest_timestamps(&path.with_extension("log"))?;
        let mut before = -1;
        for entry in in_use(entries, |entry| entry.offset > base) {
            let text = match stamps.get(&entry.offset) {
                // The zeros of an index without entries.
                _ if (entry.timestamp, entry.offset) == (0, base) => None,
                None => Some("where no batch ends".to_owned()),
                Some(stamp) if *stamp != entry.timestamp => {
                    Some(format!("where the largest timestamp is {stamp}"))
                }
                Some(_) if before >= entry.timestamp => Some(format!("after {before}")),
                Some(_) => None,
            };
            if let Some(text) = text {
                self.find(format_args!(
                    "{}: timestamp {} at offset {}, {text}",
                    path.display(),
                    entry.timestamp,
                    entry.offset
                ))?;
            }
            if !self.arguments.verify_index_only {
                writeln!(self.out, "timestamp: {} offset: {}", entry.timestamp, entry.offset)?;
            }
            before = entry.timestamp;
        }
        Ok(())
    }

    fn sane(&mut self, path: &Path, sane: bool) -> Result<(), Failure> {
        let path = path.display();
        match sane {
            true => Ok(writeln!(self.out, "{path} passed sanity check.")?),
            false => self.find(format_args!("{path}: a broker rebuilds this index at startup")),
        }
    }

    fn transaction_index(&mut self, path: &Path) -> Result<(), Failure> {
        for aborted in transaction_index(path)? {
            writeln!(
                self.out,
                "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
                aborted.producer_id,
                aborted.first_offset,
                aborted.last_offset,
                aborted.last_stable_offset
            )?;
        }
        Ok(())
    }

    fn producer_snapshot(&mut self, path: &Path) -> Result<(), Failure> {
        for producer in producer_snapshot(path)? {
            write!(
                self.out,
                "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {}",
                producer.id,
                producer.epoch,
                producer.coordinator_epoch,
                segment::optional(producer.open_since),
                producer.last_timestamp
            )?;
            if let Some(last) = producer.last_batch {
                write!(
                    self.out,
                    " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                    last.first_sequence,
                    last.last_sequence,
                    last.last_offset,
                    last.offset_delta,
                    last.timestamp
                )?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }
}

/// Whether Kafka reads the offset of an entry as one that is not before the base: its distance is an `int` there.
fn is_near(base: i64, offset: i64) -> bool {
    offset - base <= i32::MAX.into()
}

/// The entries of an index up to the zeros after its last entry. Only the first entry may have the base offset.
fn in_use<E>(entries: Vec<E>, is_later: impl Fn(&E) -> bool) -> impl Iterator<Item = E> {
    let in_use = move |(place, entry): &(usize, E)| *place == 0 || is_later(entry);
    entries.into_iter().enumerate().take_while(in_use).map(|(_, entry)| entry)
}
