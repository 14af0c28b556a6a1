//! Batches and records of a segment.

use std::{collections::BTreeMap, io::Write, path::Path};

use bytes::Bytes;
use curtail_cluster::log::files::{FileBatch, SegmentFile};
use curtail_wire::records::{
    BatchHeader, ControlRecord, DecompressLimit, EndTxnMarker, RecordError, RecordRef,
    TimestampType,
};

use super::{Dump, quorum};
use crate::{failure::Failure, output};

impl Dump<'_> {
    pub(super) fn segment(&mut self, path: &Path) -> Result<(), Failure> {
        let limit = self.arguments.limit();
        let mut file = SegmentFile::open(path, limit.unwrap_or(u64::MAX))?;
        let records = self.arguments.print_data_log || self.arguments.deep_iteration;
        let mut last = None;
        let damage = loop {
            let found = match file.next_batch() {
                Ok(Some(found)) => found,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            let is_valid = found.batch.verify_crc().is_ok();
            writeln!(self.out, "{} isvalid: {is_valid}", batch(&found))?;
            if !is_valid {
                self.report(path, found.position, "has a wrong checksum")?;
            }
            if records {
                self.records(path, &found, &mut last)?;
            }
        };
        if file.unread() > 0 && limit.is_none() {
            let (bytes, name) = (file.unread(), path.file_name().unwrap_or_default());
            writeln!(self.out, "Found {bytes} invalid bytes at the end of {}", name.display())?;
            self.find(format_args!(
                "{}: {bytes} bytes after the last whole batch",
                path.display()
            ))?;
        }
        damage.map_or(Ok(()), |error| Err(error.into()))
    }

    fn report(&mut self, path: &Path, position: u64, what: &str) -> Result<(), Failure> {
        self.find(format_args!("{}: the batch at position {position} {what}", path.display()))
    }

    fn unreadable(
        &mut self,
        path: &Path,
        position: u64,
        error: &RecordError,
    ) -> Result<(), Failure> {
        self.report(path, position, &format!("cannot be read: {error}"))
    }

    /// Prints the records of a batch.
    fn records(
        &mut self,
        path: &Path,
        found: &FileBatch,
        last: &mut Option<i64>,
    ) -> Result<(), Failure> {
        let (header, position) = (found.batch.header, found.position);
        let mut records = match found.batch.records(&DecompressLimit::default()) {
            Ok(records) => records,
            Err(error) => return self.unreadable(path, position, &error),
        };
        while let Some(record) = records.next_ref() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return self.unreadable(path, position, &error),
            };
            if let Some(last) = last.filter(|last| record.offset != last.saturating_add(1)) {
                // Not damage: the cleaner leaves gaps.
                self.out.flush()?;
                let next = record.offset;
                output::note(format_args!(
                    "{}: offset {last} is followed by {next}",
                    path.display()
                ));
            }
            *last = Some(record.offset);
            let line = self.record(path, position, &header, &record)?;
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        path: &Path,
        position: u64,
        header: &BatchHeader,
        record: &RecordRef<'_>,
    ) -> Result<String, Failure> {
        let mut parts = Vec::new();
        if !self.arguments.skip_record_metadata {
            parts.push(metadata(header, record));
            match header.is_control().then(|| control(record)) {
                Some(Ok(text)) => parts.push(text),
                Some(Err(error)) => {
                    self.report(path, position, &format!("has a wrong control record: {error}"))?;
                }
                None => {}
            }
        }
        if self.arguments.print_data_log && !header.is_control() {
            let text = |name: &str, bytes: &[u8]| format!("{name}: {}", decoded(bytes));
            parts.extend(record.key.map(|key| text("key", key)));
            parts.extend(record.value.map(|value| text("payload", value)));
        }
        Ok(match parts.is_empty() {
            true => String::new(),
            false => format!("| {}", parts.join(" ")),
        })
    }
}

fn batch(found: &FileBatch) -> String {
    let FileBatch { position, batch } = found;
    let header = &batch.header;
    let horizon = header.has_delete_horizon().then_some(header.base_timestamp);
    let codec = match header.compression() {
        Ok(codec) => codec.to_string(),
        Err(error) => format!("UNKNOWN ({error})"),
    };
    format!(
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
         partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {} position: {position} {}: {} \
         size: {} magic: {} compresscodec: {codec} crc: {}",
        header.base_offset,
        header.last_offset(),
        header.record_count,
        header.base_sequence,
        header.last_sequence(),
        header.producer_id,
        header.producer_epoch,
        header.partition_leader_epoch,
        header.is_transactional(),
        header.is_control(),
        optional(horizon),
        stamped_by(header),
        header.max_timestamp,
        header.size_in_bytes(),
        header.magic,
        header.crc,
    )
}

fn metadata(header: &BatchHeader, record: &RecordRef<'_>) -> String {
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
    let names: Vec<&str> = record.headers.clone().map(|(name, _)| name).collect();
    format!(
        "offset: {} {}: {} keySize: {} valueSize: {} sequence: {} headerKeys: [{}]",
        record.offset,
        stamped_by(header),
        record.timestamp,
        size(record.key),
        size(record.value),
        sequence(header, record.offset),
        names.join(","),
    )
}

/// The sequence number of a record, which wraps from the largest to 0; -1 without a producer id.
fn sequence(header: &BatchHeader, offset: i64) -> i64 {
    if header.base_sequence < 0 {
        return -1;
    }
    let delta = offset.wrapping_sub(header.base_offset);
    i64::from(header.base_sequence).wrapping_add(delta) % (i64::from(i32::MAX) + 1)
}

fn control(record: &RecordRef<'_>) -> Result<String, String> {
    let parsed = ControlRecord::parse(record.key, record.value);
    let kind = match parsed.map_err(|error| error.to_string())? {
        ControlRecord::EndTxn { marker, coordinator_epoch } => {
            let marker = match marker {
                EndTxnMarker::Abort => "ABORT",
                EndTxnMarker::Commit => "COMMIT",
            };
            return Ok(format!("endTxnMarker: {marker} coordinatorEpoch: {coordinator_epoch}"));
        }
        ControlRecord::LeaderChange => quorum::LEADER_CHANGE,
        ControlRecord::Other(kind) => kind,
    };
    let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
    match quorum::describe(kind, &value) {
        Some(described) => described.map_err(|error| error.to_string()),
        None => Ok(format!("controlType: UNKNOWN({kind})")),
    }
}

fn stamped_by(header: &BatchHeader) -> &'static str {
    match header.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

/// Java's text of an optional number.
pub(super) fn optional(number: Option<i64>) -> String {
    match number {
        Some(number) => format!("OptionalLong[{number}]"),
        None => "OptionalLong.empty".to_owned(),
    }
}

/// The first line for a snapshot of the cluster's metadata, from its name `<end offset>-<epoch>.checkpoint`.
pub(super) fn snapshot_title(path: &Path) -> Result<String, Failure> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if stem == "bootstrap" {
        return Ok("KRaft bootstrap snapshot".to_owned());
    }
    let parsed = stem.split_once('-').and_then(|(offset, epoch)| {
        Some((offset.parse::<i64>().ok()?, epoch.parse::<i32>().ok()?))
    });
    let Some((offset, epoch)) = parsed else {
        let path = path.display();
        return Err(Failure::new(format_args!(
            "{path}: not named <end offset>-<epoch>.checkpoint"
        )));
    };
    Ok(format!("Snapshot end offset: {offset}, epoch: {epoch}"))
}

/// The largest timestamp of each batch, by the batch's last offset.
pub(super) fn largest_timestamps(path: &Path) -> Result<BTreeMap<i64, i64>, Failure> {
    let mut file = SegmentFile::open(path, u64::MAX)?;
    let mut stamps = BTreeMap::new();
    while let Some(found) = file.next_batch()? {
        stamps.insert(found.batch.header.last_offset(), found.batch.header.max_timestamp);
    }
    Ok(stamps)
}

/// Decodes UTF-8 with replacement characters, as Java does: a UTF-16 surrogate, which is no UTF-8, is replaced as a whole.
/// `String::from_utf8_lossy` replaces each of its bytes.
fn decoded(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    while let Some(chunk) = bytes.utf8_chunks().next() {
        text += chunk.valid();
        let invalid = &bytes[chunk.valid().len()..];
        if invalid.is_empty() {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        let replaced = match invalid {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xed, 0xa0..=0xbf, ..] => 2,
            _ => chunk.invalid().len(),
        };
        bytes = &invalid[replaced..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::decoded;

    /// The texts that `new String(bytes, UTF_8)` of Java 17 makes.
    #[test]
    fn bytes_are_decoded_as_by_java() {
        for (bytes, text) in [
            (&b"plain \xc3\xa4"[..], "plain \u{e4}"),
            (b"", ""),
            (b"\xed\xa0\x80.", "\u{fffd}."),
            (b"\xed\xbf.", "\u{fffd}."),
            (b"\xed\xa0", "\u{fffd}"),
            (b"\xed\xa0\x80\xed\xb0\x80", "\u{fffd}\u{fffd}"),
            (b"\xed\x9f.", "\u{fffd}."),
            (b"\xed.", "\u{fffd}."),
            (b"\xe0\x80\x80", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xf0\x9f\x98", "\u{fffd}"),
            (b"\xc0\xaf\xff", "\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(decoded(bytes), text, "{bytes:x?}");
        }
    }
}
