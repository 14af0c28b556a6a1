//! What clients do: counters for `/metrics`, and the lines of `--trace`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::Duration,
};

use curtail_cluster::{HandledRequest, Observer};
use tokio::{sync::oneshot, time::Instant};

use super::target::Target;
use crate::output;

/// Pairs of client id and API with separate counters. A client may invent any number of ids.
const MOST_CLIENTS: usize = 1000;
/// Client id of the counters of all others.
const OTHERS: &str = "(others)";
/// Lines of the trace that wait to be written. Further ones are counted.
const TRACE_QUEUE: usize = 64 * 1024;

/// Counts requests, and traces them if asked to.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    counts: Mutex<BTreeMap<(String, &'static str), Count>>,
    trace: Option<Trace>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    requests: u64,
    received: u64,
    sent: u64,
    time: Duration,
}

impl Requests {
    /// Writes a line for each request to standard error.
    pub(crate) fn traced() -> Self {
        Self { trace: Some(Trace::start(output::note)), ..Self::default() }
    }

    /// Waits until the lines so far are written.
    pub(crate) async fn written(&self) {
        if let Some(trace) = &self.trace {
            trace.written().await;
        }
    }
}

impl Observer for Requests {
    fn appended(&self, _: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {}

    fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {}

    fn handled(&self, request: &HandledRequest<'_>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (request.client_id.to_owned(), request.api.name());
        if counts.len() >= MOST_CLIENTS && !counts.contains_key(&key) {
            OTHERS.clone_into(&mut key.0);
        }
        let count = counts.entry(key).or_default();
        count.requests += 1;
        count.received += request.received as u64;
        count.sent += request.sent as u64;
        count.time += request.time;
        drop(counts);
        if let Some(trace) = &self.trace {
            trace.write(line(request));
        }
    }

    fn disconnected(&self, broker: i32, peer: IpAddr, reason: &str) {
        if let Some(trace) = &self.trace {
            trace.write(format!("broker={broker} peer={peer} closed: {}", reason.escape_debug()));
        }
    }
}

/// A thread that prints: a broker must not wait for the terminal.
#[derive(Debug)]
struct Trace {
    entries: SyncSender<Entry>,
    lost: AtomicU64,
}

#[derive(Debug)]
enum Entry {
    Line(String),
    /// Answered when the earlier lines are written.
    Mark(oneshot::Sender<()>),
}

impl Trace {
    fn start(write: impl Fn(String) + Send + 'static) -> Self {
        let (entries, queue) = mpsc::sync_channel(TRACE_QUEUE);
        thread::spawn(move || print(&queue, write));
        Self { entries, lost: AtomicU64::new(0) }
    }

    fn write(&self, mut line: String) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line = format!("{lost} lines before this one were lost\n{line}");
        }
        if self.entries.try_send(Entry::Line(line)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    async fn written(&self) {
        let entries = self.entries.clone();
        let (mark, passed) = oneshot::channel();
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let sent = tokio::task::spawn_blocking(move || {
            // Both wait for room in the queue.
            if lost > 0 {
                entries.send(Entry::Line(format!("{lost} lines before the end were lost")))?;
            }
            entries.send(Entry::Mark(mark))
        });
        if let Ok(Ok(())) = sent.await {
            // Fails only if the thread has panicked.
            let _ = passed.await;
        }
    }
}

fn print(queue: &Receiver<Entry>, write: impl Fn(String)) {
    while let Ok(entry) = queue.recv() {
        match entry {
            Entry::Line(line) => write(line),
            // The receiver may have been dropped.
            Entry::Mark(passed) => drop(passed.send(())),
        }
    }
}

fn line(request: &HandledRequest<'_>) -> String {
    let HandledRequest { broker, client_id, api, version, received, sent, .. } = request;
    let micros = request.time.as_micros();
    let ends = if request.closes { " closed" } else { "" };
    let client = client_id.escape_debug();
    format!(
        "broker={broker} client=\"{client}\" peer={} api={} version={version} received={received} sent={sent} \
         time_us={micros}{ends}",
        request.peer,
        api.name()
    )
}

/// Writes all counters as Prometheus text.
pub(super) fn text(target: &Target, requests: &Requests) -> String {
    let counts = requests.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: Vec<(String, String)>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    };
    let of = |value: fn(&Count) -> String| {
        counts
            .iter()
            .map(|((client, api), count)| {
                (format!("client_id=\"{}\",api=\"{api}\"", escaped(client)), value(count))
            })
            .collect::<Vec<_>>()
    };
    let counter = "counter";
    family(
        "curtail_requests_total",
        counter,
        "Requests that the brokers have handled.",
        of(|count| count.requests.to_string()),
    );
    family(
        "curtail_request_bytes_total",
        counter,
        "Bytes of requests.",
        of(|count| count.received.to_string()),
    );
    family(
        "curtail_response_bytes_total",
        counter,
        "Bytes of responses.",
        of(|count| count.sent.to_string()),
    );
    family(
        "curtail_request_seconds_total",
        counter,
        "Time from requests to their responses, with the delays of faults.",
        of(|count| count.time.as_secs_f64().to_string()),
    );
    let faults = target.faults();
    let hits = faults.iter().map(|fault| {
        let labels = format!("name=\"{}\",kind=\"{}\"", fault.name, fault.fault.kind());
        (labels, fault.hits.to_string())
    });
    family(
        "curtail_fault_hits",
        "gauge",
        "Requests, topics or partitions that a fault has affected.",
        hits.collect(),
    );
    let brokers = target.brokers();
    let up =
        brokers.iter().map(|b| (format!("broker=\"{}\"", b.id), u8::from(b.running).to_string()));
    family("curtail_broker_running", "gauge", "Whether the broker's process runs.", up.collect());
    text
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn the_trace_is_written_to_its_end() {
        let written = Arc::<Mutex<Vec<String>>>::default();
        let trace = Trace::start({
            let written = Arc::clone(&written);
            move |line| written.lock().unwrap().push(line)
        });
        let lines: Vec<_> = (0..10_000).map(|line| line.to_string()).collect();
        for line in &lines {
            trace.write(line.clone());
        }
        trace.written().await;
        assert_eq!(*written.lock().unwrap(), lines);
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
