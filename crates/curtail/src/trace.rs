//! Spans and W3C trace context (feature `tracing`).
//!
//! # Spans
//!
//! With the feature, the clients make spans of the crate [`tracing`] with the target [`TARGET`]. Fields
//! have the names of OpenTelemetry's conventions for messaging. The crate `tracing-opentelemetry` sends them to a collector: it
//! reads the fields `otel.*`.
//!
//! | span | level | begins and ends |
//! |---|---|---|
//! | `send` | `INFO` | `Producer::send` or `try_send`, until the `Delivery` has resolved or is dropped |
//! | `request` | `DEBUG` | a request until its response; its name in OpenTelemetry is the API's, such as `Produce` |
//! | `poll` | `INFO` | `Consumer::poll` or `poll_batch`; `RebalanceListener` runs inside it |
//! | `rebalance` | `INFO` | the member's first request until it has its partitions |
//! | `commit` | `INFO` | a commit of offsets, until the coordinator has responded |
//! | `transaction` | `INFO` | `begin_transaction`, until the transaction is committed or aborted |
//!
//! A failed span has `error.type`, which is Kafka's error code if a broker sent one, and `error` with all causes. The
//! span of the caller is the parent, except of `rebalance`, of Produce requests, which have records of many senders,
//! and of fetches. `send_tagged` and streams make no spans. Each record that is sent costs a span, so filter by target
//! or level where many are sent. A subscriber must not call the client: some spans begin and end under its locks.
//!
//! # Trace context
//!
//! [`InjectTraceContext`] is an interceptor that adds the context of the current span to each record, in the headers
//! `traceparent` and `tracestate`. [`TraceContext::of`] reads it from a received record. Both use a function of the
//! application, so that no version of OpenTelemetry's crates is fixed here:
//!
//! ```
//! use curtail::{ProducerConfig, trace::{InjectTraceContext, TraceContext}};
//!
//! # fn ids_of_the_current_span() -> ([u8; 16], [u8; 8], u8) { ([1; 16], [2; 8], 1) }
//! // With OpenTelemetry: `Span::current().context()`, and its `span().span_context()`.
//! let config = ProducerConfig::new("localhost:9092").interceptor(InjectTraceContext::new(|| {
//!     let (trace, span, flags) = ids_of_the_current_span();
//!     TraceContext::new(trace, span, flags)
//! }));
//! ```

use std::fmt;

use crate::{
    ConsumerRecord,
    producer::{OutgoingRecord, ProducerInterceptor},
};

/// Target of the spans.
pub const TARGET: &str = "curtail::spans";

/// Header of a record with the ids of a trace and a span.
pub const TRACEPARENT: &str = "traceparent";
/// Header of a record with the state of the trace's vendors.
pub const TRACESTATE: &str = "tracestate";

/// Longest `tracestate` that is carried, in bytes. W3C requires at least this much.
const STATE_MAX: usize = 512;

/// A trace context (W3C, level 1): the ids of a trace and of one of its spans. Its text is a `traceparent` of version
/// 00.
///
/// ```
/// use curtail::trace::TraceContext;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = TraceContext::parse(text).expect("valid");
/// assert!(context.is_sampled());
/// assert_eq!(context.to_string(), text);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
    state: String,
}

impl TraceContext {
    /// A context; `None` if an id is zero, which is invalid.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Option<Self> {
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then(|| Self { trace_id, span_id, flags, state: String::new() })
    }

    /// Sets the `tracestate`, which is passed on unchanged. If it has more than 512 bytes, it is left out.
    #[must_use]
    pub fn state(mut self, state: impl Into<String>) -> Self {
        self.state =
            Some(state.into()).filter(|state| state.len() <= STATE_MAX).unwrap_or_default();
        self
    }

    /// Reads a `traceparent`. `None` if it is invalid. A later version than 00 may have more parts, which are ignored.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let version: [u8; 1] = hexadecimal(parts.next()?)?;
        let (trace_id, span_id) = (hexadecimal(parts.next()?)?, hexadecimal(parts.next()?)?);
        let [flags] = hexadecimal(parts.next()?)?;
        if version == [0xff] || version == [0] && parts.next().is_some() {
            return None;
        }
        Self::new(trace_id, span_id, flags)
    }

    /// The context in a record's headers; `None` without a valid one.
    #[must_use]
    pub fn of(record: &ConsumerRecord) -> Option<Self> {
        let text = |name| record.header(name).and_then(|value| std::str::from_utf8(value).ok());
        let context = Self::parse(text(TRACEPARENT)?)?;
        Some(context.state(text(TRACESTATE).unwrap_or_default()))
    }

    /// The id of the trace.
    #[must_use]
    pub fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The id of the span that is the parent of what follows.
    #[must_use]
    pub fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// The flags. Bit 0 says that the trace is sampled.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether the trace is sampled.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// The `tracestate`; empty without one.
    #[must_use]
    pub fn trace_state(&self) -> &str {
        &self.state
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", self.flags)
    }
}

/// Reads `2 * N` lower-case hexadecimal digits.
fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Adds the current trace context to records that have none. The function returns it; it runs on the sending task,
/// within the span `send`.
pub struct InjectTraceContext<F>(F);

impl<F> InjectTraceContext<F>
where
    F: Fn() -> Option<TraceContext> + Send + Sync + 'static,
{
    /// An interceptor for [`ProducerConfig::interceptor`](crate::ProducerConfig::interceptor).
    pub fn new(current: F) -> Self {
        Self(current)
    }
}

impl<F> ProducerInterceptor for InjectTraceContext<F>
where
    F: Fn() -> Option<TraceContext> + Send + Sync + 'static,
{
    fn on_send(&self, record: &mut OutgoingRecord<'_>) {
        if record.headers.iter().any(|header| header.key == TRACEPARENT) {
            return;
        }
        let Some(context) = (self.0)() else { return };
        record.push_header(TRACEPARENT, context.to_string());
        if !context.state.is_empty() {
            record.push_header(TRACESTATE, context.state);
        }
    }
}

impl<F> fmt::Debug for InjectTraceContext<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InjectTraceContext").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_alike() {
        let context = TraceContext::parse(TEXT).unwrap();
        assert_eq!(context.to_string(), TEXT);
        assert_eq!(context.trace_id()[..2], [0x4b, 0xf9]);
        assert_eq!((context.span_id()[7], context.flags()), (0xb7, 1));
        assert!(!TraceContext::parse(&TEXT.replace("-01", "-00")).unwrap().is_sampled());
        // A later version may have more parts, and is written as version 00.
        let later = TEXT.replacen("00", "cc", 1) + "-more";
        assert_eq!(TraceContext::parse(&later).unwrap().to_string(), TEXT);
    }

    #[test]
    fn invalid_traceparents_are_refused() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        for text in [
            "",
            "00",
            zero_trace,
            zero_span,
            &TEXT.to_uppercase(),
            &TEXT.replacen("00", "ff", 1),
            &TEXT[..TEXT.len() - 1],
            &format!("{TEXT}-"),
            &format!("{TEXT} "),
            &TEXT.replace("4b", "4g"),
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_overlong_state_is_left_out() {
        let context = TraceContext::parse(TEXT).unwrap();
        assert_eq!(context.clone().state("a=1").trace_state(), "a=1");
        assert_eq!(context.state("a".repeat(513)).trace_state(), "");
    }
}
