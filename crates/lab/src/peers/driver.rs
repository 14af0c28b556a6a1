//! Runs drivers: a process that receives an order, reports when it is ready, and begins at a given time.

pub(crate) mod follow;

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, Read, Write as _},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde::{Deserialize, de::DeserializeOwned};
use tempfile::TempDir;

use super::{
    Peer,
    fates::{self, Told},
};
use crate::{
    cpu::CpuTime,
    perf::{Error, Result, sleep_precisely},
};

/// Longest start of a driver, without its warm-up.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Longest time to look up a large number of topics.
const TOPICS_LIMIT: Duration = Duration::from_secs(900);
/// Longest time to end after the last record was due: longer than any client waits for an acknowledgement.
const END_LIMIT: Duration = Duration::from_secs(420);
/// Longest time from the end of a driver's output to the end of its process.
const EXIT_LIMIT: Duration = Duration::from_secs(30);
/// Time from the `go` line to the start, so that the line arrives in time.
const LEAD: Duration = Duration::from_millis(20);
/// Lines of the driver's stderr in an error.
const TAIL: usize = 6;

/// A built driver of another client.
#[derive(Clone, Debug)]
pub struct Driver {
    peer: Peer,
    command: Vec<OsString>,
}

/// End of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Acknowledged,
    /// A consumer of the same client has read the record.
    Read,
}

/// Order of a load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) bootstrap: String,
    pub(crate) topic: String,
    /// Measured records.
    pub(crate) records: u64,
    /// Warm-up records, which are not reported.
    pub(crate) warmup: u64,
    pub(crate) rate: f64,
    pub(crate) size: usize,
    /// Number of different keys; `None` for keyless records.
    pub(crate) keys: Option<u64>,
    pub(crate) senders: InTurn,
    pub(crate) until: Until,
    pub(crate) seed: u64,
    pub(crate) properties: Vec<(String, String)>,
}

/// Producers and partitions of a load's records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InTurn {
    /// Producers, which send in turn.
    pub(crate) producers: usize,
    /// Partitions of the records, in turn; empty if the producers choose.
    pub(crate) partitions: Vec<i32>,
    /// Records that are due at the same time.
    pub(crate) burst: u64,
}

impl InTurn {
    fn flags(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.producers > 1 {
            words.extend(flags(&[("--producers", self.producers.to_string())]));
        }
        if !self.partitions.is_empty() {
            let list: Vec<String> = self.partitions.iter().map(i32::to_string).collect();
            words.extend(flags(&[("--to-partitions", list.join(","))]));
        }
        if self.burst > 1 {
            words.extend(flags(&[("--burst", self.burst.to_string())]));
        }
        words
    }
}

/// Order of round trips: one record after the other, from the send to the poll.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoundTrips {
    pub(crate) bootstrap: String,
    pub(crate) topic: String,
    pub(crate) records: u64,
    pub(crate) warmup: u64,
    pub(crate) size: usize,
    pub(crate) acks: &'static str,
    pub(crate) properties: Vec<(String, String)>,
}

/// Order of `send` calls while metadata of a large number of partitions changes. Only the Java drivers
/// support it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Churn {
    pub(crate) bootstrap: String,
    pub(crate) topics: usize,
    pub(crate) partitions: usize,
    pub(crate) senders: u32,
    /// Measured records of each sender.
    pub(crate) records: u64,
    pub(crate) warmup: u64,
    /// Records per second of each sender.
    pub(crate) rate: f64,
    pub(crate) size: usize,
    pub(crate) seed: u64,
    pub(crate) properties: Vec<(String, String)>,
}

/// Order to read a topic from its beginning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) bootstrap: String,
    pub(crate) topic: String,
    pub(crate) records: u64,
}

/// A topic that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drained {
    pub(crate) records: u64,
    /// Bytes of their values.
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) cpu: CpuTime,
}

/// Measurements of a driver.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) fates: Vec<Told>,
    pub(crate) cpu: CpuTime,
    /// The first error of a record.
    pub(crate) first_error: Option<String>,
}

/// The driver's JSON, as far as it is not in the fates.
#[derive(Deserialize)]
struct Cost {
    cpu_user_us: u64,
    cpu_system_us: u64,
}

/// The driver's JSON without fates.
#[derive(Deserialize)]
struct Totals {
    records: u64,
    /// Mean number of bytes.
    record_size: f64,
    seconds: f64,
    #[serde(flatten)]
    cost: Cost,
}

impl Cost {
    fn cpu(&self) -> CpuTime {
        CpuTime {
            user: Duration::from_micros(self.cpu_user_us),
            system: Duration::from_micros(self.cpu_system_us),
        }
    }
}

/// A rate that no client reaches, for drivers, whose loads need one.
const UNLIMITED: f64 = 1e9;

impl Order {
    fn arguments(&self) -> Vec<String> {
        let Self { bootstrap, topic, records, warmup, rate, size, keys, .. } = self;
        let Self { senders, until, seed, properties, .. } = self;
        let mut words = flags(&[
            ("--bootstrap-server", bootstrap.clone()),
            ("--topic", topic.clone()),
            ("--num-records", (records + warmup).to_string()),
            ("--warmup-records", warmup.to_string()),
            ("--throughput", rate.min(UNLIMITED).to_string()),
            ("--record-size", size.to_string()),
            ("--seed", seed.to_string()),
        ]);
        if let Some(keys) = keys {
            words.extend(flags(&[("--keys", keys.to_string())]));
        }
        words.extend(senders.flags());
        if *until == Until::Read {
            words.extend(flags(&[("--until", "read".into())]));
        }
        words.extend(settings(properties));
        words.insert(0, "load".into());
        words
    }
}

impl Reading {
    fn arguments(&self) -> Vec<String> {
        let mut words = flags(&[
            ("--bootstrap-server", self.bootstrap.clone()),
            ("--topic", self.topic.clone()),
            ("--num-records", self.records.to_string()),
        ]);
        words.insert(0, "consume".into());
        words
    }
}

impl Churn {
    fn arguments(&self) -> Vec<String> {
        let mut words = flags(&[
            ("--bootstrap-server", self.bootstrap.clone()),
            ("--topics", self.topics.to_string()),
            ("--partitions", self.partitions.to_string()),
            ("--senders", self.senders.to_string()),
            ("--num-records", (self.records + self.warmup).to_string()),
            ("--warmup-records", self.warmup.to_string()),
            ("--throughput", self.rate.to_string()),
            ("--record-size", self.size.to_string()),
            ("--seed", self.seed.to_string()),
        ]);
        words.extend(settings(&self.properties));
        words.insert(0, "churn".into());
        words
    }
}

/// Time to send this number of records.
fn length(records: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(records as f64 / rate)
}

impl RoundTrips {
    fn arguments(&self) -> Vec<String> {
        let Self { bootstrap, topic, records, warmup, size, acks, properties } = self;
        let mut words = flags(&[
            ("--bootstrap-server", bootstrap.clone()),
            ("--topic", topic.clone()),
            ("--num-records", (records + warmup).to_string()),
            ("--warmup-records", warmup.to_string()),
            ("--record-size", size.to_string()),
            ("--producer-acks", (*acks).to_owned()),
        ]);
        words.extend(settings(properties));
        words.insert(0, "e2e".into());
        words
    }
}

fn flags(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]).collect()
}

fn settings(properties: &[(String, String)]) -> impl Iterator<Item = String> {
    let pairs = properties.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.flat_map(|pair| ["--command-property".to_owned(), pair])
}

impl Driver {
    /// A driver that this command starts.
    pub(crate) fn new(peer: Peer, command: Vec<OsString>) -> Self {
        Self { peer, command }
    }

    /// Returns the client that this driver runs.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Starts the driver and returns when it is ready to send the first measured record.
    pub(crate) fn load(&self, order: &Order) -> Result<Ready> {
        let ready = READY_LIMIT + 2 * length(order.warmup, order.rate);
        let end = 2 * length(order.records, order.rate) + END_LIMIT;
        self.start(order.arguments(), order.records, ready, end)
    }

    /// As [`Self::load`]; ready when the client knows all topics.
    pub(crate) fn churn(&self, churn: &Churn) -> Result<Ready> {
        let end = 2 * length(churn.records + churn.warmup, churn.rate) + END_LIMIT;
        let records = u64::from(churn.senders) * churn.records;
        self.start(churn.arguments(), records, TOPICS_LIMIT, end)
    }

    /// Starts the driver and waits at most `limit` until it is ready. From `go` on, it must end within `end`.
    fn start(
        &self,
        arguments: Vec<String>,
        records: u64,
        limit: Duration,
        end: Duration,
    ) -> Result<Ready> {
        let mut running = Running::start(self, arguments)?;
        match running.lines.recv_timeout(limit) {
            Ok(line) if line == "ready" => {}
            Ok(line) => return Err(running.failed(&format!("says {line:?} instead of \"ready\""))),
            Err(RecvTimeoutError::Timeout) => {
                return Err(running.failed(&format!("is not ready after {limit:?}")));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(running.ended()),
        }
        Ok(Ready { running, records, limit: end })
    }

    /// Runs round trips to their end.
    pub(crate) fn round_trips(&self, trips: &RoundTrips) -> Result<Measured> {
        let running = Running::start(self, trips.arguments())?;
        // One record may take a minute, but not all of them.
        let all = u32::try_from(trips.records + trips.warmup).unwrap_or(u32::MAX);
        let limit = END_LIMIT + Duration::from_millis(100) * all;
        running.finish(trips.records, limit)
    }

    /// Reads a topic from its beginning to the last record.
    pub(crate) fn read(&self, reading: &Reading) -> Result<Drained> {
        let mut running = Running::start(self, reading.arguments())?;
        running.wait(END_LIMIT)?;
        let totals = running.figures();
        let totals = totals.map_err(|reason| running.failed(&format!("has written {reason}")))?;
        let Totals { records, record_size, seconds, cost } = totals;
        Ok(Drained {
            records,
            bytes: (records as f64 * record_size) as u64,
            elapsed: Duration::from_secs_f64(seconds),
            cpu: cost.cpu(),
        })
    }
}

/// A driver that waits for `go`.
pub(crate) struct Ready {
    running: Running,
    records: u64,
    limit: Duration,
}

/// Returns the time of CLOCK_MONOTONIC, to which the start times of drivers refer.
#[cfg(unix)]
fn monotonic_clock() -> Result<Duration> {
    use nix::time::{ClockId, clock_gettime};

    let clock = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_err(|error| Error::Unexpected(format!("the clock cannot be read: {error}")))?;
    Ok(Duration::from(clock))
}

#[cfg(not(unix))]
fn monotonic_clock() -> Result<Duration> {
    Err(Error::Unexpected("drivers of other clients run only on Unix".into()))
}

/// A driver process that is sending records.
pub(crate) struct Sending(Ready);

impl Ready {
    /// Sends `go`; returns when the first record is due.
    pub(crate) fn go(self) -> Result<(Sending, Instant)> {
        let start = Instant::now() + LEAD;
        Ok((self.go_at(start)?, start))
    }

    /// Sends `go` with a given start, which may have passed.
    pub(crate) fn go_at(mut self, start: Instant) -> Result<Sending> {
        let (clock, now) = (monotonic_clock()?, Instant::now());
        let nanos = (clock + start.saturating_duration_since(now))
            .saturating_sub(now.saturating_duration_since(start))
            .as_nanos();
        let told = self.running.stdin.as_mut().map(|stdin| writeln!(stdin, "go {nanos}"));
        if !matches!(told, Some(Ok(()))) {
            return Err(self.running.ended());
        }
        Ok(Sending(self))
    }
}

impl Sending {
    /// Waits until every record is acknowledged or has failed.
    pub(crate) fn finish(self) -> Result<Measured> {
        let Ready { running, records, limit } = self.0;
        running.finish(records, limit)
    }
}

/// The process of a driver, which is killed when this is dropped.
struct Running {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// All lines of its stderr, once it is closed.
    said: Option<JoinHandle<Vec<String>>>,
    /// Folder of its fates and figures.
    folder: TempDir,
}

const FATES: &str = "fates";
const JSON: &str = "json";

impl Running {
    fn start(driver: &Driver, arguments: Vec<String>) -> Result<Self> {
        let (name, command) = (driver.peer.name(), &driver.command);
        let cannot = |error| Error::Options(format!("{name} does not start: {error}"));
        let folder = tempfile::Builder::new().prefix("curtail-peer-").tempdir().map_err(cannot)?;
        let [program, words @ ..] = &command[..] else {
            return Err(Error::Options(format!("{name} has no command")));
        };
        // The driver inherits this: its sleeps are as precise as those of this process.
        sleep_precisely();
        let mut child = Command::new(program)
            .args(words)
            .args(arguments)
            .arg("--fates")
            .arg(folder.path().join(FATES))
            .arg("--json")
            .arg(folder.path().join(JSON))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            // A receiver that is gone ends the run.
            std::thread::spawn(move || each_line(stdout, |line| sender.send(line).is_ok()));
        }
        let said = child.stderr.take().map(|stderr| {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                each_line(stderr, |line| {
                    all.push(line);
                    true
                });
                all
            })
        });
        let stdin = child.stdin.take();
        Ok(Self { name, child, stdin, lines, said, folder })
    }

    /// Waits for its end and reads its output.
    fn finish(mut self, records: u64, limit: Duration) -> Result<Measured> {
        self.wait(limit)?;
        self.read(records).map_err(|reason| self.failed(&format!("has written {reason}")))
    }

    /// Waits for its end.
    fn wait(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                // Figures for users.
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failed(&format!("has not ended after {limit:?}")));
                }
            }
        }
        if self.exit().is_none_or(|status| !status.success()) {
            return Err(self.ended());
        }
        Ok(())
    }

    fn file(&self, name: &str) -> Result<Vec<u8>, String> {
        fs::read(self.folder.path().join(name)).map_err(|error| format!("no {name}: {error}"))
    }

    fn figures<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.file(JSON)?)
            .map_err(|error| format!("unreadable figures: {error}"))
    }

    fn read(&mut self, records: u64) -> Result<Measured, String> {
        let cpu = self.figures::<Cost>()?.cpu();
        let fates = fates::read(&self.file(FATES)?, records).map_err(|error| error.to_string())?;
        let said = self.stderr();
        let first = said.iter().find_map(|line| line.strip_prefix("first error: "));
        Ok(Measured { fates, cpu, first_error: first.map(str::to_owned) })
    }

    /// Its exit status once it has closed its output; `None` if it keeps running.
    fn exit(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + EXIT_LIMIT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// The error for a driver that ended early.
    fn ended(&mut self) -> Error {
        match self.exit() {
            Some(status) => self.failed(&format!("has ended ({status})")),
            None => self.failed("has closed its output and keeps running"),
        }
    }

    /// Kills the driver and returns an error with its last stderr lines.
    fn failed(&mut self, what: &str) -> Error {
        self.kill();
        let said = self.stderr();
        let said: Vec<&str> =
            said.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
        let said = match &said[said.len().saturating_sub(TAIL)..] {
            [] => "nothing".to_owned(),
            last => last.join(" | "),
        };
        Error::Unexpected(format!("the driver of {} {what}; last stderr lines: {said}", self.name))
    }

    /// All lines of its stderr. Call it only after the process has ended.
    fn stderr(&mut self) -> Vec<String> {
        self.said.take().and_then(|said| said.join().ok()).unwrap_or_default()
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Passes on every line of a stream while `wanted` returns `true`. Invalid UTF-8 is replaced.
fn each_line(stream: impl Read, mut wanted: impl FnMut(String) -> bool) {
    for line in BufReader::new(stream).split(b'\n') {
        let Ok(line) = line else { return };
        let text = String::from_utf8_lossy(&line);
        if !wanted(text.trim_end().to_owned()) {
            return;
        }
    }
}
