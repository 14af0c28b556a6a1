//! The engines of `curtail perf`: [`produce`], [`consume`] and [`e2e`], after Kafka's three tools.
//!
//! With a rate, load is open loop: record `i` is due at `start + i / rate`, and its latency counts from then.
//! A stall therefore counts for every record that it delays. The latency from the actual send, which Kafka's
//! tool reports, is reported as well.

pub mod consume;
pub mod e2e;
mod pacer;
mod payload;
pub mod produce;
mod report;
mod target;

pub(crate) use pacer::{Pacer, sleep_precisely};
pub use payload::Payload;
pub use report::{Cost, Event, Interval, PhasesReport, Progress, Report, Window};
pub use target::{Embedded, Target, Topic};
pub(crate) use target::{application_runtime, client_runtime};

/// Reason of a run without a report: one line with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client failed.
    #[error(transparent)]
    Client(#[from] curtail::Error),
    /// The client's settings cannot be used.
    #[error(transparent)]
    Config(#[from] curtail::ConfigError),
    /// The embedded cluster did not start or stopped.
    #[error("the embedded cluster did not start: {0}")]
    Cluster(String),
    /// Invalid options.
    #[error("{0}")]
    Options(String),
    /// The operating system refused a thread or an event loop.
    #[error("cannot start the client's threads")]
    Threads(#[source] std::io::Error),
    /// The client that is measured has no such setting.
    #[error("{0}")]
    Lacking(String),
    /// A record came back changed.
    #[error("{0}")]
    Unexpected(String),
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// A result with the lab's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
