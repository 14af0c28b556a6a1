//! The final contents of the partitions: over the wire, and on the disks.

use std::{
    error::Error,
    hash::{DefaultHasher, Hasher},
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use curtail_cluster::{
    disk::{Disk, MemDisk},
    log::{LogConfig, PartitionLog},
};
use curtail_net::{Net, Socket, SocketExt, SocketOptions};
use curtail_wire::{
    ApiKey, ErrorCode, Report, Writer,
    fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic},
    frame::FrameSplitter,
    header::{self, RequestHeader},
    records::{DecompressLimit, batches},
};

use crate::{
    history::{ReadBack, ReplicaLog},
    payload,
    run::Place,
};

/// A version that names topics by name and has leader epochs.
const FETCH_VERSION: i16 = 12;

fn invalid(reason: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Content of a partition.
pub(crate) struct Held {
    /// First offset of the log.
    pub(crate) start: i64,
    /// Records, by offset.
    pub(crate) records: Vec<ReadBack>,
}

/// Reads a partition from its first offset to the high watermark with plain Fetch requests to its leader, without any
/// of the client's code, as an independent check of the client's consumer.
pub(crate) async fn over_the_wire(
    net: &dyn Net,
    leader: SocketAddr,
    topic: &str,
    partition: i32,
) -> io::Result<Held> {
    let socket = net.connect(leader, SocketOptions::default()).await?;
    let mut frames = FrameSplitter::default();
    let mut records = Vec::new();
    let (mut start, mut offset) = (0, 0);
    loop {
        let answer = fetch(socket.as_ref(), &mut frames, topic, partition, offset).await?;
        let part = answer.topics.first().and_then(|t| t.partitions.first());
        let part = part.ok_or_else(|| invalid("the response lacks the partition"))?;
        if part.error == ErrorCode::OFFSET_OUT_OF_RANGE && part.log_start_offset > offset {
            start = part.log_start_offset;
            offset = start;
            continue;
        }
        if part.error.is_error() {
            return Err(invalid(part.error.to_string()));
        }
        let before = offset;
        decode(&part.records, partition, &mut offset, &mut records)?;
        if offset >= part.high_watermark {
            return Ok(Held { start, records });
        }
        if offset == before {
            return Err(invalid(format!("nothing at offset {offset} below the high watermark")));
        }
    }
}

async fn fetch(
    socket: &dyn Socket,
    frames: &mut FrameSplitter,
    topic: &str,
    partition: i32,
    offset: i64,
) -> io::Result<FetchResponse> {
    let fetch = FetchPartition { index: partition, fetch_offset: offset, ..Default::default() };
    let topic = FetchTopic { name: topic.into(), partitions: vec![fetch], ..Default::default() };
    let request = FetchRequest { topics: vec![topic], max_bytes: 64 << 10, ..Default::default() };
    let mut w = Writer::with_capacity(256);
    w.i32(0);
    RequestHeader {
        api: ApiKey::FETCH,
        version: FETCH_VERSION,
        correlation_id: 0,
        client_id: Some("readback"),
    }
    .encode(&mut w);
    request.encode(FETCH_VERSION, &mut w);
    let length = w.len() - 4;
    w.patch_i32(0, length as i32);
    socket.write_all(&w.into_vec()).await?;
    let frame = loop {
        if let Some(frame) = frames.next_frame().map_err(invalid)? {
            break frame;
        }
        let mut buf = [0; 16 << 10];
        match socket.read(&mut buf).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => frames.spare(read).extend_from_slice(&buf[..read]),
        }
    };
    let body = header::response_body(&frame, ApiKey::FETCH, FETCH_VERSION).map_err(invalid)?;
    FetchResponse::decode(FETCH_VERSION, &body).map_err(invalid)
}

fn decode(
    data: &Bytes,
    partition: i32,
    offset: &mut i64,
    read: &mut Vec<ReadBack>,
) -> io::Result<()> {
    for batch in batches(data.clone()) {
        let batch = batch.map_err(invalid)?;
        if batch.verify_crc().is_err() {
            // No producer has sent these bytes.
            read.push(ReadBack { partition, offset: batch.header.base_offset, id: None });
            *offset = batch.header.last_offset() + 1;
            continue;
        }
        if batch.header.is_control() {
            *offset = batch.header.last_offset() + 1;
            continue;
        }
        for record in batch.records(&DecompressLimit::default()).map_err(invalid)? {
            let record = record.map_err(invalid)?;
            if record.offset < *offset {
                continue;
            }
            let id = payload::id(record.value.as_deref(), record.headers.iter());
            read.push(ReadBack { partition, offset: record.offset, id });
            *offset = record.offset + 1;
        }
        // Compaction may have removed the last records.
        *offset = (*offset).max(batch.header.last_offset() + 1);
    }
    Ok(())
}

/// Reads the records of a replica of a compacted topic from the disk of a stopped broker.
pub(crate) fn records_on_disk(
    disk: &MemDisk,
    broker: i32,
    place: Place,
) -> Result<Vec<ReadBack>, String> {
    let dir = PathBuf::from(format!("broker-{broker}/{}-{}", place.name, place.partition));
    let failed = |e: &dyn Error| format!("log of {}: {}", dir.display(), Report::new(e));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, _) =
        PartitionLog::open(shared, dir.clone(), LogConfig::default()).map_err(|e| failed(&e))?;
    let (mut offset, mut records) = (log.start_offset(), Vec::new());
    while offset < log.end_offset() {
        let data = log.read(offset, 1 << 20, i64::MAX, true).map_err(|e| failed(&e))?;
        decode(&data, place.number(), &mut offset, &mut records).map_err(|e| failed(&e))?;
    }
    Ok(records)
}

/// Reads a replica's log from the disk of a stopped broker.
pub(crate) fn on_disk(
    disk: &MemDisk,
    broker: i32,
    topic: &str,
    partition: i32,
) -> Result<ReplicaLog, String> {
    let dir = PathBuf::from(format!("broker-{broker}/{topic}-{partition}"));
    let failed = |e: &dyn Error| format!("log of {}: {}", dir.display(), Report::new(e));
    if !disk.exists(&dir) {
        return Err(format!("log of {}: there is none", dir.display()));
    }
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, _) =
        PartitionLog::open(shared, dir.clone(), LogConfig::default()).map_err(|e| failed(&e))?;
    let mut offset = log.start_offset();
    let mut result = ReplicaLog {
        broker,
        partition,
        start_offset: offset,
        batches: Vec::new(),
        end_offset: log.end_offset(),
    };
    while offset < log.end_offset() {
        let data = log.read(offset, 1 << 20, i64::MAX, true).map_err(|e| failed(&e))?;
        for batch in batches(data) {
            let batch = batch.map_err(|e| failed(&e))?;
            let mut hasher = DefaultHasher::new();
            hasher.write(batch.raw());
            result.batches.push((batch.header.base_offset, hasher.finish()));
            offset = batch.header.last_offset() + 1;
        }
    }
    Ok(result)
}
