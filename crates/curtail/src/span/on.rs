//! Spans of the crate `tracing`.
//!
//! The fields `otel.*` are those that the crate `tracing-opentelemetry` reads: name, kind and status of a span.

use std::{future::Future, io, net::SocketAddr};

use curtail_wire::{ApiKey, ErrorCode};
use tracing::{
    Instrument,
    field::{Empty, display},
    instrument::Instrumented,
};

use crate::{Error, Record, RecordMetadata, Result, conn::parse_address, trace::TARGET};

/// A span that has begun. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Span(tracing::Span);

impl Default for Span {
    fn default() -> Self {
        Self::NONE
    }
}

/// A span with the fields that all have. `tracing` needs the names of fields at compile time, hence a macro.
macro_rules! span {
    ($level:ident, $client:expr, $(parent: $parent:expr,)? $name:literal, $($fields:tt)*) => {
        tracing::$level!(
            target: TARGET,
            $(parent: $parent,)?
            $name,
            otel.status_code = Empty,
            messaging.system = "kafka",
            messaging.client.id = $client,
            error.type = Empty,
            error = Empty,
            $($fields)*
        )
    };
}

impl Span {
    /// No span.
    pub(crate) const NONE: Self = Self(tracing::Span::none());

    /// A send, until the outcome of its record is known.
    pub(crate) fn send(client: &str, record: &Record<'_>) -> Self {
        let topic = record.topic;
        Self(span!(
            info_span, client,
            "send",
            otel.name = %format_args!("send {topic}"),
            otel.kind = "producer",
            messaging.operation.name = "send",
            messaging.operation.type = "send",
            messaging.destination.name = topic,
            messaging.destination.partition.id = record.partition.map(display),
            messaging.kafka.offset = Empty,
            messaging.kafka.message.tombstone = record.value.is_none().then_some(true),
        ))
    }

    /// A request that is not a Produce request, to the broker `host:port`.
    pub(crate) fn request(client: &str, peer: &str, api: ApiKey) -> Self {
        let (host, port) = parse_address(peer).unwrap_or((peer, 0));
        Self(span!(
            debug_span,
            client,
            "request",
            otel.name = api.name(),
            otel.kind = "client",
            messaging.operation.name = api.name(),
            server.address = host,
            server.port = port,
        ))
    }

    /// A Produce request. It is no part of a send: it has records of many, and any of their tasks may write it.
    pub(crate) fn produce(
        client: &str,
        peer: impl FnOnce() -> io::Result<SocketAddr>,
        records: impl FnOnce() -> u64,
    ) -> Self {
        let span = span!(
            debug_span, client,
            parent: None,
            "request",
            otel.name = "Produce",
            otel.kind = "client",
            messaging.operation.name = "Produce",
            messaging.operation.type = "send",
            messaging.batch.message_count = Empty,
            server.address = Empty,
            server.port = Empty,
        );
        if !span.is_disabled() {
            span.record("messaging.batch.message_count", records());
            if let Ok(peer) = peer() {
                span.record("server.address", display(peer.ip()));
                span.record("server.port", peer.port());
            }
        }
        Self(span)
    }

    /// A poll.
    pub(crate) fn poll(client: &str, group: Option<&str>) -> Self {
        Self(span!(
            info_span, client,
            "poll",
            otel.kind = "client",
            messaging.operation.name = "poll",
            messaging.operation.type = "receive",
            messaging.consumer.group.name = group,
            messaging.batch.message_count = Empty,
        ))
    }

    /// A rebalance, from the first request until the member has its partitions.
    pub(crate) fn rebalance(client: &str, group: &str) -> Self {
        Self(span!(
            info_span, client,
            parent: None,
            "rebalance",
            otel.kind = "internal",
            messaging.operation.name = "rebalance",
            messaging.consumer.group.name = group,
        ))
    }

    /// A commit of offsets, from the call until the coordinator's response.
    pub(crate) fn commit(client: &str, group: Option<&str>, partitions: usize) -> Self {
        Self(span!(
            info_span, client,
            "commit",
            otel.kind = "client",
            messaging.operation.name = "commit",
            messaging.operation.type = "settle",
            messaging.consumer.group.name = group,
            partitions,
        ))
    }

    /// A transaction, until it is committed or aborted.
    pub(crate) fn transaction(client: &str, id: Option<&str>) -> Self {
        Self(span!(
            info_span,
            client,
            "transaction",
            otel.kind = "internal",
            messaging.operation.name = "transaction",
            transactional.id = id,
        ))
    }

    /// Records the number of records that a poll returns.
    pub(crate) fn received(&self, records: usize) {
        self.0.record("messaging.batch.message_count", records);
    }

    /// Records the outcome of a send's record, and ends the span.
    pub(crate) fn delivered(&mut self, outcome: &Result<RecordMetadata>) {
        match outcome {
            Ok(written) => {
                self.0.record("messaging.destination.partition.id", display(written.partition));
                if let Some(offset) = written.offset {
                    self.0.record("messaging.kafka.offset", offset);
                }
            }
            Err(error) => self.failed(error),
        }
        *self = Self::NONE;
    }

    /// Records the error code in a response, if it has one.
    pub(crate) fn refused(&self, code: impl FnOnce() -> Option<ErrorCode>) {
        if !self.0.is_disabled()
            && let Some(code) = code()
        {
            self.error(code.name(), &code);
        }
    }

    /// Records a failure.
    pub(crate) fn failed(&self, error: &Error) {
        if !self.0.is_disabled() {
            self.error(kind_of(error), &error.report());
        }
    }

    /// Records that the work ended without a result.
    pub(crate) fn broken_off(&self, why: &'static str) {
        self.error(why, &why);
    }

    fn error(&self, kind: &str, text: &dyn std::fmt::Display) {
        self.0.record("otel.status_code", "ERROR");
        self.0.record("error.type", kind);
        self.0.record("error", display(text));
    }

    /// Ends the span.
    pub(crate) fn end(self) {
        drop(self);
    }

    /// Records the failure, if the result is one.
    pub(crate) fn end_of<T>(&self, result: &Result<T>) {
        if let Err(error) = result {
            self.failed(error);
        }
    }

    /// Runs code within the span.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.in_scope(work)
    }

    /// Polls a future within the span.
    pub(crate) fn wrap<F: Future>(&self, future: F) -> Instrumented<F> {
        future.instrument(self.0.clone())
    }
}

/// `error.type`: Kafka's error code if a broker sent one, and otherwise the kind of the error.
fn kind_of(error: &Error) -> &'static str {
    if let Some(code) = error.code() {
        return code.name();
    }
    match error {
        Error::Config(_) => "config",
        Error::Unreachable { .. } => "unreachable",
        Error::Connection { .. } => "connection",
        Error::Authentication { .. } => "authentication",
        Error::Protocol { .. } => "protocol",
        Error::UnsupportedVersion(_) => "unsupported_version",
        Error::UnknownTopic(_) => "unknown_topic",
        Error::UnknownPartition { .. } => "unknown_partition",
        Error::RecordTooLarge { .. } => "record_too_large",
        Error::BufferFull { .. } => "buffer_full",
        Error::Timeout { .. } => "timeout",
        Error::Broker { .. } => "broker",
        Error::NotAcknowledged { cause, .. }
        | Error::TransactionAbortable { cause }
        | Error::TransactionFatal { cause } => kind_of(cause),
        Error::TransactionAborted => "transaction_aborted",
        Error::CommitFailed { .. } => "commit_failed",
        Error::Corrupt { .. } => "corrupt",
        Error::OffsetOutOfRange { .. } => "offset_out_of_range",
        Error::LogTruncated { .. } => "log_truncated",
        Error::ResponseTooLarge { .. } => "response_too_large",
        Error::Thread { .. } => "thread",
        Error::IllegalState(_) => "illegal_state",
        Error::Closed => "closed",
    }
}
