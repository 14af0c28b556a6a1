//! Spans of the calls and requests of the clients, with the names of OpenTelemetry (feature `tracing`).
//!
//! Without the feature, a [`Span`] has no size and its functions do nothing. Callers therefore need no condition.

#[cfg(feature = "tracing")]
mod on;
#[cfg(feature = "tracing")]
pub(crate) use self::on::Span;

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(not(feature = "tracing"))]
pub(crate) use self::off::Span;
