//! Errors of a cluster or a tool.

use std::path::PathBuf;
use std::time::Duration;

use crate::toolchain::Missing;

/// A cluster or a tool that could not be started, stopped or waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Java, Maven or the jars are not available.
    #[error(transparent)]
    Missing(#[from] Missing),

    /// An operation on a file, a port or a process failed.
    #[error("cannot {what}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        source: std::io::Error,
    },

    /// The builder's settings cannot be started.
    #[error("{0}")]
    Invalid(String),

    /// A broker ended before it was ready, or was not ready in time.
    #[error("broker {index} {what}; the end of its log:\n{log_tail}")]
    Broker {
        /// The broker's index, from 0.
        index: usize,
        /// The broker's failure.
        what: String,
        /// The last lines of its log.
        log_tail: String,
    },

    /// An operation needs a running broker and this one is not running, or vice versa.
    #[error("broker {index} is {state}")]
    State {
        /// The broker's index, from 0.
        index: usize,
        /// `running` or `not running`.
        state: &'static str,
    },

    /// A tool did not end within its limit and was killed.
    #[error("{class} did not end within {limit:?} and was killed; its output so far:\n{output}")]
    ToolTimeout {
        /// The tool's class.
        class: String,
        /// The limit on its wall time.
        limit: Duration,
        /// What it had printed on both streams.
        output: String,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn file(
        verb: &str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        Self::io(format!("{verb} {}", path.into().display()))
    }
}
