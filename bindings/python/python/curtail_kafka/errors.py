"""Exceptions of the clients. Each variant of the Rust client's error has a class."""

import builtins
from typing import Literal


class Error(Exception):
    """Base of all exceptions of the clients."""

    code: int | None = None
    """Kafka's error code, if a broker sent one."""
    retriable: bool = False
    """Whether the same call may succeed later, with the same settings and arguments."""
    may_have_been_written: bool = False
    """Whether the record may be in the log. ``False``: a second send cannot duplicate it."""
    abortable: bool = False
    """Whether the open transaction can only be aborted."""
    fatal: bool = False
    """Whether the transactional producer is unusable."""
    fenced: bool = False
    """Whether a newer client with the same id has fenced this one."""


class ConfigError(Error, ValueError):
    """A setting that cannot be used."""


class UnreachableError(Error, builtins.ConnectionError):
    """No broker could be reached."""

    bootstrap_servers: str


class ConnectionLostError(Error, builtins.ConnectionError):
    """A connection was lost or could not be used."""

    broker: str


class TokenError(ConnectionLostError):
    """There is no token for SASL/OAUTHBEARER.

    ``__cause__`` is the exception that ``oauth_token`` has raised.
    """


class AuthenticationError(Error):
    """TLS or SASL failed. A retry with the same settings does not help."""

    broker: str


class ProtocolError(Error):
    """The peer does not speak the Kafka protocol, or violates it."""

    broker: str
    foreign: bool


class UnsupportedVersionError(Error):
    """The broker supports no version of a request that this client supports."""


class UnknownTopicError(Error):
    """The topic does not exist, or not yet."""

    topic: str


class UnknownPartitionError(Error):
    """The topic has no such partition."""

    topic: str
    partition: int
    partitions: int


class RecordTooLargeError(Error):
    """The record is larger than ``max.request.size``."""

    size: int
    limit: int


class BufferFullError(Error):
    """Records are sent faster than the brokers accept them."""

    waited: float


class TimeoutError(Error, builtins.TimeoutError):
    """A wait ended at its limit without a result."""

    limit: float


class BrokerError(Error):
    """A broker responded with an error."""

    broker_message: str | None = None


class AuthorizationError(BrokerError):
    """The client's principal lacks an ACL permission."""


class NotAcknowledgedError(Error):
    """A record was not acknowledged. ``__cause__`` is the reason."""

    topic: str
    partition: int


class TransactionAbortableError(Error):
    """The open transaction has failed and can only be aborted."""


class TransactionFatalError(Error):
    """The transactional producer is unusable."""


class TransactionAbortedError(Error):
    """The record was not sent before its transaction was aborted."""


class CommitFailedError(Error):
    """Offsets were not committed: the partitions may belong to another member."""

    group: str


class CorruptError(Error):
    """A fetched batch cannot be read; ``problem`` says why.

    A seek to ``next_offset``, if there is one, loses its records.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int | None
    problem: Literal[
        "damaged", "damaged-in-log", "too-large", "unknown-format", "missing-codec", "other"
    ]


class OffsetOutOfRangeError(Error):
    """The position is outside the log and ``auto.offset.reset`` is ``none``."""

    topic: str
    partition: int
    offset: int


class LogTruncatedError(Error):
    """Records before the position were lost in an unclean leader election."""

    topic: str
    partition: int
    offset: int
    divergent_offset: int | None


class ResponseTooLargeError(Error):
    """A response does not fit the limit of the setting."""

    broker: str
    size: int
    limit: int
    setting: str


class ThreadError(Error):
    """The operating system cannot start a thread."""


class IllegalStateError(Error, RuntimeError):
    """The call does not fit the state of the client, or no event loop of asyncio runs."""


class ClosedError(Error):
    """The client is closed."""


class ForkedError(Error):
    """The client belongs to the parent process of a fork."""


class ClusterError(Error):
    """The embedded cluster cannot be started or changed."""


class DoctorError(Error):
    """The doctor could not measure the cluster."""
