"""Apache Kafka client for asyncio, built for the latency tail."""

from ._config import Setting
from ._consumer import Consumer, TopicPartition
from ._fork import install as _install_fork_guard
from ._native import Record, RecordMetadata, Records
from ._producer import Bytes, HeaderLike, Producer
from ._records import Headers
from .errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BufferFullError,
    ClosedError,
    CommitFailedError,
    ConfigError,
    ConnectionLostError,
    CorruptError,
    Error,
    ForkedError,
    IllegalStateError,
    LogTruncatedError,
    NotAcknowledgedError,
    OffsetOutOfRangeError,
    ProtocolError,
    RecordTooLargeError,
    ResponseTooLargeError,
    ThreadError,
    TimeoutError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreachableError,
    UnsupportedVersionError,
)

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "BufferFullError",
    "Bytes",
    "ClosedError",
    "CommitFailedError",
    "ConfigError",
    "ConnectionLostError",
    "Consumer",
    "CorruptError",
    "Error",
    "ForkedError",
    "HeaderLike",
    "Headers",
    "IllegalStateError",
    "LogTruncatedError",
    "NotAcknowledgedError",
    "OffsetOutOfRangeError",
    "Producer",
    "ProtocolError",
    "Record",
    "RecordMetadata",
    "RecordTooLargeError",
    "Records",
    "ResponseTooLargeError",
    "Setting",
    "ThreadError",
    "TimeoutError",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionFatalError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnreachableError",
    "UnsupportedVersionError",
]

_install_fork_guard()
