//! Reads log files with Kafka's own DumpLogSegments.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use super::number;
use crate::{
    experiments::{Found, KafkaTool, Testbed},
    perf::{Error, Result},
};

const CLASS: &str = "org.apache.kafka.tools.DumpLogSegments";
/// Enough for a few hundred thousand records while the brokers share the machine.
const LIMIT: Duration = Duration::from_secs(600);

/// The committed records in the files of each partition.
pub(super) fn read(testbed: &Testbed, files: &BTreeMap<i32, Vec<PathBuf>>) -> Result<Found> {
    let mut found = Found::new();
    for (&partition, files) in files {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let args = ["--print-data-log", "--files", &files.join(",")];
        let tool = KafkaTool { class: CLASS, args: &args, clients: None, limit: LIMIT };
        let text = testbed.tool(&tool)?;
        let text = text.ok_or_else(|| Error::Unexpected(format!("{CLASS} did not run")))?;
        found.insert(partition, parse(&text)?);
    }
    Ok(found)
}

/// Offsets and numbers of the records that are not aborted, in the order of the log.
fn parse(dump: &str) -> Result<Vec<(i64, u64)>> {
    let mut records = BTreeMap::new();
    let mut open: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    let mut batch = Batch::default();
    for line in dump.lines() {
        if line.starts_with("baseOffset: ") {
            batch = Batch::parse(line)?;
        } else if let Some(line) = line.strip_prefix("| ") {
            let offset = field(line, "offset: ").ok_or_else(|| unreadable(line))?;
            if batch.is_control {
                let offsets = open.remove(&batch.producer_id).unwrap_or_default();
                if line.contains("endTxnMarker: ABORT") {
                    records.retain(|offset, _| !offsets.contains(offset));
                }
                continue;
            }
            let payload = line.split_once(" payload: ").map(|(_, payload)| payload.as_bytes());
            let number = payload.and_then(number).ok_or_else(|| unreadable(line))?;
            records.insert(offset, number);
            if batch.is_transactional {
                open.entry(batch.producer_id).or_default().insert(offset);
            }
        }
    }
    let undecided: BTreeSet<i64> = open.into_values().flatten().collect();
    records.retain(|offset, _| !undecided.contains(offset));
    Ok(records.into_iter().collect())
}

#[derive(Default)]
struct Batch {
    producer_id: i64,
    is_transactional: bool,
    is_control: bool,
}

impl Batch {
    fn parse(line: &str) -> Result<Self> {
        if line.contains("isvalid: false") {
            return Err(Error::Unexpected(format!("{CLASS} found a damaged batch: {line}")));
        }
        Ok(Self {
            producer_id: field(line, "producerId: ").ok_or_else(|| unreadable(line))?,
            is_transactional: line.contains("isTransactional: true"),
            is_control: line.contains("isControl: true"),
        })
    }
}

fn field(line: &str, name: &str) -> Option<i64> {
    let (_, rest) = line.split_once(name)?;
    rest.split(' ').next()?.parse().ok()
}

fn unreadable(line: &str) -> Error {
    Error::Unexpected(format!("{CLASS} printed a line that this command cannot read: {line}"))
}
