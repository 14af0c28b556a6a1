"""Types of ``metrics()``: times in seconds, sizes in bytes, since the client was created.

The names are those of the Rust client. A quantile is up to 3.1% too high, never too low; count,
mean and maximum are exact.
"""

from typing import TypedDict

from ._partition import TopicPartition

__all__ = [
    "BrokerMetrics",
    "ConsumerMetrics",
    "Distribution",
    "FetchMetrics",
    "GroupMetrics",
    "PartitionLag",
    "ProducerMetrics",
]


class Distribution(TypedDict):
    count: int
    mean: float
    p50: float
    p99: float
    p999: float
    p9999: float
    max: float


class BrokerMetrics(TypedDict):
    """Of one broker, or of all. The phases of a batch are ``queue_time``, until its request is
    built, ``write_time``, until the socket has accepted the request, and ``request_latency``,
    until the response. ``delivery_time`` covers all phases and retries, one value per record.
    """

    queue_time: Distribution
    write_time: Distribution
    request_latency: Distribution
    delivery_time: Distribution
    throttle_time: Distribution
    batch_size: Distribution
    records_per_batch: Distribution
    request_size: Distribution
    record_send_total: int
    record_retry_total: int
    record_error_total: int
    batch_refused_total: int
    batch_split_total: int
    request_total: int
    response_total: int
    outgoing_byte_total: int
    incoming_byte_total: int
    connection_creation_total: int
    connection_close_total: int
    connection_count: int
    requests_in_flight: int
    queue_bytes: int


class ProducerMetrics(TypedDict):
    client_id: str
    period: float
    buffer_total_bytes: int
    buffer_available_bytes: int
    buffer_wait: Distribution
    """Waits of records for ``buffer.memory``."""
    window_wait: Distribution
    """Waits of records for ``curtail.latency.target.ms``."""
    buffer_exhausted_total: int
    metadata_wait: Distribution
    flush_time: Distribution
    record_error_total: int
    leaderless_bytes: int
    certificates_outdated: bool
    all_brokers: BrokerMetrics
    brokers: dict[int, BrokerMetrics]


class FetchMetrics(TypedDict):
    """Of one broker, or of all."""

    fetch_latency: Distribution
    buffer_time: Distribution
    """From a response until a poll returned its records, one value per record."""
    fetch_size: Distribution
    throttle_time: Distribution
    fetch_total: int
    fetch_beside_session_total: int
    session_open_total: int


class GroupMetrics(TypedDict):
    commit_latency: Distribution
    heartbeat_latency: Distribution
    join_time: Distribution
    sync_time: Distribution
    rebalance_latency: Distribution
    failed_rebalance_total: int
    partition_revoked_latency: Distribution
    partition_assigned_latency: Distribution
    partition_lost_latency: Distribution
    since_rebalance: float | None
    since_heartbeat: float | None


class PartitionLag(TypedDict):
    lag: int | None
    """Records that are not polled yet; ``None`` before the first response."""
    buffered_bytes: int


class ConsumerMetrics(TypedDict):
    client_id: str
    period: float
    records_consumed_total: int
    bytes_consumed_total: int
    connection_creation_total: int
    """To read from brokers; those for metadata and for the group do not count."""
    poll_idle_time: float
    """Seconds that polls waited for records; 0 with partition queues."""
    certificates_outdated: bool
    all_brokers: FetchMetrics
    brokers: dict[int, FetchMetrics]
    group: GroupMetrics | None
    """``None`` without a ``group_id``."""
    partitions: dict[TopicPartition, PartitionLag]
