//! The small text files in a log's directory.

use std::io;
use std::path::Path;

use bytes::Bytes;
use curtail_wire::Uuid;

use super::LogError;
use crate::disk::Disk;

const LOG_START: &str = "log-start-offset";
const CLEANED: &str = "cleaner-offset-checkpoint";
const CLEAN: &str = "clean-shutdown";
const METADATA: &str = "partition.metadata";

/// Returns the content of a file, or `None` if it does not exist.
pub(super) fn read_optional(disk: &dyn Disk, path: &Path) -> Result<Option<Bytes>, LogError> {
    match disk.read_all(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LogError::io(path, source)),
    }
}

/// Parses a checkpoint of version 0: the version, the number of lines, and the lines of `width`
/// numbers.
///
/// Every line must end with a newline, because a torn write could otherwise cut digits off the last
/// number.
pub(super) fn parse_lines(bytes: &[u8], width: usize) -> Option<Vec<Vec<i64>>> {
    if bytes.last() != Some(&b'\n') {
        return None;
    }
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    let version: u16 = lines.next()?.trim().parse().ok()?;
    let count: usize = lines.next()?.trim().parse().ok()?;
    if version != 0 {
        return None;
    }
    let parse = |line: &str| -> Option<Vec<i64>> {
        let numbers: Option<Vec<i64>> =
            line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() == width)
    };
    let parsed: Vec<Vec<i64>> = lines.map(parse).collect::<Option<_>>()?;
    (parsed.len() == count).then_some(parsed)
}

/// Returns the content of a checkpoint of version 0.
pub(super) fn render_lines<const N: usize>(
    lines: impl ExactSizeIterator<Item = [i64; N]>,
) -> Vec<u8> {
    let mut text = format!("0\n{}\n", lines.len());
    for line in lines {
        let words: Vec<String> = line.iter().map(i64::to_string).collect();
        text.push_str(&words.join(" "));
        text.push('\n');
    }
    text.into_bytes()
}

/// Returns the offset before which records have been deleted.
pub(super) fn read_log_start(disk: &dyn Disk, dir: &Path) -> Result<Option<i64>, LogError> {
    let lines = read_optional(disk, &dir.join(LOG_START))?.and_then(|bytes| parse_lines(&bytes, 1));
    Ok(lines.and_then(|lines| Some(*lines.first()?.first()?)))
}

/// Durably records the offset before which records are deleted. Recovery uses it to distinguish
/// deleted segments from lost ones.
pub(super) fn write_log_start(disk: &dyn Disk, dir: &Path, offset: i64) -> Result<(), LogError> {
    let path = dir.join(LOG_START);
    disk.write_durable(&path, &render_lines([[offset]].into_iter()))
        .map_err(|source| LogError::io(&path, source))
}

/// Progress of compaction in a log. The file exists if the log may have gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CleanedTo {
    /// Records below this offset have been compared with each other.
    pub(super) offset: i64,
    /// Offsets of the segments that compaction last replaced by one segment. After a crash some of the replaced files
    /// may still exist.
    pub(super) replaced: (i64, i64),
}

pub(super) fn read_cleaned(disk: &dyn Disk, dir: &Path) -> Result<Option<CleanedTo>, LogError> {
    let Some(bytes) = read_optional(disk, &dir.join(CLEANED))? else { return Ok(None) };
    // A damaged file still says that there may be gaps.
    let lines = parse_lines(&bytes, 3).unwrap_or_default();
    Ok(Some(match lines.first().map(Vec::as_slice) {
        Some(&[offset, from, to]) => CleanedTo { offset, replaced: (from, to) },
        _ => CleanedTo { offset: 0, replaced: (0, 0) },
    }))
}

pub(super) fn write_cleaned(
    disk: &dyn Disk,
    dir: &Path,
    cleaned: CleanedTo,
) -> Result<(), LogError> {
    let path = dir.join(CLEANED);
    let CleanedTo { offset, replaced: (from, to) } = cleaned;
    disk.write_durable(&path, &render_lines([[offset, from, to]].into_iter()))
        .map_err(|source| LogError::io(&path, source))
}

/// State of a log after a clean shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CleanMark {
    pub(super) end_offset: i64,
    /// Checksum of all index entries. Index files are not synced, so a crash after the shutdown may
    /// tear them.
    pub(super) indexes: u32,
}

/// Reads and removes the mark of a clean shutdown, which is valid for one opening only.
pub(super) fn take_clean_mark(disk: &dyn Disk, dir: &Path) -> Result<Option<CleanMark>, LogError> {
    let path = dir.join(CLEAN);
    let Some(bytes) = read_optional(disk, &path)? else { return Ok(None) };
    disk.remove_file(&path).map_err(|source| LogError::io(&path, source))?;
    let lines = parse_lines(&bytes, 2);
    Ok(lines.and_then(|lines| match lines.first()?.as_slice() {
        &[end_offset, indexes] => Some(CleanMark { end_offset, indexes: indexes.try_into().ok()? }),
        _ => None,
    }))
}

pub(super) fn write_clean_mark(
    disk: &dyn Disk,
    dir: &Path,
    mark: CleanMark,
) -> Result<(), LogError> {
    let path = dir.join(CLEAN);
    let line = [mark.end_offset, i64::from(mark.indexes)];
    disk.write_atomic(&path, &render_lines([line].into_iter()))
        .map_err(|source| LogError::io(&path, source))
}

/// Durably records the topic's id in the existing log directory `dir` (KIP-516).
///
/// # Errors
/// [`LogError::Io`] if the disk fails.
pub fn write_partition_metadata(
    disk: &dyn Disk,
    dir: &Path,
    topic_id: Uuid,
) -> Result<(), LogError> {
    let path = dir.join(METADATA);
    let text = format!("version: 0\ntopic_id: {topic_id}");
    disk.write_durable(&path, text.as_bytes()).map_err(|source| LogError::io(path, source))
}

/// Returns the topic's id from the log directory `dir`; `None` if the file does not exist.
///
/// # Errors
/// [`LogError::Io`] if the disk fails, [`LogError::Invalid`] if the file is malformed.
pub fn read_partition_metadata(disk: &dyn Disk, dir: &Path) -> Result<Option<Uuid>, LogError> {
    let path = dir.join(METADATA);
    let Some(bytes) = read_optional(disk, &path)? else { return Ok(None) };
    let id = std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("topic_id:")))
        .and_then(|id| id.trim().parse().ok());
    id.map(Some).ok_or_else(|| LogError::invalid(path, "no topic id in it"))
}
