//! A cluster of three scripted brokers with a large number of partitions of three replicas each.
//!
//! It has no logs and no state except a counter. It implements, by hand, the last non-flexible versions of
//! ApiVersions, Metadata, InitProducerId and Produce: the laboratory uses the client through its public API
//! only, and the measured client must not share its codec.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const PRODUCE: i16 = 0;
const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;
const INIT_PRODUCER_ID: i16 = 22;

/// API, lowest and highest version.
const SPOKEN: [(i16, i16, i16); 4] =
    [(PRODUCE, 3, 7), (METADATA, 0, 8), (API_VERSIONS, 0, 3), (INIT_PRODUCER_ID, 0, 1)];

/// Brokers; their ids count from 1.
const BROKERS: usize = 3;

/// The scripted cluster. Its threads end when it is dropped and all connections are closed.
#[derive(Debug)]
pub struct ScriptedCluster {
    model: Arc<Model>,
}

#[derive(Debug)]
struct Model {
    ports: Vec<u16>,
    partitions: usize,
    /// Rises with every Metadata response, so that each response changes every topic in it.
    version: AtomicU64,
    topics_answered: AtomicU64,
    records: AtomicU64,
    stopped: AtomicBool,
}

impl ScriptedCluster {
    /// Starts it. Every requested topic exists and has `partitions` partitions.
    ///
    /// # Errors
    /// No free port.
    pub fn start(partitions: usize) -> io::Result<Self> {
        let listeners = (0..BROKERS)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<io::Result<Vec<_>>>()?;
        let ports = listeners
            .iter()
            .map(|listener| Ok(listener.local_addr()?.port()))
            .collect::<io::Result<Vec<_>>>()?;
        let model = Arc::new(Model {
            ports,
            partitions,
            version: AtomicU64::new(1),
            topics_answered: AtomicU64::new(0),
            records: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        for listener in listeners {
            let model = model.clone();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if model.stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let model = model.clone();
                    // An error only ends the connection.
                    thread::spawn(move || drop(model.serve(stream)));
                }
            });
        }
        Ok(Self { model })
    }

    /// `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let servers: Vec<String> =
            self.model.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        servers.join(",")
    }

    /// Topics that Metadata responses have described so far.
    #[must_use]
    pub fn topics_answered(&self) -> u64 {
        self.model.topics_answered.load(Ordering::Relaxed)
    }

    /// A new connection that bypasses the client.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.model.ports[0]))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Drop for ScriptedCluster {
    fn drop(&mut self) {
        self.model.stopped.store(true, Ordering::Relaxed);
        for &port in &self.model.ports {
            // Wakes the accepting thread, which checks `stopped`. A thread that no longer listens needs no
            // signal.
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
        }
    }
}

impl Model {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        loop {
            read_frame(&mut stream, &mut request)?;
            let mut input = Input(&request);
            let (api, version) = (input.i16()?, input.i16()?);
            let correlation_id = input.i32()?;
            input.nullable_string()?;
            answer.clear();
            put(&mut answer, &[0; 4]);
            put(&mut answer, &correlation_id.to_be_bytes());
            match api {
                PRODUCE => self.produce(&mut input, &mut answer)?,
                METADATA => self.metadata(version, &mut input, &mut answer)?,
                API_VERSIONS => api_versions(version, &mut answer),
                INIT_PRODUCER_ID => {
                    put(&mut answer, &[0; 6]);
                    put(&mut answer, &7i64.to_be_bytes());
                    put(&mut answer, &0i16.to_be_bytes());
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            let length = (answer.len() - 4) as u32;
            answer[..4].copy_from_slice(&length.to_be_bytes());
            stream.write_all(&answer)?;
        }
    }

    fn metadata(&self, version: i16, input: &mut Input<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        if version < 8 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        put(out, &[0; 4]);
        put_count(out, self.ports.len());
        for (index, port) in self.ports.iter().enumerate() {
            put(out, &(index as i32 + 1).to_be_bytes());
            put_string(out, "127.0.0.1");
            put(out, &i32::from(*port).to_be_bytes());
            put(out, &(-1i16).to_be_bytes());
        }
        put_string(out, "scripted");
        put(out, &1i32.to_be_bytes());
        let now = self.version.fetch_add(1, Ordering::Relaxed);
        let topics = input.i32()?.max(0);
        put_count(out, topics as usize);
        for _ in 0..topics {
            let name = input.nullable_string()?.ok_or(io::ErrorKind::InvalidData)?;
            self.topic(name, now, out);
        }
        put(out, &i32::MIN.to_be_bytes());
        self.topics_answered.fetch_add(topics as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Writes a topic: every partition has a new epoch, and one of them a new leader.
    fn topic(&self, name: &str, now: u64, out: &mut Vec<u8>) {
        put(out, &[0; 2]);
        put_string(out, name);
        out.push(0);
        put_count(out, self.partitions);
        let moved = now as usize % self.partitions;
        for index in 0..self.partitions {
            let first = index + usize::from(index == moved);
            let brokers = self.ports.len();
            let replicas = (first..first + brokers).map(|at| (at % brokers) as i32 + 1);
            put(out, &[0; 2]);
            put(out, &(index as i32).to_be_bytes());
            put(out, &((first % brokers) as i32 + 1).to_be_bytes());
            put(out, &(now as i32).to_be_bytes());
            for count in [brokers, brokers, 0] {
                put_count(out, count);
                for id in replicas.clone().take(count) {
                    put(out, &id.to_be_bytes());
                }
            }
        }
        put(out, &i32::MIN.to_be_bytes());
    }

    fn produce(&self, input: &mut Input<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        input.nullable_string()?;
        input.take(6)?;
        let topics = input.i32()?;
        put_count(out, topics.max(0) as usize);
        for _ in 0..topics {
            put_string(out, input.nullable_string()?.unwrap_or_default());
            let partitions = input.i32()?;
            put_count(out, partitions.max(0) as usize);
            for _ in 0..partitions {
                put(out, &input.i32()?.to_be_bytes());
                let length = input.i32()?.max(0) as usize;
                input.take(length)?;
                put(out, &[0; 2]);
                let offset = self.records.fetch_add(1, Ordering::Relaxed);
                put(out, &offset.to_be_bytes());
                put(out, &(-1i64).to_be_bytes());
                put(out, &0i64.to_be_bytes());
            }
        }
        put(out, &[0; 4]);
        Ok(())
    }
}

fn api_versions(version: i16, out: &mut Vec<u8>) {
    put(out, &[0; 2]);
    let flexible = version >= 3;
    if flexible {
        out.push(SPOKEN.len() as u8 + 1);
    } else {
        put_count(out, SPOKEN.len());
    }
    for (api, low, high) in SPOKEN {
        for value in [api, low, high] {
            put(out, &value.to_be_bytes());
        }
        if flexible {
            out.push(0);
        }
    }
    if version >= 1 {
        put(out, &[0; 4]);
    }
    if flexible {
        out.push(0);
    }
}

/// Reads a frame's body.
pub(crate) fn read_frame(stream: &mut TcpStream, body: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    body.resize(u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(body)
}

pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    put(out, &(count as i32).to_be_bytes());
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    put(out, &(text.len() as i16).to_be_bytes());
    put(out, text.as_bytes());
}

/// The unread rest of a message.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn i16(&mut self) -> io::Result<i16> {
        self.take(2).map(|b| i16::from_be_bytes([b[0], b[1]]))
    }

    pub(crate) fn i32(&mut self) -> io::Result<i32> {
        self.take(4).map(|b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    pub(crate) fn nullable_string(&mut self) -> io::Result<Option<&'a str>> {
        let Ok(length) = usize::try_from(self.i16()?) else { return Ok(None) };
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
