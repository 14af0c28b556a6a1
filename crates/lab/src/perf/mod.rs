//! The engines of `curtail perf`: [`produce`], [`consume`] and [`e2e`], after Kafka's three tools.
//!
//! Load is open loop where a rate is given: record `i` is due at `start + i / rate`, and its latency counts from
//! then, so that a stall is not hidden by the records that could not be sent meanwhile. The latency from the
//! actual send, which is what Kafka's tool shows, is reported beside it.

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
pub(crate) use target::client_runtime;
pub use target::{Embedded, Target, Topic};

/// Why a run ended without a report. One line that says what to do.
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
    /// Options that make no run.
    #[error("{0}")]
    Options(String),
    /// The operating system refused a thread or an event loop.
    #[error("cannot start the client's threads: {0}")]
    Threads(std::io::Error),
    /// The client that is measured has no such setting.
    #[error("{0}")]
    Lacking(String),
    /// What came back is not what was sent.
    #[error("{0}")]
    Unexpected(String),
    /// The run was told to end before its time.
    #[error("interrupted")]
    Interrupted,
}

/// A result with the lab's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
