//! Sends records open loop at a rate, or each as soon as the one before it is acknowledged.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use curtail_wire::compression::Compression;
use curtail_wire::produce::{OutBatch, ProduceResponse, RequestHead};
use curtail_wire::records::{BatchBuilder, ProducerStamp, RecordData, stamp};
use curtail_wire::{ApiKey, ErrorCode, Uuid, header};

use crate::Failure;
use crate::args::Args;
use crate::measure::{Cpu, Histogram, Report, payloads, sleep_until};

/// The last version that names topics, which makes metadata unnecessary.
const VERSION: i16 = 12;
const PARTITIONS: i32 = 6;
const PAYLOADS: usize = 1024;
/// Most records of one request.
const BATCH: u64 = 64;

/// Property for a run without sends, which measures the load generator alone: it sleeps until each record is
/// due.
const ONLY_PACE: (&str, &str) = ("send", "false");

/// Sends the warm-up and then measures the rest.
pub fn run(args: &Args) -> Result<Report, Failure> {
    let known = [("linger.ms", "0"), ("acks", "all"), ONLY_PACE];
    if let Some((key, value)) =
        args.properties.iter().find(|(k, v)| !known.contains(&(k.as_str(), v.as_str())))
    {
        return Err(format!("the floor has no settings; it cannot follow {key}={value}").into());
    }
    let mut load = Load {
        args,
        origin: Instant::now(),
        only_pace: args.properties.iter().any(|(k, v)| (k.as_str(), v.as_str()) == ONLY_PACE),
        wire: Wire::open(&args.bootstrap)?,
        payloads: payloads(PAYLOADS, args.record_size),
        latency: Histogram::new(),
        send_latency: Histogram::new(),
    };
    load.send(0..args.warmup)?;
    (load.latency, load.send_latency) = (Histogram::new(), Histogram::new());
    let (cpu, begun) = (Cpu::now()?, Instant::now());
    load.send(args.warmup..args.records)?;
    let (elapsed, cpu_end) = (begun.elapsed(), Cpu::now()?);
    let records = args.records - args.warmup;
    Ok(Report {
        client: "floor",
        version: env!("CARGO_PKG_VERSION").into(),
        tool: "produce",
        records,
        errors: 0,
        record_size: args.record_size as f64,
        bytes: records * args.record_size as u64,
        elapsed,
        cpu: (cpu, cpu_end),
        latency: load.latency,
        send_latency: load.send_latency,
    })
}

struct Load<'a> {
    args: &'a Args,
    origin: Instant,
    only_pace: bool,
    wire: Wire,
    payloads: Vec<Vec<u8>>,
    latency: Histogram,
    send_latency: Histogram,
}

impl Load<'_> {
    /// Sends one request after the other, each with one batch of the records due by then.
    fn send(&mut self, range: Range<u64>) -> Result<(), Failure> {
        let start = self.now();
        let interval = self.args.rate.map(|rate| 1e9 / rate);
        let due = |index: u64| {
            interval.map(|nanos| start + ((index - range.start) as f64 * nanos) as u64)
        };
        let mut next = range.start;
        while next < range.end {
            if let Some(due) = due(next) {
                sleep_until(self.origin, due);
            }
            let sent = self.now();
            let is_due = |index: u64| match due(index) {
                Some(due) => due <= sent,
                None => index == next,
            };
            let end = (next..range.end.min(next + BATCH)).find(|index| !is_due(*index));
            let end = end.unwrap_or(range.end.min(next + BATCH));
            let values = (next..end).map(|i| &self.payloads[i as usize % PAYLOADS][..]);
            if !self.only_pace {
                self.wire.produce(&self.args.topic, values)?;
            }
            let acknowledged = self.now();
            for index in next..end {
                self.latency.record(acknowledged - due(index).unwrap_or(sent));
                self.send_latency.record(acknowledged - sent);
            }
            next = end;
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// One connection; the broker leads all partitions.
struct Wire {
    socket: TcpStream,
    requests: i32,
    glue: BytesMut,
    answer: Vec<u8>,
}

impl Wire {
    fn open(address: &str) -> Result<Self, Failure> {
        let socket = TcpStream::connect(address).map_err(|e| format!("connect to {address}: {e}"))?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, requests: 0, glue: BytesMut::new(), answer: Vec::new() })
    }

    /// Sends one batch and waits until it is acknowledged by all replicas.
    fn produce<'a>(
        &mut self,
        topic: &str,
        values: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Failure> {
        let payload = batch(values)?;
        let correlation_id = self.requests;
        self.requests += 1;
        let head = RequestHead {
            version: VERSION,
            correlation_id,
            client_id: Some("floor"),
            transactional_id: None,
            acks: -1,
            timeout_ms: 30_000,
        };
        let partition = correlation_id % PARTITIONS;
        let batches = [OutBatch { topic, topic_id: Uuid::default(), partition, payload: &payload }];
        let mut parts = Vec::new();
        head.encode_frame(&batches, &mut self.glue, &mut parts);
        self.socket.write_all(&parts.concat())?;

        let mut length = [0; 4];
        self.socket.read_exact(&mut length)?;
        self.answer.resize(u32::from_be_bytes(length) as usize, 0);
        self.socket.read_exact(&mut self.answer)?;
        let frame = Bytes::copy_from_slice(&self.answer);
        let body = header::response_body(&frame, ApiKey::PRODUCE, VERSION)?;
        let answer = ProduceResponse::decode(VERSION, &body)?;
        match answer.topics.iter().flat_map(|topic| &topic.partitions).next() {
            Some(result) if result.error == ErrorCode::NONE => Ok(()),
            Some(result) => Err(format!("partition {partition}: {:?}", result.error).into()),
            None => Err("a response without a result".into()),
        }
    }
}

fn batch<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Bytes, Failure> {
    let timestamp = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let mut builder = BatchBuilder::new(Vec::with_capacity(2048));
    for value in values {
        builder.append(&RecordData { key: None, value: Some(value), headers: &[], timestamp });
    }
    let mut batch = builder.seal(&Compression::default(), &mut Vec::new())?;
    stamp(&mut batch, ProducerStamp::NONE);
    Ok(batch.into())
}
