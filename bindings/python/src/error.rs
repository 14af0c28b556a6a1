//! Errors of the clients as exceptions of `curtail_kafka.errors`.

use std::time::Duration;

use curtail::{
    Error, ErrorCode,
    error::{BatchProblem, ConnectionProblem},
};
use pyo3::{intern, prelude::*, types::PyModule};

use crate::token;

const AUTHORIZATION: [ErrorCode; 5] = [
    ErrorCode::TOPIC_AUTHORIZATION_FAILED,
    ErrorCode::GROUP_AUTHORIZATION_FAILED,
    ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode::DELEGATION_TOKEN_AUTHORIZATION_FAILED,
];

/// Returns the exception for an error of the client.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).map_or_else(|failure| failure, PyErr::from_value)
}

/// Returns the exception as a value, for results by item.
pub(crate) fn value<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    exception(py, error)
}

/// Returns a `ConfigError`.
pub(crate) fn config(py: Python<'_>, text: &str) -> PyErr {
    named(py, "ConfigError", text)
}

/// Returns a `ForkedError`.
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    named(
        py,
        "ForkedError",
        "the client belongs to the parent process; create a new one after the fork",
    )
}

/// Returns an exception of this class without fields.
pub(crate) fn named(py: Python<'_>, class: &str, text: &str) -> PyErr {
    instance(py, class, text).map_or_else(|failure| failure, PyErr::from_value)
}

fn instance<'py>(py: Python<'py>, class: &str, text: &str) -> PyResult<Bound<'py, PyAny>> {
    PyModule::import(py, intern!(py, "curtail_kafka.errors"))?.getattr(class)?.call1((text,))
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    // The program's function had no token, so no broker was tried.
    if let Error::Unreachable { last: Some(last), .. } = error
        && matches!(**last, Error::Connection { problem: ConnectionProblem::NoToken, .. })
    {
        return exception(py, last);
    }
    let made = instance(py, class(error), &error.report().to_string())?;
    made.setattr(intern!(py, "code"), error.code().map(|code| code.0))?;
    made.setattr(intern!(py, "retriable"), error.is_retriable())?;
    made.setattr(intern!(py, "may_have_been_written"), error.may_have_been_written())?;
    made.setattr(intern!(py, "abortable"), error.is_abortable())?;
    made.setattr(intern!(py, "fatal"), error.is_fatal())?;
    made.setattr(intern!(py, "fenced"), error.is_fenced())?;
    fields(&made, error)?;
    Ok(made)
}

fn class(error: &Error) -> &'static str {
    match error {
        Error::Config(_) => "ConfigError",
        Error::Unreachable { .. } => "UnreachableError",
        Error::Connection { problem: ConnectionProblem::NoToken, .. } => "TokenError",
        Error::Connection { .. } => "ConnectionLostError",
        Error::Authentication { .. } => "AuthenticationError",
        Error::Protocol { .. } => "ProtocolError",
        Error::UnsupportedVersion(_) => "UnsupportedVersionError",
        Error::UnknownTopic(_) => "UnknownTopicError",
        Error::UnknownPartition { .. } => "UnknownPartitionError",
        Error::RecordTooLarge { .. } => "RecordTooLargeError",
        Error::BufferFull { .. } => "BufferFullError",
        Error::Timeout { .. } => "TimeoutError",
        Error::Broker { code, .. } if AUTHORIZATION.contains(code) => "AuthorizationError",
        Error::Broker { .. } => "BrokerError",
        Error::NotAcknowledged { .. } => "NotAcknowledgedError",
        Error::TransactionAbortable { .. } => "TransactionAbortableError",
        Error::TransactionFatal { .. } => "TransactionFatalError",
        Error::TransactionAborted => "TransactionAbortedError",
        Error::CommitFailed { .. } => "CommitFailedError",
        Error::Corrupt { .. } => "CorruptError",
        Error::OffsetOutOfRange { .. } => "OffsetOutOfRangeError",
        Error::LogTruncated { .. } => "LogTruncatedError",
        Error::ResponseTooLarge { .. } => "ResponseTooLargeError",
        Error::Thread { .. } => "ThreadError",
        Error::IllegalState(_) => "IllegalStateError",
        Error::Closed => "ClosedError",
        _ => "Error",
    }
}

fn cause(made: &Bound<'_, PyAny>, cause: &Error) -> PyResult<()> {
    made.setattr(intern!(made.py(), "__cause__"), exception(made.py(), cause)?)
}

fn batch_problem(problem: BatchProblem) -> &'static str {
    match problem {
        BatchProblem::Damaged => "damaged",
        BatchProblem::DamagedInLog => "damaged-in-log",
        BatchProblem::TooLarge => "too-large",
        BatchProblem::UnknownFormat => "unknown-format",
        BatchProblem::MissingCodec => "missing-codec",
        _ => "other",
    }
}

fn fields(made: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    let seconds = |limit: &Duration| limit.as_secs_f64();
    match error {
        Error::Unreachable { bootstrap, last, .. } => {
            made.setattr("bootstrap_servers", &**bootstrap)?;
            last.iter().try_for_each(|last| cause(made, last))
        }
        Error::Connection { broker, reason, problem: ConnectionProblem::NoToken, .. } => {
            made.setattr("broker", &**broker)?;
            made.setattr(intern!(made.py(), "__cause__"), token::cause(made.py(), reason)?)
        }
        Error::Connection { broker, .. } | Error::Authentication { broker, .. } => {
            made.setattr("broker", &**broker)
        }
        Error::Protocol { broker, foreign, .. } => {
            made.setattr("broker", &**broker)?;
            made.setattr("foreign", foreign)
        }
        Error::UnknownTopic(topic) => made.setattr("topic", &**topic),
        Error::UnknownPartition { topic, partition, partitions } => {
            made.setattr("topic", &**topic)?;
            made.setattr("partition", partition)?;
            made.setattr("partitions", partitions)
        }
        Error::RecordTooLarge { size, limit } => {
            made.setattr("size", size)?;
            made.setattr("limit", limit)
        }
        Error::BufferFull { waited } => made.setattr("waited", seconds(waited)),
        Error::Timeout { limit, last, .. } => {
            made.setattr("limit", seconds(limit))?;
            last.iter().try_for_each(|last| cause(made, last))
        }
        Error::Broker { message, .. } => made.setattr("broker_message", message.as_deref()),
        Error::NotAcknowledged { topic, partition, cause: why, .. } => {
            made.setattr("topic", &**topic)?;
            made.setattr("partition", partition)?;
            cause(made, why)
        }
        Error::TransactionAbortable { cause: why } | Error::TransactionFatal { cause: why } => {
            cause(made, why)
        }
        Error::CommitFailed { group, .. } => made.setattr("group", &**group),
        Error::Corrupt { topic, partition, offset, next_offset, problem, .. } => {
            made.setattr("topic", &**topic)?;
            made.setattr("partition", partition)?;
            made.setattr("offset", offset)?;
            made.setattr("next_offset", next_offset)?;
            made.setattr("problem", batch_problem(*problem))
        }
        Error::OffsetOutOfRange { topic, partition, offset } => {
            made.setattr("topic", &**topic)?;
            made.setattr("partition", partition)?;
            made.setattr("offset", offset)
        }
        Error::LogTruncated { topic, partition, offset, divergent_offset, .. } => {
            made.setattr("topic", &**topic)?;
            made.setattr("partition", partition)?;
            made.setattr("offset", offset)?;
            made.setattr("divergent_offset", divergent_offset)
        }
        Error::ResponseTooLarge { broker, bytes, limit, setting } => {
            made.setattr("broker", &**broker)?;
            made.setattr("size", bytes)?;
            made.setattr("limit", limit)?;
            made.setattr("setting", setting)
        }
        _ => Ok(()),
    }
}
