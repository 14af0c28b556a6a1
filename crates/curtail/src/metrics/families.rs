//! The metrics of clients by family, for the formats of Prometheus and OpenTelemetry.
//!
//! A family has a name in Prometheus' style, whose suffix is the unit of its values: `_seconds`, `_bytes` or none. Counters end
//! with `_total`. A format implements [`Families`].

use super::{BrokerMetrics, ConsumerMetrics, Distribution, GroupMetrics, ProducerMetrics};

/// Nanoseconds, the unit of [`Distribution`], in a second, the unit of the families.
pub(super) const NANOS_IN_S: f64 = 1e9;

/// A family of samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// The meaning, as a sentence.
    pub(super) help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// A distribution of times.
    Times,
}

/// Names and values of a sample's labels.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// Receives the samples of clients.
pub(super) trait Families {
    /// Adds a sample of a counter or a gauge.
    fn number(&mut self, family: Family, labels: &Labels<'_>, value: f64);

    /// Adds a distribution, in nanoseconds.
    fn times(&mut self, family: Family, labels: &Labels<'_>, times: &Distribution);
}

fn counter(name: &'static str, help: &'static str) -> Family {
    Family { kind: Kind::Counter, name, help }
}

fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { kind: Kind::Gauge, name, help }
}

fn times(name: &'static str, help: &'static str) -> Family {
    Family { kind: Kind::Times, name, help }
}

/// Adds a producer's metrics.
pub(super) fn producer(out: &mut dyn Families, metrics: &ProducerMetrics) {
    let client = ("client_id", metrics.client_id.as_str());
    for (name, help, waits) in [
        (
            "curtail_producer_buffer_wait_seconds",
            "Time that sends waited for buffer.memory.",
            &metrics.buffer_wait,
        ),
        (
            "curtail_producer_window_wait_seconds",
            "Time that sends waited for room in a broker's window.",
            &metrics.window_wait,
        ),
        (
            "curtail_producer_metadata_wait_seconds",
            "Time that sends waited for the metadata of a topic.",
            &metrics.metadata_wait,
        ),
    ] {
        out.times(times(name, help), &[client], waits);
    }
    for (name, help, value) in [
        ("curtail_producer_buffer_bytes", "Size of buffer.memory.", metrics.buffer_total_bytes),
        (
            "curtail_producer_buffer_available_bytes",
            "Bytes of buffer.memory that no batch uses.",
            metrics.buffer_available_bytes,
        ),
    ] {
        out.number(gauge(name, help), &[client], value as f64);
    }
    outdated(out, "curtail_producer_certificates_outdated", client, metrics.certificates_outdated);
    let help = "Records refused or not acknowledged, including failed sends.";
    let failed = counter("curtail_producer_record_errors_total", help);
    out.number(failed, &[client], metrics.record_error_total as f64);
    for (id, broker) in &metrics.brokers {
        of_broker(out, &[client, ("broker", &id.to_string())], broker);
    }
}

fn outdated(
    out: &mut dyn Families,
    name: &'static str,
    client: (&str, &str),
    certificates_outdated: bool,
) {
    let help = "1 while the previous certificates stay in use because changed files cannot be used, otherwise 0.";
    out.number(gauge(name, help), &[client], f64::from(u8::from(certificates_outdated)));
}

fn of_broker(out: &mut dyn Families, labels: &[(&str, &str); 2], broker: &BrokerMetrics) {
    let help = "Time of batches by phase. queue: until the request is built; write: until the socket accepts it; request: until \
                the response; delivery: all of them.";
    for (phase, took) in broker.phases() {
        let labels = [labels[0], labels[1], ("phase", phase)];
        out.times(times("curtail_producer_phase_seconds", help), &labels, took);
    }
    for (name, help, total) in [
        ("curtail_producer_records_total", "Records acknowledged.", broker.record_send_total),
        (
            "curtail_producer_record_retries_total",
            "Records whose batches were queued for a retry.",
            broker.record_retry_total,
        ),
        (
            "curtail_producer_batches_refused_total",
            "Batches refused in a response, temporarily or permanently.",
            broker.batch_refused_total,
        ),
        ("curtail_producer_requests_total", "Requests built.", broker.request_total),
        ("curtail_producer_outgoing_bytes_total", "Bytes of requests.", broker.outgoing_byte_total),
        (
            "curtail_producer_connections_opened_total",
            "Connections opened.",
            broker.connection_creation_total,
        ),
    ] {
        out.number(counter(name, help), labels, total as f64);
    }
    let in_flight = gauge("curtail_producer_requests_in_flight", "Requests without a response.");
    out.number(in_flight, labels, broker.requests_in_flight as f64);
    let queued = gauge("curtail_producer_queue_bytes", "Bytes of batches waiting to be sent.");
    out.number(queued, labels, broker.queue_bytes as f64);
}

/// Adds a consumer's metrics.
pub(super) fn consumer(out: &mut dyn Families, metrics: &ConsumerMetrics) {
    let client = ("client_id", metrics.client_id.as_str());
    for (name, help, total) in [
        (
            "curtail_consumer_records_total",
            "Records returned by polls.",
            metrics.records_consumed_total,
        ),
        (
            "curtail_consumer_bytes_total",
            "Bytes of fetched records returned by polls, compressed.",
            metrics.bytes_consumed_total,
        ),
        (
            "curtail_consumer_connections_opened_total",
            "Connections opened to read from brokers.",
            metrics.connection_creation_total,
        ),
    ] {
        out.number(counter(name, help), &[client], total as f64);
    }
    let help = "Time that polls and streams waited for records.";
    let idle = metrics.poll_idle_time.as_secs_f64();
    out.number(counter("curtail_consumer_poll_idle_seconds_total", help), &[client], idle);
    outdated(out, "curtail_consumer_certificates_outdated", client, metrics.certificates_outdated);
    for (id, broker) in &metrics.brokers {
        let id = id.to_string();
        let labels = [client, ("broker", id.as_str())];
        let help = "Time of fetches by phase. fetch: from a request to its response, including the broker's wait for records; \
                    buffer: from a response until a poll returns its records.";
        for (phase, took) in broker.phases() {
            let labels = [labels[0], labels[1], ("phase", phase)];
            out.times(times("curtail_consumer_phase_seconds", help), &labels, took);
        }
        for (name, help, total) in [
            ("curtail_consumer_fetches_total", "Fetch responses.", broker.fetch_total),
            (
                "curtail_consumer_sessions_opened_total",
                "Fetch sessions requested.",
                broker.session_open_total,
            ),
        ] {
            out.number(counter(name, help), &labels, total as f64);
        }
    }
    for (at, partition) in &metrics.partitions {
        let index = at.partition.to_string();
        let labels = [client, ("topic", &*at.topic), ("partition", index.as_str())];
        let lag = gauge("curtail_consumer_lag_records", "Records not yet returned by a poll.");
        if let Some(records) = partition.lag {
            out.number(lag, &labels, records as f64);
        }
        let help = "Bytes fetched and not yet returned by a poll.";
        let buffered = gauge("curtail_consumer_buffer_bytes", help);
        out.number(buffered, &labels, partition.buffered_bytes as f64);
    }
    if let Some(group) = &metrics.group {
        of_group(out, client, group, metrics.partitions.len());
    }
}

/// Adds the metrics of a consumer's group.
fn of_group(
    out: &mut dyn Families,
    client: (&str, &str),
    group: &GroupMetrics,
    assigned_partitions: usize,
) {
    for (name, help, took) in [
        (
            "curtail_consumer_rebalance_seconds",
            "Time of rebalances, from the moment when the member learned of one until the program had its assignment.",
            &group.rebalance_latency,
        ),
        (
            "curtail_consumer_join_seconds",
            "Time from JoinGroup to its response, including the coordinator's wait for other members. Classic protocol only.",
            &group.join_time,
        ),
        (
            "curtail_consumer_sync_seconds",
            "Time from SyncGroup to its response, including the leader's time to assign. Classic protocol only.",
            &group.sync_time,
        ),
        (
            "curtail_consumer_heartbeat_seconds",
            "Time from a heartbeat to its response, including the connection.",
            &group.heartbeat_latency,
        ),
        (
            "curtail_consumer_commit_seconds",
            "Time from an OffsetCommit request to its response, including the connection and refusals.",
            &group.commit_latency,
        ),
    ] {
        out.times(times(name, help), &[client], took);
    }
    let help =
        "Execution time of the rebalance listener by event: revoked, assigned or lost partitions.";
    for (event, took) in [
        ("revoked", &group.partition_revoked_latency),
        ("assigned", &group.partition_assigned_latency),
        ("lost", &group.partition_lost_latency),
    ] {
        let labels = [client, ("event", event)];
        out.times(times("curtail_consumer_listener_seconds", help), &labels, took);
    }
    let help = "Rebalances that ended the membership instead of with an assignment.";
    let failed = counter("curtail_consumer_failed_rebalances_total", help);
    out.number(failed, &[client], group.failed_rebalance_total as f64);
    let assigned = gauge("curtail_consumer_assigned_partitions", "Assigned partitions.");
    out.number(assigned, &[client], assigned_partitions as f64);
    for (name, help, since) in [
        (
            "curtail_consumer_since_rebalance_seconds",
            "Time since the last rebalance that ended with an assignment; missing before the first one.",
            group.since_rebalance,
        ),
        (
            "curtail_consumer_since_heartbeat_seconds",
            "Time since the last heartbeat was sent; missing before the first one.",
            group.since_heartbeat,
        ),
    ] {
        if let Some(since) = since {
            out.number(gauge(name, help), &[client], since.as_secs_f64());
        }
    }
}
