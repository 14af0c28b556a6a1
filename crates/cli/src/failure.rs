//! Errors as one line that says what happened and what to do.

#[cfg(test)]
mod tests;

use std::{fmt::Display, io};

use curtail::{
    ConfigError, Error,
    error::{ConnectionProblem, FileProblem, Report},
};
use curtail_cluster::ClusterError;
#[cfg(feature = "perf")]
use curtail_lab::perf;

use crate::settings;

/// Reason why the command ends early, or with an exit code other than 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// One line for the user.
    Message(String),
    /// Standard output was closed by its reader. This is the end, but not an error.
    OutputClosed,
    /// The conditions of an experiment do not all hold, as its report says: exit code 2.
    #[cfg(feature = "perf")]
    NotHeld,
}

impl Failure {
    /// A failure in words.
    pub(crate) fn new(text: impl Display) -> Self {
        Self::Message(one_line(&text.to_string()))
    }

    /// A failure that an error and its causes describe. The only place that prints causes.
    pub(crate) fn of(error: &dyn std::error::Error) -> Self {
        Self::new(Report::new(error))
    }

    /// All failures in one line; `Ok` if there are none.
    pub(crate) fn all(failures: Vec<Self>) -> Result<(), Self> {
        let mut texts = Vec::new();
        for failure in failures {
            match failure {
                Self::Message(text) => texts.push(text),
                other => return Err(other),
            }
        }
        let Some(last) = texts.pop() else { return Ok(()) };
        // Messages of brokers end with a full stop.
        let before = texts.iter().map(|text| format!("{}; ", clause(text)));
        Err(Self::Message(before.collect::<String>() + &last))
    }
}

/// A text without the punctuation at its end, so that more text may follow.
pub(crate) fn clause(text: &str) -> &str {
    match text.ends_with("...") {
        true => text,
        false => text.trim_end_matches(['.', ':', ';', ' ']),
    }
}

/// Joins the lines of a message. Messages of brokers and of the operating system may have several.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.report().to_string();
        match advice(&error) {
            Some(advice) => Self::new(format!("{}; {advice}", clause(&text))),
            None => Self::new(text),
        }
    }
}

/// Advice for an error that contains none.
fn advice(error: &Error) -> Option<&'static str> {
    match error {
        Error::Unreachable { last: Some(last), .. } if has_advice(last) => None,
        Error::Unreachable { last: Some(last), .. } if matches!(**last, Error::Protocol { .. }) => {
            Some(PORT)
        }
        Error::Unreachable { .. } => Some(
            "check --bootstrap-server and that the brokers are running (`curtail cluster` starts a cluster)",
        ),
        error if has_advice(error) => None,
        Error::Protocol { .. } => Some(PORT),
        Error::UnknownTopic(_) => Some("`curtail topics list` prints the topics"),
        Error::RecordTooLarge { .. } => Some("send smaller records or raise max.request.size"),
        Error::NotAcknowledged { cause, .. } => advice(cause),
        Error::Timeout { last: Some(last), .. } => advice(last),
        Error::Broker { code, .. } if *code == curtail::ErrorCode::KAFKA_STORAGE_ERROR => {
            Some("is a broker's disk full? see its output")
        }
        Error::Broker { code, .. } if *code == curtail::ErrorCode::SECURITY_DISABLED => {
            Some("set authorizer.class.name on the brokers to use ACLs")
        }
        Error::Broker { code, .. } if *code == curtail::ErrorCode::OFFSET_OUT_OF_RANGE => {
            Some("use an offset from 0 to the high watermark, or -1 for all records")
        }
        Error::Broker { code, .. }
            if matches!(
                *code,
                curtail::ErrorCode::NON_EMPTY_GROUP | curtail::ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
            ) =>
        {
            Some("stop its members first; `curtail groups describe --members` prints them")
        }
        Error::Broker { code, .. } if *code == curtail::ErrorCode::TRANSACTIONAL_ID_NOT_FOUND => {
            Some("`curtail transactions list` prints the transactional ids")
        }
        Error::Broker { code, .. } if *code == curtail::ErrorCode::MESSAGE_TOO_LARGE => {
            Some("send smaller records or raise the topic's max.message.bytes")
        }
        Error::Broker { code, message: None, .. }
            if *code == curtail::ErrorCode::INVALID_TOPIC_EXCEPTION =>
        {
            Some("a topic name has 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
        }
        _ => None,
    }
}

/// Advice for a peer that is no Kafka broker, whatever it speaks.
const PORT: &str = "is this the port of a Kafka broker, without TLS?";

/// Whether the text of the error says what to check.
fn has_advice(error: &Error) -> bool {
    match error {
        Error::Connection { problem, .. } => *problem != ConnectionProblem::Other,
        Error::Protocol { foreign, .. } => *foreign,
        _ => false,
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(of_setting(&error))
    }
}

/// The text for a setting that cannot be used. For an unknown one it says who has it.
fn of_setting(error: &ConfigError) -> String {
    match error {
        ConfigError::Unknown { name, nearest } => match (settings::of_others(name), nearest) {
            (Some(text), _) => text,
            (None, Some(_)) => error.to_string(),
            (None, None) => {
                format!("{error}; properties have the names of Kafka's Java clients")
            }
        },
        ConfigError::InFile { path, problems } => {
            let text = |problem: &FileProblem| {
                let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
                format!("{path}{line}: {}", of_setting(&problem.error))
            };
            problems.iter().map(text).collect::<Vec<_>>().join("; ")
        }
        _ => error.to_string(),
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::of(&error)
    }
}

impl From<curtail_cluster::ConfigError> for Failure {
    fn from(error: curtail_cluster::ConfigError) -> Self {
        Self::new(error)
    }
}

impl From<curtail_cluster::log::LogError> for Failure {
    fn from(error: curtail_cluster::log::LogError) -> Self {
        match error {
            curtail_cluster::log::LogError::Io { path, source } => {
                Self::new(format_args!("cannot read {}: {source}", path.display()))
            }
            other => Self::of(&other),
        }
    }
}

#[cfg(feature = "perf")]
impl From<perf::Error> for Failure {
    fn from(error: perf::Error) -> Self {
        match error {
            perf::Error::Client(error) => error.into(),
            other => Self::of(&other),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::new(format!("cannot write the output: {error}")),
        }
    }
}
