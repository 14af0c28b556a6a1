//! Errors of the client, with their remedies.
//!
//! The text of an error does not contain those of its causes, which are in its [`source`](std::error::Error::source).
//! [`Error::report`] prints all of them in one line.

#[cfg(test)]
mod tests;

use std::{io, sync::Arc, time::Duration};

pub use curtail_wire::Report;
use curtail_wire::{
    ErrorCode,
    records::{DecompressError, RecordError},
};

use crate::config::HIDDEN;

/// An error of the client. Cheap to clone: one error is returned for every record of a batch.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A property or builder value that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No broker could be reached.
    #[error("cannot reach the cluster at {bootstrap}{}", if .last.is_none() { "; no broker responds" } else { "" })]
    Unreachable {
        /// `bootstrap.servers`.
        bootstrap: Arc<str>,
        /// Failure at the last broker tried; `None` if there was none to try.
        #[source]
        last: Option<Arc<Error>>,
    },
    /// A connection was lost or could not be used.
    #[error("connection to {broker}: {reason}")]
    Connection {
        /// Address or id of the broker.
        broker: Arc<str>,
        /// What happened.
        reason: Arc<str>,
        /// The kind of problem.
        problem: ConnectionProblem,
        /// The operating system's error, if the socket failed.
        #[source]
        source: Option<Arc<io::Error>>,
    },
    /// TLS or SASL failed: the broker could not prove its identity, or refused the client's. A retry with the same
    /// settings does not help. Certificates that cannot be read are [`Self::Config`].
    #[error("authentication with {broker} failed: {reason}")]
    Authentication {
        /// Address of the broker.
        broker: Arc<str>,
        /// What failed, and the setting to check.
        reason: Arc<str>,
    },
    /// The peer does not speak the Kafka protocol, or violates it.
    #[error("{broker} broke the Kafka protocol: {reason}")]
    Protocol {
        /// Address or id of the broker.
        broker: Arc<str>,
        /// The violation.
        reason: Arc<str>,
        /// Whether the peer speaks another protocol, which the reason names.
        foreign: bool,
    },
    /// The broker supports no version of a request that this client supports.
    #[error("{0}")]
    UnsupportedVersion(Arc<str>),
    /// The topic does not exist, or not yet.
    #[error("topic '{0}' does not exist")]
    UnknownTopic(Arc<str>),
    /// The topic has no such partition.
    #[error("topic '{topic}' has no partition {partition}{}", existing(*.partitions))]
    UnknownPartition {
        /// Topic.
        topic: Arc<str>,
        /// The requested partition.
        partition: i32,
        /// Number of partitions.
        partitions: usize,
    },
    /// The record is larger than the producer may send.
    #[error("record of {size} bytes is larger than max.request.size={limit}")]
    RecordTooLarge {
        /// Encoded size of the record as the only one in a batch.
        size: usize,
        /// `max.request.size`.
        limit: usize,
    },
    /// `buffer.memory` stayed full for `max.block.ms`, or is full now in a call that does not wait. There also a full window
    /// of the broker (`curtail.latency.target.ms`).
    #[error("{}", no_room(*waited))]
    BufferFull {
        /// How long the call waited.
        waited: Duration,
    },
    /// A wait ended at its limit without a result.
    #[error("{what} took longer than {limit:?}")]
    Timeout {
        /// The awaited event, and the setting that limits the wait.
        what: &'static str,
        /// The limit.
        limit: Duration,
        /// The last error during the wait.
        #[source]
        last: Option<Arc<Error>>,
    },
    /// A broker responded with an error.
    #[error("{what}: {code}{}", broker_message(.what, *.code, .message.as_deref()))]
    Broker {
        /// The topic and partition, or the operation.
        what: Arc<str>,
        /// Kafka's error code.
        code: ErrorCode,
        /// The broker's message.
        message: Option<Arc<str>>,
    },
    /// A record was not acknowledged.
    #[error("{topic}-{partition}: not acknowledged ({})", if *.may_have_been_written { "may have been written" } else { "not written" })]
    NotAcknowledged {
        /// Topic.
        topic: Arc<str>,
        /// Partition.
        partition: i32,
        /// Whether the record may still be in the log. `false` means that it certainly is not.
        may_have_been_written: bool,
        /// Why.
        #[source]
        cause: Arc<Error>,
    },
    /// The open transaction has failed and can only be aborted; the next one may succeed (KIP-1050).
    #[error("the transaction must be aborted")]
    TransactionAbortable {
        /// Why.
        #[source]
        cause: Arc<Error>,
    },
    /// The transactional producer is unusable, for example because a newer one has fenced it. Close it.
    #[error("the transactional producer cannot continue")]
    TransactionFatal {
        /// Why.
        #[source]
        cause: Arc<Error>,
    },
    /// The record was not sent before its transaction was aborted.
    #[error("the transaction was aborted")]
    TransactionAborted,
    /// Offsets were not committed: a rebalance is in progress, or the partitions belong to another member. Poll, and
    /// continue with the new assignment.
    #[error("offsets of group '{group}' were not committed ({code}): {reason}")]
    CommitFailed {
        /// `group.id`.
        group: Arc<str>,
        /// The coordinator's error code, or the equivalent one.
        code: ErrorCode,
        /// Why.
        reason: Arc<str>,
    },
    /// A fetched batch is damaged, the broker reports that it is (CORRUPT_MESSAGE), it decompresses to more than
    /// `curtail.decompressed.batch.max.bytes`, or it has a format or codec that is not supported. The position stays, and
    /// later polls report the error again until a [`Consumer::seek`](crate::Consumer::seek) passes the batch. Other
    /// partitions continue. The seek loses the records of the batch, which is why the consumer never skips it automatically.
    ///
    /// A batch whose codec this build does not have is intact, but cannot be read either: the reason names the cargo
    /// feature to add, and `next_offset` is `None`.
    ///
    /// ```
    /// # async fn example(consumer: &mut curtail::Consumer) -> curtail::Result<()> {
    /// # use std::time::Duration;
    /// use curtail::{Error, TopicPartition, error::BatchProblem};
    ///
    /// match consumer.poll(Duration::from_secs(1)).await {
    ///     Ok(records) => println!("{} records", records.len()),
    ///     Err(Error::Corrupt {
    ///         topic, partition, offset, next_offset: Some(next), problem: BatchProblem::Damaged, ..
    ///     }) => {
    ///         eprintln!("{topic}-{partition}: skipping the damaged records {offset}..{next}");
    ///         consumer.seek(&TopicPartition::new(topic, partition), next)?;
    ///     }
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[error("{topic}-{partition} at offset {offset}: {reason}{}", .next_offset.map(|next| format!("; to skip it, seek to offset {next}")).unwrap_or_default())]
    Corrupt {
        /// Topic.
        topic: Arc<str>,
        /// Partition.
        partition: i32,
        /// First offset of the damaged batch, or the position if that offset is unknown.
        offset: i64,
        /// Offset at which to continue after the damaged batch. It is the next batch's first offset, if that batch
        /// was fetched. Otherwise it comes from the damaged header, which may itself be wrong. `None` if there is
        /// neither, as when the broker reports the damage (CORRUPT_MESSAGE) and sends no batch. Then a seek to an
        /// offset after the batch still passes it, and another replica may have the batch intact.
        next_offset: Option<i64>,
        /// Kind of problem.
        problem: BatchProblem,
        /// The problem in words.
        reason: Arc<str>,
    },
    /// The position is outside the log and `auto.offset.reset` is `none`.
    #[error("{topic}-{partition}: offset {offset} is out of range and auto.offset.reset is none")]
    OffsetOutOfRange {
        /// Topic.
        topic: Arc<str>,
        /// Partition.
        partition: i32,
        /// The position.
        offset: i64,
    },
    /// Records before the position were lost in an unclean leader election, and `auto.offset.reset` is `none`
    /// (KIP-320). Later polls report the error again, until a seek. [`Consumer::seek_to`](crate::Consumer::seek_to)
    /// with the divergent offset reads the records that replaced the lost ones.
    #[error(
        "{topic}-{partition}: records before offset {offset} (leader epoch {leader_epoch}) were lost in an unclean election; {}, and auto.offset.reset is none; seek to decide where to continue",
        divergence(*.divergent_offset, *.divergent_epoch)
    )]
    LogTruncated {
        /// Topic.
        topic: Arc<str>,
        /// Partition.
        partition: i32,
        /// The position.
        offset: i64,
        /// Leader epoch of the record before the position.
        leader_epoch: i32,
        /// First offset known to differ from the records read; `None` if the leader knows none.
        divergent_offset: Option<i64>,
        /// Leader epoch of the record before that offset.
        divergent_epoch: Option<i32>,
    },
    /// A response does not fit the receive limit, which follows from the setting named.
    #[error(
        "{broker} sent a response of {bytes} bytes, more than the limit of {limit}; set {setting} to at least {bytes}"
    )]
    ResponseTooLarge {
        /// Address of the broker.
        broker: Arc<str>,
        /// Size of the response.
        bytes: usize,
        /// Largest size received.
        limit: usize,
        /// The setting that raises the limit.
        setting: &'static str,
    },
    /// The operating system cannot start a thread, or a runtime for it. [`crate::blocking`] clients and those with
    /// `curtail.io.thread` need one.
    #[error("cannot start the thread of a client")]
    Thread {
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The call does not fit the state of the client.
    #[error("{0}")]
    IllegalState(&'static str),
    /// The client was closed, or the tokio runtime on which it was made has ended.
    #[error("the client is closed")]
    Closed,
}

/// Kind of an [`Error::Connection`], for programs that advise their users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionProblem {
    /// The name of the host has no address.
    UnknownHost,
    /// Nothing accepts connections at the address.
    Refused,
    /// The broker closed the connection before it served a request. `security.protocol` may not be the listener's.
    Unserved,
    /// There is no token for the login.
    NoToken,
    /// Another failure.
    #[default]
    Other,
}

/// Kind of an [`Error::Corrupt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchProblem {
    /// The bytes that the consumer received are damaged. The broker's log may have the same damage: brokers do not verify
    /// checksums when they serve a fetch.
    Damaged,
    /// The broker reports the damage (CORRUPT_MESSAGE), and sent no batch.
    DamagedInLog,
    /// The batch decompresses to more than `curtail.decompressed.batch.max.bytes`.
    TooLarge,
    /// The batch has a message format or a codec that this version does not support. Damage to the byte of the format looks
    /// the same, because the checksum does not cover it; with `check.crcs=false` also damage to the codec.
    UnknownFormat,
    /// The batch is intact, but its codec is a cargo feature that this build does not have.
    MissingCodec,
}

impl BatchProblem {
    pub(crate) fn of(error: &RecordError) -> Self {
        match error {
            RecordError::TooLarge { .. } => Self::TooLarge,
            RecordError::UnsupportedMagic(_) | RecordError::UnknownCodec(_) => Self::UnknownFormat,
            RecordError::Decompress(DecompressError::NotBuilt(_)) => Self::MissingCodec,
            _ => Self::Damaged,
        }
    }
}

/// The text of [`Error::BufferFull`].
fn no_room(waited: Duration) -> String {
    let faster = "records are sent faster than the brokers accept them";
    match waited.is_zero() {
        true => {
            format!("no room now in buffer.memory, or within curtail.latency.target.ms; {faster}")
        }
        false => format!("buffer.memory was full for {waited:?}; {faster}"),
    }
}

impl Error {
    /// Returns the error and its causes in one line, for a log. The text of an error alone does not contain those of
    /// its causes: libraries such as `anyhow` print the chain themselves.
    ///
    /// ```
    /// # async fn example(producer: &curtail::Producer) -> curtail::Result<()> {
    /// use curtail::Record;
    ///
    /// let delivery = producer.send(Record::to("payments").value("42.00")).await?;
    /// if let Err(error) = delivery.await {
    ///     // payments-0: not acknowledged (not written): payments-0: TOPIC_AUTHORIZATION_FAILED ...
    ///     eprintln!("{}", error.report());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn report(&self) -> Report<'_> {
        Report::new(self)
    }

    /// Whether the record may still be in the log, although its send or delivery ended with this error. `false` means
    /// that it certainly is not: a second send cannot duplicate it.
    ///
    /// ```
    /// # async fn example(producer: &curtail::Producer) -> curtail::Result<()> {
    /// use curtail::Record;
    ///
    /// let delivery = producer.send(Record::to("payments").value("42.00")).await?;
    /// match delivery.await {
    ///     Ok(written) => println!("offset {:?}", written.offset),
    ///     Err(error) if error.may_have_been_written() => println!("look before sending again: {}", error.report()),
    ///     Err(error) => println!("not written: {}", error.report()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn may_have_been_written(&self) -> bool {
        // Every other error comes from `send` itself, before the record is in a batch.
        matches!(self, Self::NotAcknowledged { may_have_been_written: true, .. })
    }

    /// Kafka's error code, if a broker sent one: that of this error, or of the error that caused it.
    ///
    /// ```
    /// use curtail::{Error, ErrorCode};
    ///
    /// fn is_denied(error: &Error) -> bool {
    ///     error.code() == Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
    /// }
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Broker { code, .. } | Self::CommitFailed { code, .. } => Some(*code),
            Self::Unreachable { last: Some(cause), .. }
            | Self::Timeout { last: Some(cause), .. }
            | Self::NotAcknowledged { cause, .. }
            | Self::TransactionAbortable { cause }
            | Self::TransactionFatal { cause } => cause.code(),
            _ => None,
        }
    }

    /// Whether the same call may succeed later, with the same settings and arguments.
    ///
    /// The client has already retried within its own limits. Before another attempt for a record, see
    /// [`Error::may_have_been_written`]: a second send may duplicate it.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::UnknownTopic(_) | Self::BufferFull { .. } => true,
            Self::Unreachable { last, .. } | Self::Timeout { last, .. } => {
                last.as_ref().is_none_or(|cause| !cause.needs_other_settings())
            }
            Self::Broker { code, .. } | Self::CommitFailed { code, .. } => code.is_retriable(),
            Self::NotAcknowledged { cause, .. } => cause.is_retriable(),
            _ => false,
        }
    }

    /// Whether the open transaction can only be aborted, and the producer can continue after that.
    #[must_use]
    pub fn is_abortable(&self) -> bool {
        match self {
            Self::TransactionAbortable { .. } => true,
            Self::NotAcknowledged { cause, .. } => cause.is_abortable(),
            _ => false,
        }
    }

    /// Whether the transactional producer is unusable and must be closed.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::TransactionFatal { .. } => true,
            Self::NotAcknowledged { cause, .. } => cause.is_fatal(),
            _ => false,
        }
    }

    /// Whether no attempt with the same settings can succeed: they cannot be used, or the broker refuses the client.
    pub(crate) fn needs_other_settings(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Authentication { .. })
    }

    /// Whether the client was fenced: by a newer producer with the same `transactional.id`, or by a newer consumer
    /// with the same `group.instance.id`. Also true after `transaction.timeout.ms`, because the coordinator then
    /// fences the producer.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        match self {
            Self::Broker { code, .. } | Self::CommitFailed { code, .. } => {
                matches!(*code, ErrorCode::PRODUCER_FENCED | ErrorCode::FENCED_INSTANCE_ID)
            }
            Self::TransactionFatal { cause } | Self::NotAcknowledged { cause, .. } => {
                cause.is_fenced()
            }
            _ => false,
        }
    }
}

/// A property that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No such property exists.
    #[error("{}", unknown(.name, *.nearest))]
    Unknown {
        /// The name given; `[hidden]` if it does not look like a name, because it may be a secret.
        name: String,
        /// The nearest known name, if it is similar.
        nearest: Option<&'static str>,
    },
    /// The value does not fit the property.
    #[error("{name}={value}: {reason}")]
    Invalid {
        /// Property.
        name: &'static str,
        /// The value given; `[hidden]` if it may be a secret.
        value: String,
        /// The accepted values.
        reason: String,
    },
    /// Two properties contradict each other.
    #[error("{0}")]
    Contradiction(String),
    /// A property that has no default is missing.
    #[error("{}", required(.0))]
    Missing(&'static str),
    /// A property of the Java client without an equivalent here, with another value than Java's default.
    #[error("{}{} is not supported: {why}", .name, .value.as_ref().map(|v| format!("={v}")).unwrap_or_default())]
    NotSupported {
        /// Property.
        name: String,
        /// The value given; `None` if it may be a secret.
        value: Option<String>,
        /// The reason, and what to do.
        why: String,
    },
    /// Certificates or keys that cannot be read, or that do not fit together. Clients read them when they connect.
    #[error("{0}")]
    Certificates(
        /// The settings, the path of a file, and the problem.
        Arc<str>,
    ),
    /// A config provider cannot read the text for a variable (KIP-297).
    #[error("{name}: {variable}: {reason}")]
    Provider {
        /// Property.
        name: String,
        /// The variable, as in `${file:/run/secrets/kafka.properties:password}`.
        variable: String,
        /// The problem.
        reason: String,
    },
    /// A property of another kind of client.
    #[error("{name} is not supported: it is a setting of {clients}")]
    OfOtherClients {
        /// Property.
        name: String,
        /// The clients that have it, such as `consumers`.
        clients: &'static str,
    },
    /// Settings of a file that cannot be used, each with its line.
    #[error("{}", in_file(.path, .problems))]
    InFile {
        /// The file.
        path: String,
        /// All problems, in the order of the lines.
        problems: Vec<FileProblem>,
    },
    /// An invalid escape in a file of properties.
    #[error("a \\u escape has four hexadecimal digits")]
    Escape,
    /// A file of properties cannot be read.
    #[error("cannot read properties from {path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The problem.
        reason: String,
    },
}

/// A setting of a file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileProblem {
    /// The setting's first line, from 1. `None` if the settings contradict each other, or one is missing.
    pub line: Option<usize>,
    /// The problem.
    pub error: ConfigError,
}

/// The text of [`ConfigError::InFile`]: one line for each problem.
fn in_file(path: &str, problems: &[FileProblem]) -> String {
    let line = |problem: &FileProblem| match problem.line {
        Some(number) => format!("{path}:{number}: {}", problem.error),
        None => format!("{path}: {}", problem.error),
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The text of [`ConfigError::Unknown`].
fn unknown(name: &str, nearest: Option<&str>) -> String {
    let similar = nearest.map(|nearest| format!("; did you mean '{nearest}'?"));
    let similar = similar.unwrap_or_default();
    match name {
        HIDDEN => "unknown property; its name is not shown, because it may be a secret".to_owned(),
        name => format!("unknown property '{name}'{similar}"),
    }
}

/// The text of [`ConfigError::Missing`], with an example if the syntax is not obvious.
fn required(name: &str) -> String {
    let example = match name {
        "sasl.jaas.config" => {
            r#"; for PLAIN, set it to: org.apache.kafka.common.security.plain.PlainLoginModule required username="NAME" password="PASSWORD";"#
        }
        _ => "",
    };
    format!("{name} is required{example}")
}

/// Names the partitions that exist.
fn existing(partitions: usize) -> String {
    match partitions {
        0 => String::new(),
        1 => "; its only partition is 0".to_owned(),
        count => format!("; its partitions are 0 to {}", count - 1),
    }
}

fn divergence(offset: Option<i64>, epoch: Option<i32>) -> String {
    match (offset, epoch) {
        (Some(offset), Some(epoch)) => {
            format!("the log differs from offset {offset} (leader epoch {epoch}) on")
        }
        (Some(offset), None) => format!("the log differs from offset {offset} on"),
        (None, _) => "the leader does not know where the log differs".to_owned(),
    }
}

/// The broker's message, and the ACL permission to grant.
fn broker_message(what: &str, code: ErrorCode, message: Option<&str>) -> String {
    let permission = missing_permission(what, code);
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        None => permission.to_owned(),
        Some(message) if permission.is_empty() => format!(": {message}"),
        Some(message) => format!(": {}{permission}", message.trim_end_matches('.')),
    }
}

/// The subject of an [`Error::Broker`] about the id of an idempotent producer.
pub(crate) const PRODUCER_ID: &str = "a producer id (InitProducerId)";

/// Names the ACL permission to grant.
fn missing_permission(what: &str, code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
            "; the principal needs an ACL for the topic: WRITE to produce, READ to consume, CREATE, DESCRIBE, ALTER or DELETE to administer"
        }
        ErrorCode::GROUP_AUTHORIZATION_FAILED => {
            "; the principal needs an ACL for the group: READ to join it and to commit, DESCRIBE or DELETE to administer"
        }
        ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => {
            "; the principal needs an ACL for the transactional id: WRITE"
        }
        ErrorCode::CLUSTER_AUTHORIZATION_FAILED if what == PRODUCER_ID => {
            "; the principal needs an ACL for the cluster: IDEMPOTENT_WRITE for an idempotent producer that may not WRITE to any topic"
        }
        ErrorCode::CLUSTER_AUTHORIZATION_FAILED => {
            "; the principal needs an ACL for the cluster: DESCRIBE or DESCRIBE_CONFIGS to list and describe, CREATE, ALTER or ALTER_CONFIGS to change"
        }
        _ => "",
    }
}

/// A result with the client's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reduces an untrusted broker message to one line, truncated to 500 characters.
pub(crate) fn one_line(message: &str) -> String {
    const LONGEST: usize = 500;
    let words = message.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(end);
        line.push('\u{2026}');
    }
    line
}
