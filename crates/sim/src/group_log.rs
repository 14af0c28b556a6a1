//! The records that the coordinators of the consumer groups wrote, independent of the members' reports.

use std::{collections::BTreeMap, error::Error, path::PathBuf, sync::Arc};

use bytes::Bytes;
use curtail_cluster::{
    disk::{Disk, MemDisk},
    log::{LogConfig, PartitionLog},
};
use curtail_wire::{
    DecodeError, Encoding, Reader, Report,
    consumer_protocol::Assignment,
    records::{DecompressLimit, batches},
};

use crate::{
    history::{GroupRecord, Written},
    net::EPOCH,
};

/// The topic of the log.
pub(crate) const GROUPS_TOPIC: &str = "__consumer_offsets";

/// Reads every record about `group` from the disks of stopped brokers: the longest log of the topic's only partition.
/// Members are identified by the part of their client id after `client`.
pub(crate) fn read(
    disks: &[MemDisk],
    group: &str,
    client: &str,
) -> Result<Vec<GroupRecord>, String> {
    let mut longest: Option<PartitionLog> = None;
    for (broker, disk) in (1..).zip(disks) {
        let dir = PathBuf::from(format!("broker-{broker}/{GROUPS_TOPIC}-0"));
        if !disk.exists(&dir) {
            continue;
        }
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let opened = PartitionLog::open(shared, dir, LogConfig::default());
        let (log, _) =
            opened.map_err(|error| format!("{GROUPS_TOPIC}: {}", Report::new(&error)))?;
        if longest.as_ref().is_none_or(|longest| longest.end_offset() < log.end_offset()) {
            longest = Some(log);
        }
    }
    let log = longest.ok_or_else(|| format!("no broker has {GROUPS_TOPIC}"))?;
    records(&log, group, client)
}

fn records(log: &PartitionLog, group: &str, client: &str) -> Result<Vec<GroupRecord>, String> {
    let failed = |e: &dyn Error| format!("{GROUPS_TOPIC}: {}", Report::new(e));
    let mut found = Vec::new();
    let mut offset = log.start_offset();
    while offset < log.end_offset() {
        for batch in batches(log.read(offset, 1 << 20, i64::MAX, true).map_err(|e| failed(&e))?) {
            let batch = batch.map_err(|e| failed(&e))?;
            offset = batch.header.last_offset() + 1;
            for record in batch.records(&DecompressLimit::default()).map_err(|e| failed(&e))? {
                let record = record.map_err(|e| failed(&e))?;
                let (Some(key), Some(value)) = (record.key, record.value) else { continue };
                let what = decode(&key, &value, group, client).map_err(|e| failed(&e))?;
                let at_ms = record.timestamp - EPOCH.as_millis() as i64;
                found.extend(what.map(|what| GroupRecord { at_ms, what }));
            }
        }
    }
    Ok(found)
}

/// Kafka's OffsetCommitKey 1 with OffsetCommitValue 3, and GroupMetadataKey 2 with GroupMetadataValue 3.
fn decode(
    key: &Bytes,
    value: &Bytes,
    group: &str,
    client: &str,
) -> Result<Option<Written>, DecodeError> {
    let mut key = Reader::new(key, Encoding::Classic);
    let mut value = Reader::new(value, Encoding::Classic);
    let kind = key.i16("kind of key")?;
    if key.string("group")? != group {
        return Ok(None);
    }
    value.i16("version")?;
    match kind {
        1 => {
            key.string("topic")?;
            let partition = key.i32("partition")?;
            Ok(Some(Written::Offset(partition, value.i64("offset")?)))
        }
        _ => generation(&mut value, client).map(Some),
    }
}

fn generation(value: &mut Reader<'_>, client: &str) -> Result<Written, DecodeError> {
    value.string("protocol type")?;
    let number = value.i32("generation")?;
    value.nullable_string("protocol")?;
    value.nullable_string("leader")?;
    value.i64("state timestamp")?;
    let members = value.array_of(18, "members", |r| {
        r.string("member id")?;
        r.nullable_string("group instance id")?;
        let number = r.string("client id")?.strip_prefix(client).map(str::parse);
        r.string("client host")?;
        r.i32("rebalance timeout")?;
        r.i32("session timeout")?;
        r.bytes("subscription")?;
        Ok((number, r.bytes("assignment")?))
    })?;
    let mut given = BTreeMap::new();
    for (number, assignment) in members {
        let Some(Ok(number)) = number else { continue };
        // A member without an assignment has zero bytes.
        let partitions = match assignment.is_empty() {
            true => Vec::new(),
            false => Assignment::decode(&assignment)?.partitions,
        };
        given.insert(number, partitions.into_iter().flat_map(|(_, indexes)| indexes).collect());
    }
    Ok(Written::Generation(number, given))
}
