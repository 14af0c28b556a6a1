//! Failures of measurements.

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
