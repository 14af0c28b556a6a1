//! Names of metrics in OpenTelemetry: those of KIP-714 for metrics that Java's clients have, and a separate prefix for the
//! others, as the KIP requires.

/// Prefix of metrics that Java's clients have.
const JAVA: &str = "org.apache.kafka.";
/// Prefix of metrics that only this client has.
const OWN: &str = "curtail.";

/// Suffixes of a metric's figures that Java's clients have. Quantiles are not among them.
const SUFFIXES: [&str; 5] = ["-avg", "-max", "-rate-per-hour", "-rate", "-total"];

/// Metrics that Java's clients have, without suffixes, by group: those of `SenderMetricsRegistry`, `BufferPool`,
/// `KafkaProducerMetrics`, `Selector`, `KafkaConsumerMetrics`, `FetchMetricsRegistry`, `AbstractCoordinator` and
/// `ConsumerCoordinatorMetrics`.
const JAVAS: [(&str, &[&str]); 6] = [
    (
        "producer-metrics",
        &[
            "batch-size",
            "batch-split",
            "buffer-available-bytes",
            "buffer-exhausted",
            "buffer-total-bytes",
            "bufferpool-wait-time-ns",
            "connection-close",
            "connection-count",
            "connection-creation",
            "flush-time-ns",
            "incoming-byte",
            "metadata-wait-time-ns",
            "outgoing-byte",
            "produce-throttle-time",
            "record-error",
            "record-queue-time",
            "record-retry",
            "record-send",
            "records-per-request",
            "request",
            "request-latency",
            "request-size",
            "requests-in-flight",
            "response",
        ],
    ),
    (
        "producer-node-metrics",
        &[
            "incoming-byte",
            "outgoing-byte",
            "request",
            "request-latency",
            "request-size",
            "response",
        ],
    ),
    ("consumer-metrics", &["connection-creation", "poll-idle-ratio"]),
    (
        "consumer-fetch-manager-metrics",
        &[
            "bytes-consumed",
            "fetch",
            "fetch-latency",
            "fetch-size",
            "fetch-throttle-time",
            "records-consumed",
            "records-lag",
            "records-per-request",
        ],
    ),
    (
        "consumer-coordinator-metrics",
        &[
            "assigned-partitions",
            "commit",
            "commit-latency",
            "failed-rebalance",
            "heartbeat",
            "heartbeat-response-time",
            "join",
            "join-time",
            "last-heartbeat-seconds-ago",
            "last-rebalance-seconds-ago",
            "partition-assigned-latency",
            "partition-lost-latency",
            "partition-revoked-latency",
            "rebalance",
            "rebalance-latency",
            "sync",
            "sync-time",
        ],
    ),
    ("consumer-node-metrics", &["request-latency"]),
];

fn is_javas(group: &str, name: &str) -> bool {
    let stem = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    let of_group = JAVAS.iter().find(|(known, _)| *known == group);
    // Java has only the maximum.
    name != "heartbeat-response-time-avg"
        && of_group.is_some_and(|(_, stems)| stems.contains(&stem))
}

/// Appends the name in OpenTelemetry of a metric with a Kafka name, as Java's `TelemetryMetricNamingConvention` makes it:
/// `producer-metrics`, `record-send-rate` is `org.apache.kafka.producer.record.send.rate`.
pub(super) fn push_full_name(out: &mut String, group: &str, name: &str) {
    out.push_str(if is_javas(group, name) { JAVA } else { OWN });
    let group = group.strip_suffix("-metrics").unwrap_or(group);
    let dotted = group.chars().chain(['.']).chain(name.chars());
    out.extend(dotted.map(|letter| if letter == '-' { '.' } else { letter }));
}

/// Whether the metric is a counter. All others are current values.
pub(super) fn is_counter(name: &str) -> bool {
    name.ends_with("-total")
}
