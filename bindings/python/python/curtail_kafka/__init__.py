"""Apache Kafka client for asyncio, built for the latency tail."""

from . import sync
from ._admin import Admin
from ._config import Setting
from ._consumer import Consumer
from ._doctor import doctor
from ._fork import install as _install_fork_guard
from ._group import GroupMetadata
from ._native import Record, RecordBatch, RecordMetadata, Records, Timing
from ._offset import Offset, OffsetAndTimestamp
from ._partition import TopicPartition
from ._pipeline import Pipeline
from ._producer import Producer
from ._rebalance import Rebalance, RebalanceListener
from ._records import Headers
from ._scan import ArrowStream, scan
from ._sender import ArrowExportable, Bytes, Delivered, HeaderLike, NewRecord, Written
from ._tokens import Token, TokenFunction
from ._transaction import Transaction, TransactionalProducer
from .admin import OffsetAndMetadata
from .diagnosis import DoctorReport
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
    DoctorError,
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
    TokenError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreachableError,
    UnsupportedVersionError,
)

__all__ = [
    "Admin",
    "ArrowExportable",
    "ArrowStream",
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
    "Delivered",
    "DoctorError",
    "DoctorReport",
    "Error",
    "ForkedError",
    "GroupMetadata",
    "HeaderLike",
    "Headers",
    "IllegalStateError",
    "LogTruncatedError",
    "NewRecord",
    "NotAcknowledgedError",
    "Offset",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "Pipeline",
    "Producer",
    "ProtocolError",
    "Rebalance",
    "RebalanceListener",
    "Record",
    "RecordBatch",
    "RecordMetadata",
    "RecordTooLargeError",
    "Records",
    "ResponseTooLargeError",
    "Setting",
    "ThreadError",
    "TimeoutError",
    "Timing",
    "Token",
    "TokenError",
    "TokenFunction",
    "TopicPartition",
    "Transaction",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionFatalError",
    "TransactionalProducer",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnreachableError",
    "UnsupportedVersionError",
    "Written",
    "doctor",
    "scan",
    "sync",
]

_install_fork_guard()
